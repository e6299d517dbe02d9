/* SPDX-License-Identifier: Apache-2.0
 * One training job as resolved: every key of the scenario file has its value here, given or
 * default. Field names are the keys' names (Megatron-LM's, spelled with underscores); the table in
 * scenario_keys.c says type, unit, range, default and meaning of each. */
#ifndef SIM_SCENARIO_SCENARIO_H
#define SIM_SCENARIO_SCENARIO_H

#include "collectives/nccl_memory.h"
#include "sim/base/diag.h"
#include "sim/base/err.h"
#include "sim/scenario/routing.h"
#include "sim/scenario/schedules.h"
#include "topology/gpu.h"
#include "topology/grid.h"
#include "topology/stages.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    SIM_DTYPE_FP32,
    SIM_DTYPE_BF16,
    SIM_DTYPE_FP16,
    SIM_DTYPE_FP8,
    SIM_N_DTYPES
} sim_dtype_t;

/* The program that trains. */
typedef enum { SIM_FRAMEWORK_MEGATRON, SIM_FRAMEWORK_TORCHTITAN } sim_framework_t;

/* activation_checkpoint_mode: what torchtitan computes again. */
typedef enum { SIM_AC_NONE, SIM_AC_SELECTIVE, SIM_AC_FULL } sim_ac_t;

/* fsdp_reshard_after_forward: whether gathered parameters go between forward and backward. */
typedef enum { SIM_RESHARD_DEFAULT, SIM_RESHARD_ALWAYS, SIM_RESHARD_NEVER } sim_reshard_t;

/* context_parallel_rotate_method, and the most ranks that a ring may have here. */
typedef enum { SIM_ROTATE_ALLGATHER, SIM_ROTATE_ALLTOALL } sim_rotate_t;
enum { SIM_TITAN_MAX_CP = 64 };

/* optimizer_implementation: kernels of torch.optim. */
typedef enum { SIM_ADAMW_BY_DATE, SIM_ADAMW_FOREACH, SIM_ADAMW_FUSED } sim_adamw_t;

/* How context parallelism exchanges keys and values. */
typedef enum { SIM_CP_P2P, SIM_CP_ALL_GATHER, SIM_CP_A2A, SIM_CP_A2A_P2P } sim_cp_comm_t;

typedef enum { SIM_FP8_NONE, SIM_FP8_HYBRID, SIM_FP8_E4M3 } sim_fp8_t;
typedef enum { SIM_FP4_NONE, SIM_FP4_E2M1 } sim_fp4_t;

/* How Transformer Engine scales FP8 tensors. */
typedef enum {
    SIM_FP8_DELAYED,
    SIM_FP8_TENSORWISE,
    SIM_FP8_BLOCKWISE,
    SIM_FP8_MXFP8,
    SIM_NVFP4, /* of fp4, no choice of fp8_recipe */
} sim_fp8_recipe_t;

typedef enum { SIM_NORM_LAYERNORM, SIM_NORM_RMSNORM } sim_norm_t;

typedef enum { SIM_POS_LEARNED, SIM_POS_ROPE, SIM_POS_NONE } sim_pos_t;

/* auto: what Transformer Engine would pick on the GPU; local: Megatron's own DotProductAttention.
 */
typedef enum {
    SIM_ATTENTION_AUTO,
    SIM_ATTENTION_FLASH,
    SIM_ATTENTION_FUSED,
    SIM_ATTENTION_UNFUSED,
    SIM_ATTENTION_LOCAL,
} sim_attention_t;

typedef enum { SIM_IMPL_TRANSFORMER_ENGINE, SIM_IMPL_LOCAL } sim_impl_t;

typedef enum {
    SIM_ACT_GELU,
    SIM_ACT_SWIGLU,
    SIM_ACT_GEGLU,
    SIM_ACT_SQUARED_RELU,
    SIM_ACT_SILU
} sim_act_t;

typedef enum { SIM_MODEL_GPT, SIM_MODEL_BERT, SIM_MODEL_T5 } sim_model_type_t;

