/* SPDX-License-Identifier: Apache-2.0
 * Properties that hold whatever the calls are; what exactly happens is in tests/data/allocator. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"
#include "tests/cutap.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LIVE = 400, N_STREAMS = 3 };

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (seed >> 20) % n;
}

static const char *const confs[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64,garbage_collection_threshold:0.5,per_process_memory_fraction:0.7",
    "roundup_power2_divisions:[1:2,4:16,32:0,>:4]",
    "expandable_segments:True,large_segment_size_mb:32,roundup_power2_divisions:4",
    "expandable_segments:True,per_process_memory_fraction:0.6,garbage_collection_threshold:0.6",
    "expandable_segments:True,max_split_size_mb:20",
    "expandable_segments:True,expandable_segments_reserve:0.1",
    "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5",
};
enum { N_CONFS = sizeof(confs) / sizeof(confs[0]) };

typedef struct {
    sim_device_t *device;
    sim_alloc_t *alloc;
    uint64_t capacity;
    sim_block_t live[MAX_LIVE];
    uint32_t n_live;
} fixture_t;

static void fixture_init(fixture_t *f, const char *conf, sim_addresses_t addresses,
                         uint64_t capacity)
{
    *f = (fixture_t){ .capacity = capacity };
    f->device = sim_device_create_synthetic(&(sim_device_config_t){
        .total_bytes = capacity, .usable_bytes = capacity, .addresses = addresses });
    CU_ASSERT_EQUAL_FATAL(sim_alloc_create(f->device, conf, &f->alloc, NULL), BASE_OK);
}

static void fixture_fini(fixture_t *f)
{
    sim_alloc_destroy(f->alloc);
    CU_ASSERT_EQUAL(sim_device_used_bytes(f->device), 0);
    sim_device_destroy(f->device);
}

static uint64_t random_size(void)
{
    switch (below(4)) {
    case 0:
        return 1 + below(4096);
    case 1:
        return 1 + below(2 * BASE_MIB);
    case 2:
        return 1 + below(12 * BASE_MIB);
    default:
        return 1 + below(90 * BASE_MIB);
    }
}

static void free_one(fixture_t *f, uint32_t at)
{
    sim_alloc_free(f->alloc, f->live[at]);
    f->live[at] = f->live[--f->n_live];
}

static void random_call(fixture_t *f)
{
    uint64_t kind = below(100), stream = below(N_STREAMS) * 0x1000;
    if (kind < 50 && f->n_live < MAX_LIVE) {
        sim_block_t block;
        if (sim_alloc_malloc(f->alloc, stream, random_size(), &block))
            f->live[f->n_live++] = block;
    } else if (kind < 92 && f->n_live > 0) {
        free_one(f, (uint32_t)below(f->n_live));
    } else if (kind < 95 && f->n_live > 0) {
        sim_alloc_record_stream(f->alloc, f->live[below(f->n_live)], stream);
    } else if (kind < 98) {
        sim_alloc_stream_done(f->alloc, stream);
    } else if (kind == 98) {
        sim_alloc_all_streams_done(f->alloc);
    } else if (below(8) == 0) {
        sim_alloc_empty_cache(f->alloc);
    }
}

typedef struct {
    uint64_t end; /* of the block before */
    uint64_t segment_addr, segment_bytes, segment_seen, n_segments;
    uint64_t allocated, active, mapped;
    bool segment_is_pinned, all_pinned;
    bool ok;
} walk_t;

static void end_segment(walk_t *w)
{
    if (w->n_segments == 0)
        return;
    w->ok &= w->segment_seen == w->segment_bytes;
    w->all_pinned &= w->segment_is_pinned;
}

static void visit(void *arg, const sim_block_info_t *b)
{
    walk_t *w = arg;
    if (w->n_segments == 0 || b->segment_addr != w->segment_addr) {
        end_segment(w);
        w->ok &= b->segment_addr >= w->end && b->addr == b->segment_addr;
        w->segment_addr = b->segment_addr;
        w->segment_bytes = b->segment_bytes;
        w->segment_seen = 0;
        w->segment_is_pinned = false;
        w->n_segments++;
    } else {
        w->ok &= b->addr == w->end;
    }
    w->ok &= b->bytes > 0 && b->bytes % 512 == 0 && b->addr % 512 == 0;
    w->end = b->addr + b->bytes;
    w->segment_seen += b->bytes;
    w->segment_is_pinned |= b->is_active;
    w->mapped += b->bytes;
    w->allocated += b->is_allocated ? b->bytes : 0;
    w->active += b->is_active ? b->bytes : 0;
}

