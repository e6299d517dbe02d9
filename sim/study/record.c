/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/record.h"

#include "sim/base/xmem.h"
#include "sim/study/record_date.h"
#include "sim/study/record_titan.h"
#include "topology/gpu.h"
#include "topology/stages.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_t *at(const json_t *record, const char *path)
{
    char name[128];
    while (record != NULL && *path != '\0') {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        record = json_object_get(record, name);
        path += n + (path[n] == '.');
    }
    return record;
}

static char *text_of(const json_t *value)
{
    if (value == NULL || json_is_null(value))
        return base_xstrdup("");
    if (json_is_string(value))
        return base_xstrdup(json_string_value(value));
    if (json_is_integer(value))
        return base_xasprintf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    if (json_is_real(value))
        return base_xasprintf("%.15g", json_real_value(value));
    if (json_is_boolean(value))
        return base_xstrdup(json_is_true(value) ? "true" : "false");
    if (!json_is_array(value))
        return base_xstrdup("");
    char *list;
    size_t length;
    FILE *out = open_memstream(&list, &length);
    for (size_t i = 0; i < json_array_size(value); i++) {
        char *item = text_of(json_array_get(value, i));
        fprintf(out, "%s%s", i > 0 ? " " : "", item);
        free(item);
    }
    fclose(out);
    return list;
}

char *sim_record_text(const json_t *record, const char *path)
{
    return text_of(at(record, path));
}

static bool text_has(const json_t *record, const char *path, const char *part)
{
    char *text = sim_record_text(record, path);
    bool has = strcasestr(text, part) != NULL;
    free(text);
    return has;
}

sim_measured_on_t sim_record_measured_on(const json_t *record, uint64_t world_size,
                                         uint32_t *rank_p)
{
    const json_t *rank = at(record, "rank");
    const char *on = json_string_value(at(record, "measured_on"));
    *rank_p = 0;
    if (on != NULL && strcmp(on, "last") == 0) {
        *rank_p = (uint32_t)(world_size - 1);
        return SIM_MEASURED_ON_RANK;
    }
    if (json_is_integer(rank)) {
        *rank_p = (uint32_t)json_integer_value(rank);
        return SIM_MEASURED_ON_RANK;
    }
    return on != NULL && strcmp(on, "mean") == 0 ? SIM_MEASURED_ON_MEAN : SIM_MEASURED_ON_MAX;
}

static void put(sim_import_t *import, const char *section, const char *key, const char *value,
                const char *path)
{
    char *origin = base_xasprintf("record: %s", path);
    sim_import_put_key(import, section, key, value, origin);
    free(origin);
}

/* The GPU as written, or what is known without its last words: "A100-64GB (custom)" is an A100. */
static bool put_gpu(const json_t *record, sim_import_t *import)
{
    char *text = sim_record_text(record, "gpu"), *cut = base_xstrdup(text);
    size_t n = 0;
    for (const char *s = text; *s != '\0'; s++) { /* "A800-80GB (PCIe)": a800-80gb-pcie */
        char c = *s == ' ' || *s == '(' ? '-' : *s;
        if (c != ')' && !(c == '-' && n > 0 && cut[n - 1] == '-'))
            cut[n++] = c;
    }
    cut[n] = '\0';
    bool found = *text == '\0' || topo_gpu_find(cut) != NULL;
    if (*text == '\0')
        base_diag_add(&import->warnings,
                      "the record does not name the GPU; the default is simulated");
    while (!found && n > 0) {
        while (n > 0 && strchr(" -/(", cut[n - 1]) == NULL)
            n--;
        while (n > 0 && strchr(" -/(", cut[n - 1]) != NULL)
            n--;
        cut[n] = '\0';
        found = n > 0 && topo_gpu_find(cut) != NULL;
        if (found)
            base_diag_add(&import->warnings, "GPU %s: simulated as %s", text,
                          topo_gpu_find(cut)->name);
    }
    if (*text != '\0' && found)
        put(import, "device", "gpu", topo_gpu_find(cut)->name, "gpu");
    free(text);
    free(cut);
    return found;
}

/* "expandable_segments:True (recipe)" -> the settings before the blank; "default (unset)" -> none.
 */
