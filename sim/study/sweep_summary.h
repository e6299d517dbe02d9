/* SPDX-License-Identifier: Apache-2.0
 * What a sweep found, for people; and shards joined. */
#ifndef SIM_STUDY_SWEEP_SUMMARY_H
#define SIM_STUDY_SWEEP_SUMMARY_H

#include "sim/study/layouts.h"
#include "sim/study/sweep_file.h"

#include <stdio.h>

/* How many combinations are legal, and which rules the others break; with `examples` the first
 * message for each rule too. */
void sim_sweep_print_illegal(const sim_layouts_t *layouts, bool examples, FILE *out);

/* How many rows fit, are at risk, ..., and the n_best best: those that fit by estimated
 * throughput, then headroom. */
void sim_sweep_print_best(const sim_sweep_rows_t *rows, size_t n_best, FILE *out);

typedef struct {
    sim_sweep_rows_t rows; /* of all files, by layout */
    uint64_t n_layouts;    /* of the whole sweep */
    uint64_t *missing;     /* numbers of n_missing layouts without a row; owned */
    uint64_t n_missing;
    uint64_t n_twice; /* equal rows that were left out */
} sim_sweep_merge_t;

/* Join the n files of one sweep. BASE_ERR_INVAL: rows of different sweeps or versions, or two rows
 * for one layout that differ; otherwise fails as sim_sweep_rows_read() does. Free with
 * sim_sweep_merge_fini(). */
base_status_t sim_sweep_merge(char *const *paths, size_t n, sim_sweep_merge_t *merge_p,
                              base_err_t *err);
void sim_sweep_merge_fini(sim_sweep_merge_t *merge);

/* "3, 7-9, 12"; at most `max` ranges, then "...". */
void sim_sweep_print_missing(const sim_sweep_merge_t *merge, size_t max, FILE *out);

/* All rows as a file of this format. */
void sim_sweep_write_rows(const sim_sweep_rows_t *rows, sim_rows_format_t format, FILE *out);

#endif
