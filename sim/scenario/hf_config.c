/* SPDX-License-Identifier: Apache-2.0
 * Names as in the configuration classes of Hugging Face transformers (models/<type>/
 * configuration_<type>.py), defaults of absent fields included. What a type implies for Megatron is
 * what Megatron-Bridge 0.7 makes of it (src/megatron/bridge/models/<family>). */
#include "config.h"

#include "sim/scenario/hf_config.h"

#include "sim/base/infile.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20, MAX_LAYERS = 10000, MAX_SETTINGS = 16 };

typedef struct {
    sim_scenario_t *scenario;
    const json_t *root;
    const char *origin; /* of the keys */
    const char *name;   /* begins each message */
    base_diag_t *errors, *unsupported;
    bool ok;
} config_t;

/* Groups of fields that a type has. */
enum {
    HAS_MOE = 1 << 0,
    HAS_MLA = 1 << 1,
    IS_GPT2 = 1 << 2,        /* n_layer, n_embd, ... */
    IS_TIED = 1 << 3,        /* tie_word_embeddings when the file does not say */
    HAS_QKV_BIAS = 1 << 4,   /* attention_bias means a bias of the QKV projection alone */
    HAS_ALL_BIASES = 1 << 5, /* attention_bias goes with a bias in every linear */
    HAS_MTP = 1 << 6,
    ASKS_QK_NORM = 1 << 7, /* use_qk_norm */
    HAS_LINEAR = 1 << 8,   /* layers of linear attention */
};

typedef struct {
    const char *model_type;
    unsigned has;
    const char *settings[MAX_SETTINGS][2]; /* what the type implies */
    const char *lacks[3];                  /* what it has and the simulation does not */
} model_type_t;

#define ROPE                                                                                       \
    { "activation_func", "swiglu" }, { "normalization", "RMSNorm" },                               \
        { "position_embedding_type", "rope" }, { "add_bias_linear", "false" },                     \
        { "attention_dropout", "0" },                                                              \
    {                                                                                              \
        "hidden_dropout", "0"                                                                      \
    }
#define MOE                                                                                        \
    { "moe_token_dispatcher_type", "alltoall" }, { "moe_grouped_gemm", "true" },                   \
    {                                                                                              \
        "moe_permute_fusion", "true"                                                               \
    }
#define DEEPSEEK                                                                                   \
    { "multi_latent_attention", "true" }, { "qk_layernorm", "true" },                              \
        { "moe_router_pre_softmax", "true" }, { "moe_router_dtype", "fp32" },                      \
    {                                                                                              \
        "moe_router_load_balancing_type", "seq_aux_loss"                                           \
    }
#define SIGMOID                                                                                    \
    { "moe_router_score_function", "sigmoid" },                                                    \
    {                                                                                              \
        "moe_router_enable_expert_bias", "true"                                                    \
    }
#define SANDWICH "norms after attention and after the MLP"

