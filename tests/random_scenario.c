/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/random_scenario.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t random_next(random_t *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t random_below(random_t *r, uint64_t n)
{
    return random_next(r) % n;
}

/* What is being made: every key that does not suit the others is said by resolve, but a key that
 * cannot be set at all is a mistake of this file. */
typedef struct {
    random_t r;
    sim_scenario_t *s;
    base_diag_t diag;
    uint64_t tp, cp, pp, vpp;
} maker_t;

static void set(maker_t *m, const char *key, const char *value)
{
    if (sim_scenario_set(m->s, NULL, key, value, "random", &m->diag))
        return;
    fprintf(stderr, "random_scenario: %s\n", m->diag.text[0]);
    abort();
}

static uint64_t set_count(maker_t *m, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    set(m, key, text);
    return value;
}

static bool chance(maker_t *m, unsigned percent)
{
    return random_below(&m->r, 100) < percent;
}

static uint64_t pick(maker_t *m, const uint64_t *values, size_t n)
{
    return values[random_below(&m->r, n)];
}
#define PICK(m, ...)                                                                               \
    pick(m, (const uint64_t[]){ __VA_ARGS__ },                                                     \
         sizeof((const uint64_t[]){ __VA_ARGS__ }) / sizeof(uint64_t))

static bool maybe(maker_t *m, unsigned percent, const char *key, const char *value)
{
    if (!chance(m, percent))
        return false;
    set(m, key, value);
    return true;
}

static void one_of(maker_t *m, const char *key, const char *const *values, size_t n)
{
    set(m, key, values[random_below(&m->r, n)]);
}
#define ONE_OF(m, key, ...)                                                                        \
    one_of(m, key, (const char *const[]){ __VA_ARGS__ },                                           \
           sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))

static void make_grid(maker_t *m)
{
    m->tp = set_count(m, "tensor_model_parallel_size", PICK(m, 1, 1, 2, 4));
    m->pp = set_count(m, "pipeline_model_parallel_size", PICK(m, 1, 1, 2, 3, 4));
    m->cp = set_count(m, "context_parallel_size", PICK(m, 1, 1, 1, 2, 4));
    uint64_t dp = PICK(m, 1, 2, 3, 4);
    set_count(m, "world_size", m->tp * m->pp * m->cp * dp);
    m->vpp = m->pp > 1 ? PICK(m, 1, 1, 2, 3) : 1;
    if (m->vpp > 1)
        set_count(m, "virtual_pipeline_model_parallel_size", m->vpp);
    maybe(m, 60, "sequence_parallel", "true");
    maybe(m, 20, "use_tp_pp_dp_mapping", "true");
    maybe(m, 20, "deallocate_pipeline_outputs", "false");
    if (!maybe(m, 20, "overlap_p2p_communication", "false") && m->vpp > 1)
        maybe(m, 20, "overlap_p2p_communication_warmup_flush", "true");
    ONE_OF(m, "cp_comm_type", "p2p", "p2p", "all_gather", "all_gather", "a2a", "a2a+p2p");
    if (m->s->cp_comm_type == SIM_CP_A2A_P2P) {
        char sizes[48];
        uint64_t near = chance(m, 50) ? 1 : m->cp;
        snprintf(sizes, sizeof(sizes), "%" PRIu64 " %" PRIu64, near, m->cp / near);
        set(m, "hierarchical_context_parallel_sizes", sizes);
    }
    uint64_t micro_batch = set_count(m, "micro_batch_size", PICK(m, 1, 1, 2, 3));
    uint64_t n_microbatches = m->vpp > 1 ? m->pp * PICK(m, 1, 2, 3, 6) : PICK(m, 1, 2, 3, 5, 8, 20);
    set_count(m, "global_batch_size", micro_batch * dp * n_microbatches);
}

static void make_width(maker_t *m)
{
    uint64_t heads = set_count(m, "num_attention_heads", m->tp * m->cp * PICK(m, 1, 2, 3));
    bool grouped = chance(m, 50);
    if (grouped)
        set_count(m, "num_query_groups", chance(m, 50) ? heads / m->cp : m->cp);
    uint64_t head_dim = PICK(m, 4, 16, 64);
    set_count(m, "kv_channels", head_dim);
    set_count(m, "hidden_size", chance(m, 70) ? heads * head_dim : PICK(m, 40, 192, 1024));
    set_count(m, "ffn_hidden_size", m->tp * PICK(m, 8, 40, 256, 1000));
    set_count(m, "vocab_size", PICK(m, 7, 1000, 4096, 50257));
    set_count(m, "make_vocab_size_divisible_by", PICK(m, 1, 128));
    set_count(m, "seq_length", 2 * m->cp * m->tp * PICK(m, 1, 5, 16, 60));
    set_count(m, "num_layers", m->pp * m->vpp * PICK(m, 1, 2, 3));
}

