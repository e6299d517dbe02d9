/* SPDX-License-Identifier: Apache-2.0
 * The report for people. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/engine/outside.h"
#include "sim/report/largest.h"
#include "sim/report/moment.h"
#include "sim/report/placement.h"
#include "sim/report/rank_list.h"
#include "sim/report/real.h"
#include "sim/report/report.h"
#include "sim/report/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { N_LARGEST = 10, LIST_TEXT = 64 };

typedef char size_text_t[BASE_BYTES_TEXT];

static void print_title(const sim_report_t *r, FILE *out)
{
    const sim_scenario_t *s = r->scenario;
    const topo_grid_t *g = &s->grid;
    size_text_t total;
    fprintf(out, "%s\n%" PRIu32 " x %s with %s; TP %" PRIu32 ", PP %" PRIu32, r->name,
            g->world_size, s->gpu_p->name, base_bytes_format(s->memory_bytes, total), g->tp, g->pp);
    if (sim_schedule_splits(s->pipeline_schedule))
        fprintf(out, " %s", sim_schedule_name(s->pipeline_schedule));
    else if (s->stages.vpp > 1)
        fprintf(out, ", VPP %" PRIu32, s->stages.vpp);
    if (g->cp > 1)
        fprintf(out, ", CP %" PRIu32, g->cp);
    if (g->ep > 1)
        fprintf(out, ", EP %" PRIu32, g->ep);
    fprintf(out,
            ", DP %" PRIu32 "\n%" PRIu64 " iterations of %" PRIu64 " micro-batches of %" PRIu64
            " x %" PRIu64 " tokens",
            g->dp, s->iterations, s->n_microbatches, s->micro_batch_size, s->seq_length);
    if (s->mean_seq_length > 0)
        fprintf(out, " at most, %" PRIu64 " on average", s->mean_seq_length);
    fputc('\n', out);
    if (sim_report_is_live(r))
        fputs("LIVE BYTES ONLY (mode live): the sum of the tensors that are alive; what an "
              "allocator\n"
              "keeps beside them, fragmentation included, is left out\n",
              out);
}

static void print_time(const sim_report_t *r, FILE *out)
{
    const sim_step_time_t *t = &r->time;
    fprintf(out, "estimated: %.3g s a step, %.0f tokens/s, %.0f TFLOP/s a GPU (%.0f %% of peak)",
            (double)t->step_ns / 1e9, t->tokens_per_s, t->tflops_per_s, 100 * t->mfu);
    if (t->n_pipeline_ranks > 1)
        fprintf(out, ", bubble %.0f %%", 100 * t->bubble_fraction);
    if (t->launch_ns > t->step_ns / 100)
        fprintf(out, "\nthe GPU waits for its host %.0f %% of the time",
                100 * (double)t->launch_ns / (double)t->step_ns);
    fprintf(out, "\n\n");
}

/* ---- the worst rank ---- */

static void print_ledger_line(FILE *out, int depth, const char *name, uint64_t bytes,
                              uint64_t total_bytes)
{
    size_text_t size;
    fprintf(out, "  %*s%-*s %11s %6.1f %%\n", 2 * depth, "", 24 - 2 * depth, name,
            base_bytes_format(bytes, size),
            total_bytes > 0 ? 100.0 * (double)bytes / (double)total_bytes : 0.0);
}

/* In short: what every process has, communicators, buffers. */
static void print_outside_shares(const sim_outside_t *o, uint64_t total_bytes, FILE *out)
{
    uint64_t process = 0, communicators = 0, buffers = 0;
    for (uint32_t i = 0; i < o->n_lines; i++) {
        const sim_outside_line_t *line = &o->lines[i];
        if (line->is_communicator)
            communicators += line->bytes;
        else if (line->is_buffer)
            buffers += line->bytes;
        else
            process += line->bytes;
    }
    if (communicators + buffers == 0) /* one figure says it all */
        return;
    print_ledger_line(out, 2, "context and code", process, total_bytes);
    print_ledger_line(out, 2, "communicators", communicators, total_bytes);
    if (buffers > 0)
        print_ledger_line(out, 2, "buffers", buffers, total_bytes);
}

