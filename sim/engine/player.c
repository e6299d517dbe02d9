/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/player.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/engine/endless.h"
#include "sim/engine/fsdp.h"
#include "sim/engine/fsdp2.h"
#include "sim/model/node.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void grow_owners(sim_player_t *p, sim_block_t block)
{
    uint32_t cap = block + block / 2 + 1024;
    p->owners = base_xrealloc(p->owners, cap, sizeof(*p->owners));
    memset(p->owners + p->cap_owners, 0, (cap - p->cap_owners) * sizeof(*p->owners));
    p->cap_owners = cap;
}

static inline void set_owner(sim_player_t *p, sim_block_t block, const sim_tensor_t *tensor)
{
    if (block >= p->cap_owners)
        grow_owners(p, block);
    p->owners[block] = (sim_owner_t){ .tensor = tensor,
                                      .microbatch = p->now.microbatch,
                                      .chunk = p->now.chunk,
                                      .phase = p->now.phase };
}

static int by_size(const void *a, const void *b)
{
    const sim_alive_t *x = a, *y = b;
    if (x->block_bytes != y->block_bytes)
        return x->block_bytes > y->block_bytes ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

/* Names are copied: a tensor's description may be gone when the caller has returned. */
static void list_alive(sim_player_t *p)
{
    if (!p->want_alive || p->alive != NULL)
        return;
    p->alive = base_xcalloc(p->cap_owners, sizeof(*p->alive));
    for (uint32_t block = 0; block < p->cap_owners; block++) {
        const sim_owner_t *owner = &p->owners[block];
        if (owner->tensor == NULL)
            continue;
        sim_alive_t *alive = &p->alive[p->n_alive++];
        *alive = (sim_alive_t){ .block = block,
                                .block_bytes = sim_alloc_block_bytes(p->alloc, block),
                                .microbatch = owner->microbatch,
                                .chunk = owner->chunk,
                                .layer = owner->tensor->layer,
                                .category = owner->tensor->category,
                                .module = owner->tensor->module,
                                .phase = owner->phase };
        snprintf(alive->name, sizeof(alive->name), "%s", owner->tensor->name);
    }
    qsort(p->alive, p->n_alive, sizeof(*p->alive), by_size);
}

static void note_out_of_memory(sim_player_t *p, const sim_tensor_t *tensor, uint64_t bytes)
{
    p->is_out_of_memory = true;
    snprintf(p->oom_tensor, sizeof(p->oom_tensor), "%s", tensor->name);
    p->oom_requested_bytes = bytes;
    p->oom_moment = p->now;
    p->oom_moment.layer = tensor->layer;
    p->oom_moment.module = tensor->module;
    list_alive(p);
}

static void tell(const sim_player_t *p, const sim_tensor_t *tensor, uint64_t block_bytes,
                 bool is_free)
{
    sim_observation_t seen = { .now = &p->now,
                               .tensor = tensor,
                               .block_bytes = block_bytes,
                               .is_free = is_free,
                               .op = p->n_ops,
                               .allocated_bytes = p->account.allocated_bytes,
                               .reserved_bytes = p->totals->reserved_bytes };
    p->observer.see(p->observer.arg, &seen);
}

static void note_reserved(sim_player_t *p, const sim_tensor_t *tensor)
{
    p->max_reserved_bytes = p->totals->reserved_bytes;
    p->reserved_moment = p->now;
    p->reserved_moment.layer = tensor->layer;
    p->reserved_moment.module = tensor->module;
}

/* After a failed request; false = the play ends here. */
static bool alloc_endless(sim_player_t *p, const sim_tensor_t *tensor, uint64_t bytes,
                          uint64_t stream, sim_block_t *block_p)
{
    note_out_of_memory(p, tensor, bytes);
    if (!sim_endless_go_on(p))
        return false;
    if (sim_alloc_malloc(p->alloc, stream, bytes, block_p))
        return true;
    note_out_of_memory(p, tensor, bytes);
    return false;
}

/* What a block takes is the difference that it makes to the allocator's total. */
static inline __attribute__((always_inline)) bool alloc(sim_player_t *p, const sim_tensor_t *tensor,
                                                        uint64_t bytes, uint64_t stream,
                                                        sim_block_t *block_p)
{
    p->current = tensor;
    if (stream < SIM_N_TAPE_STREAMS)
        stream += p->stream_base;
    if (!sim_alloc_malloc(p->alloc, stream, bytes, block_p) &&
        !alloc_endless(p, tensor, bytes, stream, block_p))
        return false;
    if (p->fills && *block_p != SIM_BLOCK_NONE)
        sim_device_fill(p->device, sim_alloc_block_addr(p->alloc, *block_p), bytes, stream);
    uint64_t block_bytes = p->totals->allocated_bytes - p->account.allocated_bytes;
    if (sim_account_add(&p->account, tensor, block_bytes, &p->now))
        p->peak_op = p->n_ops + 1;
    set_owner(p, *block_p, tensor);
    if (p->totals->reserved_bytes > p->max_reserved_bytes)
        note_reserved(p, tensor);
    p->n_ops++;
    if (p->observer.see != NULL)
        tell(p, tensor, block_bytes, false);
    if (p->n_ops == p->stop_at) {
        p->has_stopped = true;
        list_alive(p);
    }
    return !p->has_stopped;
}

static inline __attribute__((always_inline)) void
release(sim_player_t *p, const sim_tensor_t *tensor, sim_block_t block)
{
    p->current = tensor;
    sim_alloc_free(p->alloc, block);
    uint64_t block_bytes = p->account.allocated_bytes - p->totals->allocated_bytes;
    sim_account_remove(&p->account, tensor, block_bytes);
    p->owners[block].tensor = NULL;
    p->n_ops++;
    if (p->observer.see != NULL)
        tell(p, tensor, block_bytes, true);
}

bool sim_player_alloc(sim_player_t *p, const sim_tensor_t *tensor, uint64_t bytes, uint64_t stream,
                      sim_block_t *block_p)
{
    return alloc(p, tensor, bytes, stream, block_p);
}

void sim_player_free(sim_player_t *p, const sim_tensor_t *tensor, sim_block_t block)
{
    release(p, tensor, block);
}

bool sim_player_add_static(sim_player_t *p, sim_statics_t *list, const sim_tensor_t *tensor,
                           uint64_t stream)
{
    if (tensor->bytes == 0)
        return true;
    if (list->n == list->cap) {
        list->cap = list->cap > 0 ? 2 * list->cap : 64;
        sim_static_t *old = list->items;
        list->items = base_xcalloc(list->cap, sizeof(*list->items));
        if (old != NULL)
            memcpy(list->items, old, list->n * sizeof(*old));
        /* Owners point into the list. */
        for (uint32_t i = 0; i < list->n; i++)
            p->owners[list->items[i].block].tensor = &list->items[i].tensor;
        free(old);
    }
    sim_static_t *item = &list->items[list->n++];
    *item = (sim_static_t){ .tensor = *tensor, .block = SIM_BLOCK_NONE };
    bool ok = sim_player_alloc(p, &item->tensor, tensor->bytes, stream, &item->block);
    if (item->block == SIM_BLOCK_NONE)
        list->n--;
    return ok;
}

void sim_player_free_statics(sim_player_t *p, sim_statics_t *list)
{
    for (uint32_t i = 0; i < list->n; i++)
        sim_player_free(p, &list->items[i].tensor, list->items[i].block);
    list->n = 0;
}

bool sim_player_touch_persistent(sim_player_t *p, const sim_op_t *op)
{
    const sim_tensor_t *tensor = &p->persistent.tensors[op->tensor];
    uint32_t set = p->persistent.per_stream[op->tensor] ? p->buffers_of : SIM_BUFFERS_EAGER;
    sim_block_t *block_p = &p->persistent_blocks[set * p->persistent.n + op->tensor];
    sim_block_t old = *block_p;
    if (old != SIM_BLOCK_NONE && sim_alloc_block_bytes(p->alloc, old) >= op->bytes)
        return true;
    if (!sim_player_alloc(p, tensor, op->bytes, 0, block_p))
        return false;
    if (old != SIM_BLOCK_NONE)
        sim_player_free(p, tensor, old);
    return true;
}

static bool tell_unit(sim_player_t *p, sim_player_chunk_t *c, const sim_op_t *op)
{
    sim_unit_event_t event = (sim_unit_event_t)op->tensor;
    return c->fsdp2 != NULL ? sim_fsdp2_event(p, c, event, op->slot)
                            : sim_fsdp_event(p, c, event, op->slot);
}

static void free_latest(sim_player_t *p, sim_latest_t *latest)
{
    for (uint32_t i = 0; i < latest->n; i++)
        sim_player_free(p, latest->kept[i].tensor, latest->kept[i].block);
    latest->n = 0;
}

void sim_player_release_latest(sim_player_t *p)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        for (uint32_t layer = 0; layer < p->chunks[c].chunk.place.n_layers; layer++)
            free_latest(p, &p->chunks[c].latest[layer]);
    }
}

