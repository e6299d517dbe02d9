/* SPDX-License-Identifier: Apache-2.0
 * A pass cut into the nodes of a schedule plan, with overlap_moe_expert_parallel_comm: each node is
 * an autograd graph of its own, between tensors that were detached, and a forward pass takes turns
 * with the backward pass of the micro-batch before, node by node. A layer has four: attention to
 * the tokens in the order in which they are sent, dispatch, experts, combine to the layer's end.
 * Where a layer has no experts, dispatch and combine are empty and the MLP is the third. In front
 * and behind are one for the embedding and one for the loss. Sources: Megatron-LM (mcore 0.20)
 * models/common/{model_chunk_schedule_plan,utils}.py, models/gpt/fine_grained_callables.py,
 * pipeline_parallel/utils.py (ScheduleNode). */
#ifndef SIM_MODEL_NODE_H
#define SIM_MODEL_NODE_H

#include "sim/model/layer.h"

enum { SIM_NODES_MAX_HELD = 4, SIM_NODES_MAX_LEFT = 4, SIM_NODES_OF_LAYER = 4 };

/* References while tapes are built; all zero at first. */
typedef struct sim_nodes {
    sim_ref_t held[SIM_NODES_MAX_HELD]; /* until the node ends */
    uint32_t n_held;
    struct {
        sim_ref_t ref;
        uint16_t layer;
    } left[SIM_NODES_MAX_LEFT]; /* see sim_node_leave() */
    uint32_t n_left;
} sim_nodes_t;

/* All of the following do nothing where m->nodes is NULL, but that a reference that is handed over
 * is dropped. */

/* The node that is under way ends, and what it held goes. The gradient that it has made, if this
 * is a backward pass, is borrowed: whoever calls the next node holds it until that ends. The next
 * node's memory is that of the stream for communication, or of the default one. */
void sim_node_end(sim_model_t *m, sim_ref_t grad, bool next_communicates);

/* Hand over a reference that goes when the node ends. */
void sim_node_hold(sim_model_t *m, sim_ref_t ref);

/* Hand over a reference that is the last one of a tensor, or will be at the end of some node: then
 * the tensor stays until another pass is the latest of the layer, sim_keep_latest(). */
void sim_node_leave(sim_model_t *m, sim_ref_t ref, uint16_t layer);

/* The last node of a backward pass is over. */
void sim_nodes_finish(sim_model_t *m);

#endif
