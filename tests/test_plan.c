/* SPDX-License-Identifier: Apache-2.0
 * Schedules that split the backward pass. */
#include "config.h"

#include "sim/schedule/order.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PP = 8, MAX_MICROBATCHES = 32, MAX_MESSAGES = 6 * MAX_MICROBATCHES };

static const sim_schedule_t all[] = { SIM_SCHEDULE_ZB_H1,    SIM_SCHEDULE_ZBV,
                                      SIM_SCHEDULE_V_HALF,   SIM_SCHEDULE_V_MIN,
                                      SIM_SCHEDULE_DUALPIPE, SIM_SCHEDULE_DUALPIPEV };
enum { N_ALL = sizeof(all) / sizeof(all[0]) };

static bool is_dualpipe(sim_schedule_t schedule)
{
    return schedule == SIM_SCHEDULE_DUALPIPE || schedule == SIM_SCHEDULE_DUALPIPEV;
}

/* A legal configuration of random size; pp_rank is 0. */
static sim_order_config_t random_config(void)
{
    sim_order_config_t c = { .schedule = all[rand() % N_ALL], .pp = 2 + (uint32_t)rand() % 7 };
    c.n_microbatches = 1 + (uint32_t)rand() % MAX_MICROBATCHES;
    c.deallocate_outputs = rand() % 2;
    c.vpp = sim_schedule_placement(c.schedule) == TOPO_PLACEMENT_LOOP ? 1 : 2;
    if (c.schedule == SIM_SCHEDULE_DUALPIPE)
        c.pp += c.pp % 2;
    if (is_dualpipe(c.schedule) && c.n_microbatches < 2 * c.pp)
        c.n_microbatches = 2 * c.pp + (uint32_t)rand() % (MAX_MICROBATCHES + 1 - 2 * c.pp);
    if (c.schedule == SIM_SCHEDULE_DUALPIPE)
        c.n_microbatches -= c.n_microbatches % 2;
    return c;
}

/* Whether the micro-batch goes through the chunk: with DualPipe each half has its own direction. */
static bool is_in(const sim_order_config_t *c, uint32_t chunk, uint32_t microbatch)
{
    return c->schedule != SIM_SCHEDULE_DUALPIPE ||
           (chunk == 1) == (microbatch >= c->n_microbatches / 2);
}

/* ---- a small machine that plays all ranks against each other ---- */

typedef enum { ABSENT, HERE, GONE } place_t;

typedef struct {
    bool forward, backward, is_split, weight;
    place_t input, output, output_grad, input_grad;
    bool input_arrived, output_grad_arrived;
} pass_t;

typedef struct {
    uint8_t is_backward;
    uint16_t chunk; /* as the receiver counts */
    uint32_t microbatch;
} message_t;

/* What was posted from one rank to another. */
typedef struct {
    message_t items[MAX_MESSAGES];
    uint32_t n;
} queue_t;

typedef struct {
    sim_order_config_t config;
    sim_order_t order;
    size_t at;
    pass_t passes[2][MAX_MICROBATCHES];
} rank_t;

typedef struct {
    rank_t ranks[MAX_PP];
    queue_t sends[MAX_PP][MAX_PP], receives[MAX_PP][MAX_PP]; /* from, to */
} machine_t;

static uint32_t find(const queue_t *q, const message_t *m)
{
    for (uint32_t i = 0; i < q->n; i++) {
        if (q->items[i].is_backward == m->is_backward && q->items[i].chunk == m->chunk &&
            q->items[i].microbatch == m->microbatch)
            return i;
    }
    return UINT32_MAX;
}

static void post(queue_t *q, const message_t *m)
{
    CU_ASSERT_FATAL(q->n < MAX_MESSAGES);
    CU_ASSERT_EQUAL(find(q, m), UINT32_MAX);
    q->items[q->n++] = *m;
}