static void set_latest(sim_player_t *p, sim_latest_t *latest)
{
    free_latest(p, latest);
    latest->microbatch = p->now.microbatch;
}

static void keep_latest(sim_player_t *p, sim_latest_t *latest, const sim_tensor_t *tensor,
                        sim_block_t *slot)
{
    if (latest->microbatch == p->now.microbatch) {
        assert(latest->n < SIM_LATEST_MAX);
        latest->kept[latest->n].tensor = tensor;
        latest->kept[latest->n++].block = *slot;
    } else {
        sim_player_free(p, tensor, *slot);
    }
    *slot = SIM_BLOCK_NONE;
}

static bool play_ops(sim_player_t *p, sim_player_chunk_t *c, const sim_op_t *op,
                     const sim_op_t *end, const sim_tape_tensors_t *of, sim_block_t *slots,
                     bool is_deferred)
{
    const sim_tensor_t *tensors = of->tensors;
    for (; op < end; op++) {
        switch (op->kind) {
        case SIM_OP_ALLOC:
            if (!alloc(p, &tensors[op->tensor], op->bytes, op->stream, &slots[op->slot]))
                return false;
            break;
        case SIM_OP_FREE:
            release(p, &tensors[op->tensor], slots[op->slot]);
            slots[op->slot] = SIM_BLOCK_NONE;
            break;
        case SIM_OP_PERSIST:
            if (!sim_player_touch_persistent(p, op))
                return false;
            break;
        case SIM_OP_DEFER:
            if (is_deferred)
                break;
            sim_player_free(p, &tensors[op->tensor], slots[op->slot]);
            slots[op->slot] = SIM_BLOCK_NONE;
            break;
        case SIM_OP_TO_HOST:
            p->offloaded_bytes += op->bytes;
            p->max_offloaded_bytes = base_u64_max(p->max_offloaded_bytes, p->offloaded_bytes);
            break;
        case SIM_OP_FROM_HOST:
            p->offloaded_bytes -= op->bytes;
            break;
        case SIM_OP_HOLD:
        case SIM_OP_LET_GO_OUTPUT: /* of graphs' tapes */
        case SIM_OP_LET_GO_GRAD:
        case SIM_OP_NODE:
            break;
        case SIM_OP_LATEST:
            set_latest(p, &c->latest[op->slot]);
            break;
        case SIM_OP_KEEP_LATEST:
            keep_latest(p, &c->latest[op->bytes], &tensors[op->tensor], &slots[op->slot]);
            break;
        case SIM_OP_UNIT:
            if (!tell_unit(p, c, op))
                return false;
            break;
        }
    }
    return true;
}

