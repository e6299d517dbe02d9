/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/schedule/order.h"

#include "sim/schedule/frame.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

static uint32_t group_size(const sim_order_config_t *config)
{
    return config->group_size == 0 ? config->pp : config->group_size;
}

static uint32_t stage_of(const sim_order_config_t *config, uint32_t chunk)
{
    return topo_stage_of(sim_schedule_placement(config->schedule), config->pp, config->pp_rank,
                         chunk);
}

bool sim_order_has_input(const sim_order_config_t *config, uint32_t chunk)
{
    return stage_of(config, chunk) > 0;
}

bool sim_order_has_loss(const sim_order_config_t *config, uint32_t chunk)
{
    topo_placement_t placement = sim_schedule_placement(config->schedule);
    return stage_of(config, chunk) == topo_n_stages(placement, config->pp, config->vpp) - 1;
}

bool sim_order_is_turn(const sim_order_config_t *config)
{
    return sim_schedule_placement(config->schedule) == TOPO_PLACEMENT_V &&
           config->pp_rank == config->pp - 1;
}

/* get_pp_rank_microbatches() */
uint32_t sim_order_n_warmup(const sim_order_config_t *config)
{
    uint64_t total = (uint64_t)config->n_microbatches * config->vpp;
    uint64_t n = config->pp - config->pp_rank - 1;
    if (config->vpp > 1)
        n = n * 2 + (uint64_t)(config->vpp - 1) * group_size(config);
    return (uint32_t)(n < total ? n : total);
}

/* ---- no pipelining ---- */

static void run_alone(sim_frame_t *frame)
{
    sim_pass_t output = SIM_PASS_NONE;
    for (uint32_t i = 0; i < frame->config->n_microbatches; i++) {
        sim_frame_forward(frame, i, i);
        sim_frame_assign(frame, SIM_REF_OUTPUT, &output, i);
        sim_frame_backward(frame, i, 0);
        sim_frame_assign(frame, SIM_REF_OUTPUT, &output, SIM_PASS_NONE);
    }
    sim_frame_emit(frame, SIM_STEP_FINALIZE_GRADS, 0, 0);
}

/* combined_1f1b_schedule_for_no_pipelining(). Outputs are scalars, so it does not matter when they
 * go. */
static void run_combined(sim_frame_t *frame)
{
    uint32_t n = frame->config->n_microbatches;
    sim_pass_t output = SIM_PASS_NONE;
    for (uint32_t i = 0; i < n; i++) {
        sim_frame_forward(frame, i, i);
        if (i > 0) {
            frame->steps[frame->n - 1].flags |= SIM_STEP_COMBINED;
            sim_frame_backward(frame, i - 1, SIM_STEP_COMBINED);
        }
        sim_frame_assign(frame, SIM_REF_OUTPUT, &output, i);
    }
    sim_frame_backward(frame, n - 1, 0);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &output, SIM_PASS_NONE);
    sim_frame_emit(frame, SIM_STEP_FINALIZE_GRADS, 0, 0);
}

/* ---- 1F1B. The passes are the micro-batches. ---- */

/* Variables of the function in schedules.py. */
typedef struct {
    sim_pass_t input, output, output_grad, input_grad;
} locals_t;

static bool is_first(const sim_frame_t *frame)
{
    return frame->config->pp_rank == 0;
}

static bool is_last(const sim_frame_t *frame)
{
    return frame->config->pp_rank == frame->config->pp - 1;
}

/* One exchange with the stage before, with the stage after; either side may be absent. */
static void exchange_prev(sim_frame_t *frame, locals_t *v, sim_pass_t send, sim_pass_t recv)
{
    if (is_first(frame))
        return;
    sim_frame_exchange(frame,
                       &(sim_exchange_t){ .send_prev = send,
                                          .recv_prev = recv,
                                          .send_next = SIM_PASS_NONE,
                                          .recv_next = SIM_PASS_NONE },
                       true);
    if (recv != SIM_PASS_NONE)
        sim_frame_assign(frame, SIM_REF_INPUT, &v->input, recv);
}

static void exchange_next(sim_frame_t *frame, locals_t *v, sim_pass_t send, sim_pass_t recv)
{
    if (is_last(frame))
        return;
    sim_frame_exchange(frame,
                       &(sim_exchange_t){ .send_next = send,
                                          .recv_next = recv,
                                          .send_prev = SIM_PASS_NONE,
                                          .recv_prev = SIM_PASS_NONE },
                       true);
    if (recv != SIM_PASS_NONE)
        sim_frame_assign(frame, SIM_REF_OUTPUT_GRAD, &v->output_grad, recv);
}

/* Forward, exchange with the next stage, put input and output on the lists, free the output. */
static void forward_1f1b(sim_frame_t *frame, locals_t *v, sim_pass_t pass, sim_pass_t recv)
{
    sim_frame_forward(frame, pass, (uint32_t)pass);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &v->output, pass);
    exchange_next(frame, v, pass, recv);
    sim_frame_ref(frame, SIM_REF_INPUT, pass);
    sim_frame_ref(frame, SIM_REF_OUTPUT, pass);
    sim_frame_deallocate(frame, pass);
}

