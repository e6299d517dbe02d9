/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/schedule/order.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A legal configuration made of small random sizes; pp_rank is left at 0. */
static sim_order_config_t random_config(void)
{
    for (;;) {
        sim_order_config_t c = { .pp = 1 + (uint32_t)rand() % 6, .vpp = 1 + (uint32_t)rand() % 4 };
        if (c.pp == 1)
            c.vpp = 1;
        c.n_microbatches = 1 + (uint32_t)rand() % 24;
        c.group_size = rand() % 2 ? 0 : c.pp + (uint32_t)rand() % 5;
        c.overlap_p2p = c.vpp > 1 && rand() % 3 > 0;
        c.overlap_p2p_warmup_flush = c.overlap_p2p && rand() % 2;
        c.deallocate_outputs = rand() % 4 > 0;
        sim_order_t order;
        if (sim_order_init(&order, &c, NULL) != BASE_OK)
            continue;
        sim_order_fini(&order);
        return c;
    }
}

/* The formulas of section "in-flight counts": w forward passes first, then one more at most. */
static uint32_t expected_in_flight(const sim_order_config_t *c)
{
    uint32_t total = c->n_microbatches * c->vpp, w = c->pp - c->pp_rank - 1;
    uint32_t group = c->group_size == 0 ? c->pp : c->group_size;
    if (c->vpp > 1)
        w = w * 2 + (c->vpp - 1) * group;
    return w + 1 < total ? w + 1 : total;
}

/* The life of the border tensors of one pass. */
typedef struct {
    bool forward, backward;
    int input, output, output_grad, input_grad; /* 0 not yet, 1 allocated, 2 freed */
    bool input_here, output_grad_here;          /* the receive is complete */
    bool output_posted, input_grad_posted, output_sent, input_grad_sent;
} life_t;

static void play_memory_step(const sim_order_config_t *c, const sim_step_t *s, life_t *l)
{
    bool has_input = c->pp_rank > 0 || s->chunk > 0;
    bool has_loss = c->pp_rank == c->pp - 1 && s->chunk == c->vpp - 1;
    switch ((sim_step_kind_t)s->kind) {
    case SIM_STEP_FORWARD:
        CU_ASSERT_TRUE(!l->forward && (!has_input || (l->input == 1 && l->input_here)));
        l->forward = true;
        l->output = 1;
        break;
    case SIM_STEP_BACKWARD:
        CU_ASSERT_TRUE(l->forward && !l->backward && (!has_input || l->input == 1));
        CU_ASSERT_TRUE(has_loss || (l->output_grad == 1 && l->output_grad_here));
        CU_ASSERT_TRUE(has_loss || l->output_posted);
        l->backward = true;
        l->input_grad = has_input;
        break;
    case SIM_STEP_RECV_FORWARD:
        CU_ASSERT_TRUE(has_input && l->input == 0);
        l->input = 1;
        break;
    case SIM_STEP_RECV_BACKWARD:
        CU_ASSERT_TRUE(!has_loss && l->output_grad == 0);
        l->output_grad = 1;
        break;
    case SIM_STEP_SEND_FORWARD:
        CU_ASSERT_TRUE(!has_loss && l->output == 1 && !l->output_posted);
        l->output_posted = true;
        break;
    case SIM_STEP_SEND_BACKWARD:
        CU_ASSERT_TRUE(has_input && l->input_grad == 1 && !l->input_grad_posted);
        l->input_grad_posted = true;
        break;
    case SIM_STEP_WAIT_RECV_FORWARD:
        CU_ASSERT_TRUE(l->input == 1 && !l->input_here);
        l->input_here = true;
        break;
    case SIM_STEP_WAIT_RECV_BACKWARD:
        CU_ASSERT_TRUE(l->output_grad == 1 && !l->output_grad_here);
        l->output_grad_here = true;
        break;
    case SIM_STEP_WAIT_SEND_FORWARD:
        CU_ASSERT_TRUE(l->output_posted && !l->output_sent);
        l->output_sent = true;
        break;
    case SIM_STEP_WAIT_SEND_BACKWARD:
        CU_ASSERT_TRUE(l->input_grad_posted && !l->input_grad_sent);
        l->input_grad_sent = true;
        break;
    case SIM_STEP_FREE_INPUT:
        CU_ASSERT_TRUE(l->backward && l->input == 1);
        l->input = 2;
        break;
    case SIM_STEP_FREE_OUTPUT:
        CU_ASSERT_TRUE(l->output == 1);
        if (c->deallocate_outputs && !has_loss)
            CU_ASSERT_TRUE(l->output_sent);
        if (!c->deallocate_outputs)
            CU_ASSERT_TRUE(l->backward);
        l->output = 2;
        break;
    case SIM_STEP_FREE_OUTPUT_GRAD:
        CU_ASSERT_TRUE(l->backward && l->output_grad == 1);
        l->output_grad = 2;
        break;
    case SIM_STEP_FREE_INPUT_GRAD:
        CU_ASSERT_TRUE(l->input_grad == 1);
        l->input_grad = 2;
        break;
    case SIM_STEP_WEIGHT_GRAD: /* of other schedules */
    case SIM_STEP_FINALIZE_GRADS:
    case SIM_N_STEPS:
        break;
    }
}

