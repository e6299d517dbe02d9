/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/validate.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A set of absolute errors in percent. */
typedef struct {
    double *values;
    size_t n;
} errors_t;

static double relative_error(double value, double measured)
{
    return fabs(value - measured) / measured * 100;
}

static void add_error(errors_t *e, double value, double measured)
{
    e->values = base_xrealloc(e->values, e->n + 1, sizeof(*e->values));
    e->values[e->n++] = relative_error(value, measured);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Frees the set. */
static sim_error_stats_t settle(errors_t *e)
{
    sim_error_stats_t s = { .n = e->n };
    if (e->n > 0) {
        qsort(e->values, e->n, sizeof(*e->values), ascending);
        s.median = (e->values[(e->n - 1) / 2] + e->values[e->n / 2]) / 2;
        s.p90 = e->values[(e->n * 9 + 9) / 10 - 1];
        s.max = e->values[e->n - 1];
    }
    free(e->values);
    return s;
}

/* Which static figure a record has: the second step's, or the one after a later step. */
static bool fixed_figure(const sim_comparison_t *c, sim_figure_t *figure_p)
{
    static const sim_figure_t order[] = { SIM_FIGURE_ALLOCATED_STEP2, SIM_FIGURE_ALLOCATED,
                                          SIM_FIGURE_ALLOCATED_STEP1 };
    for (size_t i = 0; i < 3; i++) {
        if (c->has_measured[order[i]]) {
            *figure_p = order[i];
            return true;
        }
    }
    return false;
}

static bool step_difference(const sim_comparison_t *c, const uint64_t figures[SIM_N_FIGURES],
                            double *difference_p)
{
    *difference_p = (double)figures[SIM_FIGURE_MAX_ALLOCATED_STEP2] -
                    (double)figures[SIM_FIGURE_MAX_ALLOCATED_STEP1];
    return c->has_measured[SIM_FIGURE_MAX_ALLOCATED_STEP1] &&
           c->has_measured[SIM_FIGURE_MAX_ALLOCATED_STEP2];
}

static double bridge_total(const sim_comparison_t *c)
{
    return c->bridge.dense_bytes + c->bridge.routed_bytes + c->bridge.activation_bytes;
}

typedef struct {
    errors_t peak, fixed, moments, reserved, device, outside, estimator, bridge;
} all_errors_t;

static void add_comparison(all_errors_t *e, const sim_comparison_t *c)
{
    sim_figure_t fixed;
    double measured, simulated;
    if (c->has_measured[SIM_FIGURE_MAX_ALLOCATED]) {
        double peak = (double)c->measured[SIM_FIGURE_MAX_ALLOCATED];
        add_error(&e->peak, (double)c->simulated[SIM_FIGURE_MAX_ALLOCATED], peak);
        add_error(&e->estimator, c->megatron.total_bytes, peak);
        if (c->has_bridge)
            add_error(&e->bridge, bridge_total(c), peak);
    }
    if (fixed_figure(c, &fixed))
        add_error(&e->fixed, (double)c->simulated[fixed], (double)c->measured[fixed]);
    if (c->has_measured[SIM_FIGURE_MAX_RESERVED])
        add_error(&e->reserved, (double)c->simulated[SIM_FIGURE_MAX_RESERVED],
                  (double)c->measured[SIM_FIGURE_MAX_RESERVED]);
    if (c->has_measured[SIM_FIGURE_DEVICE_USED]) {
        uint64_t used = c->measured[SIM_FIGURE_DEVICE_USED];
        uint64_t reserved = c->measured[SIM_FIGURE_MAX_RESERVED];
        add_error(&e->device, (double)c->simulated[SIM_FIGURE_DEVICE_USED], (double)used);
        if (c->has_measured[SIM_FIGURE_MAX_RESERVED] && used > reserved)
            add_error(&e->outside,
                      (double)(c->simulated[SIM_FIGURE_DEVICE_USED] -
                               c->simulated[SIM_FIGURE_MAX_RESERVED]),
                      (double)(used - reserved));
    }
    /* Below 1 MiB, what a block may be charged too much, there are no moments in the difference. */
    if (step_difference(c, c->measured, &measured) && measured >= (double)BASE_MIB) {
        step_difference(c, c->simulated, &simulated);
        add_error(&e->moments, simulated, measured);
    }
}

sim_validate_summary_t sim_validate_summary(const sim_comparisons_t *comparisons,
                                            const char *family)
{
    sim_validate_summary_t s = { 0 };
    all_errors_t e = { 0 };
    for (size_t i = 0; i < comparisons->n; i++) {
        const sim_comparison_t *c = &comparisons->items[i];
        if (family != NULL && strcmp(c->family, family) != 0)
            continue;
        s.n_records++;
        s.n_covered += c->covered;
        if (c->covered)
            add_comparison(&e, c);
    }
    s.peak = settle(&e.peak);
    s.fixed = settle(&e.fixed);
    s.moments = settle(&e.moments);
    s.reserved = settle(&e.reserved);
    s.device = settle(&e.device);
    s.outside = settle(&e.outside);
    s.estimator = settle(&e.estimator);
    s.bridge = settle(&e.bridge);
    return s;
}

enum { FAMILY_WIDTH = 29, RECORD_WIDTH = 33 };

/* The end of a long name says more than its start. */
static void print_name(FILE *out, const char *name, int width)
{
    int n = (int)strlen(name);
    if (n > width)
        fprintf(out, "..%s", name + n - (width - 2));
    else
        fprintf(out, "%-*s", width, name);
}

static void print_number(FILE *out, const sim_error_stats_t *s, double value, int width)
{
    if (s->n == 0)
        fprintf(out, "%*s", width, "-");
    else
        fprintf(out, "%*.*f", width, value < 1000 ? 2 : 0, value);
}

static void print_row(FILE *out, const char *name, const sim_validate_summary_t *s)
{
    print_name(out, name, FAMILY_WIDTH);
    fprintf(out, " %3zu/%-3zu", s->n_covered, s->n_records);
    print_number(out, &s->peak, s->peak.median, 7);
    print_number(out, &s->peak, s->peak.p90, 7);
    print_number(out, &s->peak, s->peak.max, 7);
    print_number(out, &s->fixed, s->fixed.median, 7);
    print_number(out, &s->fixed, s->fixed.p90, 7);
    print_number(out, &s->fixed, s->fixed.max, 7);
    print_number(out, &s->moments, s->moments.median, 7);
    print_number(out, &s->reserved, s->reserved.median, 7);
    print_number(out, &s->estimator, s->estimator.median, 7);
    fputc('\n', out);
}

static void print_families(const sim_comparisons_t *comparisons, FILE *out)
{
    fprintf(
        out,
        "Absolute error in %%: simulation against measurement; estim. = Megatron-LM's estimator.\n"
        "n = covered/records; step = second less first step's peak; last three: median\n"
        "%*s%21s%21s%7s%7s%7s\n%-*s %7s%7s%7s%7s%7s%7s%7s%7s%7s%7s\n",
        FAMILY_WIDTH + 8, "", "peak allocated", "static", "step", "reser-", "estim.", FAMILY_WIDTH,
        "family", "n   ", "median", "p90", "max", "median", "p90", "max", "2-1", "ved", "peak");
    for (size_t i = 0; i < comparisons->n; i++) {
        const char *family = comparisons->items[i].family;
        bool seen = false;
        for (size_t k = 0; k < i && !seen; k++)
            seen = strcmp(comparisons->items[k].family, family) == 0;
        if (seen)
            continue;
        sim_validate_summary_t s = sim_validate_summary(comparisons, family);
        if (s.n_covered > 0)
            print_row(out, family, &s);
    }
}

static void print_total_row(FILE *out, const char *name, const sim_error_stats_t *s)
{
    fprintf(out, "  %-44s%6zu", name, s->n);
    print_number(out, s, s->median, 9);
    print_number(out, s, s->p90, 9);
    print_number(out, s, s->max, 9);
    fputc('\n', out);
}

static void print_total(const sim_comparisons_t *comparisons, FILE *out)
{
    sim_validate_summary_t s = sim_validate_summary(comparisons, NULL);
    fprintf(out, "\nTotal: %zu of %zu records covered\n", s.n_covered, s.n_records);
    fprintf(out, "  %-44s%6s%9s%9s%9s\n", "absolute error in %", "n", "median", "p90", "max");
    print_total_row(out, "peak allocated, simulation", &s.peak);
    print_total_row(out, "peak allocated, Megatron-LM's estimator", &s.estimator);
    print_total_row(out, "peak allocated, Megatron-Bridge's estimator", &s.bridge);
    print_total_row(out, "static (allocated after a step)", &s.fixed);
    print_total_row(out, "second less first step's peak", &s.moments);
    print_total_row(out, "peak reserved", &s.reserved);
    if (s.device.n > 0) {
        print_total_row(out, "used of the device", &s.device);
        print_total_row(out, "used of the device outside PyTorch", &s.outside);
    }
}

typedef struct {
    const char *reason;
    size_t n;
} count_t;

static int more_first(const void *a, const void *b)
{
    const count_t *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : strcmp(x->reason, y->reason);
}

/* Reasons with their numbers, most frequent first; the caller frees. */
static count_t *count_reasons(const sim_comparisons_t *comparisons, size_t *n_p)
{
    count_t *counts = base_xcalloc(comparisons->n, sizeof(*counts));
    size_t n = 0;
    for (size_t i = 0; i < comparisons->n; i++) {
        const char *reason = comparisons->items[i].reason;
        size_t k = 0;
        if (reason == NULL)
            continue;
        while (k < n && strcmp(counts[k].reason, reason) != 0)
            k++;
        if (k == n)
            counts[n++].reason = reason;
        counts[k].n++;
    }
    qsort(counts, n, sizeof(*counts), more_first);
    *n_p = n;
    return counts;
}

static void print_reasons(const sim_comparisons_t *comparisons, FILE *out)
{
    size_t n;
    count_t *counts = count_reasons(comparisons, &n);
    if (n > 0)
        fprintf(out, "\nNot covered\n");
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%5zu  %s\n", counts[i].n, counts[i].reason);
    free(counts);
}

static void print_pair(FILE *out, const sim_comparison_t *c, sim_figure_t f, bool wanted)
{
    if (!wanted) {
        fprintf(out, "%10s%10s%8s", "-", "-", "-");
        return;
    }
    double measured = (double)c->measured[f], simulated = (double)c->simulated[f];
    fprintf(out, "%10.1f%10.1f%+8.2f", measured / (double)BASE_MIB, simulated / (double)BASE_MIB,
            (simulated - measured) / measured * 100);
}

static void print_records(const sim_comparisons_t *comparisons, FILE *out)
{
    fprintf(out, "%-*s %4s%10s%10s%8s%10s%10s%8s %s\n", RECORD_WIDTH, "record, MiB", "rank", "peak",
            "simulated", "error%", "static", "simulated", "error%", "fits");
    for (size_t i = 0; i < comparisons->n; i++) {
        const sim_comparison_t *c = &comparisons->items[i];
        sim_figure_t fixed = SIM_FIGURE_ALLOCATED;
        if (!c->covered)
            continue;
        bool has_fixed = fixed_figure(c, &fixed);
        print_name(out, c->id, RECORD_WIDTH);
        fprintf(out, " %4" PRIu32, c->rank);
        print_pair(out, c, SIM_FIGURE_MAX_ALLOCATED, c->has_measured[SIM_FIGURE_MAX_ALLOCATED]);
        print_pair(out, c, fixed, has_fixed);
        fprintf(out, " %s\n", c->fits ? "yes" : "no");
    }
    fputc('\n', out);
}

void sim_validate_print(const sim_comparisons_t *comparisons, bool records, FILE *out)
{
    if (records)
        print_records(comparisons, out);
    print_families(comparisons, out);
    print_total(comparisons, out);
    print_reasons(comparisons, out);
}

static json_t *stats_json(const sim_error_stats_t *s)
{
    if (s->n == 0)
        return json_pack("{s:i}", "n", 0);
    return json_pack("{s:I, s:f, s:f, s:f}", "n", (json_int_t)s->n, "median_percent", s->median,
                     "p90_percent", s->p90, "max_percent", s->max);
}

static json_t *summary_json(const sim_validate_summary_t *s)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:{s:o, s:o}}", "n_records",
                     (json_int_t)s->n_records, "n_covered", (json_int_t)s->n_covered, "peak",
                     stats_json(&s->peak), "static", stats_json(&s->fixed), "step2_minus_step1",
                     stats_json(&s->moments), "reserved", stats_json(&s->reserved), "device_used",
                     stats_json(&s->device), "outside", stats_json(&s->outside), "estimated_peak",
                     "megatron", stats_json(&s->estimator), "bridge", stats_json(&s->bridge));
}