static const model_type_t model_types[] = {
    { "llama", 0, { ROPE }, { NULL } },
    { "mistral", 0, { ROPE }, { NULL } },
    { "mixtral", HAS_MOE, { ROPE, MOE }, { NULL } },
    { "qwen2", 0, { ROPE, { "add_qkv_bias", "true" } }, { NULL } },
    { "qwen2_moe",
      HAS_MOE,
      { ROPE, MOE, { "add_qkv_bias", "true" }, { "moe_shared_expert_gate", "true" } },
      { NULL } },
    { "qwen3", 0, { ROPE, { "qk_layernorm", "true" } }, { NULL } },
    { "qwen3_moe", HAS_MOE, { ROPE, MOE, { "qk_layernorm", "true" } }, { NULL } },
    { "qwen3_next",
      HAS_MOE | HAS_LINEAR,
      { ROPE,
        MOE,
        { "qk_layernorm", "true" },
        { "moe_shared_expert_gate", "true" },
        { "moe_router_dtype", "fp32" },
        { "moe_router_load_balancing_type", "global_aux_loss" },
        { "attention_output_gate", "true" },
        { "experimental_attention_variant", "gdn" } },
      { NULL } },
    { "deepseek_v2", HAS_MOE | HAS_MLA, { ROPE, MOE, DEEPSEEK }, { NULL } },
    { "deepseek_v3", HAS_MOE | HAS_MLA | HAS_MTP, { ROPE, MOE, DEEPSEEK, SIGMOID }, { NULL } },
    { "deepseek_v32",
      HAS_MOE | HAS_MLA | HAS_MTP,
      { ROPE, MOE, DEEPSEEK, SIGMOID },
      { "sparse attention with an indexer (index_topk)" } },
    { "kimi_k2", HAS_MOE | HAS_MLA | HAS_MTP, { ROPE, MOE, DEEPSEEK, SIGMOID }, { NULL } },
    /* The clamped quick-geglu saves what geglu saves; its attention sinks are one number a head,
     * and a window changes no saved tensor. */
    { "gpt_oss",
      HAS_MOE | HAS_ALL_BIASES,
      { { "activation_func", "geglu" },
        { "normalization", "RMSNorm" },
        { "position_embedding_type", "rope" },
        { "attention_dropout", "0" },
        { "hidden_dropout", "0" },
        { "bias_dropout_fusion", "false" },
        { "moe_router_load_balancing_type", "none" },
        MOE },
      { NULL } },
    { "glm", HAS_QKV_BIAS, { ROPE }, { NULL } },
    { "glm4", HAS_QKV_BIAS, { ROPE }, { SANDWICH } },
    { "glm4_moe",
      HAS_MOE | HAS_QKV_BIAS | HAS_MTP | ASKS_QK_NORM,
      { ROPE,
        MOE,
        SIGMOID,
        { "moe_router_dtype", "fp32" },
        { "moe_router_load_balancing_type", "seq_aux_loss" } },
      { NULL } },
    { "gemma", IS_TIED, { ROPE, { "activation_func", "geglu" } }, { NULL } },
    { "gemma2", IS_TIED, { ROPE, { "activation_func", "geglu" } }, { SANDWICH, "capped logits" } },
    { "gemma3_text",
      IS_TIED,
      { ROPE, { "activation_func", "geglu" }, { "qk_layernorm", "true" } },
      { SANDWICH } },
    { "gpt2",
      IS_GPT2 | IS_TIED,
      { { "activation_func", "gelu" },
        { "normalization", "LayerNorm" },
        { "position_embedding_type", "learned_absolute" },
        { "add_bias_linear", "true" },
        { "attention_dropout", "0.1" },
        { "hidden_dropout", "0.1" } },
      { NULL } },
};

/* Counts by the key that takes them: the first of the names that the file has. */
typedef struct {
    const char *key;
    unsigned needs, excludes; /* groups */
    bool required;
    const char *names[4];
} count_t;

static const count_t counts[] = {
    { "num_layers", 0, 0, true, { "num_hidden_layers", "n_layer" } },
    { "hidden_size", 0, 0, true, { "hidden_size", "n_embd" } },
    { "num_attention_heads", 0, 0, true, { "num_attention_heads", "n_head" } },
    { "vocab_size", 0, 0, true, { "vocab_size" } },
    { "max_position_embeddings", 0, 0, true, { "max_position_embeddings", "n_positions" } },
    { "ffn_hidden_size", 0, IS_GPT2, true, { "intermediate_size" } },
    { "ffn_hidden_size", IS_GPT2, 0, false, { "n_inner" } },
    { "num_query_groups", 0, HAS_MLA, false, { "num_key_value_heads" } },
    { "kv_channels", 0, HAS_MLA, false, { "head_dim" } },
    { "q_lora_rank", HAS_MLA, 0, false, { "q_lora_rank" } },
    { "kv_lora_rank", HAS_MLA, 0, true, { "kv_lora_rank" } },
    { "qk_head_dim", HAS_MLA, 0, true, { "qk_nope_head_dim" } },
    { "qk_pos_emb_head_dim", HAS_MLA, 0, true, { "qk_rope_head_dim" } },
    { "v_head_dim", HAS_MLA, 0, true, { "v_head_dim" } },
    { "num_experts", HAS_MOE, 0, true, { "num_experts", "num_local_experts", "n_routed_experts" } },
    { "moe_router_topk", HAS_MOE, 0, true, { "num_experts_per_tok", "experts_per_token" } },
    { "moe_ffn_hidden_size", HAS_MOE, 0, true, { "moe_intermediate_size", "intermediate_size" } },
    { "moe_shared_expert_intermediate_size",
      HAS_MOE,
      0,
      false,
      { "shared_expert_intermediate_size" } },
    { "mtp_num_layers", HAS_MTP, 0, false, { "num_nextn_predict_layers" } },
    { "linear_conv_kernel_dim", HAS_LINEAR, 0, false, { "linear_conv_kernel_dim" } },
    { "linear_key_head_dim", HAS_LINEAR, 0, false, { "linear_key_head_dim" } },
    { "linear_value_head_dim", HAS_LINEAR, 0, false, { "linear_value_head_dim" } },
    { "linear_num_key_heads", HAS_LINEAR, 0, false, { "linear_num_key_heads" } },
    { "linear_num_value_heads", HAS_LINEAR, 0, false, { "linear_num_value_heads" } },
};

