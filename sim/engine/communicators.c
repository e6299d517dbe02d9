/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/communicators.h"

#include "sim/base/xmem.h"
#include "sim/engine/outside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void job_of(void *arg, uint32_t rank, coll_job_t *job_p)
{
    const sim_scenario_t *scenario = arg;
    topo_coord_t coord = { 0 };
    topo_grid_coord(&scenario->grid, rank, &coord, NULL); /* rank < world size: cannot fail */
    sim_outside_job(scenario, &coord, job_p);
}

/* What the members of a communicator do at a step, in words. */
static const char *word_of(const coll_comm_t *comm, int32_t use)
{
    return use == COLL_PLAN_CREATION ? "creation" : coll_op_name(comm->uses[use].op);
}

static void describe(const sim_scenario_t *scenario, const coll_nccl_real_t *real,
                     sim_communicators_t *c)
{
    const coll_plan_t *plan = coll_nccl_real_plan(real);
    const coll_nccl_step_t *steps = coll_nccl_real_steps(real, &c->n_steps);
    coll_comms_t comms;
    coll_job_t job;
    c->version = coll_nccl_real_version(real);
    c->steps = base_xcalloc((size_t)c->n_steps + 1, sizeof(*c->steps));
    for (uint32_t i = 0; i < c->n_steps; i++) {
        const coll_plan_comm_t *comm = &plan->comms[steps[i].comm];
        sim_comm_step_t *s = &c->steps[i];
        if (i == 0 || steps[i].rank != steps[i - 1].rank) {
            job_of((void *)scenario, steps[i].rank, &job);
            coll_comms_of_rank(&job, steps[i].rank, &comms);
        }
        const coll_comm_t *own = coll_plan_find(comm, &job, steps[i].rank, &comms);
        s->rank = steps[i].rank;
        memcpy(s->name, comm->name, sizeof(s->name));
        s->n_ranks = comm->n;
        s->what = word_of(own, steps[i].use);
        s->at = plan->steps[steps[i].index].at;
        s->model_bytes = steps[i].model_bytes;
        s->real_bytes = steps[i].real_bytes;
        s->has_kernels = i == 0 || steps[i].rank != steps[i - 1].rank;
        if (s->has_kernels)
            s->model_bytes +=
                coll_nccl_process_bytes(scenario->gpu_p->sm, scenario->gpu_p->n_sms).bytes;
    }
}

base_status_t sim_communicators_measure(const sim_scenario_t *scenario, coll_world_t *world,
                                        const topo_cuda_t *cuda, const int *ordinals,
                                        const char *trouble, sim_communicators_t *communicators_p,
                                        coll_nccl_real_t **real_p, base_err_t *err)
{
    sim_communicators_t c = { .n_steps = 0 };
    coll_nccl_setup_t setup = { .world = world,
                                .cuda = cuda,
                                .ordinals = ordinals,
                                .trouble = trouble,
                                .world_size = scenario->grid.world_size,
                                .job_of = job_of,
                                .arg = (void *)scenario };
    sim_outside_nccl(scenario, &setup.nccl);
    c.model_version = setup.nccl.version;
    base_status_t status = coll_nccl_real_open(&setup, real_p, c.why, err);
    if (status == BASE_OK && *real_p != NULL) {
        status = coll_nccl_real_play(*real_p, err);
        if (status == BASE_OK && coll_world_process(world) == 0)
            describe(scenario, *real_p, &c);
    }
    if (status != BASE_OK) {
        coll_nccl_real_close(*real_p, NULL);
        *real_p = NULL;
        return status;
    }
    *communicators_p = c;
    return BASE_OK;
}

void sim_communicators_fini(sim_communicators_t *communicators)
{
    free(communicators->steps);
    *communicators = (sim_communicators_t){ .n_steps = 0 };
}
