/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/table.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/report/moment.h"
#include "sim/report/rank_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_FIGURES = 9,
    FIGURE_WIDTH = 5,
    CELL_TEXT = 16,
    WORLD_TEXT = 24, /* column of ranks, at most */
    AXIS_TEXT = 24,
};

static const char *const figure_heads[N_FIGURES] = { "param", "grad",  "optim", "activ", "temp",
                                                     "other", "alloc", "resrv", "room" };

/* A line, and the ranks that it stands for. */
typedef struct {
    char figures[N_FIGURES][CELL_TEXT];
    char moment[SIM_MOMENT_TEXT];
    char ranks[WORLD_TEXT + 1], coordinates[SIM_REPORT_COLUMNS];
    bool *is_in; /* by rank; owned */
    bool is_out_of_memory;
    uint64_t used_bytes, total_bytes; /* of the device */
} row_t;

typedef struct {
    const sim_report_t *report;
    uint64_t unit_bytes;
    const char *unit;
    row_t *rows; /* owned */
    uint32_t n_rows;
    int rank_width, coordinate_width, moment_width, bar_width;
} table_t;

static void format_figure(const table_t *t, uint64_t bytes, char cell[static CELL_TEXT])
{
    double value = (double)bytes / (double)t->unit_bytes; /* for people only */
    int digits = value < 99.995 ? 2 : value < 999.95 ? 1 : 0;
    snprintf(cell, CELL_TEXT, "%.*f", digits, value);
}

static void fill_figures(const table_t *t, const sim_rank_result_t *r, row_t *row)
{
    static const sim_category_t shown[] = { SIM_CAT_PARAMETERS, SIM_CAT_GRADIENTS,
                                            SIM_CAT_OPTIMIZER, SIM_CAT_ACTIVATIONS,
                                            SIM_CAT_TEMPORARY };
    enum { N_SHOWN = sizeof(shown) / sizeof(shown[0]) };
    uint64_t other_bytes = r->max_allocated_bytes;
    for (int i = 0; i < N_SHOWN; i++) {
        uint64_t bytes = sim_holders_category(&r->at_peak, shown[i]);
        format_figure(t, bytes, row->figures[i]);
        other_bytes -= bytes;
    }
    sim_ledger_t ledger = sim_report_ledger(t->report, r);
    row->is_out_of_memory = r->is_out_of_memory;
    row->used_bytes = ledger.device_used_bytes;
    row->total_bytes = ledger.total_bytes;
    format_figure(t, other_bytes, row->figures[N_SHOWN]);
    format_figure(t, r->max_allocated_bytes, row->figures[N_SHOWN + 1]);
    if (sim_report_is_live(t->report))
        snprintf(row->figures[N_SHOWN + 2], CELL_TEXT, "-");
    else
        format_figure(t, r->max_reserved_bytes, row->figures[N_SHOWN + 2]);
    if (r->is_out_of_memory)
        snprintf(row->figures[N_SHOWN + 3], CELL_TEXT, "OOM");
    else
        format_figure(t, ledger.headroom_bytes, row->figures[N_SHOWN + 3]);
    bool has_chunks = t->report->scenario->stages.vpp > 1;
    sim_moment_short(r->is_out_of_memory ? &r->oom_moment : &r->allocated_moment, has_chunks,
                     row->moment);
}

static bool rows_equal(const row_t *a, const row_t *b)
{
    return memcmp(a->figures, b->figures, sizeof(a->figures)) == 0 &&
           strcmp(a->moment, b->moment) == 0;
}

/* The line of a class: an earlier one that looks the same, or a new one. */
static uint32_t row_of_class(table_t *t, const sim_rank_result_t *result)
{
    row_t *row = &t->rows[t->n_rows];
    fill_figures(t, result, row);
    for (uint32_t i = 0; i < t->n_rows; i++) {
        if (rows_equal(&t->rows[i], row)) {
            *row = (row_t){ 0 };
            return i;
        }
    }
    row->is_in = base_xcalloc(t->report->job->classes.n_ranks, sizeof(*row->is_in));
    return t->n_rows++;
}

