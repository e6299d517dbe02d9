/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/context_parallel.h"
#include "sim/model/layer.h"
#include "sim/model/offload.h"
#include "sim/model/quant.h"
#include "sim/model/software.h"

typedef struct {
    sim_ref_t q, k, v;
} qkv_t;

/* One matrix of attention scores, [b * heads, s, s_kv]. */
static uint64_t scores_bytes(const sim_dims_t *d)
{
    return d->b * d->heads_tp * d->s * d->s_kv / d->cp * d->e;
}

/* Keys, or values, with a copy for each query head. */
static uint64_t repeated_kv_bytes(const sim_dims_t *d)
{
    return d->kv_bytes / d->groups_tp * d->heads_tp;
}

static bool is_unfused(const sim_dims_t *d)
{
    return d->core == SIM_CORE_UNFUSED || d->core == SIM_CORE_LOCAL;
}

/* Bidirectional attention ignores padding; Transformer Engine wants the mask for that. */
static bool masks_padding(const sim_model_t *m)
{
    return m->d->core == SIM_CORE_UNFUSED && m->d->masks_padding;
}

static bool recomputes_core(const sim_model_t *m)
{
    return m->s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
           (m->s->recompute_modules & SIM_MODULE_CORE_ATTN);
}

/* q, k, v stay views of the projection's output when nothing rewrites q or k and the heads are not
 * grouped: the interleaved layout sbh3d is one that Transformer Engine knows. */
static bool are_views(const sim_model_t *m)
{
    return m->d->rotary_dim == 0 && !m->s->qk_layernorm && m->d->heads == m->d->groups;
}

static void replace(sim_model_t *m, sim_ref_t *t_p, const char *name, uint64_t bytes)
{
    sim_ref_t t = sim_new(m->b, name, bytes);
    sim_drop(m->b, *t_p);
    *t_p = t;
}

/* Whether the norm of q and k saves copies; otherwise it saves the views, and so all of mixed_qkv.
 */
static bool norms_copy(const sim_model_t *m)
{
    return !m->d->te || sim_software_has(m->s, SIM_SOFTWARE_NORM_COPIES_VIEWS);
}

/* The norms read q and k as contiguous copies and save them with their statistics. */
static void qk_norm_forward(sim_model_t *m, sim_attention_save_t *save)
{
    const sim_dims_t *d = m->d;
    uint64_t rows = d->tokens * (d->heads_tp + d->groups_tp);
    if (norms_copy(m)) {
        save->q_pre = sim_new(m->b, "q_before_norm", d->q_bytes);
        save->k_pre = sim_new(m->b, "k_before_norm", d->kv_bytes);
    }
    save->qk_stat = sim_new(m->b, "qk_norm_stat", rows * 4 * d->norm_params);
    save->q = sim_new(m->b, "q_normed", d->q_bytes);
    save->k = sim_new(m->b, "k_normed", d->kv_bytes);
}

/* t * cos + rotate_half(t) * sin, each product a tensor (models/common/embeddings/rope_utils.py).
 */
static void rope_unfused(sim_model_t *m, sim_ref_t *t_p, const char *name, uint64_t bytes)
{
    sim_ref_t cos_part = sim_new(m->b, "rope_cos_part", bytes);
    sim_ref_t rotated = sim_new(m->b, "rope_rotated", bytes);
    sim_ref_t sin_part = sim_new(m->b, "rope_sin_part", bytes);
    sim_drop(m->b, rotated);
    replace(m, t_p, name, bytes);
    sim_drop(m->b, cos_part);
    sim_drop(m->b, sin_part);
}

/* Without fusion every layer computes cos and sin of the table, once for q and once for k, in the
 * activation dtype; the products save them. */
static void rope_forward(sim_model_t *m, sim_attention_save_t *save)
{
    const sim_dims_t *d = m->d;
    if (m->s->apply_rope_fusion) {
        replace(m, &save->q, "q_rotated", d->q_bytes);
        replace(m, &save->k, "k_rotated", d->kv_bytes);
        return;
    }
    save->rope_tables = sim_new(m->b, "rope_cos_sin", 4 * (d->s / d->cp) * d->rotary_dim * d->e);
    rope_unfused(m, &save->q, "q_rotated", d->q_bytes);
    rope_unfused(m, &save->k, "k_rotated", d->kv_bytes);
}

