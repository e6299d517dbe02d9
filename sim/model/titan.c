/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/titan.h"

#include "sim/base/xmem.h"
#include "sim/model/quant.h"
#include "sim/model/software.h"
#include "sim/model/workspace.h"

#include <stdlib.h>

enum { INDEX_BYTES = 8 }; /* torch.int64 */

/* A graph with its plans, run `n` times. */
typedef struct {
    sim_graph_t graph;
    sim_graph_plans_t plans;
} part_t;

typedef struct {
    const sim_scenario_t *s;
    const sim_dims_t *d;
    const topo_chunk_t *place;
    sim_builder_t *b;
    part_t blocks[2][2]; /* by whether linears are quantised, and whether it is checkpointed */
    part_t head, loss;
    sim_ref_t *block_refs; /* SIM_GRAPH_MAX_NODES for each layer */
    sim_ref_t head_refs[SIM_GRAPH_MAX_NODES], loss_refs[SIM_GRAPH_MAX_NODES];
    sim_ref_t tokens, labels, logits;
    sim_ref_t embedding_grad;
    uint64_t workspace_bytes; /* of cuBLAS */
} work_t;

bool sim_titan_root_has_ends(const sim_scenario_t *s)
{
    return !sim_software_has(s, SIM_SOFTWARE_TITAN_UNITS_OF_ENDS);
}

/* ---- running graphs ---- */

static void forward(work_t *w, const part_t *part, sim_ref_t *refs, sim_ref_t *x_p)
{
    refs[part->graph.input] = *x_p;
    sim_graph_plan_write(&part->plans.forward, &part->graph, w->b, refs, w->workspace_bytes);
    *x_p = refs[sim_graph_storage(&part->graph, part->graph.output)];
}

static sim_ref_t memory_of(const part_t *part, const sim_ref_t *refs, bool is_compiled)
{
    const sim_node_t *nodes = part->graph.nodes;
    sim_node_id_t node = part->graph.d_input;
    while (nodes[node].kind == SIM_NODE_VIEW ||
           (!is_compiled && nodes[node].kind == SIM_NODE_ADD_INTO))
        node = nodes[node].in[0];
    return refs[node];
}

static sim_ref_t backward(work_t *w, const part_t *part, sim_ref_t *refs, sim_ref_t g,
                          bool is_compiled)
{
    refs[part->graph.d_output] = g;
    sim_graph_plan_write(&part->plans.backward, &part->graph, w->b, refs, w->workspace_bytes);
    return memory_of(part, refs, is_compiled);
}

/* Gradients of weights go when FSDP has copied them. */
static void drop_weight_grads(work_t *w, const part_t *part, sim_ref_t *refs)
{
    for (uint32_t i = part->graph.n_forward; i < part->graph.n; i++) {
        if (!part->graph.nodes[i].is_weight_grad)
            continue;
        sim_drop(w->b, refs[i]);
        refs[i] = SIM_REF_NONE;
    }
}

/* In a pipeline FSDP adds each gradient to what it has of earlier micro-batches, one after the
 * other; else it copies all of them into the input of the reduction. */
static void finish_unit(work_t *w, uint32_t unit, const part_t *part, sim_ref_t *refs)
{
    bool adds_up = w->s->pipeline_model_parallel_size > 1;
    if (adds_up)
        drop_weight_grads(w, part, refs);
    sim_unit(w->b, SIM_UNIT_BACKWARD_DONE, unit);
    if (!adds_up)
        drop_weight_grads(w, part, refs);
}

/* ---- blocks ---- */

/* With selective_ac_option = n every n-th block is checkpointed as a whole; blocks are counted from
 * the chunk's first, from 1. */
static bool is_checkpointed(const work_t *w, uint32_t i)
{
    uint64_t every = w->s->selective_ac_every;
    switch (w->s->activation_checkpoint_mode) {
    case SIM_AC_NONE:
        return false;
    case SIM_AC_FULL:
        return true;
    default:
        return every == 0 || (i + 1) % every == 0;
    }
}

static const part_t *part_of(const work_t *w, uint32_t i)
{
    bool is_quantized = sim_layer_is_quantized(w->s, w->place->first_layer + i);
    return &w->blocks[is_quantized][is_checkpointed(w, i)];
}

static sim_ref_t *refs_of(work_t *w, uint32_t i)
{
    return w->block_refs + (size_t)i * SIM_GRAPH_MAX_NODES;
}

