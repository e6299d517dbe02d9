/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/graph.h"

#include "sim/base/xmem.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

sim_node_id_t sim_graph_add(sim_graph_t *g, sim_node_kind_t kind, const char *name, uint64_t bytes,
                            uint32_t n_in, ...)
{
    assert(g->n < SIM_GRAPH_MAX_NODES && n_in <= SIM_NODE_MAX_IN);
    sim_node_t *node = &g->nodes[g->n];
    *node = (sim_node_t){ .name = name,
                          .bytes = bytes,
                          .kind = (uint8_t)kind,
                          .module = g->module,
                          .n_in = (uint8_t)n_in,
                          .until = SIM_NODE_NONE };
    va_list ap;
    va_start(ap, n_in);
    for (uint32_t i = 0; i < n_in; i++) {
        node->in[i] = (sim_node_id_t)va_arg(ap, int);
        assert(node->in[i] < g->n);
    }
    va_end(ap);
    return (sim_node_id_t)g->n++;
}

void sim_graph_hold(sim_graph_t *g, sim_node_id_t node)
{
    g->nodes[node].until = (sim_node_id_t)(g->n - 1);
}

sim_node_id_t sim_graph_turn(sim_graph_t *g, sim_node_id_t output, uint64_t bytes)
{
    g->n_forward = g->n;
    g->output = output;
    g->d_output = sim_graph_add(g, SIM_NODE_INPUT, "d_output", bytes, 0);
    return g->d_output;
}

sim_node_id_t sim_graph_storage(const sim_graph_t *g, sim_node_id_t node)
{
    while (g->nodes[node].kind == SIM_NODE_VIEW)
        node = g->nodes[node].in[0];
    return node;
}

/* ---- plans ---- */

typedef struct {
    const sim_graph_t *g;
    sim_keep_t keep;
    bool is_compiled;
    bool kept[SIM_GRAPH_MAX_NODES];         /* its memory is alive between the passes */
    bool is_evaluated[SIM_GRAPH_MAX_NODES]; /* in the pass that is planned */
    bool is_stored[SIM_GRAPH_MAX_NODES];
    sim_node_id_t order[SIM_GRAPH_MAX_NODES]; /* evaluated nodes as they run */
    uint32_t n_order;
    uint32_t last[SIM_GRAPH_MAX_NODES]; /* place in order after which the memory can go */
} planner_t;

static void add_step(sim_graph_plan_t *plan, sim_graph_action_t action, sim_node_id_t node)
{
    if (plan->n == plan->cap) {
        plan->cap = plan->cap > 0 ? 2 * plan->cap : 64;
        plan->steps = base_xrealloc(plan->steps, plan->cap, sizeof(*plan->steps));
    }
    plan->steps[plan->n++] = (sim_graph_step_t){ .node = node, .action = (uint8_t)action };
}

static sim_node_id_t storage(const planner_t *p, sim_node_id_t node)
{
    while (p->g->nodes[node].kind == SIM_NODE_VIEW ||
           (!p->is_compiled && p->g->nodes[node].kind == SIM_NODE_ADD_INTO))
        node = p->g->nodes[node].in[0];
    return node;
}

static bool is_forward(const planner_t *p, sim_node_id_t node)
{
    return node < p->g->n_forward;
}

/* The memory outlives the backward pass. */
static bool is_result(const planner_t *p, sim_node_id_t node)
{
    const sim_graph_t *g = p->g;
    if (g->nodes[node].is_weight_grad)
        return true;
    return g->d_input != SIM_NODE_NONE && node == storage(p, g->d_input);
}

/* ---- eager ---- */

/* Forward memory that operations of the backward pass read. */
static void find_saved(const planner_t *p, bool *saved)
{
    memset(saved, 0, SIM_GRAPH_MAX_NODES * sizeof(*saved));
    for (uint32_t i = p->g->n_forward; i < p->g->n; i++) {
        const sim_node_t *node = &p->g->nodes[i];
        for (uint32_t k = 0; k < node->n_in; k++)
            if (is_forward(p, node->in[k]))
                saved[storage(p, node->in[k])] = true;
    }
}

