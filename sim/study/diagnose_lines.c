/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/diagnose_reader.h"

#include "sim/base/units.h"
#include "sim/study/diagnose_scan.h"

#include <ctype.h>
#include <string.h>

typedef struct {
    const char *key;
    diag_figure_t figure;
    uint64_t unit; /* of a bare number */
} metric_t;

#define GB UINT64_C(1000000000)

/* The number after "key", which may be quoted and followed by ':' or '='. A key that is the end of
 * a longer one ("max allocated" for "allocated") does not count. */
static bool find_metric(const char *line, const metric_t *m, diag_number_t *number_p,
                        const char **end_p)
{
    size_t n = strlen(m->key);
    for (const char *at = line; (at = strstr(at, m->key)) != NULL; at += n) {
        if (at > line && (isalnum((unsigned char)at[-1]) || at[-1] == '_' || at[-1] == '-'))
            continue;
        if (at - line >= 4 && strncmp(at - 4, "max ", 4) == 0)
            continue;
        const char *s = at + n;
        bool has_sign = false;
        while (*s == '\'' || *s == '"' || *s == ' ' || *s == ':' || *s == '=') {
            has_sign |= *s == ':' || *s == '=';
            s++;
        }
        if ((has_sign || s[-1] == ' ') && (s = diag_scan_number(s, number_p)) != NULL) {
            *end_p = s;
            return true;
        }
    }
    return false;
}

static bool set_metric(diag_record_t *rec, const char *line, const metric_t *m,
                       diag_labels_t labels)
{
    diag_number_t number;
    const char *end;
    uint64_t unit = m->unit;
    if (!find_metric(line, m, &number, &end))
        return false;
    diag_scan_unit(end, labels, &unit);
    rec->figures[m->figure] = diag_scan_bytes(number, unit);
    return true;
}

void diag_set_cached(diag_record_t *rec)
{
    uint64_t *f = rec->figures;
    if (f[DIAG_CACHED] == DIAG_UNKNOWN && f[DIAG_ALLOCATED] != DIAG_UNKNOWN &&
        f[DIAG_RESERVED] != DIAG_UNKNOWN && f[DIAG_RESERVED] >= f[DIAG_ALLOCATED])
        f[DIAG_CACHED] = f[DIAG_RESERVED] - f[DIAG_ALLOCATED];
}

/* Megatron-LM, training/training.py report_memory(): MB is 2^20 bytes. A fork that divides by 10^6
 * is told apart because reserved memory is a whole number of 2 MiB pages. */
static bool read_megatron(diag_reader_t *r, const char *line)
{
    static const metric_t metrics[] = {
        { "max allocated", DIAG_MAX_ALLOCATED, BASE_MIB },
        { "max reserved", DIAG_MAX_RESERVED, BASE_MIB },
        { "allocated", DIAG_ALLOCATED, BASE_MIB },
        { "reserved", DIAG_RESERVED, BASE_MIB },
        { "total device memory used", DIAG_USED, BASE_MIB },
    };
    const char *at = strstr(line, "memory (MB)"), *label = "MB";
    uint64_t unit = BASE_MIB;
    if (at == NULL && (at = strstr(line, "memory (GB)")) != NULL) {
        label = "GB";
        unit = BASE_GIB;
    }
    if (at == NULL || strstr(at, "allocated:") == NULL || strstr(at, "gigabytes") != NULL)
        return false;
    diag_record_t *rec = diag_reader_add(r, DIAG_KIND_MEGATRON, false);
    if (rec == NULL)
        return true;
    diag_number_t reserved;
    const char *end;
    if (find_metric(at, &metrics[3], &reserved, &end) && unit == BASE_MIB) {
        uint64_t mib = diag_scan_bytes(reserved, BASE_MIB), mb = diag_scan_bytes(reserved, 1000000);
        uint64_t page = 2 * BASE_MIB, off = (mb + 10000) % page; /* two decimals are printed */
        if (mib % page > 20000 && page - mib % page > 20000 && off <= 20000)
            unit = 1000000;
    }
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        metric_t m = metrics[i];
        m.unit = unit;
        set_metric(rec, at, &m, DIAG_LABELS_1024);
    }
    rec->unit = unit;
    rec->label = label;
    int64_t iteration = diag_int_after(line, "(after ");
    if (iteration >= 0)
        rec->iteration = iteration;
    diag_set_cached(rec);
    return true;
}

/* Megatron-Bridge: GB is 1e9 bytes, five significant digits. "Inactive" is what is cached inside
 * segments that are partly in use; reserved less allocated is all that is cached. */
