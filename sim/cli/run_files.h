/* SPDX-License-Identifier: Apache-2.0
 * The files that a run writes beside its text. */
#ifndef SIM_CLI_RUN_FILES_H
#define SIM_CLI_RUN_FILES_H

#include "sim/cli/options.h"
#include "sim/report/report.h"

/* Write each file that was asked for: --json, --csv, --html, --perfetto. 0, else the exit code
 * after a message.
 */
int sim_cli_write_run_files(const sim_report_t *report, const sim_options_t *options);

/* Whether one of them goes to standard output. */
bool sim_cli_run_takes_stdout(const sim_options_t *options);

#endif