static sim_ref_t blocks_forward(work_t *w, sim_ref_t x)
{
    for (uint32_t i = 0; i < w->place->n_layers; i++) {
        sim_ref_t in = x;
        w->b->layer = (uint16_t)(w->place->first_layer + i);
        sim_unit(w->b, SIM_UNIT_FORWARD, i);
        forward(w, part_of(w, i), refs_of(w, i), &x);
        sim_unit(w->b, SIM_UNIT_FORWARD_DONE, i);
        sim_drop(w->b, in);
    }
    w->b->layer = SIM_NO_LAYER;
    return x;
}

static sim_ref_t blocks_backward(work_t *w, sim_ref_t g)
{
    for (uint32_t i = w->place->n_layers; i-- > 0;) {
        w->b->layer = (uint16_t)(w->place->first_layer + i);
        sim_unit(w->b, SIM_UNIT_BACKWARD, i);
        g = backward(w, part_of(w, i), refs_of(w, i), g, w->s->compile_model);
        finish_unit(w, i, part_of(w, i), refs_of(w, i));
    }
    w->b->layer = SIM_NO_LAYER;
    return g;
}

/* ---- ends ---- */

static sim_ref_t embedding_forward(work_t *w)
{
    const sim_dims_t *d = w->d;
    w->b->module = SIM_MOD_EMBEDDING;
    sim_unit(w->b, SIM_UNIT_FORWARD, SIM_UNIT_EMBEDDING);
    sim_ref_t x = sim_new(w->b, "tok_embeddings", d->full_hidden_bytes);
    if (d->sp) { /* each rank has part of the vocabulary: reduce-scatter along the sequence */
        sim_ref_t chunks = sim_new(w->b, "reduce_scatter_in", d->full_hidden_bytes);
        sim_drop(w->b, x);
        x = sim_new(w->b, "tok_embeddings_scattered", d->hidden_bytes);
        sim_drop(w->b, chunks);
    }
    sim_unit(w->b, SIM_UNIT_FORWARD_DONE, SIM_UNIT_EMBEDDING);
    return x;
}

static void embedding_backward(work_t *w, sim_ref_t g)
{
    const sim_dims_t *d = w->d;
    w->b->module = SIM_MOD_EMBEDDING;
    sim_unit(w->b, SIM_UNIT_BACKWARD, SIM_UNIT_EMBEDDING);
    if (d->sp) {
        sim_ref_t raw = sim_new(w->b, "all_gather_out", d->full_hidden_bytes);
        sim_drop(w->b, g);
        g = sim_new(w->b, "d_tok_embeddings", d->full_hidden_bytes);
        sim_drop(w->b, raw);
    }
    w->embedding_grad =
        sim_new_as(w->b, SIM_CAT_GRADIENTS, "embedding_weight_grad", d->vocab_tp * d->h * d->e);
    sim_drop(w->b, g);
}

static void head_forward(work_t *w, sim_ref_t x)
{
    sim_ref_t in = x;
    sim_unit(w->b, SIM_UNIT_FORWARD, SIM_UNIT_HEAD);
    forward(w, &w->head, w->head_refs, &x);
    sim_unit(w->b, SIM_UNIT_FORWARD_DONE, SIM_UNIT_HEAD);
    sim_drop(w->b, in);
    sim_ref_t logits = x;
    forward(w, &w->loss, w->loss_refs, &x);
    /* A stage of torch.distributed.pipelining keeps what it returned to the next step. */
    if (w->s->pipeline_model_parallel_size > 1)
        w->logits = logits;
    else
        sim_drop(w->b, logits);
    w->loss_refs[w->loss.graph.output] = x;
}

static sim_ref_t head_backward(work_t *w)
{
    w->b->module = SIM_MOD_LOSS;
    sim_ref_t g = sim_new(w->b, "d_loss", 4);
    g = backward(w, &w->loss, w->loss_refs, g, w->s->compile_loss);
    sim_unit(w->b, SIM_UNIT_BACKWARD, SIM_UNIT_HEAD);
    return backward(w, &w->head, w->head_refs, g, false);
}

/* ---- passes ---- */

static void build_forward(work_t *w, sim_tape_t *tape)
{
    const sim_dims_t *d = w->d;
    sim_builder_begin(w->b, tape, true);
    w->b->module = SIM_MOD_DATA;
    if (w->place->has_embedding)
        w->tokens = sim_new_as(w->b, SIM_CAT_DATA, "input_ids", INDEX_BYTES * d->tokens);
    if (w->place->has_loss)
        w->labels = sim_new_as(w->b, SIM_CAT_DATA, "labels", INDEX_BYTES * d->tokens);
    sim_ref_t x = w->place->has_embedding
                      ? embedding_forward(w)
                      : sim_given(w->b, SIM_SLOT_INPUT, "stage_input", d->hidden_bytes);
    x = blocks_forward(w, x);
    if (w->place->has_loss)
        head_forward(w, x);
    else
        sim_leave(w->b, x, SIM_SLOT_OUTPUT);
}

