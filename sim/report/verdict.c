/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/report.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/engine/outside.h"
#include "sim/memory/alloc_conf.h"

#include <stdlib.h>

sim_ledger_t sim_report_ledger(const sim_report_t *report, const sim_rank_result_t *result)
{
    sim_ledger_t l = {
        .total_bytes = report->scenario->memory_bytes,
        .outside_bytes = sim_outside_bytes(report->scenario, result->rank),
        .reserved_bytes = result->max_reserved_bytes,
        .allocated_bytes = result->max_allocated_bytes,
    };
    l.cached_bytes = l.reserved_bytes - l.allocated_bytes;
    l.device_used_bytes = l.outside_bytes + l.reserved_bytes;
    l.headroom_bytes =
        l.total_bytes > l.device_used_bytes ? l.total_bytes - l.device_used_bytes : 0;
    return l;
}

/* ---- which rank is worst ---- */

/* What decides: bytes used of the device, then bytes allocated, on a device without end for those
 * that run out of memory. */
typedef struct {
    bool is_out_of_memory, need_is_known;
    uint64_t outside_bytes, reserved_bytes, allocated_bytes;
} need_t;

static base_status_t need_of(const sim_scenario_t *scenario, const sim_rank_result_t *result,
                             need_t *need_p, base_err_t *err)
{
    *need_p = (need_t){ .is_out_of_memory = result->is_out_of_memory,
                        .need_is_known = true,
                        .outside_bytes = sim_outside_bytes(scenario, result->rank),
                        .reserved_bytes = result->max_reserved_bytes,
                        .allocated_bytes = result->max_allocated_bytes };
    if (!result->is_out_of_memory)
        return BASE_OK;
    if (result->has_need) {
        need_p->need_is_known = result->need_is_known;
        need_p->reserved_bytes = result->need_reserved_bytes;
        need_p->allocated_bytes = result->need_allocated_bytes;
        return BASE_OK;
    }
    sim_simulate_options_t options = { .unlimited = true };
    sim_rank_result_t whole;
    base_status_t status = sim_simulate_rank(scenario, result->rank, &options, &whole, err);
    if (status != BASE_OK)
        return status;
    need_p->need_is_known = !whole.is_out_of_memory;
    need_p->reserved_bytes = whole.max_reserved_bytes;
    need_p->allocated_bytes = whole.max_allocated_bytes;
    sim_rank_result_fini(&whole);
    return BASE_OK;
}

static bool is_worse(const need_t *a, const need_t *b)
{
    if (a->is_out_of_memory != b->is_out_of_memory)
        return a->is_out_of_memory;
    if (a->need_is_known != b->need_is_known)
        return !a->need_is_known;
    uint64_t used_a = a->outside_bytes + a->reserved_bytes;
    uint64_t used_b = b->outside_bytes + b->reserved_bytes;
    if (used_a != used_b)
        return used_a > used_b;
    return a->allocated_bytes > b->allocated_bytes;
}

static base_status_t find_worst(sim_report_t *r, need_t *worst_p, base_err_t *err)
{
    const sim_classes_t *classes = &r->job->classes;
    bool *seen = base_xcalloc(classes->n_classes, sizeof(*seen));
    bool found = false;
    base_status_t status = BASE_OK;
    for (uint32_t rank = 0; rank < classes->n_ranks && status == BASE_OK; rank++) {
        const sim_rank_result_t *result = sim_job_result(r->job, rank);
        if (result == NULL || (r->is_skipped != NULL && r->is_skipped[rank]))
            continue;
        r->verdict.n_out_of_memory += result->is_out_of_memory;
        r->verdict.n_retrying += !result->is_out_of_memory && result->n_alloc_retries > 0;
        if (seen[classes->of_rank[rank]])
            continue;
        seen[classes->of_rank[rank]] = true;
        need_t need;
        status = need_of(r->scenario, result, &need, err);
        if (status == BASE_OK && (!found || is_worse(&need, worst_p))) {
            *worst_p = need;
            r->verdict.worst_rank = rank;
            found = true;
        }
    }
    free(seen);
    return status;
}

/* ---- would other settings of the allocator help? ---- */

