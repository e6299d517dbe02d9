/* SPDX-License-Identifier: Apache-2.0
 * Which part of a layer a CUDA graph holds. With Transformer Engine's graphs it is one stretch of
 * the layer, from attention or from the MLP on, to the end of one of them or to a place within the
 * experts (megatron/core/transformer/transformer_layer.py, _te_cuda_graph_capture(); moe_utils.py,
 * maybe_skip_or_early_return_by_cudagraph()). Megatron-LM's own graphs hold whole layers
 * (create_mcore_cudagraph_manager()). */
#ifndef SIM_MODEL_CUDA_GRAPH_H
#define SIM_MODEL_CUDA_GRAPH_H

#include "sim/model/transformer_layer.h"

typedef struct {
    bool attention, mlp; /* or Mamba, in the place of both */
} sim_cuda_graph_parts_t;

/* Whether the job has graphs of layers. */
bool sim_has_layer_graphs(const sim_scenario_t *scenario);

/* What a graph of this layer holds, if graphs are being written; `mlp` may mean its first part. */
sim_cuda_graph_parts_t sim_cuda_graph_parts(const sim_model_t *m, const sim_layer_save_t *save);

/* Open the layer's graph for its attention (or Mamba) part, or for its MLP. */
sim_ref_t sim_cuda_graph_begin_layer(sim_model_t *m, sim_layer_save_t *save, sim_ref_t x,
                                     bool has_attention);

/* Open it again for the gradient `d_out` of its output. */
void sim_cuda_graph_begin_layer_backward(sim_model_t *m, const sim_layer_save_t *save,
                                         sim_ref_t d_out);

/* Whether the layer's graph ends within its experts. */
bool sim_cuda_graph_ends_in_experts(const sim_model_t *m);

/* The router, and then what prepares tokens to be sent, is done: close the graph that ends there.
 */
void sim_cuda_graph_end_router(sim_model_t *m);
void sim_cuda_graph_end_preprocess(sim_model_t *m);

/* The gradients reach it from the other side. `rows_bytes` and `probs_bytes` are the sizes of what
 * the graph gave to be sent. */
void sim_cuda_graph_begin_preprocess_backward(sim_model_t *m, uint64_t rows_bytes,
                                              uint64_t probs_bytes);
void sim_cuda_graph_begin_router_backward(sim_model_t *m);

#endif
