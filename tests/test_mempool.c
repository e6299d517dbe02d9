/* SPDX-License-Identifier: Apache-2.0
 * Private pools of CUDA graphs: what c10/cuda/CUDACachingAllocator.cpp promises of them. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"
#include "tests/cutap.h"

enum { CAPTURE_STREAM = 0x2000, POOL = 1, OTHER_POOL = 2 };

typedef struct {
    sim_device_t *device;
    sim_alloc_t *alloc;
} fixture_t;

static fixture_t make(const char *conf, uint64_t capacity)
{
    fixture_t f;
    f.device = sim_device_create_synthetic(&(sim_device_config_t){
        .total_bytes = capacity, .usable_bytes = capacity, .addresses = SIM_ADDRESSES_REUSE });
    CU_ASSERT_EQUAL_FATAL(sim_alloc_create(f.device, conf, &f.alloc, NULL), BASE_OK);
    return f;
}

static void drop(fixture_t *f)
{
    sim_alloc_destroy(f->alloc);
    CU_ASSERT_EQUAL(sim_device_used_bytes(f->device), 0);
    sim_device_destroy(f->device);
}

static sim_block_t get(fixture_t *f, uint64_t stream, uint64_t bytes)
{
    sim_block_t block;
    CU_ASSERT_TRUE_FATAL(sim_alloc_malloc(f->alloc, stream, bytes, &block));
    return block;
}

static sim_block_t capture(fixture_t *f, uint32_t pool, uint64_t bytes)
{
    sim_alloc_begin_capture(f->alloc, pool);
    sim_block_t block = get(f, CAPTURE_STREAM, bytes);
    sim_alloc_end_capture(f->alloc);
    return block;
}

static void expect_pools(const fixture_t *f, uint64_t reserved, uint64_t idle)
{
    sim_mempools_t pools = sim_alloc_mempools(f->alloc);
    CU_ASSERT_EQUAL(pools.reserved_bytes, reserved);
    CU_ASSERT_EQUAL(pools.idle_bytes, idle);
}

/* A capture gets segments of its own, and leaves cached memory of the same stream alone. */
static void test_pools_do_not_mix(void)
{
    fixture_t f = make("", 1 * BASE_GIB);
    sim_alloc_free(f.alloc, get(&f, CAPTURE_STREAM, 64 * BASE_MIB));
    sim_block_t a = capture(&f, POOL, 64 * BASE_MIB);
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), 128 * BASE_MIB);
    sim_alloc_free(f.alloc, a);
    expect_pools(&f, 64 * BASE_MIB, 64 * BASE_MIB);
    CU_ASSERT_EQUAL(sim_alloc_allocated_bytes(f.alloc), 0);
    /* What is idle in the pool serves neither another pool nor ordinary requests ... */
    sim_block_t b = get(&f, CAPTURE_STREAM, 64 * BASE_MIB);
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), 128 * BASE_MIB);
    sim_block_t c = capture(&f, OTHER_POOL, 64 * BASE_MIB);
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), 192 * BASE_MIB);
    /* ... only the next capture of the same pool. */
    sim_block_t d = capture(&f, POOL, 32 * BASE_MIB);
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), 192 * BASE_MIB);
    expect_pools(&f, 128 * BASE_MIB, 32 * BASE_MIB);
    sim_alloc_free(f.alloc, b);
    sim_alloc_free(f.alloc, c);
    sim_alloc_free(f.alloc, d);
    drop(&f);
}

static void expect_pools_stay(const char *conf, uint64_t kept)
{
    fixture_t f = make(conf, 1 * BASE_GIB);
    sim_alloc_free(f.alloc, get(&f, 0, 100 * BASE_MIB));
    sim_alloc_free(f.alloc, capture(&f, POOL, 100 * BASE_MIB));
    sim_alloc_empty_cache(f.alloc);
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), kept);
    expect_pools(&f, kept, kept);
    drop(&f);
}

