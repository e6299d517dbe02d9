/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/projection.h"

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

static void gemm(sim_model_t *m, bool is_grouped)
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
    gemm(m, d->n_weights > 0);
    if (d->full_out_bytes == 0)
        return sim_new(m->b, out_name, d->out_bytes);
    sim_ref_t full = sim_new(m->b, "linear_out_full", d->full_out_bytes);
    sim_ref_t out = sim_new(m->b, out_name, d->out_bytes);
    sim_drop(m->b, full);
    return out;
}

sim_ref_t sim_linear_forward(sim_model_t *m, const sim_linear_dims_t *d, sim_ref_t *x_p,
                             sim_ref_t x, const char *out_name, bool grad)
{
    sim_ref_t gathered = gather(m, "linear_in_gathered", d->full_in_bytes);
    sim_ref_t out = product(m, d, out_name);
    sim_drop(m->b, gathered);
    *x_p = x;
    if (!grad)
        sim_forget(m, x_p);
    return out;
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

/* The gathered gradient of the output, the input's (scattered where the input was gathered) and the
 * weight's. */
static sim_ref_t linear_grads(sim_model_t *m, const sim_linear_dims_t *d, const char *in_grad_name,
                              sim_ref_t *full_p, sim_ref_t *wgrad_p)
{
    gemm(m, d->n_weights > 0);
    *full_p = sim_new(m->b, "d_linear_in_full", d->full_in_bytes);
    sim_ref_t dx = sim_new(m->b, in_grad_name, d->in_bytes);
    *wgrad_p = weight_grad(m, d);
    return dx;
}

sim_ref_t sim_linear_backward(sim_model_t *m, const sim_linear_dims_t *d, sim_ref_t *x_p,
                              sim_ref_t d_out, const char *in_grad_name)
{
    sim_ref_t d_out_full = gather(m, "d_out_gathered", d->full_out_bytes);
    sim_ref_t in_gathered = gather(m, "linear_in_gathered", d->full_in_bytes);
    sim_ref_t full, wgrad;
    sim_ref_t dx = linear_grads(m, d, in_grad_name, &full, &wgrad);
    sim_drop(m->b, in_gathered);
    sim_drop(m->b, d_out_full);
    sim_forget(m, x_p);
    sim_drop(m->b, full);
    sim_drop(m->b, d_out);
    sim_drop(m->b, wgrad);
    return dx;
}

sim_ref_t sim_normed_linear_forward(sim_model_t *m, const sim_linear_dims_t *d,
                                    sim_norm_linear_t *save, sim_ref_t x, const char *out_name,
                                    bool grad)
{
    save->x = x;
    save->ln_out = sim_new(m->b, "ln_out", d->in_bytes);
    save->stat = sim_new(m->b, "norm_stat", stat_bytes(m, d->in_bytes, d->cols));
    sim_ref_t gathered = gather(m, "ln_out_gathered", d->full_in_bytes);
    sim_ref_t out = product(m, d, out_name);
    sim_drop(m->b, gathered);
    if (!grad) {
        sim_forget(m, &save->x);
        sim_forget(m, &save->ln_out);
        sim_forget(m, &save->stat);
    }
    return out;
}

sim_ref_t sim_normed_linear_backward(sim_model_t *m, const sim_linear_dims_t *d,
                                     sim_norm_linear_t *save, sim_ref_t d_out,
                                     const char *in_grad_name)
{
    sim_ref_t gathered = gather(m, "ln_out_gathered", d->full_in_bytes);
    sim_ref_t full, wgrad;
    sim_ref_t d_normed = linear_grads(m, d, "d_ln_out", &full, &wgrad);
    sim_forget(m, &save->ln_out);
    sim_drop(m->b, gathered);
    sim_ref_t dx = sim_new(m->b, in_grad_name, d->in_bytes);
    sim_drop(m->b, full);
    sim_drop(m->b, d_normed);
    sim_forget(m, &save->x);
    sim_forget(m, &save->stat);
    sim_drop(m->b, d_out);
    sim_drop(m->b, wgrad);
    return dx;
}
