/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/chunk.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/model/adapter.h"
#include "sim/model/bert.h"
#include "sim/model/cuda_graph.h"
#include "sim/model/ends.h"
#include "sim/model/mtp.h"
#include "sim/model/node.h"
#include "sim/model/offload.h"
#include "sim/model/sharding.h"
#include "sim/model/titan.h"
#include "sim/model/transformer_layer.h"
#include "sim/model/weights.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Everything that lives between the two tapes while they are built. */
typedef struct {
    sim_model_t m;
    const topo_chunk_t *place;
    sim_embedding_save_t embedding;
    sim_layer_save_t *layers;  /* one a layer */
    sim_ref_t *group_in;       /* full recompute: input of each checkpointed group */
    sim_layer_range_t *ranges; /* one a layer, for cpu_offloading */
    sim_offloads_t offloads;
    sim_nodes_t nodes;
    sim_final_norm_save_t norm;
    sim_mtp_save_t mtp;
    sim_bert_head_t bert_head;
    sim_dims_t decoder_d, cross_d; /* T5 */
    sim_embedding_save_t decoder_embedding;
    sim_layer_save_t *decoder_layers;
    sim_final_norm_save_t decoder_norm;
    sim_loss_save_t *losses; /* of the decoder, then of each depth of multi-token prediction */
    uint32_t n_losses;
    uint64_t in_bytes, out_bytes;
} work_t;

/* Full recompute splits the chunk's layers into groups (transformer_block.py,
 * _checkpointed_forward): uniform = groups of n; block = the first n layers one by one. Layers
 * outside a group run normally. Returns the number of layers of the group that starts at `i`, 0
 * when layer `i` is not recomputed. */
static uint32_t group_size(const work_t *w, uint32_t i)
{
    const sim_scenario_t *s = w->m.s;
    if (s->recompute_granularity != SIM_RECOMPUTE_FULL)
        return 0;
    uint32_t n = (uint32_t)s->recompute_num_layers;
    if (s->recompute_method == SIM_RECOMPUTE_BLOCK)
        return i < n ? 1 : 0;
    return (uint32_t)base_u64_min(n, w->place->n_layers - i);
}

static sim_ref_t layer_forward(work_t *w, uint32_t i, sim_ref_t x, bool grad)
{
    w->m.b->layer = (uint16_t)(w->place->first_layer + i);
    /* Megatron-Bridge asks for the gradient of the first layer's input where it is recomputed. */
    w->m.input_is_constant = i == 0 && w->place->has_embedding && sim_is_frozen(&w->m) &&
                             w->m.s->recompute_granularity != SIM_RECOMPUTE_FULL;
    bool again = !w->m.b->in_forward;
    sim_tell(&w->m, again ? SIM_UNIT_AGAIN : SIM_UNIT_FORWARD, i);
    x = sim_layer_forward(&w->m, &w->layers[i], x, grad);
    sim_tell(&w->m, again ? SIM_UNIT_AGAIN_DONE : SIM_UNIT_FORWARD_DONE, i);
    return x;
}

/* With distribute_saved_activations each tensor-parallel rank keeps its part of a group's input. */
static void save_group_input(work_t *w, uint32_t i, sim_ref_t x)
{
    if (!w->m.s->distribute_saved_activations) {
        w->group_in[i] = sim_keep(w->m.b, x);
        return;
    }
    w->m.b->layer = (uint16_t)(w->place->first_layer + i);
    w->m.b->module = SIM_MOD_RESIDUAL;
    w->group_in[i] = sim_new(w->m.b, "checkpoint_shard", w->m.d->hidden_bytes / w->m.d->tp);
}

/* Layers that cpu_offloading sends to the host. Transformer Engine (cpu_offload.py,
 * DefaultOffloadSynchronizer) waits for the i-th to be gone when layer L - n + i begins, and
 * fetches it when the backward pass of layer L - 1 - n + i does. */