static walk_t walk(const fixture_t *f)
{
    walk_t w = { .ok = true, .all_pinned = true };
    sim_alloc_foreach(f->alloc, visit, &w);
    end_segment(&w);
    return w;
}

/* Blocks lie in address order without touching each other's bytes, and their sums are the figures
 * that are kept. */
static bool layout_is_sound(const fixture_t *f)
{
    walk_t w = walk(f);
    const sim_alloc_stats_t *s = sim_alloc_stats(f->alloc);
    return w.ok && w.mapped == s->reserved_bytes[SIM_POOL_ALL].current &&
           w.mapped == sim_device_used_bytes(f->device) &&
           w.allocated == s->allocated_bytes[SIM_POOL_ALL].current &&
           w.active == s->active_bytes[SIM_POOL_ALL].current;
}

static bool figures_are_sound(const fixture_t *f)
{
    uint64_t allocated = sim_alloc_allocated_bytes(f->alloc);
    uint64_t reserved = sim_alloc_reserved_bytes(f->alloc);
    return allocated <= reserved && reserved <= f->capacity &&
           reserved == sim_device_used_bytes(f->device);
}

static bool stat_is_zero(const sim_stat_t *s)
{
    return s->current == 0 && s->allocated == s->freed && s->peak <= s->allocated;
}

static void free_everything(fixture_t *f)
{
    while (f->n_live > 0)
        free_one(f, (uint32_t)below(f->n_live));
    sim_alloc_empty_cache(f->alloc);
}

static void check_conf(const char *conf, sim_addresses_t addresses)
{
    fixture_t f;
    bool figures = true, layout = true;
    fixture_init(&f, conf, addresses, 700 * BASE_MIB);
    for (int i = 0; i < 6000; i++) {
        random_call(&f);
        figures &= figures_are_sound(&f);
        if (i % 50 == 0)
            layout &= layout_is_sound(&f);
    }
    CU_ASSERT_TRUE(figures);
    CU_ASSERT_TRUE(layout);
    CU_ASSERT_TRUE(f.n_live > 0);

    sim_alloc_empty_cache(f.alloc); /* waits for all events: only live blocks pin */
    walk_t w = walk(&f);
    CU_ASSERT_TRUE(w.ok && w.all_pinned);
    CU_ASSERT_EQUAL(w.active, w.allocated);

    free_everything(&f);
    const sim_alloc_stats_t *s = sim_alloc_stats(f.alloc);
    CU_ASSERT_EQUAL(sim_device_used_bytes(f.device), 0);
    for (int pool = 0; pool < SIM_N_POOLS; pool++) {
        CU_ASSERT_TRUE(stat_is_zero(&s->allocated_bytes[pool]));
        CU_ASSERT_TRUE(stat_is_zero(&s->reserved_bytes[pool]));
        CU_ASSERT_TRUE(stat_is_zero(&s->active_bytes[pool]));
        CU_ASSERT_TRUE(stat_is_zero(&s->requested_bytes[pool]));
        CU_ASSERT_TRUE(stat_is_zero(&s->inactive_split_bytes[pool]));
        CU_ASSERT_TRUE(stat_is_zero(&s->inactive_split[pool]));
        CU_ASSERT_TRUE(stat_is_zero(&s->segment[pool]));
    }
    fixture_fini(&f);
}

static void random_calls_keep_every_property(void)
{
    for (int conf = 0; conf < N_CONFS; conf++)
        for (int addresses = SIM_ADDRESSES_BUMP; addresses <= SIM_ADDRESSES_DOWN; addresses++) {
            seed = 1000 + (uint64_t)conf * 3 + (uint64_t)addresses;
            check_conf(confs[conf], (sim_addresses_t)addresses);
        }
}

