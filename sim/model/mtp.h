/* SPDX-License-Identifier: Apache-2.0
 * Multi-token prediction: after the decoder, each depth joins the hidden states with the embedding
 * of the next token and runs one more layer, in a hybrid several; all depths use the output layer.
 * Sources: Megatron-LM (mcore 0.20) transformer/multi_token_prediction.py,
 * models/{gpt/gpt_model,hybrid/hybrid_model}.py. */
#ifndef SIM_MODEL_MTP_H
#define SIM_MODEL_MTP_H

#include "sim/model/ends.h"
#include "sim/model/transformer_layer.h"

typedef struct {
    sim_ref_t tokens, position_ids; /* moved by one; alive until the block returns */
    sim_embedding_save_t embedding;
    sim_ref_t checkpoint[2]; /* full recompute: hidden states and embedding */
    sim_norm_save_t enorm, hnorm;
    sim_linear_save_t eh;     /* projection of both norms' outputs side by side */
    sim_layer_save_t *layers; /* n_layers of them; owned */
    uint32_t n_layers;
    uint16_t first_layer; /* counted on from the decoder's */
    sim_norm_save_t norm;
    uint32_t first_unit; /* of the layers, see sim_unit() */
} sim_mtp_depth_t;

typedef struct {
    sim_mtp_depth_t *depths; /* n of them; owned */
    uint32_t n;
} sim_mtp_save_t;

/* `n` depths; their units count from `first_unit`, one for all where a layer is repeated. */
void sim_mtp_init(sim_mtp_save_t *save, const sim_scenario_t *s, uint32_t n, uint32_t first_unit);
void sim_mtp_fini(sim_mtp_save_t *save);

/* Takes one reference of `hidden`, the final norm's output; returns one tensor with it and the
 * output of each depth, (1 + n) times as large. */
sim_ref_t sim_mtp_forward(sim_model_t *m, sim_mtp_save_t *save, sim_ref_t hidden);

/* Takes the gradient of that tensor; returns that of the final norm's output. The word embedding's
 * gradient waits in *embedding_grad_p where `waits`, else it is gone. */
sim_ref_t sim_mtp_backward(sim_model_t *m, sim_mtp_save_t *save, sim_ref_t d_out, bool waits,
                           sim_ref_t *embedding_grad_p);

#endif
