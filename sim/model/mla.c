/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/mla.h"

#include "sim/model/context_parallel.h"
#include "sim/model/offload.h"

#include <stdio.h>

enum { FP32_BYTES = 4 };

typedef struct {
    sim_ref_t q, k, v;
} qkv_t;

/* What the up projections start from. */
typedef struct {
    sim_ref_t q;      /* compressed queries, or the norm's output */
    sim_ref_t kv;     /* compressed keys and values, with the rotary part of the keys behind them */
    sim_ref_t k_rope; /* the rotary part for all tokens */
} latents_t;

static bool recomputes(const sim_model_t *m, sim_recompute_module_t module)
{
    return m->s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
           (m->s->recompute_modules & module);
}

/* Part of `bytes` with `part` of `whole` columns. */
static uint64_t columns(uint64_t bytes, uint64_t part, uint64_t whole)
{
    return bytes / whole * part;
}

static uint64_t rope_bytes(const sim_model_t *m)
{
    return columns(m->d->mla.q_bytes, m->d->mla.rope_dim, m->d->mla.qk_dim);
}

static uint64_t k_rope_bytes(const sim_model_t *m)
{
    return m->d->tokens * m->d->mla.rope_dim * m->d->e;
}

static sim_linear_dims_t q_down_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    return (sim_linear_dims_t){ .name = "q_down",
                                .target = SIM_TARGET_Q_DOWN,
                                .is_whole = true,
                                .in_bytes = d->hidden_bytes,
                                .out_bytes = d->mla.q_down_bytes,
                                .rows = d->mla.q_rank,
                                .cols = d->h };
}

static sim_linear_dims_t kv_down_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    bool fused = m->s->mla_down_proj_fusion;
    return (sim_linear_dims_t){
        .name = "kv_down",
        .target = fused ? 0 : SIM_TARGET_KV_DOWN,
        .is_whole = true,
        .in_bytes = d->hidden_bytes,
        .out_bytes = d->mla.kv_down_bytes + (fused ? d->mla.q_down_bytes : 0),
        .rows = d->mla.kv_rank + d->mla.rope_dim + (fused ? d->mla.q_rank : 0),
        .cols = d->h,
    };
}

static sim_linear_dims_t q_up_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    uint64_t width = d->mla.q_rank > 0 ? d->mla.q_rank : d->h;
    return (sim_linear_dims_t){
        .name = "q_up",
        .target = d->mla.q_rank > 0 ? SIM_TARGET_Q_UP : SIM_TARGET_Q_PROJ,
        .in_bytes = d->local_tokens * width * d->e,
        .full_in_bytes = d->sp ? d->tokens * width * d->e : 0,
        .out_bytes = d->mla.q_bytes,
        .rows = d->heads_tp * d->mla.qk_dim,
        .cols = width,
    };
}

static sim_linear_dims_t kv_up_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    return (sim_linear_dims_t){
        .name = "kv_up",
        .target = SIM_TARGET_KV_UP,
        .in_bytes = d->local_tokens * d->mla.kv_rank * d->e,
        .full_in_bytes = d->sp ? d->tokens * d->mla.kv_rank * d->e : 0,
        .out_bytes = d->mla.kv_bytes,
        .rows = d->heads_tp * (d->mla.nope_dim + d->mla.v_dim),
        .cols = d->mla.kv_rank,
    };
}

static sim_linear_dims_t proj_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    return (sim_linear_dims_t){
        .name = "proj",
        .target = SIM_TARGET_PROJ,
        .keeps_input = true,
        .in_bytes = d->mla.v_bytes,
        .out_bytes = d->sp ? d->hidden_bytes : d->full_hidden_bytes,
        .full_out_bytes = d->sp ? d->full_hidden_bytes : 0,
        .rows = d->h,
        .cols = d->heads_tp * d->mla.v_dim,
    };
}

/* With qk_layernorm the norms of the compressed tensors are inside the up projections. */
static sim_ref_t up_forward(sim_model_t *m, const sim_linear_dims_t *d, sim_norm_linear_t *save,
                            sim_ref_t x, const char *name, bool grad)
{
    if (m->s->qk_layernorm)
        return sim_normed_linear_forward(m, d, save, x, name, grad);
    sim_linear_save_t linear;
    sim_ref_t out = sim_linear_forward(m, d, &linear, x, name, grad);
    *save =
        (sim_norm_linear_t){ linear.x, SIM_REF_NONE, SIM_REF_NONE, linear.weight, linear.adapter };
    return out;
}

