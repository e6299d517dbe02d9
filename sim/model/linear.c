/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/model/adapter.h"
#include "sim/model/projection.h"
#include "sim/model/quant.h"
#include "sim/model/software.h"
#include "sim/model/weights.h"
#include "sim/model/workspace.h"

#include <inttypes.h>
#include <stdio.h>

void sim_te_gemm(sim_model_t *m)
{
    sim_persist(m->b, SIM_MOD_LIBRARY, "te_cublas_workspace", sim_te_workspace_bytes(m->d->sm));
}

void sim_torch_gemm(sim_model_t *m)
{
    sim_persist_per_stream(m->b, SIM_MOD_LIBRARY,
                           m->b->in_forward ? "cublas_workspace_forward"
                                            : "cublas_workspace_backward",
                           sim_torch_workspace_bytes(m->s));
}

/* With communication overlap the gathered and scattered tensors of Transformer Engine's linears
 * live in user buffers, which PyTorch does not count. */
static bool has_user_buffers(const sim_model_t *m)
{
    return m->s->tp_comm_overlap && m->d->sp && m->d->te;
}

/* With communication overlap the GEMMs of Transformer Engine's linears run on three streams and
 * take a workspace of their own, three times the size (module/base.py, get_ub_workspace). */
static void gemm(sim_model_t *m)
{
    if (!m->d->te) {
        sim_torch_gemm(m);
        return;
    }
    sim_te_gemm(m);
    if (has_user_buffers(m))
        sim_persist(m->b, SIM_MOD_LIBRARY, "te_overlap_workspace",
                    3 * sim_te_workspace_bytes(m->d->sm));
}

sim_ref_t sim_weight_grad(sim_model_t *m, uint64_t rows, uint64_t cols)
{
    return sim_is_frozen(m) ? SIM_REF_NONE : sim_trainable_weight_grad(m, rows, cols);
}

sim_ref_t sim_trainable_weight_grad(sim_model_t *m, uint64_t rows, uint64_t cols)
{
    uint64_t bytes = rows * cols * m->d->e;
    bool has_dummies =
        sim_software_has(m->s, m->b->module == SIM_MOD_OUTPUT ? SIM_SOFTWARE_OUTPUT_DUMMY_WGRAD
                                                              : SIM_SOFTWARE_TE_DUMMY_WGRAD);
    if (!m->s->gradient_accumulation_fusion || !has_dummies)
        return sim_new(m->b, "weight_grad", bytes);
    char key[64];
    snprintf(key, sizeof(key), "dummy_wgrad[%" PRIu64 ",%" PRIu64 "]", rows, cols);
    sim_persist(m->b, SIM_MOD_LIBRARY, key, bytes);
    return SIM_REF_NONE;
}

/* Sequence parallel: the rows of all tensor-parallel ranks, gathered for a GEMM. Transformer Engine
 * takes a fresh tensor, Megatron's own linears the global buffer (tensor_parallel/layers.py). */
static sim_ref_t gather(sim_model_t *m, const char *name)
{
    if (!m->d->sp || has_user_buffers(m))
        return SIM_REF_NONE;
    if (m->d->te)
        return sim_new(m->b, name, m->d->full_hidden_bytes);
    sim_persist(m->b, SIM_MOD_LIBRARY, "mpu_buffer", m->d->full_hidden_bytes);
    return SIM_REF_NONE;
}

static uint64_t local_elements(const sim_model_t *m)
{
    return m->d->local_tokens * m->d->h;
}

static uint64_t full_elements(const sim_model_t *m)
{
    return m->d->tokens * m->d->h;
}

/* The norm's output for the GEMM. */
static sim_ref_t fp8_norm_out(sim_model_t *m)
{
    sim_quantized_t q = sim_quantize_norm_out(m, local_elements(m), m->d->sp);
    sim_ref_t gathered = m->d->sp && !has_user_buffers(m)
                             ? sim_new(m->b, "ln_out_gathered", sim_row_bytes(m, full_elements(m)))
                             : SIM_REF_NONE;
    sim_drop(m->b, gathered);
    return sim_keep_for_wgrad(m, &q);
}

/* Which target of adapters the module is that is being built. */
static sim_target_t target_of(const sim_model_t *m)
{
    switch (m->b->module) {
    case SIM_MOD_QKV:
        return SIM_TARGET_QKV;
    case SIM_MOD_PROJ:
        return SIM_TARGET_PROJ;
    case SIM_MOD_FC1:
        return SIM_TARGET_FC1;
    default:
        return SIM_TARGET_FC2;
    }
}

