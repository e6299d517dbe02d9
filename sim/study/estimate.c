/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/estimate.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <string.h>

void sim_estimate_input(const sim_scenario_t *s, sim_estimate_input_t *in_p)
{
    *in_p = (sim_estimate_input_t){
        .num_layers = s->num_layers,
        .hidden_size = s->hidden_size,
        .ffn_hidden_size = s->ffn_hidden_size,
        .num_attention_heads = s->num_attention_heads,
        .num_query_groups = s->num_query_groups,
        .kv_channels = s->kv_channels,
        .gated = s->activation_func == SIM_ACT_SWIGLU,
        .rmsnorm = s->normalization == SIM_NORM_RMSNORM,
        .untie = s->untie_embeddings_and_output_weights,
        .add_bias_linear = s->add_bias_linear,
        .padded_vocab_size = s->padded_vocab_size,
        .world_size = s->world_size,
        .tp = s->tensor_model_parallel_size,
        .pp = s->pipeline_model_parallel_size,
        .cp = s->context_parallel_size,
        .ep = s->expert_model_parallel_size,
        .etp = s->expert_tensor_parallel_size,
        .vpp = s->virtual_pipeline_model_parallel_size,
        .first_stage = s->decoder_first_pipeline_num_layers,
        .last_stage = s->decoder_last_pipeline_num_layers,
        .use_distributed_optimizer = s->use_distributed_optimizer,
        .seq_length = s->seq_length,
        .micro_batch_size = s->micro_batch_size,
        .n_microbatches = s->n_microbatches,
        .sequence_parallel = s->sequence_parallel,
        .recompute_selective = s->recompute_granularity == SIM_RECOMPUTE_SELECTIVE,
    };
}

static double mib(double bytes)
{
    return bytes / (double)BASE_MIB;
}

char *sim_estimate_megatron_line(const sim_estimate_t *e)
{
    return base_xasprintf("Theoretical memory footprints: weight and optimizer=%.2f MB, "
                          "activation=%.2f MB, total=%.2f MB",
                          mib(e->weight_and_optimizer_bytes), mib(e->activation_bytes),
                          mib(e->total_bytes));
}

char *sim_estimate_bridge_line(const sim_estimate_bridge_t *e)
{
    double weights = e->dense_bytes + e->routed_bytes;
    if (!e->prints_activation)
        return base_xasprintf("Theoretical memory footprints: weight and optimizer=%.2f MB",
                              mib(weights));
    return base_xasprintf("Theoretical memory footprints: weight and optimizer=%.2f MB, "
                          "activation=%.2f MB, total=%.2f MB",
                          mib(weights), mib(e->activation_bytes),
                          mib(weights + e->activation_bytes));
}
