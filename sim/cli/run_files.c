/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/run_files.h"

#include "sim/base/log.h"
#include "sim/base/outfile.h"
#include "sim/base/xmem.h"
#include "sim/cli/json_file.h"
#include "sim/cli/page_file.h"
#include "sim/cli/progress.h"
#include "sim/report/page.h"
#include "sim/report/perfetto.h"

#include <stdlib.h>
#include <string.h>

static int end(base_status_t status, const base_err_t *err)
{
    if (status != BASE_OK)
        base_log(BASE_LOG_ERROR, "%s", err->text);
    return base_err_exit_code(status);
}

static int write_csv(const char *path, const sim_report_t *report)
{
    base_outfile_t *out;
    base_err_t err;
    base_status_t status = base_outfile_open(path, &out, &err);
    if (status == BASE_OK) {
        sim_report_csv(report, base_outfile_stream(out));
        status = base_outfile_commit(out, &err);
    }
    return end(status, &err);
}

static char *report_text(const sim_report_t *report)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return base_xstrdup("");
    sim_report_t plain = *report;
    plain.is_coloured = false;
    plain.columns = 0;
    sim_report_text(&plain, out);
    fclose(out);
    return text;
}

static int write_page(const sim_report_t *report, const sim_options_t *options)
{
    base_err_t err;
    json_t *page = NULL;
    char *command = sim_cli_command_text(options);
    sim_progress_t progress;
    sim_progress_init(&progress, options, "run", "timelines");
    sim_page_options_t page_options = { .command = command,
                                        .progress = sim_progress_show,
                                        .progress_arg = &progress };
    base_status_t status = sim_page_run(report, &page_options, &page, &err);
    sim_progress_end(&progress);
    free(command);
    if (status != BASE_OK)
        return end(status, &err);
    char *text = report_text(report);
    int code = sim_cli_write_page(options, page, text);
    free(text);
    return code;
}

static int write_trace(const char *path, const sim_report_t *report)
{
    base_outfile_t *out;
    base_err_t err;
    base_status_t status = base_outfile_open(path, &out, &err);
    if (status != BASE_OK)
        return end(status, &err);
    status = sim_perfetto_write(report, base_outfile_stream(out), &err);
    if (status == BASE_OK)
        status = base_outfile_commit(out, &err);
    else
        base_outfile_discard(out);
    return end(status, &err);
}

int sim_cli_write_run_files(const sim_report_t *report, const sim_options_t *options)
{
    int code = 0;
    if (options->json != NULL)
        code = sim_cli_write_json(options->json, sim_report_json(report));
    if (code == 0 && options->csv != NULL)
        code = write_csv(options->csv, report);
    if (code == 0 && options->html != NULL)
        code = write_page(report, options);
    if (code == 0 && options->perfetto != NULL)
        code = write_trace(options->perfetto, report);
    return code;
}

bool sim_cli_run_takes_stdout(const sim_options_t *options)
{
    const char *const paths[] = { options->json, options->csv, options->html, options->perfetto };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        if (paths[i] != NULL && strcmp(paths[i], "-") == 0)
            return true;
    }
    return false;
}