static sim_adapter_dims_t column_adapter(const sim_model_t *m, uint64_t out)
{
    const sim_dims_t *d = m->d;
    return (sim_adapter_dims_t){ .rows = d->tokens,
                                 .in = d->h,
                                 .out = out,
                                 .rank = m->s->peft_dim,
                                 .tp = d->tp,
                                 .local_rows = d->tokens,
                                 .regathers = sim_adapter_regathers(m, target_of(m)),
                                 .n = 1 };
}

static sim_adapter_dims_t row_adapter(const sim_model_t *m, uint64_t in)
{
    const sim_dims_t *d = m->d;
    return (sim_adapter_dims_t){ .rows = d->tokens,
                                 .in = in,
                                 .out = d->h,
                                 .rank = m->s->peft_dim,
                                 .tp = d->tp,
                                 .local_rows = d->local_tokens,
                                 .is_row = true,
                                 .n = 1 };
}

/* A frozen linear whose adapter reads the norm's output: Transformer Engine returns that output,
 * gathered unless the adapter gathers it again itself or user buffers do, and saves its own part of
 * it all the same (module/layernorm_linear.py: it is cleared only when it is not returned). */
static sim_ref_t adapted_norm_linear_forward(sim_model_t *m, sim_norm_linear_t *save,
                                             const char *out_name, uint64_t out_bytes)
{
    uint64_t features = out_bytes / (m->d->tokens * m->d->e);
    sim_adapter_dims_t dims = column_adapter(m, features);
    sim_ref_t ln_out = sim_new(m->b, "ln_out", m->d->hidden_bytes);
    sim_ref_t read = SIM_REF_NONE; /* by A */
    if (m->d->sp && !dims.regathers)
        read = sim_new(m->b, "lora_in_gathered", m->d->full_hidden_bytes);
    else
        read = sim_keep(m->b, ln_out);
    sim_ref_t in = SIM_REF_NONE; /* by the product, where it is another tensor */
    save->ln_out = ln_out;
    if (sim_is_fp8(m)) {
        sim_quantized_t q = sim_quantize(m, "ln_out_fp8", local_elements(m), true, false);
        save->ln_out = sim_keep_for_wgrad(m, &q);
        sim_drop(m->b, ln_out);
        if (m->d->sp)
            in = sim_new(m->b, "ln_out_gathered", sim_row_bytes(m, full_elements(m)));
        save->weight = sim_fp8_weight(m, features, m->d->h);
    } else if (dims.regathers) {
        in = gather(m, "ln_out_gathered");
    }
    gemm(m);
    sim_ref_t out = sim_new(m->b, "base_out", out_bytes);
    sim_drop(m->b, in);
    return sim_adapter_forward(m, &dims, &save->adapter, read, out, out_name, true);
}

/* Without a gradient to compute for it the linear saves neither its input nor the norm's. */
static void forget_constant_input(sim_model_t *m, sim_norm_linear_t *save)
{
    if (m->input_is_constant && m->b->module == SIM_MOD_QKV) {
        sim_forget(m, &save->x);
        sim_forget(m, &save->stat);
        sim_forget(m, &save->ln_out);
    }
}

sim_ref_t sim_norm_linear_forward(sim_model_t *m, sim_norm_linear_t *save, sim_ref_t x,
                                  const char *out_name, uint64_t out_bytes)
{
    save->x = x;
    save->weight = SIM_REF_NONE;
    save->adapter = sim_adapter_none();
    save->stat = sim_new(m->b, "norm_stat", m->d->norm_stat_bytes);
    if (sim_has_adapter(m->s, target_of(m))) {
        sim_ref_t out = adapted_norm_linear_forward(m, save, out_name, out_bytes);
        forget_constant_input(m, save);
        return out;
    }
    sim_ref_t gathered = SIM_REF_NONE;
    if (sim_is_fp8(m)) {
        save->ln_out = fp8_norm_out(m);
        save->weight = sim_fp8_weight(m, out_bytes / (m->d->tokens * m->d->e), m->d->h);
    } else {
        save->ln_out = sim_new(m->b, "ln_out", m->d->hidden_bytes);
        gathered = gather(m, "ln_out_gathered");
    }
    gemm(m);
    sim_ref_t out = sim_new(m->b, out_name, out_bytes);
    sim_drop(m->b, gathered);
    if (sim_is_frozen(m))
        sim_forget(m, &save->ln_out);
    forget_constant_input(m, save);
    return out;
}

/* Megatron-LM's own linears gather their input when the gradient of the weight is computed. */
static bool gathers_later(const sim_model_t *m)
{
    return sim_leaves_weights(m) && m->d->sp && !m->d->te;
}

