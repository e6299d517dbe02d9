/* SPDX-License-Identifier: Apache-2.0
 * The closed-form estimators beside the simulation, component by component. */
#ifndef SIM_STUDY_ESTIMATE_REPORT_H
#define SIM_STUDY_ESTIMATE_REPORT_H

#include "sim/engine/simulate.h"
#include "sim/study/estimate.h"

#include <jansson.h>
#include <stdio.h>

/* What a GPU holds at its peak, split as the estimators split it. */
typedef struct {
    double weight_and_optimizer_bytes; /* parameters, gradients, optimizer state */
    double activation_bytes;           /* everything else */
    double total_bytes;                /* allocated */
} sim_estimate_parts_t;

typedef struct {
    uint32_t rank; /* the one that allocates most, on a device without end */
    topo_coord_t coord;
    sim_holders_t at_peak;
    uint64_t max_reserved_bytes;
    sim_estimate_parts_t simulated, megatron, bridge;
    char *megatron_line, *bridge_line; /* as the programs print them; owned */
    bool has_bridge;
    char *bridge_error; /* why not; owned */
} sim_estimate_report_t;

/* Fails as sim_simulate_rank() does. Free with sim_estimate_report_fini(). */
base_status_t sim_estimate_report_init(sim_estimate_report_t *report_p,
                                       const sim_scenario_t *scenario, base_err_t *err);
void sim_estimate_report_fini(sim_estimate_report_t *report);

void sim_estimate_report_text(const sim_estimate_report_t *report, const char *name, FILE *out);

/* "mbsim.estimate/1"; the caller owns it. */
json_t *sim_estimate_report_json(const sim_estimate_report_t *report, const char *name);

#endif
