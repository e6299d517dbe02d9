/* SPDX-License-Identifier: Apache-2.0
 * The references of a running schedule to its border tensors, counted as Python counts them, so
 * that every free stands in the order where the last reference goes. Private to sim/schedule. */
#ifndef SIM_SCHEDULE_FRAME_H
#define SIM_SCHEDULE_FRAME_H

#include "sim/schedule/order.h"

/* A pass as a number, chunk * n_microbatches + microbatch, or none. */
typedef int64_t sim_pass_t;
#define SIM_PASS_NONE INT64_C(-1)

typedef enum { SIM_REF_INPUT, SIM_REF_OUTPUT, SIM_REF_OUTPUT_GRAD, SIM_REF_INPUT_GRAD } sim_ref_t;

typedef struct {
    const sim_order_config_t *config;
    sim_step_t *steps;
    size_t n, capacity;
    uint32_t *refs[4]; /* by sim_ref_t, then by pass */
    uint8_t *state;    /* by pass: OUTPUT_ALIVE, HAS_INPUT_GRAD */
    sim_pass_t *held;  /* by chunk: what TransformerBlock.input_tensor holds */
    bool lets_go;      /* nothing holds the input of a chunk beyond its pass */
} sim_frame_t;

void sim_frame_init(sim_frame_t *frame, const sim_order_config_t *config);

/* Hands the steps over to `order` and frees the rest. */
void sim_frame_fini(sim_frame_t *frame, sim_order_t *order);

sim_pass_t sim_frame_pass(const sim_frame_t *frame, uint32_t chunk, uint32_t microbatch);
bool sim_frame_has_input(const sim_frame_t *frame, sim_pass_t pass);
bool sim_frame_has_loss(const sim_frame_t *frame, sim_pass_t pass);

void sim_frame_emit(sim_frame_t *frame, sim_step_kind_t kind, sim_pass_t pass, uint8_t flags);

/* One more, one fewer reference; the last one going frees the tensor and drops what it held.
 * SIM_PASS_NONE, and a tensor that the pass does not have, are ignored. */
void sim_frame_ref(sim_frame_t *frame, sim_ref_t kind, sim_pass_t pass);
void sim_frame_unref(sim_frame_t *frame, sim_ref_t kind, sim_pass_t pass);

/* *variable = pass, as Python assigns: the new value is held before the old one is let go. */
void sim_frame_assign(sim_frame_t *frame, sim_ref_t kind, sim_pass_t *variable, sim_pass_t pass);

/* The passes. `recompute_index`: place among this rank's forward passes, for the window of
 * n_partial_checkpoints. */
void sim_frame_forward(sim_frame_t *frame, sim_pass_t pass, uint32_t recompute_index);
void sim_frame_backward(sim_frame_t *frame, sim_pass_t pass, uint8_t flags);

/* The chunk that follows on the same rank takes the output as its input: one more reference of the
 * same memory. */
void sim_frame_hand_over(sim_frame_t *frame, sim_pass_t pass);

/* deallocate_output_tensor(). */
void sim_frame_deallocate(sim_frame_t *frame, sim_pass_t pass);

/* One call of P2PCommunicator._communicate(): receives are allocated, then everything is posted,
 * then waited for if `wait`. SIM_PASS_NONE = nothing in that direction. */
typedef struct {
    sim_pass_t send_next, send_prev, recv_prev, recv_next;
} sim_exchange_t;
void sim_frame_exchange(sim_frame_t *frame, const sim_exchange_t *exchange, bool wait);

/* The interleaved schedule; 1F1B is short and lives in order.c. */
void sim_interleaved_run(sim_frame_t *frame);

/* The steps of the frame's rank in a plan. */
void sim_planned_run(sim_frame_t *frame, const sim_plan_t *plan);

#endif
