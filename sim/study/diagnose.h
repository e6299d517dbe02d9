/* SPDX-License-Identifier: Apache-2.0
 * Reads what people paste when a GPU ran out of memory (messages of PyTorch, NCCL and the CUDA
 * runtime, memory lines of training frameworks, nvidia-smi) and says where the device's bytes
 * were, why the request failed and what to change. */
#ifndef SIM_STUDY_DIAGNOSE_H
#define SIM_STUDY_DIAGNOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum {
    DIAG_KIND_OOM,       /* PyTorch: "... out of memory. Tried to allocate ..." */
    DIAG_KIND_NCCL,      /* NCCL could not get device memory */
    DIAG_KIND_CUDA,      /* another library could not: cuBLAS handle, bare CUDA error */
    DIAG_KIND_MEGATRON,  /* "[Rank N] (after I iterations) memory (MB) | ..." */
    DIAG_KIND_BRIDGE,    /* "... memory (GB) | mem-allocated-gigabytes: ..." */
    DIAG_KIND_METRIC,    /* key: value metrics (NeMo, verl, memory_stats(), Megatron's logs) */
    DIAG_KIND_SUMMARY,   /* torch.cuda.memory_summary() */
    DIAG_KIND_TITAN,     /* torchtitan: "memory: 73.32GiB(92.70%)" */
    DIAG_KIND_DEEPSPEED, /* "MA 1.2 GB Max_MA 1.3 GB CA 2.0 GB Max_CA 2 GB" */
    DIAG_KIND_SMI,       /* nvidia-smi: "78321MiB / 81920MiB" */
    DIAG_KIND_THEORY,    /* Megatron: "Theoretical memory footprints: ..." */
    DIAG_KIND_NCCL_USE,  /* NCCL_DEBUG_SUBSYS=ALLOC: sum of "Cuda Alloc Size" of one GPU */
    DIAG_KIND_NOTE, /* figures in a sentence: "tried 1 GiB, 70 GiB allocated, 0.5 free of 79" */
} diag_kind_t;

/* Bytes that a record may give; DIAG_UNKNOWN where it does not. */
#define DIAG_UNKNOWN UINT64_MAX
typedef enum {
    DIAG_REQUEST,
    DIAG_SHORTFALL, /* only where the text itself gives it */
    DIAG_TOTAL,
    DIAG_FREE,
    DIAG_LIMIT,     /* the memory fraction's */
    DIAG_ALLOCATED, /* for an OOM with private pools: less what is idle in them */
    DIAG_RESERVED,
    DIAG_CACHED,  /* reserved, not allocated, outside private pools */
    DIAG_POOLS,   /* idle in private pools: PyTorch's text counts it as allocated */
    DIAG_PROCESS, /* this process, whatever is outside PyTorch included */
    DIAG_OTHERS,  /* other processes */
    DIAG_MAX_ALLOCATED,
    DIAG_MAX_RESERVED,
    DIAG_USED,      /* device memory in use, whoever uses it */
    DIAG_PREDICTED, /* by Megatron's formula */
    DIAG_NCCL,      /* allocated by NCCL */
    DIAG_N_FIGURES,
} diag_figure_t;

typedef struct {
    diag_kind_t kind;
    size_t line;       /* from 1 */
    int64_t rank, gpu; /* -1: the text does not say */
    int64_t iteration; /* -1: the text does not say */
    int64_t n_retries; /* failed cudaMallocs that were tried again; -1: not said */
    uint64_t figures[DIAG_N_FIGURES];
    uint64_t unit;     /* bytes that one unit of an ambiguous label (MB, GB) stands for; 0: none */
    const char *label; /* that label */
    bool is_failure;
    bool is_old_wording; /* OOM: "already allocated; ... reserved in total" */
} diag_record_t;

typedef struct {
    diag_record_t *records;
    size_t n_records, n_dropped; /* beyond DIAG_MAX_RECORDS memory lines are only counted */
    size_t n_lines;
    char conf[256];              /* allocator settings that the log shows; "" = none seen */
    bool has_graphs;             /* CUDA graphs are mentioned */
    bool has_sleep_mode;         /* an inference engine's memory pool is mentioned */
    bool has_graph_register_off; /* NCCL_GRAPH_REGISTER=0 */
} diag_log_t;

enum { DIAG_MAX_RECORDS = 100000 };

/* Read the log to its end. The lines may carry colours, time stamps and rank prefixes. */
void diag_log_read(FILE *in, diag_log_t *log);
void diag_log_parse(const char *text, size_t n, diag_log_t *log);
void diag_log_fini(diag_log_t *log);

typedef enum {
    DIAG_VERDICT_CAPACITY,
    DIAG_VERDICT_FRAGMENTATION,
    DIAG_VERDICT_OUTSIDE, /* outside PyTorch */
    DIAG_VERDICT_UNKNOWN, /* not enough information */
} diag_verdict_t;

const char *diag_verdict_name(diag_verdict_t verdict);

enum { DIAG_MAX_TEXTS = 12, DIAG_TEXT = 400 };

typedef struct {
    char text[DIAG_MAX_TEXTS][DIAG_TEXT];
    size_t n;
} diag_texts_t;

typedef struct {
    char setting[160];
    char why[DIAG_TEXT];
    diag_texts_t conflicts;
} diag_change_t;

enum { DIAG_MAX_CHANGES = 6 };

typedef struct {
    diag_verdict_t verdict;
    const diag_record_t *failure; /* the first one in the log; NULL: none */
    const diag_record_t *worst;   /* of the failures of several ranks; NULL: only one rank failed */
    const diag_record_t *peak;    /* the memory line with the highest peak; NULL: none */
    size_t n_failed_ranks;
    /* Where the device's bytes were; DIAG_UNKNOWN where the text does not say. */
    uint64_t total, allocated, cached, pools, non_pytorch, others, free_bytes, unaccounted;
    bool non_pytorch_has_others; /* the text does not tell the two apart */
    uint64_t request, shortfall;
    uint64_t predicted_cached; /* with expandable segments, where that is the advice */
    diag_texts_t reasons, missing, notes;
    diag_change_t changes[DIAG_MAX_CHANGES];
    size_t n_changes;
} diag_result_t;

/* Judge what was read; `result` refers to `log`. */
void diag_judge(const diag_log_t *log, diag_result_t *result);

void diag_print_text(const diag_log_t *log, const diag_result_t *result, FILE *out);

/* JSON, "schema": "mbsim.diagnose/1". Returns false when writing failed. */
bool diag_print_json(const diag_log_t *log, const diag_result_t *result, FILE *out);

#endif
