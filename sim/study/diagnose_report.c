/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/diagnose.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_name(diag_kind_t kind)
{
    static const char *const names[] = {
        "pytorch_oom",     "nccl",           "cuda_library", "megatron",  "bridge",
        "metric",          "memory_summary", "torchtitan",   "deepspeed", "nvidia_smi",
        "megatron_theory", "nccl_use",       "note"
    };
    return names[kind];
}

static const char *kind_text(const diag_record_t *rec)
{
    static const char *const texts[] = { "PyTorch's out-of-memory message",
                                         "NCCL's warning",
                                         "error of a CUDA library",
                                         "Megatron's memory line",
                                         "Megatron-Bridge's memory line",
                                         "memory metrics",
                                         "torch.cuda.memory_summary()",
                                         "torchtitan's memory line",
                                         "DeepSpeed's memory line",
                                         "nvidia-smi",
                                         "Megatron's theoretical footprint",
                                         "NCCL's allocations",
                                         "figures in a sentence" };
    return rec->kind == DIAG_KIND_OOM && rec->is_old_wording
               ? "PyTorch's out-of-memory message (wording before 2.1)"
               : texts[rec->kind];
}

static void print_where(const diag_record_t *rec, FILE *out)
{
    fprintf(out, "line %zu", rec->line);
    if (rec->rank >= 0)
        fprintf(out, ", rank %lld", (long long)rec->rank);
    if (rec->gpu >= 0)
        fprintf(out, ", GPU %lld", (long long)rec->gpu);
    if (rec->iteration >= 0)
        fprintf(out, ", iteration %lld", (long long)rec->iteration);
    fprintf(out, ": %s\n", kind_text(rec));
}

static void print_part(const diag_result_t *res, const char *name, uint64_t bytes, const char *what,
                       FILE *out)
{
    char text[BASE_BYTES_TEXT];
    if (bytes == DIAG_UNKNOWN)
        return;
    fprintf(out, "  %-16s %12s", name, base_bytes_format(bytes, text));
    if (res->total != DIAG_UNKNOWN && res->total > 0)
        fprintf(out, "  %5.1f %%", 100.0 * (double)bytes / (double)res->total);
    fprintf(out, "%s%s\n", *what != '\0' ? "  " : "", what);
}

static void print_split(const diag_result_t *res, FILE *out)
{
    if (res->failure == NULL && res->peak != NULL) {
        print_part(res, "peak allocated", res->peak->figures[DIAG_MAX_ALLOCATED], "", out);
        print_part(res, "peak reserved", res->peak->figures[DIAG_MAX_RESERVED], "", out);
        print_part(res, "in use", res->peak->figures[DIAG_USED], "by whatever process", out);
    }
    print_part(res, "device", res->total, "", out);
    print_part(res, "allocated", res->allocated, "by PyTorch, in use", out);
    print_part(res, "cached", res->cached, "reserved by PyTorch, not allocated", out);
    print_part(res, "private pools", res->pools, "idle in pools of CUDA graphs", out);
    print_part(res, "non-PyTorch", res->non_pytorch,
               res->non_pytorch_has_others ? "context, communicators, libraries, other processes"
                                           : "context, communicators, libraries",
               out);
    print_part(res, "other processes", res->others, "", out);
    print_part(res, "free", res->free_bytes, "", out);
    if (res->unaccounted != DIAG_UNKNOWN && res->unaccounted > 64 * BASE_MIB)
        print_part(res, "unaccounted", res->unaccounted, "driver, or processes out of sight", out);
}

/* Wrap at 100 columns, indented. */
static void print_wrapped(const char *text, unsigned indent, const char *bullet, FILE *out)
{
    unsigned column = (unsigned)fprintf(out, "%*s%s", (int)indent, "", bullet);
    unsigned hang = column;
    for (const char *s = text; *s != '\0';) {
        size_t n = strcspn(s, " ");
        if (column + n + 1 > 100 && column > hang) {
            fprintf(out, "\n%*s", (int)hang, "");
            column = hang;
        }
        column += (unsigned)fprintf(out, "%s%.*s", column > hang ? " " : "", (int)n, s);
        s += n;
        while (*s == ' ')
            s++;
    }
    fputc('\n', out);
}

