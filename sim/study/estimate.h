/* SPDX-License-Identifier: Apache-2.0
 * The closed-form memory estimators that people know: Megatron-LM's
 * (megatron/training/theoretical_memory_usage.py, mcore 0.20.0) and Megatron-Bridge's
 * (src/megatron/bridge/training/utils/theoretical_memory_utils.py, 0.7.0), as they stand. They
 * compute in floating point, as the originals do; the simulation does not use them. */
#ifndef SIM_STUDY_ESTIMATE_H
#define SIM_STUDY_ESTIMATE_H

#include "sim/scenario/scenario.h"

#include <stdbool.h>
#include <stdint.h>

/* What both read. Counts as in the scenario; 0 means "none" where that makes sense. */
typedef struct {
    uint64_t num_layers, hidden_size, ffn_hidden_size;
    uint64_t num_attention_heads, num_query_groups, kv_channels; /* groups = heads without GQA */
    bool gated;   /* swiglu: three MLP matrices instead of two */
    bool rmsnorm; /* else LayerNorm with a bias */
    bool untie, add_bias_linear;
    uint64_t padded_vocab_size;

    bool multi_latent_attention;
    uint64_t q_lora_rank; /* 0 = no low-rank queries */
    uint64_t kv_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim;

    uint64_t num_experts; /* 0 = dense */
    uint64_t moe_ffn_hidden_size, moe_shared_expert_intermediate_size, moe_latent_size;
    uint64_t moe_router_topk;
    bool moe_shared_expert_gate;
    const uint8_t *moe_layers; /* num_layers of them, 1 = MoE layer; NULL = all, when num_experts */
    uint64_t mtp_num_layers;

    uint64_t world_size, tp, pp, cp, ep, etp;
    uint64_t vpp;                     /* 0 = no virtual pipeline */
    uint64_t first_stage, last_stage; /* layers there, 0 = even split (Bridge reads them) */
    bool use_distributed_optimizer;

    uint64_t seq_length, micro_batch_size;
    uint64_t n_microbatches; /* 0 = not known */
    bool sequence_parallel, recompute_selective;
} sim_estimate_input_t;

typedef struct {
    double weight_and_optimizer_bytes;
    double activation_bytes;
    double total_bytes;
} sim_estimate_t;

/* Megatron-LM's, for the most loaded GPU. */
sim_estimate_t sim_estimate_megatron(const sim_estimate_input_t *in);

typedef struct {
    double dense_parameters, routed_parameters; /* of the most loaded GPU */
    double dense_bytes, routed_bytes;           /* with gradients and optimizer state */
    double activation_bytes;
    /* The printed line has the activations only with sequence parallelism and selective recompute.
     */
    bool prints_activation;
} sim_estimate_bridge_t;

/* Megatron-Bridge's. BASE_ERR_INVAL, with the reason, where the original raises ValueError: an
 * uneven pipeline split that does not come out. */
base_status_t sim_estimate_bridge(const sim_estimate_input_t *in, sim_estimate_bridge_t *estimate_p,
                                  base_err_t *err);

/* From a resolved scenario. */
void sim_estimate_input(const sim_scenario_t *scenario, sim_estimate_input_t *in_p);

/* The lines as both programs print them, in MiB called MB; the caller frees. */
char *sim_estimate_megatron_line(const sim_estimate_t *estimate);
char *sim_estimate_bridge_line(const sim_estimate_bridge_t *estimate);

#endif