static void put_allocator(const json_t *record, sim_import_t *import)
{
    char *text = sim_record_text(record, "allocator");
    text[strcspn(text, " (")] = '\0';
    if (strchr(text, ':') != NULL && sim_import_env(import, "PYTORCH_CUDA_ALLOC_CONF") == NULL)
        put(import, "allocator", "conf", text, "allocator");
    free(text);
}

/* Until Megatron-LM d7bf5aaaa8 (2025-08-26) a layout could not name the layers of multi-token
 * prediction; they came before the loss. */
static void put_mtp_in_layout(sim_import_t *import)
{
    const char *layout = sim_import_key_value(import, "parallel", "pipeline_model_parallel_layout");
    const char *date = sim_import_key_value(import, "run", "software_date");
    const char *n_mtp = sim_import_key_value(import, "model", "mtp_num_layers");
    size_t length = layout != NULL ? strlen(layout) : 0;
    if (length == 0 || layout[length - 1] != 'L' || strchr(layout, 'm') != NULL || n_mtp == NULL ||
        date == NULL || strtoul(date, NULL, 10) >= 20250826)
        return;
    char *with = base_xasprintf("%.*sm*%sL", (int)length - 1, layout, n_mtp);
    put(import, "parallel", "pipeline_model_parallel_layout", with,
        "date: software of before layouts had MTP");
    free(with);
}

/* Megatron-LM has a program for each type instead of an argument. */
static void put_model_type(const json_t *record, sim_import_t *import)
{
    char *type = sim_record_text(record, "model.type");
    if (strcmp(type, "bert") == 0 || strcmp(type, "t5") == 0)
        put(import, "model", "model_type", type, "model.type");
    free(type);
}

/* The vocabulary noted beside a run's arguments, unless they name a tokenizer whose published
 * vocabulary is known: a run can be given no other. */
static void put_vocab_note(const json_t *record, sim_import_t *import)
{
    if (text_has(record, "args.tokenizer-type", "BertWordPiece"))
        return;
    char *vocab = sim_record_text(record, "model.vocab");
    char *padded = sim_record_text(record, "model.padded_vocab");
    if (*vocab != '\0')
        sim_import_override(import, "model", "vocab_size", vocab, "record: model.vocab");
    if (*padded != '\0')
        sim_import_override(import, "model", "padded_vocab_size", padded,
                            "record: model.padded_vocab");
    free(vocab);
    free(padded);
}

static void import_arguments(const json_t *record, sim_import_t *import)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)at(record, "args"), name, value)
    {
        char *text = text_of(value);
        sim_import_add(import, name, text, "record: args");
        free(text);
    }
    json_object_foreach((json_t *)at(record, "env"), name, value)
    {
        char *text = text_of(value);
        sim_import_set_env(import, name, text);
        free(text);
    }
    static const char *const splits[][2] = {
        { "parallel.account_for_embedding_in_pipeline_split",
          "account-for-embedding-in-pipeline-split" },
        { "parallel.account_for_loss_in_pipeline_split", "account-for-loss-in-pipeline-split" },
    };
    for (size_t i = 0; i < 2; i++) /* the lists of arguments leave these out */
        if (json_is_true(at(record, splits[i][0])))
            sim_import_add(import, splits[i][1], "true", "record: parallel");
    put_vocab_note(record, import);
    sim_import_resolve(import);
}