static void reach(planner_t *p, sim_node_id_t node, uint32_t place)
{
    uint32_t *last = &p->last[storage(p, node)];
    if (*last == UINT32_MAX || *last < place)
        *last = place;
}

/* When each of the nodes [first, end) lets its operands and itself go, by place of a node. */
static void find_ends(planner_t *p, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        const sim_node_t *node = &p->g->nodes[i];
        reach(p, (sim_node_id_t)i, i);
        for (uint32_t k = 0; k < node->n_in; k++)
            reach(p, node->in[k], i);
        if (node->until != SIM_NODE_NONE)
            reach(p, (sim_node_id_t)i, node->until);
    }
}

static bool has_memory(const planner_t *p, sim_node_id_t node)
{
    return storage(p, node) == node && p->g->nodes[node].kind != SIM_NODE_INPUT;
}

/* Run the forward nodes up to `end`; `stays` tells what is not let go. */
static void plan_eager_forward(planner_t *p, sim_graph_plan_t *plan, uint32_t end,
                               const bool *stays, const bool *is_there)
{
    memset(p->last, 0xff, sizeof(p->last));
    find_ends(p, 0, p->g->n_forward);
    for (uint32_t i = 0; i < end; i++) {
        if (has_memory(p, (sim_node_id_t)i) && !is_there[i])
            add_step(plan, SIM_GRAPH_NEW, (sim_node_id_t)i);
        for (uint32_t s = 0; s <= i; s++)
            if (p->last[s] == i && has_memory(p, (sim_node_id_t)s) && !stays[s])
                add_step(plan, SIM_GRAPH_DROP, (sim_node_id_t)s);
    }
    for (uint32_t s = 0; s < end; s++) /* what an early stop leaves behind */
        if (p->last[s] >= end && has_memory(p, (sim_node_id_t)s) && !stays[s])
            add_step(plan, SIM_GRAPH_DROP, (sim_node_id_t)s);
}

static void plan_eager_backward(planner_t *p, sim_graph_plan_t *plan, const bool *alive)
{
    memset(p->last, 0xff, sizeof(p->last));
    find_ends(p, p->g->n_forward, p->g->n);
    for (uint32_t s = 0; s < p->g->n_forward; s++)
        if (alive[s] && p->last[s] == UINT32_MAX)
            p->last[s] = p->g->n - 1; /* cached by checkpointing, and never asked for */
    for (uint32_t i = p->g->n_forward; i < p->g->n; i++) {
        if (has_memory(p, (sim_node_id_t)i))
            add_step(plan, SIM_GRAPH_NEW, (sim_node_id_t)i);
        for (uint32_t s = 0; s <= i; s++) {
            bool goes = s < p->g->n_forward
                            ? alive[s]
                            : has_memory(p, (sim_node_id_t)s) || s == p->g->d_output;
            if (goes && p->last[s] == i && !is_result(p, (sim_node_id_t)s))
                add_step(plan, SIM_GRAPH_DROP, (sim_node_id_t)s);
        }
    }
}

