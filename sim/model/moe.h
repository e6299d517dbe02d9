/* SPDX-License-Identifier: Apache-2.0
 * A mixture-of-experts layer from its norm to the sum of routed and shared experts. Sources:
 * Megatron-LM (mcore 0.20) transformer/moe/{moe_layer,router,moe_utils,token_dispatcher,
 * fused_a2a}.py; TransformerEngine 2.20 pytorch/permutation.py, pytorch/triton/permutation.py. */
#ifndef SIM_MODEL_MOE_H
#define SIM_MODEL_MOE_H

#include "sim/model/experts.h"

/* What the router saves: its input, and scores, indices and maps for the gradients. */
typedef struct {
    sim_ref_t x;
    sim_ref_t scores, top_scores, top_indices, aux_scores, logits;
} sim_router_save_t;

/* What a dispatcher saves, and local variables that live until the layer's forward returns. */
typedef struct {
    sim_ref_t map, map_indices; /* order of this rank's tokens by expert */
    sim_ref_t sort_map;         /* order of received tokens by expert */
    sim_ref_t handle;           /* of DeepEP or HybridEP */
    sim_ref_t top_indices;      /* flex: indices of the probabilities taken */
    sim_ref_t live[4];
    uint32_t n_live;
    sim_ref_t received, received_probs; /* with nodes: inputs of the one with the experts */
} sim_dispatch_save_t;

typedef struct {
    sim_norm_save_t norm;
    sim_ref_t ln_out;     /* kept to be made again where the norm is recomputed */
    sim_ref_t checkpoint; /* input of a recomputed layer */
    sim_router_save_t router;
    sim_dispatch_save_t dispatch;
    sim_experts_save_t experts;
    sim_shared_save_t shared;
    sim_linear_save_t latent_in, latent_out; /* projections to and from the latent width */
} sim_moe_save_t;

/* Takes one reference of `x`; returns [local_tokens, h]. */
sim_ref_t sim_moe_forward(sim_model_t *m, sim_moe_save_t *save, sim_ref_t x, bool grad);

/* Takes the output's gradient; returns the input's. */
sim_ref_t sim_moe_backward(sim_model_t *m, sim_moe_save_t *save, sim_ref_t d_out);

/* Router: `x` is borrowed. Its outputs, probabilities and map, are held by the dispatcher until the
 * next micro-batch comes; see sim_dispatch_in(). */
void sim_router_forward(sim_model_t *m, sim_router_save_t *save, sim_ref_t x, bool grad);
sim_ref_t sim_router_backward(sim_model_t *m, sim_router_save_t *save);

/* Rows for the local experts from `x` (borrowed), with their probabilities in *probs_p. `shared` is
 * run in between where it overlaps; NULL else. */
sim_ref_t sim_dispatch_in(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t x,
                          sim_ref_t *probs_p, sim_shared_save_t *shared, bool grad);

/* Takes the experts' output; returns [local_tokens, moe.h] and, where shared experts overlap,
 * their output in *shared_out_p. */
sim_ref_t sim_dispatch_out(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t out,
                           sim_shared_save_t *shared, sim_ref_t *shared_out_p, bool grad);

/* The layer's forward returns. */
void sim_dispatch_release(sim_model_t *m, sim_dispatch_save_t *save);

/* Takes the gradient of sim_dispatch_out()'s result; returns that of the experts' output. */
sim_ref_t sim_dispatch_out_backward(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t d_out);

/* Takes the gradient of the experts' input; returns that of `x`, and the shared experts' part of it
 * in *d_shared_p where they overlap. */
sim_ref_t sim_dispatch_in_backward(sim_model_t *m, sim_dispatch_save_t *save, sim_ref_t dx,
                                   sim_shared_save_t *shared, sim_ref_t *d_shared_p);

#endif
