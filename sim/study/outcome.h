/* SPDX-License-Identifier: Apache-2.0
 * One job simulated and judged: the few figures by which layouts are compared. */
#ifndef SIM_STUDY_OUTCOME_H
#define SIM_STUDY_OUTCOME_H

#include "sim/report/report.h"

typedef enum {
    SIM_STATUS_FITS,
    SIM_STATUS_MAY_FIT, /* the tensors do; with mode live nothing is known of an allocator */
    SIM_STATUS_AT_RISK, /* see sim_outcome_t.risk */
    SIM_STATUS_OUT_OF_MEMORY,
    SIM_STATUS_ERROR, /* could not be simulated */
    SIM_N_STATUSES,
} sim_status_t;

/* "fits", "may fit", "at risk", "out of memory", "error". */
const char *sim_status_name(sim_status_t status);

typedef enum {
    SIM_RISK_NONE,
    SIM_RISK_MARGIN,     /* fits, with less headroom than the margin asked for */
    SIM_RISK_RANGE,      /* fits, but what lies outside PyTorch may be larger than estimated */
    SIM_RISK_RETRIES,    /* fits, because the allocator gave cached segments back */
    SIM_RISK_EXPANDABLE, /* does not fit by fragmentation; would with expandable segments */
    SIM_RISK_FRAGMENTED, /* does not fit by fragmentation, even so */
    SIM_N_RISKS,
} sim_risk_t;

/* "", "margin", "range", "retries", "expandable_segments", "fragmentation". */
const char *sim_risk_name(sim_risk_t risk);

typedef struct {
    sim_status_t status;
    sim_risk_t risk;
    sim_verdict_t verdict;
    uint32_t worst_rank;
    topo_coord_t coord;
    sim_moment_t moment;   /* of the peak; out of memory: when the request failed */
    sim_holders_t at_peak; /* who holds the memory then */
    uint64_t n_parameters; /* elements on the worst rank */
    uint64_t allocated_bytes, reserved_bytes; /* peaks; out of memory: what would be needed */
    uint64_t device_used_bytes;               /* with what lies outside PyTorch */
    uint64_t device_bytes;
    int64_t headroom_bytes; /* negative: what is missing */
    uint32_t n_classes;     /* different ranks */
    uint32_t n_gpus;

    /* Estimates, of the virtual clock. */
    uint64_t step_ns;
    double tokens_per_s, bubble_fraction, mfu;
} sim_outcome_t;

/* Which ranks are played. */
typedef enum {
    SIM_RANKS_ALL,    /* every one, equal ones once */
    SIM_RANKS_STAGES, /* the lowest of each pipeline stage: quick, and others can need more, as each
                       * holds another piece of a distributed optimizer */
} sim_ranks_t;

/* Play the ranks of `scenario` (resolved) and judge; less headroom than margin_bytes is a risk.
 * Fails as sim_simulate_rank() does. */
base_status_t sim_outcome_of(const sim_scenario_t *scenario, sim_ranks_t ranks,
                             uint64_t margin_bytes, sim_outcome_t *outcome_p, base_err_t *err);

#endif
