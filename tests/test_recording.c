/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/memory/snapshot_write.h"
#include "sim/study/recording.h"
#include "sim/study/replay.h"
#include "tests/cutap.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *data_path(const char *name)
{
    return base_xasprintf("%s/tests/data/snapshots/%s", getenv("TOP_SRCDIR"), name);
}

typedef struct {
    const sim_snapshot_t *snap;
    size_t n, n_different;
} comparison_t;

static void compare_block(void *arg, const sim_block_info_t *info)
{
    comparison_t *c = arg;
    if (c->n < c->snap->n_blocks) {
        const sim_snapshot_block_t *b = &c->snap->blocks[c->n];
        bool is_active = b->state != SIM_SNAPSHOT_INACTIVE;
        c->n_different += b->addr != info->addr || b->bytes != info->bytes ||
                          is_active != info->is_active ||
                          (b->state == SIM_SNAPSHOT_ALLOCATED) != info->is_allocated ||
                          (is_active && b->requested_bytes != info->requested_bytes);
    }
    c->n++;
}

/* Play everything under the recorded settings, then compare the layout with the recorded one. */
static void play(const sim_recording_t *rec, const sim_snapshot_t *snap, const char *conf,
                 const sim_device_config_t *config, comparison_t *c)
{
    sim_device_t *device = sim_device_create_synthetic(config);
    sim_replay_t replay;
    base_err_t err = { 0 };
    CU_ASSERT_EQUAL_FATAL(sim_replay_open(&replay, rec->trace, device, conf, &err), BASE_OK);
    for (size_t i = 0; i < rec->trace->n_calls; i++)
        sim_replay_step(&replay, &rec->trace->calls[i], &err);
    *c = (comparison_t){ .snap = snap };
    sim_alloc_foreach(replay.alloc, compare_block, c);
    sim_replay_close(&replay);
    sim_device_destroy(device);
}