/* Every tensor is allocated once, used while it is there, and freed once; what is left at the end
 * is the last input of every chunk and its gradient. */
static void check_memory(const sim_order_config_t *c, const sim_order_t *order)
{
    uint32_t m = c->n_microbatches, in_flight = 0, max_in_flight = 0;
    life_t *lives = calloc((size_t)m * c->vpp, sizeof(*lives));
    uint32_t *previous = calloc(c->vpp, sizeof(*previous));
    for (size_t i = 0; i < order->n; i++) {
        const sim_step_t *s = &order->steps[i];
        CU_ASSERT_FATAL(s->chunk < c->vpp && s->microbatch < m);
        if (s->flags & SIM_STEP_OF_PREVIOUS) {
            CU_ASSERT_EQUAL(s->microbatch, m - 1);
            CU_ASSERT_FALSE(lives[s->chunk * m].forward);
            previous[s->chunk]++;
            continue;
        }
        play_memory_step(c, s, &lives[s->chunk * m + s->microbatch]);
        in_flight += s->kind == SIM_STEP_FORWARD;
        max_in_flight = in_flight > max_in_flight ? in_flight : max_in_flight;
        in_flight -= s->kind == SIM_STEP_BACKWARD;
    }
    CU_ASSERT_EQUAL(max_in_flight, expected_in_flight(c));
    for (uint32_t i = 0; i < m * c->vpp; i++) {
        bool has_input = c->pp_rank > 0 || i / m > 0;
        bool has_loss = c->pp_rank == c->pp - 1 && i / m == c->vpp - 1;
        int kept = i % m == m - 1 ? 1 : 2;
        CU_ASSERT_TRUE(lives[i].forward && lives[i].backward);
        CU_ASSERT_EQUAL(lives[i].output, 2);
        CU_ASSERT_EQUAL(lives[i].output_grad, has_loss ? 0 : 2);
        CU_ASSERT_EQUAL(lives[i].input, has_input ? kept : 0);
        CU_ASSERT_EQUAL(lives[i].input_grad, has_input ? kept : 0);
        CU_ASSERT_EQUAL(previous[i / m], has_input ? 2 : 0);
    }
    free(previous);
    free(lives);
}

static void every_tensor_lives_once_and_in_flight_counts_are_the_formulas(void)
{
    srand(5);
    for (int round = 0; round < 1500; round++) {
        sim_order_config_t c = random_config();
        for (c.pp_rank = 0; c.pp_rank < c.pp; c.pp_rank++) {
            sim_order_t order;
            CU_ASSERT_EQUAL_FATAL(sim_order_init(&order, &c, NULL), BASE_OK);
            check_memory(&c, &order);
            sim_order_fini(&order);
        }
    }
}

