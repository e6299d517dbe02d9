/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/moe.h"

#include "sim/model/cuda_graph.h"
#include "sim/model/node.h"
#include "sim/model/weights.h"

#include <assert.h>
#include <stdio.h>

enum { INDEX_BYTES = 8, INT_BYTES = 4, FP32_BYTES = 4 };

static sim_moe_rows_t rows_of(const sim_model_t *m)
{
    return sim_moe_rows(m->s, m->d, m->b->layer);
}

static uint64_t hidden(const sim_model_t *m, uint64_t rows)
{
    return rows * m->d->moe.h * m->d->e;
}

static void stay(sim_dispatch_save_t *save, sim_ref_t ref)
{
    assert(save->n_live < sizeof(save->live) / sizeof(save->live[0]));
    save->live[save->n_live++] = ref;
}

void sim_dispatch_release(sim_model_t *m, sim_dispatch_save_t *save)
{
    for (uint32_t i = 0; i < save->n_live; i++)
        sim_drop(m->b, save->live[i]);
    save->n_live = 0;
}

/* The dispatcher of a layer refers to what it got last until the next micro-batch comes, so each
 * layer keeps one of each. */
static void keep_last(sim_model_t *m, const char *what, uint64_t bytes)
{
    char key[48];
    snprintf(key, sizeof(key), "dispatcher_%s[%d]", what, m->b->layer);
    sim_persist(m->b, SIM_MOD_DISPATCH, key, bytes);
}

/* A probability for each token of this rank and expert. */
static uint64_t table_bytes(const sim_model_t *m)
{
    return m->d->local_tokens * m->d->moe.n_experts * m->d->moe.prob_e;
}

static bool pads_to_capacity(const sim_model_t *m)
{
    return m->d->moe.capacity > 0 && m->s->moe_pad_expert_input_to_capacity;
}

/* Order `tokens` rows by `n_experts` experts into `n_out` rows. The fused kernel needs a map of
 * 2 * n_experts + 1 numbers a token; without it the true entries of the whole table are sorted to
 * the front, and a slice keeps the sorted table. The probabilities go with the rows where `prob_e`
 * is not 0. */
static sim_ref_t permute(sim_model_t *m, sim_dispatch_save_t *save, uint64_t tokens,
                         uint64_t n_experts, uint64_t n_out, uint64_t prob_e, sim_ref_t *probs_p)
{
    uint64_t table = tokens * n_experts;
    if (m->s->moe_permute_fusion) {
        uint64_t map_bytes = tokens * (2 * n_experts + 1) * INT_BYTES;
        save->map = sim_new(m->b, "row_map", map_bytes);
        save->map_indices = SIM_REF_NONE;
        keep_last(m, "row_map", map_bytes);
    } else {
        sim_ref_t mask = sim_new(m->b, "routing_map_by_expert", table);
        sim_ref_t values = sim_new(m->b, "sorted_map", table);
        save->map = sim_new(m->b, "sorted_places", table * INDEX_BYTES);
        sim_drop(m->b, values);
        save->map_indices = sim_new(m->b, "token_indices", n_out * INDEX_BYTES);
        keep_last(m, "token_indices", n_out * INDEX_BYTES);
        sim_drop(m->b, mask);
        sim_touch(m->b, "probs_by_expert", table * prob_e);
    }
    if (pads_to_capacity(m)) /* the first of each expert are copied out of the sorted table */
        sim_forget(m, &save->map);
    *probs_p = sim_new(m->b, "permuted_probs", n_out * prob_e);
    return sim_new(m->b, "permuted_tokens", hidden(m, n_out));
}

/* Zeros into which rows are added; the deterministic form makes them twice. */
static sim_ref_t unpermute(sim_model_t *m, uint64_t tokens)
{
    sim_ref_t out = sim_new(m->b, "unpermuted_tokens", hidden(m, tokens));
    if (!m->s->moe_permute_fusion && m->s->deterministic_mode)
        sim_replace(m, &out, "unpermuted_tokens", hidden(m, tokens));
    return out;
}

