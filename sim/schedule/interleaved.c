/* SPDX-License-Identifier: Apache-2.0
 * forward_backward_pipelining_with_interleaving(), in the three ways in which it communicates:
 * blocking; overlapped in the steady state; overlapped in warm-up and cool-down too. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/schedule/frame.h"

#include <assert.h>
#include <stdlib.h>

/* The state of one direction: forward receives inputs, backward receives output grads. */
typedef struct {
    bool forward;
    sim_ref_t received;   /* SIM_REF_INPUT or SIM_REF_OUTPUT_GRAD */
    uint32_t *n_received; /* by chunk: how many receives were posted */
    sim_pass_t variable;  /* input_tensor or output_tensor_grad */
    sim_pass_t *slots;    /* fwd_recv_buffer or bwd_recv_buffer */
    uint32_t n_slots;
    /* Receives and the send that were posted and not waited for; at most n_slots + 1 receives. */
    sim_pass_t *waiting;
    uint32_t n_waiting;
    sim_pass_t sending;
} direction_t;

typedef struct {
    sim_frame_t *frame;
    uint32_t total;
    uint32_t group; /* microbatch_group_size_per_vp_stage */
    direction_t f, b;
    sim_pass_t output, input_grad; /* output_tensor, input_tensor_grad */
} run_t;

static void direction_init(run_t *run, direction_t *d, bool forward, bool leading)
{
    const sim_order_config_t *config = run->frame->config;
    *d = (direction_t){
        .forward = forward,
        .received = forward ? SIM_REF_INPUT : SIM_REF_OUTPUT_GRAD,
        .n_received = base_xcalloc(config->vpp, sizeof(d->n_received[0])),
        .variable = SIM_PASS_NONE,
        /* Only the leading rank of a direction holds more than one receive at a time. */
        .n_slots = leading ? run->group - config->pp + 1 : 1,
        .sending = SIM_PASS_NONE,
    };
    d->slots = base_xcalloc(d->n_slots, sizeof(d->slots[0]));
    d->waiting = base_xcalloc(d->n_slots + 1, sizeof(d->waiting[0]));
    for (uint32_t i = 0; i < d->n_slots; i++)
        d->slots[i] = SIM_PASS_NONE;
}

static void direction_fini(run_t *run, direction_t *d)
{
    sim_frame_assign(run->frame, d->received, &d->variable, SIM_PASS_NONE);
    for (uint32_t i = 0; i < d->n_slots; i++)
        sim_frame_assign(run->frame, d->received, &d->slots[i], SIM_PASS_NONE);
    free(d->n_received);
    free(d->slots);
    free(d->waiting);
}

/* get_schedule_table(): groups of micro-batches sweep all chunks, one group after the other. */
static uint32_t chunk_at(const run_t *run, uint32_t index, bool forward)
{
    const sim_order_config_t *config = run->frame->config;
    index %= run->total;
    uint32_t first = index / (run->group * config->vpp) * run->group;
    uint32_t size = (uint32_t)base_u64_min(run->group, config->n_microbatches - first);
    uint32_t chunk = (index - first * config->vpp) / size;
    return forward ? chunk : config->vpp - 1 - chunk;
}

static sim_pass_t pass_at(const run_t *run, uint32_t index, bool forward)
{
    const sim_order_config_t *config = run->frame->config;
    uint32_t first = index / (run->group * config->vpp) * run->group;
    uint32_t size = (uint32_t)base_u64_min(run->group, config->n_microbatches - first);
    uint32_t microbatch = first + (index - first * config->vpp) % size;
    return sim_frame_pass(run->frame, chunk_at(run, index, forward), microbatch);
}

/* The direction's first rank in the pipeline: it receives from the last one, if at all. */
static bool leads(const run_t *run, const direction_t *d)
{
    const sim_order_config_t *config = run->frame->config;
    return config->pp_rank == (d->forward ? 0 : config->pp - 1);
}

/* recv_tensor_from_previous_stage(): the pass whose tensor is received beside pass `index`. */
static sim_pass_t next_receive(const run_t *run, const direction_t *d, uint32_t index)
{
    const sim_order_config_t *config = run->frame->config;
    uint32_t chunk;
    if (!leads(run, d)) {
        chunk = chunk_at(run, index + 1, d->forward);
    } else {
        /* It is ahead of the rank at the other end by pp - 1 passes. */
        if (index < config->pp - 1)
            return SIM_PASS_NONE;
        chunk = chunk_at(run, index - (config->pp - 1), d->forward);
        if (chunk == (d->forward ? config->vpp - 1 : 0))
            return SIM_PASS_NONE;
        chunk = d->forward ? chunk + 1 : chunk - 1;
    }
    return sim_frame_pass(run->frame, chunk, d->n_received[chunk]);
}

