/* SPDX-License-Identifier: Apache-2.0
 * Inventory of the modules of a Transformer layer: what each allocates in its forward and backward
 * pass, in order, and what it saves in between. The functions write to a tape through the builder.
 *
 * Sources: Megatron-LM (mcore 0.20) transformer/{transformer_layer,attention,mlp}.py,
 * fusions/fused_bias_*.py, tensor_parallel/layers.py; TransformerEngine 2.20
 * pytorch/module/{layernorm_linear,linear}.py, pytorch/attention/dot_product_attention. */
#ifndef SIM_MODEL_LAYER_H
#define SIM_MODEL_LAYER_H

#include "sim/model/dims.h"
#include "sim/model/tape.h"

/* What every inventory function gets: where to write, and the job's sizes. */
typedef struct {
    sim_builder_t *b;
    const sim_scenario_t *s;
    const sim_dims_t *d;
    uint32_t tp_rank;              /* of its tensor-parallel group */
    struct sim_offloads *offloads; /* borrowed; NULL = activations stay on the GPU */
    bool input_is_constant; /* the layer's input needs no gradient: a frozen embedding made it */
    /* In a decoder that reads an encoder's output: sizes there, that output, and its gradient so
     * far, to which every layer adds. */
    const sim_dims_t *encoder_d, *cross_d;
    sim_ref_t context, d_context;
    /* Gradients of weights that are left for a pass of their own; borrowed; NULL = none are. */
    struct sim_weights_later *later;
    /* Those of a layer's experts, until its tokens are on their way back; borrowed; NULL = none. */
    struct sim_weights_later *experts_later;
    bool has_units;          /* tell of the units of fully sharded data parallelism */
    uint32_t graph;          /* backward: the CUDA graph of the layer that is under way */
    struct sim_nodes *nodes; /* borrowed; NULL = passes are not cut into nodes */
} sim_model_t;

static inline void sim_tell(const sim_model_t *m, sim_unit_event_t event, uint32_t unit)
{
    if (m->has_units)
        sim_unit(m->b, event, unit);
}

/* What an adapter saves. */
typedef struct {
    sim_ref_t x, mid;             /* inputs of A and of B */
    sim_ref_t pre_mask, out_mask; /* dropout */
    sim_ref_t sum;                /* DoRA: what the magnitude scales */
} sim_adapter_save_t;

/* Norm followed by a column-parallel linear. Saved: input, normalised input, statistics. */
typedef struct {
    sim_ref_t x, ln_out, stat;
    sim_ref_t weight; /* FP8 copy that is not cached */
    sim_adapter_save_t adapter;
} sim_norm_linear_t;

/* Takes one reference of `x`. Returns the output, `out_bytes`. */
sim_ref_t sim_norm_linear_forward(sim_model_t *m, sim_norm_linear_t *save, sim_ref_t x,
                                  const char *out_name, uint64_t out_bytes);

/* Takes the output's gradient; returns the input's. `rows` = output features of this rank. */
sim_ref_t sim_norm_linear_backward(sim_model_t *m, sim_norm_linear_t *save, sim_ref_t d_out,
                                   uint64_t rows);

/* Row-parallel linear; the input is saved. Takes one reference of `x`, returns [local_tokens, h].
 */
typedef struct {
    sim_ref_t x;
    sim_ref_t weight; /* FP8 copy that is not cached */
    sim_adapter_save_t adapter;
} sim_row_linear_t;

sim_ref_t sim_row_linear_forward(sim_model_t *m, sim_row_linear_t *save, sim_ref_t x,
                                 uint64_t in_bytes, const char *out_name);

/* Takes the output's gradient; returns the input's, `in_bytes`. `cols` = input features. */
sim_ref_t sim_row_linear_backward(sim_model_t *m, sim_row_linear_t *save, sim_ref_t d_out,
                                  const char *in_grad_name, uint64_t in_bytes, uint64_t cols);

/* Drop all that a forward pass saved. */
void sim_norm_linear_forget(sim_model_t *m, sim_norm_linear_t *save);
void sim_row_linear_forget(sim_model_t *m, sim_row_linear_t *save);

/* Bias, dropout and residual addition. Saved: the dropout mask. */
typedef struct {
    sim_ref_t mask;
} sim_bda_t;

