/* SPDX-License-Identifier: Apache-2.0
 * What a rank needs before it is played. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/engine/endless.h"
#include "sim/engine/fsdp.h"
#include "sim/engine/fsdp2.h"
#include "sim/engine/graphs.h"
#include "sim/engine/lengths.h"
#include "sim/engine/moments.h"
#include "sim/engine/outside.h"
#include "sim/model/software.h"

#include <stdlib.h>
#include <string.h>

static uint64_t bucket_elements(const sim_scenario_t *s, const sim_params_t *params, uint32_t chunk,
                                uint32_t pp_rank, uint64_t n_shards)
{
    /* training.py, resolve_ddp_bucket_size() and get_model(): one bucket without overlap, on later
     * pipeline stages and in later chunks. */
    if (!s->overlap_grad_reduce || pp_rank > 0 || chunk > 0)
        return 0;
    if (s->ddp_num_buckets > 0)
        return params->n_elements / s->ddp_num_buckets;
    if (s->ddp_bucket_size > 0)
        return s->ddp_bucket_size;
    uint64_t by_ranks = 1000000 * n_shards;
    return by_ranks > 40000000 ? by_ranks : 40000000;
}

/* Tapes of every length that occurs. */
static void init_shorter(sim_player_t *p, sim_player_chunk_t *chunk, const topo_chunk_t *layers)
{
    if (p->lengths == NULL)
        return;
    chunk->shorter = base_xcalloc(p->n_lengths, sizeof(*chunk->shorter));
    uint64_t step = p->scenario->seq_length / p->n_lengths;
    for (uint32_t k = 1; k < p->n_lengths; k++) {
        sim_scenario_t s = *p->scenario; /* what it owns stays the scenario's */
        sim_dims_t dims;
        base_err_t err;
        if (memchr(p->lengths, (int)k, s.iterations * s.n_microbatches) == NULL)
            continue;
        s.seq_length = k * step;
        sim_dims_init(&dims, &s, &err); /* smaller than what has fit */
        sim_chunk_init(&chunk->shorter[k - 1], &s, &dims, layers, p->place.tp, &p->persistent);
        chunk->chunk.n_slots =
            (uint32_t)base_u64_max(chunk->chunk.n_slots, chunk->shorter[k - 1].n_slots);
    }
}

static void init_chunk(sim_player_t *p, uint32_t c)
{
    const sim_scenario_t *s = p->scenario;
    sim_player_chunk_t *chunk = &p->chunks[c];
    const topo_chunk_t *layers = topo_stages_chunk(&s->stages, p->place.pp, c);
    sim_chunk_init(&chunk->chunk, s, &p->dims, layers, p->place.tp, &p->persistent);
    init_shorter(p, chunk, layers);
    sim_ddp_config_t ddp = {
        .distributed_optimizer = sim_sharding_has_param_buffer(p->sharding),
        .bucket_elements =
            bucket_elements(s, &chunk->chunk.params, c, p->place.pp, p->place.dense.n_shards),
        .pad_for_busbw = s->ddp_pad_buckets_for_high_nccl_busbw,
        .by_cost = sim_software_has(s, SIM_SOFTWARE_LAYER_WISE_BY_COST),
    };
    for (int which = 0; which < SIM_N_BUFFERS; which++) {
        ddp.n_shards = sim_place_share(&p->place, (sim_buffer_t)which)->n_shards;
        sim_ddp_buffer_init(&chunk->ddp[which], &chunk->chunk.params, (sim_buffer_t)which, &ddp);
    }
    if (s->use_torch_fsdp2 || sim_is_titan(s))
        chunk->fsdp2 = sim_fsdp2_create(s, &chunk->chunk.params, layers);
    else if (s->use_megatron_fsdp)
        chunk->fsdp = sim_fsdp_create(s, &chunk->chunk.params, layers, ddp.bucket_elements);
    chunk->passes = base_xcalloc(p->n_microbatches, sizeof(*chunk->passes));
    chunk->spare = base_xcalloc(p->n_microbatches, sizeof(*chunk->spare));
    chunk->latest = base_xcalloc(layers->n_layers, sizeof(*chunk->latest));
}

static void fini_chunk(sim_player_t *p, sim_player_chunk_t *chunk)
{
    for (uint32_t i = 0; i < p->n_microbatches && chunk->passes != NULL; i++)
        free(chunk->passes[i].slots);
    for (uint32_t i = 0; i < chunk->n_spare; i++)
        free(chunk->spare[i]);
    free(chunk->passes);
    free(chunk->spare);
    free(chunk->latest);
    free(chunk->params.items);
    free(chunk->dealt_to);
    sim_fsdp_destroy(chunk->fsdp);
    sim_fsdp2_destroy(chunk->fsdp2);
    for (int which = 0; which < SIM_N_BUFFERS; which++)
        sim_ddp_buffer_fini(&chunk->ddp[which]);
    for (uint32_t k = 1; k < p->n_lengths && chunk->shorter != NULL; k++)
        sim_chunk_fini(&chunk->shorter[k - 1]);
    free(chunk->shorter);
    sim_chunk_fini(&chunk->chunk);
}

void sim_player_fini(sim_player_t *p)
{
    sim_endless_fini(p);
    sim_alloc_destroy(p->alloc);
    sim_device_destroy(p->device);
    sim_moments_fini(p);
    for (uint32_t c = 0; c < p->n_chunks && p->chunks != NULL; c++)
        fini_chunk(p, &p->chunks[c]);
    free(p->chunks);
    sim_order_fini(&p->order);
    sim_persistent_fini(&p->persistent);
    free(p->persistent_blocks);
    free(p->frozen.items);
    free(p->buffers.items);
    free(p->optimizer.items);
    free(p->grad_copies.items);
    free(p->step_temporaries.items);
    free(p->graph_buffers.items);
    free(p->lengths);
    free(p->owners);
    free(p->alive);
}