static uint32_t n_offloaded(const work_t *w)
{
    const sim_scenario_t *s = w->m.s;
    return s->cpu_offloading && s->cpu_offloading_activations
               ? (uint32_t)s->cpu_offloading_num_layers
               : 0;
}

static sim_ref_t saving_layer_forward(work_t *w, uint32_t i, sim_ref_t x)
{
    uint32_t kept = w->place->n_layers - n_offloaded(w);
    if (i >= kept)
        sim_layer_to_host(&w->m, &w->ranges[i - kept]);
    w->ranges[i] = (sim_layer_range_t){ .first = w->m.b->n_built, .in = x };
    sim_node_end(&w->m, SIM_REF_NONE, false);
    x = layer_forward(w, i, x, true);
    w->ranges[i].end = w->m.b->n_built;
    w->ranges[i].out = x;
    return x;
}

static sim_ref_t layers_forward(work_t *w, sim_ref_t x)
{
    for (uint32_t i = 0; i < w->place->n_layers;) {
        uint32_t n = group_size(w, i);
        if (n == 0) {
            x = saving_layer_forward(w, i++, x);
            continue;
        }
        save_group_input(w, i, x);
        for (uint32_t end = i + n; i < end; i++)
            x = layer_forward(w, i, x, false);
    }
    w->m.b->layer = SIM_NO_LAYER;
    return x;
}

/* Whether the layer before layer `i` has; its backward pass comes next. */
static bool has_experts(const work_t *w, uint32_t i)
{
    return i > 0 && w->layers[i - 1].is_moe;
}

static sim_ref_t layer_backward(work_t *w, uint32_t i, sim_ref_t g)
{
    uint32_t n = n_offloaded(w), kept = w->place->n_layers - n;
    if (n > 0 && i + 1 >= kept && i + 1 - kept < n)
        sim_layer_from_host(&w->m, &w->ranges[i + 1 - kept]);
    w->m.b->layer = (uint16_t)(w->place->first_layer + i);
    sim_tell(&w->m, SIM_UNIT_BACKWARD, i);
    g = sim_layer_backward(&w->m, &w->layers[i], g);
    sim_tell(&w->m, SIM_UNIT_BACKWARD_DONE, i);
    sim_node_end(&w->m, g, has_experts(w, i));
    return g;
}

/* Run the group's forward again, this time saving, then its backward. */
static sim_ref_t group_backward(work_t *w, uint32_t first, uint32_t n, sim_ref_t g)
{
    sim_ref_t x = w->group_in[first];
    if (w->m.s->distribute_saved_activations) {
        w->m.b->layer = (uint16_t)(w->place->first_layer + first);
        w->m.b->module = SIM_MOD_RESIDUAL;
        x = sim_new(w->m.b, "checkpoint_gathered", w->m.d->hidden_bytes);
        sim_drop(w->m.b, w->group_in[first]);
    }
    for (uint32_t i = first; i < first + n; i++)
        x = layer_forward(w, i, x, true);
    sim_drop(w->m.b, x); /* the recomputed output itself is not used */
    for (uint32_t i = first + n; i-- > first;)
        g = layer_backward(w, i, g);
    return g;
}

static sim_ref_t layers_backward(work_t *w, sim_ref_t g)
{
    for (uint32_t end = w->place->n_layers; end > 0;) {
        /* The group that ends here; groups start where group_size() says so from the front. */
        uint32_t first = end - 1, n = group_size(w, first);
        if (n > 0 && w->m.s->recompute_method == SIM_RECOMPUTE_UNIFORM) {
            uint32_t size = (uint32_t)w->m.s->recompute_num_layers;
            first = first / size * size;
            n = end - first;
        }
        g = n > 0 ? group_backward(w, first, n, g) : layer_backward(w, first, g);
        end = first;
    }
    w->m.b->layer = SIM_NO_LAYER;
    return g;
}