/* Takes `x` and one reference of `residual`; returns the sum. */
sim_ref_t sim_bda_forward(sim_model_t *m, sim_bda_t *save, sim_ref_t x, sim_ref_t residual,
                          const char *out_name);

/* Gradient of `x`; `d_out` is kept by the caller as the residual's gradient. */
sim_ref_t sim_bda_backward(sim_model_t *m, sim_bda_t *save, sim_ref_t d_out);

/* Rotary embedding, QK norm and core attention. */
typedef struct {
    sim_ref_t mixed_qkv;             /* kept where q, k or v is a view of it */
    sim_ref_t q_pre, k_pre, qk_stat; /* inputs and statistics of the QK norm */
    sim_ref_t rope_tables;           /* cos and sin of the unfused rotary embedding */
    sim_ref_t q, k;                  /* after norm and rotary embedding; none = views */
    /* Inside the core attention, which is what "core_attn" recomputes. */
    sim_ref_t core_q, core_k, core_v;         /* contiguous, repeated or batch-first copies */
    sim_ref_t out, lse;                       /* the kernel's own output and log-sum-exp */
    sim_ref_t softmax, dropout_mask, dropped; /* unfused attention */
    sim_ref_t mask;                           /* of padding, in unfused attention */
    sim_ref_t gate, ungated;                  /* output gate, and the context before it */
} sim_attention_save_t;

/* References of local variables that live until the attention module returns. */
typedef struct {
    sim_ref_t refs[3];
} sim_held_t;

/* Takes `mixed_qkv`; returns the context [tokens, heads_tp * d], one reference. The caller drops
 * *held_p after the output projection. */
sim_ref_t sim_attention_forward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t mixed_qkv,
                                sim_held_t *held_p);

/* Takes the context's gradient; returns mixed_qkv's. */
sim_ref_t sim_attention_backward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t d_out);

/* Give up what the core attention saved (fine-grained offloading). */
void sim_attention_offload(sim_model_t *m, sim_attention_save_t *save);

/* The core of attention to an encoder's output; m->d are the sizes of cross attention. Takes `q`
 * and `mixed_kv`; returns and is undone as sim_attention_forward() is. */
sim_ref_t sim_cross_attention_forward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t q,
                                      sim_ref_t mixed_kv, sim_held_t *held_p);

/* Takes the context's gradient; returns q's, and in *d_mixed_kv_p that of keys and values. */
sim_ref_t sim_cross_attention_backward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t d_out,
                                       sim_ref_t *d_mixed_kv_p);

/* Drop all that a forward pass saved. */
void sim_attention_forget(sim_model_t *m, sim_attention_save_t *save);

/* Activation function of the MLP. Saved: its input, and what an unfused one adds. */
typedef struct {
    sim_ref_t in, extra;
} sim_act_save_t;

/* activation_func_fp8_input_store: a copy with a byte an element is saved instead of the input
 * (fusions/fused_bias_swiglu.py). */
static inline bool sim_stores_act_in_fp8(const sim_model_t *m)
{
    return m->s->activation_func_fp8_input_store && m->s->bias_activation_fusion &&
           m->s->activation_func == SIM_ACT_SWIGLU;
}

sim_ref_t sim_act_forward(sim_model_t *m, sim_act_save_t *save, sim_ref_t fc1_out);
sim_ref_t sim_act_backward(sim_model_t *m, sim_act_save_t *save, sim_ref_t d_act);

/* Gradient of a weight [rows, cols], none when the weights are frozen: with fused accumulation
 * Transformer Engine hands autograd a dummy that is made once per shape and kept (module/base.py,
 * get_dummy_wgrad); without, a real tensor that the caller drops when the gradient has been added
 * to the main gradient. */
sim_ref_t sim_weight_grad(sim_model_t *m, uint64_t rows, uint64_t cols);

/* The same for a weight that is never frozen. */
sim_ref_t sim_trainable_weight_grad(sim_model_t *m, uint64_t rows, uint64_t cols);

/* Touch the workspaces of a GEMM through Transformer Engine or through PyTorch. */
void sim_te_gemm(sim_model_t *m);
void sim_torch_gemm(sim_model_t *m);

#endif