static void print_texts(const char *title, const diag_texts_t *texts, FILE *out)
{
    if (texts->n > 0)
        fprintf(out, "\n%s\n", title);
    for (size_t i = 0; i < texts->n; i++)
        print_wrapped(texts->text[i], 2, "- ", out);
}

static void print_units(const diag_log_t *log, FILE *out)
{
    const char *seen[16];
    size_t n_seen = 0;
    for (size_t i = 0; i < log->n_records && n_seen < 16; i++) {
        const diag_record_t *rec = &log->records[i];
        bool is_new = rec->unit != 0;
        for (size_t k = 0; k < n_seen; k++)
            is_new &= seen[k] != kind_text(rec);
        if (!is_new)
            continue;
        if (n_seen == 0)
            fputs("\nunits\n", out);
        seen[n_seen++] = kind_text(rec);
        fprintf(out, "  - %s: %s is %llu bytes\n", kind_text(rec), rec->label,
                (unsigned long long)rec->unit);
    }
}

static void print_changes(const diag_result_t *res, FILE *out)
{
    if (res->n_changes > 0)
        fputs("\nwhat to change\n", out);
    for (size_t i = 0; i < res->n_changes; i++) {
        const diag_change_t *c = &res->changes[i];
        char bullet[32];
        snprintf(bullet, sizeof(bullet), "%zu. ", i + 1);
        print_wrapped(c->setting, 2, bullet, out);
        print_wrapped(c->why, 5, "", out);
        for (size_t k = 0; k < c->conflicts.n; k++)
            print_wrapped(c->conflicts.text[k], 5, "conflict: ", out);
    }
}

void diag_print_text(const diag_log_t *log, const diag_result_t *res, FILE *out)
{
    if (res->failure != NULL) {
        fputs("first failure: ", out);
        print_where(res->failure, out);
    } else if (res->peak != NULL) {
        fputs("no failure in this text; highest peak: ", out);
        print_where(res->peak, out);
    }
    if (res->worst != NULL) {
        fprintf(out, "%zu ranks failed; furthest from fitting: ", res->n_failed_ranks);
        print_where(res->worst, out);
    }
    print_split(res, out);
    fprintf(out, "\nverdict: %s\n", diag_verdict_name(res->verdict));
    for (size_t i = 0; i < res->reasons.n; i++)
        print_wrapped(res->reasons.text[i], 2, "- ", out);
    print_changes(res, out);
    print_texts("notes", &res->notes, out);
    print_texts("not in the text", &res->missing, out);
    print_units(log, out);
}

static json_t *bytes_json(uint64_t bytes)
{
    return bytes == DIAG_UNKNOWN ? json_null() : json_integer((json_int_t)bytes);
}

static json_t *int_json(int64_t x)
{
    return x < 0 ? json_null() : json_integer(x);
}

static json_t *texts_json(const diag_texts_t *texts)
{
    json_t *list = json_array();
    for (size_t i = 0; i < texts->n; i++)
        json_array_append_new(list, json_string(texts->text[i]));
    return list;
}

static json_t *record_json(const diag_record_t *rec)
{
    static const char *const names[DIAG_N_FIGURES] = {
        [DIAG_REQUEST] = "request_bytes",
        [DIAG_SHORTFALL] = "shortfall_bytes",
        [DIAG_TOTAL] = "total_bytes",
        [DIAG_FREE] = "free_bytes",
        [DIAG_LIMIT] = "limit_bytes",
        [DIAG_ALLOCATED] = "allocated_bytes",
        [DIAG_RESERVED] = "reserved_bytes",
        [DIAG_CACHED] = "cached_bytes",
        [DIAG_POOLS] = "private_pool_bytes",
        [DIAG_PROCESS] = "process_bytes",
        [DIAG_OTHERS] = "other_processes_bytes",
        [DIAG_MAX_ALLOCATED] = "max_allocated_bytes",
        [DIAG_MAX_RESERVED] = "max_reserved_bytes",
        [DIAG_USED] = "device_used_bytes",
        [DIAG_PREDICTED] = "predicted_bytes",
        [DIAG_NCCL] = "nccl_bytes",
    };
    if (rec == NULL)
        return json_null();
    json_t *o = json_object();
    json_object_set_new(o, "kind", json_string(kind_name(rec->kind)));
    json_object_set_new(o, "line", json_integer((json_int_t)rec->line));
    json_object_set_new(o, "rank", int_json(rec->rank));
    json_object_set_new(o, "gpu", int_json(rec->gpu));
    json_object_set_new(o, "iteration", int_json(rec->iteration));
    if (rec->n_retries >= 0)
        json_object_set_new(o, "alloc_retries", json_integer(rec->n_retries));
    for (size_t i = 0; i < DIAG_N_FIGURES; i++)
        if (rec->figures[i] != DIAG_UNKNOWN)
            json_object_set_new(o, names[i], bytes_json(rec->figures[i]));
    if (rec->unit != 0) {
        json_object_set_new(o, "unit_label", json_string(rec->label));
        json_object_set_new(o, "unit_bytes", json_integer((json_int_t)rec->unit));
    }
    return o;
}

