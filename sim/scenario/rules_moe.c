/* SPDX-License-Identifier: Apache-2.0
 * What Megatron-LM core 0.20 refuses about experts, multi-latent attention and multi-token
 * prediction: transformer/transformer_config.py, transformer/moe, training/arguments.py. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/scenario/rules.h"

#include <inttypes.h>

#define U64 "%" PRIu64

void sim_rule_experts_are_divisible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t ep = s->expert_model_parallel_size;
    if (ep == 1)
        return;
    if (s->num_experts == 0)
        sim_rule_broken(c, "expert_model_parallel_size", "needs num_experts");
    else if (s->num_experts % ep != 0)
        sim_rule_broken(c, "expert_model_parallel_size", U64 " does not divide num_experts " U64,
                        ep, s->num_experts);
}

void sim_rule_topk_fits(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->num_experts != 0 && s->moe_router_topk > s->num_experts)
        sim_rule_broken(c, "moe_router_topk", U64 " is more than num_experts " U64,
                        s->moe_router_topk, s->num_experts);
}

/* MoELayer.forward() */
void sim_rule_experts_need_sequence_parallel(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->num_experts != 0 && s->tensor_model_parallel_size > 1 && !s->sequence_parallel)
        sim_rule_broken(c, "sequence_parallel",
                        "must be true to train experts with tensor_model_parallel_size > 1");
}

void sim_rule_expert_bias_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->num_experts == 0 || !s->add_bias_linear)
        return;
    if (s->moe_grouped_gemm && s->expert_tensor_parallel_size > 1)
        sim_rule_broken(c, "add_bias_linear",
                        "not with moe_grouped_gemm and expert_tensor_parallel_size > 1");
    if (s->moe_shared_expert_intermediate_size != 0)
        sim_rule_broken(c, "add_bias_linear", "not with shared experts");
    if (s->moe_grouped_gemm && s->bias_dropout_fusion)
        sim_rule_broken(c, "bias_dropout_fusion",
                        "must be false with moe_grouped_gemm and add_bias_linear");
}

void sim_rule_expert_width_is_divisible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t etp = s->expert_tensor_parallel_size;
    if (s->num_experts != 0 && (etp == 0 || s->moe_ffn_hidden_size % etp != 0))
        sim_rule_broken(c, "expert_tensor_parallel_size",
                        U64 " does not divide moe_ffn_hidden_size " U64, etp,
                        s->moe_ffn_hidden_size);
}

void sim_rule_shared_experts_fit(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t width = s->moe_shared_expert_intermediate_size;
    if (width == 0)
        return;
    if (s->num_experts == 0)
        sim_rule_broken(c, "moe_shared_expert_intermediate_size", "needs num_experts");
    else if (width % s->tensor_model_parallel_size != 0)
        sim_rule_broken(c, "moe_shared_expert_intermediate_size",
                        U64 " is not a multiple of tensor_model_parallel_size " U64, width,
                        s->tensor_model_parallel_size);
}

/* moe/experts.py, TEGroupedMLP */
void sim_rule_squared_relu_can_fuse(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->use_fused_weighted_squared_relu)
        return;
    if (s->activation_func != SIM_ACT_SQUARED_RELU || s->num_experts == 0 || !s->moe_grouped_gemm)
        sim_rule_broken(c, "use_fused_weighted_squared_relu",
                        "needs activation_func = squared_relu, num_experts and moe_grouped_gemm");
    if (s->add_bias_linear)
        sim_rule_broken(c, "use_fused_weighted_squared_relu", "needs add_bias_linear = false");
}

void sim_rule_shared_overlap_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->moe_shared_expert_overlap || s->moe_shared_expert_intermediate_size == 0)
        return;
    if (s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLGATHER)
        sim_rule_broken(c, "moe_shared_expert_overlap",
                        "needs moe_token_dispatcher_type = alltoall or flex");
    if (s->moe_latent_size != 0)
        sim_rule_broken(c, "moe_shared_expert_overlap", "not with moe_latent_size");
}

