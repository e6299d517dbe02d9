/* SPDX-License-Identifier: Apache-2.0
 * Two reports compared: which keys differ, and what that changes on each rank, by category, module
 * and moment. Works on reports as JSON, so that saved ones and fresh ones are alike. */
#ifndef SIM_STUDY_DIFF_H
#define SIM_STUDY_DIFF_H

#include "sim/base/err.h"
#include "sim/scenario/scenario.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* Simulate `scenario` (resolved) into a report, "mbsim.report/1"; the caller owns *report_p. A job
 * that does not fit is played on a device without end, so that what it needs is known; its verdict
 * stays. Fails as sim_simulate_rank() does. */
base_status_t sim_diff_simulate(const sim_scenario_t *scenario, const char *name, json_t **report_p,
                                base_err_t *err);

/* Read a saved report; the caller owns *report_p. BASE_ERR_PARSE: not JSON, another schema, or
 * something is missing that is compared. */
base_status_t sim_diff_parse(const char *name, const char *text, size_t length, json_t **report_p,
                             base_err_t *err);

enum { SIM_DIFF_WORST = -1 };

/* Compare: "mbsim.diff/1", owned by the caller. `rank` of both, or SIM_DIFF_WORST: the worst of
 * each. Differences are b less a, and add up exactly. BASE_ERR_INVAL: a report lacks that rank. */
base_status_t sim_diff_compare(const json_t *a, const json_t *b, int64_t rank, json_t **diff_p,
                               base_err_t *err);

void sim_diff_text(const json_t *diff, FILE *out);

#endif