static json_t *device_json(const diag_result_t *res)
{
    json_t *o = json_object();
    json_object_set_new(o, "total_bytes", bytes_json(res->total));
    json_object_set_new(o, "allocated_bytes", bytes_json(res->allocated));
    json_object_set_new(o, "cached_bytes", bytes_json(res->cached));
    json_object_set_new(o, "private_pool_bytes", bytes_json(res->pools));
    json_object_set_new(o, "non_pytorch_bytes", bytes_json(res->non_pytorch));
    json_object_set_new(o, "non_pytorch_has_other_processes",
                        json_boolean(res->non_pytorch_has_others));
    json_object_set_new(o, "other_processes_bytes", bytes_json(res->others));
    json_object_set_new(o, "free_bytes", bytes_json(res->free_bytes));
    json_object_set_new(o, "unaccounted_bytes", bytes_json(res->unaccounted));
    return o;
}

static json_t *changes_json(const diag_result_t *res)
{
    json_t *list = json_array();
    for (size_t i = 0; i < res->n_changes; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "setting", json_string(res->changes[i].setting));
        json_object_set_new(o, "why", json_string(res->changes[i].why));
        json_object_set_new(o, "conflicts", texts_json(&res->changes[i].conflicts));
        json_array_append_new(list, o);
    }
    return list;
}

bool diag_print_json(const diag_log_t *log, const diag_result_t *res, FILE *out)
{
    enum { MAX_LISTED = 1000 };
    json_t *o = json_object(), *records = json_array();
    json_object_set_new(o, "schema", json_string("mbsim.diagnose/1"));
    json_object_set_new(o, "verdict", json_string(diag_verdict_name(res->verdict)));
    json_object_set_new(o, "failure", record_json(res->failure));
    json_object_set_new(o, "worst_failure",
                        record_json(res->worst != NULL ? res->worst : res->failure));
    json_object_set_new(o, "failed_ranks", json_integer((json_int_t)res->n_failed_ranks));
    json_object_set_new(o, "peak", record_json(res->peak));
    json_object_set_new(o, "device", device_json(res));
    json_object_set_new(o, "request_bytes", bytes_json(res->request));
    json_object_set_new(o, "shortfall_bytes", bytes_json(res->shortfall));
    json_object_set_new(o, "predicted_cached_bytes", bytes_json(res->predicted_cached));
    json_object_set_new(o, "allocator_conf",
                        log->conf[0] != '\0' ? json_string(log->conf) : json_null());
    json_object_set_new(o, "reasons", texts_json(&res->reasons));
    json_object_set_new(o, "changes", changes_json(res));
    json_object_set_new(o, "notes", texts_json(&res->notes));
    json_object_set_new(o, "missing", texts_json(&res->missing));
    json_object_set_new(o, "lines", json_integer((json_int_t)log->n_lines));
    json_object_set_new(o, "n_records",
                        json_integer((json_int_t)log->n_records + (json_int_t)log->n_dropped));
    for (size_t i = 0; i < log->n_records && i < MAX_LISTED; i++)
        json_array_append_new(records, record_json(&log->records[i]));
    json_object_set_new(o, "records", records);
    int rc = json_dumpf(o, out, JSON_INDENT(2));
    json_decref(o);
    return rc == 0 && fputc('\n', out) != EOF;
}
