/* SPDX-License-Identifier: Apache-2.0
 * Names, defaults and consequences follow Megatron-Bridge 0.7.0, src/megatron/bridge:
 * training/{config,mixed_precision,comm_overlap}.py, models/gpt_provider.py, recipes/common.py. */
#include "config.h"

#include "sim/scenario/import.h"

#include "sim/base/nearest.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/scenario/bridge_fields.h"
#include "sim/scenario/hf_config.h"
#include "sim/scenario/presets.h"
#include "sim/scenario/state.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FIELDS = 2000 };

/* Fields */

static sim_import_field_t *find(const sim_import_t *import, const char *path)
{
    for (size_t i = 0; i < import->n_fields; i++)
        if (strcmp(import->fields[i].path, path) == 0)
            return &import->fields[i];
    return NULL;
}

static bool is_null(const char *value)
{
    return *value == '\0' || strcmp(value, "null") == 0 || strcmp(value, "None") == 0 ||
           strcmp(value, "~") == 0 || strcmp(value, "[]") == 0;
}

/* The value of a field, NULL when it is not given or null. */
static const char *value_of(const sim_import_t *import, const char *path)
{
    const sim_import_field_t *f = find(import, path);
    return f != NULL && !is_null(f->value) ? f->value : NULL;
}

static bool is_true(const sim_import_t *import, const char *path, bool missing)
{
    const char *value = value_of(import, path);
    bool on;
    return value != NULL && sim_bool_parse(value, &on) ? on : missing;
}

static uint64_t number(const sim_import_t *import, const char *path, uint64_t missing)
{
    const char *value = value_of(import, path);
    uint64_t n;
    return value != NULL && base_u64_parse(value, &n) ? n : missing;
}

bool sim_import_is_override(const char *word)
{
    word += strspn(word, "+~");
    size_t group = strspn(word, "abcdefghijklmnopqrstuvwxyz_");
    size_t path = group;
    while (word[path] == '.' || word[path] == '_' || isalnum((unsigned char)word[path]))
        path++;
    if (group == 0 || word[path] != '=')
        return false;
    return (word[group] == '.' && sim_bridge_has_group(word, group)) ||
           strncmp(word, "mixed_precision=", path + 1) == 0;
}

void sim_import_add_field(sim_import_t *import, const char *path, const char *value,
                          const char *origin)
{
    sim_import_field_t *f = find(import, path);
    if (f == NULL && import->n_fields == MAX_FIELDS) {
        base_diag_add(&import->errors, "%s: %.100s: more than %d settings", origin, path,
                      MAX_FIELDS);
        return;
    }
    if (f == NULL) {
        import->fields = base_xrealloc(import->fields, import->n_fields + 1, sizeof(*f));
        f = &import->fields[import->n_fields++];
        *f = (sim_import_field_t){ .path = base_xstrdup(path) };
    }
    size_t n = strlen(value);
    bool quoted = n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n - 1] == value[0];
    free(f->value);
    free(f->origin);
    f->value = quoted ? base_xasprintf("%.*s", (int)n - 2, value + 1) : base_xstrdup(value);
    f->origin = base_xstrdup(origin);
}

void sim_import_add_override(sim_import_t *import, const char *word, const char *origin)
{
    word += strspn(word, "+~");
    const char *equals = strchr(word, '=');
    char *path = base_xasprintf("%.*s", (int)(equals - word), word);
    sim_import_add_field(import, path, equals + 1, origin);
    free(path);
}

/* Keys */

static void put(sim_import_t *import, const char *section, const char *key, const char *value,
                const char *why)
{
    sim_import_put_key(import, section, key, value, why);
}

static void put_from(sim_import_t *import, const char *section, const char *key, const char *value,
                     const sim_import_field_t *f)
{
    char *origin = base_xasprintf("%s, %s", f->path, f->origin);
    sim_import_put_key(import, section, key, value, origin);
    free(origin);
}

static void put_bool(sim_import_t *import, const char *section, const char *key, bool value,
                     const char *why)
{
    put(import, section, key, value ? "true" : "false", why);
}

static void put_u64(sim_import_t *import, const char *section, const char *key, uint64_t value,
                    const char *why)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    put(import, section, key, text, why);
}

