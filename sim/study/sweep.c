/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/sweep.h"

#include "sim/base/log.h"
#include "sim/base/xmem.h"
#include "sim/report/moment.h"
#include "sim/study/guard.h"
#include "sim/study/outcome.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A layout that is to be simulated. */
typedef struct {
    uint64_t number; /* among the legal ones, from 1 */
    uint64_t combination;
} task_t;

typedef struct {
    sim_sweep_t *sweep;
    const sim_sweep_options_t *options;
    coll_world_t *world;
    uint64_t margin_bytes, n_legal;
    sim_sweep_columns_t columns;
    task_t *tasks; /* of all processes; owned */
    uint64_t n_tasks;
    sim_layout_cursor_t cursor;
    /* Process 0 only. */
    sim_sweep_file_t *file; /* NULL = rows go nowhere */
    uint64_t n_done;
} runner_t;

static const char *ranks_name(sim_ranks_t ranks)
{
    return ranks == SIM_RANKS_STAGES ? "stages" : "all";
}

/* ---- what identifies a sweep ---- */

/* FNV-1a, 64 bits. */
static uint64_t hash(uint64_t h, const char *text)
{
    for (const char *s = text; *s != '\0'; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return h;
}

static uint64_t fingerprint_of(const sim_scenario_t *base, const sim_sweep_options_t *options)
{
    char *text = sim_scenario_given_text(base);
    char margin[24];
    snprintf(margin, sizeof(margin), "%" PRIu64, options->margin_bytes);
    uint64_t h = hash(UINT64_C(0xcbf29ce484222325), PACKAGE_VERSION);
    h = hash(hash(hash(h, "\n"), text), margin);
    h = hash(h, ranks_name(options->ranks));
    free(text);
    return h;
}

/* ---- rows ---- */

static void add_columns(sim_sweep_columns_t *columns, const sim_layouts_t *layouts)
{
    static const char *const before[] = { "sweep", "version", "layout", "layouts" };
    static const char *const after[] = {
        "data_parallel_size",
        "n_microbatches",
        "ranks",
        "mode",
        "status",
        "risk",
        "worst_rank",
        "worst_place",
        "moment",
        "allocated_bytes",
        "reserved_bytes",
        "device_used_bytes",
        "device_bytes",
        "headroom_bytes",
        "estimated_step_ms",
        "estimated_tokens_per_s",
        "estimated_bubble_percent",
        "estimated_mfu_percent",
        "error",
    };
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++)
        sim_sweep_columns_add(columns, before[i]);
    for (size_t i = 0; i < layouts->n_axes; i++)
        sim_sweep_columns_add(columns, layouts->axes[i].key);
    for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++)
        sim_sweep_columns_add(columns, after[i]);
}

static void set_place(sim_sweep_row_t *row, int column, const topo_coord_t *c,
                      const topo_grid_t *grid)
{
    char text[96];
    int n = snprintf(text, sizeof(text), "tp %" PRIu32 " dp %" PRIu32 " pp %" PRIu32, c->tp, c->dp,
                     c->pp);
    if (grid->cp > 1)
        n += snprintf(text + n, sizeof(text) - (size_t)n, " cp %" PRIu32, c->cp);
    if (grid->ep > 1)
        snprintf(text + n, sizeof(text) - (size_t)n, " ep %" PRIu32, c->ep);
    sim_sweep_row_set(row, column, "%s", text);
}

/* To a tenth, and so that CSV and JSON have the same text. */
static void set_estimate(const runner_t *r, sim_sweep_row_t *row, const char *column, double value)
{
    sim_sweep_row_set(row, sim_sweep_column(&r->columns, column), "%.12g", round(10 * value) / 10);
}

