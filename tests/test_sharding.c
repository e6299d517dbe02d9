/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/ddp_buffer.h"
#include "sim/model/sharding.h"

#include "tests/cutap.h"
#include "tests/random_scenario.h"

#include <stdlib.h>

enum { MAX_PARAMS = 64 };

static sim_params_t make_params(sim_param_t *storage, const uint64_t *rows, uint32_t n,
                                uint64_t cols)
{
    sim_params_t params = { .params = storage, .n = n };
    for (uint32_t i = 0; i < n; i++) {
        storage[i] = (sim_param_t){ .name = "weight",
                                    .n_elements = rows[i] * cols,
                                    .rows = rows[i],
                                    .buffer = SIM_BUFFER_DENSE_WHOLE };
        params.n_elements += rows[i] * cols;
    }
    return params;
}

/* The example of Megatron-LM's _shard_params_ping_pong(). */
static void parameters_are_dealt_there_and_back(void)
{
    static const uint64_t expected[10] = { 0, 1, 2, 3, 3, 2, 1, 0, 0, 1 };
    sim_scenario_t s = { .optimizer = SIM_OPTIMIZER_MUON };
    sim_param_t storage[10];
    uint64_t rows[10], owners[10], *all = owners;
    for (uint32_t i = 0; i < 10; i++)
        rows[i] = 10 - i; /* registered from large to small */
    sim_params_t params = make_params(storage, rows, 10, 8);
    const sim_params_t *chunks[] = { &params };
    sim_sharding_deal(&s, chunks, 1, 4, 1, &all);
    for (uint32_t i = 0; i < 10; i++)
        CU_ASSERT_EQUAL(owners[9 - i], expected[i]);
}

/* Of equal size, matrices come before what the scalar optimizer has; experts have ranks of their
 * own, and what is frozen is not dealt. */
static void groups_are_dealt_in_order(void)
{
    sim_scenario_t s = { .optimizer = SIM_OPTIMIZER_MUON };
    sim_param_t storage[5];
    const uint64_t rows[5] = { 4, 4, 4, 4, 4 };
    uint64_t owners[5] = { 9, 9, 9, 9, 9 }, *all = owners;
    sim_params_t params = make_params(storage, rows, 5, 8);
    storage[0].is_vector = true;
    storage[1].is_embedding = true;
    storage[3].buffer = SIM_BUFFER_EXPERT;
    storage[4].is_frozen = true;
    const sim_params_t *chunks[] = { &params };
    sim_sharding_deal(&s, chunks, 1, 3, 2, &all);
    CU_ASSERT_EQUAL(owners[2], 0);
    CU_ASSERT_EQUAL(owners[1], 1);
    CU_ASSERT_EQUAL(owners[0], 2);
    CU_ASSERT_EQUAL(owners[3], 0);
    CU_ASSERT_EQUAL(owners[4], 9);
}

/* Two layers of qkv, proj, fc1, fc2 over four ranks: 1.5 + 0.5, 1 + 1, ... each the same. */
static void slices_are_balanced(void)
{
    static const uint64_t rows[8] = { 512, 1536, 1024, 1024, 512, 1536, 1024, 1024 };
    for (int by_cost = 0; by_cost < 2; by_cost++) {
        sim_param_t storage[8];
        sim_params_t params = make_params(storage, rows, 8, 512);
        const sim_ddp_config_t config = { .distributed_optimizer = true,
                                          .n_shards = 4,
                                          .by_cost = by_cost };
        sim_ddp_buffer_t b;
        sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE_WHOLE, &config);
        CU_ASSERT_EQUAL(b.n_elements, params.n_elements);
        CU_ASSERT_EQUAL(b.n_buckets, 1);
        for (uint64_t shard = 0; shard < 4; shard++) {
            uint64_t sum = 0;
            for (uint32_t i = 0; i < 8; i++)
                sum += sim_ddp_buffer_shard(&b, i, 4, shard);
            CU_ASSERT_EQUAL(sum, 2048 * 512);
        }
        sim_ddp_buffer_fini(&b);
    }
}