/* A page stays mapped only when a live block touches it. */
static void empty_cache_unmaps_every_page_that_no_block_touches(void)
{
    fixture_t f;
    sim_block_t block[8];
    fixture_init(&f, "expandable_segments:True", SIM_ADDRESSES_BUMP, 4 * BASE_GIB);
    for (int i = 0; i < 8; i++)
        CU_ASSERT_TRUE_FATAL(sim_alloc_malloc(f.alloc, 0, 30 * BASE_MIB, &block[i]));
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), 240 * BASE_MIB);
    for (int i = 1; i < 8; i++)
        sim_alloc_free(f.alloc, block[i]);
    sim_alloc_empty_cache(f.alloc);
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), 40 * BASE_MIB); /* 30 of two pages of 20 */
    fixture_fini(&f);
}

static void destroy_returns_everything_while_blocks_live(void)
{
    for (int conf = 0; conf < N_CONFS; conf++) {
        fixture_t f;
        seed = 77 + (uint64_t)conf;
        fixture_init(&f, confs[conf], SIM_ADDRESSES_REUSE, BASE_GIB);
        for (int i = 0; i < 500; i++)
            random_call(&f);
        CU_ASSERT_TRUE(f.n_live > 0);
        fixture_fini(&f);
    }
}

static void a_failed_request_leaves_figures_behind(void)
{
    fixture_t f;
    sim_block_t block, none = 5;
    fixture_init(&f, "per_process_memory_fraction:0.5", SIM_ADDRESSES_BUMP, BASE_GIB);
    CU_ASSERT_TRUE_FATAL(sim_alloc_malloc(f.alloc, 0, 400 * BASE_MIB, &block));
    CU_ASSERT_FALSE(sim_alloc_malloc(f.alloc, 0, 200 * BASE_MIB, &none));
    CU_ASSERT_EQUAL(none, SIM_BLOCK_NONE);
    const sim_oom_t *oom = sim_alloc_last_oom(f.alloc);
    CU_ASSERT_EQUAL(oom->requested_bytes, 200 * BASE_MIB);
    CU_ASSERT_EQUAL(oom->device_free_bytes, 624 * BASE_MIB);
    CU_ASSERT_EQUAL(oom->device_total_bytes, BASE_GIB);
    CU_ASSERT_EQUAL(oom->allocated_bytes, 400 * BASE_MIB);
    CU_ASSERT_TRUE(oom->has_limit);
    CU_ASSERT_EQUAL(oom->limit_bytes, 512 * BASE_MIB);
    CU_ASSERT_EQUAL(sim_alloc_stats(f.alloc)->num_ooms, 1);
    CU_ASSERT_EQUAL(sim_alloc_stats(f.alloc)->num_alloc_retries, 1);
    sim_alloc_set_fraction(f.alloc, 1.0);
    CU_ASSERT_TRUE(sim_alloc_malloc(f.alloc, 0, 200 * BASE_MIB, &block));
    fixture_fini(&f);
}

static void requests_of_nothing_or_far_too_much_touch_nothing(void)
{
    fixture_t f;
    sim_block_t block = 5;
    fixture_init(&f, "", SIM_ADDRESSES_BUMP, BASE_GIB);
    CU_ASSERT_TRUE(sim_alloc_malloc(f.alloc, 0, 0, &block));
    CU_ASSERT_EQUAL(block, SIM_BLOCK_NONE);
    sim_alloc_free(f.alloc, block);
    CU_ASSERT_FALSE(sim_alloc_malloc(f.alloc, 0, UINT64_C(1) << 60, &block));
    CU_ASSERT_FALSE(sim_alloc_malloc(f.alloc, 0, UINT64_MAX, &block));
    CU_ASSERT_EQUAL(sim_alloc_stats(f.alloc)->num_ooms, 0);
    CU_ASSERT_FALSE(sim_alloc_malloc(f.alloc, 0, (UINT64_C(1) << 60) - 1, &block));
    CU_ASSERT_EQUAL(sim_alloc_stats(f.alloc)->num_ooms, 1);
    CU_ASSERT_EQUAL(sim_device_calls(f.device)->n_malloc, 0);
    fixture_fini(&f);
}

