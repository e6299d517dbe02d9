/* SPDX-License-Identifier: Apache-2.0
 * Rules of adapters. Sources: Megatron-Bridge 0.7.0 src/megatron/bridge/peft/{lora,dora,utils}.py.
 */
#include "config.h"

#include "sim/scenario/rules.h"

#include <inttypes.h>

#define U64 "%" PRIu64

void sim_rule_adapters_can_be_split(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t tp = s->tensor_model_parallel_size;
    if (s->peft_scheme != SIM_PEFT_NONE && s->peft_dim % tp != 0)
        sim_rule_broken(c, "dim", U64 " is not a multiple of tensor_model_parallel_size " U64,
                        s->peft_dim, tp);
}

void sim_rule_adapters_have_layers(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->peft_scheme == SIM_PEFT_NONE)
        return;
    if (s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE)
        sim_rule_broken(c, "scheme",
                        "adapters are simulated with transformer_impl = "
                        "transformer_engine alone");
    if (s->defer_embedding_wgrad_compute)
        sim_rule_broken(c, "scheme",
                        "not with defer_embedding_wgrad_compute: frozen weights have "
                        "no gradients");
    if (s->peft_target_modules == 0)
        sim_rule_broken(c, "target_modules", "adapters need at least one linear");
}

/* A target that the model does not have has no adapter in Megatron-Bridge either; that none at all
 * is found is a mistake. A fused down projection has another name. */
void sim_rule_adapters_have_linears(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint32_t of_mla = s->peft_target_modules & (uint32_t)SIM_TARGETS_OF_MLA;
    if (s->peft_scheme == SIM_PEFT_NONE || of_mla == 0)
        return;
    if (!s->multi_latent_attention && of_mla == s->peft_target_modules)
        sim_rule_broken(c, "target_modules", "these linears need multi_latent_attention = true");
    if (s->mla_down_proj_fusion && (of_mla & (SIM_TARGET_Q_DOWN | SIM_TARGET_KV_DOWN)))
        sim_rule_broken(c, "target_modules",
                        "linear_q_down_proj and linear_kv_down_proj are one linear with "
                        "mla_down_proj_fusion: it is not simulated with an adapter");
    if (s->peft_scheme == SIM_PEFT_DORA && s->multi_latent_attention)
        sim_rule_broken(c, "target_modules",
                        "linears of multi-latent attention need scheme = lora");
}

void sim_rule_dora_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->peft_scheme != SIM_PEFT_DORA)
        return;
    if (s->peft_dropout_position != SIM_DROPOUT_PRE)
        sim_rule_broken(c, "dropout_position", "must be pre with scheme = dora");
    if (s->sequence_parallel_input_regather)
        sim_rule_broken(c, "sequence_parallel_input_regather", "needs scheme = lora");
    if (s->a2a_experimental)
        sim_rule_broken(c, "a2a_experimental", "needs scheme = lora");
    if (s->num_experts > 0)
        sim_rule_broken(c, "scheme", "dora does not know experts: use lora");
}

void sim_rule_expert_rank_is_divisible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->peft_scheme == SIM_PEFT_LORA && s->normalize_moe_lora && s->num_experts > 0 &&
        s->peft_dim % s->moe_router_topk != 0)
        sim_rule_broken(c, "normalize_moe_lora",
                        "needs dim " U64 " to be a multiple of moe_router_topk " U64, s->peft_dim,
                        s->moe_router_topk);
}
