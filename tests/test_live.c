/* SPDX-License-Identifier: Apache-2.0
 * Mode live against the caching allocator. */
#include "config.h"

#include "sim/engine/simulate.h"
#include "sim/memory/caching_allocator.h"
#include "tests/cutap.h"
#include "tests/random_scenario.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { N_SEEDS = 300 };

/* The job of `seed` with one more setting; false where the two do not go together. */
static bool make(sim_scenario_t *s, uint64_t seed, const char *section, const char *key,
                 const char *value)
{
    base_diag_t diag;
    if (!random_scenario(s, seed))
        return false;
    base_diag_init(&diag);
    bool ok =
        sim_scenario_set(s, section, key, value, "test", &diag) && sim_scenario_resolve(s, &diag);
    base_diag_fini(&diag);
    if (!ok)
        sim_scenario_fini(s);
    return ok;
}

static bool play(sim_scenario_t *s, uint64_t seed, sim_rank_result_t *result_p)
{
    random_t r = { ~seed };
    sim_simulate_options_t options = { .unlimited = true };
    uint32_t rank = (uint32_t)random_below(&r, s->grid.world_size);
    bool ok = sim_simulate_rank(s, rank, &options, result_p, NULL) == BASE_OK;
    sim_scenario_fini(s);
    return ok;
}

static bool moments_equal(const sim_moment_t *a, const sim_moment_t *b)
{
    return a->iteration == b->iteration && a->microbatch == b->microbatch && a->chunk == b->chunk &&
           a->layer == b->layer && a->phase == b->phase && a->module == b->module;
}

static bool iterations_equal(const sim_rank_result_t *a, const sim_rank_result_t *b)
{
    for (uint32_t i = 0; i < a->n_iterations; i++) {
        if (a->iterations[i].allocated_bytes != b->iterations[i].allocated_bytes ||
            a->iterations[i].max_allocated_bytes != b->iterations[i].max_allocated_bytes)
            return false;
    }
    return a->n_iterations == b->n_iterations;
}

/* Expandable segments cut every block to size. */
static void peaks_are_those_of_an_allocator_that_cuts_to_size(void)
{
    unsigned n = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        sim_scenario_t live, stepped;
        sim_rank_result_t a, b;
        if (!make(&live, seed, "run", "mode", "live"))
            continue; /* such as one that sets the allocator */
        CU_ASSERT_TRUE_FATAL(play(&live, seed, &a));
        CU_ASSERT_TRUE_FATAL(make(&stepped, seed, "allocator", "conf", "expandable_segments:True"));
        CU_ASSERT_TRUE_FATAL(play(&stepped, seed, &b));
        bool same = a.max_allocated_bytes == b.max_allocated_bytes && iterations_equal(&a, &b) &&
                    moments_equal(&a.allocated_moment, &b.allocated_moment) &&
                    memcmp(&a.at_peak, &b.at_peak, sizeof(a.at_peak)) == 0 &&
                    a.n_allocator_ops == b.n_allocator_ops && a.host_bytes == b.host_bytes;
        if (!same)
            printf("# seed %" PRIu64 ": live %" PRIu64 ", stepped %" PRIu64 "\n", seed,
                   a.max_allocated_bytes, b.max_allocated_bytes);
        CU_ASSERT_TRUE(same);
        CU_ASSERT_EQUAL(a.max_reserved_bytes, a.max_allocated_bytes);
        CU_ASSERT_FALSE(a.is_out_of_memory);
        sim_rank_result_fini(&a);
        sim_rank_result_fini(&b);
        n++;
    }
    CU_ASSERT_TRUE(n > N_SEEDS / 5);
}

/* Elsewhere up to 1 MiB more of each block above 1 MiB. */
static void peaks_are_below_those_of_any_other(void)
{
    unsigned n = 0, n_below = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        sim_scenario_t live, stepped;
        sim_rank_result_t a, b;
        if (!make(&live, seed, "run", "mode", "live"))
            continue;
        CU_ASSERT_TRUE_FATAL(play(&live, seed, &a));
        CU_ASSERT_TRUE_FATAL(make(&stepped, seed, "run", "mode", "stepped"));
        CU_ASSERT_TRUE_FATAL(play(&stepped, seed, &b));
        CU_ASSERT_TRUE(a.max_allocated_bytes <= b.max_allocated_bytes);
        CU_ASSERT_TRUE(b.max_allocated_bytes <= b.max_reserved_bytes);
        n_below += a.max_allocated_bytes < b.max_allocated_bytes;
        sim_rank_result_fini(&a);
        sim_rank_result_fini(&b);
        n++;
    }
    CU_ASSERT_TRUE(n > N_SEEDS / 5 && n_below > 0);
}

static void a_device_is_full_when_its_bytes_are(void)
{
    sim_device_t *device = sim_device_create_synthetic(
        &(sim_device_config_t){ .total_bytes = 1 << 20, .usable_bytes = 1 << 20 });
    sim_alloc_t *alloc = sim_alloc_create_live(device);
    sim_block_t block[4];
    CU_ASSERT_TRUE(sim_alloc_malloc(alloc, 0, 1, &block[0]));
    CU_ASSERT_TRUE(sim_alloc_malloc(alloc, 7, 513, &block[1]));
    CU_ASSERT_EQUAL(sim_alloc_block_bytes(alloc, block[1]), 1024);
    CU_ASSERT_EQUAL(sim_alloc_allocated_bytes(alloc), 1536);
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(alloc), 1536);
    CU_ASSERT_FALSE(sim_alloc_malloc(alloc, 0, 1 << 20, &block[2]));
    CU_ASSERT_EQUAL(block[2], SIM_BLOCK_NONE);
    CU_ASSERT_EQUAL(sim_alloc_last_oom(alloc)->requested_bytes, 1 << 20);
    CU_ASSERT_EQUAL(sim_alloc_last_oom(alloc)->device_free_bytes, (1 << 20) - 1536);
    CU_ASSERT_TRUE(sim_alloc_malloc(alloc, 0, (1 << 20) - 1536, &block[2]));
    CU_ASSERT_FALSE(sim_alloc_malloc(alloc, 0, UINT64_MAX, &block[3]));
    sim_alloc_free(alloc, block[0]);
    sim_alloc_free(alloc, SIM_BLOCK_NONE);
    CU_ASSERT_EQUAL(sim_device_used_bytes(device), (1 << 20) - 512);
    CU_ASSERT_TRUE(sim_alloc_malloc(alloc, 0, 512, &block[3]));
    sim_alloc_empty_cache(alloc);
    sim_alloc_destroy(alloc);
    CU_ASSERT_EQUAL(sim_device_used_bytes(device), 0);
    sim_device_destroy(device);
}

static CU_TestInfo tests[] = {
    { "peaks are those of an allocator that cuts to size",
      peaks_are_those_of_an_allocator_that_cuts_to_size },
    { "peaks are below those of any other", peaks_are_below_those_of_any_other },
    { "a device is full when its bytes are", a_device_is_full_when_its_bytes_are },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "live", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
