/* SPDX-License-Identifier: Apache-2.0
 * One measured run of a corpus (a JSON object), and the scenario that it describes. */
#ifndef SIM_STUDY_RECORD_H
#define SIM_STUDY_RECORD_H

#include "sim/scenario/import.h"
#include "sim/scenario/scenario.h"

#include <jansson.h>
#include <stdbool.h>

/* On which ranks the figures were taken. */
typedef enum {
    SIM_MEASURED_ON_RANK, /* one rank, `rank` */
    SIM_MEASURED_ON_MAX,  /* the highest of all ranks, also when the record does not say */
    SIM_MEASURED_ON_MEAN, /* the mean over all ranks */
} sim_measured_on_t;

/* Keys of the scenario from the record's arguments and environment, where it has them, or else from
 * its normalised fields. *reason_p is NULL, or says why the record cannot be covered (the caller
 * frees). `import` is initialised and filled. */
void sim_record_import(const json_t *record, sim_import_t *import, char **reason_p);

/* The resolved scenario of those keys. False, with *reason_p, when the keys do not make one;
 * *scenario_p is initialised in any case. */
bool sim_record_scenario(const sim_import_t *import, sim_scenario_t *scenario_p, char **reason_p);

sim_measured_on_t sim_record_measured_on(const json_t *record, uint64_t world_size,
                                         uint32_t *rank_p);

/* The value at a dotted path ("parallel.tp") as text: strings as they are, null and what is not
 * there as "". The caller frees. */
char *sim_record_text(const json_t *record, const char *path);

#endif
