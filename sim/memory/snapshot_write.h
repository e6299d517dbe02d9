/* SPDX-License-Identifier: Apache-2.0
 * Writes a PyTorch memory snapshot of a simulated run, as the memory viewer
 * (pytorch.org/memory_viz) and `python -m torch.cuda._memory_viz` read it: a protocol-2 pickle.
 * Events go to the file as they happen, so that a long run does not sit in memory. */
#ifndef SIM_MEMORY_SNAPSHOT_WRITE_H
#define SIM_MEMORY_SNAPSHOT_WRITE_H

#include "sim/base/err.h"
#include "sim/memory/caching_allocator.h"

#include <stddef.h>
#include <stdint.h>

/* One line of a stack as the viewer shows it: "filename:line:name". Texts are copied. */
typedef struct {
    const char *name;
    const char *filename;
    uint32_t line;
} sim_snapshot_frame_t;

enum { SIM_SNAPSHOT_MAX_FRAMES = 8 };

typedef struct sim_snapshot_writer sim_snapshot_writer_t;

/* Begin the snapshot `path` (as base_outfile_open(): it appears complete or not at all).
 * BASE_ERR_IO: it cannot be created. End it with sim_snapshot_writer_finish() or _abort(). */
base_status_t sim_snapshot_writer_open(const char *path, sim_snapshot_writer_t **writer_p,
                                       base_err_t *err);

/* Append one event, `frames` innermost first (0..SIM_SNAPSHOT_MAX_FRAMES of them). For
 * SIM_TRACE_OOM `addr` is what was free on the device. Addresses must be below 2^53: the viewer
 * keeps numbers as doubles. A failed write is reported by sim_snapshot_writer_finish(). */
void sim_snapshot_writer_event(sim_snapshot_writer_t *writer, sim_trace_action_t action,
                               uint64_t addr, uint64_t bytes, uint64_t stream, uint64_t time_us,
                               const sim_snapshot_frame_t *frames, size_t n_frames);

/* Where the run is: fills frames[] innermost first, returns how many, sets the time. */
typedef size_t (*sim_snapshot_where_f)(void *arg,
                                       sim_snapshot_frame_t frames[SIM_SNAPSHOT_MAX_FRAMES],
                                       uint64_t *time_us_p);

/* Record every event of `alloc` from now on (takes its trace hook). */
void sim_snapshot_writer_attach(sim_snapshot_writer_t *writer, sim_alloc_t *alloc,
                                sim_snapshot_where_f where, void *arg);

/* Append the segments as they are now and `conf` as the allocator's settings (may be NULL), give
 * the file its name and free the writer, also on failure. *bytes_p (may be NULL): the file's size.
 * BASE_ERR_IO: a write failed; no file is left behind. */
base_status_t sim_snapshot_writer_finish(sim_snapshot_writer_t *writer, sim_alloc_t *alloc,
                                         const char *conf, uint64_t *bytes_p, base_err_t *err);

/* Drop the snapshot: no file is left behind. NULL is ignored. */
void sim_snapshot_writer_abort(sim_snapshot_writer_t *writer);

#endif
