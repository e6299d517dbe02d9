/* SPDX-License-Identifier: Apache-2.0
 * Where sends and receives stand between the passes (scheduler/communication.py,
 * insert_send_nodes() and insert_recv_nodes()): a send right after its pass; a receive before the
 * pass during which it comes, at the latest before the pass that needs it, and never before a send
 * that was posted earlier. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/schedule/plan_build.h"

#include <assert.h>
#include <stdlib.h>

typedef struct {
    uint64_t ns; /* end of the pass that sends */
    uint32_t to; /* receiving rank */
    size_t at;   /* place of the pass in its rank's list: the sender's, then the receiver's */
    bool is_send;
} message_t;

typedef struct {
    const sim_plan_t *plan;
    uint64_t **ends;
    /* By rank, chunk, direction, micro-batch: end of the pass that makes what is sent. */
    uint64_t *done;
} times_t;

static uint64_t *done_at(const times_t *t, uint32_t r, uint32_t chunk, bool is_forward, uint32_t m)
{
    size_t i = ((size_t)r * t->plan->n_chunks + chunk) * 2 + is_forward;
    return &t->done[i * t->plan->n_microbatches + m];
}

static void init_times(times_t *t, const sim_plan_t *plan)
{
    sim_plan_costs_t costs = { 1, 1, 1, 0 };
    size_t n = (size_t)plan->pp * plan->n_chunks * 2 * plan->n_microbatches;
    *t = (times_t){ .plan = plan, .ends = sim_plan_ends(plan, &costs) };
    t->done = base_xcalloc(n, sizeof(*t->done));
    for (uint32_t r = 0; r < plan->pp; r++) {
        for (size_t i = 0; i < plan->ranks[r].n; i++) {
            const sim_plan_op_t *op = &plan->ranks[r].ops[i];
            if (op->kind != SIM_PLAN_WEIGHT_GRAD)
                *done_at(t, r, op->chunk, op->kind == SIM_PLAN_FORWARD, op->microbatch) =
                    t->ends[r][i];
        }
    }
}

/* By the end of the sender's pass; of two at the same time the one to the lower rank is first, and
 * those that go the same way stay in order. */
static int compare_messages(const void *a, const void *b)
{
    const message_t *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The rank that needs what the pass makes. False: none but its own. */
static bool user_of(const sim_plan_t *plan, uint32_t r, const sim_plan_op_t *op, uint32_t *to_p)
{
    uint32_t n_stages = topo_n_stages(plan->placement, plan->pp, plan->n_chunks);
    uint32_t stage = topo_stage_of(plan->placement, plan->pp, r, op->chunk), chunk = op->chunk;
    bool is_forward = op->kind == SIM_PLAN_FORWARD;
    if (op->kind == SIM_PLAN_WEIGHT_GRAD || stage == (is_forward ? n_stages - 1 : 0))
        return false;
    topo_stage_place(plan->placement, plan->pp, is_forward ? stage + 1 : stage - 1, to_p, &chunk);
    return *to_p != r;
}

static size_t list_messages(const times_t *t, uint32_t r, message_t *messages)
{
    const sim_plan_t *plan = t->plan;
    size_t n = 0;
    for (size_t i = 0; i < plan->ranks[r].n; i++) {
        const sim_plan_op_t *op = &plan->ranks[r].ops[i];
        uint32_t peer, chunk;
        if (sim_plan_source(plan, r, op, &peer, &chunk) && peer != r)
            messages[n++] =
                (message_t){ .ns = *done_at(t, peer, chunk, op->kind == SIM_PLAN_FORWARD,
                                            op->microbatch),
                             .to = r,
                             .at = i };
        if (user_of(plan, r, op, &peer))
            messages[n++] =
                (message_t){ .ns = t->ends[r][i], .to = peer, .at = i, .is_send = true };
    }
    qsort(messages, n, sizeof(*messages), compare_messages);
    return n;
}

/* Where the receives of a rank go: before its pass number before[i] for the i-th of them. A receive
 * follows every message that comes before it in time. */
static void place_receives(const times_t *t, uint32_t r, const message_t *messages, size_t n,
                           size_t *before)
{
    size_t first = 0; /* passes that no receive may precede any more */
    for (size_t i = 0; i < n; i++) {
        if (messages[i].is_send) {
            first = messages[i].at + 1;
            continue;
        }
        /* A send bounds it too, but the pass that sends ends no sooner than this one comes. */
        size_t at = first;
        while (at < messages[i].at && t->ends[r][at] < messages[i].ns)
            at++;
        before[i] = at;
        first = at;
    }
}

static sim_plan_kind_t message_kind(const sim_plan_op_t *op, bool is_send)
{
    if (op->kind == SIM_PLAN_FORWARD)
        return is_send ? SIM_PLAN_SEND_OUTPUT : SIM_PLAN_RECV_INPUT;
    return is_send ? SIM_PLAN_SEND_INPUT_GRAD : SIM_PLAN_RECV_OUTPUT_GRAD;
}

static void add_to_rank(const times_t *t, sim_plan_t *out, uint32_t r)
{
    const sim_plan_rank_t *rank = &t->plan->ranks[r];
    message_t *messages = base_xcalloc(2 * rank->n, sizeof(*messages));
    size_t *before = base_xcalloc(2 * rank->n, sizeof(*before));
    size_t n = list_messages(t, r, messages), next = 0;
    place_receives(t, r, messages, n, before);
    for (size_t i = 0; i < rank->n; i++) {
        const sim_plan_op_t *op = &rank->ops[i];
        uint32_t peer;
        for (; next < n && (messages[next].is_send ? messages[next].at < i : before[next] <= i);
             next++) {
            const sim_plan_op_t *user = &rank->ops[messages[next].at];
            if (!messages[next].is_send)
                sim_plan_add(out, r, message_kind(user, false), user->chunk, user->microbatch);
        }
        sim_plan_add(out, r, (sim_plan_kind_t)op->kind, op->chunk, op->microbatch);
        if (user_of(t->plan, r, op, &peer))
            sim_plan_add(out, r, message_kind(op, true), op->chunk, op->microbatch);
    }
    free(messages);
    free(before);
}

void sim_plan_add_messages(sim_plan_t *plan)
{
    times_t t;
    init_times(&t, plan);
    sim_plan_t out = *plan;
    out.ranks = base_xcalloc(plan->pp, sizeof(*out.ranks));
    for (uint32_t r = 0; r < plan->pp; r++)
        add_to_rank(&t, &out, r);
    sim_plan_ends_free(plan, t.ends);
    free(t.done);
    sim_plan_fini(plan);
    *plan = out;
}
