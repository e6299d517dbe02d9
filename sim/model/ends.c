/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/ends.h"

#include "sim/model/adapter.h"
#include "sim/model/bert.h"
#include "sim/model/params.h"
#include "sim/model/projection.h"
#include "sim/model/software.h"
#include "sim/model/t5.h"
#include "sim/model/weights.h"

enum { INDEX_BYTES = 8 }; /* torch.int64 */

void sim_batch_load(sim_model_t *m, sim_batch_t *batch, const topo_chunk_t *chunk)
{
    const sim_dims_t *d = m->d;
    uint64_t samples = d->tokens; /* s * b / cp */
    *batch = (sim_batch_t){ SIM_REF_NONE, SIM_REF_NONE, SIM_REF_NONE, SIM_REF_NONE, SIM_REF_NONE };
    if (sim_is_bert(m)) {
        sim_bert_batch_load(m, batch);
        return;
    }
    if (sim_is_t5(m)) {
        sim_t5_batch_load(m, batch);
        return;
    }
    /* With a graph of the whole iteration the reader's buffers are on the GPU, and used as they
     * are. */
    bool is_static =
        m->s->cuda_graph_impl == SIM_GRAPHS_FULL_ITERATION && m->tp_rank == 0 && d->cp == 1;
    bool has_tokens = chunk->has_embedding || chunk->n_mtp_layers > 0;
    if (is_static || (!has_tokens && !chunk->has_loss))
        return;
    m->b->module = SIM_MOD_DATA;
    if (has_tokens)
        batch->tokens = sim_new_as(m->b, SIM_CAT_DATA, "tokens", INDEX_BYTES * samples);
    if (chunk->has_loss) {
        batch->labels = sim_new_as(m->b, SIM_CAT_DATA, "labels", INDEX_BYTES * samples);
        batch->loss_mask = sim_new_as(m->b, SIM_CAT_DATA, "loss_mask", 4 * samples);
    }
    if (m->s->create_attention_mask_in_dataloader)
        batch->attention_mask =
            sim_new_as(m->b, SIM_CAT_DATA, "attention_mask", d->b * d->s * d->s / d->cp);
    if (has_tokens)
        batch->position_ids = sim_new_as(m->b, SIM_CAT_DATA, "position_ids", INDEX_BYTES * samples);
}

void sim_batch_drop(sim_model_t *m, sim_batch_t *batch)
{
    sim_ref_t refs[] = { batch->tokens, batch->labels, batch->loss_mask, batch->attention_mask,
                         batch->position_ids };
    /* Only the first tensor-parallel rank reads data; the others get theirs by broadcast. */
    bool is_saved = m->tp_rank == 0 && sim_software_has(m->s, SIM_SOFTWARE_SAVED_BATCHES_ON_GPU);
    for (size_t i = 0; i < sizeof(refs) / sizeof(refs[0]); i++) {
        if (is_saved && refs[i] != SIM_REF_NONE && m->b->built[refs[i]].refs == 1)
            sim_hold(m->b, refs[i]);
        else
            sim_drop(m->b, refs[i]);
    }
}

sim_ref_t sim_embedding_forward(sim_model_t *m, sim_embedding_save_t *save,
                                const sim_batch_t *batch)
{
    const sim_dims_t *d = m->d;
    bool learned = m->s->position_embedding_type == SIM_POS_LEARNED;
    m->b->module = SIM_MOD_EMBEDDING;
    save->dropout_mask = SIM_REF_NONE;
    sim_ref_t mask = SIM_REF_NONE;
    if (d->tp > 1) { /* indices outside this rank's part of the vocabulary are masked */
        mask = sim_new(m->b, "vocab_mask", d->tokens);
        save->indices = sim_new(m->b, "masked_tokens", INDEX_BYTES * d->tokens);
    } else {
        save->indices = sim_keep(m->b, batch->tokens);
    }
    sim_ref_t out = sim_new(m->b, "word_embeddings", d->full_hidden_bytes);
    sim_drop(m->b, mask);
    if (learned) {
        sim_ref_t positions = sim_new(m->b, "position_embeddings", d->full_hidden_bytes);
        sim_ref_t sum = sim_new(m->b, "embedding_sum", d->full_hidden_bytes);
        sim_drop(m->b, positions);
        sim_drop(m->b, out);
        out = sum;
    }
    /* [b, s, h] -> [s, b, h]; with sequence parallel reduce-scattered or sliced afterwards. */
    sim_ref_t transposed = sim_new(m->b, "embedding_sbh", d->full_hidden_bytes);
    sim_drop(m->b, out);
    out = transposed;
    if (sim_is_bert(m) && m->s->bert_binary_head)
        out = sim_bert_token_types_forward(m, out);
    if (d->sp) {
        sim_ref_t local = sim_new(m->b, "embedding_local", d->hidden_bytes);
        sim_drop(m->b, out);
        out = local;
    }
    if (m->s->hidden_dropout > 0.0) {
        sim_ref_t dropped = sim_new(m->b, "embedding_dropped", d->hidden_bytes);
        save->dropout_mask = sim_new(m->b, "dropout_mask", d->local_tokens * d->h);
        sim_drop(m->b, out);
        out = dropped;
    }
    if (sim_is_frozen(m)) { /* no gradient flows this far */
        sim_forget(m, &save->indices);
        sim_forget(m, &save->dropout_mask);
    }
    return out;
}

