/* SPDX-License-Identifier: Apache-2.0
 * Layout of the layer-wise optimizer's buffers: the slices of a bucket end between parameters.
 * Megatron-LM megatron/core/optimizer/layer_wise_optimizer.py,
 * _compute_per_buffer_param_layout(). */
#ifndef SIM_MODEL_WHOLE_BUFFER_H
#define SIM_MODEL_WHOLE_BUFFER_H

#include "sim/model/ddp_buffer.h"

/* As sim_ddp_buffer_init(), for the parameters of kind `which`. */
void sim_whole_buffer_init(sim_ddp_buffer_t *buffer, const sim_params_t *params, sim_buffer_t which,
                           const sim_ddp_config_t *config);

#endif
