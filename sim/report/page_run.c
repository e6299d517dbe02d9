/* SPDX-License-Identifier: Apache-2.0
 * What the page knows of a job. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/engine/timeline.h"
#include "sim/report/largest.h"
#include "sim/report/page.h"

#include <stdlib.h>

enum {
    /* A sample takes about 50 bytes of the page, a stretch about 15: 2 MB at most. */
    BUCKETS_IN_ALL = 14336,
    MIN_BUCKETS = 128,
    MAX_BUCKETS = 768,
    STRETCHES_IN_ALL = 40960,
    MAX_STRETCHES = 2048,
    UNIT_BYTES = 512, /* blocks are multiples of it: kMinBlockSize of PyTorch's allocator */
    MAX_KINDS = 40,
    MAX_ITERATIONS = 32,
    MAX_SPANS = 20000, /* about 25 bytes of the page each */
    N_SPAN_KINDS = SIM_SPAN_PARAM_GATHER + 1,
    NONE = -1,
};

typedef struct {
    const sim_report_t *report;
    const sim_page_options_t *options;
    uint32_t n_classes;
    uint32_t *first_rank; /* shown, by class of the page; owned */
    uint32_t *of_class;   /* class of the page by class of the job, + 1; 0 = not shown; owned */
    int *timeline;        /* by class of the page; owned */
} page_t;

static void set_uint(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void append_uint(json_t *array, uint64_t value)
{
    json_array_append_new(array, json_integer((json_int_t)value));
}

/* ---- ranks, equal ones folded ---- */

/* The first and the last ones: what is between them is the same over and over. */
static void shorten_iterations(json_t *class)
{
    json_t *list = json_object_get(class, "iterations");
    size_t n = json_array_size(list);
    if (n <= MAX_ITERATIONS)
        return;
    json_t *some = json_array();
    for (size_t i = 0; i < n; i++) {
        if (i < MAX_ITERATIONS / 2 || i >= n - MAX_ITERATIONS / 2)
            json_array_append(some, json_array_get(list, i));
    }
    json_object_set_new(class, "iterations", some);
}

static json_t *class_of_rank(const json_t *rank)
{
    json_t *class = json_copy((json_t *)rank);
    json_object_del(class, "rank");
    json_object_del(class, "coordinates");
    shorten_iterations(class);
    return class;
}

/* [rank, class, tp, cp, ep, dp, pp] */
static json_t *place_of_rank(const json_t *rank, uint32_t class)
{
    static const char *const axes[] = { "tp", "cp", "ep", "dp", "pp" };
    const json_t *coordinates = json_object_get(rank, "coordinates");
    json_t *place = json_array();
    json_array_append(place, json_object_get(rank, "rank"));
    append_uint(place, class);
    for (size_t i = 0; i < sizeof(axes) / sizeof(axes[0]); i++)
        json_array_append(place, json_object_get(coordinates, axes[i]));
    return place;
}

/* The list of ranks of the JSON report to `classes` and `ranks` of the page. */
static void fold_ranks(page_t *p, const json_t *list, json_t *page)
{
    const sim_classes_t *job = &p->report->job->classes;
    json_t *classes = json_array(), *ranks = json_array();
    p->first_rank = base_xcalloc(job->n_classes, sizeof(*p->first_rank));
    p->of_class = base_xcalloc(job->n_classes, sizeof(*p->of_class));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        uint32_t rank = (uint32_t)json_integer_value(json_object_get(one, "rank"));
        uint32_t *class = &p->of_class[job->of_rank[rank]];
        if (*class == 0) {
            p->first_rank[p->n_classes++] = rank;
            *class = p->n_classes;
            json_array_append_new(classes, class_of_rank(one));
        }
        json_array_append_new(ranks, place_of_rank(one, *class - 1));
    }
    json_object_set_new(page, "classes", classes);
    json_object_set_new(page, "ranks", ranks);
}

/* ---- timelines ---- */

/* Differences of multiples of UNIT_BYTES: small numbers, most of them 0. */
static json_t *differences(const uint64_t *values, size_t n)
{
    json_t *list = json_array();
    uint64_t before = 0;
    for (size_t i = 0; i < n; i++) {
        json_int_t change = (json_int_t)values[i] - (json_int_t)before;
        json_array_append_new(list, json_integer(change / UNIT_BYTES));
        before = values[i];
    }
    return list;
}

