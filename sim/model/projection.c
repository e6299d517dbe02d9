/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/projection.h"

#include "sim/base/units.h"
#include "sim/model/adapter.h"
#include "sim/model/quant.h"
#include "sim/model/weights.h"
#include "sim/model/workspace.h"

#include <stdio.h>

/* TransformerEngine pytorch/module/base.py, get_multi_stream_cublas_workspace(). */
enum { N_GROUPED_STREAMS = 4 };

void sim_replace(sim_model_t *m, sim_ref_t *t_p, const char *name, uint64_t bytes)
{
    sim_ref_t t = sim_new(m->b, name, bytes);
    sim_drop(m->b, *t_p);
    *t_p = t;
}

void sim_forget(sim_model_t *m, sim_ref_t *t_p)
{
    sim_drop(m->b, *t_p);
    *t_p = SIM_REF_NONE;
}

/* Statistics are one fp32 number a row, two with LayerNorm. */
static uint64_t stat_bytes(const sim_model_t *m, uint64_t bytes, uint64_t width)
{
    return bytes / m->d->e / width * 4 * m->d->norm_params;
}

sim_ref_t sim_norm_forward(sim_model_t *m, sim_norm_save_t *save, sim_ref_t x, const char *out_name,
                           uint64_t bytes, uint64_t width, bool grad)
{
    sim_ref_t out = sim_new(m->b, out_name, bytes);
    save->x = x;
    save->stat = sim_new(m->b, "norm_stat", stat_bytes(m, bytes, width));
    if (!grad) {
        sim_forget(m, &save->x);
        sim_forget(m, &save->stat);
    }
    return out;
}

sim_ref_t sim_norm_backward(sim_model_t *m, sim_norm_save_t *save, sim_ref_t d_out, uint64_t bytes)
{
    sim_ref_t dx = sim_new(m->b, "d_norm_in", bytes);
    sim_forget(m, &save->x);
    sim_forget(m, &save->stat);
    sim_drop(m->b, d_out);
    return dx;
}

void sim_linear_gemm(sim_model_t *m, bool is_grouped)
{
    if (!m->d->te) {
        sim_torch_gemm(m);
        return;
    }
    if (!is_grouped) {
        sim_te_gemm(m);
        return;
    }
    for (int i = 0; i < N_GROUPED_STREAMS; i++) {
        char key[40];
        snprintf(key, sizeof(key), "te_grouped_workspace[%d]", i);
        sim_persist(m->b, SIM_MOD_LIBRARY, key, sim_te_workspace_bytes(m->d->sm));
    }
}

/* Transformer Engine gathers into a fresh tensor, Megatron's own layers into the global buffer. */
static sim_ref_t gather(sim_model_t *m, const char *name, uint64_t bytes)
{
    if (bytes == 0 || m->d->te)
        return sim_new(m->b, name, bytes);
    sim_persist(m->b, SIM_MOD_LIBRARY, "mpu_buffer", bytes);
    return SIM_REF_NONE;
}

static sim_ref_t product(sim_model_t *m, const sim_linear_dims_t *d, const char *out_name)
{
    sim_linear_gemm(m, d->n_weights > 0);
    if (d->full_out_bytes == 0)
        return sim_new(m->b, out_name, d->out_bytes);
    sim_ref_t full = sim_new(m->b, "linear_out_full", d->full_out_bytes);
    sim_ref_t out = sim_new(m->b, out_name, d->out_bytes);
    sim_drop(m->b, full);
    return out;
}

void sim_linear_forget(sim_model_t *m, sim_linear_save_t *save)
{
    sim_forget(m, &save->x);
    sim_forget(m, &save->weight);
    sim_adapter_forget(m, &save->adapter);
}

void sim_linear_drop_input(sim_model_t *m, sim_linear_save_t *save)
{
    sim_forget(m, &save->x);
    sim_forget(m, &save->adapter.x);
}

void sim_linear_give_input(sim_model_t *m, const sim_linear_dims_t *d, sim_linear_save_t *save,
                           sim_ref_t x)
{
    if (!sim_is_frozen(m))
        save->x = x;
    else if (sim_has_adapter(m->s, (sim_target_t)d->target))
        save->adapter.x = x;
    else
        sim_drop(m->b, x);
}