static bool play(sim_player_t *p, sim_player_chunk_t *c, const sim_tape_t *tape,
                 const sim_tape_tensors_t *of, sim_block_t *slots, bool is_deferred)
{
    if (tape->n_ops == 0)
        return true;
    return play_ops(p, c, tape->ops, tape->ops + tape->n_ops, of, slots, is_deferred);
}

static void free_graph_slot(sim_player_t *p, sim_player_chunk_t *c, const sim_op_t *op,
                            sim_block_t *slots)
{
    if (slots[op->slot] != SIM_BLOCK_NONE)
        sim_player_free(p, &c->chunk.of.tensors[op->tensor], slots[op->slot]);
    slots[op->slot] = SIM_BLOCK_NONE;
}

bool sim_player_play_graph(sim_player_t *p, sim_player_chunk_t *c, const sim_tape_t *tape,
                           sim_block_t *slots, bool holds_outputs)
{
    for (uint32_t i = 0; i < tape->n_ops; i++) {
        const sim_op_t *op = &tape->ops[i];
        bool ok = true;
        switch (op->kind) {
        case SIM_OP_ALLOC:
            ok = sim_player_alloc(p, &c->chunk.of.tensors[op->tensor], op->bytes, op->stream,
                                  &slots[op->slot]);
            break;
        case SIM_OP_PERSIST:
            ok = sim_player_touch_persistent(p, op);
            break;
        case SIM_OP_FREE:
        case SIM_OP_LET_GO_GRAD:
            free_graph_slot(p, c, op, slots);
            break;
        case SIM_OP_LET_GO_OUTPUT:
            if (!holds_outputs)
                free_graph_slot(p, c, op, slots);
            break;
        default: /* a graph has no others */
            break;
        }
        if (!ok)
            return false;
    }
    return true;
}