static sim_pass_t none_if(bool condition, sim_pass_t pass)
{
    return condition ? SIM_PASS_NONE : pass;
}

/* What pass `index` sends on: not the loss, not the gradient of the tokens. */
static sim_pass_t sent(const run_t *run, const direction_t *d, uint32_t index)
{
    sim_pass_t pass = pass_at(run, index, d->forward);
    if (d->forward)
        return none_if(sim_frame_has_loss(run->frame, pass), pass);
    return none_if(!sim_frame_has_input(run->frame, pass), pass);
}

/* Put a received tensor on the list from which its pass takes it. */
static void append(run_t *run, direction_t *d, sim_pass_t pass)
{
    if (pass == SIM_PASS_NONE)
        return;
    sim_frame_ref(run->frame, d->received, pass);
    d->n_received[pass / run->frame->config->n_microbatches]++;
}

/* Blocking exchange in one or both directions; the variables get what was received. */
static void exchange(run_t *run, bool assign_f, sim_pass_t send_next, sim_pass_t recv_prev,
                     bool assign_b, sim_pass_t send_prev, sim_pass_t recv_next)
{
    sim_frame_exchange(run->frame,
                       &(sim_exchange_t){ .send_next = send_next,
                                          .send_prev = send_prev,
                                          .recv_prev = recv_prev,
                                          .recv_next = recv_next },
                       true);
    if (assign_f)
        sim_frame_assign(run->frame, SIM_REF_INPUT, &run->f.variable, recv_prev);
    if (assign_b)
        sim_frame_assign(run->frame, SIM_REF_OUTPUT_GRAD, &run->b.variable, recv_next);
}

/* Post without waiting. A prefetch or an exchange stores what it will receive in the slot of pass
 * `index`; a call that only sends leaves the slots alone. */
static void post(run_t *run, direction_t *d, sim_pass_t send, sim_pass_t recv, uint32_t index,
                 bool store)
{
    sim_exchange_t e = { SIM_PASS_NONE, SIM_PASS_NONE, SIM_PASS_NONE, SIM_PASS_NONE };
    *(d->forward ? &e.send_next : &e.send_prev) = send;
    *(d->forward ? &e.recv_prev : &e.recv_next) = recv;
    sim_frame_exchange(run->frame, &e, false);
    if (store)
        sim_frame_assign(run->frame, d->received, &d->slots[index % d->n_slots], recv);
    if (recv != SIM_PASS_NONE) {
        assert(d->n_waiting <= d->n_slots);
        d->waiting[d->n_waiting++] = recv;
    }
}

/* Wait for the oldest posted receive, if there is one. */
static void wait_receive(run_t *run, direction_t *d)
{
    if (d->n_waiting == 0)
        return;
    sim_frame_emit(run->frame,
                   d->forward ? SIM_STEP_WAIT_RECV_FORWARD : SIM_STEP_WAIT_RECV_BACKWARD,
                   d->waiting[0], 0);
    d->n_waiting--;
    for (uint32_t i = 0; i < d->n_waiting; i++)
        d->waiting[i] = d->waiting[i + 1];
}

/* Wait for the posted send, and remember `next` as the posted one. */
static void wait_send(run_t *run, direction_t *d, sim_pass_t next)
{
    if (d->sending != SIM_PASS_NONE)
        sim_frame_emit(run->frame,
                       d->forward ? SIM_STEP_WAIT_SEND_FORWARD : SIM_STEP_WAIT_SEND_BACKWARD,
                       d->sending, 0);
    d->sending = next;
}

/* After an overlapped receive was posted: append it, and empty the slot that comes next. */
static void append_from_slot(run_t *run, direction_t *d, sim_pass_t recv, uint32_t index)
{
    if (recv == SIM_PASS_NONE)
        return;
    append(run, d, recv);
    sim_frame_assign(run->frame, d->received, &d->slots[(index + 1) % d->n_slots], SIM_PASS_NONE);
}

/* forward_step_helper(). The output is on its list, and in the variable of the caller. */
static sim_pass_t forward(run_t *run, uint32_t index)
{
    sim_pass_t pass = pass_at(run, index, true);
    sim_frame_forward(run->frame, pass, index);
    sim_frame_ref(run->frame, SIM_REF_OUTPUT, pass);
    return pass;
}