static void set_outcome(const runner_t *r, sim_sweep_row_t *row, const sim_outcome_t *o)
{
    const sim_sweep_columns_t *c = &r->columns;
    const sim_scenario_t *s = &r->cursor.scenario;
    char moment[SIM_MOMENT_TEXT];
    sim_sweep_row_set(row, sim_sweep_column(c, "status"), "%s", sim_status_name(o->status));
    if (o->risk != SIM_RISK_NONE)
        sim_sweep_row_set(row, sim_sweep_column(c, "risk"), "%s", sim_risk_name(o->risk));
    sim_sweep_row_set(row, sim_sweep_column(c, "worst_rank"), "%" PRIu32, o->worst_rank);
    set_place(row, sim_sweep_column(c, "worst_place"), &o->coord, &s->grid);
    sim_sweep_row_set(row, sim_sweep_column(c, "moment"), "%s",
                      sim_moment_words(&o->moment, s->stages.vpp > 1, moment));
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {
        { "allocated_bytes", (int64_t)o->allocated_bytes },
        { "reserved_bytes", (int64_t)o->reserved_bytes },
        { "device_used_bytes", (int64_t)o->device_used_bytes },
        { "device_bytes", (int64_t)o->device_bytes },
        { "headroom_bytes", o->headroom_bytes },
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        bool is_known = s->mode != SIM_MODE_LIVE || strcmp(sizes[i].name, "reserved_bytes") != 0;
        if (is_known)
            sim_sweep_row_set(row, sim_sweep_column(c, sizes[i].name), "%" PRId64, sizes[i].value);
    }
    set_estimate(r, row, "estimated_step_ms", (double)o->step_ns / 1e6);
    set_estimate(r, row, "estimated_tokens_per_s", round(o->tokens_per_s));
    set_estimate(r, row, "estimated_bubble_percent", 100 * o->bubble_fraction);
    set_estimate(r, row, "estimated_mfu_percent", 100 * o->mfu);
}

static void set_error(const runner_t *r, sim_sweep_row_t *row, const char *text)
{
    sim_sweep_row_set(row, sim_sweep_column(&r->columns, "status"), "%s",
                      sim_status_name(SIM_STATUS_ERROR));
    sim_sweep_row_set(row, sim_sweep_column(&r->columns, "error"), "%s", text);
}

static void set_keys(const runner_t *r, sim_sweep_row_t *row, const task_t *task)
{
    const sim_layouts_t *layouts = &r->sweep->layouts;
    const sim_sweep_columns_t *c = &r->columns;
    sim_sweep_row_set(row, sim_sweep_column(c, "sweep"), "%016" PRIx64, r->sweep->fingerprint);
    sim_sweep_row_set(row, sim_sweep_column(c, "version"), "%s", PACKAGE_VERSION);
    sim_sweep_row_set(row, sim_sweep_column(c, "layout"), "%" PRIu64, task->number);
    sim_sweep_row_set(row, sim_sweep_column(c, "layouts"), "%" PRIu64, r->n_legal);
    for (size_t a = 0; a < layouts->n_axes; a++)
        sim_sweep_row_set(row, sim_sweep_column(c, layouts->axes[a].key), "%s",
                          sim_layouts_value(layouts, task->combination, a));
}

/* What the guarded function gets and gives. */
typedef struct {
    const sim_scenario_t *scenario;
    sim_ranks_t ranks;
    uint64_t margin_bytes;
    sim_outcome_t outcome;
    base_status_t status;
    base_err_t err;
} trial_t;

static void try_layout(void *arg)
{
    trial_t *t = arg;
    t->status = sim_outcome_of(t->scenario, t->ranks, t->margin_bytes, &t->outcome, &t->err);
}

static uint64_t margin_of(const runner_t *r)
{
    return r->options->margin_bytes == SIM_SWEEP_MARGIN_DEFAULT
               ? r->cursor.scenario.memory_bytes / 100
               : r->options->margin_bytes;
}

