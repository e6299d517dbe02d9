/* SPDX-License-Identifier: Apache-2.0
 * V-half and V-min: a building block of four passes on each rank that repeats for every
 * micro-batch, laid so that a rank holds few activations (scheduler/zbv_greedy.py). Warm-up and
 * drain are then moved together as far as the number of held activations allows, and gradients of
 * weights fill the slots that are left. Time is in slots of one pass. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/schedule/plan_build.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Forward down and up, backward down and up the V; gradients of weights. */
typedef enum { FORWARD_DOWN, FORWARD_UP, BACKWARD_DOWN, BACKWARD_UP, WEIGHT, N_TYPES } type_t;

enum { INTERVAL = 6 }; /* of the building block: passes of a micro-batch on a rank */

typedef struct {
    uint32_t pp, n;
    uint32_t length;   /* slots of each rank */
    uint8_t *slots;    /* by rank: type + 1, 0 = free; owned */
    uint32_t *starts;  /* by rank, type but WEIGHT, micro-batch; owned */
    uint32_t *weights; /* by rank, in order; 2 * n; owned */
    /* What rank r holds and how many gradients of weights wait after each slot, while gradients of
     * weights have no slots of their own; owned. */
    int32_t *held, *waiting;
} grid_t;

static uint8_t *slot(const grid_t *g, uint32_t r, uint32_t at)
{
    assert(at < g->length);
    return &g->slots[(size_t)r * g->length + at];
}

static uint32_t *start(const grid_t *g, uint32_t r, type_t type, uint32_t m)
{
    return type == WEIGHT ? &g->weights[(size_t)r * 2 * g->n + m]
                          : &g->starts[((size_t)r * WEIGHT + type) * g->n + m];
}

static uint32_t n_of(const grid_t *g, type_t type)
{
    return type == WEIGHT ? 2 * g->n : g->n;
}

/* stable_pattern_v_half(), stable_pattern_v_min() */
static void block_of(sim_schedule_t schedule, uint32_t pp, uint32_t r, uint32_t at[WEIGHT])
{
    bool is_half = schedule == SIM_SCHEDULE_V_HALF;
    uint32_t shift = is_half ? 3 * (pp % 2 == 0) : 2 * (pp % 3 == 0);
    at[FORWARD_DOWN] = is_half ? 2 * r : r;
    at[FORWARD_UP] = is_half ? 3 * pp - r - 2 : 2 * pp - r - 1;
    at[BACKWARD_DOWN] = is_half ? 3 * pp + shift + 2 * r - 1 : 2 * pp + shift + r;
    at[BACKWARD_UP] = is_half ? 6 * pp + shift - r - 2 : 4 * pp + shift - r - 1;
}

static uint32_t end_of_passes(const grid_t *g, uint32_t r)
{
    uint32_t last = 0;
    for (int type = FORWARD_DOWN; type < WEIGHT; type++) {
        uint32_t at = *start(g, r, (type_t)type, g->n - 1);
        last = at > last ? at : last;
    }
    return last;
}

static void clear_slots(grid_t *g)
{
    memset(g->slots, 0, (size_t)g->pp * g->length);
}

/* Fill the slots from the starts. */
static void draw(grid_t *g, bool with_weights)
{
    clear_slots(g);
    for (uint32_t r = 0; r < g->pp; r++) {
        for (int type = FORWARD_DOWN; type < (with_weights ? N_TYPES : WEIGHT); type++) {
            for (uint32_t m = 0; m < n_of(g, (type_t)type); m++) {
                uint8_t *s = slot(g, r, *start(g, r, (type_t)type, m));
                assert(*s == 0);
                *s = (uint8_t)(type + 1);
            }
        }
    }
}

static bool is_backward(uint8_t value)
{
    return value == BACKWARD_DOWN + 1 || value == BACKWARD_UP + 1;
}

static bool is_forward(uint8_t value)
{
    return value == FORWARD_DOWN + 1 || value == FORWARD_UP + 1;
}

/* Gradients of weights into the free slots, as soon as there are any; those left at the end. */
static void place_weights(grid_t *g)
{
    for (uint32_t r = 0; r < g->pp; r++) {
        uint32_t end = end_of_passes(g, r), n_waiting = 0, n = 0;
        for (uint32_t at = 0; at <= end; at++) {
            uint8_t value = *slot(g, r, at);
            n_waiting += is_backward(value);
            if (value == 0 && n_waiting > 0) {
                n_waiting--;
                *start(g, r, WEIGHT, n++) = at;
            }
        }
        while (n < 2 * g->n)
            *start(g, r, WEIGHT, n++) = ++end;
        assert(end < g->length);
    }
}

