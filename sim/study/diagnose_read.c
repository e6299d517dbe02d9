/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/diagnose.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/study/diagnose_note.h"
#include "sim/study/diagnose_scan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 1 << 16, MAX_OOM_TEXT = 4096, MAX_WRAPPED_LINES = 8, SUMMARY_LINES = 60 };

typedef struct {
    diag_log_t *log;
    size_t cap_records;
    int64_t rank, gpu; /* of the current line's prefix */
    char oom[MAX_OOM_TEXT];
    size_t oom_line, n_wrapped; /* oom_line 0: no message is being collected */
    int64_t oom_rank, oom_gpu;
    size_t table; /* index + 1 of the record that a table or a list of metrics fills */
    size_t table_line;
    int64_t smi_gpu;
    int64_t iteration; /* the last one that a line names */
} reader_t;

static diag_record_t *add_record(reader_t *r, diag_kind_t kind, bool is_failure)
{
    diag_log_t *log = r->log;
    if (log->n_records >= DIAG_MAX_RECORDS) {
        log->n_dropped++;
        return NULL;
    }
    if (log->records == NULL || log->n_records == r->cap_records) {
        r->cap_records = 2 * r->cap_records + 16;
        log->records = base_xrealloc(log->records, r->cap_records, sizeof(*log->records));
    }
    diag_record_t *rec = &log->records[log->n_records++];
    *rec = (diag_record_t){ .kind = kind,
                            .line = log->n_lines,
                            .rank = r->rank,
                            .gpu = r->gpu,
                            .iteration = r->iteration,
                            .n_retries = -1,
                            .is_failure = is_failure };
    for (size_t i = 0; i < DIAG_N_FIGURES; i++)
        rec->figures[i] = DIAG_UNKNOWN;
    return rec;
}

/* Drop colour sequences (ESC [ ... letter), carriage returns and NULs in place. */
static size_t clean(char *s, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\x1b') {
            if (i + 1 < n && s[i + 1] == '[') {
                for (i += 2; i < n && !isalpha((unsigned char)s[i]); i++)
                    ;
            }
            continue;
        }
        if (s[i] == '\0' || s[i] == '\t' || s[i] == '\r')
            s[out++] = ' ';
        else if ((unsigned char)s[i] == 0xc2 && i + 1 < n && (unsigned char)s[i + 1] == 0xa0)
            s[out++] = ' ', i++; /* no-break space, from web pages */
        else
            s[out++] = s[i];
    }
    s[out] = '\0';
    return out;
}

/* "[rank3]:", "[Rank 3]", "[default3]:" (torchrun), "3: " (srun -l), "[1,3]<stderr>:" (mpirun);
 * returns what follows. */
static const char *take_prefix(reader_t *r, const char *line)
{
    r->rank = r->gpu = -1;
    const char *s = line, *at;
    if ((at = strstr(s, "[rank")) != NULL && isdigit((unsigned char)at[5])) {
        r->rank = diag_int_after(at, "[rank");
        const char *end = strchr(at, ']');
        if (end != NULL)
            s = end[1] == ':' ? end + 2 : end + 1;
    } else if ((at = strstr(s, "[Rank ")) != NULL) {
        r->rank = diag_int_after(at, "[Rank ");
    } else if (strncmp(s, "[default", 8) == 0) {
        r->gpu = diag_int_after(s, "[default");
        at = strchr(s, ':');
        s = at != NULL ? at + 1 : s;
    } else if (strncmp(s, "[1,", 3) == 0) {
        r->rank = diag_int_after(s, "[1,");
        at = strchr(s, ':');
        s = at != NULL ? at + 1 : s;
    } else {
        for (at = s; isdigit((unsigned char)*at) || (at == s && *at == ' '); at++)
            ;
        if (at > s && at - s < 8 && at[0] == ':' && at[1] == ' ') {
            r->rank = diag_int_after(s, "");
            s = at + 2;
        }
    }
    return s;
}

/* What other processes use: PyTorch names each ("Process 123 has 1.00 GiB memory in use"). Inside
 * a container it does not recognise its own: then the smallest that could hold `reserved` is it. */
