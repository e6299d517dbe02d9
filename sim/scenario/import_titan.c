/* SPDX-License-Identifier: Apache-2.0
 * Options of torchtitan, of its JobConfig (until 2026) and of the configurations since. Source:
 * torchtitan config_manager.py, config/configs.py, run_train.sh. */
#include "config.h"

#include "sim/scenario/import_titan.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Options that say what a key says. */
static const struct {
    const char *path, *section, *key;
} plain[] = {
    { "parallelism.tensor_parallel_degree", "parallel", "tensor_model_parallel_size" },
    { "training.tensor_parallel_degree", "parallel", "tensor_model_parallel_size" },
    { "parallelism.pipeline_parallel_degree", "parallel", "pipeline_model_parallel_size" },
    { "experimental.pipeline_parallel_degree", "parallel", "pipeline_model_parallel_size" },
    { "parallelism.context_parallel_degree", "parallel", "context_parallel_size" },
    { "experimental.context_parallel_degree", "parallel", "context_parallel_size" },
    { "parallelism.data_parallel_replicate_degree", "torchtitan",
      "data_parallel_replicate_degree" },
    { "training.data_parallel_replicate_degree", "torchtitan", "data_parallel_replicate_degree" },
    { "parallelism.fsdp_reshard_after_forward", "torchtitan", "fsdp_reshard_after_forward" },
    { "parallelism.context_parallel_rotate_method", "torchtitan",
      "context_parallel_rotate_method" },
    { "experimental.context_parallel_rotate_method", "torchtitan",
      "context_parallel_rotate_method" },
    { "training.seq_len", "train", "seq_length" },
    { "training.mixed_precision_reduce", "torchtitan", "mixed_precision_reduce" },
    { "training.compile", "torchtitan", "compile_model" },
    { "compile.enable", "torchtitan", "compile_model" },
    { "activation_checkpoint.mode", "torchtitan", "activation_checkpoint_mode" },
    { "activation_checkpoint.selective_ac_option", "torchtitan", "selective_ac_option" },
    { "optimizer.implementation", "torchtitan", "optimizer_implementation" },
    { "float8.enable_fsdp_float8_all_gather", "torchtitan", "enable_fsdp_float8_all_gather" },
    { "quantize.linear.float8.enable_fsdp_float8_all_gather", "torchtitan",
      "enable_fsdp_float8_all_gather" },
};

/* Options that are read in other ways below, or that move no memory. */
static const char *const others[] = {
    "job.config_file",
    "model.name",
    "model.flavor",
    "model.converters",
    "training.batch_size",
    "training.local_batch_size",
    "training.global_batch_size",
    "parallelism.pipeline_parallel_schedule",
    "experimental.pipeline_parallel_schedule",
    "parallelism.pipeline_parallel_microbatch_size",
    "experimental.pipeline_parallel_microbatches",
    "parallelism.data_parallel_shard_degree",
    "training.data_parallel_shard_degree",
    "float8.enable_float8_linear",
    "float8.recipe_name",
    "quantize.linear.float8.recipe_name",
    "float8.precompute_float8_dynamic_scale_for_fsdp",
    "float8.filter_fqns",
    "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp",
    "quantize.linear.float8.filter_fqns",
    "model.tokenizer_path",
    "model.hf_assets_path",
    "training.steps",
    "training.max_norm",
    "training.dataset",
    "training.dataset_path",
    "training.seed",
    "training.warmup_steps",
    NULL,
};

static const char *const sections[] = { "job.",         "model.",        "training.",
                                        "parallelism.", "experimental.", "activation_checkpoint.",
                                        "compile.",     "float8.",       "quantize.",
                                        "optimizer.",   "checkpoint.",   "metrics.",
                                        "profiling.",   "profiler.",     "lr_scheduler.",
                                        "comm.",        "validation.",   NULL };

/* Sections none of whose other options moves memory. */
static const char *const idle_sections[] = { "job.",          "optimizer.", "checkpoint.",
                                             "metrics.",      "profiling.", "profiler.",
                                             "lr_scheduler.", "comm.",      NULL };

static bool begins_with_one(const char *text, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strncmp(text, *list, strlen(*list)) == 0)
            return true;
    return false;
}

bool sim_import_is_titan_option(const char *word)
{
    return strncmp(word, "--", 2) == 0 && begins_with_one(word + 2, sections);
}

