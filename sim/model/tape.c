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
                          .layer = SIM_NO_LAYER };
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

static void push(sim_builder_t *b, sim_op_t op)
{
    sim_tape_t *t = b->tape;
    if (t->n_ops == t->cap) {
        t->cap = t->cap > 0 ? 2 * t->cap : 256;
        t->ops = base_xrealloc(t->ops, t->cap, sizeof(*t->ops));
    }
    t->ops[t->n_ops++] = op;
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
    };
    sim_ref_t ref = add_built(b, built);
    push(b, (sim_op_t){ .kind = SIM_OP_ALLOC,
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
    built->is_discarded = true;
    push(b, (sim_op_t){ .kind = SIM_OP_FREE, .slot = built->slot, .tensor = ref });
}

void sim_restore(sim_builder_t *b, sim_ref_t ref)
{
    if (ref == SIM_REF_NONE)
        return;
    sim_built_t *built = &b->built[ref];
    assert(built->refs > 0 && built->is_discarded);
    built->is_discarded = false;
    push(b, (sim_op_t){ .kind = SIM_OP_ALLOC,
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
static void keep_beyond(sim_builder_t *b, sim_ref_t ref, sim_op_kind_t kind)
{
    sim_built_t *built = &b->built[ref];
    assert(built->refs == 1);
    built->refs = 0;
    if (built->tensor.category == CAT_OPEN)
        built->tensor.category = SIM_CAT_ACTIVATIONS;
    push(b, (sim_op_t){ .kind = (uint8_t)kind, .slot = built->slot, .tensor = ref });
}

void sim_hold(sim_builder_t *b, sim_ref_t ref)
{
    keep_beyond(b, ref, SIM_OP_HOLD);
}

void sim_defer(sim_builder_t *b, sim_ref_t ref)
{
    const sim_built_t *built = &b->built[ref];
    if (built->refs > 1 || built->slot < SIM_N_SLOTS_FIXED)
        sim_drop(b, ref);
    else
        keep_beyond(b, ref, SIM_OP_DEFER);
}

void sim_leave(sim_builder_t *b, sim_ref_t ref, uint32_t slot)
{
    sim_built_t *built = &b->built[ref];
    assert(slot < SIM_N_SLOTS_FIXED && built->refs == 1);
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
    p->keys[i] = base_xstrdup(key);
    p->tensors[i] = (sim_tensor_t){ .name = p->keys[i],
                                    .layer = SIM_NO_LAYER,
                                    .category = SIM_CAT_WORKSPACE,
                                    .module = (uint8_t)module };
    return p->n;
}

void sim_persist(sim_builder_t *b, sim_module_t module, const char *key, uint64_t bytes)
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
    push(b, (sim_op_t){ .kind = SIM_OP_PERSIST, .tensor = i, .bytes = bytes });
}

void sim_touch(sim_builder_t *b, const char *name, uint64_t bytes)
{
    sim_drop(b, sim_new(b, name, bytes));
}

void sim_builder_finish(sim_builder_t *b)
{
    for (uint32_t i = 0; i < b->n_built; i++) {
        assert(b->built[i].refs == 0);
        assert(b->built[i].tensor.category != CAT_OPEN);
    }
}