static void print_outside_line(const sim_outside_line_t *line, FILE *out)
{
    size_text_t bytes, low, high;
    char name[SIM_OUTSIDE_NAME + LIST_TEXT];
    snprintf(name, sizeof(name), "%s", line->name);
    if (line->is_communicator)
        snprintf(name, sizeof(name), "%s, %" PRIu32 " rank%s on %" PRIu32 " node%s", line->name,
                 line->spread.n_ranks, line->spread.n_ranks > 1 ? "s" : "", line->spread.n_nodes,
                 line->spread.n_nodes > 1 ? "s" : "");
    fprintf(out, "  %-41s %10s  %10s to %10s  ", name, base_bytes_format(line->bytes, bytes),
            base_bytes_format(line->low, low), base_bytes_format(line->high, high));
    if (line->at.iteration > 0)
        fprintf(out, "i%" PRIu32 " ", line->at.iteration);
    fprintf(out, "%s\n", coll_phase_name(line->at.phase));
    for (uint32_t i = 0; i < line->n_steps; i++)
        fprintf(out, "    %-39s %10s  %s%s\n", line->steps[i].what,
                base_bytes_format(line->steps[i].bytes, bytes),
                line->steps[i].at.iteration > 0 ? "" : "before the first iteration, ",
                coll_phase_name(line->steps[i].at.phase));
    if (line->n_steps == 0)
        fprintf(out, "    from: %s\n", line->source);
}

static void print_outside(const sim_outside_t *o, FILE *out)
{
    if (o->n_lines == 0)
        return;
    fprintf(out, "  %-41s %10s  %-24s  %s\n", "outside PyTorch", "bytes", "      least to most",
            "appears at");
    for (uint32_t i = 0; i < o->n_lines; i++)
        print_outside_line(&o->lines[i], out);
    fputc('\n', out);
}

static void print_host(uint64_t bytes, FILE *out)
{
    size_text_t text;
    if (bytes > 0)
        fprintf(out, "  %s of host memory a rank hold what is offloaded\n",
                base_bytes_format(bytes, text));
}

/* Part of what is reserved, but what it served the captures with counts as allocated no more. */
static void print_graph_pool(const sim_rank_result_t *w, FILE *out)
{
    size_text_t size, idle;
    if (w->mempools.reserved_bytes > 0)
        fprintf(out,
                "  graph pool               %11s, of which %s is idle: reserved for CUDA graphs\n",
                base_bytes_format(w->mempools.reserved_bytes, size),
                base_bytes_format(w->mempools.idle_bytes, idle));
}

static void print_ledger(const sim_report_t *r, FILE *out)
{
    sim_ledger_t l = sim_report_ledger(r, &r->worst);
    sim_outside_t outside;
    sim_outside_init(&outside, r->scenario, r->worst.rank);
    print_ledger_line(out, 0, "device", l.total_bytes, l.total_bytes);
    print_ledger_line(out, 1, "outside PyTorch", l.outside_bytes, l.total_bytes);
    print_outside_shares(&outside, l.total_bytes, out);
    if (sim_report_is_live(r)) {
        print_ledger_line(out, 1, "allocated, peak", l.allocated_bytes, l.total_bytes);
        print_ledger_line(out, 1, "headroom, at most", l.headroom_bytes, l.total_bytes);
    } else {
        print_ledger_line(out, 1, "reserved, peak", l.reserved_bytes, l.total_bytes);
        print_ledger_line(out, 2, "allocated, peak", l.allocated_bytes, l.total_bytes);
        print_ledger_line(out, 2, "cached", l.cached_bytes, l.total_bytes);
        print_ledger_line(out, 1, "headroom", l.headroom_bytes, l.total_bytes);
    }
    print_host(r->worst.host_bytes, out);
    print_graph_pool(&r->worst, out);
    fputc('\n', out);
    if (r->is_verbose)
        print_outside(&outside, out);
    sim_outside_fini(&outside);
}