/* Bring the received rows into the order of the local experts. */
static void sort_rows(sim_model_t *m, sim_dispatch_save_t *save, uint64_t rows, sim_ref_t *x_p,
                      sim_ref_t *probs_p)
{
    save->sort_map = SIM_REF_NONE;
    if (m->d->moe.n_local == 1)
        return;
    if (m->s->moe_permute_fusion && !pads_to_capacity(m))
        save->sort_map = sim_new(m->b, "sort_map", rows * INT_BYTES);
    sim_replace(m, x_p, "sorted_tokens", hidden(m, rows));
    sim_replace(m, probs_p, "sorted_probs", rows * m->d->moe.prob_e);
}

static bool is_deepep(const sim_model_t *m)
{
    return m->s->moe_token_dispatcher_type == SIM_DISPATCHER_FLEX &&
           m->s->moe_flex_dispatcher_backend == SIM_FLEX_DEEPEP;
}

static bool is_hybridep(const sim_model_t *m)
{
    return m->s->moe_token_dispatcher_type == SIM_DISPATCHER_FLEX && !is_deepep(m);
}

/* should_free_input(): HybridEP's rows, and those of the only local expert, are what the experts
 * save themselves, unless they are quantised. */
static bool frees_received(const sim_model_t *m)
{
    bool copies = is_deepep(m) || m->d->moe.n_local > 1 || sim_is_quantized(m->s);
    return copies && !is_hybridep(m);
}

/* The node of the experts begins. Its input is freed when it ends, or stays as the probabilities
 * do. */
static void hold_received(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t t, sim_ref_t probs)
{
    if (m->nodes == NULL)
        return;
    sim_node_end(m, SIM_REF_NONE, false);
    save->received_probs = sim_keep(m->b, probs);
    if (frees_received(m))
        sim_node_hold(m, sim_keep(m->b, t));
    else
        save->received = sim_keep(m->b, t);
}

static sim_ref_t alltoall_in(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t x,
                             sim_ref_t *probs_p, sim_shared_save_t *shared, bool grad)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    keep_last(m, "probs", m->d->local_tokens * d->n_experts * d->prob_e);
    keep_last(m, "map", m->d->local_tokens * d->n_experts);
    if (m->nodes != NULL)
        sim_latest(m->b, m->b->layer);
    if (shared != NULL)
        sim_shared_begin(m, shared, x);
    m->b->module = SIM_MOD_DISPATCH;
    sim_ref_t probs;
    sim_ref_t t = permute(m, save, m->d->local_tokens, d->n_experts, rows.sent, d->prob_e, &probs);
    sim_cuda_graph_end_preprocess(m);
    sim_node_end(m, SIM_REF_NONE, true);
    if (m->nodes == NULL)
        stay(save, sim_keep(m->b, t));
    else /* what is sent is freed when the node that sends it ends */
        sim_node_hold(m, sim_keep(m->b, t));
    if (d->ep > 1)
        sim_replace(m, &t, "received_tokens", hidden(m, rows.received));
    if (shared != NULL)
        sim_shared_first(m, shared, grad);
    m->b->module = SIM_MOD_DISPATCH;
    if (d->ep > 1)
        sim_replace(m, &probs, "received_probs", rows.received * d->prob_e);
    if (m->nodes == NULL) {
        stay(save, sim_keep(m->b, t));
        stay(save, sim_keep(m->b, probs));
    }
    hold_received(m, save, t, probs);
    if (d->etp > 1) {
        sim_replace(m, &t, "gathered_tokens", hidden(m, rows.expert));
        sim_replace(m, &probs, "gathered_probs", rows.expert * d->prob_e);
    }
    sort_rows(m, save, rows.expert, &t, &probs);
    *probs_p = probs;
    return t;
}

