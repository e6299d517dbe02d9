/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/ddp_buffer.h"

#include "tests/cutap.h"
#include "tests/random_scenario.h"

#include <stdlib.h>

enum { MAX_PARAMS = 40 };

/* `n` dense parameters of these sizes, in the order of registration. */
static sim_params_t make_params(sim_param_t *storage, const uint64_t *sizes, uint32_t n)
{
    sim_params_t params = { .params = storage, .n = n };
    for (uint32_t i = 0; i < n; i++) {
        storage[i] = (sim_param_t){ .name = "weight", .n_elements = sizes[i] };
        params.n_elements += sizes[i];
    }
    return params;
}

static void parameters_lie_in_reverse_order(void)
{
    static const uint64_t sizes[] = { 100, 10, 1000 };
    sim_param_t storage[3];
    sim_params_t params = make_params(storage, sizes, 3);
    sim_ddp_buffer_t plain, padded;
    sim_ddp_buffer_init(&plain, &params, SIM_BUFFER_DENSE, &(sim_ddp_config_t){ .n_shards = 1 });
    CU_ASSERT_EQUAL(plain.params[2].start, 0);
    CU_ASSERT_EQUAL(plain.params[1].start, 1000);
    CU_ASSERT_EQUAL(plain.params[0].start, 1010);
    CU_ASSERT_EQUAL(plain.params[0].end, 1110);
    CU_ASSERT_EQUAL(plain.n_elements, 1110);
    CU_ASSERT_EQUAL(plain.n_buckets, 1);
    sim_ddp_buffer_init(&padded, &params, SIM_BUFFER_DENSE,
                        &(sim_ddp_config_t){ .distributed_optimizer = true, .n_shards = 8 });
    CU_ASSERT_EQUAL(padded.params[2].start, 0);
    CU_ASSERT_EQUAL(padded.params[1].start, 1024);
    CU_ASSERT_EQUAL(padded.params[0].start, 1088);
    CU_ASSERT_EQUAL(padded.n_elements, 1280); /* 1188 to a multiple of 128 */
    sim_ddp_buffer_fini(&plain);
    sim_ddp_buffer_fini(&padded);
}

/* Ends of the buffer for one parameter of 1000 elements. */
static void ends_are_padded_for_the_shards(void)
{
    static const struct {
        uint64_t n_shards;
        bool busbw;
        uint64_t n;
    } cases[] = {
        { 1, false, 1024 },   { 2, false, 1024 },   { 3, false, 1152 }, { 100, false, 3200 },
        { 128, false, 1024 }, { 256, false, 1024 }, { 1, true, 65536 }, { 3, true, 3 * 65536 },
    };
    static const uint64_t size = 1000;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_param_t storage;
        sim_params_t params = make_params(&storage, &size, 1);
        sim_ddp_buffer_t b;
        sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE,
                            &(sim_ddp_config_t){ .distributed_optimizer = true,
                                                 .n_shards = cases[i].n_shards,
                                                 .pad_for_busbw = cases[i].busbw });
        CU_ASSERT_EQUAL(b.n_elements, cases[i].n);
        sim_ddp_buffer_fini(&b);
    }
}

/* A bucket closes after the parameter that fills it. */
static void buckets_close_when_they_are_full(void)
{
    static const uint64_t sizes[] = { 64, 640, 64, 64, 128 };
    sim_param_t storage[5];
    sim_params_t params = make_params(storage, sizes, 5);
    sim_ddp_buffer_t b;
    sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE,
                        &(sim_ddp_config_t){
                            .distributed_optimizer = true, .n_shards = 4, .bucket_elements = 200 });
    static const sim_ddp_range_t expected[] = { { 0, 256 }, { 256, 896 }, { 896, 1024 } };
    CU_ASSERT_EQUAL_FATAL(b.n_buckets, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(b.buckets[i].start, expected[i].start);
        CU_ASSERT_EQUAL(b.buckets[i].end, expected[i].end);
    }
    CU_ASSERT_EQUAL(b.params[1].start, 256);
    CU_ASSERT_EQUAL(b.params[0].start, 896);
    sim_ddp_buffer_fini(&b);
}

static void a_shared_embedding_has_its_own_bucket(void)
{
    static const uint64_t sizes[] = { 300, 64, 64 };
    sim_param_t storage[3];
    sim_params_t params = make_params(storage, sizes, 3);
    storage[1].is_shared_embedding = true;
    sim_ddp_buffer_t b;
    sim_ddp_config_t config = { .distributed_optimizer = true, .n_shards = 2 };
    sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE, &config);
    CU_ASSERT_EQUAL_FATAL(b.n_buckets, 3);
    CU_ASSERT_EQUAL(b.buckets[1].start, 128);
    CU_ASSERT_EQUAL(b.buckets[1].end, 256);
    CU_ASSERT_EQUAL(b.params[1].start, 128);
    CU_ASSERT_EQUAL(b.params[0].start, 256);
    sim_ddp_buffer_fini(&b);
    config.distributed_optimizer = false;
    sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE, &config);
    CU_ASSERT_EQUAL(b.n_buckets, 1);
    sim_ddp_buffer_fini(&b);
}

