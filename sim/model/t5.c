/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/t5.h"

enum { INDEX_BYTES = 8, FP32_BYTES = 4 };

/* tensor_parallel/data.py, broadcast_data(): tokens and mask of the encoder, tokens, labels, loss
 * mask and mask of the decoder, concatenated. The local attention gets masks of every query and key
 * (datasets/t5_dataset.py, config_attention_mask()). */
void sim_t5_batch_load(sim_model_t *m, sim_batch_t *batch)
{
    const sim_dims_t *d = m->d, *cross = m->cross_d;
    uint64_t samples[] = { d->b * d->s,         cross->b * cross->s, cross->b * cross->s,
                           cross->b * cross->s, d->b * d->s,         cross->b * cross->s };
    enum { N = sizeof(samples) / sizeof(samples[0]) };
    sim_ref_t parts[N];
    uint64_t n = 0;
    m->b->module = SIM_MOD_DATA;
    for (size_t i = 0; i < N; i++) {
        parts[i] = m->tp_rank == 0
                       ? sim_new_as(m->b, SIM_CAT_DATA, "batch_part", INDEX_BYTES * samples[i])
                       : SIM_REF_NONE;
        n += samples[i];
    }
    batch->tokens = sim_new_as(m->b, SIM_CAT_DATA, "batch", INDEX_BYTES * n);
    for (size_t i = 0; i < N; i++)
        sim_drop(m->b, parts[i]);
    batch->loss_mask = sim_new_as(m->b, SIM_CAT_DATA, "loss_mask", FP32_BYTES * samples[1]);
    uint64_t mask = d->core == SIM_CORE_LOCAL
                        ? d->b * (d->s * d->s + cross->s * cross->s + cross->s * d->s)
                        : samples[0] + samples[1];
    batch->attention_mask = sim_new_as(m->b, SIM_CAT_DATA, "attention_mask", mask);
}

static sim_linear_dims_t q_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    return (sim_linear_dims_t){
        .name = "linear_q",
        .in_bytes = d->hidden_bytes,
        .full_in_bytes = d->sp ? d->full_hidden_bytes : 0,
        .out_bytes = d->q_bytes,
        .rows = d->heads_tp * d->head_dim,
        .cols = d->h,
    };
}

static sim_linear_dims_t kv_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->encoder_d;
    return (sim_linear_dims_t){
        .name = "linear_kv",
        .in_bytes = d->hidden_bytes,
        .full_in_bytes = d->sp ? d->full_hidden_bytes : 0,
        .out_bytes = 2 * d->kv_bytes,
        .rows = 2 * d->heads_tp * d->head_dim,
        .cols = d->h,
    };
}

sim_ref_t sim_cross_forward(sim_model_t *m, sim_cross_save_t *save, sim_ref_t x)
{
    const sim_dims_t *d = m->d;
    sim_linear_dims_t q = q_dims(m), kv = kv_dims(m);
    sim_held_t held;
    sim_ref_t residual = sim_keep(m->b, x);
    m->b->module = SIM_MOD_QKV;
    sim_ref_t normed =
        sim_norm_forward(m, &save->norm, x, "cross_norm_out", d->hidden_bytes, d->h, true);
    sim_ref_t mixed_kv =
        sim_linear_forward(m, &kv, &save->kv, sim_keep(m->b, m->context), "mixed_kv", true);
    sim_ref_t query = sim_linear_forward(m, &q, &save->q, normed, "cross_q", true);
    m->b->module = SIM_MOD_ATTENTION;
    m->d = m->cross_d;
    sim_ref_t context = sim_cross_attention_forward(m, &save->attention, query, mixed_kv, &held);
    m->d = d;
    m->b->module = SIM_MOD_PROJ;
    sim_ref_t out = sim_row_linear_forward(m, &save->proj, context, d->q_bytes, "cross_proj_out");
    for (size_t i = 0; i < sizeof(held.refs) / sizeof(held.refs[0]); i++)
        sim_drop(m->b, held.refs[i]);
    m->b->module = SIM_MOD_RESIDUAL;
    return sim_bda_forward(m, &save->bda, out, residual, "cross_residual");
}

sim_ref_t sim_cross_backward(sim_model_t *m, sim_cross_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    sim_linear_dims_t q = q_dims(m), kv = kv_dims(m);
    sim_ref_t d_mixed_kv;
    m->b->module = SIM_MOD_RESIDUAL;
    sim_ref_t g = sim_bda_backward(m, &save->bda, d_out);
    m->b->module = SIM_MOD_PROJ;
    g = sim_row_linear_backward(m, &save->proj, g, "d_cross_context", d->q_bytes,
                                d->heads_tp * d->head_dim);
    m->b->module = SIM_MOD_ATTENTION;
    m->d = m->cross_d;
    g = sim_cross_attention_backward(m, &save->attention, g, &d_mixed_kv);
    m->d = d;
    m->b->module = SIM_MOD_QKV;
    g = sim_linear_backward(m, &q, &save->q, g, "d_cross_norm_out");
    sim_ref_t d_context = sim_linear_backward(m, &kv, &save->kv, d_mixed_kv, "d_encoder_out");
    if (m->d_context == SIM_REF_NONE)
        m->d_context = d_context;
    else
        sim_drop(m->b, d_context); /* added to the other in place */
    g = sim_norm_backward(m, &save->norm, g, d->hidden_bytes);
    sim_drop(m->b, d_out); /* the residual's gradient is added to the branch's */
    return g;
}