/* Stages with any number of layers, none included; multi-token prediction at the end, or on the
 * stage before. */
static void make_layout(maker_t *m)
{
    char text[128];
    size_t n = 0;
    uint64_t n_stages = m->pp * m->vpp, n_layers = 0;
    bool has_mtp = m->s->mtp_num_layers > 0;
    uint64_t mtp_at = n_stages - 1 - random_below(&m->r, 2);
    for (uint64_t i = 0; i < n_stages; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", i == 0 ? "E" : "|");
        uint64_t n_here = has_mtp && i > mtp_at ? 0 : random_below(&m->r, 4);
        n_layers += n_here;
        for (uint64_t k = 0; k < n_here; k++)
            text[n++] = 't';
        if (has_mtp && i == mtp_at)
            text[n++] = 'm';
    }
    snprintf(text + n, sizeof(text) - n, "L");
    set(m, "pipeline_model_parallel_layout", text);
    set_count(m, "num_layers", n_layers > 0 ? n_layers : 1);
}

static void make_model(maker_t *m)
{
    ONE_OF(m, "activation_func", "gelu", "swiglu", "geglu", "squared_relu", "silu");
    ONE_OF(m, "normalization", "LayerNorm", "RMSNorm");
    ONE_OF(m, "position_embedding_type", "learned_absolute", "rope", "none");
    maybe(m, 30, "add_bias_linear", "false");
    maybe(m, 20, "qk_layernorm", "true");
    maybe(m, 10, "attention_output_gate", "true");
    maybe(m, 50, "untie_embeddings_and_output_weights", "true");
    if (chance(m, 50)) {
        set(m, "attention_dropout", "0");
        set(m, "hidden_dropout", "0");
    }
    maybe(m, 30, "create_attention_mask_in_dataloader", "true");
    if (m->vpp == 1 && m->s->position_embedding_type == SIM_POS_ROPE)
        maybe(m, 15, "mtp_num_layers", "1");
    if (m->pp > 1 && chance(m, 15))
        make_layout(m);
    maybe(m, 30, "apply_rope_fusion", "false");
    maybe(m, 30, "bias_dropout_fusion", "false");
    maybe(m, 30, "gradient_accumulation_fusion", "false");
    maybe(m, 15, "masked_softmax_fusion", "false");
    maybe(m, 15, "attention_softmax_in_fp32", "true");
    if (maybe(m, 30, "cross_entropy_loss_fusion", "true"))
        ONE_OF(m, "cross_entropy_fusion_impl", "native", "te");
    if (m->cp == 1 && maybe(m, 15, "transformer_impl", "local"))
        return;
    if (m->cp > 1)
        ONE_OF(m, "attention_backend", "auto", "flash", "fused");
    else
        ONE_OF(m, "attention_backend", "auto", "auto", "flash", "fused", "unfused");
    if (m->tp > 1 && m->s->sequence_parallel)
        maybe(m, 15, "tp_comm_overlap", "true");
}

static void make_precision(maker_t *m)
{
    if (maybe(m, 15, "bf16", "false"))
        maybe(m, 50, "fp16", "true");
    maybe(m, 20, "accumulate_allreduce_grads_in_fp32", "false");
    if (m->s->activation_func == SIM_ACT_SWIGLU)
        maybe(m, 20, "activation_func_fp8_input_store", "true");
    if (!maybe(m, 30, "fp8", "hybrid"))
        return;
    ONE_OF(m, "fp8_recipe", "delayed", "tensorwise", "blockwise", "mxfp8");
    if (maybe(m, 30, "fp8_param_gather", "true") && m->s->fp8_recipe == SIM_FP8_MXFP8)
        maybe(m, 50, "reuse_grad_buf_for_mxfp8_param_ag", "true");
    maybe(m, 30, "disable_parameter_transpose_cache", "true");
    maybe(m, 30, "first_last_layers_bf16", "true");
    if (m->s->context_parallel_size == 1)
        maybe(m, 20, "fp8_dot_product_attention", "true");
}

