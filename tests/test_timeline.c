/* SPDX-License-Identifier: Apache-2.0
 * The timeline of random jobs against their results, and short ones against long ones. */
#include "config.h"

#include "sim/engine/timeline.h"
#include "tests/cutap.h"
#include "tests/random_scenario.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEEDS = 300, MANY = 1 << 16, FEW = 64 };

typedef struct {
    sim_scenario_t s;
    uint32_t rank;
    sim_timeline_t whole, small; /* one operation a bucket; FEW buckets */
    sim_rank_result_t result;
} trial_t;

static bool take(trial_t *t, base_err_t *err)
{
    sim_timeline_options_t whole = { .max_buckets = MANY, .max_stretches = MANY };
    sim_timeline_options_t small = { .max_buckets = FEW, .max_stretches = FEW };
    if (sim_timeline_rank(&t->s, t->rank, &whole, &t->whole, &t->result, err) != BASE_OK)
        return false;
    return sim_timeline_rank(&t->s, t->rank, &small, &t->small, NULL, err) == BASE_OK;
}

static void foreach_job(void (*examine)(const trial_t *t))
{
    unsigned n = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        trial_t t = { 0 };
        base_err_t err;
        if (!random_scenario(&t.s, seed))
            continue;
        random_t r = { ~seed };
        t.rank = (uint32_t)random_below(&r, t.s.grid.world_size);
        CU_ASSERT_TRUE_FATAL(take(&t, &err));
        n++;
        examine(&t);
        sim_timeline_fini(&t.whole);
        sim_timeline_fini(&t.small);
        sim_rank_result_fini(&t.result);
        sim_scenario_fini(&t.s);
    }
    CU_ASSERT_TRUE(n > N_SEEDS / 2);
}

static uint64_t highest(const sim_timeline_t *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->n_buckets; i++) {
        if (t->buckets[i].high.allocated_bytes > bytes)
            bytes = t->buckets[i].high.allocated_bytes;
    }
    return bytes;
}

static uint64_t highest_reserved(const sim_timeline_t *t)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < t->n_buckets; i++) {
        if (t->buckets[i].max_reserved_bytes > bytes)
            bytes = t->buckets[i].max_reserved_bytes;
    }
    return bytes;
}

static void peak_is_that_of_result(const trial_t *t)
{
    CU_ASSERT_EQUAL(highest(&t->whole), t->result.max_allocated_bytes);
    CU_ASSERT_EQUAL(highest(&t->small), t->result.max_allocated_bytes);
    CU_ASSERT_EQUAL(highest_reserved(&t->whole), t->result.max_reserved_bytes);
    CU_ASSERT_EQUAL(highest_reserved(&t->small), t->result.max_reserved_bytes);
}

static void peaks_are_those_of_the_results(void)
{
    foreach_job(peak_is_that_of_result);
}

static bool adds_up(const sim_sample_t *s)
{
    uint64_t sum = 0;
    for (int c = 0; c < SIM_N_CATEGORIES; c++)
        sum += s->by_category[c];
    return sum == s->allocated_bytes && s->allocated_bytes <= s->reserved_bytes;
}

/* Who holds the peak is the same in the timeline and in the result. */
static void categories_add_up_here(const trial_t *t)
{
    bool found = false;
    for (uint32_t i = 0; i < t->small.n_buckets; i++) {
        const sim_sample_t *high = &t->small.buckets[i].high;
        CU_ASSERT_TRUE(adds_up(high) && adds_up(&t->small.buckets[i].low));
        if (found || high->allocated_bytes != t->result.max_allocated_bytes)
            continue;
        found = true;
        for (int c = 0; c < SIM_N_CATEGORIES; c++)
            CU_ASSERT_EQUAL(high->by_category[c],
                            sim_holders_category(&t->result.at_peak, (sim_category_t)c));
    }
    CU_ASSERT_TRUE(found);
}

static void categories_add_up(void)
{
    foreach_job(categories_add_up_here);
}

