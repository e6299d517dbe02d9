/* SPDX-License-Identifier: Apache-2.0
 * What a PyTorch memory snapshot (torch.cuda.memory._dump_snapshot) holds, without its stacks:
 * segments with their blocks, the recorded events of each device, the allocator's settings. Reads
 * today's layout (a dictionary) and the first one (a bare list of segments). */
#ifndef SIM_MEMORY_SNAPSHOT_READ_H
#define SIM_MEMORY_SNAPSHOT_READ_H

#include "sim/base/err.h"
#include "sim/memory/caching_allocator.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint64_t addr;   /* SIM_TRACE_OOM: the bytes that were free on the device */
    uint64_t bytes;  /* alloc, free: as requested; OOM: rounded; segments: theirs */
    uint64_t stream; /* handle */
    uint8_t action;  /* sim_trace_action_t */
    bool is_private; /* of a pool other than the default one (newer files say so) */
} sim_snapshot_event_t;

typedef enum {
    SIM_SNAPSHOT_INACTIVE,
    SIM_SNAPSHOT_ALLOCATED,
    SIM_SNAPSHOT_PENDING_FREE
} sim_snapshot_state_t;

typedef struct {
    uint64_t addr, bytes;
    uint64_t requested_bytes; /* of inactive blocks: stale */
    sim_snapshot_state_t state;
} sim_snapshot_block_t;

typedef struct {
    uint64_t addr, bytes, stream;
    size_t first_block, n_blocks; /* in blocks[]; they tile the segment */
    uint32_t device;
    bool is_large, is_expandable;
    bool is_private; /* of a CUDA graph's pool or a MemPool */
} sim_snapshot_segment_t;

typedef struct {
    size_t first, n; /* in events[] */
} sim_snapshot_trace_t;

typedef struct {
    sim_snapshot_segment_t *segments; /* as in the file: by address */
    size_t n_segments;
    sim_snapshot_block_t *blocks;
    size_t n_blocks;
    sim_snapshot_event_t *events;
    size_t n_events;
    sim_snapshot_trace_t *traces; /* one per device */
    size_t n_traces;
    uint64_t n_other_events;    /* kinds that move no memory, left out of events[] */
    uint64_t first_us, last_us; /* time of the first and last event; 0 when not recorded */
    bool is_old_layout;
    char *conf;             /* PYTORCH_CUDA_ALLOC_CONF as recorded, NULL when the file has none */
    bool is_expandable_set; /* expandable_segments as the settings say */
} sim_snapshot_t;

/* Read the file at `path` (a pipe, too). BASE_ERR_IO: it cannot be read; BASE_ERR_PARSE: it is not
 * a snapshot, err says where. Free with sim_snapshot_destroy(). */
base_status_t sim_snapshot_read(const char *path, sim_snapshot_t **snapshot_p, base_err_t *err);

/* The same from memory; nothing in the result refers to `data`. */
base_status_t sim_snapshot_parse(const void *data, size_t n, sim_snapshot_t **snapshot_p,
                                 base_err_t *err);
void sim_snapshot_destroy(sim_snapshot_t *snapshot);

#endif