typedef struct {
    const sim_sample_t *sample;
    uint64_t reserved_bytes;
} point_t;

/* Lowest and highest of each bucket in the order in which they came; the reserved peak stands at
 * the highest. */
static size_t list_points(const sim_timeline_t *t, point_t *points)
{
    size_t n = 0;
    for (uint32_t i = 0; i < t->n_buckets; i++) {
        const sim_bucket_t *b = &t->buckets[i];
        point_t low = { &b->low, b->low.reserved_bytes },
                high = { &b->high, b->max_reserved_bytes };
        bool is_low_first = b->low.op < b->high.op;
        if (b->low.op != b->high.op && is_low_first)
            points[n++] = low;
        points[n++] = high;
        if (b->low.op != b->high.op && !is_low_first)
            points[n++] = low;
    }
    return n;
}

static void set_samples(json_t *one, const sim_timeline_t *t)
{
    point_t *points = base_xcalloc(2 * (size_t)t->n_buckets, sizeof(*points));
    size_t n = list_points(t, points);
    uint64_t *values = base_xcalloc(n, sizeof(*values));
    json_t *ops = json_array(), *categories = json_object();
    uint64_t before = 0;
    for (size_t i = 0; i < n; i++) {
        append_uint(ops, points[i].sample->op - before);
        before = points[i].sample->op;
        values[i] = points[i].reserved_bytes;
    }
    json_object_set_new(one, "ops", ops);
    json_object_set_new(one, "reserved", differences(values, n));
    for (int c = 0; c < SIM_N_CATEGORIES; c++) {
        for (size_t i = 0; i < n; i++)
            values[i] = points[i].sample->by_category[c];
        json_object_set_new(categories, sim_category_name((sim_category_t)c),
                            differences(values, n));
    }
    json_object_set_new(one, "categories", categories);
    free(values);
    free(points);
}

/* [operations, phases, iteration, micro-batch, chunk]; joined ones have the last of each too. */
static json_t *stretches_json(const sim_timeline_t *t)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < t->n_stretches; i++) {
        const sim_stretch_t *s = &t->stretches[i];
        json_t *one = json_array();
        append_uint(one, s->end_op - s->begin_op + 1);
        append_uint(one, s->phases);
        append_uint(one, s->first_iteration);
        append_uint(one, s->first_microbatch);
        append_uint(one, s->first_chunk);
        if (s->first_iteration != s->last_iteration || s->first_microbatch != s->last_microbatch ||
            s->first_chunk != s->last_chunk) {
            append_uint(one, s->last_iteration);
            append_uint(one, s->last_microbatch);
            append_uint(one, s->last_chunk);
        }
        json_array_append_new(list, one);
    }
    return list;
}

/* [name, category, module, number, bytes, bytes of the largest] */
static json_t *kinds_json(const sim_rank_result_t *result)
{
    sim_largest_t *kinds;
    uint32_t n = sim_largest_kinds(result, &kinds);
    json_t *list = json_array();
    for (uint32_t i = 0; i < n && i < MAX_KINDS; i++) {
        const sim_alive_t *a = kinds[i].largest;
        json_t *one = json_array();
        json_array_append_new(one, json_string(a->name));
        json_array_append_new(one, json_string(sim_category_name((sim_category_t)a->category)));
        json_array_append_new(one, json_string(sim_module_name((sim_module_t)a->module)));
        append_uint(one, kinds[i].n);
        append_uint(one, kinds[i].bytes);
        append_uint(one, a->block_bytes);
        json_array_append_new(list, one);
    }
    free(kinds);
    return list;
}

static uint32_t even_share(uint32_t in_all, uint32_t n, uint32_t min, uint32_t max)
{
    uint32_t share = in_all / n;
    share = share < min ? min : share > max ? max : share;
    return share / 2 * 2;
}

