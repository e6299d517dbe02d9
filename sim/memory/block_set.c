/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/block_set.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <stdlib.h>
#include <string.h>

void *sim__realloc_aligned(void **raw_p, const void *old, size_t n_kept, size_t n, size_t size)
{
    enum { LINE = 64 };
    void *raw = base_xrealloc(NULL, n + base_u64_div_up(LINE, size), size);
    void *aligned = (void *)(((uintptr_t)raw + LINE - 1) & ~(uintptr_t)(LINE - 1));
    if (n_kept > 0)
        memcpy(aligned, old, n_kept * size);
    free(*raw_p);
    *raw_p = raw;
    return aligned;
}

uint32_t sim__set_entries_to(const set_t *set, uint32_t lo, int32_t key, uint64_t addr)
{
    uint32_t hi = set__entries_below(set, key + 1);
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (set->addr[mid] <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static uint32_t chunk_new(chunk_arena_t *chunks)
{
    uint32_t id = chunks->unused;
    if (id != NONE) {
        chunks->unused = chunks->at[id].block[0];
    } else {
        if (chunks->n == chunks->cap) {
            chunks->cap = chunks->cap == 0 ? 8 : chunks->cap * 2;
            chunks->at = sim__realloc_aligned(&chunks->raw, chunks->at, chunks->n, chunks->cap,
                                              sizeof(*chunks->at));
        }
        id = chunks->n++;
    }
    chunk_t *c = &chunks->at[id];
    for (int i = 0; i < 2 * SET_CHUNK; i++) {
        c->key[i] = INT32_MAX;
        c->block[i] = NONE;
    }
    return id;
}

static void chunk_delete(chunk_arena_t *chunks, uint32_t id)
{
    chunks->at[id].block[0] = chunks->unused;
    chunks->unused = id;
}

static void index_insert(set_t *set, uint32_t at, int32_t key, uint64_t addr, uint32_t chunk)
{
    if (set->n == set->cap) {
        set->cap = set->cap == 0 ? 4 : set->cap * 2;
        set->key = base_xrealloc(set->key, set->cap + SET_WINDOW, sizeof(*set->key));
        set->addr = base_xrealloc(set->addr, set->cap, sizeof(*set->addr));
        set->chunk = base_xrealloc(set->chunk, set->cap, sizeof(*set->chunk));
        for (uint32_t i = set->n; i < set->cap + SET_WINDOW; i++)
            set->key[i] = INT32_MAX;
    }
    uint32_t n_moved = set->n - at;
    memmove(&set->key[at + 1], &set->key[at], n_moved * sizeof(*set->key));
    memmove(&set->addr[at + 1], &set->addr[at], n_moved * sizeof(*set->addr));
    memmove(&set->chunk[at + 1], &set->chunk[at], n_moved * sizeof(*set->chunk));
    set->key[at] = key;
    set->addr[at] = addr;
    set->chunk[at] = chunk;
    set->n++;
}

static void index_erase(set_t *set, uint32_t at)
{
    set->n--;
    uint32_t n_moved = set->n - at;
    memmove(&set->key[at], &set->key[at + 1], n_moved * sizeof(*set->key));
    memmove(&set->addr[at], &set->addr[at + 1], n_moved * sizeof(*set->addr));
    memmove(&set->chunk[at], &set->chunk[at + 1], n_moved * sizeof(*set->chunk));
    set->key[set->n] = INT32_MAX;
    if (at == 0 && set->n > 0) {
        set->key[0] = INT32_MIN;
        set->addr[0] = 0;
    }
}

void sim__set_init(sim_alloc_t *a, set_t *set)
{
    *set = (set_t){ .recent_unused = (UINT32_C(1) << SET_RECENT) - 1 };
    for (uint32_t i = 0; i < SET_RECENT; i++)
        set->recent_key[i] = SET_NO_KEY;
    index_insert(set, 0, INT32_MIN, 0, chunk_new(&a->chunks));
}

/* Upper half of a full chunk into a new one behind it. */
static void split_chunk(sim_alloc_t *a, set_t *set, uint32_t entry)
{
    enum { HALF = SET_CHUNK / 2 };
    uint32_t upper_id = chunk_new(&a->chunks);
    chunk_t *lower = &a->chunks.at[set->chunk[entry]], *upper = &a->chunks.at[upper_id];
    for (int i = 0; i < HALF; i++) {
        upper->key[i] = lower->key[HALF + i];
        upper->block[i] = lower->block[HALF + i];
        a->blocks[upper->block[i]].chunk = upper_id;
        lower->key[HALF + i] = INT32_MAX;
        lower->block[HALF + i] = NONE;
    }
    index_insert(set, entry + 1, upper->key[0], a->blocks[upper->block[0]].addr, upper_id);
}

void sim__set_insert_settled(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block)
{
    uint64_t addr = a->blocks[block].addr;
    uint32_t entry = set__find_entry(set, key, addr);
    if (__builtin_expect(set__is_full(&a->chunks.at[set->chunk[entry]]), 0)) {
        split_chunk(a, set, entry);
        entry = set__find_entry(set, key, addr);
    }
    uint32_t id = set->chunk[entry];
    chunk_t *c = &a->chunks.at[id];
    uint32_t slot = set__find_slot(a, c, key, addr);
    set__move(&c->key[slot + 1], &c->key[slot]);
    set__move(&c->block[slot + 1], &c->block[slot]);
    c->key[slot] = key;
    c->block[slot] = block;
    a->blocks[block].chunk = id;
}

/* After an erasure that left few entries: drop an empty chunk, or join it with the one behind.
 * Tried only when the count passes a power of two. */
static void tidy(sim_alloc_t *a, set_t *set, uint32_t entry)
{
    uint32_t id = set->chunk[entry], n = set__length(&a->chunks.at[id]);
    if ((n & (n - 1)) != 0)
        return;
    if (n == 0) {
        index_erase(set, entry);
        chunk_delete(&a->chunks, id);
        return;
    }
    if (entry + 1 >= set->n)
        return;
    uint32_t behind_id = set->chunk[entry + 1];
    chunk_t *c = &a->chunks.at[id], *behind = &a->chunks.at[behind_id];
    uint32_t n_behind = set__length(behind);
    if (n + n_behind > SET_CHUNK * 3 / 4)
        return;
    for (uint32_t i = 0; i < n_behind; i++) {
        c->key[n + i] = behind->key[i];
        c->block[n + i] = behind->block[i];
        a->blocks[behind->block[i]].chunk = id;
    }
    index_erase(set, entry + 1);
    chunk_delete(&a->chunks, behind_id);
}

static void erase_slot(chunk_t *c, uint32_t slot)
{
    set__move(&c->key[slot], &c->key[slot + 1]);
    set__move(&c->block[slot], &c->block[slot + 1]);
}

static bool wants_tidying(const set_t *set, const chunk_t *c)
{
    return c->key[SET_CHUNK / 4] == INT32_MAX && set->n > 1;
}

void sim__set_erase_settled(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block)
{
    chunk_t *c = &a->chunks.at[a->blocks[block].chunk];
    erase_slot(c, set__slot_of(c->block, block));
    if (wants_tidying(set, c))
        tidy(a, set, set__find_entry(set, key, a->blocks[block].addr));
}

void sim__set_settle(sim_alloc_t *a, set_t *set)
{
    enum { ALL = (1 << SET_RECENT) - 1 };
    for (uint32_t left = ALL & ~set->recent_unused; left != 0; left &= left - 1) {
        uint32_t place = (uint32_t)__builtin_ctz(left);
        sim__set_insert_settled(a, set, set->recent_key[place], set->recent_block[place]);
        set->recent_key[place] = SET_NO_KEY;
    }
    set->recent_unused = ALL;
}

void sim__set_fini(set_t *set)
{
    free(set->key);
    free(set->addr);
    free(set->chunk);
    *set = (set_t){ 0 };
}

void sim__chunks_fini(chunk_arena_t *chunks)
{
    free(chunks->raw);
    *chunks = (chunk_arena_t){ .unused = NONE };
}