/* Normalised fields whose value is that of the key. */
static const struct {
    const char *path, *section, *key;
} plain[] = {
    { "model.layers", "model", "num_layers" },
    { "model.hybrid.pattern", "model", "hybrid_layer_pattern" },
    { "model.hybrid.mamba_num_heads", "model", "mamba_num_heads" },
    { "model.hybrid.mamba_head_dim", "model", "mamba_head_dim" },
    { "model.hybrid.mamba_state_dim", "model", "mamba_state_dim" },
    { "model.hybrid.mamba_num_groups", "model", "mamba_num_groups" },
    { "model.moe_latent_size", "moe", "moe_latent_size" },
    { "model.hidden", "model", "hidden_size" },
    { "model.ffn", "model", "ffn_hidden_size" },
    { "model.heads", "model", "num_attention_heads" },
    { "model.kv_heads", "model", "num_query_groups" },
    { "model.head_dim", "model", "kv_channels" },
    { "model.padded_vocab", "model", "padded_vocab_size" },
    { "model.max_pos", "model", "max_position_embeddings" },
    { "model.norm", "model", "normalization" },
    { "model.bias_linear", "model", "add_bias_linear" },
    { "model.add_qkv_bias", "model", "add_qkv_bias" },
    { "model.qk_layernorm", "model", "qk_layernorm" },
    { "model.experts", "moe", "num_experts" },
    { "model.topk", "moe", "moe_router_topk" },
    { "model.moe_ffn", "moe", "moe_ffn_hidden_size" },
    { "model.shared_expert_ffn", "moe", "moe_shared_expert_intermediate_size" },
    { "model.router_dtype", "moe", "moe_router_dtype" },
    { "model.mla.q_lora_rank", "model", "q_lora_rank" },
    { "model.mla.kv_lora_rank", "model", "kv_lora_rank" },
    { "model.mla.qk_head_dim", "model", "qk_head_dim" },
    { "model.mla.qk_pos_emb_head_dim", "model", "qk_pos_emb_head_dim" },
    { "model.mla.v_head_dim", "model", "v_head_dim" },
    { "model.mtp_layers", "model", "mtp_num_layers" },
    { "train.moe_grouped_gemm", "moe", "moe_grouped_gemm" },
    { "train.moe_permute_fusion", "moe", "moe_permute_fusion" },
    { "train.moe_router_fusion", "moe", "moe_router_fusion" },
    { "train.moe_shared_expert_overlap", "moe", "moe_shared_expert_overlap" },
    { "train.ep_a2a_overlap", "parallel", "overlap_moe_expert_parallel_comm" },
    { "train.capacity_factor", "moe", "moe_expert_capacity_factor" },
    { "train.pad_to_capacity", "moe", "moe_pad_expert_input_to_capacity" },
    { "parallel.world", "parallel", "world_size" },
    { "parallel.tp", "parallel", "tensor_model_parallel_size" },
    { "parallel.pp", "parallel", "pipeline_model_parallel_size" },
    { "parallel.vpp", "parallel", "virtual_pipeline_model_parallel_size" },
    { "parallel.cp", "parallel", "context_parallel_size" },
    { "parallel.cp_comm_type", "parallel", "cp_comm_type" },
    { "parallel.ep", "parallel", "expert_model_parallel_size" },
    { "parallel.etp", "parallel", "expert_tensor_parallel_size" },
    { "parallel.account_for_embedding_in_pipeline_split", "parallel",
      "account_for_embedding_in_pipeline_split" },
    { "parallel.account_for_loss_in_pipeline_split", "parallel",
      "account_for_loss_in_pipeline_split" },
    { "parallel.decoder_first_pipeline_num_layers", "parallel",
      "decoder_first_pipeline_num_layers" },
    { "parallel.decoder_last_pipeline_num_layers", "parallel", "decoder_last_pipeline_num_layers" },
    { "parallel.pipeline_model_parallel_layout", "parallel", "pipeline_model_parallel_layout" },
    { "train.mbs", "train", "micro_batch_size" },
    { "train.gbs", "train", "global_batch_size" },
    { "train.seq", "train", "seq_length" },
    { "train.dist_opt", "optimizer", "use_distributed_optimizer" },
    { "train.overlap_grad_reduce", "optimizer", "overlap_grad_reduce" },
    { "train.overlap_param_gather", "optimizer", "overlap_param_gather" },
    { "train.bucket_size", "optimizer", "ddp_bucket_size" },
    { "train.log_params_norm", "optimizer", "log_params_norm" },
    { "train.log_num_zeros_in_grad", "optimizer", "log_num_zeros_in_grad" },
    { "train.tp_comm_overlap", "parallel", "tp_comm_overlap" },
    { "train.defer_embedding_wgrad", "parallel", "defer_embedding_wgrad_compute" },
    { "train.gradient_accumulation_fusion", "train", "gradient_accumulation_fusion" },
    { "train.bias_dropout_fusion", "train", "bias_dropout_fusion" },
    { "train.transformer_impl", "train", "transformer_impl" },
    { "train.dropout.attention", "model", "attention_dropout" },
    { "train.dropout.hidden", "model", "hidden_dropout" },
    { "train.cuda_graph.impl", "train", "cuda_graph_impl" },
    { "train.cuda_graph.scope", "train", "cuda_graph_modules" },
    { "train.cuda_graph.modules", "train", "cuda_graph_modules" },
    { "train.optimizer_cpu_offload", "optimizer", "optimizer_cpu_offload" },
};

