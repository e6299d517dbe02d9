/* SPDX-License-Identifier: Apache-2.0
 * Known models: what a scenario's [model] section says for each. */
#ifndef SIM_SCENARIO_PRESETS_H
#define SIM_SCENARIO_PRESETS_H

#include "sim/scenario/scenario.h"

/* Keys that the models of a family have in common, one "key=value" each, blank-separated. */
typedef struct {
    const char *name;
    const char *settings;
} sim_preset_family_t;

typedef struct {
    const char *name;    /* "llama3-70b" */
    const char *aliases; /* blank-separated further spellings, may be "" */
    const sim_preset_family_t *family;
    uint32_t num_layers, hidden_size, ffn_hidden_size, num_attention_heads, num_query_groups;
    uint32_t kv_channels; /* 0 = hidden_size / num_attention_heads */
    uint32_t vocab_size, max_position_embeddings;
    bool untied;        /* untie_embeddings_and_output_weights */
    const char *source; /* where the dimensions were read */
    const char *more;   /* further keys, as in a family; NULL = none */
} sim_preset_t;

/* The table, for listing. */
const sim_preset_t *sim_presets(size_t *n_p);

/* By name or alias; case, '-', '_' and '.' are ignored, and so is a part before '/'
 * ("meta-llama/Meta-Llama-3-70B"). NULL when not known. */
const sim_preset_t *sim_preset_find(const char *name);

/* Suggest every key of the preset to the scenario. False, with the nearest known name appended,
 * when there is no such preset. */
bool sim_preset_apply(sim_scenario_t *scenario, const char *name, const char *origin,
                      base_diag_t *diag);

#endif