/* backward_step_helper(): what was on the lists goes when it returns. */
static void backward(run_t *run, uint32_t index, sim_pass_t *grad_p)
{
    sim_pass_t pass = pass_at(run, index, false);
    sim_frame_backward(run->frame, pass, 0);
    sim_frame_assign(run->frame, SIM_REF_INPUT_GRAD, grad_p, pass);
    sim_frame_unref(run->frame, SIM_REF_INPUT, pass);
    sim_frame_unref(run->frame, SIM_REF_OUTPUT, pass);
    sim_frame_unref(run->frame, SIM_REF_OUTPUT_GRAD, pass);
}

/* ---- warm-up ---- */

static void warmup_overlapped(run_t *run, uint32_t k, sim_pass_t recv)
{
    bool first = leads(run, &run->f);
    sim_pass_t send = sent(run, &run->f, k);
    post(run, &run->f, send, none_if(!first, recv), k, first);
    wait_send(run, &run->f, send);
    if (run->frame->config->deallocate_outputs)
        wait_send(run, &run->f, SIM_PASS_NONE);
    sim_frame_deallocate(run->frame, send);
    append_from_slot(run, &run->f, recv, k);
}

static void warmup_step(run_t *run, uint32_t k, uint32_t n_warmup)
{
    const sim_order_config_t *config = run->frame->config;
    bool flush = config->overlap_p2p_warmup_flush;
    if (flush && k > 0 && sim_frame_has_input(run->frame, pass_at(run, k, true)))
        wait_receive(run, &run->f);
    sim_pass_t recv = none_if(k == run->total - 1, next_receive(run, &run->f, k));
    if (flush && !leads(run, &run->f))
        post(run, &run->f, SIM_PASS_NONE, recv, k, true);
    sim_pass_t output = forward(run, k), send = sent(run, &run->f, k);
    sim_frame_assign(run->frame, SIM_REF_OUTPUT, &run->output, output);
    if (send == SIM_PASS_NONE)
        sim_frame_assign(run->frame, SIM_REF_OUTPUT, &run->output, SIM_PASS_NONE);

    /* The last one also asks for the gradient that the first backward pass needs. */
    bool ask = k == n_warmup - 1 && n_warmup < run->total;
    sim_pass_t grad = none_if(!ask || leads(run, &run->b), pass_at(run, 0, false));
    if (flush) {
        warmup_overlapped(run, k, recv);
    } else {
        bool both = ask && !config->overlap_p2p;
        exchange(run, true, send, recv, both, SIM_PASS_NONE, both ? grad : SIM_PASS_NONE);
        if (both)
            append(run, &run->b, grad);
        append(run, &run->f, recv);
        sim_frame_deallocate(run->frame, send);
    }
    if (config->overlap_p2p && ask) {
        post(run, &run->b, SIM_PASS_NONE, grad, run->b.n_slots - 1, true);
        append(run, &run->b, grad);
    }
}

/* ---- steady state ---- */

static void steady_overlapped(run_t *run, uint32_t forward_k, uint32_t k, bool last)
{
    sim_frame_t *frame = run->frame;
    sim_pass_t output = SIM_PASS_NONE, grad = SIM_PASS_NONE;
    if (sim_frame_has_input(frame, pass_at(run, forward_k, true)))
        wait_receive(run, &run->f);
    sim_frame_deallocate(frame, run->output); /* of the pass before: it was sent meanwhile */
    sim_frame_assign(frame, SIM_REF_OUTPUT, &output, forward(run, forward_k));
    sim_pass_t send = sent(run, &run->f, forward_k);
    sim_pass_t recv = none_if(last, next_receive(run, &run->f, forward_k));
    post(run, &run->f, send, recv, forward_k, true);
    wait_send(run, &run->f, send);
    if (frame->config->deallocate_outputs)
        wait_send(run, &run->f, SIM_PASS_NONE);
    append_from_slot(run, &run->f, recv, forward_k);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &output, send);

    if (!sim_frame_has_loss(frame, pass_at(run, k, false)))
        wait_receive(run, &run->b);
    backward(run, k, &grad);
    sim_pass_t send_back = sent(run, &run->b, k), recv_back = next_receive(run, &run->b, k);
    post(run, &run->b, send_back, recv_back, k, true);
    wait_send(run, &run->b, send_back);
    append_from_slot(run, &run->b, recv_back, k);

    sim_frame_assign(frame, SIM_REF_OUTPUT, &run->output, output);
    sim_frame_assign(frame, SIM_REF_INPUT_GRAD, &run->input_grad, grad);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &output, SIM_PASS_NONE);
    sim_frame_assign(frame, SIM_REF_INPUT_GRAD, &grad, SIM_PASS_NONE);
}

