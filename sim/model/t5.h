/* SPDX-License-Identifier: Apache-2.0
 * What a T5 has beside a GPT: a second stack of layers, each with attention to the encoder's output
 * between its own attention and its MLP. Sources: Megatron-LM models/T5/{t5_model,t5_spec}.py,
 * transformer/{transformer_layer,attention}.py (CrossAttention), pretrain_t5.py. */
#ifndef SIM_MODEL_T5_H
#define SIM_MODEL_T5_H

#include "sim/model/ends.h"
#include "sim/model/projection.h"

static inline bool sim_is_t5(const sim_model_t *m)
{
    return m->s->model_type == SIM_MODEL_T5;
}

/* The batch comes as one tensor, of which the parts are views; m->d are the encoder's sizes. */
void sim_t5_batch_load(sim_model_t *m, sim_batch_t *batch);

typedef struct {
    sim_norm_save_t norm;
    sim_linear_save_t q, kv;
    sim_attention_save_t attention;
    sim_row_linear_t proj;
    sim_bda_t bda;
} sim_cross_save_t;

/* Takes one reference of `x`, the output of the layer's own attention; returns the MLP's input. */
sim_ref_t sim_cross_forward(sim_model_t *m, sim_cross_save_t *save, sim_ref_t x);

/* Takes the output's gradient; returns the input's, and adds to m->d_context. */
sim_ref_t sim_cross_backward(sim_model_t *m, sim_cross_save_t *save, sim_ref_t d_out);

#endif