/* What a layer is made of; experts may be in the place of the MLP. */
typedef enum {
    SIM_LAYER_TRANSFORMER, /* attention, then an MLP */
    SIM_LAYER_MAMBA,
    SIM_LAYER_ATTENTION,
    SIM_LAYER_MLP,
    SIM_LAYER_DELTA_NET,
    SIM_LAYER_LINEAR_TRANSFORMER, /* gated delta net, then an MLP */
} sim_layer_kind_t;

typedef enum { SIM_VARIANT_NONE, SIM_VARIANT_GDN } sim_attention_variant_t;

typedef enum { SIM_CE_NATIVE, SIM_CE_TE } sim_ce_impl_t;

typedef enum { SIM_RECOMPUTE_NONE, SIM_RECOMPUTE_SELECTIVE, SIM_RECOMPUTE_FULL } sim_recompute_t;
typedef enum {
    SIM_RECOMPUTE_METHOD_NONE,
    SIM_RECOMPUTE_UNIFORM,
    SIM_RECOMPUTE_BLOCK
} sim_recompute_method_t;

/* recompute_modules, a set. */
typedef enum {
    SIM_MODULE_CORE_ATTN = 1 << 0,
    SIM_MODULE_MLP = 1 << 1,
    SIM_MODULE_LAYERNORM = 1 << 2,
    SIM_MODULE_MOE = 1 << 3,
    SIM_MODULE_MOE_ACT = 1 << 4,
    SIM_MODULE_SHARED_EXPERTS = 1 << 5,
    SIM_MODULE_MLA_UP_PROJ = 1 << 6,
    SIM_MODULE_GDN_NORM_OUT = 1 << 7,
} sim_recompute_module_t;

typedef enum {
    SIM_DISPATCHER_ALLGATHER,
    SIM_DISPATCHER_ALLTOALL,
    SIM_DISPATCHER_FLEX
} sim_dispatcher_t;

typedef enum { SIM_FLEX_DEEPEP, SIM_FLEX_HYBRIDEP } sim_flex_t;

typedef enum { SIM_SCORE_SOFTMAX, SIM_SCORE_SIGMOID, SIM_SCORE_SQRTSOFTPLUS } sim_score_t;

/* moe_router_load_balancing_type, a set; "none" is the empty one. */
typedef enum {
    SIM_BALANCE_AUX = 1 << 0,
    SIM_BALANCE_SEQ_AUX = 1 << 1,
    SIM_BALANCE_GLOBAL_AUX = 1 << 2,
    SIM_BALANCE_SINKHORN = 1 << 3,
    SIM_BALANCE_QUANTILE = 1 << 4,
    SIM_BALANCE_NONE = 1 << 5,
} sim_balance_t;

typedef enum { SIM_ROUTER_PARAMS_DTYPE, SIM_ROUTER_FP32, SIM_ROUTER_FP64 } sim_router_dtype_t;

/* offload_modules, a set. */
typedef enum {
    SIM_OFFLOAD_ATTN_NORM = 1 << 0,
    SIM_OFFLOAD_QKV_LINEAR = 1 << 1,
    SIM_OFFLOAD_CORE_ATTN = 1 << 2,
    SIM_OFFLOAD_ATTN_PROJ = 1 << 3,
    SIM_OFFLOAD_MLP_NORM = 1 << 4,
    SIM_OFFLOAD_EXPERT_FC1 = 1 << 5,
    SIM_OFFLOAD_MOE_ACT = 1 << 6,
} sim_offload_module_t;

typedef enum {
    SIM_GRAPHS_NONE,
    SIM_GRAPHS_LOCAL,
    SIM_GRAPHS_TRANSFORMER_ENGINE,
    SIM_GRAPHS_FULL_ITERATION,
} sim_graphs_impl_t;