/* With throw_on_cudamalloc_oom a request beyond the limit skips the retries: the cache stays. */
static void rejection_before_cudamalloc_keeps_the_cache(void)
{
    fixture_t f;
    sim_block_t block;
    fixture_init(&f, "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5",
                 SIM_ADDRESSES_BUMP, BASE_GIB);
    CU_ASSERT_TRUE_FATAL(sim_alloc_malloc(f.alloc, 0, 300 * BASE_MIB, &block));
    sim_alloc_free(f.alloc, block);
    CU_ASSERT_FALSE(sim_alloc_malloc(f.alloc, 0, 400 * BASE_MIB, &block));
    CU_ASSERT_EQUAL(sim_alloc_reserved_bytes(f.alloc), 300 * BASE_MIB);
    const sim_alloc_stats_t *s = sim_alloc_stats(f.alloc);
    CU_ASSERT_EQUAL(s->num_oom_rejections, 1);
    CU_ASSERT_EQUAL(s->num_alloc_retries, 0);
    CU_ASSERT_EQUAL(s->num_ooms, 0);
    fixture_fini(&f);
}

static void a_small_reservation_bounds_one_request(void)
{
    fixture_t f;
    sim_block_t block;
    fixture_init(&f, "expandable_segments:True,expandable_segments_reserve:0.25",
                 SIM_ADDRESSES_BUMP, 4 * BASE_GIB);
    CU_ASSERT_FALSE(sim_alloc_malloc(f.alloc, 0, 2 * BASE_GIB, &block));
    CU_ASSERT_EQUAL(sim_alloc_stats(f.alloc)->num_ooms, 1);
    for (int i = 0; i < 4; i++) /* 52 pages of 20 MiB each, the fourth no longer fits */
        CU_ASSERT_EQUAL(sim_alloc_malloc(f.alloc, 0, BASE_GIB, &block), i < 3);
    fixture_fini(&f);
}

/* Everything that is not a statistic, of all blocks. */
static void hash_block(void *arg, const sim_block_info_t *b)
{
    uint64_t *h = arg;
    const uint64_t words[] = { b->segment_addr, b->segment_bytes,   b->addr,
                               b->bytes,        b->requested_bytes, b->stream,
                               b->is_large,     b->is_allocated,    b->is_active };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        *h = (*h ^ words[i]) * UINT64_C(0x100000001b3);
}

static uint64_t play_hashed(const char *conf, bool drops_stats, sim_alloc_stats_t *stats_p)
{
    fixture_t f;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    fixture_init(&f, conf, SIM_ADDRESSES_REUSE, 700 * BASE_MIB);
    if (drops_stats)
        sim_alloc_drop_stats(f.alloc);
    seed = 99;
    for (int i = 0; i < 4000; i++) {
        random_call(&f);
        h = (h ^ sim_alloc_allocated_bytes(f.alloc)) * UINT64_C(0x100000001b3);
        h = (h ^ sim_alloc_reserved_bytes(f.alloc)) * UINT64_C(0x100000001b3);
        if (i % 100 == 0)
            sim_alloc_foreach(f.alloc, hash_block, &h);
    }
    *stats_p = *sim_alloc_stats(f.alloc);
    fixture_fini(&f);
    return h;
}

static void without_statistics_all_else_is_the_same(void)
{
    for (int c = 0; c < N_CONFS; c++) {
        sim_alloc_stats_t kept, dropped;
        CU_ASSERT_EQUAL(play_hashed(confs[c], false, &kept), play_hashed(confs[c], true, &dropped));
        CU_ASSERT_EQUAL(
            memcmp(kept.reserved_bytes, dropped.reserved_bytes, sizeof(kept.reserved_bytes)), 0);
        CU_ASSERT_EQUAL(memcmp(kept.segment, dropped.segment, sizeof(kept.segment)), 0);
        CU_ASSERT_EQUAL(kept.num_alloc_retries, dropped.num_alloc_retries);
        CU_ASSERT_EQUAL(kept.num_ooms, dropped.num_ooms);
        CU_ASSERT_EQUAL(kept.num_device_alloc, dropped.num_device_alloc);
        CU_ASSERT_EQUAL(kept.num_device_free, dropped.num_device_free);
        CU_ASSERT_TRUE(kept.allocation[SIM_POOL_ALL].allocated > 0);
        CU_ASSERT_EQUAL(dropped.allocation[SIM_POOL_ALL].allocated, 0);
        CU_ASSERT_EQUAL(dropped.inactive_split_bytes[SIM_POOL_ALL].peak, 0);
        CU_ASSERT_EQUAL(dropped.requested_bytes[SIM_POOL_ALL].current, 0);
    }
}