/* Play every class that runs out of memory with expandable segments. */
static base_status_t try_expandable(sim_report_t *r, base_err_t *err)
{
    sim_scenario_t scenario = *r->scenario; /* shallow: only the settings differ */
    const char *conf = scenario.conf != NULL ? scenario.conf : "";
    scenario.conf = base_xasprintf("%s%sexpandable_segments:True", conf, *conf != '\0' ? "," : "");
    r->verdict.fits_expandable = SIM_ANSWER_YES;
    base_status_t status = BASE_OK;
    const sim_job_t *job = r->job;
    for (uint32_t c = 0; c < job->classes.n_classes; c++) {
        if (job->results[c].iterations == NULL || !job->results[c].is_out_of_memory)
            continue;
        sim_rank_result_t result;
        status = sim_simulate_rank(&scenario, job->results[c].rank, NULL, &result, err);
        if (status != BASE_OK)
            break;
        bool fits = !result.is_out_of_memory;
        r->verdict.expandable_reserved_bytes =
            base_u64_max(r->verdict.expandable_reserved_bytes, result.max_reserved_bytes);
        sim_rank_result_fini(&result);
        if (!fits) {
            r->verdict.fits_expandable = SIM_ANSWER_NO;
            break;
        }
    }
    free(scenario.conf);
    return status;
}

static bool is_expandable(const char *text)
{
    sim_alloc_conf_t conf;
    sim_alloc_conf_init(&conf);
    return text != NULL && sim_alloc_conf_parse(&conf, text, NULL) == BASE_OK &&
           conf.expandable_segments;
}

static base_status_t judge(sim_report_t *r, base_err_t *err)
{
    sim_verdict_t *v = &r->verdict;
    need_t worst = { 0 };
    base_status_t status = find_worst(r, &worst, err);
    if (status != BASE_OK)
        return status;
    r->usable_bytes = sim_outside_usable(r->scenario, worst.outside_bytes);
    if (!worst.is_out_of_memory) {
        v->headroom_bytes = r->usable_bytes - worst.reserved_bytes;
        return BASE_OK;
    }
    v->need_is_known = worst.need_is_known;
    v->needed_allocated_bytes = worst.allocated_bytes;
    v->needed_reserved_bytes = worst.reserved_bytes;
    if (worst.reserved_bytes > r->usable_bytes)
        v->misses_by_bytes = worst.reserved_bytes - r->usable_bytes;
    v->cause = !worst.need_is_known || worst.allocated_bytes > r->usable_bytes
                   ? SIM_CAUSE_CAPACITY
                   : SIM_CAUSE_FRAGMENTATION;
    return sim_report_is_live(r) || is_expandable(r->scenario->conf) ? BASE_OK
                                                                     : try_expandable(r, err);
}

static sim_report_t begin(const sim_scenario_t *scenario, const sim_job_t *job,
                          const bool *is_skipped)
{
    return (sim_report_t){ .scenario = scenario, .job = job, .is_skipped = is_skipped };
}

base_status_t sim_report_judge(const sim_scenario_t *scenario, const sim_job_t *job,
                               const bool *is_skipped, sim_verdict_t *verdict_p, base_err_t *err)
{
    sim_report_t r = begin(scenario, job, is_skipped);
    base_status_t status = judge(&r, err);
    if (status == BASE_OK)
        *verdict_p = r.verdict;
    return status;
}

base_status_t sim_report_init(sim_report_t *report_p, const sim_scenario_t *scenario,
                              const sim_job_t *job, const char *name, const bool *is_skipped,
                              base_err_t *err)
{
    sim_report_t r = begin(scenario, job, is_skipped);
    r.name = name;
    base_status_t status = judge(&r, err);
    sim_simulate_options_t options = { .want_alive = true };
    if (status == BASE_OK)
        status = sim_simulate_rank(scenario, r.verdict.worst_rank, &options, &r.worst, err);
    if (status == BASE_OK)
        status = sim_clock_step(scenario, false, &r.time, err);
    if (status == BASE_OK)
        status = sim_report_play_routing(&r, err);
    if (status == BASE_OK)
        *report_p = r;
    else
        sim_rank_result_fini(&r.worst);
    return status;
}

void sim_report_fini(sim_report_t *report)
{
    sim_rank_result_fini(&report->worst);
}

bool sim_report_shows(const sim_report_t *report, uint32_t rank)
{
    return sim_job_result(report->job, rank) != NULL &&
           (report->is_skipped == NULL || !report->is_skipped[rank]);
}
