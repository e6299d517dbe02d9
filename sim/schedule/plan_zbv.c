/* SPDX-License-Identifier: Apache-2.0
 * ZBV: a search by rounds, as scheduler/zbv.py makes it. In each round every rank puts down a
 * backward and a forward pass, and gradients of weights fill the gaps. Four variants are tried, and
 * each again with the gaps of the try before allowed for. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/schedule/plan_build.h"

#include <stdlib.h>

/* Passes are of one length, messages far shorter. */
enum { PASS = 1000, MESSAGE = 1 };

/* A micro-batch goes through the V four times: down and up forward, down and up backward. */
typedef enum { FORWARD_DOWN, FORWARD_UP, BACKWARD_DOWN, BACKWARD_UP, N_LEGS } leg_t;

typedef struct {
    uint32_t count[N_LEGS]; /* passes put down */
    uint32_t n_weight[2];   /* gradients of weights put down, by BACKWARD_DOWN, BACKWARD_UP */
    int64_t now, gap;       /* end of the last pass; time that it stood still */
    uint8_t *legs;          /* of backward passes, in order; owned */
    sim_plan_rank_t plan;
} rank_t;

typedef struct {
    uint32_t pp, n; /* ranks, micro-batches */
    rank_t *ranks;
    int64_t *end; /* by leg, rank, micro-batch; -1 = not put down; owned */
    bool fills_forward, fills_backward;
    const int64_t *allowed; /* by rank: its gap in the try before; NULL in the first */
    int64_t most_allowed;
} try_t;

static bool is_forward(leg_t leg)
{
    return leg == FORWARD_DOWN || leg == FORWARD_UP;
}

static bool is_down(leg_t leg)
{
    return leg == FORWARD_DOWN || leg == BACKWARD_DOWN;
}

static uint32_t chunk_of(leg_t leg)
{
    return leg == FORWARD_UP || leg == BACKWARD_DOWN;
}

static int64_t *end_of(const try_t *t, leg_t leg, uint32_t r, uint32_t m)
{
    return &t->end[((size_t)leg * t->pp + r) * t->n + m];
}

static uint32_t n_forward(const rank_t *rank)
{
    return rank->count[FORWARD_DOWN] + rank->count[FORWARD_UP];
}

static uint32_t n_weight(const rank_t *rank)
{
    return rank->n_weight[0] + rank->n_weight[1];
}

static uint32_t n_backward(const rank_t *rank)
{
    return rank->count[BACKWARD_DOWN] + rank->count[BACKWARD_UP];
}

static bool has_weight(const rank_t *rank)
{
    return n_weight(rank) < n_backward(rank);
}

/* Whether `more` activations on top of those held would be more than 1F1B has on its first rank. */
static bool is_full(const try_t *t, const rank_t *rank, uint32_t more)
{
    return n_forward(rank) - n_weight(rank) + more > 2 * t->pp;
}

static void note(rank_t *rank, sim_plan_kind_t kind, uint32_t chunk, uint32_t m)
{
    rank->plan.ops[rank->plan.n++] =
        (sim_plan_op_t){ .kind = (uint8_t)kind, .chunk = (uint8_t)chunk, .microbatch = m };
}

static void put_weight(rank_t *rank)
{
    leg_t leg = (leg_t)rank->legs[n_weight(rank)];
    note(rank, SIM_PLAN_WEIGHT_GRAD, chunk_of(leg), rank->n_weight[leg - BACKWARD_DOWN]++);
    rank->now += PASS;
}

/* When the leg's next pass can begin for what it gets from its neighbour; -1 = not known yet, or it
 * gets nothing. */
static int64_t arrival(const try_t *t, uint32_t r, leg_t leg)
{
    uint32_t m = t->ranks[r].count[leg];
    if (m >= t->n || r == (is_down(leg) ? 0 : t->pp - 1))
        return -1;
    int64_t end = *end_of(t, leg, is_down(leg) ? r - 1 : r + 1, m);
    return end < 0 ? -1 : end + MESSAGE;
}

static void put(try_t *t, uint32_t r, leg_t leg)
{
    rank_t *rank = &t->ranks[r];
    uint32_t m = rank->count[leg];
    int64_t ready = arrival(t, r, leg), begin = ready > rank->now ? ready : rank->now;
    if (rank->count[FORWARD_DOWN] > 0)
        rank->gap += begin - rank->now;
    if (!is_forward(leg))
        rank->legs[n_backward(rank)] = (uint8_t)leg;
    rank->count[leg]++;
    rank->now = *end_of(t, leg, r, m) = begin + PASS;
    note(rank, is_forward(leg) ? SIM_PLAN_FORWARD : SIM_PLAN_INPUT_GRAD, chunk_of(leg), m);
}

