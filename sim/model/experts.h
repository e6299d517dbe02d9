/* SPDX-License-Identifier: Apache-2.0
 * The experts of a mixture-of-experts layer: routed and shared ones. Sources: Megatron-LM (mcore
 * 0.20) transformer/moe/{experts,shared_experts}.py, transformer/mlp.py, fusions/fused_bias_*.py;
 * TransformerEngine 2.20 pytorch/module/grouped_linear.py. */
#ifndef SIM_MODEL_EXPERTS_H
#define SIM_MODEL_EXPERTS_H

#include "sim/model/projection.h"

/* First linear, activation and second linear of some rows. */
typedef struct {
    sim_linear_save_t fc1;
    sim_ref_t act_in, gate_out, unweighted; /* of the activation; the last two where unfused */
    sim_linear_save_t fc2;
} sim_expert_save_t;

typedef struct {
    sim_expert_save_t *parts; /* one for all experts (grouped), or one each; owned, NULL = none */
    uint32_t n_parts;
    sim_ref_t probs; /* weights of the rows */
} sim_experts_save_t;

/* Takes one reference of `x` and of `probs`, `rows` each; returns [rows, moe.h]. */
sim_ref_t sim_experts_forward(sim_model_t *m, sim_experts_save_t *save, sim_ref_t x,
                              sim_ref_t probs, uint64_t rows, bool grad);
sim_ref_t sim_experts_backward(sim_model_t *m, sim_experts_save_t *save, sim_ref_t d_out,
                               uint64_t rows);

/* Shared experts; with moe_shared_expert_overlap the dispatcher calls the parts one by one. */
typedef struct {
    sim_expert_save_t mlp;
    sim_ref_t in; /* gathered input, until the first linear has it */
    sim_ref_t act, out;
    sim_ref_t gate_in, gated; /* the gate's input and the output before it */
    sim_ref_t checkpoint;     /* input of recomputed shared experts */
    sim_ref_t d_act;
} sim_shared_save_t;

/* `x` is borrowed. Returns the output [local_tokens, h]. */
sim_ref_t sim_shared_forward(sim_model_t *m, sim_shared_save_t *save, sim_ref_t x, bool grad);

/* `d_out` is borrowed. Returns the gradient of `x`. */
sim_ref_t sim_shared_backward(sim_model_t *m, sim_shared_save_t *save, sim_ref_t d_out);

/* The overlapped form: gather the input (borrowed), first linear and activation, second linear and
 * scatter. The last returns the output. */
void sim_shared_begin(sim_model_t *m, sim_shared_save_t *save, sim_ref_t x);
void sim_shared_first(sim_model_t *m, sim_shared_save_t *save, bool grad);
sim_ref_t sim_shared_second(sim_model_t *m, sim_shared_save_t *save, bool grad);

/* Its backward pass in two parts: second linear (`d_out` is borrowed), then the rest, which returns
 * the gradient of the input. */
void sim_shared_second_backward(sim_model_t *m, sim_shared_save_t *save, sim_ref_t d_out);
sim_ref_t sim_shared_first_backward(sim_model_t *m, sim_shared_save_t *save);

#endif
