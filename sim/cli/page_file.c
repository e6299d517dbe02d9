/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/page_file.h"

#include "sim/base/log.h"
#include "sim/base/outfile.h"
#include "sim/base/xmem.h"
#include "sim/report/page.h"
#include "sim/study/pages.h"
#include "sim/study/sweep_summary.h"

#include <stdlib.h>
#include <string.h>

static bool is_plain(const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
    return *word != '\0' && word[strspn(word, plain)] == '\0';
}

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

char *sim_cli_command_text(const sim_options_t *options)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return base_xstrdup("mbsim");
    fputs("mbsim", out);
    for (int i = 0; i < options->argc; i++)
        put_word(out, options->argv[i]);
    fclose(out);
    return text;
}

int sim_cli_write_page(const sim_options_t *options, json_t *page, const char *text)
{
    base_outfile_t *out;
    base_err_t err;
    base_status_t status = base_outfile_open(options->html, &out, &err);
    if (status == BASE_OK) {
        sim_page_write(page, text, base_outfile_stream(out));
        status = base_outfile_commit(out, &err);
    }
    json_decref(page);
    if (status != BASE_OK)
        base_log(BASE_LOG_ERROR, "%s", err.text);
    return base_err_exit_code(status);
}

int sim_cli_write_sweep_page(const sim_options_t *options, const sim_sweep_rows_t *rows)
{
    enum { N_BEST = 50 };
    char *command = sim_cli_command_text(options), *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out != NULL) {
        sim_sweep_print_best(rows, N_BEST, out);
        fclose(out);
    }
    int code = sim_cli_write_page(options, sim_page_sweep(rows, options->operands[0], command),
                                  text != NULL ? text : "");
    free(command);
    free(text);
    return code;
}
