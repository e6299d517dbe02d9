/* SPDX-License-Identifier: Apache-2.0
 * PyTorch's native CUDA caching allocator (c10/cuda/CUDACachingAllocator.cpp, the 2.10 to 2.13
 * line), as an exact model: same blocks, same addresses, same statistics. */
#ifndef SIM_MEMORY_CACHING_ALLOCATOR_H
#define SIM_MEMORY_CACHING_ALLOCATOR_H

#include "sim/base/err.h"
#include "sim/memory/alloc_conf.h"
#include "sim/memory/device.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct sim_alloc sim_alloc_t;

/* A handed-out block; SIM_BLOCK_NONE is the null allocation (0 bytes). Valid until freed. */
typedef uint32_t sim_block_t;
#define SIM_BLOCK_NONE UINT32_MAX

/* Create on `device` (borrowed; must outlive the allocator) with the text of
 * PYTORCH_CUDA_ALLOC_CONF (NULL or "" = defaults). BASE_ERR_INVAL: bad settings, `err` says what
 * PyTorch says. Free with sim_alloc_destroy(), which gives everything back to the device. */
base_status_t sim_alloc_create(sim_device_t *device, const char *conf, sim_alloc_t **alloc_p,
                               base_err_t *err);
void sim_alloc_destroy(sim_alloc_t *alloc);

/* Parse settings again at run time (torch.cuda.memory._set_allocator_settings). On BASE_ERR_INVAL
 * the keys before the bad one have taken effect, as in PyTorch. */
base_status_t sim_alloc_configure(sim_alloc_t *alloc, const char *conf, base_err_t *err);

/* The settings as they are now; valid as long as `alloc`. */
const sim_alloc_conf_t *sim_alloc_conf(const sim_alloc_t *alloc);

/* set_per_process_memory_fraction(x), 0 <= x <= 1; 1 means no limit. */
void sim_alloc_set_fraction(sim_alloc_t *alloc, double fraction);

/* Allocate `bytes` on `stream` (handle; 0 = default). 0 bytes gives SIM_BLOCK_NONE and touches
 * nothing. Returns false on out of memory: an expected result; what was released meanwhile stays
 * released; sim_alloc_last_oom() has the figures. No C-library allocation per call. */
bool sim_alloc_malloc(sim_alloc_t *alloc, uint64_t stream, uint64_t bytes, sim_block_t *block_p);

/* Free a block (SIM_BLOCK_NONE is ignored). */
void sim_alloc_free(sim_alloc_t *alloc, sim_block_t block);

/* The block is used on another stream: when freed it waits for the event of that stream. */
void sim_alloc_record_stream(sim_alloc_t *alloc, sim_block_t block, uint64_t stream);

/* All work submitted to `stream` (or to every stream) so far is complete. */
void sim_alloc_stream_done(sim_alloc_t *alloc, uint64_t stream);
void sim_alloc_all_streams_done(sim_alloc_t *alloc);

/* A CUDA graph that uses memory pool `mempool` (> 0; made when first named) is being captured:
 * every allocation comes from that pool, until sim_alloc_end_capture(). A pool has segments of its
 * own, which nobody else's requests are served from and which stay reserved for as long as the
 * graphs live, here for good: neither garbage collection nor sim_alloc_empty_cache() nor the retry
 * of a failed request gives them back. A block goes back to the pool it came from, whenever it is
 * freed, and is served again only to captures of that pool. While a capture is under way events are
 * not looked at and cached memory of the default pool is not given back. */
void sim_alloc_begin_capture(sim_alloc_t *alloc, uint32_t mempool);
void sim_alloc_end_capture(sim_alloc_t *alloc);

/* Bytes in the segments of private pools, and how many of them are not allocated: these count as
 * reserved, and serve nobody until the pool is captured into again. Walks all blocks. */
typedef struct {
    uint64_t reserved_bytes, idle_bytes;
} sim_mempools_t;

sim_mempools_t sim_alloc_mempools(const sim_alloc_t *alloc);

void sim_alloc_empty_cache(sim_alloc_t *alloc);
void sim_alloc_reset_peak(sim_alloc_t *alloc);
void sim_alloc_reset_accumulated(sim_alloc_t *alloc);

uint64_t sim_alloc_block_addr(const sim_alloc_t *alloc, sim_block_t block);
uint64_t sim_alloc_block_bytes(const sim_alloc_t *alloc, sim_block_t block); /* block->size */

/* What is allocated and reserved now, for whoever looks after every operation: the same place for
 * as long as the allocator lives. */
typedef struct {
    uint64_t allocated_bytes, reserved_bytes;
} sim_alloc_totals_t;

const sim_alloc_totals_t *sim_alloc_totals(const sim_alloc_t *alloc);
uint64_t sim_alloc_allocated_bytes(const sim_alloc_t *alloc);
uint64_t sim_alloc_reserved_bytes(const sim_alloc_t *alloc);

