/* SPDX-License-Identifier: Apache-2.0
 * Files of rows: read whole, and appended to a row at a time so that a kill at any moment leaves
 * whole rows and at most one torn one, which the next reader leaves out. */
#ifndef SIM_STUDY_SWEEP_FILE_H
#define SIM_STUDY_SWEEP_FILE_H

#include "sim/study/sweep_row.h"

typedef struct {
    sim_sweep_columns_t columns;
    sim_sweep_row_t *rows; /* n; owned. After reading JSON, rows may be shorter than columns */
    size_t n, cap;
    sim_rows_format_t format;
    char *plan;           /* the plan line of a JSON file; owned, NULL = none */
    size_t n_whole_bytes; /* of the file, up to the end of its last whole line */
    bool has_torn_row;    /* something follows */
} sim_sweep_rows_t;

/* Append; *row is taken over. */
void sim_sweep_rows_add(sim_sweep_rows_t *rows, sim_sweep_row_t *row);
void sim_sweep_rows_fini(sim_sweep_rows_t *rows);

/* Read a file of either format into a zeroed *rows_p. BASE_ERR_IO: cannot be read;
 * BASE_ERR_PARSE names the line that is no row. An empty file has no rows and no columns. */
base_status_t sim_sweep_rows_read(const char *path, sim_sweep_rows_t *rows_p, base_err_t *err);

/* The same from a text, called `name`. */
base_status_t sim_sweep_rows_parse(const char *name, const char *text, size_t length,
                                   sim_sweep_rows_t *rows_p, base_err_t *err);

typedef struct sim_sweep_file sim_sweep_file_t;

/* Begin a new file ("-" = standard output) with `head`, its first line; with `goes_on` one that may
 * be there: anything behind its first `n_whole_bytes` is cut off. BASE_ERR_INVAL: it is there
 * already, or another process writes to it; BASE_ERR_IO. */
base_status_t sim_sweep_file_open(const char *path, const char *head, bool goes_on,
                                  size_t n_whole_bytes, sim_sweep_file_t **file_p, base_err_t *err);

/* One whole line, written at once. BASE_ERR_IO: it did not reach the file, which is as before. */
base_status_t sim_sweep_file_append(sim_sweep_file_t *file, const char *line, base_err_t *err);

/* BASE_ERR_IO: something written before did not reach the disk. Takes NULL. */
base_status_t sim_sweep_file_close(sim_sweep_file_t *file, base_err_t *err);

#endif
