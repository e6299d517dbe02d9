/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/snapshot_read.h"

#include "sim/base/xmem.h"
#include "sim/memory/pickle_read.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a container has become: the tag of a SIM_PICKLE_REDUCED value. Events, blocks, segments: its
 * ref is the index in the snapshot's array; their lists: the index in ranges[]. */
typedef enum {
    TAG_FRAME,
    TAG_FRAMES,
    TAG_EVENT,
    TAG_EVENTS,
    TAG_BLOCK,
    TAG_BLOCKS,
    TAG_SEGMENT,
    TAG_SEGMENTS,
    TAG_IGNORED, /* an event that moves no memory */
} tag_t;

typedef struct {
    sim_snapshot_t *snap;
    size_t cap_segments, cap_blocks, cap_events;
    sim_snapshot_trace_t *ranges;
    size_t n_ranges, cap_ranges;
} loader_t;

static void *room_for_one(void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    *cap = *cap + *cap / 2 + 64;
    return base_xrealloc(array, *cap, size);
}

typedef struct {
    const sim_pickle_t *pickle;
    const sim_pickle_value_t *items;
    size_t n;
    base_err_t *err;
} dict_t;

static const sim_pickle_value_t *find(const dict_t *d, const char *key)
{
    return sim_pickle_find(d->pickle, d->items, d->n, key);
}

/* A number >= 0 that must be there. */
static bool need_u64(const dict_t *d, const char *what, const char *key, uint64_t *out_p)
{
    const sim_pickle_value_t *v = find(d, key);
    if (v == NULL || v->kind != SIM_PICKLE_INT || v->u.i < 0) {
        base_err_set(d->err, BASE_ERR_PARSE, "%s has no '%s' that is a number >= 0", what, key);
        return false;
    }
    *out_p = (uint64_t)v->u.i;
    return true;
}

static uint64_t get_u64(const dict_t *d, const char *key)
{
    const sim_pickle_value_t *v = find(d, key);
    return v != NULL && v->kind == SIM_PICKLE_INT && v->u.i > 0 ? (uint64_t)v->u.i : 0;
}

static bool get_bool(const dict_t *d, const char *key)
{
    const sim_pickle_value_t *v = find(d, key);
    return v != NULL && (v->kind == SIM_PICKLE_BOOL || v->kind == SIM_PICKLE_INT) && v->u.i != 0;
}

/* (0, 0) is the default pool; a file that does not say is taken to mean it. */
static bool is_private_pool(const dict_t *d)
{
    const sim_pickle_value_t *v = find(d, "segment_pool_id");
    if (v == NULL)
        v = find(d, "pool_id");
    if (v == NULL)
        return false;
    size_t n;
    const sim_pickle_value_t *id = sim_pickle_items(d->pickle, *v, &n);
    for (size_t i = 0; i < n; i++)
        if (id[i].kind != SIM_PICKLE_INT || id[i].u.i != 0)
            return true;
    return false;
}

static sim_pickle_verdict_t reduced(sim_pickle_value_t *out, tag_t tag, uint64_t ref)
{
    out->bytes = tag;
    out->u.ref = ref;
    return SIM_PICKLE_REDUCE;
}

static bool find_action(const dict_t *d, sim_pickle_value_t text, sim_trace_action_t *action_p)
{
    static const struct {
        const char *name;
        sim_trace_action_t action;
    } actions[] = {
        { "alloc", SIM_TRACE_ALLOC },
        { "free_requested", SIM_TRACE_FREE_REQUESTED },
        { "free_completed", SIM_TRACE_FREE_COMPLETED },
        { "segment_alloc", SIM_TRACE_SEGMENT_ALLOC },
        { "segment_free", SIM_TRACE_SEGMENT_FREE },
        { "segment_map", SIM_TRACE_SEGMENT_MAP },
        { "segment_unmap", SIM_TRACE_SEGMENT_UNMAP },
        { "oom", SIM_TRACE_OOM },
    };
    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++)
        if (sim_pickle_str_is(d->pickle, text, actions[i].name)) {
            *action_p = actions[i].action;
            return true;
        }
    return false;
}