static void build_backward(work_t *w, sim_tape_t *tape)
{
    sim_builder_begin(w->b, tape, false);
    sim_unit(w->b, SIM_UNIT_PASS, 0);
    sim_ref_t g = w->place->has_loss
                      ? head_backward(w)
                      : sim_given(w->b, SIM_SLOT_OUTPUT_GRAD, "output_grad", w->d->hidden_bytes);
    bool joined = sim_titan_root_has_ends(w->s);
    if (w->place->has_loss && !joined)
        finish_unit(w, SIM_UNIT_HEAD, &w->head, w->head_refs);
    g = blocks_backward(w, g);
    if (w->place->has_embedding) {
        embedding_backward(w, g);
        if (!joined)
            sim_unit(w->b, SIM_UNIT_BACKWARD_DONE, SIM_UNIT_EMBEDDING);
    } else {
        sim_leave(w->b, g, SIM_SLOT_INPUT_GRAD);
    }
    if (joined && (w->place->has_loss || w->place->has_embedding))
        sim_unit(w->b, SIM_UNIT_BACKWARD_DONE, SIM_UNIT_HEAD);
    if (joined && w->place->has_loss)
        drop_weight_grads(w, &w->head, w->head_refs);
    sim_drop(w->b, w->embedding_grad);
    sim_drop(w->b, w->tokens);
    sim_drop(w->b, w->labels);
    if (w->place->has_loss)
        sim_drop(w->b, w->loss_refs[w->loss.graph.output]);
    sim_unit(w->b, SIM_UNIT_PASS_DONE, 0);
    if (w->logits != SIM_REF_NONE)
        sim_hold(w->b, w->logits);
}

static void work_init(work_t *w)
{
    const sim_scenario_t *s = w->s;
    bool by_operator = s->activation_checkpoint_mode == SIM_AC_SELECTIVE && !s->selective_ac_every;
    for (int q = 0; q < 2; q++) {
        part_t *plain = &w->blocks[q][0], *checkpointed = &w->blocks[q][1];
        sim_titan_block_graph(&plain->graph, s, w->d, q == 1);
        checkpointed->graph = plain->graph;
        sim_graph_plans_init(&plain->plans, &plain->graph, SIM_KEEP_ALL, s->compile_model);
        sim_graph_plans_init(&checkpointed->plans, &checkpointed->graph,
                             by_operator ? SIM_KEEP_LISTED : SIM_KEEP_INPUT, s->compile_model);
    }
    sim_titan_head_graph(&w->head.graph, s, w->d);
    sim_graph_plans_init(&w->head.plans, &w->head.graph, SIM_KEEP_ALL, false);
    sim_titan_loss_graph(&w->loss.graph, s, w->d);
    sim_graph_plans_init(&w->loss.plans, &w->loss.graph,
                         s->compile_loss ? SIM_KEEP_LISTED : SIM_KEEP_ALL, s->compile_loss);
    w->block_refs =
        base_xcalloc((size_t)w->place->n_layers * SIM_GRAPH_MAX_NODES, sizeof(*w->block_refs));
    w->workspace_bytes = sim_torch_workspace_bytes(s);
    w->tokens = w->labels = w->logits = w->embedding_grad = SIM_REF_NONE;
}

static void work_fini(work_t *w)
{
    for (int q = 0; q < 2; q++) {
        sim_graph_plans_fini(&w->blocks[q][0].plans);
        sim_graph_plans_fini(&w->blocks[q][1].plans);
    }
    sim_graph_plans_fini(&w->head.plans);
    sim_graph_plans_fini(&w->loss.plans);
    free(w->block_refs);
}

void sim_titan_build(const sim_scenario_t *s, const sim_dims_t *d, const topo_chunk_t *place,
                     sim_builder_t *b, sim_tape_t *forward_tape, sim_tape_t *backward_tape)
{
    work_t *w = base_xcalloc(1, sizeof(*w));
    *w = (work_t){ .s = s, .d = d, .place = place, .b = b };
    work_init(w);
    build_forward(w, forward_tape);
    build_backward(w, backward_tape);
    work_fini(w);
    free(w);
}
