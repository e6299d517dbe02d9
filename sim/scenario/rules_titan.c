/* SPDX-License-Identifier: Apache-2.0
 * What torchtitan does not have, and what of it is not simulated. Sources: torchtitan
 * models/llama3, distributed/parallel_dims.py, distributed/activation_checkpoint.py. */
#include "config.h"

#include "sim/scenario/rules.h"

#include <inttypes.h>
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
    must(c, s->num_experts == 0, "num_experts");
    must(c, !s->multi_latent_attention, "multi_latent_attention");
    must(c, s->hybrid_layer_pattern == NULL, "hybrid_layer_pattern");
    must(c, s->mtp_num_layers == 0, "mtp_num_layers");
    must(c, s->normalization == SIM_NORM_RMSNORM, "normalization");
    must(c, s->activation_func == SIM_ACT_SWIGLU, "activation_func");
    must(c, s->position_embedding_type == SIM_POS_ROPE, "position_embedding_type");
    must(c, s->rotary_percent >= 1.0, "rotary_percent");
    must(c, !s->add_bias_linear, "add_bias_linear");
    must(c, !s->add_qkv_bias, "add_qkv_bias");
    must(c, s->untie_embeddings_and_output_weights, "untie_embeddings_and_output_weights");
    must(c, !s->attention_output_gate, "attention_output_gate");
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
    if (s->fp8 != SIM_FP8_NONE && s->fp8_recipe != SIM_FP8_TENSORWISE)
        sim_rule_broken(c, "fp8_recipe", "of torchtitan tensorwise alone is simulated");
    if (s->fp8 != SIM_FP8_NONE && !s->compile_model)
        sim_rule_broken(c, "fp8", "of torchtitan is simulated with compile_model = true alone");
    must(c, !s->fp8_param_gather, "fp8_param_gather");
    must(c, !s->first_last_layers_bf16, "first_last_layers_bf16");
    if (s->enable_fsdp_float8_all_gather && s->fp8 == SIM_FP8_NONE)
        sim_rule_broken(c, "enable_fsdp_float8_all_gather", "needs fp8 = hybrid");
    must(c, s->fp4 == SIM_FP4_NONE, "fp4");
    must(c, s->peft_scheme == SIM_PEFT_NONE, "scheme");
    must(c, s->optimizer == SIM_OPTIMIZER_ADAM, "optimizer");
    must(c, !s->use_precision_aware_optimizer, "use_precision_aware_optimizer");
    must(c, !s->optimizer_cpu_offload, "optimizer_cpu_offload");
}

void sim_rule_titan_parallel(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t model = s->tensor_model_parallel_size * s->pipeline_model_parallel_size;
    uint64_t replicas = s->data_parallel_replicate_degree;
    if (!sim_is_titan(s)) {
        if (replicas > 1)
            sim_rule_broken(c, "data_parallel_replicate_degree", "needs framework = torchtitan");
        return;
    }
    must(c, s->pipeline_model_parallel_size == 1, "pipeline_model_parallel_size");
    must(c, s->context_parallel_size == 1, "context_parallel_size");
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
    if (!sim_is_titan(s))
        return;
    if (s->recompute_granularity != SIM_RECOMPUTE_NONE)
        sim_rule_broken(c, "recompute_granularity",
                        "is Megatron-LM's; torchtitan has activation_checkpoint_mode");
    must(c, !s->cpu_offloading, "cpu_offloading");
    must(c, !s->fine_grained_activation_offloading, "fine_grained_activation_offloading");
}

void sim_rule_titan_is_no_megatron(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    static const char other[] = "is Megatron-LM's, torchtitan has none";
    const struct {
        bool is_on;
        const char *key;
    } table[] = {
        { s->use_distributed_optimizer, "use_distributed_optimizer" },
        { s->use_megatron_fsdp, "use_megatron_fsdp" },
        { s->use_torch_fsdp2, "use_torch_fsdp2" },
        { s->tp_comm_overlap, "tp_comm_overlap" },
        { s->defer_embedding_wgrad_compute, "defer_embedding_wgrad_compute" },
        { s->overlap_grad_reduce, "overlap_grad_reduce" },
        { s->overlap_param_gather, "overlap_param_gather" },
    };
    for (size_t i = 0; sim_is_titan(s) && i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].is_on)
            sim_rule_broken(c, table[i].key, "%s", other);
}
