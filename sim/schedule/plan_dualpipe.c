/* SPDX-License-Identifier: Apache-2.0
 * DualPipe and DualPipeV, step() of deepseek-ai/DualPipe: eight phases of which each rank runs a
 * number that its place gives. Without overlapped_forward_backward() of the model, a forward and a
 * backward pass that belong together run one after the other. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/schedule/plan_build.h"

#include <stdlib.h>

typedef struct {
    sim_plan_t *plan;
    uint32_t pp_rank;
    /* DualPipe: of the half of the ranks; DualPipeV: of all. */
    uint32_t n_ranks, rank;
    bool is_middle, is_reversed;
    /* Counters by direction (chunk): the next micro-batch of each kind of work. */
    uint32_t n_forward[2], n_backward[2], n_recv[2], n_recv_grad[2], n_send[2], n_send_grad[2];
    sim_plan_op_t *split; /* INPUT_GRAD passes whose gradients of weights wait, oldest first */
    uint32_t n_split, n_weight;
} run_t;

static uint32_t chunk_of(const run_t *run, uint32_t phase)
{
    return phase ^ run->is_reversed;
}

static uint32_t stage_of(const run_t *run, uint32_t chunk)
{
    return topo_stage_of(run->plan->placement, run->plan->pp, run->pp_rank, chunk);
}

static bool is_first_stage(const run_t *run, uint32_t chunk)
{
    return stage_of(run, chunk) == 0;
}

static bool is_last_stage(const run_t *run, uint32_t chunk)
{
    const sim_plan_t *plan = run->plan;
    return stage_of(run, chunk) == topo_n_stages(plan->placement, plan->pp, 2) - 1;
}

/* Where the two chunks of a rank follow each other. */
static bool is_turn(const run_t *run)
{
    return run->plan->placement == TOPO_PLACEMENT_V && run->pp_rank == run->plan->pp - 1;
}

/* Micro-batches of the direction upwards come after those of the other. */
static uint32_t add(run_t *run, sim_plan_kind_t kind, uint32_t chunk, uint32_t number)
{
    const sim_plan_t *plan = run->plan;
    bool is_upwards = plan->placement == TOPO_PLACEMENT_BOTH_WAYS && chunk == 1;
    uint32_t microbatch = number + (is_upwards ? plan->n_microbatches / 2 : 0);
    sim_plan_add(run->plan, run->pp_rank, kind, chunk, microbatch);
    return microbatch;
}

static void recv_forward(run_t *run, uint32_t phase)
{
    uint32_t chunk = chunk_of(run, phase);
    if (!is_first_stage(run, chunk) && !(is_turn(run) && chunk == 1))
        add(run, SIM_PLAN_RECV_INPUT, chunk, run->n_recv[chunk]++);
}

static void send_forward(run_t *run, uint32_t phase)
{
    uint32_t chunk = chunk_of(run, phase);
    if (!is_last_stage(run, chunk) && !(is_turn(run) && chunk == 0))
        add(run, SIM_PLAN_SEND_OUTPUT, chunk, run->n_send[chunk]++);
}

static void recv_backward(run_t *run, uint32_t phase)
{
    uint32_t chunk = chunk_of(run, phase);
    if (!is_last_stage(run, chunk) && !(is_turn(run) && chunk == 0))
        add(run, SIM_PLAN_RECV_OUTPUT_GRAD, chunk, run->n_recv_grad[chunk]++);
}

static void send_backward(run_t *run, uint32_t phase)
{
    uint32_t chunk = chunk_of(run, phase);
    if (!is_first_stage(run, chunk) && !(is_turn(run) && chunk == 1))
        add(run, SIM_PLAN_SEND_INPUT_GRAD, chunk, run->n_send_grad[chunk]++);
}

static void commit(run_t *run)
{
    add(run, SIM_PLAN_COMMIT, 0, 0);
}

static void compute_forward(run_t *run, uint32_t phase)
{
    uint32_t chunk = chunk_of(run, phase);
    add(run, SIM_PLAN_FORWARD, chunk, run->n_forward[chunk]++);
}

static void compute_backward(run_t *run, uint32_t phase, bool splits)
{
    uint32_t chunk = chunk_of(run, phase);
    uint32_t microbatch =
        add(run, splits ? SIM_PLAN_INPUT_GRAD : SIM_PLAN_BACKWARD, chunk, run->n_backward[chunk]++);
    if (splits)
        run->split[run->n_split++] =
            (sim_plan_op_t){ .chunk = (uint8_t)chunk, .microbatch = microbatch };
}