/* Take input and output from the lists into the variables. */
static void pop_1f1b(sim_frame_t *frame, locals_t *v, sim_pass_t pass)
{
    sim_frame_assign(frame, SIM_REF_INPUT, &v->input, pass);
    sim_frame_unref(frame, SIM_REF_INPUT, pass);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &v->output, pass);
    sim_frame_unref(frame, SIM_REF_OUTPUT, pass);
}

static void backward_1f1b(sim_frame_t *frame, locals_t *v, sim_pass_t pass)
{
    sim_frame_backward(frame, pass, 0);
    sim_frame_assign(frame, SIM_REF_INPUT_GRAD, &v->input_grad, pass);
}

static void run_1f1b(sim_frame_t *frame)
{
    locals_t v = { SIM_PASS_NONE, SIM_PASS_NONE, SIM_PASS_NONE, SIM_PASS_NONE };
    sim_pass_t n = frame->config->n_microbatches;
    sim_pass_t n_warmup = sim_order_n_warmup(frame->config);
    for (sim_pass_t pass = 0; pass < n_warmup; pass++) {
        exchange_prev(frame, &v, SIM_PASS_NONE, pass);
        forward_1f1b(frame, &v, pass, SIM_PASS_NONE);
    }
    if (n_warmup < n)
        exchange_prev(frame, &v, SIM_PASS_NONE, n_warmup);
    for (sim_pass_t back = 0; back < n - n_warmup; back++) {
        sim_pass_t next = back + n_warmup + 1;
        forward_1f1b(frame, &v, back + n_warmup, back);
        pop_1f1b(frame, &v, back);
        backward_1f1b(frame, &v, back);
        if (next == n) {
            sim_frame_assign(frame, SIM_REF_INPUT, &v.input, SIM_PASS_NONE);
            next = SIM_PASS_NONE;
        }
        exchange_prev(frame, &v, back, next);
    }
    for (sim_pass_t back = n - n_warmup; back < n; back++) {
        pop_1f1b(frame, &v, back);
        exchange_next(frame, &v, SIM_PASS_NONE, back);
        backward_1f1b(frame, &v, back);
        exchange_prev(frame, &v, back, SIM_PASS_NONE);
    }
    sim_frame_emit(frame, SIM_STEP_FINALIZE_GRADS, 0, 0);
    sim_frame_assign(frame, SIM_REF_INPUT, &v.input, SIM_PASS_NONE);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &v.output, SIM_PASS_NONE);
    sim_frame_assign(frame, SIM_REF_OUTPUT_GRAD, &v.output_grad, SIM_PASS_NONE);
    sim_frame_assign(frame, SIM_REF_INPUT_GRAD, &v.input_grad, SIM_PASS_NONE);
}

/* ---- */

/* What forward_backward_pipelining_with_interleaving() and the argument checks refuse. */
static base_status_t check_interleaved(const sim_order_config_t *config, base_err_t *err)
{
    uint32_t group = group_size(config), m = config->n_microbatches;
    if (config->pp == 1)
        return base_err_set(err, BASE_ERR_INVAL,
                            "the interleaved schedule needs pipeline_model_parallel_size > 1");
    if (!config->overlap_p2p && config->pp == 2)
        return base_err_set(err, BASE_ERR_INVAL,
                            "the interleaved schedule without overlap of pipeline communication "
                            "needs pipeline_model_parallel_size > 2");
    if (group < config->pp || group > m)
        return base_err_set(err, BASE_ERR_INVAL,
                            "microbatch_group_size_per_virtual_pipeline_stage %" PRIu32
                            " is not between pipeline_model_parallel_size %" PRIu32
                            " and the %" PRIu32 " micro-batches of an iteration",
                            group, config->pp, m);
    if (m % group != 0 && m % group < config->pp)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%" PRIu32 " micro-batches in groups of %" PRIu32
                            " leave a last group of "
                            "%" PRIu32 ", fewer than pipeline_model_parallel_size %" PRIu32,
                            m, group, m % group, config->pp);
    return BASE_OK;
}

/* The forms of Megatron-LM's own schedules that the others do not have. */
static base_status_t check_split(const sim_order_config_t *config, base_err_t *err)
{
    if (config->overlap_p2p || config->overlap_p2p_warmup_flush || config->group_size > 0 ||
        config->n_partial_checkpoints > 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "overlap_p2p_communication, "
                            "microbatch_group_size_per_virtual_pipeline_stage and "
                            "num_microbatches_with_partial_activation_checkpoints are for "
                            "pipeline_schedule 1f1b");
    return BASE_OK;
}

