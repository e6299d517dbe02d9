/* SPDX-License-Identifier: Apache-2.0
 * What the peaks of a job mean, and the report in its forms: text, JSON, CSV. */
#ifndef SIM_REPORT_REPORT_H
#define SIM_REPORT_REPORT_H

#include "collectives/placement.h"
#include "sim/engine/clock.h"
#include "sim/engine/job.h"
#include "sim/engine/real.h"

#include <jansson.h>
#include <stdio.h>

typedef enum {
    SIM_CAUSE_NONE,          /* it fits */
    SIM_CAUSE_CAPACITY,      /* what is allocated at once is more than there is */
    SIM_CAUSE_FRAGMENTATION, /* that would fit; what the allocator has to reserve for it does not */
} sim_cause_t;

typedef enum { SIM_ANSWER_NOT_ASKED, SIM_ANSWER_NO, SIM_ANSWER_YES } sim_answer_t;

typedef struct {
    uint32_t n_out_of_memory; /* ranks */
    uint32_t n_retrying;      /* ranks that went on only after the allocator gave its cache back */
    uint32_t worst_rank;      /* misses by most; when all fit: has the least headroom */
    uint64_t headroom_bytes;  /* of the worst rank; 0 when it does not fit */

    /* Of the worst rank, when it does not fit. */
    sim_cause_t cause;
    bool need_is_known; /* false: more than the largest device that can be simulated */
    uint64_t needed_allocated_bytes, needed_reserved_bytes; /* on a device without end */
    uint64_t misses_by_bytes;                               /* needed reserved less usable */
    /* With expandable_segments:True, every rank that runs out of memory now: played, not guessed.
     * Not asked when the scenario sets it already. */
    sim_answer_t fits_expandable;
    uint64_t expandable_reserved_bytes; /* peak of the worst rank then, when it fits */
} sim_verdict_t;

/* Peaks of the worst rank when it gets `imbalance` times its share of the tokens in every layer
 * with experts. */
typedef struct {
    double imbalance;
    bool fits, need_is_known; /* the latter as in sim_verdict_t */
    uint64_t allocated_bytes, reserved_bytes;
} sim_routing_case_t;

enum { SIM_ROUTING_LOW, SIM_ROUTING_LIKELY, SIM_ROUTING_HIGH, SIM_N_ROUTING_CASES };
extern const char *const sim_routing_case_names[SIM_N_ROUTING_CASES];

typedef struct {
    const sim_scenario_t *scenario;
    const sim_job_t *job;
    const sim_real_t *real; /* the job on real memory, borrowed; NULL at first */
    const char *name;       /* of the scenario file */
    const bool *is_skipped; /* by rank, borrowed; NULL = none is */
    bool is_verbose;        /* text: line by line what is outside PyTorch; false at first */
    bool is_coloured;       /* text: for a terminal that shows colours; false at first */
    const coll_placement_t *placement; /* where it ran, to be said; borrowed; NULL at first */
    int columns; /* text: width of the terminal, for a bar a rank where there is room; 0 at first */
    uint64_t usable_bytes; /* what PyTorch can have on the worst rank */
    sim_verdict_t verdict;
    sim_rank_result_t worst; /* the worst rank, with the list of what is alive */
    sim_step_time_t time;    /* of one step in the steady state; estimated, without spans */
    /* Where routing may be uneven and the scenario does not say how. */
    bool has_routing;
    sim_routing_case_t routing[SIM_N_ROUTING_CASES];
} sim_report_t;

/* What the peaks of a job mean, without a report. Plays ranks that do not fit again under other
 * conditions; fails as sim_simulate_rank() does. */
base_status_t sim_report_judge(const sim_scenario_t *scenario, const sim_job_t *job,
                               const bool *is_skipped, sim_verdict_t *verdict_p, base_err_t *err);

/* Judge a job that was played; what is borrowed must outlive the report. Plays the worst rank again
 * for its list and with uneven routing, and ranks that do not fit under other conditions. Fails as
 * sim_simulate_rank() does. Free with sim_report_fini(), which takes a zeroed struct too. */
base_status_t sim_report_init(sim_report_t *report_p, const sim_scenario_t *scenario,
                              const sim_job_t *job, const char *name, const bool *is_skipped,
                              base_err_t *err);
void sim_report_fini(sim_report_t *report);

/* Fill has_routing and routing of a report whose worst rank is known. */
base_status_t sim_report_play_routing(sim_report_t *report, base_err_t *err);

/* Figures of one rank. What is reserved in the end includes what the allocator only keeps. */
typedef struct {
    uint64_t total_bytes;       /* of the device */
    uint64_t outside_bytes;     /* CUDA context, communicators and others */
    uint64_t reserved_bytes;    /* peak of the allocator */
    uint64_t allocated_bytes;   /* peak of the tensors */
    uint64_t cached_bytes;      /* reserved less allocated */
    uint64_t device_used_bytes; /* outside and reserved */
    uint64_t headroom_bytes;    /* total less device_used */
} sim_ledger_t;

/* With run.mode = live nothing is known about an allocator: what is reserved is then what is
 * allocated, device_used_bytes is a lower bound and headroom_bytes an upper one, and no form of the
 * report gives a figure for what is reserved or says that a rank fits. */
static inline bool sim_report_is_live(const sim_report_t *report)
{
    return report->scenario->mode == SIM_MODE_LIVE;
}

sim_ledger_t sim_report_ledger(const sim_report_t *report, const sim_rank_result_t *result);

/* Whether `rank` is part of the report. */
bool sim_report_shows(const sim_report_t *report, uint32_t rank);

/* Text for people, at most 100 columns. */
void sim_report_text(const sim_report_t *report, FILE *out);

/* "mbsim.report/1"; the caller owns it. */
json_t *sim_report_json(const sim_report_t *report);

/* One line a rank, all sizes in bytes. */
void sim_report_csv(const sim_report_t *report, FILE *out);

#endif
