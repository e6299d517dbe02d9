/* SPDX-License-Identifier: Apache-2.0
 * Inside of the caching allocator; only its own .c files include this.
 *
 * Blocks are records of 64 bytes in one arena and named by their index. A free or unmapped block
 * sits in an ordered set of its stream and pool: chunks of up to SET_CHUNK entries under one sorted
 * index of separators, so that a search is two counts of smaller keys, and an insertion moves a few
 * dozen bytes. */
#ifndef SIM_MEMORY_ALLOC_INTERNAL_H
#define SIM_MEMORY_ALLOC_INTERNAL_H

#include "sim/memory/alloc_conf.h"
#include "sim/memory/caching_allocator.h"

#include <stddef.h>

#define NONE UINT32_MAX

enum { SMALL, LARGE, N_POOLS }; /* index of everything kept per pool */

typedef struct {
    uint64_t addr;
    uint64_t size;      /* bytes, a multiple of 512 */
    uint64_t requested; /* bytes asked for, of the last allocation */
    uint64_t stamp; /* the pool's call counter when the block was inserted (garbage collection) */
    uint32_t prev, next; /* neighbours in the same segment or reservation; in the list of unused
                          * records `next` is the next one */
    uint32_t stream;     /* index in alloc->streams */
    uint32_t chunk;      /* chunk of the set it is in */
    uint32_t segment;    /* expandable segment, NONE for memory from cudaMalloc */
    uint32_t foreign;    /* list of streams it was used on, NONE = none */
    uint32_t n_events;   /* outstanding */
    uint8_t pool;
    bool is_used; /* the record is a block */
    bool is_allocated;
    bool is_mapped;
} block_t;

enum { SET_CHUNK = 16 };

/* Both arrays are twice as long as a chunk is ever filled, so that entries are moved by copying
 * SET_CHUNK of them from any place, without a branch on how many there are. */
typedef struct {
    int32_t key[2 * SET_CHUNK]; /* ascending; entries from n on are INT32_MAX */
    uint32_t block[2 * SET_CHUNK];
    uint32_t n;
    uint32_t next_unused;
} chunk_t;

/* Blocks ordered by (key, address). Entry i of the index: every block of chunk[i] is at or above
 * (key[i], addr[i]) and below entry i + 1; entry 0 is minus infinity. */
typedef struct {
    int32_t *key; /* padded with INT32_MAX up to cap + SET_CHUNK */
    uint64_t *addr;
    uint32_t *chunk;
    uint32_t n, cap;
} set_t;

typedef struct {
    uint32_t entry, slot; /* chunk set->chunk[entry], place in it */
} cursor_t;

typedef struct {
    chunk_t *at;
    uint32_t n, cap, unused;
} chunk_arena_t;

typedef struct {
    uint64_t handle;
    uint64_t n_recorded; /* events recorded on it */
    uint64_t n_done;     /* of these, complete */
    uint32_t first_event, last_event;
    set_t free[N_POOLS];     /* key = size */
    set_t unmapped[N_POOLS]; /* key = 0 */
} stream_t;

typedef struct {
    uint64_t number; /* n_recorded of its stream, after it */
    uint32_t block, next;
} event_t;

typedef struct {
    uint32_t stream, next;
} foreign_t;

typedef struct {
    uint64_t addr, bytes, page_bytes; /* bytes 0 = unused record */
    uint32_t next_unused;
} segment_t;

typedef enum {
    ST_ALLOCATED_BYTES,
    ST_RESERVED_BYTES,
    ST_ACTIVE_BYTES,
    ST_INACTIVE_SPLIT_BYTES,
    ST_REQUESTED_BYTES,
    ST_ALLOCATION,
    ST_SEGMENT,
    ST_ACTIVE,
    ST_INACTIVE_SPLIT,
    N_STATS
} stat_id_t;

/* What changes at every operation is kept as little as possible: the sum over pools and the
 * decreases are worked out when they are asked for. */
typedef struct {
    uint64_t current, peak;
    uint64_t increased;     /* since the last reset of accumulated figures */
    uint64_t current_reset; /* current at that reset */
} pool_stat_t;

typedef struct {
    int64_t current, peak, increased, current_reset;
} signed_stat_t;

struct sim_alloc {
    block_t *blocks; /* 64-byte aligned, inside blocks_raw */
    void *blocks_raw;
    uint32_t n_blocks, blocks_cap, unused_block;
    chunk_arena_t chunks;
    uint32_t last_stream; /* index of the stream looked up last */
    bool events_ready;    /* a stream with outstanding events made progress */

    sim_alloc_conf_t conf;
    bool has_limit;
    uint64_t limit;
    uint64_t total;          /* bytes got from the device */
    uint64_t calls[N_POOLS]; /* get_free_block calls while garbage collection is on */
    bool gc_on;              /* has_limit and a threshold */

