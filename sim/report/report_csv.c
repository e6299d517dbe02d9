/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/report.h"

#include "sim/report/real.h"

#include <inttypes.h>

static void print_moment(FILE *out, const sim_moment_t *m)
{
    fprintf(out, ",%" PRIu32 ",%s,%" PRIu32 ",%u,", m->iteration,
            sim_phase_name((sim_phase_t)m->phase), m->microbatch, m->chunk);
    if (m->layer != SIM_NO_LAYER)
        fprintf(out, "%u", m->layer);
    fprintf(out, ",%s", sim_module_name((sim_module_t)m->module));
}

/* Backend, what the device was asked for at most, what it says itself, the difference, whether it
 * had enough; all but the first are empty without real memory. */
static void print_real(const sim_report_t *report, uint32_t rank, FILE *out)
{
    const sim_real_rank_t *r = sim_real_rank(report, rank);
    fprintf(out, ",%s", sim_real_backend_name(report));
    if (r == NULL) {
        fputs(",,,,", out);
        return;
    }
    fprintf(out, ",%" PRIu64, r->own.account_bytes);
    if (r->own.is_measured)
        fprintf(out, ",%" PRIu64 ",%" PRId64, r->own.own_bytes, sim_real_difference(r));
    else
        fputs(",,", out);
    fprintf(out, ",%s", r->is_out_of_memory ? "false" : "true");
}

static void print_row(const sim_report_t *report, uint32_t rank, FILE *out)
{
    const sim_rank_result_t *r = sim_job_result(report->job, rank);
    sim_ledger_t l = sim_report_ledger(report, r);
    topo_coord_t c = { 0 };
    topo_grid_coord(&report->scenario->grid, rank, &c, NULL); /* rank < world_size: cannot fail */
    fprintf(out, "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu64,
            rank, c.tp, c.cp, c.ep, c.dp, c.pp, r->n_parameters);
    for (int i = 0; i < SIM_N_CATEGORIES; i++)
        fprintf(out, ",%" PRIu64, sim_holders_category(&r->at_peak, (sim_category_t)i));
    bool is_live = sim_report_is_live(report);
    fprintf(out, ",%" PRIu64 ",", l.allocated_bytes);
    if (!is_live)
        fprintf(out, "%" PRIu64, l.reserved_bytes);
    fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%s", l.outside_bytes,
            l.device_used_bytes, l.total_bytes, l.headroom_bytes,
            r->is_out_of_memory ? "false"
            : is_live           ? ""
                                : "true");
    print_moment(out, &r->allocated_moment);
    if (is_live)
        fputs(",,,,,,", out);
    else
        print_moment(out, &r->reserved_moment);
    print_real(report, rank, out);
    fprintf(out, ",%s\n", sim_mode_name(report->scenario->mode));
}

void sim_report_csv(const sim_report_t *report, FILE *out)
{
    fputs("rank,tp,cp,ep,dp,pp,n_parameters", out);
    for (int i = 0; i < SIM_N_CATEGORIES; i++)
        fprintf(out, ",%s_bytes", sim_category_name((sim_category_t)i));
    fputs(",max_allocated_bytes,max_reserved_bytes,outside_bytes,device_used_bytes,total_bytes,"
          "headroom_bytes,fits",
          out);
    static const char *const moments[] = { "allocated", "reserved" };
    for (int i = 0; i < 2; i++)
        fprintf(out, ",%s_iteration,%s_phase,%s_microbatch,%s_chunk,%s_layer,%s_module", moments[i],
                moments[i], moments[i], moments[i], moments[i], moments[i]);
    fputs(
        ",backend,device_account_bytes,device_own_bytes,device_difference_bytes,device_fits,mode\n",
        out);
    for (uint32_t rank = 0; rank < report->job->classes.n_ranks; rank++) {
        if (sim_report_shows(report, rank))
            print_row(report, rank, out);
    }
}
