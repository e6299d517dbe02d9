/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/tape.h"

#include "tests/cutap.h"

#include <stdio.h>
#include <string.h>

/* A builder with both tapes of a pass. */
typedef struct {
    sim_persistent_t persistent;
    sim_tape_t forward, backward;
    sim_builder_t b;
} pass_t;

static void pass_init(pass_t *p)
{
    memset(p, 0, sizeof(*p));
    sim_builder_init(&p->b, &p->persistent);
    sim_builder_begin(&p->b, &p->forward, true);
}

static void pass_fini(pass_t *p)
{
    sim_builder_finish(&p->b);
    sim_builder_fini(&p->b);
    sim_tape_fini(&p->forward);
    sim_tape_fini(&p->backward);
    sim_persistent_fini(&p->persistent);
}

static void go_backward(pass_t *p)
{
    sim_builder_begin(&p->b, &p->backward, false);
}

static int category(const pass_t *p, sim_ref_t ref)
{
    return p->b.built[ref].tensor.category;
}

/* "a0 f0 p1 …": kinds of ops with their slot (of a persistent buffer: its number). */
static const char *text(const sim_tape_t *tape)
{
    static const char letters[] = { [SIM_OP_ALLOC] = 'a',
                                    [SIM_OP_FREE] = 'f',
                                    [SIM_OP_PERSIST] = 'p',
                                    [SIM_OP_HOLD] = 'h',
                                    [SIM_OP_DEFER] = 'd' };
    static char out[256];
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < tape->n_ops; i++) {
        const sim_op_t *op = &tape->ops[i];
        unsigned which = op->kind == SIM_OP_PERSIST ? op->tensor : op->slot;
        n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%c%u", i > 0 ? " " : "",
                              letters[op->kind], which);
    }
    return out;
}

static void last_reference_frees(void)
{
    pass_t p;
    pass_init(&p);
    sim_ref_t x = sim_new(&p.b, "x", 100);
    sim_keep(&p.b, x);
    sim_drop(&p.b, x);
    CU_ASSERT_STRING_EQUAL(text(&p.forward), "a4");
    sim_drop(&p.b, x);
    CU_ASSERT_STRING_EQUAL(text(&p.forward), "a4 f4");
    CU_ASSERT_EQUAL(p.forward.ops[0].bytes, 100);
    pass_fini(&p);
}

static void nothing_is_passed_through(void)
{
    pass_t p;
    pass_init(&p);
    CU_ASSERT_EQUAL(sim_new(&p.b, "empty", 0), SIM_REF_NONE);
    CU_ASSERT_EQUAL(sim_keep(&p.b, SIM_REF_NONE), SIM_REF_NONE);
    sim_drop(&p.b, SIM_REF_NONE);
    sim_discard(&p.b, SIM_REF_NONE);
    sim_restore(&p.b, SIM_REF_NONE);
    sim_touch(&p.b, "empty", 0);
    sim_persist(&p.b, SIM_MOD_LIBRARY, "empty", 0);
    CU_ASSERT_EQUAL(p.forward.n_ops, 0);
    CU_ASSERT_EQUAL(p.persistent.n, 0);
    pass_fini(&p);
}

static void slots_are_used_again(void)
{
    pass_t p;
    pass_init(&p);
    sim_ref_t x = sim_new(&p.b, "x", 1), y = sim_new(&p.b, "y", 1);
    sim_drop(&p.b, x);
    sim_ref_t z = sim_new(&p.b, "z", 1);
    sim_drop(&p.b, y);
    sim_drop(&p.b, z);
    CU_ASSERT_STRING_EQUAL(text(&p.forward), "a4 a5 f4 a4 f5 f4");
    CU_ASSERT_EQUAL(p.b.n_slots, SIM_N_SLOTS_FIXED + 2);
    pass_fini(&p);
}

static void categories_follow_lifetimes(void)
{
    pass_t p;
    pass_init(&p);
    sim_ref_t saved = sim_new(&p.b, "saved", 1), local = sim_new(&p.b, "local", 1);
    sim_ref_t data = sim_new_as(&p.b, SIM_CAT_DATA, "data", 1);
    sim_drop(&p.b, local);
    go_backward(&p);
    sim_ref_t grad = sim_new(&p.b, "grad", 1);
    sim_drop(&p.b, saved);
    sim_drop(&p.b, data);
    sim_drop(&p.b, grad);
    CU_ASSERT_EQUAL(category(&p, saved), SIM_CAT_ACTIVATIONS);
    CU_ASSERT_EQUAL(category(&p, local), SIM_CAT_TEMPORARY);
    CU_ASSERT_EQUAL(category(&p, data), SIM_CAT_DATA);
    CU_ASSERT_EQUAL(category(&p, grad), SIM_CAT_TEMPORARY);
    pass_fini(&p);
}

