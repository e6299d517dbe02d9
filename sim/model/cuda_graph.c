/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/cuda_graph.h"

enum { FP32_BYTES = 4 };

bool sim_has_layer_graphs(const sim_scenario_t *s)
{
    return s->cuda_graph_impl == SIM_GRAPHS_LOCAL ||
           s->cuda_graph_impl == SIM_GRAPHS_TRANSFORMER_ENGINE;
}

/* Modules one of which makes Megatron-LM capture the whole layer. */
static uint32_t local_modules(const sim_layer_save_t *save)
{
    switch (save->kind) {
    case SIM_LAYER_MAMBA:
        return SIM_CUDA_GRAPH_MAMBA;
    case SIM_LAYER_ATTENTION:
    case SIM_LAYER_DELTA_NET:
        return SIM_CUDA_GRAPH_ATTN;
    case SIM_LAYER_MLP:
        return save->is_moe ? SIM_CUDA_GRAPH_MOE : SIM_CUDA_GRAPH_MLP;
    case SIM_LAYER_TRANSFORMER:
    case SIM_LAYER_LINEAR_TRANSFORMER:
        break;
    }
    return save->is_moe ? SIM_CUDA_GRAPH_MOE : SIM_CUDA_GRAPH_ATTN | SIM_CUDA_GRAPH_MLP;
}

sim_cuda_graph_parts_t sim_cuda_graph_parts(const sim_model_t *m, const sim_layer_save_t *save)
{
    uint32_t modules = m->s->cuda_graph_modules;
    if (m->b->graphs == NULL)
        return (sim_cuda_graph_parts_t){ false, false };
    bool all = modules == 0;
    if (m->s->cuda_graph_impl == SIM_GRAPHS_LOCAL)
        all = all || (modules & local_modules(save)) != 0;
    if (all || m->s->cuda_graph_impl == SIM_GRAPHS_LOCAL)
        return (sim_cuda_graph_parts_t){ all, all };
    uint32_t first = save->kind == SIM_LAYER_MAMBA ? SIM_CUDA_GRAPH_MAMBA : SIM_CUDA_GRAPH_ATTN;
    uint32_t second =
        save->is_moe ? SIM_CUDA_GRAPH_MOE | SIM_CUDA_GRAPH_MOE_ROUTER : SIM_CUDA_GRAPH_MLP;
    return (sim_cuda_graph_parts_t){ (modules & first) != 0, (modules & second) != 0 };
}

/* Transformer Engine's graph takes a mask even where there is none to be given: one of zeros is
 * made for every run of it (_get_te_cuda_graph_replay_args()). */
sim_ref_t sim_cuda_graph_begin_layer(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x,
                                     bool has_attention)
{
    const sim_dims_t *d = m->d;
    bool reads = has_attention && save->kind != SIM_LAYER_MAMBA &&
                 m->s->cuda_graph_impl == SIM_GRAPHS_TRANSFORMER_ENGINE;
    uint64_t mask_bytes = d->b * d->s * d->s / d->cp;
    if (reads && !m->s->create_attention_mask_in_dataloader)
        sim_touch(m->b, "graph_zero_mask", mask_bytes);
    x = sim_cuda_graph_open(m->b, &save->graph, x);
    if (reads)
        sim_cuda_graph_reads(m->b, mask_bytes,
                             m->s->position_embedding_type == SIM_POS_ROPE && !d->mla.is_used
                                 ? d->s * d->head_dim * FP32_BYTES
                                 : 0);
    return x;
}

void sim_cuda_graph_begin_layer_backward(sim_model_t *m, const sim_layer_save_t *save,
                                         sim_ref_t d_out)
{
    sim_cuda_graph_open_backward(m->b, save->graph, 1, &d_out, &m->d->hidden_bytes);
}

/* The last of these modules that is in the graph. */
static uint32_t end_of(const sim_model_t *m)
{
    const uint32_t parts = SIM_CUDA_GRAPH_MOE_ROUTER | SIM_CUDA_GRAPH_MOE_PREPROCESS;
    uint32_t modules = m->b->graphs != NULL ? m->s->cuda_graph_modules & parts : 0;
    return modules & SIM_CUDA_GRAPH_MOE_PREPROCESS ? SIM_CUDA_GRAPH_MOE_PREPROCESS : modules;
}

bool sim_cuda_graph_ends_in_experts(const sim_model_t *m)
{
    return end_of(m) != 0;
}

void sim_cuda_graph_end_router(sim_model_t *m)
{
    if (m->b->in_forward && end_of(m) == SIM_CUDA_GRAPH_MOE_ROUTER)
        sim_cuda_graph_close(m->b);
}

void sim_cuda_graph_end_preprocess(sim_model_t *m)
{
    if (m->b->in_forward && end_of(m) == SIM_CUDA_GRAPH_MOE_PREPROCESS)
        sim_cuda_graph_close(m->b);
}

/* Beside what goes on to the experts the graph gave the residual and the shared experts' output. */
static void open_backward(sim_model_t *m, uint64_t rows_bytes, uint64_t probs_bytes)
{
    const sim_ref_t none[] = { SIM_REF_NONE, SIM_REF_NONE, SIM_REF_NONE, SIM_REF_NONE };
    bool has_shared = m->d->moe.shared_ffn > 0 && !m->s->moe_shared_expert_overlap;
    const uint64_t bytes[] = { rows_bytes, probs_bytes, m->d->hidden_bytes,
                               has_shared ? m->d->hidden_bytes : 0 };
    sim_cuda_graph_open_backward(m->b, m->graph, 4, none, bytes);
}

void sim_cuda_graph_begin_preprocess_backward(sim_model_t *m, uint64_t rows_bytes,
                                              uint64_t probs_bytes)
{
    if (end_of(m) == SIM_CUDA_GRAPH_MOE_PREPROCESS)
        open_backward(m, rows_bytes, probs_bytes);
}

void sim_cuda_graph_begin_router_backward(sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    if (end_of(m) == SIM_CUDA_GRAPH_MOE_ROUTER)
        open_backward(m, d->hidden_bytes, d->local_tokens * d->moe.n_experts * d->moe.prob_e);
}
