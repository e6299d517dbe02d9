/* SPDX-License-Identifier: Apache-2.0
 * Shared by the readers of diagnose: where reading stands, and the readers of memory lines. */
#ifndef SIM_STUDY_DIAGNOSE_READER_H
#define SIM_STUDY_DIAGNOSE_READER_H

#include "sim/study/diagnose.h"

enum {
    DIAG_MAX_OOM_TEXT = 4096,
    DIAG_MAX_WRAPPED = 8,
    DIAG_SUMMARY_LINES = 60,
    DIAG_MAX_GPUS = 64
};

typedef struct {
    diag_log_t *log;
    size_t cap_records;
    int64_t rank, gpu; /* of the current line's prefix */
    char oom[DIAG_MAX_OOM_TEXT];
    size_t joints[DIAG_MAX_WRAPPED]; /* where the space lies that stands for a line's end */
    size_t oom_line, n_wrapped;      /* oom_line 0: no message is being collected */
    int64_t oom_rank, oom_gpu;
    size_t table; /* index + 1 of the record that a table or a list of metrics fills */
    size_t table_line;
    size_t nccl_use[DIAG_MAX_GPUS]; /* index + 1 of the record that sums NCCL's blocks of a GPU */
    int64_t smi_gpu;
    int64_t iteration; /* the last one that a line names */
} diag_reader_t;

/* A new record with the line's number, rank and GPU, all figures unknown; NULL when there are too
 * many. */
diag_record_t *diag_reader_add(diag_reader_t *r, diag_kind_t kind, bool is_failure);

/* Memory lines of training frameworks, tables and nvidia-smi; true when the line is one. */
bool diag_read_memory_line(diag_reader_t *r, const char *line);

/* cached = reserved - allocated, where it is not known yet. */
void diag_set_cached(diag_record_t *rec);

#endif