static void test_pools_are_not_given_back(void)
{
    expect_pools_stay("", 100 * BASE_MIB);
    expect_pools_stay("expandable_segments:True", 100 * BASE_MIB);
}

/* The retry of a failed request gives back the default pool's cache, not the graphs'. */
static void test_out_of_memory(void)
{
    fixture_t f = make("", 300 * BASE_MIB);
    sim_alloc_free(f.alloc, get(&f, 0, 100 * BASE_MIB));
    sim_alloc_free(f.alloc, capture(&f, POOL, 100 * BASE_MIB));
    sim_block_t block;
    CU_ASSERT_FALSE(sim_alloc_malloc(f.alloc, 0, 210 * BASE_MIB, &block));
    const sim_oom_t *oom = sim_alloc_last_oom(f.alloc);
    CU_ASSERT_EQUAL(oom->reserved_bytes, 100 * BASE_MIB);
    CU_ASSERT_EQUAL(oom->mempools_idle_bytes, 100 * BASE_MIB);
    CU_ASSERT_EQUAL(oom->allocated_bytes, 0);
    sim_alloc_free(f.alloc, get(&f, 0, 200 * BASE_MIB));
    drop(&f);
}

/* While a capture is under way not even the default pool's cache is given back. */
static void test_capture_releases_nothing(void)
{
    fixture_t f = make("", 300 * BASE_MIB);
    sim_alloc_free(f.alloc, get(&f, 0, 200 * BASE_MIB));
    sim_alloc_begin_capture(f.alloc, POOL);
    sim_block_t block;
    CU_ASSERT_FALSE(sim_alloc_malloc(f.alloc, CAPTURE_STREAM, 200 * BASE_MIB, &block));
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), 200 * BASE_MIB);
    sim_alloc_end_capture(f.alloc);
    sim_alloc_empty_cache(f.alloc);
    sim_alloc_free(f.alloc, capture(&f, POOL, 200 * BASE_MIB));
    drop(&f);
}

/* A block goes back to its pool after the capture too, and merges there. */
static void test_blocks_go_home(void)
{
    fixture_t f = make("", 1 * BASE_GIB);
    sim_alloc_begin_capture(f.alloc, POOL);
    sim_block_t a = get(&f, CAPTURE_STREAM, 4 * BASE_MIB),
                b = get(&f, CAPTURE_STREAM, 4 * BASE_MIB);
    sim_alloc_end_capture(f.alloc);
    CU_ASSERT_EQUAL(sim_alloc_allocated_bytes(f.alloc), 8 * BASE_MIB);
    sim_alloc_free(f.alloc, a);
    sim_alloc_free(f.alloc, b);
    expect_pools(&f, 20 * BASE_MIB, 20 * BASE_MIB);
    uint64_t reserved = sim_alloc_reserved_bytes(f.alloc);
    sim_alloc_free(f.alloc, capture(&f, POOL, 9 * BASE_MIB));
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), reserved);
    drop(&f);
}

/* The stream that the block was captured on is no foreign one. */
static void test_own_stream_is_not_foreign(void)
{
    fixture_t f = make("", 1 * BASE_GIB);
    sim_block_t a = capture(&f, POOL, 4 * BASE_MIB);
    sim_alloc_record_stream(f.alloc, a, CAPTURE_STREAM);
    sim_alloc_free(f.alloc, a);
    expect_pools(&f, 20 * BASE_MIB, 20 * BASE_MIB);
    drop(&f);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "pools do not mix", test_pools_do_not_mix },
        { "pools are not given back", test_pools_are_not_given_back },
        { "out of memory beside a pool", test_out_of_memory },
        { "a capture releases nothing", test_capture_releases_nothing },
        { "blocks go back to their pool", test_blocks_go_home },
        { "a block's own stream is not foreign", test_own_stream_is_not_foreign },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { .pName = "mempool", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
