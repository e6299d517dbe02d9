/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/real.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/engine/outside.h"
#include "sim/engine/real_agree.h"
#include "sim/engine/stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    sim_real_round_t round;
    const sim_job_options_t *options;
    topo_cuda_t cuda;     /* rt_library NULL: not in use */
    sim_store_t **stores; /* n_stores of the round; owned */
    int *ordinals;        /* of the GPUs, by store; owned */
    uint64_t *rank_bytes; /* that each rank of the job may take; owned */
    sim_stage_t stage;
    /* With backend = cuda. */
    coll_placement_t placement;
    sim_communicators_t communicators;
    coll_nccl_real_t *nccl; /* alive; NULL = none */
} play_t;

/* ---- which GPU is a rank's ---- */

static bool is_played(const play_t *p, uint32_t rank)
{
    return p->options->is_skipped == NULL || !p->options->is_skipped[rank];
}

/* Ranks that are played on the host of this process: those below `rank`, and all. */
static uint32_t place_on_host(const play_t *p, uint32_t rank, uint32_t *n_p)
{
    coll_world_t *world = p->round.world;
    const char *host = coll_world_host(world, coll_world_process(world));
    uint32_t place = 0, n = 0;
    for (uint32_t i = 0; i < p->round.scenario->grid.world_size; i++) {
        if (!is_played(p, i) ||
            strcmp(coll_world_host(world, coll_world_owner(world, i)), host) != 0)
            continue;
        place += i < rank;
        n++;
    }
    *n_p = n;
    return place;
}

/* The GPUs of the host are dealt to its ranks in turn. A launcher may also show each process its
 * own GPUs alone (CUDA_VISIBLE_DEVICES): where they are fewer than the host's ranks need, a
 * process deals those it sees to its own ranks. */
static int ordinal_of(const play_t *p, uint32_t rank, uint32_t nth_here, int n_gpus)
{
    uint32_t n_on_host, place = place_on_host(p, rank, &n_on_host);
    bool sees_all = (uint64_t)n_gpus * p->round.scenario->ranks_per_gpu >= n_on_host;
    return (int)((sees_all ? place : nth_here) % (uint32_t)n_gpus);
}

/* ---- stores ---- */

static base_status_t add_store(play_t *p, int ordinal, uint32_t *index_p, base_err_t *err)
{
    sim_real_round_t *round = &p->round;
    for (uint32_t i = 0; i < round->n_stores; i++)
        if (p->ordinals[i] == ordinal) {
            *index_p = i;
            return BASE_OK;
        }
    sim_store_t *store;
    base_status_t status;
    if (round->scenario->backend == SIM_BACKEND_CUDA)
        status = sim_store_open_cuda(&p->cuda, ordinal, &store, err);
    else
        status = sim_store_open_host(round->scenario->device_scale, &store, err);
    if (status != BASE_OK)
        return BASE_ERR_IO;
    uint32_t n = round->n_stores + 1;
    p->stores = base_xrealloc(p->stores, n, sizeof(*p->stores));
    p->ordinals = base_xrealloc(p->ordinals, n, sizeof(*p->ordinals));
    round->stores = base_xrealloc(round->stores, n, sizeof(*round->stores));
    *index_p = round->n_stores++;
    p->stores[*index_p] = store;
    p->ordinals[*index_p] = ordinal;
    memset(&round->stores[*index_p], 0, sizeof(*round->stores));
    round->stores[*index_p].facts = *sim_store_facts(store);
    return BASE_OK;
}

static base_status_t open_cuda(play_t *p, int *n_gpus_p, base_err_t *err)
{
    base_err_t why;
    if (topo_cuda_open(&p->cuda, &why) != BASE_OK)
        return base_err_set(err, BASE_ERR_IO, "backend = cuda: %s", why.text);
    int error = p->cuda.rt.cudaGetDeviceCount(n_gpus_p);
    if (error != 0)
        return base_err_set(err, BASE_ERR_IO, "backend = cuda: cudaGetDeviceCount: %s (%d)",
                            topo_cuda_runtime_text(&p->cuda, error), error);
    if (*n_gpus_p < 1)
        return base_err_set(err, BASE_ERR_IO, "backend = cuda: no GPU is visible");
    return BASE_OK;
}

static base_status_t open_stores(play_t *p, base_err_t *err)
{
    sim_real_round_t *round = &p->round;
    int n_gpus = 1;
    bool is_cuda = round->scenario->backend == SIM_BACKEND_CUDA;
    base_status_t status = is_cuda ? open_cuda(p, &n_gpus, err) : BASE_OK;
    uint32_t first, n;
    coll_world_share(round->world, &first, &n);
    round->ranks = base_xcalloc(n, sizeof(*round->ranks));
    for (uint32_t i = 0; i < n && status == BASE_OK; i++) {
        if (!is_played(p, first + i))
            continue;
        sim_real_rank_t *r = &round->ranks[round->n_ranks];
        int ordinal = is_cuda ? ordinal_of(p, first + i, round->n_ranks, n_gpus) : 0;
        r->rank = first + i;
        status = add_store(p, ordinal, &r->pool, err);
        round->n_ranks += status == BASE_OK;
    }
    return status;
}

