/* SPDX-License-Identifier: Apache-2.0
 * What sim/scenario knows about each key of a scenario beside its value. For this folder only. */
#ifndef SIM_SCENARIO_STATE_H
#define SIM_SCENARIO_STATE_H

#include "sim/scenario/keys.h"
#include "sim/scenario/scenario.h"

typedef enum {
    SIM_KEY_DEFAULT,
    SIM_KEY_DERIVED,   /* default, filled in by sim_scenario_resolve() from other keys */
    SIM_KEY_SUGGESTED, /* by a preset */
    SIM_KEY_GIVEN,
    SIM_KEY_WRONG, /* a wrong value was given; the field has an earlier one */
} sim_key_how_t;

typedef struct {
    sim_key_how_t how;
    char *origin; /* owned, NULL with the default */
    /* The given value did not stand, as Megatron-LM overrules it too; its bytes, to go back to when
     * the scenario is resolved again with other keys changed. */
    bool overruled;
    unsigned char given[sizeof(uint64_t)];
} sim_key_entry_t;

struct sim_key_state {
    char *name;               /* of the file read last; NULL = none */
    sim_key_entry_t *entries; /* one for every key of the table */
};

/* Place of a key in the table; asserts that it is there. */
size_t sim_key_index(const char *name);

/* Back to the default. */
void sim_key_reset(sim_scenario_t *scenario, size_t k);

/* Which key of the table is meant, aliases included, and what it is given. True with *key_p NULL
 * when the setting is accepted and changes nothing; false when the name or the switch is wrong. */
bool sim_key_resolve_name(const char *section, const char *name, const char *value,
                          const char *origin, const sim_key_t **key_p, const char **value_p,
                          base_diag_t *diag);

/* Append that there is no such section. */
void sim_section_unknown(const char *section, const char *origin, base_diag_t *diag);

#endif
