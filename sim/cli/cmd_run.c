/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/ranklist.h"
#include "sim/cli/command.h"
#include "sim/cli/launcher.h"
#include "sim/cli/load.h"

#include <stdio.h>
#include <stdlib.h>

static const sim_usage_t usage = {
    .command = "run",
    .arguments = "SCENARIO.ini",
    .about = "Simulate one training job and report what every GPU holds at its worst moment.",
    .groups = SIM_OPTIONS_SIMULATE,
    .min_operands = 1,
    .max_operands = 1,
};

static int check_ranks(const sim_options_t *options, uint32_t world_size)
{
    base_ranklist_t list = { 0 };
    base_err_t err;
    if (options->ranks != NULL &&
        base_ranklist_parse(options->ranks, world_size, &list, &err) != BASE_OK) {
        base_log(BASE_LOG_ERROR, "run: --ranks: %s", err.text);
        return 2;
    }
    base_ranklist_fini(&list);
    return 0;
}

static int share_gpus(uint32_t n_gpus)
{
    base_err_t err;
    if (coll_world_set_gpus(sim_launcher_world(), n_gpus, &err) == BASE_OK)
        return 0;
    base_log(BASE_LOG_ERROR, "run: %s", err.text);
    return 2;
}

int sim_cmd_run(int argc, char **argv)
{
    sim_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        sim_scenario_t scenario;
        code = sim_cli_load_everywhere(options.operands[0], &options, &scenario);
        if (code == 0)
            code = share_gpus((uint32_t)scenario.world_size);
        if (code == 0)
            code = check_ranks(&options, (uint32_t)scenario.world_size);
        if (code == 0) {
            sim_cli_warn_sweep(&scenario, usage.command);
            char *text = sim_scenario_text(&scenario);
            fputs(text, stdout);
            free(text);
        }
        sim_scenario_fini(&scenario);
    }
    sim_options_fini(&options);
    return code;
}
