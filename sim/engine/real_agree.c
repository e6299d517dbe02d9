/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/real_agree.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef char size_text_t[BASE_BYTES_TEXT];

/* What a process sends; its stores and ranks follow, and have to be aligned. */
typedef struct {
    _Alignas(uint64_t) base_status_t status;
    uint32_t n_stores, n_ranks;
    char text[sizeof(((base_err_t *)NULL)->text)];
} head_t;

/* The answer to all; with SIM_REAL_ROOM a figure for each rank of the job follows. */
typedef struct {
    _Alignas(uint64_t) base_status_t status;
    char text[sizeof(((base_err_t *)NULL)->text)];
} answer_t;

/* ---- what arrives at process 0 ---- */

typedef struct {
    const head_t *head;
    const sim_real_store_t *stores;
    const sim_real_rank_t *ranks;
} part_t;

static char *pack(const sim_real_round_t *round, base_status_t mine, const base_err_t *mine_err,
                  size_t *n_p)
{
    size_t stores = round->n_stores * sizeof(*round->stores);
    size_t ranks = round->n_ranks * sizeof(*round->ranks);
    char *data = base_xcalloc(sizeof(head_t) + stores + ranks, 1);
    head_t head = { .status = mine, .n_stores = round->n_stores, .n_ranks = round->n_ranks };
    if (mine != BASE_OK)
        snprintf(head.text, sizeof(head.text), "%s", mine_err->text);
    memcpy(data, &head, sizeof(head));
    if (stores > 0)
        memcpy(data + sizeof(head), round->stores, stores);
    if (ranks > 0)
        memcpy(data + sizeof(head) + stores, round->ranks, ranks);
    *n_p = sizeof(head) + stores + ranks;
    return data;
}

/* All processes run the same program, so that sizes agree; blobs are aligned as malloc() does. */
static part_t *unpack(const coll_blob_t *blobs, uint32_t n)
{
    part_t *parts = base_xcalloc(n, sizeof(*parts));
    for (uint32_t i = 0; i < n; i++) {
        part_t *part = &parts[i];
        part->head = (const head_t *)(const void *)blobs[i].data;
        const char *at = blobs[i].data + sizeof(head_t);
        part->stores = (const sim_real_store_t *)(const void *)at;
        at += part->head->n_stores * sizeof(*part->stores);
        part->ranks = (const sim_real_rank_t *)(const void *)at;
    }
    return parts;
}

/* ---- pools ---- */

static sim_real_pool_t *pool_of(sim_real_t *real, const char *host, const sim_real_store_t *store)
{
    for (uint32_t i = 0; i < real->n_pools; i++) {
        sim_real_pool_t *pool = &real->pools[i];
        if (strcmp(pool->host, host) == 0 && strcmp(pool->facts.bus, store->facts.bus) == 0)
            return pool;
    }
    real->pools = base_xrealloc(real->pools, real->n_pools + 1, sizeof(*real->pools));
    sim_real_pool_t *pool = &real->pools[real->n_pools++];
    *pool = (sim_real_pool_t){ .facts = store->facts, .used_before = store->used_before };
    snprintf(pool->host, sizeof(pool->host), "%.*s", SIM_REAL_HOST - 1, host);
    return pool;
}

/* A GPU's figures come from each process that uses it and are the same; those of a machine are what
 * the processes have of it. */
static void add_store(sim_real_pool_t *pool, const sim_real_store_t *store)
{
    bool is_gpu = store->facts.bus[0] != '\0';
    uint64_t held = store->held_used_bytes > store->used_before
                        ? store->held_used_bytes - store->used_before
                        : 0;
    int64_t left = (int64_t)store->used_after - (int64_t)store->used_before;
    pool->held_account_bytes += store->held_account_bytes;
    pool->held_own_bytes =
        is_gpu ? base_u64_max(pool->held_own_bytes, held) : pool->held_own_bytes + held;
    pool->left_bytes = is_gpu ? left : pool->left_bytes + left;
    if (store->facts.free_bytes < pool->facts.free_bytes)
        pool->facts.free_bytes = store->facts.free_bytes;
    if (pool->facts.note[0] == '\0')
        memcpy(pool->facts.note, store->facts.note, sizeof(pool->facts.note));
    pool->n_processes++;
}

