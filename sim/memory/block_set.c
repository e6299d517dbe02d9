/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/memory/alloc_internal.h"

#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

_Static_assert(SET_CHUNK == 16, "one 128-bit mask of bytes");

/* How many of SET_CHUNK ascending keys are below `key`; without branches. */
#ifdef __SSE2__
static inline uint32_t count_below(const int32_t *keys, int32_t key)
{
    const __m128i k = _mm_set1_epi32(key), *v = (const __m128i *)keys;
    __m128i low = _mm_packs_epi32(_mm_cmplt_epi32(_mm_loadu_si128(v), k),
                                  _mm_cmplt_epi32(_mm_loadu_si128(v + 1), k));
    __m128i high = _mm_packs_epi32(_mm_cmplt_epi32(_mm_loadu_si128(v + 2), k),
                                   _mm_cmplt_epi32(_mm_loadu_si128(v + 3), k));
    return (uint32_t)__builtin_ctz(~(uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)));
}
#else
static inline uint32_t count_below(const int32_t *keys, int32_t key)
{
    uint32_t n = 0;
    for (int i = 0; i < SET_CHUNK; i++)
        n += keys[i] < key;
    return n;
}
#endif

/* Copy SET_CHUNK words; the two places may overlap. */
static inline void move_chunk(void *to, const void *from)
{
    typedef uint32_t lanes_t __attribute__((vector_size(16), aligned(4), may_alias));
    lanes_t kept[SET_CHUNK / 4];
    for (int i = 0; i < SET_CHUNK / 4; i++)
        kept[i] = ((const lanes_t *)from)[i];
    for (int i = 0; i < SET_CHUNK / 4; i++)
        ((lanes_t *)to)[i] = kept[i];
}

/* How many index entries have a key below `key`: halve down to one window, then count. */
static inline uint32_t entries_below(const set_t *set, int32_t key)
{
    uint32_t lo = 0, n = set->n;
    while (n > SET_CHUNK) {
        uint32_t half = n / 2;
        lo = set->key[lo + half - 1] < key ? lo + half : lo;
        n -= half;
    }
    return lo + count_below(set->key + lo, key);
}

/* Last index entry at or below (key, addr). */
static uint32_t find_entry(const set_t *set, int32_t key, uint64_t addr)
{
    uint32_t lo = entries_below(set, key), hi = set->n;
    if (lo < hi && set->key[lo] == key) {
        hi = entries_below(set, key + 1);
        while (lo < hi) {
            uint32_t mid = lo + (hi - lo) / 2;
            if (set->addr[mid] <= addr)
                lo = mid + 1;
            else
                hi = mid;
        }
    }
    return lo == 0 ? 0 : lo - 1;
}

cursor_t sim__set_lower_bound(const sim_alloc_t *a, const set_t *set, int32_t key)
{
    if (set->n == 0)
        return (cursor_t){ 0, 0 };
    uint32_t entry = entries_below(set, key);
    entry -= entry != 0;
    const chunk_t *c = &a->chunks.at[set->chunk[entry]];
    uint32_t slot = count_below(c->key, key);
    return slot < c->n ? (cursor_t){ entry, slot } : (cursor_t){ entry + 1, 0 };
}

static uint32_t chunk_new(chunk_arena_t *chunks)
{
    uint32_t id = chunks->unused;
    if (id != NONE) {
        chunks->unused = chunks->at[id].next_unused;
    } else {
        if (chunks->n == chunks->cap) {
            chunks->cap = chunks->cap == 0 ? 8 : chunks->cap * 2;
            chunks->at = base_xrealloc(chunks->at, chunks->cap, sizeof(*chunks->at));
        }
        id = chunks->n++;
    }
    chunk_t *c = &chunks->at[id];
    c->n = 0;
    for (int i = 0; i < 2 * SET_CHUNK; i++)
        c->key[i] = INT32_MAX;
    return id;
}

static void chunk_delete(chunk_arena_t *chunks, uint32_t id)
{
    chunks->at[id].next_unused = chunks->unused;
    chunks->unused = id;
}