/* Once the GPU is known. */
static void make_fp4(maker_t *m)
{
    const sim_scenario_t *s = m->s;
    if (s->fp8 != SIM_FP8_NONE || !s->bf16 || s->tp_comm_overlap ||
        strncmp(s->gpu, "b200", 4) != 0 || !maybe(m, 50, "fp4", "e2m1"))
        return;
    if (s->optimizer != SIM_OPTIMIZER_MUON)
        maybe(m, 50, "fp4_param_gather", "true");
}

static void make_recompute(maker_t *m)
{
    if (chance(m, 50))
        return;
    if (chance(m, 50)) {
        set(m, "recompute_granularity", "selective");
        if (m->s->num_experts > 0)
            ONE_OF(m, "recompute_modules", "moe", "moe_act", "shared_experts", "layernorm");
        else if (m->s->multi_latent_attention)
            ONE_OF(m, "recompute_modules", "mla_up_proj", "mla_up_proj core_attn", "layernorm");
        else
            ONE_OF(m, "recompute_modules", "core_attn", "mlp", "core_attn mlp");
        return;
    }
    set(m, "recompute_granularity", "full");
    ONE_OF(m, "recompute_method", "uniform", "block");
    set_count(m, "recompute_num_layers", PICK(m, 1, 2, 3));
    if (m->tp > 1 && !m->s->sequence_parallel)
        maybe(m, 20, "distribute_saved_activations", "true");
}

static void make_precise_optimizer(maker_t *m)
{
    if (m->s->optimizer != SIM_OPTIMIZER_ADAM ||
        !maybe(m, 30, "use_precision_aware_optimizer", "true"))
        return;
    ONE_OF(m, "exp_avg_dtype", "fp32", "bf16", "fp8");
    ONE_OF(m, "exp_avg_sq_dtype", "fp32", "bf16", "fp8");
    ONE_OF(m, "main_params_dtype", "fp32", "fp16");
    maybe(m, 50, "store_param_remainders", "false");
}

static void make_optimizer(maker_t *m)
{
    if (!maybe(m, 15, "optimizer", "sgd"))
        maybe(m, 10, "optimizer", "muon");
    if (maybe(m, 60, "use_distributed_optimizer", "true") && m->pp == 1)
        maybe(m, 20, "ddp_pad_buckets_for_high_nccl_busbw", "true");
    if (m->s->use_distributed_optimizer && m->s->num_experts == 0 && chance(m, 20))
        set_count(m, "num_distributed_optimizer_instances", PICK(m, 2, 3));
    if (maybe(m, 40, "overlap_grad_reduce", "true"))
        set_count(m, "ddp_bucket_size", PICK(m, 1, 1000, 100000));
    if (m->s->use_distributed_optimizer && !m->s->fp16)
        make_precise_optimizer(m);
    maybe(m, 20, "log_num_zeros_in_grad", "true");
    maybe(m, 20, "log_params_norm", "true");
    if (m->pp > 1 && maybe(m, 15, "defer_embedding_wgrad_compute", "true") && chance(m, 50))
        set_count(m, "wgrad_deferral_limit", PICK(m, 1, 2, 100));
}

static void make_experts(maker_t *m)
{
    if (!chance(m, 30))
        return;
    uint64_t world = m->s->world_size / m->pp;
    set(m, "add_bias_linear", "false");
    set(m, "sequence_parallel", "true");
    uint64_t ep = set_count(m, "expert_model_parallel_size", world % 4 == 0 ? PICK(m, 1, 2, 4) : 1);
    set_count(m, "expert_tensor_parallel_size", world / ep % m->tp == 0 ? m->tp : 1);
    set_count(m, "num_experts", ep * PICK(m, 1, 2, 3));
    set_count(m, "moe_router_topk", m->s->num_experts > 1 ? PICK(m, 1, 2) : 1);
    set_count(m, "moe_ffn_hidden_size", m->tp * PICK(m, 8, 100));
    if (chance(m, 30))
        set_count(m, "moe_shared_expert_intermediate_size", m->tp * PICK(m, 8, 100));
    ONE_OF(m, "moe_token_dispatcher_type", "allgather", "alltoall", "alltoall", "flex");
    ONE_OF(m, "moe_flex_dispatcher_backend", "deepep", "hybridep");
    if (m->s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLTOALL && chance(m, 20)) {
        ONE_OF(m, "moe_expert_capacity_factor", "1", "1.5");
        maybe(m, 50, "moe_pad_expert_input_to_capacity", "true");
    }
    maybe(m, 70, "moe_grouped_gemm", "true");
    maybe(m, 50, "moe_permute_fusion", "true");
    maybe(m, 30, "moe_router_dtype", "fp32");
    maybe(m, 20, "moe_latent_size", "24");
    maybe(m, 20, "moe_layer_freq", "2");
    if (chance(m, 30) && ep > 1)
        set(m, "moe_imbalance", "1.3");
}

