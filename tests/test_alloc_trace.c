/* SPDX-License-Identifier: Apache-2.0
 * The allocator's history and layout against snapshots that the real code took. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/snapshot_read.h"
#include "sim/memory/trace_text.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One golden run: the events of `snapshot` are compared as they come. */
typedef struct {
    const sim_snapshot_t *snapshot;
    size_t n_events, n_different;
    size_t segment, block; /* next ones to compare in the layout */
    bool layout_is_same;
} run_t;

static void on_event(void *arg, sim_trace_action_t action, uint64_t addr, uint64_t bytes,
                     uint64_t stream)
{
    run_t *run = arg;
    if (run->n_events < run->snapshot->n_events) {
        const sim_snapshot_event_t *e = &run->snapshot->events[run->n_events];
        run->n_different +=
            e->action != action || e->addr != addr || e->bytes != bytes || e->stream != stream;
    }
    run->n_events++;
}

static sim_snapshot_state_t state_of(const sim_block_info_t *b)
{
    if (b->is_allocated)
        return SIM_SNAPSHOT_ALLOCATED;
    return b->is_active ? SIM_SNAPSHOT_PENDING_FREE : SIM_SNAPSHOT_INACTIVE;
}

static void compare_block(void *arg, const sim_block_info_t *b)
{
    run_t *run = arg;
    const sim_snapshot_t *s = run->snapshot;
    if (run->segment < s->n_segments &&
        run->block == s->segments[run->segment].first_block + s->segments[run->segment].n_blocks)
        run->segment++;
    if (run->segment >= s->n_segments || run->block >= s->n_blocks) {
        run->layout_is_same = false;
        return;
    }
    const sim_snapshot_segment_t *segment = &s->segments[run->segment];
    const sim_snapshot_block_t *block = &s->blocks[run->block++];
    run->layout_is_same &= segment->addr == b->segment_addr && segment->bytes == b->segment_bytes &&
                           segment->stream == b->stream && segment->is_large == b->is_large &&
                           segment->is_expandable == b->is_expandable && block->addr == b->addr &&
                           block->bytes == b->bytes && block->state == state_of(b) &&
                           (!b->is_active || block->requested_bytes == b->requested_bytes);
}

static void step(sim_alloc_t *alloc, const sim_trace_t *trace, const sim_call_t *call,
                 sim_block_t *blocks)
{
    switch ((sim_call_kind_t)call->kind) {
    case SIM_CALL_ALLOC:
        sim_alloc_malloc(alloc, trace->streams[call->stream], call->bytes, &blocks[call->block]);
        break;
    case SIM_CALL_FREE:
        sim_alloc_free(alloc, blocks[call->block]);
        break;
    case SIM_CALL_RECORD_STREAM:
        sim_alloc_record_stream(alloc, blocks[call->block], trace->streams[call->stream]);
        break;
    case SIM_CALL_STREAM_DONE:
        sim_alloc_stream_done(alloc, trace->streams[call->stream]);
        break;
    case SIM_CALL_ALL_STREAMS_DONE:
        sim_alloc_all_streams_done(alloc);
        break;
    case SIM_CALL_EMPTY_CACHE:
        sim_alloc_empty_cache(alloc);
        break;
    default:
        break;
    }
}

/* The snapshot was taken somewhere inside the trace: play until its last event. */
static void compare(const sim_trace_t *trace, const sim_snapshot_t *snapshot, const char *conf,
                    const sim_device_config_t *config)
{
    run_t run = { .snapshot = snapshot, .layout_is_same = true };
    sim_device_t *device = sim_device_create_synthetic(config);
    sim_alloc_t *alloc;
    sim_block_t *blocks = base_xcalloc(trace->n_blocks, sizeof(*blocks));
    CU_ASSERT_EQUAL_FATAL(sim_alloc_create(device, conf, &alloc, NULL), BASE_OK);
    sim_alloc_set_trace(alloc, on_event, &run);
    for (size_t i = 0; i < trace->n_calls && run.n_events < snapshot->n_events; i++)
        step(alloc, trace, &trace->calls[i], blocks);
    CU_ASSERT_EQUAL(run.n_events, snapshot->n_events);
    CU_ASSERT_EQUAL(run.n_different, 0);
    sim_alloc_foreach(alloc, compare_block, &run);
    CU_ASSERT_TRUE(run.layout_is_same);
    CU_ASSERT_EQUAL(run.block, snapshot->n_blocks);
    free(blocks);
    sim_alloc_destroy(alloc);
    sim_device_destroy(device);
}

