/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/infile.h"
#include "sim/base/log.h"
#include "sim/base/outfile.h"
#include "sim/base/xmem.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/options.h"
#include "sim/study/validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CORPUS_BYTES = 256 << 20 };
enum { MAX_CORPORA = 100, CODE_MISSED = 4 };

typedef struct {
    sim_options_t common;
    sim_text_list_t filters;
    const char *max_median, *max_p90, *scenarios;
} validate_options_t;

#define FIELD(name) offsetof(validate_options_t, name)

static const sim_option_t own[] = {
    { "filter", 0, "KEY=GLOB", SIM_OPTION_LIST, FIELD(filters),
      "only records whose field KEY matches (KEY!=GLOB: does not)" },
    { "max-median", 0, "PCT", SIM_OPTION_TEXT, FIELD(max_median),
      "exit 4 when the median error of the peak is larger" },
    { "max-p90", 0, "PCT", SIM_OPTION_TEXT, FIELD(max_p90),
      "exit 4 when nine tenths of the errors are not below" },
    { "scenarios", 0, "DIR", SIM_OPTION_TEXT, FIELD(scenarios),
      "write the scenario of every record to DIR" },
};

static const sim_usage_t usage = {
    .command = "validate",
    .arguments = "CORPUS.jsonl",
    .about =
        "Compare measured runs with the closed-form estimators and with the simulation, on the\n"
        "rank on which each was measured. A corpus has one JSON object a line. KEY of --filter\n"
        "is a path into it, such as family, gpu, model.type or parallel.cp. With -v every\n"
        "record is listed.",
    .groups = SIM_OPTIONS_JSON | SIM_OPTIONS_CSV,
    .own = own,
    .n_own = sizeof(own) / sizeof(own[0]),
    .min_operands = 1,
    .max_operands = MAX_CORPORA,
};

static bool parse_percent(const char *option, const char *text, double *percent_p)
{
    char *end;
    *percent_p = text != NULL ? strtod(text, &end) : INFINITY;
    if (text == NULL || (*text != '\0' && *end == '\0' && *percent_p >= 0))
        return true;
    base_log(BASE_LOG_ERROR, "validate: --%s %s: a percentage was expected", option, text);
    return false;
}

static int write_csv(const char *path, const sim_comparisons_t *comparisons)
{
    base_outfile_t *out;
    base_err_t err;
    base_status_t status = base_outfile_open(path, &out, &err);
    if (status == BASE_OK) {
        sim_validate_csv(comparisons, base_outfile_stream(out));
        status = base_outfile_commit(out, &err);
    }
    if (status != BASE_OK)
        base_log(BASE_LOG_ERROR, "%s", err.text);
    return base_err_exit_code(status);
}

static int check_thresholds(const sim_comparisons_t *comparisons, double max_median, double max_p90)
{
    sim_error_stats_t peak = sim_validate_summary(comparisons, NULL).peak;
    int code = 0;
    if (isinf(max_median) && isinf(max_p90))
        return 0;
    if (peak.n == 0) {
        base_log(BASE_LOG_ERROR, "validate: no record to hold against the threshold");
        return CODE_MISSED;
    }
    if (peak.median > max_median) {
        base_log(BASE_LOG_ERROR, "validate: median error %.2f %% is above %g %%", peak.median,
                 max_median);
        code = CODE_MISSED;
    }
    if (peak.p90 > max_p90) {
        base_log(BASE_LOG_ERROR, "validate: 90th percentile of the errors %.2f %% is above %g %%",
                 peak.p90, max_p90);
        code = CODE_MISSED;
    }
    return code;
}

static int report(const validate_options_t *options, const sim_comparisons_t *comparisons)
{
    const char *json = options->common.json, *csv = options->common.csv;
    int code = 0;
    bool to_stdout =
        (json != NULL && strcmp(json, "-") == 0) || (csv != NULL && strcmp(csv, "-") == 0);
    if (!to_stdout)
        sim_validate_print(comparisons, options->common.verbose > 0, stdout);
    if (json != NULL)
        code = sim_cli_write_json(json, sim_validate_json(comparisons));
    if (csv != NULL && code == 0)
        code = write_csv(csv, comparisons);
    return code;
}

static int run(const validate_options_t *options, const sim_validate_options_t *study,
               double max_median, double max_p90)
{
    sim_comparisons_t comparisons = { 0 };
    base_err_t err;
    int code = 0;
    for (size_t i = 0; i < options->common.n_operands && code == 0; i++) {
        const char *path = options->common.operands[i];
        char *text = NULL;
        size_t length = 0;
        base_status_t status = base_infile_read(path, MAX_CORPUS_BYTES, &text, &length, &err);
        if (status == BASE_OK)
            status = sim_validate(path, text, length, study, &comparisons, &err);
        free(text);
        if (status != BASE_OK) {
            base_log(BASE_LOG_ERROR, "%s", err.text);
            code = base_err_exit_code(status);
        }
    }
    if (code == 0 && comparisons.n == 0) {
        base_log(BASE_LOG_ERROR, "validate: no record%s",
                 study->n_filters > 0 ? " passes the filters" : "");
        code = 2;
    }
    if (code == 0)
        code = report(options, &comparisons);
    if (code == 0)
        code = check_thresholds(&comparisons, max_median, max_p90);
    sim_comparisons_fini(&comparisons);
    return code;
}

static int validate(const validate_options_t *options)
{
    double max_median, max_p90;
    if (!parse_percent("max-median", options->max_median, &max_median) ||
        !parse_percent("max-p90", options->max_p90, &max_p90))
        return 2;
    size_t n = options->filters.n, parsed = 0;
    sim_record_filter_t *filters = base_xcalloc(n, sizeof(*filters));
    while (parsed < n && sim_record_filter_parse(options->filters.text[parsed], &filters[parsed]))
        parsed++;
    int code = 2;
    if (parsed < n)
        base_log(BASE_LOG_ERROR, "validate: --filter %s: KEY=GLOB was expected",
                 options->filters.text[parsed]);
    else
        code = run(options, &(sim_validate_options_t){ filters, n, options->scenarios }, max_median,
                   max_p90);
    for (size_t i = 0; i < parsed; i++)
        sim_record_filter_fini(&filters[i]);
    free(filters);
    return code;
}

int sim_cmd_validate(int argc, char **argv)
{
    validate_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON)
        code = validate(&options);
    free(options.filters.text);
    sim_options_fini(&options.common);
    return code;
}
