/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any text read as a trace of allocator calls, settings included, and played on a
 * device that is soon full. */
#include "config.h"

#include "sim/study/replay.h"
#include "tests/fuzz.h"

static void check_sums(void *arg, const sim_block_info_t *info)
{
    uint64_t *allocated_bytes = arg;
    if (info->is_allocated)
        *allocated_bytes += info->bytes;
}

static void play(const sim_trace_t *trace)
{
    const sim_device_config_t config = { .total_bytes = UINT64_C(1) << 30,
                                         .usable_bytes = UINT64_C(900) << 20,
                                         .addresses = SIM_ADDRESSES_DEFAULT };
    sim_device_t *device = sim_device_create_synthetic(&config);
    sim_replay_t replay;
    base_err_t err = { 0 };
    if (sim_replay_open(&replay, trace, device, NULL, &err) != BASE_OK)
        abort();
    for (size_t i = 0; i < trace->n_calls; i++) {
        base_status_t status = sim_replay_step(&replay, &trace->calls[i], &err);
        if (status != BASE_OK && status != BASE_ERR_DEVICE_OOM)
            break;
    }
    uint64_t allocated_bytes = 0, reserved_bytes = sim_alloc_reserved_bytes(replay.alloc);
    sim_alloc_foreach(replay.alloc, check_sums, &allocated_bytes);
    if (allocated_bytes != sim_alloc_allocated_bytes(replay.alloc) ||
        allocated_bytes > reserved_bytes || reserved_bytes > sim_device_used_bytes(device) ||
        sim_device_used_bytes(device) > config.usable_bytes)
        abort();
    sim_replay_close(&replay);
    if (sim_device_used_bytes(device) != 0)
        abort();
    sim_device_destroy(device);
}

/* The reader that does not hold the trace says the same. */
static void read_again(const char *text, size_t size, const sim_trace_t *trace)
{
    base_diag_t diag;
    base_diag_init(&diag);
    FILE *in = size > 0 ? fmemopen((void *)(uintptr_t)text, size, "r") : fopen("/dev/null", "r");
    if (in == NULL)
        abort();
    sim_trace_reader_t *reader = sim_trace_reader_create("fuzz", in, "", 0, &diag);
    size_t n = 0;
    sim_call_t call;
    while (sim_trace_reader_next(reader, &call)) {
        if (trace != NULL &&
            (n >= trace->n_calls || call.kind != trace->calls[n].kind ||
             call.line != trace->calls[n].line || call.block != trace->calls[n].block))
            abort();
        n++;
    }
    if (sim_trace_reader_finish(reader) != (trace != NULL) || (trace != NULL) != (diag.n == 0) ||
        (trace != NULL && n != trace->n_calls))
        abort();
    sim_trace_reader_destroy(reader);
    fclose(in);
    base_diag_fini(&diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    base_diag_t diag;
    sim_trace_t *trace = NULL;
    base_diag_init(&diag);
    if (sim_trace_parse("fuzz", (const char *)data, size, &trace, &diag) == BASE_OK) {
        play(trace);
        read_again((const char *)data, size, trace);
        sim_trace_destroy(trace);
    } else if (diag.n == 0) {
        abort();
    } else {
        read_again((const char *)data, size, NULL);
    }
    base_diag_fini(&diag);
    return 0;
}
