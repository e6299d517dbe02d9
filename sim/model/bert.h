/* SPDX-License-Identifier: Apache-2.0
 * What BERT has beside a GPT: types of tokens, a language model head before the output layer, a
 * bias of the output layer, and a head that says whether two sentences belong together. Sources:
 * Megatron-LM models/bert/{bert_model,bert_lm_head,pooler}.py, pretrain_bert.py. */
#ifndef SIM_MODEL_BERT_H
#define SIM_MODEL_BERT_H

#include "sim/model/ends.h"

static inline bool sim_is_bert(const sim_model_t *m)
{
    return m->s->model_type == SIM_MODEL_BERT;
}

/* The batch comes as one tensor, of which the parts are views. */
void sim_bert_batch_load(sim_model_t *m, sim_batch_t *batch);

/* Adds the embedding of the token types to `x`, which it takes. */
sim_ref_t sim_bert_token_types_forward(sim_model_t *m, sim_ref_t x);
void sim_bert_token_types_backward(sim_model_t *m);

typedef struct {
    sim_ref_t hidden; /* the final norm's output */
    sim_ref_t dense;  /* input of the activation */
    sim_ref_t gelu;   /* input of the norm */
    sim_ref_t stat;   /* mean and inverse deviation of the norm */
    sim_ref_t pooled; /* [b, h] after tanh */
} sim_bert_head_t;

/* Takes the final norm's output, returns the output layer's input. */
sim_ref_t sim_bert_head_forward(sim_model_t *m, sim_bert_head_t *save, sim_ref_t hidden);
sim_ref_t sim_bert_head_backward(sim_model_t *m, sim_bert_head_t *save, sim_ref_t g);

/* The output layer adds its bias into a second tensor. */
sim_ref_t sim_bert_output_bias(sim_model_t *m, sim_ref_t logits);

#endif
