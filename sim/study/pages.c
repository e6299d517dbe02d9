/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/pages.h"

#include "sim/base/xmem.h"

#include <stdlib.h>
#include <string.h>

static void set_text(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, json_string(value));
}

/* ---- sweep ---- */

static json_t *field_json(const char *text)
{
    char *end;
    if (*text == '\0')
        return json_null();
    double number = strtod(text, &end);
    if (*end != '\0')
        return json_string(text);
    bool is_whole = text[strspn(text, "-0123456789")] == '\0';
    return is_whole ? json_integer(strtoll(text, NULL, 10)) : json_real(number);
}

static bool fits(const sim_sweep_rows_t *rows, size_t i)
{
    int status = sim_sweep_column(&rows->columns, "status");
    return strcmp(sim_sweep_row_text(&rows->rows[i], status), "fits") == 0;
}

/* Which rows are shown, in order; their number goes to *n_p. The caller frees. */
static size_t *choose_rows(const sim_sweep_rows_t *rows, size_t *n_p)
{
    size_t *chosen = base_xcalloc(rows->n + 1, sizeof(*chosen)), n = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < rows->n && n < SIM_PAGE_MAX_LAYOUTS; i++) {
            if (fits(rows, i) == (pass == 0))
                chosen[n++] = i;
        }
    }
    *n_p = n;
    return chosen;
}

static void add_column(json_t *columns, const sim_sweep_rows_t *rows, const size_t *chosen,
                       size_t n, int column)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, field_json(sim_sweep_row_text(&rows->rows[chosen[i]], column)));
    json_object_set_new(columns, rows->columns.items[column].name, list);
}

json_t *sim_page_sweep(const sim_sweep_rows_t *rows, const char *name, const char *command)
{
    static const char *const shown[] = { "layout",
                                         "data_parallel_size",
                                         "n_microbatches",
                                         "status",
                                         "risk",
                                         "worst_rank",
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
                                         "error" };
    json_t *page = json_object(), *axes = json_array(), *columns = json_object();
    size_t n;
    size_t *chosen = choose_rows(rows, &n);
    /* The keys of the sweep stand between these two. */
    int first = sim_sweep_column(&rows->columns, "layouts") + 1;
    int end = sim_sweep_column(&rows->columns, "data_parallel_size");
    for (int c = first; c < end; c++) {
        json_array_append_new(axes, json_string(rows->columns.items[c].name));
        add_column(columns, rows, chosen, n, c);
    }
    for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++) {
        int c = sim_sweep_column(&rows->columns, shown[i]);
        if (c != SIM_COLUMN_NONE)
            add_column(columns, rows, chosen, n, c);
    }
    free(chosen);
    set_text(page, "kind", "sweep");
    set_text(page, "name", name);
    set_text(page, "command", command);
    set_text(page, "version", PACKAGE_VERSION);
    json_object_set_new(page, "n_rows", json_integer((json_int_t)rows->n));
    json_object_set_new(page, "axes", axes);
    json_object_set_new(page, "columns", columns);
    return page;
}

/* ---- diff ---- */

/* The page shows categories and modules of the worst rank alone. */
static json_t *ranks_without_parts(const json_t *ranks)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        json_t *one = json_copy(json_array_get(ranks, i));
        json_object_del(one, "categories");
        json_object_del(one, "modules");
        json_object_del(one, "coordinates");
        json_array_append_new(list, one);
    }
    return list;
}

json_t *sim_page_diff(const json_t *diff, const char *command)
{
    json_t *page = json_object(), *shown = json_copy((json_t *)diff);
    json_object_set_new(shown, "ranks", ranks_without_parts(json_object_get(diff, "ranks")));
    set_text(page, "kind", "diff");
    set_text(page, "command", command);
    set_text(page, "version", PACKAGE_VERSION);
    json_object_set_new(page, "diff", shown);
    return page;
}