/* The sum over expert tensor parallel ranks is made in the type of the probabilities. */
static void reduce_scatter(sim_model_t *m, sim_ref_t *t_p, uint64_t in_rows, uint64_t out_rows)
{
    uint64_t e = m->d->e, wide_e = m->d->moe.prob_e;
    if (wide_e > e)
        sim_replace(m, t_p, "experts_out_wide", hidden(m, in_rows) / e * wide_e);
    sim_replace(m, t_p, "experts_out_scattered",
                hidden(m, out_rows) / e * (wide_e > e ? wide_e : e));
    if (wide_e > e)
        sim_replace(m, t_p, "experts_out_scattered", hidden(m, out_rows));
}

/* What is sent back is freed when the node that sends it ends. */
static void end_experts(sim_model_t *m, sim_ref_t out)
{
    sim_node_end(m, SIM_REF_NONE, true);
    if (m->nodes != NULL)
        sim_node_hold(m, sim_keep(m->b, out));
}

/* The caller of combine_preprocess() holds the experts' output until that returns; the caller of
 * token_combine() holds its input until that returns, and its output until the layer returns. */
static sim_ref_t alltoall_out(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t out,
                              sim_shared_save_t *shared, sim_ref_t *shared_out_p, bool grad)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    sim_ref_t experts_out = sim_keep(m->b, out);
    if (d->n_local > 1)
        sim_replace(m, &out, "unsorted_tokens", hidden(m, rows.expert));
    if (d->etp > 1)
        reduce_scatter(m, &out, rows.expert, rows.received);
    sim_drop(m->b, experts_out);
    end_experts(m, out);
    if (d->ep > 1)
        sim_replace(m, &out, "combined_tokens", hidden(m, rows.sent));
    if (shared != NULL)
        *shared_out_p = sim_shared_second(m, shared, grad);
    m->b->module = SIM_MOD_DISPATCH;
    stay(save, out);
    return unpermute(m, m->d->local_tokens);
}

static sim_ref_t alltoall_out_backward(sim_model_t *m, sim_ref_t g)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    sim_replace(m, &g, "d_combined", hidden(m, rows.sent));
    if (d->ep > 1)
        sim_replace(m, &g, "d_unsorted_part", hidden(m, rows.received));
    sim_node_end(m, g, false);
    if (d->etp > 1)
        sim_replace(m, &g, "d_unsorted", hidden(m, rows.expert));
    if (d->n_local > 1)
        sim_replace(m, &g, "d_experts_out", hidden(m, rows.expert));
    return g;
}

static sim_ref_t alltoall_in_backward(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t g,
                                      sim_shared_save_t *shared, sim_ref_t *d_shared_p)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    if (d->n_local > 1)
        sim_replace(m, &g, "d_sorted", hidden(m, rows.expert));
    sim_forget(m, &save->sort_map);
    if (d->etp > 1)
        sim_replace(m, &g, "d_received", hidden(m, rows.received));
    sim_node_end(m, g, true);
    sim_forget(m, &save->received);
    if (d->ep > 1)
        sim_replace(m, &g, "d_permuted", hidden(m, rows.sent));
    sim_node_end(m, g, false);
    sim_forget(m, &save->received_probs);
    if (shared != NULL)
        *d_shared_p = sim_shared_first_backward(m, shared);
    m->b->module = SIM_MOD_DISPATCH;
    sim_experts_weights_compute(m);
    sim_cuda_graph_begin_preprocess_backward(m, hidden(m, rows.sent), rows.sent * d->prob_e);
    sim_replace(m, &g, "d_dispatched", hidden(m, m->d->local_tokens));
    sim_forget(m, &save->map);
    sim_forget(m, &save->map_indices);
    return g;
}

/* Tokens of the whole group are gathered into the global buffer, and each rank takes the rows of
 * its experts. */
