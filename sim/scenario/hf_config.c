/* SPDX-License-Identifier: Apache-2.0
 * Names as in the configuration classes of Hugging Face transformers (models/<type>/
 * configuration_<type>.py), defaults of absent fields included. */
#include "config.h"

#include "sim/scenario/hf_config.h"

#include "sim/base/infile.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 20 };

typedef struct {
    sim_scenario_t *scenario;
    const json_t *root;
    const char *origin;
    base_diag_t *diag;
    bool ok;
} config_t;

/* Every further setting that a model type implies, as key and value. */
typedef struct {
    const char *model_type;
    bool gpt2_names; /* n_layer, n_embd, ... */
    bool tied;       /* tie_word_embeddings when the file does not say */
    const char *settings[12][2];
} model_type_t;

#define LLAMA_LIKE                                                                                 \
    { "activation_func", "swiglu" }, { "normalization", "RMSNorm" },                               \
        { "position_embedding_type", "rope" }, { "add_bias_linear", "false" },                     \
        { "attention_dropout", "0" },                                                              \
    {                                                                                              \
        "hidden_dropout", "0"                                                                      \
    }

static const model_type_t model_types[] = {
    { "llama", false, false, { LLAMA_LIKE } },
    { "mistral", false, false, { LLAMA_LIKE } },
    { "qwen2", false, false, { LLAMA_LIKE, { "add_qkv_bias", "true" } } },
    { "qwen3", false, false, { LLAMA_LIKE, { "qk_layernorm", "true" } } },
    { "gpt2",
      true,
      true,
      { { "activation_func", "gelu" },
        { "normalization", "LayerNorm" },
        { "position_embedding_type", "learned_absolute" },
        { "add_bias_linear", "true" },
        { "attention_dropout", "0.1" },
        { "hidden_dropout", "0.1" } } },
};

static void complain(config_t *c, const char *what)
{
    base_diag_add(c->diag, "%s: model.hf_config: %s", c->origin, what);
    c->ok = false;
}

static void suggest(config_t *c, const char *key, const char *value)
{
    c->ok = sim_scenario_suggest(c->scenario, key, value, c->origin, c->diag) && c->ok;
}

static void suggest_count(config_t *c, const char *key, const char *name, bool required)
{
    const json_t *value = json_object_get(c->root, name);
    char text[64];
    if (value == NULL || json_is_null(value)) {
        snprintf(text, sizeof(text), "%s is missing", name);
        if (required)
            complain(c, text);
        return;
    }
    if (!json_is_integer(value)) {
        snprintf(text, sizeof(text), "%s is not a whole number", name);
        complain(c, text);
        return;
    }
    snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    suggest(c, key, text);
}

static const model_type_t *find_type(const char *name)
{
    for (size_t i = 0; i < sizeof(model_types) / sizeof(model_types[0]); i++) {
        if (strcmp(model_types[i].model_type, name) == 0)
            return &model_types[i];
    }
    return NULL;
}

static void suggest_dimensions(config_t *c, const model_type_t *type)
{
    static const char *const names[][3] = {
        { "num_layers", "num_hidden_layers", "n_layer" },
        { "hidden_size", "hidden_size", "n_embd" },
        { "num_attention_heads", "num_attention_heads", "n_head" },
        { "vocab_size", "vocab_size", "vocab_size" },
        { "max_position_embeddings", "max_position_embeddings", "n_positions" },
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        suggest_count(c, names[i][0], names[i][type->gpt2_names ? 2 : 1], true);
    suggest_count(c, "ffn_hidden_size", type->gpt2_names ? "n_inner" : "intermediate_size",
                  !type->gpt2_names);
    suggest_count(c, "num_query_groups", "num_key_value_heads", false);
    suggest_count(c, "kv_channels", "head_dim", false);
}

static void apply_root(config_t *c)
{
    const char *name = json_string_value(json_object_get(c->root, "model_type"));
    if (name == NULL) {
        complain(c, "no model_type in it");
        return;
    }
    const model_type_t *type = find_type(name);
    if (type == NULL) {
        char text[160];
        snprintf(text, sizeof(text),
                 "model_type '%.60s' is not simulated; llama, mistral, qwen2, qwen3 and gpt2 are",
                 name);
        complain(c, text);
        return;
    }
    for (size_t i = 0; type->settings[i][0] != NULL; i++)
        suggest(c, type->settings[i][0], type->settings[i][1]);
    suggest_dimensions(c, type);
    const json_t *tie = json_object_get(c->root, "tie_word_embeddings");
    bool tied = json_is_boolean(tie) ? json_is_true(tie) : type->tied;
    suggest(c, "untie_embeddings_and_output_weights", tied ? "false" : "true");
    if (json_is_true(json_object_get(c->root, "attention_bias")) ||
        json_is_true(json_object_get(c->root, "mlp_bias")))
        complain(c,
                 "attention_bias and mlp_bias have no counterpart in Megatron-LM; give the keys");
}

bool sim_hf_config_apply(sim_scenario_t *scenario, const char *path, const char *origin,
                         base_diag_t *diag)
{
    config_t c = { .scenario = scenario, .origin = origin, .diag = diag, .ok = true };
    char *text;
    size_t length;
    base_err_t err;
    if (base_infile_read(path, MAX_BYTES, &text, &length, &err) != BASE_OK) {
        complain(&c, err.text);
        return false;
    }
    json_error_t error;
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    c.root = root;
    if (!json_is_object(root)) {
        base_diag_add(diag, "%s: model.hf_config: %s:%d: %s", origin, path, error.line,
                      root == NULL ? error.text : "not a JSON object");
        c.ok = false;
    } else {
        apply_root(&c);
    }
    json_decref(root);
    free(text);
    return c.ok;
}
