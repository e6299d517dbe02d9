/* SPDX-License-Identifier: Apache-2.0
 * hybrid_layer_pattern: a letter for each layer, | between pipeline stages; then, for each depth of
 * multi-token prediction, a / and the letters of its layers, which are the same for all depths.
 * Source: Megatron-LM models/hybrid/hybrid_layer_allocation.py. */
#ifndef SIM_SCENARIO_HYBRID_PATTERN_H
#define SIM_SCENARIO_HYBRID_PATTERN_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint32_t n_layers, n_stages; /* of the decoder; n_stages 1 = no | */
    uint32_t n_depths;           /* of multi-token prediction */
    uint32_t n_depth_layers;     /* of each; 1 without */
    uint8_t *kinds; /* sim_layer_kind_t of all layers, those of the depths last; owned */
    bool *is_moe;   /* of all layers; owned */
    char *layout;   /* the stages as pipeline_model_parallel_layout; owned */
} sim_hybrid_t;

/* BASE_ERR_INVAL names the letter or depth that is wrong; *hybrid_p is then empty. Free with
 * sim_hybrid_fini(). */
base_status_t sim_hybrid_parse(sim_hybrid_t *hybrid_p, const char *pattern, base_err_t *err);

/* Takes a zeroed struct too. */
void sim_hybrid_fini(sim_hybrid_t *hybrid);

#endif
