/* SPDX-License-Identifier: Apache-2.0
 * Defaults and consequences follow Megatron-LM megatron/training/arguments.py (validate_args) and
 * core_transformer_config_from_args, commit d98e8a64 (mcore 0.20.0). */
#include "config.h"

#include "sim/scenario/import.h"
#include "sim/scenario/import_titan.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/scenario/keys.h"
#include "topology/stages.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char by_default[] = "Megatron-LM's default";

static const sim_import_arg_t *find(const sim_import_t *import, const char *name)
{
    for (size_t i = 0; i < import->n_args; i++)
        if (strcmp(import->args[i].arg.name, name) == 0)
            return &import->args[i];
    return NULL;
}

static bool given(const sim_import_t *import, const char *name)
{
    return find(import, name) != NULL;
}

static const char *value_of(const sim_import_t *import, const char *name)
{
    const sim_import_arg_t *a = find(import, name);
    return a != NULL ? a->value : NULL;
}

/* The number given, or `missing`; a wrong number is an error once, here. */
static uint64_t number_of(sim_import_t *import, const char *name, uint64_t missing)
{
    const sim_import_arg_t *a = find(import, name);
    uint64_t n;
    if (a == NULL)
        return missing;
    if (base_u64_parse(a->value, &n))
        return n;
    base_diag_add(&import->errors, "%s: --%s: \"%s\" is not a whole number", a->origin, name,
                  a->value);
    return missing;
}

/* `from`: the argument that decided, NULL for a default; `why` is added in parentheses. */
static void emit(sim_import_t *import, const char *section, const char *key, const char *value,
                 const char *from, const char *why)
{
    const sim_import_arg_t *a = from != NULL ? find(import, from) : NULL;
    char *origin;
    if (a != NULL)
        origin = base_xasprintf("--%s, %s%s%s%s", a->arg.name, a->origin, why ? " (" : "",
                                why ? why : "", why ? ")" : "");
    else
        origin = base_xasprintf("%s%s%s%s", from ? from : by_default, why ? " (" : "",
                                why ? why : "", why ? ")" : "");
    sim_import_put_key(import, section, key, value, origin);
    free(origin);
}

static void emit_bool(sim_import_t *import, const char *section, const char *key, bool value,
                      const char *from, const char *why)
{
    emit(import, section, key, value ? "true" : "false", from, why);
}

static void emit_u64(sim_import_t *import, const char *section, const char *key, uint64_t value,
                     const char *from, const char *why)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    emit(import, section, key, text, from, why);
}

/* The flag `name` decides: it says `sense`, its absence the opposite. */
static void emit_flag(sim_import_t *import, const char *section, const char *key, const char *name,
                      bool sense)
{
    bool is = given(import, name);
    emit_bool(import, section, key, is ? sense : !sense, is ? name : NULL, NULL);
}

static void emit_or_default(sim_import_t *import, const char *section, const char *key,
                            const char *name, const char *missing)
{
    const char *value = value_of(import, name);
    emit(import, section, key, value != NULL ? value : missing, value != NULL ? name : NULL, NULL);
}

/* Rows of the table that name a key: the value as it stands; a flag that switches off says false.
 */
static void emit_plain_keys(sim_import_t *import)
{
    sim_arg_t arg;
    for (size_t i = 0; sim_megatron_arg_key_at(i, &arg); i++) {
        const sim_import_arg_t *a = find(import, arg.name);
        if (arg.key == NULL || a == NULL)
            continue;
        const char *dot = strchr(arg.key, '.');
        size_t length = (size_t)(dot - arg.key);
        for (const char *const *s = sim_sections; *s != NULL; s++)
            if (strlen(*s) == length && strncmp(*s, arg.key, length) == 0)
                emit(import, *s, dot + 1, arg.negated ? "false" : a->value, arg.name, NULL);
    }
}

static void refuse(sim_import_t *import, const sim_import_arg_t *a)
{
    const char *shown = a->arg.arity == SIM_ARITY_FLAG ? "" : a->value;
    base_diag_add(&import->unsupported, "%s: --%s%s%s: moves memory and is not simulated",
                  a->origin, a->arg.name, *shown != '\0' ? " " : "", shown);
    base_diag_add(&import->unsupported_names, "--%s", a->arg.name);
}

