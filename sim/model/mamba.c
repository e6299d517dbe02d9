/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/mamba.h"

#include "sim/base/units.h"
#include "sim/model/projection.h"

enum {
    CHUNK = 128, /* mamba_mixer.py, chunk_size */
    FP32_BYTES = 4,
};

static uint64_t inner_bytes(const sim_dims_t *d)
{
    return d->tokens * d->mamba.inner * d->e;
}

static uint64_t conv_bytes(const sim_dims_t *d)
{
    return d->tokens * d->mamba.conv * d->e;
}

static uint64_t proj_bytes(const sim_dims_t *d)
{
    return d->tokens * d->mamba.proj_rows * d->e;
}

static uint64_t n_chunks(const sim_dims_t *d)
{
    return d->b * base_u64_div_up(d->s, CHUNK);
}

/* A number for each token and head; a state for each chunk and channel. */
static uint64_t step_bytes(const sim_dims_t *d)
{
    return FP32_BYTES * n_chunks(d) * CHUNK * d->mamba.heads;
}

static uint64_t n_states(const sim_dims_t *d)
{
    return n_chunks(d) * d->mamba.inner * d->mamba.state;
}

static uint64_t final_state_bytes(const sim_dims_t *d)
{
    return FP32_BYTES * d->b * d->mamba.inner * d->mamba.state;
}

/* C B^T in every chunk and group. */
static uint64_t product_bytes(const sim_dims_t *d)
{
    return FP32_BYTES * n_chunks(d) * d->mamba.groups * CHUNK * CHUNK;
}

/* Under context parallelism the scan runs over whole sequences of a part of the heads; groups that
 * are fewer than the ranks go to several of them (ssm/mamba_context_parallel.py). */
static sim_dims_t scan_dims(const sim_dims_t *d)
{
    sim_dims_t whole = *d;
    sim_mamba_dims_t *a = &whole.mamba;
    whole.tokens *= d->cp;
    a->heads /= d->cp;
    a->groups = base_u64_max(a->groups / d->cp, 1);
    a->inner = a->heads * a->head_dim;
    a->conv = a->inner + 2 * a->groups * a->state;
    a->proj_rows = a->inner + a->conv + a->heads;
    return whole;
}

enum { N_PARTS = 5 };

/* Bytes on this rank of z, x, B, C and dt, which travel one by one; B and C as often as the ranks
 * that share a group. */
static void part_bytes(const sim_dims_t *d, uint64_t bytes[N_PARTS])
{
    uint64_t group = base_u64_max(d->mamba.groups, d->cp) * d->mamba.state * d->tokens * d->e;
    bytes[0] = bytes[1] = inner_bytes(d);
    bytes[2] = bytes[3] = group;
    bytes[4] = d->tokens * d->mamba.heads * d->e;
}

/* pre_conv_ssm(): parts of the sequence become parts of the heads; the joined result is put in the
 * order of the sequence by another copy. Takes the projection's output. */
static sim_ref_t heads_from_sequence(sim_model_t *m, const sim_dims_t *whole, sim_ref_t projected)
{
    const sim_dims_t *d = m->d;
    uint64_t bytes[N_PARTS];
    sim_ref_t parts[N_PARTS];
    part_bytes(d, bytes);
    bool repeats = d->mamba.groups < d->cp;
    for (size_t i = 0; i < N_PARTS; i++) {
        bool is_group = i == 2 || i == 3;
        sim_ref_t again =
            repeats && is_group ? sim_new(m->b, "mamba_groups_repeated", bytes[i]) : SIM_REF_NONE;
        sim_ref_t send = sim_new(m->b, "mamba_send", bytes[i]);
        parts[i] = sim_new(m->b, "mamba_received", bytes[i]);
        sim_drop(m->b, send);
        sim_drop(m->b, again);
    }
    sim_ref_t joined = sim_new(m->b, "mamba_joined", proj_bytes(whole));
    sim_ref_t ordered = sim_new(m->b, "mamba_ordered", proj_bytes(whole));
    sim_drop(m->b, joined);
    for (size_t i = 0; i < N_PARTS; i++)
        sim_drop(m->b, parts[i]);
    sim_drop(m->b, projected);
    return ordered;
}

