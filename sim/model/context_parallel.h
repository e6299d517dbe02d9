/* SPDX-License-Identifier: Apache-2.0
 * Core attention under context parallelism: how q, k and v travel between the ranks.
 * TransformerEngine pytorch/attention/dot_product_attention/context_parallel.py. */
#ifndef SIM_MODEL_CONTEXT_PARALLEL_H
#define SIM_MODEL_CONTEXT_PARALLEL_H

#include "sim/model/layer.h"

/* One attention's core. */
typedef struct {
    uint64_t q_bytes, k_bytes, v_bytes, out_bytes; /* of this rank's tokens and heads */
    sim_ref_t *q, *k, *v; /* what it is given, none = views; then what it saves */
    sim_ref_t *out, *lse; /* what it saves of its results */
} sim_cp_t;

/* Returns the context, one reference. */
sim_ref_t sim_cp_forward(sim_model_t *m, const sim_cp_t *core);

/* Gradients of q, k, v in *q_p, *k_p, *v_p. Takes the context's gradient. The caller drops what was
 * saved, but for the output. */
void sim_cp_backward(sim_model_t *m, const sim_cp_t *core, sim_ref_t d_out, sim_ref_t *q_p,
                     sim_ref_t *k_p, sim_ref_t *v_p);

#endif
