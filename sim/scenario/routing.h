/* SPDX-License-Identifier: Apache-2.0
 * Which layers have experts, and how unevenly tokens are spread over expert parallel ranks. */
#ifndef SIM_SCENARIO_ROUTING_H
#define SIM_SCENARIO_ROUTING_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Tokens that arrive at each expert parallel rank in each layer, as a multiple of an even share. */
typedef struct {
    uint32_t n_layers, n_ranks;
    double *loads; /* by layer * n_ranks + rank; owned */
    bool is_same_on_all_ranks;
} sim_routing_t;

typedef struct {
    uint32_t n_layers; /* decoder layers, then those of multi-token prediction */
    uint32_t n_ranks;  /* expert parallel size */
    uint32_t n_experts, topk;
} sim_routing_config_t;

/* Read the text of moe_imbalance:
 *   "1.2"                    every rank gets 1.2 times its share: the hottest rank of a job
 *   "1.3 0.9 0.8 1.0"        one factor for each expert parallel rank
 *   "tokens: 120 80 ..."     tokens of each expert, in the order of the experts
 *   "file: counts.txt"       the same for each layer: a line for each, or one for all; "-" is a
 * layer without experts, and what follows a # is a comment "dirichlet: 5 1"         each layer's
 * shares of experts drawn with concentration 5 and seed 1 "noisy_topk: 0.5 1"      each layer's
 * experts have a popularity drawn from a normal distribution of spread 0.5; tokens go to the top-k
 * of popularity plus Gumbel noise; seed 1 Seeds may be left out (1). BASE_ERR_INVAL says what is
 * wrong; *routing_p is then untouched. Free with sim_routing_destroy(). */
base_status_t sim_routing_create(sim_routing_t **routing_p, const char *text,
                                 const sim_routing_config_t *config, base_err_t *err);
void sim_routing_destroy(sim_routing_t *routing);

/* Read the text of moe_layer_freq: a number N (layers 0, N, 2N, ... have experts) or a Python list
 * of 0 and 1 such as "([0]*3+[1]*58)". NULL = "1". Fills `layer_is_moe`, n_layers of them.
 * BASE_ERR_INVAL says what is wrong. */
base_status_t sim_layer_freq_parse(const char *text, uint32_t n_layers, bool *layer_is_moe,
                                   base_err_t *err);

#endif