/* ---- a small machine that plays all ranks against each other ---- */

enum { MAX_PP = 8, MAX_PASSES = 24 * 4 };

/* What one rank posted towards one neighbour in one direction (0 forward, 1 backward), in order. */
typedef struct {
    struct {
        uint16_t chunk; /* as the receiver counts */
        uint32_t microbatch;
    } item[MAX_PASSES];
    uint32_t n;
} queue_t;

typedef struct {
    sim_order_config_t config;
    sim_order_t order;
    size_t at;
    queue_t sends[2], recvs[2];
} rank_t;

static int direction_of(sim_step_kind_t kind)
{
    return kind == SIM_STEP_SEND_BACKWARD || kind == SIM_STEP_RECV_BACKWARD ||
           kind == SIM_STEP_WAIT_SEND_BACKWARD || kind == SIM_STEP_WAIT_RECV_BACKWARD;
}

static uint32_t find(const queue_t *queue, uint16_t chunk, uint32_t microbatch)
{
    for (uint32_t i = 0; i < queue->n; i++) {
        if (queue->item[i].chunk == chunk && queue->item[i].microbatch == microbatch)
            return i;
    }
    return UINT32_MAX;
}

/* Do the rank's next step; false when it has to wait. A send completes only when the receive is
 * posted, as without any buffering. */
static bool advance(rank_t *ranks, rank_t *me)
{
    const sim_step_t *s = &me->order.steps[me->at];
    sim_step_kind_t kind = s->kind;
    uint32_t peer = 0;
    uint16_t peer_chunk = 0;
    int d = direction_of(kind);
    bool ready = true;
    if (kind >= SIM_STEP_RECV_FORWARD && kind <= SIM_STEP_WAIT_SEND_BACKWARD)
        sim_order_peer(&me->config, s, &peer, &peer_chunk);
    if (kind == SIM_STEP_SEND_FORWARD || kind == SIM_STEP_SEND_BACKWARD) {
        queue_t *q = &me->sends[d];
        CU_ASSERT_FATAL(q->n < MAX_PASSES);
        q->item[q->n].chunk = peer_chunk;
        q->item[q->n++].microbatch = s->microbatch;
    } else if (kind == SIM_STEP_RECV_FORWARD || kind == SIM_STEP_RECV_BACKWARD) {
        queue_t *q = &me->recvs[d];
        CU_ASSERT_FATAL(q->n < MAX_PASSES);
        q->item[q->n].chunk = s->chunk;
        q->item[q->n++].microbatch = s->microbatch;
    } else if (kind == SIM_STEP_WAIT_SEND_FORWARD || kind == SIM_STEP_WAIT_SEND_BACKWARD) {
        ready = find(&me->sends[d], peer_chunk, s->microbatch) < ranks[peer].recvs[d].n;
    } else if (kind == SIM_STEP_WAIT_RECV_FORWARD || kind == SIM_STEP_WAIT_RECV_BACKWARD) {
        ready = find(&me->recvs[d], s->chunk, s->microbatch) < ranks[peer].sends[d].n;
    }
    me->at += ready;
    return ready;
}

static void check_messages(const sim_order_config_t *config)
{
    rank_t *ranks = calloc(MAX_PP, sizeof(*ranks));
    bool moved = true;
    for (uint32_t r = 0; r < config->pp; r++) {
        ranks[r].config = *config;
        ranks[r].config.pp_rank = r;
        CU_ASSERT_EQUAL_FATAL(sim_order_init(&ranks[r].order, &ranks[r].config, NULL), BASE_OK);
    }
    while (moved) {
        moved = false;
        for (uint32_t r = 0; r < config->pp; r++) {
            while (ranks[r].at < ranks[r].order.n && advance(ranks, &ranks[r]))
                moved = true;
        }
    }
    for (uint32_t r = 0; r < config->pp; r++) {
        CU_ASSERT_EQUAL(ranks[r].at, ranks[r].order.n); /* no deadlock */
        /* The n-th send of a rank in a direction meets the n-th receive of its neighbour. */
        for (int d = 0; d < 2; d++) {
            uint32_t peer = d == 0 ? (r + 1) % config->pp : (r + config->pp - 1) % config->pp;
            const queue_t *out = &ranks[r].sends[d], *in = &ranks[peer].recvs[d];
            CU_ASSERT_EQUAL(out->n, in->n);
            for (uint32_t i = 0; i < out->n && i < in->n; i++) {
                CU_ASSERT_EQUAL(out->item[i].chunk, in->item[i].chunk);
                CU_ASSERT_EQUAL(out->item[i].microbatch, in->item[i].microbatch);
            }
        }
        sim_order_fini(&ranks[r].order);
    }
    free(ranks);
}