static void complain(config_t *c, const char *what)
{
    base_diag_add(c->errors, "%s: %s", c->name, what);
    c->ok = false;
}

static void suggest(config_t *c, const char *key, const char *value)
{
    c->ok = sim_scenario_suggest(c->scenario, key, value, c->origin, c->errors) && c->ok;
}

static void lacks(config_t *c, const char *what)
{
    base_diag_add(c->unsupported, "%s: not simulated: %s", c->name, what);
    c->ok = false;
}

static const json_t *field(const config_t *c, const char *name)
{
    const json_t *value = json_object_get(c->root, name);
    return json_is_null(value) ? NULL : value;
}

/* The whole number in a field, or `missing`. */
static json_int_t number(const config_t *c, const char *name, json_int_t missing)
{
    const json_t *value = field(c, name);
    return json_is_integer(value) ? json_integer_value(value) : missing;
}

static void suggest_count(config_t *c, const count_t *count)
{
    const json_t *value = NULL;
    const char *name = NULL;
    char text[96];
    for (size_t i = 0; i < 4 && count->names[i] != NULL && value == NULL; i++) {
        name = count->names[i];
        value = field(c, name);
    }
    if (value == NULL) {
        snprintf(text, sizeof(text), "%s is missing", count->names[0]);
        if (count->required)
            complain(c, text);
        return;
    }
    if (!json_is_integer(value)) {
        snprintf(text, sizeof(text), "%s is not a whole number", name);
        complain(c, text);
        return;
    }
    snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    suggest(c, count->key, text);
}

static bool is_listed(const json_t *list, json_int_t value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_integer_value(json_array_get(list, i)) == value)
            return true;
    return false;
}

/* DeepSeek's layers have experts from first_k_dense_replace on; Qwen's unless they are named. */
static bool layer_has_experts(const config_t *c, json_int_t layer)
{
    json_int_t step = number(c, "decoder_sparse_step", 1), freq = number(c, "moe_layer_freq", 1);
    return layer >= number(c, "first_k_dense_replace", 0) && freq > 0 && layer % freq == 0 &&
           step > 0 && (layer + 1) % step == 0 && !is_listed(field(c, "mlp_only_layers"), layer);
}

static bool layer_is_linear(const config_t *c, json_int_t layer)
{
    const char *type = json_string_value(json_array_get(field(c, "layer_types"), (size_t)layer));
    json_int_t interval = number(c, "full_attention_interval", 4);
    if (type != NULL)
        return strcmp(type, "linear_attention") == 0;
    return interval <= 0 || (layer + 1) % interval != 0;
}

/* As runs of equal layers, "[0]*3+[1]*58". */
static void suggest_runs(config_t *c, const char *key,
                         bool (*is_one)(const config_t *c, json_int_t layer))
{
    json_int_t n = number(c, "num_hidden_layers", 0);
    if (n <= 0 || n > MAX_LAYERS)
        return; /* said elsewhere */
    char *text = base_xstrdup("");
    for (json_int_t first = 0, end = 0; first < n; first = end) {
        bool one = is_one(c, first);
        while (end < n && is_one(c, end) == one)
            end++;
        char *longer = base_xasprintf("%s%s[%d]*%" JSON_INTEGER_FORMAT, text, first > 0 ? "+" : "",
                                      one, end - first);
        free(text);
        text = longer;
    }
    suggest(c, key, text);
    free(text);
}

static void suggest_experts(config_t *c)
{
    json_int_t shared = number(c, "n_shared_experts", 0);
    json_int_t width = number(c, "moe_intermediate_size", 0);
    char text[32];
    if (shared > 0 && width > 0 && shared <= 1024 && width <= INT32_MAX) {
        snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, shared * width);
        suggest(c, "moe_shared_expert_intermediate_size", text);
    }
    suggest_runs(c, "moe_layer_freq", layer_has_experts);
}

static void check_bias(config_t *c, const model_type_t *type)
{
    bool attention = json_is_true(field(c, "attention_bias"));
    if (type->has & HAS_ALL_BIASES)
        suggest(c, "add_bias_linear", "true");
    else if (type->has & HAS_QKV_BIAS)
        suggest(c, "add_qkv_bias", attention ? "true" : "false");
    else if (attention)
        lacks(c, "attention_bias (a bias in all of attention and not in the MLP)");
    if (json_is_true(field(c, "mlp_bias")))
        lacks(c, "mlp_bias (a bias in the MLP alone)");
}

