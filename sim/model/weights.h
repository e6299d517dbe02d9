/* SPDX-License-Identifier: Apache-2.0
 * Gradients of weights that are computed after the backward pass, in one of their own.
 *
 * Transformer Engine's linears keep the two operands of the product as they are then, gathered and
 * quantised (TransformerEngine 2.20 pytorch/module/{linear,layernorm_linear,grouped_linear}.py,
 * wgrad_store.put()), and a grouped one the gradients too. Megatron-LM's own linears in sail-sg's
 * fork keep their input as it was saved and gather it again, and the output layer is one of them
 * (tensor_parallel/layers.py, WeightGradStore.put()). Gradients of norms, biases, routers and the
 * embedding are computed in the backward pass, and with Transformer Engine that of the output
 * layer, which is Megatron-LM's. */
#ifndef SIM_MODEL_WEIGHTS_H
#define SIM_MODEL_WEIGHTS_H

#include "sim/model/layer.h"
#include "sim/model/quant.h"

/* Who multiplies. */
typedef enum { SIM_WEIGHT_BY_TE, SIM_WEIGHT_BY_TE_GROUPED, SIM_WEIGHT_BY_TORCH } sim_weight_gemm_t;

enum { SIM_MAX_OPERANDS = 8 };

/* One product. */
typedef struct {
    uint16_t layer;
    uint8_t module;
    uint8_t gemm;          /* sim_weight_gemm_t */
    uint64_t gather_bytes; /* input that is gathered again into the global buffer; 0 = it is not */
    sim_ref_t operands[SIM_MAX_OPERANDS];
    uint32_t n_operands;
} sim_weight_work_t;

typedef struct sim_weights_later {
    sim_weight_work_t *works; /* in the order of the backward pass; n of them, owned */
    uint32_t n, cap;
    uint32_t borders; /* bit i: a product reads the tensor in fixed slot i */
} sim_weights_later_t;

/* Whether the pass that is being built leaves gradients of weights for later. */
static inline bool sim_leaves_weights(const sim_model_t *m)
{
    return m->later != NULL;
}

sim_weight_work_t sim_weight_work(const sim_model_t *m, bool is_grouped);

/* An operand: kept for later, or, in a pass that leaves nothing, dropped. SIM_REF_NONE is ignored.
 */
void sim_weight_operand(sim_model_t *m, sim_weight_work_t *work, sim_ref_t ref);
void sim_weight_operands(sim_model_t *m, sim_weight_work_t *work, sim_quantized_t *q);

/* All operands are named. */
void sim_weight_later(sim_model_t *m, const sim_weight_work_t *work);

/* Write the products that wait to the tape. */
void sim_weights_compute(sim_model_t *m);

/* overlap_dispatch_backward_with_experts_wgrad: from begin to end grouped linears leave their
 * gradients of weights, which are computed beside the backward pass of the tokens' dispatch
 * (moe/moe_layer.py, _RegisterDelayedWgradForExperts). Nothing happens without it. */
void sim_experts_weights_begin(sim_model_t *m, sim_weights_later_t *later);
void sim_experts_weights_end(sim_model_t *m);
void sim_experts_weights_compute(sim_model_t *m);

void sim_weights_later_fini(sim_weights_later_t *later);

#endif
