/* SPDX-License-Identifier: Apache-2.0
 * What follows from several keys. Defaults that depend on others are those of Megatron-LM's
 * training/arguments.py and core/transformer/transformer_config.py. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/scenario/hybrid_pattern.h"
#include "sim/scenario/keys.h"
#include "sim/scenario/rules.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/state.h"
#include "sim/scenario/titan_stages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Undo what an earlier resolve filled in. */
static void forget_derived(sim_scenario_t *s)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    for (size_t i = 0; i < n; i++) {
        sim_key_entry_t *entry = &s->state->entries[i];
        if (entry->how == SIM_KEY_DERIVED)
            sim_key_reset(s, i);
        else if (entry->overruled)
            memcpy((char *)s + keys[i].offset, entry->given, sim_key_size(&keys[i]));
        entry->overruled = false;
    }
    topo_stages_fini(&s->stages);
    s->stages = (topo_stages_t){ 0 };
    free(s->layer_is_moe);
    s->layer_is_moe = NULL;
    free(s->layer_kinds);
    s->layer_kinds = NULL;
    sim_routing_destroy(s->routing);
    s->routing = NULL;
    s->grid = (topo_grid_t){ 0 };
    s->gpu_p = NULL;
    s->n_microbatches = 0;
    s->mtp_depth_layers = 1;
    s->cp_a2a_size = 1;
}

static sim_key_entry_t *entry_of(sim_scenario_t *s, const char *key)
{
    return &s->state->entries[sim_key_index(key)];
}

/* Megatron-LM does not let the value stand: it becomes `value`, of the field's type. */
static void overrule(sim_scenario_t *s, const char *name, void *field, const void *value)
{
    size_t n, k = sim_key_index(name);
    size_t size = sim_key_size(&sim_keys(&n)[k]);
    sim_key_entry_t *entry = &s->state->entries[k];
    if (!entry->overruled)
        memcpy(entry->given, field, size);
    entry->overruled = true;
    memcpy(field, value, size);
}

/* Give `key` the value that others imply, unless it was given or implied already. */
static void imply_count(sim_scenario_t *s, const char *key, uint64_t *field, uint64_t value)
{
    if (*field == 0 && entry_of(s, key)->how != SIM_KEY_WRONG) {
        *field = value;
        entry_of(s, key)->how = SIM_KEY_DERIVED;
    }
}

static void imply_bool(sim_scenario_t *s, const char *key, bool *field, bool value)
{
    if (entry_of(s, key)->how == SIM_KEY_DEFAULT && *field != value) {
        *field = value;
        entry_of(s, key)->how = SIM_KEY_DERIVED;
    }
}

static void imply_text(sim_scenario_t *s, const char *key, char **field, const char *value)
{
    if (*field == NULL && entry_of(s, key)->how == SIM_KEY_DEFAULT) {
        *field = base_xstrdup(value);
        entry_of(s, key)->how = SIM_KEY_DERIVED;
    }
}

static void derive_activation(sim_scenario_t *s)
{
    const sim_act_t swiglu = SIM_ACT_SWIGLU, geglu = SIM_ACT_GEGLU;
    if (s->gated_linear_unit && s->activation_func == SIM_ACT_SILU)
        overrule(s, "activation_func", &s->activation_func, &swiglu);
    if (s->gated_linear_unit && s->activation_func == SIM_ACT_GELU)
        overrule(s, "activation_func", &s->activation_func, &geglu);
    bool gated = s->activation_func == SIM_ACT_SWIGLU || s->activation_func == SIM_ACT_GEGLU;
    imply_bool(s, "gated_linear_unit", &s->gated_linear_unit, gated);
    if (!gated && (s->activation_func != SIM_ACT_GELU || !s->add_bias_linear))
        imply_bool(s, "bias_activation_fusion", &s->bias_activation_fusion, false);
}

