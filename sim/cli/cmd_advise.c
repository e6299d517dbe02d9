/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/load.h"
#include "sim/study/advise.h"

#include <stdio.h>
#include <string.h>

enum { MARGIN_DIVISOR = 100, CODE_OUT_OF_MEMORY = 3 };

typedef struct {
    sim_options_t common;
    const char *margin;
    bool more_gpus;
} advise_options_t;

#define FIELD(name) offsetof(advise_options_t, name)

static const sim_option_t own[] = {
    { "margin", 0, "SIZE", SIM_OPTION_TEXT, FIELD(margin),
      "headroom to reach; default a hundredth of the device" },
    { "more-gpus", 0, NULL, SIM_OPTION_FLAG, FIELD(more_gpus),
      "changes that need more GPUs may be chosen" },
};

static const sim_usage_t usage = {
    .command = "advise",
    .arguments = "SCENARIO.ini",
    .about = "The cheapest changes that make a job fit, in order, with what each saves and costs.\n"
             "Every change, alone and together, is simulated. The exit code is 3 when none helps.",
    .groups = SIM_OPTIONS_SET | SIM_OPTIONS_JSON,
    .own = own,
    .n_own = sizeof(own) / sizeof(own[0]),
    .min_operands = 1,
    .max_operands = 1,
};

static int advise(const sim_scenario_t *scenario, const advise_options_t *o)
{
    sim_advice_t advice;
    base_err_t err;
    const char *path = o->common.operands[0], *json = o->common.json;
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    uint64_t margin_bytes = scenario->memory_bytes / MARGIN_DIVISOR;
    if (o->margin != NULL && !base_bytes_parse(o->margin, &margin_bytes)) {
        base_log(BASE_LOG_ERROR, "advise: --margin %.40s: a size such as 2GiB was expected",
                 o->margin);
        return 2;
    }
    base_status_t status = sim_advise(scenario, margin_bytes, o->more_gpus, &advice, &err);
    if (status != BASE_OK) {
        base_log(BASE_LOG_ERROR, "%s", err.text);
        return base_err_exit_code(status);
    }
    int code = 0;
    if (json != NULL)
        code = sim_cli_write_json(json, sim_advice_json(&advice, name));
    if (code == 0 && (json == NULL || strcmp(json, "-") != 0))
        sim_advice_text(&advice, name, stdout);
    if (code == 0 && !advice.fits_already && !advice.fits_after)
        code = CODE_OUT_OF_MEMORY;
    sim_advice_fini(&advice);
    return code;
}

int sim_cmd_advise(int argc, char **argv)
{
    advise_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        sim_scenario_t scenario;
        code = sim_cli_load(options.common.operands[0], &options.common, &scenario);
        if (code == 0) {
            sim_cli_warn_sweep(&scenario, usage.command);
            code = advise(&scenario, &options);
        }
        sim_scenario_fini(&scenario);
    }
    sim_options_fini(&options.common);
    return code;
}
