/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/run_files.h"

#include "sim/base/log.h"
#include "sim/base/outfile.h"
#include "sim/base/xmem.h"
#include "sim/cli/json_file.h"
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

/* ---- the page ---- */

static bool is_plain(const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
    return *word != '\0' && word[strspn(word, plain)] == '\0';
}

/* One word as a shell reads it back. */
static void put_word(FILE *out, const char *word)
{
    fputc(' ', out);
    if (is_plain(word)) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (const char *s = word; *s != '\0'; s++) {
        if (*s == '\'')
            fputs("'\\''", out);
        else
            fputc(*s, out);
    }
    fputc('\'', out);
}

/* What the page says of itself; the caller frees. */
static char *command_text(const sim_options_t *options)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return base_xstrdup("mbsim run");
    fputs("mbsim run", out);
    put_word(out, options->operands[0]);
    for (size_t i = 0; i < options->sets.n; i++) {
        fputs(" --set", out);
        put_word(out, options->sets.text[i]);
    }
    if (options->ranks != NULL) {
        fputs(" --ranks", out);
        put_word(out, options->ranks);
    }
    fputs(" --html", out);
    put_word(out, options->html);
    fclose(out);
    return text;
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
    base_outfile_t *out;
    json_t *page = NULL;
    char *command = command_text(options);
    base_status_t status = sim_page_run(report, command, &page, &err);
    free(command);
    if (status == BASE_OK)
        status = base_outfile_open(options->html, &out, &err);
    if (status == BASE_OK) {
        char *text = report_text(report);
        sim_page_write(page, text, base_outfile_stream(out));
        free(text);
        status = base_outfile_commit(out, &err);
    }
    json_decref(page);
    return end(status, &err);
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
