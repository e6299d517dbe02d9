/* SPDX-License-Identifier: Apache-2.0
 * Inside of the caching allocator; only its own .c files include this.
 *
 * Blocks are records of 64 bytes in one arena and named by their index. A free or unmapped block
 * sits in an ordered set of its stream and pool: chunks of up to SET_CHUNK entries under one sorted
 * index of separators, so that a search is two counts of smaller keys, and an insertion moves a few
 * dozen bytes. What was put in last is kept apart, in no order: most blocks are taken out again
 * soon. */
#ifndef SIM_MEMORY_ALLOC_INTERNAL_H
#define SIM_MEMORY_ALLOC_INTERNAL_H

#include "sim/memory/alloc_conf.h"
#include "sim/memory/caching_allocator.h"

#include <stddef.h>

#define NONE UINT32_MAX

/* What every malloc and free goes through; compilers would rather call it. */
#define HOT static inline __attribute__((always_inline))

enum { SMALL, LARGE, N_POOLS }; /* index of everything kept per pool */

enum { MIN_BLOCK = 512 };           /* sizes of blocks are its multiples */
#define REFUSED (UINT64_C(1) << 60) /* from here on a request is not even tried */

typedef struct {
    uint64_t addr;
    uint64_t size;      /* bytes, a multiple of 512 */
    uint64_t requested; /* bytes asked for, of the last allocation */
    uint64_t stamp; /* the pool's call counter when the block was inserted (garbage collection) */
    uint32_t prev, next; /* neighbours in the same segment or reservation; in the list of unused
                          * records `next` is the next one */
    uint32_t stream;     /* index in alloc->streams */
    uint32_t chunk;      /* chunk of the set it is in, or SET_RECENT_BIT and its place there */
    uint32_t segment;    /* expandable segment, NONE for memory from cudaMalloc */
    uint32_t foreign;    /* list of streams it was used on, NONE = none */
    uint32_t n_events;   /* outstanding */
    uint8_t pool;
    bool is_used; /* the record is a block */
    bool is_allocated;
    bool is_mapped;
} block_t;

enum { SET_CHUNK = 16, SET_WINDOW = 128, SET_RECENT = 16 };
#define SET_RECENT_BIT UINT32_C(0x80000000)

/* Entries from the n-th on have the key INT32_MAX, which no block has, and the block NONE. Both
 * arrays are twice as long as a chunk is ever filled, so that entries are moved by copying
 * SET_CHUNK of them from any place, without a branch on how many there are. */
typedef struct {
    int32_t key[2 * SET_CHUNK];    /* ascending */
    uint32_t block[2 * SET_CHUNK]; /* block[0] of an unused chunk: the next unused one */
} chunk_t;

/* Blocks ordered by (key, address). Entry i of the index: every block of chunk[i] is at or above
 * (key[i], addr[i]) and below entry i + 1; entry 0 is minus infinity. The recent ones are in no
 * chunk. */
typedef struct {
    int32_t recent_key[SET_RECENT]; /* below 0; SET_NO_KEY where there is none */
    uint32_t recent_block[SET_RECENT];
    uint32_t recent_unused; /* a bit for each place without a block */
    uint32_t recent_oldest; /* about: the place that is cleared next */
    int32_t *key;           /* padded with INT32_MAX up to cap + SET_WINDOW */
    uint64_t *addr;
    uint32_t *chunk;
    uint32_t n, cap;
} set_t;

typedef struct {
    uint32_t entry, slot; /* chunk set->chunk[entry], place in it */
} cursor_t;

typedef struct {
    chunk_t *at; /* 64-byte aligned, inside raw */
    void *raw;
    uint32_t n, cap, unused;
} chunk_arena_t;

/* A stream as one memory pool sees it: the default pool and every private one have blocks of their
 * own, which never meet. Events are those of the default pool's entry. */
