/* SPDX-License-Identifier: Apache-2.0
 * The operations of a module, forward and backward, as PyTorch's autograd has them, and the plans
 * of allocations that follow from how they are run: one by one (eager), one by one with activation
 * checkpointing, or compiled.
 *
 * What backward operations read of forward results is what is saved in between. Sources:
 * PyTorch torch/utils/checkpoint.py (selective checkpointing, early stop),
 * torch/_functorch/partitioners.py (what a compiled forward saves), torch/_inductor (fusion). */
#ifndef SIM_MODEL_GRAPH_H
#define SIM_MODEL_GRAPH_H

#include "sim/model/tape.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    SIM_NODE_INPUT,     /* given by who runs the plan */
    SIM_NODE_VIEW,      /* shares the memory of its first operand */
    SIM_NODE_ADD_INTO,  /* eager: adds to its first operand in place; compiled: as pointwise */
    SIM_NODE_POINTWISE, /* the compiler computes it where it is read */
    SIM_NODE_REDUCTION, /* the compiler computes its operands on the way, and stores the result */
    SIM_NODE_KERNEL,    /* matrix product, attention, collective: operands and result are stored */
    SIM_NODE_PART,      /* one more result of the kernel (or part) just before it */
} sim_node_kind_t;

typedef uint16_t sim_node_id_t;
#define SIM_NODE_NONE UINT16_MAX

enum { SIM_NODE_MAX_IN = 6, SIM_GRAPH_MAX_NODES = 1024 };

typedef struct {
    const char *name; /* static text */
    uint64_t bytes;
    uint64_t scratch_bytes; /* of the kernel: comes and goes with it */
    sim_node_id_t in[SIM_NODE_MAX_IN];
    uint8_t n_in;
    uint8_t kind;   /* sim_node_kind_t */
    uint8_t module; /* sim_module_t */
    bool is_listed; /* selective checkpointing by operator saves its result */
    bool is_weight_grad;
    bool is_product; /* cuBLAS runs it */
    bool is_fp8;
    sim_node_id_t until; /* eager: a local variable holds it until this node has run */
} sim_node_t;

/* Forward nodes come first, in the order of execution; then those of the backward pass. */
typedef struct {
    sim_node_t nodes[SIM_GRAPH_MAX_NODES];
    uint32_t n, n_forward;
    sim_node_id_t input, output;     /* of the forward pass */
    sim_node_id_t d_output, d_input; /* of the backward pass; d_input may be SIM_NODE_NONE */
    uint8_t module;                  /* given to new nodes */
    uint32_t n_products;             /* matrix products so far, as selective checkpointing counts */
} sim_graph_t;

/* Add a node that reads `n_in` others; returns its place. */
sim_node_id_t sim_graph_add(sim_graph_t *g, sim_node_kind_t kind, const char *name, uint64_t bytes,
                            uint32_t n_in, ...);

/* A local variable of a function holds `node` until the last node so far has run. */
void sim_graph_hold(sim_graph_t *g, sim_node_id_t node);

/* The forward pass is complete and leaves `output`; backward nodes follow. Returns d_output. */
sim_node_id_t sim_graph_turn(sim_graph_t *g, sim_node_id_t output, uint64_t bytes);

typedef enum {
    SIM_KEEP_ALL,    /* what backward reads; compiled: what it would be costly to compute again */
    SIM_KEEP_LISTED, /* results of listed operators; the rest is computed again */
    SIM_KEEP_INPUT,  /* everything is computed again */
} sim_keep_t;

typedef enum { SIM_GRAPH_NEW, SIM_GRAPH_DROP, SIM_GRAPH_KEEP } sim_graph_action_t;

typedef struct {
    sim_node_id_t node;
    uint8_t action; /* sim_graph_action_t */
} sim_graph_step_t;

typedef struct {
    sim_graph_step_t *steps; /* n of them; owned */
    uint32_t n, cap;
} sim_graph_plan_t;

typedef struct {
    sim_graph_plan_t forward, backward;
} sim_graph_plans_t;

/* The input is the caller's in the forward plan. The backward plan takes d_output and leaves
 * d_input and the gradients of weights. */
void sim_graph_plans_init(sim_graph_plans_t *plans, const sim_graph_t *g, sim_keep_t keep,
                          bool is_compiled);
void sim_graph_plans_fini(sim_graph_plans_t *plans);

/* Write a plan to the builder's tape. `refs`: one for each node, kept from forward to backward;
 * those of inputs are set by the caller. `workspace_bytes`: of cuBLAS, kept from its first use in
 * each of the threads that run forward and backward. */
void sim_graph_plan_write(const sim_graph_plan_t *plan, const sim_graph_t *g, sim_builder_t *b,
                          sim_ref_t *refs, uint64_t workspace_bytes);

/* The node whose memory `node` has: itself, unless it is a view. */
sim_node_id_t sim_graph_storage(const sim_graph_t *g, sim_node_id_t node);

#endif
