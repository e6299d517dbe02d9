/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/perfetto.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/engine/timeline.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    TRACK_COMPUTE = 1,
    TRACK_COMMUNICATION,
    TRACK_MARKS,
    BYTES_OF_COUNTERS = 7 << 20, /* of the file, all ranks together; about */
    BYTES_A_BUCKET = 500,        /* two samples, each changes two or three counters */
    MIN_BUCKETS = 64,
    MAX_BUCKETS = 8192,
    MAX_STRETCHES = 1 << 18,
    NO_ARROW = UINT32_MAX,
};

/* One pass of a stage. */
typedef struct {
    const sim_span_t *span;       /* NULL = not in the step */
    uint32_t arrives, leaves;     /* index of the message, or NO_ARROW */
    const sim_stretch_t *stretch; /* the longest one of this iteration */
} pass_t;

typedef struct {
    uint64_t begin_ns, end_ns;
} interval_t;

typedef struct {
    const sim_report_t *report;
    FILE *out;
    sim_step_time_t time;
    bool has_events;
    uint32_t vpp, n_microbatches, n_iterations;
    bool *is_shown;                /* by stage; owned */
    pass_t *passes;                /* of the stage at hand: kind, chunk, micro-batch; owned */
    const sim_span_t *first, *end; /* spans of the stage */
} trace_t;

/* ---- events ---- */

static void begin_event(trace_t *t, const char *kind, uint32_t rank, int track, uint64_t at_ns)
{
    fprintf(t->out,
            "%s\n{\"ph\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%d,\"ts\":%" PRIu64 ".%03" PRIu64,
            t->has_events ? "," : "", kind, rank, track, at_ns / 1000, at_ns % 1000);
    t->has_events = true;
}

static void name_track(trace_t *t, uint32_t rank, int track, const char *what, const char *name)
{
    begin_event(t, "M", rank, track, 0);
    fprintf(t->out, ",\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}", what, name);
}

static void name_process(trace_t *t, uint32_t rank, const topo_coord_t *c)
{
    char name[96];
    snprintf(name, sizeof(name), "rank %" PRIu32 ": stage %" PRIu32 ", dp %" PRIu32 ", tp %" PRIu32,
             rank, c->pp, c->dp, c->tp);
    name_track(t, rank, 0, "process_name", name);
    name_track(t, rank, TRACK_COMPUTE, "thread_name", "compute");
    name_track(t, rank, TRACK_COMMUNICATION, "thread_name", "communication");
    name_track(t, rank, TRACK_MARKS, "thread_name", "marks");
    begin_event(t, "M", rank, 0, 0);
    fprintf(t->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}}",
            c->pp);
}

static void put_counter(trace_t *t, uint32_t rank, const char *name, uint64_t at_ns, uint64_t bytes)
{
    begin_event(t, "C", rank, 0, at_ns);
    fprintf(t->out, ",\"name\":\"%s\",\"args\":{\"bytes\":%" PRIu64 "}}", name, bytes);
}

static void put_mark(trace_t *t, uint32_t rank, const char *name, uint64_t bytes, uint64_t at_ns)
{
    char size[BASE_BYTES_TEXT];
    begin_event(t, "i", rank, TRACK_MARKS, at_ns);
    fprintf(t->out, ",\"s\":\"p\",\"name\":\"%s %s\"}", name, base_bytes_format(bytes, size));
}

/* ---- the stage's passes ---- */

typedef enum { FORWARD, BACKWARD, WEIGHT_GRAD, N_PASS_KINDS } pass_kind_t;

static pass_t *pass_of(const trace_t *t, pass_kind_t kind, uint32_t chunk, uint32_t microbatch)
{
    return &t->passes[((size_t)kind * t->vpp + chunk) * t->n_microbatches + microbatch];
}

static size_t n_passes(const trace_t *t)
{
    return (size_t)N_PASS_KINDS * t->vpp * t->n_microbatches;
}

static bool is_pass(const sim_span_t *s)
{
    return s->kind == SIM_SPAN_FORWARD || s->kind == SIM_SPAN_BACKWARD ||
           s->kind == SIM_SPAN_WEIGHT_GRAD;
}