static void plan_eager(planner_t *p, sim_graph_plans_t *plans)
{
    const sim_graph_t *g = p->g;
    bool saved[SIM_GRAPH_MAX_NODES], none[SIM_GRAPH_MAX_NODES] = { false };
    bool stays[SIM_GRAPH_MAX_NODES];
    find_saved(p, saved);
    uint32_t end = 0; /* recompute stops when all that was saved is there again */
    for (uint32_t s = 0; s < g->n_forward; s++) {
        bool is_input = g->nodes[s].kind == SIM_NODE_INPUT;
        p->kept[s] = saved[s];
        if (p->keep != SIM_KEEP_ALL)
            p->kept[s] = is_input || (p->keep == SIM_KEEP_LISTED && g->nodes[s].is_listed);
        if (saved[s] && !is_input)
            end = s + 1;
        if (is_input && p->kept[s])
            add_step(&plans->forward, SIM_GRAPH_KEEP, (sim_node_id_t)s);
    }
    memcpy(stays, p->kept, sizeof(stays));
    stays[storage(p, g->output)] = true;
    plan_eager_forward(p, &plans->forward, g->n_forward, stays, none);
    if (p->kept[storage(p, g->output)])
        add_step(&plans->forward, SIM_GRAPH_KEEP, storage(p, g->output));
    if (p->keep != SIM_KEEP_ALL) {
        for (uint32_t s = 0; s < g->n_forward; s++)
            saved[s] = saved[s] || p->kept[s];
        plan_eager_forward(p, &plans->backward, end, saved, p->kept);
    }
    plan_eager_backward(p, &plans->backward, saved);
}

/* ---- compiled ---- */

static bool is_available(const planner_t *p, sim_node_id_t node, bool in_backward)
{
    uint8_t kind = p->g->nodes[node].kind;
    return kind == SIM_NODE_INPUT || (in_backward && is_forward(p, node) && p->kept[node]);
}

/* A kernel's further results come with it. */
static sim_node_id_t kernel_of(const sim_graph_t *g, sim_node_id_t node)
{
    while (g->nodes[node].kind == SIM_NODE_PART)
        node--;
    return node;
}

static void put_in_order(planner_t *p, sim_node_id_t node)
{
    p->is_evaluated[node] = true;
    p->order[p->n_order++] = node;
}

static void evaluate(planner_t *p, sim_node_id_t node, bool in_backward)
{
    const sim_graph_t *g = p->g;
    node = storage(p, node);
    if (is_available(p, node, in_backward))
        return;
    node = kernel_of(g, node);
    if (p->is_evaluated[node])
        return;
    assert(!is_available(p, node, in_backward)); /* who keeps it keeps what comes with it */
    for (uint32_t k = 0; k < g->nodes[node].n_in; k++)
        evaluate(p, g->nodes[node].in[k], in_backward);
    put_in_order(p, node);
    for (uint32_t i = node + 1U; i < g->n && g->nodes[i].kind == SIM_NODE_PART; i++)
        if (!is_available(p, (sim_node_id_t)i, in_backward))
            put_in_order(p, (sim_node_id_t)i);
}

/* Mark what has to be in memory: what is no pointwise operation, and what a kernel reads. */
static void find_stored(planner_t *p)
{
    for (uint32_t i = 0; i < p->n_order; i++) {
        const sim_node_t *node = &p->g->nodes[p->order[i]];
        if (node->kind != SIM_NODE_POINTWISE && node->kind != SIM_NODE_ADD_INTO)
            p->is_stored[p->order[i]] = true;
        for (uint32_t k = 0; node->kind == SIM_NODE_KERNEL && k < node->n_in; k++) {
            sim_node_id_t operand = storage(p, node->in[k]);
            p->is_stored[operand] = p->is_evaluated[operand];
        }
    }
}

/* Everything in memory that the computation of `node` reads, through what is computed on the way.
 */
static void reach_operands(planner_t *p, sim_node_id_t node, uint32_t place, bool in_backward)
{
    for (uint32_t k = 0; k < p->g->nodes[node].n_in; k++) {
        sim_node_id_t operand = storage(p, p->g->nodes[node].in[k]);
        if (p->is_stored[operand] || is_available(p, operand, in_backward))
            reach(p, operand, place);
        else
            reach_operands(p, operand, place, in_backward);
    }
}

static void begin_pass(planner_t *p)
{
    memset(p->is_evaluated, 0, sizeof(p->is_evaluated));
    memset(p->is_stored, 0, sizeof(p->is_stored));
    memset(p->last, 0xff, sizeof(p->last));
    p->n_order = 0;
}

