/* SPDX-License-Identifier: Apache-2.0
 * A second allocator in the state of the first. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/memory/alloc_internal.h"

#include <string.h>

/* Room for `n` elements of `size` bytes, the first `n_kept` as in `from`; none are NULL. */
static void *copy_of(const void *from, size_t n_kept, size_t n, size_t size)
{
    if (n == 0)
        return NULL;
    void *to = base_xrealloc(NULL, n, size);
    if (n_kept > 0)
        memcpy(to, from, n_kept * size);
    return to;
}

static set_t *copy_of_sets(const set_t *from, uint32_t n_streams, uint32_t streams_cap)
{
    size_t n = (size_t)N_POOLS * n_streams;
    set_t *to = copy_of(from, n, (size_t)N_POOLS * streams_cap, sizeof(*to));
    for (size_t i = 0; i < n; i++) {
        uint32_t padded = from[i].cap + SET_WINDOW;
        to[i].key = copy_of(from[i].key, padded, padded, sizeof(*to->key));
        to[i].addr = copy_of(from[i].addr, from[i].n, from[i].cap, sizeof(*to->addr));
        to[i].chunk = copy_of(from[i].chunk, from[i].n, from[i].cap, sizeof(*to->chunk));
    }
    return to;
}

sim_alloc_t *sim_alloc_clone(const sim_alloc_t *from, sim_device_t *device)
{
    sim_alloc_t *a = copy_of(from, 1, 1, sizeof(*a));
    a->device = device;
    a->trace = NULL;
    a->full = NULL;
    a->stats = base_xcalloc(1, sizeof(*a->stats));
    a->scratch = NULL;
    a->scratch_cap = 0;
    a->blocks_raw = a->chunks.raw = NULL;
    a->blocks = sim__realloc_aligned(&a->blocks_raw, from->blocks, from->n_blocks, from->blocks_cap,
                                     sizeof(block_t));
    a->chunks.at = sim__realloc_aligned(&a->chunks.raw, from->chunks.at, from->chunks.n,
                                        from->chunks.cap, sizeof(chunk_t));
    a->free_sets = copy_of_sets(from->free_sets, from->n_streams, from->streams_cap);
    a->unmapped_sets = copy_of_sets(from->unmapped_sets, from->n_streams, from->streams_cap);
    a->streams = copy_of(from->streams, from->n_streams, from->streams_cap, sizeof(stream_t));
    a->stream_order =
        copy_of(from->stream_order, from->n_streams, from->streams_cap, sizeof(uint32_t));
    a->events = copy_of(from->events, from->n_events, from->events_cap, sizeof(event_t));
    a->foreign = copy_of(from->foreign, from->n_foreign, from->foreign_cap, sizeof(foreign_t));
    a->segments = copy_of(from->segments, from->n_segments, from->segments_cap, sizeof(segment_t));
    return a;
}
