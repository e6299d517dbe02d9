/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/adapter.h"
#include "sim/model/cuda_graph.h"
#include "sim/model/node.h"
#include "sim/model/offload.h"
#include "sim/model/transformer_layer.h"

static bool recomputes_mlp(const sim_model_t *m)
{
    return m->s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
           (m->s->recompute_modules & SIM_MODULE_MLP);
}

void sim_norm_linear_forget(sim_model_t *m, sim_norm_linear_t *save)
{
    sim_drop(m->b, save->x);
    sim_drop(m->b, save->ln_out);
    sim_drop(m->b, save->stat);
    sim_drop(m->b, save->weight);
    sim_adapter_forget(m, &save->adapter);
}

void sim_row_linear_forget(sim_model_t *m, sim_row_linear_t *save)
{
    sim_drop(m->b, save->x);
    sim_drop(m->b, save->weight);
    sim_adapter_forget(m, &save->adapter);
}

static void offload_norm_linear(sim_model_t *m, sim_offload_module_t module,
                                sim_norm_linear_t *save)
{
    sim_ref_t *fields[] = { &save->x, &save->ln_out, &save->adapter.x, &save->adapter.mid };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        sim_offload_take(m, module, fields[i], m->d->e, false);
}

static sim_ref_t attention_forward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x, bool grad)
{
    m->b->module = SIM_MOD_QKV;
    sim_ref_t mixed_qkv = sim_norm_linear_forward(m, &save->qkv, x, "mixed_qkv", m->d->qkv_bytes);
    if (!grad)
        sim_norm_linear_forget(m, &save->qkv);
    if (sim_offload_begin(m, SIM_OFFLOAD_QKV_LINEAR, grad))
        offload_norm_linear(m, SIM_OFFLOAD_QKV_LINEAR, &save->qkv);
    m->b->module = SIM_MOD_ATTENTION;
    sim_held_t held;
    sim_ref_t context = sim_attention_forward(m, &save->attention, mixed_qkv, &held);
    if (!grad)
        sim_attention_forget(m, &save->attention);
    if (sim_offload_begin(m, SIM_OFFLOAD_CORE_ATTN, grad))
        sim_attention_offload(m, &save->attention);
    m->b->module = SIM_MOD_PROJ;
    sim_ref_t out = sim_row_linear_forward(m, &save->proj, context, m->d->q_bytes, "proj_out");
    if (!grad)
        sim_row_linear_forget(m, &save->proj);
    if (sim_offload_begin(m, SIM_OFFLOAD_ATTN_PROJ, grad)) {
        sim_offload_take(m, SIM_OFFLOAD_ATTN_PROJ, &save->proj.x, m->d->e, true);
        sim_offload_take(m, SIM_OFFLOAD_ATTN_PROJ, &save->proj.adapter.x, m->d->e, true);
    }
    for (size_t i = 0; i < sizeof(held.refs) / sizeof(held.refs[0]); i++)
        sim_drop(m->b, held.refs[i]);
    return out;
}

/* A layer whose attention is linear. */
static bool is_linear(const sim_layer_save_t *save)
{
    return save->kind == SIM_LAYER_DELTA_NET || save->kind == SIM_LAYER_LINEAR_TRANSFORMER;
}

static sim_ref_t attention_block_forward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x,
                                         bool grad)
{
    sim_ref_t residual = sim_keep(m->b, x);
    sim_ref_t out = is_linear(save)     ? sim_delta_net_forward(m, &save->delta_net, x, grad)
                    : m->d->mla.is_used ? sim_mla_forward(m, &save->mla, x, grad)
                                        : attention_forward(m, save, x, grad);
    m->b->module = SIM_MOD_RESIDUAL;
    out = sim_bda_forward(m, &save->attention_bda, out, residual, "attention_residual");
    if (!grad)
        sim_drop(m->b, save->attention_bda.mask);
    /* A norm of its own is given up once the residual, which is its input, has been added. */
    if (m->d->mla.is_used && sim_offload_begin(m, SIM_OFFLOAD_ATTN_NORM, grad))
        sim_offload_take(m, SIM_OFFLOAD_ATTN_NORM, &save->mla.norm.x, m->d->e, true);
    return out;
}

