/* SPDX-License-Identifier: Apache-2.0
 * The part of a rank's coordinates that its program depends on. Everything that is played is made
 * from the scenario and a place alone, so ranks at equal places have equal results. */
#ifndef SIM_ENGINE_PLACE_H
#define SIM_ENGINE_PLACE_H

#include "sim/model/params.h"
#include "sim/scenario/scenario.h"

#include <stdint.h>

/* Part of the optimizer state that a rank holds. */
typedef struct {
    uint64_t n_shards; /* ranks that share it; 1 without distributed optimizer */
    uint64_t shard;    /* this rank's share */
} sim_share_t;

typedef struct {
    uint32_t pp;            /* pipeline rank */
    uint32_t tp;            /* 0 = first of its tensor-parallel group, 1 = any other */
    uint32_t ep;            /* expert parallel rank, 0 where routing is the same on all */
    uint32_t dp;            /* data parallel rank, 0 where their micro-batches are alike */
    uint64_t outside_bytes; /* on its device, not PyTorch's: sim_outside_bytes() */
    sim_share_t dense, expert;
} sim_place_t;

/* Which share the parameters of a buffer have. */
static inline const sim_share_t *sim_place_share(const sim_place_t *place, sim_buffer_t buffer)
{
    return sim_buffer_is_expert(buffer) ? &place->expert : &place->dense;
}

/* `coord` lies in the scenario's grid. */
sim_place_t sim_place_of(const sim_scenario_t *scenario, const topo_coord_t *coord);

/* The place without shares and outside_bytes: all that the model chunks, tapes and order depend on.
 */
sim_place_t sim_place_program(const sim_place_t *place);

/* Total order, pipeline ranks first, outside_bytes and shares last; 0 = equal. */
int sim_place_compare(const sim_place_t *a, const sim_place_t *b);

#endif
