/* SPDX-License-Identifier: Apache-2.0
 * The results of playing one trace under several settings, side by side. */
#ifndef SIM_STUDY_REPLAY_REPORT_H
#define SIM_STUDY_REPLAY_REPORT_H

#include "sim/study/replay.h"

#include <jansson.h>
#include <stdio.h>

typedef struct {
    const char *conf; /* as sim_alloc_create() */
    const char *note; /* what sets the row apart, NULL: nothing */
    sim_replay_result_t result;
} sim_replay_row_t;

typedef struct {
    const char *name;                /* of the trace */
    uint64_t n_calls, n_allocations; /* of the trace */
    uint32_t n_streams;
    sim_device_config_t device;
    const sim_replay_row_t *rows;
    size_t n_rows;
} sim_replay_report_t;

void sim_replay_print(const sim_replay_report_t *report, FILE *out);

/* "schema": "mbsim.replay/1". The caller owns the result. */
json_t *sim_replay_json(const sim_replay_report_t *report);

#endif