static void new_tensors_are_marked(void)
{
    pass_t p;
    pass_init(&p);
    p.b.layer = 7;
    p.b.module = SIM_MOD_FC1;
    p.b.stream = 2;
    sim_ref_t x = sim_new(&p.b, "x", 1);
    sim_drop(&p.b, x);
    CU_ASSERT_EQUAL(p.b.built[x].tensor.layer, 7);
    CU_ASSERT_EQUAL(p.b.built[x].tensor.module, SIM_MOD_FC1);
    CU_ASSERT_STRING_EQUAL(p.b.built[x].tensor.name, "x");
    CU_ASSERT_EQUAL(p.forward.ops[0].stream, 2);
    pass_fini(&p);
}

/* What crosses the border of a stage is freed by the schedule, not by the tape. */
static void borders_are_left_to_the_schedule(void)
{
    pass_t p;
    pass_init(&p);
    sim_ref_t in = sim_given(&p.b, SIM_SLOT_INPUT, "in", 8);
    sim_ref_t out = sim_new(&p.b, "out", 8);
    sim_leave(&p.b, out, SIM_SLOT_OUTPUT);
    sim_ref_t next = sim_new(&p.b, "next", 8);
    sim_drop(&p.b, next);
    go_backward(&p);
    sim_drop(&p.b, in);
    CU_ASSERT_STRING_EQUAL(text(&p.forward), "a1 a4 f4");
    CU_ASSERT_STRING_EQUAL(text(&p.backward), "");
    CU_ASSERT_EQUAL(category(&p, in), SIM_CAT_PIPELINE);
    CU_ASSERT_EQUAL(category(&p, out), SIM_CAT_PIPELINE);
    pass_fini(&p);
}

/* The slot stays taken: the block is found there when its time has come. */
static void kept_tensors_keep_their_slot(void)
{
    pass_t p;
    pass_init(&p);
    sim_ref_t held = sim_new(&p.b, "held", 1), deferred = sim_new(&p.b, "deferred", 1);
    sim_hold(&p.b, held);
    go_backward(&p);
    sim_defer(&p.b, deferred);
    sim_ref_t next = sim_new(&p.b, "next", 1);
    sim_drop(&p.b, next);
    CU_ASSERT_STRING_EQUAL(text(&p.forward), "a4 a5 h4");
    CU_ASSERT_STRING_EQUAL(text(&p.backward), "d5 a6 f6");
    CU_ASSERT_EQUAL(category(&p, held), SIM_CAT_ACTIVATIONS);
    CU_ASSERT_EQUAL(category(&p, deferred), SIM_CAT_ACTIVATIONS);
    pass_fini(&p);
}

/* Several may defer one tensor, as the losses of multi-token prediction do. */
static void the_last_reference_is_deferred(void)
{
    pass_t p;
    pass_init(&p);
    sim_ref_t in = sim_given(&p.b, SIM_SLOT_INPUT, "in", 8);
    sim_ref_t x = sim_keep(&p.b, sim_new(&p.b, "x", 1));
    go_backward(&p);
    sim_defer(&p.b, x);
    CU_ASSERT_STRING_EQUAL(text(&p.backward), "");
    sim_defer(&p.b, x);
    sim_defer(&p.b, in);
    CU_ASSERT_STRING_EQUAL(text(&p.backward), "d4");
    pass_fini(&p);
}

static void discarded_tensors_come_back(void)
{
    pass_t p;
    pass_init(&p);
    sim_ref_t x = sim_new(&p.b, "x", 9), y = sim_new(&p.b, "y", 9);
    sim_discard(&p.b, x);
    sim_discard(&p.b, y);
    sim_ref_t z = sim_new(&p.b, "z", 1); /* not in the slot of either */
    go_backward(&p);
    sim_restore(&p.b, x);
    sim_drop(&p.b, x);
    sim_drop(&p.b, y); /* has no memory to free */
    sim_drop(&p.b, z);
    CU_ASSERT_STRING_EQUAL(text(&p.forward), "a4 a5 f4 f5 a6");
    CU_ASSERT_STRING_EQUAL(text(&p.backward), "a4 f4 f6");
    CU_ASSERT_EQUAL(p.backward.ops[0].bytes, 9);
    pass_fini(&p);
}