/* "alltoall", "flex/DeepEP", "flex/hybridep, 32 SMs"; "alltoall, grouped-gemm, …, capacity factor 1
 * with pad-expert-input-to-capacity". */
static void put_dispatcher(const json_t *record, sim_import_t *import)
{
    static const struct {
        const char *word, *key, *value;
    } words[] = {
        { "allgather", "moe_token_dispatcher_type", "allgather" },
        { "alltoall", "moe_token_dispatcher_type", "alltoall" },
        { "flex", "moe_token_dispatcher_type", "flex" },
        { "deepep", "moe_flex_dispatcher_backend", "deepep" },
        { "hybridep", "moe_flex_dispatcher_backend", "hybridep" },
        { "grouped-gemm", "moe_grouped_gemm", "true" },
        { "permute-fusion", "moe_permute_fusion", "true" },
        { "capacity factor 1 ", "moe_expert_capacity_factor", "1" },
        { "pad-expert-input-to-capacity", "moe_pad_expert_input_to_capacity", "true" },
    };
    static const char *const paths[] = { "train.dispatcher", "train.moe" };
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            if (text_has(record, paths[p], words[i].word))
                put(import, "moe", words[i].key, words[i].value, paths[p]);
}

/* "pattern *E, repeated (shared) layer, 2 depths": layers of a hybrid's multi-token prediction. */
static void put_depths(const json_t *record, sim_import_t *import)
{
    static const char path[] = "model.mtp", word[] = "pattern ";
    char *text = sim_record_text(record, path);
    char *pattern = sim_record_text(record, "model.hybrid.pattern");
    json_int_t n = json_integer_value(at(record, "model.mtp_layers"));
    const char *depth = strstr(text, word);
    if (depth != NULL && *pattern != '\0') {
        depth += strlen(word);
        for (json_int_t i = 0; i < n && i < TOPO_MAX_LAYERS; i++) {
            char *longer = base_xasprintf("%s/%.*s", pattern, (int)strcspn(depth, ", "), depth);
            free(pattern);
            pattern = longer;
        }
        put(import, "model", "hybrid_layer_pattern", pattern, path);
    }
    if (strstr(text, "repeated") != NULL)
        put(import, "model", "mtp_use_repeated_layer", "true", path);
    free(pattern);
    free(text);
}

/* "([0]*3+[1]*11) presumably" -> [0]*3+[1]*11; "all MoE" -> 1 */
static void put_experts(const json_t *record, sim_import_t *import)
{
    char *text = sim_record_text(record, "model.moe_layer_freq");
    if (strncmp(text, "all", 3) == 0) {
        put(import, "moe", "moe_layer_freq", "1", "model.moe_layer_freq");
    } else if (*text != '\0') {
        char *from = text + (*text == '(');
        from[strcspn(from, " )")] = '\0';
        put(import, "moe", "moe_layer_freq", from, "model.moe_layer_freq");
    }
    free(text);
    if (json_is_object(at(record, "model.mla")))
        put(import, "model", "multi_latent_attention", "true", "model.mla");
    put_dispatcher(record, import);
    put_depths(record, import);
}

static void put_vocab(const json_t *record, sim_import_t *import)
{
    const json_t *vocab = at(record, "model.vocab");
    if (!json_is_integer(vocab))
        return;
    /* Megatron-LM's NullTokenizer before 2026-04 has one token more than --vocab-size. */
    json_int_t extra = text_has(record, "model.vocab_note", "vocab_size+1") ? 1 : 0;
    char *text = base_xasprintf("%" JSON_INTEGER_FORMAT, json_integer_value(vocab) + extra);
    put(import, "model", "vocab_size", text, "model.vocab");
    free(text);
}

static void put_positions(const json_t *record, sim_import_t *import)
{
    char *text = sim_record_text(record, "model.pos_emb");
    const char *percent = strchr(text, '%');
    if (strncmp(text, "rope", 4) == 0 && percent != NULL) {
        char *part = base_xasprintf("%.4g", strtod(text + 4, NULL) / 100);
        put(import, "model", "rotary_percent", part, "model.pos_emb");
        free(part);
    }
    if (strncmp(text, "rope", 4) == 0)
        put(import, "model", "position_embedding_type", "rope", "model.pos_emb");
    else if (*text != '\0')
        put(import, "model", "position_embedding_type", text, "model.pos_emb");
    else if (text_has(record, "model.norm", "RMSNorm"))
        put(import, "model", "position_embedding_type", "rope",
            "model.norm: as models with RMSNorm do");
    free(text);
}