static char *data_path(const char *folder, const char *name, size_t len, const char *suffix)
{
    const char *top = getenv("TOP_SRCDIR");
    return base_xasprintf("%s/tests/data/%s/%.*s%s", top != NULL ? top : ".", folder, (int)len,
                          name, suffix);
}

static void compare_line(char *line)
{
    char *at = line;
    const char *name = strsep(&at, "\t"), *conf = strsep(&at, "\t");
    const char *total = strsep(&at, "\t"), *usable = strsep(&at, "\t");
    sim_device_config_t config = { .addresses = SIM_ADDRESSES_BUMP };
    CU_ASSERT_PTR_NOT_NULL_FATAL(usable);
    CU_ASSERT_TRUE_FATAL(base_u64_parse(total, &config.total_bytes));
    CU_ASSERT_TRUE_FATAL(base_u64_parse(usable, &config.usable_bytes));
    char *snapshot_path = data_path("snapshots", name, strlen(name), "");
    char *trace_path = data_path("allocator/traces", name, strcspn(name, "."), ".txt");
    sim_snapshot_t *snapshot;
    sim_trace_t *trace;
    base_diag_t diag;
    base_diag_init(&diag);
    CU_ASSERT_EQUAL_FATAL(sim_snapshot_read(snapshot_path, &snapshot, NULL), BASE_OK);
    CU_ASSERT_EQUAL_FATAL(sim_trace_read(trace_path, &trace, &diag), BASE_OK);
    compare(trace, snapshot, strcmp(conf, "-") == 0 ? "" : conf, &config);
    base_diag_fini(&diag);
    sim_trace_destroy(trace);
    sim_snapshot_destroy(snapshot);
    free(trace_path);
    free(snapshot_path);
}

static void history_and_layout_are_those_of_the_real_code(void)
{
    char line[512], *path = data_path("snapshots", "INDEX.tsv", 9, "");
    FILE *index = fopen(path, "r");
    int n = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(index);
    while (fgets(line, sizeof(line), index) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (n++ > 0)
            compare_line(line);
    }
    CU_ASSERT_EQUAL(n, 13);
    fclose(index);
    free(path);
}

/* Read as it is played, a long trace takes the memory of what is alive. */
static void a_reader_gives_numbers_again(void)
{
    enum { N = 1200000, ALIVE = 10 };
    char *text;
    size_t length, n = 0;
    FILE *out = open_memstream(&text, &length);
    for (int i = 1; i <= N; i++) {
        fprintf(out, "a %d 512 0\n", i);
        if (i > ALIVE)
            fprintf(out, "f %d\n", i - ALIVE);
    }
    fclose(out);
    FILE *in = fmemopen(text, length, "r");
    base_diag_t diag;
    base_diag_init(&diag);
    sim_trace_reader_t *reader = sim_trace_reader_create("long", in, "", 0, &diag);
    sim_call_t call;
    uint64_t of_ids = 0; /* each free names the ID that its number stands for */
    while (sim_trace_reader_next(reader, &call)) {
        n++;
        if (call.kind == SIM_CALL_FREE)
            of_ids += sim_trace_reader_trace(reader)->ids[call.block];
    }
    CU_ASSERT_EQUAL(of_ids, (uint64_t)(N - ALIVE) * (N - ALIVE + 1) / 2);
    CU_ASSERT_TRUE(sim_trace_reader_finish(reader));
    CU_ASSERT_EQUAL(n, 2 * N - ALIVE);
    CU_ASSERT_EQUAL(sim_trace_reader_n_allocations(reader), N);
    CU_ASSERT_TRUE(sim_trace_reader_trace(reader)->n_blocks < N - N / 10);
    sim_trace_reader_destroy(reader);
    fclose(in);
    free(text);
    base_diag_fini(&diag);
}

static CU_TestInfo tests[] = {
    { "history and layout are those of the real code",
      history_and_layout_are_those_of_the_real_code },
    { "a reader gives numbers again", a_reader_gives_numbers_again },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "alloc_trace", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