typedef struct {
    const char *name;
    uint64_t bytes;
} share_t;

static int by_bytes(const void *a, const void *b)
{
    const share_t *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void print_share(FILE *out, const share_t *share, uint64_t total_bytes)
{
    size_text_t size;
    fprintf(out, "  %-14s %11s %5.1f %%", share->name, base_bytes_format(share->bytes, size),
            total_bytes > 0 ? 100.0 * (double)share->bytes / (double)total_bytes : 0.0);
}

/* Categories on the left, modules on the right, largest first, empty ones left out. */
static void print_holders(const sim_holders_t *holders, FILE *out)
{
    share_t left[SIM_N_CATEGORIES], right[SIM_N_MODULES];
    uint64_t total_bytes = sim_holders_total(holders);
    for (int i = 0; i < SIM_N_CATEGORIES; i++)
        left[i] = (share_t){ sim_category_name((sim_category_t)i),
                             sim_holders_category(holders, (sim_category_t)i) };
    for (int i = 0; i < SIM_N_MODULES; i++)
        right[i] = (share_t){ sim_module_name((sim_module_t)i),
                              sim_holders_module(holders, (sim_module_t)i) };
    qsort(left, SIM_N_CATEGORIES, sizeof(left[0]), by_bytes);
    qsort(right, SIM_N_MODULES, sizeof(right[0]), by_bytes);
    fprintf(out, "  %-34s      %s\n", "by category", "by module");
    for (int i = 0; i < SIM_N_MODULES || i < SIM_N_CATEGORIES; i++) {
        bool has_left = i < SIM_N_CATEGORIES && left[i].bytes > 0;
        bool has_right = i < SIM_N_MODULES && right[i].bytes > 0;
        if (!has_left && !has_right)
            break;
        if (has_left)
            print_share(out, &left[i], total_bytes);
        else
            fprintf(out, "%36s", "");
        if (has_right) {
            fputs("    ", out);
            print_share(out, &right[i], total_bytes);
        }
        fputc('\n', out);
    }
    fputc('\n', out);
}

static void print_largest(const sim_rank_result_t *result, FILE *out)
{
    sim_largest_t *groups;
    uint32_t n = sim_largest_kinds(result, &groups);
    fprintf(out, "  largest of %" PRIu32 " tensors alive\n", result->n_alive);
    for (uint32_t i = 0; i < n && i < N_LARGEST; i++) {
        const sim_alive_t *a = groups[i].largest;
        size_text_t sum, each;
        fprintf(out, "  %-26.26s %11s in %5" PRIu64 ", each up to %11s (%s, %s)\n", a->name,
                base_bytes_format(groups[i].bytes, sum), groups[i].n,
                base_bytes_format(a->block_bytes, each),
                sim_category_name((sim_category_t)a->category),
                sim_module_name((sim_module_t)a->module));
    }
    fputc('\n', out);
    free(groups);
}

/* Maxima are since the start, so that a later line is never below an earlier one. */
static void print_iterations(const sim_report_t *r, FILE *out)
{
    const sim_rank_result_t *result = &r->worst;
    for (uint32_t i = 0; i < result->n_iterations; i++) {
        const sim_iteration_t *it = &result->iterations[i];
        size_text_t peak, reserved, left;
        fprintf(out, "  iteration %" PRIu32 ": peak allocated %11s", i + 1,
                base_bytes_format(it->max_allocated_bytes, peak));
        if (!sim_report_is_live(r))
            fprintf(out, ", reserved %11s", base_bytes_format(it->max_reserved_bytes, reserved));
        fprintf(out, "; allocated at its end %11s\n", base_bytes_format(it->allocated_bytes, left));
    }
    for (uint32_t i = 0; i < result->n_extras; i++) {
        const sim_extra_t *extra = &result->extras[i];
        size_text_t peak, reserved;
        fprintf(out, "  %s: peak allocated %11s", sim_phase_name((sim_phase_t)extra->which),
                base_bytes_format(extra->max_allocated_bytes, peak));
        if (!sim_report_is_live(r))
            fprintf(out, ", reserved %11s", base_bytes_format(extra->max_reserved_bytes, reserved));
        fputc('\n', out);
    }
    if (result->n_iterations > 0)
        fputc('\n', out);
}

static void print_routing(const sim_report_t *r, FILE *out)
{
    if (!r->has_routing)
        return;
    fprintf(out,
            "  routing is taken as even; with more than its share of the tokens in every layer:\n");
    for (int i = 0; i < SIM_N_ROUTING_CASES; i++) {
        const sim_routing_case_t *c = &r->routing[i];
        size_text_t peak, reserved;
        fprintf(out, "    %-6s %5.3g of it: peak allocated %11s", sim_routing_case_names[i],
                c->imbalance, base_bytes_format(c->allocated_bytes, peak));
        if (!sim_report_is_live(r))
            fprintf(out, ", reserved %11s", base_bytes_format(c->reserved_bytes, reserved));
        fprintf(out, "%s\n",
                c->fits            ? ""
                : c->need_is_known ? ", does not fit"
                                   : " and more, does not fit");
    }
    fputc('\n', out);
}

static void print_worst(const sim_report_t *r, FILE *out)
{
    const sim_rank_result_t *w = &r->worst;
    bool has_chunks = r->scenario->stages.vpp > 1;
    char moment[SIM_MOMENT_TEXT];
    fprintf(out, "Worst rank: %" PRIu32 " (", w->rank);
    sim_report_coordinates(r, &w->coord, out);
    fprintf(out, ")\n  %s in %s\n\n", w->is_out_of_memory ? "runs out of memory" : "peak",
            sim_moment_words(w->is_out_of_memory ? &w->oom_moment : &w->allocated_moment,
                             has_chunks, moment));
    print_iterations(r, out);
    print_routing(r, out);
    print_ledger(r, out);
    print_holders(w->is_out_of_memory ? &w->at_oom : &w->at_peak, out);
    print_largest(w, out);
}

/* ---- verdict ---- */

static void list_out_of_memory(const sim_report_t *r, char *buf, size_t size)
{
    uint32_t n = r->job->classes.n_ranks;
    bool *is_in = base_xcalloc(n, sizeof(*is_in));
    for (uint32_t rank = 0; rank < n; rank++)
        is_in[rank] = sim_report_shows(r, rank) && sim_job_result(r->job, rank)->is_out_of_memory;
    sim_rank_list_format(is_in, n, buf, size);
    free(is_in);
}

static void print_cause(const sim_report_t *r, FILE *out)
{
    const sim_verdict_t *v = &r->verdict;
    size_text_t allocated, reserved, usable, misses;
    base_bytes_format(r->usable_bytes, usable);
    if (!v->need_is_known) {
        fprintf(out, "  Capacity: it needs more than any device that can be simulated.\n");
        return;
    }
    base_bytes_format(v->needed_allocated_bytes, allocated);
    base_bytes_format(v->misses_by_bytes, misses);
    if (sim_report_is_live(r))
        fprintf(out, "  It needs %s allocated;\n  there is %s: it misses by at least %s.\n",
                allocated, usable, misses);
    else
        fprintf(out,
                "  It needs %s reserved for a peak of %s allocated;\n  there is %s: it misses by "
                "%s.\n",
                base_bytes_format(v->needed_reserved_bytes, reserved), allocated, usable, misses);
    if (v->cause == SIM_CAUSE_CAPACITY)
        fputs("  Capacity: the tensors alone do not fit; no setting of the allocator helps.\n",
              out);
    else
        fputs("  Fragmentation: the tensors would fit; what the allocator reserves for them does "
              "not.\n",
              out);
}

static void print_expandable(const sim_report_t *r, FILE *out)
{
    const sim_verdict_t *v = &r->verdict;
    size_text_t reserved;
    if (v->fits_expandable == SIM_ANSWER_YES)
        fprintf(out, "  With expandable_segments:True it fits: at most %s reserved (simulated).\n",
                base_bytes_format(v->expandable_reserved_bytes, reserved));
    else if (v->fits_expandable == SIM_ANSWER_NO)
        fputs("  With expandable_segments:True it does not fit either (simulated).\n", out);
}

/* The words that matter most. */
static void print_loud(const sim_report_t *r, FILE *out, bool is_good, const char *words)
{
    if (r->is_coloured)
        fprintf(out, "\033[1;%dm%s\033[0m", is_good ? 32 : 31, words);
    else
        fputs(words, out);
}

static void print_out_of_memory(const sim_report_t *r, FILE *out)
{
    const sim_rank_result_t *w = &r->worst;
    const sim_oom_t *oom = &w->oom;
    char ranks[LIST_TEXT];
    size_text_t tried, total, available, allocated, pools, cached;
    bool has_pools = oom->mempools_idle_bytes > 0;
    list_out_of_memory(r, ranks, sizeof(ranks));
    print_loud(r, out, false, "OUT OF MEMORY");
    if (r->verdict.n_out_of_memory > 1)
        fprintf(out,
                " on %" PRIu32 " ranks: %s\n  On rank %" PRIu32 ", which misses "
                "by most:\n",
                r->verdict.n_out_of_memory, ranks, w->rank);
    else
        fprintf(out, " on rank %" PRIu32 ":\n", w->rank);
    fprintf(out,
            "  Tried to allocate %s for %s.\n  The GPU has %s in total, of which %s is free;\n"
            "  %s is allocated by PyTorch",
            base_bytes_format(oom->requested_bytes, tried), w->oom_tensor,
            base_bytes_format(oom->device_total_bytes, total),
            base_bytes_format(oom->device_free_bytes, available),
            base_bytes_format(oom->allocated_bytes, allocated));
    if (!sim_report_is_live(r))
        fprintf(out, ", %s%s%sand %s is reserved by PyTorch but unallocated",
                has_pools ? "with " : "",
                has_pools ? base_bytes_format(oom->mempools_idle_bytes, pools) : "",
                has_pools ? " allocated in private pools (e.g., CUDA Graphs),\n  " : "",
                base_bytes_format(
                    oom->reserved_bytes - oom->allocated_bytes - oom->mempools_idle_bytes, cached));
    fputs(".\n", out);
    print_cause(r, out);
    print_expandable(r, out);
}

void sim_report_text(const sim_report_t *report, FILE *out)
{
    print_title(report, out);
    print_time(report, out);
    sim_report_table(report, out);
    fputc('\n', out);
    if (report->placement != NULL) {
        sim_placement_text(report->placement, out);
        fputc('\n', out);
    }
    print_worst(report, out);
    sim_real_text(report, out);
    if (report->verdict.n_out_of_memory > 0) {
        print_out_of_memory(report, out);
        return;
    }
    size_text_t room;
    if (sim_report_is_live(report)) {
        fprintf(out,
                "MAY FIT: the tensors leave at most %s on rank %" PRIu32
                ", the fullest,\n  for what the allocator keeps; mode stepped plays it.\n",
                base_bytes_format(report->verdict.headroom_bytes, room),
                report->verdict.worst_rank);
        return;
    }
    print_loud(report, out, true, "FITS");
    fprintf(out, " with %s headroom on rank %" PRIu32 ", the fullest.\n",
            base_bytes_format(report->verdict.headroom_bytes, room), report->verdict.worst_rank);
    if (report->verdict.n_retrying > 0)
        fprintf(out,
                "  %" PRIu32 " of the ranks went on only after PyTorch had given its cache back to "
                "the device,\n  which stalls the GPU: there is no room to spare.\n",
                report->verdict.n_retrying);
}