static int64_t most_gap(const try_t *t)
{
    int64_t most = 0;
    for (uint32_t r = 0; r < t->pp; r++)
        most = t->ranks[r].gap > most ? t->ranks[r].gap : most;
    return most;
}

/* Time that rank r may still stand still without making the whole longer. */
static int64_t slack(const try_t *t, uint32_t r)
{
    int64_t most = most_gap(t);
    if (t->allowed != NULL && t->most_allowed - t->allowed[r] > most)
        most = t->most_allowed - t->allowed[r];
    return most - t->ranks[r].gap;
}

/* Gradients of weights while the leg's next pass waits. */
static void fill_gap(try_t *t, uint32_t r, leg_t leg)
{
    rank_t *rank = &t->ranks[r];
    int64_t ready = arrival(t, r, leg);
    if (ready < 0)
        return;
    while (has_weight(rank) && ready >= rank->now + PASS)
        put_weight(rank);
    bool fills = is_forward(leg) ? t->fills_forward : leg == BACKWARD_UP || t->fills_backward;
    if (fills && has_weight(rank) && ready - rank->now > slack(t, r))
        put_weight(rank);
}

/* ---- the phases ---- */

/* As many forward passes down as fit in before the first micro-batch comes up again. */
static void first_forwards(try_t *t)
{
    for (uint32_t r = 0; r < t->pp; r++)
        put(t, r, FORWARD_DOWN);
    for (uint32_t r = t->pp; r-- > 0;) {
        rank_t *rank = &t->ranks[r];
        while (r < t->pp - 1 && !is_full(t, rank, 2 + 2 * r) &&
               rank->now + PASS <= arrival(t, r, FORWARD_UP) && rank->count[FORWARD_DOWN] < t->n) {
            for (uint32_t i = 0; i <= r; i++)
                put(t, i, FORWARD_DOWN);
        }
        put(t, r, FORWARD_UP);
    }
}

/* Until every rank has run as many forward passes as the one before it. */
static void level_forwards(try_t *t)
{
    leg_t leg = FORWARD_DOWN;
    for (uint32_t r = 1; r < t->pp; r++) {
        const rank_t *rank = &t->ranks[r], *before = rank - 1;
        while (n_forward(rank) < n_forward(before) ||
               (rank->count[FORWARD_UP] <= before->count[FORWARD_UP] &&
                before->count[FORWARD_UP] < t->n)) {
            for (uint32_t i = t->pp; i-- > r;) {
                if (t->ranks[i].count[leg] < t->n)
                    put(t, i, leg);
            }
            leg = leg == FORWARD_DOWN ? FORWARD_UP : FORWARD_DOWN;
        }
    }
}

static leg_t backward_leg(const try_t *t, uint32_t r)
{
    const rank_t *rank = &t->ranks[r];
    if (rank->count[BACKWARD_UP] >= rank->count[BACKWARD_DOWN])
        return BACKWARD_DOWN;
    bool can_go_up = r == t->pp - 1 || arrival(t, r, BACKWARD_UP) >= 0;
    return can_go_up || rank->count[BACKWARD_DOWN] >= t->n ? BACKWARD_UP : BACKWARD_DOWN;
}

static void put_backward(try_t *t, uint32_t r, leg_t leg)
{
    fill_gap(t, r, leg);
    put(t, r, leg);
}

/* The ways up first, from the last rank on, then the ways down. */
static void backward_round(try_t *t, uint8_t *legs)
{
    for (uint32_t r = 0; r < t->pp; r++)
        legs[r] = (uint8_t)backward_leg(t, r);
    for (uint32_t r = t->pp; r-- > 0;) {
        if (legs[r] == BACKWARD_UP)
            put_backward(t, r, BACKWARD_UP);
    }
    for (uint32_t r = 0; r < t->pp; r++) {
        if (legs[r] == BACKWARD_DOWN)
            put_backward(t, r, BACKWARD_DOWN);
    }
}

