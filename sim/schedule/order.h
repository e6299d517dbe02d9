/* SPDX-License-Identifier: Apache-2.0
 * What one pipeline rank does in one iteration, in order: forward and backward passes, messages to
 * its neighbours, and the moments at which the tensors that cross a stage's border are allocated
 * and freed. Follows megatron/core/pipeline_parallel/schedules.py:
 * forward_backward_no_pipelining(), forward_backward_pipelining_without_interleaving() (1F1B) and
 * _with_interleaving(), and p2p_communication.py. Orders made from a plan (sim/schedule/plan.h)
 * follow zerobubble/runtime.py of its Megatron-LM fork, and DualPipe's step().
 *
 * Four kinds of border tensors belong to a pass (chunk, micro-batch); all but the loss have the
 * size of one hidden tensor of the stage: input         received from the stage before; not for the
 * chunk with the embedding output        made by FORWARD; sent on. For the chunk with the loss it
 * is the scalar loss output grad   received from the stage after; not for the chunk with the loss
 *   input grad    made by BACKWARD; sent back; not for the chunk with the embedding
 *
 * The frees follow Python's references exactly, and they are later than one would think:
 *   - A variable of the schedule holds its tensor until the next assignment, and a receive
 * allocates before it assigns: the output grad of the pass before lives until the next one has
 * arrived.
 *   - The graph behind an output holds the pass's input until the last reference to that output
 * goes, and an input holds its own gradient. So both outlive BACKWARD, often by a whole FORWARD.
 *   - TransformerBlock.input_tensor holds the last input of its chunk, and with it the input grad,
 * until the chunk's next FORWARD begins: across the end of the iteration too. */
#ifndef SIM_SCHEDULE_ORDER_H
#define SIM_SCHEDULE_ORDER_H

#include "sim/base/err.h"
#include "sim/schedule/plan.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    /* Run the pass. Saves the chunk's activations, except with SIM_STEP_RECOMPUTE_ALL; leaves the
     * output allocated. */
    SIM_STEP_FORWARD,
    /* Run the pass backward. All activations of the pass are freed on the way; input, output (where
     * it still has data) and output grad are not; leaves the input grad allocated. */
    SIM_STEP_BACKWARD,
    /* Allocate the input (torch.empty) and post its receive. */
    SIM_STEP_RECV_FORWARD,
    /* Allocate the output grad and post its receive. */
    SIM_STEP_RECV_BACKWARD,
    /* Post the send of the output, of the input grad. No memory. */
    SIM_STEP_SEND_FORWARD,
    SIM_STEP_SEND_BACKWARD,
    /* Stand still until the posted message is complete. No memory. */
    SIM_STEP_WAIT_RECV_FORWARD,
    SIM_STEP_WAIT_RECV_BACKWARD,
    SIM_STEP_WAIT_SEND_FORWARD,
    SIM_STEP_WAIT_SEND_BACKWARD,
    /* The tensor's memory goes back to the allocator. With deallocate_outputs the output leaves one
     * element behind, which is not modelled. */
    SIM_STEP_FREE_INPUT,
    SIM_STEP_FREE_OUTPUT,
    SIM_STEP_FREE_OUTPUT_GRAD,
    SIM_STEP_FREE_INPUT_GRAD,
    /* Compute the gradients of weights of a pass whose BACKWARD had SIM_STEP_SPLIT, and free what
     * was kept for them. */
    SIM_STEP_WEIGHT_GRAD,
    /* All passes are done: gradients are reduced here (finalize_model_grads). The frees after it
     * happen when the schedule returns, before the optimizer step. chunk and microbatch are 0. */
    SIM_STEP_FINALIZE_GRADS,
    SIM_N_STEPS,
} sim_step_kind_t;

