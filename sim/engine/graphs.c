/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/graphs.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/model/cuda_graph.h"
#include "sim/model/software.h"

#include <stdlib.h>
#include <string.h>

/* Streams that graphs bring with them. Each has blocks of its own. */
enum { LOCAL_STREAM = 0x2000, WARMUP_STREAM = 0x3000, CAPTURE_STREAM = 0x4000, LOADER = 0x5000 };

/* Buffers for a graph's inputs, of one set of sizes, that no pass uses for now. */
typedef struct {
    uint64_t input_bytes, mask_bytes;
    uint32_t n_spare;
} inputs_t;

typedef struct {
    sim_player_t *p;
    sim_block_t ***slots; /* by chunk and micro-batch; owned */
    uint32_t n_microbatches;
    inputs_t *inputs; /* n_inputs; owned */
    uint32_t n_inputs;
    uint64_t (*grads)[SIM_CUDA_GRAPH_MAX_GRADS]; /* sizes for which there are buffers; owned */
    uint32_t n_grads;
    bool holds_outputs; /* warm-up by the schedule: outputs stay until the end of it */
    int64_t
        last_passed; /* chunk * n_microbatches + micro-batch of the backward pass before, or -1 */
} capture_t;

/* ---- passes of the layers that are in graphs ---- */

static void capture_init(capture_t *c, sim_player_t *p)
{
    bool has_pipeline = p->scenario->pipeline_model_parallel_size > 1;
    *c = (capture_t){ .p = p,
                      .n_microbatches = has_pipeline ? p->n_microbatches : 1,
                      .last_passed = -1 };
    c->slots = base_xcalloc(p->n_chunks, sizeof(*c->slots));
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        c->slots[i] = base_xcalloc(c->n_microbatches, sizeof(**c->slots));
        for (uint32_t m = 0; m < c->n_microbatches; m++) {
            uint32_t n = p->chunks[i].chunk.n_slots;
            c->slots[i][m] = base_xcalloc(n, sizeof(sim_block_t));
            for (uint32_t k = 0; k < n; k++)
                c->slots[i][m][k] = SIM_BLOCK_NONE;
        }
    }
}

static void capture_fini(capture_t *c)
{
    for (uint32_t i = 0; i < c->p->n_chunks; i++) {
        for (uint32_t m = 0; m < c->n_microbatches; m++)
            free(c->slots[i][m]);
        free(c->slots[i]);
    }
    free(c->slots);
    free(c->inputs);
    free(c->grads);
}

static void set_moment(capture_t *c, const sim_step_t *step)
{
    c->p->now.phase = SIM_PHASE_GRAPH_CAPTURE;
    c->p->now.chunk = step->chunk;
    c->p->now.microbatch = step->microbatch;
}

/* Steps that are passes of micro-batches of which graphs are made. */
static bool is_pass(const capture_t *c, const sim_step_t *step)
{
    return (step->kind == SIM_STEP_FORWARD || step->kind == SIM_STEP_BACKWARD) &&
           step->microbatch < c->n_microbatches;
}

typedef bool (*visit_f)(capture_t *c, const sim_step_t *step, uint32_t graph, bool is_last);

/* Every graph in the order in which it is run: of a forward pass from the front, of a backward pass
 * from behind. Ends at the first false. */
static bool foreach_graph(capture_t *c, visit_f visit)
{
    for (size_t i = 0; i < c->p->order.n; i++) {
        const sim_step_t *step = &c->p->order.steps[i];
        if (!is_pass(c, step))
            continue;
        uint32_t n = c->p->chunks[step->chunk].chunk.graphs.n;
        set_moment(c, step);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t graph = step->kind == SIM_STEP_FORWARD ? k : n - 1 - k;
            if (!visit(c, step, graph, k + 1 == n))
                return false;
        }
    }
    return true;
}

static const sim_cuda_graph_t *graph_of(const capture_t *c, const sim_step_t *step, uint32_t graph)
{
    return &c->p->chunks[step->chunk].chunk.graphs.graphs[graph];
}

static bool play_graph(capture_t *c, const sim_step_t *step, uint32_t number)
{
    const sim_cuda_graph_t *graph = graph_of(c, step, number);
    const sim_tape_t *tape = step->kind == SIM_STEP_FORWARD ? &graph->forward : &graph->backward;
    return sim_player_play_graph(c->p, &c->p->chunks[step->chunk], tape,
                                 c->slots[step->chunk][step->microbatch], c->holds_outputs);
}