/* A tensor that the weight's gradient may read. */
static void done_with(sim_model_t *m, sim_weight_work_t *work, sim_ref_t ref, bool is_read)
{
    if (is_read)
        sim_weight_operand(m, work, ref);
    else
        sim_drop(m->b, ref);
}

sim_ref_t sim_norm_linear_backward(sim_model_t *m, sim_norm_linear_t *save, sim_ref_t d_out,
                                   uint64_t rows)
{
    bool fp8 = sim_is_fp8(m);
    bool in_user_buffers = has_user_buffers(m);
    bool frozen = sim_is_frozen(m);
    sim_quantized_t d_out_q = { SIM_REF_NONE, SIM_REF_NONE }, gathered_q = d_out_q;
    sim_ref_t gathered = SIM_REF_NONE, d_adapter = SIM_REF_NONE;
    if (sim_has_adapter(m->s, target_of(m))) {
        sim_adapter_dims_t dims = column_adapter(m, rows);
        d_adapter = sim_adapter_backward(m, &dims, &save->adapter, &d_out);
    }
    if (fp8) {
        d_out_q = sim_quantize(m, "d_out_fp8", m->d->tokens * rows, true, !frozen);
        if (m->d->sp && !frozen)
            gathered_q =
                sim_gather_for_wgrad(m, "ln_out_gathered", full_elements(m), has_user_buffers(m));
    } else if (!frozen && !gathers_later(m)) {
        gathered = gather(m, "ln_out_gathered");
    }
    gemm(m);
    /* The data gradient and its reduce-scatter share the user buffer of the weight gradient. */
    sim_ref_t d_full =
        in_user_buffers ? SIM_REF_NONE : sim_new(m->b, "d_ln_out", m->d->full_hidden_bytes);
    sim_ref_t d_local = m->d->sp && !in_user_buffers
                            ? sim_new(m->b, "d_ln_out_local", m->d->hidden_bytes)
                            : SIM_REF_NONE;
    sim_ref_t wgrad = sim_weight_grad(m, rows, m->d->h);
    sim_weight_work_t work = sim_weight_work(m, false);
    work.gather_bytes = gathers_later(m) ? m->d->full_hidden_bytes : 0;
    bool is_gathered = gathered != SIM_REF_NONE || gathered_q.row != SIM_REF_NONE ||
                       gathered_q.col != SIM_REF_NONE;
    if (is_gathered)
        sim_drop(m->b, save->ln_out);
    else
        sim_weight_operand(m, &work, save->ln_out);
    sim_drop(m->b, save->weight);
    sim_weight_operand(m, &work, gathered);
    sim_weight_operands(m, &work, &gathered_q);
    sim_drop(m->b, d_adapter); /* added to the other in place */
    sim_ref_t dx = sim_new(m->b, "d_x", m->d->hidden_bytes);
    sim_drop(m->b, d_full);
    sim_drop(m->b, d_local);
    sim_drop(m->b, save->x);
    sim_drop(m->b, save->stat);
    sim_weight_operands(m, &work, &d_out_q);
    done_with(m, &work, d_out, !fp8);
    sim_drop(m->b, wgrad);
    sim_weight_later(m, &work);
    return dx;
}

/* The output projection keeps attention's own output, which is saved anyway, and quantises it again
 * in backward; delayed scaling cannot (megatron/core/extensions/transformer_engine.py sets
 * save_original_input). */
static bool saves_original(const sim_model_t *m)
{
    return m->b->module == SIM_MOD_PROJ && sim_recipe(m->s) != SIM_FP8_DELAYED;
}

static sim_ref_t row_output(sim_model_t *m, const char *out_name)
{
    if (!m->d->sp)
        return sim_new(m->b, out_name, m->d->full_hidden_bytes);
    sim_ref_t full =
        has_user_buffers(m) ? SIM_REF_NONE : sim_new(m->b, "row_out_full", m->d->full_hidden_bytes);
    sim_ref_t out = sim_new(m->b, out_name, m->d->hidden_bytes);
    sim_drop(m->b, full);
    return out;
}

