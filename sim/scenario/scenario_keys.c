/* SPDX-License-Identifier: Apache-2.0
 * Names, defaults and refusals follow Megatron-LM (megatron/training/arguments.py,
 * transformer_config.py, model_parallel_config.py, distributed_data_parallel_config.py) and
 * Megatron-Bridge where it spells the same thing differently. */
#include "config.h"

#include "sim/scenario/keys.h"

#include "sim/scenario/scenario.h"

#include <string.h>

#define FIELD(name) offsetof(sim_scenario_t, name)

/* Bounds keep every product that the simulation forms within 64 bits (see rules.c, sizes). */
enum {
    MAX_LAYERS = 10000,
    MAX_WIDTH = 1 << 20,
    MAX_HEADS = 1 << 14,
    MAX_VOCAB = 1 << 26,
    MAX_SEQ = 1 << 24,
    MAX_BATCH = 1 << 24,
    MAX_MICRO_BATCH = 1 << 14,
    MAX_WORLD = 1 << 20,
    MAX_NODE = 1 << 12,
    MAX_PIPELINE = 1 << 10, /* ranks, and chunks of each */
    MAX_EXPERTS = 1 << 16,
};
#define MAX_ELEMENTS   (UINT64_C(1) << 48)
#define MAX_NCCL_BYTES (UINT64_C(1) << 32) /* of one buffer */
#define MAX_BYTES      (UINT64_C(1) << 50)

