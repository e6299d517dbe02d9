/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/options.h"
#include "sim/study/replay.h"
#include "sim/study/replay_check.h"
#include "sim/study/replay_report.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    sim_options_t common;
    sim_text_list_t confs;
    const char *capacity, *usable, *addresses, *check;
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
    { "check", 0, "INDEX.tsv", SIM_OPTION_TEXT, offsetof(replay_options_t, check),
      "compare with golden runs; exit code 1 if one differs" },
};

static const sim_usage_t usage = {
    .command = "replay",
    .arguments = "TRACE",
    .about = "Play a recorded sequence of allocator calls (- is standard input) under other "
             "settings or another\ncapacity. One call a line: a ID BYTES STREAM, f ID, "
             "R ID STREAM (record_stream), y STREAM and\nY (work is complete), e (empty_cache), "
             "c SETTINGS, m FRACTION, r, A, s. Exit code 3 if a request\nfails.",
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

static int play(const replay_options_t *o, const char *name, const sim_trace_t *trace,
                const sim_device_config_t *device)
{
    size_t n = o->confs.n > 0 ? o->confs.n : 1;
    sim_replay_row_t *rows = base_xcalloc(n, sizeof(*rows));
    int code = 0;
    for (size_t i = 0; i < n && code != 2; i++) {
        base_err_t err;
        rows[i].conf = o->confs.n > 0 ? resolve_conf(o->confs.text[i]) : "";
        if (sim_replay_run(trace, rows[i].conf, device, &rows[i].result, &err) != BASE_OK) {
            base_log(BASE_LOG_ERROR, "%s: settings \"%.200s\": %s", name, rows[i].conf, err.text);
            code = 2;
        } else if (rows[i].result.n_ooms > 0) {
            code = 3;
        }
    }
    const char *json = o->common.json;
    if (code != 2) {
        sim_replay_report_t report = { name, trace, *device, rows, n };
        int json_code = json != NULL ? sim_cli_write_json(json, sim_replay_json(&report)) : 0;
        if (json == NULL || strcmp(json, "-") != 0)
            sim_replay_print(&report, stdout);
        code = json_code != 0 ? json_code : code;
    }
    free(rows);
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
    const char *path = o->common.operands[0], *name = strcmp(path, "-") == 0 ? "stdin" : path;
    sim_trace_t *trace;
    base_diag_t diag;
    base_diag_init(&diag);
    base_status_t status = sim_trace_read(path, &trace, &diag);
    show(&diag);
    base_diag_fini(&diag);
    if (status != BASE_OK)
        return 2;
    int code = play(o, name, trace, &device);
    sim_trace_destroy(trace);
    return code;
}

int sim_cmd_replay(int argc, char **argv)
{
    replay_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON)
        code = replay(&options);
    sim_options_fini(&options.common);
    return code;
}