static void derive_model(sim_scenario_t *s)
{
    derive_activation(s);
    uint64_t h = s->hidden_size, heads = s->num_attention_heads;
    imply_count(s, "ffn_hidden_size", &s->ffn_hidden_size,
                s->activation_func == SIM_ACT_SWIGLU ? 8 * h / 3 / 64 * 64 : 4 * h);
    imply_count(s, "num_query_groups", &s->num_query_groups, heads);
    imply_count(s, "kv_channels", &s->kv_channels, heads == 0 ? 0 : h / heads);
    imply_count(s, "vocab_size", &s->vocab_size, s->padded_vocab_size);
    imply_count(s, "padded_vocab_size", &s->padded_vocab_size,
                base_u64_round_up(s->vocab_size,
                                  s->make_vocab_size_divisible_by * s->tensor_model_parallel_size));
    imply_count(s, "max_position_embeddings", &s->max_position_embeddings, s->seq_length);
    if (s->hybrid_layer_pattern != NULL) /* ssm/mamba_mixer.py: expand = 2 */
        imply_count(s, "mamba_num_heads", &s->mamba_num_heads, 2 * h / s->mamba_head_dim);
    if (s->model_type == SIM_MODEL_T5) {
        imply_count(s, "decoder_num_layers", &s->decoder_num_layers, s->num_layers);
        imply_count(s, "decoder_seq_length", &s->decoder_seq_length, s->seq_length);
    }
    if (s->num_experts > 0)
        imply_count(s, "moe_ffn_hidden_size", &s->moe_ffn_hidden_size, s->ffn_hidden_size);
    if (s->apply_query_key_layer_scaling)
        imply_bool(s, "attention_softmax_in_fp32", &s->attention_softmax_in_fp32, true);
    if (s->add_bias_linear)
        imply_bool(s, "add_qkv_bias", &s->add_qkv_bias, true);
    if (s->position_embedding_type != SIM_POS_ROPE)
        imply_bool(s, "apply_rope_fusion", &s->apply_rope_fusion, false);
    /* megatron/training/determinism.py */
    if (s->deterministic_mode)
        imply_text(s, "cublas_workspace_config", &s->cublas_workspace_config, ":4096:8");
}

static void imply_choice(sim_scenario_t *s, const char *key, void *field, unsigned value)
{
    if (entry_of(s, key)->how == SIM_KEY_DEFAULT && memcmp(field, &value, sizeof(value)) != 0) {
        memcpy(field, &value, sizeof(value));
        entry_of(s, key)->how = SIM_KEY_DERIVED;
    }
}

static void imply_no_dropout(sim_scenario_t *s, const char *key, double *field)
{
    if (entry_of(s, key)->how == SIM_KEY_DEFAULT && *field > 0.0) {
        *field = 0.0;
        entry_of(s, key)->how = SIM_KEY_DERIVED;
    }
}

/* torch.compile takes the loss too: torchtitan e10cb9494 (2024-10-22), but for the time from
 * e8977b007 (2024-12-18) to d1f62be73 (2025-02-20). */
static bool compiles_loss(const sim_scenario_t *s)
{
    uint64_t date = s->software_date;
    bool is_off = date != 0 && (date < 20241022 || (date >= 20241218 && date < 20250220));
    return s->compile_model && !is_off;
}