void sim_import_add_titan_words(sim_import_t *import, char *const *words, char *const *origins,
                                size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strncmp(words[i], "--", 2) != 0)
            continue;
        const char *name = words[i] + 2, *equals = strchr(name, '=');
        char *path = base_xasprintf("%.*s", (int)strcspn(name, "="), name);
        for (char *c = path; *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        bool has_value = equals == NULL && i + 1 < n && strncmp(words[i + 1], "--", 2) != 0;
        const char *value = equals != NULL ? equals + 1 : has_value ? words[i + 1] : "true";
        sim_import_add_field(import, path, value, origins[i]);
        i += has_value;
        free(path);
    }
}

static const sim_import_field_t *field(const sim_import_t *import, const char *path)
{
    for (size_t i = 0; i < import->n_fields; i++)
        if (strcmp(import->fields[i].path, path) == 0)
            return &import->fields[i];
    return NULL;
}

/* The value of the first of two options that is given, NULL when none is. */
static const sim_import_field_t *either(const sim_import_t *import, const char *a, const char *b)
{
    const sim_import_field_t *f = field(import, a);
    return f != NULL ? f : field(import, b);
}

static void put(sim_import_t *import, const char *section, const char *key, const char *value,
                const sim_import_field_t *from)
{
    char *origin = base_xasprintf("--%s, %s", from->path, from->origin);
    sim_import_put_key(import, section, key, value, origin);
    free(origin);
}

static void put_number(sim_import_t *import, const char *section, const char *key, uint64_t value,
                       const sim_import_field_t *from)
{
    char *text = base_xasprintf("%" PRIu64, value);
    put(import, section, key, text, from);
    free(text);
}

static void refuse(sim_import_t *import, const sim_import_field_t *f)
{
    char *name = base_xasprintf("--%s", f->path);
    base_diag_add(&import->unsupported, "%s: %s %s is not simulated", f->origin, name, f->value);
    base_diag_add(&import->unsupported_names, "%s", name);
    free(name);
}

static uint64_t number(const sim_import_field_t *f, uint64_t missing)
{
    uint64_t value;
    return f != NULL && base_u64_parse(f->value, &value) ? value : missing;
}

static uint64_t key_number(const sim_import_t *import, const char *section, const char *key)
{
    const char *text = sim_import_key_value(import, section, key);
    uint64_t value;
    return text != NULL && base_u64_parse(text, &value) && value > 0 ? value : 1;
}

/* "--model.flavor 8B", or a configuration called "llama3_8b" or ".../llama3_70b.toml". */
static void put_model(sim_import_t *import)
{
    const sim_import_field_t *flavor = field(import, "model.flavor"), *name;
    const sim_import_field_t *file = either(import, "job.config_file", "config");
    name = field(import, "model.name");
    if (flavor != NULL) {
        char *preset =
            base_xasprintf("%s-%s", name != NULL ? name->value : "llama3", flavor->value);
        put(import, "model", "preset", preset, flavor);
        free(preset);
        return;
    }
    if (file == NULL) {
        base_diag_add(&import->warnings, "no --model.flavor and no configuration names the model");
        return;
    }
    const char *slash = strrchr(file->value, '/'), *base = slash != NULL ? slash + 1 : file->value;
    char *preset = base_xasprintf("%.*s", (int)strcspn(base, "."), base);
    for (char *c = preset; *c != '\0'; c++)
        *c = *c == '_' ? '-' : *c;
    put(import, "model", "preset", preset, file);
    base_diag_add(&import->warnings,
                  "%s: %s is not read: what it sets beside the model is not here", file->origin,
                  file->value);
    free(preset);
}

static void put_schedule(sim_import_t *import)
{
    const sim_import_field_t *f = either(import, "parallelism.pipeline_parallel_schedule",
                                         "experimental.pipeline_parallel_schedule");
    if (f == NULL || strcasecmp(f->value, "1F1B") == 0)
        return;
    if (strcasecmp(f->value, "Interleaved1F1B") == 0)
        put(import, "parallel", "virtual_pipeline_model_parallel_size", "2", f);
    else
        refuse(import, f);
}

