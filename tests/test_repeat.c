/* SPDX-License-Identifier: Apache-2.0
 * The short cuts change nothing: every job is played with and without them. */
#include "config.h"

#include "sim/engine/outside.h"
#include "sim/engine/repeat.h"
#include "sim/engine/result_blob.h"
#include "tests/cutap.h"
#include "tests/random_scenario.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEEDS = 400 };

/* Three times the micro-batches, and iterations enough for a whole one to come again. */
static bool prolong(sim_scenario_t *s)
{
    char batch[24];
    base_diag_t diag;
    base_diag_init(&diag);
    snprintf(batch, sizeof(batch), "%" PRIu64, s->global_batch_size * 3);
    bool ok = sim_scenario_set(s, "train", "global_batch_size", batch, "test", &diag) &&
              sim_scenario_set(s, "run", "iterations", "6", "test", &diag) &&
              sim_scenario_resolve(s, &diag);
    base_diag_fini(&diag);
    return ok;
}

static bool packs_equal(const sim_rank_result_t *a, const sim_rank_result_t *b)
{
    size_t n_a, n_b;
    void *bytes_a = sim_rank_result_pack(a, &n_a), *bytes_b = sim_rank_result_pack(b, &n_b);
    bool same = n_a == n_b && memcmp(bytes_a, bytes_b, n_a) == 0;
    free(bytes_a);
    free(bytes_b);
    return same;
}

static bool same_result(const sim_scenario_t *s, uint32_t rank)
{
    sim_simulate_options_t all = { .plays_all = true };
    sim_rank_result_t a, b;
    base_err_t err;
    if (sim_simulate_rank(s, rank, &all, &a, &err) != BASE_OK)
        return false;
    if (sim_simulate_rank(s, rank, NULL, &b, &err) != BASE_OK) {
        sim_rank_result_fini(&a);
        return false;
    }
    bool same = packs_equal(&a, &b);
    sim_rank_result_fini(&a);
    sim_rank_result_fini(&b);
    return same;
}

static void results_are_the_same_byte_for_byte(void)
{
    unsigned n = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        sim_scenario_t s;
        if (!random_scenario(&s, seed))
            continue;
        if (prolong(&s)) {
            random_t r = { ~seed };
            bool same = same_result(&s, (uint32_t)random_below(&r, s.grid.world_size));
            if (!same)
                printf("# seed %" PRIu64 "\n", seed);
            CU_ASSERT_TRUE(same);
            n++;
        }
        sim_scenario_fini(&s);
    }
    CU_ASSERT_TRUE(n > N_SEEDS / 4);
}

/* ---- what would be needed ---- */

/* The job of `seed`, its rank, and what that needs, on a device with 60 to 99 % of it. */
static bool make_scarce(sim_scenario_t *s, uint64_t seed, uint32_t *rank_p,
                        sim_rank_result_t *whole)
{
    sim_simulate_options_t unlimited = { .unlimited = true, .plays_all = true };
    random_t r = { ~seed };
    if (!random_scenario(s, seed))
        return false;
    *rank_p = (uint32_t)random_below(&r, s->grid.world_size);
    CU_ASSERT_TRUE_FATAL(sim_simulate_rank(s, *rank_p, &unlimited, whole, NULL) == BASE_OK);
    s->memory_bytes =
        sim_outside_bytes(s, *rank_p) + whole->max_reserved_bytes / 100 * (60 + seed % 40);
    return true;
}

/* The result is that of a play that ends with the memory, the need that of a device without end. */
static void a_need_is_that_of_a_device_without_end(void)
{
    unsigned n_needs = 0, n_parted = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        sim_scenario_t s;
        sim_rank_result_t whole, ends, goes_on;
        uint32_t rank;
        if (!make_scarce(&s, seed, &rank, &whole))
            continue;
        sim_simulate_options_t want = { .want_need = true };
        CU_ASSERT_TRUE_FATAL(sim_simulate_rank(&s, rank, NULL, &ends, NULL) == BASE_OK);
        CU_ASSERT_TRUE_FATAL(sim_simulate_rank(&s, rank, &want, &goes_on, NULL) == BASE_OK);
        if (goes_on.has_need) {
            CU_ASSERT_TRUE(goes_on.is_out_of_memory && goes_on.need_is_known);
            CU_ASSERT_EQUAL(goes_on.need_allocated_bytes, whole.max_allocated_bytes);
            CU_ASSERT_EQUAL(goes_on.need_reserved_bytes, whole.max_reserved_bytes);
            n_needs++;
        }
        n_parted += goes_on.is_out_of_memory && !goes_on.has_need;
        goes_on.has_need = goes_on.need_is_known = false;
        goes_on.need_allocated_bytes = goes_on.need_reserved_bytes = 0;
        CU_ASSERT_TRUE(packs_equal(&ends, &goes_on));
        sim_rank_result_fini(&whole);
        sim_rank_result_fini(&ends);
        sim_rank_result_fini(&goes_on);
        sim_scenario_fini(&s);
    }
    printf("# %u needs, %u to be played apart\n", n_needs, n_parted);
    CU_ASSERT_TRUE(n_needs > N_SEEDS / 10 && n_parted > 0);
}

