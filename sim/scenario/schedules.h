/* SPDX-License-Identifier: Apache-2.0
 * Pipeline schedules by name, and how each lays the model over the pipeline ranks. */
#ifndef SIM_SCENARIO_SCHEDULES_H
#define SIM_SCENARIO_SCHEDULES_H

#include "topology/stages.h"

#include <stdbool.h>

typedef enum {
    SIM_SCHEDULE_1F1B,     /* Megatron-LM's: 1F1B, interleaved with virtual stages */
    SIM_SCHEDULE_ZB_H1,    /* Qi et al. 2023, Zero Bubble Pipeline Parallelism, figure 2 */
    SIM_SCHEDULE_ZBV,      /* the same, section 6; V-ZB of the paper below */
    SIM_SCHEDULE_V_HALF,   /* Qi et al. 2024, Pipeline Parallelism with Controllable Memory */
    SIM_SCHEDULE_V_MIN,    /* the same */
    SIM_SCHEDULE_DUALPIPE, /* DeepSeek-V3 Technical Report; deepseek-ai/DualPipe */
    SIM_SCHEDULE_DUALPIPEV /* deepseek-ai/DualPipe, dualpipev.py */
} sim_schedule_t;

/* As the key pipeline_schedule has it. */
static inline const char *sim_schedule_name(sim_schedule_t schedule)
{
    static const char *const names[] = {
        [SIM_SCHEDULE_1F1B] = "1f1b",
        [SIM_SCHEDULE_ZB_H1] = "zb-h1",
        [SIM_SCHEDULE_ZBV] = "zbv",
        [SIM_SCHEDULE_V_HALF] = "v-half",
        [SIM_SCHEDULE_V_MIN] = "v-min",
        [SIM_SCHEDULE_DUALPIPE] = "dualpipe",
        [SIM_SCHEDULE_DUALPIPEV] = "dualpipev",
    };
    return names[schedule];
}

/* Whether weight gradients are passes of their own in it. */
static inline bool sim_schedule_splits(sim_schedule_t schedule)
{
    return schedule != SIM_SCHEDULE_1F1B;
}

static inline topo_placement_t sim_schedule_placement(sim_schedule_t schedule)
{
    switch (schedule) {
    case SIM_SCHEDULE_ZBV:
    case SIM_SCHEDULE_V_HALF:
    case SIM_SCHEDULE_V_MIN:
    case SIM_SCHEDULE_DUALPIPEV:
        return TOPO_PLACEMENT_V;
    case SIM_SCHEDULE_DUALPIPE:
        return TOPO_PLACEMENT_BOTH_WAYS;
    default:
        return TOPO_PLACEMENT_LOOP;
    }
}

#endif