/* Each depth of multi-token prediction has its loss first; they read parts of one tensor. */
static void losses_forward(work_t *w, sim_ref_t states)
{
    for (uint32_t i = 1; i < w->n_losses; i++)
        sim_loss_forward(&w->m, &w->losses[i], sim_keep(w->m.b, states));
    sim_loss_forward(&w->m, &w->losses[0], states);
}

static sim_ref_t decoder_layer_forward(work_t *w, uint32_t i, sim_ref_t x)
{
    w->m.b->layer = (uint16_t)(w->m.s->num_layers + i);
    return sim_layer_forward(&w->m, &w->decoder_layers[i], x, true);
}

/* The decoder of a T5. Takes the encoder's output, which a local variable holds to the end. */
static sim_ref_t decoder_forward(work_t *w, const sim_batch_t *batch, sim_ref_t context)
{
    w->m.context = context;
    w->m.d = &w->decoder_d;
    sim_ref_t x = sim_embedding_forward(&w->m, &w->decoder_embedding, batch);
    for (uint32_t i = 0; i < w->m.s->decoder_num_layers; i++)
        x = decoder_layer_forward(w, i, x);
    w->m.b->layer = SIM_NO_LAYER;
    return sim_final_norm_forward(&w->m, &w->decoder_norm, x);
}

static void build_forward(work_t *w, sim_tape_t *tape)
{
    sim_builder_t *b = w->m.b;
    sim_builder_begin(b, tape, true);
    sim_batch_t batch;
    sim_batch_load(&w->m, &batch, w->place);
    if (w->place->has_embedding)
        sim_tell(&w->m, SIM_UNIT_FORWARD, SIM_UNIT_EMBEDDING);
    sim_ref_t x = w->place->has_embedding
                      ? sim_embedding_forward(&w->m, &w->embedding, &batch)
                      : sim_given(b, SIM_SLOT_INPUT, "stage_input", w->in_bytes);
    if (w->place->has_embedding)
        sim_tell(&w->m, SIM_UNIT_FORWARD_DONE, SIM_UNIT_EMBEDDING);
    x = layers_forward(w, x);
    bool has_norm = sim_params_has_final_norm(w->m.s, w->place);
    if (has_norm)
        x = sim_final_norm_forward(&w->m, &w->norm, x);
    sim_node_end(&w->m, SIM_REF_NONE, false);
    if (sim_is_t5(&w->m))
        x = decoder_forward(w, &batch, x);
    if (w->mtp.n > 0)
        x = sim_mtp_forward(&w->m, &w->mtp, x);
    if (w->place->has_loss && sim_is_bert(&w->m))
        x = sim_bert_head_forward(&w->m, &w->bert_head, x);
    if (w->place->has_loss) {
        losses_forward(w, x);
    } else {
        if (w->place->n_layers == 0 && w->mtp.n == 0) { /* nothing made a tensor to send */
            sim_ref_t copy = sim_new(b, "stage_output", w->out_bytes);
            sim_drop(b, x);
            x = copy;
        }
        sim_leave(b, x, SIM_SLOT_OUTPUT);
    }
    sim_drop(b, w->m.context);
    sim_batch_drop(&w->m, &batch);
}

/* Gradients of a weight that is used several times in a chunk: the first waits, the others are
 * added to it. */
static void add_pending(work_t *w, sim_ref_t *pending_p, sim_ref_t grad)
{
    if (*pending_p == SIM_REF_NONE)
        *pending_p = grad;
    else
        sim_drop(w->m.b, grad);
}

/* Returns the gradient of the states that the losses read. */
static sim_ref_t losses_backward(work_t *w, sim_ref_t *pending_p)
{
    sim_ref_t first = sim_loss_backward(&w->m, &w->losses[0], pending_p);
    if (w->n_losses == 1)
        return first;
    sim_ref_t *grads = base_xcalloc(w->n_losses, sizeof(*grads)), weight_grad;
    grads[0] = first;
    for (uint32_t i = w->n_losses; i-- > 1;) {
        grads[i] = sim_loss_backward(&w->m, &w->losses[i], &weight_grad);
        add_pending(w, pending_p, weight_grad);
    }
    w->m.b->module = SIM_MOD_MTP;
    sim_ref_t all = sim_new(w->m.b, "d_mtp_states", w->n_losses * w->m.d->hidden_bytes);
    for (uint32_t i = 0; i < w->n_losses; i++)
        sim_drop(w->m.b, grads[i]);
    free(grads);
    return all;
}