/* ---- moving passes forward ---- */

/* The n-th backward pass of a rank by time. */
static uint32_t nth_backward(const grid_t *g, uint32_t r, uint32_t n)
{
    const uint32_t *down = start(g, r, BACKWARD_DOWN, 0), *up = start(g, r, BACKWARD_UP, 0);
    uint32_t i = 0, j = 0, at = 0;
    for (uint32_t k = 0; k <= n; k++) {
        if (j == g->n || (i < g->n && down[i] < up[j]))
            at = down[i++];
        else
            at = up[j++];
    }
    return at;
}

/* First slot that a pass may be moved to for those that it follows. */
static uint32_t earliest(const grid_t *g, uint32_t r, type_t type, uint32_t m)
{
    bool is_down = type == FORWARD_DOWN || type == BACKWARD_DOWN;
    uint32_t first = 0;
    if (type == WEIGHT) {
        first = nth_backward(g, r, m) + 1;
    } else {
        if (is_down ? r > 0 : r + 1 < g->pp)
            first = *start(g, is_down ? r - 1 : r + 1, type, m) + 1;
        if (type > FORWARD_DOWN)
            first = (uint32_t)base_u64_max(first, *start(g, r, (type_t)(type - 1), m) + 1U);
    }
    if (m > 0)
        first = (uint32_t)base_u64_max(first, *start(g, r, type, m - 1) + 1U);
    return first;
}

static void move(grid_t *g, uint32_t r, type_t type, uint32_t m, uint32_t to)
{
    uint32_t from = *start(g, r, type, m);
    *slot(g, r, from) = 0;
    *slot(g, r, to) = (uint8_t)(type + 1);
    *start(g, r, type, m) = to;
}

/* The two ways in which held activations are counted: with gradients of weights in slots, and with
 * all free slots taken for them. `limit`: what no rank may exceed. */
typedef struct {
    grid_t *g;
    bool with_weights;
    int32_t limit;
} mover_t;

/* Count from slot `at` to slot `end`. Returns the highest number held there and just before. */
static int32_t count_held(const mover_t *v, uint32_t r, uint32_t at, uint32_t end, bool stores)
{
    const grid_t *g = v->g;
    int32_t *held_at = &g->held[(size_t)r * g->length];
    int32_t *waiting_at = &g->waiting[(size_t)r * g->length];
    int32_t held = at > 0 ? held_at[at - 1] : 0, waiting = at > 0 ? waiting_at[at - 1] : 0;
    int32_t most = held;
    for (; at <= end; at++) {
        uint8_t value = *slot(g, r, at);
        held += is_forward(value);
        if (v->with_weights) {
            held -= value == WEIGHT + 1;
        } else {
            waiting += is_backward(value);
            bool frees = value == 0 && waiting > 0;
            held -= frees;
            waiting -= frees;
        }
        most = held > most ? held : most;
        if (stores) {
            held_at[at] = held;
            waiting_at[at] = waiting;
        }
    }
    return most;
}

/* Move a pass to the first free slot where the rank then holds no more than the limit. */
static void move_forward(const mover_t *v, uint32_t r, type_t type, uint32_t m)
{
    grid_t *g = v->g;
    uint32_t from = *start(g, r, type, m);
    /* Where a pass has left, the number is the same as before if gradients of weights stay. */
    uint32_t end = v->with_weights ? from : end_of_passes(g, r);
    for (uint32_t to = earliest(g, r, type, m); to < from; to++) {
        if (*slot(g, r, to) != 0)
            continue;
        move(g, r, type, m, to);
        if (count_held(v, r, to, end, false) <= v->limit) {
            count_held(v, r, to, end, true);
            return;
        }
        move(g, r, type, m, from);
    }
}

/* Warm-up is all before the first micro-batch is back on rank 0; drain all after the last forward
 * pass has begun there. The steady state between them stays as it is. */
