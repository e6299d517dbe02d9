/* SPDX-License-Identifier: Apache-2.0
 * A job on real memory: with backend = host or cuda every rank is played operation by operation on
 * a device that takes its segments from the machine or from a GPU. Nothing is left out: neither
 * ranks that are equal nor iterations and micro-batches that repeat. */
#ifndef SIM_ENGINE_REAL_H
#define SIM_ENGINE_REAL_H

#include "collectives/placement.h"
#include "collectives/world.h"
#include "sim/engine/communicators.h"
#include "sim/engine/job.h"
#include "sim/memory/store.h"

enum { SIM_REAL_HOST = 64 };

/* One GPU, or the memory of one machine. */
typedef struct {
    char host[SIM_REAL_HOST];
    sim_store_facts_t facts;
    uint32_t n_ranks, n_processes;
    uint64_t rank_bytes; /* that each of its ranks may take, the store's bytes */
    uint64_t used_before;
    /* When all ranks were through and had given nothing back yet. */
    uint64_t held_account_bytes, held_own_bytes;
    /* After all was given back: used then less used_before; a GPU's includes what others do. */
    int64_t left_bytes;
} sim_real_pool_t;

typedef struct {
    uint32_t rank;
    uint32_t pool;                 /* index */
    uint64_t model_reserved_bytes; /* peak of the rank on the synthetic device */
    uint64_t max_allocated_bytes, max_reserved_bytes;
    /* Where processes share the GPU own_bytes is NVML's figure of this process, and is_measured is
     * false if NVML does not tell it. */
    sim_device_own_t own;
    bool is_out_of_memory;
    bool is_model_out_of_memory;
    sim_moment_t oom_moment;
    char oom_tensor[SIM_NAME_MAX];
    uint64_t oom_requested_bytes;
    uint64_t n_allocator_ops;
    uint64_t n_alloc_retries; /* went on only after the cache was given back */
} sim_real_rank_t;

typedef struct {
    uint64_t scale;
    sim_real_pool_t *pools; /* owned */
    sim_real_rank_t *ranks; /* by ascending rank, those that were played; owned */
    uint32_t n_pools, n_ranks;
    sim_communicators_t communicators; /* with backend = cuda */
    coll_placement_t placement;        /* with backend = cuda and options->bind; else n = 0 */
} sim_real_t;

/* Play the ranks that are not skipped on the backend of the scenario, all processes together. The
 * job as the model has it is needed on process 0, which gets *real_p; the others get zeros.
 * BASE_ERR_IO on every process, with one line of text: the backend cannot be used, there are more
 * ranks than GPUs, the ranks need more memory than they may take, or a call failed; all is given
 * back then, too. Fails also as sim_job_play_together() does. Free with sim_real_fini(). */
base_status_t sim_real_play(const sim_scenario_t *scenario, coll_world_t *world,
                            const sim_job_t *job, const sim_job_options_t *options,
                            sim_real_t *real_p, base_err_t *err);
void sim_real_fini(sim_real_t *real);

/* Ranks that ran out of memory on the backend. */
uint32_t sim_real_n_out_of_memory(const sim_real_t *real);

#endif
