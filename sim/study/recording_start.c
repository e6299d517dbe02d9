/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/recording_start.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <stdlib.h>
#include <string.h>

/* c10/cuda/CUDACachingAllocator.cpp, kSmallSize; a rest of a large segment is split off only beyond
 * it. */
#define SMALL_MAX BASE_MIB

/* A segment, or a mapped part of an expandable one. */
typedef struct {
    uint64_t addr, bytes, stream;
    bool is_small, is_expandable;
} range_t;

/* A sorted array: devices have some thousand segments. Files that have very many are no
 * recordings of a GPU, and moving them about would take for ever. */
enum { MAX_RANGES = 1 << 15 };
enum { MAX_STEPS = 1 << 20 };
#define MAX_MOVED_BYTES (64 * BASE_GIB)

typedef struct {
    range_t *r; /* by address */
    size_t n, cap;
    uint64_t moved_bytes;
    bool is_too_much;
} ranges_t;

/* The first range that ends beyond `addr`. */
static size_t first_after(const ranges_t *set, uint64_t addr)
{
    size_t low = 0, high = set->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (set->r[mid].addr + set->r[mid].bytes <= addr)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void insert(ranges_t *set, range_t range)
{
    if (set->n == MAX_RANGES || set->moved_bytes > MAX_MOVED_BYTES) {
        set->is_too_much = true;
        return;
    }
    if (set->n == set->cap) {
        set->cap = 2 * set->cap + 64;
        set->r = base_xrealloc(set->r, set->cap, sizeof(*set->r));
    }
    size_t at = first_after(set, range.addr);
    memmove(&set->r[at + 1], &set->r[at], (set->n - at) * sizeof(*set->r));
    set->moved_bytes += (set->n - at) * sizeof(*set->r);
    set->r[at] = range;
    set->n++;
}

/* Cut [addr, end) out of the ranges. */
static void cut(ranges_t *set, uint64_t addr, uint64_t end)
{
    for (size_t i = first_after(set, addr); i < set->n && set->r[i].addr < end;) {
        range_t old = set->r[i];
        uint64_t old_end = old.addr + old.bytes;
        memmove(&set->r[i], &set->r[i + 1], (set->n - i - 1) * sizeof(*set->r));
        set->moved_bytes += (set->n - i) * sizeof(*set->r);
        set->n--;
        if (old.addr < addr) {
            range_t front = old;
            front.bytes = addr - old.addr;
            insert(set, front);
            i++;
        }
        if (old_end > end) {
            range_t back = old;
            back.addr = end;
            back.bytes = old_end - end;
            insert(set, back);
            return;
        }
    }
}

static void undo(ranges_t *set, const sim_snapshot_event_t *e)
{
    range_t range = { .addr = e->addr, .bytes = e->bytes, .stream = e->stream };
    if (e->bytes > INT64_MAX || e->addr > INT64_MAX)
        return;
    switch ((sim_trace_action_t)e->action) {
    case SIM_TRACE_SEGMENT_ALLOC:
    case SIM_TRACE_SEGMENT_MAP:
        cut(set, e->addr, e->addr + e->bytes);
        break;
    case SIM_TRACE_SEGMENT_FREE:
        range.is_small = e->bytes == 2 * BASE_MIB;
        insert(set, range);
        break;
    case SIM_TRACE_SEGMENT_UNMAP:
        range.is_small = e->bytes % (20 * BASE_MIB) != 0;
        range.is_expandable = true;
        insert(set, range);
        break;
    default:
        break;
    }
}

/* Mapped parts that touch are one: a block may lie across. */
static void join(ranges_t *set)
{
    size_t n = 0;
    for (size_t i = 0; i < set->n; i++) {
        range_t *last = n > 0 ? &set->r[n - 1] : NULL;
        const range_t *r = &set->r[i];
        if (last != NULL && last->is_expandable && r->is_expandable && last->stream == r->stream &&
            last->is_small == r->is_small && last->addr + last->bytes == r->addr)
            last->bytes += r->bytes;
        else
            set->r[n++] = *r;
    }
    set->n = n;
}

static void find_ranges(const sim_start_input_t *in, ranges_t *set)
{
    for (size_t i = 0; i < in->snapshot->n_segments; i++) {
        const sim_snapshot_segment_t *s = &in->snapshot->segments[i];
        if (s->device == in->device && !s->is_private)
            insert(set, (range_t){ s->addr, s->bytes, s->stream, !s->is_large, s->is_expandable });
    }
    for (size_t i = in->n_events; i-- > 0 && !set->is_too_much;)
        if (!in->is_left_out(in->arg, &in->events[i]))
            undo(set, &in->events[i]);
    join(set);
}

static void add(sim_start_t *start, sim_start_kind_t kind, uint64_t bytes, uint64_t stream,
                size_t idx)
{
    if (bytes == 0)
        return;
    if (start->n == start->cap) {
        start->cap = 2 * start->cap + 64;
        start->steps = base_xrealloc(start->steps, start->cap, sizeof(*start->steps));
    }
    start->steps[start->n++] = (sim_start_step_t){ kind, bytes, stream, idx };
}

/* Something that is given back later. Requests of up to 1 MiB go to the small pool, others to the
 * large one. */
static void add_filler(sim_start_t *start, sim_start_kind_t kind, const range_t *r, uint64_t bytes)
{
    for (; r->is_small && bytes > SMALL_MAX && start->n < MAX_STEPS; bytes -= SMALL_MAX)
        add(start, kind, SMALL_MAX, r->stream, 0);
    if (r->is_small || bytes > SMALL_MAX)
        add(start, kind, bytes, r->stream, 0);
}

/* What to ask for so that before[i] reaches to where the next block can begin. The rest of a large
 * segment belongs to the block if it is up to 1 MiB, or the block is oversize. */
static uint64_t request_of(const sim_start_input_t *in, size_t i, const range_t *r, uint64_t next,
                           uint64_t *end_p)
{
    const sim_before_t *b = &in->before[i];
    uint64_t size = sim_alloc_conf_round(in->conf, b->bytes), end = b->addr + size;
    bool takes_rest = !r->is_small && !r->is_expandable && end < next &&
                      (next - end <= SMALL_MAX || size >= in->conf->max_split_bytes);
    *end_p = takes_rest ? next : base_u64_min(end, next);
    return takes_rest ? next - b->addr : in->conf->has_divisions ? size : b->bytes;
}

/* The blocks from before[i] on that lie in the range, and the holes between; returns the first
 * beyond. */
static size_t add_range(const sim_start_input_t *in, sim_start_t *start, const range_t *r, size_t i)
{
    uint64_t end = r->addr + r->bytes, at = r->addr;
    if (i == in->n_before || in->before[i].addr >= end) {
        add_filler(start, SIM_START_HOLE, r, r->bytes);
        return i;
    }
    if (!r->is_small && !r->is_expandable)
        add(start, SIM_START_WHOLE, r->bytes, r->stream, 0);
    for (; i < in->n_before && in->before[i].addr < end; i++) {
        if (in->before[i].addr > at)
            add_filler(start, SIM_START_HOLE, r, in->before[i].addr - at);
        uint64_t next = i + 1 < in->n_before ? base_u64_min(in->before[i + 1].addr, end) : end;
        add(start, SIM_START_BLOCK, request_of(in, i, r, next, &at), r->stream, i);
    }
    if (at < end)
        add_filler(start, SIM_START_HOLE, r, end - at);
    return i;
}

/* The lowest page that is ever mapped or unmapped of the expandable segment that has range `r`: the
 * segment begins there or below. Each stream has one segment for each pool. */
static uint64_t lowest_page(const sim_start_input_t *in, const range_t *r)
{
    uint64_t low = r->addr;
    for (size_t i = 0; i < in->n_events; i++) {
        const sim_snapshot_event_t *e = &in->events[i];
        if ((e->action == SIM_TRACE_SEGMENT_MAP || e->action == SIM_TRACE_SEGMENT_UNMAP) &&
            e->stream == r->stream && (e->bytes % (20 * BASE_MIB) != 0) == r->is_small &&
            e->addr < low && !in->is_left_out(in->arg, e))
            low = e->addr;
    }
    return low;
}

/* What may still be spent on gaps. */
typedef struct {
    uint64_t bytes;
    unsigned n_lookups; /* of lowest_page(), which goes through all events */
} gap_budget_t;

/* Mapped parts of an expandable segment keep their distance, from its first page on. */
static void add_gap(const sim_start_input_t *in, sim_start_t *start, const ranges_t *set, size_t k,
                    gap_budget_t *budget)
{
    const range_t *r = &set->r[k], *last = r - 1;
    if (!r->is_expandable || budget->n_lookups == 0)
        return;
    bool is_first = k == 0 || !last->is_expandable || last->stream != r->stream ||
                    last->is_small != r->is_small;
    if (is_first && budget->n_lookups-- == 0)
        return;
    uint64_t gap = r->addr - (is_first ? lowest_page(in, r) : last->addr + last->bytes);
    if (gap > budget->bytes)
        return;
    budget->bytes -= gap;
    add_filler(start, SIM_START_GAP, r, gap);
}

bool sim_start_find(const sim_start_input_t *in, sim_start_t *start)
{
    ranges_t set = { 0 };
    gap_budget_t budget = { .bytes = in->gap_bytes, .n_lookups = 256 };
    *start = (sim_start_t){ 0 };
    find_ranges(in, &set);
    if (set.is_too_much) {
        free(set.r);
        return false;
    }
    size_t i = 0;
    for (size_t k = 0; k < set.n; k++) {
        while (i < in->n_before && in->before[i].addr < set.r[k].addr) { /* in no range */
            add(start, SIM_START_BLOCK, in->before[i].bytes, in->before[i].stream, i);
            i++;
        }
        add_gap(in, start, &set, k, &budget);
        i = add_range(in, start, &set.r[k], i);
    }
    for (; i < in->n_before; i++)
        add(start, SIM_START_BLOCK, in->before[i].bytes, in->before[i].stream, i);
    free(set.r);
    if (start->n < MAX_STEPS + in->n_before)
        return true;
    sim_start_fini(start);
    return false;
}

void sim_start_fini(sim_start_t *start)
{
    free(start->steps);
    *start = (sim_start_t){ 0 };
}
