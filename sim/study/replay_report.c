/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/replay_report.h"

#include "sim/base/units.h"

#include <inttypes.h>
#include <string.h>

enum { NAME_MAX_TEXT = 512 };

static const char *row_name(const sim_replay_row_t *row, char buf[static NAME_MAX_TEXT])
{
    const char *conf = row->conf == NULL || row->conf[0] == '\0' ? "(default)" : row->conf;
    snprintf(buf, NAME_MAX_TEXT, "%s%s%s", conf, row->note != NULL ? ", " : "",
             row->note != NULL ? row->note : "");
    return buf;
}

/* A request that the free bytes would have held, had they been in one place, failed for
 * fragmentation. A memory fraction bounds what the device could still give. */
static bool is_fragmentation(const sim_oom_t *oom)
{
    uint64_t cached = oom->reserved_bytes - oom->allocated_bytes, more = oom->device_free_bytes;
    if (oom->has_limit)
        more = base_u64_min(more, oom->limit_bytes > oom->reserved_bytes
                                      ? oom->limit_bytes - oom->reserved_bytes
                                      : 0);
    return oom->requested_bytes <= cached || oom->requested_bytes - cached <= more;
}

static void print_failure(const sim_replay_row_t *row, FILE *out)
{
    const sim_replay_result_t *r = &row->result;
    const sim_oom_t *oom = &r->first_oom;
    char wanted[BASE_BYTES_TEXT], allocated[BASE_BYTES_TEXT], cached[BASE_BYTES_TEXT];
    char largest[BASE_BYTES_TEXT], left[BASE_BYTES_TEXT], limit[BASE_BYTES_TEXT];
    char name[NAME_MAX_TEXT];
    fprintf(out,
            "%s: line %" PRIu32 ", allocation %" PRIu64 " of %s failed (%s): %s allocated, %s "
            "reserved beyond that with a largest free block of %s, %s free on the device",
            row_name(row, name), r->first_oom_line, r->first_oom_id,
            base_bytes_format(oom->requested_bytes, wanted),
            is_fragmentation(oom) ? "fragmentation" : "capacity",
            base_bytes_format(oom->allocated_bytes, allocated),
            base_bytes_format(oom->reserved_bytes - oom->allocated_bytes, cached),
            base_bytes_format(oom->largest_free_block_bytes, largest),
            base_bytes_format(oom->device_free_bytes, left));
    if (oom->has_limit)
        fprintf(out, ", memory fraction allows %s", base_bytes_format(oom->limit_bytes, limit));
    fputc('\n', out);
}

static void print_row(const sim_replay_row_t *row, int width, FILE *out)
{
    const sim_replay_result_t *r = &row->result;
    char allocated[BASE_BYTES_TEXT], reserved[BASE_BYTES_TEXT], gap[BASE_BYTES_TEXT];
    char name[NAME_MAX_TEXT];
    fprintf(out, "%-*s  %14s  %13s  %11s  %7" PRIu64 "  %8" PRIu64 "  ", width, row_name(row, name),
            base_bytes_format(r->peak_allocated_bytes, allocated),
            base_bytes_format(r->peak_reserved_bytes, reserved),
            base_bytes_format(r->largest_gap_bytes, gap), r->n_retries, r->n_ooms);
    if (r->n_ooms > 0)
        fprintf(out, "line %" PRIu32 "\n", r->first_oom_line);
    else
        fputs("-\n", out);
}

