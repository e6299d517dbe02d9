/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/replay.h"

#include "sim/base/xmem.h"

#include <stdlib.h>

base_status_t sim_replay_open(sim_replay_t *replay, const sim_trace_t *trace, sim_device_t *device,
                              const char *conf, base_err_t *err)
{
    sim_alloc_t *alloc;
    base_status_t status = sim_alloc_create(device, conf, &alloc, err);
    if (status != BASE_OK)
        return status;
    *replay = (sim_replay_t){ .trace = trace, .device = device, .alloc = alloc };
    replay->blocks = base_xcalloc(trace->n_blocks, sizeof(*replay->blocks));
    for (uint32_t i = 0; i < trace->n_blocks; i++)
        replay->blocks[i] = SIM_BLOCK_NONE;
    return BASE_OK;
}

void sim_replay_close(sim_replay_t *replay)
{
    sim_alloc_destroy(replay->alloc);
    free(replay->blocks);
}

base_status_t sim_replay_step(sim_replay_t *replay, const sim_call_t *call, base_err_t *err)
{
    sim_alloc_t *alloc = replay->alloc;
    const uint64_t *streams = replay->trace->streams;
    switch ((sim_call_kind_t)call->kind) {
    case SIM_CALL_ALLOC:
        if (!sim_alloc_malloc(alloc, streams[call->stream], call->bytes,
                              &replay->blocks[call->block]))
            return BASE_ERR_DEVICE_OOM;
        break;
    case SIM_CALL_FREE:
        sim_alloc_free(alloc, replay->blocks[call->block]);
        break;
    case SIM_CALL_RECORD_STREAM:
        sim_alloc_record_stream(alloc, replay->blocks[call->block], streams[call->stream]);
        break;
    case SIM_CALL_STREAM_DONE:
        sim_alloc_stream_done(alloc, streams[call->stream]);
        break;
    case SIM_CALL_ALL_STREAMS_DONE:
        sim_alloc_all_streams_done(alloc);
        break;
    case SIM_CALL_EMPTY_CACHE:
        sim_alloc_empty_cache(alloc);
        break;
    case SIM_CALL_RESET_PEAK:
        sim_alloc_reset_peak(alloc);
        break;
    case SIM_CALL_RESET_ACCUMULATED:
        sim_alloc_reset_accumulated(alloc);
        break;
    case SIM_CALL_CONFIGURE:
        return sim_alloc_configure(alloc, call->conf, err);
    case SIM_CALL_FRACTION:
        sim_alloc_set_fraction(alloc, call->fraction);
        break;
    case SIM_CALL_PRINT:
        break;
    }
    return BASE_OK;
}

static void observe(sim_replay_result_t *r, const sim_alloc_t *alloc, uint32_t line)
{
    uint64_t allocated = sim_alloc_allocated_bytes(alloc);
    uint64_t reserved = sim_alloc_reserved_bytes(alloc);
    if (allocated > r->peak_allocated_bytes) {
        r->peak_allocated_bytes = allocated;
        r->peak_allocated_line = line;
    }
    if (reserved > r->peak_reserved_bytes) {
        r->peak_reserved_bytes = reserved;
        r->peak_reserved_line = line;
    }
    if (reserved - allocated > r->largest_gap_bytes) {
        r->largest_gap_bytes = reserved - allocated;
        r->largest_gap_line = line;
    }
}

static void note_oom(sim_replay_result_t *r, const sim_replay_t *replay, const sim_call_t *call)
{
    if (r->n_ooms++ > 0)
        return;
    r->first_oom_line = call->line;
    r->first_oom_id = replay->trace->ids[call->block];
    r->first_oom = *sim_alloc_last_oom(replay->alloc);
}

base_status_t sim_replay_run(const sim_trace_t *trace, const char *conf,
                             const sim_device_config_t *config, sim_replay_result_t *result,
                             base_err_t *err)
{
    sim_device_t *device = sim_device_create_synthetic(config);
    sim_replay_t replay;
    sim_replay_result_t r = { 0 };
    base_status_t status = sim_replay_open(&replay, trace, device, conf, err);
    if (status != BASE_OK) {
        sim_device_destroy(device);
        return status;
    }
    uint64_t retries_reset = 0; /* retries before the trace set the counters to zero */
    for (size_t i = 0; i < trace->n_calls && status == BASE_OK; i++) {
        const sim_call_t *call = &trace->calls[i];
        if (i > 0 && call->line > 0 && trace->calls[i - 1].line == 0)
            observe(&r, replay.alloc, 0); /* what the trace begins with */
        if (call->kind == SIM_CALL_RESET_ACCUMULATED)
            retries_reset += sim_alloc_stats(replay.alloc)->num_alloc_retries;
        base_err_t cause;
        status = sim_replay_step(&replay, call, &cause);
        if (status == BASE_ERR_DEVICE_OOM) {
            note_oom(&r, &replay, call);
            status = BASE_OK;
        } else if (status != BASE_OK) {
            base_err_set(err, status, "line %u: %s", (unsigned)call->line, cause.text);
        }
        if (call->line > 0)
            observe(&r, replay.alloc, call->line);
    }
    const sim_alloc_stats_t *stats = sim_alloc_stats(replay.alloc);
    r.n_retries = retries_reset + stats->num_alloc_retries;
    r.n_device_alloc = sim_device_calls(device)->n_malloc;
    r.n_device_free = sim_device_calls(device)->n_free;
    r.end_allocated_bytes = sim_alloc_allocated_bytes(replay.alloc);
    r.end_reserved_bytes = sim_alloc_reserved_bytes(replay.alloc);
    sim_replay_close(&replay);
    sim_device_destroy(device);
    if (status == BASE_OK)
        *result = r;
    return status;
}