static void sends_meet_receives_and_no_rank_waits_for_ever(void)
{
    srand(6);
    for (int round = 0; round < 400; round++) {
        sim_order_config_t c = random_config();
        check_messages(&c);
    }
}

/* ---- examples ---- */

/* The steps as text: kind's initials, chunk, micro-batch. */
static const char *text_of(const sim_order_config_t *c, const char *kinds)
{
    static const char letters[SIM_N_STEPS][3] = { "F", "B", "rf", "rb", "sf", "sb", "",  "",
                                                  "",  "",  "-i", "-o", "-O", "-I", "W", "#" };
    static char text[4096];
    size_t end = 0;
    sim_order_t order;
    text[0] = '\0';
    CU_ASSERT_EQUAL_FATAL(sim_order_init(&order, c, NULL), BASE_OK);
    for (size_t i = 0; i < order.n; i++) {
        const sim_step_t *s = &order.steps[i];
        const char *letter = letters[s->kind];
        if (letter[0] == '\0' || strstr(kinds, letter) == NULL)
            continue;
        end += (size_t)snprintf(text + end, sizeof(text) - end, "%s%s%s", end > 0 ? " " : "",
                                letter, s->flags & SIM_STEP_OF_PREVIOUS ? "'" : "");
        if (c->vpp > 1)
            end += (size_t)snprintf(text + end, sizeof(text) - end, "%u.", s->chunk);
        end += (size_t)snprintf(text + end, sizeof(text) - end, "%u", s->microbatch);
    }
    sim_order_fini(&order);
    return text;
}

#define ALL "F B rf rb sf sb -i -o -O -I #"

static void without_a_pipeline_each_micro_batch_goes_forward_and_back(void)
{
    sim_order_config_t c = { .pp = 1, .vpp = 1, .n_microbatches = 2, .deallocate_outputs = true };
    CU_ASSERT_STRING_EQUAL(text_of(&c, ALL), "F0 B0 -o0 F1 B1 -o1 #0");
}

static void combined_passes_go_forward_with_the_backward_pass_before(void)
{
    sim_order_config_t c = {
        .pp = 1, .vpp = 1, .n_microbatches = 3, .deallocate_outputs = true, .combines = true
    };
    CU_ASSERT_STRING_EQUAL(text_of(&c, ALL), "F0 F1 B0 -o0 F2 B1 -o1 B2 -o2 #0");
    sim_order_t order;
    CU_ASSERT_EQUAL_FATAL(sim_order_init(&order, &c, NULL), BASE_OK);
    for (size_t i = 0; i < order.n; i++) {
        const sim_step_t *s = &order.steps[i];
        bool is_alone = (s->kind == SIM_STEP_FORWARD && s->microbatch == 0) ||
                        (s->kind == SIM_STEP_BACKWARD && s->microbatch == 2) ||
                        (s->kind != SIM_STEP_FORWARD && s->kind != SIM_STEP_BACKWARD);
        CU_ASSERT_EQUAL(s->flags, is_alone ? 0 : SIM_STEP_COMBINED);
        if (s->kind == SIM_STEP_FORWARD && !is_alone)
            CU_ASSERT_EQUAL(order.steps[i + 1].kind, SIM_STEP_BACKWARD);
    }
    sim_order_fini(&order);
}

