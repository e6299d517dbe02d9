/* SPDX-License-Identifier: Apache-2.0
 * Multi-latent attention. Sources: Megatron-LM (mcore 0.20) transformer/multi_latent_attention.py,
 * fusions/fused_mla_yarn_rope_apply.py, models/gpt/gpt_layer_specs.py. */
#ifndef SIM_MODEL_MLA_H
#define SIM_MODEL_MLA_H

#include "sim/model/projection.h"

typedef struct {
    sim_norm_save_t norm;
    sim_ref_t ln_out; /* kept to be made again where the norm is recomputed */
    sim_linear_save_t q_down, kv_down;
    sim_linear_save_t q_proj; /* where queries are not compressed */
    sim_norm_linear_t q_up, kv_up;
    sim_ref_t rope_tables;
    sim_ref_t checkpoint[3];          /* inputs of recomputed up projections */
    sim_ref_t q, k, v;                /* inputs of the core attention */
    sim_ref_t core_q, core_k, core_v; /* what context parallelism saves of them */
    sim_ref_t out, lse;               /* of a fused kernel */
    sim_ref_t softmax, dropout_mask, dropped;
    sim_linear_save_t proj;
} sim_mla_save_t;

/* Norm, attention and output projection. Takes one reference of `x`; returns [local_tokens, h]. */
sim_ref_t sim_mla_forward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t x, bool grad);

/* Takes the output's gradient; returns the input's. */
sim_ref_t sim_mla_backward(sim_model_t *m, sim_mla_save_t *save, sim_ref_t d_out);

#endif
