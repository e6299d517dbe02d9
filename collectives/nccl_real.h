/* SPDX-License-Identifier: Apache-2.0
 * Real NCCL communicators: those of a plan are made and used by the GPUs of the job, one step after
 * the other, and each step is measured beside what the model says of it.
 *
 * NCCL is called without blocking, and a process that fails raises the world's alarm: the others
 * stop waiting inside NCCL, and all go on together to the message that says who failed at what. */
#ifndef COLLECTIVES_NCCL_REAL_H
#define COLLECTIVES_NCCL_REAL_H

#include "collectives/plan.h"
#include "collectives/world.h"
#include "topology/cuda_api.h"

typedef struct {
    coll_world_t *world; /* its GPUs are shared out */
    const topo_cuda_t *cuda;
    const int *ordinals; /* of the GPU of each rank of this process */
    const char *trouble; /* why this process cannot take part, "" = it can */
    uint32_t world_size;
    coll_plan_job_f job_of;
    void *arg;
    coll_nccl_t nccl; /* for the model */
} coll_nccl_setup_t;

typedef struct {
    uint32_t rank, comm; /* comm: index in the plan */
    int32_t use;         /* as in coll_plan_step_t */
    uint32_t index;      /* of the step in the plan */
    uint64_t model_bytes;
    int64_t real_bytes; /* less free memory on the rank's GPU than before */
} coll_nccl_step_t;

typedef struct coll_nccl_real coll_nccl_real_t;

enum { COLL_NCCL_WHY = 512 };

/* Everybody together. NCCL is loaded, and each rank must have a GPU of its own, which NCCL asks
 * for: where a process cannot, or two ranks share one, *real_p is NULL and `why` says why the model
 * has to stand in. BASE_ERR_IO: a call failed, on every process alike. What `setup` points to must
 * outlive the communicators. */
base_status_t coll_nccl_real_open(const coll_nccl_setup_t *setup, coll_nccl_real_t **real_p,
                                  char why[static COLL_NCCL_WHY], base_err_t *err);

/* Everybody together: all steps of the plan. BASE_ERR_IO, on every process alike, with the first
 * process that failed, and the call, or with the step that did not end. */
base_status_t coll_nccl_real_play(coll_nccl_real_t *real, base_err_t *err);

/* Process 0, after that: the steps of all ranks, by rank, each rank's in the plan's order. */
const coll_nccl_step_t *coll_nccl_real_steps(const coll_nccl_real_t *real, uint32_t *n_p);
const coll_plan_t *coll_nccl_real_plan(const coll_nccl_real_t *real);
int coll_nccl_real_version(const coll_nccl_real_t *real); /* as NCCL_VERSION_CODE */

/* Destroy the communicators, or end them by force after a failure, and give all else back. Takes
 * NULL. BASE_ERR_IO with the first call that failed; all is tried all the same. */
base_status_t coll_nccl_real_close(coll_nccl_real_t *real, base_err_t *err);

#endif
