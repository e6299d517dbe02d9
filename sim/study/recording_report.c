/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/recording_report.h"

#include "sim/base/units.h"

#include <inttypes.h>

static bool agrees(const sim_recording_report_t *report)
{
    return report->played->peak_reserved_bytes == report->recording->peak_reserved_bytes &&
           report->played->end_reserved_bytes == report->recording->end_reserved_bytes &&
           report->played->end_allocated_bytes == report->recording->end_allocated_bytes;
}

static bool ran_out_of_memory(const sim_recording_report_t *report)
{
    return report->played->n_ooms > report->recording->n_ooms;
}

static void print_side(FILE *out, const char *name, uint64_t peak, uint64_t end, uint64_t allocated)
{
    char a[BASE_BYTES_TEXT], b[BASE_BYTES_TEXT], c[BASE_BYTES_TEXT];
    fprintf(out, "  %-9s  peak reserved %11s   at the end %11s reserved, %11s allocated\n", name,
            base_bytes_format(peak, a), base_bytes_format(end, b), base_bytes_format(allocated, c));
}

void sim_recording_print(const sim_recording_report_t *report, FILE *out)
{
    const sim_recording_t *rec = report->recording;
    const sim_replay_result_t *r = report->played;
    fprintf(out, "\ndevice %zu: %" PRIu64 " events", report->device, rec->n_events);
    if (report->snapshot->last_us > report->snapshot->first_us)
        fprintf(out, " in %.3f ms",
                (double)(report->snapshot->last_us - report->snapshot->first_us) / 1e3);
    fprintf(out, ", %" PRIu64 " failed requests\n", rec->n_ooms);
    print_side(out, "recorded", rec->peak_reserved_bytes, rec->end_reserved_bytes,
               rec->end_allocated_bytes);
    print_side(out, "played", r->peak_reserved_bytes, r->end_reserved_bytes,
               r->end_allocated_bytes);
    fprintf(out, "  under the recorded settings the two %s\n",
            agrees(report)              ? "agree"
            : ran_out_of_memory(report) ? "differ: what is played runs out of memory"
                                        : "differ; see what the recording cannot tell");
    base_diag_t limits;
    base_diag_init(&limits);
    sim_recording_limits(rec, report->snapshot, &limits);
    fputs("\nwhat the recording cannot tell\n", out);
    for (size_t i = 0; i < limits.n; i++)
        fprintf(out, "  - %s\n", limits.text[i]);
    base_diag_fini(&limits);
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

json_t *sim_recording_json(const sim_recording_report_t *report)
{
    const sim_recording_t *rec = report->recording;
    json_t *o = json_object(), *texts = json_array();
    json_object_set_new(o, "device", integer(report->device));
    json_object_set_new(o, "conf",
                        report->snapshot->conf != NULL ? json_string(report->snapshot->conf)
                                                       : json_null());
    json_object_set_new(o, "n_events", integer(rec->n_events));
    json_object_set_new(o, "n_private_events", integer(rec->n_private_events));
    json_object_set_new(o, "private_bytes", integer(rec->private_bytes));
    json_object_set_new(o, "n_alive_before", integer(rec->n_before));
    json_object_set_new(o, "alive_before_bytes", integer(rec->before_bytes));
    json_object_set_new(o, "start_reserved_bytes", integer(rec->start_reserved_bytes));
    json_object_set_new(o, "max_reserved_bytes", integer(rec->peak_reserved_bytes));
    json_object_set_new(o, "end_reserved_bytes", integer(rec->end_reserved_bytes));
    json_object_set_new(o, "end_allocated_bytes", integer(rec->end_allocated_bytes));
    json_object_set_new(o, "n_failures", integer(rec->n_ooms));
    json_object_set_new(o, "n_releases", integer(rec->n_releases));
    json_object_set_new(o, "n_empty_caches", integer(rec->n_empty_caches));
    json_object_set_new(o, "usable_bytes",
                        rec->usable_bytes > 0 ? integer(rec->usable_bytes) : json_null());
    json_object_set_new(o, "usable_is_exact", json_boolean(rec->is_usable_exact));
    json_object_set_new(o, "agrees", json_boolean(agrees(report)));
    base_diag_t limits;
    base_diag_init(&limits);
    sim_recording_limits(rec, report->snapshot, &limits);
    for (size_t i = 0; i < limits.n; i++)
        json_array_append_new(texts, json_string(limits.text[i]));
    base_diag_fini(&limits);
    json_object_set_new(o, "limits", texts);
    return o;
}
