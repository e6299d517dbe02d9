/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/schedule/frame.h"

#include "sim/base/xmem.h"

#include <assert.h>
#include <stdlib.h>

enum { OUTPUT_ALIVE = 1 << 0, HAS_INPUT_GRAD = 1 << 1 };

void sim_frame_init(sim_frame_t *frame, const sim_order_config_t *config)
{
    size_t n_passes = (size_t)config->vpp * config->n_microbatches;
    *frame = (sim_frame_t){ .config = config };
    for (int kind = 0; kind < 4; kind++)
        frame->refs[kind] = base_xcalloc(n_passes, sizeof(uint32_t));
    frame->state = base_xcalloc(n_passes, 1);
    frame->held = base_xcalloc(config->vpp, sizeof(frame->held[0]));
    for (uint32_t chunk = 0; chunk < config->vpp; chunk++)
        frame->held[chunk] = SIM_PASS_NONE;
}

void sim_frame_fini(sim_frame_t *frame, sim_order_t *order)
{
    order->steps = frame->steps;
    order->n = frame->n;
    for (int kind = 0; kind < 4; kind++)
        free(frame->refs[kind]);
    free(frame->state);
    free(frame->held);
    *frame = (sim_frame_t){ 0 };
}

sim_pass_t sim_frame_pass(const sim_frame_t *frame, uint32_t chunk, uint32_t microbatch)
{
    return (sim_pass_t)chunk * frame->config->n_microbatches + microbatch;
}

static uint32_t chunk_of(const sim_frame_t *frame, sim_pass_t pass)
{
    return (uint32_t)(pass / frame->config->n_microbatches);
}

bool sim_frame_has_input(const sim_frame_t *frame, sim_pass_t pass)
{
    return sim_order_has_input(frame->config, chunk_of(frame, pass));
}

bool sim_frame_has_loss(const sim_frame_t *frame, sim_pass_t pass)
{
    return sim_order_has_loss(frame->config, chunk_of(frame, pass));
}

void sim_frame_emit(sim_frame_t *frame, sim_step_kind_t kind, sim_pass_t pass, uint8_t flags)
{
    if (frame->n == frame->capacity) {
        frame->capacity = frame->capacity == 0 ? 64 : frame->capacity * 2;
        frame->steps = base_xrealloc(frame->steps, frame->capacity, sizeof(frame->steps[0]));
    }
    frame->steps[frame->n++] = (sim_step_t){
        .kind = (uint8_t)kind,
        .flags = flags,
        .chunk = (uint16_t)chunk_of(frame, pass),
        .microbatch = (uint32_t)(pass % frame->config->n_microbatches),
    };
}

static bool exists(const sim_frame_t *frame, sim_ref_t kind, sim_pass_t pass)
{
    if (pass == SIM_PASS_NONE)
        return false;
    switch (kind) {
    case SIM_REF_INPUT:
    case SIM_REF_INPUT_GRAD:
        return sim_frame_has_input(frame, pass);
    case SIM_REF_OUTPUT:
        return true;
    case SIM_REF_OUTPUT_GRAD:
        return !sim_frame_has_loss(frame, pass);
    }
    return false;
}

/* On the last rank of a V the input of chunk 1 is the output of chunk 0 in another Python object,
 * and the output grad of chunk 0 is the input grad of chunk 1. */
static sim_pass_t turned(const sim_frame_t *frame, uint32_t chunk, sim_pass_t pass)
{
    if (pass == SIM_PASS_NONE || !sim_order_is_turn(frame->config) ||
        chunk_of(frame, pass) != chunk)
        return SIM_PASS_NONE;
    sim_pass_t n = frame->config->n_microbatches;
    return chunk == 0 ? pass + n : pass - n;
}

static void resolve(const sim_frame_t *frame, sim_ref_t *kind, sim_pass_t *pass)
{
    sim_pass_t after = *kind == SIM_REF_OUTPUT_GRAD ? turned(frame, 0, *pass) : SIM_PASS_NONE;
    if (after == SIM_PASS_NONE)
        return;
    *kind = SIM_REF_INPUT_GRAD;
    *pass = after;
}

/* The memory of an output goes when neither it nor the input that shares it is there. */
static void free_output(sim_frame_t *frame, sim_pass_t pass)
{
    sim_pass_t after = turned(frame, 0, pass);
    frame->state[pass] &= (uint8_t)~OUTPUT_ALIVE;
    if (after == SIM_PASS_NONE || frame->refs[SIM_REF_INPUT][after] == 0)
        sim_frame_emit(frame, SIM_STEP_FREE_OUTPUT, pass, 0);
}

static void free_input(sim_frame_t *frame, sim_pass_t pass)
{
    sim_pass_t before = turned(frame, 1, pass);
    if (before == SIM_PASS_NONE)
        sim_frame_emit(frame, SIM_STEP_FREE_INPUT, pass, 0);
    else if (!(frame->state[before] & OUTPUT_ALIVE))
        sim_frame_emit(frame, SIM_STEP_FREE_OUTPUT, before, 0);
}

void sim_frame_ref(sim_frame_t *frame, sim_ref_t kind, sim_pass_t pass)
{
    resolve(frame, &kind, &pass);
    if (exists(frame, kind, pass))
        frame->refs[kind][pass]++;
}

