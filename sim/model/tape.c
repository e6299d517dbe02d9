/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/tape.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* What fits sim_op_t.slot: 10,000 layers, the most that a scenario takes, have far fewer tensors.
 */
enum { MAX_SLOTS = 1 << 24 };

/* Category of a tensor while it is not known whether it is saved. */
enum { CAT_OPEN = SIM_N_CATEGORIES };

void sim_persistent_fini(sim_persistent_t *persistent)
{
    for (uint32_t i = 0; i < persistent->n; i++)
        free(persistent->keys[i]);
    free(persistent->keys);
    free(persistent->tensors);
    free(persistent->per_stream);
    free(persistent->table);
    *persistent = (sim_persistent_t){ 0 };
}

void sim_tape_fini(sim_tape_t *tape)
{
    free(tape->ops);
    *tape = (sim_tape_t){ 0 };
}

void sim_builder_init(sim_builder_t *b, sim_persistent_t *persistent)
{
    *b = (sim_builder_t){ .persistent = persistent,
                          .n_slots = SIM_N_SLOTS_FIXED,
                          .layer = SIM_NO_LAYER,
                          .graph = SIM_CUDA_GRAPH_NONE };
}

void sim_builder_fini(sim_builder_t *b)
{
    free(b->built);
    free(b->free_slots);
    *b = (sim_builder_t){ 0 };
}

void sim_builder_begin(sim_builder_t *b, sim_tape_t *tape, bool in_forward)
{
    b->tape = tape;
    b->in_forward = in_forward;
    b->n_tapes++;
}

static void push_to(sim_tape_t *t, sim_op_t op)
{
    if (t->n_ops == t->cap) {
        t->cap = t->cap > 0 ? 2 * t->cap : 256;
        t->ops = base_xrealloc(t->ops, t->cap, sizeof(*t->ops));
    }
    t->ops[t->n_ops++] = op;
}

/* The open graph's tape, else the chunk's. */
static sim_tape_t *tape_of(sim_builder_t *b)
{
    if (b->graph == SIM_CUDA_GRAPH_NONE)
        return b->tape;
    sim_cuda_graph_t *graph = &b->graphs->graphs[b->graph];
    return b->in_forward ? &graph->forward : &graph->backward;
}

static void push(sim_builder_t *b, sim_op_t op)
{
    push_to(b->tape, op);
}

static sim_ref_t add_built(sim_builder_t *b, sim_built_t built)
{
    if (b->n_built == b->cap_built) {
        b->cap_built = b->cap_built > 0 ? 2 * b->cap_built : 256;
        b->built = base_xrealloc(b->built, b->cap_built, sizeof(*b->built));
    }
    b->built[b->n_built] = built;
    return b->n_built++;
}

static uint32_t take_slot(sim_builder_t *b)
{
    if (b->n_free_slots > 0)
        return b->free_slots[--b->n_free_slots];
    assert(b->n_slots < MAX_SLOTS);
    return b->n_slots++;
}

static void give_slot(sim_builder_t *b, uint32_t slot)
{
    if (slot < SIM_N_SLOTS_FIXED)
        return;
    if (b->n_free_slots == b->cap_free_slots) {
        b->cap_free_slots = b->cap_free_slots > 0 ? 2 * b->cap_free_slots : 64;
        b->free_slots = base_xrealloc(b->free_slots, b->cap_free_slots, sizeof(*b->free_slots));
    }
    b->free_slots[b->n_free_slots++] = slot;
}

static sim_ref_t new_tensor(sim_builder_t *b, uint8_t category, const char *name, uint64_t bytes)
{
    if (bytes == 0)
        return SIM_REF_NONE;
    sim_built_t built = {
        .tensor = { .name = name,
                    .bytes = bytes,
                    .layer = b->layer,
                    .category = category,
                    .module = b->module },
        .refs = 1,
        .slot = take_slot(b),
        .made_in = b->n_tapes,
        .graph = b->graph,
    };
    sim_ref_t ref = add_built(b, built);
    push_to(tape_of(b), (sim_op_t){ .kind = SIM_OP_ALLOC,
                                    .stream = b->stream,
                                    .slot = built.slot,
                                    .tensor = ref,
                                    .bytes = bytes });
    return ref;
}