static void suggest_rotary_part(config_t *c, const model_type_t *type)
{
    const json_t *part = field(c, "partial_rotary_factor");
    char text[32];
    if (part == NULL)
        part = json_object_get(field(c, "rope_parameters"), "partial_rotary_factor");
    if ((type->has & HAS_MLA) || !json_is_number(part))
        return;
    snprintf(text, sizeof(text), "%.6g", json_number_value(part));
    suggest(c, "rotary_percent", text);
}

static const model_type_t *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof(model_types) / sizeof(model_types[0]); i++) {
        if (strcmp(model_types[i].model_type, name) == 0)
            return &model_types[i];
    }
    return NULL;
}

static void unknown_type(config_t *c, const char *name)
{
    char *text = base_xasprintf("model_type '%.60s' is not simulated; these are:", name);
    for (size_t i = 0; i < sizeof(model_types) / sizeof(model_types[0]); i++) {
        char *longer = base_xasprintf("%s %s", text, model_types[i].model_type);
        if (model_types[i].lacks[0] == NULL) {
            free(text);
            text = longer;
        } else {
            free(longer);
        }
    }
    complain(c, text);
    free(text);
}

static void apply_type(config_t *c, const model_type_t *type)
{
    for (size_t i = 0; i < MAX_SETTINGS && type->settings[i][0] != NULL; i++)
        suggest(c, type->settings[i][0], type->settings[i][1]);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if ((counts[i].needs & ~type->has) == 0 && (counts[i].excludes & type->has) == 0)
            suggest_count(c, &counts[i]);
    if (type->has & HAS_MOE)
        suggest_experts(c);
    if (type->has & HAS_LINEAR)
        suggest_runs(c, "linear_attention_freq", layer_is_linear);
    if (type->has & ASKS_QK_NORM)
        suggest(c, "qk_layernorm", json_is_true(field(c, "use_qk_norm")) ? "true" : "false");
    const json_t *tie = field(c, "tie_word_embeddings");
    bool tied = json_is_boolean(tie) ? json_is_true(tie) : (type->has & IS_TIED) != 0;
    suggest(c, "untie_embeddings_and_output_weights", tied ? "false" : "true");
    check_bias(c, type);
    suggest_rotary_part(c, type);
    for (size_t i = 0; i < 3 && type->lacks[i] != NULL; i++)
        lacks(c, type->lacks[i]);
}

/* Models that also see or hear keep the language model's configuration in a part of its own. */
static void enter_text_part(config_t *c)
{
    const json_t *part = field(c, "text_config");
    if (!json_is_object(part))
        return;
    lacks(c, "all but the language model (text_config)");
    c->root = part;
}

static void apply_root(config_t *c)
{
    enter_text_part(c);
    const char *name = json_string_value(field(c, "model_type"));
    const model_type_t *type = name != NULL ? find_type(name) : NULL;
    if (name == NULL)
        complain(c, "no model_type in it");
    else if (type == NULL)
        unknown_type(c, name);
    else
        apply_type(c, type);
}

static bool read_text(config_t *c, const char *file, const char *text, size_t length)
{
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    c->root = root;
    if (!json_is_object(root)) {
        const char *what = root == NULL ? error.text : "not a JSON object";
        base_diag_add(c->errors, "%s: %s:%d: %s", c->name, file, root == NULL ? error.line : 1,
                      what);
        c->ok = false;
    } else {
        apply_root(c);
    }
    json_decref(root);
    return c->ok;
}

bool sim_hf_config_read(sim_scenario_t *scenario, const char *name, const char *text, size_t length,
                        base_diag_t *errors, base_diag_t *unsupported)
{
    config_t c = { .scenario = scenario,
                   .origin = name,
                   .name = name,
                   .errors = errors,
                   .unsupported = unsupported,
                   .ok = true };
    return read_text(&c, "JSON", text, length);
}

bool sim_hf_config_apply(sim_scenario_t *scenario, const char *path, const char *origin,
                         base_diag_t *diag)
{
    char *text;
    size_t length;
    base_err_t err;
    if (base_infile_read(path, MAX_BYTES, &text, &length, &err) != BASE_OK) {
        base_diag_add(diag, "%s: model.hf_config: %s", origin, err.text);
        return false;
    }
    char *name = base_xasprintf("%s: model.hf_config", origin);
    config_t c = { .scenario = scenario,
                   .origin = origin,
                   .name = name,
                   .errors = diag,
                   .unsupported = diag,
                   .ok = true };
    bool ok = read_text(&c, path, text, length);
    free(name);
    free(text);
    return ok;
}