/* torchtitan's models are such, and pad no vocabulary. */
static void derive_titan(sim_scenario_t *s)
{
    s->selective_ac_every =
        s->selective_ac_option != NULL ? strtoull(s->selective_ac_option, NULL, 10) : 0;
    if (!sim_is_titan(s))
        return;
    imply_choice(s, "normalization", &s->normalization, SIM_NORM_RMSNORM);
    imply_choice(s, "position_embedding_type", &s->position_embedding_type, SIM_POS_ROPE);
    imply_choice(s, "activation_func", &s->activation_func, SIM_ACT_SWIGLU);
    imply_bool(s, "add_bias_linear", &s->add_bias_linear, false);
    imply_bool(s, "untie_embeddings_and_output_weights", &s->untie_embeddings_and_output_weights,
               true);
    imply_no_dropout(s, "attention_dropout", &s->attention_dropout);
    imply_no_dropout(s, "hidden_dropout", &s->hidden_dropout);
    imply_count(s, "padded_vocab_size", &s->padded_vocab_size, s->vocab_size);
    imply_bool(s, "sequence_parallel", &s->sequence_parallel, s->tensor_model_parallel_size > 1);
    imply_bool(s, "gradient_accumulation_fusion", &s->gradient_accumulation_fusion, false);
    imply_bool(s, "compile_loss", &s->compile_loss, compiles_loss(s));
    imply_bool(s, "deallocate_pipeline_outputs", &s->deallocate_pipeline_outputs, false);
}

static void derive_precision(sim_scenario_t *s)
{
    if (s->fp16)
        imply_bool(s, "bf16", &s->bf16, false);
    if (!s->bf16 || s->main_grads_dtype != SIM_DTYPE_FP32)
        imply_bool(s, "accumulate_allreduce_grads_in_fp32", &s->accumulate_allreduce_grads_in_fp32,
                   false);
    if (s->fp16) /* NaN tells the loss scaler something */
        imply_bool(s, "check_for_nan_in_loss_and_grad", &s->check_for_nan_in_loss_and_grad, false);
}

static void derive_virtual_pipeline(sim_scenario_t *s)
{
    const uint64_t none = 0;
    uint64_t pp = s->pipeline_model_parallel_size;
    uint64_t per_chunk = s->num_layers_per_virtual_pipeline_stage;
    uint64_t slots = s->num_layers + s->account_for_embedding_in_pipeline_split +
                     s->account_for_loss_in_pipeline_split;
    if (per_chunk != 0 && slots % (pp * per_chunk) == 0)
        imply_count(s, "virtual_pipeline_model_parallel_size",
                    &s->virtual_pipeline_model_parallel_size, slots / pp / per_chunk);
    if (s->virtual_pipeline_model_parallel_size == 1) /* arguments.py: one chunk is none */
        overrule(s, "virtual_pipeline_model_parallel_size",
                 &s->virtual_pipeline_model_parallel_size, &none);
}

/* What arguments.py makes of keys that do not go together, and the defaults that follow. */
static void derive_parallel(sim_scenario_t *s)
{
    const bool off = false;
    if (s->use_megatron_fsdp)
        imply_bool(s, "use_distributed_optimizer", &s->use_distributed_optimizer, true);
    if (s->virtual_pipeline_model_parallel_size == 0 && s->overlap_p2p_communication)
        overrule(s, "overlap_p2p_communication", &s->overlap_p2p_communication, &off);
    if (s->tensor_model_parallel_size == 1 && s->sequence_parallel)
        overrule(s, "sequence_parallel", &s->sequence_parallel, &off);
    imply_count(s, "microbatch_group_size_per_virtual_pipeline_stage",
                &s->microbatch_group_size_per_virtual_pipeline_stage,
                s->pipeline_model_parallel_size);
    imply_count(s, "expert_tensor_parallel_size", &s->expert_tensor_parallel_size,
                s->tensor_model_parallel_size);
    uint64_t dp = s->world_size / (s->tensor_model_parallel_size * s->pipeline_model_parallel_size *
                                   s->context_parallel_size);
    uint64_t step = s->micro_batch_size * dp;
    imply_count(s, "global_batch_size", &s->global_batch_size, step);
    s->n_microbatches =
        step != 0 && s->global_batch_size % step == 0 ? s->global_batch_size / step : 0;
}

