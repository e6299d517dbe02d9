/* SPDX-License-Identifier: Apache-2.0
 * Giving cached memory back to the device. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/alloc_internal.h"
#include "sim/memory/block_set.h"

/* A free block that is a whole segment. */
static void release_block(sim_alloc_t *a, uint32_t id)
{
    block_t *b = &a->blocks[id];
    set_erase(a, free_set(a, b), size_key(b->size), id);
    trace(a, SIM_TRACE_SEGMENT_FREE, b->addr, b->size, b->stream);
    sim_device_free(a->device, b->addr, b->size);
    a->total -= b->size;
    a->num_device_free++;
    stat_decrease(a, ST_SEGMENT, b->pool, 1);
    reserved_decrease(a, b->pool, b->size);
    if (b->size >= a->conf.max_split_bytes)
        sim__oversize_add(&a->oversize_segments, -1);
    sim__block_delete(a, id);
}

/* All free blocks of the default memory pool in the order (stream, size, address), into a->scratch.
 */
static uint32_t list_free(sim_alloc_t *a, uint32_t pool)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_streams; i++) {
        set_t *set = &a->free_sets[N_POOLS * a->stream_order[i] + pool];
        uint32_t id;
        if (a->streams[a->stream_order[i]].mempool != 0)
            continue;
        sim__set_settle(a, set);
        for (cursor_t at = { 0, 0 }; (id = set_at(a, set, at)) != NONE; at = set_next(a, set, at)) {
            if (n == a->scratch_cap) {
                a->scratch_cap = a->scratch_cap == 0 ? 256 : a->scratch_cap * 2;
                a->scratch = base_xrealloc(a->scratch, a->scratch_cap, sizeof(*a->scratch));
            }
            a->scratch[n++] = id;
        }
    }
    return n;
}

static bool is_collectable(const block_t *b)
{
    return b->is_used && b->segment == NONE && !is_split(b);
}

/* Only the large pool, whichever pool the request is for. Every block of at least the average age
 * goes, also beyond the target. */
void sim__garbage_collect(sim_alloc_t *a)
{
    uint64_t threshold = (uint64_t)(a->conf.gc_threshold * (double)a->limit);
    if (a->total <= threshold)
        return;
    uint64_t target = a->total - threshold, reclaimed = 0, sum = 0, n_blocks = 0;
    uint32_t n = list_free(a, LARGE);
    for (uint32_t i = 0; i < n; i++) {
        const block_t *b = &a->blocks[a->scratch[i]];
        if (!is_split(b)) {
            sum += a->calls[LARGE] - b->stamp;
            n_blocks++;
        }
    }
    bool freed = true;
    while (reclaimed < target && freed && n_blocks > 0) {
        double limit = (double)sum / (double)n_blocks;
        freed = false;
        for (uint32_t i = 0; i < n; i++) {
            const block_t *b = &a->blocks[a->scratch[i]];
            uint64_t age = a->calls[LARGE] - b->stamp;
            if (!is_collectable(b) || (double)age < limit)
                continue;
            freed = true;
            reclaimed += b->size;
            sum -= age;
            n_blocks--;
            release_block(a, a->scratch[i]);
        }
    }
}

/* Oversize blocks of the stream downwards from the largest below `key`. */
static bool release_several(sim_alloc_t *a, const set_t *set, cursor_t at, uint64_t key)
{
    uint64_t released = 0;
    uint32_t n = 0;
    while (set_prev(a, set, &at)) {
        uint32_t id = set_at(a, set, at);
        const block_t *b = &a->blocks[id];
        if (released >= key || b->size < a->conf.max_split_bytes)
            break;
        if (b->segment != NONE)
            continue;
        released += b->size;
        if (n == a->scratch_cap) {
            a->scratch_cap = a->scratch_cap == 0 ? 256 : a->scratch_cap * 2;
            a->scratch = base_xrealloc(a->scratch, a->scratch_cap, sizeof(*a->scratch));
        }
        a->scratch[n++] = id;
    }
    for (uint32_t i = 0; i < n; i++)
        release_block(a, a->scratch[i]);
    return released >= key;
}

bool sim__release_available(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size)
{
    if (a->conf.max_split_bytes == UINT64_MAX)
        return false;
    uint64_t key = base_u64_max(size, a->conf.max_split_bytes);
    set_t *set = &a->free_sets[N_POOLS * stream + pool];
    sim__set_settle(a, set);
    cursor_t at = set_lower_bound(a, set, size_key_wanted(key));
    uint32_t id = set_at(a, set, at);
    if (id == NONE || a->blocks[id].segment != NONE)
        return release_several(a, set, at, key);
    release_block(a, id);
    return true;
}

static void release_pool(sim_alloc_t *a, uint32_t pool)
{
    uint32_t n = list_free(a, pool), n_expandable = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = a->scratch[i];
        const block_t *b = &a->blocks[id];
        if (b->segment != NONE)
            a->scratch[n_expandable++] = id;
        else if (!is_split(b))
            release_block(a, id);
    }
    for (uint32_t i = 0; i < n_expandable; i++)
        sim__expandable_unmap(a, a->scratch[i]);
}

void sim__release_cached(sim_alloc_t *a)
{
    if (a->mempool != 0)
        return;
    sim__finish_all_events(a);
    release_pool(a, LARGE);
    release_pool(a, SMALL);
}
