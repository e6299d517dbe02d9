/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/ranklist.h"
#include "sim/base/xmem.h"
#include "sim/cli/command.h"
#include "sim/cli/launcher.h"
#include "sim/cli/load.h"
#include "sim/cli/placing.h"
#include "sim/cli/progress.h"
#include "sim/cli/run_files.h"
#include "sim/cli/terminal.h"
#include "sim/engine/real.h"
#include "sim/engine/record.h"
#include "sim/report/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const sim_option_t own[] = {
    { "perfetto", 0, "FILE", SIM_OPTION_TEXT, offsetof(sim_options_t, perfetto),
      "write a trace for ui.perfetto.dev: passes, messages and memory by time" },
    { "snapshot", 0, "DIR", SIM_OPTION_TEXT, offsetof(sim_options_t, snapshot),
      "write a PyTorch memory snapshot of every rank to DIR" },
};

static const sim_usage_t usage = {
    .command = "run",
    .own = own,
    .n_own = sizeof(own) / sizeof(own[0]),
    .arguments = "SCENARIO.ini",
    .about = "Simulate one training job and report what every GPU holds at its worst moment.",
    .groups = SIM_OPTIONS_SIMULATE | SIM_OPTIONS_HTML | SIM_OPTIONS_BIND | SIM_OPTIONS_MODE,
    .min_operands = 1,
    .max_operands = 1,
};

/* The text goes to standard output unless a file took that place. */
static int write_report(const sim_report_t *report, const sim_options_t *options)
{
    bool is_out_of_memory = report->verdict.n_out_of_memory > 0 ||
                            (report->real != NULL && sim_real_n_out_of_memory(report->real) > 0);
    int code = sim_cli_write_run_files(report, options);
    if (code == 0 && !sim_cli_run_takes_stdout(options))
        sim_report_text(report, stdout);
    if (code != 0)
        return code;
    return is_out_of_memory ? 3 : 0;
}

static int fail(const base_err_t *err)
{
    base_log(BASE_LOG_ERROR, "%s", err->text);
    return base_err_exit_code(err->status);
}

static int report(const sim_scenario_t *scenario, const sim_job_t *job, const sim_real_t *real,
                  const sim_options_t *options, const bool *is_skipped,
                  const coll_placement_t *placement)
{
    const char *path = options->operands[0];
    base_err_t err;
    sim_report_t report;
    if (sim_report_init(&report, scenario, job, strcmp(path, "-") == 0 ? "standard input" : path,
                        is_skipped, &err) != BASE_OK)
        return fail(&err);
    report.real = real;
    report.is_verbose = options->verbose > 0;
    report.is_coloured = sim_terminal_has_colour();
    report.columns = sim_terminal_columns();
    report.placement = placement;
    int code = write_report(&report, options);
    sim_report_fini(&report);
    return code;
}

/* Every process writes the snapshots of its own GPUs. */
static int write_snapshots(const sim_scenario_t *scenario, const coll_world_t *world,
                           const sim_options_t *options, const bool *is_skipped)
{
    const char *dir = options->snapshot;
    base_err_t err;
    sim_progress_t progress;
    sim_progress_init(&progress, options, "run", "ranks written");
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        base_log(BASE_LOG_ERROR, "run: --snapshot: %s: %s", dir, strerror(errno));
        return 1;
    }
    for (uint32_t rank = 0; rank < scenario->grid.world_size; rank++) {
        bool is_mine = coll_world_owner(world, rank) == coll_world_process(world);
        if (!is_mine || (is_skipped != NULL && is_skipped[rank]))
            continue;
        uint64_t bytes;
        char *path = base_xasprintf("%s/rank-%05u.pickle", dir, rank);
        base_status_t status = sim_record_rank(scenario, rank, path, &bytes, &err);
        if (status == BASE_OK)
            base_log(BASE_LOG_INFO, "%s: %" PRIu64 " bytes", path, bytes);
        free(path);
        if (status != BASE_OK) {
            sim_progress_end(&progress);
            return fail(&err);
        }
        sim_progress_show(rank + 1, scenario->grid.world_size, &progress);
    }
    sim_progress_end(&progress);
    return 0;
}

/* All processes play; process 0 has the results. On real memory the messages are sent when that is
 * played, and the model's part, which takes little, is played by each process alone. */
static base_status_t play_job(const sim_scenario_t *scenario, const sim_job_options_t *options,
                              sim_job_t *job, sim_real_t *real, base_err_t *err)
{
    coll_world_t *world = sim_launcher_world();
    if (scenario->backend == SIM_BACKEND_SYNTHETIC)
        return sim_job_play_together(scenario, world, options, job, err);
    base_status_t status = sim_job_play(scenario, options, job, err);
    if (status != BASE_OK)
        return status;
    status = sim_real_play(scenario, world, job, options, real, err);
    if (status != BASE_OK)
        sim_job_fini(job);
    return status;
}

