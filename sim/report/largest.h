/* SPDX-License-Identifier: Apache-2.0
 * The tensors alive at a moment, by kind. Private to sim/report. */
#ifndef SIM_REPORT_LARGEST_H
#define SIM_REPORT_LARGEST_H

#include "sim/engine/simulate.h"

/* Tensors of one name, category and module. */
typedef struct {
    const sim_alive_t *largest; /* of them; belongs to the result */
    uint64_t n, bytes;
} sim_largest_t;

/* Returns the number of kinds, largest first; *kinds_p is the caller's to free. */
uint32_t sim_largest_kinds(const sim_rank_result_t *result, sim_largest_t **kinds_p);

#endif
