/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/real.h"

#include "sim/base/units.h"
#include "sim/report/communicators.h"
#include "sim/report/moment.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MAX_ROWS = 64, CELL_TEXT = 40 };

typedef char size_text_t[BASE_BYTES_TEXT];

const char *sim_real_backend_name(const sim_report_t *report)
{
    static const char *const names[] = { [SIM_BACKEND_SYNTHETIC] = "synthetic",
                                         [SIM_BACKEND_HOST] = "host",
                                         [SIM_BACKEND_CUDA] = "cuda" };
    return report->real != NULL ? names[report->scenario->backend] : names[SIM_BACKEND_SYNTHETIC];
}

const sim_real_rank_t *sim_real_rank(const sim_report_t *report, uint32_t rank)
{
    for (uint32_t i = 0; report->real != NULL && i < report->real->n_ranks; i++)
        if (report->real->ranks[i].rank == rank)
            return &report->real->ranks[i];
    return NULL;
}

/* ---- text ---- */

static const char *format_difference(int64_t bytes, char text[static CELL_TEXT])
{
    size_text_t size;
    uint64_t magnitude = bytes < 0 ? (uint64_t)-bytes : (uint64_t)bytes;
    snprintf(text, CELL_TEXT, "%s%s",
             bytes < 0   ? "-"
             : bytes > 0 ? "+"
                         : "",
             base_bytes_format(magnitude, size));
    return text;
}

static void print_pool(const sim_real_pool_t *pool, FILE *out)
{
    size_text_t total, available, part, held, own;
    char difference[CELL_TEXT], left[CELL_TEXT];
    fprintf(out,
            "  %s, %s%s%s: %s, %s free; %" PRIu32 " rank%s of %" PRIu32
            " process%s, each may take %s\n",
            pool->host, pool->facts.name, pool->facts.bus[0] != '\0' ? " " : "", pool->facts.bus,
            base_bytes_format(pool->facts.total_bytes, total),
            base_bytes_format(pool->facts.free_bytes, available), pool->n_ranks,
            pool->n_ranks == 1 ? "" : "s", pool->n_processes, pool->n_processes == 1 ? "" : "es",
            base_bytes_format(pool->rank_bytes, part));
    int64_t beyond = (int64_t)pool->held_own_bytes - (int64_t)pool->held_account_bytes;
    fprintf(out, "    held at the end: %s by the account, %s by the device (%s); ",
            base_bytes_format(pool->held_account_bytes, held),
            base_bytes_format(pool->held_own_bytes, own), format_difference(beyond, difference));
    if (pool->left_bytes == 0)
        fprintf(out, "all of it was given back\n");
    else
        fprintf(out, "given back, but for %s\n", format_difference(pool->left_bytes, left));
    if (pool->facts.note[0] != '\0')
        fprintf(out, "    %s\n", pool->facts.note);
}

static void print_rank(const sim_report_t *r, const sim_real_rank_t *rank, FILE *out)
{
    size_text_t model, account, own, process;
    char difference[CELL_TEXT];
    bool is_measured = rank->own.is_measured;
    fprintf(out, "  %5" PRIu32 " %12s %12s %12s %12s %12s%s\n", rank->rank,
            base_bytes_format(rank->model_reserved_bytes, model),
            base_bytes_format(rank->own.account_bytes, account),
            is_measured ? base_bytes_format(rank->own.own_bytes, own) : "-",
            is_measured ? format_difference(sim_real_difference(rank), difference) : "-",
            rank->own.then.has_process ? base_bytes_format(rank->own.then.process_bytes, process)
                                       : "-",
            rank->is_out_of_memory ? "  OUT OF MEMORY" : "");
    if (!rank->is_out_of_memory && rank->n_alloc_retries > 0)
        fprintf(out, "        went on %" PRIu64 " times only after the cache was given back\n",
                rank->n_alloc_retries);
    if (rank->is_out_of_memory && !rank->is_model_out_of_memory) {
        char moment[SIM_MOMENT_TEXT];
        size_text_t asked;
        fprintf(out,
                "        the device had no more, though it fits by the model: %s for %s\n"
                "        in %s\n",
                base_bytes_format(rank->oom_requested_bytes, asked), rank->oom_tensor,
                sim_moment_words(&rank->oom_moment, r->scenario->stages.vpp > 1, moment));
    }
}

void sim_real_text(const sim_report_t *report, FILE *out)
{
    const sim_real_t *real = report->real;
    if (real == NULL)
        return;
    const sim_scenario_t *s = report->scenario;
    bool is_cuda = s->backend == SIM_BACKEND_CUDA;
    fprintf(out, "On real memory (backend = %s): every operation of %" PRIu32 " rank%s",
            sim_real_backend_name(report), real->n_ranks, real->n_ranks == 1 ? "" : "s");
    if (real->scale > 1)
        fprintf(out, ", a byte for %" PRIu64, real->scale);
    fprintf(out, "%s\n", s->device_fill ? ", every buffer written to" : "");
    for (uint32_t i = 0; i < real->n_pools; i++)
        print_pool(&real->pools[i], out);
    fprintf(out, "  %5s %12s %12s %12s %12s %12s\n", "rank", "model peak", "taken", "device says",
            "difference", is_cuda ? "NVML process" : "VmHWM");
    for (uint32_t i = 0; i < real->n_ranks && i < MAX_ROWS; i++)
        print_rank(report, &real->ranks[i], out);
    if (real->n_ranks > MAX_ROWS)
        fprintf(out, "  and %" PRIu32 " more: --json and --csv have them\n",
                real->n_ranks - MAX_ROWS);
    fputc('\n', out);
    if (is_cuda)
        sim_communicators_text(&real->communicators, report->worst.rank, out);
}