static sim_ref_t mlp_forward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x, bool grad)
{
    m->b->module = SIM_MOD_FC1;
    sim_ref_t fc1_out = sim_norm_linear_forward(m, &save->fc1, x, "fc1_out", m->d->fc1_bytes);
    if (!grad)
        sim_norm_linear_forget(m, &save->fc1);
    m->b->module = SIM_MOD_ACTIVATION;
    sim_ref_t act = sim_act_forward(m, &save->act, fc1_out);
    if (!grad) {
        sim_drop(m->b, save->act.in);
        sim_drop(m->b, save->act.extra);
    }
    m->b->module = SIM_MOD_FC2;
    sim_ref_t out = sim_row_linear_forward(m, &save->fc2, act, m->d->act_bytes, "fc2_out");
    if (!grad)
        sim_row_linear_forget(m, &save->fc2);
    return out;
}

static sim_ref_t mlp_or_checkpoint(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x, bool grad)
{
    bool checkpoint = grad && recomputes_mlp(m);
    if (checkpoint)
        save->mlp_in = sim_keep(m->b, x);
    return mlp_forward(m, save, x, grad && !checkpoint);
}

static sim_ref_t mlp_block_forward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x2, bool grad)
{
    sim_ref_t residual = sim_keep(m->b, x2);
    sim_ref_t out = save->is_moe ? sim_moe_forward(m, &save->moe, x2, grad)
                                 : mlp_or_checkpoint(m, save, x2, grad);
    m->b->module = SIM_MOD_RESIDUAL;
    out = sim_bda_forward(m, &save->mlp_bda, out, residual, "layer_out");
    if (!grad)
        sim_drop(m->b, save->mlp_bda.mask);
    if (save->is_moe && sim_offload_begin(m, SIM_OFFLOAD_MLP_NORM, grad))
        sim_offload_take(m, SIM_OFFLOAD_MLP_NORM, &save->moe.norm.x, m->d->e, true);
    return out;
}

static bool has_mlp(const sim_layer_save_t *save)
{
    return save->kind != SIM_LAYER_ATTENTION && save->kind != SIM_LAYER_DELTA_NET &&
           save->kind != SIM_LAYER_MAMBA;
}

/* Without experts there is nothing to dispatch or to combine. */
static void end_two_nodes(sim_model_t *m, sim_ref_t grad)
{
    sim_node_end(m, grad, false);
    sim_node_end(m, grad, false);
}

sim_ref_t sim_layer_forward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x, bool grad)
{
    sim_cuda_graph_parts_t parts = sim_cuda_graph_parts(m, save);
    bool with_mlp = has_mlp(save);
    bool has_first = save->kind != SIM_LAYER_MLP;
    save->graph = SIM_CUDA_GRAPH_NONE;
    save->leaf = SIM_REF_NONE;
    if (m->nodes != NULL && save->is_moe &&
        m->s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLTOALL)
        save->leaf = sim_keep(m->b, x);
    if (has_first && parts.attention)
        x = sim_cuda_graph_begin_layer(m, save, x, true);
    if (save->kind == SIM_LAYER_MAMBA)
        x = sim_mamba_forward(m, &save->mamba, x, grad);
    else if (has_first)
        x = attention_block_forward(m, save, x, grad);
    if (!with_mlp || !parts.mlp)
        sim_cuda_graph_close(m->b);
    if (save->is_decoder)
        x = sim_cross_forward(m, &save->cross, x);
    if (!with_mlp)
        return x;
    if (parts.mlp && m->b->graph == SIM_CUDA_GRAPH_NONE)
        x = sim_cuda_graph_begin_layer(m, save, x, false);
    if (!save->is_moe)
        end_two_nodes(m, SIM_REF_NONE);
    x = mlp_block_forward(m, save, x, grad);
    if (!save->is_moe)
        sim_node_end(m, SIM_REF_NONE, false);
    sim_cuda_graph_close(m->b);
    return x;
}

/* The residual's gradient is added into the branch's, which nobody else holds. */
static sim_ref_t add_residual(sim_model_t *m, sim_ref_t dx, sim_ref_t d_residual)
{
    sim_drop(m->b, d_residual);
    return dx;
}

static sim_ref_t mlp_backward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t g)
{
    const sim_dims_t *d = m->d;
    if (recomputes_mlp(m)) {
        sim_ref_t out = mlp_forward(m, save, save->mlp_in, true);
        sim_drop(m->b, out);
    }
    m->b->module = SIM_MOD_FC2;
    g = sim_row_linear_backward(m, &save->fc2, g, "d_act_out", d->act_bytes, d->ffn / d->tp);
    m->b->module = SIM_MOD_ACTIVATION;
    g = sim_act_backward(m, &save->act, g);
    m->b->module = SIM_MOD_FC1;
    return sim_norm_linear_backward(m, &save->fc1, g, d->gate * d->ffn / d->tp);
}

