/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/infile.h"
#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/load.h"
#include "sim/cli/page_file.h"
#include "sim/study/diff.h"
#include "sim/study/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_REPORT_BYTES = 512 << 20 };

typedef struct {
    sim_options_t common;
    sim_text_list_t sets_b;
    const char *rank;
} diff_options_t;

#define FIELD(name) offsetof(diff_options_t, name)

static const sim_option_t own[] = {
    { "set-b", 0, "SECTION.KEY=VALUE", SIM_OPTION_LIST, FIELD(sets_b),
      "set a key of the second scenario only; may be repeated" },
    { "rank", 0, "N", SIM_OPTION_TEXT, FIELD(rank),
      "compare rank N of both instead of the worst of each" },
};

static const sim_usage_t usage = {
    .command = "diff",
    .arguments = "A B",
    .about =
        "What changed between two scenarios or two reports saved by --json: the keys, then the\n"
        "worst rank and every rank, by category, module and moment. Differences are B less A\n"
        "and add up exactly. A scenario that does not fit is played on a device without end.",
    .groups = SIM_OPTIONS_SET | SIM_OPTIONS_JSON | SIM_OPTIONS_HTML,
    .own = own,
    .n_own = sizeof(own) / sizeof(own[0]),
    .min_operands = 2,
    .max_operands = 2,
};

static int fail(const base_err_t *err)
{
    base_log(BASE_LOG_ERROR, "diff: %s", err->text);
    return base_err_exit_code(err->status);
}

static int read_scenario(const char *path, const sim_options_t *options, json_t **report_p)
{
    sim_scenario_t scenario;
    base_err_t err;
    int code = sim_cli_load(path, options, &scenario);
    if (code == 0) {
        sim_cli_warn_sweep(&scenario, usage.command);
        if (sim_diff_simulate(&scenario, path, report_p, &err) != BASE_OK)
            code = fail(&err);
    }
    sim_scenario_fini(&scenario);
    return code;
}

/* A report begins with a brace, which no scenario does. */
static int read_side(const char *path, const sim_options_t *options, json_t **report_p)
{
    char *text;
    size_t length;
    base_err_t err;
    if (base_infile_read(path, MAX_REPORT_BYTES, &text, &length, &err) != BASE_OK)
        return fail(&err);
    int code = 0;
    if (text[strspn(text, " \t\r\n")] != '{')
        code = read_scenario(path, options, report_p);
    else if (sim_diff_parse(path, text, length, report_p, &err) != BASE_OK) {
        fail(&err);
        code = 2;
    }
    free(text);
    return code;
}

/* --set of both, then --set-b. */
static const char **join(const sim_text_list_t *a, const sim_text_list_t *b)
{
    const char **all = base_xcalloc(a->n + b->n, sizeof(*all));
    for (size_t i = 0; i < a->n + b->n; i++)
        all[i] = i < a->n ? a->text[i] : b->text[i - a->n];
    return all;
}

static int read_both(const diff_options_t *o, json_t *reports[static 2])
{
    int code = read_side(o->common.operands[0], &o->common, &reports[0]);
    if (code != 0)
        return code;
    sim_options_t options_b = o->common;
    const char **sets = join(&o->common.sets, &o->sets_b);
    options_b.sets = (sim_text_list_t){ .text = sets, .n = o->common.sets.n + o->sets_b.n };
    code = read_side(o->common.operands[1], &options_b, &reports[1]);
    free(sets);
    return code;
}

static int write_page(const sim_options_t *options, const json_t *diff)
{
    char *command = sim_cli_command_text(options), *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (out != NULL) {
        sim_diff_text(diff, out);
        fclose(out);
    }
    int code = sim_cli_write_page(options, sim_page_diff(diff, command), text != NULL ? text : "");
    free(command);
    free(text);
    return code;
}

static bool is_stdout(const char *path)
{
    return path != NULL && strcmp(path, "-") == 0;
}

static int report(const diff_options_t *o, json_t *reports[static 2], int64_t rank)
{
    json_t *diff;
    base_err_t err;
    const char *json = o->common.json;
    if (sim_diff_compare(reports[0], reports[1], rank, &diff, &err) != BASE_OK)
        return fail(&err);
    if (!is_stdout(json) && !is_stdout(o->common.html))
        sim_diff_text(diff, stdout);
    int code = o->common.html != NULL ? write_page(&o->common, diff) : 0;
    if (json != NULL && code == 0)
        code = sim_cli_write_json(json, json_incref(diff));
    json_decref(diff);
    return code;
}

static int diff(const diff_options_t *o)
{
    uint64_t rank = 0;
    if (o->rank != NULL && (!base_u64_parse(o->rank, &rank) || rank > UINT32_MAX)) {
        base_log(BASE_LOG_ERROR, "diff: --rank %.40s: a rank was expected", o->rank);
        return 2;
    }
    json_t *reports[2] = { NULL, NULL };
    int code = read_both(o, reports);
    if (code == 0)
        code = report(o, reports, o->rank != NULL ? (int64_t)rank : SIM_DIFF_WORST);
    json_decref(reports[0]);
    json_decref(reports[1]);
    return code;
}

int sim_cmd_diff(int argc, char **argv)
{
    diff_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON)
        code = diff(&options);
    free(options.sets_b.text);
    sim_options_fini(&options.common);
    return code;
}
