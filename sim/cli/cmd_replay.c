/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/options.h"
#include "sim/memory/pickle_read.h"
#include "sim/memory/snapshot_read.h"
#include "sim/study/recording.h"
#include "sim/study/recording_report.h"
#include "sim/study/replay.h"
#include "sim/study/replay_check.h"
#include "sim/study/replay_report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct {
    sim_options_t common;
    sim_text_list_t confs;
    const char *capacity, *usable, *addresses, *check, *device;
} replay_options_t;

static const sim_option_t own[] = {
    { "alloc-conf", 'c', "SETTINGS", SIM_OPTION_LIST, offsetof(replay_options_t, confs),
      "text of PYTORCH_CUDA_ALLOC_CONF, or env for the one in the environment; repeat it to "
      "compare" },
    { "capacity", 0, "BYTES", SIM_OPTION_TEXT, offsetof(replay_options_t, capacity),
      "memory of the device, as 80GiB; without it there is no bound" },
    { "usable", 0, "BYTES", SIM_OPTION_TEXT, offsetof(replay_options_t, usable),
      "what the allocator can have of it: less context and communicators (default: all)" },
    { "addresses", 0, "POLICY", SIM_OPTION_TEXT, offsetof(replay_options_t, addresses),
      "where new segments lie: bump, reuse or down (default reuse)" },
    { "device", 0, "N", SIM_OPTION_TEXT, offsetof(replay_options_t, device),
      "which device of a snapshot (default: the first that has events)" },
    { "check", 0, "INDEX.tsv", SIM_OPTION_TEXT, offsetof(replay_options_t, check),
      "compare with golden runs; exit code 1 if one differs" },
};

static const sim_usage_t usage = {
    .command = "replay",
    .arguments = "TRACE|SNAPSHOT.pickle",
    .about =
        "Play a recorded sequence of allocator calls (- is standard input) under other "
        "settings or another\ncapacity: a snapshot of "
        "torch.cuda.memory._dump_snapshot(), or a text. One call a line: a ID BYTES STREAM, f ID, "
        "R ID STREAM (record_stream), y STREAM and\nY (work is complete), e (empty_cache), "
        "c SETTINGS, m FRACTION, r, A, s. Exit code 3 if a request\nfails; of a snapshot, under "
        "the last settings.",
    .groups = SIM_OPTIONS_JSON,
    .own = own,
    .n_own = sizeof(own) / sizeof(own[0]),
    .max_operands = 1,
};

static void show(const base_diag_t *diag)
{
    for (size_t i = 0; i < diag->n; i++)
        base_log(BASE_LOG_ERROR, "%s", diag->text[i]);
    if (diag->n_dropped > 0)
        base_log(BASE_LOG_ERROR, "and %zu more", diag->n_dropped);
}

static int check(const char *index)
{
    sim_replay_check_t result;
    base_diag_t diag;
    base_diag_init(&diag);
    base_status_t status = sim_replay_check(index, stdout, &result, &diag);
    show(&diag);
    base_diag_fini(&diag);
    if (status != BASE_OK)
        return 2;
    printf("%zu of %zu runs agree\n", result.n_agree, result.n_runs);
    return result.n_agree == result.n_runs ? 0 : 1;
}

static bool want_bytes(const char *option, const char *text, uint64_t *bytes_p)
{
    if (text == NULL)
        return true;
    if (base_bytes_parse(text, bytes_p) && *bytes_p > 0 && *bytes_p <= SIM_DEVICE_MAX_BYTES)
        return true;
    base_log(BASE_LOG_ERROR,
             "replay: --%s %.60s: not a size from 1 B to just below 2 TiB, as 80GiB", option, text);
    return false;
}