static void persistent_buffers_have_a_key(void)
{
    pass_t p;
    pass_init(&p);
    sim_persist(&p.b, SIM_MOD_LIBRARY, "workspace", 32);
    sim_persist(&p.b, SIM_MOD_OUTPUT, "buffer", 10);
    sim_persist(&p.b, SIM_MOD_OUTPUT, "workspace", 64);
    sim_persist(&p.b, SIM_MOD_OUTPUT, "buffer", 8);
    CU_ASSERT_STRING_EQUAL(text(&p.forward), "p0 p1 p0 p1");
    CU_ASSERT_EQUAL_FATAL(p.persistent.n, 2);
    CU_ASSERT_STRING_EQUAL(p.persistent.keys[0], "workspace");
    CU_ASSERT_EQUAL(p.persistent.tensors[0].bytes, 64);
    CU_ASSERT_EQUAL(p.persistent.tensors[0].module, SIM_MOD_LIBRARY);
    CU_ASSERT_EQUAL(p.persistent.tensors[0].category, SIM_CAT_WORKSPACE);
    CU_ASSERT_EQUAL(p.persistent.tensors[1].bytes, 10);
    CU_ASSERT_EQUAL(p.forward.ops[2].bytes, 64);
    CU_ASSERT_EQUAL(p.forward.ops[3].bytes, 8);
    pass_fini(&p);
}

static void many_persistent_buffers_are_told_apart(void)
{
    pass_t p;
    char key[32];
    pass_init(&p);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 5000; i++) {
            snprintf(key, sizeof(key), "weight[%u]", i);
            sim_persist(&p.b, SIM_MOD_FC1, key, i + 1);
            CU_ASSERT_EQUAL(p.forward.ops[p.forward.n_ops - 1].tensor, i);
        }
    }
    CU_ASSERT_EQUAL(p.persistent.n, 5000);
    CU_ASSERT_STRING_EQUAL(p.persistent.keys[4999], "weight[4999]");
    CU_ASSERT_EQUAL(p.persistent.tensors[4999].bytes, 5000);
    pass_fini(&p);
}

static void touch_leaves_nothing(void)
{
    pass_t p;
    pass_init(&p);
    sim_touch(&p.b, "x", 5);
    CU_ASSERT_STRING_EQUAL(text(&p.forward), "a4 f4");
    pass_fini(&p);
}

/* More tensors at once than 16 bits count, as thousands of layers have. */
static void many_tensors_are_alive_at_once(void)
{
    enum { N = 100000 };
    static sim_ref_t refs[N];
    pass_t p;
    pass_init(&p);
    for (uint32_t i = 0; i < N; i++)
        refs[i] = sim_new(&p.b, "saved", 512);
    go_backward(&p);
    for (uint32_t i = N; i-- > 0;)
        sim_drop(&p.b, refs[i]);
    CU_ASSERT_EQUAL(p.b.n_slots, SIM_N_SLOTS_FIXED + N);
    CU_ASSERT_EQUAL(p.backward.ops[0].slot, SIM_N_SLOTS_FIXED + N - 1);
    pass_fini(&p);
}

static CU_TestInfo tests[] = {
    { "the last reference frees", last_reference_frees },
    { "nothing is passed through", nothing_is_passed_through },
    { "slots are used again", slots_are_used_again },
    { "categories follow lifetimes", categories_follow_lifetimes },
    { "new tensors are marked", new_tensors_are_marked },
    { "borders are left to the schedule", borders_are_left_to_the_schedule },
    { "kept tensors keep their slot", kept_tensors_keep_their_slot },
    { "the last reference is deferred", the_last_reference_is_deferred },
    { "discarded tensors come back", discarded_tensors_come_back },
    { "persistent buffers have a key", persistent_buffers_have_a_key },
    { "many persistent buffers are told apart", many_persistent_buffers_are_told_apart },
    { "touch leaves nothing", touch_leaves_nothing },
    { "many tensors are alive at once", many_tensors_are_alive_at_once },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "tape", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
