/* SPDX-License-Identifier: Apache-2.0
 * Sizes of one rank that everything else is computed from. */
#ifndef SIM_MODEL_DIMS_H
#define SIM_MODEL_DIMS_H

#include "sim/scenario/scenario.h"

#include <stdbool.h>
#include <stdint.h>

/* Which attention kernels run (after "auto" has been decided). */
typedef enum {
    SIM_CORE_CUDNN,   /* Transformer Engine FusedAttention */
    SIM_CORE_FLASH,   /* FlashAttention 2 or 3 */
    SIM_CORE_UNFUSED, /* Transformer Engine UnfusedDotProductAttention */
    SIM_CORE_LOCAL,   /* Megatron's DotProductAttention */
} sim_core_t;

/* Multi-latent attention. */
typedef struct {
    bool is_used;
    uint64_t q_rank, kv_rank;    /* compressed widths; q_rank 0 = queries are not compressed */
    uint64_t qk_dim;             /* width of a query or key head, rotary part included */
    uint64_t nope_dim, rope_dim; /* its two parts */
    uint64_t v_dim;              /* width of a value head */
    uint64_t q_bytes, v_bytes;   /* [tokens, heads_tp, qk_dim], [tokens, heads_tp, v_dim] */
    uint64_t kv_bytes;           /* [tokens, heads_tp, nope_dim + v_dim] */
    uint64_t q_down_bytes;       /* [local_tokens, q_rank] */
    uint64_t kv_down_bytes;      /* [local_tokens, kv_rank + rope_dim] */
} sim_mla_dims_t;

/* Mixture of experts. */
typedef struct {
    uint64_t n_experts; /* 0 = dense model */
    uint64_t topk;
    uint64_t ep, etp;    /* expert parallel and expert tensor parallel size */
    uint64_t n_local;    /* experts of a rank */
    uint64_t h;          /* width of a dispatched token: the latent or the hidden size */
    uint64_t latent;     /* latent width, 0 = none */
    uint64_t ffn_etp;    /* width of an expert on one rank */
    uint64_t shared_ffn; /* width of the shared experts on one rank, 0 = none */
    uint64_t score_e;    /* bytes of the router's scores */
    uint64_t prob_e;     /* bytes of the probabilities that go with dispatched tokens */
    uint64_t capacity;   /* tokens an expert takes from one rank; 0 = all */
    uint32_t ep_rank;    /* of this rank; 0 where routing is the same on all */
} sim_moe_dims_t;

/* Mamba-2, on one rank. */
typedef struct {
    uint64_t heads, groups, head_dim, state;
    uint64_t inner;     /* heads * head_dim */
    uint64_t conv;      /* channels of the convolution: x, B and C */
    uint64_t proj_rows; /* of the input projection: z, x, B, C and dt */
} sim_mamba_dims_t;

/* Gated delta net, on one rank. */
typedef struct {
    uint64_t key_heads, value_heads, key_dim, value_dim;
    uint64_t conv;      /* channels of the convolution: queries, keys and values */
    uint64_t proj_rows; /* of the input projection: those, gate, write strength and decay */
} sim_delta_net_dims_t;

typedef struct {
    uint64_t tp, cp;
    bool sp;               /* sequence parallel and tp > 1 */
    uint64_t s, b;         /* sequence length, micro-batch size */
    uint64_t s_kv;         /* sequence length of keys and values: s, but in cross attention */
    uint64_t tokens;       /* s * b / cp: tokens of a rank before the sequence-parallel split */
    uint64_t local_tokens; /* tokens / tp with sequence parallel, else tokens */
    uint64_t h, ffn;       /* hidden size, FFN width (whole model) */
    uint64_t heads, groups, head_dim; /* attention heads, KV groups, head dimension (whole model) */
    uint64_t heads_tp, groups_tp;     /* per rank; groups_tp = max(groups / tp, 1) */
    uint64_t gate;                    /* 2 when the MLP is gated, else 1 */
    uint64_t padded_vocab, vocab_tp;
    uint64_t e;           /* bytes of an activation element */
    uint64_t norm_params; /* 1 for RMSNorm (weight), 2 for LayerNorm (weight, bias) */
    uint64_t rotary_dim;  /* 0 without rotary embedding */
    sim_core_t core;
    bool masks_padding; /* attention gets a mask of padding, and is not causal */
    bool te;            /* Transformer Engine layers, else Megatron's local ones */
    uint32_t n_sms;     /* multiprocessors of the GPU */
    uint32_t sm;        /* compute capability of the GPU */

    /* Bytes of the tensors that come up everywhere. */
    uint64_t hidden_bytes;         /* [local_tokens, h] */
    uint64_t full_hidden_bytes;    /* [tokens, h] */
    uint64_t q_bytes, kv_bytes;    /* [tokens, heads_tp, d] and [tokens, groups_tp, d] */
    uint64_t lse_bytes;            /* log-sum-exp of attention: fp32 [tokens, heads_tp] */
    uint64_t qkv_rows;             /* output features of the qkv projection, on this rank */
    uint64_t qkv_bytes;            /* output of the qkv projection */
    uint64_t fc1_bytes, act_bytes; /* [tokens, gate * ffn / tp], [tokens, ffn / tp] */
    uint64_t norm_stat_bytes;      /* rsigma (and mu) of one norm over local_tokens rows */
    uint64_t logits_bytes;         /* [tokens, vocab_tp] in the activation dtype */

    sim_mla_dims_t mla;
    sim_mamba_dims_t mamba;
    sim_delta_net_dims_t delta_net;
    sim_moe_dims_t moe;
} sim_dims_t;

/* Derive from a resolved scenario. BASE_ERR_OVERFLOW names the product that does not fit. */
base_status_t sim_dims_init(sim_dims_t *dims_p, const sim_scenario_t *scenario, base_err_t *err);

/* Sizes in the decoder of a T5, and in its attention to what the encoder made: queries of the
 * decoder, keys and values of the encoder. `dims` are the encoder's. */
sim_dims_t sim_dims_decoder(const sim_dims_t *dims, const sim_scenario_t *scenario);
sim_dims_t sim_dims_cross(const sim_dims_t *dims, const sim_scenario_t *scenario);

/* Rows of the tensors on the way to the experts and back, in one layer on one rank. */
typedef struct {
    uint64_t sent;     /* copies of tokens that this rank sends, one for each expert of each */
    uint64_t received; /* rows that arrive from the expert parallel ranks */
    uint64_t unique;   /* distinct tokens among them: what DeepEP receives */
    uint64_t expert;   /* rows that the local experts see: of all expert tensor parallel ranks */
    uint64_t gathered; /* tokens of the whole group, for the all-gather dispatcher */
} sim_moe_rows_t;

/* `layer` counts decoder layers, then those of multi-token prediction. */
sim_moe_rows_t sim_moe_rows(const sim_scenario_t *scenario, const sim_dims_t *dims, uint32_t layer);

#endif
