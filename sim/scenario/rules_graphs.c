/* SPDX-License-Identifier: Apache-2.0
 * Rules of CUDA graphs: Megatron-LM core 0.20 transformer_config.py, training/arguments.py and
 * transformer/cuda_graphs.py. */
#include "config.h"

#include "sim/scenario/rules.h"

#include "sim/base/xmem.h"

#include <stdlib.h>
#include <string.h>

enum { MOE_PARTS = SIM_CUDA_GRAPH_MOE_ROUTER | SIM_CUDA_GRAPH_MOE_PREPROCESS };

static bool has_layer_graphs(const sim_scenario_t *s)
{
    return s->cuda_graph_impl == SIM_GRAPHS_LOCAL ||
           s->cuda_graph_impl == SIM_GRAPHS_TRANSFORMER_ENGINE;
}

/* Everything of a layer, or of the iteration, is in a graph. */
static bool holds_all(const sim_scenario_t *s)
{
    return s->cuda_graph_impl == SIM_GRAPHS_FULL_ITERATION || s->cuda_graph_modules == 0;
}

static bool holds(const sim_scenario_t *s, sim_cuda_graph_module_t module)
{
    return holds_all(s) || (s->cuda_graph_modules & module);
}

static bool is_expandable(const sim_scenario_t *s)
{
    return s->conf != NULL && strstr(s->conf, "expandable_segments:True") != NULL;
}

void sim_rule_graphs_are_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->cuda_graph_impl == SIM_GRAPHS_NONE)
        return;
    if (s->cpu_offloading && s->cuda_graph_impl != SIM_GRAPHS_FULL_ITERATION)
        sim_rule_broken(c, "cuda_graph_impl", "graphs of layers not with cpu_offloading");
    if (s->cuda_graph_impl == SIM_GRAPHS_FULL_ITERATION && s->check_for_nan_in_loss_and_grad)
        sim_rule_broken(c, "cuda_graph_impl",
                        "full_iteration needs check_for_nan_in_loss_and_grad = false");
    if (s->cuda_graph_impl != SIM_GRAPHS_TRANSFORMER_ENGINE)
        return;
    if (s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE)
        sim_rule_broken(c, "cuda_graph_impl",
                        "transformer_engine needs transformer_impl = transformer_engine");
    if (is_expandable(s) && s->nccl_graph_register != COLL_OFF)
        sim_rule_broken(c, "cuda_graph_impl",
                        "transformer_engine with expandable_segments:True needs "
                        "NCCL_GRAPH_REGISTER=0 (nccl.graph_register = 0): a captured "
                        "communication would register memory that can be unmapped");
}

/* A frequency that cannot be read is another rule's. */
static bool has_dense_layer(const sim_scenario_t *s)
{
    bool *is_moe = base_xcalloc(s->num_layers, sizeof(*is_moe)), has = false;
    base_err_t err;
    if (sim_layer_freq_parse(s->moe_layer_freq, (uint32_t)s->num_layers, is_moe, &err) != BASE_OK)
        has = true;
    for (uint64_t i = 0; i < s->num_layers; i++)
        has = has || !is_moe[i];
    free(is_moe);
    return has;
}

static void check_expert_modules(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint32_t modules = s->cuda_graph_modules;
    bool pads = s->moe_expert_capacity_factor > 0 && s->moe_pad_expert_input_to_capacity;
    if ((modules & SIM_CUDA_GRAPH_MLP) && !has_dense_layer(s))
        sim_rule_broken(c, "cuda_graph_modules", "mlp needs a dense layer, and there is none");
    if (pads)
        return;
    if (modules & SIM_CUDA_GRAPH_MOE)
        sim_rule_broken(c, "cuda_graph_modules",
                        "moe needs moe_pad_expert_input_to_capacity: the sizes in a graph cannot "
                        "depend on the routing");
    if ((modules & SIM_CUDA_GRAPH_MOE_PREPROCESS) && s->moe_expert_capacity_factor > 0 &&
        s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLTOALL)
        sim_rule_broken(c, "cuda_graph_modules",
                        "moe_preprocess not with a capacity factor and the alltoall dispatcher, "
                        "which waits for the device there");
}