/* Worked out by hand from the assignments in forward_backward_pipelining_without_interleaving(). */
static void one_f_one_b_frees_when_the_last_reference_goes(void)
{
    sim_order_config_t c = { .pp = 2, .vpp = 1, .n_microbatches = 3, .deallocate_outputs = true };
    CU_ASSERT_STRING_EQUAL(text_of(&c, ALL), "F0 sf0 -o0 "
                                             "F1 rb0 sf1 -o1 B0 "
                                             "F2 rb1 sf2 -O0 -o2 B1 "
                                             "rb2 -O1 B2 #0 -O2");
    c.pp_rank = 1;
    CU_ASSERT_STRING_EQUAL(text_of(&c, ALL), "rf0 -I'2 -i'2 F0 -o0 B0 rf1 sb0 "
                                             "F1 -i0 -o1 B1 -I0 rf2 sb1 "
                                             "F2 -i1 -o2 B2 -I1 sb2 #0");
    c.deallocate_outputs = false;
    c.pp_rank = 0;
    CU_ASSERT_STRING_EQUAL(text_of(&c, ALL),
                           "F0 sf0 F1 rb0 sf1 B0 F2 -o0 rb1 sf2 -O0 B1 -o1 rb2 -O1 B2 #0 -o2 -O2");
}

/* The table in a comment of schedules.py: 2 ranks, 2 chunks, groups of 3, 5 micro-batches. */
static void interleaved_passes_follow_the_documented_table(void)
{
    sim_order_config_t c = {
        .pp = 2, .vpp = 2, .n_microbatches = 5, .group_size = 3, .overlap_p2p = true
    };
    CU_ASSERT_STRING_EQUAL(text_of(&c, "F"), "F0.0 F0.1 F0.2 F1.0 F1.1 F1.2 F0.3 F0.4 F1.3 F1.4");
    CU_ASSERT_STRING_EQUAL(text_of(&c, "B"), "B1.0 B1.1 B1.2 B0.0 B0.1 B0.2 B1.3 B1.4 B0.3 B0.4");
    c.pp_rank = 1;
    CU_ASSERT_STRING_EQUAL(text_of(&c, "F B"), "F0.0 F0.1 F0.2 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F0.3 "
                                               "B0.0 F0.4 B0.1 F1.3 B0.2 F1.4 B1.3 B1.4 B0.3 B0.4");
}

/* With overlap the next receive is allocated after the forward pass and before the backward pass;
 * without it after both, together with the next gradient. */
static void overlap_moves_the_receives_before_the_backward_pass(void)
{
    sim_order_config_t c = { .pp = 4, .pp_rank = 1, .vpp = 2, .n_microbatches = 8 };
    const char *at;
    c.deallocate_outputs = true;
    at = strstr(text_of(&c, "F B rf rb sf sb -o"), "F0.4");
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    CU_ASSERT_EQUAL(strncmp(at, "F0.4 B1.0 rf0.5 rb1.1 sb1.0 sf0.4 -o0.4 F0.5 B1.1", 49), 0);
    c.overlap_p2p = true;
    at = strstr(text_of(&c, "F B rf rb sf sb -o"), "F0.4");
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    CU_ASSERT_EQUAL(strncmp(at, "F0.4 rf0.5 sf0.4 B1.0 rb1.1 sb1.0 -o0.4 F0.5 rf0.6", 50), 0);
    /* With overlapped warm-up the first rank's neighbour posts before its own forward pass. */
    CU_ASSERT_PTR_NOT_NULL(strstr(text_of(&c, "F rf sf"), "rf0.0 F0.0 rf0.1 sf0.0 F0.1"));
    c.overlap_p2p_warmup_flush = true;
    CU_ASSERT_PTR_NOT_NULL(strstr(text_of(&c, "F rf sf"), "rf0.0 rf0.1 F0.0 sf0.0 rf0.2 F0.1"));
}

