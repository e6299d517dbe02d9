/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/outfile.h"
#include "sim/cli/command.h"
#include "sim/cli/options.h"
#include "sim/study/diagnose.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const sim_usage_t usage = {
    .command = "diagnose",
    .arguments = "[LOG]",
    .about = "Read a pasted out-of-memory message or a log (standard input without LOG or with -), "
             "and say\nwhere the device's memory was, why the request failed, and which setting "
             "to change.\nKnown are PyTorch's messages of all releases, memory lines of "
             "Megatron-LM, Megatron-Bridge,\nNeMo, verl, torchtitan and DeepSpeed, "
             "memory_summary() tables, nvidia-smi, and NCCL's and CUDA's\nfailed allocations.",
    .groups = SIM_OPTIONS_JSON,
    .max_operands = 1,
};

enum { PICKLE_FIRST_BYTE = 0x80 }; /* no text in UTF-8 begins so */

static int print_json(const diag_log_t *log, const diag_result_t *result, const char *path)
{
    base_outfile_t *out;
    base_err_t err;
    base_status_t status = base_outfile_open(path, &out, &err);
    if (status == BASE_OK) {
        diag_print_json(log, result, base_outfile_stream(out));
        status = base_outfile_commit(out, &err);
    }
    if (status != BASE_OK)
        base_log(BASE_LOG_ERROR, "%s", err.text);
    return base_err_exit_code(status);
}

static int diagnose(FILE *in, const char *json)
{
    diag_log_t log;
    diag_result_t result;
    diag_log_read(in, &log);
    diag_judge(&log, &result);
    int code = 0;
    if (json != NULL)
        code = print_json(&log, &result, json);
    if (json == NULL || strcmp(json, "-") != 0)
        diag_print_text(&log, &result, stdout);
    diag_log_fini(&log);
    return code;
}

static int diagnose_file(const char *path, const char *json)
{
    FILE *in = fopen(path, "r");
    if (in == NULL) {
        base_log(BASE_LOG_ERROR, "%s: %s", path, strerror(errno));
        return 2;
    }
    int code = 0;
    int c = getc(in); /* a directory can be opened, but not read */
    if (c == EOF && ferror(in)) {
        base_log(BASE_LOG_ERROR, "%s: %s", path, strerror(errno));
        code = 2;
    } else if (c == PICKLE_FIRST_BYTE) {
        base_log(BASE_LOG_ERROR, "%s is no log but a pickle: mbsim replay reads memory snapshots",
                 path);
        code = 2;
    } else {
        if (c != EOF)
            ungetc(c, in);
        code = diagnose(in, json);
    }
    fclose(in);
    return code;
}

int sim_cmd_diagnose(int argc, char **argv)
{
    sim_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        const char *path = options.n_operands > 0 ? options.operands[0] : "-";
        code = strcmp(path, "-") == 0 ? diagnose(stdin, options.json)
                                      : diagnose_file(path, options.json);
    }
    sim_options_fini(&options);
    return code;
}