static void refuse(sim_import_t *import, const sim_import_field_t *f, const char *why)
{
    base_diag_add(&import->unsupported, "%s: %s = %s: %s", f->origin, f->path, f->value, why);
    base_diag_add(&import->unsupported_names, "%s", f->path);
}

/* What keys that take a set or a text want of "[a, b]" or "['a', 'b']". */
static char *without_brackets(const char *value)
{
    char *text = base_xcalloc(strlen(value) + 1, 1);
    size_t n = 0;
    for (const char *s = value; *s != '\0'; s++)
        if (strchr("[]'\"", *s) == NULL)
            text[n++] = *s == ',' ? ' ' : *s;
    return text;
}

static void unknown_field(sim_import_t *import, const sim_import_field_t *f, const char *name)
{
    size_t n;
    base_nearest_t nearest;
    base_nearest_init(&nearest, name);
    const sim_key_t *keys = sim_keys(&n);
    for (size_t i = 0; i < n; i++)
        base_nearest_offer(&nearest, keys[i].name);
    const sim_key_alias_t *aliases = sim_key_aliases(&n);
    for (size_t i = 0; i < n; i++)
        base_nearest_offer(&nearest, aliases[i].name);
    bool found = nearest.best != NULL;
    /* A wrong name on a command line ends the run; a YAML file has fields of many classes. */
    bool wrong = found && import->format == SIM_IMPORT_BRIDGE;
    base_diag_add(wrong ? &import->errors : &import->warnings, "%s: %s: not known here%s%s%s%s",
                  f->origin, f->path, wrong ? "" : ", ignored", found ? "; did you mean " : "",
                  found ? nearest.best : "", found ? "?" : "");
}

/* A field whose name is that of a key: the value as it stands. */
static void put_plain(sim_import_t *import, const sim_import_field_t *f, const char *section,
                      const char *name)
{
    base_diag_t diag;
    base_diag_init(&diag);
    const sim_key_t *key;
    const char *taken;
    char *text = without_brackets(f->value);
    if (!sim_key_resolve_name(section, name, text, f->origin, &key, &taken, &diag)) {
        const char *colon = diag.n > 0 ? strrchr(diag.text[0], ':') : NULL;
        refuse(import, f, colon != NULL ? colon + 2 : "not simulated");
    } else if (key != NULL) {
        bool as_it_is = taken == text && strcmp(key->name, "moe_layer_freq") == 0;
        put_from(import, key->section, key->name, as_it_is ? f->value : taken, f);
    }
    free(text);
    base_diag_fini(&diag);
}

/* The last part of "torch.nn.functional.silu"; "AttnBackend.flash". */
static const char *last_part(const char *value)
{
    const char *dot = strrchr(value, '.');
    return dot != NULL ? dot + 1 : value;
}

static void put_activation(sim_import_t *import, const sim_import_field_t *f)
{
    static const char *const names[][2] = {
        { "silu", "silu" },      { "swish", "silu" },      { "gelu", "gelu" },
        { "fast_gelu", "gelu" }, { "quick_gelu", "gelu" }, { "squared_relu", "squared_relu" },
    };
    const char *name = last_part(f->value);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i][0], name) == 0) {
            put_from(import, "model", "activation_func", names[i][1], f);
            return;
        }
    }
    refuse(import, f, "this activation is not simulated");
}

/* The enumeration is exported by its number (megatron/core/transformer/enums.py, AttnBackend). */
static void put_attention(sim_import_t *import, const sim_import_field_t *f)
{
    static const char *const by_number[] = { NULL, "flash", "fused", "unfused", "local", "auto" };
    const char *colon = strrchr(f->value, ':'), *name = last_part(f->value);
    uint64_t n;
    if (colon != NULL && base_u64_parse(colon + 1, &n) && n >= 1 && n <= 5)
        name = by_number[n];
    put_from(import, "train", "attention_backend", name, f);
}

