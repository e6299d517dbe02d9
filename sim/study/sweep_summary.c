/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/sweep_summary.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/study/outcome.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void sim_sweep_print_illegal(const sim_layouts_t *l, bool examples, FILE *out)
{
    fprintf(out, "%" PRIu64 " combinations, %" PRIu64 " legal, %" PRIu64 " not%s\n",
            l->n_combinations, l->n_legal, l->n_combinations - l->n_legal,
            l->n_broken > 0 ? ", by the rule that they break:" : "");
    for (size_t i = 0; i < l->n_broken; i++) {
        fprintf(out, "  %8" PRIu64 "  %s\n", l->broken[i].n, l->broken[i].rule);
        if (examples && l->broken[i].example != NULL)
            fprintf(out, "            such as %s\n", l->broken[i].example);
    }
}

/* ---- the best rows ---- */

/* A row and what it is ordered by. */
typedef struct {
    const sim_sweep_row_t *row;
    int status; /* sim_status_t */
    int64_t headroom_bytes, layout, tokens_per_s;
} ranked_t;

static int status_of(const char *text)
{
    for (int i = 0; i < SIM_N_STATUSES; i++) {
        if (strcmp(text, sim_status_name((sim_status_t)i)) == 0)
            return i;
    }
    return SIM_STATUS_ERROR;
}

static int by_merit(const void *a, const void *b)
{
    const ranked_t *x = a, *y = b;
    if (x->status != y->status)
        return x->status < y->status ? -1 : 1;
    /* Of two that do not fit, the one that misses by less is nearer to a solution. */
    if (x->status < SIM_STATUS_OUT_OF_MEMORY && x->tokens_per_s != y->tokens_per_s)
        return x->tokens_per_s > y->tokens_per_s ? -1 : 1;
    if (x->headroom_bytes != y->headroom_bytes)
        return x->headroom_bytes > y->headroom_bytes ? -1 : 1;
    return x->layout < y->layout ? -1 : x->layout > y->layout;
}

/* The caller frees. */
static ranked_t *rank_rows(const sim_sweep_rows_t *rows)
{
    const sim_sweep_columns_t *c = &rows->columns;
    int status = sim_sweep_column(c, "status"), headroom = sim_sweep_column(c, "headroom_bytes");
    int layout = sim_sweep_column(c, "layout");
    int tokens = sim_sweep_column(c, "estimated_tokens_per_s");
    ranked_t *ranked = base_xcalloc(rows->n, sizeof(*ranked));
    for (size_t i = 0; i < rows->n; i++) {
        const sim_sweep_row_t *row = &rows->rows[i];
        ranked[i] = (ranked_t){ .row = row, .status = status_of(sim_sweep_row_text(row, status)) };
        sim_sweep_row_number(row, headroom, &ranked[i].headroom_bytes);
        sim_sweep_row_number(row, layout, &ranked[i].layout);
        sim_sweep_row_number(row, tokens, &ranked[i].tokens_per_s);
    }
    if (rows->n > 0)
        qsort(ranked, rows->n, sizeof(*ranked), by_merit);
    return ranked;
}

static const char *short_name(const char *key)
{
    static const char *const names[][2] = {
        { "tensor_model_parallel_size", "TP" },
        { "pipeline_model_parallel_size", "PP" },
        { "virtual_pipeline_model_parallel_size", "VPP" },
        { "pipeline_schedule", "schedule" },
        { "context_parallel_size", "CP" },
        { "expert_model_parallel_size", "EP" },
        { "expert_tensor_parallel_size", "ETP" },
        { "data_parallel_size", "DP" },
        { "world_size", "GPUs" },
        { "micro_batch_size", "MBS" },
        { "global_batch_size", "GBS" },
        { "seq_length", "seq" },
        { "sequence_parallel", "SP" },
        { "use_distributed_optimizer", "distopt" },
        { "recompute_granularity", "recompute" },
        { "recompute_num_layers", "rec.layers" },
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i][0], key) == 0)
            return names[i][1];
    }
    return key;
}

/* The columns of the keys lie between these two. */
static void key_columns(const sim_sweep_columns_t *c, int *first_p, int *end_p)
{
    *first_p = sim_sweep_column(c, "layouts") + 1;
    *end_p = sim_sweep_column(c, "data_parallel_size") + 1;
}

static int width_of(const sim_sweep_rows_t *rows, const ranked_t *ranked, size_t n, int column)
{
    size_t width = strlen(short_name(rows->columns.items[column].name));
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(sim_sweep_row_text(ranked[i].row, column));
        width = length > width ? length : width;
    }
    return width > 24 ? 24 : (int)width;
}