/* Machines as NVIDIA designs them around the GPU. */
static void derive_cluster(sim_scenario_t *s)
{
    const topo_gpu_t *gpu = s->gpu_p;
    bool is_card = gpu->nvlink_domain <= 2;
    imply_count(s, "gpus_per_node", &s->gpus_per_node, gpu->node_gpus);
    imply_count(s, "nvlink_domain", &s->nvlink_domain,
                gpu->nvlink_domain == 8
                    ? s->gpus_per_node
                    : base_u64_min(gpu->nvlink_domain, is_card ? s->gpus_per_node : UINT64_MAX));
    imply_count(s, "nics_per_node", &s->nics_per_node,
                is_card ? base_u64_div_up(s->gpus_per_node, 4) : s->gpus_per_node);
    imply_count(s, "nic_gbit_per_s", &s->nic_gbit_per_s,
                gpu->sm >= 90   ? 400
                : gpu->sm >= 80 ? 200
                                : 100);
}

/* transformer_config.py: "full_iteration" was one of the modules, and local graphs hold the router
 * with what prepares the tokens. Graphs of the first steps' kind do not show what comes later. */
static void derive_graphs(sim_scenario_t *s)
{
    const sim_graphs_impl_t full = SIM_GRAPHS_FULL_ITERATION;
    const uint32_t both = SIM_CUDA_GRAPH_MOE_ROUTER | SIM_CUDA_GRAPH_MOE_PREPROCESS;
    uint32_t modules = s->cuda_graph_modules;
    if ((modules & SIM_CUDA_GRAPH_FULL_ITERATION) &&
        s->cuda_graph_impl != SIM_GRAPHS_TRANSFORMER_ENGINE) {
        modules &= ~(uint32_t)SIM_CUDA_GRAPH_FULL_ITERATION;
        overrule(s, "cuda_graph_impl", &s->cuda_graph_impl, &full);
        overrule(s, "cuda_graph_modules", &s->cuda_graph_modules, &modules);
    }
    if (s->cuda_graph_impl == SIM_GRAPHS_LOCAL && (modules & both)) {
        modules |= both;
        overrule(s, "cuda_graph_modules", &s->cuda_graph_modules, &modules);
    }
    bool waits = s->cuda_graph_impl == SIM_GRAPHS_TRANSFORMER_ENGINE ||
                 s->cuda_graph_impl == SIM_GRAPHS_FULL_ITERATION;
    if (waits && entry_of(s, "iterations")->how == SIM_KEY_DEFAULT) {
        s->iterations = base_u64_max(s->iterations, s->cuda_graph_warmup_steps + 2);
        entry_of(s, "iterations")->how = SIM_KEY_DERIVED;
    }
}

/* arguments.py: the number of layers switches cpu_offloading on. */
static void derive_offload(sim_scenario_t *s)
{
    if (s->cpu_offloading_num_layers > 0)
        imply_bool(s, "cpu_offloading", &s->cpu_offloading, true);
}

static void derive_device(sim_scenario_t *s)
{
    s->gpu_p = s->gpu == NULL ? NULL : topo_gpu_find(s->gpu);
    imply_count(s, "memory_bytes", &s->memory_bytes,
                s->gpu_p == NULL ? UINT64_C(1) << 50 : s->gpu_p->total_bytes);
    if (s->gpu_p != NULL)
        derive_cluster(s);
}

static bool usable(const sim_scenario_t *s, const char *const *keys)
{
    for (; *keys != NULL; keys++) {
        if (!sim_key_is_usable(s, *keys))
            return false;
    }
    return true;
}

static bool make_grid(sim_scenario_t *s, sim_rule_context_t *c)
{
    static const char *const keys[] = { "world_size",
                                        "tensor_model_parallel_size",
                                        "pipeline_model_parallel_size",
                                        "context_parallel_size",
                                        "expert_model_parallel_size",
                                        "expert_tensor_parallel_size",
                                        NULL };
    base_err_t err;
    if (!usable(s, keys))
        return false;
    if (topo_grid_init(
            &s->grid, (uint32_t)s->world_size, (uint32_t)s->tensor_model_parallel_size,
            (uint32_t)s->context_parallel_size, (uint32_t)s->expert_model_parallel_size,
            (uint32_t)s->expert_tensor_parallel_size, (uint32_t)s->pipeline_model_parallel_size,
            s->use_tp_pp_dp_mapping ? "tp-cp-ep-pp-dp" : "tp-cp-ep-dp-pp", &err) == BASE_OK)
        return true;
    sim_rule_broken(c, "world_size", "%s", err.text);
    return false;
}

