/* SPDX-License-Identifier: Apache-2.0
 * Rules of what is played: lengths of micro-batches, and moments beside the steps. */
#include "config.h"

#include "sim/scenario/rules.h"

#include <inttypes.h>

#define U64 "%" PRIu64

/* Micro-batches of different lengths: what has not been thought through for them is refused. */
void sim_rule_lengths_are_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    uint64_t mean = s->mean_seq_length;
    if ((s->moments & SIM_MOMENT_LONGEST_BATCH) && mean == 0)
        sim_rule_broken(c, "moments", "longest_batch needs mean_seq_length");
    if (mean == 0)
        return;
    if (mean > s->seq_length)
        sim_rule_broken(c, "mean_seq_length", U64 " is more than seq_length " U64 ", the longest",
                        mean, s->seq_length);
    uint64_t least = 2 * s->tensor_model_parallel_size * s->context_parallel_size;
    if (s->seq_length % (2 * least) != 0)
        sim_rule_broken(c, "mean_seq_length",
                        "needs a seq_length that can be halved: a multiple of " U64, 2 * least);
    if (s->expert_model_parallel_size > 1 || s->use_megatron_fsdp || s->use_torch_fsdp2 ||
        s->framework != SIM_FRAMEWORK_MEGATRON || s->model_type != SIM_MODEL_GPT)
        sim_rule_broken(c, "mean_seq_length",
                        "is simulated with framework = megatron and model_type = gpt, without "
                        "expert parallelism and FSDP");
    if (sim_schedule_splits(s->pipeline_schedule) || s->cuda_graph_impl != SIM_GRAPHS_NONE)
        sim_rule_broken(c, "mean_seq_length",
                        "needs pipeline_schedule = 1f1b, and no CUDA graphs: their tensors have "
                        "one size");
}

void sim_rule_moments_are_possible(sim_rule_context_t *c)
{
    const sim_scenario_t *s = c->s;
    if (s->distrib_optim_fully_reshardable_mem_efficient && !s->dist_ckpt_optim_fully_reshardable)
        sim_rule_broken(c, "distrib_optim_fully_reshardable_mem_efficient",
                        "needs dist_ckpt_optim_fully_reshardable = true");
    if (s->moments == 0)
        return;
    bool is_megatrons = s->framework == SIM_FRAMEWORK_MEGATRON && !s->use_megatron_fsdp &&
                        !s->use_torch_fsdp2 && !s->optimizer_cpu_offload;
    if (!is_megatrons)
        sim_rule_broken(c, "moments",
                        "are simulated with framework = megatron, without FSDP and "
                        "optimizer_cpu_offload");
    uint32_t late = s->moments &
                    (SIM_MOMENT_EVALUATION | SIM_MOMENT_CHECKPOINT_SAVE | SIM_MOMENT_LONGEST_BATCH);
    if (late != 0 && s->iterations < 2)
        sim_rule_broken(c, "moments", "come after the second step: iterations must be at least 2");
    if ((s->moments & SIM_MOMENT_EVALUATION) &&
        (s->model_type != SIM_MODEL_GPT || s->mtp_num_layers > 0))
        sim_rule_broken(c, "moments",
                        "evaluation is simulated with model_type = gpt and without "
                        "multi-token prediction");
    if ((s->moments & SIM_MOMENT_EVALUATION) &&
        (sim_schedule_splits(s->pipeline_schedule) || s->cuda_graph_impl != SIM_GRAPHS_NONE))
        sim_rule_broken(c, "moments",
                        "evaluation is simulated with pipeline_schedule = 1f1b and without "
                        "CUDA graphs");
}
