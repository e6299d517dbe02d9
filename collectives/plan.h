/* SPDX-License-Identifier: Apache-2.0
 * The communicators of a whole job, each once, and the order in which all ranks together make and
 * use them. */
#ifndef COLLECTIVES_PLAN_H
#define COLLECTIVES_PLAN_H

#include "collectives/comm.h"

typedef struct {
    char name[COLL_COMM_NAME]; /* as coll_comm_t has it, of a pair without the direction */
    uint32_t *ranks;           /* n of them, in the group's order; owned */
    uint32_t n;
} coll_plan_comm_t;

enum { COLL_PLAN_CREATION = -1 };

typedef struct {
    uint32_t comm; /* index */
    int use;       /* of the coll_comm_t of each member; COLL_PLAN_CREATION */
    coll_moment_t at;
} coll_plan_step_t;

typedef struct {
    coll_plan_comm_t *comms;
    uint32_t n_comms;
    coll_plan_step_t *steps; /* in the order in which they happen */
    uint32_t n_steps;
} coll_plan_t;

/* What decides about the communicators of `rank`. */
typedef void (*coll_plan_job_f)(void *arg, uint32_t rank, coll_job_t *job_p);

/* All that are not gloo's. BASE_ERR_UNSUPPORTED when members of one do not use it alike, which no
 * known job does. Cost grows with the square of the world. Free with coll_plan_fini(), which takes
 * a zeroed struct too. */
base_status_t coll_plan_init(coll_plan_t *plan_p, uint32_t world_size, coll_plan_job_f job_of,
                             void *arg, base_err_t *err);
void coll_plan_fini(coll_plan_t *plan);

/* The place of `rank` in a communicator; false: it is no member. */
bool coll_plan_place(const coll_plan_comm_t *comm, uint32_t rank, uint32_t *place_p);

/* Of the communicators of `rank` the one that is `comm`; NULL: none. */
const coll_comm_t *coll_plan_find(const coll_plan_comm_t *comm, const coll_job_t *job,
                                  uint32_t rank, const coll_comms_t *comms);

#endif
