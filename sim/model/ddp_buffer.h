/* SPDX-License-Identifier: Apache-2.0
 * Layout of a chunk's parameters in DDP's contiguous buffers, and the part of it that one
 * data-parallel rank's optimizer owns.
 * Megatron-LM megatron/core/distributed/param_and_grad_buffer.py, optimizer/param_layout.py. */
#ifndef SIM_MODEL_DDP_BUFFER_H
#define SIM_MODEL_DDP_BUFFER_H

#include "sim/model/params.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    bool distributed_optimizer; /* pads starts to 64 elements and bucket ends for the shards */
    uint64_t n_shards;          /* ranks that share the optimizer state; 1 without it */
    uint64_t bucket_elements;   /* a bucket closes when it has this many; 0 = one bucket */
    bool pad_for_busbw;         /* ddp_pad_buckets_for_high_nccl_busbw */
    bool by_cost; /* layer-wise buffers: balance what an update costs, not elements; fill padding */
} sim_ddp_config_t;

typedef struct {
    uint64_t start, end; /* elements in the buffer */
} sim_ddp_range_t;

typedef struct {
    sim_ddp_range_t *params;  /* one per parameter, same index as in sim_params_t; owned */
    sim_ddp_range_t *buckets; /* n_buckets, padded; owned */
    uint32_t n_params, n_buckets;
    uint64_t n_elements; /* of the whole buffer, padding included */
} sim_ddp_buffer_t;

/* What the elements of a bucket are a multiple of with the distributed optimizer. */
uint64_t sim_ddp_bucket_divisor(const sim_ddp_config_t *config);

/* Lay out the parameters of kind `which`; the others get empty ranges. */
void sim_ddp_buffer_init(sim_ddp_buffer_t *buffer, const sim_params_t *params, sim_buffer_t which,
                         const sim_ddp_config_t *config);
void sim_ddp_buffer_fini(sim_ddp_buffer_t *buffer);

/* Elements of parameter `i` that shard `shard` (< n_shards) owns: the part of the parameter that
 * lies in the shard-th equal slice of its bucket. */
uint64_t sim_ddp_buffer_shard(const sim_ddp_buffer_t *buffer, uint32_t i, uint64_t n_shards,
                              uint64_t shard);

#endif