static uint64_t elements(const sim_model_t *m, uint64_t bytes)
{
    return bytes / m->d->e;
}

static bool keeps_input(const sim_model_t *m, const sim_linear_dims_t *d)
{
    return d->keeps_input && sim_recipe(m->s) != SIM_FP8_DELAYED;
}

static sim_ref_t fp8_weight(sim_model_t *m, const sim_linear_dims_t *d)
{
    uint64_t n_weights = d->n_weights > 0 ? d->n_weights : 1;
    return sim_fp8_weight_of(m, d->name, n_weights * d->rows * d->cols);
}

/* Data of per-tensor scaling is gathered by rows, so that there is no other copy then; nor is there
 * one where the weight has no gradient. */
static bool only_rows(const sim_model_t *m, const sim_linear_dims_t *d)
{
    return sim_is_frozen(m) || (d->full_in_bytes > 0 && sim_is_per_tensor(m));
}

/* The product of quantised operands; `q` is what of the input may be saved. */
static sim_ref_t fp8_product(sim_model_t *m, const sim_linear_dims_t *d, sim_ref_t *weight_p,
                             const char *out_name)
{
    uint64_t gathered_bytes =
        d->full_in_bytes > 0 ? sim_row_bytes(m, elements(m, d->full_in_bytes)) : 0;
    sim_ref_t gathered = sim_new(m->b, "linear_in_gathered", gathered_bytes);
    *weight_p = fp8_weight(m, d);
    sim_ref_t out = product(m, d, out_name);
    sim_drop(m->b, gathered);
    return out;
}

static sim_ref_t fp8_linear_forward(sim_model_t *m, const sim_linear_dims_t *d,
                                    sim_linear_save_t *save, sim_ref_t x, const char *out_name)
{
    bool keeps = keeps_input(m, d);
    sim_quantized_t q = sim_quantize(m, "linear_in_fp8", elements(m, d->in_bytes), true,
                                     !keeps && !only_rows(m, d));
    sim_ref_t out = fp8_product(m, d, &save->weight, out_name);
    if (keeps) {
        save->x = x;
        sim_drop_quantized(m, &q);
    } else {
        save->x = sim_keep_for_wgrad(m, &q);
        sim_drop(m->b, x);
    }
    return out;
}

/* The linear itself. */
static sim_ref_t base_forward(sim_model_t *m, const sim_linear_dims_t *d, sim_linear_save_t *save,
                              sim_ref_t x, const char *out_name, bool grad)
{
    sim_ref_t out;
    save->weight = SIM_REF_NONE;
    save->adapter = sim_adapter_none();
    if (sim_is_fp8(m)) {
        out = fp8_linear_forward(m, d, save, x, out_name);
    } else {
        sim_ref_t gathered = gather(m, "linear_in_gathered", d->full_in_bytes);
        out = product(m, d, out_name);
        sim_drop(m->b, gathered);
        save->x = x;
    }
    if (sim_is_frozen(m))
        sim_forget(m, &save->x);
    if (!grad)
        sim_linear_forget(m, save);
    return out;
}

/* normalize_moe_lora: utils.py, get_effective_lora_dim() and align_expert_dim_for_tp(). */
static uint64_t adapter_rank(const sim_model_t *m, const sim_linear_dims_t *d, bool is_row)
{
    if (!d->is_expert || !m->s->normalize_moe_lora)
        return m->s->peft_dim;
    uint64_t rank = m->s->peft_dim / m->s->moe_router_topk;
    return is_row ? rank : base_u64_round_up(rank, m->d->moe.etp);
}

