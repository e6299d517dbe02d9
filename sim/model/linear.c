/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/model/layer.h"
#include "sim/model/software.h"
#include "sim/model/workspace.h"

#include <inttypes.h>
#include <stdio.h>

void sim_te_gemm(sim_model_t *m)
{
    sim_persist(m->b, SIM_MOD_LIBRARY, "te_cublas_workspace", sim_te_workspace_bytes(m->d->sm));
}

void sim_torch_gemm(sim_model_t *m)
{
    sim_persist(m->b, SIM_MOD_LIBRARY,
                m->b->in_forward ? "cublas_workspace_forward" : "cublas_workspace_backward",
                sim_torch_workspace_bytes(m->s));
}

static void gemm(sim_model_t *m)
{
    if (m->d->te)
        sim_te_gemm(m);
    else
        sim_torch_gemm(m);
}

sim_ref_t sim_weight_grad(sim_model_t *m, uint64_t rows, uint64_t cols)
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
    if (!m->d->sp)
        return SIM_REF_NONE;
    if (m->d->te)
        return sim_new(m->b, name, m->d->full_hidden_bytes);
    sim_persist(m->b, SIM_MOD_LIBRARY, "mpu_buffer", m->d->full_hidden_bytes);
    return SIM_REF_NONE;
}

sim_ref_t sim_norm_linear_forward(sim_model_t *m, sim_norm_linear_t *save, sim_ref_t x,
                                  const char *out_name, uint64_t out_bytes)
{
    save->x = x;
    save->ln_out = sim_new(m->b, "ln_out", m->d->hidden_bytes);
    save->stat = sim_new(m->b, "norm_stat", m->d->norm_stat_bytes);
    sim_ref_t gathered = gather(m, "ln_out_gathered");
    gemm(m);
    sim_ref_t out = sim_new(m->b, out_name, out_bytes);
    sim_drop(m->b, gathered);
    return out;
}

sim_ref_t sim_norm_linear_backward(sim_model_t *m, sim_norm_linear_t *save, sim_ref_t d_out,
                                   uint64_t rows)
{
    sim_ref_t gathered = gather(m, "ln_out_gathered");
    gemm(m);
    sim_ref_t d_full = sim_new(m->b, "d_ln_out", m->d->full_hidden_bytes);
    sim_ref_t d_local =
        m->d->sp ? sim_new(m->b, "d_ln_out_local", m->d->hidden_bytes) : SIM_REF_NONE;
    sim_ref_t wgrad = sim_weight_grad(m, rows, m->d->h);
    sim_drop(m->b, save->ln_out);
    sim_drop(m->b, gathered);
    sim_ref_t dx = sim_new(m->b, "d_x", m->d->hidden_bytes);
    sim_drop(m->b, d_full);
    sim_drop(m->b, d_local);
    sim_drop(m->b, save->x);
    sim_drop(m->b, save->stat);
    sim_drop(m->b, d_out);
    sim_drop(m->b, wgrad);
    return dx;
}

sim_ref_t sim_row_linear_forward(sim_model_t *m, sim_row_linear_t *save, sim_ref_t x,
                                 const char *out_name)
{
    save->x = x;
    gemm(m);
    if (!m->d->sp)
        return sim_new(m->b, out_name, m->d->full_hidden_bytes);
    sim_ref_t full = sim_new(m->b, "row_out_full", m->d->full_hidden_bytes);
    sim_ref_t out = sim_new(m->b, out_name, m->d->hidden_bytes);
    sim_drop(m->b, full);
    return out;
}

sim_ref_t sim_row_linear_backward(sim_model_t *m, sim_row_linear_t *save, sim_ref_t d_out,
                                  const char *in_grad_name, uint64_t in_bytes, uint64_t cols)
{
    sim_ref_t gathered = gather(m, "d_out_gathered");
    gemm(m);
    sim_ref_t dx = sim_new(m->b, in_grad_name, in_bytes);
    sim_ref_t wgrad = sim_weight_grad(m, m->d->h, cols);
    sim_drop(m->b, gathered);
    sim_drop(m->b, save->x);
    sim_drop(m->b, d_out);
    sim_drop(m->b, wgrad);
    return dx;
}