/* cuda_graph_modules, a set; empty = whole layers. */
typedef enum {
    SIM_CUDA_GRAPH_ATTN = 1 << 0,
    SIM_CUDA_GRAPH_MLP = 1 << 1,
    SIM_CUDA_GRAPH_MOE = 1 << 2,
    SIM_CUDA_GRAPH_MOE_ROUTER = 1 << 3,
    SIM_CUDA_GRAPH_MOE_PREPROCESS = 1 << 4,
    SIM_CUDA_GRAPH_MAMBA = 1 << 5,
    SIM_CUDA_GRAPH_FULL_ITERATION = 1 << 6, /* the older way to say it; gone once resolved */
} sim_cuda_graph_module_t;

typedef enum { SIM_PEFT_NONE, SIM_PEFT_LORA, SIM_PEFT_DORA } sim_peft_t;

typedef enum { SIM_DROPOUT_PRE, SIM_DROPOUT_POST } sim_dropout_position_t;

/* peft target_modules, a set. */
typedef enum {
    SIM_TARGET_QKV = 1 << 0,
    SIM_TARGET_PROJ = 1 << 1,
    SIM_TARGET_FC1 = 1 << 2,
    SIM_TARGET_FC2 = 1 << 3,
    SIM_TARGET_Q_PROJ = 1 << 4, /* from here on of multi-latent attention */
    SIM_TARGET_Q_DOWN = 1 << 5,
    SIM_TARGET_Q_UP = 1 << 6,
    SIM_TARGET_KV_DOWN = 1 << 7,
    SIM_TARGET_KV_UP = 1 << 8,
    SIM_TARGETS_OF_MLA = SIM_TARGET_Q_PROJ | SIM_TARGET_Q_DOWN | SIM_TARGET_Q_UP |
                         SIM_TARGET_KV_DOWN | SIM_TARGET_KV_UP,
} sim_target_t;

/* run.moments, a set: what is played beside the training steps. */
typedef enum {
    SIM_MOMENT_CHECKPOINT_LOAD = 1 << 0,
    SIM_MOMENT_EVALUATION = 1 << 1,
    SIM_MOMENT_CHECKPOINT_SAVE = 1 << 2,
    SIM_MOMENT_LONGEST_BATCH = 1 << 3,
} sim_run_moment_t;

typedef enum { SIM_OPTIMIZER_ADAM, SIM_OPTIMIZER_SGD, SIM_OPTIMIZER_MUON } sim_optimizer_t;

/* data_parallel_sharding_strategy: what data parallel ranks share. */
typedef enum {
    SIM_FSDP_NO_SHARD,
    SIM_FSDP_OPTIM,
    SIM_FSDP_OPTIM_GRADS,
    SIM_FSDP_OPTIM_GRADS_PARAMS,
} sim_fsdp_strategy_t;

/* Types of Megatron-FSDP's buffers; auto: that of the parameters. */
typedef enum { SIM_FSDP_AUTO, SIM_FSDP_FP32, SIM_FSDP_BF16, SIM_FSDP_FP16 } sim_fsdp_dtype_t;

/* muon_scalar_optimizer: what updates embeddings, norms and biases beside Muon. */
typedef enum { SIM_SCALAR_ADAM, SIM_SCALAR_LION } sim_scalar_t;

/* muon_tp_mode: how tensor parallel ranks orthogonalize a matrix that they share. */
typedef enum { SIM_MUON_DUPLICATED, SIM_MUON_DISTRIBUTED, SIM_MUON_BLOCKWISE } sim_muon_tp_t;

/* muon_fp32_matmul_prec; medium iterates in bf16. */
typedef enum { SIM_MATMUL_MEDIUM, SIM_MATMUL_HIGH, SIM_MATMUL_HIGHEST } sim_matmul_t;

/* Where the synthetic device places a new segment; the values of sim_addresses_t. */
typedef enum { SIM_PLACEMENT_BUMP, SIM_PLACEMENT_REUSE, SIM_PLACEMENT_DOWN } sim_placement_t;

/* How memory is played: through the caching allocator, or as the sum of what is alive. */
typedef enum { SIM_MODE_STEPPED, SIM_MODE_LIVE } sim_mode_t;

/* "stepped", "live". */
const char *sim_mode_name(sim_mode_t mode);

