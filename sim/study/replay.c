/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/replay.h"

#include "sim/base/xmem.h"

#include <stdlib.h>

static void make_room(sim_replay_t *replay, uint32_t n)
{
    replay->blocks = base_xrealloc(replay->blocks, n, sizeof(*replay->blocks));
    for (uint32_t i = replay->n_blocks; i < n; i++)
        replay->blocks[i] = SIM_BLOCK_NONE;
    replay->n_blocks = n;
}

base_status_t sim_replay_open(sim_replay_t *replay, const sim_trace_t *trace, sim_device_t *device,
                              const char *conf, base_err_t *err)
{
    sim_alloc_t *alloc;
    base_status_t status = sim_alloc_create(device, conf, &alloc, err);
    if (status != BASE_OK)
        return status;
    *replay = (sim_replay_t){ .trace = trace, .device = device, .alloc = alloc };
    make_room(replay, trace->n_blocks);
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
        if (call->block >= replay->n_blocks)
            make_room(replay, call->block < 1024 ? 1024 : 2 * call->block);
        replay->blocks[call->block] = SIM_BLOCK_NONE;
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

base_status_t sim_replay_begin(sim_replay_player_t *player, const sim_trace_t *trace,
                               const char *conf, const sim_device_config_t *config, base_err_t *err)
{
    *player = (sim_replay_player_t){ .sets_up = false };
    sim_device_t *device = sim_device_create_synthetic(config);
    base_status_t status = sim_replay_open(&player->replay, trace, device, conf, err);
    if (status != BASE_OK)
        sim_device_destroy(device);
    return status;
}

base_status_t sim_replay_play(sim_replay_player_t *player, const sim_call_t *call, base_err_t *err)
{
    sim_replay_t *replay = &player->replay;
    sim_replay_result_t *r = &player->result;
    base_err_t cause;
    if (player->sets_up && call->line > 0)
        observe(r, replay->alloc, 0); /* what the trace begins with */
    player->sets_up = call->line == 0;
    if (call->kind == SIM_CALL_RESET_ACCUMULATED)
        player->retries_reset += sim_alloc_stats(replay->alloc)->num_alloc_retries;
    base_status_t status = sim_replay_step(replay, call, &cause);
    if (status == BASE_ERR_DEVICE_OOM)
        note_oom(r, replay, call);
    else if (status != BASE_OK)
        return base_err_set(err, status, "line %u: %s", (unsigned)call->line, cause.text);
    if (call->line > 0)
        observe(r, replay->alloc, call->line);
    return BASE_OK;
}

sim_replay_result_t sim_replay_finish(sim_replay_player_t *player)
{
    sim_replay_t *replay = &player->replay;
    sim_replay_result_t r = player->result;
    r.n_retries = player->retries_reset + sim_alloc_stats(replay->alloc)->num_alloc_retries;
    r.n_device_alloc = sim_device_calls(replay->device)->n_malloc;
    r.n_device_free = sim_device_calls(replay->device)->n_free;
    r.end_allocated_bytes = sim_alloc_allocated_bytes(replay->alloc);
    r.end_reserved_bytes = sim_alloc_reserved_bytes(replay->alloc);
    sim_replay_close(replay);
    sim_device_destroy(replay->device);
    return r;
}

base_status_t sim_replay_run(const sim_trace_t *trace, const char *conf,
                             const sim_device_config_t *config, sim_replay_result_t *result,
                             base_err_t *err)
{
    sim_replay_player_t player;
    base_status_t status = sim_replay_begin(&player, trace, conf, config, err);
    if (status != BASE_OK)
        return status;
    for (size_t i = 0; i < trace->n_calls && status == BASE_OK; i++)
        status = sim_replay_play(&player, &trace->calls[i], err);
    sim_replay_result_t r = sim_replay_finish(&player);
    if (status == BASE_OK)
        *result = r;
    return status;
}
