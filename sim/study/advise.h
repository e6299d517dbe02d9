/* SPDX-License-Identifier: Apache-2.0
 * What to change so that a job fits: every change that is proposed was simulated. */
#ifndef SIM_STUDY_ADVISE_H
#define SIM_STUDY_ADVISE_H

#include "sim/study/outcome.h"

#include <jansson.h>
#include <stdio.h>

enum { SIM_ADVICE_SETTINGS = 4 };

/* One change, for one scenario. Texts are owned unless said otherwise. */
typedef struct {
    const char *name;                    /* static: "distributed optimizer" */
    char *settings[SIM_ADVICE_SETTINGS]; /* "section.key=value" */
    size_t n_settings;                   /* 0: makes no sense here, see `why_not` */
    char *megatron, *bridge;             /* how to say it there */
    const char *effect, *conflict;       /* static; NULL = none */
    char *why_not;                       /* NULL: it can be made */
    size_t kind;                         /* index that it was described by */
    bool is_recompute;                   /* selective, of one module more */
    bool is_switch;                      /* layout and place of the tensors stay */
    bool keeps_results;                  /* the numbers that are computed stay as exact */
    bool needs_gpus;                     /* more of them */

    /* Alone, if is_tried. */
    bool is_tried;
    sim_outcome_t alone;
    int64_t saved_bytes;      /* of device memory on the worst rank */
    double throughput_change; /* of tokens a second and GPU: -0.28 = 28 % less; an estimate */

    /* After the chosen changes before it, if is_chosen. */
    bool is_chosen;
    sim_outcome_t then;
    int64_t then_saved_bytes;
    double then_throughput_change;
} sim_change_t;

/* The changes that there are, in the order in which they are usually tried. */
size_t sim_changes_n(void);
/* Describe change `i` for a resolved scenario. Free with sim_change_fini(). */
void sim_change_init(sim_change_t *change_p, size_t i, const sim_scenario_t *scenario);
void sim_change_fini(sim_change_t *change);

typedef struct {
    uint64_t margin_bytes;
    bool more_gpus;              /* changes that need more GPUs may be chosen */
    sim_outcome_t before, after; /* after: with all chosen changes */
    sim_change_t *changes;       /* sim_changes_n() of them, in the order of trial; owned */
    size_t n_changes;
    bool fits_already, fits_after;
} sim_advice_t;

/* If the job does not fit with margin_bytes to spare: try each change alone; put selective
 * recompute in the order of what it saves for each second that it costs; add changes in order until
 * all ranks fit; leave out what turns out not to be needed, the costliest first; and put cheaper
 * switches where a costly one stands, first such as keep results. Changes that need more GPUs are
 * chosen with `more_gpus` only. Fails as sim_simulate_rank() does. Free with sim_advice_fini(). */
base_status_t sim_advise(const sim_scenario_t *scenario, uint64_t margin_bytes, bool more_gpus,
                         sim_advice_t *advice_p, base_err_t *err);
void sim_advice_fini(sim_advice_t *advice);

/* Of tokens a second and GPU: -0.28 = 28 % less. */
double sim_advice_throughput_change(const sim_outcome_t *before, const sim_outcome_t *after);

void sim_advice_text(const sim_advice_t *advice, const char *name, FILE *out);
/* "mbsim.advise/1"; the caller owns it. */
json_t *sim_advice_json(const sim_advice_t *advice, const char *name);

#endif