static void make_latent_attention(maker_t *m)
{
    if (!chance(m, 15) || m->s->num_query_groups != 0)
        return;
    set(m, "multi_latent_attention", "true");
    set_count(m, "kv_lora_rank", PICK(m, 8, 64));
    if (chance(m, 50)) {
        set_count(m, "q_lora_rank", PICK(m, 8, 64));
        maybe(m, 30, "mla_down_proj_fusion", "true");
    }
    set_count(m, "qk_head_dim", PICK(m, 8, 32));
    set_count(m, "qk_pos_emb_head_dim", PICK(m, 4, 16));
    set_count(m, "v_head_dim", PICK(m, 8, 32));
}

static void make_adapters(maker_t *m)
{
    static const char *const targets[] = { "linear_qkv", "linear_proj linear_fc2",
                                           "linear_qkv linear_proj linear_fc1 linear_fc2" };
    if (!chance(m, 20))
        return;
    set(m, "scheme", m->s->num_experts > 0 || chance(m, 70) ? "lora" : "dora");
    set_count(m, "dim", m->tp * PICK(m, 4, 8));
    set(m, "target_modules", targets[random_below(&m->r, 3)]);
    if (m->s->multi_latent_attention && chance(m, 50))
        set(m, "target_modules",
            "linear_q_proj linear_q_up_proj linear_kv_up_proj linear_kv_down_proj linear_proj");
    if (chance(m, 30))
        set(m, "dropout", "0.1");
    if (m->s->peft_scheme != SIM_PEFT_LORA)
        return;
    ONE_OF(m, "dropout_position", "pre", "post");
    maybe(m, 50, "sequence_parallel_input_regather", "true");
    maybe(m, 20, "a2a_experimental", "true");
    maybe(m, 50, "share_expert_adapters", "false");
}

static void make_offload(maker_t *m)
{
    static const char *const modules[] = { "core_attn", "qkv_linear core_attn attn_proj",
                                           "attn_norm mlp_norm expert_fc1 moe_act" };
    if (chance(m, 10) && m->pp == 1)
        set_count(m, "cpu_offloading_num_layers", 1);
    else if (chance(m, 20) && m->s->recompute_granularity != SIM_RECOMPUTE_FULL) {
        set(m, "fine_grained_activation_offloading", "true");
        set(m, "offload_modules", modules[random_below(&m->r, 3)]);
        set_count(m, "min_offloaded_tensor_size", PICK(m, 1, 1000, 100000));
        maybe(m, 40, "activation_offload_fraction", "0.6");
    }
    if (chance(m, 15) && m->s->use_precision_aware_optimizer) {
        set(m, "optimizer_cpu_offload", "true");
        ONE_OF(m, "optimizer_offload_fraction", "0", "0.3", "1");
    }
}