static base_status_t timeline_json(const page_t *p, uint32_t class, uint32_t n_timelines,
                                   json_t **one_p, base_err_t *err)
{
    sim_timeline_options_t options = {
        .max_buckets = even_share(BUCKETS_IN_ALL, n_timelines, MIN_BUCKETS, MAX_BUCKETS),
        .max_stretches = even_share(STRETCHES_IN_ALL, n_timelines, MIN_BUCKETS, MAX_STRETCHES),
        .want_alive = true,
    };
    sim_timeline_t t;
    sim_rank_result_t result;
    uint32_t rank = p->first_rank[class];
    base_status_t status = sim_timeline_rank(p->report->scenario, rank, &options, &t, &result, err);
    if (status != BASE_OK)
        return status;
    json_t *one = json_object();
    set_uint(one, "rank", rank);
    set_uint(one, "class", class);
    set_uint(one, "n_ops", t.n_ops);
    set_uint(one, "last_iteration", t.last_iteration);
    set_samples(one, &t);
    json_object_set_new(one, "stretches", stretches_json(&t));
    set_uint(one, "n_alive", result.n_alive);
    json_object_set_new(one, "alive", kinds_json(&result));
    sim_timeline_fini(&t);
    sim_rank_result_fini(&result);
    *one_p = one;
    return BASE_OK;
}

/* Give `class` a timeline of its own, unless all are taken. */
static void take_timeline(page_t *p, uint32_t class, uint32_t *n)
{
    if (p->timeline[class] == NONE && *n < SIM_PAGE_MAX_TIMELINES)
        p->timeline[class] = (int)(*n)++;
}

static uint32_t pp_of(const page_t *p, uint32_t class)
{
    topo_coord_t c = { 0 };
    topo_grid_coord(&p->report->scenario->grid, p->first_rank[class], &c, NULL);
    return c.pp;
}

/* The worst rank, then the fullest of each pipeline stage, then the others. */
static uint32_t share_timelines(page_t *p)
{
    const sim_report_t *r = p->report;
    uint32_t pp = r->scenario->grid.pp, n = 0;
    uint64_t *most = base_xcalloc(pp, sizeof(*most));
    uint32_t *fullest = base_xcalloc(pp, sizeof(*fullest)); /* class + 1 */
    p->timeline = base_xcalloc(p->n_classes, sizeof(*p->timeline));
    for (uint32_t c = 0; c < p->n_classes; c++) {
        p->timeline[c] = NONE;
        uint32_t stage = pp_of(p, c);
        uint64_t bytes = sim_job_result(r->job, p->first_rank[c])->max_reserved_bytes;
        if (fullest[stage] == 0 || bytes > most[stage]) {
            fullest[stage] = c + 1;
            most[stage] = bytes;
        }
    }
    uint32_t worst = p->of_class[r->job->classes.of_rank[r->verdict.worst_rank]];
    if (worst > 0)
        take_timeline(p, worst - 1, &n);
    for (uint32_t stage = 0; stage < pp; stage++) {
        if (fullest[stage] > 0)
            take_timeline(p, fullest[stage] - 1, &n);
    }
    for (uint32_t c = 0; c < p->n_classes; c++)
        take_timeline(p, c, &n);
    free(most);
    free(fullest);
    return n;
}

static base_status_t add_timelines(page_t *p, json_t *page, base_err_t *err)
{
    uint32_t n = share_timelines(p);
    json_t *list = json_array();
    json_object_set_new(page, "timelines", list);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t class = 0;
        while (p->timeline[class] != (int)i)
            class ++;
        json_t *one;
        base_status_t status = timeline_json(p, class, n, &one, err);
        if (status != BASE_OK)
            return status;
        json_array_append_new(list, one);
        if (p->options->progress != NULL)
            p->options->progress(i + 1, n, p->options->progress_arg);
    }
    return BASE_OK;
}

/* ---- the pipeline ---- */

/* By pipeline rank a flat list: kind, chunk, micro-batch, idle time before it, and how long, in
 * nanoseconds. Of a long step only the beginning: the middle is the same over and over. */
static json_t *spans_json(const sim_step_time_t *time)
{
    uint32_t n_stages = time->n_pipeline_ranks;
    size_t most = MAX_SPANS / n_stages;
    json_t *stages = json_array();
    for (size_t i = 0; i < time->n_spans;) {
        uint32_t stage = time->spans[i].pp_rank;
        uint64_t end_ns = 0;
        json_t *list = json_array();
        for (size_t first = i; i < time->n_spans && time->spans[i].pp_rank == stage; i++) {
            const sim_span_t *s = &time->spans[i];
            if (i - first >= most)
                continue;
            append_uint(list, s->kind);
            append_uint(list, s->chunk);
            append_uint(list, s->microbatch);
            append_uint(list, s->begin_ns - end_ns);
            append_uint(list, s->end_ns - s->begin_ns);
            end_ns = s->end_ns;
        }
        json_array_append_new(stages, list);
    }
    return stages;
}