/* Inputs as the kernel wants them. Transformer Engine makes whatever is a strided view contiguous
 * unless all three have a layout that it knows; FlashAttention wants the batch first, which is a
 * copy when there is more than one sample; kernels without groups get repeated heads. */
static void core_inputs(sim_model_t *m, sim_attention_save_t *save)
{
    const sim_dims_t *d = m->d;
    bool repeats = is_unfused(d) && d->heads_tp != d->groups_tp;
    bool batch_first = d->core == SIM_CORE_FLASH && (d->b > 1 || are_views(m));
    bool views_fit = d->core == SIM_CORE_LOCAL || are_views(m);
    if (batch_first || (save->q == SIM_REF_NONE && !views_fit))
        save->core_q = sim_new(m->b, "q", d->q_bytes);
    if (repeats)
        save->core_k = sim_new(m->b, "k_repeated", repeated_kv_bytes(d));
    else if (batch_first || (save->k == SIM_REF_NONE && !views_fit))
        save->core_k = sim_new(m->b, "k", d->kv_bytes);
    if (repeats)
        save->core_v = sim_new(m->b, "v_repeated", repeated_kv_bytes(d));
    else if (batch_first || !views_fit)
        save->core_v = sim_new(m->b, "v", d->kv_bytes);
}

/* Whether Megatron's softmax kernel takes the scores (fusions/fused_softmax.py,
 * is_kernel_available()). Transformer Engine's always does what is asked here. */
static bool has_softmax_kernel(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    if (d->core != SIM_CORE_LOCAL)
        return true;
    return m->s->masked_softmax_fusion && d->e == 2 && d->s_kv > 16 && d->s_kv <= 4096 &&
           d->s % 4 == 0 && d->s_kv % 4 == 0 && d->b * d->heads_tp % 4 == 0;
}

/* Softmax by PyTorch's own operations; in fp32 its result is saved in fp32 and cast for the next.
 */
static sim_ref_t torch_softmax(sim_model_t *m, sim_attention_save_t *save, uint64_t bytes)
{
    bool in_fp32 = m->s->attention_softmax_in_fp32 && m->d->e == 2;
    uint64_t softmax_bytes = in_fp32 ? 2 * bytes : bytes;
    sim_ref_t in = in_fp32 ? sim_new(m->b, "scores_fp32", softmax_bytes) : SIM_REF_NONE;
    if (m->s->apply_query_key_layer_scaling)
        replace(m, &in, "scores_scaled", softmax_bytes);
    save->softmax = sim_new(m->b, "softmax", softmax_bytes);
    sim_drop(m->b, in);
    return in_fp32 ? sim_new(m->b, "softmax_cast", bytes) : sim_keep(m->b, save->softmax);
}

/* Which keys a query may see: Transformer Engine makes a mask of the tokens of both, one of the
 * distance between them in 64-bit numbers, and joins the two (dot_product_attention/utils.py,
 * get_full_mask()). */
static sim_ref_t full_mask(sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    uint64_t n = d->b * d->s * d->s_kv;
    sim_ref_t padding = sim_new(m->b, "padding_mask", n);
    sim_ref_t inverse = sim_new(m->b, "padding_mask_inverse", n);
    sim_ref_t distance = sim_new(m->b, "mask_distance", 4 * d->s * d->s_kv);
    sim_ref_t left = sim_new(m->b, "mask_left", 8 * n);
    sim_ref_t right = sim_new(m->b, "mask_right", 8 * n);
    sim_ref_t in_left = sim_new(m->b, "mask_in_left", n);
    sim_ref_t past_right = sim_new(m->b, "mask_past_right", n);
    sim_ref_t in_right = sim_new(m->b, "mask_in_right", n);
    sim_drop(m->b, past_right);
    sim_ref_t window = sim_new(m->b, "mask_window", n);
    sim_drop(m->b, in_left);
    sim_drop(m->b, in_right);
    sim_ref_t outside = sim_new(m->b, "mask_outside", n);
    sim_drop(m->b, window);
    sim_ref_t mask = sim_new(m->b, "attention_mask", n);
    sim_ref_t locals[] = { padding, inverse, distance, left, right, outside };
    for (size_t i = 0; i < sizeof(locals) / sizeof(locals[0]); i++)
        sim_drop(m->b, locals[i]);
    return mask;
}

