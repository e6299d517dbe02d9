/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/engine/job.h"
#include "sim/engine/result_blob.h"
#include "sim/engine/stage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- results ---- */

/* The results of this process one after the other, each behind a head. */
typedef struct {
    uint64_t rank, n_bytes;
} head_t;

static char *pack_results(const sim_stage_t *stage, size_t *n_p)
{
    char *data = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < stage->n; i++) {
        const sim_actor_t *a = &stage->actors[i];
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

static base_status_t gather_results(const sim_stage_t *stage, sim_job_t *job, base_err_t *err)
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
    sim_stage_t stage = { .scenario = scenario,
                          .world = world,
                          .classes = &job.classes,
                          .options = options != NULL ? options : &defaults };
    status = sim_stage_create_actors(&stage, err);
    if (status == BASE_OK)
        status = sim_stage_play(&stage, err);
    if (status == BASE_OK)
        status = gather_results(&stage, &job, err);
    sim_stage_destroy_actors(&stage);
    if (status != BASE_OK) {
        sim_job_fini(&job);
        return status;
    }
    *job_p = job;
    return BASE_OK;
}
