/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/model/experts.h"
#include "sim/model/offload.h"
#include "sim/model/quant.h"

#include <stdlib.h>

static bool recomputes_act(const sim_model_t *m)
{
    return m->s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
           (m->s->recompute_modules & SIM_MODULE_MOE_ACT);
}

/* Fused: one function that saves its input and the weights. Else activation, product of a gated
 * unit and weighting are steps that save what they multiply. */
static bool is_act_fused(const sim_model_t *m)
{
    return (m->s->bias_activation_fusion && m->d->gate == 2) ||
           m->s->use_fused_weighted_squared_relu;
}

/* Product with the weights, which may be wider than the activations. */
static sim_ref_t weigh(sim_model_t *m, uint64_t bytes)
{
    const sim_dims_t *d = m->d;
    if (d->moe.prob_e <= d->e)
        return sim_new(m->b, "act_out", bytes);
    sim_ref_t wide = sim_new(m->b, "act_weighted", bytes / d->e * d->moe.prob_e);
    sim_ref_t out = sim_new(m->b, "act_out", bytes);
    sim_drop(m->b, wide);
    return out;
}

/* A recomputed activation has its whole input saved. */
static bool stores_act_in_fp8(const sim_model_t *m)
{
    return sim_stores_act_in_fp8(m) && !recomputes_act(m);
}

/* Takes over `fc1_out`. Without `grad` it stays until the caller lets go of save->act_in. */
static sim_ref_t act_forward(sim_model_t *m, sim_expert_save_t *save, sim_ref_t fc1_out,
                             uint64_t bytes, bool grad)
{
    save->act_in = fc1_out;
    save->gate_out = save->unweighted = SIM_REF_NONE;
    if (stores_act_in_fp8(m) && grad)
        save->act_in = sim_new(m->b, "fc1_out_fp8", bytes * m->d->gate / m->d->e);
    if (is_act_fused(m))
        return sim_new(m->b, "act_out", bytes);
    if (m->d->gate == 2)
        save->gate_out = sim_new(m->b, "gate_out", bytes);
    save->unweighted = sim_new(m->b, "act_unweighted", bytes);
    sim_ref_t out = weigh(m, bytes);
    if (!grad) {
        sim_forget(m, &save->gate_out);
        sim_forget(m, &save->unweighted);
    }
    return out;
}

static sim_ref_t act_backward(sim_model_t *m, sim_expert_save_t *save, sim_ref_t d_act,
                              uint64_t bytes)
{
    const sim_dims_t *d = m->d;
    if (!is_act_fused(m)) {
        if (d->moe.prob_e > d->e)
            sim_replace(m, &d_act, "d_act_wide", bytes / d->e * d->moe.prob_e);
        sim_ref_t d_unweighted = sim_new(m->b, "d_act_unweighted", bytes);
        sim_touch(m->b, "d_probs_products", bytes / d->e * d->moe.prob_e);
        sim_drop(m->b, d_act);
        sim_forget(m, &save->unweighted);
        d_act = d_unweighted;
    }
    sim_ref_t d_half = SIM_REF_NONE, in = SIM_REF_NONE;
    if (save->gate_out != SIM_REF_NONE)
        d_half = sim_new(m->b, "d_gate_out", bytes);
    if (stores_act_in_fp8(m))
        in = sim_new(m->b, "fc1_out", bytes * d->gate);
    sim_ref_t d_in = sim_new(m->b, "d_fc1_out", bytes * d->gate);
    sim_drop(m->b, in);
    sim_drop(m->b, d_half);
    sim_forget(m, &save->gate_out);
    sim_forget(m, &save->act_in);
    sim_drop(m->b, d_act);
    return d_in;
}

static sim_linear_dims_t fc1_dims(const sim_model_t *m, uint64_t rows, uint64_t n_weights)
{
    const sim_dims_t *d = m->d;
    /* Offloaded, the input is saved as it came unless it is in MXFP8 or NVFP4
     * (moe/experts.py). */
    bool offloaded = m->s->fine_grained_activation_offloading &&
                     (m->s->offload_modules & SIM_OFFLOAD_EXPERT_FC1) != 0;
    return (sim_linear_dims_t){ .name = "expert_fc1",
                                .keeps_input = offloaded && sim_recipe(m->s) != SIM_FP8_MXFP8 &&
                                               sim_recipe(m->s) != SIM_NVFP4,
                                .target = SIM_TARGET_FC1,
                                .is_expert = true,
                                .in_bytes = rows * d->moe.h * d->e,
                                .out_bytes = rows * d->gate * d->moe.ffn_etp * d->e,
                                .rows = d->gate * d->moe.ffn_etp,
                                .cols = d->moe.h,
                                .n_weights = n_weights };
}