static void fill_rows(table_t *t)
{
    const sim_classes_t *classes = &t->report->job->classes;
    uint32_t *row_of = base_xcalloc(classes->n_classes, sizeof(*row_of)); /* 0 = none, else + 1 */
    t->rows = base_xcalloc(classes->n_classes + 1, sizeof(*t->rows));
    for (uint32_t rank = 0; rank < classes->n_ranks; rank++) {
        if (!sim_report_shows(t->report, rank))
            continue;
        uint32_t *row = &row_of[classes->of_rank[rank]];
        if (*row == 0)
            *row = row_of_class(t, sim_job_result(t->report->job, rank)) + 1;
        t->rows[*row - 1].is_in[rank] = true;
    }
    free(row_of);
}

/* ---- coordinates ---- */

typedef struct {
    const char *name;
    uint32_t size;
    size_t offset; /* in topo_coord_t */
} axis_t;

enum { N_AXES = 5 };

static void list_axes(const topo_grid_t *grid, axis_t axes[static N_AXES])
{
    axes[0] = (axis_t){ "pp", grid->pp, offsetof(topo_coord_t, pp) };
    axes[1] = (axis_t){ "tp", grid->tp, offsetof(topo_coord_t, tp) };
    axes[2] = (axis_t){ "cp", grid->cp, offsetof(topo_coord_t, cp) };
    axes[3] = (axis_t){ "ep", grid->ep, offsetof(topo_coord_t, ep) };
    axes[4] = (axis_t){ "dp", grid->dp, offsetof(topo_coord_t, dp) };
}

static uint32_t on_axis(const topo_coord_t *coord, const axis_t *axis)
{
    return *(const uint32_t *)((const char *)coord + axis->offset);
}

void sim_report_coordinates(const sim_report_t *report, const topo_coord_t *coord, FILE *out)
{
    axis_t axes[N_AXES];
    list_axes(&report->scenario->grid, axes);
    const char *separator = "";
    for (int i = 0; i < N_AXES; i++) {
        if (axes[i].size == 1)
            continue;
        fprintf(out, "%s%s %" PRIu32, separator, axes[i].name, on_axis(coord, &axes[i]));
        separator = ", ";
    }
}

/* Where the ranks of a row stand, axes left out along which they stand everywhere. */
static void fill_coordinates(const table_t *t, row_t *row)
{
    const topo_grid_t *grid = &t->report->scenario->grid;
    axis_t axes[N_AXES];
    list_axes(grid, axes);
    size_t used = 0;
    for (int i = 0; i < N_AXES; i++) {
        bool *is_in = base_xcalloc(axes[i].size, sizeof(*is_in));
        uint32_t n = 0;
        for (uint32_t rank = 0; rank < grid->world_size; rank++) {
            topo_coord_t coord;
            if (!row->is_in[rank] || topo_grid_coord(grid, rank, &coord, NULL) != BASE_OK)
                continue;
            bool *place = &is_in[on_axis(&coord, &axes[i])];
            n += !*place;
            *place = true;
        }
        if (n < axes[i].size) {
            char list[AXIS_TEXT];
            sim_rank_list_format(is_in, axes[i].size, list, sizeof(list));
            used += (size_t)snprintf(row->coordinates + used, sizeof(row->coordinates) - used,
                                     "%s%s%s", used > 0 ? " " : "", axes[i].name, list);
            if (used >= sizeof(row->coordinates))
                used = sizeof(row->coordinates) - 1;
        }
        free(is_in);
    }
    if (used == 0)
        snprintf(row->coordinates, sizeof(row->coordinates), "all");
}

/* ---- layout ---- */

static int widest(int width, const char *text)
{
    int length = (int)strlen(text);
    return length > width ? length : width;
}

/* The three columns of text share what the figures leave of the line. */
static void set_widths(table_t *t)
{
    enum { ROOM = SIM_REPORT_COLUMNS - 3 - N_FIGURES * (FIGURE_WIDTH + 1) };
    t->rank_width = 5;
    t->coordinate_width = 6;
    t->moment_width = 18;
    for (uint32_t i = 0; i < t->n_rows; i++) {
        t->rank_width = widest(t->rank_width, t->rows[i].ranks);
        t->coordinate_width = widest(t->coordinate_width, t->rows[i].coordinates);
        t->moment_width = widest(t->moment_width, t->rows[i].moment);
    }
    static const int least[][3] = { { 12, 12, 12 }, { 6, 8, 12 } };
    int *const shrink[] = { &t->coordinate_width, &t->rank_width, &t->moment_width };
    for (int i = 0; i < 6; i++) {
        while (t->rank_width + t->coordinate_width + t->moment_width > ROOM &&
               *shrink[i % 3] > least[i / 3][i % 3])
            --*shrink[i % 3];
    }
}