static void squeeze(grid_t *g, bool with_weights)
{
    mover_t v = { .g = g, .with_weights = with_weights };
    uint32_t *next = base_xcalloc((size_t)g->pp * N_TYPES, sizeof(*next));
    draw(g, with_weights);
    for (uint32_t r = 0; r < g->pp; r++) {
        int32_t most = count_held(&v, r, 0, g->length - 1, true);
        v.limit = most > v.limit ? most : v.limit;
    }
    bool is_warmup = true, is_drain = false;
    for (uint32_t at = 0; at < g->length; at++) {
        for (uint32_t r = 0; r < g->pp; r++) {
            uint8_t value = *slot(g, r, at);
            if (value == 0)
                continue;
            type_t type = (type_t)(value - 1);
            uint32_t m = next[r * N_TYPES + type]++;
            is_warmup = is_warmup && !(type == BACKWARD_UP && r == 0);
            if (is_drain || (is_warmup && with_weights))
                move_forward(&v, r, type, m);
            is_drain = is_drain || (!is_warmup && type == FORWARD_DOWN && m == g->n - 1);
        }
    }
    free(next);
}

/* Every pass as soon as what it needs is there, in the order of the slots. */
static void run_eagerly(grid_t *g)
{
    uint32_t *next = base_xcalloc((size_t)g->pp * N_TYPES, sizeof(*next));
    uint32_t *now = base_xcalloc(g->pp, sizeof(*now));
    draw(g, true);
    for (uint32_t at = 0; at < g->length; at++) {
        for (uint32_t r = 0; r < g->pp; r++) {
            uint8_t value = *slot(g, r, at);
            if (value == 0)
                continue;
            type_t type = (type_t)(value - 1);
            uint32_t m = next[r * N_TYPES + type]++;
            uint32_t first = type == WEIGHT ? 0 : earliest(g, r, type, m);
            *start(g, r, type, m) = (uint32_t)base_u64_max(now[r], first);
            now[r] = *start(g, r, type, m) + 1;
        }
    }
    free(next);
    free(now);
}

/* ---- the plan ---- */

static void init_grid(grid_t *g, const sim_plan_t *plan)
{
    *g = (grid_t){ .pp = plan->pp, .n = plan->n_microbatches };
    g->starts = base_xcalloc((size_t)g->pp * WEIGHT * g->n, sizeof(*g->starts));
    g->weights = base_xcalloc((size_t)g->pp * 2 * g->n, sizeof(*g->weights));
    uint32_t last = 0;
    for (uint32_t r = 0; r < g->pp; r++) {
        uint32_t at[WEIGHT];
        block_of(plan->schedule, g->pp, r, at);
        for (int type = FORWARD_DOWN; type < WEIGHT; type++) {
            for (uint32_t m = 0; m < g->n; m++)
                *start(g, r, (type_t)type, m) = at[type] + INTERVAL * m;
        }
        last = (uint32_t)base_u64_max(last, end_of_passes(g, r));
    }
    g->length = last + 1 + 2 * g->n; /* were all gradients of weights to come at the end */
    g->slots = base_xcalloc((size_t)g->pp * g->length, 1);
    g->held = base_xcalloc((size_t)g->pp * g->length, sizeof(*g->held));
    g->waiting = base_xcalloc((size_t)g->pp * g->length, sizeof(*g->waiting));
}

static void fini_grid(grid_t *g)
{
    free(g->starts);
    free(g->weights);
    free(g->slots);
    free(g->held);
    free(g->waiting);
}

/* The passes of a rank in the order of their slots. Of the gradients of weights that wait, those of
 * the way down come first. */
static void read_rank(const grid_t *g, sim_plan_t *plan, uint32_t r)
{
    uint32_t next[N_TYPES] = { 0 }, n_weight[2] = { 0 };
    for (uint32_t at = 0; at < g->length; at++) {
        uint8_t value = *slot(g, r, at);
        if (value == 0)
            continue;
        type_t type = (type_t)(value - 1);
        uint32_t m = next[type]++;
        if (type == WEIGHT) {
            bool is_down = n_weight[0] < next[BACKWARD_DOWN];
            sim_plan_add(plan, r, SIM_PLAN_WEIGHT_GRAD, is_down, n_weight[!is_down]++);
        } else {
            sim_plan_add(plan, r, type <= FORWARD_UP ? SIM_PLAN_FORWARD : SIM_PLAN_INPUT_GRAD,
                         type == FORWARD_UP || type == BACKWARD_DOWN, m);
        }
    }
}

void sim_plan_fill_building_block(sim_plan_t *plan)
{
    grid_t g;
    init_grid(&g, plan);
    draw(&g, false);
    place_weights(&g);
    squeeze(&g, true);
    run_eagerly(&g);
    squeeze(&g, false);
    place_weights(&g);
    run_eagerly(&g);
    draw(&g, false);
    place_weights(&g);
    draw(&g, true);
    for (uint32_t r = 0; r < g.pp; r++)
        read_rank(&g, plan, r);
    fini_grid(&g);
}