static const sim_choice_t activations[] = {
    { "gelu", SIM_ACT_GELU },
    { "swiglu", SIM_ACT_SWIGLU },
    { "geglu", SIM_ACT_GEGLU },
    { "squared_relu", SIM_ACT_SQUARED_RELU },
    { "silu", SIM_ACT_SILU },
    { "swish", SIM_ACT_SILU },
    { "quick_gelu", SIM_CHOICE_NOT_SIMULATED },
    { "relu", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t model_types[] = {
    { "gpt", SIM_MODEL_GPT },
    { "bert", SIM_MODEL_BERT },
    { "t5", SIM_MODEL_T5 },
    { NULL, 0 },
};
static const sim_choice_t norms[] = {
    { "LayerNorm", SIM_NORM_LAYERNORM },
    { "RMSNorm", SIM_NORM_RMSNORM },
    { NULL, 0 },
};
static const sim_choice_t positions[] = {
    { "learned_absolute", SIM_POS_LEARNED },
    { "rope", SIM_POS_ROPE },
    { "none", SIM_POS_NONE },
    { "yarn", SIM_CHOICE_NOT_SIMULATED },
    { "mrope", SIM_CHOICE_NOT_SIMULATED },
    { "relative", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t attentions[] = {
    { "auto", SIM_ATTENTION_AUTO },   { "flash", SIM_ATTENTION_FLASH },
    { "fused", SIM_ATTENTION_FUSED }, { "unfused", SIM_ATTENTION_UNFUSED },
    { "local", SIM_ATTENTION_LOCAL }, { NULL, 0 },
};
static const sim_choice_t schedules[] = {
    { "1f1b", SIM_SCHEDULE_1F1B },
    { "zb-h1", SIM_SCHEDULE_ZB_H1 },
    { "zbv", SIM_SCHEDULE_ZBV },
    { "v-half", SIM_SCHEDULE_V_HALF },
    { "v-min", SIM_SCHEDULE_V_MIN },
    { "dualpipe", SIM_SCHEDULE_DUALPIPE },
    { "dualpipev", SIM_SCHEDULE_DUALPIPEV },
    { NULL, 0 },
};
static const sim_choice_t impls[] = {
    { "transformer_engine", SIM_IMPL_TRANSFORMER_ENGINE },
    { "local", SIM_IMPL_LOCAL },
    { "inference_optimized", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t ce_impls[] = {
    { "native", SIM_CE_NATIVE },
    { "te", SIM_CE_TE },
    { NULL, 0 },
};
static const sim_choice_t granularities[] = {
    { "none", SIM_RECOMPUTE_NONE },
    { "null", SIM_RECOMPUTE_NONE },
    { "selective", SIM_RECOMPUTE_SELECTIVE },
    { "full", SIM_RECOMPUTE_FULL },
    { NULL, 0 },
};
static const sim_choice_t methods[] = {
    { "none", SIM_RECOMPUTE_METHOD_NONE },
    { "null", SIM_RECOMPUTE_METHOD_NONE },
    { "uniform", SIM_RECOMPUTE_UNIFORM },
    { "block", SIM_RECOMPUTE_BLOCK },
    { NULL, 0 },
};
static const sim_choice_t modules[] = {
    { "core_attn", SIM_MODULE_CORE_ATTN },       { "mlp", SIM_MODULE_MLP },
    { "layernorm", SIM_MODULE_LAYERNORM },       { "moe", SIM_MODULE_MOE },
    { "moe_act", SIM_MODULE_MOE_ACT },           { "shared_experts", SIM_MODULE_SHARED_EXPERTS },
    { "mla_up_proj", SIM_MODULE_MLA_UP_PROJ },   { "gdn_norm_out", SIM_MODULE_GDN_NORM_OUT },
    { "gdp_in_proj", SIM_CHOICE_NOT_SIMULATED }, { "gdp_qkv", SIM_CHOICE_NOT_SIMULATED },
    { "mhc", SIM_CHOICE_NOT_SIMULATED },         { NULL, 0 },
};
static const sim_choice_t dispatchers[] = {
    { "allgather", SIM_DISPATCHER_ALLGATHER },
    { "alltoall", SIM_DISPATCHER_ALLTOALL },
    { "flex", SIM_DISPATCHER_FLEX },
    { NULL, 0 },
};
static const sim_choice_t flex_backends[] = {
    { "deepep", SIM_FLEX_DEEPEP },
    { "hybridep", SIM_FLEX_HYBRIDEP },
    { "ncclep", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t scores[] = {
    { "softmax", SIM_SCORE_SOFTMAX },
    { "sigmoid", SIM_SCORE_SIGMOID },
    { "sqrtsoftplus", SIM_SCORE_SQRTSOFTPLUS },
    { NULL, 0 },
};
static const sim_choice_t balances[] = {
    { "aux_loss", SIM_BALANCE_AUX },
    { "seq_aux_loss", SIM_BALANCE_SEQ_AUX },
    { "global_aux_loss", SIM_BALANCE_GLOBAL_AUX },
    { "sinkhorn", SIM_BALANCE_SINKHORN },
    { "quantile_balancing", SIM_BALANCE_QUANTILE },
    { "none", SIM_BALANCE_NONE },
    { NULL, 0 },
};
static const sim_choice_t router_dtypes[] = {
    { "none", SIM_ROUTER_PARAMS_DTYPE },
    { "null", SIM_ROUTER_PARAMS_DTYPE },
    { "fp32", SIM_ROUTER_FP32 },
    { "fp64", SIM_ROUTER_FP64 },
    { NULL, 0 },
};
static const sim_choice_t optimizers[] = {
    { "adam", SIM_OPTIMIZER_ADAM },
    { "adamw", SIM_OPTIMIZER_ADAM },
    { "sgd", SIM_OPTIMIZER_SGD },
    { "muon", SIM_OPTIMIZER_MUON },
    { "adaptive_muon", SIM_CHOICE_NOT_SIMULATED },
    { "lion", SIM_CHOICE_NOT_SIMULATED },
    { "soap", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t graph_impls[] = {
    { "none", SIM_GRAPHS_NONE },
    { "local", SIM_GRAPHS_LOCAL },
    { "transformer_engine", SIM_GRAPHS_TRANSFORMER_ENGINE },
    { "full_iteration", SIM_GRAPHS_FULL_ITERATION },
    { NULL, 0 },
};
static const sim_choice_t graph_modules[] = {
    { "full", 0 },
    { "none", 0 },
    { "attn", SIM_CUDA_GRAPH_ATTN },
    { "mlp", SIM_CUDA_GRAPH_MLP },
    { "moe", SIM_CUDA_GRAPH_MOE },
    { "moe_router", SIM_CUDA_GRAPH_MOE_ROUTER },
    { "moe_preprocess", SIM_CUDA_GRAPH_MOE_PREPROCESS },
    { "mamba", SIM_CUDA_GRAPH_MAMBA },
    { "full_iteration", SIM_CUDA_GRAPH_FULL_ITERATION },
    { "full_iteration_inference", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t offloads[] = {
    { "none", 0 },
    { "attn_norm", SIM_OFFLOAD_ATTN_NORM },
    { "qkv_linear", SIM_OFFLOAD_QKV_LINEAR },
    { "core_attn", SIM_OFFLOAD_CORE_ATTN },
    { "attn_proj", SIM_OFFLOAD_ATTN_PROJ },
    { "mlp_norm", SIM_OFFLOAD_MLP_NORM },
    { "expert_fc1", SIM_OFFLOAD_EXPERT_FC1 },
    { "moe_act", SIM_OFFLOAD_MOE_ACT },
    { "fused_group_mlp", SIM_CHOICE_NOT_SIMULATED },
    { "gdp_qkv", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t peft_schemes[] = {
    { "none", SIM_PEFT_NONE },
    { "null", SIM_PEFT_NONE },
    { "lora", SIM_PEFT_LORA },
    { "dora", SIM_PEFT_DORA },
    { "canonical_lora", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t dropout_positions[] = {
    { "pre", SIM_DROPOUT_PRE },
    { "post", SIM_DROPOUT_POST },
    { NULL, 0 },
};
static const sim_choice_t targets[] = {
    { "linear_qkv", SIM_TARGET_QKV },
    { "linear_proj", SIM_TARGET_PROJ },
    { "linear_fc1", SIM_TARGET_FC1 },
    { "linear_fc2", SIM_TARGET_FC2 },
    { "linear_q_proj", SIM_TARGET_Q_PROJ },
    { "linear_q_down_proj", SIM_TARGET_Q_DOWN },
    { "linear_q_up_proj", SIM_TARGET_Q_UP },
    { "linear_kv_down_proj", SIM_TARGET_KV_DOWN },
    { "linear_kv_up_proj", SIM_TARGET_KV_UP },
    { "router", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t strategies[] = {
    { "no_shard", SIM_FSDP_NO_SHARD },
    { "optim", SIM_FSDP_OPTIM },
    { "optim_grads", SIM_FSDP_OPTIM_GRADS },
    { "optim_grads_params", SIM_FSDP_OPTIM_GRADS_PARAMS },
    { NULL, 0 },
};
static const sim_choice_t frameworks[] = {
    { "megatron", SIM_FRAMEWORK_MEGATRON },
    { "torchtitan", SIM_FRAMEWORK_TORCHTITAN },
    { NULL, 0 },
};
static const sim_choice_t ac_modes[] = {
    { "none", SIM_AC_NONE },
    { "selective", SIM_AC_SELECTIVE },
    { "full", SIM_AC_FULL },
    { "memory_budget", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t reshards[] = {
    { "default", SIM_RESHARD_DEFAULT },
    { "always", SIM_RESHARD_ALWAYS },
    { "never", SIM_RESHARD_NEVER },
    { NULL, 0 },
};
static const sim_choice_t adamws[] = {
    { "default", SIM_ADAMW_BY_DATE },
    { "foreach", SIM_ADAMW_FOREACH },
    { "fused", SIM_ADAMW_FUSED },
    { "for-loop", SIM_CHOICE_NOT_SIMULATED },
    { "fused_opt_states_bf16", SIM_CHOICE_NOT_SIMULATED },
    { NULL, 0 },
};
static const sim_choice_t rotates[] = {
    { "allgather", SIM_ROTATE_ALLGATHER },
    { "alltoall", SIM_ROTATE_ALLTOALL },
    { NULL, 0 },
};
static const sim_choice_t reduce_dtypes[] = {
    { "float32", SIM_DTYPE_FP32 },
    { "bfloat16", SIM_DTYPE_BF16 },
    { NULL, 0 },
};
static const sim_choice_t fsdp_dtypes[] = {
    { "auto", SIM_FSDP_AUTO },           { "fp32", SIM_FSDP_FP32 },
    { "bf16", SIM_FSDP_BF16 },           { "fp16", SIM_FSDP_FP16 },
    { "none", SIM_FSDP_AUTO },           { "torch.float32", SIM_FSDP_FP32 },
    { "torch.bfloat16", SIM_FSDP_BF16 }, { NULL, 0 },
};
static const sim_choice_t scalars[] = {
    { "adam", SIM_SCALAR_ADAM },
    { "lion", SIM_SCALAR_LION },
    { NULL, 0 },
};
static const sim_choice_t muon_tps[] = {
    { "duplicated", SIM_MUON_DUPLICATED },
    { "distributed", SIM_MUON_DISTRIBUTED },
    { "blockwise", SIM_MUON_BLOCKWISE },
    { NULL, 0 },
};
static const sim_choice_t matmuls[] = {
    { "medium", SIM_MATMUL_MEDIUM },
    { "high", SIM_MATMUL_HIGH },
    { "highest", SIM_MATMUL_HIGHEST },
    { NULL, 0 },
};
static const sim_choice_t cp_comms[] = {
    { "p2p", SIM_CP_P2P }, { "all_gather", SIM_CP_ALL_GATHER },
    { "a2a", SIM_CP_A2A }, { "a2a+p2p", SIM_CP_A2A_P2P },
    { NULL, 0 },
};
static const sim_choice_t fp8_formats[] = {
    { "none", SIM_FP8_NONE },
    { "false", SIM_FP8_NONE },
    { "hybrid", SIM_FP8_HYBRID },
    { "e4m3", SIM_FP8_E4M3 },
    { NULL, 0 },
};
static const sim_choice_t attention_variants[] = {
    { "none", SIM_VARIANT_NONE },           { "gdn", SIM_VARIANT_GDN },
    { "gated_delta_net", SIM_VARIANT_GDN }, { "gdn2", SIM_CHOICE_NOT_SIMULATED },
    { "dsa", SIM_CHOICE_NOT_SIMULATED },    { NULL, 0 },
};
static const sim_choice_t run_moments[] = {
    { "none", 0 },
    { "checkpoint_load", SIM_MOMENT_CHECKPOINT_LOAD },
    { "evaluation", SIM_MOMENT_EVALUATION },
    { "checkpoint_save", SIM_MOMENT_CHECKPOINT_SAVE },
    { "longest_batch", SIM_MOMENT_LONGEST_BATCH },
    { NULL, 0 },
};
static const sim_choice_t fp4_formats[] = {
    { "none", SIM_FP4_NONE },
    { "false", SIM_FP4_NONE },
    { "e2m1", SIM_FP4_E2M1 },
    { NULL, 0 },
};
static const sim_choice_t fp8_recipes[] = {
    { "delayed", SIM_FP8_DELAYED },         { "tensorwise", SIM_FP8_TENSORWISE },
    { "blockwise", SIM_FP8_BLOCKWISE },     { "mxfp8", SIM_FP8_MXFP8 },
    { "custom", SIM_CHOICE_NOT_SIMULATED }, { NULL, 0 },
};
static const sim_choice_t dtypes[] = {
    { "fp32", SIM_DTYPE_FP32 },          { "float32", SIM_DTYPE_FP32 },
    { "torch.float32", SIM_DTYPE_FP32 }, { "bf16", SIM_DTYPE_BF16 },
    { "bfloat16", SIM_DTYPE_BF16 },      { "torch.bfloat16", SIM_DTYPE_BF16 },
    { "fp16", SIM_DTYPE_FP16 },          { "float16", SIM_DTYPE_FP16 },
    { "torch.float16", SIM_DTYPE_FP16 }, { "fp8", SIM_DTYPE_FP8 },
    { "uint8", SIM_DTYPE_FP8 },          { NULL, 0 },
};
/* What NCCL's variables take; -1 and -2 stand for not set. */
static const sim_choice_t switches[] = {
    { "auto", COLL_AUTO }, { "-1", COLL_AUTO }, { "-2", COLL_AUTO }, { "1", COLL_ON },
    { "2", COLL_ON },      { "0", COLL_OFF },   { NULL, 0 },
};
static const sim_choice_t p2p_levels[] = {
    { "auto", SIM_P2P_AUTO },    { "PIX", SIM_P2P_AUTO },
    { "PXB", SIM_P2P_AUTO },     { "LOC", SIM_P2P_NEVER },
    { "NVL", SIM_P2P_NVLINK },   { "SYS", SIM_P2P_ANYWHERE },
    { "PHB", SIM_P2P_ANYWHERE }, { "0", SIM_P2P_NEVER },
    { "1", SIM_P2P_NVLINK },     { "2", SIM_P2P_AUTO },
    { "3", SIM_P2P_AUTO },       { "4", SIM_P2P_ANYWHERE },
    { "5", SIM_P2P_ANYWHERE },   { NULL, 0 },
};
static const sim_choice_t gdr_levels[] = {
    { "auto", SIM_GDR_AUTO },
    { "PIX", SIM_GDR_AUTO },
    { "PXB", SIM_GDR_AUTO },
    { "PHB", SIM_GDR_AUTO },
    { "SYS", SIM_GDR_AUTO },
    { "LOC", SIM_GDR_NEVER },
    { "0", SIM_GDR_NEVER },
    { "1", SIM_GDR_AUTO },
    { "2", SIM_GDR_AUTO },
    { "3", SIM_GDR_AUTO },
    { "4", SIM_GDR_AUTO },
    { "5", SIM_GDR_AUTO },
    { NULL, 0 },
};
static const sim_choice_t backends[] = {
    { "synthetic", SIM_BACKEND_SYNTHETIC },
    { "host", SIM_BACKEND_HOST },
    { "cuda", SIM_BACKEND_CUDA },
    { NULL, 0 },
};
static const sim_choice_t modes[] = {
    { "stepped", SIM_MODE_STEPPED },
    { "live", SIM_MODE_LIVE },
    { NULL, 0 },
};
static const sim_choice_t address_orders[] = {
    { "reuse", SIM_PLACEMENT_REUSE },
    { "bump", SIM_PLACEMENT_BUMP },
    { "down", SIM_PLACEMENT_DOWN },
    { NULL, 0 },
};

const char *sim_mode_name(sim_mode_t mode)
{
    return modes[mode].name;
}

const char *const sim_sections[] = { "model",     "moe",        "parallel", "train",
                                     "precision", "recompute",  "offload",  "optimizer",
                                     "peft",      "device",     "cluster",  "allocator",
                                     "nccl",      "torchtitan", "run",      NULL };

/* One row of each type; the designated rest is NULL or 0. */
#define COUNT(s, f, def, lo, hi, u, none_, doc_)                                                   \
    {                                                                                              \
        .section = s, .name = #f, .type = SIM_KEY_COUNT, .offset = FIELD(f), .text = def,          \
        .min = lo, .max = hi, .unit = u, .none = none_, .doc = doc_                                \
    }
#define BYTES(s, f, def, none_, doc_)                                                              \
    {                                                                                              \
        .section = s, .name = #f, .type = SIM_KEY_BYTES, .offset = FIELD(f), .text = def,          \
        .max = MAX_BYTES, .none = none_, .own_section = true, .doc = doc_                          \
    }
#define BOOL(s, f, def, doc_)                                                                      \
    {                                                                                              \
        .section = s, .name = #f, .type = SIM_KEY_BOOL, .offset = FIELD(f), .text = def,           \
        .doc = doc_                                                                                \
    }
#define REAL(s, f, def, doc_)                                                                      \
    {                                                                                              \
        .section = s, .name = #f, .type = SIM_KEY_REAL, .offset = FIELD(f), .text = def, .max = 1, \
        .doc = doc_                                                                                \
    }
#define REAL_UP_TO(s, f, def, most, doc_)                                                          \
    {                                                                                              \
        .section = s, .name = #f, .type = SIM_KEY_REAL, .offset = FIELD(f), .text = def,           \
        .max = most, .doc = doc_                                                                   \
    }
#define CHOICE(s, f, def, c, doc_)                                                                 \
    {                                                                                              \
        .section = s, .name = #f, .type = SIM_KEY_CHOICE, .offset = FIELD(f), .text = def,         \
        .choices = c, .doc = doc_                                                                  \
    }
#define TEXT(s, f, def, doc_)                                                                      \
    {                                                                                              \
        .section = s, .name = #f, .type = SIM_KEY_TEXT, .offset = FIELD(f), .text = def,           \
        .doc = doc_                                                                                \
    }

#define NCCL_COUNT(n, f, hi, none_, doc_)                                                          \
    {                                                                                              \
        .section = "nccl", .name = n, .type = SIM_KEY_COUNT, .offset = FIELD(f), .text = "0",      \
        .max = hi, .none = none_, .own_section = true, .doc = doc_                                 \
    }
#define NCCL_BYTES(n, f, none_, doc_)                                                              \
    {                                                                                              \
        .section = "nccl", .name = n, .type = SIM_KEY_BYTES, .offset = FIELD(f), .text = "0",      \
        .max = MAX_NCCL_BYTES, .none = none_, .own_section = true, .doc = doc_                     \
    }
#define NCCL_CHOICE(n, f, c, doc_)                                                                 \
    {                                                                                              \
        .section = "nccl", .name = n, .type = SIM_KEY_CHOICE, .offset = FIELD(f), .text = "auto",  \
        .choices = c, .own_section = true, .doc = doc_                                             \
    }
#define NCCL_BOOL(n, f, doc_)                                                                      \
    {                                                                                              \
        .section = "nccl", .name = n, .type = SIM_KEY_BOOL, .offset = FIELD(f), .text = "false",   \
        .own_section = true, .doc = doc_                                                           \
    }

/* clang-format off */
static const sim_key_t keys[] = {
    /* [model] */
    { .section = "model", .name = "preset", .type = SIM_KEY_TEXT, .offset = FIELD(preset),
      .own_section = true, .doc = "known model whose dimensions are used; keys given beside it win; see `mbsim models`" },
    { .section = "model", .name = "hf_config", .type = SIM_KEY_TEXT, .offset = FIELD(hf_config),
      .own_section = true, .doc = "config.json of a Hugging Face model whose dimensions are used, relative to the scenario file; keys given beside it win" },
    COUNT("model", num_layers, "0", 1, MAX_LAYERS, NULL, NULL, "transformer layers"),
    COUNT("model", hidden_size, "0", 1, MAX_WIDTH, NULL, NULL, "width of the residual stream"),
    COUNT("model", ffn_hidden_size, "0", 0, MAX_WIDTH, NULL, "4 * hidden_size, with a gated activation 8/3 of it rounded down to a multiple of 64", "width of the MLP"),
    COUNT("model", num_attention_heads, "0", 1, MAX_HEADS, NULL, NULL, "attention heads"),
    COUNT("model", num_query_groups, "0", 0, MAX_HEADS, NULL, "num_attention_heads", "key/value heads (grouped-query attention)"),
    COUNT("model", kv_channels, "0", 0, MAX_WIDTH, NULL, "hidden_size / num_attention_heads", "width of one attention head"),
    COUNT("model", vocab_size, "0", 0, MAX_VOCAB, "tokens", "padded_vocab_size says it", "vocabulary before padding; required unless padded_vocab_size is given"),
    COUNT("model", make_vocab_size_divisible_by, "128", 1, MAX_VOCAB, NULL, NULL, "the vocabulary is padded to a multiple of this times tensor_model_parallel_size"),
    COUNT("model", padded_vocab_size, "0", 0, MAX_VOCAB, "tokens", "vocab_size padded", "vocabulary as stored"),
    COUNT("model", max_position_embeddings, "0", 0, MAX_SEQ, "tokens", "seq_length", "rows of learned position embeddings"),
    CHOICE("model", model_type, "gpt", model_types, "kind of Transformer: gpt reads forward, bert both ways, t5 has an encoder and a decoder"),
    BOOL("model", bert_binary_head, "true", "BERT: a second head for the order of two sentences"),
    TEXT("model", hybrid_layer_pattern, NULL, "a letter for each layer: M Mamba-2, G gated delta net, * attention, - MLP, E experts; | between pipeline stages; /, then the layers of each depth of multi-token prediction; num_layers and mtp_num_layers follow"),
    COUNT("model", mamba_state_dim, "128", 1, MAX_WIDTH, NULL, NULL, "Mamba-2: width of the state of a channel"),
    COUNT("model", mamba_head_dim, "64", 1, MAX_WIDTH, NULL, NULL, "Mamba-2: channels of a head"),
    COUNT("model", mamba_num_groups, "8", 1, MAX_HEADS, NULL, NULL, "Mamba-2: groups of heads that share B and C"),
    COUNT("model", mamba_num_heads, "0", 0, MAX_HEADS, NULL, "2 * hidden_size / mamba_head_dim", "Mamba-2: heads"),
    COUNT("model", decoder_num_layers, "0", 0, MAX_LAYERS, "layers", "num_layers, with model_type = t5", "T5: layers of the decoder; num_layers are the encoder's"),
    CHOICE("model", activation_func, "gelu", activations, "activation of the MLP; swiglu and geglu are gated"),
    BOOL("model", gated_linear_unit, "false", "gate the activation: silu becomes swiglu, gelu becomes geglu"),
    CHOICE("model", normalization, "LayerNorm", norms, "kind of norm"),
    CHOICE("model", position_embedding_type, "learned_absolute", positions, "kind of position embedding"),
    REAL("model", rotary_percent, "1", "part of each head that rope rotates"),
    BOOL("model", rotary_interleaved, "false", "rope rotates neighbouring pairs"),
    BOOL("model", add_bias_linear, "true", "bias in linear layers"),
    BOOL("model", add_qkv_bias, "false", "bias in the QKV projection; implied by add_bias_linear"),
    BOOL("model", untie_embeddings_and_output_weights, "false", "output layer has weights of its own"),
    BOOL("model", qk_layernorm, "false", "norm of queries and keys"),
    BOOL("model", attention_output_gate, "false", "gate on the attention output"),
    REAL("model", attention_dropout, "0.1", "dropout of attention probabilities"),
    REAL("model", hidden_dropout, "0.1", "dropout of hidden states"),
    BOOL("model", attention_softmax_in_fp32, "false", "softmax in fp32 where it is not fused"),
    BOOL("model", apply_query_key_layer_scaling, "false", "scale Q*K by 1/layer number; turns attention_softmax_in_fp32 on"),
    BOOL("model", multi_latent_attention, "false", "keys and values (and queries) go through a low-rank projection"),
    COUNT("model", q_lora_rank, "0", 0, MAX_WIDTH, NULL, "queries are not compressed", "multi-latent attention: width of the compressed queries"),
    COUNT("model", kv_lora_rank, "32", 1, MAX_WIDTH, NULL, NULL, "multi-latent attention: width of the compressed keys and values"),
    COUNT("model", qk_head_dim, "128", 1, MAX_WIDTH, NULL, NULL, "multi-latent attention: part of a query or key head without rotary embedding"),
    COUNT("model", qk_pos_emb_head_dim, "64", 1, MAX_WIDTH, NULL, NULL, "multi-latent attention: part of a query or key head with rotary embedding"),
    COUNT("model", v_head_dim, "128", 1, MAX_WIDTH, NULL, NULL, "multi-latent attention: width of a value head"),
    BOOL("model", mla_down_proj_fusion, "false", "multi-latent attention: one down projection for queries, keys and values"),
    COUNT("model", mtp_num_layers, "0", 0, MAX_LAYERS, "layers", "no multi-token prediction", "layers of multi-token prediction"),
    CHOICE("model", experimental_attention_variant, "none", attention_variants, "attention of the layers that linear_attention_freq names: gdn is the gated delta net"),
    TEXT("model", linear_attention_freq, NULL, "N: every N-th layer has ordinary attention, the others linear; or a list such as [1,1,1,0]*12, 1 for linear"),
    COUNT("model", linear_conv_kernel_dim, "4", 1, 64, NULL, NULL, "gated delta net: width of the convolution"),
    COUNT("model", linear_key_head_dim, "128", 1, MAX_WIDTH, NULL, NULL, "gated delta net: width of a query or key head"),
    COUNT("model", linear_value_head_dim, "128", 1, MAX_WIDTH, NULL, NULL, "gated delta net: width of a value head"),
    COUNT("model", linear_num_key_heads, "16", 1, MAX_WIDTH, NULL, NULL, "gated delta net: query and key heads"),
    COUNT("model", linear_num_value_heads, "32", 1, MAX_WIDTH, NULL, NULL, "gated delta net: value heads"),
    BOOL("model", mtp_use_repeated_layer, "false", "one layer of multi-token prediction serves all depths"),

    /* [moe] */
    COUNT("moe", num_experts, "0", 0, MAX_EXPERTS, "experts", "a dense model", "experts of a mixture-of-experts layer"),
    COUNT("moe", moe_router_topk, "2", 1, MAX_EXPERTS, "experts", NULL, "experts that a token goes to"),
    COUNT("moe", moe_ffn_hidden_size, "0", 0, MAX_WIDTH, NULL, "ffn_hidden_size", "width of an expert"),
    COUNT("moe", moe_shared_expert_intermediate_size, "0", 0, MAX_WIDTH, NULL, "no shared expert", "width of all shared experts together"),
    COUNT("moe", moe_latent_size, "0", 0, MAX_WIDTH, NULL, "experts see the hidden size", "width to which tokens are projected before they are dispatched"),
    BOOL("moe", use_fused_weighted_squared_relu, "false", "squared_relu and the weights of tokens in one function; needs grouped GEMMs without bias"),
    BOOL("moe", overlap_dispatch_backward_with_experts_wgrad, "false", "gradients of the experts' weights are computed beside the backward pass of the dispatch"),
    BOOL("moe", moe_shared_expert_overlap, "false", "shared experts run beside the dispatcher"),
    BOOL("moe", moe_shared_expert_gate, "false", "gate on the shared experts' output"),
    TEXT("moe", moe_layer_freq, "1", "which layers have experts: every N-th from the first, or a list such as [0]*3+[1]*58"),
    CHOICE("moe", moe_token_dispatcher_type, "allgather", dispatchers, "how tokens get to their experts"),
    CHOICE("moe", moe_flex_dispatcher_backend, "deepep", flex_backends, "library behind moe_token_dispatcher_type = flex"),
    BOOL("moe", moe_grouped_gemm, "false", "all experts of a rank in one matrix product"),
    BOOL("moe", moe_permute_fusion, "false", "fused kernels that order tokens by expert"),
    BOOL("moe", moe_router_fusion, "false", "fused kernels for scores and top-k"),
    REAL_UP_TO("moe", moe_expert_capacity_factor, "0", 1000, "tokens that an expert takes, as a multiple of an even share; 0: all of them"),
    BOOL("moe", moe_pad_expert_input_to_capacity, "false", "every expert gets exactly its capacity"),
    CHOICE("moe", moe_router_dtype, "none", router_dtypes, "type of scores; none: that of the parameters"),
    CHOICE("moe", moe_router_score_function, "softmax", scores, "function that turns the router's output into scores"),
    BOOL("moe", moe_router_pre_softmax, "false", "softmax before top-k"),
    BOOL("moe", moe_router_enable_expert_bias, "false", "bias that keeps experts evenly loaded without a loss"),
    { .section = "moe", .name = "moe_router_load_balancing_type", .type = SIM_KEY_SET, .offset = FIELD(moe_router_load_balancing_type),
      .text = "aux_loss", .choices = balances, .doc = "how the router is kept balanced" },
    REAL_UP_TO("moe", moe_aux_loss_coeff, "0", 1000, "weight of the load balancing loss; 0: none"),
    REAL_UP_TO("moe", moe_z_loss_coeff, "0", 1000, "weight of the router's z-loss; 0: none"),
    TEXT("moe", moe_imbalance, NULL, "how uneven routing is: a factor on the tokens of every rank (1.2), one factor for each expert parallel rank (1.1 0.9 ...), tokens of each expert (tokens: 120 80 ...), a file with a line of them for each layer (file: PATH), or a draw (dirichlet: CONCENTRATION SEED, noisy_topk: SPREAD SEED)"),

    /* [parallel] */
    COUNT("parallel", world_size, "0", 1, MAX_WORLD, "GPUs", NULL, "GPUs of the whole job"),
    COUNT("parallel", tensor_model_parallel_size, "1", 1, MAX_WORLD, "GPUs", NULL, "tensor parallel size"),
    COUNT("parallel", pipeline_model_parallel_size, "1", 1, MAX_PIPELINE, "GPUs", NULL, "pipeline stages"),
    COUNT("parallel", virtual_pipeline_model_parallel_size, "0", 0, MAX_PIPELINE, "chunks", "no virtual pipeline", "model chunks of each pipeline rank (interleaved schedule)"),
    COUNT("parallel", num_layers_per_virtual_pipeline_stage, "0", 0, MAX_LAYERS, "layers", "not given", "layers of each model chunk; another way to give the virtual pipeline size"),
    COUNT("parallel", microbatch_group_size_per_virtual_pipeline_stage, "0", 0, MAX_BATCH, "micro-batches", "pipeline_model_parallel_size", "micro-batches that run through a chunk in a row"),
    CHOICE("parallel", pipeline_schedule, "1f1b", schedules, "order of the passes: Megatron-LM's 1F1B, or one with gradients of weights as passes of their own"),
    COUNT("parallel", context_parallel_size, "1", 1, MAX_WORLD, "GPUs", NULL, "context parallel size"),
    CHOICE("parallel", cp_comm_type, "p2p", cp_comms, "how context parallelism exchanges keys and values"),
    TEXT("parallel", hierarchical_context_parallel_sizes, NULL, "a2a+p2p: ranks that split heads, then groups of them on the ring, such as 2 4"),
    COUNT("parallel", expert_model_parallel_size, "1", 1, MAX_WORLD, "GPUs", NULL, "expert parallel size"),
    COUNT("parallel", expert_tensor_parallel_size, "0", 0, MAX_WORLD, "GPUs", "tensor_model_parallel_size", "tensor parallel size of experts"),
    BOOL("parallel", sequence_parallel, "false", "split activations between tensor parallel regions along the sequence; off with tensor_model_parallel_size = 1"),
    BOOL("parallel", use_tp_pp_dp_mapping, "false", "rank order tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp"),
    COUNT("parallel", decoder_first_pipeline_num_layers, "0", 0, MAX_LAYERS, "layers", "even split", "layers of the first pipeline rank"),
    COUNT("parallel", decoder_last_pipeline_num_layers, "0", 0, MAX_LAYERS, "layers", "even split", "layers of the last pipeline rank"),
    BOOL("parallel", account_for_embedding_in_pipeline_split, "false", "the embedding counts as a layer when layers are split"),
    BOOL("parallel", account_for_loss_in_pipeline_split, "false", "the loss counts as a layer when layers are split"),
    TEXT("parallel", pipeline_model_parallel_layout, NULL, "layers of every stage, such as Ettt|(tt|)*6tL"),
    BOOL("parallel", overlap_p2p_communication, "true", "overlap pipeline sends and receives with compute; off without a virtual pipeline"),
    BOOL("parallel", overlap_p2p_communication_warmup_flush, "false", "overlap them in the warm-up and flush of the pipeline too"),
    BOOL("parallel", overlap_moe_expert_parallel_comm, "false", "a forward pass takes turns with the backward pass before, so that one computes while the other sends tokens to experts"),
    BOOL("parallel", deallocate_pipeline_outputs, "true", "free a stage's output once it is sent"),
    BOOL("parallel", defer_embedding_wgrad_compute, "false", "compute the output layer's weight gradient after the pipeline's flush"),
    COUNT("parallel", wgrad_deferral_limit, "0", 0, MAX_BATCH, "micro-batches", "all", "micro-batches deferred by defer_embedding_wgrad_compute"),
    BOOL("parallel", tp_comm_overlap, "false", "Transformer Engine user buffers for tensor parallel communication"),

    /* [train] */
    COUNT("train", micro_batch_size, "1", 1, MAX_MICRO_BATCH, "sequences", NULL, "sequences of one micro-batch"),
    COUNT("train", global_batch_size, "0", 0, MAX_BATCH, "sequences", "micro_batch_size * data parallel size", "sequences of one step over all GPUs"),
    COUNT("train", seq_length, "0", 1, MAX_SEQ, "tokens", NULL, "tokens of one sequence"),
    COUNT("train", mean_seq_length, "0", 0, MAX_SEQ, "tokens", "every sample has seq_length", "packed or unpadded samples: their mean length; seq_length is the longest"),
    COUNT("train", seq_length_seed, "1", 0, UINT32_MAX, NULL, NULL, "of the lengths that are drawn"),
    COUNT("train", decoder_seq_length, "0", 0, MAX_SEQ, "tokens", "seq_length, with model_type = t5", "T5: tokens of a sample in the decoder; seq_length are those in the encoder"),
    BOOL("train", create_attention_mask_in_dataloader, "false", "the data loader builds the causal mask (Megatron-LM's own default is true, unless --no-create-attention-mask-in-dataloader)"),
    CHOICE("train", attention_backend, "auto", attentions, "attention kernels; auto: what Transformer Engine picks on the GPU"),
    CHOICE("train", transformer_impl, "transformer_engine", impls, "implementation of the layers"),
    BOOL("train", apply_rope_fusion, "true", "fused rope kernel; false without rope"),
    BOOL("train", bias_activation_fusion, "true", "bias and activation in one kernel; default false where there is none: squared_relu, silu, gelu without bias"),
    BOOL("train", bias_dropout_fusion, "true", "bias, dropout and residual in one kernel"),
    BOOL("train", masked_softmax_fusion, "true", "fused scale, mask and softmax where attention is local"),
    BOOL("train", gradient_accumulation_fusion, "true", "weight gradients are added to the gradient buffer by the matrix product itself"),
    BOOL("train", cross_entropy_loss_fusion, "false", "fused cross-entropy"),
    CHOICE("train", cross_entropy_fusion_impl, "native", ce_impls, "which fused cross-entropy"),
    BOOL("train", deterministic_mode, "false", "deterministic kernels"),
    COUNT("train", empty_unused_memory_level, "0", 0, 2, "", NULL, "give unused memory back to the device: 1 before the optimizer step, 2 also after it"),
    CHOICE("train", cuda_graph_impl, "none", graph_impls, "CUDA graphs: of layers, as Megatron-LM (local) or Transformer Engine captures them, or of all passes of a step"),
    { .section = "train", .name = "cuda_graph_modules", .type = SIM_KEY_SET, .offset = FIELD(cuda_graph_modules),
      .text = "full", .choices = graph_modules, .doc = "what the graphs of a layer hold; full: all of it" },
    COUNT("train", cuda_graph_warmup_steps, "3", 0, 100, "steps", NULL, "steps without graphs before they are captured; local: runs of each layer before its capture, which comes at the end of the first step"),
    BOOL("train", check_for_nan_in_loss_and_grad, "true", "look for NaN in loss and gradients; default false with fp16"),

    /* [precision] */
    BOOL("precision", bf16, "true", "train in bf16; with fp16 = true the default is false"),
    BOOL("precision", fp16, "false", "train in fp16"),
    CHOICE("precision", fp8, "none", fp8_formats, "run the linears of the layers in FP8"),
    CHOICE("precision", fp8_recipe, "delayed", fp8_recipes, "how FP8 tensors are scaled"),
    BOOL("precision", fp8_param_gather, "false", "keep the weights of the linears in FP8"),
    BOOL("precision", reuse_grad_buf_for_mxfp8_param_ag, "false", "MXFP8 weights are gathered in bf16 through the gradient buffer instead of a buffer of their own"),
    CHOICE("precision", fp4, "none", fp4_formats, "run the linears of the layers in FP4, scaled as NVFP4"),
    BOOL("precision", fp4_param_gather, "false", "keep the weights of the linears in FP4"),
    BOOL("precision", disable_parameter_transpose_cache, "false", "quantise weights anew for every micro-batch instead of keeping copies"),
    BOOL("precision", fp8_dot_product_attention, "false", "attention kernels in FP8, where cuDNN has them"),
    BOOL("precision", activation_func_fp8_input_store, "false", "save the input of swiglu in FP8"),
    BOOL("precision", first_last_layers_bf16, "false", "run the first and last layers in bf16"),
    COUNT("precision", num_layers_at_start_in_bf16, "1", 0, MAX_LAYERS, "layers", NULL, "layers at the start that first_last_layers_bf16 means"),
    COUNT("precision", num_layers_at_end_in_bf16, "1", 0, MAX_LAYERS, "layers", NULL, "layers at the end that first_last_layers_bf16 means"),
    BOOL("precision", accumulate_allreduce_grads_in_fp32, "true", "gradients in fp32; default true with bf16 and main_grads_dtype fp32, else false"),

    /* [recompute] */
    CHOICE("recompute", recompute_granularity, "none", granularities, "what the backward pass computes again"),
    CHOICE("recompute", recompute_method, "none", methods, "which layers, with full recompute"),
    COUNT("recompute", recompute_num_layers, "0", 0, MAX_LAYERS, "layers", "not given", "uniform: layers of one checkpointed group; block: layers of a chunk that are checkpointed"),
    { .section = "recompute", .name = "recompute_modules", .type = SIM_KEY_SET, .offset = FIELD(recompute_modules),
      .text = "core_attn", .choices = modules, .doc = "modules that selective recompute computes again" },
    BOOL("recompute", distribute_saved_activations, "false", "full recompute: saved layer inputs are split over tensor parallel ranks"),

    /* [offload] */
    BOOL("offload", cpu_offloading, "false", "keep activations of the first layers in host memory"),
    COUNT("offload", cpu_offloading_num_layers, "0", 0, MAX_LAYERS, "layers", "none", "layers that cpu_offloading means"),
    BOOL("offload", cpu_offloading_activations, "true", "cpu_offloading: activations"),
    BOOL("offload", cpu_offloading_weights, "false", "cpu_offloading: weights; Transformer Engine does nothing about it"),
    BOOL("offload", fine_grained_activation_offloading, "false", "keep what some modules save in host memory"),
    { .section = "offload", .name = "offload_modules", .type = SIM_KEY_SET, .offset = FIELD(offload_modules),
      .text = "none", .choices = offloads, .doc = "modules that fine_grained_activation_offloading means" },
    COUNT("offload", min_offloaded_tensor_size, "1048576", 0, MAX_ELEMENTS, "elements", "any", "smallest tensor that fine_grained_activation_offloading moves"),
    REAL("offload", activation_offload_fraction, "1", "part of the groups of a chunk that are offloaded, the earlier ones"),

    /* [optimizer] */
    CHOICE("optimizer", optimizer, "adam", optimizers, "optimizer"),
    BOOL("optimizer", use_distributed_optimizer, "false", "split optimizer state over data parallel ranks"),
    BOOL("optimizer", overlap_grad_reduce, "false", "reduce gradients bucket by bucket during backward"),
    BOOL("optimizer", overlap_param_gather, "false", "gather parameters bucket by bucket during forward"),
    COUNT("optimizer", ddp_bucket_size, "0", 0, MAX_ELEMENTS, "elements", "max(40e6, 1e6 * data parallel size)", "elements of one gradient bucket"),
    COUNT("optimizer", ddp_num_buckets, "0", 0, MAX_LAYERS, "buckets", "by ddp_bucket_size", "number of gradient buckets"),
    BOOL("optimizer", ddp_pad_buckets_for_high_nccl_busbw, "false", "pad buckets to a multiple of 65536 elements"),
    COUNT("optimizer", num_distributed_optimizer_instances, "1", 1, MAX_WORLD, NULL, NULL, "copies of the split optimizer state"),
    BOOL("optimizer", use_precision_aware_optimizer, "false", "optimizer state in the types below"),
    BOOL("optimizer", store_param_remainders, "true", "precision-aware: store only what bf16 parameters lack to fp32"),
    CHOICE("optimizer", main_grads_dtype, "fp32", dtypes, "precision-aware: type of gradients"),
    CHOICE("optimizer", main_params_dtype, "fp32", dtypes, "precision-aware: type of master parameters"),
    CHOICE("optimizer", exp_avg_dtype, "fp32", dtypes, "precision-aware: type of first moments"),
    CHOICE("optimizer", exp_avg_sq_dtype, "fp32", dtypes, "precision-aware: type of second moments"),
    BOOL("optimizer", use_megatron_fsdp, "false", "Megatron-FSDP instead of DDP and the distributed optimizer's buffers"),
    CHOICE("optimizer", data_parallel_sharding_strategy, "no_shard", strategies, "Megatron-FSDP: what data parallel ranks share"),
    BOOL("optimizer", use_torch_fsdp2, "false", "PyTorch's FSDP2 instead of DDP"),
    BOOL("optimizer", torch_fsdp2_reshard_after_forward, "true", "FSDP2: let parameters go between a unit's forward and backward"),
    BOOL("optimizer", init_model_with_meta_device, "false", "fully sharded: parameters get memory only when they are sharded"),
    BOOL("optimizer", fsdp_double_buffer, "false", "Megatron-FSDP: two kept buffers for the units' parameters and gradients"),
    CHOICE("optimizer", megatron_fsdp_main_params_dtype, "fp32", fsdp_dtypes, "Megatron-FSDP: type of main parameters; auto: the parameters are their own"),
    CHOICE("optimizer", megatron_fsdp_main_grads_dtype, "auto", fsdp_dtypes, "Megatron-FSDP: type of gradients; auto: that of the parameters"),
    CHOICE("optimizer", megatron_fsdp_grad_comm_dtype, "auto", fsdp_dtypes, "Megatron-FSDP: type in which gradients are reduced; auto: that of the gradients"),
    COUNT("optimizer", suggested_communication_unit_size, "0", 0, MAX_ELEMENTS, "elements", "max(1e9, two layers)", "Megatron-FSDP: elements of gradients that wait to be reduced, and twice those of parameters gathered ahead"),
    BOOL("optimizer", optimizer_cpu_offload, "false", "a part of the optimizer's state and work is the CPU's"),
    REAL("optimizer", optimizer_offload_fraction, "1", "optimizer_cpu_offload: part of the parameters whose state is in host memory"),
    BOOL("optimizer", use_layer_wise_param_layout, "true", "muon with use_distributed_optimizer: matrices have buffers laid out so that each lies with one data parallel rank; false: whole parameters are dealt out by size"),
    BOOL("optimizer", muon_split_qkv, "true", "muon: queries, keys and values are orthogonalized apart"),
    BOOL("optimizer", muon_nesterov, "false", "muon: Nesterov momentum"),
    CHOICE("optimizer", muon_tp_mode, "duplicated", muon_tps, "muon: how tensor parallel ranks orthogonalize the matrix that they share"),
    CHOICE("optimizer", muon_fp32_matmul_prec, "medium", matmuls, "muon: precision of the iterations; medium: bf16"),
    CHOICE("optimizer", muon_scalar_optimizer, "adam", scalars, "muon: optimizer of embeddings, output layer, norms and biases"),
    BOOL("optimizer", log_params_norm, "false", "compute the norm of the parameters"),
    BOOL("optimizer", log_num_zeros_in_grad, "false", "count zeros in the gradients"),
    BOOL("optimizer", decoupled_lr, "false", "a learning rate of its own for embedding and output layer"),

    /* [peft] */
    { .section = "peft", .name = "scheme", .type = SIM_KEY_CHOICE, .offset = FIELD(peft_scheme), .text = "none",
      .choices = peft_schemes, .own_section = true, .doc = "train adapters beside frozen weights, as Megatron-Bridge does" },
    { .section = "peft", .name = "dim", .type = SIM_KEY_COUNT, .offset = FIELD(peft_dim), .text = "32", .min = 1, .max = MAX_WIDTH,
      .own_section = true, .doc = "rank of the adapters" },
    { .section = "peft", .name = "dropout", .type = SIM_KEY_REAL, .offset = FIELD(peft_dropout), .text = "0", .max = 1,
      .own_section = true, .doc = "dropout of the adapters" },
    { .section = "peft", .name = "dropout_position", .type = SIM_KEY_CHOICE, .offset = FIELD(peft_dropout_position), .text = "pre",
      .choices = dropout_positions, .own_section = true, .doc = "dropout before or after the adapter" },
    { .section = "peft", .name = "target_modules", .type = SIM_KEY_SET, .offset = FIELD(peft_target_modules),
      .text = "linear_qkv linear_proj linear_fc1 linear_fc2", .choices = targets, .own_section = true, .doc = "linears that get an adapter" },
    BOOL("peft", sequence_parallel_input_regather, "false", "adapters of linear_qkv and linear_fc1 keep their part of the sequence and gather it again in backward"),
    BOOL("peft", a2a_experimental, "false", "all-to-all instead of gather in adapters of row-parallel linears"),
    BOOL("peft", normalize_moe_lora, "false", "rank of expert adapters divided by moe_router_topk"),
    BOOL("peft", share_expert_adapters, "true", "one adapter for all experts of a rank"),

    /* [device] */
    { .section = "device", .name = "gpu", .type = SIM_KEY_TEXT, .offset = FIELD(gpu), .text = "h100-80gb-sxm",
      .own_section = true, .doc = "GPU of every rank; see `mbsim gpus`" },
    BYTES("device", memory_bytes, "0", "as CUDA reports for the GPU", "total memory of one GPU"),
    BYTES("device", reserved_outside_bytes, "0", "as estimate_outside says", "memory that PyTorch cannot use: CUDA context, communicators, other processes; given, it stands in the place of the estimate"),
    BOOL("device", estimate_outside, "true", "estimate CUDA context, communicators at their final size and user buffers of each rank, and take them from what PyTorch can use; false: nothing is taken"),
    { .section = "device", .name = "backend", .type = SIM_KEY_CHOICE, .offset = FIELD(backend), .text = "synthetic",
      .choices = backends, .own_section = true, .doc = "what stands for the device in mbsim run: a model, pages of this machine, or GPUs" },
    { .section = "device", .name = "scale", .type = SIM_KEY_COUNT, .offset = FIELD(device_scale), .text = "1", .min = 1, .max = 512,
      .own_section = true, .doc = "with backend = host: bytes of the GPU for which one byte of the machine stands; a power of two" },
    { .section = "device", .name = "share", .type = SIM_KEY_REAL, .offset = FIELD(device_share), .text = "0", .max = 1,
      .own_section = true, .doc = "part of the machine's memory (backend = host) or of a GPU's free memory (cuda) that the ranks on it may take together, each the same; 0: half of the machine, all of a GPU" },
    { .section = "device", .name = "ranks_per_gpu", .type = SIM_KEY_COUNT, .offset = FIELD(ranks_per_gpu), .text = "1", .min = 1, .max = MAX_WORLD,
      .own_section = true, .doc = "with backend = cuda: ranks that may share one GPU" },
    { .section = "device", .name = "fill", .type = SIM_KEY_BOOL, .offset = FIELD(device_fill), .text = "false",
      .own_section = true, .doc = "with backend = host or cuda: write to all bytes of a buffer when it is allocated, on its stream" },
    REAL("device", compute_efficiency, "0", "part of the peak rate that large matrix products reach, for the time estimate; 0: as measured on GPUs of its kind"),
    COUNT("device", host_us_per_layer, "0", 0, 1000000, "us", "as measured on hosts of its kind", "time in which the host starts the kernels of a dense layer in 16 bits, forward and backward, for the time estimate"),
    TEXT("device", cublas_workspace_config, NULL, "text of CUBLAS_WORKSPACE_CONFIG; :4096:8 with deterministic_mode"),

    /* [cluster] */
    COUNT("cluster", gpus_per_node, "0", 0, MAX_NODE, "GPUs", "8, of GB200 and GB300 4", "GPUs of one host; ranks fill hosts in order"),
    COUNT("cluster", nvlink_domain, "0", 0, MAX_NODE, "GPUs", "a host's, 2 with a bridge between cards, 72 of GB200 and GB300", "GPUs that NVLink joins; 1: none"),
    COUNT("cluster", nics_per_node, "0", 0, MAX_NODE, "NICs", "one a GPU, of PCIe cards one for four", "network cards of one host"),
    COUNT("cluster", nic_gbit_per_s, "0", 0, 10000, "Gbit/s", "400 from Hopper on, of A100 200, before 100", "rate of one network card"),

    /* [allocator] */
    { .section = "allocator", .name = "conf", .type = SIM_KEY_TEXT, .offset = FIELD(conf),
      .own_section = true, .doc = "text of PYTORCH_CUDA_ALLOC_CONF, such as expandable_segments:True" },
    { .section = "allocator", .name = "addresses", .type = SIM_KEY_CHOICE, .offset = FIELD(addresses), .text = "reuse",
      .choices = address_orders, .own_section = true, .doc = "where the synthetic device places a new segment: the lowest gap that fits, above or below all earlier ones" },

    /* [nccl] */
    { .section = "nccl", .name = "version", .type = SIM_KEY_TEXT, .offset = FIELD(nccl_version),
      .own_section = true, .doc = "NCCL's version, such as 2.28.9; default: that of the software's day, else 2.28.9" },
    { .section = "nccl", .name = "eager_init", .type = SIM_KEY_BOOL, .offset = FIELD(nccl_eager_init), .text = "false",
      .own_section = true, .doc = "communicators of all groups are created at the start: init_process_group() gets a device_id" },
    NCCL_BYTES("buffsize", nccl_buffsize, "4 MiB", "NCCL_BUFFSIZE: buffer of the simple protocol"),
    NCCL_BYTES("ll_buffsize", nccl_ll_buffsize, "512 KiB", "NCCL_LL_BUFFSIZE"),
    NCCL_BYTES("ll128_buffsize", nccl_ll128_buffsize, "4800 KiB", "NCCL_LL128_BUFFSIZE"),
    NCCL_COUNT("min_nchannels", nccl_min_nchannels, 64, "no bound", "NCCL_MIN_NCHANNELS: channels of a communicator"),
    NCCL_COUNT("max_nchannels", nccl_max_nchannels, 64, "no bound", "NCCL_MAX_NCHANNELS; all-to-all is bounded by max_p2p_nchannels"),
    NCCL_COUNT("min_ctas", nccl_min_ctas, 64, "no bound", "NCCL_MIN_CTAS"),
    NCCL_COUNT("max_ctas", nccl_max_ctas, 64, "no bound", "NCCL_MAX_CTAS: bounds all channels"),
    NCCL_COUNT("min_p2p_nchannels", nccl_min_p2p_nchannels, 64, "no bound", "NCCL_MIN_P2P_NCHANNELS"),
    NCCL_COUNT("max_p2p_nchannels", nccl_max_p2p_nchannels, 64, "no bound", "NCCL_MAX_P2P_NCHANNELS: channels of send, receive and all-to-all"),
    NCCL_COUNT("nchannels_per_net_peer", nccl_nchannels_per_net_peer, 64, "NCCL chooses", "NCCL_NCHANNELS_PER_NET_PEER"),
    NCCL_COUNT("p2p_max_peers", nccl_p2p_max_peers, MAX_WORLD, "all ranks", "NCCL_P2P_MAX_PEERS, from 2.30 on"),
    NCCL_COUNT("nvls_nchannels", nccl_nvls_nchannels, 64, "NCCL chooses", "NCCL_NVLS_NCHANNELS"),
    NCCL_BYTES("nvls_chunksize", nccl_nvls_chunksize, "128 KiB", "NCCL_NVLS_CHUNKSIZE"),
    NCCL_BYTES("p2p_nvl_chunksize", nccl_p2p_nvl_chunksize, "512 KiB", "NCCL_P2P_NVL_CHUNKSIZE"),
    NCCL_BYTES("p2p_pci_chunksize", nccl_p2p_pci_chunksize, "128 KiB", "NCCL_P2P_PCI_CHUNKSIZE"),
    NCCL_BYTES("p2p_net_chunksize", nccl_p2p_net_chunksize, "128 KiB", "NCCL_P2P_NET_CHUNKSIZE"),
    NCCL_BYTES("multicast_bytes", nccl_multicast_bytes, "512 MiB", "granularity of NVLS buffers before 2.26"),
    NCCL_CHOICE("graph_register", nccl_graph_register, switches, "NCCL_GRAPH_REGISTER: CUDA graphs with expandable segments need 0"),
    NCCL_CHOICE("cumem_enable", nccl_cumem_enable, switches, "NCCL_CUMEM_ENABLE: buffers in granules of 2 MiB; auto: from 2.19 on"),
    NCCL_CHOICE("nvls_enable", nccl_nvls_enable, switches, "NCCL_NVLS_ENABLE: all-reduce in the NVLink switch"),
    NCCL_CHOICE("runtime_connect", nccl_runtime_connect, switches, "NCCL_RUNTIME_CONNECT: connect at first use; auto: from 2.22 on, with cuMem"),
    NCCL_CHOICE("pat_enable", nccl_pat_enable, switches, "NCCL_PAT_ENABLE: small all-gathers with one rank a node"),
    NCCL_CHOICE("net_shared_buffers", nccl_net_shared_buffers, switches, "NCCL_NET_SHARED_BUFFERS: send and receive share buffers to the network"),
    NCCL_CHOICE("p2p_level", nccl_p2p_level, p2p_levels, "NCCL_P2P_LEVEL: how far apart GPUs without NVLink reach each other directly"),
    NCCL_CHOICE("net_gdr_level", nccl_net_gdr_level, gdr_levels, "NCCL_NET_GDR_LEVEL: LOC keeps NICs from GPU memory; buffers are then in host memory"),
    NCCL_BOOL("p2p_disable", nccl_p2p_disable, "NCCL_P2P_DISABLE: through host memory within a node"),
    NCCL_BOOL("pxn_disable", nccl_pxn_disable, "NCCL_PXN_DISABLE: no NIC of a neighbour's"),
    NCCL_BOOL("ib_disable", nccl_ib_disable, "NCCL_IB_DISABLE: sockets, whose buffers are in host memory"),
    { .section = "nccl", .name = "algo", .type = SIM_KEY_TEXT, .offset = FIELD(nccl_algo),
      .own_section = true, .doc = "NCCL_ALGO: algorithms that may be used, such as Ring,Tree or ^NVLS" },
    NCCL_COUNT("coll_channels", nccl_log_coll, 64, "by the rules", "collective channels of every communicator, as a line of NCCL_DEBUG=INFO gives them"),
    NCCL_COUNT("nvls_channels", nccl_log_nvls, 64, "by the rules", "NVLS channels, from the same line"),
    NCCL_COUNT("p2p_channels", nccl_log_p2p, 64, "by the rules", "p2p channels, from the same line"),
    NCCL_COUNT("p2p_channels_per_peer", nccl_log_per_peer, 64, "by the rules", "p2p channels per peer, from the same line"),

    /* [torchtitan] */
    CHOICE("torchtitan", activation_checkpoint_mode, "selective", ac_modes, "what of the blocks the backward pass computes again"),
    TEXT("torchtitan", selective_ac_option, "op", "selective: op keeps the results of the listed operators; a number n checkpoints every n-th block as a whole"),
    BOOL("torchtitan", compile_model, "false", "torch.compile of each block"),
    BOOL("torchtitan", compile_loss, "false", "torch.compile of the loss; default as compile_model, but false before 2024-10-22 and from 2024-12-18 to 2025-02-19"),
    CHOICE("torchtitan", fsdp_reshard_after_forward, "default", reshards, "let gathered parameters go after forward; default: unless there is a pipeline"),
    CHOICE("torchtitan", mixed_precision_reduce, "float32", reduce_dtypes, "type in which FSDP reduces gradients"),
    CHOICE("torchtitan", optimizer_implementation, "default", adamws, "kernels of AdamW; default: fused, before 2025-02-24 foreach"),
    COUNT("torchtitan", data_parallel_replicate_degree, "1", 1, MAX_WORLD, NULL, NULL, "copies of the sharded model (HSDP)"),
    BOOL("torchtitan", enable_fsdp_float8_all_gather, "false", "fp8: weights of linears are gathered in FP8"),
    CHOICE("torchtitan", context_parallel_rotate_method, "allgather", rotates, "how keys and values go round between context parallel ranks"),

    /* [run] */
    CHOICE("run", framework, "megatron", frameworks, "program that trains: Megatron-LM (and Megatron-Bridge) or torchtitan"),
    CHOICE("run", mode, "stepped", modes, "how memory is played: step by step through the caching allocator, or live: the sum of what is alive alone, without what an allocator keeps"),
    COUNT("run", iterations, "3", 1, 1000, "steps", NULL, "training steps that are played"),
    { .section = "run", .name = "moments", .type = SIM_KEY_SET, .offset = FIELD(moments),
      .text = "none", .choices = run_moments, .doc = "what is played beside the steps: a checkpoint loaded before the first one, an evaluation and a checkpoint saved after the second; longest_batch: the second has only batches of seq_length" },
    BOOL("run", dist_ckpt_optim_fully_reshardable, "false", "a saved checkpoint's optimizer state fits any layout: it is gathered over the data parallel ranks"),
    BOOL("run", distrib_optim_fully_reshardable_mem_efficient, "false", "gathered in host memory instead of on the GPUs"),
    COUNT("run", software_date, "0", 20230101, 20991231, "YYYYMMDD", "the newest", "day of the versions of Megatron-LM, Transformer Engine, torchtitan and PyTorch, for what they changed"),
};
/* clang-format on */

const sim_key_t *sim_keys(size_t *n_p)
{
    *n_p = sizeof(keys) / sizeof(keys[0]);
    return keys;
}

bool sim_section_is_known(const char *section)
{
    for (const char *const *s = sim_sections; *s != NULL; s++) {
        if (strcmp(*s, section) == 0)
            return true;
    }
    return false;
}
