/* SPDX-License-Identifier: Apache-2.0
 * Golden runs: what the real allocator did with a trace, compared with what ours does. */
#ifndef SIM_STUDY_REPLAY_CHECK_H
#define SIM_STUDY_REPLAY_CHECK_H

#include "sim/base/diag.h"
#include "sim/base/err.h"

#include <stddef.h>
#include <stdio.h>

typedef struct {
    size_t n_runs, n_agree;
} sim_replay_check_t;

/* Play every run that the index lists (tests/data/allocator/README describes the formats) and
 * compare with its expected text; the first difference of each run that differs goes to `out`, one
 * line. Paths in the index are relative to the folder above the index's own.
 * BASE_ERR_PARSE, BASE_ERR_IO: an input cannot be used, `diag` says which and why. */
base_status_t sim_replay_check(const char *index_path, FILE *out, sim_replay_check_t *result,
                               base_diag_t *diag);

#endif