/* ---- JSON ---- */

static void set_uint(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void set_known(json_t *object, const char *key, bool is_known, uint64_t value)
{
    json_object_set_new(object, key, is_known ? json_integer((json_int_t)value) : json_null());
}

static json_t *pool_json(const sim_real_pool_t *pool)
{
    json_t *one = json_object();
    json_object_set_new(one, "host", json_string(pool->host));
    json_object_set_new(one, "name", json_string(pool->facts.name));
    json_object_set_new(one, "pci_address", json_string(pool->facts.bus));
    json_object_set_new(one, "note", json_string(pool->facts.note));
    set_uint(one, "total_bytes", pool->facts.total_bytes);
    set_uint(one, "free_bytes", pool->facts.free_bytes);
    set_uint(one, "page_granularity_bytes", pool->facts.granularity);
    set_uint(one, "n_ranks", pool->n_ranks);
    set_uint(one, "n_processes", pool->n_processes);
    set_uint(one, "rank_may_take_bytes", pool->rank_bytes);
    set_uint(one, "used_before_bytes", pool->used_before);
    set_uint(one, "held_account_bytes", pool->held_account_bytes);
    set_uint(one, "held_device_bytes", pool->held_own_bytes);
    json_object_set_new(one, "left_bytes", json_integer((json_int_t)pool->left_bytes));
    return one;
}

static json_t *rank_json(const sim_report_t *report, const sim_real_rank_t *r)
{
    bool is_cuda = report->scenario->backend == SIM_BACKEND_CUDA;
    const sim_device_own_t *own = &r->own;
    json_t *one = json_object();
    set_uint(one, "rank", r->rank);
    set_uint(one, "pool", r->pool);
    json_object_set_new(one, "fits", json_boolean(!r->is_out_of_memory));
    set_uint(one, "model_reserved_bytes", r->model_reserved_bytes);
    set_uint(one, "max_reserved_bytes", r->max_reserved_bytes);
    set_uint(one, "max_allocated_bytes", r->max_allocated_bytes);
    set_uint(one, "n_allocator_ops", r->n_allocator_ops);
    set_uint(one, "n_alloc_retries", r->n_alloc_retries);
    set_uint(one, "account_bytes", own->account_bytes);
    set_known(one, "device_bytes", own->is_measured, own->own_bytes);
    json_object_set_new(one, "difference_bytes",
                        own->is_measured ? json_integer((json_int_t)sim_real_difference(r))
                                         : json_null());
    set_known(one, is_cuda ? "cuda_used_bytes" : "resident_bytes", own->then.used_bytes > 0,
              own->then.used_bytes);
    set_known(one, is_cuda ? "nvml_used_bytes" : "process_anonymous_bytes", own->then.has_whole,
              own->then.whole_bytes);
    set_known(one, is_cuda ? "nvml_process_bytes" : "process_highest_resident_bytes",
              own->then.has_process, own->then.process_bytes);
    set_uint(one, "filled_bytes", own->filled_bytes);
    if (r->is_out_of_memory) {
        char moment[SIM_MOMENT_TEXT];
        json_object_set_new(one, "out_of_memory_tensor", json_string(r->oom_tensor));
        set_uint(one, "out_of_memory_asked_bytes", r->oom_requested_bytes);
        json_object_set_new(one, "out_of_memory_moment",
                            json_string(sim_moment_words(
                                &r->oom_moment, report->scenario->stages.vpp > 1, moment)));
    }
    return one;
}

json_t *sim_real_json(const sim_report_t *report)
{
    const sim_real_t *real = report->real;
    json_t *all = json_object();
    json_object_set_new(all, "backend", json_string(sim_real_backend_name(report)));
    if (real == NULL)
        return all;
    json_t *pools = json_array(), *ranks = json_array();
    set_uint(all, "scale", real->scale);
    json_object_set_new(all, "fill", json_boolean(report->scenario->device_fill));
    for (uint32_t i = 0; i < real->n_pools; i++)
        json_array_append_new(pools, pool_json(&real->pools[i]));
    for (uint32_t i = 0; i < real->n_ranks; i++)
        json_array_append_new(ranks, rank_json(report, &real->ranks[i]));
    json_object_set_new(all, "pools", pools);
    json_object_set_new(all, "ranks", ranks);
    if (report->scenario->backend == SIM_BACKEND_CUDA)
        json_object_set_new(all, "communicators", sim_communicators_json(&real->communicators));
    return all;
}