/* Not said again when an error has already told why the argument is not there. */
static void require(sim_import_t *import, const char *name)
{
    if (!given(import, name) && import->errors.n == 0)
        base_diag_add(&import->errors, "--%s is missing", name);
}

static void resolve_ffn(sim_import_t *import)
{
    uint64_t h = number_of(import, "hidden-size", 0);
    bool swiglu = given(import, "swiglu");
    if (given(import, "ffn-hidden-size"))
        emit_u64(import, "model", "ffn_hidden_size", number_of(import, "ffn-hidden-size", 0),
                 "ffn-hidden-size", NULL);
    else if (swiglu && h <= UINT64_MAX / 8) /* int((4h * 2 / 3) / 64) * 64 */
        emit_u64(import, "model", "ffn_hidden_size", 8 * h / 192 * 64, NULL,
                 "8/3 of the hidden size, down to a multiple of 64, with --swiglu");
    else if (h <= UINT64_MAX / 8)
        emit_u64(import, "model", "ffn_hidden_size", 4 * h, NULL, "4 times the hidden size");
}

static void resolve_activation(sim_import_t *import)
{
    static const struct {
        const char *arg, *value;
    } kinds[] = { { "swiglu", "swiglu" },
                  { "squared-relu", "squared_relu" },
                  { "quick-geglu", "geglu" } };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (given(import, kinds[i].arg)) {
            emit(import, "model", "activation_func", kinds[i].value, kinds[i].arg, NULL);
            return;
        }
    }
    emit(import, "model", "activation_func", "gelu", NULL, NULL);
}

/* Sizes of tokenizers that are fixed by their published vocabulary files. */
static const struct {
    const char *type;
    uint64_t size;
    const char *why;
} tokenizers[] = {
    { "GPT2BPETokenizer", 50257, "vocabulary of the GPT-2 BPE tokenizer" },
    { "Llama2Tokenizer", 32000, "vocabulary of the Llama-2 tokenizer" },
    { "BertWordPieceLowerCase", 30522, "vocabulary of BERT's uncased tokenizer" },
    { "BertWordPieceCase", 28996, "vocabulary of BERT's cased tokenizer" },
    { "TikTokenizer", 131072, "TikTokenizer's default of 2^17" },
};

static bool is_overridden(const sim_import_t *import, const char *key)
{
    for (size_t i = 0; i < import->n_overrides; i++)
        if (strcmp(import->overrides[i].key, key) == 0)
            return true;
    return false;
}

static void resolve_vocab(sim_import_t *import)
{
    const char *type = value_of(import, "tokenizer-type");
    if (given(import, "padded-vocab-size"))
        emit_u64(import, "model", "padded_vocab_size", number_of(import, "padded-vocab-size", 0),
                 "padded-vocab-size", NULL);
    else if (given(import, "vocab-size") &&
             (given(import, "no-pad-vocab-size") || given(import, "disable-pad-vocab-size")))
        emit_u64(import, "model", "padded_vocab_size", number_of(import, "vocab-size", 0),
                 "vocab-size", "not padded");
    if (given(import, "vocab-size")) {
        emit_u64(import, "model", "vocab_size", number_of(import, "vocab-size", 0), "vocab-size",
                 NULL);
        if (type != NULL && strcmp(type, "NullTokenizer") == 0)
            base_diag_add(
                &import->warnings,
                "--tokenizer-type NullTokenizer: releases before 2026-04 add one token to "
                "--vocab-size; give that size in model.vocab_size for such a release");
        return;
    }
    /* pretrain_gpt.py: args_defaults={'tokenizer_type': 'GPT2BPETokenizer'} */
    const char *wanted = type != NULL ? type : "GPT2BPETokenizer";
    for (size_t i = 0; i < sizeof(tokenizers) / sizeof(tokenizers[0]); i++) {
        if (strcmp(tokenizers[i].type, wanted) == 0) {
            emit_u64(import, "model", "vocab_size",
                     tokenizers[i].size + number_of(import, "vocab-extra-ids", 0),
                     type != NULL ? "tokenizer-type" : NULL, tokenizers[i].why);
            return;
        }
    }
    if (!given(import, "padded-vocab-size") && !is_overridden(import, "vocab_size"))
        base_diag_add(
            &import->errors,
            "--tokenizer-type %s: the size of its vocabulary is not in the arguments; say it "
            "with --set model.vocab_size=N",
            wanted);
}

