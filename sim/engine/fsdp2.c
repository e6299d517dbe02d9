/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/fsdp2.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/model/titan.h"

#include <stdlib.h>

/* Results of gathering are made on the stream that copies into them, sharded gradients on that of
 * the reduction. */
enum { GATHER_STREAM = 0x2000, REDUCE_STREAM = 0x2001, FP32_BYTES = 4 };

static uint32_t index_of(const sim_fsdp2_t *f, uint32_t unit)
{
    if (unit == SIM_UNIT_HEAD || (unit == SIM_UNIT_EMBEDDING && f->has_ends))
        return f->n - 1;
    return unit == SIM_UNIT_EMBEDDING ? 0 : unit + f->has_embedding;
}

static uint32_t unit_of(const sim_param_t *param, const topo_chunk_t *place)
{
    if (param->layer != SIM_NO_LAYER)
        return param->layer - place->first_layer;
    return param->module == SIM_MOD_EMBEDDING ? SIM_UNIT_EMBEDDING : SIM_UNIT_HEAD;
}

static void clear(sim_fsdp2_storage_t *storage)
{
    storage->block = SIM_BLOCK_NONE;
}

/* apply_fsdp() of torchtitan leaves what backward needs first, by default, as it was gathered: the
 * last block, where the ends are the root's, else the output layer. A root always keeps its
 * parameters to the end of backward. */
static bool reshards(const sim_scenario_t *s, const sim_fsdp2_t *f, uint32_t i)
{
    if (!f->is_titan)
        return s->torch_fsdp2_reshard_after_forward;
    bool is_head = i + 1 == f->n && f->n > f->n_layers + f->has_embedding;
    bool is_last_layer = i + 1 == f->has_embedding + f->n_layers;
    if (is_head && f->has_ends)
        return false;
    if (s->fsdp_reshard_after_forward != SIM_RESHARD_DEFAULT)
        return s->fsdp_reshard_after_forward == SIM_RESHARD_ALWAYS;
    return s->pipeline_model_parallel_size == 1 && !is_head && !(f->has_ends && is_last_layer);
}

static void init_units(sim_fsdp2_t *f, const sim_scenario_t *s)
{
    f->units = base_xcalloc(f->n, sizeof(*f->units));
    for (uint32_t i = 0; i < f->n; i++) {
        clear(&f->units[i].gathered);
        clear(&f->units[i].grads);
        clear(&f->units[i].sharded_grad);
        f->units[i].reshards = reshards(s, f, i);
    }
}

static void add_param(sim_fsdp2_unit_t *unit, const sim_param_t *param, uint64_t n_ranks,
                      uint64_t e)
{
    uint64_t rows = param->is_vector ? param->n_elements : param->rows;
    uint64_t n_elements = base_u64_round_up(rows, n_ranks) * (param->n_elements / rows);
    unit->param_bytes =
        base_xrealloc(unit->param_bytes, unit->n_params + 1, sizeof(*unit->param_bytes));
    unit->param_elements =
        base_xrealloc(unit->param_elements, unit->n_params + 1, sizeof(*unit->param_elements));
    unit->params = base_xrealloc(unit->params, unit->n_params + 1, sizeof(*unit->params));
    unit->sums = base_xrealloc(unit->sums, unit->n_params + 1, sizeof(*unit->sums));
    clear(&unit->params[unit->n_params]);
    clear(&unit->sums[unit->n_params]);
    unit->param_elements[unit->n_params] = n_elements;
    unit->param_bytes[unit->n_params++] = n_elements * e;
    unit->gathered_bytes += n_elements * e;
    unit->n_elements += n_elements;
}

