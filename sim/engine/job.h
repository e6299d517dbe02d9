/* SPDX-License-Identifier: Apache-2.0
 * All GPUs of a job. */
#ifndef SIM_ENGINE_JOB_H
#define SIM_ENGINE_JOB_H

#include "collectives/placement.h"
#include "collectives/world.h"
#include "sim/engine/classes.h"
#include "sim/engine/simulate.h"

typedef struct {
    bool unlimited;         /* as in sim_simulate_options_t */
    const bool *is_skipped; /* by rank: its result is not wanted; NULL = all are */
    /* Called now and then, on every process for its own share; NULL = never. */
    void (*progress)(uint64_t n_done, uint64_t n_todo, void *arg);
    void *progress_arg;
    coll_bind_t bind; /* of processes near their GPU, with backend = cuda */
} sim_job_options_t;

typedef struct {
    sim_classes_t classes;
    sim_rank_result_t *results; /* by class; iterations NULL = not played; owned */
} sim_job_t;

/* Play every rank in this process, equal ranks once. Fails as sim_simulate_rank() does. Free with
 * sim_job_fini(), which takes a zeroed struct too. `options` may be NULL. */
base_status_t sim_job_play(const sim_scenario_t *scenario, const sim_job_options_t *options,
                           sim_job_t *job_p, base_err_t *err);

/* The same by all processes of `world`, whose GPUs have been shared out: each plays its own, and
 * the messages of the schedule are sent. Process 0 gets the job, which is the one that
 * sim_job_play() gives, byte for byte; the others get a job without results. Also fails with
 * BASE_ERR_TIMEOUT when a message never comes, and with BASE_ERR_IO when processes disagree about
 * ranks that are equal. */
base_status_t sim_job_play_together(const sim_scenario_t *scenario, coll_world_t *world,
                                    const sim_job_options_t *options, sim_job_t *job_p,
                                    base_err_t *err);

void sim_job_fini(sim_job_t *job);

/* The result of `rank`; its own `rank` and `coord` are those of the lowest equal rank. NULL when
 * it was not played. */
const sim_rank_result_t *sim_job_result(const sim_job_t *job, uint32_t rank);

#endif