static sim_ref_t up_backward(sim_model_t *m, const sim_linear_dims_t *d, sim_norm_linear_t *save,
                             sim_ref_t d_out, const char *name)
{
    if (m->s->qk_layernorm)
        return sim_normed_linear_backward(m, d, save, d_out, name);
    sim_linear_save_t linear = { save->x, save->weight, save->adapter };
    return sim_linear_backward(m, d, &linear, d_out, name);
}

/* Interleaved halves are brought together, multiplied with cos and sin, and joined with what is
 * not rotated, each step a new tensor (models/common/embeddings/rope_utils.py). */
static sim_ref_t rotate_unfused(sim_model_t *m, const char *name, uint64_t bytes)
{
    sim_ref_t halves = sim_new(m->b, "rope_halves", bytes);
    sim_ref_t cos_part = sim_new(m->b, "rope_cos_part", bytes);
    sim_ref_t turned = sim_new(m->b, "rope_turned", bytes);
    sim_ref_t sin_part = sim_new(m->b, "rope_sin_part", bytes);
    sim_drop(m->b, turned);
    sim_replace(m, &halves, "rope_sum", bytes);
    sim_drop(m->b, cos_part);
    sim_drop(m->b, sin_part);
    sim_replace(m, &halves, name, bytes);
    return halves;
}

/* The fused kernels rotate queries in place and write keys and values apart. */
static qkv_t rope_forward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t q, sim_ref_t kv,
                          bool grad)
{
    const sim_mla_dims_t *d = &m->d->mla;
    qkv_t r;
    save->rope_tables = SIM_REF_NONE;
    if (m->s->apply_rope_fusion) {
        r = (qkv_t){ q, sim_new(m->b, "k", d->q_bytes), sim_new(m->b, "v", d->v_bytes) };
        sim_drop(m->b, kv);
        return r;
    }
    save->rope_tables =
        sim_new(m->b, "rope_cos_sin", 4 * (m->d->s / m->d->cp) * d->rope_dim * m->d->e);
    sim_ref_t q_rope = rotate_unfused(m, "q_rotated", rope_bytes(m));
    sim_ref_t k_rope = rotate_unfused(m, "k_rotated", k_rope_bytes(m));
    r.q = sim_new(m->b, "q", d->q_bytes);
    r.k = sim_new(m->b, "k", d->q_bytes);
    r.v = sim_new(m->b, "v", d->v_bytes);
    sim_drop(m->b, q_rope);
    sim_drop(m->b, k_rope);
    sim_drop(m->b, q);
    sim_drop(m->b, kv);
    if (!grad)
        sim_forget(m, &save->rope_tables);
    return r;
}

/* Takes over the latents. */
static qkv_t latents_to_qkv(sim_model_t *m, sim_mla_save_t *save, latents_t in, bool grad)
{
    sim_linear_dims_t q_dims = q_up_dims(m), kv_dims = kv_up_dims(m);
    m->b->module = SIM_MOD_QKV;
    sim_ref_t q;
    if (m->d->mla.q_rank > 0)
        q = up_forward(m, &q_dims, &save->q_up, in.q, "q_up_out", grad);
    else
        q = sim_linear_forward(m, &q_dims, &save->q_proj, in.q, "q_proj_out", grad);
    sim_ref_t kv = up_forward(m, &kv_dims, &save->kv_up, in.kv, "kv_up_out", grad);
    m->b->module = SIM_MOD_ATTENTION;
    qkv_t r = rope_forward(m, save, q, kv, grad);
    sim_drop(m->b, in.k_rope);
    return r;
}

static latents_t down_forward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t ln_out, bool grad)
{
    latents_t r = { SIM_REF_NONE, SIM_REF_NONE, SIM_REF_NONE };
    sim_linear_dims_t q_dims = q_down_dims(m), kv_dims = kv_down_dims(m);
    bool fused = m->s->mla_down_proj_fusion;
    if (m->d->mla.q_rank == 0)
        r.q = sim_keep(m->b, ln_out);
    else if (!fused)
        r.q = sim_linear_forward(m, &q_dims, &save->q_down, sim_keep(m->b, ln_out), "q_compressed",
                                 grad);
    r.kv = sim_linear_forward(m, &kv_dims, &save->kv_down, ln_out, "kv_compressed", grad);
    if (fused) /* one tensor, of which both are parts */
        r.q = sim_keep(m->b, r.kv);
    if (m->d->sp)
        r.k_rope = sim_new(m->b, "k_rope_gathered", k_rope_bytes(m));
    return r;
}

