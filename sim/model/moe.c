/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/moe.h"

#include "sim/model/cuda_graph.h"
#include "sim/model/node.h"
#include "sim/model/weights.h"

static bool recomputes(const sim_model_t *m, sim_recompute_module_t module)
{
    return m->s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
           (m->s->recompute_modules & module);
}

/* The shared experts' state for the dispatcher, which runs them where they overlap. */
static sim_shared_save_t *overlapped(const sim_model_t *m, sim_moe_save_t *save)
{
    bool is = m->d->moe.shared_ffn > 0 && m->s->moe_shared_expert_overlap;
    return is ? &save->shared : NULL;
}

static bool runs_shared_first(const sim_model_t *m)
{
    return m->d->moe.shared_ffn > 0 && !m->s->moe_shared_expert_overlap;
}

static sim_linear_dims_t latent_in_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    return (sim_linear_dims_t){ .name = "latent_in",
                                .in_bytes = d->hidden_bytes,
                                .out_bytes = d->local_tokens * d->moe.latent * d->e,
                                .rows = d->moe.latent,
                                .cols = d->h };
}

static sim_linear_dims_t latent_out_dims(const sim_model_t *m)
{
    const sim_dims_t *d = m->d;
    return (sim_linear_dims_t){ .name = "latent_out",
                                .in_bytes = d->local_tokens * d->moe.latent * d->e,
                                .out_bytes = d->hidden_bytes,
                                .rows = d->h,
                                .cols = d->moe.latent };
}

/* `x` is borrowed. The sum with the shared experts is a new tensor, or in place where they overlap.
 */
static sim_ref_t layer_forward(sim_model_t *m, sim_moe_save_t *save, sim_ref_t x, bool grad)
{
    sim_ref_t shared_out = SIM_REF_NONE, probs;
    if (runs_shared_first(m))
        shared_out = sim_shared_forward(m, &save->shared, x, grad);
    sim_router_forward(m, &save->router, x, grad);
    sim_cuda_graph_end_router(m);
    sim_ref_t in = sim_keep(m->b, x);
    if (m->d->moe.latent > 0) {
        sim_linear_dims_t dims = latent_in_dims(m);
        in = sim_linear_forward(m, &dims, &save->latent_in, in, "latent_in", grad);
    }
    sim_shared_save_t *shared = overlapped(m, save);
    sim_ref_t t = sim_dispatch_in(m, &save->dispatch, in, &probs, shared, grad);
    sim_drop(m->b, in);
    t = sim_experts_forward(m, &save->experts, t, probs,
                            sim_moe_rows(m->s, m->d, m->b->layer).expert, grad);
    t = sim_dispatch_out(m, &save->dispatch, t, shared, &shared_out, grad);
    if (m->d->moe.latent > 0) {
        sim_linear_dims_t dims = latent_out_dims(m);
        t = sim_linear_forward(m, &dims, &save->latent_out, t, "latent_out", grad);
    }
    if (runs_shared_first(m))
        sim_replace(m, &t, "moe_out", m->d->hidden_bytes);
    sim_drop(m->b, shared_out);
    sim_dispatch_release(m, &save->dispatch);
    return t;
}

sim_ref_t sim_moe_forward(sim_model_t *m, sim_moe_save_t *save, sim_ref_t x, bool grad)
{
    const sim_dims_t *d = m->d;
    bool again = grad && recomputes(m, SIM_MODULE_MOE);
    bool norm_again = grad && recomputes(m, SIM_MODULE_LAYERNORM);
    m->b->module = SIM_MOD_ROUTER;
    sim_ref_t ln_out = sim_norm_forward(m, &save->norm, x, "ln_out", d->hidden_bytes, d->h, grad);
    save->checkpoint = again ? sim_keep(m->b, ln_out) : SIM_REF_NONE;
    sim_ref_t out = layer_forward(m, save, ln_out, grad && !again);
    save->ln_out = SIM_REF_NONE;
    if (norm_again) {
        save->ln_out = ln_out;
        sim_discard(m->b, ln_out);
    } else {
        sim_drop(m->b, ln_out);
    }
    return out;
}

/* Gradients of one tensor from several users are added to the first in place. */
static void add(sim_model_t *m, sim_ref_t *sum_p, sim_ref_t g)
{
    if (*sum_p == SIM_REF_NONE)
        *sum_p = g;
    else
        sim_drop(m->b, g);
}

static sim_ref_t layer_backward(sim_model_t *m, sim_moe_save_t *save, sim_ref_t d_out)
{
    sim_shared_save_t *shared = overlapped(m, save);
    sim_ref_t d_shared = SIM_REF_NONE, sum = SIM_REF_NONE;
    if (shared != NULL)
        sim_shared_second_backward(m, shared, d_out);
    sim_ref_t g = sim_keep(m->b, d_out);
    if (m->nodes != NULL) {
        /* The shared experts' output was detached; its gradient is a copy. */
        sim_node_hold(m, d_out);
        d_out =
            runs_shared_first(m) ? sim_new(m->b, "d_shared_out", m->d->hidden_bytes) : SIM_REF_NONE;
    }
    m->b->module = SIM_MOD_DISPATCH;
    if (m->d->moe.latent > 0) {
        sim_linear_dims_t dims = latent_out_dims(m);
        g = sim_linear_backward(m, &dims, &save->latent_out, g, "d_latent_out");
    }
    g = sim_dispatch_out_backward(m, &save->dispatch, g);
    sim_weights_later_t later = { 0 };
    sim_experts_weights_begin(m, &later);
    g = sim_experts_backward(m, &save->experts, g, sim_moe_rows(m->s, m->d, m->b->layer).expert);
    sim_experts_weights_end(m);
    g = sim_dispatch_in_backward(m, &save->dispatch, g, shared, &d_shared);
    sim_weights_later_fini(&later);
    if (m->d->moe.latent > 0) {
        sim_linear_dims_t dims = latent_in_dims(m);
        g = sim_linear_backward(m, &dims, &save->latent_in, g, "d_latent_in");
    }
    sim_cuda_graph_begin_router_backward(m);
    add(m, &sum, g);
    if (d_shared != SIM_REF_NONE)
        add(m, &sum, d_shared);
    add(m, &sum, sim_router_backward(m, &save->router));
    if (runs_shared_first(m))
        add(m, &sum, sim_shared_backward(m, &save->shared, d_out));
    sim_drop(m->b, d_out);
    return sum;
}

sim_ref_t sim_moe_backward(sim_model_t *m, sim_moe_save_t *save, sim_ref_t d_out)
{
    sim_restore(m->b, save->ln_out);
    if (save->checkpoint != SIM_REF_NONE) {
        sim_drop(m->b, layer_forward(m, save, save->checkpoint, true));
        sim_forget(m, &save->checkpoint);
    }
    sim_ref_t g = layer_backward(m, save, d_out);
    m->b->module = SIM_MOD_ROUTER;
    sim_forget(m, &save->ln_out);
    return sim_norm_backward(m, &save->norm, g, m->d->hidden_bytes);
}
