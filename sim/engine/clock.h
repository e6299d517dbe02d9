/* SPDX-License-Identifier: Apache-2.0
 * An estimate of the time of one training step: passes last what a roofline of the GPU says
 * (sim/model/cost.h), messages what the network says, and the pipeline's order decides who waits
 * for whom. Good enough to rank layouts; always to be labelled as an estimate. */
#ifndef SIM_ENGINE_CLOCK_H
#define SIM_ENGINE_CLOCK_H

#include "sim/base/err.h"
#include "sim/scenario/scenario.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    SIM_SPAN_FORWARD,
    SIM_SPAN_BACKWARD,    /* input and weight gradients; input gradients alone where weight
                           * gradients are a pass of their own */
    SIM_SPAN_WEIGHT_GRAD, /* such a pass */
    SIM_SPAN_WAIT,        /* the rank stands still for a message: a bubble */
    SIM_SPAN_GRAD_SYNC,   /* reduction of gradients that nothing hides */
    SIM_SPAN_OPTIMIZER,   /* reading and writing of the optimizer's state */
    SIM_SPAN_PARAM_GATHER /* gathering of parameters that nothing hides */
} sim_span_kind_t;

/* What one pipeline rank does from begin to end; spans of a rank are ordered and do not overlap. */
typedef struct {
    uint32_t pp_rank;
    uint16_t chunk; /* FORWARD, BACKWARD, WEIGHT_GRAD and WAIT: 0..vpp-1 on this rank */
    uint8_t kind;   /* sim_span_kind_t */
    uint32_t microbatch;
    uint64_t begin_ns, end_ns; /* since the step began */
} sim_span_t;

/* A message between pipeline ranks: an arrow from the span that made it to the one that used it. */
typedef struct {
    uint32_t from_pp_rank, to_pp_rank;
    uint16_t from_chunk, to_chunk;
    uint32_t microbatch;
    uint8_t is_backward;          /* a gradient, else hidden states */
    uint64_t sent_ns, arrived_ns; /* arrived_ns: the whole message is there */
} sim_arrow_t;

typedef struct {
    uint64_t step_ns;
    uint32_t n_pipeline_ranks;
    /* Parts of the step, mean over the pipeline ranks; they add up to step_ns. exposed_comm_ns is
     * what tensor, expert and context parallelism send in passes with nothing to hide it;
     * launch_ns is waiting for the host, which starts the kernels; bubble_ns is waiting for other
     * pipeline ranks. */
    uint64_t compute_ns, exposed_comm_ns, launch_ns;
    uint64_t grad_sync_ns, optimizer_ns, param_gather_ns, bubble_ns;
    double bubble_fraction; /* bubble_ns / step_ns */
    double tokens_per_s;    /* of the whole job */
    double tflops_per_s;    /* model FLOPs a second and GPU, recomputation not counted, 1e12 */
    double mfu;             /* tflops_per_s over the GPU's peak at the training precision */
    double model_flops;     /* of one step over all GPUs */

    sim_span_t *spans; /* n_spans, by pipeline rank, then by time; owned; NULL if not wanted */
    size_t n_spans;
    sim_arrow_t *arrows; /* n_arrows, by time of arrival; owned; NULL if not wanted */
    size_t n_arrows;
} sim_step_time_t;

/* Time of one step of a valid scenario in the steady state. `want_spans`: fill spans and arrows
 * too. Errors as sim_order_init(). Free with sim_step_time_fini(). */
base_status_t sim_clock_step(const sim_scenario_t *scenario, bool want_spans,
                             sim_step_time_t *time_p, base_err_t *err);

/* Takes a zeroed struct too. */
void sim_step_time_fini(sim_step_time_t *time);

/* "forward", "backward", "wait", ... for people and files. */
const char *sim_span_name(sim_span_kind_t kind);

#endif
