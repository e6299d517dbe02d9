/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/load.h"

#include "sim/base/digest.h"
#include "sim/base/infile.h"
#include "sim/base/log.h"
#include "sim/cli/launcher.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SCENARIO_BYTES = 16 << 20 };

void sim_cli_print_diag(const base_diag_t *diag)
{
    if (sim_launcher_rank() != 0)
        return;
    for (size_t i = 0; i < diag->n; i++)
        fprintf(stderr, "%s\n", diag->text[i]);
    if (diag->n_dropped > 0)
        fprintf(stderr, "and %zu more\n", diag->n_dropped);
}

/* Everything but reading; false when something was wrong. */
static bool fill(sim_scenario_t *scenario, const char *name, const char *text, size_t length,
                 const sim_options_t *options, bool resolves, base_diag_t *diag)
{
    bool ok = sim_scenario_read(scenario, name, text, length, diag);
    if (scenario->n_settings == 0)
        return false; /* not a scenario at all: what else is missing would only hide that */
    for (size_t i = 0; i < options->sets.n; i++)
        ok = sim_scenario_set_text(scenario, options->sets.text[i], "--set", diag) && ok;
    if (options->mode != NULL)
        ok = sim_scenario_set(scenario, "run", "mode", options->mode, "--mode", diag) && ok;
    return (!resolves || sim_scenario_resolve(scenario, diag)) && ok;
}

static int load_here(const char *path, const sim_options_t *options, bool resolves,
                     sim_scenario_t *scenario)
{
    char *text;
    size_t length;
    base_err_t err;
    if (base_infile_read(path, MAX_SCENARIO_BYTES, &text, &length, &err) != BASE_OK) {
        base_log(BASE_LOG_ERROR, "%s", err.text);
        return 2;
    }
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    base_diag_t diag;
    base_diag_init(&diag);
    bool ok = fill(scenario, name, text, length, options, resolves, &diag);
    sim_cli_print_diag(&diag);
    base_diag_fini(&diag);
    free(text);
    return ok ? 0 : 2;
}

/* Every command but run plays on the synthetic device. */
static void warn_backend(const sim_scenario_t *scenario)
{
    static const char *const names[] = { [SIM_BACKEND_HOST] = "host", [SIM_BACKEND_CUDA] = "cuda" };
    if (scenario->backend != SIM_BACKEND_SYNTHETIC)
        base_log(BASE_LOG_WARN,
                 "device.backend = %s is for mbsim run alone; the synthetic device takes its place",
                 names[scenario->backend]);
}

int sim_cli_load(const char *path, const sim_options_t *options, sim_scenario_t *scenario_p)
{
    sim_scenario_init(scenario_p);
    int code = load_here(path, options, true, scenario_p);
    if (code == 0)
        warn_backend(scenario_p);
    if (code == 0 && scenario_p->mode == SIM_MODE_LIVE) {
        base_log(BASE_LOG_ERROR,
                 "%s: run.mode: live is for mbsim run and mbsim sweep; this needs an allocator",
                 path);
        code = 2;
    }
    return code;
}

int sim_cli_read(const char *path, const sim_options_t *options, sim_scenario_t *scenario_p)
{
    sim_scenario_init(scenario_p);
    int code = load_here(path, options, false, scenario_p);
    if (code == 0)
        warn_backend(scenario_p);
    return code;
}

/* Does this process understand what process 0 has sent as process 0 does? Everybody together. */
static int agree(const sim_scenario_t *scenario, bool is_understood)
{
    char digest[32] = "not at all";
    base_err_t err;
    if (is_understood) {
        char *text = sim_scenario_text(scenario);
        snprintf(digest, sizeof(digest), "as %016" PRIx64, base_digest(text, strlen(text)));
        free(text);
    }
    if (coll_world_compare(sim_launcher_world(), "understands the scenario", digest, &err) ==
        BASE_OK)
        return 0;
    base_log(BASE_LOG_ERROR, "%s: do they run the same mbsim?", err.text);
    return 1;
}

int sim_cli_load_everywhere(const char *path, const sim_options_t *options,
                            sim_scenario_t *scenario_p)
{
    coll_world_t *world = sim_launcher_world();
    char *text = NULL;
    size_t length = 0;
    int code = 0;
    sim_scenario_init(scenario_p);
    if (coll_world_process(world) == 0) {
        code = load_here(path, options, true, scenario_p);
        text = code == 0 ? sim_scenario_text(scenario_p) : NULL;
        length = text != NULL ? strlen(text) : 0;
    }
    coll_world_broadcast(world, &text, &length);
    if (text == NULL)
        return 2;
    bool is_understood = code == 0;
    if (coll_world_process(world) != 0) {
        base_diag_t diag;
        base_diag_init(&diag);
        is_understood = sim_scenario_read(scenario_p, path, text, length, &diag) &&
                        sim_scenario_resolve(scenario_p, &diag);
        base_diag_fini(&diag);
    }
    free(text);
    return agree(scenario_p, is_understood);
}

void sim_cli_warn_sweep(const sim_scenario_t *scenario, const char *command)
{
    if (scenario->n_sweep > 0)
        base_log(BASE_LOG_WARN, "%s: [sweep] is left out by mbsim %s; mbsim sweep plays it",
                 scenario->sweep[0].origin, command);
}
