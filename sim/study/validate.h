/* SPDX-License-Identifier: Apache-2.0
 * Measured runs beside what the estimators and the simulation say about them. */
#ifndef SIM_STUDY_VALIDATE_H
#define SIM_STUDY_VALIDATE_H

#include "sim/base/err.h"
#include "sim/study/estimate.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Figures that can be both measured and simulated, in bytes. */
typedef enum {
    SIM_FIGURE_MAX_ALLOCATED, /* since the start */
    SIM_FIGURE_MAX_ALLOCATED_STEP1,
    SIM_FIGURE_MAX_ALLOCATED_STEP2,
    SIM_FIGURE_ALLOCATED_STEP1, /* still there at the end of the step */
    SIM_FIGURE_ALLOCATED_STEP2,
    SIM_FIGURE_ALLOCATED,
    SIM_FIGURE_MAX_RESERVED,
    SIM_FIGURE_DEVICE_USED, /* what nvidia-smi shows */
    SIM_N_FIGURES,
} sim_figure_t;

/* "max_allocated_bytes", … as in a record's `measured`. */
const char *sim_figure_name(sim_figure_t figure);

typedef struct {
    char *id, *family;
    bool covered;
    char *reason;  /* why not covered; NULL when covered */
    char *notes;   /* assumptions, separated by "; "; "" = none */
    uint32_t rank; /* whose figures are compared; of several, the one with the highest peak */
    bool fits;     /* on the GPU of the record */
    bool has_measured[SIM_N_FIGURES];
    uint64_t measured[SIM_N_FIGURES]; /* 0 where not measured */
    uint64_t simulated[SIM_N_FIGURES];
    json_t *all_measured; /* the record's `measured` as it stands */
    sim_estimate_t megatron;
    sim_estimate_bridge_t bridge;
    bool has_bridge;
} sim_comparison_t;

typedef struct {
    sim_comparison_t *items;
    size_t n;
} sim_comparisons_t;

/* KEY=GLOB or KEY!=GLOB; KEY is a dotted path into the record. */
typedef struct {
    char *key, *glob;
    bool negated;
} sim_record_filter_t;

/* False when `text` is not of that form. */
bool sim_record_filter_parse(const char *text, sim_record_filter_t *filter_p);
void sim_record_filter_fini(sim_record_filter_t *filter);

typedef struct {
    const sim_record_filter_t *filters; /* all must match */
    size_t n_filters;
    const char *scenarios_dir; /* NULL, or where each record's scenario file is written */
} sim_validate_options_t;

/* Compare every record of a corpus (`text`, one JSON object a line; `name` is for messages) that
 * passes the filters; blank lines are skipped. Appends to *comparisons_p, which may hold results of
 * other files. BASE_ERR_PARSE names the line that is not a record. */
base_status_t sim_validate(const char *name, const char *text, size_t length,
                           const sim_validate_options_t *options, sim_comparisons_t *comparisons_p,
                           base_err_t *err);
void sim_comparisons_fini(sim_comparisons_t *comparisons);

/* Absolute relative errors in percent. */
typedef struct {
    size_t n;
    double median, p90, max; /* p90: nearest rank */
} sim_error_stats_t;

typedef struct {
    size_t n_records, n_covered;
    sim_error_stats_t peak;      /* max_allocated_bytes */
    sim_error_stats_t fixed;     /* allocated_bytes_step2, or allocated_bytes */
    sim_error_stats_t moments;   /* second minus first step's peak: Adam's moments */
    sim_error_stats_t reserved;  /* max_reserved_bytes */
    sim_error_stats_t device;    /* device_used_bytes */
    sim_error_stats_t outside;   /* device_used_bytes less max_reserved_bytes */
    sim_error_stats_t estimator; /* Megatron-LM's total against max_allocated_bytes */
    sim_error_stats_t bridge;
} sim_validate_summary_t;

/* Over the comparisons of one family, NULL = all. */
sim_validate_summary_t sim_validate_summary(const sim_comparisons_t *comparisons,
                                            const char *family);

/* Tables for people: families, total, what is not covered; with `records` also every record. */
void sim_validate_print(const sim_comparisons_t *comparisons, bool records, FILE *out);

/* "mbsim.validate/1". */
json_t *sim_validate_json(const sim_comparisons_t *comparisons);

void sim_validate_csv(const sim_comparisons_t *comparisons, FILE *out);

#endif
