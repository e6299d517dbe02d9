/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/cli/command.h"
#include "sim/cli/launcher.h"
#include "sim/cli/load.h"
#include "sim/cli/page_file.h"
#include "sim/cli/progress.h"
#include "sim/study/sweep.h"
#include "sim/study/sweep_summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_BEST = 10 };

typedef struct {
    sim_options_t common;
    const char *shard, *margin;
    bool resume, quick;
} sweep_cli_t;

#define FIELD(name) offsetof(sweep_cli_t, name)

static const sim_option_t own[] = {
    { "resume", 0, NULL, SIM_OPTION_FLAG, FIELD(resume),
      "go on with the rows that are in the file already" },
    { "shard", 0, "I/N", SIM_OPTION_TEXT, FIELD(shard),
      "every N-th layout only, I from 1 to N or from 0 to N-1 (N and 0 are the same); in a Slurm "
      "array the default is the task's" },
    { "quick", 0, NULL, SIM_OPTION_FLAG, FIELD(quick),
      "play the lowest rank of each pipeline stage only; ranks with other pieces of a distributed "
      "optimizer can need a little more" },
    { "margin", 0, "SIZE", SIM_OPTION_TEXT, FIELD(margin),
      "less headroom is a risk; default a hundredth of the device" },
};

static const sim_usage_t usage = {
    .command = "sweep",
    .arguments = "SCENARIO.ini",
    .about =
        "Simulate every legal layout of the [sweep] section. Its keys take lists (1 2 4), ranges\n"
        "(1..8, 8..64+8, 1..64*2) and, where they split a model over GPUs, auto. --csv and --json\n"
        "get a row a layout, each as soon as it is done (--json: one object a line), so that a\n"
        "sweep that was killed goes on with --resume. Under mpirun all processes take part.",
    .groups = SIM_OPTIONS_SET | SIM_OPTIONS_JSON | SIM_OPTIONS_CSV | SIM_OPTIONS_PROGRESS |
              SIM_OPTIONS_HTML | SIM_OPTIONS_MODE,
    .own = own,
    .n_own = sizeof(own) / sizeof(own[0]),
    .min_operands = 1,
    .max_operands = 1,
};

/* ---- options ---- */

static bool parse_shard(const char *text, sim_sweep_options_t *o)
{
    const char *slash = strchr(text, '/');
    uint64_t i, n;
    char *first = slash != NULL ? strndup(text, (size_t)(slash - text)) : NULL;
    bool ok = first != NULL && base_u64_parse(first, &i) && base_u64_parse(slash + 1, &n) &&
              n >= 1 && n <= SIM_LAYOUTS_MAX && i <= n;
    free(first);
    if (!ok) {
        base_log(BASE_LOG_ERROR,
                 "sweep: --shard %.40s: must be I/N, I from 1 to N (or from 0 to N-1)", text);
        return false;
    }
    o->shard = (uint32_t)(i % n);
    o->n_shards = (uint32_t)n;
    return true;
}

static bool get_number(const char *name, uint64_t *number_p)
{
    const char *text = getenv(name);
    return text != NULL && base_u64_parse(text, number_p);
}

/* A task of a Slurm array: its place among the tasks of the array, whatever they are numbered. */
static bool slurm_shard(sim_sweep_options_t *o)
{
    uint64_t id, count, first = 0, step = 1;
    if (!get_number("SLURM_ARRAY_TASK_ID", &id) || !get_number("SLURM_ARRAY_TASK_COUNT", &count))
        return true;
    get_number("SLURM_ARRAY_TASK_MIN", &first);
    get_number("SLURM_ARRAY_TASK_STEP", &step);
    uint64_t place = id >= first && step > 0 ? (id - first) / step : count;
    if (place >= count || count > SIM_LAYOUTS_MAX || (step > 0 && (id - first) % step != 0)) {
        base_log(BASE_LOG_ERROR,
                 "sweep: SLURM_ARRAY_TASK_ID %" PRIu64 " is not one of the array's %" PRIu64
                 " tasks in a row; say --shard I/N",
                 id, count);
        return false;
    }
    o->shard = (uint32_t)((place + 1) % count);
    o->n_shards = (uint32_t)count;
    return true;
}