static sim_ref_t unfused_forward(sim_model_t *m, sim_attention_save_t *save)
{
    const sim_dims_t *d = m->d;
    uint64_t bytes = scores_bytes(d);
    sim_ref_t target = SIM_REF_NONE;
    if (masks_padding(m))
        save->mask = full_mask(m);
    if (d->core == SIM_CORE_LOCAL)
        sim_persist(m->b, SIM_MOD_ATTENTION, "mpu_buffer", bytes);
    else
        target = sim_new(m->b, "scores_target", bytes);
    sim_torch_gemm(m);
    sim_ref_t scores = sim_new(m->b, "scores", bytes);
    sim_drop(m->b, target);
    sim_ref_t probs;
    if (has_softmax_kernel(m)) {
        save->softmax = sim_new(m->b, "softmax", bytes);
        probs = sim_keep(m->b, save->softmax);
    } else {
        probs = torch_softmax(m, save, bytes);
    }
    if (save->mask != SIM_REF_NONE) { /* zeros for the queries that are padding */
        sim_ref_t filled = sim_new(m->b, "softmax_masked", bytes);
        sim_drop(m->b, probs);
        probs = filled;
    }
    if (m->s->attention_dropout > 0.0) {
        save->dropped = sim_new(m->b, "softmax_dropped", bytes);
        save->dropout_mask = sim_new(m->b, "softmax_dropout_mask", bytes / d->e);
        sim_drop(m->b, probs);
    } else {
        save->dropped = probs; /* what the second product saves */
    }
    sim_ref_t by_head = sim_new(m->b, "context_by_head", d->q_bytes);
    sim_ref_t context = sim_new(m->b, "context", d->q_bytes);
    sim_drop(m->b, by_head);
    sim_drop(m->b, scores); /* a local variable holds them to the end */
    return context;
}

static sim_ref_t kernel_forward(sim_model_t *m, sim_attention_save_t *save)
{
    const sim_dims_t *d = m->d;
    save->out = sim_new(m->b, "context", d->q_bytes);
    save->lse = sim_new(m->b, "softmax_lse", d->lse_bytes);
    /* FlashAttention's output has the batch first; with more than one sample it is copied. */
    if (d->core == SIM_CORE_FLASH && d->b > 1)
        return sim_new(m->b, "context_sbhd", d->q_bytes);
    return sim_keep(m->b, save->out);
}

/* cuDNN's FP8 kernels. Blockwise scaling has none. */
static bool is_core_fp8(const sim_model_t *m)
{
    return m->s->fp8_dot_product_attention && sim_is_fp8(m) && m->d->core == SIM_CORE_CUDNN &&
           m->d->cp == 1 && sim_recipe(m->s) != SIM_FP8_BLOCKWISE;
}

/* Quantised; MXFP8 for both uses. The copy in the activation dtype, if one was made, goes when the
 * kernel has run. */
static void quantize_input(sim_model_t *m, sim_ref_t *core_p, const char *name, uint64_t bytes)
{
    uint64_t n = bytes / m->d->e;
    bool twice = sim_recipe(m->s) == SIM_FP8_MXFP8;
    sim_ref_t copy = *core_p;
    *core_p = sim_new(m->b, name, sim_row_bytes(m, n) * (twice ? 2 : 1));
    sim_drop(m->b, copy);
}

/* FusedAttnFunc.forward() saves q, k and v in FP8. Delayed scaling makes and saves the output in
 * FP8 too and dequantises it for the caller; the others save the caller's. */