static void only_some_micro_batches_of_a_window_keep_everything(void)
{
    sim_order_config_t c = { .pp = 4, .vpp = 1, .n_microbatches = 9, .n_partial_checkpoints = 2 };
    static const char *const expected[] = { "001100110", "001001001", "000000000", "000000000" };
    for (c.pp_rank = 0; c.pp_rank < 4; c.pp_rank++) {
        sim_order_t order;
        CU_ASSERT_EQUAL_FATAL(sim_order_init(&order, &c, NULL), BASE_OK);
        for (size_t i = 0; i < order.n; i++) {
            const sim_step_t *s = &order.steps[i];
            if (s->kind == SIM_STEP_FORWARD)
                CU_ASSERT_EQUAL((s->flags & SIM_STEP_RECOMPUTE_ALL) != 0,
                                expected[c.pp_rank][s->microbatch] == '1');
        }
        sim_order_fini(&order);
    }
}

static void what_megatron_refuses_is_refused_with_the_rule(void)
{
    static const struct {
        sim_order_config_t config;
        const char *reason; /* NULL = legal */
    } cases[] = {
        { { .pp = 2, .vpp = 1, .n_microbatches = 0 }, "at least one micro-batch" },
        { { .pp = 2, .vpp = 1, .n_microbatches = UINT32_MAX }, "more than 1048576 passes" },
        { { .pp = 2, .vpp = 1, .n_microbatches = 4, .overlap_p2p = true }, "only the interleaved" },
        { { .pp = 1, .vpp = 2, .n_microbatches = 4, .overlap_p2p = true }, "needs pipeline" },
        { { .pp = 2, .vpp = 2, .n_microbatches = 4 }, "needs pipeline_model_parallel_size > 2" },
        { { .pp = 3, .vpp = 2, .n_microbatches = 4, .group_size = 2 }, "is not between" },
        { { .pp = 3, .vpp = 2, .n_microbatches = 4, .group_size = 5 }, "is not between" },
        { { .pp = 4, .vpp = 2, .n_microbatches = 3 }, "is not between" },
        { { .pp = 4, .vpp = 2, .n_microbatches = 7 }, "leave a last group of 3, fewer than" },
        { { .pp = 3, .vpp = 2, .n_microbatches = 7, .group_size = 4 }, NULL },
        { { .pp = 3, .vpp = 2, .n_microbatches = 4, .overlap_p2p_warmup_flush = true },
          "overlap_p2p_comm_warmup_flush needs" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_order_t order = { .n = 77 };
        base_err_t err = { 0 };
        base_status_t status = sim_order_init(&order, &cases[i].config, &err);
        CU_ASSERT_EQUAL(status == BASE_OK, cases[i].reason == NULL);
        if (cases[i].reason != NULL) {
            CU_ASSERT_EQUAL(order.n, 77);
            CU_ASSERT_PTR_NOT_NULL(strstr(err.text, cases[i].reason));
        } else {
            sim_order_fini(&order);
        }
    }
}

static CU_TestInfo tests[] = {
    { "every tensor lives once and in-flight counts are the formulas",
      every_tensor_lives_once_and_in_flight_counts_are_the_formulas },
    { "sends meet receives and no rank waits for ever",
      sends_meet_receives_and_no_rank_waits_for_ever },
    { "without a pipeline each micro-batch goes forward and back",
      without_a_pipeline_each_micro_batch_goes_forward_and_back },
    { "combined passes go forward with the backward pass before",
      combined_passes_go_forward_with_the_backward_pass_before },
    { "1F1B frees when the last reference goes", one_f_one_b_frees_when_the_last_reference_goes },
    { "interleaved passes follow the documented table",
      interleaved_passes_follow_the_documented_table },
    { "overlap moves the receives before the backward pass",
      overlap_moves_the_receives_before_the_backward_pass },
    { "only some micro-batches of a window keep everything",
      only_some_micro_batches_of_a_window_keep_everything },
    { "what Megatron refuses is refused with the rule",
      what_megatron_refuses_is_refused_with_the_rule },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "order", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