/* Keys that seldom have another value than their default. */
static void make_rarities(maker_t *m)
{
    static const char *const rare[][4] = {
        { "model_type", "bert", "t5" },
        { "rotary_percent", "0.5", "0" },
        { "add_qkv_bias", "true" },
        { "apply_query_key_layer_scaling", "true" },
        { "moe_shared_expert_overlap", "true" },
        { "moe_shared_expert_gate", "true" },
        { "moe_router_fusion", "true" },
        { "moe_router_score_function", "sigmoid" },
        { "moe_router_pre_softmax", "true" },
        { "moe_router_enable_expert_bias", "true" },
        { "moe_router_load_balancing_type", "none", "seq_aux_loss", "sinkhorn" },
        { "moe_aux_loss_coeff", "0.01" },
        { "moe_z_loss_coeff", "0.001" },
        { "account_for_embedding_in_pipeline_split", "true" },
        { "account_for_loss_in_pipeline_split", "true" },
        { "bias_activation_fusion", "false" },
        { "deterministic_mode", "true" },
        { "num_layers_at_start_in_bf16", "0", "2" },
        { "overlap_param_gather", "true" },
        { "ddp_num_buckets", "1", "5" },
        { "main_grads_dtype", "bf16" },
        { "cpu_offloading_num_layers", "1", "2" },
        { "empty_unused_memory_level", "1", "2" },
        { "muon_tp_mode", "distributed", "blockwise" },
        { "muon_split_qkv", "false" },
        { "muon_scalar_optimizer", "lion" },
        { "use_layer_wise_param_layout", "false" },
        { "decoupled_lr", "true" },
        { "normalize_moe_lora", "true" },
        { "addresses", "bump", "down" },
        { "cublas_workspace_config", ":4096:8", ":0:0" },
    };
    for (size_t i = 0; i < sizeof(rare) / sizeof(rare[0]); i++) {
        size_t n = 1;
        while (n < 4 && rare[i][n] != NULL)
            n++;
        if (chance(m, 3))
            set(m, rare[i][0], rare[i][1 + random_below(&m->r, n - 1)]);
    }
}

static void set_delta_net_heads(maker_t *m)
{
    uint64_t keys = m->tp * m->cp * PICK(m, 1, 2);
    set_count(m, "linear_num_key_heads", keys);
    set_count(m, "linear_num_value_heads", keys * PICK(m, 1, 3));
    set_count(m, "linear_key_head_dim", PICK(m, 16, 64));
    set_count(m, "linear_value_head_dim", PICK(m, 16, 128));
}

/* A hybrid of Mamba-2 and other layers; the pattern gives stages and number of layers. */
static void make_hybrid(maker_t *m)
{
    static const char kinds[] = "MM*-G"; /* G only with an activation that it takes */
    bool takes_silu =
        m->s->activation_func == SIM_ACT_SWIGLU || m->s->activation_func == SIM_ACT_SILU;
    uint64_t n_kinds = takes_silu && !m->s->deterministic_mode ? 5 : 4;
    char text[64];
    size_t n = 0, n_layers;
    if (m->vpp > 1 || m->s->num_experts > 0 || m->s->peft_scheme != SIM_PEFT_NONE ||
        m->s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE || !chance(m, 15))
        return;
    for (uint64_t stage = 0; stage < m->pp; stage++) {
        if (stage > 0)
            text[n++] = '|';
        for (uint64_t k = 1 + random_below(&m->r, 4); k > 0; k--)
            text[n++] = kinds[random_below(&m->r, n_kinds)];
    }
    n_layers = n - (m->pp - 1);
    size_t depth = n, n_depth_layers = 1 + random_below(&m->r, 3);
    for (uint64_t i = 0; i < m->s->mtp_num_layers; i++) {
        text[n++] = '/';
        for (size_t k = 1; k <= n_depth_layers; k++)
            text[n++] = i == 0 ? kinds[random_below(&m->r, n_kinds)] : text[depth + k];
    }
    text[n] = '\0';
    set(m, "hybrid_layer_pattern", text);
    set_count(m, "num_layers", n_layers);
    set_count(m, "mamba_num_heads", m->tp * m->cp * PICK(m, 2, 4));
    set_count(m, "mamba_num_groups", m->tp * (chance(m, 50) ? m->cp : 1));
    set_count(m, "mamba_head_dim", PICK(m, 8, 64));
    set_count(m, "mamba_state_dim", PICK(m, 16, 128));
    set_delta_net_heads(m);
}

/* Layers of linear attention in a GPT. */
static void make_linear(maker_t *m)
{
    const sim_scenario_t *s = m->s;
    bool takes_silu = s->activation_func == SIM_ACT_SWIGLU || s->activation_func == SIM_ACT_SILU;
    if (!takes_silu || s->fp8 != SIM_FP8_NONE || s->peft_scheme != SIM_PEFT_NONE ||
        s->deterministic_mode || s->multi_latent_attention || s->hybrid_layer_pattern != NULL ||
        s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE || !chance(m, 12))
        return;
    set(m, "experimental_attention_variant", "gdn");
    set_count(m, "linear_attention_freq", 1 + random_below(&m->r, 4));
    set_delta_net_heads(m);
}