static void resolve_position(sim_import_t *import)
{
    const char *type = value_of(import, "position-embedding-type");
    const char *from = type != NULL ? "position-embedding-type" : NULL;
    if (given(import, "use-rotary-position-embeddings")) {
        type = "rope";
        from = "use-rotary-position-embeddings";
    } else if (type == NULL && given(import, "no-position-embedding")) {
        type = "none";
        from = "no-position-embedding";
    }
    if (type == NULL)
        type = "learned_absolute";
    if (strcmp(type, "yarn") == 0) /* rope with other frequencies: the same tensors */
        type = "rope";
    if (strcmp(type, "rope") != 0 && strcmp(type, "learned_absolute") != 0 &&
        strcmp(type, "none") != 0) {
        refuse(import, find(import, "position-embedding-type"));
        return;
    }
    emit(import, "model", "position_embedding_type", type, from, NULL);
    bool rope = strcmp(type, "rope") == 0;
    emit_bool(import, "train", "apply_rope_fusion", rope && !given(import, "no-rope-fusion"),
              given(import, "no-rope-fusion") ? "no-rope-fusion" : NULL,
              rope ? NULL : "off without rope");
}

/* The pattern of a hybrid says its depths of multi-token prediction too, whatever --mtp-num-layers
 * says; older software had an argument for them. */
static void resolve_hybrid_pattern(sim_import_t *import, const char *name)
{
    static const char older[] = "mtp-hybrid-override-pattern";
    const char *pattern = value_of(import, name), *depth = value_of(import, older);
    bool has_depths = strchr(pattern, '/') != NULL;
    uint64_t n_depths = number_of(import, "mtp-num-layers", 0);
    if (has_depths || n_depths == 0 || n_depths > TOPO_MAX_LAYERS || depth == NULL) {
        emit(import, "model", "hybrid_layer_pattern", pattern, name, NULL);
        if (!has_depths && n_depths > 0)
            emit_u64(import, "model", "mtp_num_layers", n_depths, "mtp-num-layers", NULL);
        return;
    }
    size_t length = strlen(pattern), step = 1 + strlen(depth);
    char *whole = base_xcalloc(length + n_depths * step + 1, 1);
    memcpy(whole, pattern, length + 1);
    for (uint64_t i = 0; i < n_depths; i++) {
        whole[length + i * step] = '/';
        memcpy(whole + length + i * step + 1, depth, step); /* with its end */
    }
    emit(import, "model", "hybrid_layer_pattern", whole, name, older);
    free(whole);
}

/* The pattern of a hybrid says how many layers there are; --num-layers beside it is ignored. The
 * specification of a hybrid's layers is the only one that is known. */
static bool resolve_hybrid(sim_import_t *import)
{
    const char *name =
        given(import, "hybrid-layer-pattern") ? "hybrid-layer-pattern" : "hybrid-override-pattern";
    const char *spec = value_of(import, "spec");
    bool is_hybrid = given(import, name);
    if (is_hybrid)
        resolve_hybrid_pattern(import, name);
    else if (given(import, "is-hybrid-model"))
        refuse(import, find(import, "is-hybrid-model"));
    if (!is_hybrid && given(import, "mtp-num-layers"))
        emit_u64(import, "model", "mtp_num_layers", number_of(import, "mtp-num-layers", 0),
                 "mtp-num-layers", NULL);
    if (spec != NULL && !(is_hybrid && (strstr(spec, "mamba_stack_spec") != NULL ||
                                        strstr(spec, "hybrid_stack_spec") != NULL)))
        refuse(import, find(import, "spec"));
    return is_hybrid;
}