/* [[embedding, decoder], [decoder, loss]] -> Et|tL */
static void put_layout(sim_import_t *import, const sim_import_field_t *f)
{
    static const char *const names[][2] = {
        { "embedding", "E" }, { "decoder", "t" }, { "mtp", "m" }, { "loss", "L" }
    };
    if (strchr(f->value, '[') == NULL) {
        put_from(import, "parallel", "pipeline_model_parallel_layout", f->value, f);
        return;
    }
    char *text = base_xcalloc(strlen(f->value) + 1, 1);
    size_t n = 0;
    for (const char *s = f->value; *s != '\0';) {
        size_t length = strspn(s, "abcdefghijklmnopqrstuvwxyz");
        for (size_t i = 0; i < 4 && length > 0; i++)
            if (strlen(names[i][0]) == length && strncmp(names[i][0], s, length) == 0)
                text[n++] = names[i][1][0];
        if (length == 0 && *s == ']' && strchr(s + 1, '[') != NULL)
            text[n++] = '|';
        s += length > 0 ? length : 1;
    }
    put_from(import, "parallel", "pipeline_model_parallel_layout", text, f);
    free(text);
}

static void put_position(sim_import_t *import, const sim_import_field_t *f)
{
    bool yarn = strcmp(f->value, "yarn") == 0; /* rope with other frequencies */
    put_from(import, "model", "position_embedding_type", yarn ? "rope" : f->value, f);
}

static void put_cp_comm(sim_import_t *import, const sim_import_field_t *f)
{
    char *text = without_brackets(f->value);
    text[strcspn(text, " ")] = '\0';
    put_from(import, "parallel", "cp_comm_type", text, f);
    free(text);
}

static void put_peft_kind(sim_import_t *import, const sim_import_field_t *f)
{
    static const char *const kinds[] = { "LoRA", "DoRA" };
    const char *name = last_part(f->value);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcasecmp(kinds[i], name) == 0) {
            put_from(import, "peft", "scheme", i == 0 ? "lora" : "dora", f);
            return;
        }
    refuse(import, f, "this kind of fine-tuning is not simulated");
}

static const struct {
    const char *path;
    void (*put)(sim_import_t *import, const sim_import_field_t *f);
} special[] = {
    { "model.activation_func", put_activation },
    { "model.attention_backend", put_attention },
    { "model.pipeline_model_parallel_layout", put_layout },
    { "model.position_embedding_type", put_position },
    { "model.cp_comm_type", put_cp_comm },
    { "peft._target_", put_peft_kind },
};

static void put_field(sim_import_t *import, const sim_import_field_t *f)
{
    const char *dot = strchr(f->path, '.');
    if (is_null(f->value) || dot == NULL)
        return;
    for (size_t i = 0; i < sizeof(special) / sizeof(special[0]); i++) {
        if (strcmp(special[i].path, f->path) == 0) {
            special[i].put(import, f);
            return;
        }
    }
    const char *section = NULL;
    switch (sim_bridge_judge(f->path, f->value, &section)) {
    case SIM_BRIDGE_KEY:
        put_plain(import, f, section, dot + 1);
        break;
    case SIM_BRIDGE_REFUSED:
        refuse(import, f, "moves memory and is not simulated");
        break;
    case SIM_BRIDGE_NO_EFFECT:
        base_diag_add(&import->ignored, "%s: %s: does not move memory", f->origin, f->path);
        break;
    case SIM_BRIDGE_READ_APART:
        break;
    case SIM_BRIDGE_UNKNOWN:
        unknown_field(import, f, dot + 1);
        break;
    }
}

/* What lies under the fields */

/* "llama3_8b_pretrain_config": the longest beginning that is a known model. */
static const sim_preset_t *recipe_model(const char *recipe)
{
    char *name = base_xstrdup(recipe);
    const sim_preset_t *preset = sim_preset_find(name);
    for (char *cut; preset == NULL && (cut = strrchr(name, '_')) != NULL;) {
        *cut = '\0';
        preset = sim_preset_find(name);
    }
    free(name);
    return preset;
}

static bool is_fine_tuning(const sim_import_t *import)
{
    static const char *const words[] = { "sft", "peft", "finetune", "lora", "dora" };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (import->recipe != NULL && strcasestr(import->recipe, words[i]) != NULL)
            return true;
    return value_of(import, "peft._target_") != NULL || value_of(import, "peft.dim") != NULL;
}

/* The recipe of adapters is LoRA unless a field says another. */
static bool tunes_adapters(const sim_import_t *import)
{
    const char *recipe = import->recipe != NULL ? import->recipe : "";
    return value_of(import, "peft.dim") != NULL || strstr(recipe, "peft") != NULL ||
           strstr(recipe, "lora") != NULL;
}

static bool is_overridden(const sim_import_t *import, const char *key)
{
    for (size_t i = 0; i < import->n_overrides; i++)
        if (strcmp(import->overrides[i].key, key) == 0)
            return true;
    return false;
}

