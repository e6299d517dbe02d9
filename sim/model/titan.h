/* SPDX-License-Identifier: Apache-2.0
 * Inventory of a model as torchtitan trains it: plain PyTorch modules (nn.Linear, RMSNorm, complex
 * rotary embedding, scaled dot product attention), FSDP2 around each block.
 *
 * Sources: torchtitan models/llama3/model (model.py), parallelize_llama (apply_ac, apply_tp,
 * apply_compile, apply_fsdp), components/loss.py; PyTorch tools/autograd/derivatives.yaml. */
#ifndef SIM_MODEL_TITAN_H
#define SIM_MODEL_TITAN_H

#include "sim/model/chunk.h"
#include "sim/model/graph.h"

/* Parameters in the order in which torchtitan's modules register them. */
void sim_titan_params_init(sim_params_t *params, const sim_scenario_t *scenario,
                           const sim_dims_t *dims, const topo_chunk_t *place);

/* Embedding, final norm and output layer belong to FSDP's root, gathered and reduced as one. */
bool sim_titan_root_has_ends(const sim_scenario_t *scenario);

/* A Transformer block, forward and backward; its linears in FP8 or FP4, as the scenario says, or in
 * bf16. */
void sim_titan_block_graph(sim_graph_t *graph, const sim_scenario_t *scenario,
                           const sim_dims_t *dims, bool is_quantized);

/* Norm and output layer; a loss over logits, as it is or compiled. */
void sim_titan_head_graph(sim_graph_t *graph, const sim_scenario_t *scenario,
                          const sim_dims_t *dims);
void sim_titan_loss_graph(sim_graph_t *graph, const sim_scenario_t *scenario,
                          const sim_dims_t *dims);

/* Write both tapes of a chunk. */
void sim_titan_build(const sim_scenario_t *scenario, const sim_dims_t *dims,
                     const topo_chunk_t *place, sim_builder_t *builder, sim_tape_t *forward,
                     sim_tape_t *backward);

#endif
