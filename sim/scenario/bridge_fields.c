/* SPDX-License-Identifier: Apache-2.0
 * Megatron-Bridge 0.7.0, src/megatron/bridge/training/{config,mixed_precision}.py; fields of
 * model are those of Megatron-LM's TransformerConfig and ModelParallelConfig (mcore 0.20). */
#include "config.h"

#include "sim/scenario/bridge_fields.h"

#include "sim/base/diag.h"
#include "sim/scenario/state.h"

#include <string.h>
#include <strings.h>

/* How the fields of a group are treated when no row below names them. */
static const struct {
    const char *name;
    sim_bridge_class_t others; /* fields whose name is not a key's */
    bool has_keys;
    const char *section;
} groups[] = {
    { "model", SIM_BRIDGE_UNKNOWN, true, NULL },
    { "train", SIM_BRIDGE_NO_EFFECT, true, NULL },
    { "ddp", SIM_BRIDGE_NO_EFFECT, true, NULL },
    { "optimizer", SIM_BRIDGE_NO_EFFECT, true, NULL },
    { "mixed_precision", SIM_BRIDGE_NO_EFFECT, true, NULL },
    { "peft", SIM_BRIDGE_NO_EFFECT, true, "peft" },
    { "dist", SIM_BRIDGE_NO_EFFECT, true, NULL },
    { "comm_overlap", SIM_BRIDGE_READ_APART, false, NULL },
    { "dataset", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "tokenizer", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "env_vars", SIM_BRIDGE_READ_APART, false, NULL },
    { "rng", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "rerun_state_machine", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "optimizer_config_override_provider", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "validation", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "scheduler", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "logger", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "checkpoint", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "ft", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "straggler", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "nvrx_straggler", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "profiling", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "tensor_inspect", SIM_BRIDGE_NO_EFFECT, false, NULL },
    { "inprocess_restart", SIM_BRIDGE_NO_EFFECT, false, NULL },
};

/* Fields that are not what their name says to a key: no effect, or read elsewhere. */
static const struct {
    const char *path;
    sim_bridge_class_t class_;
} rows[] = {
    { "model.should_pad_vocab", SIM_BRIDGE_READ_APART },
    { "model.seq_length", SIM_BRIDGE_READ_APART },
    { "model.hf_model_id", SIM_BRIDGE_READ_APART },
    { "ddp.use_distributed_optimizer", SIM_BRIDGE_READ_APART },
    { "optimizer.use_distributed_optimizer", SIM_BRIDGE_READ_APART },
    /* ddp decides */
    { "optimizer.overlap_param_gather", SIM_BRIDGE_NO_EFFECT },
    /* mixed_precision decides */
    { "optimizer.bf16", SIM_BRIDGE_NO_EFFECT },
    { "optimizer.fp16", SIM_BRIDGE_NO_EFFECT },
    { "optimizer.fp8_recipe", SIM_BRIDGE_NO_EFFECT },
    /* only with use_megatron_fsdp */
    { "ddp.data_parallel_sharding_strategy", SIM_BRIDGE_READ_APART },
};

/* Fields that move memory and are not simulated, with the values that switch them off. */
static const char *const refused[][2] = {
    { "model.batch_invariant_mode", "false" },
    { "model.enable_mhc_connections", "false" },
    { "model.expert_gtp_weight_remat_size", "1" },
    { "model.gtp_weight_remat_size", "1" },
    { "model.tensor_parallel_num_weight_shards", "1" },
    { "model.expert_tensor_parallel_num_weight_shards", "1" },
    { "model.fused_residual_rmsnorm", "false" },
    { "model.heterogeneous_block_specs", "false" },
    { "model.hybrid_context_parallel", "false" },
    { "model.is_hybrid_model", "false" },
    { "model.memory_efficient_layer_norm", "false" },
    { "model.mlp_chunks_for_training", "1" },
    { "model.qk_l2_norm", "false" },
    { "model.overlap_dispatch_backward_with_experts_wgrad", "false" },
    { "model.ep_overlap_early_attn_memory_release", "false" },
    { "model.use_kitchen", "false" },
    { "model.use_transformer_engine_op_fuser", "false" },
    { "model.use_grouped_gemm_for_dense_mlp", "false" },
    { "model.dense_grouped_gemm", "false" },
    { "model.fp16_lm_cross_entropy", "false" },
    { "model.use_grouped_gemm_for_shared_expert", "false" },
    { "model.quant_recipe", "" },
};

