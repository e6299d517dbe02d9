/* SPDX-License-Identifier: Apache-2.0
 * The trace against the rules of the Trace Event Format, and its figures against the report. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/report/perfetto.h"
#include "tests/cutap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const staged =
    "model.preset=llama3.2-1b parallel.world_size=8 parallel.pipeline_model_parallel_size=4 "
    "parallel.virtual_pipeline_model_parallel_size=2 train.global_batch_size=16";
static const char *const single = "model.preset=llama3.2-1b parallel.world_size=2 "
                                  "train.global_batch_size=4 run.iterations=9";
static const char *const too_large =
    "model.preset=llama3.2-1b parallel.world_size=8 parallel.pipeline_model_parallel_size=4 "
    "train.global_batch_size=16 device.memory_bytes=6GiB";

typedef struct {
    sim_scenario_t scenario;
    sim_job_t job;
    sim_report_t report;
    json_t *trace;
    size_t n_bytes;
} played_t;

static bool set_all(sim_scenario_t *s, const char *settings, base_diag_t *diag)
{
    char *text = NULL, *word, *rest;
    int n = asprintf(&text,
                     "precision.bf16=true device.gpu=h100-80gb-sxm train.micro_batch_size=1 "
                     "train.seq_length=1024 optimizer.use_distributed_optimizer=true %s",
                     settings);
    CU_ASSERT_TRUE_FATAL(n > 0);
    bool ok = true;
    for (rest = text; ok && (word = strsep(&rest, " ")) != NULL;)
        ok = sim_scenario_set_text(s, word, "test", diag);
    free(text);
    return ok && sim_scenario_resolve(s, diag);
}

static void play(played_t *p, const char *settings, const bool *is_skipped)
{
    base_diag_t diag;
    base_err_t err;
    base_diag_init(&diag);
    sim_scenario_init(&p->scenario);
    CU_ASSERT_TRUE_FATAL(set_all(&p->scenario, settings, &diag));
    base_diag_fini(&diag);
    sim_job_options_t options = { .is_skipped = is_skipped };
    CU_ASSERT_EQUAL_FATAL(sim_job_play(&p->scenario, &options, &p->job, &err), BASE_OK);
    CU_ASSERT_EQUAL_FATAL(
        sim_report_init(&p->report, &p->scenario, &p->job, "a \"b\" <c>.ini", is_skipped, &err),
        BASE_OK);
    char *text = NULL;
    FILE *out = open_memstream(&text, &p->n_bytes);
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    CU_ASSERT_EQUAL_FATAL(sim_perfetto_write(&p->report, out, &err), BASE_OK);
    fclose(out);
    json_error_t error;
    p->trace = json_loadb(text, p->n_bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    CU_ASSERT_PTR_NOT_NULL_FATAL(p->trace);
}

static void release(played_t *p)
{
    json_decref(p->trace);
    sim_report_fini(&p->report);
    sim_job_fini(&p->job);
    sim_scenario_fini(&p->scenario);
}

static const json_t *events(const played_t *p)
{
    return json_object_get(p->trace, "traceEvents");
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text != NULL ? text : "";
}

static json_int_t int_of(const json_t *event, const char *key)
{
    return json_integer_value(json_object_get(event, key));
}

static bool is_kind(const json_t *event, const char *kind)
{
    return strcmp(text_of(event, "ph"), kind) == 0;
}

/* A line of events whose times may not go back: a track of spans, or a counter. */
typedef struct {
    json_int_t pid, tid;
    const char *counter;
    double ts, end;
} track_t;

enum { MAX_TRACKS = 256 };

static track_t *track_of(track_t *tracks, size_t *n, const json_t *event)
{
    const char *counter = is_kind(event, "C") ? text_of(event, "name") : "";
    json_int_t pid = int_of(event, "pid"), tid = int_of(event, "tid");
    for (size_t i = 0; i < *n; i++) {
        if (tracks[i].pid == pid && tracks[i].tid == tid && strcmp(tracks[i].counter, counter) == 0)
            return &tracks[i];
    }
    CU_ASSERT_TRUE_FATAL(*n < MAX_TRACKS);
    tracks[*n] = (track_t){ .pid = pid, .tid = tid, .counter = counter };
    return &tracks[(*n)++];
}

/* Every event has what its kind needs; no track goes back in time; spans do not overlap; counters
 * are not negative. */
static void check_rules(const played_t *p)
{
    track_t tracks[MAX_TRACKS];
    size_t n = 0, i;
    unsigned n_bad = 0;
    json_t *event;
    json_array_foreach((json_t *)events(p), i, event)
    {
        n_bad += !json_is_integer(json_object_get(event, "pid"));
        n_bad += *text_of(event, "name") == '\0';
        if (is_kind(event, "M"))
            continue;
        double ts = json_number_value(json_object_get(event, "ts"));
        track_t *track = track_of(tracks, &n, event);
        n_bad += !json_is_number(json_object_get(event, "ts")) || ts < track->ts;
        track->ts = ts;
        if (is_kind(event, "X")) {
            const json_t *dur = json_object_get(event, "dur");
            n_bad += !json_is_number(dur) || json_number_value(dur) < 0 || ts < track->end - 1e-4;
            track->end = ts + json_number_value(dur);
        } else if (is_kind(event, "C")) {
            n_bad += int_of(json_object_get(event, "args"), "bytes") < 0;
        } else if (is_kind(event, "s") || is_kind(event, "f")) {
            n_bad += ts > track->end; /* in the span that came before it */
        } else {
            n_bad += !is_kind(event, "i");
        }
    }
    CU_ASSERT_EQUAL(n_bad, 0);
    CU_ASSERT_TRUE(json_array_size(events(p)) > 0);
}