static sim_block_t *take_slots(sim_player_chunk_t *c)
{
    sim_block_t *slots =
        c->n_spare > 0 ? c->spare[--c->n_spare] : base_xcalloc(c->chunk.n_slots, sizeof(*slots));
    for (uint32_t i = 0; i < c->chunk.n_slots; i++)
        slots[i] = SIM_BLOCK_NONE;
    return slots;
}

static const sim_chunk_t *chunk_of(const sim_player_t *p, const sim_player_chunk_t *c,
                                   uint32_t microbatch)
{
    if (p->lengths == NULL || p->now.iteration == 0)
        return &c->chunk;
    uint64_t at = (uint64_t)(p->now.iteration - 1) * p->n_microbatches + microbatch;
    uint32_t length = p->lengths[at];
    return length == p->n_lengths ? &c->chunk : &c->shorter[length - 1];
}

static sim_block_t *slots_of(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch)
{
    sim_slots_t *pass = &c->passes[microbatch];
    if (pass->slots == NULL) {
        pass->slots = take_slots(c);
        pass->chunk = chunk_of(p, c, microbatch);
    }
    return pass->slots;
}

/* A pass is over when it has run backward and all four border tensors are gone. */
static void maybe_retire(sim_player_chunk_t *c, uint32_t microbatch)
{
    sim_block_t *slots = c->passes[microbatch].slots;
    for (uint32_t i = 0; i < c->chunk.n_slots; i++) {
        if (slots[i] != SIM_BLOCK_NONE)
            return;
    }
    c->spare[c->n_spare++] = slots;
    c->passes[microbatch].slots = NULL;
}

/* Tensors that the schedule itself allocates or frees; all of one hidden tensor. */
static const sim_tensor_t border_tensors[SIM_N_SLOTS_FIXED] = {
    [SIM_SLOT_INPUT] = { "stage_input", 0, SIM_NO_LAYER, SIM_CAT_PIPELINE, SIM_MOD_PIPELINE },
    [SIM_SLOT_OUTPUT] = { "stage_output", 0, SIM_NO_LAYER, SIM_CAT_PIPELINE, SIM_MOD_PIPELINE },
    [SIM_SLOT_OUTPUT_GRAD] = { "output_grad", 0, SIM_NO_LAYER, SIM_CAT_PIPELINE, SIM_MOD_PIPELINE },
    [SIM_SLOT_INPUT_GRAD] = { "input_grad", 0, SIM_NO_LAYER, SIM_CAT_PIPELINE, SIM_MOD_PIPELINE },
};

