/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/simulate.h"

#include "sim/base/xmem.h"
#include "sim/engine/player.h"

#include <stdlib.h>
#include <string.h>

/* Dynamic loss scaling starts at 2^32 and halves at every second overflow (hysteresis 2), so the
 * first steps of an fp16 run are skipped: Megatron-LM --initial-loss-scale, --hysteresis. */
static bool is_step_skipped(const sim_scenario_t *s, uint32_t iteration)
{
    return s->fp16 && iteration <= 2;
}

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

static void init_chunk(sim_player_t *p, uint32_t c)
{
    const sim_scenario_t *s = p->scenario;
    sim_player_chunk_t *chunk = &p->chunks[c];
    const topo_chunk_t *place = topo_stages_chunk(&s->stages, p->coord.pp, c);
    sim_chunk_init(&chunk->chunk, s, &p->dims, place, p->coord.tp, &p->persistent);
    sim_ddp_config_t ddp = {
        .distributed_optimizer = s->use_distributed_optimizer,
        .n_shards = p->n_shards,
        .bucket_elements = bucket_elements(s, &chunk->chunk.params, c, p->coord.pp, p->n_shards),
        .pad_for_busbw = s->ddp_pad_buckets_for_high_nccl_busbw,
    };
    sim_ddp_buffer_init(&chunk->ddp, &chunk->chunk.params, &ddp);
    chunk->passes = base_xcalloc(p->n_microbatches, sizeof(*chunk->passes));
    chunk->spare = base_xcalloc(p->n_microbatches, sizeof(*chunk->spare));
}

static void fini_chunk(sim_player_t *p, sim_player_chunk_t *chunk)
{
    for (uint32_t i = 0; i < p->n_microbatches && chunk->passes != NULL; i++)
        free(chunk->passes[i].slots);
    for (uint32_t i = 0; i < chunk->n_spare; i++)
        free(chunk->spare[i]);
    free(chunk->passes);
    free(chunk->spare);
    free(chunk->params.items);
    sim_ddp_buffer_fini(&chunk->ddp);
    sim_chunk_fini(&chunk->chunk);
}

static void player_fini(sim_player_t *p)
{
    sim_alloc_destroy(p->alloc);
    sim_device_destroy(p->device);
    for (uint32_t c = 0; c < p->n_chunks && p->chunks != NULL; c++)
        fini_chunk(p, &p->chunks[c]);
    free(p->chunks);
    sim_order_fini(&p->order);
    sim_persistent_fini(&p->persistent);
    free(p->persistent_blocks);
    free(p->buffers.items);
    free(p->optimizer.items);
    free(p->grad_copies.items);
    free(p->owners);
}

static base_status_t init_memory(sim_player_t *p, bool unlimited, base_err_t *err)
{
    const sim_scenario_t *s = p->scenario;
    /* An unlimited device still has addresses for 8 TiB: far more than any GPU. */
    uint64_t total_bytes = unlimited ? UINT64_C(1) << 43 : s->memory_bytes;
    sim_device_config_t config = {
        .total_bytes = total_bytes,
        .usable_bytes = unlimited ? total_bytes : total_bytes - s->reserved_outside_bytes,
        .addresses = (sim_addresses_t)s->addresses,
    };
    p->device = sim_device_create_synthetic(&config);
    return sim_alloc_create(p->device, s->conf, &p->alloc, err);
}

static base_status_t init_order(sim_player_t *p, base_err_t *err)
{
    const sim_scenario_t *s = p->scenario;
    sim_order_config_t config = {
        .pp = (uint32_t)s->pipeline_model_parallel_size,
        .pp_rank = p->coord.pp,
        .vpp = p->n_chunks,
        .n_microbatches = p->n_microbatches,
        .group_size = (uint32_t)s->microbatch_group_size_per_virtual_pipeline_stage,
        .overlap_p2p = s->overlap_p2p_communication && p->n_chunks > 1,
        .deallocate_outputs = s->deallocate_pipeline_outputs,
        .n_partial_checkpoints = (uint32_t)s->num_microbatches_with_partial_activation_checkpoints,
    };
    return sim_order_init(&p->order, &config, err);
}