sim_ref_t sim_new(sim_builder_t *b, const char *name, uint64_t bytes)
{
    return new_tensor(b, CAT_OPEN, name, bytes);
}

sim_ref_t sim_new_as(sim_builder_t *b, sim_category_t category, const char *name, uint64_t bytes)
{
    return new_tensor(b, (uint8_t)category, name, bytes);
}

sim_ref_t sim_given(sim_builder_t *b, uint32_t slot, const char *name, uint64_t bytes)
{
    assert(slot < SIM_N_SLOTS_FIXED);
    return add_built(b, (sim_built_t){
                            .tensor = { .name = name,
                                        .bytes = bytes,
                                        .layer = SIM_NO_LAYER,
                                        .category = SIM_CAT_PIPELINE,
                                        .module = SIM_MOD_PIPELINE },
                            .refs = 1,
                            .slot = slot,
                            .made_in = b->n_tapes,
                            .graph = SIM_CUDA_GRAPH_NONE,
                        });
}

sim_ref_t sim_keep(sim_builder_t *b, sim_ref_t ref)
{
    if (ref != SIM_REF_NONE) {
        assert(b->built[ref].refs > 0);
        b->built[ref].refs++;
    }
    return ref;
}

static void put_late(uint32_t **list_p, uint32_t *n_p, uint32_t *cap_p, sim_ref_t ref)
{
    if (*n_p == *cap_p) {
        *cap_p = 2 * *cap_p + 8;
        *list_p = base_xrealloc(*list_p, *cap_p, sizeof(**list_p));
    }
    (*list_p)[(*n_p)++] = ref;
}

static sim_op_t let_go(const sim_builder_t *b, sim_op_kind_t kind, sim_ref_t ref)
{
    return (sim_op_t){ .kind = (uint8_t)kind, .slot = b->built[ref].slot, .tensor = ref };
}

/* The last reference to a graph's tensor goes. Within the graph it is a free like any other. Others
 * hold on to the address, not to the memory: outputs stay until the gradients are captured, and the
 * input's gradient until whoever takes it is (graph.py, make_weak_ref; cuda_graphs.py,
 * bwd_cudagraph_buffer). Its slot is not used again: the two tapes are not played in turn. */
static void drop_of_graph(sim_builder_t *b, sim_ref_t ref)
{
    sim_built_t *built = &b->built[ref];
    sim_cuda_graphs_t *all = b->graphs;
    sim_cuda_graph_t *graph = &all->graphs[built->graph];
    bool in_pool = all->buffers == SIM_CUDA_GRAPH_BUFFERS_IN_POOL;
    if (built->is_given)
        return;
    if (b->graph == built->graph || (b->graph != SIM_CUDA_GRAPH_NONE && in_pool)) {
        push_to(tape_of(b), (sim_op_t){ .kind = SIM_OP_FREE, .slot = built->slot, .tensor = ref });
        return;
    }
    built->tensor.category = SIM_CAT_GRAPHS;
    if (!graph->is_done)
        put_late(&graph->late, &graph->n_late, &graph->cap_late, ref);
    else if (in_pool)
        push_to(&graph->backward, let_go(b, SIM_OP_LET_GO_GRAD, ref));
    else
        put_late(&all->pending, &all->n_pending, &all->cap_pending, ref);
}

void sim_drop(sim_builder_t *b, sim_ref_t ref)
{
    if (ref == SIM_REF_NONE)
        return;
    sim_built_t *built = &b->built[ref];
    assert(built->refs > 0);
    if (--built->refs > 0)
        return;
    if (built->tensor.category == CAT_OPEN)
        built->tensor.category =
            built->made_in < b->n_tapes ? SIM_CAT_ACTIVATIONS : SIM_CAT_TEMPORARY;
    if (built->graph != SIM_CUDA_GRAPH_NONE) {
        drop_of_graph(b, ref);
        return;
    }
    if (built->slot < SIM_N_SLOTS_FIXED)
        return; /* the player frees what crosses the border of a stage */
    if (!built->is_discarded)
        push(b, (sim_op_t){ .kind = SIM_OP_FREE, .slot = built->slot, .tensor = ref });
    give_slot(b, built->slot);
}