static uint64_t scores_bytes(const sim_dims_t *d)
{
    return d->b * d->heads_tp * d->s * d->s / d->cp * d->e;
}

static sim_ref_t unfused_core(sim_model_t *m, sim_mla_save_t *save)
{
    const sim_dims_t *d = m->d;
    sim_ref_t target = sim_new(m->b, "scores_target", scores_bytes(d));
    sim_torch_gemm(m);
    sim_ref_t scores = sim_new(m->b, "scores", scores_bytes(d));
    sim_drop(m->b, target);
    save->softmax = sim_new(m->b, "softmax", scores_bytes(d));
    if (m->s->attention_dropout > 0.0) {
        save->dropped = sim_new(m->b, "softmax_dropped", scores_bytes(d));
        save->dropout_mask = sim_new(m->b, "softmax_dropout_mask", scores_bytes(d) / d->e);
    } else {
        save->dropped = sim_keep(m->b, save->softmax); /* what the second product saves */
    }
    sim_ref_t by_head = sim_new(m->b, "context_by_head", d->mla.v_bytes);
    sim_ref_t context = sim_new(m->b, "context", d->mla.v_bytes);
    sim_drop(m->b, by_head);
    sim_drop(m->b, scores); /* a local variable holds them to the end */
    return context;
}

static void forget_core(sim_model_t *m, sim_mla_save_t *save)
{
    sim_ref_t *refs[] = { &save->core_q, &save->core_k,  &save->core_v,       &save->out,
                          &save->lse,    &save->softmax, &save->dropout_mask, &save->dropped };
    for (size_t i = 0; i < sizeof(refs) / sizeof(refs[0]); i++)
        sim_forget(m, refs[i]);
}

static void forget_qkv(sim_model_t *m, sim_mla_save_t *save)
{
    sim_forget(m, &save->q);
    sim_forget(m, &save->k);
    sim_forget(m, &save->v);
}

static bool is_unfused(const sim_dims_t *d)
{
    return d->core == SIM_CORE_UNFUSED || d->core == SIM_CORE_LOCAL;
}

static sim_cp_t cp_core(const sim_model_t *m, sim_mla_save_t *save)
{
    return (sim_cp_t){ .q_bytes = m->d->mla.q_bytes,
                       .k_bytes = m->d->mla.q_bytes,
                       .v_bytes = m->d->mla.v_bytes,
                       .out_bytes = m->d->mla.v_bytes,
                       .q = &save->core_q,
                       .k = &save->core_k,
                       .v = &save->core_v,
                       .out = &save->out,
                       .lse = &save->lse };
}

static sim_ref_t cp_forward(sim_model_t *m, sim_mla_save_t *save)
{
    sim_cp_t cp = cp_core(m, save);
    save->core_q = sim_keep(m->b, save->q);
    save->core_k = sim_keep(m->b, save->k);
    save->core_v = sim_keep(m->b, save->v);
    return sim_cp_forward(m, &cp);
}

/* Of what context parallelism saves, those that are the core's inputs themselves, not copies. */
static size_t cp_inputs(const sim_model_t *m, sim_mla_save_t *save, sim_ref_t *refs[3])
{
    refs[0] = &save->core_q;
    refs[1] = &save->core_k;
    refs[2] = &save->core_v;
    sim_cp_comm_t type = m->s->cp_comm_type;
    if (m->d->cp == 1 || type == SIM_CP_A2A || type == SIM_CP_A2A_P2P)
        return 0;
    return type == SIM_CP_P2P ? 1 : 3;
}

static void discard_qkv(sim_model_t *m, sim_mla_save_t *save)
{
    sim_ref_t *inputs[3];
    size_t n = cp_inputs(m, save, inputs);
    for (size_t i = 0; i < n; i++)
        sim_forget(m, inputs[i]);
    forget_qkv(m, save);
}