static bool read_bridge(diag_reader_t *r, const char *line)
{
    static const metric_t metrics[] = {
        { "mem-max-allocated-gigabytes", DIAG_MAX_ALLOCATED, GB },
        { "mem-max-reserved-gigabytes", DIAG_MAX_RESERVED, GB },
        { "mem-allocated-gigabytes", DIAG_ALLOCATED, GB },
        { "mem-reserved-gigabytes", DIAG_RESERVED, GB },
        { "mem-inactive-gigabytes", DIAG_CACHED, GB },
    };
    if (strstr(line, "-gigabytes") == NULL)
        return false;
    diag_record_t *rec = diag_reader_add(r, DIAG_KIND_BRIDGE, false);
    if (rec == NULL)
        return true;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
        set_metric(rec, line, &metrics[i], DIAG_LABELS_1000);
    uint64_t inactive = rec->figures[DIAG_CACHED];
    rec->figures[DIAG_CACHED] = DIAG_UNKNOWN;
    diag_set_cached(rec);
    if (rec->figures[DIAG_CACHED] == DIAG_UNKNOWN)
        rec->figures[DIAG_CACHED] = inactive;
    rec->n_retries = diag_int_after(line, "mem-alloc-retires:"); /* sic */
    if (rec->n_retries < 0)
        rec->n_retries = diag_int_after(line, "mem-alloc-retries:");
    rec->unit = GB;
    rec->label = "GB";
    int64_t iteration = diag_int_after(line, "(after ");
    if (iteration >= 0)
        rec->iteration = iteration;
    return true;
}

/* Metrics that stand alone; several on neighbouring lines make one record. verl divides by 2^30
 * and calls it gb. */
static bool read_metrics(diag_reader_t *r, const char *line)
{
    static const metric_t metrics[] = {
        { "max_memory_allocated_gb", DIAG_MAX_ALLOCATED, BASE_GIB },
        { "max_memory_reserved_gb", DIAG_MAX_RESERVED, BASE_GIB },
        { "max_memory_allocated", DIAG_MAX_ALLOCATED, 1 },
        { "max_memory_reserved", DIAG_MAX_RESERVED, 1 },
        { "memory_allocated", DIAG_ALLOCATED, 1 },
        { "memory_reserved", DIAG_RESERVED, 1 },
        { "mem-max-allocated-bytes", DIAG_MAX_ALLOCATED, 1 },
        { "mem-max-reserved-bytes", DIAG_MAX_RESERVED, 1 },
        { "mem-allocated-bytes", DIAG_ALLOCATED, 1 },
        { "mem-reserved-bytes", DIAG_RESERVED, 1 },
        { "allocated_bytes.all.current", DIAG_ALLOCATED, 1 },
        { "allocated_bytes.all.peak", DIAG_MAX_ALLOCATED, 1 },
        { "reserved_bytes.all.current", DIAG_RESERVED, 1 },
        { "reserved_bytes.all.peak", DIAG_MAX_RESERVED, 1 },
    };
    diag_record_t *rec = NULL;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        diag_number_t number;
        const char *end;
        if (!find_metric(line, &metrics[i], &number, &end))
            continue;
        if (rec == NULL && r->table > 0 && r->log->records[r->table - 1].kind == DIAG_KIND_METRIC) {
            rec = &r->log->records[r->table - 1];
            if (r->log->n_lines - r->table_line > DIAG_SUMMARY_LINES || rec->rank != r->rank ||
                rec->figures[metrics[i].figure] != DIAG_UNKNOWN)
                rec = NULL;
        }
        if (rec == NULL && (rec = diag_reader_add(r, DIAG_KIND_METRIC, false)) == NULL)
            return true;
        set_metric(rec, line, &metrics[i], DIAG_LABELS_1000);
        r->table = (size_t)(rec - r->log->records) + 1;
        r->table_line = r->log->n_lines;
    }
    if (rec == NULL)
        return false;
    int64_t retries = diag_int_after(line, "num_alloc_retries': ");
    if (retries >= 0)
        rec->n_retries = retries;
    diag_set_cached(rec);
    return true;
}

/* Megatron-LM, training/theoretical_memory_usage.py: MB is 2^20 bytes. */
static bool read_theory(diag_reader_t *r, const char *line)
{
    static const metric_t total = { "total", DIAG_PREDICTED, BASE_MIB };
    const char *at = strstr(line, "Theoretical memory footprints:");
    if (at == NULL)
        return false;
    diag_record_t *rec = diag_reader_add(r, DIAG_KIND_THEORY, false);
    if (rec == NULL)
        return true;
    set_metric(rec, at, &total, DIAG_LABELS_1024);
    rec->unit = BASE_MIB;
    rec->label = "MB";
    return true;
}

/* torchtitan, components/metrics.py: the peak reserved memory, and its share of the device. */
static bool read_titan(diag_reader_t *r, const char *line)
{
    const char *at = strstr(line, "memory:"), *end = NULL;
    if (at == NULL)
        return false;
    uint64_t bytes = diag_scan_amount(at + 7, DIAG_LABELS_1024, &end);
    diag_number_t share;
    if (bytes == DIAG_UNKNOWN || *end != '(' || (end = diag_scan_number(end + 1, &share)) == NULL ||
        *end != '%' || share.digits == 0)
        return false;
    diag_record_t *rec = diag_reader_add(r, DIAG_KIND_TITAN, false);
    if (rec == NULL)
        return true;
    rec->figures[DIAG_MAX_RESERVED] = bytes;
    double part = (double)share.digits / 100;
    for (unsigned i = 0; i < share.n_decimals; i++)
        part /= 10;
    if (part <= 1 && part > 0.001)
        rec->figures[DIAG_TOTAL] = (uint64_t)((double)bytes / part);
    return true;
}

