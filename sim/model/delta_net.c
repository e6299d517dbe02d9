/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/delta_net.h"

#include "sim/base/units.h"
#include "sim/model/projection.h"
#include "sim/model/quant.h"

enum {
    CHUNK = 64, /* gdn.py, chunk_size */
    FP32_BYTES = 4,
};

/* Under context parallelism whole sequences of a part of the heads. */
static sim_dims_t whole_dims(const sim_dims_t *d)
{
    sim_dims_t whole = *d;
    sim_delta_net_dims_t *a = &whole.delta_net;
    whole.tokens *= d->cp;
    a->key_heads /= d->cp;
    a->value_heads /= d->cp;
    a->conv /= d->cp;
    a->proj_rows /= d->cp;
    return whole;
}

/* ---- sizes ---- */

static uint64_t proj_bytes(const sim_dims_t *d)
{
    return d->tokens * d->delta_net.proj_rows * d->e;
}

static uint64_t conv_bytes(const sim_dims_t *d)
{
    return d->tokens * d->delta_net.conv * d->e;
}

/* Queries and keys before they are repeated. */
static uint64_t qk_bytes(const sim_dims_t *d)
{
    return d->tokens * 2 * d->delta_net.key_heads * d->delta_net.key_dim * d->e;
}

/* A key, a value, a number of `element` bytes for each token and head of the values. */
static uint64_t key_bytes(const sim_dims_t *d)
{
    return d->tokens * d->delta_net.value_heads * d->delta_net.key_dim * d->e;
}

static uint64_t value_bytes(const sim_dims_t *d)
{
    return d->tokens * d->delta_net.value_heads * d->delta_net.value_dim * d->e;
}

static uint64_t number_bytes(const sim_dims_t *d, uint64_t element)
{
    return d->tokens * d->delta_net.value_heads * element;
}

/* A state of key times value for each chunk and head. */
static uint64_t state_bytes(const sim_dims_t *d)
{
    const sim_delta_net_dims_t *a = &d->delta_net;
    return d->b * base_u64_div_up(d->s, CHUNK) * a->value_heads * a->key_dim * a->value_dim * d->e;
}

static bool repeats_keys(const sim_dims_t *d)
{
    return d->delta_net.value_heads > d->delta_net.key_heads;
}

static bool recomputes_norm(const sim_model_t *m)
{
    return m->s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
           (m->s->recompute_modules & SIM_MODULE_GDN_NORM_OUT);
}

/* ---- between parts of the sequence and parts of the heads ---- */

/* An all-to-all, in the order of the sequence at its end: the copy that is sent, what arrives, and
 * what is put in order. Takes `x`. */
static sim_ref_t exchange(sim_model_t *m, sim_ref_t x, const char *name, uint64_t bytes)
{
    sim_ref_t send = sim_new(m->b, "delta_net_send", bytes);
    sim_ref_t received = sim_new(m->b, "delta_net_received", bytes);
    sim_drop(m->b, send);
    sim_ref_t out = sim_new(m->b, name, bytes);
    sim_drop(m->b, received);
    sim_drop(m->b, x);
    return out;
}

/* ---- forward ---- */

/* _prepare_input_for_gated_delta_rule(). Takes the convolution's output. */
static void prepare(sim_model_t *m, sim_delta_net_save_t *save, sim_ref_t conv, sim_ref_t *decay_p)
{
    const sim_dims_t *d = m->d;
    sim_ref_t joined = sim_new(m->b, "delta_net_qk_joined", qk_bytes(d));
    save->qk = sim_new(m->b, "delta_net_qk", qk_bytes(d));
    save->qk_stat =
        sim_new(m->b, "delta_net_qk_stat", FP32_BYTES * d->tokens * 2 * d->delta_net.key_heads);
    sim_drop(m->b, joined);
    save->q = sim_new(m->b, "delta_net_q", key_bytes(d));
    save->k = sim_new(m->b, "delta_net_k", key_bytes(d));
    *decay_p = sim_new(m->b, "delta_net_decay", number_bytes(d, FP32_BYTES));
    save->beta = sim_new(m->b, "delta_net_beta", number_bytes(d, d->e));
    save->v = sim_new(m->b, "delta_net_v", value_bytes(d));
    save->gate = sim_new(m->b, "delta_net_gate", value_bytes(d));
    sim_drop(m->b, conv);
}