static pass_t *pass_of_span(const trace_t *t, const sim_span_t *s)
{
    pass_kind_t kind = s->kind == SIM_SPAN_FORWARD    ? FORWARD
                       : s->kind == SIM_SPAN_BACKWARD ? BACKWARD
                                                      : WEIGHT_GRAD;
    return pass_of(t, kind, s->chunk, s->microbatch);
}

static void find_passes(trace_t *t, uint32_t stage)
{
    const sim_step_time_t *time = &t->time;
    for (size_t i = 0; i < n_passes(t); i++)
        t->passes[i] = (pass_t){ .arrives = NO_ARROW, .leaves = NO_ARROW };
    const sim_span_t *s = time->spans, *end = time->spans + time->n_spans;
    while (s < end && s->pp_rank != stage)
        s++;
    for (t->first = s; s < end && s->pp_rank == stage; s++) {
        if (is_pass(s))
            pass_of_span(t, s)->span = s;
    }
    t->end = s;
    for (size_t i = 0; i < time->n_arrows; i++) {
        const sim_arrow_t *a = &time->arrows[i];
        if (!t->is_shown[a->from_pp_rank] || !t->is_shown[a->to_pp_rank])
            continue;
        if (a->to_pp_rank == stage)
            pass_of(t, a->is_backward ? BACKWARD : FORWARD, a->to_chunk, a->microbatch)->arrives =
                (uint32_t)i;
        if (a->from_pp_rank == stage)
            pass_of(t, a->is_backward ? BACKWARD : FORWARD, a->from_chunk, a->microbatch)->leaves =
                (uint32_t)i;
    }
}

/* ---- spans ---- */

static void put_arrow(trace_t *t, const char *kind, uint32_t rank, uint64_t at_ns, uint32_t arrow,
                      uint32_t iteration)
{
    const sim_arrow_t *a = &t->time.arrows[arrow];
    begin_event(t, kind, rank, TRACK_COMPUTE, at_ns);
    fprintf(t->out, ",\"cat\":\"pipeline\",\"name\":\"%s\",\"id\":%" PRIu64 "%s}",
            a->is_backward ? "gradient" : "hidden states",
            (uint64_t)(iteration - 1) * t->time.n_arrows + arrow + 1,
            *kind == 'f' ? ",\"bp\":\"e\"" : "");
}

/* An arrow starts in the last nanosecond of the pass that made the message: at its end the viewers
 * would find no slice to tie it to. */
static void put_pass(trace_t *t, const sim_span_t *s, uint32_t rank, uint32_t iteration,
                     uint64_t offset_ns)
{
    const pass_t *pass = pass_of_span(t, s);
    fprintf(t->out,
            ",\"name\":\"%s %" PRIu32 "\",\"args\":{\"microbatch\":%" PRIu32
            ",\"chunk\":%u,\"iteration\":%" PRIu32 "}}",
            sim_span_name((sim_span_kind_t)s->kind), s->microbatch, s->microbatch, s->chunk,
            iteration);
    if (pass->arrives != NO_ARROW)
        put_arrow(t, "f", rank, offset_ns + s->begin_ns, pass->arrives, iteration);
    if (pass->leaves != NO_ARROW && s->end_ns > s->begin_ns)
        put_arrow(t, "s", rank, offset_ns + s->end_ns - 1, pass->leaves, iteration);
}

static int track_of(const sim_span_t *s)
{
    return is_pass(s) || s->kind == SIM_SPAN_OPTIMIZER ? TRACK_COMPUTE : TRACK_COMMUNICATION;
}

static void put_spans(trace_t *t, uint32_t rank)
{
    for (uint32_t iteration = 1; iteration <= t->n_iterations; iteration++) {
        uint64_t offset_ns = (iteration - 1) * t->time.step_ns;
        for (const sim_span_t *s = t->first; s < t->end; s++) {
            uint64_t ns = s->end_ns - s->begin_ns;
            begin_event(t, "X", rank, track_of(s), offset_ns + s->begin_ns);
            fprintf(t->out, ",\"dur\":%" PRIu64 ".%03" PRIu64, ns / 1000, ns % 1000);
            if (is_pass(s))
                put_pass(t, s, rank, iteration, offset_ns);
            else
                fprintf(t->out, ",\"name\":\"%s\"}", sim_span_name((sim_span_kind_t)s->kind));
        }
    }
}