/* The key to blame for a layer split that fails. */
static const char *stages_culprit(const sim_scenario_t *s, topo_stages_config_t config)
{
    topo_stages_t stages;
    if (config.layout != NULL)
        return s->hybrid_layer_pattern != NULL ? "hybrid_layer_pattern"
                                               : "pipeline_model_parallel_layout";
    config.vpp = 0;
    if (topo_stages_init(&stages, &config, NULL) == BASE_OK) {
        topo_stages_fini(&stages);
        return "virtual_pipeline_model_parallel_size";
    }
    return s->decoder_first_pipeline_num_layers != 0  ? "decoder_first_pipeline_num_layers"
           : s->decoder_last_pipeline_num_layers != 0 ? "decoder_last_pipeline_num_layers"
                                                      : "pipeline_model_parallel_size";
}

static bool make_stages(sim_scenario_t *s, sim_rule_context_t *c, const char *hybrid_layout)
{
    static const char *const keys[] = { "num_layers",
                                        "mtp_num_layers",
                                        "pipeline_model_parallel_size",
                                        "virtual_pipeline_model_parallel_size",
                                        "num_layers_per_virtual_pipeline_stage",
                                        "decoder_first_pipeline_num_layers",
                                        "decoder_last_pipeline_num_layers",
                                        "account_for_embedding_in_pipeline_split",
                                        "account_for_loss_in_pipeline_split",
                                        "pipeline_schedule",
                                        NULL };
    const topo_stages_config_t config = {
        .num_layers = (uint32_t)s->num_layers,
        .mtp_num_layers = (uint32_t)s->mtp_num_layers,
        .pp = (uint32_t)s->pipeline_model_parallel_size,
        .vpp = (uint32_t)s->virtual_pipeline_model_parallel_size,
        .placement = sim_schedule_placement(s->pipeline_schedule),
        .first_stage_layers = (uint32_t)s->decoder_first_pipeline_num_layers,
        .last_stage_layers = (uint32_t)s->decoder_last_pipeline_num_layers,
        .account_for_embedding = s->account_for_embedding_in_pipeline_split,
        .account_for_loss = s->account_for_loss_in_pipeline_split,
        .layout = hybrid_layout != NULL ? hybrid_layout : s->pipeline_model_parallel_layout,
    };
    base_err_t err;
    if (!usable(s, keys))
        return false;
    if (topo_stages_init(&s->stages, &config, &err) != BASE_OK) {
        sim_rule_broken(c, stages_culprit(s, config), "%s", err.text);
        return false;
    }
    if (config.layout != NULL && s->stages.vpp > 1)
        imply_count(s, "virtual_pipeline_model_parallel_size",
                    &s->virtual_pipeline_model_parallel_size, s->stages.vpp);
    return true;
}

static bool make_moe_layers(sim_scenario_t *s, sim_rule_context_t *c)
{
    static const char *const keys[] = { "num_layers", "num_experts", "moe_layer_freq",
                                        "mtp_num_layers", NULL };
    base_err_t err;
    if (!usable(s, keys) || s->num_experts == 0 || s->layer_is_moe != NULL)
        return true; /* a hybrid's pattern has said which */
    s->layer_is_moe = base_xcalloc(sim_n_layers(s), sizeof(*s->layer_is_moe));
    if (sim_layer_freq_parse(s->moe_layer_freq, (uint32_t)s->num_layers, s->layer_is_moe, &err) !=
        BASE_OK) {
        sim_rule_broken(c, "moe_layer_freq", "%s", err.text);
        return false;
    }
    /* Layers of multi-token prediction are of the last decoder layer's kind. */
    for (uint64_t i = s->num_layers; i < sim_n_layers(s); i++)
        s->layer_is_moe[i] = s->layer_is_moe[s->num_layers - 1];
    return true;
}

