/* SPDX-License-Identifier: Apache-2.0
 * The allocator calls behind the recorded events of one device of a PyTorch memory snapshot, as a
 * trace that can be played under other settings. */
#ifndef SIM_STUDY_RECORDING_H
#define SIM_STUDY_RECORDING_H

#include "sim/base/diag.h"
#include "sim/base/err.h"
#include "sim/memory/snapshot_read.h"
#include "sim/memory/trace_text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    /* Calls of the default pool. A call's line is the number of its event from 1, 0 for what was
     * there before the first event; an allocation's ID is its event's number, or for those before:
     * 2^32 + its place by address. A request that failed when recorded is tried, and freed at once
     * if it succeeds. */
    sim_trace_t *trace;
    uint64_t n_events;               /* of the device */
    uint64_t n_private_events;       /* left out: pools of CUDA graphs and MemPools */
    uint64_t private_bytes;          /* that such pools have reserved at the end */
    uint64_t n_before, before_bytes; /* alive before the first event, by requested bytes */
    uint64_t start_reserved_bytes, end_reserved_bytes, peak_reserved_bytes; /* as recorded */
    uint64_t end_allocated_bytes;                                           /* as recorded */
    uint64_t n_ooms;         /* failures that were recorded */
    uint64_t n_releases;     /* times the allocator gave memory back before it got more */
    uint64_t n_empty_caches; /* times the program did (torch.cuda.empty_cache()) */
    uint64_t n_waiting;      /* frees that waited for another stream */
    uint64_t n_inconsistent; /* events that contradict the others, left out */
    /* Device memory that the allocator could have: exact from an out-of-memory event, else the
     * least that agrees with the releases; 0: nothing in the trace tells. */
    uint64_t usable_bytes;
    bool is_usable_exact;
} sim_recording_t;

/* What the trace begins with, where the history does not begin with an empty allocator. */
typedef enum {
    SIM_RECORDING_START_AS_RECORDED, /* the blocks, and the free memory between them: the layout
                                      * that the recorded settings had led to, and to be played
                                      * under them */
    SIM_RECORDING_START_BLOCKS,      /* the blocks alone, for comparing settings */
} sim_recording_start_t;

/* Device `device` of the snapshot. BASE_ERR_INVAL: it has no such device, or no events of it: err
 * says how to record them. Free with sim_recording_fini(). */
base_status_t sim_recording_init(sim_recording_t *recording, const sim_snapshot_t *snapshot,
                                 size_t device, sim_recording_start_t start, base_err_t *err);
void sim_recording_fini(sim_recording_t *recording);

/* What the recording cannot tell, as sentences. */
void sim_recording_limits(const sim_recording_t *recording, const sim_snapshot_t *snapshot,
                          base_diag_t *limits);

#endif
