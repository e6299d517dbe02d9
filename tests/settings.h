/* SPDX-License-Identifier: Apache-2.0
 * Scenarios of CUnit tests: settings that a suite starts from (`base`), and what a test adds. A
 * setting is "section.key=value" or "key=value". A text has several, with blanks between them; a
 * list ends with NULL, and its values may have blanks. */
#ifndef TESTS_SETTINGS_H
#define TESTS_SETTINGS_H

#include "sim/scenario/scenario.h"

#include <stdbool.h>

/* Resolve into *s_p, which is for sim_scenario_fini() in any case. False: not legal; the reasons
 * are added to `diag`. */
bool settings_resolve(sim_scenario_t *s_p, const char *base, const char *more, base_diag_t *diag);
bool settings_resolve_lists(sim_scenario_t *s_p, const char *const *base, const char *const *more,
                            base_diag_t *diag);

/* The same of a job that has to be legal: otherwise the test ends, and says why. */
void settings_accepted(sim_scenario_t *s_p, const char *base, const char *more);
void settings_accepted_lists(sim_scenario_t *s_p, const char *const *base, const char *const *more);

/* The job is refused, with a reason that has `message` in it. */
void settings_refused(const char *base, const char *more, const char *message);
void settings_refused_lists(const char *const *base, const char *const *more, const char *message);

#endif
