/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/adapter.h"

#include "sim/model/projection.h"

bool sim_adapter_regathers(const sim_model_t *m, sim_target_t target)
{
    const sim_scenario_t *s = m->s;
    bool mlp_again = s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
                     (s->recompute_modules & SIM_MODULE_MLP) != 0;
    if (!s->sequence_parallel_input_regather || !m->d->sp || s->a2a_experimental)
        return false;
    if (s->recompute_granularity == SIM_RECOMPUTE_FULL)
        return false;
    return target == SIM_TARGET_QKV || (target == SIM_TARGET_FC1 && !mlp_again);
}

sim_adapter_save_t sim_adapter_none(void)
{
    return (sim_adapter_save_t){ SIM_REF_NONE, SIM_REF_NONE, SIM_REF_NONE, SIM_REF_NONE,
                                 SIM_REF_NONE };
}

void sim_adapter_forget(sim_model_t *m, sim_adapter_save_t *save)
{
    sim_ref_t *refs[] = { &save->x, &save->mid, &save->pre_mask, &save->out_mask, &save->sum };
    for (size_t i = 0; i < sizeof(refs) / sizeof(refs[0]); i++)
        sim_forget(m, refs[i]);
}

static uint64_t mid_bytes(const sim_model_t *m, const sim_adapter_dims_t *d)
{
    return d->rows * d->rank * m->d->e;
}

static uint64_t out_bytes(const sim_model_t *m, const sim_adapter_dims_t *d)
{
    return d->local_rows * d->out * m->d->e;
}

static uint64_t in_bytes(const sim_model_t *m, const sim_adapter_dims_t *d)
{
    return d->rows * d->in * m->d->e / (d->regathers ? d->tp : 1);
}

static bool has_dropout(const sim_model_t *m, sim_dropout_position_t where)
{
    return m->s->peft_dropout > 0.0 && m->s->peft_dropout_position == where;
}

/* Dropout saves a mask of one byte an element. */
static void drop_out(sim_model_t *m, sim_ref_t *t_p, sim_ref_t *mask_p, uint64_t bytes)
{
    *mask_p = sim_new(m->b, "lora_dropout_mask", bytes / m->d->e);
    sim_replace(m, t_p, "lora_dropped", bytes);
}

/* The gathered input of an adapter that re-gathers lies in Megatron's global buffer. */
static void gather_again(sim_model_t *m, const sim_adapter_dims_t *d)
{
    if (d->regathers)
        sim_persist(m->b, SIM_MOD_LIBRARY, "mpu_buffer", d->rows * d->in * m->d->e);
}

/* Parts of the last dimension are gathered one after another, then joined (mappings.py,
 * _gather_along_last_dim()). */
static sim_ref_t gather_columns(sim_model_t *m, sim_ref_t part, const char *name, uint64_t bytes)
{
    sim_ref_t parts = sim_new(m->b, "lora_gathered_parts", bytes);
    sim_ref_t whole = sim_new(m->b, name, bytes);
    sim_drop(m->b, parts);
    sim_drop(m->b, part);
    return whole;
}

static sim_ref_t product_with_a(sim_model_t *m, const sim_adapter_dims_t *d)
{
    uint64_t bytes = mid_bytes(m, d);
    sim_torch_gemm(m);
    if (d->is_row || d->tp == 1)
        return sim_new(m->b, "lora_mid", bytes); /* all-reduced in place */
    return gather_columns(m, sim_new(m->b, "lora_mid_part", bytes / d->tp), "lora_mid", bytes);
}

static bool gathers_output(const sim_adapter_dims_t *d)
{
    return (d->is_row || d->is_whole) && d->tp > 1;
}

/* A row-parallel linear's adapter is gathered over the width; a slice of its rows is a view. */
static sim_ref_t product_with_b(sim_model_t *m, const sim_adapter_dims_t *d)
{
    sim_torch_gemm(m);
    if (!gathers_output(d))
        return sim_new(m->b, "lora_out", d->rows * d->out * m->d->e);
    uint64_t bytes = d->rows * d->out * m->d->e;
    if (m->s->a2a_experimental && m->d->sp && d->is_row) { /* all2all_hp2sp() */
        sim_ref_t part = sim_new(m->b, "lora_out_part", bytes / d->tp);
        sim_ref_t out = sim_new(m->b, "lora_out", bytes / d->tp);
        sim_drop(m->b, part);
        return out;
    }
    return gather_columns(m, sim_new(m->b, "lora_out_part", bytes / d->tp), "lora_out", bytes);
}

