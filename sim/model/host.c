/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/host.h"

#include "sim/model/quant.h"

#include <string.h>

/* Milliseconds of a layer's forward and backward pass together, from the iteration times of
 * Megatron-LM's functional tests (golden_values_*.json), whose 12 layers of 512 are far too small
 * to keep a GPU busy; on DGX A100, DGX H100 and GB200.
 * dense: jobs of one micro-batch and of four differ by 36 passes, which take from 78 to 296, 53 to
 * 203 and 67 to 285 ms more.
 * quantized: FP8 with current scaling on four ranks in two stages, 33 slots of 6 layers: 1134 and
 * 1435 ms.
 * experts: their dispatcher waits for counts of tokens; 24 passes of 8 experts on two ranks take
 * 292, 301 and 252 ms. */
typedef struct {
    double dense_ms, quantized_ms, experts_ms;
} layer_time_t;

static layer_time_t layer_times(const sim_scenario_t *s)
{
    static const layer_time_t a100 = { 6.05, 6.05, 12.0 }, h100 = { 4.15, 5.73, 12.4 };
    static const layer_time_t grace = { 6.05, 7.25, 10.4 };
    const topo_gpu_t *gpu = s->gpu_p;
    layer_time_t time = gpu->sm < 90 ? a100 : strncmp(gpu->name, "gb", 2) == 0 ? grace : h100;
    if (s->host_us_per_layer > 0) {
        double scale = (double)s->host_us_per_layer / 1e3 / time.dense_ms;
        time = (layer_time_t){ time.dense_ms * scale, time.quantized_ms * scale,
                               time.experts_ms * scale };
    }
    return time;
}

static double layer_seconds(const layer_time_t *time, bool has_experts, bool is_quantized)
{
    double more = is_quantized ? time->quantized_ms - time->dense_ms : 0;
    return ((has_experts ? time->experts_ms : time->dense_ms) + more) * 1e-3;
}

/* What CUDA graphs leave of a layer's time: nothing of whole layers, of which one launch remains;
 * attention and the MLP or the experts are taken for a half each, parts of these for nothing. */
static double left_by_graphs(const sim_scenario_t *s)
{
    uint32_t modules = s->cuda_graph_modules;
    if (s->cuda_graph_impl == SIM_GRAPHS_NONE)
        return 1;
    if (s->cuda_graph_impl == SIM_GRAPHS_FULL_ITERATION || modules == 0)
        return 0;
    bool has_attention = modules & SIM_CUDA_GRAPH_ATTN;
    bool has_rest = modules & (SIM_CUDA_GRAPH_MLP | SIM_CUDA_GRAPH_MOE);
    return 1 - 0.5 * has_attention - 0.5 * has_rest;
}

static bool is_recomputed(const sim_scenario_t *s, uint32_t index_in_chunk)
{
    if (s->recompute_granularity != SIM_RECOMPUTE_FULL)
        return false;
    return s->recompute_method != SIM_RECOMPUTE_BLOCK || index_in_chunk < s->recompute_num_layers;
}

sim_host_cost_t sim_host_pass(const sim_scenario_t *s, const topo_chunk_t *chunk)
{
    layer_time_t times = layer_times(s);
    sim_host_cost_t cost = { 0 };
    for (uint32_t i = 0; i < chunk->n_layers; i++) {
        uint32_t layer = chunk->first_layer + i;
        bool has_experts = s->num_experts > 0 && s->layer_is_moe[layer];
        double half = layer_seconds(&times, has_experts, sim_layer_is_quantized(s, layer)) / 2;
        half *= left_by_graphs(s);
        cost.forward += half;
        cost.backward += is_recomputed(s, i) ? 2 * half : half;
    }
    bool has_decoder = chunk->has_loss && s->model_type == SIM_MODEL_T5;
    double others =
        chunk->n_mtp_layers * layer_seconds(&times, s->num_experts > 0, sim_is_quantized(s)) +
        (has_decoder ? (double)s->decoder_num_layers * layer_seconds(&times, false, false) : 0);
    cost.forward += others / 2;
    cost.backward += others / 2;
    return cost;
}