static sim_ref_t attention_backward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t g)
{
    const sim_dims_t *d = m->d;
    m->b->module = SIM_MOD_PROJ;
    sim_offload_before_backward(m, SIM_OFFLOAD_ATTN_PROJ);
    g = sim_row_linear_backward(m, &save->proj, g, "d_context", d->q_bytes,
                                d->heads_tp * d->head_dim);
    sim_offload_after_backward(m, SIM_OFFLOAD_ATTN_PROJ);
    m->b->module = SIM_MOD_ATTENTION;
    sim_offload_before_backward(m, SIM_OFFLOAD_CORE_ATTN);
    g = sim_attention_backward(m, &save->attention, g);
    sim_offload_after_backward(m, SIM_OFFLOAD_CORE_ATTN);
    m->b->module = SIM_MOD_QKV;
    sim_offload_before_backward(m, SIM_OFFLOAD_QKV_LINEAR);
    g = sim_norm_linear_backward(m, &save->qkv, g, d->qkv_rows);
    sim_offload_after_backward(m, SIM_OFFLOAD_QKV_LINEAR);
    return g;
}

static sim_ref_t mlp_block_backward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t d_out)
{
    m->b->module = SIM_MOD_RESIDUAL;
    sim_ref_t g = sim_bda_backward(m, &save->mlp_bda, d_out);
    if (m->nodes != NULL && save->is_moe) {
        /* The residual was detached; its gradient is a copy, as others still refer to d_out. */
        sim_node_hold(m, d_out);
        d_out = sim_new(m->b, "d_residual", m->d->hidden_bytes);
    }
    sim_offload_before_backward(m, SIM_OFFLOAD_MLP_NORM);
    g = save->is_moe ? sim_moe_backward(m, &save->moe, g) : mlp_backward(m, save, g);
    sim_offload_after_backward(m, SIM_OFFLOAD_MLP_NORM);
    return add_residual(m, g, d_out);
}

static sim_ref_t attention_block_backward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t d_out)
{
    m->b->module = SIM_MOD_RESIDUAL;
    sim_ref_t g = sim_bda_backward(m, &save->attention_bda, d_out);
    sim_offload_before_backward(m, SIM_OFFLOAD_ATTN_NORM);
    g = is_linear(save)     ? sim_delta_net_backward(m, &save->delta_net, g)
        : m->d->mla.is_used ? sim_mla_backward(m, &save->mla, g)
                            : attention_backward(m, save, g);
    sim_offload_after_backward(m, SIM_OFFLOAD_ATTN_NORM);
    return add_residual(m, g, d_out);
}

/* The dispatcher refers to the router's probabilities until the next micro-batch comes
 * (token_dispatcher.py, MoEAlltoAllTokenDispatcher.dispatch_preprocess()), and they to their graph,
 * used up as it is. That begins at the node's input, whose gradient is a field of it. */
static void leave_graph(sim_model_t *m, sim_layer_save_t *save, sim_ref_t d_in)
{
    if (save->leaf == SIM_REF_NONE)
        return;
    sim_node_leave(m, save->leaf, m->b->layer);
    sim_node_leave(m, sim_keep(m->b, d_in), m->b->layer);
    save->leaf = SIM_REF_NONE;
}

sim_ref_t sim_layer_backward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t d_out)
{
    sim_cuda_graph_parts_t parts = sim_cuda_graph_parts(m, save);
    m->graph = save->graph;
    if (has_mlp(save)) {
        if (parts.mlp && !(save->is_moe && sim_cuda_graph_ends_in_experts(m)))
            sim_cuda_graph_begin_layer_backward(m, save, d_out);
        if (!save->is_moe)
            sim_node_end(m, d_out, false);
        d_out = mlp_block_backward(m, save, d_out);
        if (!save->is_moe)
            end_two_nodes(m, d_out);
        if (!parts.attention || save->kind == SIM_LAYER_MLP)
            sim_cuda_graph_close(m->b);
    }
    if (save->is_decoder)
        d_out = sim_cross_backward(m, &save->cross, d_out);
    if (save->kind == SIM_LAYER_MLP)
        return d_out;
    if (parts.attention && m->b->graph == SIM_CUDA_GRAPH_NONE)
        sim_cuda_graph_begin_layer_backward(m, save, d_out);
    d_out = save->kind == SIM_LAYER_MAMBA ? sim_mamba_backward(m, &save->mamba, d_out)
                                          : attention_block_backward(m, save, d_out);
    sim_cuda_graph_close(m->b);
    leave_graph(m, save, d_out);
    return d_out;
}
