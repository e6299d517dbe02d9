/* SPDX-License-Identifier: Apache-2.0
 * Dimensions of a model from the config.json that Hugging Face keeps beside it. */
#ifndef SIM_SCENARIO_HF_CONFIG_H
#define SIM_SCENARIO_HF_CONFIG_H

#include "sim/scenario/scenario.h"

/* Suggest to the scenario what the file at `path` says. False, with the reason appended, when it
 * cannot be read, is not such a file, or describes a model that is not simulated. */
bool sim_hf_config_apply(sim_scenario_t *scenario, const char *path, const char *origin,
                         base_diag_t *diag);

/* The same for a text that is already in memory, called `name`. A wrong file goes to `errors`; what
 * the model has and the simulation does not, to `unsupported`, one feature a line. */
bool sim_hf_config_read(sim_scenario_t *scenario, const char *name, const char *text, size_t length,
                        base_diag_t *errors, base_diag_t *unsupported);

#endif
