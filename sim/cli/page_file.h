/* SPDX-License-Identifier: Apache-2.0
 * Pages for a browser. */
#ifndef SIM_CLI_PAGE_FILE_H
#define SIM_CLI_PAGE_FILE_H

#include "sim/cli/options.h"
#include "sim/study/sweep_file.h"

#include <jansson.h>

/* The command line as a shell reads it back, options first; the caller frees. */
char *sim_cli_command_text(const sim_options_t *options);

/* Write `page`, which is taken over, to options->html; `text` is for browsers without scripts. 0,
 * else the exit code after a message. */
int sim_cli_write_page(const sim_options_t *options, json_t *page, const char *text);

/* The page of a sweep, named after the first operand. As above. */
int sim_cli_write_sweep_page(const sim_options_t *options, const sim_sweep_rows_t *rows);

#endif