static sim_adapter_dims_t adapter_dims(const sim_model_t *m, const sim_linear_dims_t *d)
{
    bool is_row = d->target == SIM_TARGET_PROJ || d->target == SIM_TARGET_FC2;
    uint64_t in_bytes = d->full_in_bytes > 0 ? d->full_in_bytes : d->in_bytes;
    bool one_each = d->is_expert && !m->s->share_expert_adapters;
    return (sim_adapter_dims_t){
        .rows = in_bytes / (d->cols * m->d->e),
        .in = d->cols,
        .out = d->rows,
        .rank = adapter_rank(m, d, is_row),
        .tp = d->is_expert ? m->d->moe.etp : m->d->tp,
        .local_rows = d->out_bytes / (d->rows * m->d->e),
        .is_row = is_row,
        .is_whole = d->is_whole,
        .regathers = d->full_in_bytes > 0 && sim_adapter_regathers(m, (sim_target_t)d->target),
        .n = one_each && d->n_weights > 0 ? d->n_weights : 1,
    };
}

/* Where the linear gathers its input along the sequence, the adapter does so too. */
static sim_ref_t adapter_input(sim_model_t *m, const sim_linear_dims_t *d,
                               const sim_adapter_dims_t *a, sim_ref_t x)
{
    if (d->full_in_bytes == 0 || a->regathers)
        return x;
    sim_ref_t gathered = sim_new(m->b, "lora_in_gathered", d->full_in_bytes);
    sim_drop(m->b, x);
    return gathered;
}

sim_ref_t sim_linear_forward(sim_model_t *m, const sim_linear_dims_t *d, sim_linear_save_t *save,
                             sim_ref_t x, const char *out_name, bool grad)
{
    if (!sim_has_adapter(m->s, (sim_target_t)d->target))
        return base_forward(m, d, save, x, out_name, grad);
    sim_adapter_dims_t a = adapter_dims(m, d);
    sim_ref_t out = base_forward(m, d, save, sim_keep(m->b, x), "base_out", grad);
    x = adapter_input(m, d, &a, x);
    return sim_adapter_forward(m, &a, &save->adapter, x, out, out_name, grad);
}

static sim_ref_t weight_grad(sim_model_t *m, const sim_linear_dims_t *d)
{
    sim_ref_t grad = sim_weight_grad(m, d->rows, d->cols);
    if (grad == SIM_REF_NONE || d->n_weights <= 1)
        return grad;
    /* All gradients of a grouped layer are one tensor. */
    sim_drop(m->b, grad);
    return sim_new(m->b, "weight_grads", d->n_weights * d->rows * d->cols * m->d->e);
}

/* Both operands of the weight gradient besides what is saved. */
typedef struct {
    sim_quantized_t d_out, x;
    sim_ref_t d_out_full, x_full; /* in the activation dtype */
} operands_t;

/* The gradient of the output is quantised, then gathered; the input is gathered again, and
 * per-tensor data is transposed after that. */
static operands_t fp8_operands(sim_model_t *m, const sim_linear_dims_t *d)
{
    operands_t o = {
        { SIM_REF_NONE, SIM_REF_NONE }, { SIM_REF_NONE, SIM_REF_NONE }, SIM_REF_NONE, SIM_REF_NONE
    };
    uint64_t n = elements(m, d->full_out_bytes > 0 ? d->full_out_bytes : d->out_bytes);
    o.d_out = sim_quantize(m, "d_out_fp8", n, true, !sim_is_frozen(m));
    if (sim_is_frozen(m))
        return o;
    uint64_t n_in = elements(m, d->full_in_bytes);
    if (n_in > 0) {
        o.x = sim_gather_for_wgrad(m, "linear_in_gathered", n_in, false);
    } else if (keeps_input(m, d)) {
        o.x = sim_quantize(m, "linear_in_fp8", elements(m, d->in_bytes), false, true);
    }
    return o;
}

/* Megatron-LM's own linears gather the input when the gradient of the weight is computed, and what
 * the gradient of the output was gathered into stays until then. */
static operands_t local_operands_for_later(sim_model_t *m, const sim_linear_dims_t *d)
{
    return (operands_t){ { SIM_REF_NONE, SIM_REF_NONE },
                         { SIM_REF_NONE, SIM_REF_NONE },
                         sim_new(m->b, "d_out_gathered", d->full_out_bytes),
                         SIM_REF_NONE };
}