/* The whole timeline has every operation; each small bucket has the extremes of its own. */
static void extremes_are_kept_here(const trial_t *t)
{
    const sim_timeline_t *w = &t->whole, *s = &t->small;
    if (w->ops_per_bucket != 1)
        return;
    CU_ASSERT_TRUE(s->n_buckets <= FEW && s->n_stretches <= FEW && s->n_ops == w->n_ops);
    CU_ASSERT_EQUAL(w->n_buckets, w->n_ops);
    for (uint32_t i = 0; i < s->n_buckets; i++) {
        uint64_t first = i * s->ops_per_bucket, end = first + s->ops_per_bucket;
        uint64_t low = UINT64_MAX, high = 0, reserved = 0;
        for (uint64_t k = first; k < end && k < w->n_ops; k++) {
            const sim_sample_t *at = &w->buckets[k].high;
            low = at->allocated_bytes < low ? at->allocated_bytes : low;
            high = at->allocated_bytes > high ? at->allocated_bytes : high;
            reserved = at->reserved_bytes > reserved ? at->reserved_bytes : reserved;
        }
        CU_ASSERT_EQUAL(s->buckets[i].low.allocated_bytes, low);
        CU_ASSERT_EQUAL(s->buckets[i].high.allocated_bytes, high);
        CU_ASSERT_EQUAL(s->buckets[i].max_reserved_bytes, reserved);
        const sim_sample_t *kept = &w->buckets[s->buckets[i].high.op - 1].high;
        CU_ASSERT_EQUAL(memcmp(kept, &s->buckets[i].high, sizeof(*kept)), 0);
    }
}

static void every_bucket_keeps_its_extremes(void)
{
    foreach_job(extremes_are_kept_here);
}

static void stretches_are_seamless_here(const trial_t *t)
{
    const sim_timeline_t *const lines[] = { &t->whole, &t->small };
    for (int k = 0; k < 2; k++) {
        uint64_t next = 1;
        for (uint32_t i = 0; i < lines[k]->n_stretches; i++) {
            const sim_stretch_t *s = &lines[k]->stretches[i];
            CU_ASSERT_EQUAL(s->begin_op, next);
            CU_ASSERT_TRUE(s->begin_op <= s->end_op && s->phases != 0);
            CU_ASSERT_TRUE(s->first_microbatch <= s->last_microbatch &&
                           s->last_microbatch < t->s.n_microbatches);
            next = s->end_op + 1;
        }
        CU_ASSERT_EQUAL(next, lines[k]->n_ops + 1);
    }
    uint32_t n_forward = 0;
    for (uint32_t i = 0; i < t->whole.n_stretches; i++)
        n_forward += t->whole.stretches[i].phases == 1U << SIM_PHASE_FORWARD;
    /* The replay of a whole iteration makes no operation. */
    CU_ASSERT_TRUE(n_forward >= t->whole.last_iteration ||
                   t->s.cuda_graph_impl == SIM_GRAPHS_FULL_ITERATION);
}

static void stretches_cover_all_operations(void)
{
    foreach_job(stretches_are_seamless_here);
}

/* Iterations that repeat are not played, so a long job takes no longer. */
static void long_jobs_are_cut_short(void)
{
    sim_scenario_t s;
    base_diag_t diag;
    base_err_t err;
    base_diag_init(&diag);
    CU_ASSERT_TRUE_FATAL(random_scenario(&s, 1) || random_scenario(&s, 2));
    CU_ASSERT_TRUE_FATAL(sim_scenario_set(&s, "run", "iterations", "500", "test", &diag) &&
                         sim_scenario_resolve(&s, &diag));
    sim_timeline_options_t options = { .max_buckets = FEW,
                                       .max_stretches = FEW,
                                       .want_alive = true };
    sim_timeline_t t;
    sim_rank_result_t result;
    CU_ASSERT_EQUAL_FATAL(sim_timeline_rank(&s, 0, &options, &t, &result, &err), BASE_OK);
    CU_ASSERT_EQUAL(result.n_iterations, 500);
    CU_ASSERT_TRUE(t.last_iteration < 10);
    CU_ASSERT_TRUE(result.n_alive > 0);
    uint64_t alive = 0;
    for (uint32_t i = 0; i < result.n_alive; i++)
        alive += result.alive[i].block_bytes;
    CU_ASSERT_EQUAL(alive, result.max_allocated_bytes);
    sim_timeline_fini(&t);
    sim_rank_result_fini(&result);
    sim_scenario_fini(&s);
    base_diag_fini(&diag);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "peaks are those of the results, to the byte", peaks_are_those_of_the_results },
        { "categories add up", categories_add_up },
        { "every bucket keeps its extremes", every_bucket_keeps_its_extremes },
        { "stretches cover all operations", stretches_cover_all_operations },
        { "long jobs are cut short", long_jobs_are_cut_short },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "timeline", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