/* chunk_gated_delta_rule_fwd(). Takes the decay. */
static void rule_forward(sim_model_t *m, sim_delta_net_save_t *save, sim_ref_t decay)
{
    const sim_dims_t *d = m->d;
    save->decay = sim_new(m->b, "delta_net_decay_sums", number_bytes(d, FP32_BYTES));
    save->inverse = sim_new(m->b, "delta_net_inverse", number_bytes(d, CHUNK * d->e));
    sim_ref_t w = sim_new(m->b, "delta_net_w", key_bytes(d));
    sim_ref_t u = sim_new(m->b, "delta_net_u", value_bytes(d));
    sim_ref_t states = sim_new(m->b, "delta_net_states", state_bytes(d));
    sim_ref_t v_new = sim_new(m->b, "delta_net_v_new", value_bytes(d));
    save->out = sim_new(m->b, "delta_net_out", value_bytes(d));
    sim_ref_t locals[] = { w, u, states, v_new, decay };
    for (size_t i = 0; i < sizeof(locals) / sizeof(locals[0]); i++)
        sim_drop(m->b, locals[i]);
}

/* _gated_norm_and_a2a(); `d` are sizes in the rule. Returns the output projection's input. */
static sim_ref_t norm_forward(sim_model_t *m, sim_delta_net_save_t *save, const sim_dims_t *d)
{
    save->normed = sim_new(m->b, "delta_net_normed", value_bytes(d));
    save->stat = sim_new(m->b, "delta_net_stat", number_bytes(d, FP32_BYTES));
    sim_ref_t out = sim_new(m->b, "delta_net_gated", value_bytes(d));
    if (d->b > 1)
        sim_replace(m, &out, "delta_net_gated_sbd", value_bytes(d));
    if (d->cp > 1)
        out = exchange(m, out, "delta_net_gated_parts", value_bytes(d));
    return out;
}

static void forget_norm(sim_model_t *m, sim_delta_net_save_t *save)
{
    sim_forget(m, &save->normed);
    sim_forget(m, &save->stat);
}

static void forget(sim_model_t *m, sim_delta_net_save_t *save)
{
    sim_ref_t *saved[] = { &save->projected, &save->qk,      &save->qk_stat, &save->q,
                           &save->k,         &save->v,       &save->gate,    &save->beta,
                           &save->decay,     &save->inverse, &save->out };
    for (size_t i = 0; i < sizeof(saved) / sizeof(saved[0]); i++)
        sim_forget(m, saved[i]);
}

sim_ref_t sim_delta_net_forward(sim_model_t *m, sim_delta_net_save_t *save, sim_ref_t x, bool grad)
{
    sim_dims_t whole = whole_dims(m->d);
    sim_model_t rule = *m;
    rule.d = &whole;
    m->b->module = SIM_MOD_DELTA_NET;
    save->projected =
        sim_norm_linear_forward(m, &save->in_proj, x, "delta_net_projected", proj_bytes(m->d));
    if (m->d->cp > 1) {
        sim_replace(m, &save->projected, "delta_net_by_head", proj_bytes(&whole));
        save->projected = exchange(m, save->projected, "delta_net_ordered", proj_bytes(&whole));
    }
    sim_ref_t conv = sim_new(m->b, "delta_net_conv", conv_bytes(&whole)), decay;
    prepare(&rule, save, conv, &decay);
    rule_forward(&rule, save, decay);
    sim_ref_t gated = norm_forward(m, save, &whole);
    uint64_t in_bytes = value_bytes(m->d);
    sim_ref_t out =
        sim_row_linear_forward(m, &save->out_proj, gated, in_bytes, "delta_net_proj_out");
    if (!grad || recomputes_norm(m))
        forget_norm(m, save);
    if (grad && recomputes_norm(m) && !sim_is_fp8(m)) /* in FP8 a copy is saved instead */
        sim_forget(m, &save->out_proj.x);
    if (!grad) {
        sim_norm_linear_forget(m, &save->in_proj);
        forget(m, save);
        sim_row_linear_forget(m, &save->out_proj);
    }
    return out;
}

/* ---- backward ---- */

typedef struct {
    sim_ref_t q, k, v, decay, beta;
} grads_t;

