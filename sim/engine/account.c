/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/account.h"

static const char *const phase_names[SIM_N_PHASES] = {
    [SIM_PHASE_MODEL_BUILD] = "model build",
    [SIM_PHASE_DDP_WRAP] = "ddp wrap",
    [SIM_PHASE_OPTIMIZER_BUILD] = "optimizer build",
    [SIM_PHASE_FORWARD] = "forward",
    [SIM_PHASE_BACKWARD] = "backward",
    [SIM_PHASE_WEIGHT_GRAD] = "weight gradients",
    [SIM_PHASE_GRAD_SYNC] = "gradient sync",
    [SIM_PHASE_OPTIMIZER_STEP] = "optimizer step",
    [SIM_PHASE_GRAPH_CAPTURE] = "graph capture",
    [SIM_PHASE_CHECKPOINT_LOAD] = "checkpoint load",
    [SIM_PHASE_EVALUATION] = "evaluation",
    [SIM_PHASE_CHECKPOINT_SAVE] = "checkpoint save",
};

const char *sim_phase_name(sim_phase_t phase)
{
    return phase_names[phase];
}

uint64_t sim_holders_category(const sim_holders_t *holders, sim_category_t category)
{
    uint64_t sum = 0;
    for (int module = 0; module < SIM_N_MODULES; module++)
        sum += holders->bytes[category][module];
    return sum;
}

uint64_t sim_holders_module(const sim_holders_t *holders, sim_module_t module)
{
    uint64_t sum = 0;
    for (int category = 0; category < SIM_N_CATEGORIES; category++)
        sum += holders->bytes[category][module];
    return sum;
}

uint64_t sim_holders_total(const sim_holders_t *holders)
{
    uint64_t sum = 0;
    for (int category = 0; category < SIM_N_CATEGORIES; category++)
        sum += sim_holders_category(holders, (sim_category_t)category);
    return sum;
}