static sim_linear_dims_t fc2_dims(const sim_model_t *m, uint64_t rows, uint64_t n_weights)
{
    const sim_dims_t *d = m->d;
    return (sim_linear_dims_t){ .name = "expert_fc2",
                                .target = SIM_TARGET_FC2,
                                .is_expert = true,
                                .keeps_input = recomputes_act(m),
                                .in_bytes = rows * d->moe.ffn_etp * d->e,
                                .out_bytes = rows * d->moe.h * d->e,
                                .rows = d->moe.h,
                                .cols = d->moe.ffn_etp,
                                .n_weights = n_weights };
}

/* Local variables keep input, first output and activation until the function returns. */
static sim_ref_t part_forward(sim_model_t *m, sim_expert_save_t *save, sim_ref_t x, uint64_t rows,
                              uint64_t n_weights, bool grad)
{
    sim_linear_dims_t fc1 = fc1_dims(m, rows, n_weights), fc2 = fc2_dims(m, rows, n_weights);
    bool grouped = n_weights > 0;
    sim_ref_t fc1_out = sim_linear_forward(m, &fc1, &save->fc1, x, "fc1_out", true);
    if (grouped && sim_offload_begin(m, SIM_OFFLOAD_EXPERT_FC1, grad)) {
        sim_offload_take(m, SIM_OFFLOAD_EXPERT_FC1, &save->fc1.x, m->d->e, true);
        sim_offload_take(m, SIM_OFFLOAD_EXPERT_FC1, &save->fc1.adapter.x, m->d->e, true);
    }
    sim_ref_t act = act_forward(m, save, fc1_out, fc2.in_bytes, grad);
    sim_ref_t out = sim_linear_forward(m, &fc2, &save->fc2, act, "fc2_out", true);
    if (grad && stores_act_in_fp8(m))
        sim_drop(m->b, fc1_out);
    if (!grad || recomputes_act(m)) {
        sim_linear_drop_input(m, &save->fc2);
        sim_forget(m, &save->gate_out);
        sim_forget(m, &save->unweighted);
    }
    if (!grad) {
        sim_linear_forget(m, &save->fc1);
        sim_linear_forget(m, &save->fc2);
        sim_forget(m, &save->act_in);
    }
    if (grouped && sim_offload_begin(m, SIM_OFFLOAD_MOE_ACT, grad)) {
        sim_offload_take(m, SIM_OFFLOAD_MOE_ACT, &save->act_in, m->d->e, true);
        sim_offload_take(m, SIM_OFFLOAD_MOE_ACT, &save->gate_out, m->d->e, false);
        sim_offload_take(m, SIM_OFFLOAD_MOE_ACT, &save->unweighted, m->d->e, false);
    }
    return out;
}

static sim_ref_t part_backward(sim_model_t *m, sim_expert_save_t *save, sim_ref_t d_out,
                               uint64_t rows, uint64_t n_weights)
{
    sim_linear_dims_t fc1 = fc1_dims(m, rows, n_weights), fc2 = fc2_dims(m, rows, n_weights);
    sim_offload_before_backward(m, SIM_OFFLOAD_MOE_ACT);
    if (recomputes_act(m)) {
        sim_ref_t in = save->act_in;
        sim_ref_t act = act_forward(m, save, in, fc2.in_bytes, true);
        sim_linear_give_input(m, &fc2, &save->fc2, act);
    }
    sim_ref_t g = sim_linear_backward(m, &fc2, &save->fc2, d_out, "d_act_out");
    g = act_backward(m, save, g, fc2.in_bytes);
    sim_offload_after_backward(m, SIM_OFFLOAD_MOE_ACT);
    sim_offload_before_backward(m, SIM_OFFLOAD_EXPERT_FC1);
    g = sim_linear_backward(m, &fc1, &save->fc1, g, "d_expert_in");
    sim_offload_after_backward(m, SIM_OFFLOAD_EXPERT_FC1);
    return g;
}

/* Rows of the i-th of n parts of an even split. */
static uint64_t part_rows(uint64_t rows, uint32_t n, uint32_t i)
{
    return rows / n + (i < rows % n);
}

/* One expert after the other; their outputs are joined at the end. */
static sim_ref_t sequential_forward(sim_model_t *m, sim_experts_save_t *save, sim_ref_t x,
                                    uint64_t rows, bool grad)
{
    uint32_t n = save->n_parts;
    sim_ref_t *outs = base_xcalloc(n, sizeof(*outs));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t part = part_rows(rows, n, i);
        outs[i] = part == 0 ? SIM_REF_NONE
                            : part_forward(m, &save->parts[i], sim_keep(m->b, x), part, 0, grad);
    }
    sim_drop(m->b, x);
    sim_ref_t out = outs[0];
    if (n > 1) {
        out = sim_new(m->b, "experts_out", rows * m->d->moe.h * m->d->e);
        for (uint32_t i = 0; i < n; i++)
            sim_drop(m->b, outs[i]);
    }
    free(outs);
    return out;
}