void sim_replay_print(const sim_replay_report_t *report, FILE *out)
{
    char capacity[BASE_BYTES_TEXT], usable[BASE_BYTES_TEXT], name[NAME_MAX_TEXT];
    size_t width = strlen("settings");
    for (size_t i = 0; i < report->n_rows; i++) {
        size_t len = strlen(row_name(&report->rows[i], name));
        width = len > width ? len : width;
    }
    fprintf(out, "%s: %" PRIu64 " calls, %" PRIu64 " allocations, %" PRIu32 " streams\n",
            report->name, report->n_calls, report->n_allocations, report->n_streams);
    if (report->device.usable_bytes == SIM_DEVICE_MAX_BYTES)
        fprintf(out, "device: without bound, addresses %s\n\n",
                sim_addresses_name(report->device.addresses));
    else if (report->device.total_bytes == SIM_DEVICE_MAX_BYTES)
        fprintf(out, "device: usable %s, addresses %s\n\n",
                base_bytes_format(report->device.usable_bytes, usable),
                sim_addresses_name(report->device.addresses));
    else
        fprintf(out, "device: %s, usable %s, addresses %s\n\n",
                base_bytes_format(report->device.total_bytes, capacity),
                base_bytes_format(report->device.usable_bytes, usable),
                sim_addresses_name(report->device.addresses));
    fprintf(out, "%-*s  peak allocated  peak reserved  largest gap  retries  failures  first\n",
            (int)width, "settings");
    for (size_t i = 0; i < report->n_rows; i++)
        print_row(&report->rows[i], (int)width, out);
    for (size_t i = 0, n = 0; i < report->n_rows; i++)
        if (report->rows[i].result.n_ooms > 0) {
            if (n++ == 0)
                fputc('\n', out);
            print_failure(&report->rows[i], out);
        }
}

static json_t *integer(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *failure_json(const sim_replay_result_t *r)
{
    const sim_oom_t *oom = &r->first_oom;
    json_t *o = json_object();
    json_object_set_new(o, "line", integer(r->first_oom_line));
    json_object_set_new(o, "id", integer(r->first_oom_id));
    json_object_set_new(o, "cause",
                        json_string(is_fragmentation(oom) ? "fragmentation" : "capacity"));
    json_object_set_new(o, "requested_bytes", integer(oom->requested_bytes));
    json_object_set_new(o, "allocated_bytes", integer(oom->allocated_bytes));
    json_object_set_new(o, "reserved_bytes", integer(oom->reserved_bytes));
    json_object_set_new(o, "largest_free_block_bytes", integer(oom->largest_free_block_bytes));
    json_object_set_new(o, "device_free_bytes", integer(oom->device_free_bytes));
    json_object_set_new(o, "limit_bytes", oom->has_limit ? integer(oom->limit_bytes) : json_null());
    return o;
}

static json_t *row_json(const sim_replay_row_t *row)
{
    const sim_replay_result_t *r = &row->result;
    json_t *o = json_object();
    json_object_set_new(o, "conf", json_string(row->conf != NULL ? row->conf : ""));
    if (row->note != NULL)
        json_object_set_new(o, "note", json_string(row->note));
    json_object_set_new(o, "max_allocated_bytes", integer(r->peak_allocated_bytes));
    json_object_set_new(o, "max_allocated_line", integer(r->peak_allocated_line));
    json_object_set_new(o, "max_reserved_bytes", integer(r->peak_reserved_bytes));
    json_object_set_new(o, "max_reserved_line", integer(r->peak_reserved_line));
    json_object_set_new(o, "largest_gap_bytes", integer(r->largest_gap_bytes));
    json_object_set_new(o, "largest_gap_line", integer(r->largest_gap_line));
    json_object_set_new(o, "end_allocated_bytes", integer(r->end_allocated_bytes));
    json_object_set_new(o, "end_reserved_bytes", integer(r->end_reserved_bytes));
    json_object_set_new(o, "n_retries", integer(r->n_retries));
    json_object_set_new(o, "n_failures", integer(r->n_ooms));
    json_object_set_new(o, "first_failure", r->n_ooms > 0 ? failure_json(r) : json_null());
    return o;
}

json_t *sim_replay_json(const sim_replay_report_t *report)
{
    json_t *root = json_object(), *device = json_object(), *rows = json_array();
    json_object_set_new(root, "schema", json_string("mbsim.replay/1"));
    json_object_set_new(root, "trace", json_string(report->name));
    json_object_set_new(root, "n_calls", integer(report->n_calls));
    json_object_set_new(root, "n_allocations", integer(report->n_allocations));
    json_object_set_new(device, "total_bytes", integer(report->device.total_bytes));
    json_object_set_new(device, "usable_bytes", integer(report->device.usable_bytes));
    json_object_set_new(device, "addresses",
                        json_string(sim_addresses_name(report->device.addresses)));
    json_object_set_new(root, "device", device);
    for (size_t i = 0; i < report->n_rows; i++)
        json_array_append_new(rows, row_json(&report->rows[i]));
    json_object_set_new(root, "runs", rows);
    return root;
}