/* False: the step has to wait. A send is complete only when its receive was posted. */
static bool play_message(machine_t *machine, uint32_t r, const sim_step_t *s, pass_t *pass)
{
    uint32_t peer;
    uint16_t peer_chunk;
    sim_order_peer(&machine->ranks[r].config, s, &peer, &peer_chunk);
    bool sends = s->kind == SIM_STEP_SEND_FORWARD || s->kind == SIM_STEP_SEND_BACKWARD ||
                 s->kind == SIM_STEP_WAIT_SEND_FORWARD || s->kind == SIM_STEP_WAIT_SEND_BACKWARD;
    bool is_forward = s->kind == SIM_STEP_SEND_FORWARD || s->kind == SIM_STEP_RECV_FORWARD ||
                      s->kind == SIM_STEP_WAIT_SEND_FORWARD ||
                      s->kind == SIM_STEP_WAIT_RECV_FORWARD;
    message_t m = { !is_forward, sends ? peer_chunk : s->chunk, s->microbatch };
    CU_ASSERT_FATAL(peer < machine->ranks[r].config.pp);
    uint32_t from = sends ? r : peer, to = sends ? peer : r;
    queue_t *out = &machine->sends[from][to], *in = &machine->receives[from][to];
    switch ((sim_step_kind_t)s->kind) {
    case SIM_STEP_SEND_FORWARD:
    case SIM_STEP_SEND_BACKWARD:
        CU_ASSERT_EQUAL(is_forward ? pass->output : pass->input_grad, HERE);
        post(out, &m);
        return true;
    case SIM_STEP_RECV_FORWARD:
    case SIM_STEP_RECV_BACKWARD:
        CU_ASSERT_EQUAL(is_forward ? pass->input : pass->output_grad, ABSENT);
        *(is_forward ? &pass->input : &pass->output_grad) = HERE;
        post(in, &m);
        return true;
    case SIM_STEP_WAIT_SEND_FORWARD:
    case SIM_STEP_WAIT_SEND_BACKWARD:
        return find(in, &m) != UINT32_MAX;
    default:
        if (find(out, &m) == UINT32_MAX)
            return false;
        *(is_forward ? &pass->input_arrived : &pass->output_grad_arrived) = true;
        return true;
    }
}

static void free_one(place_t *place)
{
    CU_ASSERT_EQUAL(*place, HERE);
    *place = GONE;
}

static void play_pass(rank_t *rank, const sim_step_t *s, pass_t *pass)
{
    const sim_order_config_t *c = &rank->config;
    bool is_turn = sim_order_is_turn(c);
    bool has_input = sim_order_has_input(c, s->chunk), has_loss = sim_order_has_loss(c, s->chunk);
    pass_t *other = &rank->passes[1 - s->chunk % 2][s->microbatch];
    /* Where the V turns, chunk 1 reads the output of chunk 0, which reads the gradient of it. */
    bool input_here = is_turn && s->chunk == 1 ? other->forward && other->output == HERE
                                               : pass->input == HERE && pass->input_arrived;
    bool grad_here = is_turn && s->chunk == 0
                         ? other->backward && other->input_grad == HERE
                         : pass->output_grad == HERE && pass->output_grad_arrived;
    switch ((sim_step_kind_t)s->kind) {
    case SIM_STEP_FORWARD:
        CU_ASSERT_TRUE(!pass->forward && (!has_input || input_here));
        pass->forward = true;
        pass->output = HERE;
        break;
    case SIM_STEP_BACKWARD:
        CU_ASSERT_TRUE(pass->forward && !pass->backward && (!has_input || input_here));
        CU_ASSERT_TRUE(has_loss || grad_here);
        pass->backward = true;
        pass->is_split = s->flags & SIM_STEP_SPLIT;
        pass->input_grad = has_input ? HERE : ABSENT;
        break;
    case SIM_STEP_WEIGHT_GRAD:
        CU_ASSERT_TRUE(pass->backward && pass->is_split && !pass->weight);
        pass->weight = true;
        break;
    case SIM_STEP_FREE_INPUT:
        CU_ASSERT_TRUE(pass->backward);
        free_one(&pass->input);
        break;
    case SIM_STEP_FREE_OUTPUT:
        CU_ASSERT_TRUE(!is_turn || s->chunk == 1 || other->backward);
        free_one(&pass->output);
        break;
    case SIM_STEP_FREE_OUTPUT_GRAD:
        CU_ASSERT_TRUE(pass->backward);
        free_one(&pass->output_grad);
        break;
    case SIM_STEP_FREE_INPUT_GRAD:
        CU_ASSERT_TRUE(!is_turn || s->chunk == 0 || other->backward);
        free_one(&pass->input_grad);
        break;
    default:
        break;
    }
}