static void deal_parameters(sim_player_t *p)
{
    const sim_params_t **params = base_xcalloc(p->n_chunks, sizeof(*params));
    uint64_t **owners = base_xcalloc(p->n_chunks, sizeof(*owners));
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        params[c] = &p->chunks[c].chunk.params;
        owners[c] = p->chunks[c].dealt_to = base_xcalloc(params[c]->n, sizeof(*owners[c]));
    }
    sim_sharding_deal(p->scenario, params, p->n_chunks, p->place.dense.n_shards,
                      p->place.expert.n_shards, owners);
    free(params);
    free(owners);
}

static base_status_t init_memory(sim_player_t *p, bool unlimited, base_err_t *err)
{
    const sim_scenario_t *s = p->scenario;
    /* What a device can have at most is far more than any GPU has. */
    uint64_t total_bytes = unlimited ? SIM_DEVICE_MAX_BYTES : s->memory_bytes;
    sim_device_config_t config = {
        .total_bytes = total_bytes,
        .usable_bytes = unlimited ? total_bytes : sim_outside_usable(s, p->place.outside_bytes),
        .addresses = (sim_addresses_t)s->addresses,
    };
    p->device = sim_device_create_synthetic(&config);
    if (s->mode == SIM_MODE_LIVE) {
        p->alloc = sim_alloc_create_live(p->device);
    } else {
        base_status_t status = sim_alloc_create(p->device, s->conf, &p->alloc, err);
        if (status != BASE_OK)
            return status;
        sim_alloc_drop_stats(p->alloc);
    }
    p->totals = sim_alloc_totals(p->alloc);
    return BASE_OK;
}

sim_order_config_t sim_player_order_config(const sim_scenario_t *s, const sim_place_t *place)
{
    bool splits = sim_schedule_splits(s->pipeline_schedule);
    return (sim_order_config_t){
        .schedule = s->pipeline_schedule,
        .pp = (uint32_t)s->pipeline_model_parallel_size,
        .pp_rank = place->pp,
        .vpp = s->stages.vpp,
        .n_microbatches = (uint32_t)s->n_microbatches,
        .group_size = splits ? 0 : (uint32_t)s->microbatch_group_size_per_virtual_pipeline_stage,
        .overlap_p2p = s->overlap_p2p_communication && s->stages.vpp > 1,
        .overlap_p2p_warmup_flush = s->overlap_p2p_communication_warmup_flush,
        .deallocate_outputs = s->deallocate_pipeline_outputs,
        .combines = s->overlap_moe_expert_parallel_comm,
    };
}

base_status_t sim_player_order(const sim_scenario_t *s, const sim_place_t *place,
                               sim_order_t *order_p, base_err_t *err)
{
    sim_order_config_t config = sim_player_order_config(s, place);
    return sim_order_init(order_p, &config, err);
}

base_status_t sim_player_init_program(sim_player_t *p, const sim_scenario_t *s,
                                      const sim_place_t *place, base_err_t *err)
{
    *p = (sim_player_t){ .scenario = s, .place = *place, .sharding = sim_sharding_of(s) };
    base_status_t status = sim_dims_init(&p->dims, s, err);
    if (status != BASE_OK)
        return status;
    p->dims.moe.ep_rank = place->ep;
    p->n_chunks = s->stages.vpp;
    p->n_microbatches = (uint32_t)s->n_microbatches;
    sim_order_config_t config = sim_player_order_config(s, place);
    p->turns = sim_order_is_turn(&config);
    p->n_lengths = sim_lengths_count(s);
    if (p->n_lengths > 1) {
        p->lengths = base_xcalloc(s->iterations * s->n_microbatches, sizeof(*p->lengths));
        sim_lengths_fill(s, place->dp, p->lengths);
    }
    p->chunks = base_xcalloc(p->n_chunks, sizeof(*p->chunks));
    for (uint32_t c = 0; c < p->n_chunks; c++)
        init_chunk(p, c);
    sim_moments_init(p);
    if (p->sharding == SIM_SHARDING_DEALT)
        deal_parameters(p);
    uint32_t n_blocks = SIM_N_BUFFERS_OF * p->persistent.n;
    p->persistent_blocks = base_xcalloc(n_blocks, sizeof(*p->persistent_blocks));
    for (uint32_t i = 0; i < n_blocks; i++)
        p->persistent_blocks[i] = SIM_BLOCK_NONE;
    return BASE_OK;
}

static base_status_t init_with_order(sim_player_t *p, const sim_scenario_t *s,
                                     const sim_place_t *place, base_err_t *err)
{
    base_status_t status = sim_player_init_program(p, s, place, err);
    return status == BASE_OK ? sim_player_order(s, place, &p->order, err) : status;
}

base_status_t sim_player_init(sim_player_t *p, const sim_scenario_t *scenario,
                              const sim_place_t *place, bool unlimited, base_err_t *err)
{
    base_status_t status = init_with_order(p, scenario, place, err);
    sim_graphs_init(p);
    return status == BASE_OK ? init_memory(p, unlimited, err) : status;
}

base_status_t sim_player_init_on(sim_player_t *p, const sim_scenario_t *scenario,
                                 const sim_place_t *place, sim_device_t *device, base_err_t *err)
{
    base_status_t status = init_with_order(p, scenario, place, err);
    p->device = device;
    p->fills = scenario->device_fill;
    if (status == BASE_OK)
        status = sim_alloc_create(device, scenario->conf, &p->alloc, err);
    if (status == BASE_OK)
        p->totals = sim_alloc_totals(p->alloc);
    return status;
}