static void put_precision(const json_t *record, sim_import_t *import)
{
    char *text = sim_record_text(record, "train.precision");
    char *grads = sim_record_text(record, "train.grad_dtype");
    const char *sixteen = strncmp(text, "fp16", 4) == 0 ? "fp16" : "bf16";
    put(import, "precision", sixteen, "true", "train.precision");
    if (strcasestr(text, "fp8") != NULL || strcasestr(text, "float8") != NULL) {
        static const char *const recipes[] = { "tensorwise", "blockwise", "mxfp8", "delayed" };
        put(import, "precision", "fp8", "hybrid", "train.precision");
        for (size_t i = 0; i < 4; i++)
            if (strcasestr(text, recipes[i]) != NULL)
                put(import, "precision", "fp8_recipe", recipes[i], "train.precision");
        if (strcasestr(text, "param") != NULL) /* "param-gather", "fp8_param_gather" */
            put(import, "precision", "fp8_param_gather", "true", "train.precision");
    }
    if (*grads != '\0')
        put(import, "precision", "accumulate_allreduce_grads_in_fp32",
            strncmp(grads, "fp32", 4) == 0 ? "true" : "false", "train.grad_dtype");
    free(text);
    free(grads);
}

static void put_recompute(const json_t *record, sim_import_t *import)
{
    static const char *const fields[][2] = {
        { "train.recompute.granularity", "recompute_granularity" },
        { "train.recompute.method", "recompute_method" },
        { "train.recompute.num_layers", "recompute_num_layers" },
        { "train.recompute.modules", "recompute_modules" },
    };
    const json_t *value = at(record, "train.recompute");
    if (json_is_string(value)) {
        const char *text = json_string_value(value);
        if (strcasestr(text, "selective") != NULL && strncmp(text, "none", 4) != 0)
            put(import, "recompute", "recompute_granularity", "selective", "train.recompute");
        return;
    }
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        char *text = sim_record_text(record, fields[i][0]);
        if (*text != '\0')
            put(import, "recompute", fields[i][1], text, fields[i][0]);
        free(text);
    }
}

static void put_attention(const json_t *record, sim_import_t *import)
{
    char *text = sim_record_text(record, "train.attention_backend");
    const char *value = NULL;
    if (text_has(record, "train.transformer_impl", "local"))
        value = "local";
    else if (strncmp(text, "unfused", 7) == 0)
        value = "unfused";
    else if (strncmp(text, "flash", 5) == 0)
        value = "flash";
    else if (strncmp(text, "fused", 5) == 0)
        value = "fused";
    if (value != NULL) /* --use-flash-attn leaves the choice to Transformer Engine */
        put(import, "train", "attention_backend", value, "train.attention_backend");
    free(text);
}

static void put_cross_entropy(const json_t *record, sim_import_t *import)
{
    const char *path = "train.cross_entropy_fusion";
    bool te = text_has(record, path, "te") && !text_has(record, path, "native");
    if (!te && !text_has(record, path, "native"))
        return;
    put(import, "train", "cross_entropy_loss_fusion", "true", path);
    put(import, "train", "cross_entropy_fusion_impl", te ? "te" : "native", path);
}

static void put_optimizer(const json_t *record, sim_import_t *import)
{
    char *text = sim_record_text(record, "train.optimizer");
    size_t n = strcspn(text, " (");
    if (strncasecmp(text, "adam", 4) != 0 || strstr(text, "8bit") != NULL)
        put(import, "optimizer", "optimizer", text, "train.optimizer");
    else if (n > 0)
        put(import, "optimizer", "optimizer", "adam", "train.optimizer");
    if (strstr(text, "precision-aware") != NULL) {
        static const char *const words[][3] = {
            { "bf16 main grads", "main_grads_dtype", "bf16" },
            { "bf16 grads", "main_grads_dtype", "bf16" },
            { "fp16 main params", "main_params_dtype", "fp16" },
            { "bf16 exp_avg/exp_avg_sq", "exp_avg_dtype", "bf16" },
            { "bf16 exp_avg/exp_avg_sq", "exp_avg_sq_dtype", "bf16" },
            { "bf16 moments", "exp_avg_dtype", "bf16" },
            { "bf16 moments", "exp_avg_sq_dtype", "bf16" },
        };
        put(import, "optimizer", "use_precision_aware_optimizer", "true", "train.optimizer");
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            if (strstr(text, words[i][0]) != NULL)
                put(import, "optimizer", words[i][1], words[i][2], "train.optimizer");
    }
    free(text);
}

