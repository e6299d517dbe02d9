/* SPDX-License-Identifier: Apache-2.0
 * Ranks whose programs are equal: they are played once. */
#ifndef SIM_ENGINE_CLASSES_H
#define SIM_ENGINE_CLASSES_H

#include "sim/base/err.h"
#include "sim/engine/place.h"

#include <stdint.h>

typedef struct {
    uint32_t n_ranks, n_classes;
    uint32_t *of_rank;    /* class of each rank; owned */
    uint32_t *first_rank; /* lowest rank of each class, ascending; owned */
} sim_classes_t;

/* Two ranks are in one class when they build the same model chunks and tapes, run the same order,
 * own equal pieces of optimizer state in the same order, and leave PyTorch as much of the device.
 * Fails as sim_simulate_rank() does. Free with sim_classes_fini(), which takes a zeroed struct too.
 */
base_status_t sim_classes_init(sim_classes_t *classes_p, const sim_scenario_t *scenario,
                               base_err_t *err);
void sim_classes_fini(sim_classes_t *classes);

#endif
