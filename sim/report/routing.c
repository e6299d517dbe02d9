/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/report.h"

#include <stdio.h>

const char *const sim_routing_case_names[SIM_N_ROUTING_CASES] = { "low", "likely", "high" };

/* Read off published measurements: what 44 runs of Megatron-LM's functional tests with a learned
 * router (A100, H100, GB200) needed for the simulated peak to meet the measured one; half of them
 * 1.1 or less, nine in ten 1.4 or less. Those runs are among the ones that the simulation is
 * compared with, where routing is even unless a record tells it. The first steps of a training are
 * the worst. */
static const double imbalances[SIM_N_ROUTING_CASES] = { 1.0, 1.1, 1.4 };

/* A padded capacity makes all ranks equal, and one expert parallel rank has all tokens anyway. */
static bool may_be_uneven(const sim_scenario_t *s)
{
    return s->num_experts > 0 && s->moe_imbalance == NULL && s->moe_expert_capacity_factor <= 0 &&
           s->expert_model_parallel_size > 1;
}

/* A token is sent once to each of its experts, at most to all those of a rank. */
static double largest(const sim_scenario_t *s)
{
    uint64_t ep = s->expert_model_parallel_size, topk = s->moe_router_topk;
    uint64_t local = s->num_experts / ep;
    return (double)(ep * (topk < local ? topk : local)) / (double)topk;
}

static base_status_t play(const sim_scenario_t *scenario, uint32_t rank, bool unlimited,
                          sim_routing_case_t *c, base_err_t *err)
{
    sim_simulate_options_t options = { .unlimited = unlimited };
    sim_rank_result_t result;
    base_status_t status = sim_simulate_rank(scenario, rank, &options, &result, err);
    if (status != BASE_OK)
        return status;
    c->fits = !unlimited && !result.is_out_of_memory;
    c->need_is_known = !result.is_out_of_memory;
    c->allocated_bytes = result.max_allocated_bytes;
    c->reserved_bytes = result.max_reserved_bytes;
    sim_rank_result_fini(&result);
    return BASE_OK;
}

static base_status_t play_case(const sim_report_t *r, sim_routing_case_t *c, base_err_t *err)
{
    sim_scenario_t scenario = *r->scenario; /* shallow: only the routing differs */
    const sim_routing_config_t config = {
        .n_layers = (uint32_t)sim_n_layers(&scenario),
        .n_ranks = (uint32_t)scenario.expert_model_parallel_size,
        .n_experts = (uint32_t)scenario.num_experts,
        .topk = (uint32_t)scenario.moe_router_topk,
    };
    char text[32];
    snprintf(text, sizeof(text), "%.6g", c->imbalance);
    scenario.routing = NULL;
    base_status_t status = sim_routing_create(&scenario.routing, text, &config, err);
    if (status == BASE_OK)
        status = play(&scenario, r->verdict.worst_rank, false, c, err);
    if (status == BASE_OK && !c->fits)
        status = play(&scenario, r->verdict.worst_rank, true, c, err);
    sim_routing_destroy(scenario.routing);
    return status;
}

base_status_t sim_report_play_routing(sim_report_t *report, base_err_t *err)
{
    base_status_t status = BASE_OK;
    report->has_routing = may_be_uneven(report->scenario);
    double limit = report->has_routing ? largest(report->scenario) : 1.0;
    for (int i = 0; i < SIM_N_ROUTING_CASES && report->has_routing && status == BASE_OK; i++) {
        report->routing[i].imbalance = imbalances[i] < limit ? imbalances[i] : limit;
        status = play_case(report, &report->routing[i], err);
    }
    return status;
}
