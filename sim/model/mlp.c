/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/layer.h"

/* Fused bias-gelu, bias-swiglu and bias-geglu are autograd functions that save their input alone
 * (fusions/fused_bias_gelu.py, fused_bias_swiglu.py). Squared ReLU runs as two PyTorch operations:
 * relu, whose result the power saves, and the power. Unfused gelu adds the bias into a new tensor
 * first; an unfused gated unit saves the activated half too. */
sim_ref_t sim_act_forward(sim_model_t *m, sim_act_save_t *save, sim_ref_t fc1_out)
{
    const sim_dims_t *d = m->d;
    bool fused = m->s->bias_activation_fusion;
    save->in = fc1_out;
    save->extra = SIM_REF_NONE;
    if (m->s->activation_func == SIM_ACT_SQUARED_RELU) {
        save->in = sim_new(m->b, "relu_out", d->fc1_bytes);
        sim_drop(m->b, fc1_out);
    } else if (!fused && m->s->add_bias_linear) {
        save->in = sim_new(m->b, "fc1_biased", d->fc1_bytes);
        sim_drop(m->b, fc1_out);
    }
    if (!fused && d->gate == 2)
        save->extra = sim_new(m->b, "gate_out", d->act_bytes);
    if (!sim_stores_act_in_fp8(m))
        return sim_new(m->b, "act_out", d->act_bytes);
    save->in = sim_new(m->b, "fc1_out_fp8", d->fc1_bytes / d->e);
    sim_ref_t out = sim_new(m->b, "act_out", d->act_bytes);
    sim_drop(m->b, fc1_out);
    return out;
}

sim_ref_t sim_act_backward(sim_model_t *m, sim_act_save_t *save, sim_ref_t d_act)
{
    sim_ref_t d_half = SIM_REF_NONE;
    if (save->extra != SIM_REF_NONE)
        d_half = sim_new(m->b, "d_gate_out", m->d->act_bytes);
    sim_ref_t in =
        sim_stores_act_in_fp8(m) ? sim_new(m->b, "fc1_out", m->d->fc1_bytes) : SIM_REF_NONE;
    sim_ref_t d_in = sim_new(m->b, "d_fc1_out", m->d->fc1_bytes);
    sim_drop(m->b, in);
    sim_drop(m->b, d_half);
    sim_drop(m->b, save->extra);
    sim_drop(m->b, save->in);
    sim_drop(m->b, d_act);
    return d_in;
}

sim_ref_t sim_bda_forward(sim_model_t *m, sim_bda_t *save, sim_ref_t x, sim_ref_t residual,
                          const char *out_name)
{
    save->mask = SIM_REF_NONE;
    sim_ref_t biased = SIM_REF_NONE;
    if (!m->s->bias_dropout_fusion && m->s->add_bias_linear)
        biased = sim_new(m->b, "biased", m->d->hidden_bytes);
    sim_ref_t out;
    if (m->s->hidden_dropout > 0.0) {
        sim_ref_t dropped =
            m->s->bias_dropout_fusion ? SIM_REF_NONE : sim_new(m->b, "dropped", m->d->hidden_bytes);
        save->mask = sim_new(m->b, "dropout_mask", m->d->local_tokens * m->d->h);
        out = sim_new(m->b, out_name, m->d->hidden_bytes);
        sim_drop(m->b, dropped);
    } else {
        out = sim_new(m->b, out_name, m->d->hidden_bytes);
    }
    sim_drop(m->b, biased);
    sim_drop(m->b, x);
    sim_drop(m->b, residual);
    return out;
}

sim_ref_t sim_bda_backward(sim_model_t *m, sim_bda_t *save, sim_ref_t d_out)
{
    if (save->mask == SIM_REF_NONE)
        return sim_keep(m->b, d_out);
    sim_ref_t d_x = sim_new(m->b, "d_dropout", m->d->hidden_bytes);
    sim_drop(m->b, save->mask);
    return d_x;
}
