/* SPDX-License-Identifier: Apache-2.0
 * The job's NCCL communicators on real GPUs, beside the ledger that the model has of them. */
#ifndef SIM_ENGINE_COMMUNICATORS_H
#define SIM_ENGINE_COMMUNICATORS_H

#include "collectives/nccl_real.h"
#include "sim/scenario/scenario.h"

/* One step of one rank. */
typedef struct {
    uint32_t rank;
    char name[COLL_COMM_NAME]; /* of the communicator */
    uint32_t n_ranks;          /* in it */
    const char *what;          /* "creation", "all-gather", ... */
    coll_moment_t at;
    bool has_kernels; /* the first of its rank, with which NCCL's kernels come */
    uint64_t model_bytes;
    int64_t real_bytes;
} sim_comm_step_t;

typedef struct {
    char why[COLL_NCCL_WHY]; /* why the model stands in; "" = measured */
    int version;             /* of NCCL, as NCCL_VERSION_CODE */
    uint32_t model_version;  /* that the model was asked for */
    sim_comm_step_t *steps;  /* by rank, each rank's in order of time; owned */
    uint32_t n_steps;
} sim_communicators_t;

/* Everybody together, after the GPUs were shared out: make and use the communicators of the job and
 * measure each step. `ordinals` of the GPU of each rank of this process, `trouble` as in
 * coll_nccl_setup_t. *communicators_p is filled on process 0; *real_p, NULL where the model stands
 * in, keeps them alive: end with coll_nccl_real_close(). What is given must outlive it.
 * BASE_ERR_IO as coll_nccl_real_play(); then nothing is left. Free with sim_communicators_fini().
 */
base_status_t sim_communicators_measure(const sim_scenario_t *scenario, coll_world_t *world,
                                        const topo_cuda_t *cuda, const int *ordinals,
                                        const char *trouble, sim_communicators_t *communicators_p,
                                        coll_nccl_real_t **real_p, base_err_t *err);
void sim_communicators_fini(sim_communicators_t *communicators);

#endif