static sim_pickle_verdict_t reduce_event(loader_t *l, const dict_t *d, sim_pickle_value_t action,
                                         sim_pickle_value_t *out)
{
    sim_snapshot_t *s = l->snap;
    sim_trace_action_t kind;
    if (!find_action(d, action, &kind)) {
        s->n_other_events++;
        return reduced(out, TAG_IGNORED, 0);
    }
    sim_snapshot_event_t e = { .action = (uint8_t)kind, .is_private = is_private_pool(d) };
    if (!need_u64(d, "a trace entry", kind == SIM_TRACE_OOM ? "device_free" : "addr", &e.addr) ||
        !need_u64(d, "a trace entry", "size", &e.bytes) ||
        !need_u64(d, "a trace entry", "stream", &e.stream))
        return SIM_PICKLE_FAIL;
    uint64_t us = get_u64(d, "time_us");
    if (s->first_us == 0 || us < s->first_us)
        s->first_us = us;
    if (us > s->last_us)
        s->last_us = us;
    s->events = room_for_one(s->events, s->n_events, &l->cap_events, sizeof(e));
    s->events[s->n_events] = e;
    return reduced(out, TAG_EVENT, s->n_events++);
}

/* The first layout kept the requested bytes in history[0].real_size. */
static uint64_t requested_of_history(const dict_t *d)
{
    const sim_pickle_value_t *v = find(d, "history");
    size_t n = 0;
    const sim_pickle_value_t *history = v != NULL ? sim_pickle_items(d->pickle, *v, &n) : NULL;
    if (n == 0)
        return 0;
    dict_t first = { .pickle = d->pickle, .err = d->err };
    first.items = sim_pickle_items(d->pickle, history[0], &first.n);
    return get_u64(&first, "real_size");
}

static sim_pickle_verdict_t reduce_block(loader_t *l, const dict_t *d, sim_pickle_value_t state,
                                         sim_pickle_value_t *out)
{
    sim_snapshot_t *s = l->snap;
    sim_snapshot_block_t b = { .addr = get_u64(d, "address") };
    if (!need_u64(d, "a block", "size", &b.bytes))
        return SIM_PICKLE_FAIL;
    if (sim_pickle_str_is(d->pickle, state, "active_allocated"))
        b.state = SIM_SNAPSHOT_ALLOCATED;
    else if (sim_pickle_str_is(d->pickle, state, "active_pending_free") ||
             sim_pickle_str_is(d->pickle, state, "active_awaiting_free"))
        b.state = SIM_SNAPSHOT_PENDING_FREE;
    b.requested_bytes = get_u64(d, "requested_size");
    if (b.requested_bytes == 0)
        b.requested_bytes = requested_of_history(d);
    if (b.requested_bytes == 0 || b.requested_bytes > b.bytes)
        b.requested_bytes = b.bytes;
    s->blocks = room_for_one(s->blocks, s->n_blocks, &l->cap_blocks, sizeof(b));
    s->blocks[s->n_blocks] = b;
    return reduced(out, TAG_BLOCK, s->n_blocks++);
}

/* Give the blocks their addresses and check that they tile the segment. */
static bool lay_blocks(sim_snapshot_t *s, const sim_snapshot_segment_t *seg, base_err_t *err)
{
    uint64_t addr = seg->addr, left = seg->bytes;
    for (size_t i = 0; i < seg->n_blocks; i++) {
        sim_snapshot_block_t *b = &s->blocks[seg->first_block + i];
        if (b->bytes > left || (b->addr != 0 && b->addr != addr)) {
            left = UINT64_MAX;
            break;
        }
        b->addr = addr;
        addr += b->bytes;
        left -= b->bytes;
    }
    if (left == 0)
        return true;
    base_err_set(err, BASE_ERR_PARSE,
                 "the blocks of the segment at 0x%" PRIx64 " do not fill its %" PRIu64 " bytes",
                 seg->addr, seg->bytes);
    return false;
}