static sim_ref_t fp8_kernel_forward(sim_model_t *m, sim_attention_save_t *save)
{
    const sim_dims_t *d = m->d;
    quantize_input(m, &save->core_q, "q_fp8", d->q_bytes);
    quantize_input(m, &save->core_k, "k_fp8", d->kv_bytes);
    quantize_input(m, &save->core_v, "v_fp8", d->kv_bytes);
    bool out_in_fp8 = sim_recipe(m->s) == SIM_FP8_DELAYED;
    save->out = out_in_fp8 ? sim_new(m->b, "context_fp8", d->q_bytes / d->e)
                           : sim_new(m->b, "context", d->q_bytes);
    save->lse = sim_new(m->b, "softmax_lse", d->lse_bytes);
    return out_in_fp8 ? sim_new(m->b, "context", d->q_bytes) : sim_keep(m->b, save->out);
}

static sim_cp_t cp_core(const sim_model_t *m, sim_attention_save_t *save)
{
    return (sim_cp_t){ .q_bytes = m->d->q_bytes,
                       .k_bytes = m->d->kv_bytes,
                       .v_bytes = m->d->kv_bytes,
                       .out_bytes = m->d->q_bytes,
                       .q = &save->core_q,
                       .k = &save->core_k,
                       .v = &save->core_v,
                       .out = &save->out,
                       .lse = &save->lse };
}

static sim_ref_t core_forward(sim_model_t *m, sim_attention_save_t *save)
{
    sim_cp_t cp = cp_core(m, save);
    core_inputs(m, save);
    if (m->d->cp > 1)
        return sim_cp_forward(m, &cp);
    if (is_core_fp8(m))
        return fp8_kernel_forward(m, save);
    return is_unfused(m->d) ? unfused_forward(m, save) : kernel_forward(m, save);
}

static void forget(sim_model_t *m, sim_ref_t **refs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        sim_drop(m->b, *refs[i]);
        *refs[i] = SIM_REF_NONE;
    }
}

static void forget_core(sim_model_t *m, sim_attention_save_t *save)
{
    sim_ref_t *refs[] = { &save->core_q,       &save->core_k,  &save->core_v,
                          &save->out,          &save->lse,     &save->softmax,
                          &save->dropout_mask, &save->dropped, &save->mask };
    forget(m, refs, sizeof(refs) / sizeof(refs[0]));
}

static void forget_inputs(sim_model_t *m, sim_attention_save_t *save)
{
    sim_ref_t *refs[] = { &save->q, &save->k, &save->mixed_qkv };
    forget(m, refs, sizeof(refs) / sizeof(refs[0]));
}

static void forget_prologue(sim_model_t *m, sim_attention_save_t *save)
{
    sim_ref_t *refs[] = { &save->q_pre, &save->k_pre, &save->qk_stat, &save->rope_tables };
    forget(m, refs, sizeof(refs) / sizeof(refs[0]));
}

static void forget_gate(sim_model_t *m, sim_attention_save_t *save)
{
    sim_ref_t *refs[] = { &save->gate, &save->ungated };
    forget(m, refs, sizeof(refs) / sizeof(refs[0]));
}

void sim_attention_forget(sim_model_t *m, sim_attention_save_t *save)
{
    forget_core(m, save);
    forget_inputs(m, save);
    forget_prologue(m, save);
    forget_gate(m, save);
}

void sim_attention_offload(sim_model_t *m, sim_attention_save_t *save)
{
    if (recomputes_core(m))
        return;
    sim_ref_t *fields[] = { &save->core_q, &save->core_k,  &save->core_v, &save->q,
                            &save->k,      &save->softmax, &save->dropped };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        sim_offload_take(m, SIM_OFFLOAD_CORE_ATTN, fields[i], m->d->e, true);
    sim_offload_take(m, SIM_OFFLOAD_CORE_ATTN, &save->dropout_mask, 1, false);
    sim_offload_take(m, SIM_OFFLOAD_CORE_ATTN, &save->out, m->d->e, false);
    sim_offload_take(m, SIM_OFFLOAD_CORE_ATTN, &save->lse, 4, false);
}

static sim_ref_t hold(sim_ref_t *saved_p, bool is_saved, sim_model_t *m)
{
    sim_ref_t ref = *saved_p;
    if (is_saved)
        return sim_keep(m->b, ref);
    *saved_p = SIM_REF_NONE;
    return ref;
}

static sim_attention_save_t nothing_saved(void)
{
    sim_attention_save_t save = { 0 };
    sim_ref_t *refs = (sim_ref_t *)&save;
    for (size_t i = 0; i < sizeof(save) / sizeof(*refs); i++)
        refs[i] = SIM_REF_NONE;
    return save;
}

