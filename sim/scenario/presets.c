/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/presets.h"

#include "sim/base/nearest.h"
#include "sim/base/xmem.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Dropout of the GPT-3 sizes is Megatron-LM's default, 0.1: its GPT-3 example scripts leave it. */
static const sim_preset_family_t gpt3 = {
    "gpt3", "activation_func=gelu normalization=LayerNorm position_embedding_type=learned_absolute "
            "add_bias_linear=true attention_dropout=0.1 hidden_dropout=0.1"
};
static const sim_preset_family_t llama = {
    "llama", "activation_func=swiglu normalization=RMSNorm position_embedding_type=rope "
             "add_bias_linear=false attention_dropout=0 hidden_dropout=0"
};
static const sim_preset_family_t qwen2 = {
    "qwen2", "activation_func=swiglu normalization=RMSNorm position_embedding_type=rope "
             "add_bias_linear=false add_qkv_bias=true attention_dropout=0 hidden_dropout=0"
};
static const sim_preset_family_t qwen3 = {
    "qwen3", "activation_func=swiglu normalization=RMSNorm position_embedding_type=rope "
             "add_bias_linear=false qk_layernorm=true attention_dropout=0 hidden_dropout=0"
};

/* Experts as Megatron-Bridge's recipes run them: dropless, grouped, all-to-all. */
#define EXPERTS "moe_token_dispatcher_type=alltoall moe_grouped_gemm=true moe_permute_fusion=true "
#define ROPE_MODEL                                                                                 \
    "normalization=RMSNorm position_embedding_type=rope attention_dropout=0 hidden_dropout=0 "
#define SILU_MODEL ROPE_MODEL "activation_func=swiglu add_bias_linear=false "
#define MLA                                                                                        \
    "multi_latent_attention=true qk_layernorm=true kv_lora_rank=512 qk_head_dim=128 "              \
    "qk_pos_emb_head_dim=64 v_head_dim=128 moe_router_dtype=fp32 moe_router_pre_softmax=true "     \
    "moe_router_load_balancing_type=seq_aux_loss "
#define SIGMOID "moe_router_score_function=sigmoid moe_router_enable_expert_bias=true "
static const sim_preset_family_t mixtral = {
    "mixtral", SILU_MODEL EXPERTS "num_experts=8 moe_router_topk=2 moe_router_load_balancing_type="
                                  "aux_loss moe_aux_loss_coeff=0.01"
};
static const sim_preset_family_t deepseek = { "deepseek",
                                              SILU_MODEL EXPERTS MLA "moe_aux_loss_coeff=0.0001" };
static const sim_preset_family_t qwen3_moe = {
    "qwen3_moe", SILU_MODEL EXPERTS "qk_layernorm=true num_experts=128 moe_router_topk=8 "
                                    "moe_router_dtype=fp32 moe_aux_loss_coeff=0.001"
};
/* The clamped quick-geglu saves what geglu saves. */
static const sim_preset_family_t gpt_oss = { "gpt_oss", ROPE_MODEL EXPERTS
                                             "activation_func=geglu add_bias_linear=true "
                                             "bias_dropout_fusion=false moe_router_topk=4 "
                                             "moe_router_load_balancing_type=none" };
static const sim_preset_family_t glm4_moe = {
    "glm4_moe", SILU_MODEL EXPERTS SIGMOID "add_qkv_bias=true rotary_percent=0.5 mtp_num_layers=1 "
                                           "moe_router_topk=8 moe_router_dtype=fp32 "
                                           "moe_router_load_balancing_type=seq_aux_loss "
                                           "moe_aux_loss_coeff=0.0001"
};

/* Router and loss as Megatron-Bridge has them (models/qwen/qwen3_next_bridge.py). */
static const sim_preset_family_t qwen3_next = {
    "qwen3_next", SILU_MODEL EXPERTS
    "qk_layernorm=true attention_output_gate=true rotary_percent=0.25 "
    "experimental_attention_variant=gdn linear_attention_freq=4 moe_shared_expert_gate=true "
    "moe_router_dtype=fp32 moe_router_load_balancing_type=global_aux_loss "
    "moe_aux_loss_coeff=0.001"
};

