/* SPDX-License-Identifier: Apache-2.0
 * How torchtitan splits layers over pipeline stages. For this folder only. */
#ifndef SIM_SCENARIO_TITAN_STAGES_H
#define SIM_SCENARIO_TITAN_STAGES_H

#include "sim/scenario/scenario.h"

/* The split as a pipeline_model_parallel_layout; NULL without a pipeline, and where the sizes make
 * none (rules say why). The caller frees. */
char *sim_titan_layout(const sim_scenario_t *scenario);

#endif