static sim_ref_t core_forward(sim_model_t *m, sim_mla_save_t *save)
{
    const sim_dims_t *d = m->d;
    save->core_q = save->core_k = save->core_v = SIM_REF_NONE;
    save->out = save->lse = save->softmax = save->dropout_mask = save->dropped = SIM_REF_NONE;
    if (d->cp > 1)
        return cp_forward(m, save);
    if (is_unfused(d))
        return unfused_core(m, save);
    save->out = sim_new(m->b, "context", d->mla.v_bytes);
    save->lse = sim_new(m->b, "softmax_lse", d->tokens * d->heads_tp * FP32_BYTES);
    if (d->core == SIM_CORE_FLASH && d->b > 1)
        return sim_new(m->b, "context_sbhd", d->mla.v_bytes);
    return sim_keep(m->b, save->out);
}

/* Every layer has a table of its own: angles in fp32, which a cache keeps, and their cosine and
 * sine in the activation dtype (models/common/embeddings/yarn_rotary_pos_embedding.py). */
static void touch_rope_cache(sim_model_t *m)
{
    char key[32];
    snprintf(key, sizeof(key), "yarn_cache[%d]", m->b->layer);
    sim_persist(m->b, SIM_MOD_ATTENTION, key,
                m->d->s * m->d->mla.rope_dim * (FP32_BYTES + 2 * m->d->e));
}

/* The norm's output is freed once the attention has run; whoever has saved it finds it again after
 * norm_recompute(). */
static void norm_discard(sim_model_t *m, sim_mla_save_t *save, sim_ref_t ln_out)
{
    save->ln_out = ln_out;
    sim_discard(m->b, ln_out);
}

static void offload_projections(sim_model_t *m, sim_mla_save_t *save)
{
    sim_ref_t *with[] = { &save->q_down.x, &save->q_up.x, &save->q_up.ln_out };
    sim_ref_t *fields[] = { &save->kv_down.x, &save->kv_up.x, &save->kv_up.ln_out };
    for (size_t i = 0; i < 3 && m->d->mla.q_rank > 0; i++)
        if (i > 0 || !m->s->mla_down_proj_fusion)
            sim_offload_take(m, SIM_OFFLOAD_QKV_LINEAR, with[i], m->d->e, false);
    if (m->d->mla.q_rank == 0)
        sim_offload_take(m, SIM_OFFLOAD_QKV_LINEAR, &save->q_proj.x, m->d->e, false);
    for (size_t i = 0; i < 3; i++)
        sim_offload_take(m, SIM_OFFLOAD_QKV_LINEAR, fields[i], m->d->e, false);
}

static void offload_core(sim_model_t *m, sim_mla_save_t *save)
{
    sim_ref_t *fields[] = { &save->q,      &save->k,      &save->v,       &save->core_q,
                            &save->core_k, &save->core_v, &save->softmax, &save->dropped };
    if (recomputes(m, SIM_MODULE_CORE_ATTN))
        return;
    for (size_t i = m->d->cp > 1 ? 3 : 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        sim_offload_take(m, SIM_OFFLOAD_CORE_ATTN, fields[i], m->d->e, true);
    sim_offload_take(m, SIM_OFFLOAD_CORE_ATTN, &save->dropout_mask, 1, false);
    sim_offload_take(m, SIM_OFFLOAD_CORE_ATTN, &save->out, m->d->e, false);
    sim_offload_take(m, SIM_OFFLOAD_CORE_ATTN, &save->lse, FP32_BYTES, false);
}

sim_ref_t sim_mla_forward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t x, bool grad)
{
    const sim_dims_t *d = m->d;
    bool norm_again = grad && recomputes(m, SIM_MODULE_LAYERNORM);
    bool up_again = grad && recomputes(m, SIM_MODULE_MLA_UP_PROJ);
    m->b->module = SIM_MOD_QKV;
    sim_ref_t ln_out = sim_norm_forward(m, &save->norm, x, "ln_out", d->hidden_bytes, d->h, grad);
    touch_rope_cache(m);
    latents_t in = down_forward(m, save, sim_keep(m->b, ln_out), grad);
    if (up_again) {
        save->checkpoint[0] = sim_keep(m->b, in.q);
        save->checkpoint[1] = sim_keep(m->b, in.kv);
        save->checkpoint[2] = sim_keep(m->b, in.k_rope);
    }
    qkv_t qkv = latents_to_qkv(m, save, in, grad && !up_again);
    save->q = qkv.q;
    save->k = qkv.k;
    save->v = qkv.v;
    if (sim_offload_begin(m, SIM_OFFLOAD_QKV_LINEAR, grad && !up_again))
        offload_projections(m, save);
    sim_ref_t context = core_forward(m, save);
    if (!grad || recomputes(m, SIM_MODULE_CORE_ATTN))
        forget_core(m, save);
    if (up_again || !grad)
        discard_qkv(m, save);
    if (sim_offload_begin(m, SIM_OFFLOAD_CORE_ATTN, grad))
        offload_core(m, save);
    m->b->module = SIM_MOD_PROJ;
    sim_linear_dims_t dims = proj_dims(m);
    sim_ref_t out = sim_linear_forward(m, &dims, &save->proj, context, "proj_out", grad);
    if (sim_offload_begin(m, SIM_OFFLOAD_ATTN_PROJ, grad)) {
        sim_offload_take(m, SIM_OFFLOAD_ATTN_PROJ, &save->proj.x, d->e, true);
        sim_offload_take(m, SIM_OFFLOAD_ATTN_PROJ, &save->proj.adapter.x, d->e, true);
    }
    /* Context parallelism has saved what it needs; until here the module's variables held these. */
    if (d->cp > 1 && !recomputes(m, SIM_MODULE_CORE_ATTN))
        forget_qkv(m, save);
    save->ln_out = SIM_REF_NONE;
    if (norm_again)
        norm_discard(m, save, ln_out);
    else
        sim_drop(m->b, ln_out);
    return out;
}

