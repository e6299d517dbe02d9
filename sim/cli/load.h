/* SPDX-License-Identifier: Apache-2.0
 * From the command line to a resolved scenario. */
#ifndef SIM_CLI_LOAD_H
#define SIM_CLI_LOAD_H

#include "sim/cli/options.h"
#include "sim/scenario/scenario.h"

/* Print every message on its own line, as it stands ("job.ini:12: ..."), rank 0 alone. */
void sim_cli_print_diag(const base_diag_t *diag);

/* Read `path` ("-" = standard input), apply --set and --mode, resolve. Also wrong is mode = live,
 * which run and sweep alone have a use for. 0, else the exit code, after all that is wrong was
 * printed. *scenario_p is always initialised; free it with sim_scenario_fini(). */
int sim_cli_load(const char *path, const sim_options_t *options, sim_scenario_t *scenario_p);

/* The same without resolving: for a scenario whose [sweep] has yet to complete it. */
int sim_cli_read(const char *path, const sim_options_t *options, sim_scenario_t *scenario_p);

/* As sim_cli_load() for every process of the run together: process 0 alone reads and speaks, all
 * get the same scenario or the same code. mode = live is as good as any. */
int sim_cli_load_everywhere(const char *path, const sim_options_t *options,
                            sim_scenario_t *scenario_p);

/* Warn that this command leaves out what [sweep] says, if it says anything. */
void sim_cli_warn_sweep(const sim_scenario_t *scenario, const char *command);

#endif