void sim_unit(sim_builder_t *b, sim_unit_event_t event, uint32_t unit)
{
    push(b, (sim_op_t){ .kind = SIM_OP_UNIT, .slot = unit, .tensor = event });
}

void sim_discard(sim_builder_t *b, sim_ref_t ref)
{
    if (ref == SIM_REF_NONE)
        return;
    sim_built_t *built = &b->built[ref];
    assert(built->refs > 0 && !built->is_discarded && built->slot >= SIM_N_SLOTS_FIXED);
    if (built->graph != b->graph || built->is_given)
        return; /* a graph's memory is not given up by others, nor is others' in a graph */
    built->is_discarded = true;
    push_to(tape_of(b), (sim_op_t){ .kind = SIM_OP_FREE, .slot = built->slot, .tensor = ref });
}

void sim_restore(sim_builder_t *b, sim_ref_t ref)
{
    if (ref == SIM_REF_NONE)
        return;
    sim_built_t *built = &b->built[ref];
    assert(built->refs > 0 && (built->is_discarded || b->graphs != NULL));
    if (!built->is_discarded)
        return;
    built->is_discarded = false;
    push_to(tape_of(b), (sim_op_t){ .kind = SIM_OP_ALLOC,
                                    .slot = built->slot,
                                    .tensor = ref,
                                    .bytes = built->tensor.bytes });
}

void sim_discard_rest(sim_builder_t *b, sim_ref_t ref)
{
    const sim_built_t *built = &b->built[ref];
    if (built->refs > 0 && !built->is_discarded && built->slot >= SIM_N_SLOTS_FIXED)
        sim_discard(b, ref);
}

void sim_to_host(sim_builder_t *b, uint64_t bytes)
{
    push(b, (sim_op_t){ .kind = SIM_OP_TO_HOST, .bytes = bytes });
}

void sim_from_host(sim_builder_t *b, uint64_t bytes)
{
    push(b, (sim_op_t){ .kind = SIM_OP_FROM_HOST, .bytes = bytes });
}

/* The slot is not given back: whoever plays the tape finds the block there later. */
static void keep_beyond(sim_builder_t *b, sim_ref_t ref, sim_op_kind_t kind, uint64_t bytes)
{
    sim_built_t *built = &b->built[ref];
    assert(built->refs == 1);
    if (built->graph != SIM_CUDA_GRAPH_NONE) {
        sim_drop(b, ref);
        return;
    }
    built->refs = 0;
    if (built->tensor.category == CAT_OPEN)
        built->tensor.category = SIM_CAT_ACTIVATIONS;
    push(b,
         (sim_op_t){ .kind = (uint8_t)kind, .slot = built->slot, .tensor = ref, .bytes = bytes });
}

void sim_hold(sim_builder_t *b, sim_ref_t ref)
{
    keep_beyond(b, ref, SIM_OP_HOLD, 0);
}

void sim_node(sim_builder_t *b)
{
    push(b, (sim_op_t){ .kind = SIM_OP_NODE });
}

void sim_latest(sim_builder_t *b, uint16_t layer)
{
    push(b, (sim_op_t){ .kind = SIM_OP_LATEST, .slot = layer });
}

void sim_keep_latest(sim_builder_t *b, sim_ref_t ref, uint16_t layer)
{
    keep_beyond(b, ref, SIM_OP_KEEP_LATEST, layer);
}

void sim_defer(sim_builder_t *b, sim_ref_t ref)
{
    const sim_built_t *built = &b->built[ref];
    if (built->refs > 1 || built->slot < SIM_N_SLOTS_FIXED)
        sim_drop(b, ref);
    else
        keep_beyond(b, ref, SIM_OP_DEFER, 0);
}