void sim_rule_capacity_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->moe_expert_capacity_factor <= 0.0)
        return;
    if (s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLGATHER)
        sim_rule_broken(c, "moe_expert_capacity_factor",
                        "needs moe_token_dispatcher_type = alltoall or flex");
    if (s->moe_router_load_balancing_type & (SIM_BALANCE_SINKHORN | SIM_BALANCE_QUANTILE))
        sim_rule_broken(c, "moe_expert_capacity_factor",
                        "needs moe_router_load_balancing_type aux_loss, seq_aux_loss, "
                        "global_aux_loss or none");
}

void sim_rule_padding_has_a_capacity(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->moe_pad_expert_input_to_capacity)
        return;
    if (s->moe_expert_capacity_factor <= 0.0)
        sim_rule_broken(c, "moe_pad_expert_input_to_capacity", "needs moe_expert_capacity_factor");
    if (s->moe_token_dispatcher_type == SIM_DISPATCHER_FLEX &&
        s->moe_flex_dispatcher_backend == SIM_FLEX_DEEPEP)
        sim_rule_broken(c, "moe_pad_expert_input_to_capacity", "not with the deepep dispatcher");
}

/* MoEFlexTokenDispatcher.__init__() */
void sim_rule_flex_has_ranks(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->num_experts != 0 && s->moe_token_dispatcher_type == SIM_DISPATCHER_FLEX &&
        s->expert_model_parallel_size * s->expert_tensor_parallel_size < 2)
        sim_rule_broken(c, "moe_token_dispatcher_type",
                        "flex needs expert_tensor_parallel_size * expert_model_parallel_size > 1");
}

void sim_rule_recomputed_modules_exist(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->recompute_granularity != SIM_RECOMPUTE_SELECTIVE)
        return;
    if ((s->recompute_modules & SIM_MODULE_MOE_ACT) && !s->moe_grouped_gemm)
        sim_rule_broken(c, "recompute_modules", "moe_act needs moe_grouped_gemm = true");
    if ((s->recompute_modules & SIM_MODULE_MLA_UP_PROJ) && !s->multi_latent_attention)
        sim_rule_broken(c, "recompute_modules", "mla_up_proj needs multi_latent_attention = true");
    if ((s->recompute_modules & SIM_MODULE_SHARED_EXPERTS) &&
        s->moe_shared_expert_intermediate_size != 0 && s->moe_shared_expert_overlap)
        sim_rule_broken(c, "recompute_modules",
                        "shared_experts not with moe_shared_expert_overlap");
}

/* transformer_config.py, __post_init__(). */
void sim_rule_ep_overlap_is_possible(sim_rule_context_t *c)
{
    static const char *const key = "overlap_moe_expert_parallel_comm";
    const sim_scenario_t *s = c->s;
    if (!s->overlap_moe_expert_parallel_comm)
        return;
    if (s->num_experts == 0 || s->expert_model_parallel_size == 1)
        sim_rule_broken(c, key, "needs expert_model_parallel_size > 1");
    if (s->moe_token_dispatcher_type == SIM_DISPATCHER_ALLGATHER)
        sim_rule_broken(c, key, "needs moe_token_dispatcher_type = alltoall or flex");
    if (s->recompute_granularity == SIM_RECOMPUTE_FULL)
        sim_rule_broken(c, key, "not with full recompute");
    if (s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE &&
        (s->recompute_modules & SIM_MODULE_MOE))
        sim_rule_broken(c, key, "not with recompute_modules moe");
    if (sim_scenario_params_dtype(s) == SIM_DTYPE_FP32)
        sim_rule_broken(c, key, "needs bf16 or fp16");
    if (s->moe_shared_expert_overlap)
        sim_rule_broken(c, key, "not with moe_shared_expert_overlap");
    if (s->overlap_dispatch_backward_with_experts_wgrad)
        sim_rule_broken(c, key, "not with overlap_dispatch_backward_with_experts_wgrad");
    if (s->mtp_num_layers > 1)
        sim_rule_broken(c, key, "not with mtp_num_layers > 1");
    if (s->pipeline_model_parallel_size > 1 && s->virtual_pipeline_model_parallel_size == 0)
        sim_rule_broken(c, key, "with a pipeline it needs a virtual one");
}