static void read_processes(diag_record_t *rec, const char *text, uint64_t reserved)
{
    enum { MAX_PROCESSES = 64 };
    uint64_t used[MAX_PROCESSES];
    size_t n = 0, own = MAX_PROCESSES;
    for (const char *at = text; n < MAX_PROCESSES && (at = strstr(at, "Process ")) != NULL; at++) {
        uint64_t bytes = diag_amount_after(at, " has ");
        const char *pid_end = at + 8;
        while (isdigit((unsigned char)*pid_end))
            pid_end++;
        if (bytes != DIAG_UNKNOWN && strncmp(pid_end, " has ", 5) == 0)
            used[n++] = bytes;
    }
    if (rec->figures[DIAG_PROCESS] == DIAG_UNKNOWN && reserved != DIAG_UNKNOWN) {
        for (size_t i = 0; i < n; i++)
            if (used[i] + 16 * BASE_MIB >= reserved &&
                (own == MAX_PROCESSES || used[i] < used[own]))
                own = i;
        if (own < n)
            rec->figures[DIAG_PROCESS] = used[own];
    }
    if (rec->figures[DIAG_PROCESS] == DIAG_UNKNOWN)
        return;
    rec->figures[DIAG_OTHERS] = 0;
    for (size_t i = 0; i < n; i++)
        if (i != own)
            rec->figures[DIAG_OTHERS] += used[i];
}

/* Wording since PyTorch 2.1. "allocated in private pools" are free blocks of those pools, which
 * the text counts as allocated (c10/cuda/CUDACachingAllocator.cpp, 2.10: get_size_block walks the
 * pool's free blocks, and the sum is added to allocated_bytes). */
static void read_new_oom(diag_record_t *rec, const char *text)
{
    uint64_t *f = rec->figures;
    f[DIAG_TOTAL] = diag_amount_after(text, " has a total capacity of ");
    if (f[DIAG_TOTAL] == DIAG_UNKNOWN)
        f[DIAG_TOTAL] = diag_amount_after(text, " has a total capacty of "); /* sic, 2.1 */
    f[DIAG_FREE] = diag_amount_before(text, " is free");
    f[DIAG_PROCESS] = diag_amount_after(text, "this process has ");
    f[DIAG_LIMIT] = diag_amount_before(text, " allowed;");
    f[DIAG_ALLOCATED] = diag_amount_after(text, "Of the allocated memory ");
    f[DIAG_POOLS] = diag_amount_before(text, " allocated in private pools");
    f[DIAG_CACHED] = diag_amount_before(text, " is reserved by PyTorch but unallocated");
    /* 2^64 less a little: reserved - allocated - pools went below zero. */
    if (f[DIAG_CACHED] != DIAG_UNKNOWN && f[DIAG_TOTAL] != DIAG_UNKNOWN &&
        f[DIAG_CACHED] > f[DIAG_TOTAL])
        f[DIAG_CACHED] = DIAG_UNKNOWN;
    if (f[DIAG_ALLOCATED] != DIAG_UNKNOWN && f[DIAG_CACHED] != DIAG_UNKNOWN)
        f[DIAG_RESERVED] = f[DIAG_ALLOCATED] + f[DIAG_CACHED];
    if (f[DIAG_POOLS] != DIAG_UNKNOWN && f[DIAG_ALLOCATED] != DIAG_UNKNOWN &&
        f[DIAG_POOLS] <= f[DIAG_ALLOCATED])
        f[DIAG_ALLOCATED] -= f[DIAG_POOLS];
    read_processes(rec, text, f[DIAG_RESERVED]);
}

/* Wording up to PyTorch 2.0, and of accelerators that follow it; "cached" up to 1.3. */
static void read_old_oom(diag_record_t *rec, const char *text)
{
    uint64_t *f = rec->figures;
    rec->is_old_wording = true;
    f[DIAG_TOTAL] = diag_amount_before(text, " total capacity");
    f[DIAG_FREE] = diag_amount_before(text, " free;");
    f[DIAG_LIMIT] = diag_amount_before(text, " allowed;");
    f[DIAG_ALLOCATED] = diag_amount_before(text, " already allocated");
    f[DIAG_RESERVED] = diag_amount_before(text, " reserved in total");
    if (f[DIAG_RESERVED] == DIAG_UNKNOWN) { /* "cached" was the whole cache, in use or not */
        f[DIAG_RESERVED] = diag_amount_before(text, " cached)");
        if (f[DIAG_RESERVED] == DIAG_UNKNOWN)
            f[DIAG_RESERVED] = diag_amount_before(text, " cached;");
    }
    if (f[DIAG_RESERVED] != DIAG_UNKNOWN && f[DIAG_ALLOCATED] != DIAG_UNKNOWN &&
        f[DIAG_RESERVED] >= f[DIAG_ALLOCATED])
        f[DIAG_CACHED] = f[DIAG_RESERVED] - f[DIAG_ALLOCATED];
}

