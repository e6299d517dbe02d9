/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/alloc_internal.h"

#include <stdlib.h>

uint64_t sim_alloc_block_addr(const sim_alloc_t *a, sim_block_t block)
{
    return a->blocks[block].addr;
}

uint64_t sim_alloc_block_bytes(const sim_alloc_t *a, sim_block_t block)
{
    return a->blocks[block].size;
}

static uint64_t current(const sim_alloc_t *a, stat_id_t id)
{
    return a->stat[SMALL][id].current + a->stat[LARGE][id].current;
}

const sim_alloc_totals_t *sim_alloc_totals(const sim_alloc_t *a)
{
    return &a->totals;
}

uint64_t sim_alloc_allocated_bytes(const sim_alloc_t *a)
{
    return a->totals.allocated_bytes;
}

uint64_t sim_alloc_reserved_bytes(const sim_alloc_t *a)
{
    return a->totals.reserved_bytes;
}

static uint64_t active_now(const sim_alloc_t *a, const active_stat_t *active, stat_id_t id,
                           uint32_t pool)
{
    return a->stat[pool][id].current + active->waiting[pool];
}

static void reset_active_peak(sim_alloc_t *a, active_stat_t *active, stat_id_t id)
{
    active->all_peak = 0;
    for (uint32_t pool = 0; pool < N_POOLS; pool++) {
        active->peak[pool] = active_now(a, active, id, pool);
        active->all_peak += active->peak[pool];
    }
}

static void reset_signed_peak(signed_stat_t *s)
{
    s->peak = s->current;
}

void sim_alloc_reset_peak(sim_alloc_t *a)
{
    for (int id = 0; id < N_STATS; id++) {
        for (int pool = 0; pool < N_POOLS; pool++)
            a->stat[pool][id].peak = a->stat[pool][id].current;
        a->all_peak[id] = current(a, (stat_id_t)id);
    }
    reset_active_peak(a, &a->active, ST_ALLOCATION);
    reset_active_peak(a, &a->active_bytes, ST_ALLOCATED_BYTES);
    reset_signed_peak(&a->oversize_allocations);
    reset_signed_peak(&a->oversize_segments);
}

static void reset_signed_accumulated(signed_stat_t *s)
{
    s->increased = 0;
    s->current_reset = s->current;
}

void sim_alloc_reset_accumulated(sim_alloc_t *a)
{
    for (int id = 0; id < N_STATS; id++)
        for (int pool = 0; pool < N_POOLS; pool++) {
            a->stat[pool][id].increased = 0;
            a->stat[pool][id].current_reset = a->stat[pool][id].current;
        }
    for (int pool = 0; pool < N_POOLS; pool++) {
        a->active.waiting_reset[pool] = a->active.waiting[pool];
        a->active_bytes.waiting_reset[pool] = a->active_bytes.waiting[pool];
    }
    reset_signed_accumulated(&a->oversize_allocations);
    reset_signed_accumulated(&a->oversize_segments);
    a->num_alloc_retries = a->num_ooms = a->num_sync_all_streams = 0;
    a->num_device_alloc = a->num_device_free = a->num_oom_rejections = 0;
}

static void fill(const sim_alloc_t *a, stat_id_t id, sim_stat_t out[SIM_N_POOLS])
{
    for (int pool = 0; pool < N_POOLS; pool++) {
        const pool_stat_t *s = &a->stat[pool][id];
        out[SIM_POOL_SMALL + pool] = (sim_stat_t){
            .current = s->current,
            .peak = s->peak,
            .allocated = s->increased,
            .freed = s->current_reset + s->increased - s->current,
        };
    }
    out[SIM_POOL_ALL] = (sim_stat_t){
        .current = current(a, id),
        .peak = a->all_peak[id],
        .allocated = out[SIM_POOL_SMALL].allocated + out[SIM_POOL_LARGE].allocated,
        .freed = out[SIM_POOL_SMALL].freed + out[SIM_POOL_LARGE].freed,
    };
}

