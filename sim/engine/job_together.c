/* SPDX-License-Identifier: Apache-2.0
 * The GPUs of one process, each played until it has to wait for a message. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/engine/job.h"
#include "sim/engine/rank_run.h"
#include "sim/engine/result_blob.h"
#include "topology/groups.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ACTOR_RUNS, ACTOR_RECEIVES, ACTOR_MEETS, ACTOR_DONE } actor_state_t;

typedef struct {
    sim_rank_run_t *run;
    uint32_t gpu;
    topo_coord_t coord;
    bool has_memory; /* false: an equal rank is played in this process, or nobody wants it */
    actor_state_t state;
    coll_message_t expected; /* ACTOR_RECEIVES */
    coll_meeting_t meeting;  /* ACTOR_MEETS */
    uint32_t *group;         /* data-parallel group, n_group GPUs; owned */
    uint32_t n_group, me;
} actor_t;

typedef struct {
    const sim_scenario_t *scenario;
    coll_world_t *world;
    const sim_classes_t *classes;
    const sim_job_options_t *options;
    actor_t *actors; /* n of them, one a GPU of this process; owned */
    uint32_t n;
} stage_t;

/* ---- messages ---- */

static coll_message_t message_of(const stage_t *stage, const actor_t *a, const sim_step_t *step)
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
static void run_on(const stage_t *stage, actor_t *a)
{
    const sim_step_t *step;
    while ((step = sim_rank_run_next(a->run)) != NULL) {
        switch ((sim_step_kind_t)step->kind) {
        case SIM_STEP_FINALIZE_GRADS:
            coll_meeting_begin(&a->meeting, stage->world, a->group, a->n_group, a->me,
                               TOPO_GROUP_DP_CP, sim_rank_run_iteration(a->run), 0, 0);
            a->state = ACTOR_MEETS;
            return;
        case SIM_STEP_SEND_FORWARD:
        case SIM_STEP_SEND_BACKWARD: {
            coll_message_t message = message_of(stage, a, step);
            coll_world_send(stage->world, &message);
            break;
        }
        default:
            a->expected = message_of(stage, a, step);
            a->state = ACTOR_RECEIVES;
            return;
        }
    }
    a->state = ACTOR_DONE;
}

/* False: nothing could be done. */
static bool advance(const stage_t *stage, actor_t *a)
{
    uint64_t time_ns;
    if (a->state == ACTOR_DONE ||
        (a->state == ACTOR_RECEIVES && !coll_world_take(stage->world, &a->expected)) ||
        (a->state == ACTOR_MEETS && !coll_meeting_test(&a->meeting, stage->world, &time_ns)))
        return false;
    a->state = ACTOR_RUNS;
    run_on(stage, a);
    return true;
}

static void tell_progress(const stage_t *stage)
{
    uint64_t n_done = 0;
    if (stage->options->progress == NULL)
        return;
    for (uint32_t i = 0; i < stage->n; i++)
        n_done += stage->actors[i].state == ACTOR_DONE;
    stage->options->progress(n_done, stage->n, stage->options->progress_arg);
}