/* Takes the gradient of the ordered tensor; returns that of the projection's output. */
static sim_ref_t d_heads_from_sequence(sim_model_t *m, const sim_dims_t *whole, sim_ref_t g)
{
    const sim_dims_t *d = m->d;
    uint64_t bytes[N_PARTS];
    sim_ref_t parts[N_PARTS];
    part_bytes(d, bytes);
    sim_replace(m, &g, "d_mamba_joined", proj_bytes(whole));
    for (size_t i = N_PARTS; i-- > 0;) {
        sim_ref_t send = sim_new(m->b, "d_mamba_send", bytes[i]);
        sim_ref_t received = sim_new(m->b, "d_mamba_received", bytes[i]);
        sim_drop(m->b, send);
        parts[i] = sim_new(m->b, "d_mamba_part", bytes[i]);
        sim_drop(m->b, received);
    }
    sim_drop(m->b, g);
    sim_ref_t d_projected = sim_new(m->b, "d_mamba_projected", proj_bytes(d));
    for (size_t i = 0; i < N_PARTS; i++)
        sim_drop(m->b, parts[i]);
    return d_projected;
}

/* post_conv_ssm(), and its gradient: back to the order of attention and to parts of the sequence,
 * or from there. Takes `x`. */
static sim_ref_t sequence_from_heads(sim_model_t *m, sim_ref_t x, const char *name)
{
    uint64_t bytes = inner_bytes(m->d);
    sim_ref_t ordered = sim_new(m->b, "mamba_reordered", bytes);
    sim_ref_t received = sim_new(m->b, "mamba_returned", bytes);
    sim_ref_t out = sim_new(m->b, name, bytes);
    sim_drop(m->b, ordered);
    sim_drop(m->b, received);
    sim_drop(m->b, x);
    return out;
}

/* Megatron has the sequence first, the scan the batch: with one sample that is the same. */
static void swap(sim_model_t *m, sim_ref_t *t_p, const char *name, uint64_t bytes)
{
    if (m->d->b > 1)
        sim_replace(m, t_p, name, bytes);
}

/* ssd_combined.py, MambaSplitConv1dScanCombinedFn.forward(): the convolution's output and the
 * states are made again in the backward pass. Returns the gated output. */
static sim_ref_t scan_forward(sim_model_t *m, sim_ref_t *scanned_p)
{
    const sim_dims_t *d = m->d;
    sim_ref_t conv = sim_new(m->b, "conv_out", conv_bytes(d));
    sim_ref_t dt = sim_new(m->b, "dt", step_bytes(d));
    sim_ref_t decay = sim_new(m->b, "decay_sums", step_bytes(d));
    sim_ref_t in_chunk = sim_new(m->b, "chunk_states", FP32_BYTES * n_states(d));
    sim_ref_t states = sim_new(m->b, "states", d->e * n_states(d));
    sim_ref_t final = sim_new(m->b, "final_states", final_state_bytes(d));
    sim_drop(m->b, in_chunk);
    sim_ref_t product = sim_new(m->b, "chunk_products", product_bytes(d));
    sim_ref_t gated = sim_new(m->b, "scan_gated", inner_bytes(d));
    *scanned_p = sim_new(m->b, "scan_out", inner_bytes(d));
    sim_ref_t locals[] = { product, conv, dt, decay, states, final };
    for (size_t i = 0; i < sizeof(locals) / sizeof(locals[0]); i++)
        sim_drop(m->b, locals[i]);
    return gated;
}

sim_ref_t sim_mamba_forward(sim_model_t *m, sim_mamba_save_t *save, sim_ref_t x, bool grad)
{
    const sim_dims_t *d = m->d, whole = scan_dims(d);
    sim_model_t scan = *m;
    scan.d = &whole;
    sim_ref_t residual = sim_keep(m->b, x);
    m->b->module = SIM_MOD_MAMBA;
    save->projected =
        sim_norm_linear_forward(m, &save->in_proj, x, "mamba_projected", proj_bytes(d));
    if (d->cp > 1)
        save->projected = heads_from_sequence(m, &whole, save->projected);
    swap(m, &save->projected, "mamba_projected_bsd", proj_bytes(&whole));
    save->gated = scan_forward(&scan, &save->scanned);
    swap(m, &save->gated, "scan_gated_sbd", inner_bytes(d));
    if (d->cp > 1)
        save->gated = sequence_from_heads(m, save->gated, "scan_gated_parts");
    sim_ref_t normed = sim_new(m->b, "mamba_normed", inner_bytes(d));
    save->stat = sim_new(m->b, "mamba_norm_stat", FP32_BYTES * d->tokens * d->mamba.groups);
    sim_ref_t out = sim_row_linear_forward(m, &save->out_proj, normed, inner_bytes(d), "mamba_out");
    m->b->module = SIM_MOD_RESIDUAL;
    out = sim_bda_forward(m, &save->bda, out, residual, "mamba_residual");
    if (!grad) {
        sim_norm_linear_forget(m, &save->in_proj);
        sim_forget(m, &save->projected);
        sim_forget(m, &save->scanned);
        sim_forget(m, &save->gated);
        sim_forget(m, &save->stat);
        sim_row_linear_forget(m, &save->out_proj);
        sim_drop(m->b, save->bda.mask);
    }
    return out;
}

