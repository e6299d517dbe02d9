/* SPDX-License-Identifier: Apache-2.0
 * Records of runs with torchtitan. */
#ifndef SIM_STUDY_RECORD_TITAN_H
#define SIM_STUDY_RECORD_TITAN_H

#include "sim/scenario/import.h"

#include <jansson.h>
#include <stdbool.h>

bool sim_record_is_titan(const json_t *record);

/* Why a record of torchtitan cannot be covered; NULL = it can. The caller frees. */
char *sim_record_refuse_titan(const json_t *record);

/* Keys from the record's fields; then the day of the software, from what the source says, and what
 * torchtitan's own launcher sets. */
void sim_record_import_titan(const json_t *record, sim_import_t *import);
void sim_record_refine_titan(const json_t *record, sim_import_t *import);

#endif