static bool is_oom_complete(const char *text)
{
    return strstr(text, "PyTorch but unallocated") != NULL ||
           strstr(text, "reserved in total") != NULL || strstr(text, " cached)") != NULL;
}

static void finish_oom(reader_t *r)
{
    if (r->oom_line == 0)
        return;
    diag_record_t *rec = add_record(r, DIAG_KIND_OOM, true);
    if (rec != NULL) {
        rec->line = r->oom_line;
        rec->rank = r->oom_rank;
        rec->gpu = r->oom_gpu;
        rec->figures[DIAG_REQUEST] = diag_amount_after(r->oom, "Tried to allocate ");
        int64_t gpu = diag_int_after(r->oom, "GPU ");
        if (gpu < 0)
            gpu = diag_int_after(r->oom, "NPU ");
        if (gpu >= 0)
            rec->gpu = gpu;
        uint64_t request = rec->figures[DIAG_REQUEST];
        if (strstr(r->oom, "already allocated") != NULL)
            read_old_oom(rec, r->oom);
        else
            read_new_oom(rec, r->oom);
        rec->figures[DIAG_REQUEST] = request;
    }
    r->oom_line = 0;
}

/* True when the line belongs to an out-of-memory message of PyTorch. */
static bool read_oom(reader_t *r, const char *line)
{
    const char *at = strstr(line, "out of memory. Tried to allocate ");
    if (at == NULL)
        at = strstr(line, "Tried to allocate ");
    if (at == NULL && (at = strstr(line, "OutOfMemoryError: ")) != NULL &&
        strstr(at, "out of memory") == NULL)
        at = NULL;
    if (at != NULL) {
        finish_oom(r);
        r->oom_line = r->log->n_lines;
        r->oom_rank = r->rank;
        r->oom_gpu = r->gpu;
        r->n_wrapped = 0;
        r->oom[0] = '\0';
    } else if (r->oom_line == 0) {
        return false;
    } else if (r->rank != r->oom_rank || ++r->n_wrapped > MAX_WRAPPED_LINES ||
               strstr(line, "Traceback") != NULL) {
        finish_oom(r);
        return false;
    } else {
        at = line;
    }
    size_t used = strlen(r->oom);
    snprintf(r->oom + used, sizeof(r->oom) - used, " %s", at);
    if (is_oom_complete(r->oom))
        finish_oom(r);
    return true;
}

/* "node7:123:456 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes"; NCCL says
 * first that CUDA failed, then how many bytes it wanted. */
static bool read_nccl(reader_t *r, const char *line)
{
    bool is_size = strstr(line, "Failed to CUDA ") != NULL && strstr(line, "lloc") != NULL;
    bool is_oom = strstr(line, "Cuda failure") != NULL && strstr(line, "out of memory") != NULL;
    if (!is_size && !is_oom)
        return false;
    const char *at = strstr(line, "NCCL WARN");
    for (; at != NULL && at > line && r->gpu < 0; at--)
        if (*at == '[' && isdigit((unsigned char)at[1]))
            r->gpu = diag_int_after(at, "[");
    uint64_t bytes = DIAG_UNKNOWN;
    static const char *const calls[] = { "calloc async ", "calloc ", "malloc ", "alloc " };
    for (size_t i = 0; is_size && bytes == DIAG_UNKNOWN && i < sizeof(calls) / sizeof(calls[0]);
         i++)
        bytes = diag_amount_after(line, calls[i]);
    diag_log_t *log = r->log;
    diag_record_t *last = log->n_records > 0 ? &log->records[log->n_records - 1] : NULL;
    if (last != NULL && last->kind == DIAG_KIND_NCCL && log->n_lines - last->line <= 4 &&
        (last->gpu == r->gpu || r->gpu < 0) &&
        (last->figures[DIAG_REQUEST] == DIAG_UNKNOWN || last->figures[DIAG_REQUEST] == bytes)) {
        last->figures[DIAG_REQUEST] = bytes;
        return true;
    }
    diag_record_t *rec = add_record(r, DIAG_KIND_NCCL, true);
    if (rec != NULL)
        rec->figures[DIAG_REQUEST] = bytes;
    return true;
}

