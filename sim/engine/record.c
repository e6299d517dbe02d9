/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/record.h"

#include "sim/engine/player.h"
#include "sim/engine/rank_run.h"
#include "sim/memory/snapshot_write.h"

#include <stdio.h>

/* Texts of the frames of the event that is being written; the writer copies them. */
typedef struct {
    const sim_player_t *player;
    char module[48], pass[64], iteration[32];
} recorder_t;

static void name_pass(recorder_t *r, const sim_moment_t *now)
{
    bool in_pass = sim_phase_is_pass((sim_phase_t)now->phase);
    if (in_pass)
        snprintf(r->pass, sizeof(r->pass), "micro-batch %u, chunk %u", now->microbatch, now->chunk);
    else
        snprintf(r->pass, sizeof(r->pass), "all micro-batches");
    snprintf(r->iteration, sizeof(r->iteration), "iteration %u", now->iteration);
}

static size_t where(void *arg, sim_snapshot_frame_t frames[SIM_SNAPSHOT_MAX_FRAMES],
                    uint64_t *time_us_p)
{
    recorder_t *r = arg;
    const sim_moment_t *now = &r->player->now;
    const sim_tensor_t *tensor = r->player->current;
    size_t n = 0;
    *time_us_p = r->player->n_ops;
    name_pass(r, now);
    if (tensor != NULL) {
        const char *module = sim_module_name((sim_module_t)tensor->module);
        if (tensor->layer == SIM_NO_LAYER)
            snprintf(r->module, sizeof(r->module), "%s", module);
        else
            snprintf(r->module, sizeof(r->module), "layer %u, %s", tensor->layer, module);
        frames[n++] = (sim_snapshot_frame_t){ .name = tensor->name, .filename = r->module };
    }
    frames[n++] = (sim_snapshot_frame_t){ .name = sim_phase_name((sim_phase_t)now->phase),
                                          .filename = r->pass,
                                          .line = now->microbatch };
    frames[n++] =
        (sim_snapshot_frame_t){ .name = r->iteration, .filename = "mbsim", .line = now->iteration };
    return n;
}

static void play(sim_player_t *p, const sim_scenario_t *scenario)
{
    if (!sim_player_build(p))
        return;
    for (uint32_t i = 1; i <= scenario->iterations; i++) {
        p->now = (sim_moment_t){ .iteration = i, .layer = SIM_NO_LAYER };
        if (!sim_player_zero_grad(p))
            return;
        for (size_t k = 0; k < p->order.n; k++)
            if (!sim_player_run(p, &p->order.steps[k]))
                return;
        if (!sim_player_step(p, sim_player_is_step_skipped(scenario, i)))
            return;
    }
}

base_status_t sim_record_rank(const sim_scenario_t *scenario, uint32_t rank, const char *path,
                              uint64_t *bytes_p, base_err_t *err)
{
    topo_coord_t coord;
    base_status_t status = topo_grid_coord(&scenario->grid, rank, &coord, err);
    if (status != BASE_OK)
        return status;
    sim_place_t place = sim_place_of(scenario, &coord);
    sim_player_t p;
    sim_snapshot_writer_t *writer = NULL;
    status = sim_player_init(&p, scenario, &place, false, err);
    if (status == BASE_OK)
        status = sim_snapshot_writer_open(path, &writer, err);
    if (status == BASE_OK) {
        recorder_t recorder = { .player = &p };
        sim_snapshot_writer_attach(writer, p.alloc, where, &recorder);
        play(&p, scenario);
        status = sim_snapshot_writer_finish(writer, p.alloc, scenario->conf, bytes_p, err);
        sim_alloc_set_trace(p.alloc, NULL, NULL);
    }
    sim_player_fini(&p);
    return status;
}
