/* SPDX-License-Identifier: Apache-2.0
 * The ordered sets of free and of unmapped blocks. What every malloc and free does is here, so that
 * it is inlined; branches that depend on the data are few, because a wrong guess costs as much as
 * a dozen instructions. */
#ifndef SIM_MEMORY_BLOCK_SET_H
#define SIM_MEMORY_BLOCK_SET_H

#include "sim/memory/alloc_internal.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

_Static_assert(SET_CHUNK == 16 && SET_WINDOW == 128, "one mask of bytes, three steps to it");
_Static_assert(SET_RECENT == 16, "one mask of bytes");

/* The key that no block has that is among the recent ones. */
#define SET_NO_KEY INT32_MIN

/* How many of SET_CHUNK ascending keys are below `key`. */
#ifdef __SSE2__
static inline uint32_t set__count_below(const int32_t *keys, int32_t key)
{
    const __m128i k = _mm_set1_epi32(key), *v = (const __m128i *)keys;
    __m128i low = _mm_packs_epi32(_mm_cmplt_epi32(_mm_loadu_si128(v), k),
                                  _mm_cmplt_epi32(_mm_loadu_si128(v + 1), k));
    __m128i high = _mm_packs_epi32(_mm_cmplt_epi32(_mm_loadu_si128(v + 2), k),
                                   _mm_cmplt_epi32(_mm_loadu_si128(v + 3), k));
    return (uint32_t)__builtin_ctz(~(uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)));
}

/* Where `block` is among SET_CHUNK blocks; it is there. */
static inline uint32_t set__slot_of(const uint32_t *blocks, uint32_t block)
{
    const __m128i b = _mm_set1_epi32((int32_t)block), *v = (const __m128i *)blocks;
    __m128i low = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_loadu_si128(v), b),
                                  _mm_cmpeq_epi32(_mm_loadu_si128(v + 1), b));
    __m128i high = _mm_packs_epi32(_mm_cmpeq_epi32(_mm_loadu_si128(v + 2), b),
                                   _mm_cmpeq_epi32(_mm_loadu_si128(v + 3), b));
    return (uint32_t)__builtin_ctz((uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high)));
}
static inline __m128i set__lesser(__m128i a, __m128i b)
{
    __m128i is_b = _mm_cmpgt_epi32(a, b);
    return _mm_or_si128(_mm_and_si128(is_b, b), _mm_andnot_si128(is_b, a));
}

/* Which of the recent blocks have the least key from `key` on (a mask); 0 = none has. Keys below 0:
 * their distance from `key` is below 0 when it is taken from INT32_MIN on and counts. */
static inline uint32_t set__nearest_recent(const set_t *set, int32_t key)
{
    const __m128i *keys = (const __m128i *)set->recent_key;
    const __m128i shift = _mm_set1_epi32((int32_t)(UINT32_C(0x80000000) - (uint32_t)key));
    __m128i a = _mm_add_epi32(_mm_loadu_si128(keys), shift);
    __m128i b = _mm_add_epi32(_mm_loadu_si128(keys + 1), shift);
    __m128i c = _mm_add_epi32(_mm_loadu_si128(keys + 2), shift);
    __m128i d = _mm_add_epi32(_mm_loadu_si128(keys + 3), shift);
    __m128i least = set__lesser(set__lesser(a, b), set__lesser(c, d));
    least = set__lesser(least, _mm_shuffle_epi32(least, _MM_SHUFFLE(1, 0, 3, 2)));
    least = set__lesser(least, _mm_shuffle_epi32(least, _MM_SHUFFLE(2, 3, 0, 1)));
    if (_mm_cvtsi128_si32(least) >= 0)
        return 0;
    __m128i low = _mm_packs_epi32(_mm_cmpeq_epi32(a, least), _mm_cmpeq_epi32(b, least));
    __m128i high = _mm_packs_epi32(_mm_cmpeq_epi32(c, least), _mm_cmpeq_epi32(d, least));
    return (uint32_t)_mm_movemask_epi8(_mm_packs_epi16(low, high));
}
#else
static inline uint32_t set__nearest_recent(const set_t *set, int32_t key)
{
    int32_t least = 0;
    uint32_t mask = 0;
    for (uint32_t i = 0; i < SET_RECENT; i++) {
        int32_t k = set->recent_key[i];
        if (k < key || k > least || k == SET_NO_KEY)
            continue;
        mask = (k < least ? 0 : mask) | UINT32_C(1) << i;
        least = k;
    }
    return mask;
}