/* A matrix larger than all others together sets the length of every slice. */
static void uneven_matrices_are_padded(void)
{
    static const uint64_t rows[3] = { 100, 1, 1 };
    sim_param_t storage[3];
    sim_params_t params = make_params(storage, rows, 3, 64);
    const sim_ddp_config_t config = { .distributed_optimizer = true, .n_shards = 2 };
    sim_ddp_buffer_t b;
    sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE_WHOLE, &config);
    CU_ASSERT_EQUAL(b.n_elements, 2 * 6400);
    CU_ASSERT_EQUAL(sim_ddp_buffer_shard(&b, 0, 2, 0), 6400);
    CU_ASSERT_EQUAL(sim_ddp_buffer_shard(&b, 1, 2, 1), 64);
    CU_ASSERT_EQUAL(sim_ddp_buffer_shard(&b, 2, 2, 1), 64);
    sim_ddp_buffer_fini(&b);
}

/* A bucket closes when it has its size and nine tenths of a full one, 921 elements: after three
 * matrices of 256 and three of 64. The newer layout goes on while parameters fit into padding. */
static void buckets_fill_their_padding(void)
{
    static const uint64_t rows[7] = { 1, 1, 1, 1, 4, 4, 4 };
    for (int by_cost = 0; by_cost < 2; by_cost++) {
        sim_param_t storage[7];
        sim_params_t params = make_params(storage, rows, 7, 64);
        const sim_ddp_config_t config = {
            .distributed_optimizer = true, .n_shards = 4, .bucket_elements = 512, .by_cost = by_cost
        };
        sim_ddp_buffer_t b;
        sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE_WHOLE, &config);
        CU_ASSERT_EQUAL(b.n_buckets, by_cost ? 1 : 2);
        CU_ASSERT_EQUAL(b.n_elements, by_cost ? 1024 : 1280);
        sim_ddp_buffer_fini(&b);
    }
}

static void check_random_layout(random_t *r)
{
    sim_param_t storage[MAX_PARAMS];
    uint64_t rows[MAX_PARAMS];
    uint32_t n = 1 + (uint32_t)random_below(r, MAX_PARAMS);
    for (uint32_t i = 0; i < n; i++)
        rows[i] = 1 + random_below(r, 300);
    sim_params_t params = make_params(storage, rows, n, 1 + random_below(r, 100));
    const sim_ddp_config_t config = { .distributed_optimizer = true,
                                      .n_shards = 1 + random_below(r, 9),
                                      .bucket_elements = random_below(r, 2) * 20000,
                                      .by_cost = random_below(r, 2) };
    sim_ddp_buffer_t b;
    sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE_WHOLE, &config);
    for (uint32_t i = 0; i < n; i++) {
        CU_ASSERT_EQUAL(b.params[i].start % 64, 0);
        CU_ASSERT_EQUAL(b.params[i].end - b.params[i].start, storage[i].n_elements);
        uint32_t n_owners = 0;
        for (uint64_t shard = 0; shard < config.n_shards; shard++) {
            uint64_t owned = sim_ddp_buffer_shard(&b, i, config.n_shards, shard);
            CU_ASSERT_TRUE(owned == 0 || owned == storage[i].n_elements);
            n_owners += owned > 0;
        }
        CU_ASSERT_EQUAL(n_owners, 1);
        for (uint32_t k = 0; k < i; k++)
            CU_ASSERT_TRUE(b.params[k].end <= b.params[i].start ||
                           b.params[i].end <= b.params[k].start);
    }
    for (uint32_t k = 0; k < b.n_buckets; k++)
        CU_ASSERT_EQUAL(b.buckets[k].end % sim_ddp_bucket_divisor(&config), 0);
    sim_ddp_buffer_fini(&b);
}

static void parameters_stay_whole(void)
{
    random_t r = { 20260520 };
    for (int i = 0; i < 300; i++)
        check_random_layout(&r);
}

static CU_TestInfo tests[] = {
    { "parameters are dealt there and back", parameters_are_dealt_there_and_back },
    { "groups are dealt in order", groups_are_dealt_in_order },
    { "slices are balanced", slices_are_balanced },
    { "uneven matrices are padded", uneven_matrices_are_padded },
    { "buckets fill their padding", buckets_fill_their_padding },
    { "parameters stay whole", parameters_stay_whole },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "sharding", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
