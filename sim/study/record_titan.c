/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/record_titan.h"

#include "sim/base/xmem.h"
#include "sim/study/record.h"
#include "topology/gpu.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has(const json_t *record, const char *path, const char *part)
{
    char *text = sim_record_text(record, path);
    bool found = strcasestr(text, part) != NULL;
    free(text);
    return found;
}

static void put(sim_import_t *import, const char *section, const char *key, const char *value,
                const char *path)
{
    char *origin = base_xasprintf("record: %s", path);
    sim_import_put_key(import, section, key, value, origin);
    free(origin);
}

bool sim_record_is_titan(const json_t *record)
{
    return has(record, "source", "torchtitan");
}

static bool is_given(const json_t *record, const char *path)
{
    char *text = sim_record_text(record, path);
    bool given = *text != '\0';
    free(text);
    return given;
}

char *sim_record_refuse_titan(const json_t *record)
{
    if (!is_given(record, "train.mbs"))
        return base_xstrdup("the micro-batch size is not stated");
    return NULL;
}

static const struct {
    const char *path, *section, *key;
} plain[] = {
    { "model.layers", "model", "num_layers" },
    { "model.hidden", "model", "hidden_size" },
    { "model.ffn", "model", "ffn_hidden_size" },
    { "model.heads", "model", "num_attention_heads" },
    { "model.kv_heads", "model", "num_query_groups" },
    { "model.head_dim", "model", "kv_channels" },
    { "model.vocab", "model", "vocab_size" },
    { "model.qk_layernorm", "model", "qk_layernorm" },
    { "model.experts", "moe", "num_experts" },
    { "parallel.world", "parallel", "world_size" },
    { "parallel.tp", "parallel", "tensor_model_parallel_size" },
    { "parallel.pp", "parallel", "pipeline_model_parallel_size" },
    { "parallel.vpp", "parallel", "virtual_pipeline_model_parallel_size" },
    { "parallel.cp", "parallel", "context_parallel_size" },
    { "parallel.ep", "parallel", "expert_model_parallel_size" },
    { "train.mbs", "train", "micro_batch_size" },
    { "train.gbs", "train", "global_batch_size" },
    { "train.seq", "train", "seq_length" },
    { "train.compile", "torchtitan", "compile_model" },
};

/* "selective AC (op)", "per-op SAC", "selective AC (2)", "full AC"; what is not stated is left to
 * the default. */
static void put_checkpoints(const json_t *record, sim_import_t *import)
{
    static const char path[] = "train.recompute";
    char *text = sim_record_text(record, path);
    const char *number = strpbrk(text, "0123456789");
    bool is_none = strncasecmp(text, "none", 4) == 0;
    if (is_none || strcasestr(text, "full") != NULL)
        put(import, "torchtitan", "activation_checkpoint_mode", is_none ? "none" : "full", path);
    if (strcasestr(text, "selective") != NULL && number != NULL) {
        char *every = base_xasprintf("%.*s", (int)strspn(number, "0123456789"), number);
        put(import, "torchtitan", "selective_ac_option", every, path);
        free(every);
    }
    free(text);
}

/* "nvfp4 layers 0-26, bf16 tail" */
static void put_nvfp4(const json_t *record, sim_import_t *import)
{
    static const char path[] = "train.precision";
    char *text = sim_record_text(record, path), *n = sim_record_text(record, "model.layers");
    const char *range = strstr(text, "layers 0-");
    put(import, "precision", "fp4", "e2m1", path);
    if (range != NULL) {
        unsigned long last = strtoul(range + 9, NULL, 10), n_layers = strtoul(n, NULL, 10);
        char *tail = base_xasprintf("%lu", n_layers > last ? n_layers - 1 - last : 0);
        put(import, "precision", "first_last_layers_bf16", "true", path);
        put(import, "precision", "num_layers_at_start_in_bf16", "0", path);
        put(import, "precision", "num_layers_at_end_in_bf16", tail, path);
        free(tail);
    }
    free(text);
    free(n);
}

