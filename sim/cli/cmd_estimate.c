/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/load.h"
#include "sim/study/estimate_report.h"

#include <stdio.h>
#include <string.h>

static const sim_usage_t usage = {
    .command = "estimate",
    .arguments = "SCENARIO.ini",
    .about = "Megatron-LM's and Megatron-Bridge's closed-form estimators beside the simulation,\n"
             "component by component, for the GPU that allocates most.",
    .groups = SIM_OPTIONS_SET | SIM_OPTIONS_JSON,
    .min_operands = 1,
    .max_operands = 1,
};

static int estimate(const sim_scenario_t *scenario, const sim_options_t *options)
{
    sim_estimate_report_t report;
    base_err_t err;
    const char *path = options->operands[0];
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    base_status_t status = sim_estimate_report_init(&report, scenario, &err);
    if (status != BASE_OK) {
        base_log(BASE_LOG_ERROR, "%s", err.text);
        return base_err_exit_code(status);
    }
    int code = 0;
    if (options->json != NULL)
        code = sim_cli_write_json(options->json, sim_estimate_report_json(&report, name));
    if (code == 0 && (options->json == NULL || strcmp(options->json, "-") != 0))
        sim_estimate_report_text(&report, name, stdout);
    sim_estimate_report_fini(&report);
    return code;
}

int sim_cmd_estimate(int argc, char **argv)
{
    sim_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        sim_scenario_t scenario;
        code = sim_cli_load(options.operands[0], &options, &scenario);
        if (code == 0) {
            sim_cli_warn_sweep(&scenario, usage.command);
            code = estimate(&scenario, &options);
        }
        sim_scenario_fini(&scenario);
    }
    sim_options_fini(&options);
    return code;
}
