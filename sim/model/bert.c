/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/bert.h"

enum { INDEX_BYTES = 8, FP32_BYTES = 4 };

/* tensor_parallel/data.py, broadcast_data(): tokens, types, labels, loss mask and padding mask
 * [b, s] and a number a sample, concatenated; every pipeline stage has them. */
void sim_bert_batch_load(sim_model_t *m, sim_batch_t *batch)
{
    const sim_dims_t *d = m->d;
    uint64_t samples = d->b * d->s;
    m->b->module = SIM_MOD_DATA;
    sim_ref_t parts[6], n = 0;
    if (m->tp_rank == 0) {
        for (n = 0; n < 6; n++)
            parts[n] = sim_new_as(m->b, SIM_CAT_DATA, "batch_part",
                                  INDEX_BYTES * (n < 5 ? samples : d->b));
    }
    sim_ref_t all = sim_new_as(m->b, SIM_CAT_DATA, "batch", INDEX_BYTES * (5 * samples + d->b));
    for (sim_ref_t i = 0; i < n; i++)
        sim_drop(m->b, parts[i]);
    batch->tokens = all;
    batch->loss_mask = sim_new_as(m->b, SIM_CAT_DATA, "loss_mask", FP32_BYTES * samples);
    batch->attention_mask = sim_new_as(m->b, SIM_CAT_DATA, "attention_mask", samples);
}

sim_ref_t sim_bert_token_types_forward(sim_model_t *m, sim_ref_t x)
{
    sim_ref_t types = sim_new(m->b, "token_type_embeddings", m->d->full_hidden_bytes);
    sim_ref_t sum = sim_new(m->b, "embedding_with_types", m->d->full_hidden_bytes);
    sim_drop(m->b, types);
    sim_drop(m->b, x);
    return sum;
}

void sim_bert_token_types_backward(sim_model_t *m)
{
    sim_ref_t g = sim_new(m->b, "d_types_bsh", m->d->full_hidden_bytes);
    sim_touch(m->b, "type_weight_grad", 2 * m->d->h * m->d->e);
    sim_drop(m->b, g);
}

static bool has_binary_head(const sim_model_t *m)
{
    return m->s->bert_binary_head;
}

sim_ref_t sim_bert_head_forward(sim_model_t *m, sim_bert_head_t *save, sim_ref_t hidden)
{
    const sim_dims_t *d = m->d;
    m->b->module = SIM_MOD_OUTPUT;
    save->hidden = hidden;
    save->pooled = SIM_REF_NONE;
    if (has_binary_head(m)) {
        sim_ref_t gathered =
            d->sp ? sim_new(m->b, "hidden_gathered", d->full_hidden_bytes) : SIM_REF_NONE;
        sim_torch_gemm(m);
        save->pooled = sim_new(m->b, "pooled", d->b * d->h * d->e);
        sim_drop(m->b, gathered);
    }
    sim_torch_gemm(m);
    save->dense = sim_new(m->b, "lm_head_dense", d->hidden_bytes);
    save->gelu = sim_new(m->b, "lm_head_gelu", d->hidden_bytes);
    sim_ref_t out = sim_new(m->b, "lm_head_out", d->hidden_bytes);
    save->stat = sim_new(m->b, "norm_stat", 2 * FP32_BYTES * d->local_tokens);
    return out;
}

/* A linear of PyTorch: gradient of the input, then of the weight. */
static sim_ref_t dense_backward(sim_model_t *m, sim_ref_t g)
{
    const sim_dims_t *d = m->d;
    sim_torch_gemm(m);
    sim_ref_t dx = sim_new(m->b, "d_lm_head_in", d->hidden_bytes);
    sim_touch(m->b, "weight_grad", d->h * d->h * d->e);
    sim_drop(m->b, g);
    return dx;
}

sim_ref_t sim_bert_head_backward(sim_model_t *m, sim_bert_head_t *save, sim_ref_t g)
{
    const sim_dims_t *d = m->d;
    m->b->module = SIM_MOD_OUTPUT;
    sim_ref_t d_gelu = sim_new(m->b, "d_lm_head_gelu", d->hidden_bytes);
    sim_drop(m->b, g);
    sim_drop(m->b, save->gelu);
    sim_drop(m->b, save->stat);
    sim_ref_t d_dense = sim_new(m->b, "d_lm_head_dense", d->hidden_bytes);
    sim_drop(m->b, d_gelu);
    sim_drop(m->b, save->dense);
    sim_ref_t dx = dense_backward(m, d_dense);
    if (has_binary_head(m)) {
        /* The pooled token's gradient comes back as zeros of the whole sequence around it. */
        sim_touch(m->b, "weight_grad", d->h * d->h * d->e);
        sim_touch(m->b, "d_pooled_sequence", d->full_hidden_bytes);
        sim_drop(m->b, save->pooled);
    }
    sim_drop(m->b, save->hidden);
    return dx;
}

sim_ref_t sim_bert_output_bias(sim_model_t *m, sim_ref_t logits)
{
    sim_ref_t sum = sim_new(m->b, "logits", m->d->logits_bytes);
    sim_drop(m->b, logits);
    return sum;
}
