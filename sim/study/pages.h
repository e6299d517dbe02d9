/* SPDX-License-Identifier: Apache-2.0
 * What sim_page_write() shows of studies. `command` is how the page was asked for, for people; the
 * caller owns what is returned. */
#ifndef SIM_STUDY_PAGES_H
#define SIM_STUDY_PAGES_H

#include "sim/study/sweep_file.h"

#include <jansson.h>

enum { SIM_PAGE_MAX_LAYOUTS = 20000 };

/* The layouts of a sweep: the first SIM_PAGE_MAX_LAYOUTS, those that fit before the others. */
json_t *sim_page_sweep(const sim_sweep_rows_t *rows, const char *name, const char *command);

/* Two reports: `diff` is "mbsim.diff/1". */
json_t *sim_page_diff(const json_t *diff, const char *command);

#endif