typedef enum { SIM_BACKEND_SYNTHETIC, SIM_BACKEND_HOST, SIM_BACKEND_CUDA } sim_backend_t;

/* NCCL_P2P_LEVEL: how far apart GPUs without NVLink may be to reach each other directly. */
typedef enum { SIM_P2P_AUTO, SIM_P2P_NEVER, SIM_P2P_NVLINK, SIM_P2P_ANYWHERE } sim_p2p_level_t;

/* NCCL_NET_GDR_LEVEL: whether NICs reach GPU memory. */
typedef enum { SIM_GDR_AUTO, SIM_GDR_NEVER } sim_gdr_level_t;

/* One line of [sweep]: a key and the values that a sweep gives it, ranges (1..8, 8..64+8, 1..64*2)
 * written out, checked against the key's type and range when they were read. The single value
 * "auto", of the keys that split a model over GPUs, stands for all that may be legal. */
typedef struct {
    const char *section, *key; /* of the table of keys */
    char **values;             /* n_values texts for sim_scenario_set(), or "auto"; owned */
    size_t n_values;
    char *origin; /* "job.ini:31"; owned */
} sim_sweep_axis_t;

typedef struct {
    /* [model] */
    char *preset;    /* NULL = none */
    char *hf_config; /* path as written, NULL = none; read by sim_scenario_set() */
    sim_model_type_t model_type;
    bool bert_binary_head;
    char *hybrid_layer_pattern; /* a letter for each layer, NULL = all are Transformer layers */
    uint64_t mamba_state_dim, mamba_head_dim, mamba_num_groups;
    uint64_t mamba_num_heads;                          /* 0 = 2 * hidden_size / mamba_head_dim */
    uint64_t decoder_num_layers;                       /* T5; num_layers are the encoder's */
    uint64_t num_layers, hidden_size, ffn_hidden_size; /* ffn 0 = 4h (8h/3 when gated) */
    uint64_t num_attention_heads, num_query_groups;    /* groups 0 = heads */
    uint64_t kv_channels;                              /* 0 = hidden_size / heads */
    uint64_t vocab_size, make_vocab_size_divisible_by;
    uint64_t padded_vocab_size; /* 0 = vocab_size padded to make_vocab_size_divisible_by * tp */
    uint64_t max_position_embeddings;
    sim_act_t activation_func;
    bool gated_linear_unit; /* after resolve: activation_func is swiglu or geglu */
    sim_norm_t normalization;
    sim_pos_t position_embedding_type;
    double rotary_percent;
    bool rotary_interleaved;
    bool add_bias_linear, add_qkv_bias, untie_embeddings_and_output_weights;
    bool qk_layernorm, attention_output_gate;
    double attention_dropout, hidden_dropout;
    bool attention_softmax_in_fp32, apply_query_key_layer_scaling;
    bool multi_latent_attention;
    uint64_t q_lora_rank; /* 0 = queries are not compressed */
    uint64_t kv_lora_rank, qk_head_dim, qk_pos_emb_head_dim, v_head_dim;
    bool mla_down_proj_fusion;
    uint64_t mtp_num_layers; /* 0 = none */
    bool mtp_use_repeated_layer;
    sim_attention_variant_t experimental_attention_variant;
    const char *linear_attention_freq; /* NULL = not given */
    uint64_t linear_conv_kernel_dim, linear_key_head_dim, linear_value_head_dim;
    uint64_t linear_num_key_heads, linear_num_value_heads;

    /* [moe] */
    uint64_t num_experts; /* 0 = dense */
    uint64_t moe_router_topk;
    uint64_t moe_ffn_hidden_size;                 /* 0 = ffn_hidden_size */
    uint64_t moe_shared_expert_intermediate_size; /* 0 = no shared expert */
    uint64_t moe_latent_size;                     /* 0 = none */
    bool use_fused_weighted_squared_relu;
    bool moe_shared_expert_overlap, moe_shared_expert_gate;
    bool overlap_dispatch_backward_with_experts_wgrad;
    char *moe_layer_freq; /* "1", "2", "[0]*3+[1]*58"; NULL = 1 */
    sim_dispatcher_t moe_token_dispatcher_type;
    sim_flex_t moe_flex_dispatcher_backend;
    bool moe_grouped_gemm, moe_permute_fusion, moe_router_fusion;
    double moe_expert_capacity_factor; /* 0 = no tokens are dropped */
    bool moe_pad_expert_input_to_capacity;
    sim_router_dtype_t moe_router_dtype;
    sim_score_t moe_router_score_function;
    bool moe_router_pre_softmax, moe_router_enable_expert_bias;
    uint32_t moe_router_load_balancing_type; /* set of sim_balance_t */
    double moe_aux_loss_coeff, moe_z_loss_coeff;
    char *moe_imbalance; /* how uneven routing is; NULL = balanced */

    /* [parallel] */
    uint64_t world_size;
    uint64_t tensor_model_parallel_size, pipeline_model_parallel_size;
    uint64_t virtual_pipeline_model_parallel_size;             /* 0 = no virtual pipeline */
    uint64_t num_layers_per_virtual_pipeline_stage;            /* 0 = not given */
    uint64_t microbatch_group_size_per_virtual_pipeline_stage; /* 0 = pipeline size */
    sim_schedule_t pipeline_schedule;
    sim_cp_comm_t cp_comm_type;
    const char *hierarchical_context_parallel_sizes; /* NULL = not given */
    uint64_t context_parallel_size, expert_model_parallel_size;
    uint64_t expert_tensor_parallel_size; /* 0 = tensor_model_parallel_size */
    bool sequence_parallel, use_tp_pp_dp_mapping;
    uint64_t decoder_first_pipeline_num_layers,
        decoder_last_pipeline_num_layers; /* 0 = not given */
    bool account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split;
    char *pipeline_model_parallel_layout; /* NULL = not given */
    bool overlap_p2p_communication, overlap_p2p_communication_warmup_flush;
    bool overlap_moe_expert_parallel_comm;
    bool deallocate_pipeline_outputs;
    bool defer_embedding_wgrad_compute;
    uint64_t wgrad_deferral_limit; /* 0 = all micro-batches */
    bool tp_comm_overlap;

    /* [train] */
    uint64_t micro_batch_size, global_batch_size, seq_length;
    uint64_t mean_seq_length; /* 0 = every sample has seq_length */
    uint64_t seq_length_seed;
    uint64_t decoder_seq_length; /* T5; seq_length is the encoder's */
    bool create_attention_mask_in_dataloader;
    sim_attention_t attention_backend;
    sim_impl_t transformer_impl;
    bool apply_rope_fusion, bias_activation_fusion, bias_dropout_fusion, masked_softmax_fusion;
    bool gradient_accumulation_fusion;
    bool cross_entropy_loss_fusion;
    sim_ce_impl_t cross_entropy_fusion_impl;
    bool deterministic_mode;
    uint64_t
        empty_unused_memory_level; /* 0..2: Megatron-LM empties the cache once or twice a step */
    bool check_for_nan_in_loss_and_grad;
    sim_graphs_impl_t cuda_graph_impl;
    uint32_t cuda_graph_modules; /* set of sim_cuda_graph_module_t */
    uint64_t cuda_graph_warmup_steps;

    /* [precision] */
    bool bf16, fp16;
    sim_fp8_t fp8;
    sim_fp8_recipe_t fp8_recipe;
    bool fp8_param_gather, reuse_grad_buf_for_mxfp8_param_ag;
    sim_fp4_t fp4;
    bool fp4_param_gather;
    bool fp8_dot_product_attention;
    bool disable_parameter_transpose_cache, activation_func_fp8_input_store;
    bool first_last_layers_bf16;
    uint64_t num_layers_at_start_in_bf16, num_layers_at_end_in_bf16;
    bool accumulate_allreduce_grads_in_fp32; /* default: on with bf16 */

    /* [recompute] */
    sim_recompute_t recompute_granularity;
    sim_recompute_method_t recompute_method;
    uint64_t recompute_num_layers; /* 0 = not given */
    uint32_t recompute_modules;    /* set of sim_recompute_module_t */
    bool distribute_saved_activations;

    /* [offload] */
    bool cpu_offloading, cpu_offloading_activations, cpu_offloading_weights;
    uint64_t cpu_offloading_num_layers;
    bool fine_grained_activation_offloading;
    uint32_t offload_modules;           /* set of sim_offload_module_t */
    uint64_t min_offloaded_tensor_size; /* elements */
    double activation_offload_fraction;

    /* [optimizer] */
    sim_optimizer_t optimizer;
    bool use_distributed_optimizer, overlap_grad_reduce, overlap_param_gather;
    uint64_t ddp_bucket_size, ddp_num_buckets; /* 0 = not given */
    bool ddp_pad_buckets_for_high_nccl_busbw;
    uint64_t num_distributed_optimizer_instances;
    bool use_precision_aware_optimizer, store_param_remainders;
    sim_dtype_t main_grads_dtype, main_params_dtype, exp_avg_dtype, exp_avg_sq_dtype;
    bool use_megatron_fsdp, fsdp_double_buffer, init_model_with_meta_device;
    bool use_torch_fsdp2, torch_fsdp2_reshard_after_forward;
    sim_fsdp_strategy_t data_parallel_sharding_strategy;
    sim_fsdp_dtype_t megatron_fsdp_main_params_dtype, megatron_fsdp_main_grads_dtype;
    sim_fsdp_dtype_t megatron_fsdp_grad_comm_dtype;
    uint64_t suggested_communication_unit_size; /* 0 = by the model */
    bool use_layer_wise_param_layout, muon_split_qkv, muon_nesterov;
    sim_muon_tp_t muon_tp_mode;
    sim_matmul_t muon_fp32_matmul_prec;
    sim_scalar_t muon_scalar_optimizer;
    bool log_params_norm, log_num_zeros_in_grad, decoupled_lr;
    bool optimizer_cpu_offload;
    double optimizer_offload_fraction;

    /* [peft] */
    sim_peft_t peft_scheme;
    uint64_t peft_dim; /* rank of an adapter */
    double peft_dropout;
    sim_dropout_position_t peft_dropout_position;
    uint32_t peft_target_modules; /* set of sim_target_t */
    bool sequence_parallel_input_regather, a2a_experimental;
    bool normalize_moe_lora, share_expert_adapters;

    /* [device] */
    char *gpu;                       /* as written */
    const topo_gpu_t *gpu_p;         /* resolved, never NULL in a valid scenario */
    uint64_t memory_bytes;           /* total memory; default: the GPU's */
    uint64_t reserved_outside_bytes; /* not usable by PyTorch; 0 = by estimate_outside */
    sim_backend_t backend;
    uint64_t device_scale;         /* host: bytes of the device to a byte of the machine */
    double device_share;           /* of the real memory, all ranks on it together; 0 = default */
    uint64_t ranks_per_gpu;        /* cuda: that may share one */
    bool device_fill;              /* host, cuda: every buffer is written to */
    char *cublas_workspace_config; /* text of CUBLAS_WORKSPACE_CONFIG, NULL = not set */
    double compute_efficiency;     /* for the time estimate; 0 = measured on GPUs of its kind */
    uint64_t host_us_per_layer;    /* for the time estimate; 0 = measured on hosts of its kind */

    bool estimate_outside; /* when reserved_outside_bytes is 0 */

    /* [cluster] */
    uint64_t gpus_per_node, nvlink_domain, nics_per_node; /* default: by the GPU */
    uint64_t nic_gbit_per_s;                              /* default: by the GPU */

    /* [nccl]; counts and sizes of 0 = not set */
    char *nccl_version;   /* NULL = the software's */
    bool nccl_eager_init; /* init_process_group(device_id=...) */
    uint64_t nccl_buffsize, nccl_ll_buffsize, nccl_ll128_buffsize;
    uint64_t nccl_min_nchannels, nccl_max_nchannels, nccl_min_ctas, nccl_max_ctas;
    uint64_t nccl_min_p2p_nchannels, nccl_max_p2p_nchannels, nccl_nchannels_per_net_peer;
    uint64_t nccl_p2p_max_peers, nccl_nvls_nchannels, nccl_nvls_chunksize;
    uint64_t nccl_p2p_nvl_chunksize, nccl_p2p_pci_chunksize, nccl_p2p_net_chunksize;
    uint64_t nccl_multicast_bytes;
    coll_switch_t nccl_graph_register;
    coll_switch_t nccl_cumem_enable, nccl_nvls_enable, nccl_runtime_connect, nccl_pat_enable;
    coll_switch_t nccl_net_shared_buffers;
    sim_p2p_level_t nccl_p2p_level;
    sim_gdr_level_t nccl_net_gdr_level;
    bool nccl_p2p_disable, nccl_pxn_disable, nccl_ib_disable;
    char *nccl_algo; /* NULL = all */
    uint64_t nccl_log_coll, nccl_log_nvls, nccl_log_p2p, nccl_log_per_peer;

    /* [allocator] */
    char *conf;         /* text of PYTORCH_CUDA_ALLOC_CONF, NULL = defaults */
    uint32_t addresses; /* sim_placement_t */

    /* [torchtitan] */
    sim_ac_t activation_checkpoint_mode;
    char *selective_ac_option; /* "op" or a number */
    bool compile_model, compile_loss;
    sim_reshard_t fsdp_reshard_after_forward;
    sim_dtype_t mixed_precision_reduce;
    sim_adamw_t optimizer_implementation;
    uint64_t data_parallel_replicate_degree;
    bool enable_fsdp_float8_all_gather;
    sim_rotate_t context_parallel_rotate_method;

    /* [run] */
    sim_framework_t framework;
    sim_mode_t mode;
    uint64_t iterations;
    uint32_t moments; /* set of sim_run_moment_t */
    bool dist_ckpt_optim_fully_reshardable, distrib_optim_fully_reshardable_mem_efficient;
    uint64_t software_date; /* YYYYMMDD; 0 = the newest software */

    /* [sweep], in file order; commands that do not sweep say that they leave it out. */
    sim_sweep_axis_t *sweep;
    size_t n_sweep;
    uint64_t sweep_tokens_per_batch; /* global_batch_size * seq_length of every layout; 0 = free */

    size_t n_settings; /* lines of the form key = value that sim_scenario_read() saw */

    /* How each key got its value; belongs to sim/scenario. */
    struct sim_key_state *state;

    /* Derived, filled by sim_scenario_resolve(). */
    topo_grid_t grid;
    topo_stages_t stages;
    uint64_t n_microbatches; /* global_batch_size / (micro_batch_size * dp) */
    uint64_t cp_a2a_size;    /* context parallel ranks that split heads before the ring; 1 = none */
    uint64_t mtp_depth_layers; /* layers of each depth of multi-token prediction */
    uint8_t *layer_kinds;      /* sim_layer_kind_t, sim_n_layers(); NULL = all Transformer; owned */
    bool *layer_is_moe;        /* sim_n_layers() of them; NULL when dense; owned */
    sim_routing_t *routing;    /* NULL = balanced; owned */
    uint64_t selective_ac_every; /* n of selective_ac_option; 0 = by operator */
    const char *broken_rule; /* what must hold and does not, without figures; NULL = all is well */
} sim_scenario_t;

