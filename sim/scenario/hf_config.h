/* SPDX-License-Identifier: Apache-2.0
 * Dimensions of a dense model from the config.json that Hugging Face keeps beside it. */
#ifndef SIM_SCENARIO_HF_CONFIG_H
#define SIM_SCENARIO_HF_CONFIG_H

#include "sim/scenario/scenario.h"

/* Suggest to the scenario what the file at `path` says. False, with the reason appended, when it
 * cannot be read, is not such a file, or describes a kind of model that is not simulated. */
bool sim_hf_config_apply(sim_scenario_t *scenario, const char *path, const char *origin,
                         base_diag_t *diag);

#endif