/* `pending` is the output layer's gradient where its weight is the embedding's. */
static sim_ref_t mtp_backward(work_t *w, sim_ref_t g, sim_ref_t *pending_p)
{
    sim_ref_t embedding_grad;
    bool waits = w->place->has_embedding && *pending_p == SIM_REF_NONE;
    g = sim_mtp_backward(&w->m, &w->mtp, g, waits, &embedding_grad);
    add_pending(w, pending_p, embedding_grad);
    return g;
}

/* Returns the gradient of the encoder's output. */
static sim_ref_t decoder_backward(work_t *w, sim_ref_t g, sim_ref_t *pending_p)
{
    g = sim_final_norm_backward(&w->m, &w->decoder_norm, g);
    for (uint32_t i = (uint32_t)w->m.s->decoder_num_layers; i-- > 0;) {
        w->m.b->layer = (uint16_t)(w->m.s->num_layers + i);
        g = sim_layer_backward(&w->m, &w->decoder_layers[i], g);
    }
    w->m.b->layer = SIM_NO_LAYER;
    add_pending(w, pending_p, sim_embedding_backward(&w->m, &w->decoder_embedding, g));
    w->m.d = w->m.encoder_d;
    return w->m.d_context;
}

static void build_backward(work_t *w, sim_tape_t *tape)
{
    sim_builder_t *b = w->m.b;
    bool tied =
        !w->m.s->untie_embeddings_and_output_weights && (w->place->has_embedding || w->mtp.n > 0);
    sim_builder_begin(b, tape, false);
    sim_ref_t pending = SIM_REF_NONE, g;
    sim_tell(&w->m, SIM_UNIT_PASS, 0);
    if (w->place->has_loss)
        g = losses_backward(w, &pending);
    else
        g = sim_given(b, SIM_SLOT_OUTPUT_GRAD, "output_grad", w->out_bytes);
    if (!tied) {
        sim_drop(b, pending);
        pending = SIM_REF_NONE;
    }
    if (w->place->has_loss && sim_is_bert(&w->m))
        g = sim_bert_head_backward(&w->m, &w->bert_head, g);
    if (sim_is_t5(&w->m))
        g = decoder_backward(w, g, &pending);
    if (w->mtp.n > 0)
        g = mtp_backward(w, g, &pending);
    sim_node_end(&w->m, g, has_experts(w, w->place->n_layers));
    if (sim_params_has_final_norm(w->m.s, w->place))
        g = sim_final_norm_backward(&w->m, &w->norm, g);
    if (w->place->has_loss)
        sim_tell(&w->m, SIM_UNIT_BACKWARD_DONE, SIM_UNIT_HEAD);
    g = layers_backward(w, g);
    if (w->place->has_embedding) {
        sim_tell(&w->m, SIM_UNIT_BACKWARD, SIM_UNIT_EMBEDDING);
        sim_drop(b, sim_embedding_backward(&w->m, &w->embedding, g));
        sim_drop(b, pending);
        sim_nodes_finish(&w->m);
        sim_tell(&w->m, SIM_UNIT_BACKWARD_DONE, SIM_UNIT_EMBEDDING);
        sim_tell(&w->m, SIM_UNIT_PASS_DONE, 0);
        return;
    }
    sim_drop(b, pending);
    if (w->place->n_layers == 0 && w->mtp.n == 0 && !w->place->has_loss) {
        sim_ref_t copy = sim_new(b, "input_grad", w->in_bytes);
        sim_drop(b, g);
        g = copy;
    }
    sim_leave(b, g, SIM_SLOT_INPUT_GRAD);
    sim_tell(&w->m, SIM_UNIT_PASS_DONE, 0);
}

