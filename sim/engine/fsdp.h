/* SPDX-License-Identifier: Apache-2.0
 * Megatron-FSDP: parameters, gradients and optimizer state in buckets that data parallel ranks
 * share; what a unit (a transformer layer) needs is gathered before it runs and let go afterwards.
 * Megatron-LM megatron/core/distributed/fsdp/src/megatron_fsdp/{megatron_fsdp,
 * param_and_grad_buffer}.py, version 1. */
#ifndef SIM_ENGINE_FSDP_H
#define SIM_ENGINE_FSDP_H

#include "sim/engine/player.h"

/* Part of a layer, or of a module outside the layers, with one size on all ranks. */
typedef struct {
    uint32_t unit;       /* layer of the chunk; SIM_UNIT_HEAD: outside the layers */
    bool is_expert;      /* reduced over the expert data parallel group */
    bool is_distributed; /* more than one rank shares it */
    uint8_t parts;       /* outside the layers: FSDP_EMBEDDING | FSDP_HEAD that have a part of it */
    uint64_t n_elements; /* padded */
    uint64_t n_owned;    /* of the shard */
} sim_fsdp_bucket_t;

enum { FSDP_EMBEDDING = 1, FSDP_HEAD = 2 };

/* Temporary storage of a bucket. */
typedef struct {
    sim_tensor_t tensor;
    sim_block_t block;
    int pool;        /* place in the pool of double buffers, -1 = allocated on its own */
    bool releasable; /* weights: let go when the next are gathered */
} sim_fsdp_storage_t;

typedef struct sim_fsdp {
    sim_fsdp_bucket_t *buckets; /* n of them, in the order in which they are gathered; owned */
    uint32_t n;
    uint64_t prefetch_elements, queue_elements; /* limits */
    sim_fsdp_storage_t *weights, *grads;        /* by bucket; owned */
    uint8_t *parts_done;                        /* by bucket: gradients of these modules exist */
    uint32_t *queue;                            /* buckets whose gradients are being reduced */
    uint32_t n_queue, queue_cap;
    bool *is_doubled;          /* by bucket: its storage is one of two; owned */
    sim_fsdp_storage_t *pools; /* weights, then gradients: two for each place in a unit; owned */
    uint32_t n_places;
    bool *is_taken; /* by pool */
} sim_fsdp_t;

/* Buckets of a chunk. `bucket_elements` limits those outside the layers, 0 = no limit. */
sim_fsdp_t *sim_fsdp_create(const sim_scenario_t *scenario, const sim_params_t *params,
                            const topo_chunk_t *place, uint64_t bucket_elements);
void sim_fsdp_destroy(sim_fsdp_t *fsdp); /* takes NULL */

/* Parts of a run; false as in player.h. */
bool sim_fsdp_build(sim_player_t *p); /* buffers instead of DDP's; after the model's parameters */
bool sim_fsdp_event(sim_player_t *p, sim_player_chunk_t *chunk, sim_unit_event_t event,
                    uint32_t unit);
bool sim_fsdp_step(sim_player_t *p, bool is_skipped);

#endif