/* What a hybrid's pattern says: the layers, how many, and the stages if it has borders of them. */
static bool make_hybrid(sim_scenario_t *s, sim_rule_context_t *c, char **layout_p)
{
    sim_hybrid_t hybrid;
    base_err_t err;
    *layout_p = NULL;
    if (s->hybrid_layer_pattern == NULL)
        return true;
    if (sim_hybrid_parse(&hybrid, s->hybrid_layer_pattern, &err) != BASE_OK) {
        sim_rule_broken(c, "hybrid_layer_pattern", "%s", err.text);
        return false;
    }
    imply_count(s, "num_layers", &s->num_layers, hybrid.n_layers);
    imply_count(s, "mtp_num_layers", &s->mtp_num_layers, hybrid.n_depths);
    const struct {
        const char *key;
        uint64_t given, named;
    } counts[] = { { "num_layers", s->num_layers, hybrid.n_layers },
                   { "mtp_num_layers", s->mtp_num_layers, hybrid.n_depths } };
    for (size_t i = 0; i < 2; i++)
        if (counts[i].given != counts[i].named) {
            sim_rule_broken(c, counts[i].key,
                            "%" PRIu64 ", but hybrid_layer_pattern names %" PRIu64 "%s",
                            counts[i].given, counts[i].named,
                            i == 0 ? "" : "; each depth's layers stand behind a /");
            sim_hybrid_fini(&hybrid);
            return false;
        }
    s->mtp_depth_layers = hybrid.n_depth_layers;
    s->layer_kinds = hybrid.kinds;
    s->layer_is_moe = hybrid.is_moe;
    if (hybrid.n_stages > 1)
        *layout_p = hybrid.layout;
    else
        free(hybrid.layout);
    return true;
}

/* "2 4", "[2, 4]": two sizes whose product is the context parallel size. */
static bool read_two_sizes(const char *text, uint64_t sizes[2])
{
    int n = 0;
    for (const char *s = text; *(s += strspn(s, " ,[]()")) != '\0'; n++) {
        size_t digits = strspn(s, "0123456789");
        if (n == 2 || digits == 0 || digits > 9)
            return false;
        sizes[n] = strtoull(s, NULL, 10);
        s += digits;
    }
    return n == 2 && sizes[0] > 0 && sizes[1] > 0;
}

static bool make_context_parallel(sim_scenario_t *s, sim_rule_context_t *c)
{
    static const char key[] = "hierarchical_context_parallel_sizes";
    static const char *const keys[] = { "cp_comm_type", "context_parallel_size", key, NULL };
    uint64_t sizes[2] = { 1, 1 };
    bool is_asked = s->cp_comm_type == SIM_CP_A2A_P2P;
    const char *text = s->hierarchical_context_parallel_sizes;
    if (!usable(s, keys) || (!is_asked && text == NULL))
        return true;
    if (!is_asked)
        sim_rule_broken(c, key, "needs cp_comm_type = a2a+p2p");
    else if (text == NULL || !read_two_sizes(text, sizes) ||
             sizes[0] * sizes[1] != s->context_parallel_size)
        sim_rule_broken(c, key,
                        "must be two sizes whose product is context_parallel_size %" PRIu64
                        ", such as 2 %" PRIu64,
                        s->context_parallel_size, base_u64_max(s->context_parallel_size / 2, 1));
    else
        s->cp_a2a_size = sizes[0];
    return is_asked && s->cp_a2a_size == sizes[0];
}

