/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/memory/snapshot_read.h"
#include "sim/memory/snapshot_write.h"
#include "tests/cutap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_CALLS = 5000, N_SLOTS = 200 };

typedef struct {
    sim_snapshot_event_t *events;
    size_t n;
    sim_snapshot_writer_t *writer;
    unsigned call;
    sim_block_info_t *blocks;
    size_t n_blocks;
} recorder_t;

static size_t where(void *arg, sim_snapshot_frame_t frames[SIM_SNAPSHOT_MAX_FRAMES],
                    uint64_t *time_us_p)
{
    recorder_t *r = arg;
    static char module[64], batch[64];
    snprintf(module, sizeof(module), "decoder.layers.%u.mlp", r->call % 40);
    snprintf(batch, sizeof(batch), "forward, micro-batch %u", r->call / 100);
    frames[0] = (sim_snapshot_frame_t){ .name = "output", .filename = module, .line = 1 };
    frames[1] = (sim_snapshot_frame_t){ .name = batch, .filename = "iteration 1", .line = 0 };
    *time_us_p = 1000 + r->call;
    return 2;
}

/* The events as the allocator gives them, kept beside what the writer gets. */
static void on_event(void *arg, sim_trace_action_t action, uint64_t addr, uint64_t bytes,
                     uint64_t stream)
{
    recorder_t *r = arg;
    sim_snapshot_frame_t frames[SIM_SNAPSHOT_MAX_FRAMES];
    uint64_t time_us;
    size_t n_frames = where(r, frames, &time_us);
    r->events = base_xrealloc(r->events, r->n + 1, sizeof(*r->events));
    r->events[r->n++] = (sim_snapshot_event_t){ addr, bytes, stream, (uint8_t)action, false };
    sim_snapshot_writer_event(r->writer, action, addr, bytes, stream, time_us, frames, n_frames);
}

static void on_block(void *arg, const sim_block_info_t *info)
{
    recorder_t *r = arg;
    r->blocks = base_xrealloc(r->blocks, r->n_blocks + 1, sizeof(*r->blocks));
    r->blocks[r->n_blocks++] = *info;
}

/* Random allocations on two streams, some waiting for an event, on a device that gets full. */
static void run(sim_alloc_t *alloc, recorder_t *r)
{
    sim_block_t blocks[N_SLOTS];
    uint64_t seed = 12345;
    for (unsigned i = 0; i < N_SLOTS; i++)
        blocks[i] = SIM_BLOCK_NONE;
    for (r->call = 0; r->call < N_CALLS; r->call++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned slot = (unsigned)(seed >> 33) % N_SLOTS;
        uint64_t stream = (seed >> 50 & 3) == 0 ? 0x1000 : 0;
        if (blocks[slot] != SIM_BLOCK_NONE) {
            if ((seed >> 55 & 7) == 0)
                sim_alloc_record_stream(alloc, blocks[slot], 0x2000);
            sim_alloc_free(alloc, blocks[slot]);
            blocks[slot] = SIM_BLOCK_NONE;
        } else if (!sim_alloc_malloc(alloc, stream, 1 + (seed >> 20) % (48U << 20),
                                     &blocks[slot])) {
            blocks[slot] = SIM_BLOCK_NONE;
        }
        if (r->call % 500 == 499)
            sim_alloc_stream_done(alloc, 0x2000);
    }
}

static char *temp_path(const char *name)
{
    const char *dir = getenv("TMPDIR");
    return base_xasprintf("%s/mbsim-%ld-%s", dir != NULL ? dir : "/tmp", (long)getpid(), name);
}

static void check_equal(const sim_snapshot_t *s, const recorder_t *r)
{
    CU_ASSERT_EQUAL_FATAL(s->n_traces, 1);
    CU_ASSERT_EQUAL_FATAL(s->traces[0].n, r->n);
    size_t n_different = 0;
    for (size_t i = 0; i < r->n; i++) {
        const sim_snapshot_event_t *a = &s->events[i], *b = &r->events[i];
        n_different += a->addr != b->addr || a->bytes != b->bytes || a->stream != b->stream ||
                       a->action != b->action;
    }
    CU_ASSERT_EQUAL(n_different, 0);
    CU_ASSERT_EQUAL_FATAL(s->n_blocks, r->n_blocks);
    size_t k = 0;
    for (size_t i = 0; i < s->n_segments; i++) {
        for (size_t j = 0; j < s->segments[i].n_blocks; j++, k++) {
            const sim_snapshot_block_t *a = &s->blocks[s->segments[i].first_block + j];
            const sim_block_info_t *b = &r->blocks[k];
            CU_ASSERT_EQUAL(s->segments[i].addr, b->segment_addr);
            CU_ASSERT_EQUAL(s->segments[i].bytes, b->segment_bytes);
            CU_ASSERT_EQUAL(s->segments[i].stream, b->stream);
            CU_ASSERT_EQUAL(s->segments[i].is_large, b->is_large);
            CU_ASSERT_EQUAL(s->segments[i].is_expandable, b->is_expandable);
            CU_ASSERT_EQUAL(a->addr, b->addr);
            CU_ASSERT_EQUAL(a->bytes, b->bytes);
            CU_ASSERT_EQUAL(a->state, b->is_allocated ? SIM_SNAPSHOT_ALLOCATED
                                      : b->is_active  ? SIM_SNAPSHOT_PENDING_FREE
                                                      : SIM_SNAPSHOT_INACTIVE);
            if (b->is_active)
                CU_ASSERT_EQUAL(a->requested_bytes, b->requested_bytes);
        }
    }
}