static void each_kind_has_a_buffer_of_its_own(void)
{
    static const uint64_t sizes[] = { 64, 128, 256 };
    sim_param_t storage[3];
    sim_params_t params = make_params(storage, sizes, 3);
    storage[1].buffer = SIM_BUFFER_EXPERT;
    const uint64_t expected[SIM_N_BUFFERS] = {
        [SIM_BUFFER_DENSE] = 320, [SIM_BUFFER_EXPERT] = 128
    };
    for (int which = 0; which < SIM_N_BUFFERS; which++) {
        sim_ddp_buffer_t b;
        sim_ddp_buffer_init(&b, &params, (sim_buffer_t)which, &(sim_ddp_config_t){ .n_shards = 1 });
        CU_ASSERT_EQUAL(b.n_elements, expected[which]);
        CU_ASSERT_EQUAL(b.n_params, 3);
        CU_ASSERT_EQUAL(sim_ddp_buffer_shard(&b, 1, 1, 0), which == SIM_BUFFER_EXPERT ? 128 : 0);
        sim_ddp_buffer_fini(&b);
    }
}

/* Buffers of random parameters. */
static void foreach_random_buffer(void (*examine)(const sim_params_t *params,
                                                  const sim_ddp_buffer_t *b,
                                                  const sim_ddp_config_t *config))
{
    random_t r = { 7 };
    for (int round = 0; round < 2000; round++) {
        sim_param_t storage[MAX_PARAMS];
        uint64_t sizes[MAX_PARAMS];
        uint32_t n = 1 + (uint32_t)random_below(&r, MAX_PARAMS);
        for (uint32_t i = 0; i < n; i++)
            sizes[i] = 1 + random_below(&r, random_below(&r, 3) == 0 ? 100000 : 300);
        sim_params_t params = make_params(storage, sizes, n);
        if (random_below(&r, 3) == 0)
            storage[random_below(&r, n)].is_shared_embedding = true;
        sim_ddp_config_t config = {
            .distributed_optimizer = random_below(&r, 4) > 0,
            .bucket_elements = random_below(&r, 3) == 0 ? 0 : 1 + random_below(&r, 5000),
            .pad_for_busbw = random_below(&r, 8) == 0,
        };
        config.n_shards = config.distributed_optimizer ? 1 + random_below(&r, 70) : 1;
        sim_ddp_buffer_t b;
        sim_ddp_buffer_init(&b, &params, SIM_BUFFER_DENSE, &config);
        examine(&params, &b, &config);
        sim_ddp_buffer_fini(&b);
    }
}

static void check_shards(const sim_params_t *params, const sim_ddp_buffer_t *b,
                         const sim_ddp_config_t *config)
{
    for (uint32_t i = 0; i < params->n; i++) {
        uint64_t sum = 0;
        for (uint64_t shard = 0; shard < config->n_shards; shard++)
            sum += sim_ddp_buffer_shard(b, i, config->n_shards, shard);
        CU_ASSERT_EQUAL(sum, params->params[i].n_elements);
    }
}

static void shards_have_every_element_once(void)
{
    foreach_random_buffer(check_shards);
}

/* No shard gets more than its equal part of the buffer. */
static void check_balance(const sim_params_t *params, const sim_ddp_buffer_t *b,
                          const sim_ddp_config_t *config)
{
    for (uint64_t shard = 0; shard < config->n_shards; shard++) {
        uint64_t sum = 0;
        for (uint32_t i = 0; i < params->n; i++)
            sum += sim_ddp_buffer_shard(b, i, config->n_shards, shard);
        CU_ASSERT_TRUE(sum <= b->n_elements / config->n_shards);
    }
}

static void shards_are_equal_parts(void)
{
    foreach_random_buffer(check_balance);
}

static void check_layout(const sim_params_t *params, const sim_ddp_buffer_t *b,
                         const sim_ddp_config_t *config)
{
    uint64_t end = 0;
    for (uint32_t i = params->n; i-- > 0;) {
        CU_ASSERT_TRUE(b->params[i].start >= end);
        CU_ASSERT_TRUE(!config->distributed_optimizer || b->params[i].start % 64 == 0);
        end = b->params[i].end;
        CU_ASSERT_EQUAL(end - b->params[i].start, params->params[i].n_elements);
    }
    CU_ASSERT_TRUE(end <= b->n_elements);
    end = 0;
    for (uint32_t k = 0; k < b->n_buckets; k++) {
        CU_ASSERT_EQUAL(b->buckets[k].start, end);
        end = b->buckets[k].end;
        uint64_t divisor = !config->distributed_optimizer ? 1 : config->pad_for_busbw ? 65536 : 128;
        CU_ASSERT_EQUAL(end % divisor, 0);
        CU_ASSERT_EQUAL(end % config->n_shards, 0);
    }
    CU_ASSERT_EQUAL(end, b->n_elements);
    CU_ASSERT_TRUE(config->distributed_optimizer || b->n_elements == params->n_elements);
}

static void nothing_overlaps_and_buckets_join(void)
{
    foreach_random_buffer(check_layout);
}

static CU_TestInfo tests[] = {
    { "parameters lie in reverse order", parameters_lie_in_reverse_order },
    { "ends are padded for the shards", ends_are_padded_for_the_shards },
    { "buckets close when they are full", buckets_close_when_they_are_full },
    { "a shared embedding has its own bucket", a_shared_embedding_has_its_own_bucket },
    { "each kind has a buffer of its own", each_kind_has_a_buffer_of_its_own },
    { "shards have every element once", shards_have_every_element_once },
    { "shards are equal parts", shards_are_equal_parts },
    { "nothing overlaps and buckets join", nothing_overlaps_and_buckets_join },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "ddp_buffer", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
