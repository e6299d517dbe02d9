/* SPDX-License-Identifier: Apache-2.0
 * One whole layer: attention of either kind, then an MLP or a mixture of experts. */
#ifndef SIM_MODEL_TRANSFORMER_LAYER_H
#define SIM_MODEL_TRANSFORMER_LAYER_H

#include "sim/model/delta_net.h"
#include "sim/model/mamba.h"
#include "sim/model/mla.h"
#include "sim/model/moe.h"
#include "sim/model/t5.h"

typedef struct {
    sim_layer_kind_t kind;  /* set by the caller */
    uint32_t graph;         /* CUDA graph that holds a part of it */
    sim_mamba_save_t mamba; /* instead of all else */
    sim_norm_linear_t qkv;
    sim_attention_save_t attention;
    sim_row_linear_t proj;
    sim_mla_save_t mla;             /* instead of the three above */
    sim_delta_net_save_t delta_net; /* the same */
    sim_bda_t attention_bda;
    bool is_decoder; /* set by the caller: attention to an encoder's output follows */
    sim_cross_save_t cross;
    bool is_moe; /* set by the caller: experts instead of an MLP */
    sim_norm_linear_t fc1;
    sim_act_save_t act;
    sim_row_linear_t fc2;
    sim_ref_t mlp_in;   /* input of a recomputed MLP */
    sim_moe_save_t moe; /* instead of the four above */
    sim_bda_t mlp_bda;
    sim_ref_t leaf; /* with nodes: where the first one's autograd graph begins */
} sim_layer_save_t;

/* Takes one reference of `x`; returns the layer's output. With `grad` false (inside a full
 * checkpoint) nothing is saved. */
sim_ref_t sim_layer_forward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x, bool grad);

/* Takes the output's gradient; returns the input's. */
sim_ref_t sim_layer_backward(sim_model_t *m, sim_layer_save_t *save, sim_ref_t d_out);

#endif