/* "bf16 mixed precision + float8 tensorwise linears, fp8 all-gather", "float8_tensorwise" */
static void put_float8(const json_t *record, sim_import_t *import)
{
    static const char path[] = "train.precision";
    bool is_mxfp8 = has(record, path, "mxfp8");
    if (has(record, path, "nvfp4"))
        put_nvfp4(record, import);
    if (!has(record, path, "float8") && !is_mxfp8)
        return;
    put(import, "precision", "fp8", "hybrid", path);
    put(import, "precision", "fp8_recipe",
        has(record, path, "rowwise") ? "rowwise"
        : is_mxfp8                   ? "mxfp8"
                                     : "tensorwise",
        path);
    if (has(record, path, "all-gather"))
        put(import, "torchtitan", "enable_fsdp_float8_all_gather", "true", path);
}

void sim_record_import_titan(const json_t *record, sim_import_t *import)
{
    put(import, "run", "framework", "torchtitan", "source");
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        char *text = sim_record_text(record, plain[i].path);
        if (*text != '\0')
            put(import, plain[i].section, plain[i].key, text, plain[i].path);
        free(text);
    }
    put_checkpoints(record, import);
    put_float8(record, import);
    if (has(record, "model.name", "qwen3"))
        put(import, "model", "qk_layernorm", "true", "model.name: Qwen3 has norms of q and k");
}

/* The first run of eight digits (a day) or six (a month, of which the end is taken) that begins
 * with the century: "llama3_h100_202412_torchtitan.md", "torch 2.9.0.dev20250815". */
static unsigned day_in(const char *text)
{
    for (const char *s = text; *s != '\0';) {
        if (!isdigit((unsigned char)*s)) {
            s++;
            continue;
        }
        size_t n = strspn(s, "0123456789");
        unsigned long value = strtoul(s, NULL, 10);
        if (n == 8 && value > 20200000 && value < 20991231)
            return (unsigned)value;
        if (n == 6 && value > 202000 && value < 209912)
            return (unsigned)value * 100 + 28;
        s += n;
    }
    return 0;
}

/* run_train.sh, which sets the allocator's configuration, starts the ranks of one host;
 * multinode_trainer.slurm sets none. */
static bool is_one_node(const sim_import_t *import)
{
    const char *gpu = sim_import_key_value(import, "device", "gpu");
    const topo_gpu_t *found = gpu != NULL ? topo_gpu_find(gpu) : NULL;
    return found != NULL && import->world_size <= found->node_gpus;
}

/* Reports tell the local batch, not into how many micro-batches a pipeline split it: as many as it
 * has stages, until torchtitan 5e2033c75 (2025-04-07) made it micro-batches of one sample. */
static void put_micro_batches(const json_t *record, sim_import_t *import, unsigned day)
{
    enum { ONE_SAMPLE_FROM = 20250407 };
    char *batch = sim_record_text(record, "train.local_batch");
    char *pp = sim_record_text(record, "parallel.pp");
    unsigned long n = strtoul(batch, NULL, 10), n_stages = strtoul(pp, NULL, 10);
    if (n > 0 && n_stages > 1 && n % n_stages == 0 && day > 0 && day < ONE_SAMPLE_FROM) {
        char *size = base_xasprintf("%lu", n / n_stages);
        put(import, "train", "micro_batch_size", size, "train.local_batch");
        free(size);
    }
    free(batch);
    free(pp);
}

void sim_record_refine_titan(const json_t *record, sim_import_t *import)
{
    char *source = sim_record_text(record, "source");
    unsigned day = day_in(source);
    if (day > 0) {
        char *date = base_xasprintf("%u", day);
        put(import, "run", "software_date", date, "source");
        free(date);
    }
    if (has(record, "allocator", "torchtitan sets expandable_segments") && is_one_node(import))
        put(import, "allocator", "conf", "expandable_segments:True", "allocator");
    put_micro_batches(record, import, day);
    free(source);
}
