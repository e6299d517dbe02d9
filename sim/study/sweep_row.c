/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/sweep_row.h"

#include "sim/base/xmem.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns ---- */

static bool is_text_column(const char *name)
{
    static const char *const names[] = { "sweep", "version",     "ranks",  "status",
                                         "risk",  "worst_place", "moment", "error" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

void sim_sweep_columns_add(sim_sweep_columns_t *columns, const char *name)
{
    columns->items = base_xgrow(columns->items, columns->n, sizeof(*columns->items));
    columns->items[columns->n++] = (sim_sweep_column_t){ base_xstrdup(name), is_text_column(name) };
}

void sim_sweep_columns_fini(sim_sweep_columns_t *columns)
{
    for (size_t i = 0; i < columns->n; i++)
        free(columns->items[i].name);
    free(columns->items);
    *columns = (sim_sweep_columns_t){ 0 };
}

bool sim_sweep_columns_equal(const sim_sweep_columns_t *a, const sim_sweep_columns_t *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (strcmp(a->items[i].name, b->items[i].name) != 0)
            return false;
    }
    return a->n == b->n;
}

int sim_sweep_column(const sim_sweep_columns_t *columns, const char *name)
{
    for (size_t i = 0; i < columns->n; i++) {
        if (strcmp(columns->items[i].name, name) == 0)
            return (int)i;
    }
    return SIM_COLUMN_NONE;
}

/* ---- rows ---- */

void sim_sweep_row_init(sim_sweep_row_t *row, size_t n_columns)
{
    *row = (sim_sweep_row_t){ .fields = base_xcalloc(n_columns, sizeof(char *)), .n = n_columns };
}

void sim_sweep_row_fini(sim_sweep_row_t *row)
{
    for (size_t i = 0; i < row->n; i++)
        free(row->fields[i]);
    free(row->fields);
    *row = (sim_sweep_row_t){ 0 };
}

void sim_sweep_row_set(sim_sweep_row_t *row, int column, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    free(row->fields[column]);
    row->fields[column] = base_xvasprintf(fmt, ap);
    va_end(ap);
}

const char *sim_sweep_row_text(const sim_sweep_row_t *row, int column)
{
    bool there = column >= 0 && (size_t)column < row->n && row->fields[column] != NULL;
    return there ? row->fields[column] : "";
}

bool sim_sweep_row_number(const sim_sweep_row_t *row, int column, int64_t *number_p)
{
    const char *text = sim_sweep_row_text(row, column);
    char *end;
    errno = 0;
    int64_t number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return false;
    *number_p = number;
    return true;
}

/* ---- CSV ---- */

/* Quoted where RFC 4180 wants it. */
static void print_csv_field(const char *text, FILE *out)
{
    if (text == NULL)
        return;
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *s = text; *s != '\0'; s++) {
        if (*s == '"')
            fputc('"', out);
        fputc(*s == '\n' || *s == '\r' ? ' ' : *s, out); /* a row is one line */
    }
    fputc('"', out);
}

char *sim_sweep_header_line(const sim_sweep_columns_t *columns)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < columns->n; i++) {
        if (i > 0)
            fputc(',', out);
        print_csv_field(columns->items[i].name, out);
    }
    fputc('\n', out);
    fclose(out);
    return text;
}

static char *csv_line(const sim_sweep_row_t *row)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < row->n; i++) {
        if (i > 0)
            fputc(',', out);
        print_csv_field(row->fields[i], out);
    }
    fputc('\n', out);
    fclose(out);
    return text;
}

/* One field from *at up to `end` or a comma; *at is then behind it. False: a quote is wrong. */
static bool read_csv_field(const char **at, const char *end, char **field_p)
{
    char *text;
    size_t length;
    bool ok = true;
    const char *s = *at;
    FILE *out = open_memstream(&text, &length);
    if (s < end && *s == '"') {
        for (s++; s < end; s++) {
            if (*s == '"') {
                if (s + 1 == end || s[1] != '"')
                    break;
                s++;
            }
            fputc(*s, out);
        }
        ok = s < end && (s + 1 == end || s[1] == ',');
        s++;
    } else {
        for (; s < end && *s != ','; s++)
            fputc(*s, out);
    }
    fclose(out);
    *at = s;
    if (!ok || length == 0) {
        free(text);
        text = NULL;
    }
    *field_p = text;
    return ok;
}