/* Instead of sim_alloc_create(): no allocator. Every block is the device's own, as large as what
 * was asked for in multiples of 512 bytes, and gone when it is freed; its address is 0. Reserved
 * bytes are the allocated ones. Streams, settings and memory pools mean nothing; there are no
 * statistics. Serves to add up what is alive: of a caching allocator's allocated bytes that is a
 * lower bound, exact where it cuts every block to size, as it does with expandable segments. */
sim_alloc_t *sim_alloc_create_live(sim_device_t *device);

/* Before the first allocation: keep no statistics but those of segments and reserved bytes and the
 * numbers of calls, retries and failures; the others mean nothing. What is handed out is the same.
 */
void sim_alloc_drop_stats(sim_alloc_t *alloc);

typedef struct {
    uint64_t current, peak, allocated, freed; /* allocated, freed: sums of increases, decreases */
} sim_stat_t;

typedef enum { SIM_POOL_ALL, SIM_POOL_SMALL, SIM_POOL_LARGE, SIM_N_POOLS } sim_pool_t;

/* torch.cuda.memory_stats(); each stat indexed by sim_pool_t. */
typedef struct {
    sim_stat_t allocated_bytes[SIM_N_POOLS];
    sim_stat_t reserved_bytes[SIM_N_POOLS];
    sim_stat_t active_bytes[SIM_N_POOLS];
    sim_stat_t inactive_split_bytes[SIM_N_POOLS];
    sim_stat_t requested_bytes[SIM_N_POOLS];
    sim_stat_t allocation[SIM_N_POOLS];
    sim_stat_t segment[SIM_N_POOLS];
    sim_stat_t active[SIM_N_POOLS];
    sim_stat_t inactive_split[SIM_N_POOLS];
    sim_stat_t oversize_allocations, oversize_segments;
    uint64_t num_alloc_retries, num_ooms, num_sync_all_streams, num_device_alloc, num_device_free;
    uint64_t num_oom_rejections;
} sim_alloc_stats_t;

/* Valid until the next call for `alloc`. The oversize figures are signed: lowering
 * max_split_size_mb at run time can drive them below zero, in PyTorch too. */
const sim_alloc_stats_t *sim_alloc_stats(const sim_alloc_t *alloc);

/* Figures of the last failed allocation, as PyTorch's message gives them. */
typedef struct {
    uint64_t requested_bytes; /* rounded size: "Tried to allocate" */
    uint64_t device_free_bytes, device_total_bytes;
    uint64_t allocated_bytes, reserved_bytes;
    uint64_t largest_free_block_bytes; /* largest inactive block of the request's pool and stream */
    uint64_t mempools_idle_bytes;      /* "allocated in private pools": their free blocks */
    bool has_limit;
    uint64_t limit_bytes; /* of the memory fraction */
} sim_oom_t;

const sim_oom_t *sim_alloc_last_oom(const sim_alloc_t *alloc);

/* Walk the blocks by ascending address, mapped ones only. */
typedef struct {
    uint64_t segment_addr, segment_bytes; /* contiguous mapped range */
    uint64_t addr, bytes, requested_bytes, stream;
    uint32_t mempool;                                      /* 0 = the default pool */
    bool is_large, is_expandable, is_allocated, is_active; /* active: allocated or waiting */
} sim_block_info_t;

typedef void (*sim_block_f)(void *arg, const sim_block_info_t *info);
void sim_alloc_foreach(const sim_alloc_t *alloc, sim_block_f visit, void *arg);

/* A second allocator in the same state, whose blocks have the same handles, on `device`: a clone of
 * the first one's (sim_device_clone_synthetic()). The functions that are called back are not taken
 * over. Free with sim_alloc_destroy(). */
sim_alloc_t *sim_alloc_clone(const sim_alloc_t *alloc, sim_device_t *device);

/* `full` is called when the device has refused memory for a request, before anything that is cached
 * is given back to it: the allocator is as it was before the request. */
typedef void (*sim_full_f)(void *arg);
void sim_alloc_on_full(sim_alloc_t *alloc, sim_full_f full, void *arg);

/* Events of the allocator's own history (snapshots): called in the order PyTorch records them. */
typedef enum {
    SIM_TRACE_ALLOC,
    SIM_TRACE_FREE_REQUESTED,
    SIM_TRACE_FREE_COMPLETED,
    SIM_TRACE_SEGMENT_ALLOC,
    SIM_TRACE_SEGMENT_FREE,
    SIM_TRACE_SEGMENT_MAP,
    SIM_TRACE_SEGMENT_UNMAP,
    SIM_TRACE_OOM,
} sim_trace_action_t;

typedef void (*sim_trace_f)(void *arg, sim_trace_action_t action, uint64_t addr, uint64_t bytes,
                            uint64_t stream);
void sim_alloc_set_trace(sim_alloc_t *alloc, sim_trace_f trace, void *arg);

#endif
