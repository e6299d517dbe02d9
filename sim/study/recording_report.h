/* SPDX-License-Identifier: Apache-2.0
 * What a snapshot recorded, beside what playing it gave, and what it cannot tell. */
#ifndef SIM_STUDY_RECORDING_REPORT_H
#define SIM_STUDY_RECORDING_REPORT_H

#include "sim/study/recording.h"
#include "sim/study/replay.h"

#include <jansson.h>
#include <stdio.h>

typedef struct {
    const sim_recording_t *recording;
    const sim_snapshot_t *snapshot;
    size_t device;
    const sim_replay_result_t *played; /* under the recorded settings */
} sim_recording_report_t;

void sim_recording_print(const sim_recording_report_t *report, FILE *out);

/* The caller owns the result. */
json_t *sim_recording_json(const sim_recording_report_t *report);

#endif