static int by_rank(const void *a, const void *b)
{
    const sim_real_rank_t *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Everything into round->real, anew. */
static void assemble(sim_real_round_t *round, const part_t *parts, uint32_t n)
{
    sim_real_t *real = round->real;
    sim_real_fini(real);
    real->scale = round->scenario->device_scale;
    uint32_t n_ranks = 0;
    for (uint32_t i = 0; i < n; i++)
        n_ranks += parts[i].head->n_ranks;
    real->ranks = base_xcalloc(n_ranks, sizeof(*real->ranks));
    for (uint32_t i = 0; i < n; i++) {
        const char *host = coll_world_host(round->world, i);
        for (uint32_t k = 0; k < parts[i].head->n_stores; k++)
            add_store(pool_of(real, host, &parts[i].stores[k]), &parts[i].stores[k]);
        for (uint32_t k = 0; k < parts[i].head->n_ranks; k++) {
            sim_real_rank_t *r = &real->ranks[real->n_ranks++];
            *r = parts[i].ranks[k];
            sim_real_pool_t *pool = pool_of(real, host, &parts[i].stores[r->pool]);
            r->pool = (uint32_t)(pool - real->pools);
            pool->n_ranks++;
            const sim_rank_result_t *model = sim_job_result(round->job, r->rank);
            r->model_reserved_bytes = model->max_reserved_bytes;
            r->is_model_out_of_memory = model->is_out_of_memory;
        }
    }
    if (real->n_ranks > 0)
        qsort(real->ranks, real->n_ranks, sizeof(*real->ranks), by_rank);
    for (uint32_t i = 0; i < real->n_ranks; i++) {
        const sim_real_pool_t *pool = &real->pools[real->ranks[i].pool];
        sim_device_own_t *own = &real->ranks[i].own;
        if (pool->facts.bus[0] == '\0' || pool->n_processes == 1)
            continue;
        own->is_measured = own->is_measured && own->has_process;
        own->own_bytes = own->process_bytes;
    }
}

/* ---- is there room? ---- */

static base_status_t judge_places(const sim_real_round_t *round, base_err_t *err)
{
    const sim_real_t *real = round->real;
    uint64_t most = round->scenario->ranks_per_gpu;
    for (uint32_t i = 0; i < real->n_pools; i++) {
        const sim_real_pool_t *pool = &real->pools[i];
        if (pool->facts.bus[0] != '\0' && pool->n_ranks > most)
            return base_err_set(err, BASE_ERR_IO,
                                "backend = cuda: %" PRIu32 " ranks on GPU %s of %s: "
                                "device.ranks_per_gpu = %" PRIu64
                                " lets no more share it; there are more ranks than GPUs",
                                pool->n_ranks, pool->facts.bus, pool->host, most);
    }
    return BASE_OK;
}

/* What all ranks on it may take together. */
static uint64_t limit_of(const sim_scenario_t *s, const sim_real_pool_t *pool)
{
    double share = s->device_share;
    if (s->backend == SIM_BACKEND_CUDA)
        return (uint64_t)((share > 0 ? share : 1.0) * (double)pool->facts.free_bytes);
    uint64_t part = (uint64_t)((share > 0 ? share : 0.5) * (double)pool->facts.total_bytes);
    return base_u64_min(part, pool->facts.free_bytes);
}

static base_status_t refuse_rank(const sim_real_round_t *round, const sim_real_rank_t *r,
                                 uint64_t need, base_err_t *err)
{
    const sim_scenario_t *s = round->scenario;
    const sim_real_pool_t *pool = &round->real->pools[r->pool];
    size_text_t needed, may, available, total;
    base_bytes_format(need, needed);
    base_bytes_format(pool->rank_bytes, may);
    base_bytes_format(pool->facts.free_bytes, available);
    base_bytes_format(pool->facts.total_bytes, total);
    if (s->backend == SIM_BACKEND_CUDA)
        return base_err_set(err, BASE_ERR_IO,
                            "backend = cuda: rank %" PRIu32 " needs %s and may take %s: GPU %s of "
                            "%s (%s) has %s, of which %s is free, for %" PRIu32
                            " rank%s; fewer ranks (--ranks), or another device.share",
                            r->rank, needed, may, pool->facts.bus, pool->host, pool->facts.name,
                            total, available, pool->n_ranks, pool->n_ranks > 1 ? "s" : "");
    return base_err_set(err, BASE_ERR_IO,
                        "backend = host: rank %" PRIu32 " needs %s and may take %s: %s has %s, of "
                        "which %s is available, for %" PRIu32
                        " rank%s; a larger device.scale or device.share, or fewer ranks (--ranks)",
                        r->rank, needed, may, pool->host, total, available, pool->n_ranks,
                        pool->n_ranks > 1 ? "s" : "");
}

/* Every rank gets the same part; none may need more. */
static base_status_t judge_room(const sim_real_round_t *round, uint64_t *rank_bytes,
                                base_err_t *err)
{
    sim_real_t *real = round->real;
    for (uint32_t i = 0; i < real->n_pools; i++) {
        sim_real_pool_t *pool = &real->pools[i];
        if (pool->n_ranks > 0)
            pool->rank_bytes = limit_of(round->scenario, pool) / pool->n_ranks;
    }
    for (uint32_t i = 0; i < real->n_ranks; i++) {
        const sim_real_rank_t *r = &real->ranks[i];
        uint64_t need = base_u64_div_up(r->model_reserved_bytes, real->scale);
        if (need > real->pools[r->pool].rank_bytes)
            return refuse_rank(round, r, need, err);
        rank_bytes[r->rank] = real->pools[r->pool].rank_bytes;
    }
    return BASE_OK;
}

/* ---- rounds ---- */

/* The first process that has an error. */
static base_status_t first_error(const sim_real_round_t *round, const part_t *parts, uint32_t n,
                                 base_err_t *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const head_t *head = parts[i].head;
        if (head->status == BASE_OK)
            continue;
        if (n == 1)
            return base_err_set(err, head->status, "%s", head->text);
        return base_err_set(err, head->status, "process %" PRIu32 " on %s: %s", i,
                            coll_world_host(round->world, i), head->text);
    }
    return BASE_OK;
}

