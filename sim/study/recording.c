/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/recording.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/alloc_conf.h"
#include "sim/study/recording_start.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Stream handles are addresses of the driver; these stand for "whatever stream it waited for". */
#define WAIT_HANDLE (UINT64_C(0x7fff) << 48)

typedef enum { UNSEEN, LIVE, WAITING, DEAD } state_t;

typedef struct {
    uint64_t addr;
    uint32_t block;       /* number of the allocation while LIVE or WAITING */
    uint32_t wait_stream; /* WAITING: its stand-in, UINT32_MAX = none */
    state_t state;
    bool is_used; /* slot of the table */
} place_t;

typedef struct {
    uint32_t *streams;
    size_t n, cap;
} waits_t;

typedef struct {
    sim_recording_t *rec;
    const sim_snapshot_t *snap;
    const sim_snapshot_event_t *events; /* of the device */
    size_t n, device;
    place_t *places; /* by address, open addressing, never deleted from */
    size_t n_places, cap_places;
    sim_before_t *before;
    size_t n_before, cap_before;
    uint64_t (*private_ranges)[2]; /* begin, end; ascending */
    size_t n_private;
    size_t cap_calls;
    uint32_t cap_blocks, cap_streams;
    waits_t idle;    /* stand-in streams that nothing waits for now */
    waits_t late;    /* whose frees complete in the release that is under way */
    bool is_release; /* the allocator is giving memory back for the request to come */
    uint32_t n_waits;
    sim_alloc_conf_t conf;
    uint64_t gap_bytes;   /* see sim_start_input_t */
    uint64_t most_usable; /* a release says that less than this was usable */
} builder_t;