static void reused_addresses_come_back_lowest_first(void)
{
    sim_device_t *d = sim_device_create_synthetic(&(sim_device_config_t){
        .total_bytes = BASE_GIB, .usable_bytes = BASE_GIB, .addresses = SIM_ADDRESSES_REUSE });
    uint64_t addr[4], again;
    for (int i = 0; i < 4; i++)
        CU_ASSERT_TRUE(sim_device_malloc(d, 4 * BASE_MIB, &addr[i]));
    CU_ASSERT_EQUAL(addr[0], SIM_ADDRESSES_FIRST);
    sim_device_free(d, addr[2], 4 * BASE_MIB);
    sim_device_free(d, addr[0], 4 * BASE_MIB);
    sim_device_free(d, addr[1], 4 * BASE_MIB);
    CU_ASSERT_TRUE(sim_device_malloc(d, 10 * BASE_MIB, &again));
    CU_ASSERT_EQUAL(again, addr[0]);
    sim_device_free(d, again, 10 * BASE_MIB);
    sim_device_free(d, addr[3], 4 * BASE_MIB);
    CU_ASSERT_TRUE(sim_device_malloc(d, 100 * BASE_MIB, &again));
    CU_ASSERT_EQUAL(again, addr[0]);
    CU_ASSERT_FALSE(sim_device_malloc(d, BASE_GIB, &again));
    sim_device_destroy(d);
}

static void a_map_that_does_not_fit_gives_its_pages_back(void)
{
    sim_device_t *d = sim_device_create_synthetic(
        &(sim_device_config_t){ .total_bytes = 64 * BASE_MIB, .usable_bytes = 50 * BASE_MIB });
    uint64_t addr;
    CU_ASSERT_TRUE(sim_device_reserve(d, 200 * BASE_MIB, &addr));
    CU_ASSERT_FALSE(sim_device_map(d, addr, 20 * BASE_MIB, 3));
    CU_ASSERT_EQUAL(sim_device_used_bytes(d), 0);
    CU_ASSERT_TRUE(sim_device_map(d, addr, 20 * BASE_MIB, 2));
    CU_ASSERT_FALSE(sim_device_take(d, 11 * BASE_MIB));
    CU_ASSERT_TRUE(sim_device_take(d, 10 * BASE_MIB));
    const sim_device_calls_t *c = sim_device_calls(d);
    CU_ASSERT_EQUAL(c->n_page_create, 4);
    CU_ASSERT_EQUAL(c->n_page_release, 2);
    CU_ASSERT_EQUAL(c->n_failed, 1);
    CU_ASSERT_EQUAL(c->peak_used_bytes, 50 * BASE_MIB);
    sim_device_destroy(d);
}

static CU_TestInfo tests[] = {
    { "random calls keep every property", random_calls_keep_every_property },
    { "empty_cache unmaps every page that no block touches",
      empty_cache_unmaps_every_page_that_no_block_touches },
    { "destroy returns everything while blocks live",
      destroy_returns_everything_while_blocks_live },
    { "a failed request leaves figures behind", a_failed_request_leaves_figures_behind },
    { "requests of nothing or far too much touch nothing",
      requests_of_nothing_or_far_too_much_touch_nothing },
    { "rejection before cudaMalloc keeps the cache", rejection_before_cudamalloc_keeps_the_cache },
    { "a small reservation bounds one request", a_small_reservation_bounds_one_request },
    { "without statistics all else is the same", without_statistics_all_else_is_the_same },
    { "reused addresses come back lowest first", reused_addresses_come_back_lowest_first },
    { "a map that does not fit gives its pages back",
      a_map_that_does_not_fit_gives_its_pages_back },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "caching_allocator", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