static sim_ref_t allgather_in(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t *probs_p)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    m->b->module = SIM_MOD_DISPATCH;
    sim_cuda_graph_end_preprocess(m);
    sim_ref_t map = SIM_REF_NONE, all_probs = SIM_REF_NONE;
    if (d->ep * d->etp > 1) {
        map = sim_new(m->b, "gathered_map", rows.gathered * d->n_experts);
        all_probs = sim_new(m->b, "gathered_probs", rows.gathered * d->n_experts * d->prob_e);
        sim_persist(m->b, SIM_MOD_LIBRARY, "mpu_buffer", hidden(m, rows.gathered));
    }
    uint64_t local = rows.gathered * d->n_local;
    keep_last(m, "local_map", local);
    sim_ref_t local_probs = sim_new(m->b, "local_probs", local * d->prob_e);
    sim_ref_t none;
    sim_ref_t t = permute(m, save, rows.gathered, d->n_local, rows.expert, 0, &none);
    sim_ref_t by_expert = sim_new(m->b, "local_probs_by_expert", local * d->prob_e);
    save->sort_map = sim_new(m->b, "local_map_by_expert", local);
    *probs_p = sim_new(m->b, "permuted_probs", rows.expert * d->prob_e);
    sim_drop(m->b, by_expert);
    sim_drop(m->b, local_probs);
    sim_drop(m->b, map);
    stay(save, all_probs);
    return t;
}

static sim_ref_t allgather_out(sim_model_t *m, sim_ref_t out)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    m->b->module = SIM_MOD_DISPATCH;
    sim_ref_t t = unpermute(m, rows.gathered);
    sim_drop(m->b, out);
    if (d->ep * d->etp > 1) {
        sim_ref_t whole = sim_keep(m->b, t);
        reduce_scatter(m, &t, rows.gathered, m->d->local_tokens);
        sim_drop(m->b, whole);
    }
    return t;
}

static sim_ref_t allgather_out_backward(sim_model_t *m, sim_ref_t g)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    if (d->ep * d->etp > 1)
        sim_replace(m, &g, "d_unpermuted", hidden(m, rows.gathered));
    sim_replace(m, &g, "d_experts_out", hidden(m, rows.expert));
    return g;
}

static sim_ref_t allgather_in_backward(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t g)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    sim_replace(m, &g, "d_gathered", hidden(m, rows.gathered));
    if (d->ep * d->etp > 1)
        sim_replace(m, &g, "d_dispatched", hidden(m, m->d->local_tokens));
    sim_experts_weights_compute(m);
    sim_cuda_graph_begin_preprocess_backward(m, m->d->hidden_bytes, table_bytes(m));
    sim_forget(m, &save->sort_map);
    sim_forget(m, &save->map);
    sim_forget(m, &save->map_indices);
    return g;
}

static uint64_t n_ranks(const sim_model_t *m)
{
    return m->d->moe.ep * m->d->moe.etp;
}

/* DeepEP sends each token once to each rank that has one of its experts. Its handle says who got
 * which token. */
static sim_ref_t deepep_receive(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t *probs_p)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    uint64_t choices = d->topk * d->etp;
    sim_ref_t received = sim_new(m->b, "received_tokens", hidden(m, rows.unique));
    sim_ref_t indices = sim_new(m->b, "received_indices", rows.unique * choices * INDEX_BYTES);
    sim_ref_t weights = sim_new(m->b, "received_weights", rows.unique * choices * FP32_BYTES);
    save->handle =
        sim_new(m->b, "deepep_handle",
                m->d->local_tokens * n_ranks(m) * (1 + INT_BYTES) + rows.unique * INT_BYTES);
    hold_received(m, save, received, weights);
    sim_ref_t local_map = sim_new(m->b, "local_map", rows.unique * d->n_local);
    sim_ref_t local_probs = sim_new(m->b, "local_probs", rows.unique * d->n_local * FP32_BYTES);
    sim_ref_t t = permute(m, save, rows.unique, d->n_local, rows.expert, d->prob_e, probs_p);
    sim_drop(m->b, indices);
    sim_drop(m->b, weights);
    if (m->nodes == NULL)
        stay(save, received);
    else
        sim_drop(m->b, received);
    stay(save, local_map);
    stay(save, local_probs);
    return t;
}

/* HybridEP's rows arrive in the order of the experts. Its handle has a place for each token and
 * rank, and which local experts every token of the group goes to. */