static void forward_chunk(run_t *run, uint32_t phase, bool recv, bool send)
{
    if (recv)
        recv_forward(run, phase);
    commit(run);
    compute_forward(run, phase);
    if (send)
        send_forward(run, phase);
}

static void backward_chunk(run_t *run, uint32_t phase, bool splits, bool send)
{
    recv_backward(run, phase);
    commit(run);
    compute_backward(run, phase, splits);
    if (send)
        send_backward(run, phase);
}

static void forward_backward_chunk(run_t *run, uint32_t forward, uint32_t backward, bool recv)
{
    if (recv)
        recv_forward(run, forward);
    recv_backward(run, backward);
    commit(run);
    compute_forward(run, forward);
    compute_backward(run, backward, false);
    send_forward(run, forward);
    send_backward(run, backward);
}

static void weight_chunk(run_t *run)
{
    commit(run);
    const sim_plan_op_t *op = &run->split[run->n_weight++];
    sim_plan_add(run->plan, run->pp_rank, SIM_PLAN_WEIGHT_GRAD, op->chunk, op->microbatch);
}

/* The two variants send what phase 0 has made at different places. */
static void both_forward(run_t *run)
{
    bool sends_first = run->plan->schedule == SIM_SCHEDULE_DUALPIPE && run->is_middle;
    recv_forward(run, 0);
    for (uint32_t i = 0; i < run->rank + 1; i++) {
        forward_chunk(run, 0, false, sends_first);
        recv_forward(run, 0);
        forward_chunk(run, 1, true, !run->is_middle || i < run->rank);
        if (!sends_first)
            send_forward(run, 0);
    }
}

static void steady(run_t *run, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 && run->is_middle) {
            forward_chunk(run, 0, false, false);
            send_forward(run, 1);
            backward_chunk(run, 1, false, false);
            send_forward(run, 0);
            send_backward(run, 1);
        } else {
            forward_backward_chunk(run, 0, 1, i > 0);
        }
        forward_backward_chunk(run, 1, 0, true);
    }
}

/* From the middle on the gradients of weights are put off; which of the two passes begins with it
 * is the rank's parity. */
static void drain(run_t *run)
{
    uint32_t n = run->rank + 1;
    for (uint32_t i = 0; i < n; i++) {
        bool is_odd = run->rank % 2 == 1;
        backward_chunk(run, 1, i > n / 2 || (i == n / 2 && is_odd), true);
        backward_chunk(run, 0, i >= n / 2, true);
    }
}

static void fill_rank(run_t *run, uint32_t n_microbatches)
{
    uint32_t n_after = run->n_ranks - run->rank - 1;
    for (uint32_t i = 0; i < 2 * n_after; i++)
        forward_chunk(run, 0, true, true);
    both_forward(run);
    for (uint32_t i = 0; i < n_after; i++) {
        backward_chunk(run, 1, true, true);
        recv_forward(run, 1);
        weight_chunk(run);
        forward_chunk(run, 1, false, true);
    }
    steady(run, n_microbatches - 2 * run->n_ranks + run->rank + 1);
    for (uint32_t i = 0; i < n_after; i++) {
        backward_chunk(run, 1, false, true);
        forward_backward_chunk(run, 1, 0, true);
    }
    drain(run);
    for (uint32_t i = 0; i < n_after; i++) {
        weight_chunk(run);
        backward_chunk(run, 0, true, true);
    }
    for (uint32_t i = 0; i < run->rank + 1; i++)
        weight_chunk(run);
    commit(run);
}

void sim_plan_fill_dualpipe(sim_plan_t *plan)
{
    bool both = plan->schedule == SIM_SCHEDULE_DUALPIPE;
    run_t run = { .plan = plan, .n_ranks = both ? plan->pp / 2 : plan->pp };
    run.split = base_xcalloc((size_t)2 * plan->n_microbatches, sizeof(*run.split));
    for (uint32_t r = 0; r < plan->pp; r++) {
        run_t one = { .plan = plan, .pp_rank = r, .n_ranks = run.n_ranks, .split = run.split };
        one.is_reversed = both && r >= plan->pp / 2;
        one.rank = one.is_reversed ? plan->pp - 1 - r : r;
        one.is_middle = one.rank == one.n_ranks - 1;
        fill_rank(&one, both ? plan->n_microbatches / 2 : plan->n_microbatches);
    }
    free(run.split);
}