static base_status_t begin_stores(play_t *p, base_err_t *err)
{
    for (uint32_t i = 0; i < p->round.n_stores; i++) {
        base_status_t status = sim_store_begin(p->stores[i], err);
        if (status != BASE_OK)
            return status;
        p->round.stores[i].used_before = sim_store_used_before(p->stores[i]);
        p->round.stores[i].facts = *sim_store_facts(p->stores[i]);
    }
    return BASE_OK;
}

static base_status_t measure_stores(play_t *p, bool is_after, base_err_t *err)
{
    for (uint32_t i = 0; i < p->round.n_stores; i++) {
        sim_measure_t m;
        base_status_t status = sim_store_measure(p->stores[i], &m, err);
        if (status != BASE_OK)
            return status;
        sim_real_store_t *mine = &p->round.stores[i];
        if (is_after) {
            mine->used_after = m.used_bytes;
            continue;
        }
        mine->held_used_bytes = m.used_bytes;
        mine->held_account_bytes = sim_store_account_bytes(p->stores[i]);
    }
    return BASE_OK;
}

static base_status_t stores_status(const play_t *p, base_err_t *err)
{
    for (uint32_t i = 0; i < p->round.n_stores; i++)
        if (sim_store_status(p->stores[i], err) != BASE_OK)
            return BASE_ERR_IO;
    return BASE_OK;
}

/* The first error of all. */
static base_status_t end_stores(play_t *p, base_err_t *err)
{
    base_status_t status = BASE_OK;
    for (uint32_t i = 0; i < p->round.n_stores; i++) {
        base_err_t one;
        if (sim_store_end(p->stores[i], &one) != BASE_OK && status == BASE_OK) {
            status = BASE_ERR_IO;
            *err = one;
        }
        p->round.stores[i].facts = *sim_store_facts(p->stores[i]);
    }
    return status;
}

/* ---- play ---- */

static sim_real_rank_t *rank_here(play_t *p, uint32_t rank)
{
    sim_real_rank_t *r = p->round.ranks;
    while (r->rank != rank)
        r++;
    return r;
}

static sim_device_t *device_of(void *arg, uint32_t rank)
{
    play_t *p = arg;
    const sim_scenario_t *s = p->round.scenario;
    uint64_t usable = sim_outside_usable(s, sim_outside_bytes(s, rank));
    sim_device_config_t config = {
        .total_bytes = s->memory_bytes,
        .usable_bytes = base_u64_min(usable, p->rank_bytes[rank] * s->device_scale),
        .addresses = (sim_addresses_t)s->addresses,
    };
    return sim_device_create_on(p->stores[rank_here(p, rank)->pool], &config);
}

/* What a rank's run has come to; it holds its memory still. */
static void take_results(play_t *p)
{
    for (uint32_t i = 0; i < p->stage.n; i++) {
        const sim_actor_t *a = &p->stage.actors[i];
        if (!a->has_memory || a->run == NULL)
            continue;
        sim_real_rank_t *r = rank_here(p, a->gpu);
        sim_rank_result_t result;
        r->own = *sim_device_own(sim_rank_run_device(a->run));
        sim_rank_run_result(a->run, &result, NULL);
        r->max_allocated_bytes = result.max_allocated_bytes;
        r->max_reserved_bytes = result.max_reserved_bytes;
        r->is_out_of_memory = result.is_out_of_memory;
        r->oom_moment = result.oom_moment;
        memcpy(r->oom_tensor, result.oom_tensor, sizeof(r->oom_tensor));
        r->oom_requested_bytes = result.oom_requested_bytes;
        r->n_allocator_ops = result.n_allocator_ops;
        r->n_alloc_retries = result.n_alloc_retries;
        sim_rank_result_fini(&result);
    }
}

/* From the first segment to the last; at the end all memory is held still. */
static base_status_t play_stage(play_t *p, base_err_t *err)
{
    sim_real_round_t *round = &p->round;
    base_err_t mine;
    p->stage = (sim_stage_t){ .scenario = round->scenario,
                              .world = round->world,
                              .options = p->options,
                              .device_of = device_of,
                              .device_arg = p };
    base_status_t status = sim_stage_create_actors(&p->stage, &mine);
    if (status == BASE_OK)
        status = stores_status(p, &mine);
    status = sim_real_agree(round, SIM_REAL_ONLY, status, &mine, NULL, err);
    if (status != BASE_OK)
        return status;
    status = sim_stage_play(&p->stage, &mine);
    if (status == BASE_OK)
        status = stores_status(p, &mine);
    return sim_real_agree(round, SIM_REAL_PLAYED, status, &mine, NULL, err);
}