static bool advance(machine_t *machine, uint32_t r)
{
    rank_t *rank = &machine->ranks[r];
    const sim_step_t *s = &rank->order.steps[rank->at];
    CU_ASSERT_FATAL(s->chunk < 2 && s->microbatch < MAX_MICROBATCHES);
    pass_t *pass = &rank->passes[s->chunk][s->microbatch];
    if (s->kind >= SIM_STEP_RECV_FORWARD && s->kind <= SIM_STEP_WAIT_SEND_BACKWARD) {
        if (!play_message(machine, r, s, pass))
            return false;
    } else if (!(s->flags & SIM_STEP_OF_PREVIOUS)) {
        play_pass(rank, s, pass);
    }
    rank->at++;
    return true;
}

/* Every pass has run, and nothing is left but the last input of a chunk and its gradient. */
static void check_end(const machine_t *machine, uint32_t r)
{
    const rank_t *rank = &machine->ranks[r];
    const sim_order_config_t *c = &rank->config;
    for (uint32_t chunk = 0; chunk < c->vpp; chunk++) {
        bool takes_over = sim_order_is_turn(c) && chunk == 1;
        bool hands_over = sim_order_is_turn(c) && chunk == 0;
        for (uint32_t m = 0; m < c->n_microbatches; m++) {
            const pass_t *pass = &rank->passes[chunk][m];
            bool is_mine = is_in(c, chunk, m), has_input = sim_order_has_input(c, chunk);
            bool stays = m == c->n_microbatches - 1 && !is_dualpipe(c->schedule);
            CU_ASSERT_EQUAL(pass->forward, is_mine);
            CU_ASSERT_EQUAL(pass->backward, is_mine);
            CU_ASSERT_EQUAL(pass->weight, pass->is_split);
            CU_ASSERT_TRUE(!is_mine || pass->is_split || is_dualpipe(c->schedule));
            if (!is_mine)
                continue;
            CU_ASSERT_EQUAL(pass->input, !has_input || takes_over ? ABSENT : stays ? HERE : GONE);
            CU_ASSERT_EQUAL(pass->input_grad, !has_input ? ABSENT : stays ? HERE : GONE);
            CU_ASSERT_EQUAL(pass->output, hands_over && stays ? HERE : GONE);
            CU_ASSERT_EQUAL(pass->output_grad,
                            hands_over || sim_order_has_loss(c, chunk) ? ABSENT : GONE);
        }
    }
}

static void play_all(const sim_order_config_t *config)
{
    machine_t *machine = calloc(1, sizeof(*machine));
    bool moved = true;
    for (uint32_t r = 0; r < config->pp; r++) {
        machine->ranks[r].config = *config;
        machine->ranks[r].config.pp_rank = r;
        CU_ASSERT_EQUAL_FATAL(
            sim_order_init(&machine->ranks[r].order, &machine->ranks[r].config, NULL), BASE_OK);
    }
    while (moved) {
        moved = false;
        for (uint32_t r = 0; r < config->pp; r++) {
            while (machine->ranks[r].at < machine->ranks[r].order.n && advance(machine, r))
                moved = true;
        }
    }
    for (uint32_t r = 0; r < config->pp; r++) {
        CU_ASSERT_EQUAL(machine->ranks[r].at, machine->ranks[r].order.n); /* no deadlock */
        check_end(machine, r);
        sim_order_fini(&machine->ranks[r].order);
        /* The n-th send of a rank to another meets the n-th receive there: NCCL has no tags. */
        for (uint32_t to = 0; to < config->pp; to++) {
            const queue_t *out = &machine->sends[r][to], *in = &machine->receives[r][to];
            CU_ASSERT_EQUAL(out->n, in->n);
            for (uint32_t i = 0; i < out->n && i < in->n; i++)
                CU_ASSERT_EQUAL(find(in, &out->items[i]), i);
        }
    }
    free(machine);
}

