/* SPDX-License-Identifier: Apache-2.0
 * The ordered set of free blocks against a plain list that is searched from end to end. */
#include "config.h"

#include "sim/memory/block_set.h"
#include "tests/cutap.h"

#include <stdlib.h>
#include <string.h>

enum { N_BLOCKS = 3000 };
#define TEBIBYTE (UINT64_C(1) << 40)

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 33) % n;
}

typedef struct {
    sim_alloc_t alloc; /* only its arenas are used */
    set_t set;
    block_t blocks[N_BLOCKS];
    bool is_in[N_BLOCKS];
    uint32_t n_in;
} fixture_t;

/* Few sizes: many ties, as equal layers give. */
static fixture_t *fixture_create(uint32_t n_sizes)
{
    fixture_t *f = calloc(1, sizeof(*f));
    f->alloc.blocks = f->blocks;
    f->alloc.n_blocks = f->alloc.blocks_cap = N_BLOCKS;
    f->alloc.chunks.unused = NONE;
    sim__set_init(&f->alloc, &f->set);
    for (uint32_t i = 0; i < N_BLOCKS; i++) {
        f->blocks[i].size = 512 * (uint64_t)(1 + below(n_sizes));
        f->blocks[i].addr = UINT64_C(0x100000000000) + ((i * UINT64_C(7919)) % N_BLOCKS) * 512;
    }
    return f;
}

static void fixture_destroy(fixture_t *f)
{
    sim__set_fini(&f->set);
    sim__chunks_fini(&f->alloc.chunks);
    free(f);
}

static void toggle(fixture_t *f, uint32_t id)
{
    if (f->is_in[id])
        set_erase(&f->alloc, &f->set, size_key(f->blocks[id].size), id);
    else
        set_insert(&f->alloc, &f->set, size_key(f->blocks[id].size), id);
    f->is_in[id] = !f->is_in[id];
    f->n_in = f->is_in[id] ? f->n_in + 1 : f->n_in - 1;
}

static bool is_before(const block_t *a, const block_t *b)
{
    return a->size < b->size || (a->size == b->size && a->addr < b->addr);
}

static uint32_t search_plainly(const fixture_t *f, uint64_t size)
{
    uint32_t best = NONE;
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        if (f->is_in[i] && f->blocks[i].size >= size &&
            (best == NONE || is_before(&f->blocks[i], &f->blocks[best])))
            best = i;
    return best;
}

static uint32_t first(const fixture_t *f, uint64_t size)
{
    return set_first(&f->alloc, &f->set, size_key_wanted(size));
}

/* In order from both ends, and complete, when all are in their chunks. */
static bool is_sound(fixture_t *f)
{
    uint32_t n = 0, last = NONE, id;
    sim__set_settle(&f->alloc, &f->set);
    cursor_t at = { 0, 0 };
    for (; (id = set_at(&f->alloc, &f->set, at)) != NONE; at = set_next(&f->alloc, &f->set, at)) {
        if (!f->is_in[id] || (last != NONE && !is_before(&f->blocks[last], &f->blocks[id])))
            return false;
        last = id;
        n++;
    }
    uint32_t n_back = 0;
    at = (cursor_t){ f->set.n, 0 };
    while (set_prev(&f->alloc, &f->set, &at))
        n_back++;
    return n == f->n_in && n_back == n;
}

static void run(uint32_t n_sizes, uint32_t fill_percent)
{
    fixture_t *f = fixture_create(n_sizes);
    bool found_all = true, sound = true;
    for (uint32_t i = 0; i < 30000; i++) {
        uint32_t id = below(N_BLOCKS);
        if (f->is_in[id] != (below(100) < fill_percent))
            toggle(f, id);
        if (i % 16 == 0) {
            uint64_t size = 512 * (uint64_t)(1 + below(n_sizes + 1));
            found_all &= first(f, size) == search_plainly(f, size);
        }
        if (i % 1000 == 0)
            sound &= is_sound(f);
    }
    while (f->n_in > 0) { /* empty it in another order */
        uint32_t id = below(N_BLOCKS);
        if (f->is_in[id])
            toggle(f, id);
        if (f->n_in % 500 == 0)
            sound &= is_sound(f);
    }
    CU_ASSERT_TRUE(found_all);
    CU_ASSERT_TRUE(sound);
    CU_ASSERT_EQUAL(first(f, 512), NONE);
    fixture_destroy(f);
}

