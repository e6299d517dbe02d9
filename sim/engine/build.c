/* SPDX-License-Identifier: Apache-2.0
 * Model build and DDP wrap; whose optimizer owns what. Megatron-LM training/training.py
 * (get_model), distributed/param_and_grad_buffer.py, optimizer/distrib_optimizer.py. */
#include "config.h"

#include "sim/engine/fsdp.h"
#include "sim/engine/fsdp2.h"

/* DDP allocates its buffers on a side stream, which owns its own pool of blocks. */
enum { DDP_STREAM = 0x1000 };

/* Bytes of `n` elements of parameters as stored; scales are counted with the other layout. */
static uint64_t param_bytes(const sim_player_t *p, sim_buffer_t buffer, uint64_t n)
{
    if (!sim_buffer_is_fp8(buffer))
        return n * p->dims.e;
    return sim_recipe(p->scenario) == SIM_NVFP4 ? n / 2 : n;
}

static bool build_model(sim_player_t *p)
{
    p->now.phase = SIM_PHASE_MODEL_BUILD;
    if (p->sharding == SIM_SHARDING_UNITS && p->scenario->init_model_with_meta_device)
        return true; /* without memory, until parts of it are made */
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        sim_player_chunk_t *chunk = &p->chunks[c];
        p->now.chunk = (uint16_t)c;
        for (uint32_t i = 0; i < chunk->chunk.params.n; i++) {
            const sim_param_t *param = &chunk->chunk.params.params[i];
            sim_tensor_t tensor = { .name = param->name,
                                    .bytes = param_bytes(p, param->buffer, param->n_elements),
                                    .layer = param->layer,
                                    .category = SIM_CAT_PARAMETERS,
                                    .module = param->module };
            sim_statics_t *list = param->is_frozen ? &p->frozen : &chunk->params;
            if (!sim_player_add_static(p, list, &tensor, 0))
                return false;
        }
    }
    return true;
}

static bool add_buffer(sim_player_t *p, const char *name, sim_category_t category, uint64_t bytes)
{
    sim_tensor_t tensor = { .name = name,
                            .bytes = bytes,
                            .layer = SIM_NO_LAYER,
                            .category = (uint8_t)category,
                            .module = SIM_MOD_DDP };
    return sim_player_add_static(p, &p->buffers, &tensor, DDP_STREAM);
}

/* MXFP8 cannot be gathered as it is: bf16 is, into a buffer of its own or into the gradients'. */
static bool needs_gather_buffer(const sim_player_t *p, sim_buffer_t buffer)
{
    const sim_scenario_t *s = p->scenario;
    return sim_sharding_has_param_buffer(p->sharding) && sim_buffer_is_fp8(buffer) &&
           sim_recipe(s) == SIM_FP8_MXFP8 && !s->reuse_grad_buf_for_mxfp8_param_ag;
}

/* With the distributed optimizer the parameters move into contiguous buffers; both copies and the
 * gradients exist until the old tensors are let go. */
static bool wrap_ddp(sim_player_t *p)
{
    bool moves = sim_sharding_has_param_buffer(p->sharding);
    p->now.phase = SIM_PHASE_DDP_WRAP;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        sim_player_chunk_t *chunk = &p->chunks[c];
        p->now.chunk = (uint16_t)c;
        for (int which = 0; which < SIM_N_BUFFERS; which++) {
            uint64_t n = chunk->ddp[which].n_elements;
            if (moves && !add_buffer(p, "param_data", SIM_CAT_PARAMETERS,
                                     param_bytes(p, (sim_buffer_t)which, n)))
                return false;
            if (needs_gather_buffer(p, (sim_buffer_t)which) &&
                !add_buffer(p, "param_gather_data", SIM_CAT_PARAMETERS, n * p->dims.e))
                return false;
            if (!add_buffer(p, "grad_data", SIM_CAT_GRADIENTS, n * sim_player_grad_bytes(p)))
                return false;
        }
        if (moves)
            sim_player_free_statics(p, &chunk->params);
    }
    return true;
}