static sim_ref_t hybridep_receive(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t *probs_p)
{
    const sim_moe_dims_t *d = &m->d->moe;
    sim_moe_rows_t rows = rows_of(m);
    save->map = save->map_indices = SIM_REF_NONE;
    uint64_t table = m->d->local_tokens * d->n_experts * d->etp;
    keep_last(m, "probs", table * FP32_BYTES);
    keep_last(m, "map", table);
    keep_last(m, "permuted_probs", rows.expert * d->prob_e);
    save->handle = sim_new(m->b, "hybridep_handle",
                           m->d->local_tokens * n_ranks(m) * (INT_BYTES + d->n_local));
    *probs_p = sim_new(m->b, "permuted_probs", rows.expert * d->prob_e);
    sim_ref_t t = sim_new(m->b, "received_tokens", hidden(m, rows.expert));
    hold_received(m, save, t, *probs_p);
    return t;
}

/* What setup_metadata() leaves for the dispatch: DeepEP's chosen ones, HybridEP's table. */
static uint64_t flex_probs_bytes(const sim_model_t *m)
{
    const sim_moe_dims_t *d = &m->d->moe;
    uint64_t n = is_deepep(m) ? d->topk : d->n_experts;
    return m->d->local_tokens * n * d->etp * FP32_BYTES;
}

static sim_ref_t flex_in(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t x, sim_ref_t *probs_p,
                         sim_shared_save_t *shared, bool grad)
{
    const sim_moe_dims_t *d = &m->d->moe;
    uint64_t choices = m->d->local_tokens * d->topk * d->etp;
    m->b->module = SIM_MOD_DISPATCH;
    save->sort_map = save->top_indices = SIM_REF_NONE;
    if (is_deepep(m)) {
        keep_last(m, "token_probs", choices * FP32_BYTES);
        keep_last(m, "local_map", rows_of(m).unique * d->n_local);
        save->top_indices = sim_new(m->b, "token_indices", choices * INDEX_BYTES);
    }
    if (m->nodes != NULL)
        sim_latest(m->b, m->b->layer);
    sim_node_end(m, SIM_REF_NONE, true);
    sim_cuda_graph_end_preprocess(m);
    sim_ref_t t =
        is_deepep(m) ? deepep_receive(m, save, probs_p) : hybridep_receive(m, save, probs_p);
    if (shared != NULL) {
        sim_shared_begin(m, shared, x);
        sim_shared_first(m, shared, grad);
    }
    return t;
}

static sim_ref_t flex_out(sim_model_t *m, sim_ref_t out, sim_shared_save_t *shared,
                          sim_ref_t *shared_out_p, bool grad)
{
    m->b->module = SIM_MOD_DISPATCH;
    if (is_deepep(m)) {
        sim_ref_t restored = unpermute(m, rows_of(m).unique);
        sim_drop(m->b, out);
        out = restored;
    }
    end_experts(m, out);
    sim_replace(m, &out, "combined_tokens", hidden(m, m->d->local_tokens));
    if (shared != NULL)
        *shared_out_p = sim_shared_second(m, shared, grad);
    return out;
}

static sim_ref_t flex_out_backward(sim_model_t *m, sim_ref_t g)
{
    sim_moe_rows_t rows = rows_of(m);
    bool restores = is_deepep(m);
    sim_replace(m, &g, restores ? "d_restored" : "d_experts_out",
                hidden(m, restores ? rows.unique : rows.expert));
    sim_node_end(m, g, false);
    if (restores)
        sim_replace(m, &g, "d_experts_out", hidden(m, rows.expert));
    return g;
}

/* The manager refers to the probabilities that the nodes were given, which have their gradients as
 * fields (fine_grained_callables.py, _comm_manager.token_probs and .dispatched_probs). */
static void leave_probs(sim_model_t *m, const sim_dispatch_save_t *save)
{
    if (m->nodes == NULL)
        return;
    sim_node_leave(m, sim_new(m->b, "d_token_probs", flex_probs_bytes(m)), m->b->layer);
    uint64_t bytes = m->b->built[save->received_probs].tensor.bytes;
    sim_node_leave(m, sim_new(m->b, "d_received_probs", bytes), m->b->layer);
}