#define GPT3_PAPER "Brown et al. 2020, table 2.1; vocabulary of GPT-2"
#define BRIDGE_GPT "Megatron-Bridge models/gpt_provider.py; vocabulary of GPT-2"
#define HF(model)  "config.json of " model " on Hugging Face"

/* clang-format off */
static const sim_preset_t presets[] = {
    /* name, aliases, family, layers, hidden, ffn, heads, groups, head width, vocabulary, positions, untied, source, more */
    { "gpt3-125m", "gpt3-126m gpt-125m", &gpt3, 12, 768, 3072, 12, 12, 64, 50257, 2048, false, GPT3_PAPER, NULL },
    { "gpt3-350m", "gpt3-345m gpt3-355m gpt-345m gpt-350m", &gpt3, 24, 1024, 4096, 16, 16, 64, 50257, 2048, false, GPT3_PAPER, NULL },
    { "gpt3-760m", "gpt-760m", &gpt3, 24, 1536, 6144, 16, 16, 96, 50257, 2048, false, GPT3_PAPER, NULL },
    { "gpt3-1.3b", "gpt-1.3b", &gpt3, 24, 2048, 8192, 16, 16, 128, 50257, 2048, false, GPT3_PAPER "; its 24 heads of 128 do not make 2048, 16 do", NULL },
    { "gpt3-2.7b", "gpt-2.7b", &gpt3, 32, 2560, 10240, 32, 32, 80, 50257, 2048, false, GPT3_PAPER, NULL },
    { "gpt3-6.7b", "gpt3-7b gpt-6.7b gpt-7b", &gpt3, 32, 4096, 16384, 32, 32, 128, 50257, 2048, false, GPT3_PAPER, NULL },
    { "gpt3-13b", "gpt-13b", &gpt3, 40, 5120, 20480, 40, 40, 128, 50257, 2048, false, GPT3_PAPER "; its width 5140 is not 40 heads of 128, 5120 is", NULL },
    { "gpt3-20b", "gpt-20b", &gpt3, 44, 6144, 24576, 48, 48, 128, 50257, 2048, false, BRIDGE_GPT, NULL },
    { "gpt3-40b", "gpt-40b", &gpt3, 48, 8192, 32768, 64, 64, 128, 50257, 2048, false, BRIDGE_GPT, NULL },
    { "gpt3-175b", "gpt-175b", &gpt3, 96, 12288, 49152, 96, 96, 128, 50257, 2048, false, GPT3_PAPER, NULL },
    { "llama2-7b", "llama-2-7b-hf", &llama, 32, 4096, 11008, 32, 32, 128, 32000, 4096, true, HF("meta-llama/Llama-2-7b-hf"), NULL },
    { "llama2-13b", "llama-2-13b-hf", &llama, 40, 5120, 13824, 40, 40, 128, 32000, 4096, true, HF("meta-llama/Llama-2-13b-hf"), NULL },
    { "llama2-70b", "llama-2-70b-hf", &llama, 80, 8192, 28672, 64, 8, 128, 32000, 4096, true, HF("meta-llama/Llama-2-70b-hf"), NULL },
    { "llama3-8b", "llama3.1-8b meta-llama-3-8b meta-llama-3.1-8b", &llama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, true, HF("meta-llama/Llama-3.1-8B") "; 3 differs in positions alone", NULL },
    { "llama3-70b", "llama3.1-70b llama3.3-70b meta-llama-3-70b meta-llama-3.1-70b", &llama, 80, 8192, 28672, 64, 8, 128, 128256, 131072, true, HF("meta-llama/Llama-3.1-70B") "; 3 differs in positions alone", NULL },
    { "llama3-405b", "llama3.1-405b meta-llama-3.1-405b", &llama, 126, 16384, 53248, 128, 8, 128, 128256, 131072, true, HF("meta-llama/Llama-3.1-405B"), NULL },
    { "llama3.2-1b", "", &llama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, false, HF("meta-llama/Llama-3.2-1B"), NULL },
    { "llama3.2-3b", "", &llama, 28, 3072, 8192, 24, 8, 128, 128256, 131072, false, HF("meta-llama/Llama-3.2-3B"), NULL },
    { "codellama-34b", "codellama-34b-hf", &llama, 48, 8192, 22016, 64, 8, 128, 32000, 16384, true, HF("codellama/CodeLlama-34b-hf"), NULL },
    { "mistral-7b", "mistral-7b-v0.1", &llama, 32, 4096, 14336, 32, 8, 128, 32000, 32768, true, HF("mistralai/Mistral-7B-v0.1") "; its sliding window is not simulated", NULL },
    { "qwen2.5-0.5b", "qwen2.5-0.5b-instruct", &qwen2, 24, 896, 4864, 14, 2, 64, 151936, 32768, false, HF("Qwen/Qwen2.5-0.5B"), NULL },
    { "qwen2.5-1.5b", "qwen2.5-1.5b-instruct", &qwen2, 28, 1536, 8960, 12, 2, 128, 151936, 131072, false, HF("Qwen/Qwen2.5-1.5B"), NULL },
    { "qwen2.5-3b", "qwen2.5-3b-instruct", &qwen2, 36, 2048, 11008, 16, 2, 128, 151936, 32768, false, HF("Qwen/Qwen2.5-3B"), NULL },
    { "qwen2.5-7b", "qwen2.5-7b-instruct", &qwen2, 28, 3584, 18944, 28, 4, 128, 152064, 131072, true, HF("Qwen/Qwen2.5-7B"), NULL },
    { "qwen2.5-14b", "qwen2.5-14b-instruct", &qwen2, 48, 5120, 13824, 40, 8, 128, 152064, 131072, true, HF("Qwen/Qwen2.5-14B"), NULL },
    { "qwen2.5-32b", "qwen2.5-32b-instruct", &qwen2, 64, 5120, 27648, 40, 8, 128, 152064, 131072, true, HF("Qwen/Qwen2.5-32B"), NULL },
    { "qwen2.5-72b", "qwen2.5-72b-instruct", &qwen2, 80, 8192, 29568, 64, 8, 128, 152064, 131072, true, HF("Qwen/Qwen2.5-72B"), NULL },
    { "qwen3-0.6b", "", &qwen3, 28, 1024, 3072, 16, 8, 128, 151936, 40960, false, HF("Qwen/Qwen3-0.6B"), NULL },
    { "qwen3-1.7b", "", &qwen3, 28, 2048, 6144, 16, 8, 128, 151936, 40960, false, HF("Qwen/Qwen3-1.7B"), NULL },
    { "qwen3-4b", "", &qwen3, 36, 2560, 9728, 32, 8, 128, 151936, 40960, false, HF("Qwen/Qwen3-4B"), NULL },
    { "qwen3-8b", "", &qwen3, 36, 4096, 12288, 32, 8, 128, 151936, 40960, true, HF("Qwen/Qwen3-8B"), NULL },
    { "qwen3-14b", "", &qwen3, 40, 5120, 17408, 40, 8, 128, 151936, 40960, true, HF("Qwen/Qwen3-14B"), NULL },
    { "qwen3-32b", "", &qwen3, 64, 5120, 25600, 64, 8, 128, 151936, 40960, true, HF("Qwen/Qwen3-32B"), NULL },
    { "mixtral-8x7b", "mixtral-8x7b-v0.1 mixtral-8x7b-instruct-v0.1", &mixtral, 32, 4096, 14336, 32, 8, 128, 32000, 32768, true, HF("mistralai/Mixtral-8x7B-v0.1"), NULL },
    { "mixtral-8x22b", "mixtral-8x22b-v0.1", &mixtral, 56, 6144, 16384, 48, 8, 128, 32000, 65536, true, HF("mistralai/Mixtral-8x22B-v0.1"), NULL },
    { "deepseek-v2", "deepseek-v2-chat deepseek-v2.5", &deepseek, 60, 5120, 12288, 128, 128, 128, 102400, 163840, true, HF("deepseek-ai/DeepSeek-V2"),
      "q_lora_rank=1536 num_experts=160 moe_router_topk=6 moe_ffn_hidden_size=1536 moe_shared_expert_intermediate_size=3072 moe_layer_freq=[0]*1+[1]*59" },
    { "deepseek-v2-lite", "deepseek-v2-lite-chat", &deepseek, 27, 2048, 10944, 16, 16, 128, 102400, 163840, true, HF("deepseek-ai/DeepSeek-V2-Lite"),
      "num_experts=64 moe_router_topk=6 moe_ffn_hidden_size=1408 moe_shared_expert_intermediate_size=2816 moe_layer_freq=[0]*1+[1]*26" },
    { "deepseek-v3", "deepseek-v3-base deepseek-r1 deepseek-v3.1", &deepseek, 61, 7168, 18432, 128, 128, 128, 129280, 163840, true, HF("deepseek-ai/DeepSeek-V3"),
      SIGMOID "q_lora_rank=1536 num_experts=256 moe_router_topk=8 moe_ffn_hidden_size=2048 moe_shared_expert_intermediate_size=2048 moe_layer_freq=[0]*3+[1]*58 mtp_num_layers=1" },
    { "kimi-k2", "kimi-k2-base kimi-k2-instruct", &deepseek, 61, 7168, 18432, 64, 64, 128, 163840, 131072, true, HF("moonshotai/Kimi-K2-Base"),
      SIGMOID "q_lora_rank=1536 num_experts=384 moe_router_topk=8 moe_ffn_hidden_size=2048 moe_shared_expert_intermediate_size=2048 moe_layer_freq=[0]*1+[1]*60" },
    { "moonlight-16b", "moonlight-16b-a3b moonlight-16b-a3b-instruct", &deepseek, 27, 2048, 11264, 16, 16, 128, 163840, 8192, true, HF("moonshotai/Moonlight-16B-A3B"),
      SIGMOID "num_experts=64 moe_router_topk=6 moe_ffn_hidden_size=1408 moe_shared_expert_intermediate_size=2816 moe_layer_freq=[0]*1+[1]*26" },
    { "qwen3-30b-a3b", "qwen3-30b qwen3-30b-a3b-base", &qwen3_moe, 48, 2048, 6144, 32, 4, 128, 151936, 40960, true, HF("Qwen/Qwen3-30B-A3B"), "moe_ffn_hidden_size=768" },
    { "qwen3-235b-a22b", "qwen3-235b", &qwen3_moe, 94, 4096, 12288, 64, 4, 128, 151936, 40960, true, HF("Qwen/Qwen3-235B-A22B"), "moe_ffn_hidden_size=1536" },
    { "qwen3-next-80b-a3b", "qwen3-next qwen3-next-80b-a3b-instruct qwen3-next-80b-a3b-thinking", &qwen3_next, 48, 2048, 5120, 16, 2, 256, 151936, 262144, true, HF("Qwen/Qwen3-Next-80B-A3B-Instruct") "; its layer of multi-token prediction is left out",
      "num_experts=512 moe_router_topk=10 moe_ffn_hidden_size=512 moe_shared_expert_intermediate_size=512" },
    { "gpt-oss-20b", "", &gpt_oss, 24, 2880, 2880, 64, 8, 64, 201088, 131072, true, HF("openai/gpt-oss-20b"), "num_experts=32" },
    { "gpt-oss-120b", "", &gpt_oss, 36, 2880, 2880, 64, 8, 64, 201088, 131072, true, HF("openai/gpt-oss-120b"), "num_experts=128" },
    { "glm-4.5", "", &glm4_moe, 92, 5120, 12288, 96, 8, 128, 151552, 131072, true, HF("zai-org/GLM-4.5"),
      "qk_layernorm=true num_experts=160 moe_ffn_hidden_size=1536 moe_shared_expert_intermediate_size=1536 moe_layer_freq=[0]*3+[1]*89" },
    { "glm-4.5-air", "", &glm4_moe, 46, 4096, 10944, 96, 8, 128, 151552, 131072, true, HF("zai-org/GLM-4.5-Air"),
      "num_experts=128 moe_ffn_hidden_size=1408 moe_shared_expert_intermediate_size=1408 moe_layer_freq=[0]*1+[1]*45" },
};
/* clang-format on */