/* `placement` is where the processes were bound before, NULL = nowhere; with backend = cuda they
 * are bound when their GPUs are known. */
static int play(const sim_scenario_t *scenario, const sim_options_t *options,
                const bool *is_skipped, const coll_placement_t *placement)
{
    base_err_t err;
    sim_job_t job;
    sim_real_t real = { 0 };
    sim_progress_t progress;
    sim_progress_init(&progress, options, "run", "kinds of rank");
    sim_job_options_t job_options = { .is_skipped = is_skipped,
                                      .progress = sim_progress_show,
                                      .progress_arg = &progress,
                                      .bind = sim_cli_bind(options, COLL_BIND_TRY) };
    coll_world_t *world = sim_launcher_world();
    bool is_real = scenario->backend != SIM_BACKEND_SYNTHETIC;
    base_status_t status = play_job(scenario, &job_options, &job, &real, &err);
    sim_progress_end(&progress);
    if (status != BASE_OK)
        return fail(&err);
    int code = 0;
    if (real.placement.n > 0) {
        placement = &real.placement;
        sim_cli_warn_unbound(usage.command, placement);
        sim_cli_warn_split(scenario, placement);
    }
    if (coll_world_process(world) == 0)
        code = report(scenario, &job, is_real ? &real : NULL, options, is_skipped, placement);
    sim_job_fini(&job);
    sim_real_fini(&real);
    if (options->snapshot == NULL || (code != 0 && code != 3))
        return code;
    int failed = write_snapshots(scenario, world, options, is_skipped);
    return failed != 0 ? failed : code;
}

/* *is_skipped_p: which ranks --ranks leaves out, NULL without it; the caller frees. */
static int select_ranks(const sim_scenario_t *scenario, const sim_options_t *options,
                        bool **is_skipped_p)
{
    *is_skipped_p = NULL;
    if (options->ranks == NULL)
        return 0;
    uint32_t n = scenario->grid.world_size;
    base_ranklist_t list;
    base_err_t err;
    if (base_ranklist_parse(options->ranks, n, &list, &err) != BASE_OK) {
        base_log(BASE_LOG_ERROR, "run: --ranks: %s", err.text);
        return 2;
    }
    bool *is_skipped = base_xcalloc(n, sizeof(*is_skipped));
    memset(is_skipped, true, n * sizeof(*is_skipped));
    for (size_t i = 0; i < list.n; i++)
        is_skipped[list.ranks[i]] = false;
    base_ranklist_fini(&list);
    *is_skipped_p = is_skipped;
    return 0;
}

/* What shows an allocator's blocks has nothing to show without one. */
static int check_mode(const sim_scenario_t *scenario, const sim_options_t *options)
{
    const char *option = options->html != NULL       ? "html"
                         : options->perfetto != NULL ? "perfetto"
                         : options->snapshot != NULL ? "snapshot"
                                                     : NULL;
    if (scenario->mode != SIM_MODE_LIVE || option == NULL)
        return 0;
    base_log(BASE_LOG_ERROR, "run: --%s shows what an allocator holds; mode live has none", option);
    return 2;
}

static int share_gpus(uint32_t n_gpus)
{
    base_err_t err;
    if (coll_world_set_gpus(sim_launcher_world(), n_gpus, &err) == BASE_OK)
        return 0;
    base_log(BASE_LOG_ERROR, "run: %s", err.text);
    return 2;
}

/* Bind, when that is asked for, and play. */
static int place_and_play(const sim_scenario_t *scenario, const sim_options_t *options,
                          const bool *is_skipped)
{
    coll_bind_t bind = sim_cli_bind(options, COLL_BIND_NONE);
    coll_placement_t placement = { .n = 0 };
    int code = 0;
    if (bind != COLL_BIND_NONE && scenario->backend != SIM_BACKEND_CUDA)
        code = sim_cli_place(usage.command, bind, &placement);
    if (code != 0)
        return code;
    if (placement.n > 0)
        sim_cli_warn_split(scenario, &placement);
    code = play(scenario, options, is_skipped, placement.n > 0 ? &placement : NULL);
    coll_placement_fini(&placement);
    return code;
}

int sim_cmd_run(int argc, char **argv)
{
    sim_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        sim_scenario_t scenario;
        bool *is_skipped = NULL;
        code = sim_cli_load_everywhere(options.operands[0], &options, &scenario);
        if (code == 0)
            code = check_mode(&scenario, &options);
        if (code == 0)
            code = share_gpus(scenario.grid.world_size);
        if (code == 0)
            code = select_ranks(&scenario, &options, &is_skipped);
        if (code == 0) {
            sim_cli_warn_sweep(&scenario, usage.command);
            code = place_and_play(&scenario, &options, is_skipped);
        }
        free(is_skipped);
        sim_scenario_fini(&scenario);
    }
    sim_options_fini(&options);
    return code;
}