static base_status_t check(const sim_order_config_t *config, base_err_t *err)
{
    if (config->n_microbatches == 0)
        return base_err_set(err, BASE_ERR_INVAL, "an iteration needs at least one micro-batch");
    if ((uint64_t)config->n_microbatches * config->vpp > SIM_ORDER_MAX_PASSES ||
        config->vpp > UINT16_MAX)
        return base_err_set(err, BASE_ERR_UNSUPPORTED,
                            "%" PRIu32 " micro-batches on %" PRIu32
                            " model chunks are more than %d passes an iteration",
                            config->n_microbatches, config->vpp, SIM_ORDER_MAX_PASSES);
    if (config->overlap_p2p && config->vpp == 1)
        return base_err_set(err, BASE_ERR_INVAL,
                            "only the interleaved schedule can overlap pipeline communication");
    if (config->combines && config->pp > 1)
        return base_err_set(err, BASE_ERR_INVAL,
                            "passes of a pipeline that take turns are not made");
    if (config->overlap_p2p_warmup_flush && !config->overlap_p2p)
        return base_err_set(
            err, BASE_ERR_INVAL,
            "overlap_p2p_comm_warmup_flush needs overlap of pipeline communication");
    return config->vpp > 1 ? check_interleaved(config, err) : BASE_OK;
}

static base_status_t init_planned(sim_order_t *order_p, const sim_order_config_t *config,
                                  base_err_t *err)
{
    sim_plan_t own = { 0 };
    base_status_t status = check_split(config, err);
    if (status == BASE_OK && config->plan == NULL)
        status = sim_plan_init(&own, config->schedule, config->pp, config->n_microbatches, err);
    if (status != BASE_OK)
        return status;
    const sim_plan_t *plan = config->plan != NULL ? config->plan : &own;
    sim_order_config_t planned = *config;
    planned.vpp = plan->n_chunks;
    /* DualPipe empties a tensor that was sent whatever is asked for (_free_tensors()). */
    planned.deallocate_outputs = config->deallocate_outputs ||
                                 config->schedule == SIM_SCHEDULE_DUALPIPE ||
                                 config->schedule == SIM_SCHEDULE_DUALPIPEV;
    sim_frame_t frame;
    sim_frame_init(&frame, &planned);
    sim_planned_run(&frame, plan);
    sim_frame_fini(&frame, order_p);
    sim_plan_fini(&own);
    return BASE_OK;
}

base_status_t sim_order_init(sim_order_t *order_p, const sim_order_config_t *config,
                             base_err_t *err)
{
    assert(config->pp > 0 && config->pp_rank < config->pp && config->vpp > 0);
    if (sim_schedule_splits(config->schedule))
        return init_planned(order_p, config, err);
    base_status_t status = check(config, err);
    if (status != BASE_OK)
        return status;
    sim_frame_t frame;
    sim_frame_init(&frame, config);
    if (config->vpp > 1)
        sim_interleaved_run(&frame);
    else if (config->pp > 1)
        run_1f1b(&frame);
    else if (config->combines)
        run_combined(&frame);
    else
        run_alone(&frame);
    sim_frame_fini(&frame, order_p);
    return BASE_OK;
}

void sim_order_fini(sim_order_t *order)
{
    free(order->steps);
    *order = (sim_order_t){ 0 };
}

void sim_order_peer(const sim_order_config_t *config, const sim_step_t *step, uint32_t *pp_rank_p,
                    uint16_t *chunk_p)
{
    bool to_next = step->kind == SIM_STEP_SEND_FORWARD || step->kind == SIM_STEP_RECV_BACKWARD ||
                   step->kind == SIM_STEP_WAIT_SEND_FORWARD ||
                   step->kind == SIM_STEP_WAIT_RECV_BACKWARD;
    topo_placement_t placement = sim_schedule_placement(config->schedule);
    uint32_t stage = topo_stage_of(placement, config->pp, config->pp_rank, step->chunk);
    uint32_t chunk = step->chunk;
    topo_stage_place(placement, config->pp, to_next ? stage + 1 : stage - 1, pp_rank_p, &chunk);
    *chunk_p = (uint16_t)chunk;
}

const char *sim_step_name(sim_step_kind_t kind)
{
    static const char *const names[SIM_N_STEPS] = {
        [SIM_STEP_FORWARD] = "forward",
        [SIM_STEP_BACKWARD] = "backward",
        [SIM_STEP_RECV_FORWARD] = "recv_forward",
        [SIM_STEP_RECV_BACKWARD] = "recv_backward",
        [SIM_STEP_SEND_FORWARD] = "send_forward",
        [SIM_STEP_SEND_BACKWARD] = "send_backward",
        [SIM_STEP_WAIT_RECV_FORWARD] = "wait_recv_forward",
        [SIM_STEP_WAIT_RECV_BACKWARD] = "wait_recv_backward",
        [SIM_STEP_WAIT_SEND_FORWARD] = "wait_send_forward",
        [SIM_STEP_WAIT_SEND_BACKWARD] = "wait_send_backward",
        [SIM_STEP_FREE_INPUT] = "free_input",
        [SIM_STEP_FREE_OUTPUT] = "free_output",
        [SIM_STEP_FREE_OUTPUT_GRAD] = "free_output_grad",
        [SIM_STEP_FREE_INPUT_GRAD] = "free_input_grad",
        [SIM_STEP_WEIGHT_GRAD] = "weight_grad",
        [SIM_STEP_FINALIZE_GRADS] = "finalize_grads",
    };
    return names[kind];
}
