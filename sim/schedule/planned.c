/* SPDX-License-Identifier: Apache-2.0
 * The steps of one rank in a plan: what holds its border tensors is what the variables and lists of
 * the framework hold (zerobubble/runtime.py, schedule_f_impl() and schedule_b_impl(); dualpipe.py
 * and dualpipev.py, which are alike). */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/schedule/frame.h"

#include <stdlib.h>

typedef struct {
    sim_frame_t *frame;
    bool commits; /* DualPipe: messages wait for the next COMMIT */
    /* Messages since the last COMMIT; owned. */
    const sim_plan_op_t **pending;
    size_t n_pending, cap_pending;
} run_t;

static sim_pass_t pass_of(const run_t *run, const sim_plan_op_t *op)
{
    return sim_frame_pass(run->frame, op->chunk, op->microbatch);
}

/* The last rank of a V hands what chunk 0 has made over to chunk 1, and gradients back. */
static bool is_local(const run_t *run, uint32_t chunk)
{
    return sim_order_is_turn(run->frame->config) && chunk == 1;
}

static void forward(run_t *run, const sim_plan_op_t *op, uint32_t number)
{
    sim_frame_t *frame = run->frame;
    sim_pass_t pass = pass_of(run, op);
    if (!run->commits && sim_frame_has_input(frame, pass) && !is_local(run, op->chunk))
        sim_frame_emit(frame, SIM_STEP_WAIT_RECV_FORWARD, pass, 0);
    sim_frame_forward(frame, pass, number);
    sim_frame_ref(frame, SIM_REF_OUTPUT, pass); /* by the list of outputs */
    if (!sim_order_is_turn(frame->config) || op->chunk != 0)
        return;
    sim_frame_hand_over(frame, pass);
    if (!run->commits)
        sim_frame_deallocate(frame, pass);
}

/* Python drops the local variables of the function in the order in which they were made. */
static void backward(run_t *run, const sim_plan_op_t *op)
{
    sim_frame_t *frame = run->frame;
    sim_pass_t pass = pass_of(run, op);
    bool from_here = sim_order_is_turn(frame->config) && op->chunk == 0;
    if (!run->commits && !sim_frame_has_loss(frame, pass) && !from_here)
        sim_frame_emit(frame, SIM_STEP_WAIT_RECV_BACKWARD, pass, 0);
    sim_frame_backward(frame, pass, op->kind == SIM_PLAN_INPUT_GRAD ? SIM_STEP_SPLIT : 0);
    sim_frame_ref(frame, SIM_REF_INPUT_GRAD, pass); /* by the list of what is sent */
    if (!run->commits)
        sim_frame_unref(frame, SIM_REF_INPUT, pass);
    sim_frame_unref(frame, SIM_REF_OUTPUT, pass);
    sim_frame_unref(frame, SIM_REF_OUTPUT_GRAD, pass);
    if (run->commits)
        sim_frame_unref(frame, SIM_REF_INPUT, pass);
}

/* A receive is allocated when it is asked for, and a list holds it from then on. */
static void receive(run_t *run, const sim_plan_op_t *op)
{
    bool is_input = op->kind == SIM_PLAN_RECV_INPUT;
    sim_pass_t pass = pass_of(run, op);
    sim_frame_emit(run->frame, is_input ? SIM_STEP_RECV_FORWARD : SIM_STEP_RECV_BACKWARD, pass, 0);
    sim_frame_ref(run->frame, is_input ? SIM_REF_INPUT : SIM_REF_OUTPUT_GRAD, pass);
}

static void post_send(run_t *run, const sim_plan_op_t *op)
{
    bool is_output = op->kind == SIM_PLAN_SEND_OUTPUT;
    sim_frame_emit(run->frame, is_output ? SIM_STEP_SEND_FORWARD : SIM_STEP_SEND_BACKWARD,
                   pass_of(run, op), 0);
}

/* The sender lets go of what it has sent. */
static void sent(run_t *run, const sim_plan_op_t *op)
{
    if (op->kind == SIM_PLAN_SEND_OUTPUT)
        sim_frame_deallocate(run->frame, pass_of(run, op));
    else
        sim_frame_unref(run->frame, SIM_REF_INPUT_GRAD, pass_of(run, op));
}

static void add_pending(run_t *run, const sim_plan_op_t *op)
{
    if (run->n_pending == run->cap_pending) {
        run->cap_pending = run->cap_pending * 2 + 8;
        run->pending = base_xrealloc(run->pending, run->cap_pending, sizeof(*run->pending));
    }
    run->pending[run->n_pending++] = op;
}

static sim_step_kind_t wait_for(const sim_plan_op_t *op)
{
    switch ((sim_plan_kind_t)op->kind) {
    case SIM_PLAN_RECV_INPUT:
        return SIM_STEP_WAIT_RECV_FORWARD;
    case SIM_PLAN_RECV_OUTPUT_GRAD:
        return SIM_STEP_WAIT_RECV_BACKWARD;
    case SIM_PLAN_SEND_OUTPUT:
        return SIM_STEP_WAIT_SEND_FORWARD;
    default:
        return SIM_STEP_WAIT_SEND_BACKWARD;
    }
}

static bool is_send(const sim_plan_op_t *op)
{
    return op->kind == SIM_PLAN_SEND_OUTPUT || op->kind == SIM_PLAN_SEND_INPUT_GRAD;
}

/* _commit_and_wait_comm() */
static void commit(run_t *run)
{
    for (size_t i = 0; i < run->n_pending; i++) {
        if (is_send(run->pending[i]))
            post_send(run, run->pending[i]);
    }
    for (size_t i = 0; i < run->n_pending; i++)
        sim_frame_emit(run->frame, wait_for(run->pending[i]), pass_of(run, run->pending[i]), 0);
    for (size_t i = 0; i < run->n_pending; i++) {
        if (is_send(run->pending[i]))
            sent(run, run->pending[i]);
    }
    run->n_pending = 0;
}

static void message(run_t *run, const sim_plan_op_t *op)
{
    if (!is_send(op))
        receive(run, op);
    if (run->commits) {
        add_pending(run, op);
    } else if (is_send(op)) {
        post_send(run, op);
        sent(run, op);
    }
}

/* Gradients that nobody takes: of the embedding's input there is none, and one that goes to chunk 0
 * of the same rank is taken there. */
void sim_planned_run(sim_frame_t *frame, const sim_plan_t *plan)
{
    const sim_plan_rank_t *rank = &plan->ranks[frame->config->pp_rank];
    run_t run = { .frame = frame };
    run.commits =
        plan->schedule == SIM_SCHEDULE_DUALPIPE || plan->schedule == SIM_SCHEDULE_DUALPIPEV;
    frame->lets_go = run.commits;
    uint32_t n_forward = 0;
    for (size_t i = 0; i < rank->n; i++) {
        const sim_plan_op_t *op = &rank->ops[i];
        switch ((sim_plan_kind_t)op->kind) {
        case SIM_PLAN_FORWARD:
            forward(&run, op, n_forward++);
            break;
        case SIM_PLAN_INPUT_GRAD:
        case SIM_PLAN_BACKWARD:
            backward(&run, op);
            break;
        case SIM_PLAN_WEIGHT_GRAD:
            sim_frame_emit(frame, SIM_STEP_WEIGHT_GRAD, pass_of(&run, op), 0);
            break;
        case SIM_PLAN_COMMIT:
            commit(&run);
            break;
        default:
            message(&run, op);
            break;
        }
    }
    sim_frame_emit(frame, SIM_STEP_FINALIZE_GRADS, 0, 0);
    free(run.pending);
}
