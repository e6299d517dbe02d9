/* SPDX-License-Identifier: Apache-2.0
 * The passes of every pipeline rank, in order, of schedules that run the gradients of weights as
 * passes of their own, and the messages between them.
 *
 * Sources: Qi et al. 2023 (Zero Bubble Pipeline Parallelism), Qi et al. 2024 (Pipeline Parallelism
 * with Controllable Memory) and their Megatron-LM fork sail-sg/zero-bubble-pipeline-parallelism,
 * megatron/core/pipeline_parallel/zerobubble/scheduler/{zbv,zbv_greedy,communication}.py;
 * deepseek-ai/DualPipe, dualpipe/{dualpipe,dualpipev}.py.
 *
 * Orders that are searched for are searched with forward, input-gradient and weight-gradient passes
 * of equal length, as the papers count, and with an activation that is held from the forward to the
 * weight-gradient pass. */
#ifndef SIM_SCHEDULE_PLAN_H
#define SIM_SCHEDULE_PLAN_H

#include "sim/base/err.h"
#include "sim/scenario/schedules.h"

#include <stddef.h>
#include <stdint.h>

typedef enum {
    SIM_PLAN_FORWARD,
    SIM_PLAN_INPUT_GRAD,  /* B of the papers: backward without the gradients of weights */
    SIM_PLAN_WEIGHT_GRAD, /* W: the gradients of weights of an earlier INPUT_GRAD */
    SIM_PLAN_BACKWARD,    /* both in one */
    SIM_PLAN_RECV_INPUT,
    SIM_PLAN_RECV_OUTPUT_GRAD,
    SIM_PLAN_SEND_OUTPUT,
    SIM_PLAN_SEND_INPUT_GRAD,
    SIM_PLAN_COMMIT /* wait for all messages since the last one; DualPipe only */
} sim_plan_kind_t;

typedef struct {
    uint8_t kind; /* sim_plan_kind_t */
    uint8_t chunk;
    uint32_t microbatch; /* of the iteration; in both directions the later half goes upwards */
} sim_plan_op_t;

typedef struct {
    sim_plan_op_t *ops; /* n of them, owned */
    size_t n, capacity;
} sim_plan_rank_t;

typedef struct {
    sim_schedule_t schedule;
    topo_placement_t placement;
    uint32_t pp, n_chunks, n_microbatches;
    sim_plan_rank_t *ranks; /* pp of them, owned */
} sim_plan_t;

/* Passes that a plan may have over all ranks: bounds its memory at about 200 MB. */
enum { SIM_PLAN_MAX_PASSES = 1 << 23 };

/* Make the plan of a schedule that splits. BASE_ERR_INVAL names the rule that pp or the number of
 * micro-batches breaks; BASE_ERR_UNSUPPORTED beyond SIM_PLAN_MAX_PASSES; *plan_p is then untouched.
 * Free with sim_plan_fini(). Cost: see tests/bench_schedule.c. */
base_status_t sim_plan_init(sim_plan_t *plan_p, sim_schedule_t schedule, uint32_t pp,
                            uint32_t n_microbatches, base_err_t *err);

/* Takes a zeroed struct too. */
void sim_plan_fini(sim_plan_t *plan);

/* Most passes between a FORWARD and the end of its backward, its WEIGHT_GRAD where it is split,
 * that `pp_rank` holds at a time. */
uint32_t sim_plan_in_flight(const sim_plan_t *plan, uint32_t pp_rank);

/* Length of the iteration over all ranks with passes of these lengths; messages take `message`. */
uint64_t sim_plan_span(const sim_plan_t *plan, uint64_t forward, uint64_t input_grad,
                       uint64_t weight_grad, uint64_t message);

#endif