/* All defaults, nothing derived. Free with sim_scenario_fini(). */
void sim_scenario_init(sim_scenario_t *scenario);
void sim_scenario_fini(sim_scenario_t *scenario);

/* A deep copy, derived fields left out: resolve it again. *copy_p need not be initialised. */
void sim_scenario_copy(sim_scenario_t *copy_p, const sim_scenario_t *scenario);

/* Set one key. `section` may be NULL when the key's name is unique. `origin` ("job.ini:12" or
 * "--set") begins the message. False, with the reason appended to `diag`, on an unknown key (with
 * the nearest known one) or a wrong value (with what is allowed). */
bool sim_scenario_set(sim_scenario_t *scenario, const char *section, const char *key,
                      const char *value, const char *origin, base_diag_t *diag);

/* The same for one text "section.key=value" or "key=value", as --set takes it. */
bool sim_scenario_set_text(sim_scenario_t *scenario, const char *assignment, const char *origin,
                           base_diag_t *diag);

/* As sim_scenario_set(), but gives way to a value that was or will be set explicitly, wherever that
 * stands: what a preset or a model description says. */
bool sim_scenario_suggest(sim_scenario_t *scenario, const char *key, const char *value,
                          const char *origin, base_diag_t *diag);

/* Where the key was set ("job.ini:12"), or NULL when it has its default. Asserts that it exists. */
const char *sim_scenario_origin(const sim_scenario_t *scenario, const char *key);