/* The linear's own output; *saved_p <- what it saves, `x` being borrowed. */
static sim_ref_t row_product(sim_model_t *m, sim_row_linear_t *save, sim_ref_t x, uint64_t in_bytes,
                             const char *out_name)
{
    bool frozen = sim_is_frozen(m);
    save->x = frozen ? SIM_REF_NONE : sim_keep(m->b, x);
    if (!sim_is_fp8(m)) {
        gemm(m);
        return row_output(m, out_name);
    }
    uint64_t n = in_bytes / m->d->e;
    bool original = frozen || saves_original(m);
    sim_quantized_t q = sim_quantize(m, "linear_in_fp8", n, true, !original);
    save->weight = sim_fp8_weight(m, m->d->h, n / m->d->tokens);
    gemm(m);
    sim_ref_t out = row_output(m, out_name);
    if (original) {
        sim_drop_quantized(m, &q);
    } else {
        sim_drop(m->b, save->x);
        save->x = sim_keep_for_wgrad(m, &q);
    }
    return out;
}

sim_ref_t sim_row_linear_forward(sim_model_t *m, sim_row_linear_t *save, sim_ref_t x,
                                 uint64_t in_bytes, const char *out_name)
{
    bool adapted = sim_has_adapter(m->s, target_of(m));
    save->weight = SIM_REF_NONE;
    save->adapter = sim_adapter_none();
    sim_ref_t out = row_product(m, save, x, in_bytes, adapted ? "base_out" : out_name);
    if (!adapted) {
        sim_drop(m->b, x);
        return out;
    }
    sim_adapter_dims_t dims = row_adapter(m, in_bytes / (m->d->tokens * m->d->e));
    return sim_adapter_forward(m, &dims, &save->adapter, x, out, out_name, true);
}

/* The gradient of the output as the GEMMs read it: quantised where it is, then gathered. */
static sim_quantized_t fp8_row_grad(sim_model_t *m)
{
    bool frozen = sim_is_frozen(m);
    if (!m->d->sp)
        return sim_quantize(m, "d_out_fp8", full_elements(m), true, !frozen);
    bool per_tensor = sim_is_per_tensor(m);
    sim_quantized_t local =
        sim_quantize(m, "d_out_fp8", local_elements(m), true, !per_tensor && !frozen);
    sim_quantized_t full = { SIM_REF_NONE, SIM_REF_NONE };
    if (!has_user_buffers(m))
        full.row = sim_new(m->b, "d_out_gathered", sim_row_bytes(m, full_elements(m)));
    if (!frozen)
        full.col = sim_new(m->b, "d_out_gathered", sim_col_bytes(m, full_elements(m)));
    if (!frozen && sim_recipe(m->s) == SIM_NVFP4) /* as it came, and in order */
        sim_touch(m->b, "d_out_gathered", 2 * sim_col_bytes(m, full_elements(m)));
    sim_drop_quantized(m, &local);
    return full;
}

sim_ref_t sim_row_linear_backward(sim_model_t *m, sim_row_linear_t *save, sim_ref_t d_out,
                                  const char *in_grad_name, uint64_t in_bytes, uint64_t cols)
{
    sim_quantized_t d_out_q = { SIM_REF_NONE, SIM_REF_NONE }, x_q = d_out_q;
    sim_ref_t gathered = SIM_REF_NONE, d_adapter = SIM_REF_NONE;
    if (sim_has_adapter(m->s, target_of(m))) {
        sim_adapter_dims_t dims = row_adapter(m, cols);
        d_adapter = sim_adapter_backward(m, &dims, &save->adapter, &d_out);
    }
    if (sim_is_fp8(m))
        d_out_q = fp8_row_grad(m);
    else if (gathers_later(m))
        gathered = sim_new(m->b, "d_out_gathered", m->d->full_hidden_bytes);
    else
        gathered = gather(m, "d_out_gathered");
    gemm(m);
    sim_ref_t dx = sim_new(m->b, in_grad_name, in_bytes);
    sim_drop(m->b, d_adapter); /* added to the other in place */
    if (sim_is_fp8(m) && saves_original(m) && !sim_is_frozen(m))
        x_q = sim_quantize(m, "linear_in_fp8", in_bytes / m->d->e, false, true);
    sim_ref_t wgrad = sim_weight_grad(m, m->d->h, cols);
    sim_weight_work_t work = sim_weight_work(m, false);
    bool reads_x = x_q.row == SIM_REF_NONE && x_q.col == SIM_REF_NONE;
    sim_weight_operand(m, &work, gathered);
    sim_weight_operands(m, &work, &x_q);
    sim_weight_operands(m, &work, &d_out_q);
    done_with(m, &work, save->x, reads_x);
    sim_drop(m->b, save->weight);
    done_with(m, &work, d_out, !sim_is_fp8(m) && gathered == SIM_REF_NONE);
    sim_drop(m->b, wgrad);
    sim_weight_later(m, &work);
    return dx;
}
