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

#define GPT3_PAPER "Brown et al. 2020, table 2.1; vocabulary of GPT-2"
#define BRIDGE_GPT "Megatron-Bridge models/gpt_provider.py; vocabulary of GPT-2"
#define HF(model)  "config.json of " model " on Hugging Face"

/* clang-format off */
static const sim_preset_t presets[] = {
    /* name, aliases, family, layers, hidden, ffn, heads, groups, head width, vocabulary, positions, untied, source */
    { "gpt3-125m", "gpt3-126m gpt-125m", &gpt3, 12, 768, 3072, 12, 12, 64, 50257, 2048, false, GPT3_PAPER },
    { "gpt3-350m", "gpt3-345m gpt3-355m gpt-345m gpt-350m", &gpt3, 24, 1024, 4096, 16, 16, 64, 50257, 2048, false, GPT3_PAPER },
    { "gpt3-760m", "gpt-760m", &gpt3, 24, 1536, 6144, 16, 16, 96, 50257, 2048, false, GPT3_PAPER },
    { "gpt3-1.3b", "gpt-1.3b", &gpt3, 24, 2048, 8192, 16, 16, 128, 50257, 2048, false, GPT3_PAPER "; its 24 heads of 128 do not make 2048, 16 do" },
    { "gpt3-2.7b", "gpt-2.7b", &gpt3, 32, 2560, 10240, 32, 32, 80, 50257, 2048, false, GPT3_PAPER },
    { "gpt3-6.7b", "gpt3-7b gpt-6.7b gpt-7b", &gpt3, 32, 4096, 16384, 32, 32, 128, 50257, 2048, false, GPT3_PAPER },
    { "gpt3-13b", "gpt-13b", &gpt3, 40, 5120, 20480, 40, 40, 128, 50257, 2048, false, GPT3_PAPER "; its width 5140 is not 40 heads of 128, 5120 is" },
    { "gpt3-20b", "gpt-20b", &gpt3, 44, 6144, 24576, 48, 48, 128, 50257, 2048, false, BRIDGE_GPT },
    { "gpt3-40b", "gpt-40b", &gpt3, 48, 8192, 32768, 64, 64, 128, 50257, 2048, false, BRIDGE_GPT },
    { "gpt3-175b", "gpt-175b", &gpt3, 96, 12288, 49152, 96, 96, 128, 50257, 2048, false, GPT3_PAPER },
    { "llama2-7b", "llama-2-7b-hf", &llama, 32, 4096, 11008, 32, 32, 128, 32000, 4096, true, HF("meta-llama/Llama-2-7b-hf") },
    { "llama2-13b", "llama-2-13b-hf", &llama, 40, 5120, 13824, 40, 40, 128, 32000, 4096, true, HF("meta-llama/Llama-2-13b-hf") },
    { "llama2-70b", "llama-2-70b-hf", &llama, 80, 8192, 28672, 64, 8, 128, 32000, 4096, true, HF("meta-llama/Llama-2-70b-hf") },
    { "llama3-8b", "llama3.1-8b meta-llama-3-8b meta-llama-3.1-8b", &llama, 32, 4096, 14336, 32, 8, 128, 128256, 131072, true, HF("meta-llama/Llama-3.1-8B") "; 3 differs in positions alone" },
    { "llama3-70b", "llama3.1-70b llama3.3-70b meta-llama-3-70b meta-llama-3.1-70b", &llama, 80, 8192, 28672, 64, 8, 128, 128256, 131072, true, HF("meta-llama/Llama-3.1-70B") "; 3 differs in positions alone" },
    { "llama3-405b", "llama3.1-405b meta-llama-3.1-405b", &llama, 126, 16384, 53248, 128, 8, 128, 128256, 131072, true, HF("meta-llama/Llama-3.1-405B") },
    { "llama3.2-1b", "", &llama, 16, 2048, 8192, 32, 8, 64, 128256, 131072, false, HF("meta-llama/Llama-3.2-1B") },
    { "llama3.2-3b", "", &llama, 28, 3072, 8192, 24, 8, 128, 128256, 131072, false, HF("meta-llama/Llama-3.2-3B") },
    { "codellama-34b", "codellama-34b-hf", &llama, 48, 8192, 22016, 64, 8, 128, 32000, 16384, true, HF("codellama/CodeLlama-34b-hf") },
    { "mistral-7b", "mistral-7b-v0.1", &llama, 32, 4096, 14336, 32, 8, 128, 32000, 32768, true, HF("mistralai/Mistral-7B-v0.1") "; its sliding window is not simulated" },
    { "qwen2.5-0.5b", "qwen2.5-0.5b-instruct", &qwen2, 24, 896, 4864, 14, 2, 64, 151936, 32768, false, HF("Qwen/Qwen2.5-0.5B") },
    { "qwen2.5-1.5b", "qwen2.5-1.5b-instruct", &qwen2, 28, 1536, 8960, 12, 2, 128, 151936, 131072, false, HF("Qwen/Qwen2.5-1.5B") },
    { "qwen2.5-3b", "qwen2.5-3b-instruct", &qwen2, 36, 2048, 11008, 16, 2, 128, 151936, 32768, false, HF("Qwen/Qwen2.5-3B") },
    { "qwen2.5-7b", "qwen2.5-7b-instruct", &qwen2, 28, 3584, 18944, 28, 4, 128, 152064, 131072, true, HF("Qwen/Qwen2.5-7B") },
    { "qwen2.5-14b", "qwen2.5-14b-instruct", &qwen2, 48, 5120, 13824, 40, 8, 128, 152064, 131072, true, HF("Qwen/Qwen2.5-14B") },
    { "qwen2.5-32b", "qwen2.5-32b-instruct", &qwen2, 64, 5120, 27648, 40, 8, 128, 152064, 131072, true, HF("Qwen/Qwen2.5-32B") },
    { "qwen2.5-72b", "qwen2.5-72b-instruct", &qwen2, 80, 8192, 29568, 64, 8, 128, 152064, 131072, true, HF("Qwen/Qwen2.5-72B") },
    { "qwen3-0.6b", "", &qwen3, 28, 1024, 3072, 16, 8, 128, 151936, 40960, false, HF("Qwen/Qwen3-0.6B") },
    { "qwen3-1.7b", "", &qwen3, 28, 2048, 6144, 16, 8, 128, 151936, 40960, false, HF("Qwen/Qwen3-1.7B") },
    { "qwen3-4b", "", &qwen3, 36, 2560, 9728, 32, 8, 128, 151936, 40960, false, HF("Qwen/Qwen3-4B") },
    { "qwen3-8b", "", &qwen3, 36, 4096, 12288, 32, 8, 128, 151936, 40960, true, HF("Qwen/Qwen3-8B") },
    { "qwen3-14b", "", &qwen3, 40, 5120, 17408, 40, 8, 128, 151936, 40960, true, HF("Qwen/Qwen3-14B") },
    { "qwen3-32b", "", &qwen3, 64, 5120, 25600, 64, 8, 128, 151936, 40960, true, HF("Qwen/Qwen3-32B") },
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

static void suggest_family(sim_scenario_t *scenario, const sim_preset_family_t *family,
                           const char *origin, base_diag_t *diag)
{
    for (const char *s = family->settings; *s != '\0'; s += strspn(s, " ")) {
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
    suggest_family(scenario, p->family, origin, diag);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        char value[16];
        snprintf(value, sizeof(value), "%" PRIu32, counts[i].value);
        sim_scenario_suggest(scenario, counts[i].key, value, origin, diag);
    }
    return true;
}
