/* SPDX-License-Identifier: Apache-2.0
 * Where the processes of a run sat, for people and for programs. */
#ifndef SIM_REPORT_PLACEMENT_H
#define SIM_REPORT_PLACEMENT_H

#include "collectives/placement.h"

#include <jansson.h>
#include <stdio.h>

/* Host by host, each with the ranks (before these were shared out: the processes) that ran there,
 * and what each was near to. */
void sim_placement_text(const coll_placement_t *placement, FILE *out);

/* {"bound", "hosts": [{"host", "processes": [...]}]}; the caller owns it. */
json_t *sim_placement_json(const coll_placement_t *placement);

#endif