/* What the terminal leaves beside the table. */
static void set_bar_width(table_t *t)
{
    enum { LEAST = 8, MOST = 30 };
    int table_width = t->rank_width + 1 + t->coordinate_width + N_FIGURES * (FIGURE_WIDTH + 1) + 2 +
                      t->moment_width;
    int room = t->report->columns - table_width - 2;
    t->bar_width = room < LEAST ? 0 : room < MOST ? room : MOST;
}

/* How full the device is: red when it is too full, yellow when next to nothing is left. */
static void print_bar(const table_t *t, const row_t *row, FILE *out)
{
    if (t->bar_width == 0)
        return;
    uint64_t width = (uint64_t)t->bar_width, parts = row->total_bytes / 1024 + 1;
    int n = (int)base_u64_min(width, (row->used_bytes / 1024 * width + parts / 2) / parts);
    int colour = row->is_out_of_memory                           ? 31
                 : row->used_bytes / 97 > row->total_bytes / 100 ? 33
                                                                 : 0;
    int pad = t->moment_width - (int)strlen(row->moment);
    fprintf(out, "%*s  ", pad > 0 ? pad : 0, "");
    if (t->report->is_coloured && colour != 0)
        fprintf(out, "\033[%dm", colour);
    for (int i = 0; i < t->bar_width; i++)
        fputc(i < n ? '#' : '.', out);
    if (t->report->is_coloured && colour != 0)
        fputs("\033[0m", out);
}

/* `text` in `width` columns, cut with ".." when it is longer. */
static void print_cell(FILE *out, const char *text, int width, bool pad)
{
    if ((int)strlen(text) > width)
        fprintf(out, "%.*s..", width - 2, text);
    else
        fprintf(out, "%-*s", pad ? width : 0, text);
}

static void print_head(const table_t *t, FILE *out)
{
    fprintf(out,
            "%s; at the peak of each rank: parameters, gradients, optimizer state, activations,\n"
            "temporary, other; peak allocated, peak reserved, headroom. i = iteration, from 1;\n"
            "from 0: m = micro-batch%s, l = layer.\n\n",
            t->unit, t->report->scenario->stages.vpp > 1 ? ", c = chunk" : "");
    fprintf(out, "%-*s %-*s", t->rank_width, "ranks", t->coordinate_width, "place");
    for (int i = 0; i < N_FIGURES; i++)
        fprintf(out, " %*s", FIGURE_WIDTH, figure_heads[i]);
    if (t->bar_width > 0)
        fprintf(out, "  %-*s  device", t->moment_width, "moment of the peak");
    else
        fputs("  moment of the peak", out);
    fputc('\n', out);
}

static uint64_t largest_figure(const sim_report_t *report)
{
    uint64_t bytes = 0;
    for (uint32_t c = 0; c < report->job->classes.n_classes; c++)
        bytes = base_u64_max(bytes, report->job->results[c].max_reserved_bytes);
    return bytes;
}

void sim_report_table(const sim_report_t *report, FILE *out)
{
    bool is_small = largest_figure(report) < BASE_GIB;
    table_t t = { .report = report,
                  .unit_bytes = is_small ? BASE_MIB : BASE_GIB,
                  .unit = is_small ? "MiB" : "GiB" };
    fill_rows(&t);
    for (uint32_t i = 0; i < t.n_rows; i++) {
        sim_rank_list_format(t.rows[i].is_in, report->job->classes.n_ranks, t.rows[i].ranks,
                             sizeof(t.rows[i].ranks));
        fill_coordinates(&t, &t.rows[i]);
    }
    set_widths(&t);
    set_bar_width(&t);
    print_head(&t, out);
    for (uint32_t i = 0; i < t.n_rows; i++) {
        sim_rank_list_format(t.rows[i].is_in, report->job->classes.n_ranks, t.rows[i].ranks,
                             (size_t)t.rank_width + 1);
        print_cell(out, t.rows[i].ranks, t.rank_width, true);
        fputc(' ', out);
        print_cell(out, t.rows[i].coordinates, t.coordinate_width, true);
        for (int k = 0; k < N_FIGURES; k++)
            fprintf(out, " %*s", FIGURE_WIDTH, t.rows[i].figures[k]);
        fputs("  ", out);
        print_cell(out, t.rows[i].moment, t.moment_width, false);
        print_bar(&t, &t.rows[i], out);
        fputc('\n', out);
        free(t.rows[i].is_in);
    }
    free(t.rows);
}