/* ---- when the operations happen ---- */

static bool has_phase(const sim_stretch_t *s, sim_phase_t phase)
{
    return s->phases == 1U << phase;
}

static pass_t *pass_of_stretch(const trace_t *t, const sim_stretch_t *s)
{
    pass_kind_t kind = has_phase(s, SIM_PHASE_FORWARD)       ? FORWARD
                       : has_phase(s, SIM_PHASE_BACKWARD)    ? BACKWARD
                       : has_phase(s, SIM_PHASE_WEIGHT_GRAD) ? WEIGHT_GRAD
                                                             : N_PASS_KINDS;
    if (kind == N_PASS_KINDS)
        return NULL;
    if (s->first_microbatch != s->last_microbatch || s->first_chunk != s->last_chunk)
        return NULL;
    return pass_of(t, kind, s->first_chunk, s->first_microbatch);
}

/* A pass may come in pieces, such as a receive that is posted early: the longest is the pass. */
static void find_main_stretches(trace_t *t, const sim_timeline_t *line, uint32_t first,
                                uint32_t end)
{
    for (size_t i = 0; i < n_passes(t); i++)
        t->passes[i].stretch = NULL;
    for (uint32_t i = first; i < end; i++) {
        const sim_stretch_t *s = &line->stretches[i];
        pass_t *pass = pass_of_stretch(t, s);
        if (pass != NULL &&
            (pass->stretch == NULL ||
             s->end_op - s->begin_op > pass->stretch->end_op - pass->stretch->begin_op))
            pass->stretch = s;
    }
}

/* The span in which a stretch happens; NULL = none of its own. */
static const sim_span_t *span_of(const trace_t *t, const sim_stretch_t *s)
{
    const pass_t *pass = pass_of_stretch(t, s);
    if (pass != NULL)
        return pass->stretch == s ? pass->span : NULL;
    int kind = has_phase(s, SIM_PHASE_GRAD_SYNC)        ? SIM_SPAN_GRAD_SYNC
               : has_phase(s, SIM_PHASE_OPTIMIZER_STEP) ? SIM_SPAN_OPTIMIZER
                                                        : -1;
    for (const sim_span_t *span = t->first; span < t->end; span++) {
        if (span->kind == kind)
            return span;
    }
    return NULL;
}

/* When each stretch happens, never before the one before it; what is before the first iteration
 * happens at 0. The caller frees. */
static interval_t *place_stretches(trace_t *t, const sim_timeline_t *line)
{
    interval_t *at = base_xcalloc(line->n_stretches, sizeof(*at));
    uint64_t now_ns = 0;
    for (uint32_t first = 0; first < line->n_stretches;) {
        uint32_t iteration = line->stretches[first].first_iteration, end = first;
        while (end < line->n_stretches && line->stretches[end].first_iteration == iteration)
            end++;
        uint64_t offset_ns = iteration > 0 ? (iteration - 1) * t->time.step_ns : 0;
        now_ns = base_u64_max(now_ns, offset_ns);
        find_main_stretches(t, line, first, end);
        for (; first < end; first++) {
            const sim_span_t *span = iteration > 0 ? span_of(t, &line->stretches[first]) : NULL;
            at[first] = (interval_t){ now_ns, now_ns };
            if (span == NULL || offset_ns + span->begin_ns < now_ns)
                continue;
            at[first] = (interval_t){ offset_ns + span->begin_ns, offset_ns + span->end_ns };
            now_ns = at[first].end_ns;
        }
    }
    return at;
}

static uint64_t time_of_op(const sim_stretch_t *s, const interval_t *at, uint64_t op)
{
    double part = (double)(op - s->begin_op) / (double)(s->end_op - s->begin_op + 1);
    return at->begin_ns + (uint64_t)(part * (double)(at->end_ns - at->begin_ns));
}