static inline uint32_t set__count_below(const int32_t *keys, int32_t key)
{
    uint32_t n = 0;
    for (int i = 0; i < SET_CHUNK; i++)
        n += keys[i] < key;
    return n;
}

static inline uint32_t set__slot_of(const uint32_t *blocks, uint32_t block)
{
    uint32_t slot = 0;
    while (blocks[slot] != block)
        slot++;
    return slot;
}
#endif

/* Only keys below 0 (blocks of less than 1 TiB) are, so that their differences have 32 bits. */
static inline bool set__may_be_recent(int32_t key)
{
    return key < 0 && key != SET_NO_KEY;
}

/* Copy SET_CHUNK words; the two places may overlap. */
static inline void set__move(void *to, const void *from)
{
    typedef uint32_t lanes_t __attribute__((vector_size(16), aligned(4), may_alias));
    const lanes_t *f = from;
    lanes_t *t = to, a = f[0], b = f[1], c = f[2], d = f[3];
    t[0] = a;
    t[1] = b;
    t[2] = c;
    t[3] = d;
}

/* How many index entries have a key below `key`: steps of fixed length in the padded index, one
 * count at the end. */
static inline uint32_t set__entries_below(const set_t *set, int32_t key)
{
    uint32_t lo = 0, n = set->n;
    while (__builtin_expect(n > SET_WINDOW, 0)) {
        uint32_t half = n / 2;
        lo = set->key[lo + half - 1] < key ? lo + half : lo;
        n -= half;
    }
    const int32_t *at = set->key + lo;
    at += (at[63] < key) * 64;
    at += (at[31] < key) * 32;
    at += (at[15] < key) * 16;
    return (uint32_t)(at - set->key) + set__count_below(at, key);
}

/* Last index entry at or below (key, addr). */
static inline uint32_t set__find_entry(const set_t *set, int32_t key, uint64_t addr)
{
    uint32_t lo = set__entries_below(set, key);
    if (lo < set->n && set->key[lo] == key)
        lo = sim__set_entries_to(set, lo, key, addr);
    return lo - (lo != 0);
}

/* Where (key, addr) belongs in a chunk. */
static inline uint32_t set__find_slot(const sim_alloc_t *a, const chunk_t *c, int32_t key,
                                      uint64_t addr)
{
    uint32_t slot = set__count_below(c->key, key), below = 0;
    for (uint32_t i = slot; c->key[i] == key; i++)
        below += a->blocks[c->block[i]].addr < addr;
    return slot + below;
}

static inline bool set__is_full(const chunk_t *c)
{
    return c->key[SET_CHUNK - 1] != INT32_MAX;
}

static inline uint32_t set__length(const chunk_t *c)
{
    return set__count_below(c->key, INT32_MAX);
}

static inline cursor_t set_lower_bound(const sim_alloc_t *a, const set_t *set, int32_t key)
{
    uint32_t entry = set__entries_below(set, key);
    entry -= entry != 0;
    const chunk_t *c = &a->chunks.at[set->chunk[entry]];
    uint32_t slot = set__count_below(c->key, key);
    bool is_here = c->key[slot] != INT32_MAX;
    return (cursor_t){ entry + !is_here, is_here ? slot : 0 };
}

/* Among the recent blocks, of which one that has been there for long gives way if need be. */
HOT void set_insert(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block)
{
    if (__builtin_expect(!set__may_be_recent(key), 0)) {
        sim__set_insert_settled(a, set, key, block);
        return;
    }
    uint32_t place = set->recent_oldest;
    if (set->recent_unused != 0) {
        place = (uint32_t)__builtin_ctz(set->recent_unused);
        set->recent_unused &= set->recent_unused - 1;
    } else {
        set->recent_oldest = (place + 1) % SET_RECENT;
        sim__set_insert_settled(a, set, set->recent_key[place], set->recent_block[place]);
    }
    set->recent_key[place] = key;
    set->recent_block[place] = block;
    a->blocks[block].chunk = SET_RECENT_BIT | place;
}