base_status_t sim_sweep_row_parse_csv(const char *line, size_t n, sim_sweep_row_t *row_p,
                                      base_err_t *err)
{
    sim_sweep_row_t row = { 0 };
    const char *at = line, *end = line + n;
    bool ok = true, more = true;
    while (ok && more) {
        row.fields = base_xgrow(row.fields, row.n, sizeof(char *));
        ok = read_csv_field(&at, end, &row.fields[row.n++]);
        more = at < end;
        at++;
    }
    if (ok) {
        *row_p = row;
        return BASE_OK;
    }
    sim_sweep_row_fini(&row);
    return base_err_set(err, BASE_ERR_PARSE, "a quote that is not closed, or text behind one");
}

/* ---- JSON ---- */

static json_t *json_field(const sim_sweep_column_t *column, const char *text)
{
    int64_t number;
    char *end;
    if (text == NULL)
        return json_null();
    if (column->is_text)
        return json_string(text);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return json_boolean(text[0] == 't');
    errno = 0;
    number = strtoll(text, &end, 10);
    if (*end == '\0' && errno == 0)
        return json_integer(number);
    /* A whole number beyond 64 bits would lose digits. */
    double real = strtod(text, &end);
    bool is_real = *end == '\0' && strchr(text, '.') != NULL;
    return is_real ? json_real(real) : json_string(text);
}

static char *json_line(const sim_sweep_columns_t *columns, const sim_sweep_row_t *row)
{
    json_t *object = json_object();
    json_object_set_new(object, "schema", json_string(SIM_SWEEP_SCHEMA));
    for (size_t i = 0; i < columns->n; i++)
        json_object_set_new(object, columns->items[i].name,
                            json_field(&columns->items[i], i < row->n ? row->fields[i] : NULL));
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(12));
    char *line = base_xasprintf("%s\n", text);
    free(text);
    json_decref(object);
    return line;
}

char *sim_sweep_row_line(const sim_sweep_columns_t *columns, const sim_sweep_row_t *row,
                         sim_rows_format_t format)
{
    return format == SIM_ROWS_CSV ? csv_line(row) : json_line(columns, row);
}

/* NULL for null, an object or an array. */
static char *json_text(const json_t *value)
{
    if (json_is_string(value))
        return base_xstrdup(json_string_value(value));
    if (json_is_integer(value))
        return base_xasprintf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (json_is_real(value))
        return base_xasprintf("%.12g", json_real_value(value));
    if (json_is_boolean(value))
        return base_xstrdup(json_is_true(value) ? "true" : "false");
    return NULL;
}

static void take_json(json_t *object, sim_sweep_columns_t *columns, sim_sweep_row_t *row_p)
{
    const char *name;
    json_t *value;
    (void)value;
    json_object_foreach(object, name, value)
    {
        if (strcmp(name, "schema") != 0 && sim_sweep_column(columns, name) == SIM_COLUMN_NONE)
            sim_sweep_columns_add(columns, name);
    }
    sim_sweep_row_init(row_p, columns->n);
    for (size_t i = 0; i < columns->n; i++)
        row_p->fields[i] = json_text(json_object_get(object, columns->items[i].name));
}

base_status_t sim_sweep_row_parse_json(const char *line, size_t n, sim_sweep_columns_t *columns,
                                       sim_sweep_row_t *row_p, base_err_t *err)
{
    json_error_t error;
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(object)) {
        json_decref(object);
        return base_err_set(err, BASE_ERR_PARSE, "not a JSON object");
    }
    const char *schema = json_string_value(json_object_get(object, "schema"));
    if (schema == NULL || strcmp(schema, SIM_SWEEP_SCHEMA) != 0) {
        json_decref(object);
        return base_err_set(err, BASE_ERR_PARSE, "not a row of " SIM_SWEEP_SCHEMA);
    }
    take_json(object, columns, row_p);
    json_decref(object);
    return BASE_OK;
}