/* "LoRA r8 all-linear", "LoRA, sequence_parallel_input_regather=True" */
static void put_peft(const json_t *record, sim_import_t *import)
{
    char *text = sim_record_text(record, "train.peft");
    const char *rank = strstr(text, " r");
    if (*text != '\0')
        put(import, "peft", "scheme", strcasestr(text, "dora") != NULL ? "dora" : "lora",
            "train.peft");
    if (rank != NULL && isdigit((unsigned char)rank[2])) {
        char *digits = base_xasprintf("%.*s", (int)strspn(rank + 2, "0123456789"), rank + 2);
        put(import, "peft", "dim", digits, "train.peft");
        free(digits);
    }
    if (strcasestr(text, "regather=True") != NULL)
        put(import, "peft", "sequence_parallel_input_regather", "true", "train.peft");
    free(text);
}

/* Megatron-Bridge's providers of known models set dropout to 0, and the models that use RMSNorm are
 * trained without; Megatron-LM's own default is 0.1. */
static void put_defaults(const json_t *record, sim_import_t *import)
{
    bool bridge = text_has(record, "source", "Bridge");
    bool none = bridge || text_has(record, "model.norm", "RMSNorm");
    const char *dropout = none ? "0" : "0.1";
    const char *origin = bridge ? "Megatron-Bridge's default" : "Megatron-LM's default";
    sim_import_put_key(import, "model", "attention_dropout", dropout, origin);
    sim_import_put_key(import, "model", "hidden_dropout", dropout, origin);
    if (bridge) {
        sim_import_put_key(import, "precision", "fp8_recipe", "tensorwise", origin);
        sim_import_put_key(import, "train", "cross_entropy_loss_fusion", "true", origin);
        sim_import_put_key(import, "train", "cross_entropy_fusion_impl", "native", origin);
        /* Every recipe of such models sets it (recipes/nemotronh). */
        if (text_has(record, "model.activation", "squared_relu") && at(record, "model.experts"))
            sim_import_put_key(import, "moe", "use_fused_weighted_squared_relu", "true", origin);
    } else {
        /* Megatron-LM's default is a dense mask. Where it would have a gibibyte and more for every
         * sample, before it is even split over the context-parallel ranks, a run that worked must
         * have been without. */
        const json_t *seq = at(record, "train.seq");
        bool fits = !json_is_integer(seq) || json_integer_value(seq) < 32768;
        sim_import_put_key(import, "train", "create_attention_mask_in_dataloader",
                           fits ? "true" : "false", origin);
    }
}

/* "fsdp2"; "megatron-fsdp optim_grads_params, main params/grads fp32, grad comm bf16". */
static void put_fsdp(const json_t *record, sim_import_t *import)
{
    static const char path[] = "train.fsdp";
    static const char *const strategies[] = { "optim_grads_params", "optim_grads", "optim",
                                              "no_shard" };
    if (text_has(record, path, "fsdp2")) {
        put(import, "optimizer", "use_torch_fsdp2", "true", path);
        return;
    }
    put(import, "optimizer", "use_megatron_fsdp", "true", path);
    sim_import_put_key(import, "optimizer", "data_parallel_sharding_strategy", "optim_grads_params",
                       "Megatron-Bridge's performance scripts");
    for (size_t i = 0; i < 4; i++) {
        if (!text_has(record, path, strategies[i]))
            continue;
        put(import, "optimizer", "data_parallel_sharding_strategy", strategies[i], path);
        break;
    }
    if (text_has(record, path, "grads fp32"))
        put(import, "optimizer", "megatron_fsdp_main_grads_dtype", "fp32", path);
    if (text_has(record, path, "comm bf16"))
        put(import, "optimizer", "megatron_fsdp_grad_comm_dtype", "bf16", path);
}

