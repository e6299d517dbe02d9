/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/quant.h"

#include "sim/base/units.h"
#include "sim/model/adapter.h"

#include <stdio.h>

/* MXFP8: a byte of scale for 32 elements. Blockwise: an fp32 scale for 128 elements of an
 * activation (weights have one for 128 x 128, which is less than a thousandth and counted the
 * same). NVFP4: a byte for 16 elements, of which two are in a byte. */
enum { NV_BLOCK = 16, MX_BLOCK = 32, BLOCK_ELEMENTS = 128, BLOCK_SCALE_BYTES = 4 };

bool sim_layer_is_quantized(const sim_scenario_t *s, uint64_t layer)
{
    /* Layers of multi-token prediction (multi_token_prediction.py): never in FP4, and always in FP8
     * since they are not among the first and last ones. */
    if (!sim_is_quantized(s) || layer >= s->num_layers)
        return s->fp8 != SIM_FP8_NONE;
    return !s->first_last_layers_bf16 || (layer >= s->num_layers_at_start_in_bf16 &&
                                          layer + s->num_layers_at_end_in_bf16 < s->num_layers);
}

bool sim_is_fp8(const sim_model_t *m)
{
    uint16_t layer = m->b->layer;
    return m->d->te && layer != SIM_NO_LAYER && sim_layer_is_quantized(m->s, layer);
}

bool sim_is_per_tensor(const sim_model_t *m)
{
    return sim_recipe(m->s) == SIM_FP8_DELAYED || sim_recipe(m->s) == SIM_FP8_TENSORWISE;
}

uint64_t sim_row_bytes(const sim_model_t *m, uint64_t n)
{
    if (sim_recipe(m->s) == SIM_NVFP4)
        return n / 2 + base_u64_div_up(n, NV_BLOCK);
    if (sim_recipe(m->s) == SIM_FP8_MXFP8)
        return n + base_u64_div_up(n, MX_BLOCK);
    if (sim_recipe(m->s) == SIM_FP8_BLOCKWISE)
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

/* NVFP4 that is gathered keeps its rows although only columns are read again
 * (module/layernorm_linear.py); one block stands for both. */
sim_quantized_t sim_quantize_norm_out(sim_model_t *m, uint64_t n, bool is_gathered)
{
    sim_fp8_recipe_t recipe = sim_recipe(m->s);
    bool is_fused = recipe == SIM_FP8_DELAYED || recipe == SIM_FP8_MXFP8;
    bool wgrad = !sim_is_frozen(m);
    bool keeps_both = wgrad && is_gathered && recipe == SIM_NVFP4;
    bool cols = wgrad && !(is_gathered && sim_is_per_tensor(m));
    sim_ref_t out = is_fused ? SIM_REF_NONE : sim_new(m->b, "ln_out", n * m->d->e);
    sim_quantized_t q = { SIM_REF_NONE, SIM_REF_NONE };
    if (keeps_both)
        q.col = sim_new(m->b, "ln_out_fp4", sim_row_bytes(m, n) + sim_col_bytes(m, n));
    else
        q = sim_quantize(m, "ln_out_fp8", n, true, cols);
    sim_drop(m->b, out);
    return q;
}

sim_quantized_t sim_gather_for_wgrad(sim_model_t *m, const char *name, uint64_t n, bool is_received)
{
    bool twice = sim_is_per_tensor(m) || sim_recipe(m->s) == SIM_NVFP4;
    return (sim_quantized_t){
        .row = is_received ? SIM_REF_NONE : sim_new(m->b, name, sim_row_bytes(m, n)),
        .col = twice ? sim_new(m->b, name, sim_col_bytes(m, n)) : SIM_REF_NONE,
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
    bool is_param = sim_has_quantized_params(m->s);
    uint64_t bytes = sim_col_bytes(m, n) + (is_param ? 0 : sim_row_bytes(m, n));
    if (is_param && sim_recipe(m->s) == SIM_NVFP4)
        bytes += base_u64_div_up(n, NV_BLOCK); /* scales of the rows */
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