static operands_t make_operands(sim_model_t *m, const sim_linear_dims_t *d)
{
    if (sim_is_fp8(m))
        return fp8_operands(m, d);
    if (sim_leaves_weights(m) && !m->d->te)
        return local_operands_for_later(m, d);
    return (operands_t){ { SIM_REF_NONE, SIM_REF_NONE },
                         { SIM_REF_NONE, SIM_REF_NONE },
                         gather(m, "d_out_gathered", d->full_out_bytes),
                         sim_is_frozen(m) ? SIM_REF_NONE
                                          : gather(m, "linear_in_gathered", d->full_in_bytes) };
}

static sim_weight_work_t weight_work(const sim_model_t *m, const sim_linear_dims_t *d)
{
    sim_weight_work_t work = sim_weight_work(m, d->n_weights > 0);
    work.gather_bytes = m->d->te ? 0 : d->full_in_bytes;
    return work;
}

/* Whether the product reads the input as it was saved. */
static bool reads_saved(const operands_t *o)
{
    return o->x_full == SIM_REF_NONE && o->x.row == SIM_REF_NONE && o->x.col == SIM_REF_NONE;
}

/* Drop the gradient of the output, or keep what the product reads of it. */
static void done_with_d_out(sim_model_t *m, sim_weight_work_t *work, operands_t *o, sim_ref_t d_out)
{
    bool is_read = !sim_is_fp8(m) && o->d_out_full == SIM_REF_NONE;
    sim_weight_operands(m, work, &o->d_out);
    if (is_read)
        sim_weight_operand(m, work, d_out);
    else
        sim_drop(m->b, d_out);
}

/* The gradient of the input (scattered where the input was gathered) and the weight's. */
static sim_ref_t linear_grads(sim_model_t *m, const sim_linear_dims_t *d, const char *in_grad_name,
                              sim_ref_t *full_p, sim_ref_t *wgrad_p)
{
    sim_linear_gemm(m, d->n_weights > 0);
    *full_p = sim_new(m->b, "d_linear_in_full", d->full_in_bytes);
    sim_ref_t dx = sim_new(m->b, in_grad_name, d->in_bytes);
    *wgrad_p = weight_grad(m, d);
    return dx;
}

sim_ref_t sim_linear_backward(sim_model_t *m, const sim_linear_dims_t *d, sim_linear_save_t *save,
                              sim_ref_t d_out, const char *in_grad_name)
{
    sim_ref_t full, wgrad, d_adapter = SIM_REF_NONE;
    if (sim_has_adapter(m->s, (sim_target_t)d->target)) {
        sim_adapter_dims_t a = adapter_dims(m, d);
        d_adapter = sim_adapter_backward(m, &a, &save->adapter, &d_out);
        if (d->full_in_bytes > 0 && !a.regathers)
            sim_replace(m, &d_adapter, "d_lora_in_local", d->in_bytes);
    }
    operands_t o = make_operands(m, d);
    sim_ref_t dx = linear_grads(m, d, in_grad_name, &full, &wgrad);
    sim_weight_work_t work = weight_work(m, d);
    bool saved = reads_saved(&o);
    sim_drop(m->b, d_adapter); /* added to the other in place */
    sim_weight_operand(m, &work, o.x_full);
    sim_weight_operands(m, &work, &o.x);
    sim_weight_operand(m, &work, o.d_out_full);
    if (saved) {
        sim_weight_operand(m, &work, save->x);
        save->x = SIM_REF_NONE;
    }
    sim_linear_forget(m, save);
    sim_drop(m->b, full);
    done_with_d_out(m, &work, &o, d_out);
    if (d->n_weights > 0)
        sim_weight_operand(m, &work, wgrad);
    else
        sim_drop(m->b, wgrad);
    sim_weight_later(m, &work);
    return dx;
}

static void forget_normed(sim_model_t *m, sim_norm_linear_t *save)
{
    sim_forget(m, &save->x);
    sim_forget(m, &save->ln_out);
    sim_forget(m, &save->stat);
    sim_forget(m, &save->weight);
}