/* DeepSpeed, runtime/utils.py see_memory_usage(): GB is 2^30 bytes. */
static bool read_deepspeed(diag_reader_t *r, const char *line)
{
    static const metric_t metrics[] = {
        { "MA", DIAG_ALLOCATED, BASE_GIB },
        { "Max_MA", DIAG_MAX_ALLOCATED, BASE_GIB },
        { "CA", DIAG_RESERVED, BASE_GIB },
        { "Max_CA", DIAG_MAX_RESERVED, BASE_GIB },
    };
    if (strstr(line, "Max_MA ") == NULL || strstr(line, "Max_CA ") == NULL)
        return false;
    diag_record_t *rec = diag_reader_add(r, DIAG_KIND_DEEPSPEED, false);
    if (rec == NULL)
        return true;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
        set_metric(rec, line, &metrics[i], DIAG_LABELS_1024);
    rec->unit = BASE_GIB;
    rec->label = "GB";
    diag_set_cached(rec);
    return true;
}

/* torch.cuda.memory_summary(): "| Allocated memory | 1024 MiB | 2048 MiB | ...". */
static bool read_summary(diag_reader_t *r, const char *line)
{
    static const struct {
        const char *row;
        diag_figure_t current, peak;
    } rows[] = {
        { "| Allocated memory ", DIAG_ALLOCATED, DIAG_MAX_ALLOCATED },
        { "| GPU reserved memory ", DIAG_RESERVED, DIAG_MAX_RESERVED },
    };
    diag_record_t *rec;
    if (strstr(line, "CUDA memory summary") != NULL) {
        rec = diag_reader_add(r, DIAG_KIND_SUMMARY, false);
        if (rec != NULL) {
            int64_t gpu = diag_int_after(line, "device ID ");
            rec->gpu = gpu >= 0 ? gpu : rec->gpu;
            r->table = r->log->n_records;
            r->table_line = r->log->n_lines;
        }
        return true;
    }
    if (r->table == 0 || r->log->n_lines - r->table_line > DIAG_SUMMARY_LINES ||
        r->log->records[r->table - 1].kind != DIAG_KIND_SUMMARY)
        return false;
    rec = &r->log->records[r->table - 1];
    if (strstr(line, "cudaMalloc retries:") != NULL) {
        rec->n_retries = diag_int_after(line, "cudaMalloc retries:");
        return true;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *at = strstr(line, rows[i].row), *end = NULL;
        if (at == NULL || (at = strchr(at + 2, '|')) == NULL)
            continue;
        rec->figures[rows[i].current] = diag_scan_amount(at + 1, DIAG_LABELS_1024, &end);
        if (end != NULL && (at = strchr(end, '|')) != NULL)
            rec->figures[rows[i].peak] = diag_scan_amount(at + 1, DIAG_LABELS_1024, NULL);
        diag_set_cached(rec);
        return true;
    }
    return false;
}

/* nvidia-smi: "|   0  NVIDIA H100 ... |" then "| ... | 78321MiB / 81920MiB | ...". */
static bool read_smi(diag_reader_t *r, const char *line)
{
    if (line[0] == '|' && strstr(line, "MiB") == NULL) {
        int64_t gpu = diag_int_after(line, "|");
        if (gpu >= 0)
            r->smi_gpu = gpu;
    }
    const char *at = strstr(line, "MiB"), *s = at, *end;
    if (at == NULL)
        return false;
    while (s > line && s[-1] == ' ')
        s--;
    while (s > line && isdigit((unsigned char)s[-1]))
        s--;
    diag_number_t used, total;
    if ((s > line && s[-1] == '.') || diag_scan_number(s, &used) == NULL)
        return false;
    s = at + 3;
    while (*s == ' ')
        s++;
    if (*s != '/' && *s != ',')
        return false;
    for (s++; *s == ' '; s++)
        ;
    if ((end = diag_scan_number(s, &total)) == NULL || total.n_decimals > 0 ||
        strncmp(end + strspn(end, " "), "MiB", 3) != 0 || used.digits > total.digits ||
        total.digits < 1024 || total.digits > 1024 * 1024)
        return false;
    diag_record_t *rec = diag_reader_add(r, DIAG_KIND_SMI, false);
    if (rec == NULL)
        return true;
    rec->figures[DIAG_USED] = used.digits * BASE_MIB;
    rec->figures[DIAG_TOTAL] = total.digits * BASE_MIB;
    if (r->smi_gpu >= 0)
        rec->gpu = r->smi_gpu;
    return true;
}

bool diag_read_memory_line(diag_reader_t *r, const char *line)
{
    return read_bridge(r, line) || read_megatron(r, line) || read_theory(r, line) ||
           read_deepspeed(r, line) || read_summary(r, line) || read_metrics(r, line) ||
           read_titan(r, line) || read_smi(r, line);
}