static bool stays(const planner_t *p, sim_node_id_t node, bool in_backward)
{
    if (in_backward)
        return is_result(p, node);
    return p->kept[node] || node == storage(p, p->g->output);
}

/* A pointwise result takes the place of an operand of its size that nobody else will read. */
static bool takes_place(const planner_t *p, sim_node_id_t node, sim_node_id_t operand,
                        bool in_backward)
{
    const sim_node_t *nodes = p->g->nodes;
    bool is_pointwise =
        nodes[node].kind == SIM_NODE_POINTWISE || nodes[node].kind == SIM_NODE_ADD_INTO;
    return is_pointwise && p->is_evaluated[operand] && nodes[operand].bytes == nodes[node].bytes &&
           !stays(p, operand, in_backward);
}

static void plan_compiled_step(planner_t *p, sim_graph_plan_t *plan, uint32_t place,
                               bool in_backward)
{
    sim_node_id_t node = p->order[place];
    uint32_t early = UINT32_MAX;
    for (uint32_t s = 0; s < p->g->n && early == UINT32_MAX; s++)
        if (s != node && p->last[s] == place && p->is_stored[s] &&
            takes_place(p, node, (sim_node_id_t)s, in_backward))
            early = s;
    if (early != UINT32_MAX)
        add_step(plan, SIM_GRAPH_DROP, (sim_node_id_t)early);
    add_step(plan, SIM_GRAPH_NEW, node);
    for (uint32_t s = 0; s < p->g->n; s++) {
        bool goes = p->is_stored[s] || (in_backward && s < p->g->n_forward && p->kept[s]);
        if (s != early && goes && p->last[s] == place && !stays(p, (sim_node_id_t)s, in_backward))
            add_step(plan, SIM_GRAPH_DROP, (sim_node_id_t)s);
    }
}

static void plan_compiled_pass(planner_t *p, sim_graph_plan_t *plan, bool in_backward)
{
    find_stored(p);
    for (uint32_t i = 0; i < p->n_order; i++) {
        if (!p->is_stored[p->order[i]])
            continue;
        reach(p, p->order[i], i);
        reach_operands(p, p->order[i], i, in_backward);
    }
    for (uint32_t i = 0; i < p->n_order; i++)
        if (p->is_stored[p->order[i]])
            plan_compiled_step(p, plan, i, in_backward);
}

static void order_backward(planner_t *p)
{
    const sim_graph_t *g = p->g;
    begin_pass(p);
    for (uint32_t i = g->n_forward; i < g->n; i++)
        if (g->nodes[i].is_weight_grad || i == g->d_input)
            p->is_stored[storage(p, (sim_node_id_t)i)] = true;
    for (uint32_t i = g->n_forward; i < g->n; i++)
        if (g->nodes[i].kind != SIM_NODE_INPUT && g->nodes[i].kind != SIM_NODE_VIEW)
            evaluate(p, (sim_node_id_t)i, true);
}

/* The partitioner computes no kernel and no reduction again, nor what a kernel of the backward pass
 * needs in memory (ban_recompute_reductions, ban_recompute_materialized_backward); pointwise
 * operations in between cost nothing. */
static bool is_costly(const planner_t *p, uint32_t node)
{
    const sim_graph_t *g = p->g;
    uint8_t kind = g->nodes[node].kind;
    if (kind == SIM_NODE_KERNEL || kind == SIM_NODE_PART || kind == SIM_NODE_REDUCTION)
        return true;
    for (uint32_t i = g->n_forward; i < g->n; i++)
        for (uint32_t k = 0; g->nodes[i].kind == SIM_NODE_KERNEL && k < g->nodes[i].n_in; k++)
            if (storage(p, g->nodes[i].in[k]) == node)
                return true;
    return false;
}