/* As adapted_norm_linear_forward() of linear.c, but that nothing is gathered again. */
static sim_ref_t adapted_normed_linear_forward(sim_model_t *m, const sim_linear_dims_t *d,
                                               sim_norm_linear_t *save, const char *out_name,
                                               bool grad)
{
    sim_adapter_dims_t a = adapter_dims(m, d);
    sim_ref_t ln_out = sim_new(m->b, "ln_out", d->in_bytes);
    sim_ref_t read = d->full_in_bytes > 0 ? sim_new(m->b, "lora_in_gathered", d->full_in_bytes)
                                          : sim_keep(m->b, ln_out);
    save->ln_out = ln_out;
    sim_ref_t out;
    if (sim_is_fp8(m)) {
        sim_quantized_t q = sim_quantize(m, "ln_out_fp8", elements(m, d->in_bytes), true, false);
        save->ln_out = sim_keep_for_wgrad(m, &q);
        sim_drop(m->b, ln_out);
        out = fp8_product(m, d, &save->weight, "base_out");
    } else {
        out = product(m, d, "base_out");
    }
    if (!grad)
        forget_normed(m, save);
    return sim_adapter_forward(m, &a, &save->adapter, read, out, out_name, grad);
}

sim_ref_t sim_normed_linear_forward(sim_model_t *m, const sim_linear_dims_t *d,
                                    sim_norm_linear_t *save, sim_ref_t x, const char *out_name,
                                    bool grad)
{
    sim_ref_t out;
    save->x = x;
    save->weight = SIM_REF_NONE;
    save->adapter = sim_adapter_none();
    save->stat = sim_new(m->b, "norm_stat", stat_bytes(m, d->in_bytes, d->cols));
    if (sim_has_adapter(m->s, (sim_target_t)d->target))
        return adapted_normed_linear_forward(m, d, save, out_name, grad);
    if (sim_is_fp8(m)) {
        sim_quantized_t q =
            sim_quantize_norm_out(m, elements(m, d->in_bytes), d->full_in_bytes > 0);
        save->ln_out = sim_keep_for_wgrad(m, &q);
        out = fp8_product(m, d, &save->weight, out_name);
    } else {
        save->ln_out = sim_new(m->b, "ln_out", d->in_bytes);
        sim_ref_t gathered = gather(m, "ln_out_gathered", d->full_in_bytes);
        out = product(m, d, out_name);
        sim_drop(m->b, gathered);
    }
    if (sim_is_frozen(m))
        sim_forget(m, &save->ln_out);
    if (!grad)
        forget_normed(m, save);
    return out;
}

sim_ref_t sim_normed_linear_backward(sim_model_t *m, const sim_linear_dims_t *d,
                                     sim_norm_linear_t *save, sim_ref_t d_out,
                                     const char *in_grad_name)
{
    sim_ref_t full, wgrad, d_adapter = SIM_REF_NONE;
    if (sim_has_adapter(m->s, (sim_target_t)d->target)) {
        sim_adapter_dims_t a = adapter_dims(m, d);
        d_adapter = sim_adapter_backward(m, &a, &save->adapter, &d_out);
    }
    operands_t o = make_operands(m, d);
    sim_ref_t d_normed = linear_grads(m, d, "d_ln_out", &full, &wgrad);
    sim_weight_work_t work = weight_work(m, d);
    if (reads_saved(&o)) {
        sim_weight_operand(m, &work, save->ln_out);
        save->ln_out = SIM_REF_NONE;
    }
    sim_forget(m, &save->ln_out);
    sim_forget(m, &save->weight);
    sim_weight_operand(m, &work, o.x_full);
    sim_weight_operands(m, &work, &o.x);
    sim_drop(m->b, d_adapter); /* added to the other in place */
    sim_ref_t dx = sim_new(m->b, in_grad_name, d->in_bytes);
    sim_drop(m->b, full);
    sim_drop(m->b, d_normed);
    sim_forget(m, &save->x);
    sim_forget(m, &save->stat);
    done_with_d_out(m, &work, &o, d_out);
    sim_weight_operand(m, &work, o.d_out_full);
    sim_drop(m->b, wgrad);
    sim_weight_later(m, &work);
    return dx;
}