sim_fsdp2_t *sim_fsdp2_create(const sim_scenario_t *s, const sim_params_t *params,
                              const topo_chunk_t *place)
{
    sim_fsdp2_t *f = base_xcalloc(1, sizeof(*f));
    uint64_t n_ranks = (uint64_t)s->grid.dp * s->grid.cp / s->data_parallel_replicate_degree;
    uint64_t e = sim_dtype_bytes(sim_scenario_params_dtype(s));
    f->is_titan = sim_is_titan(s);
    f->has_ends = f->is_titan && sim_titan_root_has_ends(s);
    f->adds_up = f->is_titan && s->pipeline_model_parallel_size > 1;
    f->shard_e = f->is_titan ? FP32_BYTES : e;
    f->param_e = e;
    f->reduce_e = f->is_titan ? sim_dtype_bytes(s->mixed_precision_reduce) : e;
    f->n_layers = place->n_layers;
    f->has_embedding = place->has_embedding && !f->has_ends;
    f->n =
        f->n_layers + f->has_embedding + (place->has_loss || (f->has_ends && place->has_embedding));
    f->last_gathered = f->n;
    clear(&f->reduce_input);
    init_units(f, s);
    for (uint32_t i = 0; i < params->n; i++) {
        const sim_param_t *param = &params->params[i];
        bool is_fp8 =
            s->enable_fsdp_float8_all_gather && param->layer != SIM_NO_LAYER && !param->is_vector;
        add_param(&f->units[index_of(f, unit_of(param, place))], param, n_ranks, is_fp8 ? 1 : e);
    }
    for (uint32_t i = 0; i < f->n; i++)
        f->units[i].n_owned = f->units[i].n_elements / n_ranks;
    return f;
}

void sim_fsdp2_destroy(sim_fsdp2_t *f)
{
    if (f == NULL)
        return;
    for (uint32_t i = 0; i < f->n; i++) {
        free(f->units[i].param_bytes);
        free(f->units[i].param_elements);
        free(f->units[i].params);
        free(f->units[i].sums);
    }
    free(f->units);
    free(f);
}

/* ---- storage ---- */

static bool take(sim_player_t *p, sim_fsdp2_storage_t *storage, const char *name,
                 sim_category_t category, uint64_t bytes, uint64_t stream)
{
    if (storage->block != SIM_BLOCK_NONE)
        return true;
    storage->tensor = (sim_tensor_t){ .name = name,
                                      .bytes = bytes,
                                      .layer = SIM_NO_LAYER,
                                      .category = (uint8_t)category,
                                      .module = SIM_MOD_DDP };
    return sim_player_alloc(p, &storage->tensor, storage->tensor.bytes, stream, &storage->block);
}

static void drop(sim_player_t *p, sim_fsdp2_storage_t *storage)
{
    if (storage->block != SIM_BLOCK_NONE)
        sim_player_free(p, &storage->tensor, storage->block);
    clear(storage);
}

/* ---- parameters ---- */

static bool is_unsharded(const sim_fsdp2_unit_t *unit)
{
    return unit->n_params > 0 && unit->params[0].block != SIM_BLOCK_NONE;
}

/* foreach_all_gather(): shards in another type are converted first. */
static bool gather(sim_player_t *p, const sim_fsdp2_t *f, sim_fsdp2_unit_t *unit)
{
    if (is_unsharded(unit) || unit->gathered.block != SIM_BLOCK_NONE ||
        unit->n_owned == unit->n_elements)
        return true;
    sim_fsdp2_storage_t cast = { .block = SIM_BLOCK_NONE };
    uint64_t n_ranks = unit->n_elements / unit->n_owned;
    if (f->shard_e != f->param_e && !take(p, &cast, "gather_input", SIM_CAT_PARAMETERS,
                                          unit->gathered_bytes / n_ranks, GATHER_STREAM))
        return false;
    bool ok = take(p, &unit->gathered, "gathered_params", SIM_CAT_PARAMETERS, unit->gathered_bytes,
                   GATHER_STREAM);
    drop(p, &cast);
    return ok;
}

static bool take_params(sim_player_t *p, sim_fsdp2_unit_t *unit)
{
    for (uint32_t i = 0; i < unit->n_params; i++)
        if (!take(p, &unit->params[i], "unit_params", SIM_CAT_PARAMETERS, unit->param_bytes[i], 0))
            return false;
    return true;
}

static void drop_params(sim_player_t *p, sim_fsdp2_unit_t *unit)
{
    for (uint32_t i = 0; i < unit->n_params; i++)
        drop(p, &unit->params[i]);
}