static void simulate(runner_t *r, const task_t *task, sim_sweep_row_t *row)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_sweep_row_init(row, r->columns.n);
    set_keys(r, row, task);
    if (!sim_layout_cursor_move(&r->cursor, task->combination, &diag)) {
        set_error(r, row, diag.n > 0 ? diag.text[0] : "not legal");
        base_diag_fini(&diag);
        return;
    }
    base_diag_fini(&diag);
    const sim_scenario_t *s = &r->cursor.scenario;
    sim_sweep_row_set(row, sim_sweep_column(&r->columns, "data_parallel_size"), "%" PRIu32,
                      s->grid.dp);
    sim_sweep_row_set(row, sim_sweep_column(&r->columns, "n_microbatches"), "%" PRIu64,
                      s->n_microbatches);
    sim_sweep_row_set(row, sim_sweep_column(&r->columns, "ranks"), "%s",
                      ranks_name(r->options->ranks));
    sim_sweep_row_set(row, sim_sweep_column(&r->columns, "mode"), "%s", sim_mode_name(s->mode));
    trial_t trial = { .scenario = s, .ranks = r->options->ranks, .margin_bytes = margin_of(r) };
    int signal = sim_guard_run(try_layout, &trial);
    char text[64];
    if (signal != 0) {
        snprintf(text, sizeof(text), "the simulation crashed: %s", sim_guard_signal_name(signal));
        set_error(r, row, text);
    } else if (trial.status != BASE_OK) {
        set_error(r, row, trial.err.text);
    } else {
        set_outcome(r, row, &trial.outcome);
    }
}

/* ---- process 0: where rows go ---- */

static char *plan_line(const runner_t *r)
{
    const sim_layouts_t *l = &r->sweep->layouts;
    json_t *illegal = json_array();
    for (size_t i = 0; i < l->n_broken; i++) {
        const sim_broken_rule_t *b = &l->broken[i];
        json_array_append_new(illegal, json_pack("{s:s, s:I, s:s?}", "rule", b->rule, "n",
                                                 (json_int_t)b->n, "example", b->example));
    }
    char fingerprint[24];
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, r->sweep->fingerprint);
    json_t *plan = json_pack("{s:s, s:s, s:s, s:I, s:I, s:o}", "schema", SIM_SWEEP_PLAN_SCHEMA,
                             "sweep", fingerprint, "version", PACKAGE_VERSION, "combinations",
                             (json_int_t)l->n_combinations, "layouts", (json_int_t)l->n_legal,
                             "illegal", illegal);
    char *text = json_dumps(plan, JSON_COMPACT);
    char *line = base_xasprintf("%s\n", text);
    free(text);
    json_decref(plan);
    return line;
}

/* A row of the file to resume must be one of this sweep and shard, and there once. */
static base_status_t check_found(const runner_t *r, const sim_sweep_rows_t *rows, bool *is_done,
                                 base_err_t *err)
{
    const char *path = r->options->rows_path;
    int layout = sim_sweep_column(&rows->columns, "layout");
    int sweep = sim_sweep_column(&rows->columns, "sweep");
    char mine[24];
    snprintf(mine, sizeof(mine), "%016" PRIx64, r->sweep->fingerprint);
    for (size_t i = 0; i < rows->n; i++) {
        int64_t number;
        if (strcmp(sim_sweep_row_text(&rows->rows[i], sweep), mine) != 0)
            return base_err_set(err, BASE_ERR_INVAL,
                                "%s: cannot be resumed: it was written for another scenario, "
                                "margin or version of mbsim",
                                path);
        if (!sim_sweep_row_number(&rows->rows[i], layout, &number) || number < 1 ||
            (uint64_t)number > r->n_legal ||
            (uint64_t)number % r->options->n_shards != r->options->shard)
            return base_err_set(err, BASE_ERR_INVAL,
                                "%s: cannot be resumed: row %zu is not of this shard", path, i + 1);
        if (is_done[number - 1])
            return base_err_set(err, BASE_ERR_INVAL,
                                "%s: cannot be resumed: layout %" PRId64 " is there twice", path,
                                number);
        is_done[number - 1] = true;
    }
    return BASE_OK;
}