static bool receive(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch, int slot)
{
    if (sim_is_titan(p->scenario))
        return true; /* into a buffer that is there */
    sim_block_t *slots = slots_of(p, c, microbatch);
    const sim_chunk_t *chunk = c->passes[microbatch].chunk;
    uint64_t bytes = slot == SIM_SLOT_INPUT ? chunk->in_bytes : chunk->out_bytes;
    return sim_player_alloc(p, &border_tensors[slot], bytes, 0, &slots[slot]);
}

static void free_slot(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch, int slot)
{
    sim_block_t *slots = c->passes[microbatch].slots;
    const sim_tensor_t *tensor = p->owners[slots[slot]].tensor;
    sim_player_free(p, tensor, slots[slot]);
    slots[slot] = SIM_BLOCK_NONE;
    maybe_retire(c, microbatch);
}

void sim_player_free_border(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch, int slot)
{
    sim_slots_t *pass = &c->passes[microbatch];
    if (pass->slots != NULL && pass->slots[slot] != SIM_BLOCK_NONE)
        free_slot(p, c, microbatch, slot);
}

/* Where a V turns, chunk 0 reads the input grad of chunk 1 as its output grad. */
static bool is_handed_over(const sim_player_t *p, const sim_player_chunk_t *c, int slot)
{
    return slot == SIM_SLOT_INPUT_GRAD && p->turns && c == &p->chunks[1];
}

/* Gradients of weights that are still to be computed read the tensor. */
static bool is_still_read(const sim_player_t *p, const sim_player_chunk_t *c, uint32_t microbatch,
                          int slot)
{
    const sim_player_chunk_t *reader = c;
    if (is_handed_over(p, c, slot)) {
        reader = &p->chunks[0];
        slot = SIM_SLOT_OUTPUT_GRAD;
    }
    return reader->passes[microbatch].waits && (reader->chunk.split.borders >> slot & 1);
}

static void free_border(sim_player_t *p, sim_player_chunk_t *c, const sim_step_t *step, int slot)
{
    sim_slots_t *pass = &c->passes[step->microbatch];
    if (pass->slots == NULL || pass->slots[slot] == SIM_BLOCK_NONE || pass->is_deferred)
        return; /* left from the iteration before the first, or the scalar loss */
    if (sim_is_titan(p->scenario))
        return; /* whose stages hold them until the next step */
    if (is_still_read(p, c, step->microbatch, slot))
        pass->let_go |= (uint8_t)(1U << slot);
    else
        free_slot(p, c, step->microbatch, slot);
}

/* Free what only the gradients of weights have kept. */
static void free_let_go(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch)
{
    for (int slot = 0; slot < SIM_N_SLOTS_FIXED; slot++) {
        sim_slots_t *pass = &c->passes[microbatch];
        if (!(pass->let_go >> slot & 1) || is_still_read(p, c, microbatch, slot))
            continue;
        pass->let_go &= (uint8_t) ~(1U << slot);
        free_slot(p, c, microbatch, slot);
    }
}

/* The first passes up to the limit are deferred: the output layer's input stays in
 * embedding_activation_buffer and the logits' gradient in grad_output_buffer. The input still has
 * its graph, which leads to the stage's input and so to that one's gradient. */
static void start_pass(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch)
{
    const sim_scenario_t *s = p->scenario;
    bool defers = s->defer_embedding_wgrad_compute && c->chunk.place.has_loss &&
                  (s->wgrad_deferral_limit == 0 || c->n_deferred < s->wgrad_deferral_limit);
    slots_of(p, c, microbatch);
    c->passes[microbatch].is_deferred = defers;
    c->n_deferred += defers;
}

static bool run_forward(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch)
{
    start_pass(p, c, microbatch);
    const sim_slots_t *pass = &c->passes[microbatch];
    return play(p, c, p->graphs_are_used ? &pass->chunk->graphed_forward : &pass->chunk->forward,
                &pass->chunk->of, pass->slots, false);
}