/* Fields of model that move no memory, or only together with a field that is refused; '*' at the
 * end stands for anything. */
static const char *const harmless_model[] = {
    "_*",
    "activation_func_clamp_value",
    "autocast_dtype",
    "batch_invariant_backend",
    "batch_p2p_*",
    "beta_*",
    "cache_mla_latents",
    "calculate_per_token_loss",
    "clone_scatter_output_in_embedding",
    "config_logger_dir",
    "inference_cuda_graph_scope",
    "delay_offload_until_cuda_graph",
    "disable_bf16_reduced_precision_matmul",
    "dsa_*",
    "embedding_init_*",
    "enable_autocast",
    "experimental_attention_variant_loss_scale_func",
    "finalize_model_grads_func",
    "fine_grained_offloading_max_inflight_offloads",
    "flash_attention_version",
    "flash_decode",
    "fp8_amax_*",
    "fp8_interval",
    "fp8_margin",
    "fp8_quantizer_factory",
    "fp8_wgrad",
    "fused_single_qkv_rope",
    "gdp_*",
    "generation_config*",
    "glu_linear_offset",
    "grad_scale_func",
    "grad_sync_func",
    "gtp_remat_opt_in_modules",
    "hetereogenous_dist_checkpoint",
    "hf_model_revision",
    "high_priority_a2a_comm_stream",
    "inference_*",
    "init_method*",
    "kitchen_attention_backend",
    "layernorm_*",
    "linear_*",
    "log_max_attention_logit",
    "mamba_*",
    "max_seqlen_per_dp_cp_rank",
    "mhc_*",
    "mlp_chunks_for_prefill",
    "moe_grad_scale_func",
    "mrope_section",
    "mscale*",
    "mtp_grad_scale_func",
    "mup_*",
    "use_mup",
    "nccl_all_reduce_for_prefill",
    "no_rope_freq",
    "no_sync_func",
    "original_max_position_embeddings",
    "output_layer_init_method",
    "parallel_output",
    "param_sync_func",
    "params_dtype",
    "perform_initialization",
    "persist_layer_norm",
    "pipeline_dtype",
    "pipeline_model_parallel_comm_backend",
    "qk_clip*",
    "restore_modelopt_state",
    "rope_*",
    "rotary_base",
    "rotary_scaling_factor",
    "scatter_embedding_sequence_parallel",
    "seq_len_interpolation_factor",
    "softmax_*",
    "symmetric_ar_type",
    "test_mode",
    "timers",
    "tp_comm_*",
    "tp_only_amax_red",
    "transformer_layer_spec",
    "use_arbitrary_attention_mask",
    "use_cpu_initialization",
    "use_inference_optimized_layers",
    "use_kitchen_attention",
    "use_mamba_mem_eff_path",
    "use_ring_exchange_p2p",
    "use_te_rng_tracker",
    "use_transformer_engine_full_layer_spec",
    "variable_seq_lengths",
    "window_*",
    "yarn_*",
    "use_*_dtype",
    "text_config*",
    "async_tensor_model_parallel_allreduce",
    "barrier_with_L1_time",
};

#define BF16(reduce)                                                                               \
    { "bf16", "true" }, { "fp16", "false" },                                                       \
    {                                                                                              \
        "accumulate_allreduce_grads_in_fp32", reduce                                               \
    }
#define FP16                                                                                       \
    { "bf16", "false" }, { "fp16", "true" },                                                       \
    {                                                                                              \
        "accumulate_allreduce_grads_in_fp32", "false"                                              \
    }
#define FP8(format, recipe, gather)                                                                \
    { "fp8", format }, { "fp8_recipe", recipe },                                                   \
    {                                                                                              \
        "fp8_param_gather", gather                                                                 \
    }
#define ENDS(first, last)                                                                          \
    { "first_last_layers_bf16", "true" }, { "num_layers_at_start_in_bf16", first },                \
    {                                                                                              \
        "num_layers_at_end_in_bf16", last                                                          \
    }
#define MXFP8                                                                                      \
    FP8("e4m3", "mxfp8", "true"),                                                                  \
    {                                                                                              \
        "reuse_grad_buf_for_mxfp8_param_ag", "true"                                                \
    }

#define NVFP4                                                                                      \
    { "fp4", "e2m1" },                                                                             \
    {                                                                                              \
        "fp4_param_gather", "true"                                                                 \
    }