static base_status_t find_rows(runner_t *r, bool *is_done, base_err_t *err)
{
    sim_sweep_rows_t *rows = &r->sweep->rows;
    const char *path = r->options->rows_path;
    base_status_t status = sim_sweep_rows_read(path, rows, err);
    if (status != BASE_OK)
        return status;
    bool is_empty = rows->n_whole_bytes == 0 || (rows->plan != NULL && rows->columns.n == 0);
    if (!is_empty && rows->format != r->options->format)
        return base_err_set(err, BASE_ERR_INVAL, "%s: cannot be resumed: the other format", path);
    if (rows->columns.n > 0 && !sim_sweep_columns_equal(&rows->columns, &r->columns))
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s: cannot be resumed: it has other columns, so it was written for "
                            "another scenario or version of mbsim",
                            path);
    if (rows->has_torn_row)
        base_log(BASE_LOG_INFO, "%s: a torn last row is left out", path);
    return check_found(r, rows, is_done, err);
}

/* List what is left to do. */
static void list_tasks(runner_t *r, const bool *is_done)
{
    const sim_layouts_t *l = &r->sweep->layouts;
    r->tasks = base_xcalloc(l->n_legal, sizeof(*r->tasks));
    for (uint64_t i = 0; i < l->n_legal; i++) {
        if ((i + 1) % r->options->n_shards != r->options->shard)
            continue;
        r->sweep->n_shard++;
        if (!is_done[i])
            r->tasks[r->n_tasks++] = (task_t){ .number = i + 1, .combination = l->legal[i] };
    }
}

static base_status_t open_rows(runner_t *r, base_err_t *err)
{
    const char *path = r->options->rows_path;
    if (path == NULL)
        return BASE_OK;
    char *head =
        r->options->format == SIM_ROWS_CSV ? sim_sweep_header_line(&r->columns) : plan_line(r);
    base_status_t status = sim_sweep_file_open(path, head, r->options->resumes,
                                               r->sweep->rows.n_whole_bytes, &r->file, err);
    free(head);
    return status;
}

static base_status_t plan(runner_t *r, base_err_t *err)
{
    sim_sweep_t *sweep = r->sweep;
    sim_layouts_check(&sweep->layouts);
    r->n_legal = sweep->layouts.n_legal;
    if (r->n_legal == 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "none of the %" PRIu64 " combinations of [sweep] is legal",
                            sweep->layouts.n_combinations);
    bool *is_done = base_xcalloc(r->n_legal, sizeof(*is_done));
    base_status_t status = BASE_OK;
    if (r->options->resumes)
        status = find_rows(r, is_done, err);
    if (status == BASE_OK) {
        sweep->n_found = sweep->rows.n;
        list_tasks(r, is_done);
        status = open_rows(r, err);
    }
    if (sweep->rows.columns.n == 0) {
        for (size_t i = 0; i < r->columns.n; i++)
            sim_sweep_columns_add(&sweep->rows.columns, r->columns.items[i].name);
    }
    free(is_done);
    return status;
}

/* Process 0 alone knows what there is to do, or that there is nothing (NULL). */
static bool share_tasks(runner_t *r, bool is_ok)
{
    size_t n = r->n_tasks * sizeof(*r->tasks);
    char *data = is_ok ? (char *)r->tasks : NULL;
    char *legal = (char *)&r->n_legal;
    size_t n_legal_bytes = sizeof(r->n_legal);
    coll_world_broadcast(r->world, &legal, &n_legal_bytes);
    coll_world_broadcast(r->world, &data, &n);
    if (coll_world_process(r->world) != 0) {
        memcpy(&r->n_legal, legal, sizeof(r->n_legal));
        free(legal);
        r->tasks = (task_t *)(void *)data;
        r->n_tasks = data != NULL ? n / sizeof(*r->tasks) : 0;
    }
    return data != NULL;
}

