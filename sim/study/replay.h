/* SPDX-License-Identifier: Apache-2.0
 * A recorded sequence of allocator calls, played again under chosen settings and capacity. */
#ifndef SIM_STUDY_REPLAY_H
#define SIM_STUDY_REPLAY_H

#include "sim/base/err.h"
#include "sim/memory/caching_allocator.h"
#include "sim/memory/trace_text.h"

/* One playing of a trace. Open, step through trace->calls in order, close. */
typedef struct {
    const sim_trace_t *trace; /* borrowed */
    sim_device_t *device;     /* borrowed */
    sim_alloc_t *alloc;
    sim_block_t *blocks; /* by number of the allocation; SIM_BLOCK_NONE = failed or of 0 bytes */
    uint32_t n_blocks;   /* room in blocks[], which grows with the numbers */
} sim_replay_t;

/* `conf` as sim_alloc_create(). On failure nothing needs closing. */
base_status_t sim_replay_open(sim_replay_t *replay, const sim_trace_t *trace, sim_device_t *device,
                              const char *conf, base_err_t *err);

/* BASE_ERR_DEVICE_OOM: the allocation failed, playing may go on; `err` is untouched.
 * BASE_ERR_INVAL, BASE_ERR_UNSUPPORTED: settings of the trace are bad, `err` says why. */
base_status_t sim_replay_step(sim_replay_t *replay, const sim_call_t *call, base_err_t *err);

void sim_replay_close(sim_replay_t *replay);

typedef struct {
    uint64_t peak_allocated_bytes, peak_reserved_bytes;
    uint32_t peak_allocated_line, peak_reserved_line; /* first line that reached it; 0 = never */
    uint64_t largest_gap_bytes;                       /* reserved less allocated, at its largest */
    uint32_t largest_gap_line;
    uint64_t n_ooms, n_retries;
    uint32_t first_oom_line; /* 0 = none */
    uint64_t first_oom_id;   /* as written in the trace */
    sim_oom_t first_oom;
    uint64_t end_allocated_bytes, end_reserved_bytes;
    uint64_t n_device_alloc, n_device_free;
} sim_replay_result_t;

/* A playing that keeps account: begin, play each call, finish. */
typedef struct {
    sim_replay_t replay;
    sim_replay_result_t result;
    uint64_t retries_reset; /* retries before the trace set the counters to zero */
    bool sets_up;           /* the calls so far were of line 0 */
} sim_replay_player_t;

/* `trace` has the IDs and streams of the calls that follow. Fails as sim_replay_open(). */
base_status_t sim_replay_begin(sim_replay_player_t *player, const sim_trace_t *trace,
                               const char *conf, const sim_device_config_t *config,
                               base_err_t *err);
/* Failed allocations are counted. BASE_ERR_INVAL, BASE_ERR_UNSUPPORTED: err names the line. */
base_status_t sim_replay_play(sim_replay_player_t *player, const sim_call_t *call, base_err_t *err);
/* The result, and the end of the player. */
sim_replay_result_t sim_replay_finish(sim_replay_player_t *player);

/* Play the whole trace on a new synthetic device; calls of line 0 only set up what the trace begins
 * with, peaks are not looked for in them; failed allocations are left out and counted.
 * BASE_ERR_INVAL, BASE_ERR_UNSUPPORTED: `conf` or settings in the trace are bad. */
base_status_t sim_replay_run(const sim_trace_t *trace, const char *conf,
                             const sim_device_config_t *device, sim_replay_result_t *result,
                             base_err_t *err);

#endif