static void drop_last_gathered(sim_player_t *p, sim_fsdp2_t *f)
{
    if (f->last_gathered < f->n)
        drop(p, &f->units[f->last_gathered].gathered);
    f->last_gathered = f->n;
}

/* wait_for_unshard(): what was received is copied into the parameters; a forward pass keeps it
 * until the next unit's has come. */
static bool unshard(sim_player_t *p, sim_fsdp2_t *f, uint32_t i, bool is_forward)
{
    sim_fsdp2_unit_t *unit = &f->units[i];
    if (is_unsharded(unit))
        return true;
    if (!gather(p, f, unit))
        return false;
    if (is_forward && f->last_gathered != i)
        drop_last_gathered(p, f);
    if (!take_params(p, unit))
        return false;
    if (is_forward)
        f->last_gathered = i;
    else
        drop(p, &unit->gathered);
    return true;
}

/* ---- gradients ---- */

/* Gradients of the unit: torchtitan's tape has them as tensors; Megatron-LM's layers are taken to
 * have made them all. */
static bool take_grads(sim_player_t *p, const sim_fsdp2_t *f, sim_fsdp2_unit_t *unit)
{
    return f->is_titan ||
           take(p, &unit->grads, "unit_grads", SIM_CAT_GRADIENTS, unit->n_elements * f->param_e, 0);
}

/* post_backward(): the parameters go, the gradients are copied into the input of the reduction,
 * which stays until the next one. */
static bool reduce(sim_player_t *p, sim_fsdp2_t *f, uint32_t i)
{
    sim_fsdp2_unit_t *unit = &f->units[i];
    if (!take_grads(p, f, unit))
        return false;
    drop_params(p, unit);
    drop(p, &f->reduce_input);
    if (!take(p, &f->reduce_input, "reduce_input", SIM_CAT_GRADIENTS,
              unit->n_elements * f->reduce_e, 0))
        return false;
    drop(p, &unit->grads);
    for (uint32_t k = 0; k < unit->n_params; k++)
        drop(p, &unit->sums[k]);
    if (unit->sharded_grad.block == SIM_BLOCK_NONE && f->reduce_e == f->shard_e)
        return take(p, &unit->sharded_grad, "sharded_grad", SIM_CAT_GRADIENTS,
                    unit->n_owned * f->reduce_e, REDUCE_STREAM);
    /* Converted to the type of the shards, or added to the gradient so far. */
    sim_fsdp2_storage_t output = { .block = SIM_BLOCK_NONE };
    if (!take(p, &output, "reduce_output", SIM_CAT_GRADIENTS, unit->n_owned * f->reduce_e,
              REDUCE_STREAM) ||
        !take(p, &unit->sharded_grad, "sharded_grad", SIM_CAT_GRADIENTS, unit->n_owned * f->shard_e,
              REDUCE_STREAM))
        return false;
    drop(p, &output);
    return true;
}

/* to_accumulated_grad_if_needed(), accumulate_unsharded_grad_if_needed(): in the type of the
 * reduction. */
static bool add_up(sim_player_t *p, const sim_fsdp2_t *f, sim_fsdp2_unit_t *unit)
{
    for (uint32_t i = 0; i < unit->n_params; i++)
        if (!take(p, &unit->sums[i], "summed_grad", SIM_CAT_GRADIENTS,
                  unit->param_elements[i] * f->reduce_e, 0))
            return false;
    return true;
}

/* torch/distributed/pipelining/stage.py, run_post_backward(): the root first. Nothing lets the last
 * input of a reduction go before the next one. */
static bool reduce_all(sim_player_t *p, sim_fsdp2_t *f)
{
    bool has_root = f->has_ends && f->n > f->n_layers;
    if (has_root && !reduce(p, f, f->n - 1))
        return false;
    for (uint32_t i = 0; i < f->n - has_root; i++)
        if (!reduce(p, f, i))
            return false;
    return true;
}

static bool finish_pass(sim_player_t *p, sim_fsdp2_t *f)
{
    if (f->adds_up)
        return p->now.microbatch + 1 < p->n_microbatches || reduce_all(p, f);
    drop(p, &f->reduce_input);
    drop_last_gathered(p, f);
    return true;
}

