/* SPDX-License-Identifier: Apache-2.0
 * Rules of what is offloaded to host memory: Megatron-LM core 0.20 transformer_config.py and
 * training/arguments.py. */
#include "config.h"

#include "sim/scenario/rules.h"

#include <inttypes.h>

#define U64 "%" PRIu64

void sim_rule_layers_can_be_offloaded(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->cpu_offloading)
        return;
    if (s->cpu_offloading_num_layers >= s->num_layers)
        sim_rule_broken(c, "cpu_offloading_num_layers", U64 " must be less than num_layers " U64,
                        s->cpu_offloading_num_layers, s->num_layers);
    if (s->pipeline_model_parallel_size > 1)
        sim_rule_broken(c, "cpu_offloading", "needs pipeline_model_parallel_size = 1, not " U64,
                        s->pipeline_model_parallel_size);
    if (s->recompute_granularity != SIM_RECOMPUTE_NONE)
        sim_rule_broken(c, "cpu_offloading", "not with recompute_granularity");
    if (s->fine_grained_activation_offloading)
        sim_rule_broken(c, "cpu_offloading", "not with fine_grained_activation_offloading");
    if (!s->cpu_offloading_activations && !s->cpu_offloading_weights)
        sim_rule_broken(c, "cpu_offloading_activations",
                        "false leaves nothing to offload; cpu_offloading_weights is false too");
    if (s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE)
        sim_rule_broken(c, "cpu_offloading", "needs transformer_impl = transformer_engine");
}

void sim_rule_modules_can_be_offloaded(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    const uint32_t inside_moe = SIM_OFFLOAD_EXPERT_FC1 | SIM_OFFLOAD_MOE_ACT;
    if (!s->fine_grained_activation_offloading)
        return;
    if (s->offload_modules == 0)
        sim_rule_broken(c, "offload_modules",
                        "fine_grained_activation_offloading needs at least one module");
    if (s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE)
        sim_rule_broken(c, "fine_grained_activation_offloading",
                        "needs transformer_impl = transformer_engine");
    if ((s->offload_modules & SIM_OFFLOAD_ATTN_PROJ) &&
        !(s->offload_modules & SIM_OFFLOAD_CORE_ATTN))
        sim_rule_broken(c, "offload_modules",
                        "attn_proj needs core_attn, whose output is attn_proj's input");
    if (s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
        (s->recompute_modules & SIM_MODULE_MOE) && (s->offload_modules & inside_moe))
        sim_rule_broken(c, "offload_modules",
                        "expert_fc1 and moe_act not with recompute_modules moe, which computes "
                        "all of the layer again");
    if (s->recompute_granularity == SIM_RECOMPUTE_FULL)
        sim_rule_broken(c, "fine_grained_activation_offloading",
                        "with recompute_granularity = full it is not simulated");
}