static base_status_t play_all(const stage_t *stage, base_err_t *err)
{
    coll_message_t *expected = base_xcalloc(stage->n, sizeof(*expected));
    base_status_t status = BASE_OK;
    while (status == BASE_OK) {
        bool moved = false;
        size_t n = 0;
        for (uint32_t i = 0; i < stage->n; i++) {
            actor_t *a = &stage->actors[i];
            moved = advance(stage, a) || moved;
            if (a->state == ACTOR_RECEIVES)
                expected[n++] = a->expected;
            else if (a->state == ACTOR_MEETS)
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

static void fill_group(const stage_t *stage, actor_t *a)
{
    const topo_grid_t *grid = &stage->scenario->grid;
    a->n_group = topo_group_size(grid, TOPO_GROUP_DP_CP, a->gpu);
    a->group = base_xcalloc(a->n_group, sizeof(*a->group));
    topo_group_ranks(grid, TOPO_GROUP_DP_CP, a->gpu, a->group);
    while (a->group[a->me] != a->gpu)
        a->me++;
}

static base_status_t create_actors(stage_t *stage, base_err_t *err)
{
    const sim_job_options_t *options = stage->options;
    uint32_t first, n;
    coll_world_share(stage->world, &first, &n);
    stage->actors = base_xcalloc(n, sizeof(*stage->actors));
    stage->n = n;
    bool *is_played = base_xcalloc(stage->classes->n_classes, sizeof(*is_played));
    base_status_t status = BASE_OK;
    for (uint32_t i = 0; i < n && status == BASE_OK; i++) {
        actor_t *a = &stage->actors[i];
        a->gpu = first + i;
        bool *played = &is_played[stage->classes->of_rank[a->gpu]];
        a->has_memory = !*played && (options->is_skipped == NULL || !options->is_skipped[a->gpu]);
        *played = *played || a->has_memory;
        status = topo_grid_coord(&stage->scenario->grid, a->gpu, &a->coord, err);
        if (status != BASE_OK)
            break;
        fill_group(stage, a);
        sim_place_t place = sim_place_of(stage->scenario, &a->coord);
        sim_rank_run_options_t run_options = { .unlimited = options->unlimited,
                                               .without_memory = !a->has_memory };
        status = sim_rank_run_create(stage->scenario, &place, &run_options, &a->run, err);
    }
    free(is_played);
    return status;
}

static void destroy_actors(stage_t *stage)
{
    for (uint32_t i = 0; i < stage->n; i++) {
        sim_rank_run_destroy(stage->actors[i].run);
        free(stage->actors[i].group);
    }
    free(stage->actors);
}

/* ---- results ---- */

/* The results of this process one after the other, each behind a head. */
typedef struct {
    uint64_t rank, n_bytes;
} head_t;

static char *pack_results(const stage_t *stage, size_t *n_p)
{
    char *data = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < stage->n; i++) {
        const actor_t *a = &stage->actors[i];
        if (!a->has_memory)
            continue;
        sim_rank_result_t result;
        sim_rank_run_result(a->run, &result, NULL);
        /* Equal ranks send equal bytes: all speak for the lowest of them. */
        result.rank = stage->classes->first_rank[stage->classes->of_rank[a->gpu]];
        topo_grid_coord(&stage->scenario->grid, result.rank, &result.coord, NULL);
        size_t n_bytes;
        void *bytes = sim_rank_result_pack(&result, &n_bytes);
        head_t head = { .rank = a->gpu, .n_bytes = n_bytes };
        data = base_xrealloc(data, n + sizeof(head) + n_bytes, 1);
        memcpy(data + n, &head, sizeof(head));
        memcpy(data + n + sizeof(head), bytes, n_bytes);
        n += sizeof(head) + n_bytes;
        free(bytes);
        sim_rank_result_fini(&result);
    }
    *n_p = n;
    return data;
}

/* Take one result: the first of its class is kept, later ones must be equal to it. */
static base_status_t take_result(sim_job_t *job, uint64_t rank, const char *bytes, size_t n_bytes,
                                 base_err_t *err)
{
    if (rank >= job->classes.n_ranks)
        return base_err_set(err, BASE_ERR_IO, "a process sent the result of rank %" PRIu64, rank);
    sim_rank_result_t *kept = &job->results[job->classes.of_rank[rank]];
    if (kept->iterations == NULL)
        return sim_rank_result_unpack(bytes, n_bytes, kept, err);
    size_t n_kept;
    void *kept_bytes = sim_rank_result_pack(kept, &n_kept);
    bool is_equal = n_kept == n_bytes && memcmp(kept_bytes, bytes, n_bytes) == 0;
    free(kept_bytes);
    if (is_equal)
        return BASE_OK;
    return base_err_set(err, BASE_ERR_IO,
                        "rank %" PRIu64 " and rank %" PRIu32
                        " are equal but gave different results: do all processes run the same "
                        "mbsim?",
                        rank, kept->rank);
}

static base_status_t take_blob(sim_job_t *job, const coll_blob_t *blob, base_err_t *err)
{
    size_t at = 0;
    base_status_t status = BASE_OK;
    while (at < blob->n && status == BASE_OK) {
        head_t head;
        if (blob->n - at < sizeof(head))
            return base_err_set(err, BASE_ERR_IO, "a process sent half a result");
        memcpy(&head, blob->data + at, sizeof(head));
        at += sizeof(head);
        if (blob->n - at < head.n_bytes)
            return base_err_set(err, BASE_ERR_IO, "a process sent half a result");
        status = take_result(job, head.rank, blob->data + at, head.n_bytes, err);
        at += head.n_bytes;
    }
    return status;
}

static base_status_t gather_results(const stage_t *stage, sim_job_t *job, base_err_t *err)
{
    size_t n;
    char *data = pack_results(stage, &n);
    coll_blob_t *blobs;
    base_status_t status = coll_world_gather(stage->world, data, n, &blobs, err);
    free(data);
    if (status != BASE_OK || coll_world_process(stage->world) != 0)
        return status;
    uint32_t n_blobs = coll_world_n_processes(stage->world);
    job->results = base_xcalloc(job->classes.n_classes, sizeof(*job->results));
    for (uint32_t i = 0; i < n_blobs && status == BASE_OK; i++)
        status = take_blob(job, &blobs[i], err);
    coll_blobs_free(blobs, n_blobs);
    return status;
}

base_status_t sim_job_play_together(const sim_scenario_t *scenario, coll_world_t *world,
                                    const sim_job_options_t *options, sim_job_t *job_p,
                                    base_err_t *err)
{
    static const sim_job_options_t defaults = { 0 };
    if (coll_world_n_processes(world) == 1)
        return sim_job_play(scenario, options, job_p, err);
    sim_job_t job = { 0 };
    base_status_t status = sim_classes_init(&job.classes, scenario, err);
    if (status != BASE_OK)
        return status;
    stage_t stage = { .scenario = scenario,
                      .world = world,
                      .classes = &job.classes,
                      .options = options != NULL ? options : &defaults };
    status = create_actors(&stage, err);
    if (status == BASE_OK)
        status = play_all(&stage, err);
    if (status == BASE_OK)
        status = gather_results(&stage, &job, err);
    destroy_actors(&stage);
    if (status != BASE_OK) {
        sim_job_fini(&job);
        return status;
    }
    *job_p = job;
    return BASE_OK;
}