static bool begin_backward(sim_player_t *p, sim_fsdp2_t *f, uint32_t i)
{
    return unshard(p, f, i, false) && (i == 0 || gather(p, f, &f->units[i - 1]));
}

bool sim_fsdp2_event(sim_player_t *p, sim_player_chunk_t *chunk, sim_unit_event_t event,
                     uint32_t unit)
{
    sim_fsdp2_t *f = chunk->fsdp2;
    uint32_t i = index_of(f, unit);
    switch (event) {
    case SIM_UNIT_FORWARD:
    case SIM_UNIT_AGAIN:
        return unshard(p, f, i, true);
    case SIM_UNIT_FORWARD_DONE:
    case SIM_UNIT_AGAIN_DONE:
        if (f->units[i].reshards)
            drop_params(p, &f->units[i]);
        return true;
    case SIM_UNIT_PASS: /* at the end of the root's forward */
        drop_last_gathered(p, f);
        return true;
    case SIM_UNIT_BACKWARD:
        return begin_backward(p, f, i);
    case SIM_UNIT_BACKWARD_DONE:
        return f->adds_up ? add_up(p, f, &f->units[i]) : reduce(p, f, i);
    default:
        return finish_pass(p, f);
    }
}

/* ---- model and step ---- */

/* Float16OptimizerWithFloat16Params over the shards; states: main parameter, moments. */
static bool add_states(sim_player_t *p, sim_statics_t *list, const char *const *names, uint32_t n)
{
    const sim_fsdp2_t *f = p->chunks[0].fsdp2;
    for (uint32_t i = 0; i < f->n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            sim_tensor_t tensor = { .name = names[k],
                                    .bytes = f->units[i].n_owned * FP32_BYTES,
                                    .layer = SIM_NO_LAYER,
                                    .category = SIM_CAT_OPTIMIZER,
                                    .module = SIM_MOD_OPTIMIZER };
            if (!sim_player_add_static(p, list, &tensor, 0))
                return false;
        }
    }
    return true;
}

static const char *const main_param[] = { "main_param" };
static const char *const grad_copy[] = { "main_grad_copy" };
static const char *const adam_moments[] = { "exp_avg", "exp_avg_sq" };
static const char *const sgd_moments[] = { "momentum" };

/* fully_shard() cuts the parameters of one unit after the other, on the stream that wraps models;
 * the whole tensors go when all are cut. */
bool sim_fsdp2_build(sim_player_t *p)
{
    sim_player_chunk_t *chunk = &p->chunks[0];
    p->now.phase = SIM_PHASE_DDP_WRAP;
    for (uint32_t i = 0; i < chunk->fsdp2->n; i++) {
        sim_tensor_t tensor = { .name = "param_shard",
                                .bytes = chunk->fsdp2->units[i].n_owned * p->dims.e,
                                .layer = SIM_NO_LAYER,
                                .category = SIM_CAT_PARAMETERS,
                                .module = SIM_MOD_DDP };
        if (!sim_player_add_static(p, &p->buffers, &tensor, 0))
            return false;
    }
    sim_player_free_statics(p, &chunk->params);
    p->now.phase = SIM_PHASE_OPTIMIZER_BUILD;
    return !p->scenario->bf16 || add_states(p, &p->optimizer, main_param, 1);
}

bool sim_fsdp2_step(sim_player_t *p, bool is_skipped)
{
    bool is_adam = p->scenario->optimizer == SIM_OPTIMIZER_ADAM;
    if (p->scenario->bf16 && !add_states(p, &p->grad_copies, grad_copy, 1))
        return false;
    if (p->has_moments || is_skipped)
        return true;
    p->has_moments = true;
    return add_states(p, &p->optimizer, is_adam ? adam_moments : sgd_moments, is_adam ? 2 : 1);
}

void sim_fsdp2_zero_grad(sim_player_t *p)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        sim_fsdp2_t *f = p->chunks[c].fsdp2;
        for (uint32_t i = 0; i < f->n; i++)
            drop(p, &f->units[i].sharded_grad);
    }
}
