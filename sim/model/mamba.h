/* SPDX-License-Identifier: Apache-2.0
 * A Mamba-2 layer: a norm with the input projection, a short convolution and the chunked scan in
 * one autograd function, a norm in groups, the output projection. Sources: Megatron-LM
 * ssm/{mamba_layer,mamba_mixer}.py; mamba_ssm 2.2 ops/triton/{ssd_combined,ssd_chunk_state,
 * ssd_chunk_scan,ssd_state_passing,layernorm_gated}.py. */
#ifndef SIM_MODEL_MAMBA_H
#define SIM_MODEL_MAMBA_H

#include "sim/model/layer.h"

typedef struct {
    sim_norm_linear_t in_proj;
    sim_ref_t projected; /* z, x, B, C and dt */
    sim_ref_t scanned;   /* the scan's output before the gate */
    sim_ref_t gated;     /* after it: the norm's input */
    sim_ref_t stat;      /* of the norm: a number for each row and group */
    sim_row_linear_t out_proj;
    sim_bda_t bda;
} sim_mamba_save_t;

/* Takes one reference of `x`; returns the layer's output. With `grad` false nothing is saved. */
sim_ref_t sim_mamba_forward(sim_model_t *m, sim_mamba_save_t *save, sim_ref_t x, bool grad);

/* Takes the output's gradient; returns the input's. */
sim_ref_t sim_mamba_backward(sim_model_t *m, sim_mamba_save_t *save, sim_ref_t d_out);

#endif
