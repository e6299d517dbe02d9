/* SPDX-License-Identifier: Apache-2.0
 * What changed over time in Megatron-LM, Transformer Engine and PyTorch and moves memory. A
 * scenario says with run.software_date (YYYYMMDD) of what day its software is: the state of
 * Megatron-LM's main branch and of the container that its tests ran in; not given = the newest. */
#ifndef SIM_MODEL_SOFTWARE_H
#define SIM_MODEL_SOFTWARE_H

#include "sim/scenario/scenario.h"

#include <stdbool.h>

typedef enum {
    /* Transformer Engine hands autograd one kept dummy per weight shape. */
    SIM_SOFTWARE_TE_DUMMY_WGRAD,
    /* Megatron's output layer does the same. */
    SIM_SOFTWARE_OUTPUT_DUMMY_WGRAD,
    /* The data iterator's saved micro-batches hold the tensors on the GPU. */
    SIM_SOFTWARE_SAVED_BATCHES_ON_GPU,
    /* PyTorch's default cuBLAS workspace on Blackwell is Hopper's. */
    SIM_SOFTWARE_BLACKWELL_WORKSPACE,
    /* Megatron's cross entropy works in place on one fp32 copy of the logits. */
    SIM_SOFTWARE_CROSS_ENTROPY_IN_PLACE,
    /* Transformer Engine's norms read a contiguous copy of a strided input. */
    SIM_SOFTWARE_NORM_COPIES_VIEWS,
    /* Transformer Engine's Adam reads and writes two bf16 moments as they are stored. */
    SIM_SOFTWARE_ADAM_BF16_MOMENTS,
    /* The layer-wise optimizer's matrices have a buffer of their own, laid out for it. */
    SIM_SOFTWARE_LAYER_WISE_LAYOUT,
    /* That layout balances the cost of updates and fills its padding. */
    SIM_SOFTWARE_LAYER_WISE_BY_COST,
    /* torchtitan: embedding and output layer (with the norm) are FSDP units, not the root's. */
    SIM_SOFTWARE_TITAN_UNITS_OF_ENDS,
    /* torchtitan: AdamW is fused unless asked otherwise. */
    SIM_SOFTWARE_TITAN_FUSED_ADAMW,
    /* torchtitan: cuDNN's attention comes first on Blackwell. */
    SIM_SOFTWARE_TITAN_CUDNN_ON_BLACKWELL,
    /* torchtitan: selective checkpointing keeps the result of any attention kernel. */
    SIM_SOFTWARE_TITAN_KEEPS_ALL_ATTENTION,
    /* Transformer Engine warms up all layers as the schedule runs them before it captures graphs.
     */
    SIM_SOFTWARE_GRAPH_WARMUP_IN_ORDER,
} sim_software_t;

bool sim_software_has(const sim_scenario_t *scenario, sim_software_t feature);

#endif
