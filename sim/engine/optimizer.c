/* SPDX-License-Identifier: Apache-2.0
 * Optimizer state and step. Megatron-LM optimizer/{optimizer,distrib_optimizer,clip_grads}.py,
 * training/utils.py (calc_params_l2_norm); TransformerEngine pytorch/optimizers/fused_adam.py. */
#include "config.h"

#include "sim/engine/fsdp.h"
#include "sim/engine/fsdp2.h"
#include "sim/model/software.h"

enum { FP32_BYTES = 4 };

static bool has_16_bit_params(const sim_player_t *p)
{
    return p->scenario->bf16 || p->scenario->fp16;
}

uint64_t sim_player_grad_bytes(const sim_player_t *p)
{
    return p->scenario->accumulate_allreduce_grads_in_fp32 ? FP32_BYTES : p->dims.e;
}

/* Dynamic loss scaling starts at 2^32 and halves at every second overflow (hysteresis 2), so the
 * first steps of an fp16 run are skipped: Megatron-LM --initial-loss-scale, --hysteresis. */
bool sim_player_is_step_skipped(const sim_scenario_t *scenario, uint32_t iteration)
{
    return scenario->fp16 && iteration <= 2;
}

/* With the precision-aware optimizer Transformer Engine's Adam makes and keeps the main parameters
 * itself, unless they are fp32 and the FP8 recipe is another one than delayed scaling. The recipe
 * counts although nothing may be in FP8: OptimizerConfig.__post_init__(). */
static bool adam_owns_main_params(const sim_player_t *p)
{
    const sim_scenario_t *s = p->scenario;
    bool is_other = s->main_params_dtype == SIM_DTYPE_FP32 && s->fp8_recipe != SIM_FP8_DELAYED &&
                    !s->optimizer_cpu_offload;
    return s->use_precision_aware_optimizer && has_16_bit_params(p) && !is_other;
}

/* bf16 parameters are the upper half of their fp32 main parameters, so that the lower half, two
 * bytes, is all that has to be stored. */
static uint64_t main_param_bytes(const sim_player_t *p)
{
    const sim_scenario_t *s = p->scenario;
    if (s->main_params_dtype == SIM_DTYPE_FP32 && s->bf16 && s->store_param_remainders)
        return 2;
    return sim_dtype_bytes(s->main_params_dtype);
}

static bool add_state(sim_player_t *p, sim_statics_t *list, const sim_param_t *param,
                      const char *name, uint64_t bytes)
{
    sim_tensor_t tensor = { .name = name,
                            .bytes = bytes,
                            .layer = param->layer,
                            .category = SIM_CAT_OPTIMIZER,
                            .module = SIM_MOD_OPTIMIZER };
    return sim_player_add_static(p, list, &tensor, 0);
}

bool sim_player_touch(sim_player_t *p, const sim_param_t *param, const char *name, uint64_t bytes)
{
    sim_tensor_t tensor = { .name = name,
                            .bytes = bytes,
                            .layer = param->layer,
                            .category = SIM_CAT_TEMPORARY,
                            .module = SIM_MOD_OPTIMIZER };
    sim_block_t block = SIM_BLOCK_NONE;
    if (!sim_player_alloc(p, &tensor, bytes, 0, &block))
        return false;
    sim_player_free(p, &tensor, block);
    return true;
}

/* A 16-bit clone is made, converted, and let go. */
bool sim_player_convert_param(sim_player_t *p, sim_statics_t *list, const sim_param_t *param,
                              uint64_t n_elements)
{
    sim_tensor_t clone = { .name = "main_param_clone",
                           .bytes = n_elements * p->dims.e,
                           .layer = param->layer,
                           .category = SIM_CAT_TEMPORARY,
                           .module = SIM_MOD_OPTIMIZER };
    sim_block_t block = SIM_BLOCK_NONE;
    if (!sim_player_alloc(p, &clone, clone.bytes, 0, &block) ||
        !add_state(p, list, param, "main_param", n_elements * FP32_BYTES))
        return false;
    sim_player_free(p, &clone, block);
    return true;
}

static bool add_main_param(sim_player_t *p, const sim_param_t *param, uint64_t n_elements,
                           void *arg)
{
    (void)arg;
    return sim_player_convert_param(p, &p->optimizer, param, n_elements);
}

bool sim_player_build_optimizer(sim_player_t *p)
{
    p->now.phase = SIM_PHASE_OPTIMIZER_BUILD;
    if (p->scenario->optimizer_cpu_offload)
        return sim_player_build_offloaded(p);
    if (!has_16_bit_params(p) || adam_owns_main_params(p))
        return true; /* the parameters are their own main parameters, or the step makes them */
    return sim_player_foreach_owned(p, add_main_param, NULL);
}

static uint64_t moment_bytes(const sim_player_t *p, sim_dtype_t dtype)
{
    return p->scenario->use_precision_aware_optimizer ? sim_dtype_bytes(dtype) : FP32_BYTES;
}

static bool add_moments(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    const sim_scenario_t *s = p->scenario;
    (void)arg;
    if (s->optimizer == SIM_OPTIMIZER_SGD || sim_param_is_orthogonalized(s, param))
        return add_state(p, &p->optimizer, param, "momentum", n_elements * FP32_BYTES);
    if (s->optimizer == SIM_OPTIMIZER_MUON && s->muon_scalar_optimizer == SIM_SCALAR_LION)
        return add_state(p, &p->optimizer, param, "exp_avg", n_elements * FP32_BYTES);
    return add_state(p, &p->optimizer, param, "exp_avg",
                     n_elements * moment_bytes(p, s->exp_avg_dtype)) &&
           add_state(p, &p->optimizer, param, "exp_avg_sq",
                     n_elements * moment_bytes(p, s->exp_avg_sq_dtype)) &&
           (!adam_owns_main_params(p) ||
            add_state(p, &p->optimizer, param, "main_param", n_elements * main_param_bytes(p)));
}