sim_ref_t sim_embedding_backward(sim_model_t *m, sim_embedding_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    m->b->module = SIM_MOD_EMBEDDING;
    if (sim_is_frozen(m)) {
        sim_drop(m->b, d_out);
        return SIM_REF_NONE;
    }
    if (save->dropout_mask != SIM_REF_NONE) {
        sim_ref_t g = sim_new(m->b, "d_dropout", d->hidden_bytes);
        sim_drop(m->b, save->dropout_mask);
        sim_drop(m->b, d_out);
        d_out = g;
    }
    if (d->sp) {
        sim_ref_t g = sim_new(m->b, "d_embedding_gathered", d->full_hidden_bytes);
        sim_drop(m->b, d_out);
        d_out = g;
    }
    if (sim_is_bert(m) && m->s->bert_binary_head)
        sim_bert_token_types_backward(m);
    if (m->s->position_embedding_type == SIM_POS_LEARNED)
        sim_touch(m->b, "position_weight_grad", m->s->max_position_embeddings * d->h * d->e);
    sim_ref_t g = sim_new(m->b, "d_embedding_bsh", d->full_hidden_bytes);
    sim_drop(m->b, d_out);
    sim_ref_t weight_grad = sim_new(m->b, "embedding_weight_grad", d->vocab_tp * d->h * d->e);
    sim_drop(m->b, g);
    sim_drop(m->b, save->indices);
    return weight_grad;
}

/* Megatron's vocabulary-parallel cross entropy: the logits (which the caller still references) are
 * copied to fp32 once, and everything else happens in place; the copy ends as the softmax. */
static void cross_entropy_forward(sim_model_t *m, sim_loss_save_t *save, sim_ref_t logits)
{
    const sim_dims_t *d = m->d;
    uint64_t fp32_bytes = d->tokens * d->vocab_tp * 4;
    m->b->module = SIM_MOD_LOSS;
    sim_ref_t labels = sim_new(m->b, "labels_sb", INDEX_BYTES * d->tokens);
    if (d->e == 4)
        save->softmax = sim_keep(m->b, logits);
    else
        save->softmax = sim_new(m->b, "softmax", fp32_bytes);
    sim_ref_t row_max = sim_new(m->b, "logits_max", 4 * d->tokens);
    if (!sim_software_has(m->s, SIM_SOFTWARE_CROSS_ENTROPY_IN_PLACE)) {
        sim_ref_t shifted = sim_new(m->b, "softmax", fp32_bytes);
        sim_drop(m->b, save->softmax);
        save->softmax = shifted;
    } else if (m->s->cross_entropy_loss_fusion) {
        /* The compiler turns the in-place subtraction and exponential into a new tensor, so that
         * both exist at once (measured: five instead of three times the logits). */
        sim_ref_t exp = sim_new(m->b, "softmax", fp32_bytes);
        sim_drop(m->b, save->softmax);
        save->softmax = exp;
    }
    save->target_mask = sim_new(m->b, "target_mask", d->tokens);
    save->masked_target = sim_new(m->b, "masked_target", INDEX_BYTES * d->tokens);
    sim_ref_t predicted = sim_new(m->b, "predicted_logits", 4 * d->tokens);
    sim_ref_t sums = sim_new(m->b, "sum_exp_logits", 4 * d->tokens);
    sim_ref_t loss = sim_new(m->b, "loss", 4 * d->tokens);
    sim_drop(m->b, sums);
    sim_drop(m->b, predicted);
    sim_drop(m->b, row_max);
    sim_drop(m->b, labels);
    sim_drop(m->b, loss);
    sim_drop(m->b, logits);
}

sim_ref_t sim_final_norm_forward(sim_model_t *m, sim_final_norm_save_t *save, sim_ref_t x)
{
    m->b->module = SIM_MOD_FINAL_NORM;
    save->x = x;
    sim_ref_t ln_out = sim_new(m->b, "ln_out", m->d->hidden_bytes);
    save->stat = sim_new(m->b, "norm_stat", m->d->norm_stat_bytes);
    return ln_out;
}