static const char text[] = "[model]\npreset = gpt3-125m\n"
                           "[parallel]\nworld_size = 2\npipeline_model_parallel_size = 2\n"
                           "[train]\nseq_length = 512\nmicro_batch_size = 1\n"
                           "global_batch_size = 40\n[run]\niterations = 9\n"
                           "[device]\ngpu = h100-80gb-sxm\n";

static void make_scenario(sim_scenario_t *s)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(s);
    CU_ASSERT_TRUE_FATAL(sim_scenario_read(s, "test", text, strlen(text), &diag) &&
                         sim_scenario_resolve(s, &diag));
    base_diag_fini(&diag);
}

/* So that the test above is not about short cuts that are never taken. */
static void both_kinds_are_taken(void)
{
    sim_scenario_t s;
    make_scenario(&s);
    sim_place_t place = sim_place_of(&s, &(topo_coord_t){ .pp = 1 });
    sim_player_t p;
    sim_repeat_t repeat;
    uint64_t n_skipped = 0, n_ops;
    CU_ASSERT_FATAL(sim_player_init(&p, &s, &place, false, NULL) == BASE_OK);
    sim_repeat_init(&repeat, &p, true);
    CU_ASSERT_TRUE_FATAL(sim_player_build(&p));
    uint32_t iteration = 1;
    for (; iteration <= s.iterations; iteration++) {
        if (sim_repeat_iteration(&repeat, &p, iteration, &n_ops))
            break;
        CU_ASSERT_TRUE(sim_player_zero_grad(&p));
        for (size_t i = 0; i < p.order.n;) {
            size_t n = sim_repeat_steps(&repeat, &p, i);
            n_skipped += n;
            if (n == 0)
                CU_ASSERT_TRUE(sim_player_run(&p, &p.order.steps[i]));
            i += n > 0 ? n : 1;
        }
        CU_ASSERT_TRUE(sim_player_step(&p, false));
    }
    CU_ASSERT_TRUE(n_skipped > p.order.n / 2);
    CU_ASSERT_TRUE(iteration < s.iterations);
    sim_repeat_fini(&repeat);
    sim_player_fini(&p);
    sim_scenario_fini(&s);
}

static sim_order_t order_of(uint32_t pp_rank, uint32_t vpp, uint32_t n_microbatches)
{
    sim_order_config_t config = {
        .pp = 4, .pp_rank = pp_rank, .vpp = vpp, .n_microbatches = n_microbatches
    };
    sim_order_t order;
    CU_ASSERT_FATAL(sim_order_init(&order, &config, NULL) == BASE_OK);
    return order;
}

static void a_period_is_what_it_says(void)
{
    for (uint32_t vpp = 1; vpp <= 3; vpp++) {
        for (uint32_t pp_rank = 0; pp_rank < 4; pp_rank++) {
            uint32_t shift = vpp > 1 ? 4 : 1;
            sim_order_t order = order_of(pp_rank, vpp, 40);
            sim_period_t period = sim_period_find(&order, 40, shift);
            CU_ASSERT_TRUE_FATAL(period.length > 0);
            CU_ASSERT_TRUE(period.end - period.first > 4 * period.length);
            for (size_t i = period.first; i + period.length < period.end; i++) {
                const sim_step_t *a = &order.steps[i], *b = a + period.length;
                CU_ASSERT_TRUE(a->kind == b->kind && a->chunk == b->chunk && a->flags == b->flags &&
                               a->microbatch + shift == b->microbatch);
            }
            sim_order_fini(&order);
        }
    }
}

static void short_orders_have_no_period(void)
{
    sim_order_t order = order_of(0, 1, 2);
    CU_ASSERT_EQUAL(sim_period_find(&order, 2, 1).length, 0);
    sim_order_fini(&order);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "a need is that of a device without end", a_need_is_that_of_a_device_without_end },
        { "results are the same byte for byte", results_are_the_same_byte_for_byte },
        { "both kinds are taken", both_kinds_are_taken },
        { "a period is what it says", a_period_is_what_it_says },
        { "short orders have no period", short_orders_have_no_period },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "repeat", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