static sim_pickle_verdict_t reduce_segment(loader_t *l, const dict_t *d, sim_pickle_value_t blocks,
                                           sim_pickle_value_t *out)
{
    sim_snapshot_t *s = l->snap;
    sim_snapshot_segment_t seg = { .device = (uint32_t)get_u64(d, "device"),
                                   .is_expandable = get_bool(d, "is_expandable"),
                                   .is_private = is_private_pool(d) };
    if (!need_u64(d, "a segment", "address", &seg.addr) ||
        !need_u64(d, "a segment", "total_size", &seg.bytes))
        return SIM_PICKLE_FAIL;
    seg.stream = get_u64(d, "stream");
    const sim_pickle_value_t *type = find(d, "segment_type");
    seg.is_large = type != NULL && sim_pickle_str_is(d->pickle, *type, "large");
    if (seg.bytes > INT64_MAX - seg.addr || blocks.kind != SIM_PICKLE_REDUCED ||
        blocks.bytes != TAG_BLOCKS) {
        base_err_set(d->err, BASE_ERR_PARSE, "a segment without a list of blocks");
        return SIM_PICKLE_FAIL;
    }
    seg.first_block = l->ranges[blocks.u.ref].first;
    seg.n_blocks = l->ranges[blocks.u.ref].n;
    if (!lay_blocks(s, &seg, d->err))
        return SIM_PICKLE_FAIL;
    s->segments = room_for_one(s->segments, s->n_segments, &l->cap_segments, sizeof(seg));
    s->segments[s->n_segments] = seg;
    return reduced(out, TAG_SEGMENT, s->n_segments++);
}

static sim_pickle_verdict_t reduce_dict(loader_t *l, const dict_t *d, sim_pickle_value_t *out)
{
    const sim_pickle_value_t *v;
    if ((v = find(d, "action")) != NULL)
        return reduce_event(l, d, *v, out);
    if ((v = find(d, "state")) != NULL)
        return reduce_block(l, d, *v, out);
    if ((v = find(d, "blocks")) != NULL)
        return reduce_segment(l, d, *v, out);
    if (find(d, "filename") != NULL && find(d, "line") != NULL)
        return reduced(out, TAG_FRAME, 0);
    return SIM_PICKLE_KEEP;
}

/* A list of events, blocks or segments is a range of the array that they went to. */
static sim_pickle_verdict_t reduce_list(loader_t *l, const sim_pickle_value_t *items, size_t n,
                                        sim_pickle_value_t *out, base_err_t *err)
{
    sim_snapshot_trace_t range = { .first = 0, .n = 0 };
    tag_t tag = TAG_IGNORED;
    for (size_t i = 0; i < n; i++) {
        if (items[i].kind != SIM_PICKLE_REDUCED)
            return SIM_PICKLE_KEEP;
        if (items[i].bytes == TAG_IGNORED)
            continue;
        if (tag == TAG_IGNORED) {
            tag = (tag_t)items[i].bytes;
            range.first = items[i].u.ref;
        }
        if (items[i].bytes != tag)
            return SIM_PICKLE_KEEP;
        if (tag != TAG_FRAME && items[i].u.ref != range.first + range.n) {
            base_err_set(err, BASE_ERR_PARSE, "a list that has the same element twice");
            return SIM_PICKLE_FAIL;
        }
        range.n++;
    }
    if (n > 0 && tag == TAG_IGNORED)
        tag = TAG_EVENT;
    if (tag == TAG_FRAME)
        return reduced(out, TAG_FRAMES, 0);
    if (tag != TAG_EVENT && tag != TAG_BLOCK && tag != TAG_SEGMENT)
        return SIM_PICKLE_KEEP;
    l->ranges = room_for_one(l->ranges, l->n_ranges, &l->cap_ranges, sizeof(range));
    l->ranges[l->n_ranges] = range;
    return reduced(out, (tag_t)(tag + 1), l->n_ranges++);
}

static sim_pickle_verdict_t reduce(void *arg, const sim_pickle_t *pickle, sim_pickle_kind_t kind,
                                   const sim_pickle_value_t *items, size_t n,
                                   sim_pickle_value_t *out, base_err_t *err)
{
    if (kind == SIM_PICKLE_DICT)
        return reduce_dict(arg, &(dict_t){ pickle, items, n, err }, out);
    if (kind == SIM_PICKLE_LIST)
        return reduce_list(arg, items, n, out, err);
    return SIM_PICKLE_KEEP;
}

static void take_settings(loader_t *l, const sim_pickle_t *pickle, const sim_pickle_value_t *v)
{
    sim_snapshot_t *s = l->snap;
    dict_t d = { .pickle = pickle };
    if (v == NULL || v->kind != SIM_PICKLE_DICT)
        return;
    d.items = sim_pickle_items(pickle, *v, &d.n);
    s->is_expandable_set = get_bool(&d, "expandable_segments");
    const sim_pickle_value_t *conf = find(&d, "PYTORCH_CUDA_ALLOC_CONF");
    size_t n;
    const char *text = conf != NULL ? sim_pickle_str(pickle, *conf, &n) : NULL;
    if (text != NULL)
        s->conf = strndup(text, n);
}

