/* SPDX-License-Identifier: Apache-2.0
 * What torchtitan does not have, and what of it is not simulated. Sources: torchtitan
 * models/llama3, distributed/parallel_dims.py, distributed/activation_checkpoint.py. */
#include "config.h"

#include "sim/scenario/rules.h"

#include "sim/scenario/keys.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char titan[] = "is not simulated with framework = torchtitan";

static void must(sim_rule_context_t *c, bool holds, const char *key)
{
    if (!holds)
        sim_rule_broken(c, key, "%s", titan);
}

void sim_rule_titan_model(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!sim_is_titan(s))
        return;
    must(c, s->model_type == SIM_MODEL_GPT, "model_type");
    must(c, s->expert_model_parallel_size == 1, "expert_model_parallel_size");
    must(c, s->normalization == SIM_NORM_RMSNORM, "normalization");
    must(c, s->activation_func == SIM_ACT_SWIGLU, "activation_func");
    must(c, s->position_embedding_type == SIM_POS_ROPE, "position_embedding_type");
    must(c, s->rotary_percent >= 1.0, "rotary_percent");
    must(c, !s->add_bias_linear, "add_bias_linear");
    must(c, !s->add_qkv_bias, "add_qkv_bias");
    must(c, s->untie_embeddings_and_output_weights, "untie_embeddings_and_output_weights");
    must(c, s->attention_dropout <= 0.0, "attention_dropout");
    must(c, s->hidden_dropout <= 0.0, "hidden_dropout");
}

void sim_rule_titan_training(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!sim_is_titan(s))
        return;
    if (!s->bf16)
        sim_rule_broken(c, "bf16", "false %s", titan);
    bool is_tensorwise = s->fp8 != SIM_FP8_NONE && s->fp8_recipe == SIM_FP8_TENSORWISE;
    if (s->fp8 != SIM_FP8_NONE && !is_tensorwise && s->fp8_recipe != SIM_FP8_MXFP8)
        sim_rule_broken(c, "fp8_recipe", "of torchtitan tensorwise and mxfp8 alone are simulated");
    if (sim_is_quantized(s) && !s->compile_model)
        sim_rule_broken(c, s->fp4 != SIM_FP4_NONE ? "fp4" : "fp8",
                        "of torchtitan is simulated with compile_model = true alone");
    if (s->enable_fsdp_float8_all_gather && !is_tensorwise)
        sim_rule_broken(c, "enable_fsdp_float8_all_gather",
                        "needs fp8 = hybrid and fp8_recipe = tensorwise");
    must(c, !s->gradient_accumulation_fusion, "gradient_accumulation_fusion");
    must(c, !s->deallocate_pipeline_outputs, "deallocate_pipeline_outputs");
    must(c, s->optimizer == SIM_OPTIMIZER_ADAM, "optimizer");
}

void sim_rule_titan_parallel(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t model = s->tensor_model_parallel_size * s->pipeline_model_parallel_size;
    uint64_t replicas = s->data_parallel_replicate_degree;
    if (!sim_is_titan(s))
        return;
    if (s->context_parallel_size > SIM_TITAN_MAX_CP)
        sim_rule_broken(c, "context_parallel_size", "above %d %s", SIM_TITAN_MAX_CP, titan);
    if (s->tensor_model_parallel_size > 1 && s->compile_loss)
        sim_rule_broken(c, "compile_loss",
                        "is not simulated with tensor parallelism, where the loss is parallel too");
    if (s->tensor_model_parallel_size > 1 && !s->sequence_parallel)
        sim_rule_broken(c, "sequence_parallel", "false %s", titan);
    if (s->world_size % (model * s->context_parallel_size) != 0)
        return; /* said elsewhere */
    if (s->world_size / (model * s->context_parallel_size) % replicas != 0)
        sim_rule_broken(c, "data_parallel_replicate_degree",
                        "%" PRIu64 " does not divide data parallel size %" PRIu64, replicas,
                        s->world_size / (model * s->context_parallel_size));
    else if (s->world_size / model / replicas < 2)
        sim_rule_broken(c, "world_size",
                        "torchtitan is simulated with FSDP alone, over two ranks or more");
}

void sim_rule_titan_checkpoints(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    const char *option = s->selective_ac_option;
    if (option == NULL ||
        (strcmp(option, "op") != 0 &&
         (s->selective_ac_every == 0 || strspn(option, "0123456789") != strlen(option))))
        sim_rule_broken(c, "selective_ac_option", "is op or a number from 1");
}

/* Keys of Megatron-LM's sections that torchtitan has too, under these or other names, or that
 * follow from them. */
static const char *const shared_keys[] = {
    "preset",
    "hf_config",
    "model_type",
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "kv_channels",
    "vocab_size",
    "padded_vocab_size",
    "max_position_embeddings",
    "activation_func",
    "gated_linear_unit",
    "normalization",
    "position_embedding_type",
    "rotary_percent",
    "add_bias_linear",
    "add_qkv_bias",
    "untie_embeddings_and_output_weights",
    "qk_layernorm",
    "attention_dropout",
    "hidden_dropout",
    "world_size",
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "microbatch_group_size_per_virtual_pipeline_stage",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "sequence_parallel",
    "pipeline_model_parallel_layout",
    "overlap_p2p_communication",
    "deallocate_pipeline_outputs",
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "gradient_accumulation_fusion",
    "bf16",
    "fp8",
    "fp4",
    "first_last_layers_bf16",
    "num_layers_at_start_in_bf16",
    "num_layers_at_end_in_bf16",
    "fp8_recipe",
    "optimizer",
    NULL,
};

static bool is_shared(const sim_key_t *key)
{
    static const char *const sections[] = { "device",     "cluster", "allocator", "nccl",
                                            "torchtitan", "run",     NULL };
    for (const char *const *t = sections; *t != NULL; t++)
        if (strcmp(*t, key->section) == 0)
            return true;
    for (const char *const *t = shared_keys; *t != NULL; t++)
        if (strcmp(*t, key->name) == 0)
            return true;
    return false;
}

static bool differs(const sim_key_t *key, const sim_scenario_t *s, const sim_scenario_t *other)
{
    char *a = sim_key_format(key, (const char *)s + key->offset);
    char *b = sim_key_format(key, (const char *)other + key->offset);
    bool is_other = a == NULL || b == NULL ? a != b : strcmp(a, b) != 0;
    free(a);
    free(b);
    return is_other;
}

/* What only one of the programs reads has its default in a job of the other. */
void sim_rule_keys_are_of_the_framework(sim_rule_context_t *c)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    sim_scenario_t defaults;
    sim_scenario_init(&defaults);
    for (size_t i = 0; i < n; i++) {
        bool is_other =
            sim_is_titan(c->s) ? !is_shared(&keys[i]) : strcmp(keys[i].section, "torchtitan") == 0;
        if (is_other && differs(&keys[i], c->s, &defaults))
            sim_rule_broken(c, keys[i].name,
                            sim_is_titan(c->s) ? "is not read with framework = torchtitan"
                                               : "needs framework = torchtitan");
    }
    sim_scenario_fini(&defaults);
}