/* Elements of a parameter whose optimizer state this rank holds. */
static uint64_t owned_elements(const sim_player_t *p, const sim_player_chunk_t *chunk, uint32_t i)
{
    const sim_param_t *param = &chunk->chunk.params.params[i];
    const sim_share_t *share = sim_place_share(&p->place, param->buffer);
    if (param->is_frozen ||
        (p->sharding == SIM_SHARDING_DEALT && chunk->dealt_to[i] != share->shard))
        return 0;
    if (!sim_sharding_has_param_buffer(p->sharding))
        return param->n_elements;
    return sim_ddp_buffer_shard(&chunk->ddp[param->buffer], i, share->n_shards, share->shard);
}

/* Parameter groups in the order of the optimizers. Adam and SGD: the decayed parameters, then the
 * vectors, then the same for experts that are reduced apart. Muon: matrices, those of experts,
 * then what its scalar optimizer has, decayed parameters first. */
enum { N_GROUPS = 4 };

static uint32_t group_of(const sim_player_t *p, const sim_param_t *param)
{
    bool is_expert = sim_buffer_is_expert(param->buffer);
    if (p->scenario->optimizer != SIM_OPTIMIZER_MUON)
        return 2 * is_expert + param->is_vector;
    return sim_param_is_orthogonalized(p->scenario, param) ? is_expert : 2U + param->is_vector;
}

static bool visit_one(sim_player_t *p, uint32_t c, uint32_t i, bool is_whole, sim_owned_f visit,
                      void *arg)
{
    sim_player_chunk_t *chunk = &p->chunks[c];
    const sim_param_t *param = &chunk->chunk.params.params[i];
    uint64_t n_elements =
        is_whole ? param->n_elements * !param->is_frozen : owned_elements(p, chunk, i);
    p->now.chunk = (uint16_t)c;
    return n_elements == 0 || visit(p, param, n_elements, arg);
}

static bool visit_all(sim_player_t *p, bool reversed, bool is_whole, sim_owned_f visit, void *arg)
{
    for (uint32_t group = 0; group < N_GROUPS; group++) {
        for (uint32_t c = 0; c < p->n_chunks; c++) {
            uint32_t n = p->chunks[c].chunk.params.n;
            for (uint32_t k = 0; k < n; k++) {
                uint32_t i = reversed ? n - 1 - k : k;
                if (group_of(p, &p->chunks[c].chunk.params.params[i]) == group &&
                    !visit_one(p, c, i, is_whole, visit, arg))
                    return false;
            }
        }
    }
    return true;
}

/* Within a chunk as registered, or as they lie in the buffer, which is the other way round. */
bool sim_player_foreach_owned(sim_player_t *p, sim_owned_f visit, void *arg)
{
    return visit_all(p, sim_sharding_has_param_buffer(p->sharding), false, visit, arg);
}

bool sim_player_foreach_trained(sim_player_t *p, sim_owned_f visit, void *arg)
{
    return visit_all(p, false, true, visit, arg);
}

bool sim_player_build(sim_player_t *p)
{
    if (sim_is_titan(p->scenario))
        return sim_titan_build_shards(p);
    if (p->scenario->use_torch_fsdp2)
        return build_model(p) && sim_fsdp2_build(p);
    if (p->scenario->use_megatron_fsdp)
        return build_model(p) && sim_fsdp_build(p);
    return build_model(p) && wrap_ddp(p) && sim_player_build_optimizer(p);
}

bool sim_player_zero_grad(sim_player_t *p)
{
    sim_player_free_statics(p, &p->grad_copies);
    if (p->scenario->use_torch_fsdp2 || sim_is_titan(p->scenario))
        sim_fsdp2_zero_grad(p);
    if (!p->passes_are_replayed) /* a graph's memory is its own */
        sim_player_release_held(p);
    return !sim_is_titan(p->scenario) || sim_titan_begin_step(p);
}
