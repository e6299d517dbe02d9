/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/experts.h"

static bool is_overlapped(const sim_model_t *m)
{
    return m->s->moe_shared_expert_overlap;
}

/* Overlapped, the linears do not communicate: their input and output are whole already. */
static sim_linear_dims_t fc1_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    bool gathers = d->sp && !is_overlapped(m);
    return (sim_linear_dims_t){
        .name = "shared_fc1",
        .target = SIM_TARGET_FC1,
        .keeps_input = true,
        .in_bytes = is_overlapped(m) ? d->full_hidden_bytes : d->hidden_bytes,
        .full_in_bytes = gathers ? d->full_hidden_bytes : 0,
        .out_bytes = d->tokens * d->gate * d->moe.shared_ffn * d->e,
        .rows = d->gate * d->moe.shared_ffn,
        .cols = d->h,
    };
}

static sim_linear_dims_t fc2_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    bool scatters = d->sp && !is_overlapped(m);
    return (sim_linear_dims_t){
        .name = "shared_fc2",
        .target = SIM_TARGET_FC2,
        .in_bytes = d->tokens * d->moe.shared_ffn * d->e,
        .out_bytes = scatters ? d->hidden_bytes : d->full_hidden_bytes,
        .full_out_bytes = scatters ? d->full_hidden_bytes : 0,
        .rows = d->h,
        .cols = d->moe.shared_ffn,
    };
}

static sim_ref_t act_forward(sim_model_t *m, sim_expert_save_t *save, sim_ref_t fc1_out,
                             uint64_t bytes)
{
    save->act_in = fc1_out;
    save->unweighted = save->gate_out = SIM_REF_NONE;
    if (!m->s->bias_activation_fusion && m->d->gate == 2)
        save->gate_out = sim_new(m->b, "gate_out", bytes);
    if (!sim_stores_act_in_fp8(m))
        return sim_new(m->b, "act_out", bytes);
    save->act_in = sim_new(m->b, "fc1_out_fp8", bytes * m->d->gate / m->d->e);
    sim_ref_t out = sim_new(m->b, "act_out", bytes);
    sim_drop(m->b, fc1_out);
    return out;
}

static sim_ref_t act_backward(sim_model_t *m, sim_expert_save_t *save, sim_ref_t d_act,
                              uint64_t bytes)
{
    sim_ref_t d_half = SIM_REF_NONE;
    if (save->gate_out != SIM_REF_NONE)
        d_half = sim_new(m->b, "d_gate_out", bytes);
    sim_ref_t in =
        sim_stores_act_in_fp8(m) ? sim_new(m->b, "fc1_out", bytes * m->d->gate) : SIM_REF_NONE;
    sim_ref_t d_in = sim_new(m->b, "d_fc1_out", bytes * m->d->gate);
    sim_drop(m->b, in);
    sim_drop(m->b, d_half);
    sim_forget(m, &save->gate_out);
    sim_forget(m, &save->act_in);
    sim_drop(m->b, d_act);
    return d_in;
}

static sim_ref_t fc1_and_act(sim_model_t *m, sim_shared_save_t *save, sim_ref_t x, bool grad)
{
    sim_linear_dims_t fc1 = fc1_dims(m), fc2 = fc2_dims(m);
    sim_ref_t fc1_out = sim_linear_forward(m, &fc1, &save->mlp.fc1, x, "fc1_out", grad);
    sim_ref_t act = act_forward(m, &save->mlp, fc1_out, fc2.in_bytes);
    if (!grad) {
        sim_forget(m, &save->mlp.act_in);
        sim_forget(m, &save->mlp.gate_out);
    }
    return act;
}

/* sigmoid(x * gate_weight), one number a token, times the output. */
static sim_ref_t apply_gate(sim_model_t *m, sim_shared_save_t *save, sim_ref_t out, bool grad)
{
    save->gated = SIM_REF_NONE;
    if (!m->s->moe_shared_expert_gate)
        return out;
    sim_torch_gemm(m);
    save->gated = out;
    out = sim_new(m->b, "shared_gated", m->d->hidden_bytes);
    if (!grad)
        sim_forget(m, &save->gated);
    return out;
}

static sim_ref_t gate_backward(sim_model_t *m, sim_shared_save_t *save, sim_ref_t d_out)
{
    if (save->gated == SIM_REF_NONE)
        return sim_keep(m->b, d_out);
    sim_ref_t g = sim_new(m->b, "d_shared_out", m->d->hidden_bytes);
    sim_touch(m->b, "d_gate_products", m->d->hidden_bytes);
    sim_forget(m, &save->gated);
    return g;
}

