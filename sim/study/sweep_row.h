/* SPDX-License-Identifier: Apache-2.0
 * A row of a sweep: one layout and what became of it, as CSV or as a line of JSON. Between both,
 * and between processes, a row is a list of texts, one for each column. */
#ifndef SIM_STUDY_SWEEP_ROW_H
#define SIM_STUDY_SWEEP_ROW_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_SWEEP_SCHEMA "mbsim.sweep/1"
/* Of the line above the rows of a JSON file: what the sweep is made of. */
#define SIM_SWEEP_PLAN_SCHEMA "mbsim.sweep-plan/1"

typedef enum { SIM_ROWS_CSV, SIM_ROWS_JSON } sim_rows_format_t;

typedef struct {
    char *name;
    bool is_text; /* in JSON always a string; else a number or true or false where it can be */
} sim_sweep_column_t;

typedef struct {
    sim_sweep_column_t *items; /* owned */
    size_t n;
} sim_sweep_columns_t;

void sim_sweep_columns_add(sim_sweep_columns_t *columns, const char *name);
bool sim_sweep_columns_equal(const sim_sweep_columns_t *a, const sim_sweep_columns_t *b);
void sim_sweep_columns_fini(sim_sweep_columns_t *columns);

enum { SIM_COLUMN_NONE = -1 };

/* Place of a column, or SIM_COLUMN_NONE. */
int sim_sweep_column(const sim_sweep_columns_t *columns, const char *name);

/* As many fields as there are columns; NULL = nothing to say. */
typedef struct {
    char **fields; /* owned */
    size_t n;
} sim_sweep_row_t;

void sim_sweep_row_init(sim_sweep_row_t *row, size_t n_columns);
void sim_sweep_row_fini(sim_sweep_row_t *row);

/* Give a field its text, formatted. */
void sim_sweep_row_set(sim_sweep_row_t *row, int column, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The field as a whole number, also a negative one; false when it is none. */
bool sim_sweep_row_number(const sim_sweep_row_t *row, int column, int64_t *number_p);
/* The field's text; "" = nothing. */
const char *sim_sweep_row_text(const sim_sweep_row_t *row, int column);

/* One line with its newline; the caller frees. */
char *sim_sweep_row_line(const sim_sweep_columns_t *columns, const sim_sweep_row_t *row,
                         sim_rows_format_t format);
/* The line above the rows of a CSV file; the caller frees. */
char *sim_sweep_header_line(const sim_sweep_columns_t *columns);

/* Read one CSV line of n bytes, newline left out. BASE_ERR_PARSE: bad quotes. Fields that are empty
 * become NULL. */
base_status_t sim_sweep_row_parse_csv(const char *line, size_t n, sim_sweep_row_t *row_p,
                                      base_err_t *err);

/* Read one JSON line; columns that are not there yet are added. BASE_ERR_PARSE: not a flat object.
 * *row_p may have fewer fields than there are columns after later lines. */
base_status_t sim_sweep_row_parse_json(const char *line, size_t n, sim_sweep_columns_t *columns,
                                       sim_sweep_row_t *row_p, base_err_t *err);

#endif
