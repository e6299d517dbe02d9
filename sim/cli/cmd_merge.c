/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/outfile.h"
#include "sim/cli/command.h"
#include "sim/cli/options.h"
#include "sim/cli/page_file.h"
#include "sim/study/sweep_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_FILES = 100000, N_BEST = 10, MAX_RANGES = 20, CODE_MISSING = 1 };

static const sim_usage_t usage = {
    .command = "merge",
    .arguments = "FILE",
    .about = "Join the rows that the shards of one sweep have written, say which layouts are\n"
             "missing, and show the best. Files may be CSV or JSON lines. The exit code is 1 when\n"
             "layouts are missing.",
    .groups = SIM_OPTIONS_JSON | SIM_OPTIONS_CSV | SIM_OPTIONS_HTML,
    .min_operands = 1,
    .max_operands = MAX_FILES,
};

static int write_rows(const char *path, const sim_sweep_rows_t *rows, sim_rows_format_t format)
{
    base_outfile_t *out;
    base_err_t err;
    base_status_t status = base_outfile_open(path, &out, &err);
    if (status == BASE_OK) {
        sim_sweep_write_rows(rows, format, base_outfile_stream(out));
        status = base_outfile_commit(out, &err);
    }
    if (status != BASE_OK)
        base_log(BASE_LOG_ERROR, "%s", err.text);
    return base_err_exit_code(status);
}

static bool is_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

static int report(const sim_options_t *options, const sim_sweep_merge_t *merge)
{
    int code = 0;
    if (options->csv != NULL)
        code = write_rows(options->csv, &merge->rows, SIM_ROWS_CSV);
    if (options->json != NULL && code == 0)
        code = write_rows(options->json, &merge->rows, SIM_ROWS_JSON);
    if (options->html != NULL && code == 0)
        code = sim_cli_write_sweep_page(options, &merge->rows);
    if (code != 0)
        return code;
    if (merge->n_twice > 0)
        base_log(BASE_LOG_WARN, "merge: %" PRIu64 " rows are in two files; each counts once",
                 merge->n_twice);
    if (!is_stdout(options->csv) && !is_stdout(options->json) && !is_stdout(options->html)) {
        sim_sweep_print_best(&merge->rows, N_BEST, stdout);
        if (merge->n_missing > 0) {
            printf("\nMISSING: %" PRIu64 " of %" PRIu64 " layouts: ", merge->n_missing,
                   merge->n_layouts);
            sim_sweep_print_missing(merge, MAX_RANGES, stdout);
            fputc('\n', stdout);
        }
    }
    if (merge->n_missing > 0)
        base_log(BASE_LOG_WARN, "merge: %" PRIu64 " of %" PRIu64 " layouts are missing",
                 merge->n_missing, merge->n_layouts);
    return merge->n_missing > 0 ? CODE_MISSING : 0;
}

int sim_cmd_merge(int argc, char **argv)
{
    sim_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        sim_sweep_merge_t merge;
        base_err_t err;
        base_status_t status = sim_sweep_merge(options.operands, options.n_operands, &merge, &err);
        if (status == BASE_OK) {
            code = report(&options, &merge);
            sim_sweep_merge_fini(&merge);
        } else {
            base_log(BASE_LOG_ERROR, "merge: %s", err.text);
            code = base_err_exit_code(status);
        }
    }
    sim_options_fini(&options);
    return code;
}
