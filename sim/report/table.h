/* SPDX-License-Identifier: Apache-2.0
 * The table of ranks. Private to sim/report. */
#ifndef SIM_REPORT_TABLE_H
#define SIM_REPORT_TABLE_H

#include "sim/report/report.h"

enum { SIM_REPORT_COLUMNS = 100 };

/* One line for all ranks whose lines would be the same. */
void sim_report_table(const sim_report_t *report, FILE *out);

/* "pp 3, tp 0, dp 1": the axes along which the job is split, all of them in one form. */
void sim_report_coordinates(const sim_report_t *report, const topo_coord_t *coord, FILE *out);

#endif
