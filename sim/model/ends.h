/* SPDX-License-Identifier: Apache-2.0
 * Inventory of what stands before and after the layers: batch, embedding, final norm, output layer
 * and cross entropy. Sources: Megatron-LM models/common/embeddings/language_model_embedding.py,
 * tensor_parallel/{layers,cross_entropy}.py, fusions/fused_cross_entropy.py,
 * models/gpt/gpt_model.py, pretrain_gpt.py (get_batch). */
#ifndef SIM_MODEL_ENDS_H
#define SIM_MODEL_ENDS_H

#include "sim/model/layer.h"

/* Tensors of the micro-batch; alive until the forward step returns. */
typedef struct {
    sim_ref_t tokens, position_ids, labels, loss_mask, attention_mask;
} sim_batch_t;

void sim_batch_load(sim_model_t *m, sim_batch_t *batch, const topo_chunk_t *chunk);
void sim_batch_drop(sim_model_t *m, sim_batch_t *batch);

typedef struct {
    sim_ref_t indices, dropout_mask;
} sim_embedding_save_t;

/* Returns the first layer's input. */
sim_ref_t sim_embedding_forward(sim_model_t *m, sim_embedding_save_t *save,
                                const sim_batch_t *batch);

/* Takes the output's gradient. Returns the weight's, which the caller drops when it has been added
 * to the main gradient: at once, unless the weight is used elsewhere in the chunk too. */
sim_ref_t sim_embedding_backward(sim_model_t *m, sim_embedding_save_t *save, sim_ref_t d_out);

typedef struct {
    sim_ref_t x, stat;
} sim_final_norm_save_t;

/* The norm after the last layer. Takes the layer's output; returns its own. */
sim_ref_t sim_final_norm_forward(sim_model_t *m, sim_final_norm_save_t *save, sim_ref_t x);

/* Takes the output's gradient; returns the input's. */
sim_ref_t sim_final_norm_backward(sim_model_t *m, sim_final_norm_save_t *save, sim_ref_t g);

typedef struct {
    sim_ref_t ln_out;  /* input of the output layer */
    sim_ref_t softmax; /* or the gradient, where the loss writes it over the logits */
    sim_ref_t target_mask, masked_target;
} sim_loss_save_t;

/* Logits and loss. Takes one reference of the final norm's output. */
void sim_loss_forward(sim_model_t *m, sim_loss_save_t *save, sim_ref_t ln_out);

/* Returns the gradient of the final norm's output, and in *weight_grad_p the weight's as
 * sim_embedding_backward() does. */
sim_ref_t sim_loss_backward(sim_model_t *m, sim_loss_save_t *save, sim_ref_t *weight_grad_p);

#endif