/* The names of `measured`; an estimator knows one static figure and one peak. */
static json_t *estimate_json(double weights, double activation)
{
    static const sim_figure_t fixed[] = { SIM_FIGURE_ALLOCATED, SIM_FIGURE_ALLOCATED_STEP1,
                                          SIM_FIGURE_ALLOCATED_STEP2 };
    static const sim_figure_t peaks[] = { SIM_FIGURE_MAX_ALLOCATED, SIM_FIGURE_MAX_ALLOCATED_STEP1,
                                          SIM_FIGURE_MAX_ALLOCATED_STEP2 };
    json_t *o = json_object();
    json_object_set_new(o, "weight_and_optimizer_bytes", json_integer(llround(weights)));
    json_object_set_new(o, "activation_bytes", json_integer(llround(activation)));
    for (size_t i = 0; i < 3; i++) {
        json_object_set_new(o, sim_figure_name(fixed[i]), json_integer(llround(weights)));
        json_object_set_new(o, sim_figure_name(peaks[i]),
                            json_integer(llround(weights + activation)));
    }
    return o;
}

static json_t *comparison_json(const sim_comparison_t *c)
{
    json_t *simulated = json_object(), *estimated = json_object();
    for (size_t f = 0; f < SIM_N_FIGURES && c->covered; f++)
        json_object_set_new(simulated, sim_figure_name((sim_figure_t)f),
                            json_integer((json_int_t)c->simulated[f]));
    if (c->covered) {
        json_object_set_new(
            estimated, "megatron",
            estimate_json(c->megatron.weight_and_optimizer_bytes, c->megatron.activation_bytes));
        json_object_set_new(estimated, "bridge",
                            c->has_bridge
                                ? estimate_json(c->bridge.dense_bytes + c->bridge.routed_bytes,
                                                c->bridge.activation_bytes)
                                : json_null());
    }
    json_t *o = json_pack("{s:s, s:s, s:b, s:s?, s:s, s:o?, s:O, s:o, s:o}", "id", c->id, "family",
                          c->family, "covered", c->covered, "reason", c->reason, "notes", c->notes,
                          "rank", c->covered ? json_integer(c->rank) : NULL, "measured",
                          c->all_measured, "simulated", simulated, "estimated", estimated);
    if (c->covered)
        json_object_set_new(o, "verdict", json_string(c->fits ? "fits" : "out of memory"));
    return o;
}