static sim_ref_t sequential_backward(sim_model_t *m, sim_experts_save_t *save, sim_ref_t d_out,
                                     uint64_t rows)
{
    uint32_t n = save->n_parts;
    sim_ref_t *grads = base_xcalloc(n, sizeof(*grads));
    for (uint32_t i = n; i-- > 0;) {
        uint64_t part = part_rows(rows, n, i);
        grads[i] = part == 0 ? SIM_REF_NONE
                             : part_backward(m, &save->parts[i], sim_keep(m->b, d_out), part, 0);
    }
    sim_drop(m->b, d_out);
    sim_ref_t g = grads[0];
    if (n > 1) {
        g = sim_new(m->b, "d_experts_in", rows * m->d->moe.h * m->d->e);
        for (uint32_t i = 0; i < n; i++)
            sim_drop(m->b, grads[i]);
    }
    free(grads);
    return g;
}

/* FP8 products want the rows of each expert padded. DeepEP and HybridEP pad them on the way, the
 * other dispatchers leave it to the experts (moe_utils.py, skip_routed_expert_padding()). */
static bool pads_rows(const sim_model_t *m)
{
    return sim_is_fp8(m) && m->s->moe_grouped_gemm &&
           m->s->moe_token_dispatcher_type != SIM_DISPATCHER_FLEX;
}

/* The second linear's bias, times the rows' weights, is added expert by expert, and the parts are
 * joined. */
static sim_ref_t add_bias(sim_model_t *m, sim_ref_t out, uint64_t bytes)
{
    if (!m->s->add_bias_linear)
        return out;
    sim_ref_t parts = sim_new(m->b, "experts_out_biased", bytes);
    sim_replace(m, &out, "experts_out_joined", bytes);
    sim_drop(m->b, parts);
    return out;
}

/* The caller holds the input until the experts return, and the padded copy is a local variable. */
static sim_ref_t grouped_forward(sim_model_t *m, sim_experts_save_t *save, sim_ref_t x,
                                 uint64_t rows, bool grad)
{
    uint64_t bytes = rows * m->d->moe.h * m->d->e;
    uint64_t n = m->d->moe.n_local;
    if (!sim_is_fp8(m))
        return add_bias(m, part_forward(m, &save->parts[0], x, rows, n, grad), bytes);
    sim_ref_t in = sim_keep(m->b, x);
    if (pads_rows(m))
        sim_replace(m, &x, "experts_in_padded", bytes);
    sim_ref_t padded = sim_keep(m->b, x);
    sim_ref_t out = add_bias(m, part_forward(m, &save->parts[0], x, rows, n, grad), bytes);
    if (pads_rows(m))
        sim_replace(m, &out, "experts_out_unpadded", bytes);
    sim_drop(m->b, padded);
    sim_drop(m->b, in);
    return out;
}

static sim_ref_t grouped_backward(sim_model_t *m, sim_experts_save_t *save, sim_ref_t d_out,
                                  uint64_t rows)
{
    uint64_t bytes = rows * m->d->moe.h * m->d->e;
    if (pads_rows(m))
        sim_replace(m, &d_out, "d_experts_out_padded", bytes);
    if (m->s->add_bias_linear)
        sim_touch(m->b, "d_bias_products", bytes);
    sim_ref_t g = part_backward(m, &save->parts[0], d_out, rows, m->d->moe.n_local);
    if (pads_rows(m))
        sim_replace(m, &g, "d_experts_in_unpadded", bytes);
    return g;
}

sim_ref_t sim_experts_forward(sim_model_t *m, sim_experts_save_t *save, sim_ref_t x,
                              sim_ref_t probs, uint64_t rows, bool grad)
{
    m->b->module = SIM_MOD_EXPERTS;
    save->n_parts = m->s->moe_grouped_gemm ? 1 : (uint32_t)m->d->moe.n_local;
    save->parts = base_xcalloc(save->n_parts, sizeof(*save->parts));
    save->probs = probs;
    sim_ref_t out;
    if (m->s->moe_grouped_gemm)
        out = grouped_forward(m, save, x, rows, grad);
    else
        out = sequential_forward(m, save, x, rows, grad);
    if (!grad) {
        sim_forget(m, &save->probs);
        free(save->parts);
        save->parts = NULL;
    }
    return out;
}

sim_ref_t sim_experts_backward(sim_model_t *m, sim_experts_save_t *save, sim_ref_t d_out,
                               uint64_t rows)
{
    m->b->module = SIM_MOD_EXPERTS;
    sim_ref_t g;
    if (m->s->moe_grouped_gemm)
        g = grouped_backward(m, save, d_out, rows);
    else
        g = sequential_backward(m, save, d_out, rows);
    sim_forget(m, &save->probs);
    free(save->parts);
    save->parts = NULL;
    return g;
}