static void resolve_model(sim_import_t *import)
{
    const char *layers = given(import, "num-layers") ? "num-layers" : "encoder-num-layers";
    bool bias = !given(import, "disable-bias-linear");
    bool is_hybrid = resolve_hybrid(import);
    if (!is_hybrid && given(import, layers))
        emit_u64(import, "model", "num_layers", number_of(import, layers, 0), layers, NULL);
    else if (!is_hybrid)
        require(import, "num-layers");
    if (given(import, "decoder-num-layers"))
        emit(import, "model", "model_type", "t5", "decoder-num-layers", NULL);
    require(import, "hidden-size");
    require(import, "num-attention-heads");
    resolve_ffn(import);
    resolve_activation(import);
    if (given(import, "group-query-attention"))
        emit_u64(import, "model", "num_query_groups", number_of(import, "num-query-groups", 1),
                 given(import, "num-query-groups") ? "num-query-groups" : NULL, NULL);
    else if (given(import, "num-query-groups") && !import->after_checks)
        base_diag_add(&import->warnings,
                      "--num-query-groups has no effect without --group-query-attention");
    resolve_vocab(import);
    resolve_position(import);
    emit_bool(import, "model", "add_bias_linear", bias, bias ? NULL : "disable-bias-linear", NULL);
    emit_bool(import, "model", "add_qkv_bias", bias || given(import, "add-qkv-bias"),
              given(import, "add-qkv-bias") ? "add-qkv-bias"
                                            : (bias ? NULL : "disable-bias-linear"),
              bias ? "on with bias in the linear layers" : NULL);
    if (!given(import, "normalization"))
        emit(import, "model", "normalization", "LayerNorm", NULL, NULL);
    if (!given(import, "attention-dropout"))
        emit(import, "model", "attention_dropout", "0.1", NULL, NULL);
    if (!given(import, "hidden-dropout"))
        emit(import, "model", "hidden_dropout", "0.1", NULL, NULL);
}

/* Returns whether there are virtual stages. */
static bool resolve_virtual_stages(sim_import_t *import, uint64_t pp)
{
    const char *layers_arg = given(import, "num-layers") ? "num-layers" : "encoder-num-layers";
    const char *from = given(import, "virtual-pipeline-model-parallel-size")
                           ? "virtual-pipeline-model-parallel-size" /* before core 0.4 */
                           : "num-virtual-stages-per-pipeline-rank";
    uint64_t vpp = number_of(import, from, 0);
    if (given(import, "pipeline-model-parallel-layout")) {
        const char *layout = value_of(import, "pipeline-model-parallel-layout");
        char *clean = base_xcalloc(strlen(layout) + 1, 1);
        uint64_t n_stages = 1;
        for (size_t i = 0, n = 0; layout[i] != '\0'; i++) {
            if (strchr("\\\"' ", layout[i]) == NULL)
                clean[n++] = layout[i];
            n_stages += layout[i] == '|';
        }
        emit(import, "parallel", "pipeline_model_parallel_layout", clean,
             "pipeline-model-parallel-layout", NULL);
        free(clean);
        return n_stages > pp || strchr(layout, '*') != NULL;
    }
    if (vpp == 0 && given(import, "num-layers-per-virtual-pipeline-stage")) {
        from = "num-layers-per-virtual-pipeline-stage";
        uint64_t per_stage = number_of(import, from, 0);
        uint64_t layers = number_of(import, layers_arg, 0) +
                          given(import, "account-for-embedding-in-pipeline-split") +
                          given(import, "account-for-loss-in-pipeline-split");
        if (per_stage == 0 || pp == 0 || layers % pp != 0 || layers / pp % per_stage != 0) {
            base_diag_add(
                &import->errors,
                "--%s %" PRIu64 " does not divide the layers of a pipeline stage: %" PRIu64
                " layers (embedding and loss counted where asked for) on %" PRIu64 " stages",
                from, per_stage, layers, pp);
            return false;
        }
        vpp = layers / pp / per_stage;
    }
    if (vpp > 1)
        emit_u64(import, "parallel", "virtual_pipeline_model_parallel_size", vpp, from, NULL);
    return vpp > 1;
}

static uint64_t resolve_world_size(sim_import_t *import, uint64_t tp, uint64_t pp, uint64_t cp)
{
    uint64_t model = 0;
    if (!base_u64_mul(tp, pp, &model) || !base_u64_mul(model, cp, &model) || model == 0) {
        base_diag_add(&import->errors, "the parallel sizes do not fit");
        return 0;
    }
    if (import->world_size != 0) {
        emit_u64(import, "parallel", "world_size", import->world_size, import->world_size_origin,
                 NULL);
        return import->world_size / model;
    }
    base_diag_add(&import->warnings,
                  "the number of GPUs is not in the input; %" PRIu64
                  " is the smallest that fits, --world-size N sets it",
                  model);
    emit_u64(import, "parallel", "world_size", model, "tensor * pipeline * context parallel size",
             "the input does not say how many GPUs");
    return 1;
}