/* States that the kernel cannot read as they are stored become fp32 for the step, those of all
 * parameters at once. Two bf16 moments have a kernel of their own. */
static uint64_t n_converted_states(const sim_player_t *p)
{
    const sim_scenario_t *s = p->scenario;
    if (!s->use_precision_aware_optimizer || s->optimizer != SIM_OPTIMIZER_ADAM)
        return 0;
    bool as_stored = s->exp_avg_dtype == SIM_DTYPE_BF16 && s->exp_avg_sq_dtype == SIM_DTYPE_BF16 &&
                     sim_software_has(s, SIM_SOFTWARE_ADAM_BF16_MOMENTS);
    uint64_t n = 0;
    if (!as_stored)
        n += (s->exp_avg_dtype != SIM_DTYPE_FP32) + (s->exp_avg_sq_dtype != SIM_DTYPE_FP32);
    return n + (adam_owns_main_params(p) && s->main_params_dtype == SIM_DTYPE_FP16);
}

static bool add_converted(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    sim_statics_t *list = arg;
    sim_tensor_t tensor = { .name = "state_fp32",
                            .bytes = n_elements * FP32_BYTES,
                            .layer = param->layer,
                            .category = SIM_CAT_TEMPORARY,
                            .module = SIM_MOD_OPTIMIZER };
    for (uint64_t i = 0; i < n_converted_states(p); i++)
        if (!sim_player_add_static(p, list, &tensor, 0))
            return false;
    return true;
}

bool sim_player_make_moments(sim_player_t *p)
{
    if (!p->has_moments && !sim_player_foreach_owned(p, add_moments, NULL))
        return false;
    p->has_moments = true;
    return true;
}

static bool update(sim_player_t *p)
{
    if (p->scenario->optimizer_cpu_offload)
        return sim_player_step_offloaded(p);
    if (!sim_player_make_moments(p))
        return false;
    if (p->scenario->optimizer == SIM_OPTIMIZER_MUON && !sim_player_orthogonalize(p))
        return false;
    bool ok = n_converted_states(p) == 0 ||
              sim_player_foreach_owned(p, add_converted, &p->step_temporaries);
    if (ok)
        sim_player_free_statics(p, &p->step_temporaries);
    return ok;
}

static bool add_grad_copy(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    (void)arg;
    return add_state(p, &p->grad_copies, param, "main_grad_copy", n_elements * FP32_BYTES);
}

/* torch.count_nonzero() compares into one byte an element. */
static bool count_zeros(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    (void)arg;
    return sim_player_touch(p, param, "nonzero_mask", n_elements);
}

static bool has_grad_copies(const sim_player_t *p)
{
    return has_16_bit_params(p) && sim_player_grad_bytes(p) != FP32_BYTES &&
           !adam_owns_main_params(p);
}

/* Where nobody but Adam has main parameters, the norm of the parameters converts all of them. */
static bool params_norm(sim_player_t *p)
{
    sim_statics_t *list = &p->step_temporaries;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const sim_params_t *params = &p->chunks[c].chunk.params;
        for (uint32_t i = 0; i < params->n; i++) {
            sim_tensor_t tensor = { .name = "param_fp32",
                                    .bytes = params->params[i].n_elements * FP32_BYTES,
                                    .layer = params->params[i].layer,
                                    .category = SIM_CAT_TEMPORARY,
                                    .module = SIM_MOD_OPTIMIZER };
            if (!sim_player_add_static(p, list, &tensor, 0))
                return false;
        }
    }
    sim_player_free_statics(p, list);
    return true;
}

static bool step(sim_player_t *p, bool is_skipped)
{
    const sim_scenario_t *s = p->scenario;
    if (sim_is_titan(s))
        return sim_titan_step(p);
    if (s->use_torch_fsdp2)
        return sim_fsdp2_step(p, is_skipped);
    if (s->use_megatron_fsdp)
        return sim_fsdp_step(p, is_skipped);
    if (has_grad_copies(p) && !sim_player_foreach_owned(p, add_grad_copy, NULL))
        return false;
    if (is_skipped)
        return true;
    if (s->log_num_zeros_in_grad && !sim_player_foreach_owned(p, count_zeros, NULL))
        return false;
    if (!update(p) || (p->sharding == SIM_SHARDING_DEALT && !sim_player_send_dealt(p)))
        return false;
    return !s->log_params_norm || !adam_owns_main_params(p) || params_norm(p);
}

/* Gradients kept in 16 bits are copied to fp32 before the step, also before one that is then
 * skipped because of an overflow; the copies stay until the next zero_grad. An Adam that owns the
 * main parameters reads the buffer as it is. The cache is emptied as in Megatron-LM's train_step().
 */
bool sim_player_step(sim_player_t *p, bool is_skipped)
{
    const uint64_t empty_level = p->scenario->empty_unused_memory_level;
    p->now.phase = SIM_PHASE_OPTIMIZER_STEP;
    p->now.microbatch = 0;
    if (empty_level >= 1)
        sim_alloc_empty_cache(p->alloc);
    if (!step(p, is_skipped))
        return false;
    if (empty_level >= 2)
        sim_alloc_empty_cache(p->alloc);
    return true;
}