static bool fill_options(const sweep_cli_t *cli, sim_sweep_options_t *o)
{
    const sim_options_t *c = &cli->common;
    *o = (sim_sweep_options_t){ .n_shards = 1,
                                .margin_bytes = SIM_SWEEP_MARGIN_DEFAULT,
                                .ranks = cli->quick ? SIM_RANKS_STAGES : SIM_RANKS_ALL,
                                .rows_path = c->csv != NULL ? c->csv : c->json,
                                .format = c->csv != NULL ? SIM_ROWS_CSV : SIM_ROWS_JSON,
                                .resumes = cli->resume };
    if (c->csv != NULL && c->json != NULL) {
        base_log(BASE_LOG_ERROR, "sweep: --csv or --json, not both");
        return false;
    }
    bool to_file = o->rows_path != NULL && strcmp(o->rows_path, "-") != 0;
    if (cli->resume && !to_file) {
        base_log(BASE_LOG_ERROR, "sweep: --resume needs --csv FILE or --json FILE");
        return false;
    }
    /* Nothing there yet: a first run may say --resume too, as a requeued job does. */
    if (cli->resume && access(o->rows_path, F_OK) != 0)
        o->resumes = false;
    if (cli->margin != NULL && !base_bytes_parse(cli->margin, &o->margin_bytes)) {
        base_log(BASE_LOG_ERROR, "sweep: --margin %.40s: a size such as 2GiB was expected",
                 cli->margin);
        return false;
    }
    return cli->shard != NULL ? parse_shard(cli->shard, o) : slurm_shard(o);
}

/* ---- the command ---- */

static int print_summary(const sweep_cli_t *cli, const sim_sweep_options_t *o,
                         const sim_sweep_t *sweep)
{
    const char *html = cli->common.html;
    int code = html != NULL ? sim_cli_write_sweep_page(&cli->common, &sweep->rows) : 0;
    bool takes_stdout = (o->rows_path != NULL && strcmp(o->rows_path, "-") == 0) ||
                        (html != NULL && strcmp(html, "-") == 0);
    if (code != 0 || takes_stdout)
        return code;
    sim_sweep_print_illegal(&sweep->layouts, cli->common.verbose > 0, stdout);
    if (o->n_shards > 1)
        printf("shard %" PRIu32 " of %" PRIu32 ": %" PRIu64 " of them\n",
               o->shard == 0 ? o->n_shards : o->shard, o->n_shards, sweep->n_shard);
    if (sweep->n_found > 0)
        printf("%" PRIu64 " rows were there already\n", sweep->n_found);
    sim_sweep_print_best(&sweep->rows, N_BEST, stdout);
    return 0;
}

/* Process 0 reads; the others get what it read. */
static int load(const sweep_cli_t *cli, sim_scenario_t *scenario_p)
{
    coll_world_t *world = sim_launcher_world();
    bool is_root = coll_world_process(world) == 0;
    char *text = NULL;
    size_t length = 0;
    int code = 2;
    sim_scenario_init(scenario_p);
    if (is_root) {
        sim_scenario_fini(scenario_p);
        code = sim_cli_read(cli->common.operands[0], &cli->common, scenario_p);
        text = code == 0 ? sim_scenario_given_text(scenario_p) : NULL;
        length = text != NULL ? strlen(text) : 0;
    }
    coll_world_broadcast(world, &text, &length);
    if (!is_root && text != NULL) {
        base_diag_t diag;
        base_diag_init(&diag);
        code = sim_scenario_read(scenario_p, cli->common.operands[0], text, length, &diag) ? 0 : 2;
        base_diag_fini(&diag);
    }
    free(text);
    return code;
}

/* The page shows what an allocator holds. */
static int check_mode(const sweep_cli_t *cli, const sim_scenario_t *scenario)
{
    bool is_live = scenario->mode == SIM_MODE_LIVE;
    for (size_t i = 0; i < scenario->n_sweep; i++)
        is_live |= strcmp(scenario->sweep[i].key, "mode") == 0;
    if (!is_live || cli->common.html == NULL)
        return 0;
    base_log(BASE_LOG_ERROR, "sweep: --html shows what an allocator holds; mode live has none");
    return 2;
}

static int sweep(const sweep_cli_t *cli)
{
    sim_sweep_options_t options;
    sim_scenario_t scenario;
    sim_progress_t progress;
    if (!fill_options(cli, &options))
        return 2;
    sim_progress_init(&progress, &cli->common, "sweep", "layouts");
    options.progress = sim_progress_show;
    options.progress_arg = &progress;
    int code = load(cli, &scenario);
    if (code == 0)
        code = check_mode(cli, &scenario);
    if (code == 0) {
        sim_sweep_t found;
        base_err_t err = { .text = "" };
        base_status_t status =
            sim_sweep_run(&found, &scenario, &options, sim_launcher_world(), &err);
        sim_progress_end(&progress);
        code = base_err_exit_code(status);
        bool is_root = sim_launcher_rank() == 0;
        if (is_root && status != BASE_OK)
            base_log(BASE_LOG_ERROR, "sweep: %s", err.text);
        if (is_root && found.layouts.n_combinations > 0 && found.layouts.n_legal == 0)
            sim_sweep_print_illegal(&found.layouts, true, stdout);
        else if (is_root && status == BASE_OK)
            code = print_summary(cli, &options, &found);
        sim_sweep_fini(&found);
    }
    sim_scenario_fini(&scenario);
    return code;
}

int sim_cmd_sweep(int argc, char **argv)
{
    sweep_cli_t cli = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &cli);
    if (code == SIM_OPTIONS_GO_ON)
        code = sweep(&cli);
    sim_options_fini(&cli.common);
    return code;
}