/* "0:384 2.4B:768": batch sizes from a number of tokens on. */
static bool largest_step_batch(const sim_import_t *import, uint64_t *largest_p)
{
    const char *s = value_of(import, "step-batch-size-schedule");
    *largest_p = 0;
    while (s != NULL && (s = strchr(s, ':')) != NULL)
        *largest_p = base_u64_max(*largest_p, strtoull(++s, NULL, 10));
    return *largest_p > 0;
}

static void resolve_batch(sim_import_t *import, uint64_t dp)
{
    uint64_t mbs = number_of(import, "micro-batch-size", 1), gbs = 0;
    require(import, "micro-batch-size");
    if (given(import, "global-batch-size"))
        emit_u64(import, "train", "global_batch_size", number_of(import, "global-batch-size", 1),
                 "global-batch-size", given(import, "rampup-batch-size") ? "after the ramp" : NULL);
    else if (largest_step_batch(import, &gbs))
        emit_u64(import, "train", "global_batch_size", gbs, "step-batch-size-schedule",
                 "the largest of the schedule");
    else if (base_u64_mul(mbs, dp, &gbs))
        emit_u64(import, "train", "global_batch_size", gbs, NULL,
                 "micro-batch size times data-parallel size");
    const char *seq = given(import, "seq-length") ? "seq-length" : "encoder-seq-length";
    if (given(import, seq))
        emit_u64(import, "train", "seq_length", number_of(import, seq, 0), seq, NULL);
    else
        require(import, "seq-length");
}

/* Zero bubble schedules, arguments of sail-sg's fork (megatron/core/zbpp_utils.py,
 * validate_arguments()). The number of passes in flight of the one without a V is searched for by
 * the fork unless it is given: as many as stages is ZB1P, which has the in-flight counts and the
 * bubble of ZB-H1. */
static void resolve_schedule(sim_import_t *import, uint64_t pp)
{
    const char *setup = value_of(import, "zero-bubble-v-schedule-mem-setup");
    if (given(import, "zero-bubble-v-schedule")) {
        bool is_zb = setup == NULL || strcmp(setup, "zb") == 0;
        if (!is_zb && strcmp(setup, "half") != 0 && strcmp(setup, "min") != 0) {
            refuse(import, find(import, "zero-bubble-v-schedule-mem-setup"));
            return;
        }
        char *name = is_zb ? base_xstrdup("zbv") : base_xasprintf("v-%s", setup);
        emit(import, "parallel", "pipeline_schedule", name,
             setup != NULL ? "zero-bubble-v-schedule-mem-setup" : "zero-bubble-v-schedule", NULL);
        free(name);
    } else if (given(import, "enable-zero-bubble")) {
        if (number_of(import, "zero-bubble-max-pending-backward", 0) == pp)
            emit(import, "parallel", "pipeline_schedule", "zb-h1",
                 "zero-bubble-max-pending-backward", "ZB1P: in flight as in ZB-H1");
        else
            refuse(import, find(import, "enable-zero-bubble"));
    }
}

static void resolve_parallel(sim_import_t *import)
{
    uint64_t tp = number_of(import, "tensor-model-parallel-size", 1);
    uint64_t pp = number_of(import, "pipeline-model-parallel-size", 1);
    uint64_t cp = number_of(import, "context-parallel-size", 1);
    uint64_t dp = resolve_world_size(import, tp, pp, cp);
    bool sp = given(import, "sequence-parallel");
    emit_bool(import, "parallel", "sequence_parallel", sp && tp > 1,
              sp ? "sequence-parallel" : NULL,
              sp && tp == 1 ? "switched off without tensor parallelism" : NULL);
    bool interleaved = resolve_virtual_stages(import, pp);
    bool off = given(import, "no-overlap-p2p-communication");
    emit_bool(import, "parallel", "overlap_p2p_communication", interleaved && !off,
              off ? "no-overlap-p2p-communication" : NULL,
              interleaved ? NULL : "off without virtual stages");
    if (number_of(import, "wgrad-deferral-limit", 0) > 0)
        emit_u64(import, "parallel", "wgrad_deferral_limit",
                 number_of(import, "wgrad-deferral-limit", 0), "wgrad-deferral-limit", NULL);
    resolve_schedule(import, pp);
    resolve_batch(import, dp);
}