static void steady_blocking(run_t *run, uint32_t forward_k, uint32_t k, bool last)
{
    sim_frame_t *frame = run->frame;
    sim_pass_t output = SIM_PASS_NONE, grad = SIM_PASS_NONE;
    sim_frame_assign(frame, SIM_REF_OUTPUT, &output, forward(run, forward_k));
    backward(run, k, &grad);
    sim_pass_t send = sent(run, &run->f, forward_k);
    sim_pass_t recv = none_if(last, next_receive(run, &run->f, forward_k));
    sim_pass_t send_back = sent(run, &run->b, k), recv_back = next_receive(run, &run->b, k);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &run->output, send);
    sim_frame_assign(frame, SIM_REF_INPUT_GRAD, &run->input_grad, grad);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &output, SIM_PASS_NONE);
    sim_frame_assign(frame, SIM_REF_INPUT_GRAD, &grad, SIM_PASS_NONE);
    exchange(run, true, send, recv, true, send_back, recv_back);
    sim_frame_deallocate(frame, send);
    append(run, &run->f, recv);
    append(run, &run->b, recv_back);
}

/* ---- cool-down ---- */

static void cooldown_step(run_t *run, uint32_t k)
{
    bool flush = run->frame->config->overlap_p2p_warmup_flush, trails = !leads(run, &run->b);
    if (k > 0 && !sim_frame_has_loss(run->frame, pass_at(run, k, false)))
        wait_receive(run, &run->b);
    sim_pass_t recv = none_if(k == run->total - 1, next_receive(run, &run->b, k));
    if (flush && trails)
        post(run, &run->b, SIM_PASS_NONE, recv, k, true);
    sim_pass_t grad = SIM_PASS_NONE, send = sent(run, &run->b, k);
    backward(run, k, &grad);
    sim_frame_assign(run->frame, SIM_REF_INPUT_GRAD, &run->input_grad, grad);
    sim_frame_assign(run->frame, SIM_REF_INPUT_GRAD, &grad, SIM_PASS_NONE);
    if (flush) {
        post(run, &run->b, send, none_if(trails, recv), k, !trails);
        wait_send(run, &run->b, send);
        append_from_slot(run, &run->b, recv, k);
    } else {
        exchange(run, false, SIM_PASS_NONE, SIM_PASS_NONE, true, send, recv);
        append(run, &run->b, recv);
    }
}

void sim_interleaved_run(sim_frame_t *frame)
{
    const sim_order_config_t *config = frame->config;
    run_t run = { .frame = frame,
                  .total = config->n_microbatches * config->vpp,
                  .group = config->group_size == 0 ? config->pp : config->group_size,
                  .output = SIM_PASS_NONE,
                  .input_grad = SIM_PASS_NONE };
    direction_init(&run, &run.f, true, config->pp_rank == 0);
    direction_init(&run, &run.b, false, config->pp_rank == config->pp - 1);
    uint32_t n_warmup = sim_order_n_warmup(config), n_steady = run.total - n_warmup;

    if (!leads(&run, &run.f)) { /* on the list only, in no variable */
        sim_exchange_t e = { SIM_PASS_NONE, SIM_PASS_NONE, pass_at(&run, 0, true), SIM_PASS_NONE };
        sim_frame_exchange(frame, &e, true);
        append(&run, &run.f, e.recv_prev);
    }
    for (uint32_t k = 0; k < n_warmup; k++)
        warmup_step(&run, k, n_warmup);
    for (uint32_t k = 0; k < n_steady; k++) {
        if (config->overlap_p2p)
            steady_overlapped(&run, k + n_warmup, k, k == n_steady - 1);
        else
            steady_blocking(&run, k + n_warmup, k, k == n_steady - 1);
    }
    sim_frame_deallocate(frame, run.output);
    if (n_steady == 0 && !leads(&run, &run.b)) {
        sim_exchange_t e = { SIM_PASS_NONE, SIM_PASS_NONE, SIM_PASS_NONE, pass_at(&run, 0, false) };
        sim_frame_exchange(frame, &e, true);
        append(&run, &run.b, e.recv_next);
    }
    for (uint32_t k = n_steady; k < run.total; k++)
        cooldown_step(&run, k);
    wait_send(&run, &run.b, SIM_PASS_NONE);
    assert(run.f.n_waiting == 0 && run.b.n_waiting == 0);
    sim_frame_emit(frame, SIM_STEP_FINALIZE_GRADS, 0, 0);
    sim_frame_assign(frame, SIM_REF_OUTPUT, &run.output, SIM_PASS_NONE);
    sim_frame_assign(frame, SIM_REF_INPUT_GRAD, &run.input_grad, SIM_PASS_NONE);
    direction_fini(&run, &run.f);
    direction_fini(&run, &run.b);
}