static void print_size(const sim_sweep_row_t *row, int column, FILE *out)
{
    int64_t bytes;
    char text[BASE_BYTES_TEXT];
    if (!sim_sweep_row_number(row, column, &bytes)) {
        fprintf(out, " %11s", "");
        return;
    }
    char size[BASE_BYTES_TEXT + 1];
    snprintf(size, sizeof(size), "%s%s", bytes < 0 ? "-" : "",
             base_bytes_format(bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes, text));
    fprintf(out, " %11s", size);
}

static void print_table(const sim_sweep_rows_t *rows, const ranked_t *ranked, size_t n, FILE *out)
{
    const sim_sweep_columns_t *c = &rows->columns;
    int first, end;
    key_columns(c, &first, &end);
    fprintf(out, "%7s", "layout");
    for (int k = first; k < end; k++)
        fprintf(out, " %*s", width_of(rows, ranked, n, k), short_name(c->items[k].name));
    fprintf(out, " %11s %11s %5s %9s %5s\n", "reserved", "headroom", "rank", "tokens/s*", "MFU*");
    for (size_t i = 0; i < n; i++) {
        const sim_sweep_row_t *row = ranked[i].row;
        const char *error = sim_sweep_row_text(row, sim_sweep_column(c, "error"));
        fprintf(out, "%7s", sim_sweep_row_text(row, sim_sweep_column(c, "layout")));
        for (int k = first; k < end; k++)
            fprintf(out, " %*.24s", width_of(rows, ranked, n, k), sim_sweep_row_text(row, k));
        print_size(row, sim_sweep_column(c, "reserved_bytes"), out);
        print_size(row, sim_sweep_column(c, "headroom_bytes"), out);
        fprintf(out, " %5s %9s %5.4s  %s%s%s\n",
                sim_sweep_row_text(row, sim_sweep_column(c, "worst_rank")),
                sim_sweep_row_text(row, sim_sweep_column(c, "estimated_tokens_per_s")),
                sim_sweep_row_text(row, sim_sweep_column(c, "estimated_mfu_percent")),
                sim_sweep_row_text(row, sim_sweep_column(c, "status")), *error != '\0' ? ": " : "",
                error);
    }
}

static bool any_is_live(const sim_sweep_rows_t *rows)
{
    int mode = sim_sweep_column(&rows->columns, "mode");
    for (size_t i = 0; i < rows->n; i++) {
        if (strcmp(sim_sweep_row_text(&rows->rows[i], mode), sim_mode_name(SIM_MODE_LIVE)) == 0)
            return true;
    }
    return false;
}

void sim_sweep_print_best(const sim_sweep_rows_t *rows, size_t n_best, FILE *out)
{
    uint64_t n[SIM_N_STATUSES] = { 0 };
    ranked_t *ranked = rank_rows(rows);
    for (size_t i = 0; i < rows->n; i++)
        n[ranked[i].status]++;
    fprintf(out, "%zu layouts: %" PRIu64 " fit, ", rows->n, n[SIM_STATUS_FITS]);
    if (n[SIM_STATUS_MAY_FIT] > 0)
        fprintf(out, "%" PRIu64 " may fit, ", n[SIM_STATUS_MAY_FIT]);
    fprintf(out, "%" PRIu64 " at risk, %" PRIu64 " out of memory", n[SIM_STATUS_AT_RISK],
            n[SIM_STATUS_OUT_OF_MEMORY]);
    if (n[SIM_STATUS_ERROR] > 0)
        fprintf(out, ", %" PRIu64 " with an error", n[SIM_STATUS_ERROR]);
    fputc('\n', out);
    size_t n_shown = rows->n < n_best ? rows->n : n_best;
    if (n_shown > 0) {
        fprintf(out, "\n");
        print_table(rows, ranked, n_shown, out);
    }
    if (n_shown < rows->n)
        fprintf(out, "and %zu more\n", rows->n - n_shown);
    if (n_shown > 0)
        fprintf(out, "* estimates of the virtual clock; rank: the one with least headroom\n");
    if (any_is_live(rows))
        fputs("mode live: live bytes only, without what an allocator keeps; headroom is at most "
              "this\n",
              out);
    free(ranked);
}

void sim_sweep_write_rows(const sim_sweep_rows_t *rows, sim_rows_format_t format, FILE *out)
{
    if (format == SIM_ROWS_CSV) {
        char *header = sim_sweep_header_line(&rows->columns);
        fputs(header, out);
        free(header);
    } else if (rows->plan != NULL) {
        fprintf(out, "%s\n", rows->plan);
    }
    for (size_t i = 0; i < rows->n; i++) {
        char *line = sim_sweep_row_line(&rows->columns, &rows->rows[i], format);
        fputs(line, out);
        free(line);
    }
}
