/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/tensor.h"

static const char *const category_names[SIM_N_CATEGORIES] = {
    [SIM_CAT_PARAMETERS] = "parameters", [SIM_CAT_GRADIENTS] = "gradients",
    [SIM_CAT_OPTIMIZER] = "optimizer",   [SIM_CAT_ACTIVATIONS] = "activations",
    [SIM_CAT_TEMPORARY] = "temporary",   [SIM_CAT_WORKSPACE] = "workspace",
    [SIM_CAT_PIPELINE] = "pipeline",     [SIM_CAT_DATA] = "data",
    [SIM_CAT_GRAPHS] = "graph_buffers",
};

static const char *const module_names[SIM_N_MODULES] = {
    [SIM_MOD_EMBEDDING] = "embedding",
    [SIM_MOD_QKV] = "qkv",
    [SIM_MOD_ATTENTION] = "attention",
    [SIM_MOD_PROJ] = "proj",
    [SIM_MOD_RESIDUAL] = "residual",
    [SIM_MOD_FC1] = "fc1",
    [SIM_MOD_ACTIVATION] = "activation",
    [SIM_MOD_FC2] = "fc2",
    [SIM_MOD_ROUTER] = "router",
    [SIM_MOD_DISPATCH] = "dispatch",
    [SIM_MOD_EXPERTS] = "experts",
    [SIM_MOD_SHARED_EXPERTS] = "shared_experts",
    [SIM_MOD_MAMBA] = "mamba",
    [SIM_MOD_DELTA_NET] = "delta_net",
    [SIM_MOD_MTP] = "mtp",
    [SIM_MOD_FINAL_NORM] = "final_norm",
    [SIM_MOD_OUTPUT] = "output_layer",
    [SIM_MOD_LOSS] = "loss",
    [SIM_MOD_PIPELINE] = "pipeline",
    [SIM_MOD_DATA] = "data",
    [SIM_MOD_DDP] = "ddp",
    [SIM_MOD_OPTIMIZER] = "optimizer",
    [SIM_MOD_LIBRARY] = "library",
};

const char *sim_category_name(sim_category_t category)
{
    return category_names[category];
}

const char *sim_module_name(sim_module_t module)
{
    return module_names[module];
}