/* get_linear_attention_pattern(): which layers of a GPT have linear attention. */
static bool make_linear_layers(sim_scenario_t *s, sim_rule_context_t *c)
{
    static const char *const keys[] = { "num_layers", "mtp_num_layers", "linear_attention_freq",
                                        NULL };
    uint64_t every = 0;
    base_err_t err;
    if (s->experimental_attention_variant == SIM_VARIANT_NONE || s->layer_kinds != NULL ||
        s->linear_attention_freq == NULL || !usable(s, keys))
        return true;
    uint32_t n = (uint32_t)s->num_layers;
    bool *is_linear = base_xcalloc(n, sizeof(*is_linear));
    bool ok = true;
    if (base_u64_parse(s->linear_attention_freq, &every) && every > 0) {
        for (uint32_t i = 0; i < n; i++)
            is_linear[i] = (i + 1) % every != 0;
    } else if (sim_layer_freq_parse(s->linear_attention_freq, n, is_linear, &err) != BASE_OK) {
        sim_rule_broken(c, "linear_attention_freq", "%s", err.text);
        ok = false;
    }
    if (ok)
        s->layer_kinds = base_xcalloc(sim_n_layers(s), sizeof(*s->layer_kinds));
    for (uint64_t i = 0; ok && i < sim_n_layers(s); i++)
        s->layer_kinds[i] =
            is_linear[i < n ? i : n - 1] ? SIM_LAYER_LINEAR_TRANSFORMER : SIM_LAYER_TRANSFORMER;
    free(is_linear);
    return ok;
}

/* After the grid and the rules: they say that the sizes fit each other. */
static bool make_routing(sim_scenario_t *s, sim_rule_context_t *c)
{
    if (s->num_experts == 0 || s->moe_imbalance == NULL)
        return true;
    const sim_routing_config_t config = {
        .n_layers = (uint32_t)sim_n_layers(s),
        .n_ranks = (uint32_t)s->expert_model_parallel_size,
        .n_experts = (uint32_t)s->num_experts,
        .topk = (uint32_t)s->moe_router_topk,
    };
    base_err_t err;
    if (sim_routing_create(&s->routing, s->moe_imbalance, &config, &err) == BASE_OK)
        return true;
    sim_rule_broken(c, "moe_imbalance", "%s", err.text);
    return false;
}

bool sim_scenario_resolve(sim_scenario_t *scenario, base_diag_t *diag)
{
    sim_rule_context_t context = { .s = scenario, .diag = diag, .ok = true };
    forget_derived(scenario);
    char *layout;
    bool hybrid = make_hybrid(scenario, &context, &layout);
    hybrid = make_linear_layers(scenario, &context) && hybrid;
    bool context_parallel = make_context_parallel(scenario, &context);
    derive_titan(scenario);
    derive_precision(scenario);
    derive_model(scenario);
    derive_virtual_pipeline(scenario);
    /* A layout says the virtual pipeline size. */
    if (layout == NULL && sim_is_titan(scenario))
        layout = sim_titan_layout(scenario);
    bool stages = hybrid && make_stages(scenario, &context, layout);
    free(layout);
    derive_parallel(scenario);
    derive_offload(scenario);
    derive_graphs(scenario);
    derive_device(scenario);
    const char *broken;
    bool rules = sim_rules_check(scenario, diag, &broken);
    bool grid = make_grid(scenario, &context);
    bool experts = make_moe_layers(scenario, &context);
    experts =
        stages && rules && grid && context_parallel && experts && make_routing(scenario, &context);
    scenario->broken_rule =
        !hybrid             ? "hybrid_layer_pattern and linear_attention_freq name known layers"
        : !grid             ? "the parallel sizes fit world_size"
        : !stages           ? "the layers can be split over pipeline and virtual pipeline"
        : broken != NULL    ? broken
        : !context_parallel ? "hierarchical_context_parallel_sizes make context_parallel_size"
        : !experts          ? "moe_layer_freq and the routing fit the model"
                            : NULL;
    return experts;
}
