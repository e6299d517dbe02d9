/* SPDX-License-Identifier: Apache-2.0
 * Gated delta net, in the place of attention: a norm with the input projection of queries, keys,
 * values, gate and decays; a short convolution; the rule in chunks of 64 tokens; a gated norm by
 * head; the output projection. Sources: Megatron-LM ssm/gated_delta_net/{common,gdn}.py;
 * flash-linear-attention 0.6 ops/gated_delta_rule/{chunk,chunk_fwd,wy_fast}.py,
 * ops/common/{chunk_delta_h,chunk_o}.py, modules/{causal_conv1d/ops,norm/l2norm}.py. What
 * torch.compile makes of the steps between is taken as written: what their gradients need is saved,
 * and nothing else. */
#ifndef SIM_MODEL_DELTA_NET_H
#define SIM_MODEL_DELTA_NET_H

#include "sim/model/layer.h"

typedef struct {
    sim_norm_linear_t in_proj;
    sim_ref_t projected;     /* q, k, v, gate, write strength and decay: the convolution's input */
    sim_ref_t qk, qk_stat;   /* normed queries and keys, and a number for each head of them */
    sim_ref_t q, k;          /* copies, repeated to the heads of the values */
    sim_ref_t v, gate, beta; /* beta: the write strength */
    sim_ref_t decay;         /* its sums in each chunk */
    sim_ref_t inverse;       /* of the chunks' triangles, 64 numbers for each token and head */
    sim_ref_t out;           /* of the rule */
    sim_ref_t stat, normed;  /* of the norm */
    sim_row_linear_t out_proj;
} sim_delta_net_save_t;

/* Takes one reference of `x`; returns the block's output before the residual. With `grad` false
 * nothing is saved. */
sim_ref_t sim_delta_net_forward(sim_model_t *m, sim_delta_net_save_t *save, sim_ref_t x, bool grad);

/* Takes the output's gradient; returns the input's. */
sim_ref_t sim_delta_net_backward(sim_model_t *m, sim_delta_net_save_t *save, sim_ref_t d_out);

#endif
