/* SPDX-License-Identifier: Apache-2.0
 * Memory of one rank from its first tensor to its last, in bounded room: however long the run,
 * every stretch of it keeps its lowest and its highest point. */
#ifndef SIM_ENGINE_TIMELINE_H
#define SIM_ENGINE_TIMELINE_H

#include "sim/engine/simulate.h"

/* A point of the run: right after operation `op` (allocations and frees, from 1). */
typedef struct {
    uint64_t op;
    uint64_t allocated_bytes; /* the sum of by_category */
    uint64_t reserved_bytes;
    uint64_t by_category[SIM_N_CATEGORIES];
} sim_sample_t;

/* ops_per_bucket operations (the last bucket: as many as were left). */
typedef struct {
    sim_sample_t low, high;      /* of allocated bytes; each the first of its height */
    uint64_t max_reserved_bytes; /* highest in the bucket */
} sim_bucket_t;

/* What the rank did in operations [begin_op, end_op]. Neighbours are joined when there are too
 * many. */
typedef struct {
    uint64_t begin_op, end_op;
    uint32_t first_iteration, last_iteration;   /* 0: before the first */
    uint32_t first_microbatch, last_microbatch; /* 0 outside forward and backward */
    uint16_t first_chunk, last_chunk;
    uint16_t phases; /* bit i: sim_phase_t i */
} sim_stretch_t;

typedef struct {
    uint32_t max_buckets, max_stretches; /* even, >= 2 */
    bool unlimited;                      /* as in sim_simulate_options_t */
    bool want_alive;
} sim_timeline_options_t;

typedef struct {
    uint64_t n_ops; /* that were played: iterations that repeat the one before are not */
    uint64_t ops_per_bucket;
    sim_bucket_t *buckets; /* n_buckets; owned */
    uint32_t n_buckets, max_buckets;
    sim_stretch_t *stretches; /* n_stretches; owned */
    uint32_t n_stretches, max_stretches;
    uint32_t last_iteration; /* the last one that was played */
    sim_sample_t now;
} sim_timeline_t;

/* Play `rank` and write down how its memory went. *result_p (may be NULL) is that of the same play.
 * Fails as sim_simulate_rank() does, and leaves both untouched. Free with sim_timeline_fini(). */
base_status_t sim_timeline_rank(const sim_scenario_t *scenario, uint32_t rank,
                                const sim_timeline_options_t *options, sim_timeline_t *timeline_p,
                                sim_rank_result_t *result_p, base_err_t *err);

/* Takes a zeroed struct too. */
void sim_timeline_fini(sim_timeline_t *timeline);

#endif