static bool env_off(const sim_import_t *import, const char *name)
{
    const char *value = sim_import_env(import, name);
    return value != NULL && strcmp(value, "0") == 0;
}

/* With transformer_impl local Megatron's own attention runs; otherwise --attention-backend, and
 * with auto what the variables of Transformer Engine leave. */
static void resolve_attention(sim_import_t *import)
{
    const char *backend = value_of(import, "attention-backend");
    const char *impl = value_of(import, "transformer-impl");
    if (impl == NULL)
        impl = "transformer_engine";
    if (strcmp(impl, "local") != 0 && strcmp(impl, "transformer_engine") != 0) {
        refuse(import, find(import, "transformer-impl"));
        return;
    }
    emit(import, "train", "transformer_impl", impl,
         given(import, "transformer-impl") ? "transformer-impl" : NULL, NULL);
    if (backend != NULL && strncmp(backend, "AttnBackend.", 12) == 0)
        backend += 12; /* how the dump prints an enum */
    if (strcmp(impl, "local") == 0) {
        emit(import, "train", "attention_backend", "local", "transformer-impl", NULL);
        return;
    }
    if (backend != NULL && strcmp(backend, "auto") != 0) {
        emit(import, "train", "attention_backend", backend, "attention-backend", NULL);
        return;
    }
    bool no_flash = env_off(import, "NVTE_FLASH_ATTN"),
         no_fused = env_off(import, "NVTE_FUSED_ATTN");
    if (no_flash || no_fused)
        emit(import, "train", "attention_backend",
             !no_flash  ? "flash"
             : no_fused ? "unfused"
                        : "fused",
             "environment NVTE_FLASH_ATTN, NVTE_FUSED_ATTN", NULL);
    else
        emit(import, "train", "attention_backend", "auto", NULL, NULL);
}

/* --moe-enable-deepep is the older way to ask for the flex dispatcher with DeepEP. */
static void resolve_experts(sim_import_t *import)
{
    if (!given(import, "moe-enable-deepep"))
        return;
    emit(import, "moe", "moe_token_dispatcher_type", "flex", "moe-enable-deepep", NULL);
    emit(import, "moe", "moe_flex_dispatcher_backend", "deepep", "moe-enable-deepep", NULL);
}

static void resolve_train(sim_import_t *import)
{
    bool swiglu = given(import, "swiglu"), bias = !given(import, "disable-bias-linear");
    const char *no_fusion = swiglu ? "no-bias-swiglu-fusion" : "no-bias-gelu-fusion";
    bool fusion = !given(import, no_fusion) && (swiglu || bias) && !given(import, "squared-relu");
    resolve_attention(import);
    emit_bool(import, "train", "bias_activation_fusion", fusion,
              given(import, no_fusion) ? no_fusion : NULL, NULL);
    emit_flag(import, "train", "bias_dropout_fusion", "no-bias-dropout-fusion", false);
    emit_flag(import, "train", "masked_softmax_fusion", "no-masked-softmax-fusion", false);
    emit_flag(import, "train", "gradient_accumulation_fusion", "no-gradient-accumulation-fusion",
              false);
    emit_flag(import, "train", "create_attention_mask_in_dataloader",
              "no-create-attention-mask-in-dataloader", false);
    if (given(import, "enable-cuda-graph") || given(import, "external-cuda-graph")) {
        bool external = given(import, "external-cuda-graph");
        emit(import, "train", "cuda_graph_impl", external ? "transformer_engine" : "local",
             external ? "external-cuda-graph" : "enable-cuda-graph", NULL);
    }
    bool scaled = given(import, "fp16") && !given(import, "loss-scale");
    bool no_check = given(import, "no-check-for-nan-in-loss-and-grad");
    emit_bool(import, "train", "check_for_nan_in_loss_and_grad", !no_check && !scaled,
              no_check ? "no-check-for-nan-in-loss-and-grad" : NULL,
              scaled && !no_check ? "off with dynamic loss scaling" : NULL);
}

