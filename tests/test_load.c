/* SPDX-License-Identifier: Apache-2.0
 * Many scenarios in a row in one process need no more memory than a few. MBSIM_LOAD of the
 * environment says how many. */
#include "config.h"

#include "sim/engine/simulate.h"
#include "tests/cutap.h"
#include "tests/random_scenario.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_FIRST = 10, N_USUAL = 100 };

/* Reads, resolves and plays the job of a seed on each rank up to the third. */
static void play(uint64_t seed)
{
    sim_scenario_t s;
    if (!random_scenario(&s, seed))
        return;
    for (uint32_t rank = 0; rank < s.world_size && rank < 3; rank++) {
        sim_rank_result_t result;
        base_err_t err;
        if (sim_simulate_rank(&s, rank, NULL, &result, &err) == BASE_OK)
            sim_rank_result_fini(&result);
    }
    sim_scenario_fini(&s);
}

static void memory_does_not_grow(void)
{
    const char *text = getenv("MBSIM_LOAD");
    unsigned long n = text != NULL ? strtoul(text, NULL, 10) : N_USUAL;
    for (unsigned long seed = 1; seed <= N_FIRST; seed++)
        play(seed);
    size_t before = mallinfo2().uordblks;
    for (unsigned long seed = 1; seed <= n; seed++)
        play(seed);
    size_t after = mallinfo2().uordblks;
    printf("# %lu scenarios: %zu bytes in use, %zu after the first ones\n", n, after, before);
    CU_ASSERT_EQUAL(after, before);
}

static CU_TestInfo tests[] = {
    { "memory does not grow", memory_does_not_grow },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "load", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(int argc, char **argv)
{
    /* Blocks that a thread keeps for itself count as used: without them. */
    static const char tunables[] = "GLIBC_TUNABLES";
    (void)argc;
    if (getenv(tunables) == NULL) {
        setenv(tunables, "glibc.malloc.tcache_count=0", 1);
        execv("/proc/self/exe", argv);
    }
    return cutap_run(suites);
}