static uint64_t n_of_kind(const played_t *p, const char *kind)
{
    uint64_t n = 0;
    size_t i;
    json_t *event;
    json_array_foreach((json_t *)events(p), i, event) n += is_kind(event, kind);
    return n;
}

/* Each message has one begin and one later end. */
static void check_arrows(const played_t *p, uint64_t n_expected)
{
    enum { MAX_ID = 4096 };
    size_t n = n_of_kind(p, "s"), n_whole = 0, i;
    CU_ASSERT_EQUAL(n, n_expected);
    CU_ASSERT_EQUAL(n_of_kind(p, "f"), n);
    double *begin = calloc(MAX_ID, sizeof(*begin)), *end = calloc(MAX_ID, sizeof(*end));
    json_t *event;
    json_array_foreach((json_t *)events(p), i, event)
    {
        if (!is_kind(event, "s") && !is_kind(event, "f"))
            continue;
        size_t id = (size_t)int_of(event, "id");
        CU_ASSERT_TRUE_FATAL(id >= 1 && id < MAX_ID);
        double *at = is_kind(event, "s") ? &begin[id] : &end[id];
        CU_ASSERT_EQUAL(*at, 0.0);
        *at = json_number_value(json_object_get(event, "ts"));
    }
    for (i = 1; i < MAX_ID; i++)
        n_whole += begin[i] > 0 && begin[i] <= end[i];
    CU_ASSERT_EQUAL(n_whole, n);
    free(begin);
    free(end);
}

/* The highest point of counter `name` of `rank`. */
static uint64_t highest(const played_t *p, uint32_t rank, const char *name)
{
    json_int_t most = -1;
    size_t i;
    json_t *event;
    json_array_foreach((json_t *)events(p), i, event)
    {
        json_int_t bytes = int_of(json_object_get(event, "args"), "bytes");
        if (is_kind(event, "C") && int_of(event, "pid") == rank &&
            strcmp(text_of(event, "name"), name) == 0 && bytes > most)
            most = bytes;
    }
    return (uint64_t)most;
}

static void check_peak(const played_t *p)
{
    const sim_rank_result_t *worst = &p->report.worst;
    CU_ASSERT_EQUAL(highest(p, worst->rank, "allocated"), worst->max_allocated_bytes);
    CU_ASSERT_EQUAL(highest(p, worst->rank, "reserved"), worst->max_reserved_bytes);
}

static void pipelines_are_drawn(void)
{
    played_t p = { 0 };
    play(&p, staged, NULL);
    check_rules(&p);
    /* 3 iterations, 8 micro-batches, 7 borders between 8 chunks, there and back. */
    check_arrows(&p, UINT64_C(3) * 8 * 7 * 2);
    check_peak(&p);
    CU_ASSERT_TRUE(p.n_bytes < 10000000);
    release(&p);
}

static void one_stage_is_drawn(void)
{
    played_t p = { 0 };
    play(&p, single, NULL);
    check_rules(&p);
    check_arrows(&p, 0);
    check_peak(&p);
    release(&p);
}

static void jobs_that_do_not_fit_are_drawn(void)
{
    played_t p = { 0 };
    play(&p, too_large, NULL);
    CU_ASSERT_TRUE_FATAL(p.report.verdict.n_out_of_memory > 0);
    check_rules(&p);
    uint32_t iteration = p.report.worst.oom_moment.iteration;
    check_arrows(&p, (uint64_t)iteration * 8 * 3 * 2);
    CU_ASSERT_TRUE(n_of_kind(&p, "i") > 0);
    release(&p);
}

static void ranks_that_are_left_out_send_nothing(void)
{
    /* Stage 1 is gone: of three borders one is left. */
    const bool is_skipped[8] = { false, false, true, true };
    played_t p = { 0 };
    play(&p,
         "model.preset=llama3.2-1b parallel.world_size=8 "
         "parallel.pipeline_model_parallel_size=4 train.global_batch_size=16",
         is_skipped);
    check_rules(&p);
    check_arrows(&p, UINT64_C(3) * 8 * 1 * 2);
    release(&p);
}

/* Four stages, 16 micro-batches, many chunks: 10 MB at most. */
static void large_traces_stay_small(void)
{
    played_t p = { 0 };
    play(&p,
         "model.preset=llama3-8b parallel.world_size=4 parallel.pipeline_model_parallel_size=4 "
         "parallel.virtual_pipeline_model_parallel_size=8 train.global_batch_size=16 "
         "run.iterations=30",
         NULL);
    check_rules(&p);
    CU_ASSERT_TRUE(p.n_bytes < 10000000);
    printf("# %zu bytes\n", p.n_bytes);
    release(&p);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "pipelines are drawn", pipelines_are_drawn },
        { "one stage is drawn", one_stage_is_drawn },
        { "jobs that do not fit are drawn", jobs_that_do_not_fit_are_drawn },
        { "ranks that are left out send nothing", ranks_that_are_left_out_send_nothing },
        { "large traces stay small", large_traces_stay_small },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "perfetto", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