/* bf16 accumulates and reduces gradients in fp32 unless told otherwise; fp16 keeps fp16. Returns
 * the result. */
static bool resolve_precision(sim_import_t *import)
{
    const char *grads = value_of(import, "main-grads-dtype");
    bool bf16 = given(import, "bf16"), asked = given(import, "accumulate-allreduce-grads-in-fp32");
    bool fp32_grads =
        grads == NULL || strstr(grads, "fp32") != NULL || strstr(grads, "float32") != NULL;
    bool fp32 = asked;
    const char *from = asked ? "accumulate-allreduce-grads-in-fp32" : NULL;
    if (bf16 && given(import, "grad-reduce-in-bf16")) {
        fp32 = false;
        from = "grad-reduce-in-bf16";
    } else if (bf16 && fp32_grads) {
        fp32 = true;
    }
    emit_bool(import, "precision", "accumulate_allreduce_grads_in_fp32", fp32, from,
              fp32 && !asked ? "consequence of --bf16" : NULL);
    return fp32;
}

static void resolve_recompute(sim_import_t *import)
{
    const char *granularity = value_of(import, "recompute-granularity");
    const char *modules = value_of(import, "recompute-modules");
    if (given(import, "recompute-activations"))
        emit(import, "recompute", "recompute_granularity", "selective", "recompute-activations",
             NULL);
    else if (granularity != NULL)
        emit(import, "recompute", "recompute_granularity", granularity, "recompute-granularity",
             NULL);
    if (modules != NULL && *modules != '\0')
        emit(import, "recompute", "recompute_modules", modules, "recompute-modules", NULL);
}

static void resolve_optimizer(sim_import_t *import)
{
    const char *optimizer = value_of(import, "optimizer");
    if (optimizer == NULL || strcmp(optimizer, "adam") == 0 || strcmp(optimizer, "sgd") == 0 ||
        strcmp(optimizer, "muon") == 0)
        emit_or_default(import, "optimizer", "optimizer", "optimizer", "adam");
    else if (strcmp(optimizer, "dist_muon") == 0) {
        emit(import, "optimizer", "optimizer", "muon", "optimizer", NULL);
        emit_bool(import, "optimizer", "use_distributed_optimizer", true, "optimizer", NULL);
    } else {
        refuse(import, find(import, "optimizer"));
    }
    static const char sharding[] = "data-parallel-sharding-strategy";
    if (given(import, sharding) && given(import, "use-megatron-fsdp"))
        emit(import, "optimizer", "data_parallel_sharding_strategy", value_of(import, sharding),
             sharding, NULL);
    else if (given(import, sharding))
        base_diag_add(&import->ignored, "%s: --%s: no effect without --use-megatron-fsdp",
                      find(import, sharding)->origin, sharding);
    if (given(import, "torch-fsdp2-no-reshard-after-forward"))
        emit_bool(import, "optimizer", "torch_fsdp2_reshard_after_forward", false,
                  "torch-fsdp2-no-reshard-after-forward", NULL);
    if (given(import, "muon-no-split-qkv"))
        emit_bool(import, "optimizer", "muon_split_qkv", false, "muon-no-split-qkv", NULL);
    if (given(import, "no-use-layer-wise-param-layout"))
        emit_bool(import, "optimizer", "use_layer_wise_param_layout", false,
                  "no-use-layer-wise-param-layout", NULL);
    if (given(import, "decoupled-lr"))
        emit_bool(import, "optimizer", "decoupled_lr", true, "decoupled-lr", NULL);
}

static bool same_value(const char *a, const char *b)
{
    char *end_a, *end_b;
    if (strcmp(a, b) == 0)
        return true;
    double x = strtod(a, &end_a), y = strtod(b, &end_b);
    return *a != '\0' && *end_a == '\0' && *end_b == '\0' && x == y;
}

/* Does this argument, by itself, switch something on? */
static bool in_effect(const sim_import_t *import, const sim_import_arg_t *a)
{
    static const char shards[] = "tensor-parallel-num-weight-shards";
    const char *tp = value_of(import, "tensor-model-parallel-size");
    if (a == NULL)
        return false;
    if (strstr(a->arg.name, shards) !=
        NULL) /* after the checks it equals the tensor-parallel size */
        return !same_value(a->value, "1") && !(tp != NULL && same_value(a->value, tp));
    if (strcmp(a->arg.name, "context-parallel-size") == 0)
        return !same_value(a->value, "1");
    return a->arg.harmless == NULL || !same_value(a->value, a->arg.harmless);
}