const sim_preset_t *sim_presets(size_t *n_p)
{
    *n_p = sizeof(presets) / sizeof(presets[0]);
    return presets;
}

/* Compare up to the end or a blank, without what spelling leaves open. */
static bool same_name(const char *a, const char *b)
{
    for (;;) {
        a += strspn(a, "-_.");
        b += strspn(b, "-_.");
        bool a_ends = *a == '\0' || *a == ' ', b_ends = *b == '\0' || *b == ' ';
        if (a_ends || b_ends)
            return a_ends && b_ends;
        if (tolower((unsigned char)*a++) != tolower((unsigned char)*b++))
            return false;
    }
}

static bool is_called(const sim_preset_t *preset, const char *name)
{
    if (same_name(preset->name, name))
        return true;
    for (const char *s = preset->aliases; *s != '\0'; s += strspn(s, " ")) {
        if (same_name(s, name))
            return true;
        s += strcspn(s, " ");
    }
    return false;
}

const sim_preset_t *sim_preset_find(const char *name)
{
    const char *slash = strrchr(name, '/');
    name = slash != NULL ? slash + 1 : name;
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        if (is_called(&presets[i], name))
            return &presets[i];
    }
    return NULL;
}

static void suggest_all(sim_scenario_t *scenario, const char *settings, const char *origin,
                        base_diag_t *diag)
{
    for (const char *s = settings; *s != '\0'; s += strspn(s, " ")) {
        size_t key = strcspn(s, "="), length = strcspn(s, " ");
        char *name = base_xasprintf("%.*s", (int)key, s);
        char *value = base_xasprintf("%.*s", (int)(length - key - 1), s + key + 1);
        sim_scenario_suggest(scenario, name, value, origin, diag);
        free(name);
        free(value);
        s += length;
    }
}