/* ---- counters ---- */

typedef struct {
    trace_t *trace;
    const sim_timeline_t *line;
    const interval_t *at;
    uint32_t rank;
    uint32_t stretch; /* of the sample before */
    uint32_t from_iteration;
    uint64_t offset_ns;
    bool has_before;
    sim_sample_t before;
    uint64_t peak_op, peak_bytes, now_ns;
} counters_t;

static void put_sample(counters_t *c, const sim_sample_t *s, uint64_t reserved_bytes)
{
    const sim_timeline_t *line = c->line;
    while (s->op > line->stretches[c->stretch].end_op)
        c->stretch++;
    const sim_stretch_t *stretch = &line->stretches[c->stretch];
    if (stretch->first_iteration > c->trace->n_iterations ||
        stretch->first_iteration < c->from_iteration)
        return;
    uint64_t ns = c->offset_ns + time_of_op(stretch, &c->at[c->stretch], s->op);
    bool is_set_up = stretch->first_iteration == 0;
    c->now_ns = ns;
    /* Of the set-up only the last sample: all of it happens before the clock starts. */
    if (is_set_up && s->op < stretch->end_op)
        return;
    for (int k = 0; k < SIM_N_CATEGORIES; k++) {
        if (!c->has_before || s->by_category[k] != c->before.by_category[k])
            put_counter(c->trace, c->rank, sim_category_name((sim_category_t)k), ns,
                        s->by_category[k]);
    }
    if (!c->has_before || s->allocated_bytes != c->before.allocated_bytes)
        put_counter(c->trace, c->rank, "allocated", ns, s->allocated_bytes);
    if (!c->has_before || reserved_bytes != c->before.reserved_bytes)
        put_counter(c->trace, c->rank, "reserved", ns, reserved_bytes);
    if (s->op == c->peak_op)
        put_mark(c->trace, c->rank, "peak", s->allocated_bytes, ns);
    c->before = *s;
    c->before.reserved_bytes = reserved_bytes;
    c->has_before = true;
}

static void find_peak(counters_t *c)
{
    for (uint32_t i = 0; i < c->line->n_buckets; i++) {
        const sim_sample_t *high = &c->line->buckets[i].high;
        if (high->allocated_bytes > c->peak_bytes) {
            c->peak_bytes = high->allocated_bytes;
            c->peak_op = high->op;
        }
    }
}

static void put_samples(counters_t *c)
{
    c->stretch = 0;
    for (uint32_t i = 0; i < c->line->n_buckets; i++) {
        const sim_bucket_t *b = &c->line->buckets[i];
        bool is_low_first = b->low.op < b->high.op;
        if (is_low_first)
            put_sample(c, &b->low, b->low.reserved_bytes);
        put_sample(c, &b->high, b->max_reserved_bytes);
        if (!is_low_first && b->low.op != b->high.op)
            put_sample(c, &b->low, b->low.reserved_bytes);
    }
}

static void put_counters(trace_t *t, uint32_t rank, const sim_timeline_t *line,
                         const sim_rank_result_t *result)
{
    interval_t *at = place_stretches(t, line);
    counters_t c = { .trace = t, .line = line, .at = at, .rank = rank };
    find_peak(&c);
    put_samples(&c);
    /* Iterations that repeat the last one were not played. */
    c.from_iteration = line->last_iteration;
    c.peak_op = 0;
    for (uint32_t i = line->last_iteration + 1; i <= t->n_iterations; i++) {
        c.offset_ns += t->time.step_ns;
        put_samples(&c);
    }
    if (result->is_out_of_memory && result->oom_moment.iteration <= t->n_iterations)
        put_mark(t, rank, "out of memory: asked for", result->oom_requested_bytes, c.now_ns);
    free(at);
}

/* ---- ranks ---- */

