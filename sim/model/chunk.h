/* SPDX-License-Identifier: Apache-2.0
 * The tapes of one model chunk, and its parameters. */
#ifndef SIM_MODEL_CHUNK_H
#define SIM_MODEL_CHUNK_H

#include "sim/model/params.h"
#include "sim/model/tape.h"

/* What sim_op_t.tensor of tapes that are played together indexes. */
typedef struct {
    sim_tensor_t *tensors; /* n of them, owned */
    uint32_t n;
} sim_tape_tensors_t;

/* A backward pass that leaves the gradients of weights for one of their own. The forward tape is
 * the same. */
typedef struct {
    sim_tape_t backward, weights;
    sim_tape_tensors_t of;
    uint32_t borders; /* bit i: `weights` reads the tensor in fixed slot i */
} sim_split_tapes_t;

typedef struct {
    topo_chunk_t place;
    sim_params_t params;
    sim_tape_t forward, backward;
    sim_tape_tensors_t of;   /* forward and backward */
    sim_split_tapes_t split; /* empty unless the schedule splits */
    /* With graphs of layers: the passes once these have been captured, and the graphs. */
    sim_tape_t graphed_forward, graphed_backward;
    sim_cuda_graphs_t graphs;
    uint32_t n_slots;
    uint64_t in_bytes, out_bytes; /* hidden states that come from and go to other stages */
} sim_chunk_t;

/* Build the tapes of the rank at `tp_rank` of its tensor-parallel group. Persistent buffers are
 * registered in `persistent`, shared by a rank's chunks.
 */
void sim_chunk_init(sim_chunk_t *chunk, const sim_scenario_t *scenario, const sim_dims_t *dims,
                    const topo_chunk_t *place, uint32_t tp_rank, sim_persistent_t *persistent);
/* A forward pass of evaluation: without dropout, recomputation and offloading, and nothing is
 * saved. Parameters and backward tape stay empty. The model is a GPT without multi-token
 * prediction. */
void sim_chunk_init_evaluation(sim_chunk_t *chunk, const sim_scenario_t *scenario,
                               const sim_dims_t *dims, const topo_chunk_t *place, uint32_t tp_rank,
                               sim_persistent_t *persistent);

void sim_chunk_fini(sim_chunk_t *chunk);

#endif