static bool read_device(const replay_options_t *o, sim_device_config_t *device)
{
    *device = (sim_device_config_t){ .total_bytes = SIM_DEVICE_MAX_BYTES,
                                     .addresses = SIM_ADDRESSES_DEFAULT };
    if (!want_bytes("capacity", o->capacity, &device->total_bytes))
        return false;
    device->usable_bytes = device->total_bytes;
    if (!want_bytes("usable", o->usable, &device->usable_bytes))
        return false;
    if (device->usable_bytes > device->total_bytes) {
        base_log(BASE_LOG_ERROR, "replay: --usable %s is more than --capacity %s", o->usable,
                 o->capacity);
        return false;
    }
    if (o->addresses == NULL || sim_addresses_parse(o->addresses, &device->addresses))
        return true;
    base_log(BASE_LOG_ERROR, "replay: --addresses %.60s: not bump, reuse or down", o->addresses);
    return false;
}

static const char *resolve_conf(const char *conf)
{
    if (strcmp(conf, "env") != 0)
        return conf;
    const char *text = sim_alloc_conf_from_env(NULL);
    return text != NULL ? text : "";
}

/* The recorded settings with expandable segments the other way. */
static char *other_way(const char *recorded)
{
    static const char on[] = "expandable_segments:True";
    const char *at = strstr(recorded, on);
    if (at != NULL)
        return base_xasprintf("%.*sexpandable_segments:False%s", (int)(at - recorded), recorded,
                              at + sizeof(on) - 1);
    return base_xasprintf("%s%s%s", recorded, recorded[0] != '\0' ? "," : "", on);
}

/* The settings to compare. Of a snapshot: the recorded ones, then those that were asked for or
 * other_way(). Free with free_confs(). */
static char **list_confs(const replay_options_t *o, const sim_snapshot_t *snap, size_t *n_p)
{
    char **confs = base_xcalloc(o->confs.n + 2, sizeof(*confs));
    size_t n = 0;
    const char *recorded = snap != NULL && snap->conf != NULL ? snap->conf : "";
    if (snap != NULL || o->confs.n == 0)
        confs[n++] = base_xstrdup(recorded);
    for (size_t i = 0; i < o->confs.n; i++)
        confs[n++] = base_xstrdup(resolve_conf(o->confs.text[i]));
    if (snap != NULL && o->confs.n == 0)
        confs[n++] = other_way(recorded);
    *n_p = n;
    return confs;
}

static void free_confs(char **confs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(confs[i]);
    free(confs);
}

static int report(const replay_options_t *o, const sim_replay_report_t *rows,
                  const sim_recording_report_t *of)
{
    const char *json = o->common.json;
    int code = 0;
    if (json != NULL) {
        json_t *root = sim_replay_json(rows);
        if (of != NULL)
            json_object_set_new(root, "recording", sim_recording_json(of));
        code = sim_cli_write_json(json, root);
    }
    if (json == NULL || strcmp(json, "-") != 0) {
        sim_replay_print(rows, stdout);
        if (of != NULL)
            sim_recording_print(of, stdout);
    }
    return code;
}

static int play_row(const char *name, const sim_trace_t *trace, const sim_device_config_t *device,
                    sim_replay_row_t *row)
{
    base_err_t err;
    if (sim_replay_run(trace, row->conf, device, &row->result, &err) == BASE_OK)
        return row->result.n_ooms > 0 ? 3 : 0;
    base_log(BASE_LOG_ERROR, "%s: settings \"%.200s\": %s", name, row->conf, err.text);
    return 2;
}

/* A text trace: `of` and `exact` are NULL. A snapshot whose history begins in the middle: `exact`
 * is the trace that begins with the recorded layout, and makes a row of its own. */