static base_status_t player_init(sim_player_t *p, const sim_scenario_t *s, uint32_t rank,
                                 bool unlimited, base_err_t *err)
{
    *p = (sim_player_t){ .scenario = s };
    base_status_t status = sim_dims_init(&p->dims, s, err);
    if (status == BASE_OK)
        status = topo_grid_coord(&s->grid, rank, &p->coord, err);
    if (status != BASE_OK)
        return status;
    p->n_chunks = s->stages.vpp;
    p->n_microbatches = (uint32_t)s->n_microbatches;
    if (s->use_distributed_optimizer) {
        uint64_t instances = s->num_distributed_optimizer_instances;
        p->n_shards = (uint64_t)s->grid.dp * s->grid.cp / instances;
        p->shard = ((uint64_t)p->coord.cp + (uint64_t)s->grid.cp * p->coord.dp) % p->n_shards;
    } else {
        p->n_shards = 1;
    }
    status = init_order(p, err);
    if (status != BASE_OK)
        return status;
    p->chunks = base_xcalloc(p->n_chunks, sizeof(*p->chunks));
    for (uint32_t c = 0; c < p->n_chunks; c++)
        init_chunk(p, c);
    p->persistent_blocks = base_xcalloc(p->persistent.n, sizeof(*p->persistent_blocks));
    for (uint32_t i = 0; i < p->persistent.n; i++)
        p->persistent_blocks[i] = SIM_BLOCK_NONE;
    return init_memory(p, unlimited, err);
}

static void note_iteration(const sim_player_t *p, sim_rank_result_t *result)
{
    result->iterations[result->n_iterations++] = (sim_iteration_t){
        .allocated_bytes = sim_alloc_allocated_bytes(p->alloc),
        .reserved_bytes = sim_alloc_reserved_bytes(p->alloc),
        .max_allocated_bytes = p->account.peak_bytes,
        .max_reserved_bytes = p->max_reserved_bytes,
    };
}

static void run(sim_player_t *p, sim_rank_result_t *result)
{
    if (!sim_player_build(p))
        return;
    for (uint32_t i = 1; i <= p->scenario->iterations; i++) {
        p->now = (sim_moment_t){ .iteration = i, .layer = SIM_NO_LAYER };
        if (!sim_player_zero_grad(p) || !sim_player_passes(p) ||
            !sim_player_step(p, is_step_skipped(p->scenario, i)))
            return;
        note_iteration(p, result);
    }
}

static void fill_result(sim_player_t *p, uint32_t rank, sim_rank_result_t *r)
{
    sim_account_settle(&p->account);
    r->rank = rank;
    r->coord = p->coord;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        r->n_parameters += p->chunks[c].chunk.params.n_elements;
    r->max_allocated_bytes = p->account.peak_bytes;
    r->allocated_moment = p->account.peak_moment;
    r->at_peak = p->account.at_peak;
    r->max_reserved_bytes = p->max_reserved_bytes;
    r->reserved_moment = p->reserved_moment;
    r->n_allocator_ops = p->n_ops;
    r->n_alloc_retries = sim_alloc_stats(p->alloc)->num_alloc_retries;
    r->is_out_of_memory = p->is_out_of_memory;
    if (p->is_out_of_memory) {
        r->oom_moment = p->oom_moment;
        r->oom_tensor = p->oom_tensor->name;
        r->oom_requested_bytes = p->oom_requested_bytes;
        r->oom = *sim_alloc_last_oom(p->alloc);
        r->at_oom = p->account.now;
    }
}

base_status_t sim_simulate_rank(const sim_scenario_t *scenario, uint32_t rank,
                                const sim_simulate_options_t *options, sim_rank_result_t *result_p,
                                base_err_t *err)
{
    static const sim_simulate_options_t defaults = { 0 };
    if (options == NULL)
        options = &defaults;
    sim_player_t p;
    base_status_t status = player_init(&p, scenario, rank, options->unlimited, err);
    if (status == BASE_OK) {
        sim_rank_result_t result = { 0 };
        result.iterations = base_xcalloc(scenario->iterations, sizeof(*result.iterations));
        run(&p, &result);
        fill_result(&p, rank, &result);
        *result_p = result;
    }
    player_fini(&p);
    return status;
}

void sim_rank_result_fini(sim_rank_result_t *result)
{
    free(result->iterations);
    free(result->alive);
    *result = (sim_rank_result_t){ 0 };
}