static void free_slots(capture_t *c, uint32_t chunk, uint32_t microbatch)
{
    sim_block_t *slots = c->slots[chunk][microbatch];
    for (uint32_t i = 0; i < c->p->chunks[chunk].chunk.n_slots; i++) {
        if (slots[i] != SIM_BLOCK_NONE)
            sim_player_free(c->p, c->p->owners[slots[i]].tensor, slots[i]);
        slots[i] = SIM_BLOCK_NONE;
    }
}

/* ---- buffers ---- */

static bool add_buffer(capture_t *c, const char *name, uint16_t layer, uint64_t bytes)
{
    sim_tensor_t tensor = { .name = name,
                            .bytes = bytes,
                            .layer = layer,
                            .category = SIM_CAT_GRAPHS,
                            .module = SIM_MOD_RESIDUAL };
    return sim_player_add_static(c->p, &c->p->graph_buffers, &tensor, 0);
}

static inputs_t *inputs_of(capture_t *c, const sim_cuda_graph_t *graph)
{
    for (uint32_t i = 0; i < c->n_inputs; i++) {
        if (c->inputs[i].input_bytes == graph->input_bytes &&
            c->inputs[i].mask_bytes == graph->mask_bytes)
            return &c->inputs[i];
    }
    c->inputs = base_xrealloc(c->inputs, c->n_inputs + 1, sizeof(*c->inputs));
    c->inputs[c->n_inputs] = (inputs_t){ graph->input_bytes, graph->mask_bytes, 0 };
    return &c->inputs[c->n_inputs++];
}

/* The causal mask is made for one sequence and repeated. */
static bool add_mask(capture_t *c, const sim_cuda_graph_t *graph)
{
    sim_statics_t one = { 0 };
    sim_tensor_t tensor = { .name = "graph_mask_once",
                            .bytes = graph->mask_bytes / c->p->dims.b,
                            .layer = graph->layer,
                            .category = SIM_CAT_TEMPORARY,
                            .module = SIM_MOD_ATTENTION };
    bool ok = sim_player_add_static(c->p, &one, &tensor, 0) &&
              add_buffer(c, "graph_mask", graph->layer, graph->mask_bytes);
    if (ok)
        sim_player_free_statics(c->p, &one);
    free(one.items);
    return ok;
}

/* _get_sample_arguments(): inputs serve again once the backward pass has run. Before 2025-12-18
 * there was a set for every pass, and Transformer Engine let go of what it did not need. */
static bool add_inputs(capture_t *c, const sim_step_t *step, uint32_t number, bool is_last)
{
    const sim_cuda_graph_t *graph = graph_of(c, step, number);
    inputs_t *inputs = inputs_of(c, graph);
    (void)is_last;
    if (step->kind == SIM_STEP_BACKWARD) {
        inputs->n_spare++;
        return true;
    }
    if (inputs->n_spare > 0) {
        inputs->n_spare--;
        return true;
    }
    return add_buffer(c, "graph_input", graph->layer, graph->input_bytes) &&
           (graph->mask_bytes == 0 || add_mask(c, graph));
}

/* One table of rotary positions serves all. */
static bool add_rope(capture_t *c)
{
    for (uint32_t i = 0; i < c->p->n_chunks; i++) {
        const sim_cuda_graphs_t *graphs = &c->p->chunks[i].chunk.graphs;
        for (uint32_t k = 0; k < graphs->n; k++)
            if (graphs->graphs[k].rope_bytes > 0)
                return add_buffer(c, "graph_rope", SIM_NO_LAYER, graphs->graphs[k].rope_bytes);
    }
    return true;
}

/* Gradients of outputs are read by one backward graph at a time: graphs whose outputs are alike
 * share the buffers. */
static bool add_grads(capture_t *c, const sim_cuda_graph_t *graph)
{
    for (uint32_t i = 0; i < c->n_grads; i++) {
        if (memcmp(c->grads[i], graph->grad_bytes, sizeof(graph->grad_bytes)) == 0)
            return true;
    }
    c->grads = base_xrealloc(c->grads, c->n_grads + 1, sizeof(*c->grads));
    memcpy(c->grads[c->n_grads++], graph->grad_bytes, sizeof(graph->grad_bytes));
    for (uint32_t i = 0; i < SIM_CUDA_GRAPH_MAX_GRADS; i++) {
        if (graph->grad_bytes[i] > 0 &&
            !add_buffer(c, "graph_output_grad", graph->layer, graph->grad_bytes[i]))
            return false;
    }
    return true;
}

/* ---- warm-up: the layers run without a graph, to make what is made at the first use ---- */

/* A run of one graph's work and its gradients alone; all runs are alike, and one is played.
 * `copies` are the tensors that it gets. */