static int play(const replay_options_t *o, const char *name, const sim_trace_t *trace,
                const sim_device_config_t *device, sim_recording_report_t *of,
                const sim_trace_t *exact)
{
    size_t n_confs, n = 0;
    char **confs = list_confs(o, of != NULL ? of->snapshot : NULL, &n_confs);
    sim_replay_row_t *rows = base_xcalloc(n_confs + 1, sizeof(*rows));
    int code = 0;
    if (exact != NULL) {
        rows[n] = (sim_replay_row_t){ .conf = confs[0], .note = "start as recorded" };
        code = play_row(name, exact, device, &rows[n++]);
    }
    for (size_t i = 0; i < n_confs && code != 2; i++) {
        rows[n].conf = confs[i];
        int row_code = play_row(name, trace, device, &rows[n++]);
        /* 2 ends the loop; a snapshot is played to see whether the last settings do better. */
        if (of != NULL || row_code > code)
            code = row_code;
    }
    if (code != 2) {
        sim_replay_report_t all = {
            name, trace->n_calls, trace->n_blocks, trace->n_streams, *device, rows, n
        };
        if (of != NULL)
            of->played = &rows[0].result;
        int report_code = report(o, &all, of);
        code = report_code != 0 ? report_code : code;
    }
    free(rows);
    free_confs(confs, n_confs);
    return code;
}

static int play_device(const replay_options_t *o, const char *name, const sim_snapshot_t *snap,
                       size_t index, sim_device_config_t device)
{
    sim_recording_t rec, exact = { 0 };
    base_err_t err;
    base_status_t status = sim_recording_init(&rec, snap, index, SIM_RECORDING_START_BLOCKS, &err);
    bool is_cut = status == BASE_OK && (rec.n_before > 0 || rec.start_reserved_bytes > 0);
    if (is_cut)
        status = sim_recording_init(&exact, snap, index, SIM_RECORDING_START_AS_RECORDED, &err);
    if (status != BASE_OK) {
        base_log(BASE_LOG_ERROR, "%s: %s", name, err.text);
        if (is_cut)
            sim_recording_fini(&rec);
        return 2;
    }
    if (o->capacity == NULL && o->usable == NULL && rec.usable_bytes > 0 &&
        rec.usable_bytes < device.usable_bytes)
        device.usable_bytes = rec.usable_bytes;
    sim_recording_report_t of = { .recording = &rec, .snapshot = snap, .device = index };
    int code = play(o, name, rec.trace, &device, &of, exact.trace);
    sim_recording_fini(&rec);
    sim_recording_fini(&exact);
    return code;
}

static int play_snapshot(const replay_options_t *o, const char *name, const sim_snapshot_t *snap,
                         const sim_device_config_t *device)
{
    uint64_t index = 0;
    while (o->device == NULL && index + 1 < snap->n_traces && snap->traces[index].n == 0)
        index++;
    if (o->device == NULL || base_u64_parse(o->device, &index))
        return play_device(o, name, snap, (size_t)index, *device);
    base_log(BASE_LOG_ERROR, "replay: --device %.60s: not a number", o->device);
    return 2;
}

/* All settings at once, call by call, so that the trace need not be held. */
static int play_calls(const replay_options_t *o, const char *name, sim_trace_reader_t *reader,
                      const sim_device_config_t *device, char **confs, size_t n_confs)
{
    const sim_trace_t *trace = sim_trace_reader_trace(reader);
    sim_replay_player_t *players = base_xcalloc(n_confs, sizeof(*players));
    sim_replay_row_t *rows = base_xcalloc(n_confs, sizeof(*rows));
    size_t n = 0, failed = 0;
    base_err_t err;
    base_status_t status = BASE_OK;
    sim_call_t call;
    for (; n < n_confs && status == BASE_OK; n += status == BASE_OK) {
        failed = n;
        status = sim_replay_begin(&players[n], trace, confs[n], device, &err);
    }
    while (status == BASE_OK && sim_trace_reader_next(reader, &call)) {
        for (size_t i = 0; i < n && status == BASE_OK; i++) {
            failed = i;
            status = sim_replay_play(&players[i], &call, &err);
        }
    }
    int code = status == BASE_OK && sim_trace_reader_finish(reader) ? 0 : 2;
    if (status != BASE_OK)
        base_log(BASE_LOG_ERROR, "%s: settings \"%.200s\": %s", name, confs[failed], err.text);
    for (size_t i = 0; i < n; i++) {
        rows[i] = (sim_replay_row_t){ .conf = confs[i], .result = sim_replay_finish(&players[i]) };
        if (code == 0 && rows[i].result.n_ooms > 0)
            code = 3;
    }
    if (code != 2) {
        sim_replay_report_t all = { name,
                                    trace->n_calls,
                                    sim_trace_reader_n_allocations(reader),
                                    trace->n_streams,
                                    *device,
                                    rows,
                                    n };
        int report_code = report(o, &all, NULL);
        code = report_code != 0 ? report_code : code;
    }
    free(players);
    free(rows);
    return code;
}

