/* SPDX-License-Identifier: Apache-2.0
 * Core attention under context parallelism: how q, k and v travel between the ranks.
 * TransformerEngine pytorch/attention/dot_product_attention/context_parallel.py. */
#ifndef SIM_MODEL_CONTEXT_PARALLEL_H
#define SIM_MODEL_CONTEXT_PARALLEL_H

#include "sim/model/layer.h"

/* Forward with the inputs of `save` (none = views, made contiguous by the caller). Returns the
 * context, one reference; what backward needs is left in `save`. */
sim_ref_t sim_cp_forward(sim_model_t *m, sim_attention_save_t *save);

/* Gradients of q, k, v in *q_p, *k_p, *v_p. Takes the context's gradient. */
void sim_cp_backward(sim_model_t *m, sim_attention_save_t *save, sim_ref_t d_out, sim_ref_t *q_p,
                     sim_ref_t *k_p, sim_ref_t *v_p);

#endif
