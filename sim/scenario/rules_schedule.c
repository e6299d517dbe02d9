/* SPDX-License-Identifier: Apache-2.0
 * Rules of pipeline schedules that split the backward pass: sail-sg's Megatron-LM fork
 * (zbpp_utils.py, validate_arguments() and WeightGradStore.is_supported()), deepseek-ai/DualPipe
 * (step()), TransformerEngine (module/linear.py: no user buffers with delayed gradients of
 * weights), and what is not simulated. Splits of layers are refused with the stages. */
#include "config.h"

#include "sim/scenario/rules.h"

#include <inttypes.h>

#define U64 "%" PRIu64

static const char key[] = "pipeline_schedule";

static void pipeline_fits(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t m = s->n_microbatches, pp = s->pipeline_model_parallel_size;
    bool is_dualpipe = s->pipeline_schedule == SIM_SCHEDULE_DUALPIPE;
    if (pp == 1)
        sim_rule_broken(c, key, "needs pipeline_model_parallel_size > 1");
    if (is_dualpipe && pp % 2 != 0)
        sim_rule_broken(c, key, "dualpipe needs an even pipeline_model_parallel_size, not " U64,
                        pp);
    if (is_dualpipe && m % 2 != 0)
        sim_rule_broken(c, key,
                        "dualpipe needs an even number of micro-batches, half for each direction, "
                        "not " U64,
                        m);
    if ((is_dualpipe || s->pipeline_schedule == SIM_SCHEDULE_DUALPIPEV) && m > 0 && m < 2 * pp)
        sim_rule_broken(c, key,
                        "dualpipe and dualpipev need at least twice as many micro-batches as "
                        "pipeline_model_parallel_size " U64 "; a step has " U64,
                        pp, m);
}

static void gradients_fit(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (!s->gradient_accumulation_fusion)
        sim_rule_broken(c, key, "needs gradient_accumulation_fusion = true");
    if (s->overlap_grad_reduce)
        sim_rule_broken(c, key, "needs overlap_grad_reduce = false");
    if (!s->untie_embeddings_and_output_weights)
        sim_rule_broken(c, key, "needs untie_embeddings_and_output_weights = true");
    if (s->defer_embedding_wgrad_compute)
        sim_rule_broken(c, key, "does not go with defer_embedding_wgrad_compute = true");
    if (s->tp_comm_overlap)
        sim_rule_broken(c, key,
                        "does not go with tp_comm_overlap = true: Transformer Engine delays no "
                        "gradients of weights with user buffers");
}

static void the_rest_is_simulated(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->use_megatron_fsdp || s->use_torch_fsdp2)
        sim_rule_broken(c, key, "other than 1f1b is not simulated with fully sharded parallelism");
    if (s->peft_scheme != SIM_PEFT_NONE)
        sim_rule_broken(c, key, "other than 1f1b is not simulated with adapters");
    if (s->fine_grained_activation_offloading)
        sim_rule_broken(c, key,
                        "other than 1f1b is not simulated with fine_grained_activation_offloading");
    if (s->mtp_num_layers > 0)
        sim_rule_broken(c, key, "other than 1f1b is not simulated with mtp_num_layers");
    if (s->model_type != SIM_MODEL_GPT)
        sim_rule_broken(c, key, "other than 1f1b is not simulated with this model_type");
    if (s->microbatch_group_size_per_virtual_pipeline_stage != s->pipeline_model_parallel_size)
        sim_rule_broken(c, "microbatch_group_size_per_virtual_pipeline_stage",
                        "is for pipeline_schedule = 1f1b");
    if (s->overlap_p2p_communication_warmup_flush)
        sim_rule_broken(c, key, "does not go with overlap_p2p_communication_warmup_flush = true");
}

/* Megatron-LM extensions/transformer_engine.py, TEGroupedLinear: no other linear is asked to delay.
 */
void sim_rule_experts_can_be_delayed(sim_rule_context_t *c)
{
    static const char delay[] = "overlap_dispatch_backward_with_experts_wgrad";
    const sim_scenario_t *s = c->s;
    if (!s->overlap_dispatch_backward_with_experts_wgrad)
        return;
    if (s->num_experts == 0 || !s->moe_grouped_gemm ||
        s->transformer_impl != SIM_IMPL_TRANSFORMER_ENGINE)
        sim_rule_broken(c, delay,
                        "needs num_experts, moe_grouped_gemm = true and transformer_impl = "
                        "transformer_engine");
    if (sim_schedule_splits(s->pipeline_schedule))
        sim_rule_broken(c, delay, "is for pipeline_schedule = 1f1b");
    if (s->peft_scheme != SIM_PEFT_NONE)
        sim_rule_broken(c, delay, "is not simulated with adapters");
    if (s->use_megatron_fsdp)
        sim_rule_broken(c, delay, "is not simulated with use_megatron_fsdp = true");
}

void sim_rule_backward_can_be_split(sim_rule_context_t *c)
{
    if (!sim_schedule_splits(c->s->pipeline_schedule))
        return;
    pipeline_fits(c);
    gradients_fit(c);
    the_rest_is_simulated(c);
}
