/* SPDX-License-Identifier: Apache-2.0
 * Rules of models that are no GPT. Sources: Megatron-LM core 0.20 models/{bert,T5}, pretrain_t5.py,
 * transformer/attention.py (CrossAttention). */
#include "config.h"

#include "sim/scenario/rules.h"

#include "sim/base/units.h"

#include <inttypes.h>

#define U64 "%" PRIu64

/* What neither has; `name` begins the message. */
static void is_dense(sim_rule_context_t *c, const char *name)
{
    const sim_scenario_t *s = c->s;
    if (s->num_experts > 0)
        sim_rule_broken(c, "model_type", "%s has no experts: num_experts must be 0", name);
    if (s->mtp_num_layers > 0)
        sim_rule_broken(c, "model_type", "%s predicts no further tokens: mtp_num_layers must be 0",
                        name);
    if (s->context_parallel_size > 1)
        sim_rule_broken(c, "model_type", "%s is not simulated with context_parallel_size > 1",
                        name);
    if (s->multi_latent_attention)
        sim_rule_broken(c, "model_type", "%s is not simulated with multi_latent_attention", name);
}

void sim_rule_bert_is_dense(sim_rule_context_t *c)
{
    if (c->s->model_type == SIM_MODEL_BERT)
        is_dense(c, "bert");
}

void sim_rule_t5_is_plain(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->model_type != SIM_MODEL_T5)
        return;
    is_dense(c, "t5");
    if (s->pipeline_model_parallel_size > 1) /* pretrain_t5.py, model_provider() */
        sim_rule_broken(c, "model_type", "t5 needs pipeline_model_parallel_size = 1");
    if (s->num_query_groups != s->num_attention_heads)
        sim_rule_broken(c, "model_type",
                        "cross attention of t5 has no query groups: num_query_groups must be "
                        "num_attention_heads " U64,
                        s->num_attention_heads);
    if (s->qk_layernorm || s->attention_output_gate)
        sim_rule_broken(c, "model_type", "t5 has neither qk_layernorm nor attention_output_gate");
    if (s->position_embedding_type == SIM_POS_NONE)
        sim_rule_broken(c, "model_type",
                        "t5 needs position_embedding_type learned_absolute or rope");
}

void sim_rule_t5_is_trained_plainly(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->model_type != SIM_MODEL_T5)
        return;
    if (s->recompute_granularity != SIM_RECOMPUTE_NONE)
        sim_rule_broken(c, "model_type", "t5 is simulated with recompute_granularity = none alone");
    if (sim_is_quantized(s))
        sim_rule_broken(c, "model_type", "t5 is not simulated with fp8 or fp4");
    if (s->peft_scheme != SIM_PEFT_NONE)
        sim_rule_broken(c, "model_type", "t5 is not simulated with adapters");
    if (s->fine_grained_activation_offloading || s->cpu_offloading)
        sim_rule_broken(c, "model_type", "t5 is not simulated with offloaded activations");
}

/* Megatron-LM training/arguments.py: the pattern says the layers, and the stages with its |. */
void sim_rule_hybrid_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->hybrid_layer_pattern == NULL)
        return;
    bool has_experts = false;
    for (uint64_t i = 0; s->layer_is_moe != NULL && i < sim_n_layers(s); i++)
        has_experts = has_experts || s->layer_is_moe[i];
    if (has_experts != (s->num_experts > 0))
        sim_rule_broken(c, "hybrid_layer_pattern", "%s",
                        has_experts ? "layers E need num_experts"
                                    : "has no layer E, so that num_experts must be 0");
    if (s->model_type != SIM_MODEL_GPT)
        sim_rule_broken(c, "hybrid_layer_pattern", "needs model_type = gpt");
    if (s->multi_latent_attention)
        sim_rule_broken(c, "hybrid_layer_pattern", "is not simulated with multi_latent_attention");
    if (s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE)
        sim_rule_broken(c, "hybrid_layer_pattern", "needs transformer_impl = transformer_engine");
    if (s->pipeline_model_parallel_layout != NULL)
        sim_rule_broken(c, "hybrid_layer_pattern",
                        "not with pipeline_model_parallel_layout: | separates the stages");
    if (s->num_layers_per_virtual_pipeline_stage > 0)
        sim_rule_broken(c, "hybrid_layer_pattern",
                        "not with num_layers_per_virtual_pipeline_stage: | separates the stages");
}

