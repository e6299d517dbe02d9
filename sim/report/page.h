/* SPDX-License-Identifier: Apache-2.0
 * The report as one HTML page that needs nothing but a browser: style, program and data are inside
 * it, and it asks the network for nothing. */
#ifndef SIM_REPORT_PAGE_H
#define SIM_REPORT_PAGE_H

#include "sim/report/report.h"

/* What the page shows of a job: the JSON report with equal ranks folded, and the timelines of at
 * most SIM_PAGE_MAX_TIMELINES kinds of rank, which are played again for it; the worst rank is among
 * them. *page_p is the caller's. Fails as sim_simulate_rank() does. */
enum { SIM_PAGE_MAX_TIMELINES = 64 };
typedef struct {
    const char *command; /* how the report was asked for, for people */
    void (*progress)(uint64_t n_done, uint64_t n_todo, void *arg); /* timelines; may be NULL */
    void *progress_arg;
} sim_page_options_t;
base_status_t sim_page_run(const sim_report_t *report, const sim_page_options_t *options,
                           json_t **page_p, base_err_t *err);

/* Write the page about `page`. `text` is for browsers without scripts. Both may hold anything: they
 * are escaped. */
void sim_page_write(const json_t *page, const char *text, FILE *out);

#endif