/* chunk_gated_delta_rule_bwd(). Takes the output's gradient. */
static grads_t rule_backward(sim_model_t *m, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    grads_t g;
    sim_ref_t w = sim_new(m->b, "delta_net_w", key_bytes(d));
    sim_ref_t u = sim_new(m->b, "delta_net_u", value_bytes(d));
    sim_ref_t states = sim_new(m->b, "delta_net_states", state_bytes(d));
    sim_ref_t v_new = sim_new(m->b, "delta_net_v_new", value_bytes(d));
    sim_ref_t d_local = sim_new(m->b, "d_delta_net_v_local", value_bytes(d));
    sim_ref_t d_states = sim_new(m->b, "d_delta_net_states", state_bytes(d));
    sim_ref_t d_u = sim_new(m->b, "d_delta_net_u", value_bytes(d));
    sim_drop(m->b, d_local);
    g.q = sim_new(m->b, "d_delta_net_q", key_bytes(d));
    g.k = sim_new(m->b, "d_delta_net_k", key_bytes(d));
    sim_ref_t parts = sim_new(m->b, "d_delta_net_decay_parts", number_bytes(d, FP32_BYTES));
    sim_ref_t d_w = sim_new(m->b, "d_delta_net_w", key_bytes(d));
    sim_ref_t sums = sim_new(m->b, "d_delta_net_decay_sums", number_bytes(d, FP32_BYTES));
    sim_drop(m->b, parts);
    sim_ref_t d_k = sim_new(m->b, "d_delta_net_k_rest", key_bytes(d));
    g.v = sim_new(m->b, "d_delta_net_v", value_bytes(d));
    sim_ref_t rest = sim_new(m->b, "d_delta_net_decay_rest", number_bytes(d, FP32_BYTES));
    g.beta = sim_new(m->b, "d_delta_net_beta", number_bytes(d, d->e));
    sim_drop(m->b, d_u);
    g.decay = sim_new(m->b, "d_delta_net_decay", number_bytes(d, FP32_BYTES));
    sim_ref_t locals[] = { sums, w, u, states, v_new, d_states, d_w, d_k, rest, d_out };
    for (size_t i = 0; i < sizeof(locals) / sizeof(locals[0]); i++)
        sim_drop(m->b, locals[i]);
    return g;
}

/* Gradients of what prepare() made, of the convolution, and of the parts of the projection, which
 * are joined. */
static sim_ref_t prepare_backward(sim_model_t *m, sim_delta_net_save_t *save, grads_t g,
                                  sim_ref_t d_gate)
{
    const sim_dims_t *d = m->d;
    if (repeats_keys(d)) {
        sim_replace(m, &g.q, "d_delta_net_q_sum", qk_bytes(d) / 2);
        sim_replace(m, &g.k, "d_delta_net_k_sum", qk_bytes(d) / 2);
    }
    sim_ref_t d_qk = sim_new(m->b, "d_delta_net_qk", qk_bytes(d));
    sim_drop(m->b, g.q);
    sim_drop(m->b, g.k);
    sim_replace(m, &d_qk, "d_delta_net_qk_raw", qk_bytes(d));
    sim_ref_t d_conv = sim_new(m->b, "d_delta_net_conv", conv_bytes(d));
    sim_drop(m->b, d_qk);
    sim_drop(m->b, g.v);
    sim_replace(m, &d_conv, "d_delta_net_conv_in", conv_bytes(d));
    sim_ref_t d_projected = sim_new(m->b, "d_delta_net_projected", proj_bytes(d));
    sim_ref_t parts[] = { d_conv, d_gate, g.decay, g.beta };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        sim_drop(m->b, parts[i]);
    forget(m, save);
    return d_projected;
}

/* Returns the gradient of the rule's output, and of the gate in *d_gate_p. */
static sim_ref_t norm_backward(sim_model_t *m, sim_delta_net_save_t *save, const sim_dims_t *d,
                               sim_ref_t g, sim_ref_t *d_gate_p)
{
    if (d->cp > 1)
        g = exchange(m, g, "d_delta_net_gated_whole", value_bytes(d));
    if (d->b > 1)
        sim_replace(m, &g, "d_delta_net_gated_bsd", value_bytes(d));
    sim_ref_t d_normed = sim_new(m->b, "d_delta_net_normed", value_bytes(d));
    *d_gate_p = sim_new(m->b, "d_delta_net_gate", value_bytes(d));
    sim_drop(m->b, g);
    sim_replace(m, &d_normed, "d_delta_net_out", value_bytes(d));
    forget_norm(m, save);
    return d_normed;
}

sim_ref_t sim_delta_net_backward(sim_model_t *m, sim_delta_net_save_t *save, sim_ref_t d_out)
{
    const sim_dims_t *d = m->d;
    sim_dims_t whole = whole_dims(d);
    sim_model_t rule = *m;
    rule.d = &whole;
    m->b->module = SIM_MOD_DELTA_NET;
    if (recomputes_norm(m)) {
        sim_ref_t again = norm_forward(m, save, &whole);
        if (sim_is_fp8(m))
            sim_drop(m->b, again);
        else
            save->out_proj.x = again;
    }
    sim_ref_t g =
        sim_row_linear_backward(m, &save->out_proj, d_out, "d_delta_net_gated", value_bytes(d),
                                d->delta_net.value_heads * d->delta_net.value_dim);
    sim_ref_t d_gate;
    g = norm_backward(m, save, &whole, g, &d_gate);
    g = prepare_backward(&rule, save, rule_backward(&rule, g), d_gate);
    if (d->cp > 1) {
        g = exchange(m, g, "d_delta_net_by_head", proj_bytes(&whole));
        sim_replace(m, &g, "d_delta_net_parts", proj_bytes(d));
    }
    return sim_norm_linear_backward(m, &save->in_proj, g, d->delta_net.proj_rows);
}