static void round_trip(const char *conf, uint64_t usable, const char *keep_as)
{
    sim_device_config_t config = { .total_bytes = usable, .usable_bytes = usable };
    sim_device_t *device = sim_device_create_synthetic(&config);
    sim_alloc_t *alloc = NULL;
    base_err_t err = { 0 };
    CU_ASSERT_EQUAL_FATAL(sim_alloc_create(device, conf, &alloc, &err), BASE_OK);
    recorder_t r = { 0 };
    char *path = temp_path("round-trip.pickle");
    CU_ASSERT_EQUAL_FATAL(sim_snapshot_writer_open(path, &r.writer, &err), BASE_OK);
    sim_alloc_set_trace(alloc, on_event, &r);
    run(alloc, &r);
    sim_alloc_set_trace(alloc, NULL, NULL);
    sim_alloc_foreach(alloc, on_block, &r);
    uint64_t bytes = 0;
    CU_ASSERT_EQUAL_FATAL(sim_snapshot_writer_finish(r.writer, alloc, conf, &bytes, &err), BASE_OK);
    printf("# %s: %zu events, %" PRIu64 " bytes, %.1f bytes an event\n", conf, r.n, bytes,
           (double)bytes / (double)r.n);
    CU_ASSERT_TRUE(bytes < 60 * r.n + 100 * r.n_blocks + 20000);
    sim_snapshot_t *snap = NULL;
    if (sim_snapshot_read(path, &snap, &err) != BASE_OK)
        printf("# %s\n", err.text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(snap);
    check_equal(snap, &r);
    CU_ASSERT_STRING_EQUAL(snap->conf, conf);
    CU_ASSERT_EQUAL(snap->last_us - snap->first_us, N_CALLS - 1);
    sim_snapshot_destroy(snap);
    if (keep_as != NULL)
        rename(path, keep_as);
    else
        remove(path);
    free(path);
    free(r.events);
    free(r.blocks);
    sim_alloc_destroy(alloc);
    sim_device_destroy(device);
}

static void what_is_written_is_read_back(void)
{
    round_trip("", UINT64_C(80) << 30, NULL);
    round_trip("max_split_size_mb:64", UINT64_C(2) << 30, NULL);
    round_trip("expandable_segments:True", UINT64_C(2) << 30, getenv("KEEP_SNAPSHOT"));
}

static void an_attached_writer_records_by_itself(void)
{
    sim_device_config_t config = { .total_bytes = 1 << 30, .usable_bytes = 1 << 30 };
    sim_device_t *device = sim_device_create_synthetic(&config);
    sim_alloc_t *alloc = NULL;
    base_err_t err;
    recorder_t r = { 0 };
    char *path = temp_path("attached.pickle");
    CU_ASSERT_EQUAL_FATAL(sim_alloc_create(device, NULL, &alloc, &err), BASE_OK);
    CU_ASSERT_EQUAL_FATAL(sim_snapshot_writer_open(path, &r.writer, &err), BASE_OK);
    sim_snapshot_writer_attach(r.writer, alloc, where, &r);
    sim_block_t block;
    CU_ASSERT_TRUE(sim_alloc_malloc(alloc, 0, 1000, &block));
    CU_ASSERT_FALSE(sim_alloc_malloc(alloc, 0, UINT64_C(1) << 31, &block));
    CU_ASSERT_EQUAL(sim_snapshot_writer_finish(r.writer, alloc, NULL, NULL, &err), BASE_OK);
    CU_ASSERT_TRUE(sim_alloc_malloc(alloc, 0, 1000, &block)); /* not recorded any more */
    sim_snapshot_t *s = NULL;
    CU_ASSERT_EQUAL_FATAL(sim_snapshot_read(path, &s, &err), BASE_OK);
    CU_ASSERT_EQUAL_FATAL(s->n_events, 3);
    CU_ASSERT_EQUAL(s->events[0].action, SIM_TRACE_SEGMENT_ALLOC);
    CU_ASSERT_EQUAL(s->events[1].action, SIM_TRACE_ALLOC);
    CU_ASSERT_EQUAL(s->events[2].action, SIM_TRACE_OOM);
    CU_ASSERT_EQUAL(s->events[2].addr, (1U << 30) - (2U << 20));
    sim_snapshot_destroy(s);
    remove(path);
    free(path);
    sim_alloc_destroy(alloc);
    sim_device_destroy(device);
}

static void an_aborted_snapshot_leaves_no_file(void)
{
    char *path = temp_path("aborted.pickle");
    sim_snapshot_writer_t *writer = NULL;
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(sim_snapshot_writer_open(path, &writer, &err), BASE_OK);
    sim_snapshot_writer_abort(writer);
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
    free(path);
    CU_ASSERT_EQUAL(sim_snapshot_writer_open("/nonexistent/x.pickle", &writer, &err), BASE_ERR_IO);
}

static CU_TestInfo tests[] = {
    { "what is written is read back", what_is_written_is_read_back },
    { "an attached writer records by itself", an_attached_writer_records_by_itself },
    { "an aborted snapshot leaves no file", an_aborted_snapshot_leaves_no_file },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "snapshot", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