void sim_rule_hybrid_is_trained_plainly(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->hybrid_layer_pattern == NULL)
        return;
    if (s->peft_scheme != SIM_PEFT_NONE)
        sim_rule_broken(c, "hybrid_layer_pattern", "is not simulated with adapters");
    if (s->fine_grained_activation_offloading || s->cpu_offloading)
        sim_rule_broken(c, "hybrid_layer_pattern", "is not simulated with offloaded activations");
}

/* transformer_config.py; ssm/gated_delta_net. The convolution knows silu alone. */
void sim_rule_delta_net_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    bool is_gdn = s->experimental_attention_variant == SIM_VARIANT_GDN;
    if (s->linear_attention_freq != NULL && (!is_gdn || s->hybrid_layer_pattern != NULL))
        sim_rule_broken(c, "linear_attention_freq",
                        "needs experimental_attention_variant = gdn, and no hybrid_layer_pattern");
    if (is_gdn && s->linear_attention_freq == NULL && s->hybrid_layer_pattern == NULL)
        sim_rule_broken(c, "experimental_attention_variant", "gdn needs linear_attention_freq");
    if (s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
        (s->recompute_modules & SIM_MODULE_GDN_NORM_OUT) && !sim_has_delta_net(s))
        sim_rule_broken(c, "recompute_modules", "gdn_norm_out needs layers with a gated delta net");
    if (!sim_has_delta_net(s))
        return;
    if (s->model_type != SIM_MODEL_GPT || s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE)
        sim_rule_broken(c, "experimental_attention_variant",
                        "gdn needs model_type = gpt and transformer_impl = transformer_engine");
    if (s->activation_func != SIM_ACT_SWIGLU && s->activation_func != SIM_ACT_SILU)
        sim_rule_broken(c, "activation_func", "must be swiglu or silu with gated delta nets");
    if (s->deterministic_mode || s->multi_latent_attention)
        sim_rule_broken(c, "experimental_attention_variant",
                        "gdn is not simulated with deterministic_mode or multi_latent_attention");
    if (s->peft_scheme != SIM_PEFT_NONE || s->fine_grained_activation_offloading ||
        s->cpu_offloading)
        sim_rule_broken(c, "experimental_attention_variant",
                        "gdn is not simulated with adapters or offloaded activations");
}

void sim_rule_delta_net_can_be_split(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t keys = s->linear_num_key_heads, values = s->linear_num_value_heads;
    uint64_t ranks = s->tensor_model_parallel_size * s->context_parallel_size;
    if (!sim_has_delta_net(s))
        return;
    if (values % keys != 0)
        sim_rule_broken(c, "linear_num_value_heads",
                        U64 " is not a multiple of linear_num_key_heads " U64, values, keys);
    if (keys % ranks != 0)
        sim_rule_broken(c, "linear_num_key_heads",
                        U64 " is not a multiple of tensor_model_parallel_size times "
                            "context_parallel_size " U64,
                        keys, ranks);
    uint64_t projected =
        2 * keys * s->linear_key_head_dim + 2 * values * s->linear_value_head_dim + 2 * values;
    if (sim_is_quantized(s) && projected % 16 != 0)
        sim_rule_broken(c, "linear_num_value_heads",
                        "makes a projection of " U64
                        " rows; with fp8 that must be a multiple of 16",
                        projected);
    /* The widest tensor is the state of every chunk. */
    uint64_t bytes, width;
    if (!base_u64_mul(values * s->linear_key_head_dim, s->linear_value_head_dim, &width) ||
        !base_u64_mul(width, s->seq_length * s->micro_batch_size, &bytes) ||
        bytes > UINT64_C(1) << 60)
        sim_rule_broken(c, "linear_value_head_dim", "makes tensors beyond 1 EiB");
}