static void import_fields(const json_t *record, sim_import_t *import)
{
    put_defaults(record, import);
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        char *text = sim_record_text(record, plain[i].path);
        if (*text != '\0')
            put(import, plain[i].section, plain[i].key, text, plain[i].path);
        free(text);
    }
    if (json_is_integer(at(record, "model.experts")))
        put_experts(record, import);
    put_vocab(record, import);
    put_positions(record, import);
    char *activation = sim_record_text(record, "model.activation");
    put(import, "model", "activation_func", activation, "model.activation");
    free(activation);
    const json_t *tied = at(record, "model.tied_embeddings");
    if (json_is_boolean(tied))
        put(import, "model", "untie_embeddings_and_output_weights",
            json_is_true(tied) ? "false" : "true", "model.tied_embeddings");
    const json_t *sp = at(record, "train.sp");
    bool on =
        json_is_true(sp) || (json_is_string(sp) && strncmp(json_string_value(sp), "set", 3) == 0);
    put(import, "parallel", "sequence_parallel", on ? "true" : "false", "train.sp");
    put_precision(record, import);
    put_recompute(record, import);
    put_attention(record, import);
    put_cross_entropy(record, import);
    put_optimizer(record, import);
    put_peft(record, import);
    if (json_is_string(at(record, "train.fsdp")))
        put_fsdp(record, import);
}

/* Programs that allocate in another way than Megatron-LM and Megatron-Bridge. */
static const char *other_program(const json_t *record)
{
    static const char *const programs[] = { "torchtune", "Automodel" };
    for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
        if (text_has(record, "source", programs[i]))
            return programs[i];
    return NULL;
}

static char *join_names(const base_diag_t *names)
{
    char *list = base_xstrdup("not simulated:");
    for (size_t i = 0; i < names->n; i++) {
        char *longer = base_xasprintf("%s %s", list, names->text[i]);
        free(list);
        list = longer;
    }
    return list;
}

static bool is_known_type(const char *type)
{
    return strncmp(type, "gpt", 3) == 0 || strncmp(type, "hybrid", 6) == 0 ||
           strcmp(type, "bert") == 0 || strcmp(type, "t5") == 0;
}

/* Without a list of arguments the record must say these itself. */
static const char *missing_field(const json_t *record)
{
    static const char *const paths[] = { "model.activation", "train.optimizer", "train.mbs" };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char *text = sim_record_text(record, paths[i]);
        bool is_missing = *text == '\0';
        free(text);
        if (is_missing && !json_is_object(at(record, "args")))
            return paths[i];
    }
    return NULL;
}

static char *find_reason(const json_t *record, const sim_import_t *import)
{
    char *type = sim_record_text(record, "model.type"), *reason = NULL;
    bool is_hybrid = sim_import_key_value(import, "model", "hybrid_layer_pattern") != NULL;
    if (!is_known_type(type) && !is_hybrid)
        reason = base_xasprintf("model type %.60s is not simulated",
                                *type != '\0' ? type : "(not given)");
    else if (sim_record_is_titan(record) && (reason = sim_record_refuse_titan(record)) != NULL)
        ; /* said */
    else if (other_program(record) != NULL)
        reason = base_xasprintf("run with %s, which is not simulated", other_program(record));
    else if (!json_is_object(at(record, "args")) && text_has(record, "source", "ms-swift"))
        reason = base_xstrdup("figures are rounded and the training data is packed at random");
    else if (missing_field(record) != NULL)
        reason = base_xasprintf("%s is not stated", missing_field(record));
    else if (import->unsupported_names.n > 0)
        reason = join_names(&import->unsupported_names);
    else if (import->errors.n > 0)
        reason = base_xstrdup(import->errors.text[0]);
    free(type);
    return reason;
}

/* Megatron-LM names its test cases by nodes and GPUs of a node, "..._1N8G/...", or by nodes alone,
 * "..._1node/gb200-...", whose GPUs are those of a host of the record's. */
