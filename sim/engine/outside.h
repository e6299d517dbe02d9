/* SPDX-License-Identifier: Apache-2.0
 * The ledger of a device's memory outside PyTorch's allocator: CUDA context, libraries, NCCL's
 * communicators one by one, user buffers. With what PyTorch has reserved it is what nvidia-smi
 * shows. */
#ifndef SIM_ENGINE_OUTSIDE_H
#define SIM_ENGINE_OUTSIDE_H

#include "collectives/comm.h"
#include "sim/scenario/scenario.h"

enum { SIM_OUTSIDE_STEPS = COLL_MAX_USES + 1, SIM_OUTSIDE_NAME = 48 };

/* What a line grew by, and when. */
typedef struct {
    const char *what; /* "creation", "all-gather", ... */
    coll_moment_t at;
    uint64_t bytes;
} sim_outside_step_t;

typedef struct {
    char name[SIM_OUTSIDE_NAME];
    uint64_t bytes, low, high; /* in the end, and the bounds of what it may be */
    coll_moment_t at;          /* when it appears */
    const char *source;        /* of the figure */
    bool is_communicator, is_buffer;
    coll_spread_t spread; /* of a communicator */
    coll_channels_t channels;
    sim_outside_step_t steps[SIM_OUTSIDE_STEPS]; /* of a communicator; they add up to bytes */
    uint32_t n_steps;
} sim_outside_line_t;

typedef struct {
    sim_outside_line_t *lines; /* in order of time; owned */
    uint32_t n_lines;
    uint64_t bytes, low, high; /* sums over the lines */
} sim_outside_t;

/* The ledger of `rank` (< world size) of a resolved scenario. An explicit reserved_outside_bytes is
 * the only line; without estimate_outside there is none. Free with sim_outside_fini(). */
void sim_outside_init(sim_outside_t *outside_p, const sim_scenario_t *scenario, uint32_t rank);
void sim_outside_fini(sim_outside_t *outside);

/* Its sum alone. */
uint64_t sim_outside_bytes(const sim_scenario_t *scenario, uint32_t rank);

/* What PyTorch can have beside so much: 0 when nothing is left. */
uint64_t sim_outside_usable(const sim_scenario_t *scenario, uint64_t outside_bytes);

/* What the scenario says to NCCL, and what decides about communicators. */
void sim_outside_nccl(const sim_scenario_t *scenario, coll_nccl_t *nccl_p);
void sim_outside_job(const sim_scenario_t *scenario, const topo_coord_t *coord, coll_job_t *job_p);

#endif