static bool is_list_of(const sim_pickle_value_t *v, tag_t tag)
{
    return v != NULL && (v->kind == SIM_PICKLE_LIST ||
                         (v->kind == SIM_PICKLE_REDUCED && v->bytes == (uint32_t)tag));
}

/* Everything is in the arrays by now; what is left to look at is which events are which device's.
 */
static base_status_t take_root(loader_t *l, const sim_pickle_t *pickle, sim_pickle_value_t root,
                               base_err_t *err)
{
    sim_snapshot_t *s = l->snap;
    if (is_list_of(&root, TAG_SEGMENTS)) {
        s->is_old_layout = true;
        return BASE_OK;
    }
    dict_t d = { .pickle = pickle, .err = err };
    if (root.kind == SIM_PICKLE_DICT)
        d.items = sim_pickle_items(pickle, root, &d.n);
    const sim_pickle_value_t *segments = find(&d, "segments"), *traces = find(&d, "device_traces");
    if (!is_list_of(segments, TAG_SEGMENTS) || traces == NULL || traces->kind != SIM_PICKLE_LIST)
        return base_err_set(err, BASE_ERR_PARSE,
                            "not a memory snapshot: no lists 'segments' and 'device_traces'");
    const sim_pickle_value_t *items = sim_pickle_items(pickle, *traces, &s->n_traces);
    s->traces = base_xcalloc(s->n_traces, sizeof(*s->traces));
    for (size_t i = 0; i < s->n_traces; i++) {
        if (!is_list_of(&items[i], TAG_EVENTS))
            return base_err_set(err, BASE_ERR_PARSE,
                                "not a memory snapshot: device_traces[%zu] is no list of events",
                                i);
        if (items[i].kind == SIM_PICKLE_REDUCED)
            s->traces[i] = l->ranges[items[i].u.ref];
    }
    take_settings(l, pickle, find(&d, "allocator_settings"));
    return BASE_OK;
}

base_status_t sim_snapshot_parse(const void *data, size_t n, sim_snapshot_t **snapshot_p,
                                 base_err_t *err)
{
    loader_t l = { .snap = base_xcalloc(1, sizeof(*l.snap)) };
    sim_pickle_t *pickle = NULL;
    sim_pickle_value_t root;
    base_status_t status = sim_pickle_read(data, n, reduce, &l, &pickle, &root, err);
    if (status == BASE_OK)
        status = take_root(&l, pickle, root, err);
    sim_pickle_destroy(pickle);
    free(l.ranges);
    if (status != BASE_OK) {
        sim_snapshot_destroy(l.snap);
        return status;
    }
    *snapshot_p = l.snap;
    return BASE_OK;
}

static base_status_t read_pipe(int fd, uint8_t **data_p, size_t *n_p)
{
    size_t cap = 1U << 16, n = 0;
    uint8_t *data = base_xcalloc(cap, 1);
    for (;;) {
        if (n == cap)
            data = base_xrealloc(data, cap *= 2, 1);
        ssize_t got = read(fd, data + n, cap - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            *data_p = data;
            *n_p = n;
            return got == 0 ? BASE_OK : BASE_ERR_IO;
        }
        n += (size_t)got;
    }
}

base_status_t sim_snapshot_read(const char *path, sim_snapshot_t **snapshot_p, base_err_t *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        base_status_t status = base_err_set(err, BASE_ERR_IO, "%s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    uint8_t *data = NULL;
    size_t n = 0;
    base_status_t status = BASE_OK;
    bool is_mapped = S_ISREG(st.st_mode) && st.st_size > 0;
    if (is_mapped) {
        n = (size_t)st.st_size;
        data = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = BASE_ERR_IO;
    } else {
        status = read_pipe(fd, &data, &n);
    }
    if (status != BASE_OK)
        base_err_set(err, status, "%s: %s", path, strerror(errno));
    close(fd);
    if (status == BASE_OK) {
        base_err_t why;
        status = sim_snapshot_parse(data, n, snapshot_p, &why);
        if (status != BASE_OK)
            base_err_set(err, status, "%s: %s", path, why.text);
    }
    if (is_mapped && data != MAP_FAILED)
        munmap(data, n);
    else if (!is_mapped)
        free(data);
    return status;
}

void sim_snapshot_destroy(sim_snapshot_t *s)
{
    if (s == NULL)
        return;
    free(s->segments);
    free(s->blocks);
    free(s->events);
    free(s->traces);
    free(s->conf);
    free(s);
}