sim_ref_t sim_attention_forward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t mixed_qkv,
                                sim_held_t *held_p)
{
    *save = nothing_saved();
    save->mixed_qkv = mixed_qkv;
    if (m->s->qk_layernorm)
        qk_norm_forward(m, save);
    else if (m->d->heads != m->d->groups)
        save->q = sim_new(m->b, "q_copy", m->d->q_bytes); /* reshape of grouped heads copies */
    if (m->s->attention_output_gate)
        save->gate = sim_new(m->b, "gate", m->d->q_bytes);
    if (m->d->rotary_dim > 0)
        rope_forward(m, save);
    sim_ref_t context = core_forward(m, save);
    if (m->s->attention_output_gate) {
        save->ungated = context;
        context = sim_new(m->b, "context_gated", m->d->q_bytes);
    }

    /* What the core saves: its own copies where it made them, else what it was given. A recomputed
     * core keeps what it was given, and so all of mixed_qkv, of which v is a view. */
    bool recompute = recomputes_core(m);
    bool all_copied = save->core_v != SIM_REF_NONE &&
                      (save->core_q != SIM_REF_NONE || save->q != SIM_REF_NONE) &&
                      (save->core_k != SIM_REF_NONE || save->k != SIM_REF_NONE);
    held_p->refs[0] = hold(&save->mixed_qkv,
                           recompute || !all_copied || (m->s->qk_layernorm && !norms_copy(m)), m);
    held_p->refs[1] = hold(&save->q, recompute || save->core_q == SIM_REF_NONE, m);
    held_p->refs[2] = hold(&save->k, recompute || save->core_k == SIM_REF_NONE, m);
    if (recompute)
        forget_core(m, save);
    return context;
}

/* Gradients of q, k and v from the unfused form. The softmax kernels write over their input. */
static qkv_t unfused_backward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    uint64_t bytes = scores_bytes(d);
    sim_torch_gemm(m);
    sim_ref_t d_softmax = sim_new(m->b, "d_softmax_dropped", bytes);
    uint64_t kv_bytes = repeated_kv_bytes(d);
    qkv_t grads = { .v = sim_new(m->b, "d_v", kv_bytes) };
    sim_drop(m->b, save->dropped);
    save->dropped = SIM_REF_NONE;
    sim_drop(m->b, d_out);
    if (save->dropout_mask != SIM_REF_NONE)
        replace(m, &d_softmax, "d_softmax", bytes);
    sim_drop(m->b, save->dropout_mask);
    save->dropout_mask = SIM_REF_NONE;
    if (save->mask != SIM_REF_NONE)
        replace(m, &d_softmax, "d_softmax_masked", bytes);
    sim_drop(m->b, save->mask);
    save->mask = SIM_REF_NONE;
    sim_drop(m->b, save->softmax);
    save->softmax = SIM_REF_NONE;
    grads.q = sim_new(m->b, "d_q", d->q_bytes);
    grads.k = sim_new(m->b, "d_k", kv_bytes);
    sim_drop(m->b, d_softmax);
    return grads;
}

/* dQ is accumulated in fp32 beside one number a row; with grouped heads dK and dV are made for all
 * heads before the sum over a group. */
static qkv_t kernel_backward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    if (d->core == SIM_CORE_FLASH && d->b > 1)
        replace(m, &d_out, "d_context_bshd", d->q_bytes);
    sim_quantized_t d_out_q = { SIM_REF_NONE, SIM_REF_NONE };
    if (is_core_fp8(m))
        d_out_q = sim_quantize(m, "d_context_fp8", d->q_bytes / d->e, true, false);
    qkv_t grads = { sim_new(m->b, "d_q", d->q_bytes), sim_new(m->b, "d_k", d->kv_bytes),
                    sim_new(m->b, "d_v", d->kv_bytes) };
    sim_ref_t accumulator = sim_new(m->b, "dq_accumulator", d->q_bytes / d->e * 4);
    sim_ref_t row_sums = sim_new(m->b, "softmax_row_sums", d->lse_bytes);
    sim_ref_t expanded =
        d->heads_tp != d->groups_tp ? sim_new(m->b, "dkv_expanded", 2 * d->q_bytes) : SIM_REF_NONE;
    sim_drop(m->b, expanded);
    sim_drop(m->b, row_sums);
    sim_drop(m->b, accumulator);
    sim_drop_quantized(m, &d_out_q);
    sim_drop(m->b, save->out);
    save->out = SIM_REF_NONE;
    sim_drop(m->b, d_out);
    return grads;
}