void sim_leave(sim_builder_t *b, sim_ref_t ref, uint32_t slot)
{
    sim_built_t *built = &b->built[ref];
    assert(slot < SIM_N_SLOTS_FIXED && built->refs == 1);
    if (built->graph != SIM_CUDA_GRAPH_NONE) {
        sim_drop(b, ref); /* the slot stays empty: the graph has the memory */
        return;
    }
    /* The tensor was made for this slot if only its allocation is told so. */
    for (uint32_t i = b->tape->n_ops; i-- > 0;) {
        sim_op_t *op = &b->tape->ops[i];
        if (op->kind == SIM_OP_ALLOC && op->tensor == ref) {
            op->slot = slot;
            give_slot(b, built->slot);
            break;
        }
    }
    built->slot = slot;
    built->refs = 0;
    built->tensor.category = SIM_CAT_PIPELINE;
}

static uint32_t hash(const char *key)
{
    uint32_t h = UINT32_C(2166136261); /* FNV-1a */
    for (; *key != '\0'; key++)
        h = (h ^ (uint8_t)*key) * UINT32_C(16777619);
    return h;
}

/* The place of `key` in the table, or the free one where it belongs. */
static uint32_t *find_key(const sim_persistent_t *p, const char *key)
{
    uint32_t at = hash(key) & (p->n_table - 1);
    while (p->table[at] != 0 && strcmp(p->keys[p->table[at] - 1], key) != 0)
        at = (at + 1) & (p->n_table - 1);
    return &p->table[at];
}

static void grow_table(sim_persistent_t *p)
{
    free(p->table);
    p->n_table = p->n_table > 0 ? 2 * p->n_table : 64;
    p->table = base_xcalloc(p->n_table, sizeof(*p->table));
    for (uint32_t i = 0; i < p->n; i++)
        *find_key(p, p->keys[i]) = i + 1;
}

static uint32_t add_key(sim_persistent_t *p, sim_module_t module, const char *key)
{
    uint32_t i = p->n++;
    p->tensors = base_xrealloc(p->tensors, p->n, sizeof(*p->tensors));
    p->keys = base_xrealloc(p->keys, p->n, sizeof(*p->keys));
    p->per_stream = base_xrealloc(p->per_stream, p->n, sizeof(*p->per_stream));
    p->per_stream[i] = false;
    p->keys[i] = base_xstrdup(key);
    p->tensors[i] = (sim_tensor_t){ .name = p->keys[i],
                                    .layer = SIM_NO_LAYER,
                                    .category = SIM_CAT_WORKSPACE,
                                    .module = (uint8_t)module };
    return p->n;
}

static void persist(sim_builder_t *b, sim_module_t module, const char *key, uint64_t bytes,
                    bool per_stream)
{
    sim_persistent_t *p = b->persistent;
    if (bytes == 0)
        return;
    if (2 * p->n >= p->n_table)
        grow_table(p);
    uint32_t *place = find_key(p, key);
    if (*place == 0)
        *place = add_key(p, module, key);
    uint32_t i = *place - 1;
    p->tensors[i].bytes = base_u64_max(p->tensors[i].bytes, bytes);
    p->per_stream[i] = per_stream;
    push_to(tape_of(b), (sim_op_t){ .kind = SIM_OP_PERSIST, .tensor = i, .bytes = bytes });
}

void sim_persist(sim_builder_t *b, sim_module_t module, const char *key, uint64_t bytes)
{
    persist(b, module, key, bytes, false);
}

void sim_persist_per_stream(sim_builder_t *b, sim_module_t module, const char *key, uint64_t bytes)
{
    persist(b, module, key, bytes, true);
}

void sim_touch(sim_builder_t *b, const char *name, uint64_t bytes)
{
    sim_drop(b, sim_new(b, name, bytes));
}

void sim_cuda_graphs_fini(sim_cuda_graphs_t *graphs)
{
    for (uint32_t i = 0; i < graphs->n; i++) {
        sim_tape_fini(&graphs->graphs[i].forward);
        sim_tape_fini(&graphs->graphs[i].backward);
        free(graphs->graphs[i].late);
    }
    free(graphs->graphs);
    free(graphs->pending);
    *graphs = (sim_cuda_graphs_t){ 0 };
}

static uint32_t add_graph(sim_builder_t *b)
{
    sim_cuda_graphs_t *all = b->graphs;
    if (all->n == all->cap) {
        all->cap = 2 * all->cap + 8;
        all->graphs = base_xrealloc(all->graphs, all->cap, sizeof(*all->graphs));
    }
    all->graphs[all->n] = (sim_cuda_graph_t){ .layer = b->layer };
    return all->n++;
}