/* ---- work ---- */

/* Take in the rows that have arrived. Process 0. */
static base_status_t take_rows(runner_t *r, base_err_t *err)
{
    coll_blob_t blob;
    base_status_t status = BASE_OK;
    while (status == BASE_OK && coll_world_fetch(r->world, &blob)) {
        sim_sweep_row_t row;
        status = sim_sweep_row_parse_csv(blob.data, blob.n - 1, &row, err);
        free(blob.data);
        if (status != BASE_OK)
            return status;
        if (r->file != NULL) {
            char *line = sim_sweep_row_line(&r->columns, &row, r->options->format);
            status = sim_sweep_file_append(r->file, line, err);
            free(line);
        }
        sim_sweep_rows_add(&r->sweep->rows, &row);
        r->n_done++;
        if (r->options->progress != NULL)
            r->options->progress(r->n_done, r->n_tasks, r->options->progress_arg);
    }
    return status;
}

static void do_task(runner_t *r, const task_t *task)
{
    sim_sweep_row_t row;
    simulate(r, task, &row);
    char *line = sim_sweep_row_line(&r->columns, &row, SIM_ROWS_CSV);
    coll_world_post(r->world, line, strlen(line));
    free(line);
    sim_sweep_row_fini(&row);
}

static base_status_t work(runner_t *r, base_err_t *err)
{
    bool is_root = coll_world_process(r->world) == 0;
    base_status_t status = BASE_OK;
    coll_world_counter_open(r->world);
    sim_layout_cursor_init(&r->cursor, &r->sweep->layouts);
    for (uint64_t i; (i = coll_world_counter_next(r->world)) < r->n_tasks;) {
        if (status == BASE_OK) /* else only count on, so that the others come to an end */
            do_task(r, &r->tasks[i]);
        if (is_root && status == BASE_OK)
            status = take_rows(r, err);
    }
    sim_layout_cursor_fini(&r->cursor);
    coll_blob_t *blobs = NULL;
    base_err_t lost;
    base_status_t gathered = coll_world_gather(r->world, "", 0, &blobs, &lost);
    if (is_root && gathered == BASE_OK)
        coll_blobs_free(blobs, coll_world_n_processes(r->world));
    if (is_root && status == BASE_OK)
        status = take_rows(r, err);
    if (gathered != BASE_OK && status == BASE_OK) {
        *err = lost;
        status = gathered;
    }
    return status;
}

base_status_t sim_sweep_run(sim_sweep_t *sweep_p, const sim_scenario_t *base,
                            const sim_sweep_options_t *options, coll_world_t *world,
                            base_err_t *err)
{
    *sweep_p = (sim_sweep_t){ .fingerprint = fingerprint_of(base, options) };
    runner_t r = { .sweep = sweep_p, .options = options, .world = world };
    bool is_root = coll_world_process(world) == 0;
    base_status_t status = sim_layouts_init(&sweep_p->layouts, base, err);
    if (status != BASE_OK)
        return status; /* on every process alike */
    add_columns(&r.columns, &sweep_p->layouts);
    if (is_root)
        status = plan(&r, err);
    if (!share_tasks(&r, status == BASE_OK))
        status = is_root ? status : BASE_ERR_INVAL;
    else
        status = work(&r, err);
    base_status_t closed = sim_sweep_file_close(r.file, status == BASE_OK ? err : NULL);
    free(r.tasks);
    sim_sweep_columns_fini(&r.columns);
    return status == BASE_OK ? closed : status;
}

void sim_sweep_fini(sim_sweep_t *sweep)
{
    sim_layouts_fini(&sweep->layouts);
    sim_sweep_rows_fini(&sweep->rows);
    *sweep = (sim_sweep_t){ 0 };
}