static uint64_t world_size_of_name(const char *id, const char *gpu_name)
{
    const char *node = strstr(id, "_1node");
    const topo_gpu_t *gpu = topo_gpu_find(gpu_name);
    if (node != NULL && gpu != NULL && !isalnum((unsigned char)node[6]))
        return gpu->node_gpus;
    for (const char *s = id; (s = strchr(s, '_')) != NULL;) {
        unsigned nodes, gpus;
        int used = 0;
        s++;
        if (sscanf(s, "%4uN%4uG%n", &nodes, &gpus, &used) == 2 && used > 0 &&
            !isalnum((unsigned char)s[used]))
            return (uint64_t)nodes * gpus;
    }
    return 0;
}

static void set_world_size(const json_t *record, sim_import_t *import)
{
    char *world = sim_record_text(record, "world_size"), *id = sim_record_text(record, "id");
    char *gpu = sim_record_text(record, "gpu");
    uint64_t n = strtoull(world, NULL, 10);
    if (n == 0) {
        n = world_size_of_name(id, gpu);
        if (n > 0)
            base_diag_add(&import->warnings, "number of GPUs taken from the record's name");
    }
    if (n > 0)
        sim_import_set_world_size(import, n, "record: world_size");
    free(world);
    free(id);
    free(gpu);
}

/* "[expert_fc1 moe_act]", also of records whose arguments leave it out. */
static void put_offload(const json_t *record, sim_import_t *import)
{
    static const char path[] = "train.fine_grained_offload";
    char *text = sim_record_text(record, path);
    text[strcspn(text, "]")] = '\0';
    if (*text != '\0') {
        put(import, "offload", "fine_grained_activation_offloading", "true", path);
        put(import, "offload", "offload_modules", text + (*text == '['), path);
    }
    free(text);
}

/* Megatron-LM does not start with Transformer Engine's graphs and expandable segments unless NCCL's
 * registration is off, so a run that has both has it off. */
static void put_graph_register(sim_import_t *import)
{
    const char *impl = sim_import_key_value(import, "train", "cuda_graph_impl");
    const char *conf = sim_import_key_value(import, "allocator", "conf");
    if (impl != NULL && strcmp(impl, "transformer_engine") == 0 && conf != NULL &&
        strstr(conf, "expandable_segments:True") != NULL &&
        sim_import_key_value(import, "nccl", "graph_register") == NULL)
        sim_import_put_key(import, "nccl", "graph_register", "0",
                           "CUDA graphs with expandable segments");
}

void sim_record_import(const json_t *record, sim_import_t *import, char **reason_p)
{
    sim_import_init(import);
    set_world_size(record, import);
    put_model_type(record, import);
    if (json_is_object(at(record, "args")))
        import_arguments(record, import);
    else if (sim_record_is_titan(record))
        sim_record_import_titan(record, import);
    else
        import_fields(record, import);
    put_offload(record, import);
    const char *fp16 = sim_import_key_value(import, "precision", "fp16");
    if (fp16 != NULL && strcmp(fp16, "true") == 0) /* moments appear in step 3, count from step 4 */
        put(import, "run", "iterations", "4", "precision fp16: its first steps are skipped");
    sim_record_put_iterations(record, import);
    sim_record_put_date(record, import);
    put_mtp_in_layout(import);
    bool known_gpu = put_gpu(record, import);
    put_allocator(record, import);
    if (sim_record_is_titan(record))
        sim_record_refine_titan(record, import);
    put_graph_register(import);
    *reason_p = find_reason(record, import);
    if (*reason_p == NULL && import->world_size == 0)
        *reason_p = base_xstrdup("the number of GPUs is not stated");
    if (*reason_p == NULL && !known_gpu) {
        char *gpu = sim_record_text(record, "gpu");
        *reason_p = base_xasprintf("GPU %s is not known", gpu);
        free(gpu);
    }
}

bool sim_record_scenario(const sim_import_t *import, sim_scenario_t *scenario_p, char **reason_p)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(scenario_p);
    for (size_t i = 0; i < import->n_keys; i++) {
        const sim_import_key_t *k = &import->keys[i];
        sim_scenario_set(scenario_p, k->section, k->key, k->value, "record", &diag);
    }
    if (diag.n == 0)
        sim_scenario_resolve(scenario_p, &diag);
    bool ok = diag.n == 0;
    if (!ok) {
        const char *text = diag.text[0];
        *reason_p = base_xstrdup(strncmp(text, "record: ", 8) == 0 ? text + 8 : text);
    }
    base_diag_fini(&diag);
    return ok;
}