/* ssm/mamba_mixer.py */
void sim_rule_mamba_can_be_split(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t tp = s->tensor_model_parallel_size, heads = s->mamba_num_heads;
    uint64_t groups = s->mamba_num_groups, cp = s->context_parallel_size;
    if (s->hybrid_layer_pattern == NULL)
        return;
    if (heads == 0 || heads % tp != 0)
        sim_rule_broken(c, "mamba_num_heads",
                        U64 " is not a multiple of tensor_model_parallel_size " U64, heads, tp);
    else if (groups % tp != 0)
        sim_rule_broken(c, "mamba_num_groups",
                        U64 " is not a multiple of tensor_model_parallel_size " U64, groups, tp);
    else if (heads % groups != 0)
        sim_rule_broken(c, "mamba_num_groups", U64 " does not divide mamba_num_heads " U64, groups,
                        heads);
    else if (heads % (tp * cp) != 0) /* ssm/mamba_context_parallel.py */
        sim_rule_broken(c, "mamba_num_heads",
                        U64 " is not a multiple of tensor_model_parallel_size times "
                            "context_parallel_size " U64,
                        heads, tp * cp);
    else if (groups / tp % cp != 0 && cp % (groups / tp) != 0)
        sim_rule_broken(c, "context_parallel_size",
                        U64 " and the groups of a rank, " U64 ", do not divide each other", cp,
                        groups / tp);
    /* The widest tensor is the state of every chunk, in 32 bits; bounds of the keys keep the width
     * itself far below 64 bits. */
    uint64_t width = heads * s->mamba_head_dim * s->mamba_state_dim, bytes;
    if (!base_u64_mul(width, s->seq_length * s->micro_batch_size, &bytes) || bytes > UINT64_C(1)
                                                                                         << 60)
        sim_rule_broken(c, "mamba_state_dim", "makes tensors beyond 1 EiB");
}

void sim_rule_decoder_fits(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->model_type != SIM_MODEL_T5) {
        if (s->decoder_num_layers > 0)
            sim_rule_broken(c, "decoder_num_layers", "needs model_type = t5");
        if (s->decoder_seq_length > 0)
            sim_rule_broken(c, "decoder_seq_length", "needs model_type = t5");
        return;
    }
    if (s->position_embedding_type == SIM_POS_LEARNED &&
        s->max_position_embeddings < s->decoder_seq_length)
        sim_rule_broken(c, "decoder_seq_length",
                        U64 " is more than max_position_embeddings " U64 " with learned positions",
                        s->decoder_seq_length, s->max_position_embeddings);
    if (s->sequence_parallel &&
        s->decoder_seq_length % (s->tensor_model_parallel_size * s->context_parallel_size) != 0)
        sim_rule_broken(c, "decoder_seq_length",
                        U64 " is not a multiple of tensor_model_parallel_size " U64
                            " with sequence_parallel",
                        s->decoder_seq_length, s->tensor_model_parallel_size);
}

void sim_rule_sequence_is_divisible(sim_rule_context_t *c)
{
    /* tensor_parallel/mappings.py, _split_along_first_dim(), of what context parallelism leaves. */
    const sim_scenario_t *s = c->s;
    uint64_t tp = s->tensor_model_parallel_size, cp = s->context_parallel_size;
    if (s->sequence_parallel && s->seq_length / cp % tp != 0)
        sim_rule_broken(c, "tensor_model_parallel_size", U64 " does not divide seq_length%s " U64,
                        tp, cp > 1 ? " / context_parallel_size" : "", s->seq_length / cp);
}
