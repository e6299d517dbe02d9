/* SPDX-License-Identifier: Apache-2.0
 * Expandable segments: a reservation of addresses, one block per contiguous range of pages that are
 * mapped and free, handed out, or not mapped. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/alloc_internal.h"
#include "sim/memory/block_set.h"

static uint32_t segment_new(sim_alloc_t *a, segment_t segment)
{
    uint32_t id = a->unused_segment;
    if (id != NONE) {
        a->unused_segment = a->segments[id].next_unused;
    } else {
        if (a->n_segments == a->segments_cap) {
            a->segments_cap = a->segments_cap == 0 ? 8 : a->segments_cap * 2;
            a->segments = base_xrealloc(a->segments, a->segments_cap, sizeof(*a->segments));
        }
        id = a->n_segments++;
    }
    a->segments[id] = segment;
    return id;
}

static uint32_t block_in_segment(sim_alloc_t *a, const block_t *like, uint64_t addr, uint64_t size)
{
    uint32_t segment = like->segment;
    uint32_t id = sim__block_new(a, addr, size, like->stream, like->pool);
    a->blocks[id].segment = segment;
    return id;
}

static void insert_unmapped(sim_alloc_t *a, uint32_t id)
{
    block_t *b = &a->blocks[id];
    sim__set_insert_settled(a, unmapped_set(a, b), UNMAPPED_KEY, id);
}

/* A new reservation: one unmapped block. NONE when the reservation was made small by a setting and
 * `size` does not fit into it, or no addresses are left. The usual reservation is larger than the
 * device, so a request beyond it fails when its pages are made. */
static uint32_t reserve(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size)
{
    uint64_t page = pool == SMALL ? 2 * BASE_MIB : a->conf.large_segment_bytes;
    uint64_t wanted = sim_alloc_conf_reserve_bytes(&a->conf, sim_device_total_bytes(a->device));
    uint64_t bytes, addr;
    if (!base_u64_mul(base_u64_div_up(wanted, page), page, &bytes) ||
        (a->conf.has_reserve && bytes < size) || !sim_device_reserve(a->device, bytes, &addr))
        return NONE;
    uint32_t id = sim__block_new(a, addr, bytes, stream, pool);
    uint32_t segment =
        segment_new(a, (segment_t){ .addr = addr, .bytes = bytes, .page_bytes = page });
    a->blocks[id].segment = segment;
    a->blocks[id].is_mapped = false;
    insert_unmapped(a, id);
    return id;
}

static bool has_room(const sim_alloc_t *a, uint32_t id, uint64_t size)
{
    uint64_t sum = 0;
    for (; sum < size && id != NONE && is_idle(&a->blocks[id]); id = a->blocks[id].next)
        sum += a->blocks[id].size;
    return sum >= size;
}

static uint32_t find_candidate(const sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size)
{
    const set_t *set = &a->unmapped_sets[N_POOLS * stream + pool];
    uint32_t id;
    for (cursor_t at = { 0, 0 }; (id = set_at(a, set, at)) != NONE; at = set_next(a, set, at)) {
        uint32_t prev = a->blocks[id].prev;
        if (prev != NONE && is_idle(&a->blocks[prev]))
            id = prev;
        if (has_room(a, id, size))
            return id;
    }
    return NONE;
}

/* Map the pages of the first `size` bytes of an unmapped block and make it a free block. */
static bool map(sim_alloc_t *a, uint32_t id, uint64_t size)
{
    sim__reserve_blocks(a, 1);
    block_t *b = &a->blocks[id];
    uint64_t page = a->segments[b->segment].page_bytes;
    uint64_t n_pages = base_u64_div_up(size, page), bytes = n_pages * page;
    if (!sim_device_map(a->device, b->addr, page, n_pages))
        return false;
    set_erase(a, unmapped_set(a, b), UNMAPPED_KEY, id);
    b->is_mapped = true;
    trace(a, SIM_TRACE_SEGMENT_MAP, b->addr, bytes, b->stream);
    if (bytes < b->size) {
        uint32_t rest = block_in_segment(a, b, b->addr + bytes, b->size - bytes);
        a->blocks[rest].is_mapped = false;
        b->size = bytes;
        sim__link_after(a, id, rest);
        insert_unmapped(a, rest);
    }
    sim__merge_neighbours(a, id);
    sim__insert_free(a, id);
    a->total += bytes;
    a->num_device_alloc++;
    reserved_increase(a, b->pool, bytes);
    return true;
}

uint32_t sim__expandable_alloc(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size)
{
    uint32_t id = find_candidate(a, stream, pool, size);
    if (id == NONE)
        id = reserve(a, stream, pool, size);
    if (id == NONE)
        return NONE;
    if (!a->blocks[id].is_mapped && !map(a, id, base_u64_min(a->blocks[id].size, size)))
        return NONE;
    while (a->blocks[id].size < size) {
        uint32_t next = a->blocks[id].next;
        uint64_t missing = size - a->blocks[id].size;
        if (next == NONE || !map(a, next, base_u64_min(missing, a->blocks[next].size)))
            return NONE;
        id = next; /* it has merged with what precedes it */
    }
    block_t *b = &a->blocks[id];
    set_erase(a, free_set(a, b), size_key(b->size), id);
    return id;
}

static void unreserve(sim_alloc_t *a, uint32_t id)
{
    block_t *b = &a->blocks[id];
    segment_t *s = &a->segments[b->segment];
    set_erase(a, unmapped_set(a, b), UNMAPPED_KEY, id);
    sim_device_unreserve(a->device, s->addr, s->bytes);
    s->next_unused = a->unused_segment;
    a->unused_segment = b->segment;
    sim__block_delete(a, id);
}

/* Give back the whole pages inside a free block; what is left of it at both ends stays free. */
void sim__expandable_unmap(sim_alloc_t *a, uint32_t id)
{
    sim__reserve_blocks(a, 2);
    block_t *b = &a->blocks[id];
    const segment_t *s = &a->segments[b->segment];
    uint64_t page = s->page_bytes, offset = b->addr - s->addr;
    uint64_t first = base_u64_div_up(offset, page), last = (offset + b->size) / page;
    if (first >= last)
        return;
    uint64_t addr = s->addr + first * page, bytes = (last - first) * page;
    uint64_t front = addr - b->addr, back = b->size - front - bytes;
    set_erase(a, free_set(a, b), size_key(b->size), id);
    sim_device_unmap(a->device, addr, page, last - first);
    trace(a, SIM_TRACE_SEGMENT_UNMAP, addr, bytes, b->stream);
    if (front > 0) {
        uint32_t piece = block_in_segment(a, b, b->addr, front);
        uint32_t prev = b->prev;
        a->blocks[piece].prev = prev;
        a->blocks[piece].next = id;
        if (prev != NONE)
            a->blocks[prev].next = piece;
        b->prev = piece;
        sim__insert_free(a, piece);
    }
    if (back > 0) {
        uint32_t piece = block_in_segment(a, b, addr + bytes, back);
        sim__link_after(a, id, piece);
        sim__insert_free(a, piece);
    }
    b->addr = addr;
    b->size = bytes;
    b->is_mapped = false;
    sim__merge_neighbours(a, id);
    insert_unmapped(a, id);
    sim__stream_done(a, b->stream);
    a->total -= bytes;
    a->num_device_free++;
    reserved_decrease(a, b->pool, bytes);
    if (!is_split(b))
        unreserve(a, id);
}