/* From the figures of allocation or allocated_bytes, which are filled in already. */
static void fill_active(const sim_alloc_t *a, const active_stat_t *active, stat_id_t id,
                        const sim_stat_t allocated[SIM_N_POOLS], sim_stat_t out[SIM_N_POOLS])
{
    sim_stat_t *all = &out[SIM_POOL_ALL];
    *all = allocated[SIM_POOL_ALL];
    all->peak = base_u64_max(all->peak, active->all_peak);
    for (uint32_t pool = 0; pool < N_POOLS; pool++) {
        sim_stat_t *s = &out[SIM_POOL_SMALL + pool];
        *s = allocated[SIM_POOL_SMALL + pool];
        s->current = active_now(a, active, id, pool);
        s->peak = base_u64_max(s->peak, active->peak[pool]);
        s->freed = s->freed + active->waiting_reset[pool] - active->waiting[pool];
        all->current += active->waiting[pool];
        all->freed += active->waiting_reset[pool] - active->waiting[pool];
    }
}

static sim_stat_t from_signed(const signed_stat_t *s)
{
    return (sim_stat_t){
        .current = (uint64_t)s->current,
        .peak = (uint64_t)s->peak,
        .allocated = (uint64_t)s->increased,
        .freed = (uint64_t)(s->current_reset + s->increased - s->current),
    };
}

const sim_alloc_stats_t *sim_alloc_stats(const sim_alloc_t *a)
{
    sim_alloc_stats_t *out = a->stats;
    fill(a, ST_ALLOCATED_BYTES, out->allocated_bytes);
    fill(a, ST_RESERVED_BYTES, out->reserved_bytes);
    fill(a, ST_INACTIVE_SPLIT_BYTES, out->inactive_split_bytes);
    fill(a, ST_REQUESTED_BYTES, out->requested_bytes);
    fill(a, ST_ALLOCATION, out->allocation);
    fill(a, ST_SEGMENT, out->segment);
    fill_active(a, &a->active, ST_ALLOCATION, out->allocation, out->active);
    fill_active(a, &a->active_bytes, ST_ALLOCATED_BYTES, out->allocated_bytes, out->active_bytes);
    fill(a, ST_INACTIVE_SPLIT, out->inactive_split);
    out->oversize_allocations = from_signed(&a->oversize_allocations);
    out->oversize_segments = from_signed(&a->oversize_segments);
    out->num_alloc_retries = a->num_alloc_retries;
    out->num_ooms = a->num_ooms;
    out->num_sync_all_streams = a->num_sync_all_streams;
    out->num_device_alloc = a->num_device_alloc;
    out->num_device_free = a->num_device_free;
    out->num_oom_rejections = a->num_oom_rejections;
    return out;
}

static int by_address(const void *x, const void *y, void *arg)
{
    const sim_alloc_t *alloc = arg;
    uint64_t a = alloc->blocks[*(const uint32_t *)x].addr;
    uint64_t b = alloc->blocks[*(const uint32_t *)y].addr;
    return (a > b) - (a < b);
}

/* Blocks from `id` to the end of its mapped range; returns the block after it, NONE at the end. */
static uint32_t visit_range(const sim_alloc_t *a, uint32_t id, sim_block_f visit, void *arg)
{
    uint64_t start = a->blocks[id].addr, bytes = 0;
    uint32_t end = id;
    for (; end != NONE && a->blocks[end].is_mapped; end = a->blocks[end].next)
        bytes += a->blocks[end].size;
    for (; id != end; id = a->blocks[id].next) {
        const block_t *b = &a->blocks[id];
        bool is_active = b->is_allocated || b->n_events > 0;
        visit(arg, &(sim_block_info_t){
                       .segment_addr = start,
                       .segment_bytes = bytes,
                       .addr = b->addr,
                       .bytes = b->size,
                       .requested_bytes = b->requested,
                       .stream = a->streams[b->stream].handle,
                       .mempool = a->streams[b->stream].mempool,
                       .is_large = b->pool == LARGE,
                       .is_expandable = b->segment != NONE,
                       .is_allocated = b->is_allocated,
                       .is_active = is_active,
                   });
    }
    return end;
}

void sim_alloc_foreach(const sim_alloc_t *a, sim_block_f visit, void *arg)
{
    uint32_t *heads = base_xcalloc(a->n_blocks, sizeof(*heads)), n = 0;
    for (uint32_t i = 0; i < a->n_blocks; i++)
        if (a->blocks[i].is_used && a->blocks[i].prev == NONE)
            heads[n++] = i;
    qsort_r(heads, n, sizeof(*heads), by_address, (void *)a);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t id = heads[i]; id != NONE;)
            id = a->blocks[id].is_mapped ? visit_range(a, id, visit, arg) : a->blocks[id].next;
    free(heads);
}
