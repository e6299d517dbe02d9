/* SPDX-License-Identifier: Apache-2.0
 * What the host needs to start the kernels of a pass, in seconds: Python, PyTorch and Transformer
 * Engine, layer by layer, whatever the layer's size. Where kernels are short the GPU waits for it.
 */
#ifndef SIM_MODEL_HOST_H
#define SIM_MODEL_HOST_H

#include "sim/scenario/scenario.h"

typedef struct {
    double forward, backward; /* a backward pass has what is recomputed in it */
} sim_host_cost_t;

sim_host_cost_t sim_host_pass(const sim_scenario_t *scenario, const topo_chunk_t *chunk);

#endif
