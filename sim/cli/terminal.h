/* SPDX-License-Identifier: Apache-2.0
 * What standard output is: colour and bars are for people in front of a terminal. */
#ifndef SIM_CLI_TERMINAL_H
#define SIM_CLI_TERMINAL_H

#include <stdbool.h>

/* A terminal that shows colours, whose user did not set NO_COLOR (https://no-color.org). */
bool sim_terminal_has_colour(void);

/* Width of the terminal; 0 when standard output is none. */
int sim_terminal_columns(void);

#endif