static qkv_t unfused_core_backward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    sim_torch_gemm(m);
    sim_ref_t d_scores = sim_new(m->b, "d_softmax_dropped", scores_bytes(d));
    qkv_t g = { .v = sim_new(m->b, "d_v", d->mla.v_bytes) };
    sim_forget(m, &save->dropped);
    sim_drop(m->b, d_out);
    if (save->dropout_mask != SIM_REF_NONE)
        sim_replace(m, &d_scores, "d_softmax", scores_bytes(d));
    sim_forget(m, &save->dropout_mask);
    sim_forget(m, &save->softmax);
    g.q = sim_new(m->b, "d_q", d->mla.q_bytes);
    g.k = sim_new(m->b, "d_k", d->mla.q_bytes);
    sim_drop(m->b, d_scores);
    return g;
}

static qkv_t kernel_backward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    if (d->core == SIM_CORE_FLASH && d->b > 1)
        sim_replace(m, &d_out, "d_context_bshd", d->mla.v_bytes);
    qkv_t g = { sim_new(m->b, "d_q", d->mla.q_bytes), sim_new(m->b, "d_k", d->mla.q_bytes),
                sim_new(m->b, "d_v", d->mla.v_bytes) };
    sim_ref_t accumulator = sim_new(m->b, "dq_accumulator", d->mla.q_bytes / d->e * FP32_BYTES);
    sim_ref_t row_sums = sim_new(m->b, "softmax_row_sums", d->tokens * d->heads_tp * FP32_BYTES);
    sim_drop(m->b, row_sums);
    sim_drop(m->b, accumulator);
    sim_forget(m, &save->out);
    sim_drop(m->b, d_out);
    return g;
}

static qkv_t core_backward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t d_out)
{
    if (m->d->cp == 1)
        return is_unfused(m->d) ? unfused_core_backward(m, save, d_out)
                                : kernel_backward(m, save, d_out);
    qkv_t g;
    sim_cp_t cp = cp_core(m, save);
    sim_cp_backward(m, &cp, d_out, &g.q, &g.k, &g.v);
    return g;
}

/* Gradients of the up projections' outputs, from those of the core's inputs. */
static void rope_backward(sim_model_t *m, sim_mla_save_t *save, qkv_t g, sim_ref_t *d_q_p,
                          sim_ref_t *d_kv_p, sim_ref_t *d_k_rope_p)
{
    const sim_mla_dims_t *d = &m->d->mla;
    if (m->s->apply_rope_fusion) {
        *d_kv_p = sim_new(m->b, "d_kv", d->kv_bytes);
        *d_k_rope_p = sim_new(m->b, "d_k_rope", k_rope_bytes(m));
        sim_drop(m->b, g.k);
        sim_drop(m->b, g.v);
        *d_q_p = g.q;
        return;
    }
    *d_k_rope_p = rotate_unfused(m, "d_k_rope", k_rope_bytes(m));
    sim_ref_t d_q_rope = rotate_unfused(m, "d_q_rope", rope_bytes(m));
    sim_forget(m, &save->rope_tables);
    *d_kv_p = sim_new(m->b, "d_kv", d->kv_bytes);
    sim_drop(m->b, g.k);
    sim_drop(m->b, g.v);
    *d_q_p = sim_new(m->b, "d_q_up", d->q_bytes);
    sim_drop(m->b, d_q_rope);
    sim_drop(m->b, g.q);
}