/* Snapshots of PyTorch's own allocator: played again, every block ends at the recorded address. */
static void recorded_runs_end_in_the_recorded_layout(void)
{
    char *path = data_path("INDEX.tsv"), line[512];
    FILE *in = fopen(path, "r");
    free(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(in);
    size_t n_rows = 0;
    while (fgets(line, sizeof(line), in) != NULL) {
        char name[128], conf[256];
        uint64_t total, usable;
        if (sscanf(line, "%127s %255s %" SCNu64 " %" SCNu64, name, conf, &total, &usable) != 4)
            continue; /* the heading */
        sim_snapshot_t *snap = NULL;
        sim_recording_t rec;
        base_err_t err = { 0 };
        path = data_path(name);
        CU_ASSERT_EQUAL_FATAL(sim_snapshot_read(path, &snap, &err), BASE_OK);
        CU_ASSERT_EQUAL_FATAL(
            sim_recording_init(&rec, snap, 0, SIM_RECORDING_START_AS_RECORDED, &err), BASE_OK);
        sim_device_config_t config = { .total_bytes = total,
                                       .usable_bytes = usable,
                                       .addresses = SIM_ADDRESSES_BUMP };
        comparison_t c;
        play(&rec, snap, snap->conf, &config, &c);
        CU_ASSERT_EQUAL(c.n, snap->n_blocks);
        CU_ASSERT_EQUAL(c.n_different, 0);
        CU_ASSERT_EQUAL(rec.n_inconsistent, 0);
        CU_ASSERT_EQUAL(rec.n_before, 0);
        if (c.n != snap->n_blocks || c.n_different > 0)
            printf("# %s: %zu of %zu blocks differ\n", name, c.n_different, snap->n_blocks);
        if (rec.usable_bytes > 0) { /* what the trace tells of the device is enough */
            CU_ASSERT_TRUE(rec.usable_bytes <= usable);
            config.usable_bytes = rec.usable_bytes;
            play(&rec, snap, snap->conf, &config, &c);
            CU_ASSERT_EQUAL(c.n_different, 0);
            printf("# %s: usable %" PRIu64 " deduced, %" PRIu64 " true\n", name, rec.usable_bytes,
                   usable);
        }
        sim_recording_fini(&rec);
        sim_snapshot_destroy(snap);
        free(path);
        n_rows++;
    }
    fclose(in);
    CU_ASSERT_EQUAL(n_rows, 12);
}

/* Whatever the ring has dropped: the blocks and the free memory at the end are as recorded. Blocks
 * are compared by size, in order; addresses depend on what came before. */
static bool layouts_differ(const sim_snapshot_t *snap, size_t cut, double *peak_error_p)
{
    static const sim_device_config_t config = { .total_bytes = UINT64_C(80) << 30,
                                                .usable_bytes = UINT64_C(80) << 30 };
    sim_snapshot_trace_t trace = snap->traces[0];
    sim_snapshot_t rest = *snap;
    rest.traces = &trace;
    trace.first += cut;
    trace.n -= cut;
    sim_recording_t rec;
    base_err_t err = { 0 };
    sim_replay_result_t r;
    CU_ASSERT_EQUAL_FATAL(sim_recording_init(&rec, &rest, 0, SIM_RECORDING_START_AS_RECORDED, &err),
                          BASE_OK);
    CU_ASSERT_EQUAL(rec.n_inconsistent, 0);
    sim_device_config_t device = config;
    if (rec.usable_bytes > 0)
        device.usable_bytes = rec.usable_bytes;
    CU_ASSERT_EQUAL(sim_replay_run(rec.trace, snap->conf, &device, &r, &err), BASE_OK);
    bool differs = r.end_reserved_bytes != rec.end_reserved_bytes ||
                   r.end_allocated_bytes != rec.end_allocated_bytes ||
                   r.peak_reserved_bytes != rec.peak_reserved_bytes || r.n_ooms > 0;
    *peak_error_p = fabs((double)r.peak_reserved_bytes / (double)rec.peak_reserved_bytes - 1);
    sim_recording_fini(&rec);
    return differs;
}

static void a_history_cut_off_at_the_start_is_completed(void)
{
    static const char *const names[] = {
        "edge_coalesce_large.p2.pickle", "edge_events.p3.pickle",         "edge_exp_grow.p4.pickle",
        "edge_exp_streams.p3.pickle",    "edge_exp_hole_small.p2.pickle", "edge_retry.p5.pickle",
        "edge_retry_split.p2.pickle",    "edge_maxsplit.p4.pickle",       "edge_roundup.p5.pickle",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = data_path(names[i]);
        sim_snapshot_t *snap = NULL;
        base_err_t err = { 0 };
        CU_ASSERT_EQUAL_FATAL(sim_snapshot_read(path, &snap, &err), BASE_OK);
        free(path);
        size_t n_different = 0;
        double error;
        for (size_t cut = 0; cut < snap->traces[0].n; cut++)
            n_different += layouts_differ(snap, cut, &error);
        printf("# %s: %zu of %zu cuts differ\n", names[i], n_different, snap->traces[0].n);
        CU_ASSERT_EQUAL(n_different, 0);
        sim_snapshot_destroy(snap);
    }
}

typedef struct {
    sim_snapshot_t snap;
    sim_snapshot_trace_t trace;
} made_t;

static void on_event(void *arg, sim_trace_action_t action, uint64_t addr, uint64_t bytes,
                     uint64_t stream)
{
    sim_snapshot_t *s = arg;
    s->events = base_xrealloc(s->events, s->n_events + 1, sizeof(*s->events));
    s->events[s->n_events++] =
        (sim_snapshot_event_t){ addr, bytes, stream, (uint8_t)action, false };
}

static void on_block(void *arg, const sim_block_info_t *b)
{
    sim_snapshot_t *s = arg;
    if (s->n_segments == 0 || s->segments[s->n_segments - 1].addr != b->segment_addr) {
        s->segments = base_xrealloc(s->segments, s->n_segments + 1, sizeof(*s->segments));
        s->segments[s->n_segments++] = (sim_snapshot_segment_t){
            .addr = b->segment_addr,
            .bytes = b->segment_bytes,
            .stream = b->stream,
            .first_block = s->n_blocks,
            .is_large = b->is_large,
            .is_expandable = b->is_expandable,
        };
    }
    s->segments[s->n_segments - 1].n_blocks++;
    s->blocks = base_xrealloc(s->blocks, s->n_blocks + 1, sizeof(*s->blocks));
    s->blocks[s->n_blocks++] = (sim_snapshot_block_t){
        b->addr,
        b->bytes,
        b->requested_bytes,
        b->is_allocated ? SIM_SNAPSHOT_ALLOCATED
        : b->is_active  ? SIM_SNAPSHOT_PENDING_FREE
                        : SIM_SNAPSHOT_INACTIVE,
    };
}

/* Random calls on three streams, some freed blocks waiting for a fourth. */
static void make(made_t *m, const char *conf, uint64_t usable, unsigned n_calls)
{
    enum { N_SLOTS = 60 };
    sim_device_config_t config = { .total_bytes = usable, .usable_bytes = usable };
    sim_device_t *device = sim_device_create_synthetic(&config);
    sim_alloc_t *alloc = NULL;
    base_err_t err;
    *m = (made_t){ .trace = { 0 } };
    CU_ASSERT_EQUAL_FATAL(sim_alloc_create(device, conf, &alloc, &err), BASE_OK);
    sim_alloc_set_trace(alloc, on_event, &m->snap);
    sim_block_t blocks[N_SLOTS];
    uint64_t x = 7;
    memset(blocks, 0xff, sizeof(blocks)); /* SIM_BLOCK_NONE */
    for (unsigned i = 0; i < n_calls; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned slot = (unsigned)(x >> 33) % N_SLOTS;
        uint64_t bytes = 1 + (x >> 16) % ((x >> 60 & 3) == 0 ? 300000 : 40000000);
        if (blocks[slot] != SIM_BLOCK_NONE) {
            if ((x >> 55 & 7) == 0)
                sim_alloc_record_stream(alloc, blocks[slot], 0x9000);
            sim_alloc_free(alloc, blocks[slot]);
            blocks[slot] = SIM_BLOCK_NONE;
        } else if (!sim_alloc_malloc(alloc, (x >> 50) % 3 * 0x1000, bytes, &blocks[slot])) {
            blocks[slot] = SIM_BLOCK_NONE;
        }
        if (i % 90 == 89)
            sim_alloc_stream_done(alloc, 0x9000);
        if (i % 1000 == 600)
            sim_alloc_empty_cache(alloc);
    }
    sim_alloc_set_trace(alloc, NULL, NULL);
    sim_alloc_foreach(alloc, on_block, &m->snap);
    m->trace.n = m->snap.n_events;
    m->snap.traces = &m->trace;
    m->snap.n_traces = 1;
    m->snap.conf = base_xstrdup(conf);
    sim_alloc_destroy(alloc);
    sim_device_destroy(device);
}

static void random_runs_are_rebuilt_from_any_point(void)
{
    static const char *const confs[] = { "", "expandable_segments:True", "max_split_size_mb:30",
                                         "roundup_power2_divisions:4" };
    for (size_t i = 0; i < sizeof(confs) / sizeof(confs[0]); i++) {
        for (uint64_t usable = UINT64_C(1) << 30; usable <= UINT64_C(64) << 30; usable *= 64) {
            made_t m;
            make(&m, confs[i], usable, 3000);
            size_t n_cuts = 0, n_different = 0;
            double error, largest_error = 0;
            CU_ASSERT_FALSE(layouts_differ(&m.snap, 0, &error)); /* nothing is missing */
            for (size_t cut = 101; cut < m.trace.n; cut += 101, n_cuts++) {
                n_different += layouts_differ(&m.snap, cut, &error);
                largest_error = error > largest_error ? error : largest_error;
            }
            printf("# %s, %" PRIu64 " GiB: %zu of %zu cuts differ, peak at most by %.1f %%\n",
                   confs[i], usable >> 30, n_different, n_cuts, 100 * largest_error);
            CU_ASSERT_TRUE(n_different <= n_cuts / 3);
            CU_ASSERT_TRUE(largest_error < 0.05);
            free(m.snap.events);
            free(m.snap.blocks);
            free(m.snap.segments);
            free(m.snap.conf);
        }
    }
}

/* A snapshot made here: what the writer wrote, the reader and the recording give back. */
static void a_failed_request_tells_what_the_device_had(void)
{
    sim_device_config_t config = { .total_bytes = UINT64_C(1) << 30,
                                   .usable_bytes = UINT64_C(1000) << 20 };
    sim_snapshot_event_t events[] = {
        { 0x100000000000, UINT64_C(600) << 20, 0, SIM_TRACE_SEGMENT_ALLOC, false },
        { 0x100000000000, UINT64_C(600) << 20, 0, SIM_TRACE_ALLOC, false },
        { UINT64_C(400) << 20, UINT64_C(500) << 20, 0, SIM_TRACE_OOM, false },
        { 0x100000000000, UINT64_C(600) << 20, 0, SIM_TRACE_FREE_REQUESTED, false },
        { 0x100000000000, UINT64_C(600) << 20, 0, SIM_TRACE_FREE_COMPLETED, false },
        { 0x100000000000, UINT64_C(600) << 20, 0, SIM_TRACE_SEGMENT_FREE, false },
    };
    sim_snapshot_trace_t trace = { 0, sizeof(events) / sizeof(events[0]) };
    sim_snapshot_t snap = {
        .events = events, .n_events = trace.n, .traces = &trace, .n_traces = 1
    };
    sim_recording_t rec;
    base_err_t err = { 0 };
    CU_ASSERT_EQUAL_FATAL(sim_recording_init(&rec, &snap, 0, SIM_RECORDING_START_AS_RECORDED, &err),
                          BASE_OK);
    CU_ASSERT_TRUE(rec.is_usable_exact);
    CU_ASSERT_EQUAL(rec.usable_bytes, config.usable_bytes);
    CU_ASSERT_EQUAL(rec.n_ooms, 1);
    CU_ASSERT_EQUAL(rec.n_empty_caches, 1);
    CU_ASSERT_EQUAL(rec.n_releases, 0);
    CU_ASSERT_EQUAL(rec.start_reserved_bytes, 0);
    sim_replay_result_t result;
    CU_ASSERT_EQUAL(sim_replay_run(rec.trace, "", &config, &result, &err), BASE_OK);
    CU_ASSERT_EQUAL(result.n_ooms, 1);
    CU_ASSERT_EQUAL(result.first_oom_line, 3);
    CU_ASSERT_EQUAL(result.end_reserved_bytes, 0);
    base_diag_t limits;
    base_diag_init(&limits);
    sim_recording_limits(&rec, &snap, &limits);
    CU_ASSERT_TRUE(limits.n >= 2);
    base_diag_fini(&limits);
    sim_recording_fini(&rec);
}

static void private_pools_are_left_out(void)
{
    sim_snapshot_block_t blocks[] = { { 0x2000000, 2 << 20, 2 << 20, SIM_SNAPSHOT_ALLOCATED } };
    sim_snapshot_segment_t segment = {
        .addr = 0x2000000, .bytes = 2 << 20, .n_blocks = 1, .is_private = true
    };
    sim_snapshot_event_t events[] = {
        { 0x2000000, 2 << 20, 0, SIM_TRACE_SEGMENT_ALLOC, false },
        { 0x2000000, 2 << 20, 0, SIM_TRACE_ALLOC, false },
        { 0x4000000, 1 << 20, 0, SIM_TRACE_ALLOC, true },
    };
    sim_snapshot_trace_t trace = { 0, 3 };
    sim_snapshot_t snap = { .segments = &segment,
                            .n_segments = 1,
                            .blocks = blocks,
                            .n_blocks = 1,
                            .events = events,
                            .n_events = 3,
                            .traces = &trace,
                            .n_traces = 1 };
    sim_recording_t rec;
    base_err_t err = { 0 };
    CU_ASSERT_EQUAL_FATAL(sim_recording_init(&rec, &snap, 0, SIM_RECORDING_START_AS_RECORDED, &err),
                          BASE_OK);
    CU_ASSERT_EQUAL(rec.n_private_events, 3);
    CU_ASSERT_EQUAL(rec.private_bytes, 2 << 20);
    CU_ASSERT_EQUAL(rec.trace->n_calls, 0);
    sim_recording_fini(&rec);
    CU_ASSERT_EQUAL(sim_recording_init(&rec, &snap, 1, SIM_RECORDING_START_AS_RECORDED, &err),
                    BASE_ERR_INVAL);
}

/* A segment of a pebibyte in pages of 2 MiB is no GPU's: it must not be filled piece by piece. */
static void forged_sizes_cost_nothing(void)
{
    sim_snapshot_event_t events[] = {
        { 0x200000, (UINT64_C(1) << 50) + (2 << 20), 0, SIM_TRACE_SEGMENT_UNMAP, false },
        { UINT64_C(1) << 60, UINT64_C(1) << 60, 0, SIM_TRACE_SEGMENT_FREE, false },
        { 0x200000, 512, 0, SIM_TRACE_FREE_REQUESTED, false },
        { 0x200000, 512, 0, SIM_TRACE_FREE_COMPLETED, false },
    };
    sim_snapshot_trace_t trace = { 0, 4 };
    sim_snapshot_t snap = { .events = events, .n_events = 4, .traces = &trace, .n_traces = 1 };
    sim_recording_t rec;
    base_err_t err = { 0 };
    base_status_t status =
        sim_recording_init(&rec, &snap, 0, SIM_RECORDING_START_AS_RECORDED, &err);
    CU_ASSERT_EQUAL_FATAL(status, BASE_OK);
    CU_ASSERT_TRUE(rec.trace->n_calls < 10);
    sim_recording_fini(&rec);
    events[0].bytes = events[1].bytes = UINT64_C(1) << 63;
    status = sim_recording_init(&rec, &snap, 0, SIM_RECORDING_START_AS_RECORDED, &err);
    CU_ASSERT_EQUAL(status, BASE_ERR_INVAL);
}

static CU_TestInfo tests[] = {
    { "recorded runs end in the recorded layout", recorded_runs_end_in_the_recorded_layout },
    { "a history cut off at the start is completed", a_history_cut_off_at_the_start_is_completed },
    { "random runs are rebuilt from any point", random_runs_are_rebuilt_from_any_point },
    { "a failed request tells what the device had", a_failed_request_tells_what_the_device_had },
    { "private pools are left out", private_pools_are_left_out },
    { "forged sizes cost nothing", forged_sizes_cost_nothing },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "recording", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