/* Graphs, where little speaks against them. */
static void make_graphs(maker_t *m)
{
    const sim_scenario_t *s = m->s;
    bool is_full = s->recompute_granularity == SIM_RECOMPUTE_FULL;
    if (s->use_megatron_fsdp || s->use_torch_fsdp2 || s->cpu_offloading_num_layers > 0 ||
        s->fine_grained_activation_offloading || (is_full && s->num_experts > 0) || !chance(m, 20))
        return;
    set(m, "attention_dropout", "0");
    set(m, "hidden_dropout", "0");
    set(m, "check_for_nan_in_loss_and_grad", "false");
    set(m, "graph_register", "0");
    set_count(m, "cuda_graph_warmup_steps", PICK(m, 0, 1, 2));
    if (is_full || (s->num_experts == 0 && chance(m, 25))) {
        set(m, "cuda_graph_impl", "full_iteration");
        return;
    }
    bool is_local = s->transformer_impl == SIM_IMPL_LOCAL || chance(m, 30);
    set(m, "cuda_graph_impl", is_local ? "local" : "transformer_engine");
    if (s->num_experts == 0)
        ONE_OF(m, "cuda_graph_modules", "full", "attn", "mlp", "attn mlp mamba");
    else if (is_local || (s->recompute_modules & SIM_MODULE_MOE))
        set(m, "cuda_graph_modules", "attn");
    else
        ONE_OF(m, "cuda_graph_modules", "attn", "moe_router", "attn moe_router moe_preprocess");
}

static void make_turns(maker_t *m)
{
    const sim_scenario_t *s = m->s;
    bool moves = s->use_megatron_fsdp || s->use_torch_fsdp2 || s->cpu_offloading_num_layers > 0 ||
                 s->fine_grained_activation_offloading;
    bool is_other = s->model_type != SIM_MODEL_GPT || s->hybrid_layer_pattern != NULL ||
                    s->mtp_num_layers > 0 || s->peft_scheme != SIM_PEFT_NONE;
    if (m->pp > 1 || s->expert_model_parallel_size < 2 || moves || is_other ||
        s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLGATHER || s->moe_shared_expert_overlap ||
        s->overlap_dispatch_backward_with_experts_wgrad || s->cuda_graph_impl != SIM_GRAPHS_NONE ||
        s->recompute_granularity == SIM_RECOMPUTE_FULL || (s->recompute_modules & SIM_MODULE_MOE) ||
        sim_scenario_params_dtype(s) == SIM_DTYPE_FP32)
        return;
    maybe(m, 60, "overlap_moe_expert_parallel_comm", "true");
}

static void make_torch_fsdp(maker_t *m)
{
    if (m->pp > 1 || m->s->use_distributed_optimizer || m->s->expert_model_parallel_size > 1 ||
        !maybe(m, 15, "use_torch_fsdp2", "true"))
        return;
    set(m, "gradient_accumulation_fusion", "false");
    set(m, "untie_embeddings_and_output_weights", "true");
    maybe(m, 50, "torch_fsdp2_reshard_after_forward", "false");
}

static void make_fsdp(maker_t *m)
{
    if (!maybe(m, 8, "use_megatron_fsdp", "true"))
        return;
    set(m, "use_distributed_optimizer", "true");
    ONE_OF(m, "data_parallel_sharding_strategy", "no_shard", "optim", "optim_grads",
           "optim_grads_params", "optim_grads_params");
    maybe(m, 30, "fsdp_double_buffer", "true");
    maybe(m, 30, "megatron_fsdp_main_params_dtype", "auto");
    maybe(m, 30, "megatron_fsdp_main_grads_dtype", "fp32");
    if (chance(m, 50))
        set_count(m, "suggested_communication_unit_size", PICK(m, 1, 10000, 1000000));
}