/* From multi-token prediction on, the states of all depths go from stage to stage. */
static void set_borders(work_t *w)
{
    const sim_scenario_t *s = w->m.s;
    bool all_out = s->stages.mtp_standalone && (w->place->n_mtp_layers > 0 || w->place->has_loss);
    bool all_in = s->stages.mtp_standalone && w->place->has_loss;
    uint64_t all = (1 + s->mtp_num_layers) * w->m.d->hidden_bytes;
    w->in_bytes = all_in ? all : w->m.d->hidden_bytes;
    w->out_bytes = all_out ? all : w->m.d->hidden_bytes;
}

static void init_decoder(work_t *w)
{
    const sim_scenario_t *s = w->m.s;
    w->decoder_d = sim_dims_decoder(w->m.d, s);
    w->cross_d = sim_dims_cross(w->m.d, s);
    w->m.encoder_d = w->m.d;
    w->m.cross_d = &w->cross_d;
    w->decoder_layers = base_xcalloc(s->decoder_num_layers, sizeof(*w->decoder_layers));
    for (uint64_t i = 0; i < s->decoder_num_layers; i++)
        w->decoder_layers[i].is_decoder = true;
}

static void work_init(work_t *w, const topo_chunk_t *place)
{
    const sim_scenario_t *s = w->m.s;
    w->place = place;
    w->m.has_units = sim_sharding_of(s) == SIM_SHARDING_UNITS;
    w->layers = base_xcalloc(place->n_layers, sizeof(*w->layers));
    w->group_in = base_xcalloc(place->n_layers, sizeof(*w->group_in));
    w->ranges = base_xcalloc(place->n_layers, sizeof(*w->ranges));
    w->n_losses = 1 + (uint32_t)s->mtp_num_layers;
    w->losses = base_xcalloc(w->n_losses, sizeof(*w->losses));
    sim_mtp_init(&w->mtp, s, place->n_mtp_layers, place->n_layers);
    set_borders(w);
    for (uint32_t i = 0; i < place->n_layers; i++) {
        w->layers[i].kind = sim_layer_kind(s, place->first_layer + i);
        w->layers[i].is_moe = sim_layer_is_moe(s, place->first_layer + i);
    }
    if (s->fine_grained_activation_offloading)
        w->m.offloads = &w->offloads;
    if (s->overlap_moe_expert_parallel_comm)
        w->m.nodes = &w->nodes;
    if (sim_is_t5(&w->m))
        init_decoder(w);
}

static void work_fini(work_t *w)
{
    sim_mtp_fini(&w->mtp);
    sim_offloads_fini(&w->offloads);
    free(w->losses);
    free(w->layers);
    free(w->decoder_layers);
    free(w->group_in);
    free(w->ranges);
}

/* Walk both passes once to see what there is to offload, then decide what is. */
static void decide_offloads(work_t *w)
{
    sim_persistent_t persistent = { 0 };
    sim_builder_t b;
    sim_tape_t forward = { 0 }, backward = { 0 };
    work_t walk = { .m = w->m };
    walk.m.b = &b;
    sim_builder_init(&b, &persistent);
    work_init(&walk, w->place);
    walk.offloads.counts = true;
    build_forward(&walk, &forward);
    build_backward(&walk, &backward);
    sim_offloads_decide(&walk.offloads, w->m.s->activation_offload_fraction, w->place->has_loss);
    w->offloads = walk.offloads;
    walk.offloads = (sim_offloads_t){ 0 };
    work_fini(&walk);
    sim_tape_fini(&forward);
    sim_tape_fini(&backward);
    sim_builder_fini(&b);
    sim_persistent_fini(&persistent);
}