static bool warm_up_alone(capture_t *c, const sim_step_t *step, uint32_t number, bool copies_input)
{
    const sim_cuda_graph_t *graph = graph_of(c, step, number);
    sim_statics_t copies = { 0 };
    sim_tensor_t tensor = { .name = "graph_warm_up",
                            .bytes = graph->input_bytes,
                            .layer = graph->layer,
                            .category = SIM_CAT_TEMPORARY,
                            .module = SIM_MOD_RESIDUAL };
    sim_step_t backward = *step;
    backward.kind = SIM_STEP_BACKWARD;
    bool ok = !copies_input || sim_player_add_static(c->p, &copies, &tensor, 0);
    ok = ok && play_graph(c, step, number);
    for (uint32_t i = 0; ok && i < SIM_CUDA_GRAPH_MAX_GRADS; i++) {
        tensor.bytes = graph->grad_bytes[i];
        ok = sim_player_add_static(c->p, &copies, &tensor, 0);
    }
    ok = ok && play_graph(c, &backward, number);
    if (ok) {
        free_slots(c, step->chunk, step->microbatch);
        sim_player_free_statics(c->p, &copies);
    }
    free(copies.items);
    return ok;
}

static bool warm_up_each(capture_t *c, const sim_step_t *step, uint32_t number, bool is_last)
{
    (void)is_last;
    return step->kind == SIM_STEP_BACKWARD || warm_up_alone(c, step, number, false);
}

static bool warm_up_in_order(capture_t *c, const sim_step_t *step, uint32_t number, bool is_last)
{
    (void)is_last;
    return play_graph(c, step, number);
}

/* Transformer Engine since 4e755d888 (2026-07-30) follows the schedule, and a dictionary holds
 * every output until the next run of it begins. */
static bool warm_up(capture_t *c)
{
    sim_player_t *p = c->p;
    p->stream_base = WARMUP_STREAM;
    p->buffers_of = SIM_BUFFERS_WARMUP;
    c->holds_outputs = sim_software_has(p->scenario, SIM_SOFTWARE_GRAPH_WARMUP_IN_ORDER);
    bool ok = foreach_graph(c, c->holds_outputs ? warm_up_in_order : warm_up_each);
    for (uint32_t i = 0; ok && i < p->n_chunks; i++)
        for (uint32_t m = 0; m < c->n_microbatches; m++)
            free_slots(c, i, m);
    c->holds_outputs = false;
    p->stream_base = 0;
    p->buffers_of = SIM_BUFFERS_EAGER;
    return ok;
}

/* ---- capture ---- */

static void begin_capture(sim_player_t *p)
{
    sim_alloc_empty_cache(p->alloc);
    sim_alloc_begin_capture(p->alloc, SIM_CUDA_GRAPH_POOL);
    p->stream_base = CAPTURE_STREAM;
    p->buffers_of = SIM_BUFFERS_CAPTURE;
}

static void end_capture(sim_player_t *p, uint64_t stream_base)
{
    sim_alloc_end_capture(p->alloc);
    p->stream_base = stream_base;
    p->buffers_of = SIM_BUFFERS_EAGER;
}

/* A stage's input gradient is let go when the next backward pass has been captured: until then it
 * may be on its way (graph.py, previous_chunk_last_callable_bwd_idx). */
static void let_go_of_last(capture_t *c, const sim_step_t *step)
{
    if (c->last_passed >= 0)
        free_slots(c, (uint32_t)(c->last_passed / c->n_microbatches),
                   (uint32_t)(c->last_passed % c->n_microbatches));
    c->last_passed = (int64_t)step->chunk * c->n_microbatches + step->microbatch;
}

static bool capture_one(capture_t *c, const sim_step_t *step, uint32_t number, bool is_last)
{
    sim_player_t *p = c->p;
    bool is_backward = step->kind == SIM_STEP_BACKWARD;
    if (is_backward && !add_grads(c, graph_of(c, step, number)))
        return false;
    begin_capture(p);
    bool ok = play_graph(c, step, number);
    end_capture(p, 0);
    if (ok && is_backward && is_last)
        let_go_of_last(c, step);
    return ok;
}

static bool has_graphs(const sim_player_t *p)
{
    for (uint32_t i = 0; i < p->n_chunks; i++)
        if (p->chunks[i].chunk.graphs.n > 0)
            return true;
    return false;
}

/* TECudaGraphHelper.create_cudagraphs(). */
static bool capture_for_transformer_engine(sim_player_t *p)
{
    capture_t c;
    capture_init(&c, p);
    p->now.phase = SIM_PHASE_GRAPH_CAPTURE;
    sim_alloc_empty_cache(p->alloc);
    bool ok = add_rope(&c) && foreach_graph(&c, add_inputs) && warm_up(&c) &&
              foreach_graph(&c, capture_one);
    if (ok)
        sim_alloc_empty_cache(p->alloc);
    capture_fini(&c);
    return ok;
}