/* Read an INI file that is already in memory (`text`, NUL-terminated, `name` for messages); every
 * error is appended to `diag`. False when there was one. */
bool sim_scenario_read(sim_scenario_t *scenario, const char *name, const char *text, size_t length,
                       base_diag_t *diag);

/* Fill in what depends on several keys, and check the rules that join them (divisibility, what
 * Megatron-LM itself refuses). All violations are appended to `diag`; false when there was one. */
bool sim_scenario_resolve(sim_scenario_t *scenario, base_diag_t *diag);

/* Every key with its value as an INI file that reads back to the same scenario; the caller frees.
 */
char *sim_scenario_text(const sim_scenario_t *scenario);

/* What was given, and [sweep], as an INI file: it reads to a scenario that resolves alike, also
 * after the same keys were set in both. Keys from a hf_config are written out. The caller frees. */
char *sim_scenario_given_text(const sim_scenario_t *scenario);

/* Layers of the decoder, then those of each depth of multi-token prediction. */
static inline uint64_t sim_n_layers(const sim_scenario_t *s)
{
    return s->num_layers + s->mtp_num_layers * s->mtp_depth_layers;
}

/* `layer` is below sim_n_layers(), here and below. */
static inline sim_layer_kind_t sim_layer_kind(const sim_scenario_t *s, uint64_t layer)
{
    return s->layer_kinds == NULL ? SIM_LAYER_TRANSFORMER : (sim_layer_kind_t)s->layer_kinds[layer];
}