/* Both builders' tensors have their categories now. */
static void take_tensors(sim_chunk_t *chunk, sim_tape_tensors_t *of, sim_builder_t *b)
{
    sim_builder_finish(b);
    of->n = b->n_built;
    of->tensors = base_xcalloc(b->n_built, sizeof(*of->tensors));
    for (uint32_t i = 0; i < b->n_built; i++)
        of->tensors[i] = b->built[i].tensor;
    chunk->n_slots = (uint32_t)base_u64_max(chunk->n_slots, b->n_slots);
}

static void init_titan(sim_chunk_t *chunk, const sim_scenario_t *scenario, const sim_dims_t *dims,
                       sim_persistent_t *persistent)
{
    sim_builder_t b;
    sim_titan_params_init(&chunk->params, scenario, dims, &chunk->place);
    sim_builder_init(&b, persistent);
    sim_titan_build(scenario, dims, &chunk->place, &b, &chunk->forward, &chunk->backward);
    take_tensors(chunk, &chunk->of, &b);
    sim_builder_fini(&b);
    chunk->in_bytes = chunk->out_bytes = dims->hidden_bytes;
}

/* The same passes once more, with the gradients of weights left for later. */
static void build_split(sim_chunk_t *chunk, const sim_model_t *model)
{
    sim_builder_t b;
    sim_tape_t forward = { 0 };
    sim_weights_later_t later = { 0 };
    sim_builder_init(&b, model->b->persistent);
    work_t w = { .m = *model };
    w.m.b = &b;
    w.m.later = &later;
    work_init(&w, &chunk->place);
    build_forward(&w, &forward);
    build_backward(&w, &chunk->split.backward);
    sim_builder_begin(&b, &chunk->split.weights, false);
    sim_weights_compute(&w.m);
    take_tensors(chunk, &chunk->split.of, &b);
    assert(forward.n_ops == chunk->forward.n_ops &&
           memcmp(forward.ops, chunk->forward.ops, forward.n_ops * sizeof(*forward.ops)) == 0);
    chunk->split.borders = later.borders;
    sim_weights_later_fini(&later);
    work_fini(&w);
    sim_tape_fini(&forward);
    sim_builder_fini(&b);
}

/* The same passes once more, with what graphs hold taken out. */
static void build_graphed(const work_t *eager, sim_chunk_t *chunk)
{
    work_t w = { .m = eager->m };
    sim_builder_t *b = w.m.b;
    bool is_local = w.m.s->cuda_graph_impl == SIM_GRAPHS_LOCAL;
    chunk->graphs.buffers =
        is_local ? SIM_CUDA_GRAPH_BUFFERS_IN_POOL : SIM_CUDA_GRAPH_BUFFERS_OUTSIDE;
    b->graphs = &chunk->graphs;
    work_init(&w, eager->place);
    build_forward(&w, &chunk->graphed_forward);
    build_backward(&w, &chunk->graphed_backward);
    b->graphs = NULL;
    work_fini(&w);
}

void sim_chunk_init(sim_chunk_t *chunk, const sim_scenario_t *scenario, const sim_dims_t *dims,
                    const topo_chunk_t *place, uint32_t tp_rank, sim_persistent_t *persistent)
{
    *chunk = (sim_chunk_t){ .place = *place };
    if (sim_is_titan(scenario)) {
        init_titan(chunk, scenario, dims, persistent);
        return;
    }
    sim_params_init(&chunk->params, scenario, dims, place);
    sim_builder_t b;
    sim_builder_init(&b, persistent);
    work_t w = { .m = { .b = &b,
                        .s = scenario,
                        .d = dims,
                        .tp_rank = tp_rank,
                        .context = SIM_REF_NONE,
                        .d_context = SIM_REF_NONE } };
    work_init(&w, place);
    if (scenario->fine_grained_activation_offloading)
        decide_offloads(&w);
    build_forward(&w, &chunk->forward);
    build_backward(&w, &chunk->backward);
    if (sim_has_layer_graphs(scenario))
        build_graphed(&w, chunk);
    take_tensors(chunk, &chunk->of, &b);
    if (sim_schedule_splits(scenario->pipeline_schedule))
        build_split(chunk, &w.m);
    sim_builder_fini(&b);
    chunk->in_bytes = w.in_bytes;
    chunk->out_bytes = w.out_bytes;
    work_fini(&w);
}

