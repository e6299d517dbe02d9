/* SPDX-License-Identifier: Apache-2.0
 * How long the passes of a model chunk take on one GPU: a roofline. Each matrix product lasts as
 * long as its FLOPs at the GPU's attainable rate or its bytes at the memory's, whichever is more;
 * everything else lasts as long as its bytes. Communication of tensor, expert and context
 * parallelism counts where nothing hides it. What the host needs is in sim/model/host.h. */
#ifndef SIM_MODEL_COST_H
#define SIM_MODEL_COST_H

#include "collectives/cost.h"
#include "sim/model/dims.h"

/* Seconds. A backward pass has what is recomputed in it. */
typedef struct {
    double forward, backward;           /* whole passes, exposed communication included */
    double forward_comm, backward_comm; /* exposed communication in them */
    /* A backward pass in two: without the gradients of weights, and those. */
    double input_grad, input_grad_comm, weight_grad;
} sim_pass_cost_t;

typedef struct {
    const sim_scenario_t *scenario;
    const sim_dims_t *dims;
    coll_network_t network;
    coll_reach_t tp, cp, ep, etp, dp, edp; /* groups of rank 0; dp with context parallelism */
    double bf16_flops, fp8_flops;          /* attainable, a second */
    double memory_bytes_per_s;             /* attainable */
} sim_cost_t;

/* Borrows both arguments. */
sim_cost_t sim_cost_of(const sim_scenario_t *scenario, const sim_dims_t *dims);

/* One pass of one micro-batch through `chunk`. */
sim_pass_cost_t sim_cost_pass(const sim_cost_t *cost, const topo_chunk_t *chunk);

/* Of one optimizer step over `n_elements` parameters of this rank. */
double sim_cost_optimizer_seconds(const sim_cost_t *cost, uint64_t n_elements);

/* FLOPs of one training step of the whole job: forward, and twice that backward; attention is
 * counted as causal; nothing recomputed. */
double sim_cost_model_flops(const sim_cost_t *cost);

#endif
