/* SPDX-License-Identifier: Apache-2.0
 * hybrid_layer_pattern: a letter for each layer, | between pipeline stages.
 * Source: Megatron-LM models/hybrid/hybrid_layer_allocation.py. */
#ifndef SIM_SCENARIO_HYBRID_PATTERN_H
#define SIM_SCENARIO_HYBRID_PATTERN_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t n_layers, n_stages; /* n_stages 1 = no | */
    uint8_t *kinds;              /* sim_layer_kind_t, n_layers of them; owned */
    bool *is_moe;                /* n_layers of them; owned */
    char *layout;                /* the stages as pipeline_model_parallel_layout; owned */
} sim_hybrid_t;

/* BASE_ERR_INVAL names the letter that is wrong; *hybrid_p is then empty. Free with
 * sim_hybrid_fini(). */
base_status_t sim_hybrid_parse(sim_hybrid_t *hybrid_p, const char *pattern, base_err_t *err);

/* Takes a zeroed struct too. */
void sim_hybrid_fini(sim_hybrid_t *hybrid);

#endif