/* Sums of all spans by pipeline rank and kind. */
static json_t *span_sums_json(const sim_step_time_t *time)
{
    json_t *stages = json_array();
    for (size_t i = 0; i < time->n_spans;) {
        uint32_t stage = time->spans[i].pp_rank;
        uint64_t sums_ns[N_SPAN_KINDS] = { 0 };
        for (; i < time->n_spans && time->spans[i].pp_rank == stage; i++)
            sums_ns[time->spans[i].kind] += time->spans[i].end_ns - time->spans[i].begin_ns;
        json_t *list = json_array();
        for (int k = 0; k < N_SPAN_KINDS; k++)
            append_uint(list, sums_ns[k]);
        json_array_append_new(stages, list);
    }
    return stages;
}

static base_status_t add_pipeline(json_t *page, const sim_scenario_t *scenario, base_err_t *err)
{
    sim_step_time_t time;
    base_status_t status = sim_clock_step(scenario, true, &time, err);
    if (status != BASE_OK)
        return status;
    json_t *pipeline = json_object(), *kinds = json_array();
    for (int k = 0; k < N_SPAN_KINDS; k++)
        json_array_append_new(kinds, json_string(sim_span_name((sim_span_kind_t)k)));
    json_object_set_new(pipeline, "kinds", kinds);
    json_object_set_new(pipeline, "stages", spans_json(&time));
    json_object_set_new(pipeline, "sums", span_sums_json(&time));
    json_object_set_new(page, "pipeline", pipeline);
    sim_step_time_fini(&time);
    return BASE_OK;
}

/* ---- the whole ---- */

static void set_names(json_t *page)
{
    json_t *phases = json_array(), *categories = json_array();
    for (int i = 0; i < SIM_N_PHASES; i++)
        json_array_append_new(phases, json_string(sim_phase_name((sim_phase_t)i)));
    for (int i = 0; i < SIM_N_CATEGORIES; i++)
        json_array_append_new(categories, json_string(sim_category_name((sim_category_t)i)));
    json_object_set_new(page, "phases", phases);
    json_object_set_new(page, "categories", categories);
    set_uint(page, "unit_bytes", UNIT_BYTES);
}

static void set_job(json_t *page, const sim_scenario_t *s)
{
    json_t *grid = json_object();
    set_uint(grid, "world_size", s->grid.world_size);
    set_uint(grid, "tp", s->grid.tp);
    set_uint(grid, "cp", s->grid.cp);
    set_uint(grid, "ep", s->grid.ep);
    set_uint(grid, "dp", s->grid.dp);
    set_uint(grid, "pp", s->grid.pp);
    set_uint(grid, "vpp", s->stages.vpp);
    if (sim_schedule_splits(s->pipeline_schedule))
        json_object_set_new(grid, "schedule", json_string(sim_schedule_name(s->pipeline_schedule)));
    json_object_set_new(page, "grid", grid);
    json_object_set_new(page, "gpu", json_string(s->gpu_p->name));
    set_uint(page, "n_microbatches", s->n_microbatches);
    char *given = sim_scenario_given_text(s);
    json_object_set_new(page, "given", json_string(given));
    free(given);
}

base_status_t sim_page_run(const sim_report_t *report, const sim_page_options_t *options,
                           json_t **page_p, base_err_t *err)
{
    page_t p = { .report = report, .options = options };
    json_t *page = json_object(), *json = sim_report_json(report);
    json_object_set_new(page, "kind", json_string("run"));
    json_object_set_new(page, "command", json_string(options->command));
    set_names(page);
    set_job(page, report->scenario);
    set_uint(page, "usable_bytes", report->usable_bytes);
    fold_ranks(&p, json_object_get(json, "ranks"), page);
    json_object_del(json, "ranks");
    json_object_del(json_object_get(json, "worst"), "tensors");
    json_object_set_new(page, "report", json);
    base_status_t status = add_timelines(&p, page, err);
    if (status == BASE_OK)
        status = add_pipeline(page, report->scenario, err);
    free(p.first_rank);
    free(p.of_class);
    free(p.timeline);
    if (status != BASE_OK) {
        json_decref(page);
        return status;
    }
    *page_p = page;
    return BASE_OK;
}