/* Takes the gradients of both compressed tensors; returns that of the norm's output. */
static sim_ref_t down_backward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t d_q, sim_ref_t d_kv,
                               sim_ref_t d_k_rope)
{
    sim_linear_dims_t q_dims = q_down_dims(m), kv_dims = kv_down_dims(m);
    bool fused = m->s->mla_down_proj_fusion;
    if (m->d->sp)
        sim_replace(m, &d_k_rope, "d_k_rope_local", k_rope_bytes(m) / m->d->tp);
    sim_ref_t d_down = sim_new(m->b, "d_kv_compressed", kv_dims.out_bytes);
    sim_drop(m->b, d_kv);
    sim_drop(m->b, d_k_rope);
    if (fused)
        sim_forget(m, &d_q);
    sim_ref_t g = sim_linear_backward(m, &kv_dims, &save->kv_down, d_down, "d_ln_out");
    sim_ref_t other = d_q; /* without compression it is the norm output's already */
    if (m->d->mla.q_rank > 0 && !fused)
        other = sim_linear_backward(m, &q_dims, &save->q_down, d_q, "d_ln_out");
    sim_drop(m->b, other);
    return g;
}

static void recompute_up(sim_model_t *m, sim_mla_save_t *save)
{
    latents_t in = { save->checkpoint[0], save->checkpoint[1], save->checkpoint[2] };
    qkv_t qkv = latents_to_qkv(m, save, in, true);
    save->q = qkv.q;
    save->k = qkv.k;
    save->v = qkv.v;
    sim_ref_t *inputs[3], again[] = { qkv.q, qkv.k, qkv.v };
    size_t n = cp_inputs(m, save, inputs);
    for (size_t i = 0; i < n && !recomputes(m, SIM_MODULE_CORE_ATTN); i++)
        *inputs[i] = sim_keep(m->b, again[i]);
}

sim_ref_t sim_mla_backward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    sim_restore(m->b, save->ln_out);
    m->b->module = SIM_MOD_PROJ;
    sim_linear_dims_t dims = proj_dims(m);
    sim_offload_before_backward(m, SIM_OFFLOAD_ATTN_PROJ);
    sim_ref_t g = sim_linear_backward(m, &dims, &save->proj, d_out, "d_context");
    sim_offload_after_backward(m, SIM_OFFLOAD_ATTN_PROJ);
    if (recomputes(m, SIM_MODULE_MLA_UP_PROJ))
        recompute_up(m, save);
    m->b->module = SIM_MOD_ATTENTION;
    sim_offload_before_backward(m, SIM_OFFLOAD_CORE_ATTN);
    if (recomputes(m, SIM_MODULE_CORE_ATTN))
        sim_drop(m->b, core_forward(m, save));
    qkv_t grads = core_backward(m, save, g);
    forget_core(m, save);
    forget_qkv(m, save);
    sim_offload_after_backward(m, SIM_OFFLOAD_CORE_ATTN);
    sim_ref_t d_q, d_kv, d_k_rope;
    rope_backward(m, save, grads, &d_q, &d_kv, &d_k_rope);
    m->b->module = SIM_MOD_QKV;
    sim_offload_before_backward(m, SIM_OFFLOAD_QKV_LINEAR);
    sim_linear_dims_t q_dims = q_up_dims(m), kv_dims = kv_up_dims(m);
    d_kv = up_backward(m, &kv_dims, &save->kv_up, d_kv, "d_kv_latent");
    if (d->mla.q_rank > 0)
        d_q = up_backward(m, &q_dims, &save->q_up, d_q, "d_q_latent");
    else
        d_q = sim_linear_backward(m, &q_dims, &save->q_proj, d_q, "d_ln_out");
    g = down_backward(m, save, d_q, d_kv, d_k_rope);
    sim_offload_after_backward(m, SIM_OFFLOAD_QKV_LINEAR);
    sim_forget(m, &save->ln_out);
    return sim_norm_backward(m, &save->norm, g, d->hidden_bytes);
}