/* Last, for it does not go with much of the rest. */
static void make_schedule(maker_t *m)
{
    const sim_scenario_t *s = m->s;
    if (s->num_experts > 0 && s->moe_grouped_gemm && s->peft_scheme == SIM_PEFT_NONE &&
        s->transformer_impl == SIM_IMPL_TRANSFORMER_ENGINE && !s->use_megatron_fsdp &&
        !s->overlap_moe_expert_parallel_comm &&
        maybe(m, 30, "overlap_dispatch_backward_with_experts_wgrad", "true"))
        return;
    if (m->pp == 1 || m->vpp > 1 || s->pipeline_model_parallel_layout != NULL ||
        s->hybrid_layer_pattern != NULL || s->cuda_graph_impl != SIM_GRAPHS_NONE ||
        s->use_megatron_fsdp || s->peft_scheme != SIM_PEFT_NONE || s->mtp_num_layers > 0 ||
        s->fine_grained_activation_offloading || s->account_for_embedding_in_pipeline_split ||
        s->account_for_loss_in_pipeline_split || !chance(m, 50))
        return;
    ONE_OF(m, "pipeline_schedule", "zb-h1", "zbv", "v-half", "v-min", "dualpipe", "dualpipev");
    set(m, "untie_embeddings_and_output_weights", "true");
    set(m, "gradient_accumulation_fusion", "true");
    set(m, "overlap_grad_reduce", "false");
    set(m, "overlap_param_gather", "false");
    set(m, "defer_embedding_wgrad_compute", "false");
    set(m, "tp_comm_overlap", "false");
    if (sim_schedule_placement(s->pipeline_schedule) == TOPO_PLACEMENT_V)
        set_count(m, "num_layers", 2 * s->num_layers);
    if (s->pipeline_schedule == SIM_SCHEDULE_DUALPIPE ||
        s->pipeline_schedule == SIM_SCHEDULE_DUALPIPEV)
        set_count(m, "global_batch_size", 10 * s->global_batch_size);
}

static void make_moments(maker_t *m)
{
    const sim_scenario_t *s = m->s;
    if (s->cuda_graph_impl != SIM_GRAPHS_NONE || s->pipeline_schedule != SIM_SCHEDULE_1F1B ||
        s->use_megatron_fsdp || s->use_torch_fsdp2 || s->optimizer_cpu_offload ||
        s->mtp_num_layers > 0 || s->model_type != SIM_MODEL_GPT || !chance(m, 20))
        return;
    ONE_OF(m, "moments", "checkpoint_load", "evaluation", "checkpoint_save",
           "checkpoint_load evaluation checkpoint_save");
    maybe(m, 50, "dist_ckpt_optim_fully_reshardable", "true");
}

static void make_lengths(maker_t *m)
{
    const sim_scenario_t *s = m->s;
    uint64_t least = 4 * m->tp * m->cp;
    if (s->seq_length % least != 0 || s->expert_model_parallel_size > 1 || s->use_megatron_fsdp ||
        s->use_torch_fsdp2 || s->model_type != SIM_MODEL_GPT ||
        s->pipeline_schedule != SIM_SCHEDULE_1F1B || s->cuda_graph_impl != SIM_GRAPHS_NONE ||
        !chance(m, 30))
        return;
    set_count(m, "mean_seq_length", 1 + random_below(&m->r, s->seq_length));
}

bool random_scenario(sim_scenario_t *s_p, uint64_t seed)
{
    maker_t m = { .r = { seed }, .s = s_p };
    sim_scenario_init(s_p);
    base_diag_init(&m.diag);
    make_grid(&m);
    make_width(&m);
    make_model(&m);
    make_precision(&m);
    make_experts(&m);
    make_latent_attention(&m);
    make_recompute(&m);
    make_optimizer(&m);
    make_adapters(&m);
    make_offload(&m);
    make_fsdp(&m);
    make_torch_fsdp(&m);
    make_hybrid(&m);
    make_linear(&m);
    make_graphs(&m);
    make_rarities(&m);
    make_turns(&m);
    ONE_OF(&m, "gpu", "h100-80gb-sxm", "h100-80gb-sxm", "a100-80gb-sxm", "b200-180gb");
    make_fp4(&m);
    maybe(&m, 30, "conf", "expandable_segments:True");
    if (chance(&m, 20))
        set_count(&m, "software_date", PICK(&m, 20240101, 20250101, 20260601));
    set_count(&m, "iterations", 4);
    make_schedule(&m);
    make_moments(&m);
    make_lengths(&m);
    bool ok = sim_scenario_resolve(s_p, &m.diag);
    if (!ok && getenv("RANDOM_SCENARIO_WHY") != NULL)
        fprintf(stderr, "%s\n", m.diag.text[0]);
    base_diag_fini(&m.diag);
    if (!ok)
        sim_scenario_fini(s_p);
    return ok;
}
