/* SPDX-License-Identifier: Apache-2.0
 * The forward and backward tape of one model chunk, and its parameters. */
#ifndef SIM_MODEL_CHUNK_H
#define SIM_MODEL_CHUNK_H

#include "sim/model/params.h"
#include "sim/model/tape.h"

typedef struct {
    topo_chunk_t place;
    sim_params_t params;
    sim_tape_t forward, backward;
    sim_tensor_t *tensors; /* what sim_op_t.tensor of both tapes indexes; owned */
    uint32_t n_tensors;
    uint32_t n_slots;
    uint64_t in_bytes, out_bytes; /* hidden states that come from and go to other stages */
} sim_chunk_t;

/* Build both tapes of the rank at `tp_rank` of its tensor-parallel group. Persistent buffers are
 * registered in `persistent`, shared by a rank's chunks.
 */
void sim_chunk_init(sim_chunk_t *chunk, const sim_scenario_t *scenario, const sim_dims_t *dims,
                    const topo_chunk_t *place, uint32_t tp_rank, sim_persistent_t *persistent);
void sim_chunk_fini(sim_chunk_t *chunk);

#endif