    pool_stat_t stat[N_STATS][N_POOLS];
    uint64_t all_peak[N_STATS];
    signed_stat_t oversize_allocations, oversize_segments;
    uint64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
    uint64_t num_oom_rejections;

    stream_t *streams;
    uint32_t *stream_order; /* indices by ascending handle */
    uint32_t n_streams, streams_cap;
    event_t *events;
    uint32_t n_events, events_cap, unused_event;
    uint32_t n_outstanding;
    foreign_t *foreign;
    uint32_t n_foreign, foreign_cap, unused_foreign;
    segment_t *segments;
    uint32_t n_segments, segments_cap, unused_segment;

    sim_device_t *device;
    sim_trace_f trace;
    void *trace_arg;
    sim_alloc_stats_t *stats; /* filled when asked for */
    sim_oom_t oom;
    uint32_t *scratch; /* list of blocks, for release_cached */
    uint32_t scratch_cap;
};

/* block_set.c */
void sim__chunks_fini(chunk_arena_t *chunks);
void sim__set_fini(set_t *set);
cursor_t sim__set_lower_bound(const sim_alloc_t *a, const set_t *set, int32_t key);
void sim__set_insert(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block);
void sim__set_erase(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block);
void sim__set_erase_at(sim_alloc_t *a, set_t *set, cursor_t at);

static inline uint32_t set_at(const sim_alloc_t *a, const set_t *set, cursor_t at)
{
    if (at.entry >= set->n)
        return NONE;
    const chunk_t *c = &a->chunks.at[set->chunk[at.entry]];
    return at.slot < c->n ? c->block[at.slot] : NONE;
}

static inline cursor_t set_next(const sim_alloc_t *a, const set_t *set, cursor_t at)
{
    if (at.slot + 1 < a->chunks.at[set->chunk[at.entry]].n)
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
    if (at->entry == 0 || a->chunks.at[set->chunk[at->entry - 1]].n == 0)
        return false;
    at->entry--;
    at->slot = a->chunks.at[set->chunk[at->entry]].n - 1;
    return true;
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
    return &a->streams[b->stream].free[b->pool];
}

/* Mapped, not in use, and may be merged with a neighbour or handed out. */
static inline bool is_idle(const block_t *b)
{
    return !b->is_allocated && b->n_events == 0 && b->foreign == NONE;
}

static inline bool is_split(const block_t *b)
{
    return b->prev != NONE || b->next != NONE;
}

static inline void stat_increase(sim_alloc_t *a, stat_id_t id, uint32_t pool, uint64_t by)
{
    pool_stat_t *s = &a->stat[id][pool];
    s->current += by;
    s->increased += by;
    if (s->current > s->peak)
        s->peak = s->current;
    uint64_t all = s->current + a->stat[id][!pool].current;
    if (all > a->all_peak[id])
        a->all_peak[id] = all;
}

static inline void stat_decrease(sim_alloc_t *a, stat_id_t id, uint32_t pool, uint64_t by)
{
    a->stat[id][pool].current -= by;
}

void sim__oversize_add(signed_stat_t *s, int64_t by);

static inline void trace(const sim_alloc_t *a, sim_trace_action_t action, uint64_t addr,
                         uint64_t bytes, uint32_t stream)
{
    if (a->trace != NULL)
        a->trace(a->trace_arg, action, addr, bytes, a->streams[stream].handle);
}

/* caching_allocator.c. A new record moves the arena: pointers to blocks are void afterwards, unless
 * sim__reserve_blocks() made room for `n` of them before. */
void sim__reserve_blocks(sim_alloc_t *a, uint32_t n);
uint32_t sim__block_new(sim_alloc_t *a, uint64_t addr, uint64_t size, uint32_t stream,
                        uint32_t pool);
void sim__block_delete(sim_alloc_t *a, uint32_t id);
/* `rest` becomes the neighbour right after `id`. */
void sim__link_after(sim_alloc_t *a, uint32_t id, uint32_t rest);
void sim__insert_free(sim_alloc_t *a, uint32_t id);
/* Merge the idle neighbour `src` into `dst` when both have the same mapped state; bytes taken over,
 * 0 = not merged. */
uint64_t sim__merge(sim_alloc_t *a, uint32_t dst, uint32_t src);
void sim__free_block(sim_alloc_t *a, uint32_t id);

/* alloc_events.c */
void sim__record_events(sim_alloc_t *a, uint32_t id);
void sim__process_events(sim_alloc_t *a);
void sim__finish_all_events(sim_alloc_t *a);
void sim__stream_done(sim_alloc_t *a, uint32_t stream);

/* alloc_release.c */
void sim__garbage_collect(sim_alloc_t *a);
bool sim__release_available(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size);
void sim__release_cached(sim_alloc_t *a);

/* alloc_expandable.c: a mapped block of at least `size` bytes, taken out of its set; NONE = out of
 * memory. */
uint32_t sim__expandable_alloc(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size);
void sim__expandable_unmap(sim_alloc_t *a, uint32_t id);

#endif
