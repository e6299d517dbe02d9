/* SPDX-License-Identifier: Apache-2.0
 * CUDA graphs of a rank: when they are captured, in which order, and what stays.
 *
 * Sources: Megatron-LM (mcore 0.20) transformer/cuda_graphs.py (TECudaGraphHelper,
 * _CudagraphGlobalRecord), full_cuda_graph.py, training/training.py; TransformerEngine 2.20
 * pytorch/graph.py (make_graphed_callables); PyTorch torch/cuda/graphs.py (graph: its cache is
 * emptied before every capture). */
#ifndef SIM_ENGINE_GRAPHS_H
#define SIM_ENGINE_GRAPHS_H

#include "sim/engine/player.h"

/* All graphs of a rank share one memory pool. */
enum { SIM_CUDA_GRAPH_POOL = 1 };

/* Before the rank is played: the stream that it begins on. */
void sim_graphs_init(sim_player_t *p);

/* Before `iteration` (from 1) begins, before its passes, and after them, before the optimizer step.
 * False as for other parts of a run. */
bool sim_graphs_before_iteration(sim_player_t *p, uint32_t iteration);
bool sim_graphs_before_passes(sim_player_t *p, uint32_t iteration);
bool sim_graphs_after_passes(sim_player_t *p, uint32_t iteration);

/* Whether the passes of `iteration` allocate as those of the one before. */
bool sim_graphs_are_settled(const sim_player_t *p, uint32_t iteration);

#endif