/* context * sigmoid(gate) is one compiled function, which saves both (transformer/attention.py,
 * _apply_output_gate()). Takes the product's gradient; returns the context's and *d_gate_p. */
static sim_ref_t gate_backward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t d_gated,
                               sim_ref_t *d_gate_p)
{
    *d_gate_p = SIM_REF_NONE;
    if (save->gate == SIM_REF_NONE)
        return d_gated;
    sim_ref_t d_context = sim_new(m->b, "d_context_ungated", m->d->q_bytes);
    *d_gate_p = sim_new(m->b, "d_gate", m->d->q_bytes);
    forget_gate(m, save);
    sim_drop(m->b, d_gated);
    return d_context;
}

/* Gradients of rotary embedding and norm replace those of the kernel one by one; joining them into
 * the gradient of mixed_qkv needs all of them. */
static sim_ref_t prologue_backward(sim_model_t *m, sim_attention_save_t *save, qkv_t g,
                                   sim_ref_t d_gate)
{
    const sim_dims_t *d = m->d;
    if (d->rotary_dim > 0) {
        replace(m, &g.q, "d_q_before_rope", d->q_bytes);
        replace(m, &g.k, "d_k_before_rope", d->kv_bytes);
    }
    if (m->s->qk_layernorm) {
        replace(m, &g.q, "d_q_before_norm", d->q_bytes);
        replace(m, &g.k, "d_k_before_norm", d->kv_bytes);
    }
    forget_prologue(m, save);
    sim_ref_t d_qkv = sim_new(m->b, "d_qkv", d->qkv_bytes);
    sim_drop(m->b, g.q);
    sim_drop(m->b, g.k);
    sim_drop(m->b, g.v);
    sim_drop(m->b, d_gate);
    return d_qkv;
}

sim_ref_t sim_attention_backward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t d_out)
{
    sim_ref_t d_gate;
    d_out = gate_backward(m, save, d_out, &d_gate);
    if (recomputes_core(m))
        sim_drop(m->b, core_forward(m, save));
    qkv_t grads;
    sim_cp_t cp = cp_core(m, save);
    if (m->d->cp > 1)
        sim_cp_backward(m, &cp, d_out, &grads.q, &grads.k, &grads.v);
    else if (is_unfused(m->d))
        grads = unfused_backward(m, save, d_out);
    else
        grads = kernel_backward(m, save, d_out);
    forget_core(m, save);
    forget_inputs(m, save);
    return prologue_backward(m, save, grads, d_gate);
}

/* Keys and values are views of one tensor, a layout (sbhd_sbh2d) that Transformer Engine knows. */
sim_ref_t sim_cross_attention_forward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t q,
                                      sim_ref_t mixed_kv, sim_held_t *held_p)
{
    *save = nothing_saved();
    save->q = q;
    save->mixed_qkv = mixed_kv;
    sim_ref_t context = core_forward(m, save);
    held_p->refs[0] = hold(&save->mixed_qkv, save->core_v == SIM_REF_NONE, m);
    held_p->refs[1] = hold(&save->q, save->core_q == SIM_REF_NONE, m);
    held_p->refs[2] = SIM_REF_NONE;
    return context;
}

sim_ref_t sim_cross_attention_backward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t d_out,
                                       sim_ref_t *d_mixed_kv_p)
{
    qkv_t grads =
        is_unfused(m->d) ? unfused_backward(m, save, d_out) : kernel_backward(m, save, d_out);
    forget_core(m, save);
    forget_inputs(m, save);
    *d_mixed_kv_p = sim_new(m->b, "d_mixed_kv", 2 * m->d->kv_bytes);
    sim_drop(m->b, grads.k);
    sim_drop(m->b, grads.v);
    return grads.q;
}
