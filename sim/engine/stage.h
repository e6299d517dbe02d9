/* SPDX-License-Identifier: Apache-2.0
 * Private to engine: the GPUs of one process, each played until it has to wait for a message. */
#ifndef SIM_ENGINE_STAGE_H
#define SIM_ENGINE_STAGE_H

#include "sim/engine/job.h"
#include "sim/engine/rank_run.h"

typedef enum {
    SIM_ACTOR_RUNS,
    SIM_ACTOR_RECEIVES,
    SIM_ACTOR_MEETS,
    SIM_ACTOR_DONE
} sim_actor_state_t;

typedef struct {
    sim_rank_run_t *run;
    uint32_t gpu;
    topo_coord_t coord;
    bool has_memory; /* false: an equal rank is played in this process, or nobody wants it */
    sim_actor_state_t state;
    coll_message_t expected; /* SIM_ACTOR_RECEIVES */
    coll_meeting_t meeting;  /* SIM_ACTOR_MEETS */
    uint32_t *group;         /* data-parallel group, n_group GPUs; owned */
    uint32_t n_group, me;
} sim_actor_t;

typedef struct {
    const sim_scenario_t *scenario;
    coll_world_t *world;
    const sim_classes_t *classes; /* NULL: every rank is played, equal or not */
    const sim_job_options_t *options;
    /* The device of a rank, which the run then owns; NULL: the synthetic one. With devices nothing
     * that repeats is left out. */
    sim_device_t *(*device_of)(void *arg, uint32_t gpu);
    void *device_arg;
    sim_actor_t *actors; /* n of them, one a GPU of this process; owned */
    uint32_t n;
} sim_stage_t;

/* Fails as sim_simulate_rank() does; call sim_stage_destroy_actors() all the same. */
base_status_t sim_stage_create_actors(sim_stage_t *stage, base_err_t *err);
void sim_stage_destroy_actors(sim_stage_t *stage);

/* Play all of them to their end. BASE_ERR_TIMEOUT: a message never comes. */
base_status_t sim_stage_play(const sim_stage_t *stage, base_err_t *err);

#endif
