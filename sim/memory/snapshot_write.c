/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/snapshot_write.h"

#include "sim/base/outfile.h"
#include "sim/base/xmem.h"
#include "sim/memory/alloc_conf.h"
#include "sim/memory/pickle_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEY = 4096 };

/* The stack of each live block, for the blocks of the final segments: open addressing by address,
 * a power of two, at most half full. stack_plus_1 0 = empty. */
typedef struct {
    uint64_t addr;
    uint32_t stack_plus_1;
} live_t;

struct sim_snapshot_writer {
    base_outfile_t *out;
    FILE *stream;
    sim_pickle_writer_t *pickle;
    live_t *live;
    size_t n_live, cap_live;
    sim_snapshot_where_f where;
    void *where_arg;
};

base_status_t sim_snapshot_writer_open(const char *path, sim_snapshot_writer_t **writer_p,
                                       base_err_t *err)
{
    base_outfile_t *out;
    base_status_t status = base_outfile_open(path, &out, err);
    if (status != BASE_OK)
        return status;
    sim_snapshot_writer_t *w = base_xcalloc(1, sizeof(*w));
    w->out = out;
    w->stream = base_outfile_stream(out);
    w->cap_live = 1024;
    w->live = base_xcalloc(w->cap_live, sizeof(*w->live));
    w->pickle = sim_pickle_writer_create(w->stream);
    sim_pickle_begin_dict(w->pickle);
    sim_pickle_put_str(w->pickle, "device_traces");
    sim_pickle_begin_list(w->pickle);
    sim_pickle_element(w->pickle);
    sim_pickle_begin_list(w->pickle); /* device 0: a file has the one GPU of its rank */
    *writer_p = w;
    return BASE_OK;
}

static void destroy(sim_snapshot_writer_t *w)
{
    sim_pickle_writer_destroy(w->pickle);
    free(w->live);
    free(w);
}

void sim_snapshot_writer_abort(sim_snapshot_writer_t *w)
{
    if (w == NULL)
        return;
    base_outfile_discard(w->out);
    destroy(w);
}

