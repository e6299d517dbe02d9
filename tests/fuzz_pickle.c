/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any bytes as a snapshot, and what is read as a recording that is played. */
#include "config.h"

#include "sim/memory/pickle_read.h"
#include "sim/memory/snapshot_read.h"
#include "sim/study/recording.h"
#include "sim/study/replay.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sim_snapshot_t *snap = NULL;
    sim_pickle_t *pickle = NULL;
    sim_pickle_value_t root;
    base_err_t err;
    if (sim_pickle_read(data, size, NULL, NULL, &pickle, &root, &err) == BASE_OK)
        sim_pickle_destroy(pickle);
    if (sim_snapshot_parse(data, size, &snap, &err) != BASE_OK)
        return 0;
    for (size_t device = 0; device <= snap->n_traces; device++) {
        sim_recording_t rec;
        if (sim_recording_init(&rec, snap, device, SIM_RECORDING_START_AS_RECORDED, &err) !=
            BASE_OK)
            continue;
        base_diag_t limits;
        base_diag_init(&limits);
        sim_recording_limits(&rec, snap, &limits);
        base_diag_fini(&limits);
        if (rec.peak_reserved_bytes < rec.end_reserved_bytes)
            abort();
        sim_device_config_t config = { .total_bytes = UINT64_C(80) << 30,
                                       .usable_bytes = UINT64_C(78) << 30 };
        sim_replay_result_t result;
        sim_replay_run(rec.trace, snap->conf, &config, &result, &err);
        sim_recording_fini(&rec);
    }
    sim_snapshot_destroy(snap);
    return 0;
}