static void build_evaluation(work_t *w, sim_tape_t *tape)
{
    sim_builder_t *b = w->m.b;
    sim_builder_begin(b, tape, true);
    sim_batch_t batch;
    sim_batch_load(&w->m, &batch, w->place);
    sim_ref_t x = w->place->has_embedding
                      ? sim_embedding_forward(&w->m, &w->embedding, &batch)
                      : sim_given(b, SIM_SLOT_INPUT, "stage_input", w->in_bytes);
    if (w->place->has_embedding)
        sim_forget(&w->m, &w->embedding.indices);
    for (uint32_t i = 0; i < w->place->n_layers; i++)
        x = layer_forward(w, i, x, false);
    b->layer = SIM_NO_LAYER;
    if (sim_params_has_final_norm(w->m.s, w->place)) {
        x = sim_final_norm_forward(&w->m, &w->norm, x);
        sim_forget(&w->m, &w->norm.x);
        sim_forget(&w->m, &w->norm.stat);
    }
    if (w->place->has_loss) {
        sim_loss_save_t *loss = &w->losses[0];
        sim_loss_forward(&w->m, loss, x);
        sim_ref_t *saved[] = { &loss->ln_out, &loss->softmax, &loss->target_mask,
                               &loss->masked_target };
        for (size_t i = 0; i < sizeof(saved) / sizeof(saved[0]); i++)
            sim_forget(&w->m, saved[i]);
    } else {
        if (w->place->n_layers == 0) /* nothing made a tensor to send */
            sim_replace(&w->m, &x, "stage_output", w->out_bytes);
        sim_leave(b, x, SIM_SLOT_OUTPUT);
    }
    sim_batch_drop(&w->m, &batch);
}

void sim_chunk_init_evaluation(sim_chunk_t *chunk, const sim_scenario_t *scenario,
                               const sim_dims_t *dims, const topo_chunk_t *place, uint32_t tp_rank,
                               sim_persistent_t *persistent)
{
    sim_scenario_t s = *scenario; /* what it owns stays the scenario's */
    s.hidden_dropout = s.attention_dropout = 0.0;
    s.recompute_granularity = SIM_RECOMPUTE_NONE;
    s.fine_grained_activation_offloading = s.cpu_offloading = false;
    s.overlap_moe_expert_parallel_comm = false; /* passes are alone */
    sim_builder_t b;
    sim_builder_init(&b, persistent);
    work_t w = { .m = { .b = &b,
                        .s = &s,
                        .d = dims,
                        .tp_rank = tp_rank,
                        .context = SIM_REF_NONE,
                        .d_context = SIM_REF_NONE } };
    *chunk = (sim_chunk_t){ .place = *place };
    work_init(&w, place);
    build_evaluation(&w, &chunk->forward);
    take_tensors(chunk, &chunk->of, &b);
    sim_builder_fini(&b);
    chunk->in_bytes = w.in_bytes;
    chunk->out_bytes = w.out_bytes;
    work_fini(&w);
}

void sim_chunk_fini(sim_chunk_t *chunk)
{
    sim_params_fini(&chunk->params);
    sim_tape_fini(&chunk->forward);
    sim_tape_fini(&chunk->backward);
    sim_tape_fini(&chunk->split.backward);
    sim_tape_fini(&chunk->split.weights);
    sim_tape_fini(&chunk->graphed_forward);
    sim_tape_fini(&chunk->graphed_backward);
    sim_cuda_graphs_fini(&chunk->graphs);
    free(chunk->of.tensors);
    free(chunk->split.of.tensors);
    *chunk = (sim_chunk_t){ 0 };
}