void sim_rule_graph_modules_go_together(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint32_t modules = s->cuda_graph_modules;
    if (s->cuda_graph_impl == SIM_GRAPHS_FULL_ITERATION && modules != 0)
        sim_rule_broken(c, "cuda_graph_modules",
                        "must be empty with cuda_graph_impl = full_iteration");
    if (modules & SIM_CUDA_GRAPH_FULL_ITERATION)
        sim_rule_broken(c, "cuda_graph_modules",
                        "full_iteration not with cuda_graph_impl = transformer_engine");
    if (!has_layer_graphs(s))
        return;
    if ((modules & SIM_CUDA_GRAPH_MOE) && (modules & SIM_CUDA_GRAPH_MOE_ROUTER))
        sim_rule_broken(c, "cuda_graph_modules", "moe or moe_router, not both");
    if ((modules & MOE_PARTS) == SIM_CUDA_GRAPH_MOE_PREPROCESS)
        sim_rule_broken(c, "cuda_graph_modules", "moe_preprocess needs moe_router");
    if (s->num_experts > 0)
        check_expert_modules(c);
    else if (modules & (SIM_CUDA_GRAPH_MOE | MOE_PARTS))
        sim_rule_broken(c, "cuda_graph_modules", "moe, moe_router and moe_preprocess need experts");
}

void sim_rule_graphs_do_not_cut_recompute(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->cuda_graph_impl == SIM_GRAPHS_NONE || s->recompute_granularity == SIM_RECOMPUTE_NONE)
        return;
    if (s->recompute_granularity == SIM_RECOMPUTE_FULL) {
        if (s->cuda_graph_impl != SIM_GRAPHS_FULL_ITERATION)
            sim_rule_broken(c, "cuda_graph_impl",
                            "full recompute only with cuda_graph_impl = full_iteration");
        return;
    }
    uint32_t again = s->recompute_modules;
    if (s->cuda_graph_impl == SIM_GRAPHS_TRANSFORMER_ENGINE && (again & SIM_MODULE_MOE) &&
        (s->cuda_graph_modules & SIM_CUDA_GRAPH_MOE_ROUTER))
        sim_rule_broken(c, "cuda_graph_modules", "moe_router not with recompute_modules moe");
    /* A recomputed module in a graph takes no random numbers. */
    if (s->attention_dropout > 0 && (again & SIM_MODULE_CORE_ATTN) && holds(s, SIM_CUDA_GRAPH_ATTN))
        sim_rule_broken(c, "attention_dropout",
                        "must be 0 where core_attn is recomputed in a graph");
    if (s->hidden_dropout > 0 && (((again & SIM_MODULE_MLP) && holds(s, SIM_CUDA_GRAPH_MLP)) ||
                                  ((again & SIM_MODULE_MOE) && holds(s, SIM_CUDA_GRAPH_MOE))))
        sim_rule_broken(c, "hidden_dropout", "must be 0 where mlp or moe is recomputed in a graph");
}

void sim_rule_graphs_are_simulated(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->cuda_graph_impl == SIM_GRAPHS_NONE)
        return;
    if (sim_is_titan(s))
        sim_rule_broken(c, "cuda_graph_impl", "is not simulated with framework = torchtitan");
    if (s->model_type != SIM_MODEL_GPT)
        sim_rule_broken(c, "cuda_graph_impl", "is simulated with model_type = gpt only");
    if (s->use_megatron_fsdp || s->use_torch_fsdp2)
        sim_rule_broken(c, "cuda_graph_impl",
                        "with fully sharded data parallelism it is not simulated");
    if (sim_schedule_splits(s->pipeline_schedule))
        sim_rule_broken(c, "cuda_graph_impl", "with this pipeline_schedule it is not simulated");
    if (s->fine_grained_activation_offloading)
        sim_rule_broken(c, "cuda_graph_impl",
                        "with fine_grained_activation_offloading it is not simulated");
    bool pads = s->moe_expert_capacity_factor > 0 && s->moe_pad_expert_input_to_capacity;
    if (s->num_experts > 0 && holds_all(s) && !pads)
        sim_rule_broken(c, "cuda_graph_modules",
                        "a graph of whole layers with experts is simulated with "
                        "moe_pad_expert_input_to_capacity only; name modules");
}
