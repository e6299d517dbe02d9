/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/simulate.h"

#include "sim/engine/rank_run.h"

#include <stdlib.h>

static base_status_t play(const sim_scenario_t *scenario, const sim_place_t *place,
                          const sim_rank_run_options_t *options, sim_rank_result_t *result_p,
                          uint64_t *peak_op_p, base_err_t *err)
{
    sim_rank_run_t *run;
    base_status_t status = sim_rank_run_create(scenario, place, options, &run, err);
    if (status != BASE_OK)
        return status;
    while (sim_rank_run_next(run) != NULL)
        ;
    sim_rank_run_result(run, result_p, peak_op_p);
    sim_rank_run_destroy(run);
    return BASE_OK;
}

/* Play again up to `stop_at`, or with 0 until memory runs out, and take the list. */
static base_status_t add_alive(const sim_scenario_t *scenario, const sim_place_t *place,
                               bool unlimited, uint64_t stop_at, sim_rank_result_t *result,
                               base_err_t *err)
{
    sim_rank_run_options_t options = { .unlimited = unlimited,
                                       .want_alive = true,
                                       .stop_at = stop_at };
    sim_rank_result_t at_peak;
    base_status_t status = play(scenario, place, &options, &at_peak, NULL, err);
    if (status != BASE_OK)
        return status;
    result->alive = at_peak.alive;
    result->n_alive = at_peak.n_alive;
    at_peak.alive = NULL;
    sim_rank_result_fini(&at_peak);
    return BASE_OK;
}

base_status_t sim_simulate_rank(const sim_scenario_t *scenario, uint32_t rank,
                                const sim_simulate_options_t *options, sim_rank_result_t *result_p,
                                base_err_t *err)
{
    static const sim_simulate_options_t defaults = { 0 };
    if (options == NULL)
        options = &defaults;
    topo_coord_t coord;
    base_status_t status = topo_grid_coord(&scenario->grid, rank, &coord, err);
    if (status != BASE_OK)
        return status;
    sim_place_t place = sim_place_of(scenario, &coord);
    /* Without the list what repeats is not played, and the peak is early as a rule: played twice is
     * played less. */
    sim_rank_run_options_t run_options = { .unlimited = options->unlimited,
                                           .want_need = options->want_need && !options->unlimited,
                                           .plays_all = options->plays_all,
                                           .observer = options->observer };
    sim_rank_result_t result;
    uint64_t peak_op;
    status = play(scenario, &place, &run_options, &result, &peak_op, err);
    if (status == BASE_OK && options->want_alive) {
        status = add_alive(scenario, &place, options->unlimited,
                           result.is_out_of_memory ? 0 : peak_op, &result, err);
        if (status != BASE_OK)
            sim_rank_result_fini(&result);
    }
    if (status != BASE_OK)
        return status;
    result.rank = rank;
    result.coord = coord;
    *result_p = result;
    return BASE_OK;
}

void sim_rank_result_fini(sim_rank_result_t *result)
{
    free(result->iterations);
    free(result->alive);
    *result = (sim_rank_result_t){ 0 };
}