/* Heads of a group are shared out so that every multiprocessor has work; each part sums the
 * gradients of B and C by itself (ssd_chunk_state.py, _chunk_state_bwd_db()). */
static uint64_t n_splits(const sim_dims_t *d)
{
    uint64_t ratio = d->mamba.heads / d->mamba.groups;
    uint64_t per_program = base_u64_div_up(n_chunks(d) * d->mamba.heads, d->n_sms);
    return base_u64_div_up(ratio, base_u64_min(per_program, ratio));
}

/* A gradient of every part, and their sum. */
static sim_ref_t summed(sim_model_t *m, const char *name, uint64_t bytes)
{
    sim_ref_t parts = sim_new(m->b, name, n_splits(m->d) * bytes);
    sim_ref_t sum = sim_new(m->b, name, bytes);
    sim_drop(m->b, parts);
    return sum;
}

/* ssd_combined.py, MambaSplitConv1dScanCombinedFn.backward(). Takes the gated output's gradient;
 * returns that of the projection's output. */
static sim_ref_t scan_backward(sim_model_t *m, sim_mamba_save_t *save, sim_ref_t d_gated)
{
    const sim_dims_t *d = m->d;
    uint64_t states_bytes = FP32_BYTES * n_states(d);
    uint64_t group_bytes = FP32_BYTES * d->tokens * d->mamba.groups * d->mamba.state;
    sim_ref_t conv = sim_new(m->b, "conv_out", conv_bytes(d));
    sim_ref_t d_projected = sim_new(m->b, "d_mamba_projected", proj_bytes(d));
    sim_ref_t d_conv = sim_new(m->b, "d_conv_out", conv_bytes(d));
    sim_ref_t dt = sim_new(m->b, "dt", step_bytes(d));
    sim_ref_t decay = sim_new(m->b, "decay_sums", step_bytes(d));
    sim_ref_t product = sim_new(m->b, "chunk_products", product_bytes(d));
    sim_ref_t in_chunk = sim_new(m->b, "chunk_states", states_bytes);
    sim_ref_t states = sim_new(m->b, "states", states_bytes);
    sim_ref_t final = sim_new(m->b, "final_states", final_state_bytes(d));
    sim_drop(m->b, in_chunk);
    sim_ref_t d_scanned = sim_new(m->b, "d_scan_out", inner_bytes(d));
    sim_ref_t d_states = sim_new(m->b, "d_states", states_bytes);
    sim_ref_t d_passed = sim_new(m->b, "d_states_passed", d->e * n_states(d));
    sim_replace(m, &states, "states_cast", d->e * n_states(d));
    sim_drop(m->b, d_states);
    sim_ref_t d_dt = sim_new(m->b, "d_dt", step_bytes(d));
    sim_ref_t d_b = summed(m, "d_b", group_bytes);
    sim_ref_t d_c = summed(m, "d_c", group_bytes);
    sim_ref_t d_product = summed(m, "d_chunk_products", product_bytes(d));
    sim_ref_t locals[] = { conv,      d_conv,   dt,   decay, product, states,   final,
                           d_scanned, d_passed, d_dt, d_b,   d_c,     d_product };
    for (size_t i = 0; i < sizeof(locals) / sizeof(locals[0]); i++)
        sim_drop(m->b, locals[i]);
    sim_forget(m, &save->projected);
    sim_forget(m, &save->scanned);
    sim_drop(m->b, d_gated);
    return d_projected;
}

sim_ref_t sim_mamba_backward(sim_model_t *m, sim_mamba_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d, whole = scan_dims(d);
    sim_model_t scan = *m;
    scan.d = &whole;
    m->b->module = SIM_MOD_RESIDUAL;
    sim_ref_t g = sim_bda_backward(m, &save->bda, d_out);
    m->b->module = SIM_MOD_MAMBA;
    g = sim_row_linear_backward(m, &save->out_proj, g, "d_mamba_normed", inner_bytes(d),
                                d->mamba.inner);
    sim_replace(m, &g, "d_scan_gated", inner_bytes(d));
    sim_forget(m, &save->gated);
    sim_forget(m, &save->stat);
    if (d->cp > 1)
        g = sequence_from_heads(m, g, "d_scan_gated_whole");
    swap(m, &g, "d_scan_gated_bsd", inner_bytes(d));
    g = scan_backward(&scan, save, g);
    swap(m, &g, "d_mamba_projected_sbd", proj_bytes(&whole));
    if (d->cp > 1)
        g = d_heads_from_sequence(m, &whole, g);
    g = sim_norm_linear_backward(m, &save->in_proj, g, d->mamba.proj_rows);
    sim_drop(m->b, d_out); /* the residual's gradient is added to the branch's */
    return g;
}