/* Bind this process near its GPU, the first one if it has several. */
static base_status_t take_place(play_t *p, base_err_t *err)
{
    const char *bus = p->round.n_stores > 0 ? p->round.stores[0].facts.bus : NULL;
    if (p->options->bind == COLL_BIND_NONE)
        return BASE_OK;
    return coll_placement_init(&p->placement, p->round.world, p->options->bind, bus, err);
}

/* Make and use the communicators, which stay until the play is through: what is free for the
 * ranks is what they leave. NCCL needs all ranks. */
static base_status_t make_communicators(play_t *p, base_err_t *err)
{
    const sim_real_round_t *round = &p->round;
    uint32_t first, n;
    char trouble[80] = "";
    coll_world_share(round->world, &first, &n);
    int *ordinals = base_xcalloc((size_t)n + 1, sizeof(*ordinals));
    for (uint32_t i = 0; i < round->n_ranks; i++)
        ordinals[i] = p->ordinals[round->ranks[i].pool];
    if (round->n_ranks < n)
        snprintf(trouble, sizeof(trouble), "not all ranks are played (--ranks)");
    base_status_t status =
        sim_communicators_measure(round->scenario, round->world, &p->cuda, ordinals, trouble,
                                  &p->communicators, &p->nccl, err);
    free(ordinals);
    return status;
}

static base_status_t set_up_cuda(play_t *p, base_err_t *err)
{
    base_status_t status = take_place(p, err);
    return status == BASE_OK ? make_communicators(p, err) : status;
}

/* The rounds, each after all others have ended the one before. */
static base_status_t play(play_t *p, base_err_t *err)
{
    sim_real_round_t *round = &p->round;
    base_err_t mine;
    base_status_t status = open_stores(p, &mine);
    status = sim_real_agree(round, SIM_REAL_PLACES, status, &mine, NULL, err);
    if (status != BASE_OK)
        return status;
    if (round->scenario->backend == SIM_BACKEND_CUDA)
        status = set_up_cuda(p, err);
    if (status != BASE_OK)
        return status;
    status = begin_stores(p, &mine);
    status = sim_real_agree(round, SIM_REAL_ROOM, status, &mine, &p->rank_bytes, err);
    if (status == BASE_OK)
        status = play_stage(p, err);
    if (status != BASE_OK)
        return status;
    status = measure_stores(p, false, &mine);
    take_results(p);
    if (status == BASE_OK)
        status = stores_status(p, &mine);
    status = sim_real_agree(round, SIM_REAL_ONLY, status, &mine, NULL, err);
    sim_stage_destroy_actors(&p->stage);
    if (status != BASE_OK)
        return status;
    status = sim_real_agree(round, SIM_REAL_ONLY, stores_status(p, &mine), &mine, NULL, err);
    if (status != BASE_OK)
        return status;
    base_err_t end_err;
    status = measure_stores(p, true, &mine);
    if (coll_nccl_real_close(p->nccl, &end_err) != BASE_OK && status == BASE_OK) {
        status = BASE_ERR_IO;
        mine = end_err;
    }
    p->nccl = NULL;
    if (end_stores(p, &end_err) != BASE_OK && status == BASE_OK) {
        status = BASE_ERR_IO;
        mine = end_err;
    }
    return sim_real_agree(round, SIM_REAL_RESULT, status, &mine, NULL, err);
}

static void fini(play_t *p)
{
    coll_nccl_real_close(p->nccl, NULL);
    sim_communicators_fini(&p->communicators);
    coll_placement_fini(&p->placement);
    sim_stage_destroy_actors(&p->stage);
    for (uint32_t i = 0; i < p->round.n_stores; i++)
        sim_store_close(p->stores[i]);
    if (p->cuda.rt_library != NULL)
        topo_cuda_close(&p->cuda);
    free(p->stores);
    free(p->ordinals);
    free(p->rank_bytes);
    free(p->round.stores);
    free(p->round.ranks);
}

base_status_t sim_real_play(const sim_scenario_t *scenario, coll_world_t *world,
                            const sim_job_t *job, const sim_job_options_t *options,
                            sim_real_t *real_p, base_err_t *err)
{
    static const sim_job_options_t defaults = { 0 };
    sim_real_t real = { 0 };
    play_t p = { .round = { .scenario = scenario, .world = world, .job = job, .real = &real },
                 .options = options != NULL ? options : &defaults };
    base_status_t status = play(&p, err);
    if (status == BASE_OK) {
        real.communicators = p.communicators;
        real.placement = p.placement;
        p.communicators = (sim_communicators_t){ .n_steps = 0 };
        p.placement = (coll_placement_t){ .n = 0 };
    }
    fini(&p);
    if (status == BASE_OK)
        *real_p = real;
    else
        sim_real_fini(&real);
    return status;
}

void sim_real_fini(sim_real_t *real)
{
    sim_communicators_fini(&real->communicators);
    coll_placement_fini(&real->placement);
    free(real->pools);
    free(real->ranks);
    *real = (sim_real_t){ 0 };
}

uint32_t sim_real_n_out_of_memory(const sim_real_t *real)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < real->n_ranks; i++)
        n += real->ranks[i].is_out_of_memory;
    return n;
}
