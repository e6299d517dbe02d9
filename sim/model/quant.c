/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/quant.h"

#include "sim/base/units.h"

#include <stdio.h>

/* MXFP8: a byte of scale for 32 elements. Blockwise: an fp32 scale for 128 elements of an
 * activation (weights have one for 128 x 128, which is less than a thousandth and counted the
 * same). */
enum { MX_BLOCK = 32, BLOCK_ELEMENTS = 128, BLOCK_SCALE_BYTES = 4 };

bool sim_is_fp8(const sim_model_t *m)
{
    const sim_scenario_t *s = m->s;
    uint16_t layer = m->b->layer;
    if (s->fp8 == SIM_FP8_NONE || !m->d->te || layer == SIM_NO_LAYER)
        return false;
    /* Layers of multi-token prediction are not among the first and last ones. */
    if (!s->first_last_layers_bf16 || layer >= s->num_layers)
        return true;
    return layer >= s->num_layers_at_start_in_bf16 &&
           layer + s->num_layers_at_end_in_bf16 < s->num_layers;
}

bool sim_is_per_tensor(const sim_model_t *m)
{
    return m->s->fp8_recipe == SIM_FP8_DELAYED || m->s->fp8_recipe == SIM_FP8_TENSORWISE;
}

uint64_t sim_row_bytes(const sim_model_t *m, uint64_t n)
{
    if (m->s->fp8_recipe == SIM_FP8_MXFP8)
        return n + base_u64_div_up(n, MX_BLOCK);
    if (m->s->fp8_recipe == SIM_FP8_BLOCKWISE)
        return n + base_u64_div_up(n, BLOCK_ELEMENTS) * BLOCK_SCALE_BYTES;
    return n;
}

uint64_t sim_col_bytes(const sim_model_t *m, uint64_t n)
{
    return sim_is_per_tensor(m) && m->d->sm >= 100 ? 0 : sim_row_bytes(m, n);
}

sim_quantized_t sim_quantize(sim_model_t *m, const char *name, uint64_t n, bool rows, bool cols)
{
    /* Where there is no copy by columns the one by rows serves both. */
    bool only_rows = sim_col_bytes(m, n) == 0;
    return (sim_quantized_t){
        .row = rows || only_rows ? sim_new(m->b, name, sim_row_bytes(m, n)) : SIM_REF_NONE,
        .col = cols && !only_rows ? sim_new(m->b, name, sim_col_bytes(m, n)) : SIM_REF_NONE,
    };
}

sim_ref_t sim_keep_for_wgrad(sim_model_t *m, sim_quantized_t *q)
{
    sim_ref_t kept = q->col != SIM_REF_NONE ? q->col : q->row;
    if (q->col != SIM_REF_NONE)
        sim_drop(m->b, q->row);
    *q = (sim_quantized_t){ SIM_REF_NONE, SIM_REF_NONE };
    return kept;
}

void sim_drop_quantized(sim_model_t *m, sim_quantized_t *q)
{
    sim_drop(m->b, q->row);
    sim_drop(m->b, q->col);
    *q = (sim_quantized_t){ SIM_REF_NONE, SIM_REF_NONE };
}

sim_ref_t sim_fp8_weight(sim_model_t *m, uint64_t rows, uint64_t cols)
{
    return sim_fp8_weight_of(m, sim_module_name((sim_module_t)m->b->module), rows * cols);
}

sim_ref_t sim_fp8_weight_of(sim_model_t *m, const char *linear, uint64_t n)
{
    bool is_param = m->s->fp8_param_gather;
    uint64_t bytes = sim_col_bytes(m, n) + (is_param ? 0 : sim_row_bytes(m, n));
    if (!is_param && m->s->disable_parameter_transpose_cache)
        return sim_new(m->b, "fp8_weight", bytes);
    if (bytes > 0) {
        char key[64];
        snprintf(key, sizeof(key), "%s[%u].%s", is_param ? "fp8_transpose" : "fp8_weight",
                 m->b->layer, linear);
        sim_persist(m->b, (sim_module_t)m->b->module, key, bytes);
    }
    return SIM_REF_NONE;
}