static void best_fit_equals_a_plain_search_with_few_ties(void)
{
    seed = 1;
    run(5000, 50);
    run(5000, 95);
}

static void best_fit_equals_a_plain_search_with_many_ties(void)
{
    seed = 2;
    run(3, 50);
    run(1, 90);
}

static void sizes_beyond_any_device_find_nothing(void)
{
    seed = 3;
    fixture_t *f = fixture_create(10);
    CU_ASSERT_EQUAL(first(f, 512), NONE);
    toggle(f, 0);
    CU_ASSERT_EQUAL(first(f, f->blocks[0].size), 0);
    CU_ASSERT_EQUAL(first(f, UINT64_MAX), NONE);
    CU_ASSERT_EQUAL(first(f, UINT64_C(1) << 41), NONE);
    CU_ASSERT_EQUAL(first(f, SIM_DEVICE_MAX_BYTES), NONE);
    toggle(f, 0);
    f->blocks[1].size = SIM_DEVICE_MAX_BYTES;
    toggle(f, 1);
    CU_ASSERT_EQUAL(first(f, SIM_DEVICE_MAX_BYTES), 1);
    fixture_destroy(f);
}

/* Also without the chunks, and with nothing but them. */
static void recent_blocks_are_found_with_the_others(void)
{
    seed = 4;
    fixture_t *f = fixture_create(4);
    for (uint32_t n_in = 0; n_in < 3 * SET_RECENT; n_in++) {
        toggle(f, n_in);
        for (uint32_t units = 1; units <= 5; units++)
            CU_ASSERT_EQUAL(first(f, 512 * units), search_plainly(f, 512 * units));
    }
    CU_ASSERT_EQUAL(f->set.recent_unused, 0);
    sim__set_settle(&f->alloc, &f->set);
    CU_ASSERT_EQUAL(f->set.recent_unused, (1 << SET_RECENT) - 1);
    for (uint32_t units = 1; units <= 5; units++)
        CU_ASSERT_EQUAL(first(f, 512 * units), search_plainly(f, 512 * units));
    fixture_destroy(f);
}

/* Larger ones are not among the recent, whose keys are compared by their difference. */
static void blocks_of_a_tebibyte_are_found(void)
{
    static const uint64_t sizes[] = { 512, TEBIBYTE - 512, TEBIBYTE, TEBIBYTE + 512,
                                      SIM_DEVICE_MAX_BYTES };
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    seed = 5;
    fixture_t *f = fixture_create(1);
    for (uint32_t i = 0; i < N; i++)
        f->blocks[i].size = sizes[i];
    for (uint32_t in = 0; in < 1U << N; in++) {
        for (uint32_t i = 0; i < N; i++) {
            if (f->is_in[i] != (in >> i & 1))
                toggle(f, i);
        }
        for (uint32_t i = 0; i < N; i++)
            CU_ASSERT_EQUAL(first(f, sizes[i]), search_plainly(f, sizes[i]));
    }
    fixture_destroy(f);
}

static CU_TestInfo tests[] = {
    { "best fit equals a plain search, few ties", best_fit_equals_a_plain_search_with_few_ties },
    { "best fit equals a plain search, many ties", best_fit_equals_a_plain_search_with_many_ties },
    { "recent blocks are found with the others", recent_blocks_are_found_with_the_others },
    { "blocks of a tebibyte are found", blocks_of_a_tebibyte_are_found },
    { "sizes beyond any device find nothing", sizes_beyond_any_device_find_nothing },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "block_set", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