typedef struct {
    uint64_t handle;
    uint32_t mempool;    /* 0 = the default pool */
    uint64_t n_recorded; /* events recorded on it */
    uint64_t n_done;     /* of these, complete */
    uint32_t first_event, last_event;
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
    ST_INACTIVE_SPLIT_BYTES,
    ST_REQUESTED_BYTES,
    ST_ALLOCATION,
    ST_SEGMENT,
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

/* active and active_bytes are allocation and allocated_bytes plus what waits for events, and rise
 * with them, so only that part is kept. */
typedef struct {
    uint64_t waiting[N_POOLS];
    uint64_t peak[N_POOLS], all_peak; /* of active, at times when something waited */
    uint64_t waiting_reset[N_POOLS];  /* at the last reset of accumulated figures */
} active_stat_t;

typedef struct {
    int64_t current, peak, increased, current_reset;
} signed_stat_t;

struct sim_alloc {
    sim_alloc_totals_t totals;
    bool keeps_stats;
    bool is_live;    /* sim_alloc_create_live() */
    block_t *blocks; /* 64-byte aligned, inside blocks_raw */
    void *blocks_raw;
    uint32_t n_blocks, blocks_cap, unused_block;
    chunk_arena_t chunks;
    uint32_t last_stream; /* index of the stream looked up last */
    uint32_t mempool;     /* where allocations go; not 0 while a capture is under way */
    bool events_ready;    /* a stream with outstanding events made progress */

    sim_alloc_conf_t conf;
    bool has_limit;
    uint64_t limit;
    uint64_t total;               /* bytes got from the device */
    uint64_t calls[N_POOLS];      /* get_free_block calls while garbage collection is on */
    bool gc_on;                   /* has_limit and a threshold */
    uint64_t split_rest[N_POOLS]; /* a rest of at least this is split off, */
    uint64_t split_below;         /* from requests of less than this */

    pool_stat_t stat[N_POOLS][N_STATS];
    uint64_t all_peak[N_STATS];
    active_stat_t active, active_bytes;
    uint32_t n_waiting; /* blocks that wait for events */
    signed_stat_t oversize_allocations, oversize_segments;
    uint64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
    uint64_t num_oom_rejections;

    /* Index N_POOLS * stream + pool. */
    set_t *free_sets;     /* key = size */
    set_t *unmapped_sets; /* key = 0 */

    stream_t *streams;
    uint32_t *stream_order; /* indices by ascending handle, then pool */
    uint32_t n_streams, streams_cap;
    event_t *events;
    uint32_t n_events, events_cap, unused_event;
    foreign_t *foreign;
    uint32_t n_foreign, foreign_cap, unused_foreign;
    segment_t *segments;
    uint32_t n_segments, segments_cap, unused_segment;

    sim_device_t *device;
    sim_trace_f trace;
    void *trace_arg;
    sim_full_f full;
    void *full_arg;
    sim_alloc_stats_t *stats; /* filled when asked for */
    sim_oom_t oom;
    uint32_t *scratch; /* list of blocks, for release_cached */
    uint32_t scratch_cap;
};

/* block_set.c: what block_set.h does not inline. */
void sim__chunks_fini(chunk_arena_t *chunks);
void sim__set_fini(set_t *set);
/* An empty set has one chunk. */
void sim__set_init(sim_alloc_t *a, set_t *set);
/* Put every recent block into its chunk: a cursor sees only those. */
void sim__set_settle(sim_alloc_t *a, set_t *set);
/* Into and out of its chunk. */
void sim__set_insert_settled(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block);
void sim__set_erase_settled(sim_alloc_t *a, set_t *set, int32_t key, uint32_t block);
/* Of the entries from `lo` on, which is the first with this key: one past the last at or below
 * (key, addr). */
uint32_t sim__set_entries_to(const set_t *set, uint32_t lo, int32_t key, uint64_t addr);

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
    pool_stat_t *s = &a->stat[pool][id];
    s->current += by;
    s->increased += by;
    if (s->current > s->peak)
        s->peak = s->current;
    uint64_t all = s->current + a->stat[!pool][id].current;
    if (all > a->all_peak[id])
        a->all_peak[id] = all;
}

static inline void stat_decrease(sim_alloc_t *a, stat_id_t id, uint32_t pool, uint64_t by)
{
    a->stat[pool][id].current -= by;
}

/* An increase or, modulo 2^64, a decrease. */
static inline void stat_change(sim_alloc_t *a, stat_id_t id, uint32_t pool, uint64_t by)
{
    pool_stat_t *s = &a->stat[pool][id];
    s->current += by;
    s->increased += (int64_t)by > 0 ? by : 0;
    s->peak = s->current > s->peak ? s->current : s->peak;
    uint64_t all = s->current + a->stat[!pool][id].current;
    a->all_peak[id] = all > a->all_peak[id] ? all : a->all_peak[id];
}

void sim__oversize_add(signed_stat_t *s, int64_t by);

static inline void reserved_increase(sim_alloc_t *a, uint32_t pool, uint64_t by)
{
    a->totals.reserved_bytes += by;
    stat_increase(a, ST_RESERVED_BYTES, pool, by);
}

static inline void reserved_decrease(sim_alloc_t *a, uint32_t pool, uint64_t by)
{
    a->totals.reserved_bytes -= by;
    stat_decrease(a, ST_RESERVED_BYTES, pool, by);
}

static inline void trace(const sim_alloc_t *a, sim_trace_action_t action, uint64_t addr,
                         uint64_t bytes, uint32_t stream)
{
    if (a->trace != NULL)
        a->trace(a->trace_arg, action, addr, bytes, a->streams[stream].handle);
}

/* Room for `n` elements of `size` bytes at a multiple of 64, with the first `n_kept` of `old`;
 * *raw_p is what free() takes, before and after. */
void *sim__realloc_aligned(void **raw_p, const void *old, size_t n_kept, size_t n, size_t size);

/* caching_allocator.c. A new record moves the arena: pointers to blocks are void afterwards, unless
 * sim__reserve_blocks() made room for `n` of them before. */
void sim__reserve_blocks(sim_alloc_t *a, uint32_t n);
uint32_t sim__block_new(sim_alloc_t *a, uint64_t addr, uint64_t size, uint32_t stream,
                        uint32_t pool);
void sim__block_delete(sim_alloc_t *a, uint32_t id);
/* `rest` becomes the neighbour right after `id`. */
void sim__link_after(sim_alloc_t *a, uint32_t id, uint32_t rest);
void sim__insert_free(sim_alloc_t *a, uint32_t id);
/* Merge the idle neighbours of `id` that have its mapped state into it. */
void sim__merge_neighbours(sim_alloc_t *a, uint32_t id);
void sim__free_block(sim_alloc_t *a, uint32_t id);

/* What sim_alloc_last_oom() says: `size` bytes were wanted. */
void sim__note_oom(sim_alloc_t *a, uint32_t stream, uint32_t pool, uint64_t size);

/* alloc_live.c */
bool sim__live_malloc(sim_alloc_t *a, uint64_t bytes, sim_block_t *block_p);
void sim__live_free(sim_alloc_t *a, uint32_t id);

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