/* A local batch is split into micro-batches by a pipeline alone. */
static void put_batch(sim_import_t *import)
{
    const sim_import_field_t *local =
        either(import, "training.local_batch_size", "training.batch_size");
    const sim_import_field_t *size = field(import, "parallelism.pipeline_parallel_microbatch_size");
    const sim_import_field_t *count = field(import, "experimental.pipeline_parallel_microbatches");
    const sim_import_field_t *all = field(import, "training.global_batch_size");
    uint64_t pp = key_number(import, "parallel", "pipeline_model_parallel_size");
    uint64_t model = pp * key_number(import, "parallel", "tensor_model_parallel_size") *
                     key_number(import, "parallel", "context_parallel_size");
    uint64_t n = number(local, 0), micro = n;
    if (n == 0)
        return;
    if (pp > 1) /* before 2025-04 the number was given, by default that of the stages */
        micro = local->path[9] == 'b' ? n / number(count, pp) : number(size, 1);
    put_number(import, "train", "micro_batch_size", micro > 0 ? micro : 1, local);
    if (all != NULL && number(all, 0) > 0)
        put_number(import, "train", "global_batch_size", number(all, 0), all);
    else if (import->world_size > 0 && import->world_size % model == 0)
        put_number(import, "train", "global_batch_size", n * (import->world_size / model), local);
}

static void put_float8(sim_import_t *import)
{
    const sim_import_field_t *converters = field(import, "model.converters");
    const sim_import_field_t *old = field(import, "float8.enable_float8_linear");
    const sim_import_field_t *recipe =
        either(import, "float8.recipe_name", "quantize.linear.float8.recipe_name");
    bool is_old = old != NULL && strcasecmp(old->value, "true") == 0;
    bool is_float8 = converters != NULL && strstr(converters->value, "float8") != NULL;
    bool is_mx = converters != NULL && strstr(converters->value, "mx") != NULL;
    if (!is_old && !is_float8 && !is_mx)
        return;
    const sim_import_field_t *from = is_old ? old : converters;
    put(import, "precision", "fp8", "hybrid", from);
    put(import, "precision", "fp8_recipe", is_mx ? "mxfp8" : "tensorwise", from);
    if (recipe != NULL && strcmp(recipe->value, "tensorwise") != 0)
        refuse(import, recipe);
}

static bool is_plain(sim_import_t *import, const sim_import_field_t *f)
{
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (strcmp(plain[i].path, f->path) != 0)
            continue;
        put(import, plain[i].section, plain[i].key, f->value, f);
        return true;
    }
    return false;
}

static bool is_other(const char *path)
{
    for (const char *const *t = others; *t != NULL; t++)
        if (strcmp(*t, path) == 0)
            return true;
    return strchr(path, '.') == NULL; /* --module, --config */
}

static bool is_off(const char *value)
{
    return strcasecmp(value, "false") == 0 || strcmp(value, "[]") == 0;
}

static void put_world(sim_import_t *import)
{
    const sim_import_field_t *shard = either(import, "parallelism.data_parallel_shard_degree",
                                             "training.data_parallel_shard_degree");
    uint64_t n = number(shard, 0);
    if (import->world_size > 0) {
        char *world = base_xasprintf("%" PRIu64, import->world_size);
        sim_import_put_key(import, "parallel", "world_size", world, import->world_size_origin);
        free(world);
    } else if (n > 0) {
        n *= key_number(import, "torchtitan", "data_parallel_replicate_degree") *
             key_number(import, "parallel", "tensor_model_parallel_size") *
             key_number(import, "parallel", "pipeline_model_parallel_size") *
             key_number(import, "parallel", "context_parallel_size");
        put_number(import, "parallel", "world_size", n, shard);
        sim_import_set_world_size(import, n, shard->origin);
    } else {
        base_diag_add(&import->errors, "the number of GPUs is not said; give --world-size");
    }
}

void sim_import_resolve_titan(sim_import_t *import)
{
    sim_import_put_key(import, "run", "framework", "torchtitan", "torchtitan's options");
    for (size_t i = 0; i < import->n_fields; i++) {
        const sim_import_field_t *f = &import->fields[i];
        if (is_plain(import, f) || is_other(f->path))
            continue;
        if (begins_with_one(f->path, idle_sections))
            base_diag_add(&import->ignored, "%s: --%s", f->origin, f->path);
        else if (!is_off(f->value))
            refuse(import, f);
    }
    put_model(import);
    put_schedule(import);
    put_float8(import);
    put_world(import);
    put_batch(import);
    const char *conf = sim_import_env(import, "PYTORCH_CUDA_ALLOC_CONF");
    if (conf == NULL)
        conf = sim_import_env(import, "PYTORCH_ALLOC_CONF");
    if (conf != NULL)
        sim_import_put_key(import, "allocator", "conf", conf, "environment");
}