/* clang-format off */
static const sim_bridge_precision_t precisions[] = {
    { "bf16_mixed", { BF16("true") }, NULL },
    { "fp16_mixed", { FP16 }, NULL },
    { "bf16_with_fp8_delayed_scaling_mixed", { BF16("true"), FP8("hybrid", "delayed", "true") }, NULL },
    { "fp16_with_fp8_delayed_scaling_mixed", { FP16, FP8("hybrid", "delayed", "true") }, NULL },
    { "bf16_with_mxfp8_mixed", { BF16("true"), MXFP8 }, NULL },
    { "fp16_with_mxfp8_mixed", { FP16, MXFP8 }, NULL },
    { "bf16_with_fp8_current_scaling_mixed", { BF16("true"), FP8("hybrid", "tensorwise", "true"), ENDS("1", "1") }, NULL },
    { "fp16_with_fp8_current_scaling_mixed", { FP16, FP8("hybrid", "tensorwise", "true"), ENDS("1", "1") }, NULL },
    { "nemotron_h_bf16_with_fp8_current_scaling_mixed", { BF16("true"), FP8("hybrid", "tensorwise", "true"), ENDS("2", "2") }, NULL },
    { "nanov2_bf16_with_fp8_current_scaling_mixed", { BF16("true"), FP8("hybrid", "blockwise", "true"), ENDS("2", "2") }, NULL },
    { "bf16_with_fp8_subchannel_scaling_mixed", { BF16("true"), FP8("hybrid", "blockwise", "false") }, NULL },
    { "fp16_with_fp8_subchannel_scaling_mixed", { FP16, FP8("hybrid", "blockwise", "false") }, NULL },
    { "bf16_with_nvfp4_mixed", { BF16("true"), NVFP4 }, NULL },
    { "nemotron_3_super_bf16_with_nvfp4_mixed", { BF16("true"), NVFP4, ENDS("0", "14") }, NULL },
};
/* clang-format on */

static bool fits(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(pattern, name, n - 1) == 0 : strcmp(pattern, name) == 0;
}

static bool is_harmless(const char *name)
{
    for (size_t i = 0; i < sizeof(harmless_model) / sizeof(harmless_model[0]); i++)
        if (fits(harmless_model[i], name))
            return true;
    return false;
}

bool sim_bridge_has_group(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        if (strlen(groups[i].name) == length && strncmp(groups[i].name, word, length) == 0)
            return true;
    return false;
}

/* A key, an alias or a name that is refused where a scenario gives it. */
static bool is_key(const char *section, const char *name)
{
    base_diag_t diag;
    base_diag_init(&diag);
    const sim_key_t *key;
    const char *value;
    /* An unknown name is told apart from a refused one by a value that nothing takes. */
    bool known = sim_key_resolve_name(section, name, "false", "", &key, &value, &diag) ||
                 (diag.n > 0 && strstr(diag.text[0], "unknown key") == NULL &&
                  strstr(diag.text[0], "belongs to section") == NULL);
    base_diag_fini(&diag);
    return known;
}

sim_bridge_class_t sim_bridge_judge(const char *path, const char *value, const char **section_p)
{
    const char *dot = strchr(path, '.');
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].path, path) == 0)
            return rows[i].class_;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        if (strcmp(refused[i][0], path) == 0)
            return strcasecmp(refused[i][1], value) == 0 ? SIM_BRIDGE_NO_EFFECT
                                                         : SIM_BRIDGE_REFUSED;
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        if (strlen(groups[i].name) != (size_t)(dot - path) ||
            strncmp(groups[i].name, path, (size_t)(dot - path)) != 0)
            continue;
        *section_p = groups[i].section;
        if (groups[i].has_keys && is_key(groups[i].section, dot + 1))
            return SIM_BRIDGE_KEY;
        bool harmless = groups[i].others == SIM_BRIDGE_UNKNOWN && is_harmless(dot + 1);
        return harmless ? SIM_BRIDGE_NO_EFFECT : groups[i].others;
    }
    return SIM_BRIDGE_UNKNOWN;
}

const sim_bridge_precision_t *sim_bridge_precision(const char *name)
{
    for (size_t i = 0; i < sizeof(precisions) / sizeof(precisions[0]); i++) {
        const char *a = precisions[i].name, *b = name;
        while (*a != '\0' && (*a == *b || (*a == '_' && *b == '-'))) {
            a++;
            b++;
        }
        if (*a == '\0' && *b == '\0')
            return &precisions[i];
    }
    return NULL;
}