enum {
    /* FORWARD: every layer is recomputed in backward, whatever recompute_num_layers says
     * (checkpoint_activations_microbatch). */
    SIM_STEP_RECOMPUTE_ALL = 1 << 0,
    /* FREE_INPUT, FREE_INPUT_GRAD, FREE_OUTPUT: the tensor is the one left from the iteration
     * before (its last micro-batch). To be left out in the first iteration. */
    SIM_STEP_OF_PREVIOUS = 1 << 1,
    /* BACKWARD: only the gradient of the input; a WEIGHT_GRAD follows. */
    SIM_STEP_SPLIT = 1 << 2,
    /* FORWARD: takes turns with the BACKWARD of the micro-batch before, which is the step behind it
     * and has this flag too (combined_1f1b.py). */
    SIM_STEP_COMBINED = 1 << 3,
};

typedef struct {
    uint8_t kind; /* sim_step_kind_t */
    uint8_t flags;
    uint16_t chunk; /* 0..vpp-1, on this rank */
    uint32_t microbatch;
} sim_step_t;

typedef struct {
    sim_step_t *steps; /* owned */
    size_t n;
} sim_order_t;

typedef struct {
    sim_schedule_t schedule;
    /* The schedule's for pp and n_microbatches, borrowed, so that it is made once for all ranks;
     * NULL: made for this order. Unused with SIM_SCHEDULE_1F1B. */
    const sim_plan_t *plan;
    uint32_t pp, pp_rank;
    uint32_t vpp;                  /* chunks per rank; 1 = no interleaving; a plan has its own */
    uint32_t n_microbatches;       /* >= 1 */
    uint32_t group_size;           /* microbatch_group_size_per_vp_stage; 0 = pp */
    bool overlap_p2p;              /* overlap_p2p_comm; only with interleaving */
    bool overlap_p2p_warmup_flush; /* overlap_p2p_comm_warmup_flush; only with overlap_p2p */
    bool deallocate_outputs;       /* deallocate_pipeline_outputs */
    bool combines;                 /* overlap_moe_expert_parallel_comm; only with pp = 1 */
    /* num_microbatches_with_partial_activation_checkpoints, 0 = not given; without effect when pp
     * is 1. */
    uint32_t n_partial_checkpoints;
} sim_order_config_t;

/* Passes of one rank in one iteration (n_microbatches * vpp) that are accepted at most: bounds
 * memory at about 120 MB. */
enum { SIM_ORDER_MAX_PASSES = 1 << 20 };

/* Make the order of one rank. BASE_ERR_INVAL names the rule of Megatron-LM that the sizes break;
 * BASE_ERR_UNSUPPORTED beyond SIM_ORDER_MAX_PASSES; *order_p is then untouched. Free with
 * sim_order_fini(). */
base_status_t sim_order_init(sim_order_t *order_p, const sim_order_config_t *config,
                             base_err_t *err);

/* Takes a zeroed struct too. */
void sim_order_fini(sim_order_t *order);

/* Whether a pass of the chunk has an input from another stage, and whether it ends in the loss. */
bool sim_order_has_input(const sim_order_config_t *config, uint32_t chunk);
bool sim_order_has_loss(const sim_order_config_t *config, uint32_t chunk);

/* Whether chunk 1 goes on with what chunk 0 has made on the same rank, without a message: the last
 * rank of a V. */
bool sim_order_is_turn(const sim_order_config_t *config);

/* Forward passes before the first backward pass, with SIM_SCHEDULE_1F1B. */
uint32_t sim_order_n_warmup(const sim_order_config_t *config);

/* The other end of a message: for a SEND or RECV step on `pp_rank`, the pipeline rank and the chunk
 * of the matching RECV or SEND step there; the micro-batch is the same. Reads the schedule, pp and
 * pp_rank alone. */
void sim_order_peer(const sim_order_config_t *config, const sim_step_t *step, uint32_t *pp_rank_p,
                    uint16_t *chunk_p);

/* "forward", "recv_forward", ... for messages to people. */
const char *sim_step_name(sim_step_kind_t kind);

#endif