static void put_model(sim_import_t *import)
{
    const char *id = value_of(import, "model.hf_model_id");
    const sim_preset_t *preset = NULL;
    if (value_of(import, "model.num_layers") != NULL || is_overridden(import, "preset") ||
        is_overridden(import, "hf_config") || is_overridden(import, "num_layers"))
        return;
    if (id == NULL)
        id = value_of(import, "tokenizer.tokenizer_model");
    if (import->recipe != NULL)
        preset = recipe_model(import->recipe);
    if (preset == NULL && id != NULL)
        preset = sim_preset_find(id);
    if (preset != NULL)
        put(import, "model", "preset", preset->name,
            import->recipe != NULL ? "--recipe" : "name of the Hugging Face model");
    else
        base_diag_add(&import->errors, "the model is not in the input: name it with --set "
                                       "model.preset=NAME (see `mbsim models`) or --set "
                                       "model.hf_config=FILE, or give its sizes, "
                                       "model.num_layers=... and so on");
    if (import->recipe != NULL)
        base_diag_add(&import->warnings,
                      "what recipe %s itself sets is not known here: what the text does not say "
                      "has Megatron-Bridge's common defaults, and parallel sizes are 1",
                      import->recipe);
}

/* recipes/common.py and what providers of language models have in common. */
static void put_defaults(sim_import_t *import)
{
    static const char *const all[][3] = {
        { "model", "attention_dropout", "0" },
        { "model", "hidden_dropout", "0" },
        { "train", "cross_entropy_loss_fusion", "true" },
        { "train", "cross_entropy_fusion_impl", "native" },
        { "train", "create_attention_mask_in_dataloader", "false" },
        { "parallel", "deallocate_pipeline_outputs", "true" },
        { "optimizer", "optimizer", "adam" },
        { "optimizer", "use_distributed_optimizer", "true" },
    };
    bool tuning = is_fine_tuning(import);
    const char *why =
        tuning ? "Megatron-Bridge's default for fine-tuning" : "Megatron-Bridge's default";
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        put(import, all[i][0], all[i][1], all[i][2], why);
    put(import, "train", "micro_batch_size", tuning ? "1" : "2", why);
    put(import, "train", "global_batch_size", tuning ? "128" : "32", why);
    put(import, "train", "seq_length", tuning ? "2048" : "4096", why);
    put_bool(import, "optimizer", "overlap_grad_reduce", !tuning, why);
    put_bool(import, "optimizer", "overlap_param_gather", !tuning, why);
    if (tunes_adapters(import))
        put(import, "peft", "scheme", "lora", why);
}

/* What follows from the fields */

static void put_precision(sim_import_t *import)
{
    const sim_import_field_t *f = find(import, "mixed_precision");
    const sim_bridge_precision_t *p = NULL;
    bool as_object = value_of(import, "mixed_precision._target_") != NULL;
    const char *name = f != NULL ? f->value : as_object ? "" : "bf16_mixed";
    char *why = f != NULL ? base_xasprintf("mixed_precision, %s", f->origin)
                          : base_xstrdup("Megatron-Bridge's default, bf16_mixed");
    if (f != NULL && is_null(f->value))
        name = "";
    if (*name != '\0') {
        p = sim_bridge_precision(name);
        if (p == NULL && f != NULL)
            base_diag_add(&import->errors,
                          "%s: mixed_precision: unknown recipe '%.60s'; "
                          "Megatron-Bridge has bf16_mixed, fp16_mixed, "
                          "bf16_with_fp8_current_scaling_mixed, "
                          "bf16_with_mxfp8_mixed and others",
                          f->origin, name);
    }
    if (*name != '\0' || as_object) /* MixedPrecisionConfig's own default, without FP8 as well */
        put(import, "precision", "fp8_recipe", "tensorwise", "Megatron-Bridge's default");
    for (size_t i = 0; p != NULL && p->settings[i][0] != NULL; i++)
        put(import, "precision", p->settings[i][0], p->settings[i][1], why);
    if (p != NULL && p->not_simulated != NULL) {
        base_diag_add(&import->unsupported, "%s: mixed_precision = %s: %s is not simulated",
                      f != NULL ? f->origin : "default", name, p->not_simulated);
        base_diag_add(&import->unsupported_names, "mixed_precision=%s", name);
    }
    free(why);
}