static void unknown_preset(const char *name, const char *origin, base_diag_t *diag)
{
    base_nearest_t nearest;
    base_nearest_init(&nearest, name);
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++)
        base_nearest_offer(&nearest, presets[i].name);
    base_diag_add(diag, "%s: model.preset: unknown model '%.60s'%s%s; `mbsim models` lists them",
                  origin, name, nearest.best != NULL ? "; did you mean " : "",
                  nearest.best != NULL ? nearest.best : "");
}

bool sim_preset_apply(sim_scenario_t *scenario, const char *name, const char *origin,
                      base_diag_t *diag)
{
    const sim_preset_t *p = sim_preset_find(name);
    if (p == NULL) {
        unknown_preset(name, origin, diag);
        return false;
    }
    const struct {
        const char *key;
        uint32_t value;
    } counts[] = {
        { "num_layers", p->num_layers },
        { "hidden_size", p->hidden_size },
        { "ffn_hidden_size", p->ffn_hidden_size },
        { "num_attention_heads", p->num_attention_heads },
        { "num_query_groups", p->num_query_groups },
        { "kv_channels", p->kv_channels },
        { "vocab_size", p->vocab_size },
        { "max_position_embeddings", p->max_position_embeddings },
        { "untie_embeddings_and_output_weights", p->untied },
    };
    suggest_all(scenario, p->family->settings, origin, diag);
    if (p->more != NULL)
        suggest_all(scenario, p->more, origin, diag);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        char value[16];
        snprintf(value, sizeof(value), "%" PRIu32, counts[i].value);
        sim_scenario_suggest(scenario, counts[i].key, value, origin, diag);
    }
    return true;
}