static place_t *find_place(const builder_t *b, uint64_t addr)
{
    size_t mask = b->cap_places - 1;
    size_t i = (size_t)((addr >> 9) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & mask;
    while (b->places[i].is_used && b->places[i].addr != addr)
        i = (i + 1) & mask;
    return &b->places[i];
}

static place_t *place(builder_t *b, uint64_t addr)
{
    if (2 * b->n_places >= b->cap_places) {
        place_t *old = b->places;
        size_t n_old = b->cap_places;
        b->cap_places = n_old > 0 ? 2 * n_old : 1024;
        b->places = base_xcalloc(b->cap_places, sizeof(*b->places));
        for (size_t i = 0; i < n_old; i++)
            if (old[i].is_used)
                *find_place(b, old[i].addr) = old[i];
        free(old);
    }
    place_t *p = find_place(b, addr);
    if (!p->is_used) {
        *p = (place_t){ .addr = addr, .is_used = true };
        b->n_places++;
    }
    return p;
}

static int by_addr(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b; /* the address comes first in what is sorted */
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

static void find_private_ranges(builder_t *b)
{
    b->private_ranges = base_xcalloc(b->snap->n_segments, sizeof(*b->private_ranges));
    for (size_t i = 0; i < b->snap->n_segments; i++) {
        const sim_snapshot_segment_t *s = &b->snap->segments[i];
        if (!s->is_private || s->device != b->device)
            continue;
        b->private_ranges[b->n_private][0] = s->addr;
        b->private_ranges[b->n_private++][1] = s->addr + s->bytes;
        b->rec->private_bytes += s->bytes;
    }
    if (b->n_private > 0)
        qsort(b->private_ranges, b->n_private, sizeof(*b->private_ranges), by_addr);
}

/* Older files do not say of an event which pool it is of; its address tells while the segment is
 * still there. */
static bool is_private(const void *arg, const sim_snapshot_event_t *e)
{
    const builder_t *b = arg;
    if (e->is_private || e->action == SIM_TRACE_OOM)
        return e->is_private;
    size_t low = 0, high = b->n_private;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (b->private_ranges[mid][1] <= e->addr)
            low = mid + 1;
        else
            high = mid;
    }
    return low < b->n_private && b->private_ranges[low][0] <= e->addr;
}

static void add_before(builder_t *b, uint64_t addr, uint64_t bytes, uint64_t stream,
                       bool is_waiting)
{
    if (b->n_before == b->cap_before) {
        b->cap_before = 2 * b->cap_before + 64;
        b->before = base_xrealloc(b->before, b->cap_before, sizeof(*b->before));
    }
    b->before[b->n_before++] = (sim_before_t){ addr, bytes, stream, is_waiting };
    b->rec->before_bytes += bytes;
}

static bool takes_segment(const sim_snapshot_event_t *e)
{
    return e->action == SIM_TRACE_SEGMENT_ALLOC || e->action == SIM_TRACE_SEGMENT_MAP;
}

static bool gives_segment(const sim_snapshot_event_t *e)
{
    return e->action == SIM_TRACE_SEGMENT_FREE || e->action == SIM_TRACE_SEGMENT_UNMAP;
}

/* What must have been alive before the first event: what is freed without having been allocated,
 * and what is there at the end without having been allocated. */
static void find_before(builder_t *b)
{
    for (size_t i = 0; i < b->n; i++) {
        const sim_snapshot_event_t *e = &b->events[i];
        if (is_private(b, e))
            continue;
        if (e->action == SIM_TRACE_ALLOC) {
            place(b, e->addr)->state = LIVE;
        } else if (e->action == SIM_TRACE_FREE_REQUESTED || e->action == SIM_TRACE_FREE_COMPLETED) {
            place_t *p = place(b, e->addr);
            if (p->state == UNSEEN)
                add_before(b, e->addr, e->bytes, e->stream, e->action == SIM_TRACE_FREE_COMPLETED);
            p->state = DEAD;
        }
    }
    for (size_t i = 0; i < b->snap->n_segments; i++) {
        const sim_snapshot_segment_t *s = &b->snap->segments[i];
        if (s->device != b->device || s->is_private)
            continue;
        b->rec->end_reserved_bytes += s->bytes;
        for (size_t k = 0; k < s->n_blocks; k++) {
            const sim_snapshot_block_t *block = &b->snap->blocks[s->first_block + k];
            if (block->state == SIM_SNAPSHOT_INACTIVE)
                continue;
            if (block->state == SIM_SNAPSHOT_ALLOCATED)
                b->rec->end_allocated_bytes += block->bytes;
            if (place(b, block->addr)->state == UNSEEN)
                add_before(b, block->addr, block->requested_bytes, s->stream,
                           block->state == SIM_SNAPSHOT_PENDING_FREE);
        }
    }
    if (b->n_before > 0)
        qsort(b->before, b->n_before, sizeof(*b->before), by_addr);
    b->rec->n_before = b->n_before;
}

/* Reserved bytes over the trace, backwards from the end and then forwards. */
static base_status_t find_reserved(builder_t *b, base_err_t *err)
{
    sim_recording_t *rec = b->rec;
    uint64_t taken = 0, given = 0;
    for (size_t i = 0; i < b->n; i++) {
        const sim_snapshot_event_t *e = &b->events[i];
        uint64_t *sum = takes_segment(e) ? &taken : gives_segment(e) ? &given : NULL;
        if (sum == NULL || is_private(b, e))
            continue;
        if (!base_u64_add(*sum, e->bytes, sum))
            return base_err_set(err, BASE_ERR_INVAL, "the sizes of the segments overflow");
    }
    if (!base_u64_add(given, rec->end_reserved_bytes, &given) || given < taken)
        return base_err_set(err, BASE_ERR_INVAL,
                            "the events take %" PRIu64 " bytes for segments, more than are there",
                            taken);
    uint64_t now = rec->start_reserved_bytes = given - taken;
    rec->peak_reserved_bytes = now;
    for (size_t i = 0; i < b->n; i++) {
        const sim_snapshot_event_t *e = &b->events[i];
        if (is_private(b, e))
            continue;
        if (takes_segment(e))
            now += e->bytes;
        else if (gives_segment(e))
            now -= base_u64_min(now, e->bytes);
        rec->peak_reserved_bytes = base_u64_max(rec->peak_reserved_bytes, now);
    }
    return BASE_OK;
}

static sim_call_t *add_call(builder_t *b, sim_call_kind_t kind, size_t line)
{
    sim_trace_t *t = b->rec->trace;
    if (t->n_calls == b->cap_calls) {
        b->cap_calls = b->cap_calls + b->cap_calls / 2 + 256;
        t->calls = base_xrealloc(t->calls, b->cap_calls, sizeof(*t->calls));
    }
    sim_call_t *call = &t->calls[t->n_calls++];
    *call = (sim_call_t){ .kind = (uint8_t)kind, .line = (uint32_t)line };
    return call;
}

/* UINT32_MAX: too many streams. */
static uint32_t stream_index(builder_t *b, uint64_t handle)
{
    sim_trace_t *t = b->rec->trace;
    for (uint32_t i = t->n_streams; i-- > 0;)
        if (t->streams[i] == handle)
            return i;
    if (t->n_streams == SIM_TRACE_MAX_STREAMS)
        return UINT32_MAX;
    if (t->n_streams == b->cap_streams) {
        b->cap_streams = 2 * b->cap_streams + 8;
        t->streams = base_xrealloc(t->streams, b->cap_streams, sizeof(*t->streams));
    }
    t->streams[t->n_streams] = handle;
    return t->n_streams++;
}

static base_status_t add_alloc(builder_t *b, size_t line, uint64_t id, uint64_t bytes,
                               uint64_t handle, uint32_t *block_p, base_err_t *err)
{
    sim_trace_t *t = b->rec->trace;
    uint32_t stream = stream_index(b, handle);
    if (stream == UINT32_MAX)
        return base_err_set(err, BASE_ERR_INVAL, "more than %d streams", SIM_TRACE_MAX_STREAMS);
    if (t->n_blocks == b->cap_blocks) {
        b->cap_blocks = b->cap_blocks + b->cap_blocks / 2 + 256;
        t->ids = base_xrealloc(t->ids, b->cap_blocks, sizeof(*t->ids));
    }
    t->ids[t->n_blocks] = id;
    *block_p = t->n_blocks++;
    sim_call_t *call = add_call(b, SIM_CALL_ALLOC, line);
    call->block = *block_p;
    call->stream = stream;
    call->bytes = bytes;
    return BASE_OK;
}

/* A free that waits for an event: a stand-in stream that uses the block; its work is complete when
 * the free is. */
static void add_waiting_free(builder_t *b, place_t *p, size_t line)
{
    p->wait_stream = UINT32_MAX;
    if (b->idle.n > 0)
        p->wait_stream = b->idle.streams[--b->idle.n];
    else
        p->wait_stream = stream_index(b, WAIT_HANDLE + ++b->n_waits);
    if (p->wait_stream != UINT32_MAX) {
        sim_call_t *call = add_call(b, SIM_CALL_RECORD_STREAM, line);
        call->block = p->block;
        call->stream = p->wait_stream;
    }
    add_call(b, SIM_CALL_FREE, line)->block = p->block;
    p->state = WAITING;
    b->rec->n_waiting++;
}

static void append(waits_t *list, uint32_t stream)
{
    if (list->n == list->cap) {
        list->cap = 2 * list->cap + 16;
        list->streams = base_xrealloc(list->streams, list->cap, sizeof(*list->streams));
    }
    list->streams[list->n++] = stream;
}

/* The free is complete. One that completes because the allocator waits for all streams before it
 * gives memory back must not be complete before the request that makes it do so. */
static void add_wait_end(builder_t *b, place_t *p, size_t line)
{
    p->state = DEAD;
    if (p->wait_stream == UINT32_MAX)
        return;
    if (b->is_release) {
        append(&b->late, p->wait_stream);
        return;
    }
    add_call(b, SIM_CALL_STREAM_DONE, line)->stream = p->wait_stream;
    append(&b->idle, p->wait_stream);
}

/* After the request. */
static void add_late_wait_ends(builder_t *b, size_t line)
{
    for (size_t i = 0; i < b->late.n; i++) {
        add_call(b, SIM_CALL_STREAM_DONE, line)->stream = b->late.streams[i];
        append(&b->idle, b->late.streams[i]);
    }
    b->late.n = 0;
    b->is_release = false;
}

static void free_all(builder_t *b, const uint32_t *blocks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_call(b, SIM_CALL_FREE, 0)->block = blocks[i];
}

/* Allocate what was alive, by address, and what lay between; then give the latter back. */
static base_status_t add_what_was_before(builder_t *b, const sim_start_t *start, base_err_t *err)
{
    uint32_t *holes = base_xcalloc(start->n, sizeof(*holes));
    uint32_t *gaps = base_xcalloc(start->n, sizeof(*gaps));
    size_t n_holes = 0, n_gaps = 0;
    base_status_t status = BASE_OK;
    for (size_t i = 0; i < b->cap_places; i++)
        b->places[i].state = UNSEEN; /* as the events left them; they are played from here */
    for (size_t i = 0; i < start->n && status == BASE_OK; i++) {
        const sim_start_step_t *step = &start->steps[i];
        uint32_t block = 0;
        status = add_alloc(b, 0, (UINT64_C(1) << 32) + i, step->bytes, step->stream, &block, err);
        if (status != BASE_OK)
            break;
        if (step->kind == SIM_START_WHOLE) {
            add_call(b, SIM_CALL_FREE, 0)->block = block;
        } else if (step->kind == SIM_START_HOLE) {
            holes[n_holes++] = block;
        } else if (step->kind == SIM_START_GAP) {
            gaps[n_gaps++] = block;
        } else {
            place_t *p = place(b, b->before[step->idx].addr);
            p->block = block;
            p->state = LIVE;
        }
    }
    free_all(b, gaps, n_gaps);
    if (n_gaps > 0)
        add_call(b, SIM_CALL_EMPTY_CACHE, 0);
    free_all(b, holes, n_holes);
    for (size_t i = 0; i < b->n_before && status == BASE_OK; i++)
        if (b->before[i].is_waiting)
            add_waiting_free(b, place(b, b->before[i].addr), 0);
    free(holes);
    free(gaps);
    return status;
}

/* The blocks alone, wherever the settings put them. */
static void blocks_alone(const builder_t *b, sim_start_t *start)
{
    start->n = b->n_before;
    start->steps = base_xcalloc(b->n_before, sizeof(*start->steps));
    for (size_t i = 0; i < b->n_before; i++)
        start->steps[i] =
            (sim_start_step_t){ SIM_START_BLOCK, b->before[i].bytes, b->before[i].stream, i };
}

/* The recorded settings without rounding, in which free memory of any size can be asked for, or
 * as they are. */
static void add_settings(builder_t *b, bool is_rounding)
{
    sim_trace_t *t = b->rec->trace;
    size_t n = strlen(b->snap->conf) + 1;
    if (t->text == NULL)
        t->text =
            base_xasprintf("%s%c%s,roundup_power2_divisions:1", b->snap->conf, '\0', b->snap->conf);
    add_call(b, SIM_CALL_CONFIGURE, 0)->conf = t->text + (is_rounding ? 0 : n);
}

static base_status_t add_start(builder_t *b, sim_recording_start_t kind, base_err_t *err)
{
    sim_start_t start = { 0 };
    sim_start_input_t in = {
        .snapshot = b->snap,
        .device = b->device,
        .events = b->events,
        .n_events = b->n,
        .before = b->before,
        .n_before = b->n_before,
        .conf = &b->conf,
        .gap_bytes = b->gap_bytes,
        .is_left_out = is_private,
        .arg = b,
    };
    bool is_exact = kind == SIM_RECORDING_START_AS_RECORDED && sim_start_find(&in, &start);
    if (!is_exact)
        blocks_alone(b, &start);
    bool is_rounding = is_exact && b->conf.has_divisions && start.n > 0;
    if (is_rounding)
        add_settings(b, false);
    base_status_t status = add_what_was_before(b, &start, err);
    if (is_rounding)
        add_settings(b, true);
    sim_start_fini(&start);
    return status;
}

/* A segment of the small pool: 2 MiB, or 2 MiB pages; the large pool's pages are 20 MiB. */
static bool is_small_range(const sim_snapshot_event_t *e)
{
    return e->action == SIM_TRACE_SEGMENT_FREE ? e->bytes == 2 * BASE_MIB
                                               : e->bytes % (20 * BASE_MIB) != 0;
}

/* Whether the request that event `alloc` is of would have been placed in what event `e` gave back;
 * then the allocator had no reason to give it back. */
static bool would_have_fitted(const builder_t *b, const sim_snapshot_event_t *e,
                              const sim_snapshot_event_t *alloc)
{
    uint64_t size = alloc->bytes, max_split = b->conf.max_split_bytes;
    if (!gives_segment(e) || e->stream != alloc->stream || e->bytes < size ||
        is_small_range(e) != (size <= BASE_MIB))
        return false;
    return size < max_split ? e->bytes < max_split
                            : e->bytes - size < b->conf.max_non_split_rounding_bytes;
}

/* From event i on, segments are given back, after frees that complete: by the allocator, because a
 * request did not fit, or by the program. It was the allocator if what comes next takes memory that
 * would have gone beyond the highest that was ever reserved, and no part of what was given back
 * would have done. Returns the event after them; also when it is only frees that complete. */
static size_t add_release(builder_t *b, size_t i, uint64_t reserved)
{
    size_t first = i, end;
    bool is_given = false;
    for (; i < b->n && (gives_segment(&b->events[i]) || is_private(b, &b->events[i]) ||
                        b->events[i].action == SIM_TRACE_FREE_COMPLETED);
         i++)
        is_given |= gives_segment(&b->events[i]) && !is_private(b, &b->events[i]);
    if (!is_given)
        return i;
    uint64_t wanted = 0, room = b->rec->peak_reserved_bytes;
    for (end = i; end < b->n && takes_segment(&b->events[end]); end++)
        wanted += b->events[end].bytes;
    bool by_allocator = wanted > room - base_u64_min(room, reserved);
    if (end < b->n && b->events[end].action == SIM_TRACE_OOM)
        by_allocator = true;
    for (size_t k = first; k < i && by_allocator && end < b->n; k++)
        by_allocator = !would_have_fitted(b, &b->events[k], &b->events[end]);
    b->is_release = by_allocator;
    if (by_allocator) {
        b->rec->n_releases++;
        if (wanted > 0)
            b->most_usable = base_u64_min(b->most_usable, reserved + wanted);
    } else {
        b->rec->n_empty_caches++;
        add_call(b, SIM_CALL_EMPTY_CACHE, first + 1);
    }
    return i;
}

static base_status_t add_event(builder_t *b, size_t i, base_err_t *err)
{
    const sim_snapshot_event_t *e = &b->events[i];
    place_t *p;
    uint32_t block = 0;
    base_status_t status;
    switch ((sim_trace_action_t)e->action) {
    case SIM_TRACE_ALLOC:
        p = place(b, e->addr);
        if (p->state == LIVE || p->state == WAITING) { /* its free is missing */
            b->rec->n_inconsistent++;
            if (p->state == LIVE)
                add_call(b, SIM_CALL_FREE, i + 1)->block = p->block;
            else
                add_wait_end(b, p, i + 1);
        }
        p->state = LIVE;
        status = add_alloc(b, i + 1, i + 1, e->bytes, e->stream, &p->block, err);
        add_late_wait_ends(b, i + 1);
        return status;
    case SIM_TRACE_FREE_REQUESTED:
        p = place(b, e->addr);
        if (p->state != LIVE) {
            b->rec->n_inconsistent++;
            return BASE_OK;
        }
        if (i + 1 < b->n && b->events[i + 1].action == SIM_TRACE_FREE_COMPLETED &&
            b->events[i + 1].addr == e->addr) {
            add_call(b, SIM_CALL_FREE, i + 1)->block = p->block;
            p->wait_stream = UINT32_MAX;
            p->state = WAITING;
        } else {
            add_waiting_free(b, p, i + 1);
        }
        return BASE_OK;
    case SIM_TRACE_FREE_COMPLETED:
        p = place(b, e->addr);
        if (p->state == WAITING)
            add_wait_end(b, p, i + 1);
        else
            b->rec->n_inconsistent++;
        return BASE_OK;
    case SIM_TRACE_OOM:
        b->rec->n_ooms++;
        status = add_alloc(b, i + 1, i + 1, e->bytes, e->stream, &block, err);
        if (status == BASE_OK)
            add_call(b, SIM_CALL_FREE, i + 1)->block = block;
        add_late_wait_ends(b, i + 1);
        return status;
    default:
        return BASE_OK;
    }
}

static base_status_t add_events(builder_t *b, base_err_t *err)
{
    sim_recording_t *rec = b->rec;
    uint64_t reserved = rec->start_reserved_bytes, usable = UINT64_MAX;
    size_t judged = 0; /* releases before this event have been judged */
    b->most_usable = UINT64_MAX;
    for (size_t i = 0; i < b->n; i++) {
        const sim_snapshot_event_t *e = &b->events[i];
        if (is_private(b, e)) {
            rec->n_private_events++;
            continue;
        }
        if (i >= judged && (gives_segment(e) || e->action == SIM_TRACE_FREE_COMPLETED))
            judged = add_release(b, i, reserved);
        if (takes_segment(e))
            reserved += e->bytes;
        else if (gives_segment(e))
            reserved -= base_u64_min(reserved, e->bytes);
        else if (e->action == SIM_TRACE_OOM)
            usable = base_u64_min(usable, reserved + base_u64_min(e->addr, INT64_MAX));
        base_status_t status = add_event(b, i, err);
        if (status != BASE_OK)
            return status;
    }
    rec->is_usable_exact = usable != UINT64_MAX;
    if (rec->is_usable_exact)
        rec->usable_bytes = base_u64_max(usable, rec->peak_reserved_bytes);
    else if (b->most_usable != UINT64_MAX)
        rec->usable_bytes = rec->peak_reserved_bytes;
    return BASE_OK;
}

static base_status_t build(builder_t *b, sim_recording_start_t start, base_err_t *err)
{
    find_private_ranges(b);
    find_before(b);
    base_status_t status = find_reserved(b, err);
    if (status == BASE_OK)
        status = add_start(b, start, err);
    if (status == BASE_OK)
        status = add_events(b, err);
    return status;
}

static base_status_t init(sim_recording_t *rec, const sim_snapshot_t *snap, size_t device,
                          sim_recording_start_t start, uint64_t gap_bytes, base_err_t *err)
{
    if (snap->is_old_layout || device >= snap->n_traces || snap->traces[device].n == 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "no recorded events of device %zu: call "
                            "torch.cuda.memory._record_memory_history() before what is to be "
                            "recorded",
                            device);
    if (snap->traces[device].n >= UINT32_MAX / 2)
        return base_err_set(err, BASE_ERR_INVAL, "more than 2^31 events");
    *rec = (sim_recording_t){ .n_events = snap->traces[device].n };
    rec->trace = base_xcalloc(1, sizeof(*rec->trace));
    rec->trace->n_lines = (uint32_t)snap->traces[device].n;
    builder_t b = { .rec = rec, .snap = snap, .device = device, .gap_bytes = gap_bytes };
    sim_alloc_conf_init(&b.conf);
    if (snap->conf != NULL) /* bad settings are the player's to refuse */
        sim_alloc_conf_parse(&b.conf, snap->conf, NULL);
    b.events = &snap->events[snap->traces[device].first];
    b.n = snap->traces[device].n;
    base_status_t status = build(&b, start, err);
    free(b.places);
    free(b.before);
    free(b.private_ranges);
    free(b.idle.streams);
    free(b.late.streams);
    if (status != BASE_OK)
        sim_recording_fini(rec);
    return status;
}

base_status_t sim_recording_init(sim_recording_t *rec, const sim_snapshot_t *snap, size_t device,
                                 sim_recording_start_t start, base_err_t *err)
{
    base_status_t status = init(rec, snap, device, SIM_RECORDING_START_BLOCKS, 0, err);
    if (status != BASE_OK || start == SIM_RECORDING_START_BLOCKS)
        return status;
    /* How much the device could have had tells how much there is beside the start. */
    uint64_t gap_bytes = rec->usable_bytes == 0 ? SIM_DEVICE_MAX_BYTES
                                                : rec->usable_bytes - rec->start_reserved_bytes;
    sim_recording_fini(rec);
    return init(rec, snap, device, start, gap_bytes, err);
}

void sim_recording_fini(sim_recording_t *rec)
{
    sim_trace_destroy(rec->trace);
    rec->trace = NULL;
}

void sim_recording_limits(const sim_recording_t *rec, const sim_snapshot_t *snap,
                          base_diag_t *limits)
{
    char a[BASE_BYTES_TEXT], c[BASE_BYTES_TEXT];
    if (rec->n_before > 0 || rec->start_reserved_bytes > 0)
        base_diag_add(limits,
                      "The history begins in the middle (recording started late, or its ring was "
                      "full): %" PRIu64 " blocks of %s were alive, in %s reserved. Settings are "
                      "compared from these blocks alone, allocated by address: how other settings "
                      "would have cut up the memory between them by then is not known.",
                      rec->n_before, base_bytes_format(rec->before_bytes, a),
                      base_bytes_format(rec->start_reserved_bytes, c));
    if (rec->n_private_events > 0 || rec->private_bytes > 0)
        base_diag_add(limits,
                      "%" PRIu64 " events of private pools (CUDA graphs, MemPools) are left out; "
                      "such pools hold %s at the end.",
                      rec->n_private_events, base_bytes_format(rec->private_bytes, a));
    if (rec->usable_bytes == 0)
        base_diag_add(limits, "The size of the device is not in a snapshot, and nothing in this "
                              "one tells how much could be had: give --capacity.");
    else if (!rec->is_usable_exact)
        base_diag_add(limits,
                      "The device's usable memory is not recorded; %s is the least that agrees "
                      "with the %" PRIu64 " times that memory was given back for a request.",
                      base_bytes_format(rec->usable_bytes, a), rec->n_releases);
    if (rec->n_waiting > 0)
        base_diag_add(limits,
                      "%" PRIu64 " frees waited for another stream; which stream, and when its "
                      "work ended under other settings, is not recorded: the recorded moment is "
                      "kept.",
                      rec->n_waiting);
    if (rec->n_empty_caches > 0)
        base_diag_add(limits,
                      "%" PRIu64 " times memory was given back without need: taken to be calls of "
                      "empty_cache(), and repeated.",
                      rec->n_empty_caches);
    if (rec->n_inconsistent > 0)
        base_diag_add(limits, "%" PRIu64 " events contradict the others and are left out.",
                      rec->n_inconsistent);
    if (snap->conf == NULL)
        base_diag_add(limits, "The file does not have the allocator's settings: defaults are "
                              "taken for them.");
    base_diag_add(limits, "Addresses are those of the simulated device; equal sizes are chosen by "
                          "address, so a real run may differ where there are ties.");
}