static void index_insert(set_t *set, uint32_t at, int32_t key, uint64_t addr, uint32_t chunk)
{
    if (set->n == set->cap) {
        set->cap = set->cap == 0 ? 4 : set->cap * 2;
        set->key = base_xrealloc(set->key, set->cap + SET_CHUNK, sizeof(*set->key));
        set->addr = base_xrealloc(set->addr, set->cap, sizeof(*set->addr));
        set->chunk = base_xrealloc(set->chunk, set->cap, sizeof(*set->chunk));
        for (uint32_t i = set->n; i < set->cap + SET_CHUNK; i++)
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

/* Upper half of a full chunk into a new one behind it. */
static void split_chunk(sim_alloc_t *a, set_t *set, uint32_t entry)
{
    uint32_t upper_id = chunk_new(&a->chunks), lower_id = set->chunk[entry];
    chunk_t *lower = &a->chunks.at[lower_id], *upper = &a->chunks.at[upper_id];
    enum { HALF = SET_CHUNK / 2 };
    for (int i = 0; i < HALF; i++) {
        upper->key[i] = lower->key[HALF + i];
        upper->block[i] = lower->block[HALF + i];
        a->blocks[upper->block[i]].chunk = upper_id;
        lower->key[HALF + i] = INT32_MAX;
    }
    lower->n = upper->n = HALF;
    index_insert(set, entry + 1, upper->key[0], a->blocks[upper->block[0]].addr, upper_id);
}

/* Where (key, addr) belongs in a chunk. */
static uint32_t find_slot(const sim_alloc_t *a, const chunk_t *c, int32_t key, uint64_t addr)
{
    uint32_t lo = count_below(c->key, key);
    if (lo >= c->n || c->key[lo] != key)
        return lo;
    uint32_t hi = count_below(c->key, key + 1);
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (a->blocks[c->block[mid]].addr < addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void sim__set_insert(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block)
{
    uint64_t addr = a->blocks[block].addr;
    if (set->n == 0)
        index_insert(set, 0, INT32_MIN, 0, chunk_new(&a->chunks));
    uint32_t entry = find_entry(set, key, addr);
    if (a->chunks.at[set->chunk[entry]].n == SET_CHUNK) {
        split_chunk(a, set, entry);
        entry = find_entry(set, key, addr);
    }
    uint32_t id = set->chunk[entry];
    chunk_t *c = &a->chunks.at[id];
    uint32_t slot = find_slot(a, c, key, addr);
    move_chunk(&c->key[slot + 1], &c->key[slot]);
    move_chunk(&c->block[slot + 1], &c->block[slot]);
    c->key[slot] = key;
    c->block[slot] = block;
    c->n++;
    a->blocks[block].chunk = id;
}

/* After an erasure that left few entries: drop an empty chunk, or join it with the one behind. */
static void tidy(sim_alloc_t *a, set_t *set, uint32_t entry)
{
    uint32_t id = set->chunk[entry];
    if (a->chunks.at[id].n == 0) {
        index_erase(set, entry);
        chunk_delete(&a->chunks, id);
        return;
    }
    if (entry + 1 >= set->n)
        return;
    uint32_t behind_id = set->chunk[entry + 1];
    chunk_t *c = &a->chunks.at[id], *behind = &a->chunks.at[behind_id];
    if (c->n + behind->n > SET_CHUNK * 3 / 4)
        return;
    for (uint32_t i = 0; i < behind->n; i++) {
        c->key[c->n] = behind->key[i];
        c->block[c->n++] = behind->block[i];
        a->blocks[behind->block[i]].chunk = id;
    }
    index_erase(set, entry + 1);
    chunk_delete(&a->chunks, behind_id);
}

static void erase_slot(chunk_t *c, uint32_t slot)
{
    move_chunk(&c->key[slot], &c->key[slot + 1]);
    move_chunk(&c->block[slot], &c->block[slot + 1]);
    c->n--;
}

/* Looked at only when the count passes a power of two, so that sets that stay small do not pay. */
static inline bool wants_tidying(const set_t *set, const chunk_t *c)
{
    return c->n <= SET_CHUNK / 4 && (c->n & (c->n - 1)) == 0 && set->n > 1;
}

void sim__set_erase(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block)
{
    chunk_t *c = &a->chunks.at[a->blocks[block].chunk];
    uint32_t slot = count_below(c->key, key);
    while (c->block[slot] != block)
        slot++;
    erase_slot(c, slot);
    if (wants_tidying(set, c))
        tidy(a, set, find_entry(set, key, a->blocks[block].addr));
}

void sim__set_erase_at(sim_alloc_t *a, set_t *set, cursor_t at)
{
    chunk_t *c = &a->chunks.at[set->chunk[at.entry]];
    erase_slot(c, at.slot);
    if (wants_tidying(set, c))
        tidy(a, set, at.entry);
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
    free(chunks->at);
    *chunks = (chunk_arena_t){ .unused = NONE };
}