/* N_LEGS: none can be put down yet. */
static leg_t forward_leg(const try_t *t, uint32_t r)
{
    const rank_t *rank = &t->ranks[r];
    if (rank->count[FORWARD_UP] >= rank->count[FORWARD_DOWN])
        return FORWARD_DOWN;
    if (r == t->pp - 1 || arrival(t, r, FORWARD_UP) >= 0)
        return FORWARD_UP;
    if (rank->count[FORWARD_DOWN] < t->n && (r == 0 || arrival(t, r, FORWARD_DOWN) >= 0))
        return FORWARD_DOWN;
    return N_LEGS;
}

static void forward_round(try_t *t)
{
    for (uint32_t r = 0; r < t->pp; r++) {
        rank_t *rank = &t->ranks[r];
        if (rank->count[FORWARD_UP] >= t->n)
            continue;
        leg_t leg = forward_leg(t, r);
        if (leg == N_LEGS)
            continue;
        while (is_full(t, rank, 1))
            put_weight(rank);
        fill_gap(t, r, leg);
        put(t, r, leg);
    }
}

static void run(try_t *t)
{
    uint8_t *legs = base_xcalloc(t->pp, sizeof(*legs));
    first_forwards(t);
    level_forwards(t);
    for (uint32_t i = 0; i < 2 * t->n; i++) {
        backward_round(t, legs);
        forward_round(t);
    }
    for (uint32_t r = 0; r < t->pp; r++) {
        while (has_weight(&t->ranks[r]))
            put_weight(&t->ranks[r]);
    }
    free(legs);
}

/* ---- the search ---- */

static try_t *make_try(const sim_plan_t *plan, uint32_t variant, const try_t *before,
                       int64_t *allowed)
{
    try_t *t = base_xcalloc(1, sizeof(*t));
    size_t n_ends = (size_t)N_LEGS * plan->pp * plan->n_microbatches;
    *t = (try_t){ .pp = plan->pp,
                  .n = plan->n_microbatches,
                  .fills_backward = variant < 2,
                  .fills_forward = variant % 2 == 0 };
    t->ranks = base_xcalloc(t->pp, sizeof(*t->ranks));
    t->end = base_xcalloc(n_ends, sizeof(*t->end));
    for (size_t i = 0; i < n_ends; i++)
        t->end[i] = -1;
    for (uint32_t r = 0; r < t->pp; r++) {
        t->ranks[r].legs = base_xcalloc((size_t)2 * t->n, 1);
        t->ranks[r].plan.capacity = (size_t)6 * t->n;
        t->ranks[r].plan.ops = base_xcalloc((size_t)6 * t->n, sizeof(sim_plan_op_t));
        if (before != NULL)
            allowed[r] = before->ranks[r].gap;
    }
    if (before != NULL) {
        t->allowed = allowed;
        t->most_allowed = most_gap(before);
    }
    run(t);
    return t;
}

static void destroy_try(try_t *t)
{
    if (t == NULL)
        return;
    for (uint32_t r = 0; r < t->pp; r++) {
        free(t->ranks[r].legs);
        free(t->ranks[r].plan.ops);
    }
    free(t->ranks);
    free(t->end);
    free(t);
}

/* Takes over both; returns the one with the smaller gap, the first where they are equal. */
static try_t *better_of(try_t *a, try_t *b)
{
    bool takes_b = a == NULL || most_gap(b) < most_gap(a);
    destroy_try(takes_b ? a : b);
    return takes_b ? b : a;
}

/* A variant, again and again as long as the gaps become smaller. */
static try_t *try_variant(const sim_plan_t *plan, uint32_t variant)
{
    int64_t *allowed = base_xcalloc(plan->pp, sizeof(*allowed));
    try_t *best = make_try(plan, variant, NULL, NULL);
    for (;;) {
        int64_t gap = most_gap(best);
        best = better_of(best, make_try(plan, variant, best, allowed));
        if (most_gap(best) >= gap)
            break;
    }
    best->allowed = NULL;
    free(allowed);
    return best;
}

void sim_plan_fill_zbv(sim_plan_t *plan)
{
    try_t *best = NULL;
    for (uint32_t variant = 0; variant < 4; variant++)
        best = better_of(best, try_variant(plan, variant));
    for (uint32_t r = 0; r < plan->pp; r++) {
        plan->ranks[r] = best->ranks[r].plan;
        best->ranks[r].plan = (sim_plan_rank_t){ 0 };
    }
    destroy_try(best);
}
