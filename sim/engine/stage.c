/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/stage.h"

#include "sim/base/xmem.h"
#include "topology/groups.h"

#include <stdlib.h>

/* ---- messages ---- */

static coll_message_t message_of(const sim_stage_t *stage, const sim_actor_t *a,
                                 const sim_step_t *step)
{
    const topo_grid_t *grid = &stage->scenario->grid;
    sim_order_config_t place = { .schedule = stage->scenario->pipeline_schedule,
                                 .pp = grid->pp,
                                 .pp_rank = a->coord.pp };
    uint32_t peer_pp;
    uint16_t peer_chunk;
    sim_order_peer(&place, step, &peer_pp, &peer_chunk);
    uint32_t peer = topo_grid_rank(grid, a->coord.tp, a->coord.cp, a->coord.dp, peer_pp);
    bool sends = step->kind == SIM_STEP_SEND_FORWARD || step->kind == SIM_STEP_SEND_BACKWARD;
    bool is_forward =
        step->kind == SIM_STEP_SEND_FORWARD || step->kind == SIM_STEP_WAIT_RECV_FORWARD;
    return (coll_message_t){
        .from = sends ? a->gpu : peer,
        .to = sends ? peer : a->gpu,
        .kind = is_forward ? COLL_MESSAGE_FORWARD : COLL_MESSAGE_BACKWARD,
        .chunk = sends ? peer_chunk : step->chunk,
        .iteration = sim_rank_run_iteration(a->run),
        .microbatch = step->microbatch,
    };
}

/* Play on until the next step that waits, or the end. */
static void run_on(const sim_stage_t *stage, sim_actor_t *a)
{
    const sim_step_t *step;
    while ((step = sim_rank_run_next(a->run)) != NULL) {
        switch ((sim_step_kind_t)step->kind) {
        case SIM_STEP_FINALIZE_GRADS:
            if (a->n_group == 1) /* nobody to wait for */
                break;
            coll_meeting_begin(&a->meeting, stage->world, a->group, a->n_group, a->me,
                               TOPO_GROUP_DP_CP, sim_rank_run_iteration(a->run), 0, 0);
            a->state = SIM_ACTOR_MEETS;
            return;
        case SIM_STEP_SEND_FORWARD:
        case SIM_STEP_SEND_BACKWARD: {
            coll_message_t message = message_of(stage, a, step);
            coll_world_send(stage->world, &message);
            break;
        }
        default:
            a->expected = message_of(stage, a, step);
            a->state = SIM_ACTOR_RECEIVES;
            return;
        }
    }
    a->state = SIM_ACTOR_DONE;
}

/* False: nothing could be done. */
static bool advance(const sim_stage_t *stage, sim_actor_t *a)
{
    uint64_t time_ns;
    if (a->state == SIM_ACTOR_DONE ||
        (a->state == SIM_ACTOR_RECEIVES && !coll_world_take(stage->world, &a->expected)) ||
        (a->state == SIM_ACTOR_MEETS && !coll_meeting_test(&a->meeting, stage->world, &time_ns)))
        return false;
    a->state = SIM_ACTOR_RUNS;
    run_on(stage, a);
    return true;
}

static void tell_progress(const sim_stage_t *stage)
{
    uint64_t n_done = 0;
    if (stage->options->progress == NULL)
        return;
    for (uint32_t i = 0; i < stage->n; i++)
        n_done += stage->actors[i].state == SIM_ACTOR_DONE;
    stage->options->progress(n_done, stage->n, stage->options->progress_arg);
}

base_status_t sim_stage_play(const sim_stage_t *stage, base_err_t *err)
{
    coll_message_t *expected = base_xcalloc(stage->n, sizeof(*expected));
    base_status_t status = BASE_OK;
    while (status == BASE_OK) {
        bool moved = false;
        size_t n = 0;
        for (uint32_t i = 0; i < stage->n; i++) {
            sim_actor_t *a = &stage->actors[i];
            moved = advance(stage, a) || moved;
            if (a->state == SIM_ACTOR_RECEIVES)
                expected[n++] = a->expected;
            else if (a->state == SIM_ACTOR_MEETS)
                expected[n++] = coll_meeting_expected(&a->meeting);
        }
        tell_progress(stage);
        if (n == 0)
            break;
        if (!moved)
            status = coll_world_wait(stage->world, expected, n, err);
    }
    free(expected);
    return status;
}

/* ---- who plays here ---- */

static void fill_group(const sim_stage_t *stage, sim_actor_t *a)
{
    const topo_grid_t *grid = &stage->scenario->grid;
    a->n_group = topo_group_size(grid, TOPO_GROUP_DP_CP, a->gpu);
    a->group = base_xcalloc(a->n_group, sizeof(*a->group));
    topo_group_ranks(grid, TOPO_GROUP_DP_CP, a->gpu, a->group);
    while (a->group[a->me] != a->gpu)
        a->me++;
}

/* Of equal ranks of this process the first is played; on a device each. */
static bool takes_memory(const sim_stage_t *stage, uint32_t gpu, bool *is_played)
{
    if (stage->options->is_skipped != NULL && stage->options->is_skipped[gpu])
        return false;
    if (stage->classes == NULL)
        return true;
    bool *played = &is_played[stage->classes->of_rank[gpu]];
    if (*played)
        return false;
    *played = true;
    return true;
}

static base_status_t create_actor(const sim_stage_t *stage, sim_actor_t *a, base_err_t *err)
{
    base_status_t status = topo_grid_coord(&stage->scenario->grid, a->gpu, &a->coord, err);
    if (status != BASE_OK)
        return status;
    fill_group(stage, a);
    sim_place_t place = sim_place_of(stage->scenario, &a->coord);
    sim_rank_run_options_t options = { .unlimited = stage->options->unlimited,
                                       .want_need = !stage->options->unlimited,
                                       .without_memory = !a->has_memory };
    if (stage->device_of != NULL && a->has_memory) {
        options.device = stage->device_of(stage->device_arg, a->gpu);
        options.plays_all = true;
        options.want_need = false;
    }
    return sim_rank_run_create(stage->scenario, &place, &options, &a->run, err);
}

base_status_t sim_stage_create_actors(sim_stage_t *stage, base_err_t *err)
{
    uint32_t first, n, n_classes = stage->classes != NULL ? stage->classes->n_classes : 0;
    coll_world_share(stage->world, &first, &n);
    stage->actors = base_xcalloc(n, sizeof(*stage->actors));
    stage->n = n;
    bool *is_played = base_xcalloc(n_classes, sizeof(*is_played));
    base_status_t status = BASE_OK;
    for (uint32_t i = 0; i < n && status == BASE_OK; i++) {
        sim_actor_t *a = &stage->actors[i];
        a->gpu = first + i;
        a->has_memory = takes_memory(stage, a->gpu, is_played);
        status = create_actor(stage, a, err);
    }
    free(is_played);
    return status;
}

void sim_stage_destroy_actors(sim_stage_t *stage)
{
    for (uint32_t i = 0; i < stage->n; i++) {
        sim_rank_run_destroy(stage->actors[i].run);
        free(stage->actors[i].group);
    }
    free(stage->actors);
    stage->actors = NULL;
    stage->n = 0;
}