static json_t *reasons_json(const sim_comparisons_t *comparisons)
{
    size_t n;
    count_t *counts = count_reasons(comparisons, &n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "reason", counts[i].reason, "n",
                                              (json_int_t)counts[i].n));
    free(counts);
    return list;
}

json_t *sim_validate_json(const sim_comparisons_t *comparisons)
{
    sim_validate_summary_t total = sim_validate_summary(comparisons, NULL);
    json_t *families = json_object(), *records = json_array(), *summary = summary_json(&total);
    for (size_t i = 0; i < comparisons->n; i++) {
        const char *family = comparisons->items[i].family;
        json_array_append_new(records, comparison_json(&comparisons->items[i]));
        if (json_object_get(families, family) == NULL) {
            sim_validate_summary_t s = sim_validate_summary(comparisons, family);
            json_object_set_new(families, family, summary_json(&s));
        }
    }
    json_object_set_new(summary, "not_covered", reasons_json(comparisons));
    json_object_set_new(summary, "families", families);
    return json_pack("{s:s, s:o, s:o}", "schema", "mbsim.validate/1", "summary", summary, "records",
                     records);
}

static void csv_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

void sim_validate_csv(const sim_comparisons_t *comparisons, FILE *out)
{
    fputs("id,family,covered,reason,rank,verdict", out);
    for (size_t f = 0; f < SIM_N_FIGURES; f++)
        fprintf(out, ",measured_%s,simulated_%s", sim_figure_name((sim_figure_t)f),
                sim_figure_name((sim_figure_t)f));
    fputs(",megatron_total_bytes,bridge_total_bytes\n", out);
    for (size_t i = 0; i < comparisons->n; i++) {
        const sim_comparison_t *c = &comparisons->items[i];
        csv_text(out, c->id);
        fputc(',', out);
        csv_text(out, c->family);
        fprintf(out, ",%s,", c->covered ? "true" : "false");
        csv_text(out, c->reason != NULL ? c->reason : "");
        if (c->covered)
            fprintf(out, ",%" PRIu32 ",%s", c->rank, c->fits ? "fits" : "out of memory");
        else
            fputs(",,", out);
        for (size_t f = 0; f < SIM_N_FIGURES; f++) {
            fputc(',', out);
            if (c->has_measured[f])
                fprintf(out, "%" PRIu64, c->measured[f]);
            fputc(',', out);
            if (c->covered)
                fprintf(out, "%" PRIu64, c->simulated[f]);
        }
        if (c->covered)
            fprintf(out, ",%.0f,", c->megatron.total_bytes);
        else
            fputs(",,", out);
        if (c->covered && c->has_bridge)
            fprintf(out, "%.0f", bridge_total(c));
        fputc('\n', out);
    }
}