static bool read_cuda(reader_t *r, const char *line)
{
    static const char *const marks[] = {
        "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUSOLVER_STATUS_ALLOC_FAILED",
        "CUDA error: out of memory",  "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY",
    };
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (strstr(line, marks[i]) != NULL) {
            add_record(r, DIAG_KIND_CUDA, true);
            return true;
        }
    return false;
}

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

static void set_cached(diag_record_t *rec)
{
    uint64_t *f = rec->figures;
    if (f[DIAG_CACHED] == DIAG_UNKNOWN && f[DIAG_ALLOCATED] != DIAG_UNKNOWN &&
        f[DIAG_RESERVED] != DIAG_UNKNOWN && f[DIAG_RESERVED] >= f[DIAG_ALLOCATED])
        f[DIAG_CACHED] = f[DIAG_RESERVED] - f[DIAG_ALLOCATED];
}

/* Megatron-LM, training/training.py report_memory(): MB is 2^20 bytes. A fork that divides by 10^6
 * is told apart because reserved memory is a whole number of 2 MiB pages. */
static bool read_megatron(reader_t *r, const char *line)
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
    diag_record_t *rec = add_record(r, DIAG_KIND_MEGATRON, false);
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
    set_cached(rec);
    return true;
}

/* Megatron-Bridge: GB is 1e9 bytes, five significant digits. "Inactive" is what is cached inside
 * segments that are partly in use; reserved less allocated is all that is cached. */
static bool read_bridge(reader_t *r, const char *line)
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
    diag_record_t *rec = add_record(r, DIAG_KIND_BRIDGE, false);
    if (rec == NULL)
        return true;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
        set_metric(rec, line, &metrics[i], DIAG_LABELS_1000);
    uint64_t inactive = rec->figures[DIAG_CACHED];
    rec->figures[DIAG_CACHED] = DIAG_UNKNOWN;
    set_cached(rec);
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
static bool read_metrics(reader_t *r, const char *line)
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
            if (r->log->n_lines - r->table_line > SUMMARY_LINES || rec->rank != r->rank ||
                rec->figures[metrics[i].figure] != DIAG_UNKNOWN)
                rec = NULL;
        }
        if (rec == NULL && (rec = add_record(r, DIAG_KIND_METRIC, false)) == NULL)
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
    set_cached(rec);
    return true;
}

/* torchtitan, components/metrics.py: the peak reserved memory, and its share of the device. */
static bool read_titan(reader_t *r, const char *line)
{
    const char *at = strstr(line, "memory:"), *end = NULL;
    if (at == NULL)
        return false;
    uint64_t bytes = diag_scan_amount(at + 7, DIAG_LABELS_1024, &end);
    diag_number_t share;
    if (bytes == DIAG_UNKNOWN || *end != '(' || (end = diag_scan_number(end + 1, &share)) == NULL ||
        *end != '%' || share.digits == 0)
        return false;
    diag_record_t *rec = add_record(r, DIAG_KIND_TITAN, false);
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
static bool read_deepspeed(reader_t *r, const char *line)
{
    static const metric_t metrics[] = {
        { "MA", DIAG_ALLOCATED, BASE_GIB },
        { "Max_MA", DIAG_MAX_ALLOCATED, BASE_GIB },
        { "CA", DIAG_RESERVED, BASE_GIB },
        { "Max_CA", DIAG_MAX_RESERVED, BASE_GIB },
    };
    if (strstr(line, "Max_MA ") == NULL || strstr(line, "Max_CA ") == NULL)
        return false;
    diag_record_t *rec = add_record(r, DIAG_KIND_DEEPSPEED, false);
    if (rec == NULL)
        return true;
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
        set_metric(rec, line, &metrics[i], DIAG_LABELS_1024);
    rec->unit = BASE_GIB;
    rec->label = "GB";
    set_cached(rec);
    return true;
}

/* torch.cuda.memory_summary(): "| Allocated memory | 1024 MiB | 2048 MiB | ...". */
static bool read_summary(reader_t *r, const char *line)
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
        rec = add_record(r, DIAG_KIND_SUMMARY, false);
        if (rec != NULL) {
            int64_t gpu = diag_int_after(line, "device ID ");
            rec->gpu = gpu >= 0 ? gpu : rec->gpu;
            r->table = r->log->n_records;
            r->table_line = r->log->n_lines;
        }
        return true;
    }
    if (r->table == 0 || r->log->n_lines - r->table_line > SUMMARY_LINES ||
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
        set_cached(rec);
        return true;
    }
    return false;
}