/* MixedPrecisionConfig.setup() writes over what model, optimizer and ddp say. */
static void put_precision_fields(sim_import_t *import)
{
    for (size_t i = 0; i < import->n_fields; i++)
        if (strncmp(import->fields[i].path, "mixed_precision.", 16) == 0)
            put_field(import, &import->fields[i]);
}

/* CommOverlapConfig.setup() */
static void put_overlap(sim_import_t *import, uint64_t dp)
{
    bool given = false;
    for (size_t i = 0; i < import->n_fields; i++)
        given = given || strncmp(import->fields[i].path, "comm_overlap.", 13) == 0;
    uint64_t vpp = number(import, "model.virtual_pipeline_model_parallel_size", 1);
    if (!given)
        return;
    const char *why = "comm_overlap";
    bool tp = number(import, "model.tensor_model_parallel_size", 1) > 1 &&
              is_true(import, "model.sequence_parallel", false);
    put_bool(import, "parallel", "tp_comm_overlap",
             tp && is_true(import, "comm_overlap.tp_comm_overlap", false), why);
    put_bool(import, "parallel", "overlap_p2p_communication",
             is_true(import, "comm_overlap.overlap_p2p_comm",
                     vpp > 1 && number(import, "model.pipeline_model_parallel_size", 1) > 1),
             why);
    put_bool(import, "parallel", "defer_embedding_wgrad_compute",
             is_true(import, "comm_overlap.defer_embedding_wgrad_compute", false), why);
    put_u64(import, "parallel", "wgrad_deferral_limit",
            number(import, "comm_overlap.wgrad_deferral_limit", 0), why);
    put_bool(import, "optimizer", "overlap_grad_reduce",
             is_true(import, "comm_overlap.overlap_grad_reduce", dp > 1), why);
    put_bool(import, "optimizer", "overlap_param_gather",
             is_true(import, "comm_overlap.overlap_param_gather", dp > 1), why);
    uint64_t bucket = number(import, "comm_overlap.bucket_size", dp > 1 ? 128 << 20 : 0);
    if (bucket > 0)
        put_u64(import, "optimizer", "ddp_bucket_size", bucket, why);
    put_bool(import, "parallel", "overlap_moe_expert_parallel_comm",
             is_true(import, "comm_overlap.overlap_moe_expert_parallel_comm", false), why);
}

static uint64_t put_world_size(sim_import_t *import)
{
    uint64_t tp = number(import, "model.tensor_model_parallel_size", 1);
    uint64_t pp = number(import, "model.pipeline_model_parallel_size", 1);
    uint64_t cp = number(import, "model.context_parallel_size", 1);
    uint64_t ep = number(import, "model.expert_model_parallel_size", 1);
    uint64_t etp = number(import, "model.expert_tensor_parallel_size", tp);
    uint64_t dense, expert;
    if (!base_u64_mul(tp, pp, &dense) || !base_u64_mul(dense, cp, &dense) ||
        !base_u64_mul(ep, etp, &expert) || !base_u64_mul(expert, pp, &expert) || dense == 0) {
        base_diag_add(&import->errors, "the parallel sizes do not fit");
        return 1;
    }
    uint64_t least = base_u64_max(dense, expert);
    if (import->world_size != 0) {
        put_u64(import, "parallel", "world_size", import->world_size, import->world_size_origin);
        return import->world_size / dense;
    }
    base_diag_add(&import->warnings,
                  "the number of GPUs is not in the input; %" PRIu64
                  " is the smallest that fits, --world-size N sets it",
                  least);
    put_u64(import, "parallel", "world_size", least, "the input does not say how many GPUs");
    return least / dense;
}

static void put_sequence(sim_import_t *import)
{
    static const char *const paths[] = { "dataset.sequence_length", "dataset.seq_length",
                                         "model.seq_length" };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
        if (value_of(import, paths[i]) != NULL)
            put_from(import, "train", "seq_length", value_of(import, paths[i]),
                     find(import, paths[i]));
    const sim_import_field_t *mask = find(import, "dataset.create_attention_mask");
    if (mask != NULL && !is_null(mask->value))
        put_from(import, "train", "create_attention_mask_in_dataloader", mask->value, mask);
    const sim_import_field_t *skips =
        find(import, "dataset.skip_getting_attention_mask_from_dataset");
    if (skips != NULL && is_true(import, skips->path, false))
        put_from(import, "train", "create_attention_mask_in_dataloader", "false", skips);
}

