/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/outcome.h"

#include "sim/base/xmem.h"
#include "sim/engine/clock.h"
#include "sim/engine/outside.h"

#include <stdlib.h>
#include <string.h>

static const char *const status_names[SIM_N_STATUSES] = {
    [SIM_STATUS_FITS] = "fits",       [SIM_STATUS_MAY_FIT] = "may fit",
    [SIM_STATUS_AT_RISK] = "at risk", [SIM_STATUS_OUT_OF_MEMORY] = "out of memory",
    [SIM_STATUS_ERROR] = "error",
};

static const char *const risk_names[SIM_N_RISKS] = {
    [SIM_RISK_NONE] = "",
    [SIM_RISK_MARGIN] = "margin",
    [SIM_RISK_RANGE] = "range",
    [SIM_RISK_RETRIES] = "retries",
    [SIM_RISK_EXPANDABLE] = "expandable_segments",
    [SIM_RISK_FRAGMENTED] = "fragmentation",
};

const char *sim_status_name(sim_status_t status)
{
    return status_names[status];
}

const char *sim_risk_name(sim_risk_t risk)
{
    return risk_names[risk];
}

static bool any_retries(const sim_job_t *job)
{
    for (uint32_t c = 0; c < job->classes.n_classes; c++) {
        if (job->results[c].iterations != NULL && job->results[c].n_alloc_retries > 0)
            return true;
    }
    return false;
}

/* By how much the worst rank's memory outside PyTorch may exceed its estimate. */
static uint64_t outside_range(const sim_scenario_t *s, uint32_t rank)
{
    sim_outside_t outside;
    sim_outside_init(&outside, s, rank);
    uint64_t range_bytes = outside.high > outside.bytes ? outside.high - outside.bytes : 0;
    sim_outside_fini(&outside);
    return range_bytes;
}

static void set_status(const sim_scenario_t *s, const sim_job_t *job, uint64_t margin_bytes,
                       sim_outcome_t *o)
{
    if (o->verdict.n_out_of_memory > 0) {
        bool fragmented = o->verdict.cause == SIM_CAUSE_FRAGMENTATION;
        o->status = fragmented ? SIM_STATUS_AT_RISK : SIM_STATUS_OUT_OF_MEMORY;
        if (fragmented)
            o->risk = o->verdict.fits_expandable == SIM_ANSWER_YES ? SIM_RISK_EXPANDABLE
                                                                   : SIM_RISK_FRAGMENTED;
        return;
    }
    if (any_retries(job))
        o->risk = SIM_RISK_RETRIES;
    else if (o->verdict.headroom_bytes < margin_bytes)
        o->risk = SIM_RISK_MARGIN;
    else if (o->verdict.headroom_bytes < outside_range(s, o->worst_rank))
        o->risk = SIM_RISK_RANGE;
    sim_status_t good = s->mode == SIM_MODE_LIVE ? SIM_STATUS_MAY_FIT : SIM_STATUS_FITS;
    o->status = o->risk == SIM_RISK_NONE ? good : SIM_STATUS_AT_RISK;
}

static void summarize(const sim_scenario_t *s, const sim_job_t *job, uint64_t margin_bytes,
                      sim_outcome_t *o)
{
    const sim_verdict_t *v = &o->verdict;
    const sim_rank_result_t *worst = sim_job_result(job, v->worst_rank);
    bool needs_more = worst->is_out_of_memory && v->need_is_known;
    o->worst_rank = v->worst_rank;
    topo_grid_coord(&s->grid, v->worst_rank, &o->coord, NULL); /* < world_size: cannot fail */
    o->moment = worst->is_out_of_memory ? worst->oom_moment : worst->allocated_moment;
    o->at_peak = worst->is_out_of_memory ? worst->at_oom : worst->at_peak;
    o->n_parameters = worst->n_parameters;
    o->allocated_bytes = needs_more ? v->needed_allocated_bytes : worst->max_allocated_bytes;
    o->reserved_bytes = needs_more ? v->needed_reserved_bytes : worst->max_reserved_bytes;
    o->device_used_bytes = sim_outside_bytes(s, v->worst_rank) + o->reserved_bytes;
    o->device_bytes = s->memory_bytes;
    o->headroom_bytes = (int64_t)o->device_bytes - (int64_t)o->device_used_bytes;
    o->n_classes = job->classes.n_classes;
    o->n_gpus = s->grid.world_size;
    set_status(s, job, margin_bytes, o);
}

static base_status_t add_time(const sim_scenario_t *scenario, sim_outcome_t *o, base_err_t *err)
{
    sim_step_time_t time;
    base_status_t status = sim_clock_step(scenario, false, &time, err);
    if (status != BASE_OK)
        return status;
    o->step_ns = time.step_ns;
    o->tokens_per_s = time.tokens_per_s;
    o->bubble_fraction = time.bubble_fraction;
    o->mfu = time.mfu;
    sim_step_time_fini(&time);
    return BASE_OK;
}

/* Which ranks are not looked at: all but the lowest of each stage. The caller frees. */
static bool *skip_all_but_stages(const sim_scenario_t *s)
{
    bool *is_skipped = base_xcalloc(s->grid.world_size, sizeof(*is_skipped));
    memset(is_skipped, true, s->grid.world_size * sizeof(*is_skipped));
    for (uint32_t pp = 0; pp < s->grid.pp; pp++)
        is_skipped[topo_grid_rank(&s->grid, 0, 0, 0, pp)] = false;
    return is_skipped;
}

/* As sim_job_play(), with a class for each stage, of which the lowest rank is played. */
static base_status_t play_stages(const sim_scenario_t *s, sim_job_t *job_p, base_err_t *err)
{
    uint32_t n = s->grid.world_size;
    sim_job_t job = { .classes = { .n_ranks = n, .n_classes = s->grid.pp } };
    job.classes.of_rank = base_xcalloc(n, sizeof(*job.classes.of_rank));
    job.classes.first_rank = base_xcalloc(s->grid.pp, sizeof(*job.classes.first_rank));
    job.results = base_xcalloc(s->grid.pp, sizeof(*job.results));
    sim_simulate_options_t options = { .want_need = true };
    base_status_t status = BASE_OK;
    for (uint32_t pp = 0; pp < s->grid.pp && status == BASE_OK; pp++) {
        uint32_t rank = topo_grid_rank(&s->grid, 0, 0, 0, pp);
        job.classes.first_rank[pp] = rank;
        job.classes.of_rank[rank] = pp;
        status = sim_simulate_rank(s, rank, &options, &job.results[pp], err);
    }
    if (status == BASE_OK)
        *job_p = job;
    else
        sim_job_fini(&job);
    return status;
}

base_status_t sim_outcome_of(const sim_scenario_t *scenario, sim_ranks_t ranks,
                             uint64_t margin_bytes, sim_outcome_t *outcome_p, base_err_t *err)
{
    sim_job_t job;
    bool only_stages = ranks == SIM_RANKS_STAGES;
    base_status_t status =
        only_stages ? play_stages(scenario, &job, err) : sim_job_play(scenario, NULL, &job, err);
    if (status != BASE_OK)
        return status;
    bool *is_skipped = only_stages ? skip_all_but_stages(scenario) : NULL;
    sim_outcome_t outcome = { 0 };
    status = sim_report_judge(scenario, &job, is_skipped, &outcome.verdict, err);
    if (status == BASE_OK)
        status = add_time(scenario, &outcome, err);
    if (status == BASE_OK) {
        summarize(scenario, &job, margin_bytes, &outcome);
        *outcome_p = outcome;
    }
    free(is_skipped);
    sim_job_fini(&job);
    return status;
}
