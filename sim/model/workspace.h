/* SPDX-License-Identifier: Apache-2.0
 * Workspaces of the GEMM libraries: made at the first use, never freed. */
#ifndef SIM_MODEL_WORKSPACE_H
#define SIM_MODEL_WORKSPACE_H

#include "sim/scenario/scenario.h"

#include <stdint.h>

/* Transformer Engine's own, one a process. `sm` = compute capability, 90 = 9.0. */
uint64_t sim_te_workspace_bytes(uint32_t sm);

/* PyTorch's for cuBLAS, one per thread (forward and autograd) and stream. A
 * CUBLAS_WORKSPACE_CONFIG such as ":4096:8" means eight buffers of 4096 KiB; pairs can follow each
 * other. Without one, or with a text that PyTorch cannot read, it is the default of the GPU. */
uint64_t sim_torch_workspace_bytes(const sim_scenario_t *scenario);

#endif