/* provide() pads the vocabulary only when it is told to. */
static void put_vocabulary(sim_import_t *import)
{
    const sim_import_field_t *f = find(import, "model.vocab_size");
    const sim_import_field_t *pads = find(import, "model.should_pad_vocab");
    if (f != NULL && !is_null(f->value) && pads != NULL && !is_true(import, pads->path, false))
        put_from(import, "model", "padded_vocab_size", f->value, pads);
}

static void put_distributed_optimizer(sim_import_t *import)
{
    static const char *const paths[] = { "ddp.use_distributed_optimizer",
                                         "optimizer.use_distributed_optimizer" };
    bool said = false, on = false;
    for (size_t i = 0; i < 2; i++) {
        said = said || value_of(import, paths[i]) != NULL;
        on = on || is_true(import, paths[i], false);
    }
    if (said)
        put_bool(import, "optimizer", "use_distributed_optimizer", on,
                 "ddp or optimizer.use_distributed_optimizer");
}

/* Recipes name a strategy whether or not Megatron-FSDP is used. */
static void put_fsdp(sim_import_t *import)
{
    const sim_import_field_t *f = find(import, "ddp.data_parallel_sharding_strategy");
    if (f != NULL && !is_null(f->value) && is_true(import, "ddp.use_megatron_fsdp", false))
        put_from(import, "optimizer", "data_parallel_sharding_strategy", f->value, f);
}

static void put_environment(sim_import_t *import)
{
    for (size_t i = 0; i < import->n_fields; i++)
        if (strncmp(import->fields[i].path, "env_vars.", 9) == 0)
            sim_import_set_env(import, import->fields[i].path + 9, import->fields[i].value);
    const char *conf = sim_import_env(import, "PYTORCH_CUDA_ALLOC_CONF");
    if (conf == NULL)
        conf = sim_import_env(import, "PYTORCH_ALLOC_CONF");
    if (conf != NULL && *conf != '\0')
        put(import, "allocator", "conf", conf, "environment PYTORCH_CUDA_ALLOC_CONF");
    const char *workspace = sim_import_env(import, "CUBLAS_WORKSPACE_CONFIG");
    if (workspace != NULL && *workspace != '\0')
        put(import, "device", "cublas_workspace_config", workspace,
            "environment CUBLAS_WORKSPACE_CONFIG");
}

static void resolve_hf(sim_import_t *import)
{
    put_world_size(import);
    put(import, "train", "micro_batch_size", "1", "a model's configuration does not say it");
    put(import, "train", "seq_length", "4096", "a model's configuration does not say it");
    base_diag_add(&import->warnings,
                  "a model's configuration says nothing about the run: set parallel sizes, "
                  "train.seq_length and train.micro_batch_size with --set or in the scenario");
}

void sim_import_resolve_bridge(sim_import_t *import)
{
    if (import->format == SIM_IMPORT_HF) {
        resolve_hf(import);
        return;
    }
    put_model(import);
    put_defaults(import);
    for (size_t i = 0; i < import->n_fields; i++)
        if (strncmp(import->fields[i].path, "mixed_precision.", 16) != 0)
            put_field(import, &import->fields[i]);
    put_precision(import);
    put_precision_fields(import);
    put_sequence(import);
    put_vocabulary(import);
    put_distributed_optimizer(import);
    put_fsdp(import);
    put_overlap(import, put_world_size(import));
    put_environment(import);
}

base_status_t sim_import_hf(sim_import_t *import, const char *name, const char *text, size_t length,
                            base_err_t *err)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    sim_scenario_t scenario;
    (void)err;
    sim_scenario_init(&scenario);
    sim_hf_config_read(&scenario, name, text, length, &import->errors, &import->unsupported);
    for (size_t i = 0; i < n; i++) {
        if (scenario.state->entries[i].how != SIM_KEY_SUGGESTED)
            continue;
        char *value = sim_key_format(&keys[i], (const char *)&scenario + keys[i].offset);
        if (value != NULL)
            put(import, keys[i].section, keys[i].name, value, name);
        free(value);
    }
    sim_scenario_fini(&scenario);
    return BASE_OK;
}