static bool run_backward(sim_player_t *p, sim_player_chunk_t *c, const sim_step_t *step)
{
    sim_slots_t *pass = &c->passes[step->microbatch];
    sim_block_t *slots = slots_of(p, c, step->microbatch);
    const sim_chunk_t *chunk = pass->chunk;
    if (!(step->flags & SIM_STEP_SPLIT))
        return play(p, c, p->graphs_are_used ? &chunk->graphed_backward : &chunk->backward,
                    &chunk->of, slots, pass->is_deferred);
    pass->waits = true;
    return play(p, c, &chunk->split.backward, &chunk->split.of, slots, false);
}

static bool run_weights(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch)
{
    c->passes[microbatch].waits = false;
    if (!play(p, c, &c->chunk.split.weights, &c->chunk.split.of, slots_of(p, c, microbatch), false))
        return false;
    free_let_go(p, c, microbatch);
    if (p->turns && c == &p->chunks[0])
        free_let_go(p, &p->chunks[1], microbatch);
    if (c->passes[microbatch].slots != NULL)
        maybe_retire(c, microbatch);
    return true;
}

static void free_all_slots(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch)
{
    sim_block_t *slots = c->passes[microbatch].slots;
    for (uint32_t i = 0; i < c->chunk.n_slots; i++) {
        if (slots[i] != SIM_BLOCK_NONE)
            sim_player_free(p, p->owners[slots[i]].tensor, slots[i]);
        slots[i] = SIM_BLOCK_NONE;
    }
    maybe_retire(c, microbatch);
}

/* drain_embedding_wgrad_compute(). */
static void flush_deferred(sim_player_t *p)
{
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        sim_player_chunk_t *c = &p->chunks[i];
        for (uint32_t m = 0; m < p->n_microbatches && c->n_deferred > 0; m++) {
            if (c->passes[m].slots != NULL && c->passes[m].is_deferred)
                free_all_slots(p, c, m);
            c->passes[m].is_deferred = false;
        }
        c->n_deferred = 0;
    }
}

static void release_held_by(sim_player_t *p, sim_player_chunk_t *c, const sim_tape_t *tape)
{
    for (uint32_t k = 0; k < tape->n_ops; k++) {
        if (tape->ops[k].kind != SIM_OP_HOLD)
            continue;
        for (uint32_t m = 0; m < p->n_microbatches; m++) {
            sim_block_t *slots = c->passes[m].slots;
            if (slots == NULL || slots[tape->ops[k].slot] == SIM_BLOCK_NONE)
                continue;
            sim_block_t block = slots[tape->ops[k].slot];
            sim_player_free(p, p->owners[block].tensor, block);
            slots[tape->ops[k].slot] = SIM_BLOCK_NONE;
            maybe_retire(c, m);
        }
    }
}

/* The last passes may have been the last without graphs. */
void sim_player_release_held(sim_player_t *p)
{
    for (uint32_t i = 0; i < p->n_chunks; i++) {
        release_held_by(p, &p->chunks[i], &p->chunks[i].chunk.forward);
        release_held_by(p, &p->chunks[i], &p->chunks[i].chunk.backward);
        if (p->graphs_are_used)
            release_held_by(p, &p->chunks[i], &p->chunks[i].chunk.graphed_forward);
    }
}

/* A pass that is played node by node. */
typedef struct {
    const sim_slots_t *pass;
    const sim_tape_t *tape;
    uint32_t microbatch;
    sim_phase_t phase;
    uint32_t at; /* the next op */
} turns_t;

static bool play_node(sim_player_t *p, sim_player_chunk_t *c, turns_t *turns)
{
    const sim_op_t *ops = turns->tape->ops;
    uint32_t first = turns->at, end = first;
    while (end < turns->tape->n_ops && ops[end].kind != SIM_OP_NODE)
        end++;
    turns->at = end < turns->tape->n_ops ? end + 1 : end;
    p->now.microbatch = turns->microbatch;
    p->now.phase = turns->phase;
    return play_ops(p, c, ops + first, ops + end, &turns->pass->chunk->of, turns->pass->slots,
                    false);
}