/* Addresses are multiples of 512: their low bits say nothing. */
static size_t live_home(const sim_snapshot_writer_t *w, uint64_t addr)
{
    return (size_t)((addr >> 9) * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (w->cap_live - 1);
}

static live_t *live_find(const sim_snapshot_writer_t *w, uint64_t addr)
{
    size_t i = live_home(w, addr);
    while (w->live[i].stack_plus_1 != 0 && w->live[i].addr != addr)
        i = (i + 1) & (w->cap_live - 1);
    return &w->live[i];
}

static void live_put(sim_snapshot_writer_t *w, uint64_t addr, uint32_t stack)
{
    if (2 * w->n_live >= w->cap_live) {
        live_t *old = w->live;
        size_t n_old = w->cap_live;
        w->cap_live *= 2;
        w->live = base_xcalloc(w->cap_live, sizeof(*w->live));
        for (size_t i = 0; i < n_old; i++)
            if (old[i].stack_plus_1 != 0)
                *live_find(w, old[i].addr) = old[i];
        free(old);
    }
    live_t *slot = live_find(w, addr);
    w->n_live += slot->stack_plus_1 == 0;
    *slot = (live_t){ .addr = addr, .stack_plus_1 = stack + 1 };
}

static void live_drop(sim_snapshot_writer_t *w, uint64_t addr)
{
    live_t *slot = live_find(w, addr);
    if (slot->stack_plus_1 == 0)
        return;
    w->n_live--;
    size_t hole = (size_t)(slot - w->live), mask = w->cap_live - 1;
    for (size_t i = (hole + 1) & mask; w->live[i].stack_plus_1 != 0; i = (i + 1) & mask) {
        size_t home = live_home(w, w->live[i].addr);
        if (((i - home) & mask) >= ((i - hole) & mask)) { /* may move back to the hole */
            w->live[hole] = w->live[i];
            hole = i;
        }
    }
    w->live[hole].stack_plus_1 = 0;
}

static size_t append_key(char key[MAX_KEY], size_t n, const void *bytes, size_t n_bytes)
{
    size_t take = n_bytes < MAX_KEY - n ? n_bytes : MAX_KEY - n;
    memcpy(key + n, bytes, take);
    return n + take;
}

static size_t frame_key(const sim_snapshot_frame_t *frame, char key[MAX_KEY], size_t n)
{
    n = append_key(key, n, frame->name, strlen(frame->name) + 1);
    n = append_key(key, n, frame->filename, strlen(frame->filename) + 1);
    return append_key(key, n, &frame->line, sizeof(frame->line));
}

static void put_frame(sim_pickle_writer_t *p, const sim_snapshot_frame_t *frame)
{
    char key[MAX_KEY] = { '\0', 'F' };
    size_t n = frame_key(frame, key, 2);
    if (n < MAX_KEY && sim_pickle_recall(p, key, n))
        return;
    sim_pickle_begin_dict(p);
    sim_pickle_put_str(p, "name");
    sim_pickle_put_str(p, frame->name);
    sim_pickle_put_str(p, "filename");
    sim_pickle_put_str(p, frame->filename);
    sim_pickle_put_str(p, "line");
    sim_pickle_put_int(p, frame->line);
    sim_pickle_end_dict(p);
    if (n < MAX_KEY)
        sim_pickle_remember(p, key, n);
}

/* Returns whether the stack has a reference number, and that. */
static bool put_stack(sim_pickle_writer_t *p, const sim_snapshot_frame_t *frames, size_t n_frames,
                      uint32_t *idx_p)
{
    char key[MAX_KEY] = { '\0', 'S' };
    size_t n = 2;
    for (size_t i = 0; i < n_frames; i++)
        n = frame_key(&frames[i], key, n);
    bool is_key = n < MAX_KEY; /* longer: cut, so not unique */
    if (is_key && sim_pickle_known(p, key, n, idx_p)) {
        sim_pickle_put_known(p, *idx_p);
        return true;
    }
    sim_pickle_begin_list(p);
    for (size_t i = 0; i < n_frames; i++) {
        sim_pickle_element(p);
        put_frame(p, &frames[i]);
    }
    sim_pickle_end_list(p);
    /* Half of the memo is kept for frames and texts, which save more. */
    if (!is_key || sim_pickle_n_known(p) >= SIM_PICKLE_MAX_KNOWN / 2)
        return false;
    sim_pickle_remember(p, key, n);
    return sim_pickle_known(p, key, n, idx_p);
}

void sim_snapshot_writer_event(sim_snapshot_writer_t *w, sim_trace_action_t action, uint64_t addr,
                               uint64_t bytes, uint64_t stream, uint64_t time_us,
                               const sim_snapshot_frame_t *frames, size_t n_frames)
{
    static const char *const names[] = {
        [SIM_TRACE_ALLOC] = "alloc",
        [SIM_TRACE_FREE_REQUESTED] = "free_requested",
        [SIM_TRACE_FREE_COMPLETED] = "free_completed",
        [SIM_TRACE_SEGMENT_ALLOC] = "segment_alloc",
        [SIM_TRACE_SEGMENT_FREE] = "segment_free",
        [SIM_TRACE_SEGMENT_MAP] = "segment_map",
        [SIM_TRACE_SEGMENT_UNMAP] = "segment_unmap",
        [SIM_TRACE_OOM] = "oom",
    };
    sim_pickle_writer_t *p = w->pickle;
    uint32_t stack = 0;
    sim_pickle_element(p);
    sim_pickle_begin_dict(p);
    sim_pickle_put_str(p, "action");
    sim_pickle_put_str(p, names[action]);
    sim_pickle_put_str(p, action == SIM_TRACE_OOM ? "device_free" : "addr");
    sim_pickle_put_int(p, (int64_t)addr);
    sim_pickle_put_str(p, "size");
    sim_pickle_put_int(p, (int64_t)bytes);
    sim_pickle_put_str(p, "stream");
    sim_pickle_put_int(p, (int64_t)stream);
    sim_pickle_put_str(p, "time_us");
    sim_pickle_put_int(p, (int64_t)time_us);
    sim_pickle_put_str(p, "frames");
    bool has_stack = put_stack(p, frames, n_frames, &stack);
    sim_pickle_end_dict(p);
    if (action == SIM_TRACE_ALLOC && has_stack)
        live_put(w, addr, stack);
    else if (action == SIM_TRACE_FREE_COMPLETED)
        live_drop(w, addr);
}

static void on_event(void *arg, sim_trace_action_t action, uint64_t addr, uint64_t bytes,
                     uint64_t stream)
{
    sim_snapshot_writer_t *w = arg;
    sim_snapshot_frame_t frames[SIM_SNAPSHOT_MAX_FRAMES];
    uint64_t time_us = 0;
    size_t n_frames = w->where(w->where_arg, frames, &time_us);
    sim_snapshot_writer_event(w, action, addr, bytes, stream, time_us, frames, n_frames);
}

void sim_snapshot_writer_attach(sim_snapshot_writer_t *w, sim_alloc_t *alloc,
                                sim_snapshot_where_f where, void *arg)
{
    w->where = where;
    w->where_arg = arg;
    sim_alloc_set_trace(alloc, on_event, w);
}

/* Blocks arrive one by one; a segment's own fields are written before its blocks, and need their
 * sums: the blocks of one segment are collected first. */
typedef struct {
    sim_snapshot_writer_t *w;
    sim_block_info_t *blocks;
    size_t n, cap;
} segment_t;

static void put_block(sim_snapshot_writer_t *w, const sim_block_info_t *b)
{
    sim_pickle_writer_t *p = w->pickle;
    sim_pickle_begin_dict(p);
    sim_pickle_put_str(p, "address");
    sim_pickle_put_int(p, (int64_t)b->addr);
    sim_pickle_put_str(p, "size");
    sim_pickle_put_int(p, (int64_t)b->bytes);
    sim_pickle_put_str(p, "requested_size");
    sim_pickle_put_int(p, b->is_active ? (int64_t)b->requested_bytes : 0);
    sim_pickle_put_str(p, "state");
    sim_pickle_put_str(p, b->is_allocated ? "active_allocated"
                          : b->is_active  ? "active_pending_free"
                                          : "inactive");
    sim_pickle_put_str(p, "frames");
    const live_t *live = live_find(w, b->addr);
    if (b->is_active && live->stack_plus_1 != 0) {
        sim_pickle_put_known(p, live->stack_plus_1 - 1);
    } else {
        sim_pickle_begin_list(p);
        sim_pickle_end_list(p);
    }
    sim_pickle_end_dict(p);
}

static void put_field(sim_pickle_writer_t *p, const char *name, uint64_t value)
{
    sim_pickle_put_str(p, name);
    sim_pickle_put_int(p, (int64_t)value);
}

static void put_segment(segment_t *s)
{
    if (s->n == 0)
        return;
    sim_pickle_writer_t *p = s->w->pickle;
    const sim_block_info_t *b = &s->blocks[0];
    uint64_t allocated = 0, active = 0, requested = 0;
    for (size_t i = 0; i < s->n; i++) {
        allocated += s->blocks[i].is_allocated ? s->blocks[i].bytes : 0;
        active += s->blocks[i].is_active ? s->blocks[i].bytes : 0;
        requested += s->blocks[i].is_active ? s->blocks[i].requested_bytes : 0;
    }
    sim_pickle_element(p);
    sim_pickle_begin_dict(p);
    put_field(p, "device", 0);
    put_field(p, "address", b->segment_addr);
    put_field(p, "total_size", b->segment_bytes);
    put_field(p, "allocated_size", allocated);
    put_field(p, "active_size", active);
    put_field(p, "requested_size", requested);
    put_field(p, "stream", b->stream);
    sim_pickle_put_str(p, "segment_type");
    sim_pickle_put_str(p, b->is_large ? "large" : "small");
    sim_pickle_put_str(p, "segment_pool_id");
    sim_pickle_put_pair(p, 0, b->mempool); /* graph_pool_handle() numbers the second */
    sim_pickle_put_str(p, "is_expandable");
    sim_pickle_put_bool(p, b->is_expandable);
    sim_pickle_put_str(p, "frames");
    sim_pickle_begin_list(p);
    sim_pickle_end_list(p);
    sim_pickle_put_str(p, "blocks");
    sim_pickle_begin_list(p);
    for (size_t i = 0; i < s->n; i++) {
        sim_pickle_element(p);
        put_block(s->w, &s->blocks[i]);
    }
    sim_pickle_end_list(p);
    sim_pickle_end_dict(p);
    s->n = 0;
}

static void on_block(void *arg, const sim_block_info_t *info)
{
    segment_t *s = arg;
    if (s->n > 0 && s->blocks[0].segment_addr != info->segment_addr)
        put_segment(s);
    if (s->n == s->cap) {
        s->cap = 2 * s->cap + 64;
        s->blocks = base_xrealloc(s->blocks, s->cap, sizeof(*s->blocks));
    }
    s->blocks[s->n++] = *info;
}

static void put_segments(sim_snapshot_writer_t *w, const sim_alloc_t *alloc)
{
    segment_t s = { .w = w };
    sim_pickle_put_str(w->pickle, "segments");
    sim_pickle_begin_list(w->pickle);
    sim_alloc_foreach(alloc, on_block, &s);
    put_segment(&s);
    sim_pickle_end_list(w->pickle);
    free(s.blocks);
}

static void put_settings(sim_pickle_writer_t *p, const char *text)
{
    sim_alloc_conf_t conf;
    sim_alloc_conf_init(&conf);
    if (text != NULL) /* the allocator took it, so it can be parsed */
        sim_alloc_conf_parse(&conf, text, NULL);
    sim_pickle_put_str(p, "allocator_settings");
    sim_pickle_begin_dict(p);
    sim_pickle_put_str(p, "PYTORCH_CUDA_ALLOC_CONF");
    sim_pickle_put_str(p, text != NULL ? text : "");
    sim_pickle_put_str(p, "max_split_size");
    sim_pickle_put_int(p, conf.max_split_bytes > INT64_MAX ? -1 : (int64_t)conf.max_split_bytes);
    sim_pickle_put_str(p, "garbage_collection_threshold");
    sim_pickle_put_float(p, conf.gc_threshold);
    sim_pickle_put_str(p, "expandable_segments");
    sim_pickle_put_bool(p, conf.expandable_segments);
    sim_pickle_put_str(p, "roundup_power2_divisions");
    sim_pickle_begin_dict(p);
    for (unsigned i = 0; i < SIM_ALLOC_CONF_SLOTS; i++) {
        char mib[16];
        snprintf(mib, sizeof(mib), "%u", 1U << i);
        put_field(p, mib, conf.divisions[i]);
    }
    sim_pickle_end_dict(p);
    sim_pickle_end_dict(p);
}

base_status_t sim_snapshot_writer_finish(sim_snapshot_writer_t *w, sim_alloc_t *alloc,
                                         const char *conf, uint64_t *bytes_p, base_err_t *err)
{
    if (w->where != NULL)
        sim_alloc_set_trace(alloc, NULL, NULL);
    sim_pickle_end_list(w->pickle);
    sim_pickle_end_list(w->pickle);
    put_segments(w, alloc);
    put_settings(w->pickle, conf);
    sim_pickle_put_str(w->pickle, "external_annotations");
    sim_pickle_begin_list(w->pickle);
    sim_pickle_end_list(w->pickle);
    sim_pickle_end_dict(w->pickle);
    sim_pickle_writer_finish(w->pickle);
    w->pickle = NULL;
    long bytes = ftell(w->stream);
    if (bytes_p != NULL)
        *bytes_p = bytes > 0 ? (uint64_t)bytes : 0;
    base_status_t status = base_outfile_commit(w->out, err);
    destroy(w);
    return status;
}
