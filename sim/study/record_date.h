/* SPDX-License-Identifier: Apache-2.0
 * When the software of a measured run is from, and how far the run went. */
#ifndef SIM_STUDY_RECORD_DATE_H
#define SIM_STUDY_RECORD_DATE_H

#include "sim/scenario/import.h"

#include <jansson.h>

/* The versions that a figure was made with, as a day (run.software_date): when it was recorded,
 * else the release, month or container that the record names. A record that says nothing is
 * simulated with the newest. */
void sim_record_put_date(const json_t *record, sim_import_t *import);

/* "64.653 GB after iteration 2, completed": what came later is not in the figure (run.iterations).
 */
void sim_record_put_iterations(const json_t *record, sim_import_t *import);

#endif
