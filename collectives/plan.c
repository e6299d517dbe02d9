/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/plan.h"

#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one end of a pair calls "next" is "prev" at the other. */
static void plain_name(const coll_comm_t *comm, char name[static COLL_COMM_NAME])
{
    static const char *const directions[] = { " next", " prev" };
    snprintf(name, COLL_COMM_NAME, "%s", comm->name);
    size_t n = strlen(name);
    for (size_t i = 0; i < 2; i++) {
        size_t k = strlen(directions[i]);
        if (comm->scope == COLL_SCOPE_PAIR && n > k && strcmp(name + n - k, directions[i]) == 0)
            name[n - k] = '\0';
    }
}

bool coll_plan_place(const coll_plan_comm_t *comm, uint32_t rank, uint32_t *place_p)
{
    for (uint32_t i = 0; i < comm->n; i++) {
        if (comm->ranks[i] != rank)
            continue;
        *place_p = i;
        return true;
    }
    return false;
}

static bool is_same(const coll_plan_comm_t *comm, const char *name, const uint32_t *ranks,
                    uint32_t n)
{
    return comm->n == n && strcmp(comm->name, name) == 0 &&
           memcmp(comm->ranks, ranks, n * sizeof(*ranks)) == 0;
}

const coll_comm_t *coll_plan_find(const coll_plan_comm_t *comm, const coll_job_t *job,
                                  uint32_t rank, const coll_comms_t *comms)
{
    uint32_t *ranks = base_xcalloc(job->grid.world_size, sizeof(*ranks));
    const coll_comm_t *found = NULL;
    for (uint32_t i = 0; i < comms->n && found == NULL; i++) {
        char name[COLL_COMM_NAME];
        plain_name(&comms->items[i], name);
        if (!comms->items[i].is_gloo && strcmp(name, comm->name) == 0 &&
            is_same(comm, name, ranks, coll_comm_ranks(job, &comms->items[i], rank, ranks)))
            found = &comms->items[i];
    }
    free(ranks);
    return found;
}

/* ---- building ---- */

static void add_step(coll_plan_t *plan, uint32_t comm, int use, coll_moment_t at)
{
    plan->steps = base_xrealloc(plan->steps, plan->n_steps + 1, sizeof(*plan->steps));
    plan->steps[plan->n_steps++] = (coll_plan_step_t){ .comm = comm, .use = use, .at = at };
}

static void add_comm(coll_plan_t *plan, const coll_comm_t *comm, const char *name,
                     const uint32_t *ranks, uint32_t n)
{
    plan->comms = base_xrealloc(plan->comms, plan->n_comms + 1, sizeof(*plan->comms));
    coll_plan_comm_t *c = &plan->comms[plan->n_comms];
    *c = (coll_plan_comm_t){ .n = n, .ranks = base_xcalloc(n, sizeof(*ranks)) };
    snprintf(c->name, sizeof(c->name), "%s", name);
    memcpy(c->ranks, ranks, n * sizeof(*ranks));
    add_step(plan, plan->n_comms, COLL_PLAN_CREATION, comm->created);
    for (uint32_t i = 0; i < comm->n_uses; i++)
        add_step(plan, plan->n_comms, (int)i, comm->uses[i].at);
    plan->n_comms++;
}

/* Whether a member that comes later does what the first one does. */
static bool is_used_alike(const coll_plan_t *plan, uint32_t index, const coll_comm_t *comm)
{
    uint32_t n_uses = 0;
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const coll_plan_step_t *step = &plan->steps[i];
        if (step->comm != index || step->use == COLL_PLAN_CREATION)
            continue;
        if (step->use >= (int)comm->n_uses ||
            coll_moment_compare(step->at, comm->uses[step->use].at) != 0)
            return false;
        n_uses++;
    }
    return n_uses == comm->n_uses;
}

static base_status_t add_comms_of(coll_plan_t *plan, uint32_t rank, const coll_job_t *job,
                                  uint32_t *ranks, base_err_t *err)
{
    coll_comms_t comms;
    coll_comms_of_rank(job, rank, &comms);
    for (uint32_t i = 0; i < comms.n; i++) {
        const coll_comm_t *comm = &comms.items[i];
        char name[COLL_COMM_NAME];
        if (comm->is_gloo)
            continue;
        plain_name(comm, name);
        uint32_t n = coll_comm_ranks(job, comm, rank, ranks), k = 0;
        while (k < plan->n_comms && !is_same(&plan->comms[k], name, ranks, n))
            k++;
        if (k == plan->n_comms)
            add_comm(plan, comm, name, ranks, n);
        else if (!is_used_alike(plan, k, comm))
            return base_err_set(err, BASE_ERR_UNSUPPORTED,
                                "rank %" PRIu32 " does not use communicator %s as rank %" PRIu32
                                " does",
                                rank, name, ranks[0]);
    }
    return BASE_OK;
}

/* Steps of one moment stay in the order of the communicators; those of one communicator in time. */
static int by_time(const void *a_p, const void *b_p)
{
    const coll_plan_step_t *a = a_p, *b = b_p;
    int order = coll_moment_compare(a->at, b->at);
    if (order != 0)
        return order;
    if (a->comm != b->comm)
        return a->comm < b->comm ? -1 : 1;
    return a->use < b->use ? -1 : a->use > b->use;
}

base_status_t coll_plan_init(coll_plan_t *plan_p, uint32_t world_size, coll_plan_job_f job_of,
                             void *arg, base_err_t *err)
{
    coll_plan_t plan = { .n_comms = 0 };
    uint32_t *ranks = base_xcalloc(world_size, sizeof(*ranks));
    base_status_t status = BASE_OK;
    for (uint32_t rank = 0; rank < world_size && status == BASE_OK; rank++) {
        coll_job_t job;
        job_of(arg, rank, &job);
        status = add_comms_of(&plan, rank, &job, ranks, err);
    }
    free(ranks);
    if (status != BASE_OK) {
        coll_plan_fini(&plan);
        return status;
    }
    if (plan.n_steps > 0)
        qsort(plan.steps, plan.n_steps, sizeof(*plan.steps), by_time);
    *plan_p = plan;
    return BASE_OK;
}

void coll_plan_fini(coll_plan_t *plan)
{
    for (uint32_t i = 0; i < plan->n_comms; i++)
        free(plan->comms[i].ranks);
    free(plan->comms);
    free(plan->steps);
    *plan = (coll_plan_t){ .n_comms = 0 };
}