/* What was read to see what the file is. */
typedef struct {
    char bytes[2];
    size_t n;
} head_t;

static int play_text(const replay_options_t *o, const char *name, FILE *in, const head_t *head,
                     const sim_device_config_t *device)
{
    base_diag_t diag;
    base_diag_init(&diag);
    size_t n_confs;
    char **confs = list_confs(o, NULL, &n_confs);
    sim_trace_reader_t *reader = sim_trace_reader_create(name, in, head->bytes, head->n, &diag);
    int code = play_calls(o, name, reader, device, confs, n_confs);
    show(&diag);
    sim_trace_reader_destroy(reader);
    free_confs(confs, n_confs);
    base_diag_fini(&diag);
    return code;
}

/* Standard input and pipes may be either; they are read once. */
static int play_pipe(const replay_options_t *o, const char *name, FILE *in, const head_t *head,
                     const sim_device_config_t *device)
{
    size_t n = head->n, cap = 1 << 16, got;
    char *data = base_xcalloc(cap, 1);
    sim_snapshot_t *snap;
    base_err_t err;
    int code = 2;
    memcpy(data, head->bytes, n);
    do {
        if (n == cap)
            data = base_xrealloc(data, cap *= 2, 1);
        got = fread(data + n, 1, cap - n, in);
        n += got;
    } while (got > 0);
    if (sim_snapshot_parse(data, n, &snap, &err) == BASE_OK) {
        code = play_snapshot(o, name, snap, device);
        sim_snapshot_destroy(snap);
    } else {
        base_log(BASE_LOG_ERROR, "%s: %s", name, err.text);
    }
    free(data);
    return code;
}

static int play_mapped(const replay_options_t *o, const char *path,
                       const sim_device_config_t *device)
{
    sim_snapshot_t *snap;
    base_err_t err;
    if (sim_snapshot_read(path, &snap, &err) != BASE_OK) {
        base_log(BASE_LOG_ERROR, "%s", err.text);
        return 2;
    }
    int code = play_snapshot(o, path, snap, device);
    sim_snapshot_destroy(snap);
    return code;
}

static int play_path(const replay_options_t *o, const char *path, const sim_device_config_t *device)
{
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "stdin" : path;
    FILE *in = is_stdin ? stdin : fopen(path, "rb");
    struct stat st;
    if (in == NULL) {
        base_log(BASE_LOG_ERROR, "%s: %s", path, strerror(errno));
        return 2;
    }
    head_t head;
    head.n = fread(head.bytes, 1, sizeof(head.bytes), in);
    bool is_pickle = sim_pickle_detect(head.bytes, head.n);
    bool is_file = !is_stdin && fstat(fileno(in), &st) == 0 && S_ISREG(st.st_mode);
    int code = !is_pickle ? play_text(o, name, in, &head, device)
               : is_file  ? play_mapped(o, path, device)
                          : play_pipe(o, name, in, &head, device);
    if (!is_stdin)
        fclose(in);
    return code;
}

static int replay(const replay_options_t *o)
{
    sim_device_config_t device;
    if (o->check != NULL && o->common.n_operands == 0)
        return check(o->check);
    if (o->check != NULL || o->common.n_operands == 0) {
        base_log(BASE_LOG_ERROR, "replay: one TRACE or --check INDEX.tsv is needed");
        return 2;
    }
    if (!read_device(o, &device))
        return 2;
    return play_path(o, o->common.operands[0], &device);
}

int sim_cmd_replay(int argc, char **argv)
{
    replay_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON)
        code = replay(&options);
    free(options.confs.text);
    sim_options_fini(&options.common);
    return code;
}