sim_ref_t sim_cuda_graph_open(sim_builder_t *b, uint32_t *graph_p, sim_ref_t x)
{
    *graph_p = SIM_CUDA_GRAPH_NONE;
    if (b->graphs == NULL)
        return x;
    assert(b->graph == SIM_CUDA_GRAPH_NONE && b->in_forward);
    bool is_outside = b->graphs->buffers == SIM_CUDA_GRAPH_BUFFERS_OUTSIDE;
    *graph_p = add_graph(b);
    sim_cuda_graph_t *graph = &b->graphs->graphs[*graph_p];
    graph->input_bytes = b->built[x].tensor.bytes;
    if (!is_outside && b->built[x].graph != SIM_CUDA_GRAPH_NONE) {
        b->graph = *graph_p;
        return x;
    }
    sim_drop(b, x);
    b->graph = *graph_p;
    if (!is_outside)
        return sim_new_as(b, SIM_CAT_GRAPHS, "graph_input", graph->input_bytes);
    return add_built(b, (sim_built_t){ .tensor = { .name = "graph_input",
                                                   .bytes = graph->input_bytes,
                                                   .layer = b->layer,
                                                   .category = SIM_CAT_GRAPHS,
                                                   .module = b->module },
                                       .refs = 1,
                                       .slot = take_slot(b),
                                       .graph = *graph_p,
                                       .is_given = true,
                                       .made_in = b->n_tapes });
}

void sim_cuda_graph_open_backward(sim_builder_t *b, uint32_t number, uint32_t n,
                                  const sim_ref_t *grads, const uint64_t *bytes)
{
    if (number == SIM_CUDA_GRAPH_NONE)
        return;
    assert(b->graph == SIM_CUDA_GRAPH_NONE && !b->in_forward && n <= SIM_CUDA_GRAPH_MAX_GRADS);
    sim_cuda_graph_t *graph = &b->graphs->graphs[number];
    bool is_outside = b->graphs->buffers == SIM_CUDA_GRAPH_BUFFERS_OUTSIDE;
    b->graph = number;
    for (uint32_t i = 0; i < n; i++) {
        bool is_shared =
            grads[i] != SIM_REF_NONE && b->built[grads[i]].graph != SIM_CUDA_GRAPH_NONE;
        graph->grad_bytes[i] = bytes[i];
        if (is_outside || is_shared || bytes[i] == 0)
            continue;
        sim_ref_t buffer = sim_new_as(b, SIM_CAT_GRAPHS, "graph_output_grad", bytes[i]);
        b->built[buffer].refs = 0;
        put_late(&graph->late, &graph->n_late, &graph->cap_late, buffer);
    }
}

void sim_cuda_graph_close(sim_builder_t *b)
{
    if (b->graph == SIM_CUDA_GRAPH_NONE)
        return;
    sim_cuda_graphs_t *all = b->graphs;
    sim_cuda_graph_t *graph = &all->graphs[b->graph];
    b->graph = SIM_CUDA_GRAPH_NONE;
    if (b->in_forward)
        return;
    for (uint32_t i = 0; i < graph->n_late; i++)
        push_to(&graph->backward, let_go(b, SIM_OP_LET_GO_OUTPUT, graph->late[i]));
    for (uint32_t i = 0; i < all->n_pending; i++)
        push_to(&graph->backward, let_go(b, SIM_OP_LET_GO_GRAD, all->pending[i]));
    graph->n_late = all->n_pending = 0;
    graph->is_done = true;
}

void sim_cuda_graph_reads(sim_builder_t *b, uint64_t mask_bytes, uint64_t rope_bytes)
{
    if (b->graph == SIM_CUDA_GRAPH_NONE)
        return;
    b->graphs->graphs[b->graph].mask_bytes = mask_bytes;
    b->graphs->graphs[b->graph].rope_bytes = rope_bytes;
}

void sim_builder_finish(sim_builder_t *b)
{
    for (uint32_t i = 0; i < b->n_built; i++) {
        assert(b->built[i].refs == 0);
        assert(b->built[i].tensor.category != CAT_OPEN);
    }
}