/* The fullest rank of a stage, the worst rank before all others; false when none is shown. */
static bool rank_of_stage(const sim_report_t *r, uint32_t stage, uint32_t *rank_p)
{
    const topo_grid_t *grid = &r->scenario->grid;
    bool found = false;
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < grid->world_size; rank++) {
        topo_coord_t c;
        if (!sim_report_shows(r, rank) || topo_grid_coord(grid, rank, &c, NULL) != BASE_OK ||
            c.pp != stage)
            continue;
        uint64_t bytes = sim_job_result(r->job, rank)->max_reserved_bytes;
        if (rank == r->verdict.worst_rank || !found || bytes > most) {
            *rank_p = rank;
            most = rank == r->verdict.worst_rank ? UINT64_MAX : bytes;
            found = true;
        }
    }
    return found;
}

static base_status_t put_rank(trace_t *t, uint32_t rank, base_err_t *err)
{
    const sim_scenario_t *s = t->report->scenario;
    uint32_t n_buckets = (uint32_t)(BYTES_OF_COUNTERS / BYTES_A_BUCKET) / s->grid.pp / 2 * 2;
    n_buckets = n_buckets < MIN_BUCKETS ? MIN_BUCKETS : n_buckets;
    sim_timeline_options_t options = { .max_buckets =
                                           n_buckets > MAX_BUCKETS ? MAX_BUCKETS : n_buckets,
                                       .max_stretches = MAX_STRETCHES };
    sim_timeline_t line;
    sim_rank_result_t result;
    base_status_t status = sim_timeline_rank(s, rank, &options, &line, &result, err);
    if (status != BASE_OK)
        return status;
    find_passes(t, result.coord.pp);
    name_process(t, rank, &result.coord);
    put_spans(t, rank);
    put_counters(t, rank, &line, &result);
    sim_timeline_fini(&line);
    sim_rank_result_fini(&result);
    return BASE_OK;
}

/* All ranks have the same iterations in the trace, so that no message lacks an end: those that the
 * first one to run out of memory has begun. */
static void share_iterations(trace_t *t)
{
    const sim_report_t *r = t->report;
    uint32_t pp = r->scenario->grid.pp;
    t->n_iterations = SIM_PERFETTO_MAX_ITERATIONS;
    if (r->scenario->iterations < t->n_iterations)
        t->n_iterations = (uint32_t)r->scenario->iterations;
    t->is_shown = base_xcalloc(pp, sizeof(*t->is_shown));
    for (uint32_t stage = 0; stage < pp; stage++) {
        uint32_t rank;
        t->is_shown[stage] = rank_of_stage(r, stage, &rank);
        if (!t->is_shown[stage])
            continue;
        const sim_rank_result_t *result = sim_job_result(r->job, rank);
        if (result->is_out_of_memory && result->oom_moment.iteration < t->n_iterations)
            t->n_iterations = result->oom_moment.iteration;
    }
}

static void put_header(const trace_t *t)
{
    json_t *other = json_object();
    json_object_set_new(other, "scenario", json_string(t->report->name));
    json_object_set_new(other, "version", json_string(PACKAGE_STRING));
    json_object_set_new(other, "times", json_string("estimated"));
    fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":", t->out);
    json_dumpf(other, t->out, JSON_COMPACT);
    fputs(",\"traceEvents\":[", t->out);
    json_decref(other);
}

base_status_t sim_perfetto_write(const sim_report_t *report, FILE *out, base_err_t *err)
{
    const sim_scenario_t *s = report->scenario;
    trace_t t = { .report = report,
                  .out = out,
                  .vpp = s->stages.vpp > 0 ? s->stages.vpp : 1,
                  .n_microbatches = (uint32_t)s->n_microbatches };
    base_status_t status = sim_clock_step(s, true, &t.time, err);
    if (status != BASE_OK)
        return status;
    t.passes = base_xcalloc(n_passes(&t), sizeof(*t.passes));
    share_iterations(&t);
    put_header(&t);
    for (uint32_t stage = 0; stage < s->grid.pp && status == BASE_OK; stage++) {
        uint32_t rank;
        if (rank_of_stage(report, stage, &rank))
            status = put_rank(&t, rank, err);
    }
    fputs("\n]}\n", out);
    free(t.passes);
    free(t.is_shown);
    sim_step_time_fini(&t.time);
    return status;
}