static sim_ref_t flex_in_backward(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t g,
                                  sim_shared_save_t *shared, sim_ref_t *d_shared_p)
{
    if (is_deepep(m))
        sim_replace(m, &g, "d_received", hidden(m, rows_of(m).unique));
    sim_node_end(m, g, true);
    sim_forget(m, &save->received);
    sim_forget(m, &save->map);
    sim_forget(m, &save->map_indices);
    if (shared != NULL)
        *d_shared_p = sim_shared_first_backward(m, shared);
    m->b->module = SIM_MOD_DISPATCH;
    sim_replace(m, &g, "d_dispatched", hidden(m, m->d->local_tokens));
    sim_experts_weights_compute(m);
    leave_probs(m, save);
    sim_node_end(m, g, false);
    sim_forget(m, &save->received_probs);
    sim_cuda_graph_begin_preprocess_backward(m, m->d->hidden_bytes, flex_probs_bytes(m));
    sim_forget(m, &save->handle);
    sim_forget(m, &save->top_indices);
    return g;
}

static void forget_maps(sim_model_t *m, sim_dispatch_save_t *save)
{
    sim_ref_t *refs[] = { &save->map, &save->map_indices, &save->sort_map, &save->handle,
                          &save->top_indices };
    for (size_t i = 0; i < sizeof(refs) / sizeof(refs[0]); i++)
        sim_forget(m, refs[i]);
}

sim_ref_t sim_dispatch_in(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t x,
                          sim_ref_t *probs_p, sim_shared_save_t *shared, bool grad)
{
    save->n_live = 0;
    save->handle = save->top_indices = SIM_REF_NONE;
    save->received = save->received_probs = SIM_REF_NONE;
    switch (m->s->moe_token_dispatcher_type) {
    case SIM_DISPATCHER_ALLGATHER:
        return allgather_in(m, save, probs_p);
    case SIM_DISPATCHER_ALLTOALL:
        return alltoall_in(m, save, x, probs_p, shared, grad);
    case SIM_DISPATCHER_FLEX:
        break;
    }
    return flex_in(m, save, x, probs_p, shared, grad);
}

sim_ref_t sim_dispatch_out(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t out,
                           sim_shared_save_t *shared, sim_ref_t *shared_out_p, bool grad)
{
    m->b->module = SIM_MOD_DISPATCH;
    sim_ref_t t;
    if (m->s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLGATHER)
        t = allgather_out(m, out);
    else if (m->s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLTOALL)
        t = alltoall_out(m, save, out, shared, shared_out_p, grad);
    else
        t = flex_out(m, out, shared, shared_out_p, grad);
    if (!grad)
        forget_maps(m, save);
    return t;
}

sim_ref_t sim_dispatch_out_backward(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t d_out)
{
    (void)save;
    m->b->module = SIM_MOD_DISPATCH;
    switch (m->s->moe_token_dispatcher_type) {
    case SIM_DISPATCHER_ALLGATHER:
        return allgather_out_backward(m, d_out);
    case SIM_DISPATCHER_ALLTOALL:
        return alltoall_out_backward(m, d_out);
    case SIM_DISPATCHER_FLEX:
        break;
    }
    return flex_out_backward(m, d_out);
}

sim_ref_t sim_dispatch_in_backward(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t dx,
                                   sim_shared_save_t *shared, sim_ref_t *d_shared_p)
{
    m->b->module = SIM_MOD_DISPATCH;
    switch (m->s->moe_token_dispatcher_type) {
    case SIM_DISPATCHER_ALLGATHER:
        return allgather_in_backward(m, save, dx);
    case SIM_DISPATCHER_ALLTOALL:
        return alltoall_in_backward(m, save, dx, shared, d_shared_p);
    case SIM_DISPATCHER_FLEX:
        break;
    }
    return flex_in_backward(m, save, dx, shared, d_shared_p);
}
