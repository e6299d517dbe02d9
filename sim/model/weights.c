/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/weights.h"

#include "sim/base/xmem.h"
#include "sim/model/projection.h"

#include <assert.h>
#include <stdlib.h>

sim_weight_work_t sim_weight_work(const sim_model_t *m, bool is_grouped)
{
    bool is_te = m->d->te && m->b->module != SIM_MOD_OUTPUT;
    sim_weight_gemm_t by_te = is_grouped ? SIM_WEIGHT_BY_TE_GROUPED : SIM_WEIGHT_BY_TE;
    return (sim_weight_work_t){ .layer = m->b->layer,
                                .module = m->b->module,
                                .gemm = (uint8_t)(is_te ? by_te : SIM_WEIGHT_BY_TORCH) };
}

void sim_weight_operand(sim_model_t *m, sim_weight_work_t *work, sim_ref_t ref)
{
    if (!sim_leaves_weights(m)) {
        sim_drop(m->b, ref);
    } else if (ref != SIM_REF_NONE) {
        assert(work->n_operands < SIM_MAX_OPERANDS);
        work->operands[work->n_operands++] = ref;
    }
}

void sim_weight_operands(sim_model_t *m, sim_weight_work_t *work, sim_quantized_t *q)
{
    sim_weight_operand(m, work, q->row);
    sim_weight_operand(m, work, q->col);
    *q = (sim_quantized_t){ SIM_REF_NONE, SIM_REF_NONE };
}

void sim_weight_later(sim_model_t *m, const sim_weight_work_t *work)
{
    if (!sim_leaves_weights(m))
        return;
    sim_weights_later_t *later = m->later;
    if (later->n == later->cap) {
        later->cap = later->cap * 2 + 64;
        later->works = base_xrealloc(later->works, later->cap, sizeof(*later->works));
    }
    later->works[later->n++] = *work;
    for (uint32_t i = 0; i < work->n_operands; i++) {
        uint32_t slot = m->b->built[work->operands[i]].slot;
        later->borders |= slot < SIM_N_SLOTS_FIXED ? 1U << slot : 0;
    }
}

void sim_weights_compute(sim_model_t *m)
{
    sim_weights_later_t *later = m->later;
    uint16_t layer = m->b->layer;
    uint8_t module = m->b->module;
    for (uint32_t i = 0; i < later->n; i++) {
        const sim_weight_work_t *work = &later->works[i];
        m->b->layer = work->layer;
        m->b->module = work->module;
        sim_persist(m->b, SIM_MOD_LIBRARY, "mpu_buffer", work->gather_bytes);
        if (work->gemm == SIM_WEIGHT_BY_TORCH)
            sim_torch_gemm(m);
        else
            sim_linear_gemm(m, work->gemm == SIM_WEIGHT_BY_TE_GROUPED);
        for (uint32_t k = 0; k < work->n_operands; k++)
            sim_drop(m->b, work->operands[k]);
    }
    m->b->layer = layer;
    m->b->module = module;
    later->n = 0;
}

void sim_experts_weights_begin(sim_model_t *m, sim_weights_later_t *later)
{
    if (!m->s->overlap_dispatch_backward_with_experts_wgrad)
        return;
    assert(m->later == NULL);
    m->later = later;
}

void sim_experts_weights_end(sim_model_t *m)
{
    if (!m->s->overlap_dispatch_backward_with_experts_wgrad)
        return;
    m->experts_later = m->later;
    m->later = NULL;
}

void sim_experts_weights_compute(sim_model_t *m)
{
    if (m->experts_later == NULL)
        return;
    m->later = m->experts_later;
    sim_weights_compute(m);
    m->later = m->experts_later = NULL;
}

void sim_weights_later_fini(sim_weights_later_t *later)
{
    free(later->works);
    *later = (sim_weights_later_t){ 0 };
}
