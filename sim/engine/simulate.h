/* SPDX-License-Identifier: Apache-2.0
 * Play one rank of a job: build the model, wrap it, build the optimizer, run the iterations. */
#ifndef SIM_ENGINE_SIMULATE_H
#define SIM_ENGINE_SIMULATE_H

#include "sim/base/err.h"
#include "sim/engine/account.h"
#include "sim/engine/observe.h"
#include "sim/memory/caching_allocator.h"
#include "sim/scenario/scenario.h"

#include <stdbool.h>
#include <stdint.h>

/* State at the end of an iteration; the maxima are since the start of the process. */
typedef struct {
    uint64_t allocated_bytes, reserved_bytes;
    uint64_t max_allocated_bytes, max_reserved_bytes;
} sim_iteration_t;

/* What a moment beside the steps held at most (sim/engine/moments.h). */
typedef struct {
    uint8_t which; /* sim_phase_t */
    uint64_t max_allocated_bytes, max_reserved_bytes;
} sim_extra_t;

enum { SIM_NAME_MAX = 48, SIM_MAX_EXTRAS = 3 };

/* A tensor alive at the peak, or when a request failed. */
typedef struct {
    char name[SIM_NAME_MAX];
    uint64_t block_bytes; /* what the allocator charged */
    uint32_t block;       /* allocator's handle: tells tensors of one name apart */
    uint32_t microbatch;
    uint16_t chunk, layer;
    uint8_t category, module, phase; /* phase in which it was made */
} sim_alive_t;

typedef struct {
    uint32_t rank;
    topo_coord_t coord;
    uint64_t n_parameters; /* elements on this rank, all chunks */

    sim_iteration_t *iterations; /* n_iterations completed ones; owned */
    uint32_t n_iterations;
    sim_extra_t extras[SIM_MAX_EXTRAS]; /* n_extras, in order */
    uint32_t n_extras;

    uint64_t max_allocated_bytes, max_reserved_bytes;
    sim_moment_t allocated_moment, reserved_moment;
    sim_holders_t at_peak; /* who holds max_allocated_bytes */
    uint64_t n_allocator_ops;
    uint64_t n_alloc_retries;
    sim_mempools_t mempools; /* of CUDA graphs, at the end */
    uint64_t host_bytes; /* in host memory, at most: optimizer state and offloaded activations */

    bool is_out_of_memory;
    sim_moment_t oom_moment;
    char oom_tensor[SIM_NAME_MAX];
    uint64_t oom_requested_bytes; /* as asked for, before rounding */
    sim_oom_t oom;
    sim_holders_t at_oom; /* who held the memory when the request failed */

    /* What it would have taken on a device without end; need_is_known: that had an end too. */
    bool has_need, need_is_known;
    uint64_t need_allocated_bytes, need_reserved_bytes;

    /* Alive at the peak, or out of memory: when the request failed. Largest first, only with
     * want_alive; owned. */
    sim_alive_t *alive;
    uint32_t n_alive;
} sim_rank_result_t;

typedef struct {
    bool unlimited;  /* the device never runs out: for comparing with measurements */
    bool want_alive; /* list what is alive at the peak; costs playing a second time up to it */
    bool want_need;  /* when memory runs out, play on: has_need, unless settings of the allocator
                      * depend on the size of the device or it has given its cache back before */
    bool plays_all;  /* also what repeats to the byte; the result is the same */
    sim_observer_t observer; /* sees every operation but those of iterations that repeat */
} sim_simulate_options_t;

/* `scenario` is resolved. Out of memory of the device is a result (is_out_of_memory), not an error.
 * BASE_ERR_INVAL: allocator settings or schedule that PyTorch or Megatron-LM refuse;
 * BASE_ERR_OVERFLOW: a size beyond 64 bits. *result_p is set on success only; free with
 * sim_rank_result_fini(). `options` may be NULL. */
base_status_t sim_simulate_rank(const sim_scenario_t *scenario, uint32_t rank,
                                const sim_simulate_options_t *options, sim_rank_result_t *result_p,
                                base_err_t *err);
void sim_rank_result_fini(sim_rank_result_t *result);

#endif
