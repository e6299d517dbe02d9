/* SPDX-License-Identifier: Apache-2.0
 * How data parallel ranks share the optimizer's state, and which optimizer has which parameter.
 * Megatron-LM optimizer/{__init__,emerging_optimizers,layer_wise_optimizer}.py,
 * training/training.py (wrap_model_chunks_with_ddp). */
#ifndef SIM_MODEL_SHARDING_H
#define SIM_MODEL_SHARDING_H

#include "sim/model/params.h"

typedef enum {
    SIM_SHARDING_NONE,   /* every rank has all of it */
    SIM_SHARDING_RANGES, /* distributed optimizer: an equal slice of every bucket */
    /* Layer-wise: matrices are kept whole, in buffers laid out so that slices end between them;
     * the rest is sliced. */
    SIM_SHARDING_WHOLE,
    /* Layer-wise without such a layout: whole parameters are dealt out by size; they stay tensors
     * of their own, and all ranks send each other theirs after the step. */
    SIM_SHARDING_DEALT,
    SIM_SHARDING_UNITS, /* fully sharded: use_megatron_fsdp, use_torch_fsdp2 */
} sim_sharding_t;

sim_sharding_t sim_sharding_of(const sim_scenario_t *scenario);

/* Parameters lie in DDP's buffer instead of being tensors of their own. */
static inline bool sim_sharding_has_param_buffer(sim_sharding_t sharding)
{
    return sharding == SIM_SHARDING_RANGES || sharding == SIM_SHARDING_WHOLE;
}

/* Muon updates the parameter: a matrix, and neither embedding nor output layer. The others are its
 * scalar optimizer's. */
bool sim_param_is_orthogonalized(const sim_scenario_t *scenario, const sim_param_t *param);

/* Deal the parameters of all `n_chunks` chunks to the ranks of the dense and of the expert group,
 * smallest first, there and back again. owners[c][i] becomes the rank that has parameter i of chunk
 * c; the arrays are the caller's, chunks[c]->n long. */
void sim_sharding_deal(const sim_scenario_t *scenario, const sim_params_t *const *chunks,
                       uint32_t n_chunks, uint64_t n_dense, uint64_t n_expert, uint64_t **owners);

#endif