static void passes_run_once_in_a_legal_order_and_sends_meet_receives(void)
{
    srand(8);
    for (int round = 0; round < 600; round++) {
        sim_order_config_t c = random_config();
        play_all(&c);
    }
}

/* ---- counts and lengths ---- */

/* Most passes in flight over the ranks. In chunks: two of a V make one stage. Controllable Memory,
 * table 2: p, (p + 2) // 2, (p + 4) // 3 stages; DualPipe's README: one stage more than there are.
 */
static uint32_t published(sim_schedule_t schedule, uint32_t pp)
{
    switch (schedule) {
    case SIM_SCHEDULE_ZB_H1:
        return pp;
    case SIM_SCHEDULE_ZBV:
        return 2 * pp;
    case SIM_SCHEDULE_V_HALF:
        return 2 * ((pp + 2) / 2);
    case SIM_SCHEDULE_V_MIN:
        return 2 * ((pp + 4) / 3);
    case SIM_SCHEDULE_DUALPIPE:
        return pp + 1;
    default:
        return 2 * pp + 1; /* DualPipeV: stages are chunks */
    }
}

static uint32_t most_in_flight(const sim_plan_t *plan)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < plan->pp; r++) {
        uint32_t n = sim_plan_in_flight(plan, r);
        most = n > most ? n : most;
    }
    return most;
}

static void in_flight_counts_are_the_published_ones(void)
{
    srand(9);
    for (int round = 0; round < 400; round++) {
        sim_order_config_t c = random_config();
        sim_plan_t plan;
        CU_ASSERT_EQUAL_FATAL(sim_plan_init(&plan, c.schedule, c.pp, c.n_microbatches, NULL),
                              BASE_OK);
        uint32_t most = most_in_flight(&plan), expected = published(c.schedule, c.pp);
        CU_ASSERT_TRUE(most <= expected);
        if (c.n_microbatches >= 2 * c.pp)
            CU_ASSERT_EQUAL(most, expected);
        sim_plan_fini(&plan);
    }
}

