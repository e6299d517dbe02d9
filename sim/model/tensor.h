/* SPDX-License-Identifier: Apache-2.0
 * What a tensor is for, and which module it belongs to: the two ways in which memory is broken
 * down in every report. */
#ifndef SIM_MODEL_TENSOR_H
#define SIM_MODEL_TENSOR_H

#include <stdint.h>

typedef enum {
    SIM_CAT_PARAMETERS,  /* model weights in the parameter dtype */
    SIM_CAT_GRADIENTS,   /* DDP gradient buffers (main gradients) */
    SIM_CAT_OPTIMIZER,   /* fp32 main parameters, moments, gradient copies */
    SIM_CAT_ACTIVATIONS, /* saved by a forward pass for its backward pass */
    SIM_CAT_TEMPORARY,   /* dies in the pass (or step) that made it */
    SIM_CAT_WORKSPACE,   /* cuBLAS workspaces, dummy gradients, global buffers: never freed */
    SIM_CAT_PIPELINE,    /* received and sent hidden states and their gradients */
    SIM_CAT_DATA,        /* tokens, labels, masks of the micro-batch */
    SIM_CAT_GRAPHS,      /* buffers through which CUDA graphs get and give tensors */
    SIM_N_CATEGORIES,
} sim_category_t;

typedef enum {
    SIM_MOD_EMBEDDING,
    SIM_MOD_QKV,       /* input norm and query/key/value projection */
    SIM_MOD_ATTENTION, /* rotary embedding and core attention */
    SIM_MOD_PROJ,
    SIM_MOD_RESIDUAL, /* bias, dropout, residual addition; a layer's input and output */
    SIM_MOD_FC1,      /* pre-MLP norm and first linear */
    SIM_MOD_ACTIVATION,
    SIM_MOD_FC2,
    SIM_MOD_ROUTER,   /* pre-MLP norm and router of a mixture-of-experts layer */
    SIM_MOD_DISPATCH, /* tokens on their way to the experts and back */
    SIM_MOD_EXPERTS,
    SIM_MOD_SHARED_EXPERTS,
    SIM_MOD_MAMBA,     /* a Mamba-2 layer: norm, projections, convolution and scan */
    SIM_MOD_DELTA_NET, /* a gated delta net in the place of attention, with its norm */
    SIM_MOD_MTP,       /* what multi-token prediction adds around its layers */
    SIM_MOD_FINAL_NORM,
    SIM_MOD_OUTPUT, /* output layer: logits */
    SIM_MOD_LOSS,
    SIM_MOD_PIPELINE,
    SIM_MOD_DATA,
    SIM_MOD_DDP,
    SIM_MOD_OPTIMIZER,
    SIM_MOD_LIBRARY, /* cuBLAS, Transformer Engine */
    SIM_N_MODULES,
} sim_module_t;

/* "parameters", "gradients", …; the names that reports use. */
const char *sim_category_name(sim_category_t category);
const char *sim_module_name(sim_module_t module);

#define SIM_NO_LAYER UINT16_MAX

/* Description of a tensor in an inventory; one per allocation site. */
typedef struct {
    const char *name; /* static text: "ln_out", "fc1_out" */
    uint64_t bytes;   /* requested */
    uint16_t layer;   /* global index of the decoder layer, or SIM_NO_LAYER */
    uint8_t category; /* sim_category_t */
    uint8_t module;   /* sim_module_t */
} sim_tensor_t;

#endif