/* TransformerModelChunkSchedulePlan.run(): the forward pass goes up and the backward pass goes
 * down, a layer of each at a time. */
static bool run_combined(sim_player_t *p, sim_player_chunk_t *c, uint32_t microbatch)
{
    static const bool is_forward[2 * SIM_NODES_OF_LAYER] = { false, true, false, true,
                                                             false, true, true,  false };
    start_pass(p, c, microbatch);
    const sim_slots_t *before = &c->passes[microbatch - 1], *pass = &c->passes[microbatch];
    turns_t turns[] = { { .pass = before,
                          .tape = &before->chunk->backward,
                          .microbatch = microbatch - 1,
                          .phase = SIM_PHASE_BACKWARD },
                        { .pass = pass,
                          .tape = &pass->chunk->forward,
                          .microbatch = microbatch,
                          .phase = SIM_PHASE_FORWARD } };
    bool ok = play_node(p, c, &turns[true]) && play_node(p, c, &turns[false]);
    for (uint32_t layer = 0; ok && layer < c->chunk.place.n_layers; layer++) {
        for (uint32_t i = 0; ok && i < 2 * SIM_NODES_OF_LAYER; i++)
            ok = play_node(p, c, &turns[is_forward[i]]);
    }
    ok = ok && play_node(p, c, &turns[true]) && play_node(p, c, &turns[false]);
    if (ok)
        maybe_retire(c, microbatch - 1);
    return ok;
}

bool sim_player_run(sim_player_t *p, const sim_step_t *step)
{
    sim_player_chunk_t *c = &p->chunks[step->chunk];
    if (p->passes_are_replayed)
        return true;
    p->now.microbatch = step->microbatch;
    p->now.chunk = step->chunk;
    switch ((sim_step_kind_t)step->kind) {
    case SIM_STEP_FORWARD:
        p->now.phase = SIM_PHASE_FORWARD;
        return step->flags & SIM_STEP_COMBINED ? run_combined(p, c, step->microbatch)
                                               : run_forward(p, c, step->microbatch);
    case SIM_STEP_BACKWARD:
        p->now.phase = SIM_PHASE_BACKWARD;
        if (step->flags & SIM_STEP_COMBINED)
            return true; /* with the forward pass */
        if (!run_backward(p, c, step))
            return false;
        maybe_retire(c, step->microbatch);
        return true;
    case SIM_STEP_WEIGHT_GRAD:
        p->now.phase = SIM_PHASE_WEIGHT_GRAD;
        return run_weights(p, c, step->microbatch);
    case SIM_STEP_RECV_FORWARD:
        p->now.phase = SIM_PHASE_FORWARD;
        return receive(p, c, step->microbatch, SIM_SLOT_INPUT);
    case SIM_STEP_RECV_BACKWARD:
        p->now.phase = SIM_PHASE_BACKWARD;
        return receive(p, c, step->microbatch, SIM_SLOT_OUTPUT_GRAD);
    case SIM_STEP_FREE_INPUT:
        free_border(p, c, step, SIM_SLOT_INPUT);
        return true;
    case SIM_STEP_FREE_OUTPUT:
        free_border(p, c, step, SIM_SLOT_OUTPUT);
        return true;
    case SIM_STEP_FREE_OUTPUT_GRAD:
        free_border(p, c, step, SIM_SLOT_OUTPUT_GRAD);
        return true;
    case SIM_STEP_FREE_INPUT_GRAD:
        free_border(p, c, step, SIM_SLOT_INPUT_GRAD);
        return true;
    case SIM_STEP_FINALIZE_GRADS:
        p->now.phase = SIM_PHASE_GRAD_SYNC;
        flush_deferred(p);
        return !sim_is_titan(p->scenario) || sim_titan_merge_outputs(p);
    default: /* messages: no memory */
        return true;
    }
}