static inline bool sim_has_layer(const sim_scenario_t *s, sim_layer_kind_t kind)
{
    for (uint64_t i = 0; i < sim_n_layers(s); i++)
        if (sim_layer_kind(s, i) == kind)
            return true;
    return false;
}

static inline bool sim_has_delta_net(const sim_scenario_t *s)
{
    return sim_has_layer(s, SIM_LAYER_DELTA_NET) || sim_has_layer(s, SIM_LAYER_LINEAR_TRANSFORMER);
}

static inline bool sim_layer_is_moe(const sim_scenario_t *s, uint64_t layer)
{
    return s->num_experts > 0 && s->layer_is_moe[layer];
}

/* Bytes of one element. */
uint64_t sim_dtype_bytes(sim_dtype_t dtype);

/* Linears run in FP8 or FP4; their scaling; their weights are stored so, too. */
static inline bool sim_is_quantized(const sim_scenario_t *s)
{
    return s->fp8 != SIM_FP8_NONE || s->fp4 != SIM_FP4_NONE;
}

static inline sim_fp8_recipe_t sim_recipe(const sim_scenario_t *s)
{
    return s->fp4 != SIM_FP4_NONE ? SIM_NVFP4 : s->fp8_recipe;
}

static inline bool sim_has_quantized_params(const sim_scenario_t *s)
{
    return s->fp4 != SIM_FP4_NONE ? s->fp4_param_gather
                                  : s->fp8 != SIM_FP8_NONE && s->fp8_param_gather;
}

static inline bool sim_is_titan(const sim_scenario_t *s)
{
    return s->framework == SIM_FRAMEWORK_TORCHTITAN;
}

/* params_dtype: bf16, fp16 or fp32. */
sim_dtype_t sim_scenario_params_dtype(const sim_scenario_t *scenario);

#endif