void sim_rule_ep_overlap_is_simulated(sim_rule_context_t *c)
{
    static const char *const key = "overlap_moe_expert_parallel_comm";
    const sim_scenario_t *s = c->s;
    if (!s->overlap_moe_expert_parallel_comm)
        return;
    if (s->pipeline_model_parallel_size > 1)
        sim_rule_broken(c, key, "with a pipeline it is not simulated");
    if (s->mtp_num_layers > 0)
        sim_rule_broken(c, key, "with mtp_num_layers it is not simulated");
    if (s->model_type != SIM_MODEL_GPT || s->hybrid_layer_pattern != NULL)
        sim_rule_broken(c, key, "is simulated with GPT models of Transformer layers only");
    if (s->use_megatron_fsdp || s->use_torch_fsdp2 || sim_is_titan(s))
        sim_rule_broken(c, key, "with fully sharded data parallelism it is not simulated");
    if (s->cuda_graph_impl != SIM_GRAPHS_NONE)
        sim_rule_broken(c, key, "with CUDA graphs it is not simulated");
    if (s->cpu_offloading || s->fine_grained_activation_offloading)
        sim_rule_broken(c, key, "with offloading of activations it is not simulated");
    if (s->peft_scheme != SIM_PEFT_NONE)
        sim_rule_broken(c, key, "with parameters that are not trained it is not simulated");
}

void sim_rule_mla_has_no_groups(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->multi_latent_attention)
        return;
    if (s->num_query_groups != s->num_attention_heads)
        sim_rule_broken(c, "num_query_groups",
                        "must be num_attention_heads with multi_latent_attention");
    if (s->attention_output_gate)
        sim_rule_broken(c, "attention_output_gate", "not with multi_latent_attention");
}

void sim_rule_down_projections_can_fuse(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->mla_down_proj_fusion && (!s->multi_latent_attention || s->q_lora_rank == 0))
        sim_rule_broken(c, "mla_down_proj_fusion", "needs multi_latent_attention and q_lora_rank");
}

void sim_rule_mtp_is_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->mtp_num_layers == 0)
        return;
    if (s->position_embedding_type == SIM_POS_LEARNED)
        sim_rule_broken(c, "mtp_num_layers", "needs position_embedding_type = rope or none");
    if (s->recompute_granularity == SIM_RECOMPUTE_FULL &&
        s->recompute_method == SIM_RECOMPUTE_UNIFORM && s->recompute_num_layers != 1)
        sim_rule_broken(c, "mtp_num_layers",
                        "needs recompute_num_layers = 1 with recompute_method = uniform");
}

uint64_t sim_widest_of_experts_and_mla(const sim_scenario_t *s)
{
    uint64_t widest = 1;
    if (s->num_experts != 0) {
        uint64_t expert = base_u64_max(2 * s->moe_ffn_hidden_size, s->hidden_size);
        widest = base_u64_max(s->moe_router_topk * expert, 2 * s->num_experts + 1);
        /* A factor of imbalance is at most the expert parallel size. */
        uint64_t ranks = s->expert_tensor_parallel_size * s->expert_model_parallel_size;
        if (!base_u64_mul(widest, ranks, &widest))
            return UINT64_MAX;
    }
    if (s->multi_latent_attention)
        widest =
            base_u64_max(widest, s->num_attention_heads *
                                     (s->qk_head_dim + s->qk_pos_emb_head_dim + s->v_head_dim));
    return widest;
}
