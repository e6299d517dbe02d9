/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/caching_allocator.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/alloc_internal.h"
#include "sim/memory/block_set.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* c10/cuda/CUDACachingAllocator.cpp and c10/core/CachingDeviceAllocator.h, 2.6 to 2.13. */
#define SMALL_MAX   BASE_MIB        /* larger rounded sizes go to the large pool */
#define SMALL_SEG   (2 * BASE_MIB)  /* segment for a small request */
#define MIN_LARGE   (10 * BASE_MIB) /* from here on a request gets its own segment, */
#define ROUND_LARGE (2 * BASE_MIB)  /* rounded up to this */

_Static_assert(sizeof(block_t) == 64, "one cache line");

/* ---- records ---- */

void sim__reserve_blocks(sim_alloc_t *a, uint32_t n)
{
    if (a->n_blocks + n <= a->blocks_cap)
        return;
    a->blocks_cap = a->blocks_cap == 0 ? 256 : a->blocks_cap * 2;
    a->blocks = sim__realloc_aligned(&a->blocks_raw, a->blocks, a->n_blocks, a->blocks_cap,
                                     sizeof(block_t));
}

uint32_t sim__block_new(sim_alloc_t *a, uint64_t addr, uint64_t size, uint32_t stream,
                        uint32_t pool)
{
    uint32_t id = a->unused_block;
    if (id != NONE) {
        a->unused_block = a->blocks[id].next;
    } else {
        sim__reserve_blocks(a, 1);
        id = a->n_blocks++;
    }
    a->blocks[id] = (block_t){ .addr = addr,
                               .size = size,
                               .prev = NONE,
                               .next = NONE,
                               .stream = stream,
                               .segment = NONE,
                               .foreign = NONE,
                               .pool = (uint8_t)pool,
                               .is_used = true,
                               .is_mapped = true };
    return id;
}

void sim__block_delete(sim_alloc_t *a, uint32_t id)
{
    a->blocks[id].is_used = false;
    a->blocks[id].next = a->unused_block;
    a->unused_block = id;
}

void sim__link_after(sim_alloc_t *a, uint32_t id, uint32_t rest)
{
    block_t *b = &a->blocks[id], *r = &a->blocks[rest];
    r->prev = id;
    r->next = b->next;
    if (r->next != NONE)
        a->blocks[r->next].prev = rest;
    b->next = rest;
}

static uint32_t stream_new(sim_alloc_t *a, uint64_t handle, uint32_t mempool, uint32_t order)
{
    if (a->n_streams == a->streams_cap) {
        a->streams_cap = a->streams_cap == 0 ? 4 : a->streams_cap * 2;
        a->streams = base_xrealloc(a->streams, a->streams_cap, sizeof(*a->streams));
        a->stream_order = base_xrealloc(a->stream_order, a->streams_cap, sizeof(uint32_t));
        size_t n_sets = (size_t)N_POOLS * a->streams_cap;
        a->free_sets = base_xrealloc(a->free_sets, n_sets, sizeof(set_t));
        a->unmapped_sets = base_xrealloc(a->unmapped_sets, n_sets, sizeof(set_t));
    }
    uint32_t id = a->n_streams++;
    memmove(&a->stream_order[order + 1], &a->stream_order[order],
            (id - order) * sizeof(*a->stream_order));
    a->stream_order[order] = id;
    a->streams[id] =
        (stream_t){ .handle = handle, .mempool = mempool, .first_event = NONE, .last_event = NONE };
    for (uint32_t pool = 0; pool < N_POOLS; pool++) {
        sim__set_init(a, &a->free_sets[N_POOLS * id + pool]);
        sim__set_init(a, &a->unmapped_sets[N_POOLS * id + pool]);
    }
    return id;
}

static bool is_below(const stream_t *s, uint64_t handle, uint32_t mempool)
{
    return s->handle != handle ? s->handle < handle : s->mempool < mempool;
}