static bool capture_locally_one(capture_t *c, const sim_step_t *step, uint32_t number, bool is_last)
{
    sim_player_t *p = c->p;
    const sim_scenario_t *s = p->scenario;
    /* With recompute one run finds the parameters. */
    bool warms_up =
        s->cuda_graph_warmup_steps > 0 || s->recompute_granularity != SIM_RECOMPUTE_NONE;
    (void)is_last;
    if (step->kind == SIM_STEP_FORWARD && warms_up) {
        capture_t alone;
        capture_init(&alone, p);
        bool ok = warm_up_alone(&alone, step, number, true);
        capture_fini(&alone);
        if (!ok)
            return false;
    }
    begin_capture(p);
    bool ok = play_graph(c, step, number);
    end_capture(p, LOCAL_STREAM);
    return ok;
}

/* _CudagraphGlobalRecord.create_cudagraphs(), at the end of the first schedule. */
static bool capture_locally(sim_player_t *p)
{
    capture_t c;
    capture_init(&c, p);
    bool ok = foreach_graph(&c, capture_locally_one);
    capture_fini(&c);
    p->stream_base = 0;
    return ok;
}

/* ---- the whole iteration ---- */

/* StaticBufferLoader: what a rank reads for every micro-batch of a step, kept. */
static bool add_batches(sim_player_t *p)
{
    const sim_dims_t *d = &p->dims;
    uint64_t tokens = d->b * d->s;
    const struct {
        const char *name;
        uint64_t bytes;
    } parts[] = {
        { "tokens", 8 * tokens },
        { "labels", 8 * tokens },
        { "loss_mask", 4 * tokens },
        { "attention_mask",
          p->scenario->create_attention_mask_in_dataloader ? d->b * d->s * d->s : 0 },
        { "position_ids", 8 * tokens },
    };
    for (uint32_t m = 0; m < p->n_microbatches; m++) {
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            sim_tensor_t tensor = { .name = parts[i].name,
                                    .bytes = parts[i].bytes,
                                    .layer = SIM_NO_LAYER,
                                    .category = SIM_CAT_DATA,
                                    .module = SIM_MOD_DATA };
            if (!sim_player_add_static(p, &p->graph_buffers, &tensor, LOADER))
                return false;
        }
    }
    return true;
}

/* ---- when ---- */

void sim_graphs_init(sim_player_t *p)
{
    /* CudaGraphManager leaves the default stream until the graphs have been made. */
    if (p->scenario->cuda_graph_impl == SIM_GRAPHS_LOCAL)
        p->stream_base = LOCAL_STREAM;
}

static bool is_first_after_warmup(const sim_player_t *p, uint32_t iteration)
{
    return iteration == p->scenario->cuda_graph_warmup_steps + 1;
}

bool sim_graphs_before_iteration(sim_player_t *p, uint32_t iteration)
{
    if (p->scenario->cuda_graph_impl != SIM_GRAPHS_TRANSFORMER_ENGINE ||
        !is_first_after_warmup(p, iteration) || !has_graphs(p))
        return true;
    p->graphs_are_used = capture_for_transformer_engine(p);
    return p->graphs_are_used;
}

bool sim_graphs_before_passes(sim_player_t *p, uint32_t iteration)
{
    if (p->scenario->cuda_graph_impl != SIM_GRAPHS_FULL_ITERATION)
        return true;
    p->now.phase = SIM_PHASE_FORWARD;
    if (iteration == 1 && p->place.tp == 0 && !add_batches(p))
        return false;
    if (is_first_after_warmup(p, iteration)) {
        begin_capture(p);
        p->is_capturing = true;
    }
    return true;
}

bool sim_graphs_after_passes(sim_player_t *p, uint32_t iteration)
{
    if (p->is_capturing) {
        end_capture(p, 0);
        p->is_capturing = false;
        p->passes_are_replayed = true;
    }
    if (p->scenario->cuda_graph_impl != SIM_GRAPHS_LOCAL || iteration != 1)
        return true;
    p->graphs_are_used = has_graphs(p);
    return !p->graphs_are_used || capture_locally(p);
}

bool sim_graphs_are_settled(const sim_player_t *p, uint32_t iteration)
{
    switch (p->scenario->cuda_graph_impl) {
    case SIM_GRAPHS_NONE:
        return true;
    case SIM_GRAPHS_LOCAL:
        return iteration > 2;
    case SIM_GRAPHS_TRANSFORMER_ENGINE:
    case SIM_GRAPHS_FULL_ITERATION:
        break;
    }
    return iteration > p->scenario->cuda_graph_warmup_steps + 2;
}