/* Eight stages and 32 micro-batches: what each rank holds, in chunks. */
static void eight_ranks_hold_what_the_papers_say(void)
{
    static const struct {
        sim_schedule_t schedule;
        uint32_t first, others;
    } cases[] = { { SIM_SCHEDULE_ZB_H1, 8, 8 },    { SIM_SCHEDULE_ZBV, 16, 16 },
                  { SIM_SCHEDULE_V_HALF, 10, 10 }, { SIM_SCHEDULE_V_MIN, 7, 8 },
                  { SIM_SCHEDULE_DUALPIPE, 9, 9 }, { SIM_SCHEDULE_DUALPIPEV, 17, 17 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_plan_t plan;
        CU_ASSERT_EQUAL_FATAL(sim_plan_init(&plan, cases[i].schedule, 8, 32, NULL), BASE_OK);
        for (uint32_t r = 0; r < 8; r++)
            CU_ASSERT_EQUAL(sim_plan_in_flight(&plan, r),
                            r == 0 ? cases[i].first : cases[i].others);
        sim_plan_fini(&plan);
    }
}

/* Slots of passes of one length, as sail-sg's schedulers (zbv.py, zbv_greedy.py) make them. */
static void lengths_are_those_of_the_published_schedulers(void)
{
    static const struct {
        sim_schedule_t schedule;
        uint32_t pp, n;
        uint64_t span;
    } cases[] = {
        { SIM_SCHEDULE_ZBV, 2, 4, 25 },      { SIM_SCHEDULE_ZBV, 3, 9, 56 },
        { SIM_SCHEDULE_ZBV, 4, 4, 28 },      { SIM_SCHEDULE_ZBV, 8, 8, 58 },
        { SIM_SCHEDULE_ZBV, 8, 32, 199 },    { SIM_SCHEDULE_ZBV, 16, 32, 207 },
        { SIM_SCHEDULE_V_HALF, 2, 4, 25 },   { SIM_SCHEDULE_V_HALF, 3, 9, 59 },
        { SIM_SCHEDULE_V_HALF, 4, 4, 34 },   { SIM_SCHEDULE_V_HALF, 5, 10, 71 },
        { SIM_SCHEDULE_V_HALF, 8, 8, 65 },   { SIM_SCHEDULE_V_HALF, 8, 32, 209 },
        { SIM_SCHEDULE_V_HALF, 9, 18, 131 }, { SIM_SCHEDULE_V_HALF, 16, 32, 233 },
        { SIM_SCHEDULE_V_MIN, 2, 4, 27 },    { SIM_SCHEDULE_V_MIN, 3, 9, 59 },
        { SIM_SCHEDULE_V_MIN, 5, 10, 75 },   { SIM_SCHEDULE_V_MIN, 8, 8, 75 },
        { SIM_SCHEDULE_V_MIN, 8, 32, 219 },  { SIM_SCHEDULE_V_MIN, 12, 24, 185 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_plan_t plan;
        CU_ASSERT_EQUAL_FATAL(
            sim_plan_init(&plan, cases[i].schedule, cases[i].pp, cases[i].n, NULL), BASE_OK);
        CU_ASSERT_EQUAL(sim_plan_span(&plan, 1, 1, 1, 0), cases[i].span);
        sim_plan_fini(&plan);
    }
}

/* (p - 1)(F + B - W) of idle time on top of the work, B without the gradients of weights. */
static void zb_h1_has_a_third_of_the_bubble_of_1f1b(void)
{
    for (uint32_t pp = 2; pp <= MAX_PP; pp++) {
        sim_plan_t plan;
        CU_ASSERT_EQUAL_FATAL(sim_plan_init(&plan, SIM_SCHEDULE_ZB_H1, pp, 3 * pp, NULL), BASE_OK);
        CU_ASSERT_EQUAL(sim_plan_span(&plan, 10, 10, 10, 0), 30 * 3 * pp + (pp - 1) * 10);
        CU_ASSERT_EQUAL(sim_plan_span(&plan, 10, 12, 8, 0), 30 * 3 * pp + (pp - 1) * 14);
        sim_plan_fini(&plan);
    }
}

/* ---- examples, refusals ---- */

/* The passes of a rank as text; ' = chunk 1, b = a backward pass that is not split. */
static const char *text_of(const sim_plan_t *plan, uint32_t r)
{
    static char text[1024];
    static const char letters[] = "FBWb";
    size_t end = 0;
    text[0] = '\0';
    for (size_t i = 0; i < plan->ranks[r].n; i++) {
        const sim_plan_op_t *op = &plan->ranks[r].ops[i];
        if (op->kind <= SIM_PLAN_BACKWARD)
            end += (size_t)snprintf(text + end, sizeof(text) - end, "%s%c%u%s", end > 0 ? " " : "",
                                    letters[op->kind], op->microbatch, op->chunk > 0 ? "'" : "");
    }
    return text;
}

static void zb_h1_puts_more_weight_gradients_off_on_later_ranks(void)
{
    sim_plan_t plan;
    CU_ASSERT_EQUAL_FATAL(sim_plan_init(&plan, SIM_SCHEDULE_ZB_H1, 3, 4, NULL), BASE_OK);
    CU_ASSERT_STRING_EQUAL(text_of(&plan, 0), "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
    CU_ASSERT_STRING_EQUAL(text_of(&plan, 1), "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3");
    CU_ASSERT_STRING_EQUAL(text_of(&plan, 2), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
    sim_plan_fini(&plan);
}

static void dualpipe_runs_both_directions_through_a_rank(void)
{
    sim_plan_t plan;
    CU_ASSERT_EQUAL_FATAL(sim_plan_init(&plan, SIM_SCHEDULE_DUALPIPE, 2, 6, NULL), BASE_OK);
    CU_ASSERT_STRING_EQUAL(text_of(&plan, 0), "F0 F3' F1 b3' F4' b0 F2 b4' F5' b1 b5' B2 W2");
    CU_ASSERT_STRING_EQUAL(text_of(&plan, 1), "F3' F0 F4' b0 F1 b3' F5' b1 F2 b4' b2 B5' W5'");
    sim_plan_fini(&plan);
}

static void what_cannot_run_is_refused_with_the_rule(void)
{
    static const struct {
        sim_order_config_t config;
        const char *reason;
    } cases[] = {
        { { .schedule = SIM_SCHEDULE_ZB_H1, .pp = 1, .vpp = 1, .n_microbatches = 4 }, "size > 1" },
        { { .schedule = SIM_SCHEDULE_ZBV, .pp = 4, .vpp = 1 }, "at least one micro-batch" },
        { { .schedule = SIM_SCHEDULE_V_MIN, .pp = 4, .vpp = 1, .n_microbatches = 1U << 24 },
          "more than" },
        { { .schedule = SIM_SCHEDULE_DUALPIPE, .pp = 3, .vpp = 1, .n_microbatches = 8 },
          "needs an even p" },
        { { .schedule = SIM_SCHEDULE_DUALPIPE, .pp = 4, .vpp = 1, .n_microbatches = 9 },
          "even number of m" },
        { { .schedule = SIM_SCHEDULE_DUALPIPE, .pp = 4, .vpp = 1, .n_microbatches = 6 },
          "at least twice" },
        { { .schedule = SIM_SCHEDULE_DUALPIPEV, .pp = 4, .vpp = 1, .n_microbatches = 7 },
          "at least twice" },
        { { .schedule = SIM_SCHEDULE_V_HALF,
            .pp = 4,
            .vpp = 1,
            .n_microbatches = 8,
            .overlap_p2p = true },
          "are for pipeline_schedule 1f1b" },
        { { .schedule = SIM_SCHEDULE_V_HALF,
            .pp = 4,
            .vpp = 1,
            .n_microbatches = 8,
            .group_size = 4 },
          "are for pipeline_schedule 1f1b" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_order_t order = { .n = 77 };
        base_err_t err = { 0 };
        CU_ASSERT_NOT_EQUAL(sim_order_init(&order, &cases[i].config, &err), BASE_OK);
        CU_ASSERT_EQUAL(order.n, 77);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, cases[i].reason));
    }
}

static CU_TestInfo tests[] = {
    { "passes run once in a legal order and sends meet receives",
      passes_run_once_in_a_legal_order_and_sends_meet_receives },
    { "in-flight counts are the published ones", in_flight_counts_are_the_published_ones },
    { "eight ranks hold what the papers say", eight_ranks_hold_what_the_papers_say },
    { "lengths are those of the published schedulers",
      lengths_are_those_of_the_published_schedulers },
    { "ZB-H1 has a third of the bubble of 1F1B", zb_h1_has_a_third_of_the_bubble_of_1f1b },
    { "ZB-H1 puts more weight gradients off on later ranks",
      zb_h1_puts_more_weight_gradients_off_on_later_ranks },
    { "DualPipe runs both directions through a rank",
      dualpipe_runs_both_directions_through_a_rank },
    { "what cannot run is refused with the rule", what_cannot_run_is_refused_with_the_rule },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "plan", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