/* First place in stream_order that is not below (handle, mempool). */
static uint32_t stream_place(const sim_alloc_t *a, uint64_t handle, uint32_t mempool)
{
    uint32_t lo = 0, hi = a->n_streams;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (is_below(&a->streams[a->stream_order[mid]], handle, mempool))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool is_stream(const stream_t *s, uint64_t handle, uint32_t mempool)
{
    return s->handle == handle && s->mempool == mempool;
}

static uint32_t stream_known(const sim_alloc_t *a, uint64_t handle, uint32_t mempool)
{
    uint32_t place = stream_place(a, handle, mempool);
    if (place == a->n_streams || !is_stream(&a->streams[a->stream_order[place]], handle, mempool))
        return NONE;
    return a->stream_order[place];
}

static inline uint32_t stream_find(sim_alloc_t *a, uint64_t handle, uint32_t mempool)
{
    if (is_stream(&a->streams[a->last_stream], handle, mempool))
        return a->last_stream;
    uint32_t id = stream_known(a, handle, mempool);
    if (id == NONE)
        id = stream_new(a, handle, mempool, stream_place(a, handle, mempool));
    a->last_stream = id;
    return id;
}

/* ---- sizes ---- */

static inline uint64_t round_size(const sim_alloc_t *a, uint64_t bytes)
{
    if (bytes < MIN_BLOCK)
        return MIN_BLOCK;
    if (__builtin_expect(a->conf.has_divisions, 0))
        return sim_alloc_conf_round(&a->conf, bytes);
    return (bytes + MIN_BLOCK - 1) & ~(uint64_t)(MIN_BLOCK - 1);
}

/* What cudaMalloc is asked for. */
static uint64_t segment_size(const sim_alloc_t *a, uint64_t size)
{
    if (size <= SMALL_MAX)
        return SMALL_SEG;
    return size < MIN_LARGE ? a->conf.large_segment_bytes : base_u64_round_up(size, ROUND_LARGE);
}

void sim__oversize_add(signed_stat_t *s, int64_t by)
{
    s->current += by;
    if (by > 0)
        s->increased += by;
    if (s->current > s->peak)
        s->peak = s->current;
}

/* ---- free ---- */

HOT void insert_free(sim_alloc_t *a, block_t *b, uint32_t id)
{
    b->stamp = a->calls[b->pool];
    set_insert(a, free_set(a, b), size_key(b->size), id);
}

void sim__insert_free(sim_alloc_t *a, uint32_t id)
{
    insert_free(a, &a->blocks[id], id);
}

/* A neighbour that is to be merged, out of its set. */
HOT void take_out(sim_alloc_t *a, const block_t *b, uint32_t id)
{
    if (b->is_mapped)
        set_erase(a, free_set(a, b), size_key(b->size), id);
    else
        set_erase(a, unmapped_set(a, b), UNMAPPED_KEY, id);
}

static inline bool can_merge(const block_t *b, const block_t *neighbour)
{
    return is_idle(neighbour) && neighbour->is_mapped == b->is_mapped;
}

/* Bytes taken over, 0 = not merged. */
HOT uint64_t merge_prev(sim_alloc_t *a, block_t *b, uint32_t id)
{
    uint32_t prev = b->prev;
    if (prev == NONE || !can_merge(b, &a->blocks[prev]))
        return 0;
    const block_t *p = &a->blocks[prev];
    take_out(a, p, prev);
    uint64_t size = p->size;
    b->addr = p->addr;
    b->size += size;
    b->prev = p->prev;
    if (b->prev != NONE)
        a->blocks[b->prev].next = id;
    sim__block_delete(a, prev);
    return size;
}

HOT uint64_t merge_next(sim_alloc_t *a, block_t *b, uint32_t id)
{
    uint32_t next = b->next;
    if (next == NONE || !can_merge(b, &a->blocks[next]))
        return 0;
    const block_t *n = &a->blocks[next];
    take_out(a, n, next);
    uint64_t size = n->size;
    b->size += size;
    b->next = n->next;
    if (b->next != NONE)
        a->blocks[b->next].prev = id;
    sim__block_delete(a, next);
    return size;
}

void sim__merge_neighbours(sim_alloc_t *a, uint32_t id)
{
    block_t *b = &a->blocks[id];
    merge_prev(a, b, id);
    merge_next(a, b, id);
}

/* The net effect of a free on inactive_split is one step, so that peaks see only the net. */
HOT void count_inactive_split(sim_alloc_t *a, const block_t *b, uint64_t before, uint64_t behind)
{
    bool split = is_split(b);
    stat_change(a, ST_INACTIVE_SPLIT_BYTES, b->pool, (split ? b->size : 0) - before - behind);
    stat_change(a, ST_INACTIVE_SPLIT, b->pool,
                (uint64_t)split - (uint64_t)(before != 0) - (uint64_t)(behind != 0));
}

HOT void free_block(sim_alloc_t *a, block_t *b, uint32_t id)
{
    trace(a, SIM_TRACE_FREE_COMPLETED, b->addr, b->requested, b->stream);
    if (a->keeps_stats)
        stat_decrease(a, ST_REQUESTED_BYTES, b->pool, b->requested);
    uint64_t before = merge_prev(a, b, id);
    uint64_t behind = merge_next(a, b, id);
    insert_free(a, b, id);
    if (a->keeps_stats && b->segment == NONE)
        count_inactive_split(a, b, before, behind);
}

void sim__free_block(sim_alloc_t *a, uint32_t id)
{
    free_block(a, &a->blocks[id], id);
}

static inline void count_freed(sim_alloc_t *a, const block_t *b)
{
    stat_decrease(a, ST_ALLOCATION, b->pool, 1);
    stat_decrease(a, ST_ALLOCATED_BYTES, b->pool, b->size);
    if (b->size >= a->conf.max_split_bytes)
        sim__oversize_add(&a->oversize_allocations, -1);
}

void sim_alloc_free(sim_alloc_t *a, sim_block_t id)
{
    if (id == SIM_BLOCK_NONE)
        return;
    if (__builtin_expect(a->is_live, 0)) {
        sim__live_free(a, id);
        return;
    }
    block_t *b = &a->blocks[id];
    b->is_allocated = false;
    a->totals.allocated_bytes -= b->size;
    trace(a, SIM_TRACE_FREE_REQUESTED, b->addr, b->requested, b->stream);
    if (a->keeps_stats)
        count_freed(a, b);
    if (b->foreign != NONE)
        sim__record_events(a, id);
    else
        free_block(a, b, id);
}

/* ---- allocate ---- */

static inline uint64_t extended_size(const sim_alloc_t *a, const block_t *b)
{
    if (b->next == NONE || a->blocks[b->next].is_mapped)
        return b->size;
    return b->size + a->blocks[b->next].size;
}

/* From the first block that `size` fits into on, which is expandable: with expandable segments, the
 * local minimum of the size that it can grow to; without, the first block that is not expandable.
 */
static uint32_t step_expandable(sim_alloc_t *a, set_t *set, uint64_t size)
{
    sim__set_settle(a, set);
    cursor_t at = set_lower_bound(a, set, size_key(size));
    uint32_t id = set_at(a, set, at);
    while (id != NONE && a->blocks[id].segment != NONE) {
        cursor_t next = set_next(a, set, at);
        uint32_t next_id = set_at(a, set, next);
        if (a->conf.expandable_segments &&
            (next_id == NONE ||
             extended_size(a, &a->blocks[next_id]) >= extended_size(a, &a->blocks[id])))
            return id;
        at = next;
        id = next_id;
    }
    return id;
}

HOT uint32_t get_free_block(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size)
{
    if (__builtin_expect(a->gc_on, 0))
        a->calls[pool]++;
    set_t *set = &a->free_sets[N_POOLS * stream + pool];
    uint32_t id = set_first(a, set, size_key_wanted(size));
    if (id != NONE && a->blocks[id].segment != NONE)
        id = step_expandable(a, set, size);
    if (id == NONE)
        return NONE;
    uint64_t have = a->blocks[id].size;
    if (have >= a->conf.max_split_bytes &&
        (size < a->conf.max_split_bytes || have - size >= a->conf.max_non_split_rounding_bytes))
        return NONE;
    set_erase(a, set, size_key(have), id);
    return id;
}

static bool over_limit(const sim_alloc_t *a, uint64_t bytes)
{
    return a->has_limit && (bytes > a->limit || a->total > a->limit - bytes);
}

static uint32_t alloc_block(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size)
{
    uint64_t bytes = segment_size(a, size), addr;
    if (over_limit(a, bytes))
        return NONE;
    if (a->conf.expandable_segments)
        return sim__expandable_alloc(a, stream, pool, size);
    if (!sim_device_malloc(a->device, bytes, &addr))
        return NONE;
    a->total += bytes;
    a->num_device_alloc++;
    stat_increase(a, ST_SEGMENT, pool, 1);
    reserved_increase(a, pool, bytes);
    if (bytes >= a->conf.max_split_bytes)
        sim__oversize_add(&a->oversize_segments, 1);
    trace(a, SIM_TRACE_SEGMENT_ALLOC, addr, bytes, stream);
    return sim__block_new(a, addr, bytes, stream, pool);
}

static uint64_t largest_free(sim_alloc_t *a, uint32_t stream, uint32_t pool)
{
    set_t *set = &a->free_sets[N_POOLS * stream + pool];
    sim__set_settle(a, set);
    cursor_t at = { set->n, 0 };
    return set_prev(a, set, &at) ? a->blocks[set_at(a, set, at)].size : 0;
}

void sim__note_oom(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size)
{
    uint64_t usable = sim_device_usable_bytes(a->device), used = sim_device_used_bytes(a->device);
    a->oom = (sim_oom_t){
        .requested_bytes = size,
        .device_free_bytes = usable > used ? usable - used : 0,
        .device_total_bytes = sim_device_total_bytes(a->device),
        .allocated_bytes = sim_alloc_allocated_bytes(a),
        .reserved_bytes = sim_alloc_reserved_bytes(a),
        .largest_free_block_bytes = largest_free(a, stream, pool),
        .mempools_idle_bytes = sim_alloc_mempools(a).idle_bytes,
        .has_limit = a->has_limit,
        .limit_bytes = a->limit,
    };
}

/* The retry chain after the free lists had nothing; they are not searched again in it. */
static uint32_t grow(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size)
{
    if (a->conf.throw_on_cudamalloc_oom && over_limit(a, segment_size(a, size))) {
        a->num_oom_rejections++;
        sim__note_oom(a, stream, pool, size);
        return NONE;
    }
    if (a->gc_on)
        sim__garbage_collect(a);
    uint32_t id = alloc_block(a, stream, pool, size);
    if (id == NONE && a->full != NULL)
        a->full(a->full_arg);
    if (id == NONE && sim__release_available(a, stream, pool, size))
        id = alloc_block(a, stream, pool, size);
    if (id == NONE) {
        sim__release_cached(a);
        a->num_alloc_retries++;
        id = alloc_block(a, stream, pool, size);
    }
    if (id == NONE) {
        a->num_ooms++;
        sim__note_oom(a, stream, pool, size);
        if (a->trace != NULL)
            a->trace(a->trace_arg, SIM_TRACE_OOM, a->oom.device_free_bytes, size,
                     a->streams[stream].handle);
    }
    return id;
}

/* Cut `id` down to `size`; the rest becomes a free block behind it. */
HOT void split(sim_alloc_t *a, uint32_t id, uint64_t size)
{
    block_t *b = &a->blocks[id];
    uint64_t remaining = b->size - size;
    uint32_t pool = b->pool;
    if (a->keeps_stats && b->segment == NONE) {
        bool was_split = is_split(b);
        stat_change(a, ST_INACTIVE_SPLIT_BYTES, pool, was_split ? 0 - size : remaining);
        stat_change(a, ST_INACTIVE_SPLIT, pool, !was_split);
    }
    uint32_t rest = sim__block_new(a, b->addr + size, remaining, b->stream, pool);
    b = &a->blocks[id];
    block_t *r = &a->blocks[rest];
    r->segment = b->segment;
    b->size = size;
    sim__link_after(a, id, rest);
    insert_free(a, r, rest);
}

/* active's peaks while something waits for events; at other times they are those of allocated. */
static void note_active(sim_alloc_t *a, active_stat_t *active, stat_id_t id, uint32_t pool)
{
    uint64_t here = a->stat[pool][id].current + active->waiting[pool];
    uint64_t all = here + a->stat[!pool][id].current + active->waiting[!pool];
    active->peak[pool] = base_u64_max(active->peak[pool], here);
    active->all_peak = base_u64_max(active->all_peak, all);
}

static inline void count_allocated(sim_alloc_t *a, const block_t *b)
{
    uint32_t pool = b->pool;
    stat_increase(a, ST_ALLOCATION, pool, 1);
    stat_increase(a, ST_ALLOCATED_BYTES, pool, b->size);
    stat_increase(a, ST_REQUESTED_BYTES, pool, b->requested);
    if (__builtin_expect(a->n_waiting > 0, 0)) {
        note_active(a, &a->active, ST_ALLOCATION, pool);
        note_active(a, &a->active_bytes, ST_ALLOCATED_BYTES, pool);
    }
    if (b->size >= a->conf.max_split_bytes)
        sim__oversize_add(&a->oversize_allocations, 1);
}

HOT void hand_out(sim_alloc_t *a, uint32_t id, uint64_t size, uint64_t requested)
{
    block_t *b = &a->blocks[id];
    uint32_t pool = b->pool;
    if (b->size - size >= a->split_rest[pool] && size < a->split_below) {
        split(a, id, size);
        b = &a->blocks[id];
    } else if (a->keeps_stats && b->segment == NONE && is_split(b)) {
        stat_decrease(a, ST_INACTIVE_SPLIT_BYTES, pool, b->size);
        stat_decrease(a, ST_INACTIVE_SPLIT, pool, 1);
    }
    b->is_allocated = true;
    b->requested = requested;
    a->totals.allocated_bytes += b->size;
    trace(a, SIM_TRACE_ALLOC, b->addr, requested, b->stream);
    if (a->keeps_stats)
        count_allocated(a, b);
}

bool sim_alloc_malloc(sim_alloc_t *a, uint64_t handle, uint64_t bytes, sim_block_t *block_p)
{
    *block_p = SIM_BLOCK_NONE;
    if (bytes == 0)
        return true;
    if (__builtin_expect(a->is_live, 0))
        return sim__live_malloc(a, bytes, block_p);
    uint32_t stream = stream_find(a, handle, a->mempool);
    if (bytes >= REFUSED) {
        sim__note_oom(a, stream, LARGE, bytes);
        return false;
    }
    if (a->events_ready && a->mempool == 0)
        sim__process_events(a);
    uint64_t size = round_size(a, bytes);
    uint32_t pool = size <= SMALL_MAX ? SMALL : LARGE;
    uint32_t id = get_free_block(a, stream, pool, size);
    if (id == NONE)
        id = grow(a, stream, pool, size);
    if (id == NONE)
        return false;
    hand_out(a, id, size, bytes);
    *block_p = id;
    return true;
}

void sim_alloc_record_stream(sim_alloc_t *a, sim_block_t id, uint64_t handle)
{
    if (id == SIM_BLOCK_NONE)
        return;
    block_t *b = &a->blocks[id];
    if (a->streams[b->stream].handle == handle)
        return;
    uint32_t stream = stream_find(a, handle, 0);
    for (uint32_t i = b->foreign; i != NONE; i = a->foreign[i].next)
        if (a->foreign[i].stream == stream)
            return;
    uint32_t use = a->unused_foreign;
    if (use != NONE) {
        a->unused_foreign = a->foreign[use].next;
    } else {
        if (a->n_foreign == a->foreign_cap) {
            a->foreign_cap = a->foreign_cap == 0 ? 64 : a->foreign_cap * 2;
            a->foreign = base_xrealloc(a->foreign, a->foreign_cap, sizeof(*a->foreign));
        }
        use = a->n_foreign++;
    }
    a->foreign[use] = (foreign_t){ stream, b->foreign };
    b->foreign = use;
}

void sim_alloc_stream_done(sim_alloc_t *a, uint64_t handle)
{
    uint32_t stream = stream_known(a, handle, 0);
    if (stream != NONE)
        sim__stream_done(a, stream);
}

void sim_alloc_all_streams_done(sim_alloc_t *a)
{
    for (uint32_t i = 0; i < a->n_streams; i++)
        sim__stream_done(a, i);
}

void sim_alloc_begin_capture(sim_alloc_t *a, uint32_t mempool)
{
    assert(mempool > 0 && a->mempool == 0);
    a->mempool = mempool;
}

void sim_alloc_end_capture(sim_alloc_t *a)
{
    assert(a->mempool > 0);
    a->mempool = 0;
}

sim_mempools_t sim_alloc_mempools(const sim_alloc_t *a)
{
    sim_mempools_t sum = { 0 };
    for (uint32_t i = 0; i < a->n_blocks; i++) {
        const block_t *b = &a->blocks[i];
        if (!b->is_used || !b->is_mapped || a->streams[b->stream].mempool == 0)
            continue;
        sum.reserved_bytes += b->size;
        sum.idle_bytes += is_idle(b) ? b->size : 0;
    }
    return sum;
}

void sim_alloc_empty_cache(sim_alloc_t *a)
{
    sim__release_cached(a);
}

/* ---- life ---- */

/* What follows from settings and limit. */
static void update(sim_alloc_t *a)
{
    bool expandable = a->conf.expandable_segments;
    a->gc_on = a->has_limit && a->conf.gc_threshold > 0.0;
    a->split_rest[SMALL] = MIN_BLOCK;
    a->split_rest[LARGE] = expandable ? MIN_BLOCK : SMALL_MAX + 1;
    a->split_below = expandable ? UINT64_MAX : a->conf.max_split_bytes;
}

void sim_alloc_set_fraction(sim_alloc_t *a, double fraction)
{
    a->has_limit = fraction < 1.0;
    a->limit = a->has_limit ? (uint64_t)(fraction * (double)sim_device_total_bytes(a->device)) : 0;
    update(a);
}

base_status_t sim_alloc_configure(sim_alloc_t *a, const char *conf, base_err_t *err)
{
    base_status_t status = sim_alloc_conf_parse(&a->conf, conf, err);
    update(a);
    return status;
}

base_status_t sim_alloc_create(sim_device_t *device, const char *conf, sim_alloc_t **alloc_p,
                               base_err_t *err)
{
    sim_alloc_t *a = base_xcalloc(1, sizeof(*a));
    a->device = device;
    a->keeps_stats = true;
    a->unused_block = a->chunks.unused = a->unused_event = a->unused_foreign = NONE;
    a->unused_segment = NONE;
    a->stats = base_xcalloc(1, sizeof(*a->stats));
    sim__reserve_blocks(a, 1);
    stream_new(a, 0, 0, 0);
    sim_alloc_conf_init(&a->conf);
    base_status_t status = BASE_OK;
    if (conf != NULL)
        status = sim_alloc_conf_parse(&a->conf, conf, err);
    if (status != BASE_OK) {
        sim_alloc_destroy(a);
        return status;
    }
    sim_alloc_set_fraction(a, a->conf.per_process_memory_fraction);
    *alloc_p = a;
    return BASE_OK;
}

/* The mapped pages of a reservation, of which `id` is the first block. */
static void unmap_all(sim_alloc_t *a, uint32_t id)
{
    const segment_t *s = &a->segments[a->blocks[id].segment];
    while (id != NONE) {
        uint64_t addr = a->blocks[id].addr, mapped = 0;
        for (; id != NONE && a->blocks[id].is_mapped; id = a->blocks[id].next)
            mapped += a->blocks[id].size;
        if (mapped > 0)
            sim_device_unmap(a->device, addr, s->page_bytes, mapped / s->page_bytes);
        else
            id = a->blocks[id].next;
    }
    sim_device_unreserve(a->device, s->addr, s->bytes);
}

/* Everything from cudaMalloc goes back by its first block, everything mapped page by page. */
static void give_back(sim_alloc_t *a)
{
    if (a->is_live) {
        sim_device_give(a->device, a->totals.allocated_bytes);
        return;
    }
    for (uint32_t i = 0; i < a->n_blocks; i++) {
        const block_t *head = &a->blocks[i];
        if (!head->is_used || head->prev != NONE)
            continue;
        if (head->segment != NONE) {
            unmap_all(a, i);
            continue;
        }
        uint64_t bytes = 0;
        for (uint32_t id = i; id != NONE; id = a->blocks[id].next)
            bytes += a->blocks[id].size;
        sim_device_free(a->device, head->addr, bytes);
    }
}

void sim_alloc_destroy(sim_alloc_t *a)
{
    if (a == NULL)
        return;
    give_back(a);
    for (uint32_t i = 0; i < N_POOLS * a->n_streams; i++) {
        sim__set_fini(&a->free_sets[i]);
        sim__set_fini(&a->unmapped_sets[i]);
    }
    free(a->free_sets);
    free(a->unmapped_sets);
    sim__chunks_fini(&a->chunks);
    free(a->blocks_raw);
    free(a->streams);
    free(a->stream_order);
    free(a->events);
    free(a->foreign);
    free(a->segments);
    free(a->scratch);
    free(a->stats);
    free(a);
}

void sim_alloc_drop_stats(sim_alloc_t *a)
{
    assert(a->totals.allocated_bytes == 0);
    a->keeps_stats = false;
}

void sim_alloc_on_full(sim_alloc_t *a, sim_full_f f, void *arg)
{
    a->full = f;
    a->full_arg = arg;
}

void sim_alloc_set_trace(sim_alloc_t *a, sim_trace_f f, void *arg)
{
    a->trace = f;
    a->trace_arg = arg;
}

const sim_alloc_conf_t *sim_alloc_conf(const sim_alloc_t *a)
{
    return &a->conf;
}

const sim_oom_t *sim_alloc_last_oom(const sim_alloc_t *a)
{
    return &a->oom;
}