static base_status_t judge(sim_real_round_t *round, sim_real_what_t what, const coll_blob_t *blobs,
                           uint64_t *rank_bytes, base_err_t *err)
{
    uint32_t n = coll_world_n_processes(round->world);
    part_t *parts = unpack(blobs, n);
    base_status_t status = first_error(round, parts, n, err);
    if (status == BASE_OK && what != SIM_REAL_ONLY && what != SIM_REAL_PLAYED) {
        uint64_t *shares = base_xcalloc(round->real->n_pools, sizeof(*shares));
        uint32_t n_shares = round->real->n_pools;
        for (uint32_t i = 0; i < n_shares; i++)
            shares[i] = round->real->pools[i].rank_bytes;
        assemble(round, parts, n);
        /* The pools are made in the same order each time. */
        for (uint32_t i = 0; i < n_shares && i < round->real->n_pools; i++)
            round->real->pools[i].rank_bytes = shares[i];
        free(shares);
    }
    if (status == BASE_OK && what == SIM_REAL_PLACES)
        status = judge_places(round, err);
    if (status == BASE_OK && what == SIM_REAL_ROOM)
        status = judge_room(round, rank_bytes, err);
    free(parts);
    return status;
}

/* Process 0. */
static char *make_answer(sim_real_round_t *round, sim_real_what_t what, const coll_blob_t *blobs,
                         base_status_t gathered, const base_err_t *gather_err, size_t *n_p)
{
    uint32_t n_ranks = what == SIM_REAL_ROOM ? round->scenario->grid.world_size : 0;
    char *data = base_xcalloc(sizeof(answer_t) + n_ranks * sizeof(uint64_t), 1);
    base_err_t err = { .text = "" };
    base_status_t status = gathered;
    if (gathered == BASE_OK)
        status = judge(round, what, blobs, (uint64_t *)(void *)(data + sizeof(answer_t)), &err);
    else
        err = *gather_err;
    answer_t answer = { .status = status };
    memcpy(answer.text, err.text, sizeof(answer.text));
    memcpy(data, &answer, sizeof(answer));
    *n_p = sizeof(answer_t) + n_ranks * sizeof(uint64_t);
    return data;
}

base_status_t sim_real_agree(sim_real_round_t *round, sim_real_what_t what, base_status_t mine,
                             const base_err_t *mine_err, uint64_t **rank_bytes_p, base_err_t *err)
{
    size_t n;
    char *data = pack(round, mine, mine_err, &n);
    coll_blob_t *blobs = NULL;
    base_err_t gather_err;
    base_status_t gathered = BASE_OK;
    if (what == SIM_REAL_PLAYED)
        gathered = coll_world_gather(round->world, data, n, &blobs, &gather_err);
    else
        coll_world_collect(round->world, data, n, &blobs);
    free(data);
    data = NULL;
    n = 0;
    if (coll_world_process(round->world) == 0)
        data = make_answer(round, what, blobs, gathered, &gather_err, &n);
    coll_blobs_free(blobs, coll_world_n_processes(round->world));
    coll_world_broadcast(round->world, &data, &n);
    answer_t answer;
    memcpy(&answer, data, sizeof(answer));
    base_status_t status = answer.status;
    if (status != BASE_OK)
        base_err_set(err, status, "%s", answer.text);
    else if (what == SIM_REAL_ROOM) {
        size_t n_bytes = n - sizeof(answer);
        *rank_bytes_p = base_xcalloc(n_bytes, 1);
        memcpy(*rank_bytes_p, data + sizeof(answer), n_bytes);
    }
    free(data);
    return status;
}