HOT void set_erase(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block)
{
    uint32_t chunk = a->blocks[block].chunk;
    if (chunk & SET_RECENT_BIT) {
        uint32_t place = chunk & ~SET_RECENT_BIT;
        set->recent_key[place] = SET_NO_KEY;
        set->recent_unused |= UINT32_C(1) << place;
        return;
    }
    sim__set_erase_settled(a, set, key, block);
}

/* The block under a cursor, NONE at the end. */
static inline uint32_t set_at(const sim_alloc_t *a, const set_t *set, cursor_t at)
{
    if (at.entry >= set->n)
        return NONE;
    return a->chunks.at[set->chunk[at.entry]].block[at.slot];
}

static inline cursor_t set_next(const sim_alloc_t *a, const set_t *set, cursor_t at)
{
    if (a->chunks.at[set->chunk[at.entry]].key[at.slot + 1] != INT32_MAX)
        return (cursor_t){ at.entry, at.slot + 1 };
    return (cursor_t){ at.entry + 1, 0 };
}

/* False at the first entry. */
static inline bool set_prev(const sim_alloc_t *a, const set_t *set, cursor_t *at)
{
    if (at->slot > 0) {
        at->slot--;
        return true;
    }
    uint32_t n = at->entry == 0 ? 0 : set__length(&a->chunks.at[set->chunk[at->entry - 1]]);
    if (n == 0)
        return false;
    *at = (cursor_t){ at->entry - 1, n - 1 };
    return true;
}

/* The first of the recent blocks from `key` on, NONE = there is none. */
HOT uint32_t set__first_recent(const sim_alloc_t *a, const set_t *set, int32_t key)
{
    uint32_t mask = set__may_be_recent(key) ? set__nearest_recent(set, key) : 0;
    if (mask == 0)
        return NONE;
    uint32_t first = set->recent_block[__builtin_ctz(mask)];
    for (mask &= mask - 1; mask != 0; mask &= mask - 1) {
        uint32_t other = set->recent_block[__builtin_ctz(mask)];
        if (a->blocks[other].addr < a->blocks[first].addr)
            first = other;
    }
    return first;
}

/* The same of those in chunks. */
HOT uint32_t set__first_settled(const sim_alloc_t *a, const set_t *set, int32_t key)
{
    uint32_t entry = set__entries_below(set, key);
    entry -= entry != 0;
    const chunk_t *c = &a->chunks.at[set->chunk[entry]];
    uint32_t first = c->block[set__count_below(c->key, key)];
    if (first == NONE && entry + 1 < set->n)
        first = a->chunks.at[set->chunk[entry + 1]].block[0];
    return first;
}

/* The first block of all from `key` (that of a size above 0) on, NONE = there is none. */
HOT uint32_t set_first(const sim_alloc_t *a, const set_t *set, int32_t key)
{
    uint32_t settled = set__first_settled(a, set, key);
    uint32_t recent = set__first_recent(a, set, key);
    if (recent == NONE || settled == NONE)
        return recent == NONE ? settled : recent;
    const block_t *r = &a->blocks[recent], *s = &a->blocks[settled];
    if (r->size != s->size)
        return r->size < s->size ? recent : settled;
    return r->addr < s->addr ? recent : settled;
}

/* Sizes in units of 512 bytes from INT32_MIN up, for signed comparisons. No block is larger than
 * SIM_DEVICE_MAX_BYTES, so none has the key INT32_MAX. */
static inline int32_t size_key(uint64_t size)
{
    return (int32_t)((uint32_t)(size >> 9) ^ UINT32_C(0x80000000));
}

/* The key to look for when `size` may be beyond every block. */
static inline int32_t size_key_wanted(uint64_t size)
{
    return size > SIM_DEVICE_MAX_BYTES ? INT32_MAX : size_key(size);
}

#define UNMAPPED_KEY INT32_MIN

static inline set_t *free_set(sim_alloc_t *a, const block_t *b)
{
    return &a->free_sets[N_POOLS * b->stream + b->pool];
}

static inline set_t *unmapped_set(sim_alloc_t *a, const block_t *b)
{
    return &a->unmapped_sets[N_POOLS * b->stream + b->pool];
}

#endif
