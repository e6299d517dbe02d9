/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/fsdp2.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <stdlib.h>

/* Results of gathering are made on the stream that copies into them, sharded gradients on that of
 * the reduction. */
enum { GATHER_STREAM = 0x2000, REDUCE_STREAM = 0x2001, FP32_BYTES = 4 };

static uint32_t index_of(const sim_fsdp2_t *f, uint32_t unit)
{
    if (unit == SIM_UNIT_EMBEDDING)
        return 0;
    return unit == SIM_UNIT_HEAD ? f->n - 1 : unit + f->has_embedding;
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

sim_fsdp2_t *sim_fsdp2_create(const sim_scenario_t *s, const sim_params_t *params,
                              const topo_chunk_t *place)
{
    sim_fsdp2_t *f = base_xcalloc(1, sizeof(*f));
    uint64_t n_ranks = (uint64_t)s->grid.dp * s->grid.cp;
    f->n_layers = place->n_layers;
    f->has_embedding = place->has_embedding;
    f->n = f->n_layers + f->has_embedding + place->has_loss;
    f->last_gathered = f->n;
    f->units = base_xcalloc(f->n, sizeof(*f->units));
    clear(&f->reduce_input);
    for (uint32_t i = 0; i < f->n; i++) {
        clear(&f->units[i].gathered);
        clear(&f->units[i].params);
        clear(&f->units[i].grads);
        clear(&f->units[i].sharded_grad);
    }
    for (uint32_t i = 0; i < params->n; i++) {
        const sim_param_t *param = &params->params[i];
        uint64_t rows = param->is_vector ? param->n_elements : param->rows;
        sim_fsdp2_unit_t *unit = &f->units[index_of(f, unit_of(param, place))];
        unit->n_elements += base_u64_round_up(rows, n_ranks) * (param->n_elements / rows);
    }
    for (uint32_t i = 0; i < f->n; i++)
        f->units[i].n_owned = f->units[i].n_elements / n_ranks;
    return f;
}

void sim_fsdp2_destroy(sim_fsdp2_t *f)
{
    if (f == NULL)
        return;
    free(f->units);
    free(f);
}

/* ---- storage ---- */

static bool take(sim_player_t *p, sim_fsdp2_storage_t *storage, const char *name,
                 sim_category_t category, uint64_t n_elements, uint64_t stream)
{
    if (storage->block != SIM_BLOCK_NONE)
        return true;
    storage->tensor = (sim_tensor_t){ .name = name,
                                      .bytes = n_elements * p->dims.e,
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

static bool gather(sim_player_t *p, sim_fsdp2_unit_t *unit)
{
    if (unit->params.block != SIM_BLOCK_NONE || unit->n_owned == unit->n_elements)
        return true;
    return take(p, &unit->gathered, "gathered_params", SIM_CAT_PARAMETERS, unit->n_elements,
                GATHER_STREAM);
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
    if (unit->params.block != SIM_BLOCK_NONE)
        return true;
    if (!gather(p, unit))
        return false;
    if (is_forward && f->last_gathered != i)
        drop_last_gathered(p, f);
    if (!take(p, &unit->params, "unit_params", SIM_CAT_PARAMETERS, unit->n_elements, 0))
        return false;
    if (is_forward)
        f->last_gathered = i;
    else
        drop(p, &unit->gathered);
    return true;
}

/* ---- gradients ---- */

/* post_backward(): the parameters go, the gradients are copied into the input of the reduction,
 * which stays until the next one. */
static bool reduce(sim_player_t *p, sim_fsdp2_t *f, uint32_t i)
{
    sim_fsdp2_unit_t *unit = &f->units[i];
    if (!take(p, &unit->grads, "unit_grads", SIM_CAT_GRADIENTS, unit->n_elements, 0))
        return false;
    drop(p, &unit->params);
    drop(p, &f->reduce_input);
    if (!take(p, &f->reduce_input, "reduce_input", SIM_CAT_GRADIENTS, unit->n_elements, 0))
        return false;
    drop(p, &unit->grads);
    if (unit->sharded_grad.block == SIM_BLOCK_NONE)
        return take(p, &unit->sharded_grad, "sharded_grad", SIM_CAT_GRADIENTS, unit->n_owned,
                    REDUCE_STREAM);
    sim_fsdp2_storage_t output = { .block = SIM_BLOCK_NONE }; /* added to the gradient so far */
    if (!take(p, &output, "reduce_output", SIM_CAT_GRADIENTS, unit->n_owned, REDUCE_STREAM))
        return false;
    drop(p, &output);
    return true;
}

static bool begin_backward(sim_player_t *p, sim_fsdp2_t *f, uint32_t i)
{
    return unshard(p, f, i, false) && (i == 0 || gather(p, &f->units[i - 1]));
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
        if (p->scenario->torch_fsdp2_reshard_after_forward)
            drop(p, &f->units[i].params);
        return true;
    case SIM_UNIT_PASS: /* at the end of the root's forward */
        drop_last_gathered(p, f);
        return true;
    case SIM_UNIT_BACKWARD:
        return begin_backward(p, f, i);
    case SIM_UNIT_BACKWARD_DONE:
        return reduce(p, f, i);
    default:
        drop(p, &f->reduce_input);
        drop_last_gathered(p, f);
        return true;
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
    sim_fsdp2_t *f = p->chunks[0].fsdp2;
    for (uint32_t i = 0; i < f->n; i++)
        drop(p, &f->units[i].sharded_grad);
}