static sim_ref_t run(sim_model_t *m, sim_shared_save_t *save, sim_ref_t x, bool grad)
{
    sim_linear_dims_t fc2 = fc2_dims(m);
    sim_ref_t act = fc1_and_act(m, save, sim_keep(m->b, x), grad);
    sim_ref_t out = sim_linear_forward(m, &fc2, &save->mlp.fc2, act, "shared_out", grad);
    return apply_gate(m, save, out, grad);
}

static bool recomputes(const sim_model_t *m)
{
    return m->s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
           (m->s->recompute_modules & SIM_MODULE_SHARED_EXPERTS);
}

sim_ref_t sim_shared_forward(sim_model_t *m, sim_shared_save_t *save, sim_ref_t x, bool grad)
{
    m->b->module = SIM_MOD_SHARED_EXPERTS;
    save->checkpoint = SIM_REF_NONE;
    if (grad && recomputes(m)) {
        save->checkpoint = sim_keep(m->b, x);
        grad = false;
    }
    return run(m, save, x, grad);
}

sim_ref_t sim_shared_backward(sim_model_t *m, sim_shared_save_t *save, sim_ref_t d_out)
{
    m->b->module = SIM_MOD_SHARED_EXPERTS;
    if (save->checkpoint != SIM_REF_NONE) {
        sim_drop(m->b, run(m, save, save->checkpoint, true));
        sim_forget(m, &save->checkpoint);
    }
    sim_linear_dims_t fc1 = fc1_dims(m), fc2 = fc2_dims(m);
    sim_ref_t g = gate_backward(m, save, d_out);
    g = sim_linear_backward(m, &fc2, &save->mlp.fc2, g, "d_act_out");
    g = act_backward(m, &save->mlp, g, fc2.in_bytes);
    return sim_linear_backward(m, &fc1, &save->mlp.fc1, g, "d_shared_in");
}

void sim_shared_begin(sim_model_t *m, sim_shared_save_t *save, sim_ref_t x)
{
    m->b->module = SIM_MOD_SHARED_EXPERTS;
    save->in =
        m->d->sp ? sim_new(m->b, "shared_in_gathered", m->d->full_hidden_bytes) : sim_keep(m->b, x);
}

void sim_shared_first(sim_model_t *m, sim_shared_save_t *save, bool grad)
{
    m->b->module = SIM_MOD_SHARED_EXPERTS;
    save->act = fc1_and_act(m, save, save->in, grad);
    save->in = SIM_REF_NONE;
}

sim_ref_t sim_shared_second(sim_model_t *m, sim_shared_save_t *save, bool grad)
{
    m->b->module = SIM_MOD_SHARED_EXPERTS;
    sim_linear_dims_t fc2 = fc2_dims(m);
    sim_ref_t out = sim_linear_forward(m, &fc2, &save->mlp.fc2, save->act, "shared_out", grad);
    save->act = SIM_REF_NONE;
    if (m->d->sp)
        sim_replace(m, &out, "shared_out_local", m->d->hidden_bytes);
    return apply_gate(m, save, out, grad);
}

void sim_shared_second_backward(sim_model_t *m, sim_shared_save_t *save, sim_ref_t d_out)
{
    m->b->module = SIM_MOD_SHARED_EXPERTS;
    sim_linear_dims_t fc2 = fc2_dims(m);
    sim_ref_t g = gate_backward(m, save, d_out);
    if (m->d->sp)
        sim_replace(m, &g, "d_shared_out_gathered", m->d->full_hidden_bytes);
    save->d_act = sim_linear_backward(m, &fc2, &save->mlp.fc2, g, "d_act_out");
}

sim_ref_t sim_shared_first_backward(sim_model_t *m, sim_shared_save_t *save)
{
    m->b->module = SIM_MOD_SHARED_EXPERTS;
    sim_linear_dims_t fc1 = fc1_dims(m), fc2 = fc2_dims(m);
    sim_ref_t g = act_backward(m, &save->mlp, save->d_act, fc2.in_bytes);
    save->d_act = SIM_REF_NONE;
    g = sim_linear_backward(m, &fc1, &save->mlp.fc1, g, "d_shared_in");
    if (m->d->sp)
        sim_replace(m, &g, "d_shared_in_local", m->d->hidden_bytes);
    return g;
}
