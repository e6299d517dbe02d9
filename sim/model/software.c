/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/software.h"

static const struct {
    uint32_t from, until; /* YYYYMMDD, `until` not included; 0 = open */
} features[] = {
    /* TransformerEngine ba5dc5dde (2025-04-08), in the containers from 25.05 on: a run of June 2025
     * holds the dummies of the layers, one of April 2025 does not. */
    [SIM_SOFTWARE_TE_DUMMY_WGRAD] = { 20250530, 0 },
    /* Megatron-LM e7c55de99e (2025-08-01), tensor_parallel/layers.py. */
    [SIM_SOFTWARE_OUTPUT_DUMMY_WGRAD] = { 20250801, 0 },
    /* Megatron-LM 5e4fc931ba (2026-05-21) moves a batch to the GPU inside the dictionary that
     * RerunDataIterator has saved (a run recorded that day was without); bf32f4415e (2026-07-06)
     * saves a copy. */
    [SIM_SOFTWARE_SAVED_BATCHES_ON_GPU] = { 20260522, 20260709 },
    /* Measured: without CUBLAS_WORKSPACE_CONFIG a GB200 holds 47.75 MiB less than an H100 in the
     * containers up to 26.02, and the same in 26.04. */
    [SIM_SOFTWARE_BLACKWELL_WORKSPACE] = { 20260501, 0 },
    /* Megatron-LM 9634c0e4a3. Before, the caller's fp32 copy and a shifted one existed together. */
    [SIM_SOFTWARE_CROSS_ENTROPY_IN_PLACE] = { 20240613, 0 },
    /* TransformerEngine 77c37d49f: norms became operations of te.ops. */
    [SIM_SOFTWARE_NORM_COPIES_VIEWS] = { 20241105, 0 },
    /* TransformerEngine 459e7cf49 (2026-02-25), in release 2.14 and the container 26.04. */
    [SIM_SOFTWARE_ADAM_BF16_MOMENTS] = { 20260501, 0 },
    /* Megatron-LM 0044db1f20; the week before (c1e938b039) all parameters were in that layout. */
    [SIM_SOFTWARE_LAYER_WISE_LAYOUT] = { 20260520, 0 },
    /* Megatron-LM e0ccd26776 (2026-08-11), 85344907be (2026-08-12). */
    [SIM_SOFTWARE_LAYER_WISE_BY_COST] = { 20260812, 0 },
    /* torchtitan 83e694105. */
    [SIM_SOFTWARE_TITAN_UNITS_OF_ENDS] = { 20250728, 0 },
    /* torchtitan 6e4988550. */
    [SIM_SOFTWARE_TITAN_FUSED_ADAMW] = { 20250224, 0 },
    /* torchtitan 3b85aa31f. */
    [SIM_SOFTWARE_TITAN_CUDNN_ON_BLACKWELL] = { 20250514, 0 },
    /* torchtitan b39377f9f. */
    [SIM_SOFTWARE_TITAN_KEEPS_ALL_ATTENTION] = { 20251201, 0 },
    /* TransformerEngine 4e755d888 (2026-07-30), pytorch/graph.py; in the next container. */
    [SIM_SOFTWARE_GRAPH_WARMUP_IN_ORDER] = { 20260830, 0 },
};

bool sim_software_has(const sim_scenario_t *scenario, sim_software_t feature)
{
    uint64_t date = scenario->software_date > 0 ? scenario->software_date : UINT32_MAX;
    return date >= features[feature].from &&
           (features[feature].until == 0 || date < features[feature].until);
}
