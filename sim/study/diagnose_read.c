/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/diagnose.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/study/diagnose_note.h"
#include "sim/study/diagnose_reader.h"
#include "sim/study/diagnose_scan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINE = 1 << 16 };

diag_record_t *diag_reader_add(diag_reader_t *r, diag_kind_t kind, bool is_failure)
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
static const char *take_prefix(diag_reader_t *r, const char *line)
{
    r->rank = r->gpu = -1;
    while (*line == '>') /* quoted in a mail or a chat */
        line += line[1] == ' ' ? 2 : 1;
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

static void read_oom_text(diag_record_t *rec, const char *text)
{
    int64_t gpu = diag_int_after(text, "GPU ");
    if (gpu < 0)
        gpu = diag_int_after(text, "NPU ");
    if (gpu >= 0)
        rec->gpu = gpu;
    if (strstr(text, "already allocated") != NULL)
        read_old_oom(rec, text);
    else
        read_new_oom(rec, text);
    rec->figures[DIAG_REQUEST] = diag_amount_after(text, "Tried to allocate ");
}

/* The text with its lines joined as they are: a terminal cuts words, an editor drops spaces. */
static void join_tightly(const diag_reader_t *r, char out[DIAG_MAX_OOM_TEXT])
{
    size_t n = 0, i_joint = 0;
    for (size_t i = 0; r->oom[i] != '\0'; i++) {
        if (i_joint < r->n_wrapped && i == r->joints[i_joint])
            i_joint++;
        else
            out[n++] = r->oom[i];
    }
    out[n] = '\0';
}

/* Each figure from the text joined tightly, else from the one joined by spaces: a number that a
 * line's end has cut is whole in the first only. */
static void read_wrapped_oom(const diag_reader_t *r, diag_record_t *rec)
{
    char tight[DIAG_MAX_OOM_TEXT];
    join_tightly(r, tight);
    diag_record_t loose = *rec;
    read_oom_text(&loose, r->oom);
    rec->gpu = loose.gpu;
    read_oom_text(rec, tight);
    rec->is_old_wording |= loose.is_old_wording;
    for (size_t i = 0; i < DIAG_N_FIGURES; i++)
        if (rec->figures[i] == DIAG_UNKNOWN)
            rec->figures[i] = loose.figures[i];
}

static void finish_oom(diag_reader_t *r)
{
    if (r->oom_line == 0)
        return;
    diag_record_t *rec = diag_reader_add(r, DIAG_KIND_OOM, true);
    if (rec != NULL) {
        rec->line = r->oom_line;
        rec->rank = r->oom_rank;
        rec->gpu = r->oom_gpu;
        read_wrapped_oom(r, rec);
    }
    r->oom_line = 0;
}

/* True when the line belongs to an out-of-memory message of PyTorch. */
static bool read_oom(diag_reader_t *r, const char *line)
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
    } else if ((r->rank != r->oom_rank && r->rank >= 0) || r->n_wrapped == DIAG_MAX_WRAPPED ||
               strstr(line, "Traceback") != NULL) {
        finish_oom(r);
        return false;
    } else {
        at = line;
    }
    size_t used = strlen(r->oom);
    if (used > 0)
        r->joints[r->n_wrapped++] = used;
    snprintf(r->oom + used, sizeof(r->oom) - used, used > 0 ? " %s" : "%s", at);
    char tight[DIAG_MAX_OOM_TEXT];
    join_tightly(r, tight);
    if (is_oom_complete(r->oom) || is_oom_complete(tight))
        finish_oom(r);
    return true;
}

/* NCCL names the GPU before its text: "node7:123:456 [3] ...". */
static void take_nccl_gpu(diag_reader_t *r, const char *line, const char *text)
{
    const char *at = strstr(line, text);
    for (; at != NULL && at > line && r->gpu < 0; at--)
        if (*at == '[' && isdigit((unsigned char)at[1]))
            r->gpu = diag_int_after(at, "[");
}

/* "node7:123:456 [3] NCCL INFO transport/p2p.cc:200 Cuda Alloc Size 10485760 pointer 0x7f...", with
 * NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALLOC. */
static bool read_nccl_alloc(diag_reader_t *r, const char *line)
{
    static const char text[] = " Cuda Alloc Size ";
    int64_t bytes = diag_int_after(line, text);
    if (bytes < 0)
        return false;
    take_nccl_gpu(r, line, text);
    if (r->gpu < 0 || r->gpu >= DIAG_MAX_GPUS)
        return true;
    size_t *use = &r->nccl_use[r->gpu];
    if (*use == 0) {
        diag_record_t *made = diag_reader_add(r, DIAG_KIND_NCCL_USE, false);
        if (made == NULL)
            return true;
        made->figures[DIAG_NCCL] = 0;
        *use = r->log->n_records;
    }
    uint64_t *sum = &r->log->records[*use - 1].figures[DIAG_NCCL];
    *sum = base_u64_min(*sum + (uint64_t)bytes, INT64_MAX);
    return true;
}

/* "node7:123:456 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes"; NCCL says
 * first that CUDA failed, then how many bytes it wanted. */
static bool read_nccl(diag_reader_t *r, const char *line)
{
    bool is_size = strstr(line, "Failed to CUDA ") != NULL && strstr(line, "lloc") != NULL;
    bool is_oom = strstr(line, "Cuda failure") != NULL && strstr(line, "out of memory") != NULL;
    if (!is_size && !is_oom)
        return false;
    take_nccl_gpu(r, line, "NCCL WARN");
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
    diag_record_t *rec = diag_reader_add(r, DIAG_KIND_NCCL, true);
    if (rec != NULL)
        rec->figures[DIAG_REQUEST] = bytes;
    return true;
}

static bool read_cuda(diag_reader_t *r, const char *line)
{
    static const char *const marks[] = {
        "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUSOLVER_STATUS_ALLOC_FAILED",
        "CUDA error: out of memory",  "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY",
    };
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (strstr(line, marks[i]) != NULL) {
            diag_reader_add(r, DIAG_KIND_CUDA, true);
            return true;
        }
    return false;
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

static void read_line(diag_reader_t *r, char *text, size_t n)
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
    if (read_oom(r, line) || read_nccl(r, line) || read_nccl_alloc(r, line) || read_cuda(r, line) ||
        diag_read_memory_line(r, line))
        return;
    diag_record_t note;
    if (diag_note_read(line, &note)) {
        diag_record_t *rec = diag_reader_add(r, DIAG_KIND_NOTE, note.is_failure);
        if (rec != NULL) {
            rec->kind = note.kind;
            memcpy(rec->figures, note.figures, sizeof(rec->figures));
            rec->unit = note.unit;
            rec->label = note.label;
            diag_set_cached(rec);
        }
    }
}

static void begin(diag_reader_t *r, diag_log_t *log)
{
    *log = (diag_log_t){ 0 };
    *r = (diag_reader_t){ .log = log, .rank = -1, .gpu = -1, .smi_gpu = -1, .iteration = -1 };
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
    diag_reader_t r;
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
