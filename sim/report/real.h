/* SPDX-License-Identifier: Apache-2.0
 * What a job on real memory has come to, as text and as JSON. */
#ifndef SIM_REPORT_REAL_H
#define SIM_REPORT_REAL_H

#include "sim/report/report.h"

/* "synthetic", "host", "cuda". */
const char *sim_real_backend_name(const sim_report_t *report);

/* Nothing for the synthetic device. */
void sim_real_text(const sim_report_t *report, FILE *out);

/* {"backend": ...}, and more when it was real; the caller owns it. */
json_t *sim_real_json(const sim_report_t *report);

/* Of `rank`; NULL = it was not played on real memory. */
const sim_real_rank_t *sim_real_rank(const sim_report_t *report, uint32_t rank);

/* What the device says less what the account says. */
static inline int64_t sim_real_difference(const sim_real_rank_t *r)
{
    return (int64_t)r->own.own_bytes - (int64_t)r->own.account_bytes;
}

#endif
