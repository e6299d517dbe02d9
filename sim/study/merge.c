/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/study/sweep_summary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Everything that must be equal in all rows of one sweep. */
static base_status_t check_same_sweep(const sim_sweep_merge_t *m, const char *first_path,
                                      const sim_sweep_rows_t *rows, const char *path,
                                      base_err_t *err)
{
    static const char *const same[] = { "version", "sweep", "layouts" };
    const sim_sweep_rows_t *all = &m->rows;
    if (all->n > 0 && rows->n > 0 && !sim_sweep_columns_equal(&all->columns, &rows->columns))
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s and %s have different columns: they are not of one sweep",
                            first_path, path);
    const sim_sweep_row_t *first = all->n > 0 ? &all->rows[0] : &rows->rows[0];
    for (size_t i = 0; i < rows->n; i++) {
        for (size_t k = 0; k < sizeof(same) / sizeof(same[0]); k++) {
            int column = sim_sweep_column(&rows->columns, same[k]);
            const char *a = sim_sweep_row_text(first, column);
            const char *b = sim_sweep_row_text(&rows->rows[i], column);
            if (*b != '\0' && strcmp(a, b) == 0)
                continue;
            return base_err_set(err, BASE_ERR_INVAL,
                                "%s: row %zu has %s '%.40s', not '%.40s' as in %s: rows of "
                                "different %s cannot be joined",
                                path, i + 1, same[k], b, a, first_path,
                                k == 0 ? "versions of mbsim" : "sweeps");
        }
    }
    return BASE_OK;
}

static base_status_t add_file(sim_sweep_merge_t *m, const char *first_path, const char *path,
                              base_err_t *err)
{
    sim_sweep_rows_t rows = { 0 };
    base_status_t status = sim_sweep_rows_read(path, &rows, err);
    if (status != BASE_OK)
        return status;
    if (rows.has_torn_row)
        base_log(BASE_LOG_WARN, "%s: its last row is torn and is left out", path);
    if (rows.n > 0)
        status = check_same_sweep(m, first_path, &rows, path, err);
    if (status == BASE_OK && m->rows.columns.n == 0 && rows.n > 0) {
        m->rows.columns = rows.columns;
        rows.columns = (sim_sweep_columns_t){ 0 };
    }
    if (status == BASE_OK && m->rows.plan == NULL) {
        m->rows.plan = rows.plan;
        rows.plan = NULL;
    }
    for (size_t i = 0; i < rows.n && status == BASE_OK; i++)
        sim_sweep_rows_add(&m->rows, &rows.rows[i]);
    sim_sweep_rows_fini(&rows);
    return status;
}

/* The number of the layout, 0 when the row has none. */
static uint64_t layout_of(const sim_sweep_rows_t *rows, size_t i)
{
    int64_t number;
    int column = sim_sweep_column(&rows->columns, "layout");
    bool ok = sim_sweep_row_number(&rows->rows[i], column, &number) && number > 0;
    return ok ? (uint64_t)number : 0;
}

static bool rows_equal(const sim_sweep_row_t *a, const sim_sweep_row_t *b)
{
    for (size_t i = 0; i < a->n || i < b->n; i++) {
        if (strcmp(sim_sweep_row_text(a, (int)i), sim_sweep_row_text(b, (int)i)) != 0)
            return false;
    }
    return true;
}

/* Put the rows into the order of their layouts, each once, and list the missing ones. */
static base_status_t settle(sim_sweep_merge_t *m, base_err_t *err)
{
    sim_sweep_rows_t *rows = &m->rows;
    int64_t n_layouts = 0;
    int column = sim_sweep_column(&rows->columns, "layouts");
    if (rows->rows == NULL || !sim_sweep_row_number(&rows->rows[0], column, &n_layouts) ||
        n_layouts < 1 || n_layouts > SIM_LAYOUTS_MAX)
        return base_err_set(err, BASE_ERR_PARSE, "the rows do not say of how many layouts");
    m->n_layouts = (uint64_t)n_layouts;
    sim_sweep_row_t *sorted = base_xcalloc(m->n_layouts, sizeof(*sorted));
    base_status_t status = BASE_OK;
    for (size_t i = 0; i < rows->n; i++) {
        uint64_t layout = layout_of(rows, i);
        bool is_known = layout >= 1 && layout <= m->n_layouts;
        if (is_known && sorted[layout - 1].fields == NULL) {
            sorted[layout - 1] = rows->rows[i];
            continue;
        }
        if (status == BASE_OK && !is_known)
            status = base_err_set(err, BASE_ERR_PARSE, "a row has no layout of 1 to %" PRIu64,
                                  m->n_layouts);
        else if (status == BASE_OK && !rows_equal(&sorted[layout - 1], &rows->rows[i]))
            status = base_err_set(err, BASE_ERR_INVAL,
                                  "layout %" PRIu64 " has two rows that differ", layout);
        m->n_twice++;
        sim_sweep_row_fini(&rows->rows[i]);
    }
    m->missing = base_xcalloc(m->n_layouts, sizeof(*m->missing));
    rows->n = 0;
    for (uint64_t i = 0; i < m->n_layouts; i++) {
        if (sorted[i].fields != NULL)
            rows->rows[rows->n++] = sorted[i];
        else
            m->missing[m->n_missing++] = i + 1;
    }
    free(sorted);
    return status;
}

base_status_t sim_sweep_merge(char *const *paths, size_t n, sim_sweep_merge_t *merge_p,
                              base_err_t *err)
{
    sim_sweep_merge_t m = { 0 };
    base_status_t status = BASE_OK;
    for (size_t i = 0; i < n && status == BASE_OK; i++)
        status = add_file(&m, paths[0], paths[i], err);
    if (status == BASE_OK && m.rows.n == 0)
        status = base_err_set(err, BASE_ERR_INVAL, "no row in any of these files");
    if (status == BASE_OK)
        status = settle(&m, err);
    if (status == BASE_OK)
        *merge_p = m;
    else
        sim_sweep_merge_fini(&m);
    return status;
}

void sim_sweep_merge_fini(sim_sweep_merge_t *merge)
{
    sim_sweep_rows_fini(&merge->rows);
    free(merge->missing);
    *merge = (sim_sweep_merge_t){ 0 };
}

void sim_sweep_print_missing(const sim_sweep_merge_t *m, size_t max, FILE *out)
{
    size_t n_ranges = 0;
    for (uint64_t i = 0, end; i < m->n_missing; i = end) {
        for (end = i + 1; end < m->n_missing && m->missing[end] == m->missing[end - 1] + 1;)
            end++;
        const char *comma = n_ranges > 0 ? ", " : "";
        if (n_ranges++ == max) {
            fprintf(out, "%s...", comma);
            return;
        }
        if (end - i == 1)
            fprintf(out, "%s%" PRIu64, comma, m->missing[i]);
        else
            fprintf(out, "%s%" PRIu64 "-%" PRIu64, comma, m->missing[i], m->missing[end - 1]);
    }
}
