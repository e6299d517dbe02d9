/* SPDX-License-Identifier: Apache-2.0
 * How a plan is made. Private to sim/schedule. */
#ifndef SIM_SCHEDULE_PLAN_BUILD_H
#define SIM_SCHEDULE_PLAN_BUILD_H

#include "sim/schedule/plan.h"

void sim_plan_add(sim_plan_t *plan, uint32_t pp_rank, sim_plan_kind_t kind, uint32_t chunk,
                  uint32_t microbatch);

/* The passes alone, on ranks that are empty so far. */
void sim_plan_fill_zb_h1(sim_plan_t *plan);
void sim_plan_fill_zbv(sim_plan_t *plan);
void sim_plan_fill_building_block(sim_plan_t *plan); /* V-half, V-min */

/* Passes and messages. */
void sim_plan_fill_dualpipe(sim_plan_t *plan);

/* Put the messages between the passes as they are timed with passes of one unit. */
void sim_plan_add_messages(sim_plan_t *plan);

/* When each pass of a plan ends. */
typedef struct {
    uint64_t forward, input_grad, weight_grad, message;
} sim_plan_costs_t;

/* Ends by rank, then by place in the rank's list; messages end when they are posted. Free with
 * sim_plan_ends_free(). */
uint64_t **sim_plan_ends(const sim_plan_t *plan, const sim_plan_costs_t *costs);
void sim_plan_ends_free(const sim_plan_t *plan, uint64_t **ends);

/* Whether the op is a pass, not a message. */
static inline bool sim_plan_is_pass(const sim_plan_op_t *op)
{
    return op->kind <= SIM_PLAN_BACKWARD;
}

/* The pass whose result a FORWARD, INPUT_GRAD or BACKWARD needs from another stage. False: it needs
 * none but what its rank has itself. */
bool sim_plan_source(const sim_plan_t *plan, uint32_t pp_rank, const sim_plan_op_t *op,
                     uint32_t *pp_rank_p, uint32_t *chunk_p);

#endif
