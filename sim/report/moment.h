/* SPDX-License-Identifier: Apache-2.0
 * Moments of a run as text. */
#ifndef SIM_REPORT_MOMENT_H
#define SIM_REPORT_MOMENT_H

#include "sim/engine/account.h"

#include <stdbool.h>

enum { SIM_MOMENT_TEXT = 128 };

/* "iteration 2, forward of micro-batch 3, chunk 1, layer 17, fc1"; the chunk only with
 * `has_chunks`. Returns `buf`. */
const char *sim_moment_words(const sim_moment_t *moment, bool has_chunks,
                             char buf[static SIM_MOMENT_TEXT]);

/* "i2 fwd m3 c1 l17 fc1". Returns `buf`. */
const char *sim_moment_short(const sim_moment_t *moment, bool has_chunks,
                             char buf[static SIM_MOMENT_TEXT]);

/* Whether micro-batch and chunk mean something at this moment. */
bool sim_moment_is_in_pass(const sim_moment_t *moment);

#endif
