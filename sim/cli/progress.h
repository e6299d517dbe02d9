/* SPDX-License-Identifier: Apache-2.0
 * One line on standard error about long work: how much is done, how fast, and for how long still.
 */
#ifndef SIM_CLI_PROGRESS_H
#define SIM_CLI_PROGRESS_H

#include "sim/cli/options.h"

#include <stdint.h>
#include <time.h>

typedef struct {
    const char *command, *things; /* "sweep", "layouts" */
    bool is_wanted, is_tty, is_shown;
    struct timespec start, last;
} sim_progress_t;

/* By --progress: always, never, or, with auto, on a terminal unless --quiet. Only process 0 speaks.
 * Texts are borrowed. */
void sim_progress_init(sim_progress_t *progress, const sim_options_t *options, const char *command,
                       const char *things);

/* To be called often, with a sim_progress_t as `arg`: shows something five times a second on a
 * terminal, else every five seconds, and when everything is done. */
void sim_progress_show(uint64_t n_done, uint64_t n_todo, void *arg);

/* Take the line off the terminal, before anything else is printed. */
void sim_progress_end(sim_progress_t *progress);

#endif
