/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/job.h"

#include "sim/base/xmem.h"

#include <stdlib.h>

/* One that is not skipped, if there is one. */
static bool wanted_rank(const sim_classes_t *classes, const sim_job_options_t *options,
                        uint32_t class_idx)
{
    if (options->is_skipped == NULL)
        return true;
    for (uint32_t rank = classes->first_rank[class_idx]; rank < classes->n_ranks; rank++) {
        if (classes->of_rank[rank] == class_idx && !options->is_skipped[rank])
            return true;
    }
    return false;
}

base_status_t sim_job_play(const sim_scenario_t *scenario, const sim_job_options_t *options,
                           sim_job_t *job_p, base_err_t *err)
{
    static const sim_job_options_t defaults = { 0 };
    if (options == NULL)
        options = &defaults;
    sim_job_t job = { 0 };
    base_status_t status = sim_classes_init(&job.classes, scenario, err);
    if (status != BASE_OK)
        return status;
    job.results = base_xcalloc(job.classes.n_classes, sizeof(*job.results));
    sim_simulate_options_t rank_options = { .unlimited = options->unlimited, .want_need = true };
    for (uint32_t c = 0; c < job.classes.n_classes && status == BASE_OK; c++) {
        if (wanted_rank(&job.classes, options, c))
            status = sim_simulate_rank(scenario, job.classes.first_rank[c], &rank_options,
                                       &job.results[c], err);
        if (options->progress != NULL)
            options->progress(c + 1, job.classes.n_classes, options->progress_arg);
    }
    if (status != BASE_OK) {
        sim_job_fini(&job);
        return status;
    }
    *job_p = job;
    return BASE_OK;
}

void sim_job_fini(sim_job_t *job)
{
    for (uint32_t c = 0; c < job->classes.n_classes && job->results != NULL; c++)
        sim_rank_result_fini(&job->results[c]);
    free(job->results);
    sim_classes_fini(&job->classes);
    *job = (sim_job_t){ 0 };
}

const sim_rank_result_t *sim_job_result(const sim_job_t *job, uint32_t rank)
{
    const sim_rank_result_t *result = &job->results[job->classes.of_rank[rank]];
    return result->iterations != NULL ? result : NULL;
}
