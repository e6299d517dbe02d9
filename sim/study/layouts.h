/* SPDX-License-Identifier: Apache-2.0
 * Every combination of the values of [sweep]: which are legal, and which rule the others break. */
#ifndef SIM_STUDY_LAYOUTS_H
#define SIM_STUDY_LAYOUTS_H

#include "sim/scenario/scenario.h"

/* A rule and the combinations that break it (each is counted for one rule, its first). */
typedef struct {
    const char *rule; /* static */
    uint64_t n;
    char *example; /* the message for the first of them; owned, NULL = none was made */
} sim_broken_rule_t;

typedef struct {
    const sim_scenario_t *base; /* borrowed, not resolved */
    sim_sweep_axis_t *axes;     /* as in the base, with "auto" written out; values owned */
    size_t n_axes;
    uint64_t n_combinations;
    uint64_t *legal; /* numbers of the n_legal legal combinations, ascending; owned */
    uint64_t n_legal;
    sim_broken_rule_t *broken; /* n_broken, most frequent first; owned */
    size_t n_broken;
} sim_layouts_t;

enum { SIM_LAYOUTS_MAX = 20000000 }; /* combinations */

/* Set up the axes of base->sweep without looking at any combination. BASE_ERR_INVAL: no axis, too
 * many combinations, or axes that say the same twice. Free with sim_layouts_fini(), which takes a
 * zeroed struct too. */
base_status_t sim_layouts_init(sim_layouts_t *layouts_p, const sim_scenario_t *base,
                               base_err_t *err);
void sim_layouts_fini(sim_layouts_t *layouts);

/* Fill in legal and broken: resolves every combination whose sizes fit its world_size. */
void sim_layouts_check(sim_layouts_t *layouts);

/* The value that `combination` gives axis `a`. */
const char *sim_layouts_value(const sim_layouts_t *layouts, uint64_t combination, size_t a);

/* A scenario that is moved from combination to combination. */
typedef struct {
    const sim_layouts_t *layouts;
    sim_scenario_t scenario;
    uint64_t combination; /* where it stands; UINT64_MAX = nowhere yet */
} sim_layout_cursor_t;

/* Free with sim_layout_cursor_fini(). */
void sim_layout_cursor_init(sim_layout_cursor_t *cursor, const sim_layouts_t *layouts);
void sim_layout_cursor_fini(sim_layout_cursor_t *cursor);

/* cursor->scenario becomes that combination, resolved. False, with the reasons appended to `diag`
 * and scenario.broken_rule set, when it is not legal. */
bool sim_layout_cursor_move(sim_layout_cursor_t *cursor, uint64_t combination, base_diag_t *diag);

#endif