/* What the backward pass reads when everything that may be kept is there. */
static void find_kept(planner_t *p)
{
    const sim_graph_t *g = p->g;
    for (uint32_t s = 0; s < g->n_forward; s++)
        p->kept[s] = g->nodes[s].kind == SIM_NODE_INPUT ||
                     (p->keep == SIM_KEEP_LISTED && g->nodes[s].is_listed) ||
                     (p->keep == SIM_KEEP_ALL && is_costly(p, s));
    order_backward(p);
    find_stored(p);
    for (uint32_t i = 0; i < p->n_order; i++)
        if (p->is_stored[p->order[i]])
            reach_operands(p, p->order[i], i, true);
    for (uint32_t s = 0; s < g->n_forward; s++)
        p->kept[s] = p->kept[s] && p->last[s] != UINT32_MAX;
}

static void plan_compiled(planner_t *p, sim_graph_plans_t *plans)
{
    const sim_graph_t *g = p->g;
    find_kept(p);
    begin_pass(p);
    for (uint32_t s = 0; s < g->n_forward; s++) {
        if (!p->kept[s])
            continue;
        if (g->nodes[s].kind == SIM_NODE_INPUT)
            add_step(&plans->forward, SIM_GRAPH_KEEP, (sim_node_id_t)s);
        p->is_stored[s] = true;
        evaluate(p, (sim_node_id_t)s, false);
    }
    p->is_stored[storage(p, g->output)] = true;
    evaluate(p, g->output, false);
    /* As written, not as asked for. */
    p->n_order = 0;
    for (uint32_t i = 0; i < g->n_forward; i++)
        if (p->is_evaluated[i])
            p->order[p->n_order++] = (sim_node_id_t)i;
    plan_compiled_pass(p, &plans->forward, false);
    if (p->kept[storage(p, g->output)])
        add_step(&plans->forward, SIM_GRAPH_KEEP, storage(p, g->output));
    order_backward(p);
    plan_compiled_pass(p, &plans->backward, true);
    if (!is_result(p, g->d_output)) /* autograd's caller holds it */
        add_step(&plans->backward, SIM_GRAPH_DROP, g->d_output);
}

void sim_graph_plans_init(sim_graph_plans_t *plans, const sim_graph_t *g, sim_keep_t keep,
                          bool is_compiled)
{
    *plans = (sim_graph_plans_t){ 0 };
    planner_t *p = base_xcalloc(1, sizeof(*p));
    p->g = g;
    p->keep = keep;
    p->is_compiled = is_compiled;
    if (is_compiled)
        plan_compiled(p, plans);
    else
        plan_eager(p, plans);
    free(p);
}

void sim_graph_plans_fini(sim_graph_plans_t *plans)
{
    free(plans->forward.steps);
    free(plans->backward.steps);
    *plans = (sim_graph_plans_t){ 0 };
}

static void make(const sim_node_t *node, sim_builder_t *b, sim_ref_t *ref_p,
                 uint64_t workspace_bytes)
{
    b->module = node->module;
    *ref_p = node->is_weight_grad ? sim_new_as(b, SIM_CAT_GRADIENTS, node->name, node->bytes)
                                  : sim_new(b, node->name, node->bytes);
    if (node->is_product)
        sim_persist(b, SIM_MOD_LIBRARY,
                    b->in_forward ? "cublas_workspace_forward" : "cublas_workspace_backward",
                    workspace_bytes);
    if (node->scratch_bytes > 0)
        sim_touch(b, "kernel_scratch", node->scratch_bytes);
}

void sim_graph_plan_write(const sim_graph_plan_t *plan, const sim_graph_t *g, sim_builder_t *b,
                          sim_ref_t *refs, uint64_t workspace_bytes)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        sim_node_id_t node = plan->steps[i].node;
        switch ((sim_graph_action_t)plan->steps[i].action) {
        case SIM_GRAPH_NEW:
            make(&g->nodes[node], b, &refs[node], workspace_bytes);
            break;
        case SIM_GRAPH_DROP:
            sim_drop(b, refs[node]);
            refs[node] = SIM_REF_NONE;
            break;
        case SIM_GRAPH_KEEP:
            sim_keep(b, refs[node]);
            break;
        }
    }
}