/* DoRA: norm of the merged weight, W + B A, made anew in every pass without a graph. */
static void weight_norm(sim_model_t *m, const sim_adapter_dims_t *d)
{
    uint64_t bytes = d->in * d->out * m->d->e;
    sim_ref_t product = sim_new(m->b, "dora_product", bytes);
    sim_ref_t scaled = sim_new(m->b, "dora_scaled", bytes);
    sim_ref_t merged = sim_new(m->b, "dora_merged", bytes);
    sim_drop(m->b, product);
    sim_drop(m->b, scaled);
    sim_drop(m->b, merged);
}

sim_ref_t sim_adapter_forward(sim_model_t *m, const sim_adapter_dims_t *d, sim_adapter_save_t *save,
                              sim_ref_t x, sim_ref_t base_out, const char *out_name, bool grad)
{
    *save = sim_adapter_none();
    save->x = x;
    if (has_dropout(m, SIM_DROPOUT_PRE))
        drop_out(m, &save->x, &save->pre_mask, in_bytes(m, d));
    gather_again(m, d);
    save->mid = product_with_a(m, d);
    sim_ref_t b_out = product_with_b(m, d);
    sim_ref_t scaled = sim_new(m->b, "lora_scaled", out_bytes(m, d));
    sim_drop(m->b, b_out);
    if (has_dropout(m, SIM_DROPOUT_POST))
        drop_out(m, &scaled, &save->out_mask, out_bytes(m, d));
    bool dora = m->s->peft_scheme == SIM_PEFT_DORA;
    sim_ref_t out = sim_new(m->b, dora ? "dora_sum" : out_name, out_bytes(m, d));
    sim_drop(m->b, scaled);
    sim_drop(m->b, base_out);
    if (dora) {
        weight_norm(m, d);
        save->sum = out;
        out = sim_new(m->b, out_name, out_bytes(m, d));
    }
    if (!grad)
        sim_adapter_forget(m, save);
    return out;
}

/* Gradient of a weight of the adapter itself. */
static void weight_grad(sim_model_t *m, const sim_adapter_dims_t *d, uint64_t rows, uint64_t cols)
{
    for (uint64_t i = 0; i < d->n; i++)
        sim_drop(m->b, sim_trainable_weight_grad(m, rows, cols));
}

/* Gradient of mid, from that of the scaled output. */
static sim_ref_t backward_of_b(sim_model_t *m, const sim_adapter_dims_t *d, sim_ref_t d_scaled)
{
    bool is_split = gathers_output(d);
    uint64_t part = d->rows * d->out * m->d->e / d->tp;
    if (is_split && d->local_rows < d->rows)
        sim_replace(m, &d_scaled, "d_lora_out_gathered", d->rows * d->out * m->d->e);
    if (is_split)
        sim_replace(m, &d_scaled, "d_lora_out_part", part);
    sim_torch_gemm(m);
    sim_ref_t d_mid = sim_new(m->b, "d_lora_mid", mid_bytes(m, d));
    weight_grad(m, d, is_split ? d->out / d->tp : d->out, d->rank);
    sim_drop(m->b, d_scaled);
    return d_mid;
}

sim_ref_t sim_adapter_backward(sim_model_t *m, const sim_adapter_dims_t *d,
                               sim_adapter_save_t *save, sim_ref_t *d_out_p)
{
    if (m->s->peft_scheme == SIM_PEFT_DORA) {
        sim_replace(m, d_out_p, "d_dora_sum", out_bytes(m, d));
        sim_forget(m, &save->sum);
    }
    sim_ref_t g = sim_new(m->b, "d_lora_scaled", out_bytes(m, d));
    if (save->out_mask != SIM_REF_NONE)
        sim_replace(m, &g, "d_lora_dropped", out_bytes(m, d));
    sim_forget(m, &save->out_mask);
    g = backward_of_b(m, d, g);
    sim_forget(m, &save->mid);
    if (!d->is_row && d->tp > 1)
        sim_replace(m, &g, "d_lora_mid_part", mid_bytes(m, d) / d->tp);
    gather_again(m, d);
    sim_torch_gemm(m);
    sim_ref_t dx = sim_new(m->b, "d_lora_in", d->rows * d->in * m->d->e);
    weight_grad(m, d, d->is_row ? d->rank : d->rank / d->tp, d->in);
    sim_drop(m->b, g);
    if (d->regathers)
        sim_replace(m, &dx, "d_lora_in_local", in_bytes(m, d));
    if (save->pre_mask != SIM_REF_NONE)
        sim_replace(m, &dx, "d_lora_dropped", in_bytes(m, d));
    sim_forget(m, &save->pre_mask);
    sim_forget(m, &save->x);
    return dx;
}
