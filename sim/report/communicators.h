/* SPDX-License-Identifier: Apache-2.0
 * Real communicators beside the modelled ones, as text and as JSON. */
#ifndef SIM_REPORT_COMMUNICATORS_H
#define SIM_REPORT_COMMUNICATORS_H

#include "sim/engine/communicators.h"

#include <jansson.h>
#include <stdio.h>

/* The steps of `rank`, and the sums of all ranks; or why the model stands in. */
void sim_communicators_text(const sim_communicators_t *communicators, uint32_t rank, FILE *out);

/* {"is_measured", "why_not", "nccl_version", "model_nccl_version", "steps": [...]} with the steps
 * of all ranks; the caller owns it. */
json_t *sim_communicators_json(const sim_communicators_t *communicators);

#endif
