/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/node.h"

#include <assert.h>

enum { COMMUNICATION_STREAM = 3 };

static void let_go(sim_model_t *m)
{
    sim_nodes_t *nodes = m->nodes;
    for (uint32_t i = 0; i < nodes->n_held; i++)
        sim_drop(m->b, nodes->held[i]);
    nodes->n_held = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < nodes->n_left; i++) {
        if (m->b->built[nodes->left[i].ref].refs == 1)
            sim_keep_latest(m->b, nodes->left[i].ref, nodes->left[i].layer);
        else
            nodes->left[n++] = nodes->left[i];
    }
    nodes->n_left = n;
}

void sim_node_end(sim_model_t *m, sim_ref_t grad, bool next_communicates)
{
    if (m->nodes == NULL)
        return;
    let_go(m);
    sim_node(m->b);
    if (grad != SIM_REF_NONE)
        sim_node_hold(m, sim_keep(m->b, grad));
    m->b->stream = next_communicates ? COMMUNICATION_STREAM : 0;
}

void sim_node_hold(sim_model_t *m, sim_ref_t ref)
{
    if (m->nodes == NULL || ref == SIM_REF_NONE) {
        sim_drop(m->b, ref);
        return;
    }
    assert(m->nodes->n_held < SIM_NODES_MAX_HELD);
    m->nodes->held[m->nodes->n_held++] = ref;
}

void sim_node_leave(sim_model_t *m, sim_ref_t ref, uint16_t layer)
{
    if (m->nodes == NULL || ref == SIM_REF_NONE) {
        sim_drop(m->b, ref);
        return;
    }
    assert(m->nodes->n_left < SIM_NODES_MAX_LEFT);
    m->nodes->left[m->nodes->n_left].ref = ref;
    m->nodes->left[m->nodes->n_left++].layer = layer;
}

void sim_nodes_finish(sim_model_t *m)
{
    if (m->nodes == NULL)
        return;
    let_go(m);
    assert(m->nodes->n_left == 0);
    m->b->stream = 0;
}