/* nvidia-smi: "|   0  NVIDIA H100 ... |" then "| ... | 78321MiB / 81920MiB | ...". */
static bool read_smi(reader_t *r, const char *line)
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
    diag_record_t *rec = add_record(r, DIAG_KIND_SMI, false);
    if (rec == NULL)
        return true;
    rec->figures[DIAG_USED] = used.digits * BASE_MIB;
    rec->figures[DIAG_TOTAL] = total.digits * BASE_MIB;
    if (r->smi_gpu >= 0)
        rec->gpu = r->smi_gpu;
    return true;
}

static void read_environment(diag_log_t *log, const char *line)
{
    static const char *const names[] = { "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
                                         "PYTORCH_HIP_ALLOC_CONF" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *at = strstr(line, names[i]);
        if (at == NULL || strstr(line, "try setting") != NULL)
            continue;
        at += strlen(names[i]);
        while (*at != '\0' && strchr("=: '\"", *at) != NULL)
            at++;
        size_t n = strcspn(at, " '\"\\;)}");
        if (n > 0 && n < sizeof(log->conf) && memchr(at, ':', n) != NULL) {
            memcpy(log->conf, at, n);
            log->conf[n] = '\0';
        }
    }
    if (strstr(line, "uda-graph") != NULL || strstr(line, "uda_graph") != NULL ||
        strstr(line, "private pools") != NULL || strstr(line, "CUDAGraph") != NULL)
        log->has_graphs = true;
    if (strstr(line, "sleep_mode") != NULL || strstr(line, "CuMemAllocator") != NULL)
        log->has_sleep_mode = true;
    if (strstr(line, "NCCL_GRAPH_REGISTER=0") != NULL)
        log->has_graph_register_off = true;
}

static void read_line(reader_t *r, char *text, size_t n)
{
    r->log->n_lines++;
    clean(text, n);
    const char *line = take_prefix(r, text);
    int64_t iteration = diag_int_after(line, "iteration ");
    if (iteration < 0)
        iteration = diag_int_after(line, "step: "); /* torchtitan */
    if (iteration >= 0)
        r->iteration = iteration;
    read_environment(r->log, line);
    if (read_oom(r, line) || read_nccl(r, line) || read_cuda(r, line) || read_bridge(r, line) ||
        read_megatron(r, line) || read_deepspeed(r, line) || read_summary(r, line) ||
        read_metrics(r, line) || read_titan(r, line) || read_smi(r, line))
        return;
    diag_record_t note;
    if (diag_note_read(line, &note)) {
        diag_record_t *rec = add_record(r, DIAG_KIND_NOTE, note.is_failure);
        if (rec != NULL) {
            rec->kind = note.kind;
            memcpy(rec->figures, note.figures, sizeof(rec->figures));
            rec->unit = note.unit;
            rec->label = note.label;
            set_cached(rec);
        }
    }
}

static void begin(reader_t *r, diag_log_t *log)
{
    *log = (diag_log_t){ 0 };
    *r = (reader_t){ .log = log, .rank = -1, .gpu = -1, .smi_gpu = -1, .iteration = -1 };
}

void diag_log_parse(const char *text, size_t n, diag_log_t *log)
{
    FILE *in = fmemopen((void *)(uintptr_t)text, n, "r");
    if (in == NULL) { /* an empty text */
        *log = (diag_log_t){ 0 };
        return;
    }
    diag_log_read(in, log);
    fclose(in);
}

void diag_log_read(FILE *in, diag_log_t *log)
{
    reader_t r;
    begin(&r, log);
    char *line = base_xcalloc(MAX_LINE + 1, 1);
    size_t n = 0;
    for (int c; (c = getc_unlocked(in)) != EOF;) {
        if (c != '\n' && n < MAX_LINE) /* longer lines are read in pieces */
            line[n++] = (char)c;
        if (c == '\n' || n == MAX_LINE) {
            read_line(&r, line, n);
            n = 0;
        }
    }
    if (n > 0)
        read_line(&r, line, n);
    finish_oom(&r);
    free(line);
}

void diag_log_fini(diag_log_t *log)
{
    free(log->records);
    *log = (diag_log_t){ 0 };
}