static void judge(sim_import_t *import, const sim_import_arg_t *a, bool fp32_grads)
{
    if (a->arg.class_ == SIM_ARG_UNSUPPORTED && in_effect(import, a)) {
        if (fp32_grads && strcmp(a->arg.name, "ddp-reduce-scatter-with-fp32-accumulation") == 0)
            base_diag_add(&import->ignored, "%s: --%s: no effect with gradients in fp32", a->origin,
                          a->arg.name);
        else
            refuse(import, a);
    } else if (a->arg.class_ == SIM_ARG_DETAIL) {
        const sim_import_arg_t *parent = find(import, a->arg.parent);
        if (!in_effect(import, parent))
            base_diag_add(&import->ignored, "%s: --%s: no effect without --%s", a->origin,
                          a->arg.name, a->arg.parent);
        else if (parent->arg.class_ == SIM_ARG_KEY)
            refuse(import, a);
    } else if (a->arg.class_ == SIM_ARG_NO_EFFECT) {
        base_diag_add(&import->ignored, "%s: --%s: does not move memory", a->origin, a->arg.name);
    }
}

/* Variables of NCCL that have a key. */
static void resolve_nccl(sim_import_t *import)
{
    size_t n;
    const sim_key_alias_t *aliases = sim_key_aliases(&n);
    for (size_t i = 0; i < import->n_env; i++) {
        const sim_import_env_t *env = &import->env[i];
        for (size_t a = 0; a < n && strncmp(env->name, "NCCL_", 5) == 0; a++) {
            if (strcasecmp(aliases[a].name, env->name) != 0 || *env->value == '\0')
                continue;
            char *from = base_xasprintf("environment %s", env->name);
            emit(import, "nccl", aliases[a].key, env->value, from, NULL);
            free(from);
        }
    }
}

static void resolve_environment(sim_import_t *import)
{
    resolve_nccl(import);
    const char *conf = sim_import_env(import, "PYTORCH_CUDA_ALLOC_CONF");
    const char *name = "environment PYTORCH_CUDA_ALLOC_CONF";
    if (conf == NULL) {
        conf = sim_import_env(import, "PYTORCH_ALLOC_CONF");
        name = "environment PYTORCH_ALLOC_CONF";
    }
    if (conf != NULL && *conf != '\0')
        emit(import, "allocator", "conf", conf, name, NULL);
    const char *workspace = sim_import_env(import, "CUBLAS_WORKSPACE_CONFIG");
    if (workspace != NULL)
        emit(import, "device", "cublas_workspace_config", workspace,
             "environment CUBLAS_WORKSPACE_CONFIG", NULL);
    else if (given(import, "deterministic-mode")) /* training/determinism.py sets this default */
        emit(import, "device", "cublas_workspace_config", ":4096:8", "deterministic-mode",
             "default of CUBLAS_WORKSPACE_CONFIG");
}

static void resolve_arguments(sim_import_t *import)
{
    emit_plain_keys(import);
    resolve_model(import);
    resolve_parallel(import);
    resolve_experts(import);
    resolve_train(import);
    bool fp32_grads = resolve_precision(import);
    resolve_recompute(import);
    resolve_optimizer(import);
    resolve_environment(import);
    for (size_t i = 0; i < import->n_args; i++)
        judge(import, &import->args[i], fp32_grads);
}

void sim_import_resolve(sim_import_t *import)
{
    if (import->format == SIM_IMPORT_BRIDGE || import->format == SIM_IMPORT_BRIDGE_YAML ||
        import->format == SIM_IMPORT_HF)
        sim_import_resolve_bridge(import);
    else if (import->format == SIM_IMPORT_TITAN)
        sim_import_resolve_titan(import);
    else
        resolve_arguments(import);
    for (size_t i = 0; i < import->n_overrides; i++) {
        const sim_import_key_t *k = &import->overrides[i];
        sim_import_put_key(import, k->section, k->key, k->value, k->origin);
    }
}
