/* SPDX-License-Identifier: Apache-2.0
 * A trace that ui.perfetto.dev and chrome://tracing open: the JSON form of the Trace Event Format.
 */
#ifndef SIM_REPORT_PERFETTO_H
#define SIM_REPORT_PERFETTO_H

#include "sim/report/report.h"

enum { SIM_PERFETTO_MAX_ITERATIONS = 3 };

/* Write the first iterations of the fullest rank of each pipeline stage, the worst rank among them:
 * a process a rank; tracks for computation, communication and waiting, and marks; counters of the
 * memory by category; arrows for the messages of the pipeline. Times are the estimates of the
 * step; within a pass its allocations are spread evenly. Plays those ranks again and writes each
 * before it plays the next. Fails as sim_simulate_rank() does; errors of writing are `out`'s. */
base_status_t sim_perfetto_write(const sim_report_t *report, FILE *out, base_err_t *err);

#endif