void sim_frame_unref(sim_frame_t *frame, sim_ref_t kind, sim_pass_t pass)
{
    resolve(frame, &kind, &pass);
    if (!exists(frame, kind, pass))
        return;
    assert(frame->refs[kind][pass] > 0);
    if (--frame->refs[kind][pass] > 0)
        return;
    /* A tensor lets go of its gradient and its graph before its own memory
     * (c10::TensorImpl::release_resources()). */
    switch (kind) {
    case SIM_REF_INPUT:
        if (frame->state[pass] & HAS_INPUT_GRAD)
            sim_frame_unref(frame, SIM_REF_INPUT_GRAD, pass);
        free_input(frame, pass);
        break;
    case SIM_REF_OUTPUT:
        sim_frame_unref(frame, SIM_REF_INPUT, pass); /* the graph goes with its head */
        if (frame->state[pass] & OUTPUT_ALIVE)
            free_output(frame, pass);
        break;
    case SIM_REF_OUTPUT_GRAD:
        sim_frame_emit(frame, SIM_STEP_FREE_OUTPUT_GRAD, pass, 0);
        break;
    case SIM_REF_INPUT_GRAD:
        sim_frame_emit(frame, SIM_STEP_FREE_INPUT_GRAD, pass, 0);
        break;
    }
}

void sim_frame_assign(sim_frame_t *frame, sim_ref_t kind, sim_pass_t *variable, sim_pass_t pass)
{
    sim_pass_t old = *variable;
    sim_frame_ref(frame, kind, pass);
    *variable = pass;
    sim_frame_unref(frame, kind, old);
}

/* The block drops the input that it held when it is given the next one (set_input_tensor()). */
static void hold_input(sim_frame_t *frame, sim_pass_t pass)
{
    uint32_t chunk = chunk_of(frame, pass);
    if (frame->held[chunk] == SIM_PASS_NONE) {
        sim_pass_t last = sim_frame_pass(frame, chunk, frame->config->n_microbatches - 1);
        sim_pass_t before = turned(frame, 1, last);
        sim_frame_emit(frame, SIM_STEP_FREE_INPUT_GRAD, last, SIM_STEP_OF_PREVIOUS);
        if (before == SIM_PASS_NONE)
            sim_frame_emit(frame, SIM_STEP_FREE_INPUT, last, SIM_STEP_OF_PREVIOUS);
        else
            sim_frame_emit(frame, SIM_STEP_FREE_OUTPUT, before, SIM_STEP_OF_PREVIOUS);
    }
    sim_frame_assign(frame, SIM_REF_INPUT, &frame->held[chunk], pass);
}

void sim_frame_forward(sim_frame_t *frame, sim_pass_t pass, uint32_t recompute_index)
{
    const sim_order_config_t *config = frame->config;
    uint8_t flags = 0;
    if (config->pp > 1 && config->n_partial_checkpoints > 0 &&
        recompute_index % (sim_order_n_warmup(config) + 1) >= config->n_partial_checkpoints)
        flags = SIM_STEP_RECOMPUTE_ALL;
    if (sim_frame_has_input(frame, pass) && !frame->lets_go)
        hold_input(frame, pass);
    sim_frame_emit(frame, SIM_STEP_FORWARD, pass, flags);
    frame->state[pass] |= OUTPUT_ALIVE;
    sim_frame_ref(frame, SIM_REF_INPUT, pass); /* by the graph */
}

void sim_frame_hand_over(sim_frame_t *frame, sim_pass_t pass)
{
    sim_frame_ref(frame, SIM_REF_INPUT, turned(frame, 0, pass));
}

void sim_frame_backward(sim_frame_t *frame, sim_pass_t pass, uint8_t flags)
{
    sim_frame_emit(frame, SIM_STEP_BACKWARD, pass, flags);
    if (!sim_frame_has_input(frame, pass))
        return;
    frame->state[pass] |= HAS_INPUT_GRAD;
    sim_frame_ref(frame, SIM_REF_INPUT_GRAD, pass); /* by input.grad */
}

void sim_frame_deallocate(sim_frame_t *frame, sim_pass_t pass)
{
    if (!frame->config->deallocate_outputs || pass == SIM_PASS_NONE ||
        !(frame->state[pass] & OUTPUT_ALIVE))
        return;
    free_output(frame, pass);
}

void sim_frame_exchange(sim_frame_t *frame, const sim_exchange_t *exchange, bool wait)
{
    const struct {
        sim_step_kind_t post, wait;
        sim_pass_t pass;
    } parts[] = {
        { SIM_STEP_RECV_FORWARD, SIM_STEP_WAIT_RECV_FORWARD, exchange->recv_prev },
        { SIM_STEP_RECV_BACKWARD, SIM_STEP_WAIT_RECV_BACKWARD, exchange->recv_next },
        { SIM_STEP_SEND_BACKWARD, SIM_STEP_WAIT_SEND_BACKWARD, exchange->send_prev },
        { SIM_STEP_SEND_FORWARD, SIM_STEP_WAIT_SEND_FORWARD, exchange->send_next },
    };
    for (int i = 0; i < 4; i++) {
        if (parts[i].pass != SIM_PASS_NONE)
            sim_frame_emit(frame, parts[i].post, parts[i].pass, 0);
    }
    for (int i = 0; wait && i < 4; i++) {
        if (parts[i].pass != SIM_PASS_NONE)
            sim_frame_emit(frame, parts[i].wait, parts[i].pass, 0);
    }
}