void sim_loss_forward(sim_model_t *m, sim_loss_save_t *save, sim_ref_t ln_out)
{
    const sim_dims_t *d = m->d;
    save->ln_out = ln_out;
    m->b->module = SIM_MOD_OUTPUT;
    sim_ref_t gathered = SIM_REF_NONE;
    if (d->sp && sim_is_frozen(m)) /* layers.py, linear_with_frozen_weight(): a fresh tensor */
        gathered = sim_new(m->b, "ln_out_gathered", d->full_hidden_bytes);
    else if (d->sp)
        sim_persist(m->b, SIM_MOD_OUTPUT, "mpu_buffer", d->full_hidden_bytes);
    sim_torch_gemm(m);
    sim_tell(m, SIM_UNIT_FORWARD, SIM_UNIT_HEAD);
    sim_ref_t logits = sim_new(m->b, "logits", d->logits_bytes);
    sim_tell(m, SIM_UNIT_FORWARD_DONE, SIM_UNIT_HEAD);
    sim_drop(m->b, gathered);
    if (sim_params_has_output_bias(m->s))
        logits = sim_bert_output_bias(m, logits);
    if (sim_is_frozen(m))
        sim_forget(m, &save->ln_out);
    if (m->s->cross_entropy_loss_fusion && m->s->cross_entropy_fusion_impl == SIM_CE_TE) {
        /* Transformer Engine's kernel writes the gradient over the logits. */
        save->softmax = logits;
        save->target_mask = save->masked_target = SIM_REF_NONE;
        return;
    }
    cross_entropy_forward(m, save, logits);
}

/* Gradient of the logits in the activation dtype. */
static sim_ref_t cross_entropy_backward(sim_model_t *m, sim_loss_save_t *save)
{
    const sim_dims_t *d = m->d;
    if (m->s->cross_entropy_loss_fusion && m->s->cross_entropy_fusion_impl == SIM_CE_TE)
        return save->softmax;
    sim_ref_t grad = save->softmax;
    if (m->s->cross_entropy_loss_fusion) {
        grad = sim_new(m->b, "d_logits_fp32", d->tokens * d->vocab_tp * 4);
        sim_ref_t cast = sim_new(m->b, "d_logits", d->logits_bytes);
        sim_drop(m->b, grad);
        sim_drop(m->b, save->softmax);
        grad = cast;
    } else if (d->e != 4) {
        grad = sim_new(m->b, "d_logits", d->logits_bytes);
        sim_drop(m->b, save->softmax);
    }
    sim_drop(m->b, save->target_mask);
    sim_drop(m->b, save->masked_target);
    return grad;
}

sim_ref_t sim_loss_backward(sim_model_t *m, sim_loss_save_t *save, sim_ref_t *weight_grad_p)
{
    const sim_dims_t *d = m->d;
    m->b->module = SIM_MOD_LOSS;
    sim_ref_t d_logits = cross_entropy_backward(m, save);
    m->b->module = SIM_MOD_OUTPUT;
    sim_tell(m, SIM_UNIT_BACKWARD, SIM_UNIT_HEAD);
    /* The output layer is Megatron-LM's own also where the others are Transformer Engine's. */
    bool leaves_weight = sim_leaves_weights(m) && !d->te;
    if (d->sp && !sim_is_frozen(m) && !leaves_weight)
        sim_persist(m->b, SIM_MOD_OUTPUT, "mpu_buffer", d->full_hidden_bytes);
    sim_torch_gemm(m);
    sim_ref_t g = sim_new(m->b, "d_ln_out", d->full_hidden_bytes);
    if (d->sp) {
        sim_ref_t local = sim_new(m->b, "d_ln_out_local", d->hidden_bytes);
        sim_drop(m->b, g);
        g = local;
    }
    /* A deferred gradient is computed after the flush, into the main gradient. */
    bool defers = m->s->defer_embedding_wgrad_compute;
    bool defers_all = defers && (m->s->wgrad_deferral_limit == 0 ||
                                 m->s->wgrad_deferral_limit >= m->s->n_microbatches);
    sim_ref_t wgrad = defers_all ? SIM_REF_NONE : sim_weight_grad(m, d->vocab_tp, d->h);
    *weight_grad_p = wgrad;
    if (defers) {
        sim_defer(m->b, save->ln_out);
        sim_defer(m->b, d_logits);
    } else if (leaves_weight) {
        sim_weight_work_t work = sim_weight_work(m, false);
        work.gather_bytes = d->sp ? d->full_hidden_bytes : 0;
        sim_weight_operand(m, &work, save->ln_out);
        sim_weight_operand(m, &work, d_logits);
        sim_weight_later(m, &work);
    } else {
        sim_drop(m->b, save->ln_out);
        sim_drop(m->b, d_logits);
    }
    return g;
}

sim_ref_t sim_final_norm_backward(sim_model_t *m, sim_final_norm_save_t *save, sim_ref_t g)
{
    m->b->module = SIM_MOD_FINAL_NORM;
    sim_ref_t dx = sim_new(m->b, "d_x", m->d->hidden_bytes);
    sim_drop(m->b, g);
    sim_drop(m->b, save->x);
    sim_drop(m->b, save->stat);
    return dx;
}
