/* SPDX-License-Identifier: Apache-2.0
 * Norms and linear layers of any size, as multi-latent attention, experts and multi-token
 * prediction are made of. Sources: TransformerEngine 2.20 pytorch/module/{linear,layernorm_linear,
 * grouped_linear}.py; Megatron-LM (mcore 0.20) tensor_parallel/layers.py.
 *
 * A function takes over one reference of its input. With `grad` false nothing is saved; a save then
 * holds SIM_REF_NONE, which backward functions must not be called with. */
#ifndef SIM_MODEL_PROJECTION_H
#define SIM_MODEL_PROJECTION_H

#include "sim/model/layer.h"

/* A norm that is a module of its own. Saved: input and statistics. */
typedef struct {
    sim_ref_t x, stat;
} sim_norm_save_t;

sim_ref_t sim_norm_forward(sim_model_t *m, sim_norm_save_t *save, sim_ref_t x, const char *out_name,
                           uint64_t bytes, uint64_t width, bool grad);

/* Takes the output's gradient; returns the input's. */
sim_ref_t sim_norm_backward(sim_model_t *m, sim_norm_save_t *save, sim_ref_t d_out, uint64_t bytes);

/* Sizes of a linear layer on one rank. In FP8 the input is saved quantised, unless the layer is
 * told to keep it as it is and quantise it again (save_original_input), which delayed scaling
 * cannot. */
typedef struct {
    const char *name;
    uint64_t in_bytes;       /* input as it comes and is saved */
    uint64_t full_in_bytes;  /* gathered along the sequence for the product; 0 = it is not */
    uint64_t out_bytes;      /* output as it goes on */
    uint64_t full_out_bytes; /* before it is reduce-scattered along the sequence; 0 = it is not */
    uint64_t rows, cols;     /* of the weight: output and input features */
    uint64_t n_weights;      /* experts of a grouped layer; 0 = an ordinary layer */
    bool keeps_input;
    uint16_t target; /* sim_target_t of adapters, 0 = it gets none */
    bool is_expert;
    bool is_whole; /* every tensor-parallel rank has all of the weight */
} sim_linear_dims_t;

/* What a linear layer saves. */
typedef struct {
    sim_ref_t x;
    sim_ref_t weight; /* in FP8, where every pass makes its own */
    sim_adapter_save_t adapter;
} sim_linear_save_t;

sim_ref_t sim_linear_forward(sim_model_t *m, const sim_linear_dims_t *d, sim_linear_save_t *save,
                             sim_ref_t x, const char *out_name, bool grad);

/* Takes the output's gradient; returns the input's. */
sim_ref_t sim_linear_backward(sim_model_t *m, const sim_linear_dims_t *d, sim_linear_save_t *save,
                              sim_ref_t d_out, const char *in_grad_name);

/* Drop what a forward pass saved. */
void sim_linear_forget(sim_model_t *m, sim_linear_save_t *save);

/* A recomputed input: drop what was saved of it; save it, of which one reference is taken. */
void sim_linear_drop_input(sim_model_t *m, sim_linear_save_t *save);
void sim_linear_give_input(sim_model_t *m, const sim_linear_dims_t *d, sim_linear_save_t *save,
                           sim_ref_t x);

/* A norm and a column-parallel linear in one module. The input may be a part of a larger tensor;
 * the normed copy is as large as in_bytes says. */
sim_ref_t sim_normed_linear_forward(sim_model_t *m, const sim_linear_dims_t *d,
                                    sim_norm_linear_t *save, sim_ref_t x, const char *out_name,
                                    bool grad);
sim_ref_t sim_normed_linear_backward(sim_model_t *m, const sim_linear_dims_t *d,
                                     sim_norm_linear_t *save, sim_ref_t d_out,
                                     const char *in_grad_name);

/* Touch the workspaces of a product; those of a grouped one are one for each stream. */
void sim_linear_gemm(sim_model_t *m, bool is_grouped);

/* *t_p <- a new tensor, then drop the old one. */
void sim_replace(sim_model_t *m, sim_ref_t *t_p, const char *name, uint64_t bytes);

/* Drop *t_p and forget it. */
void sim_forget(sim_model_t *m, sim_ref_t *t_p);

#endif
