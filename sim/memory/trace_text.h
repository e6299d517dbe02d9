/* SPDX-License-Identifier: Apache-2.0
 * A recorded sequence of allocator calls, and its text format, one call a line (`#` and empty lines
 * are skipped):
 *   a ID BYTES STREAM   allocate for stream number STREAM, 0 = default
 *   f ID                free; nothing happens if the allocation failed. IDs are not reused
 *   R ID STREAM         record_stream: ID is used on STREAM too
 *   y STREAM | Y        all work submitted to STREAM, or to every stream, is complete
 *   e                   empty_cache
 *   r | A               reset peak figures | accumulated figures
 *   c SETTINGS          parse settings again (PYTORCH_CUDA_ALLOC_CONF)
 *   m X                 set_per_process_memory_fraction(X), 0 <= X < 1
 *   s                   print statistics
 * Stream number k has the handle k * SIM_TRACE_HANDLE_STEP. */
#ifndef SIM_MEMORY_TRACE_TEXT_H
#define SIM_MEMORY_TRACE_TEXT_H

#include "sim/base/diag.h"
#include "sim/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum {
    SIM_CALL_ALLOC,
    SIM_CALL_FREE,
    SIM_CALL_RECORD_STREAM,
    SIM_CALL_STREAM_DONE,
    SIM_CALL_ALL_STREAMS_DONE,
    SIM_CALL_EMPTY_CACHE,
    SIM_CALL_RESET_PEAK,
    SIM_CALL_RESET_ACCUMULATED,
    SIM_CALL_CONFIGURE,
    SIM_CALL_FRACTION,
    SIM_CALL_PRINT,
} sim_call_kind_t;

typedef struct {
    uint8_t kind;
    uint32_t line;   /* from 1; comments and empty lines count */
    uint32_t block;  /* alloc, free, record_stream: number of the allocation, from 0 */
    uint32_t stream; /* index in streams[] */
    union {
        uint64_t bytes;   /* alloc */
        double fraction;  /* fraction */
        const char *conf; /* configure: settings, owned by the trace */
    };
} sim_call_t;

typedef struct {
    sim_call_t *calls;
    size_t n_calls;
    uint32_t n_lines;
    uint32_t n_blocks;
    uint64_t *ids;     /* n_blocks: the ID as written */
    uint64_t *streams; /* handles */
    uint32_t n_streams;
    char *text; /* copy of the settings lines */
} sim_trace_t;

/* More lines, or more different streams (every call of record_stream searches a list of them), are
 * refused. */
enum { SIM_TRACE_HANDLE_STEP = 0x1000 };
enum { SIM_TRACE_MAX_LINES = 200 * 1000 * 1000, SIM_TRACE_MAX_STREAMS = 4096 };

/* Parse `len` bytes. BASE_ERR_PARSE: every bad line is a message `NAME:LINE: what is wrong` in
 * `diag`, or there is no call at all; *trace_p is untouched. Memory is bounded by a small multiple
 * of `len`. Free with sim_trace_destroy(). */
base_status_t sim_trace_parse(const char *name, const char *text, size_t len, sim_trace_t **trace_p,
                              base_diag_t *diag);

/* The same from a file, "-" is standard input. BASE_ERR_IO: it cannot be read. */
base_status_t sim_trace_read(const char *path, sim_trace_t **trace_p, base_diag_t *diag);

void sim_trace_destroy(sim_trace_t *trace);

/* A trace of any length, read as it is played: memory is bounded by the allocations that are alive.
 * Numbers of allocations (`block` of a call) are given again once many were freed, and IDs may then
 * come again too. */
typedef struct sim_trace_reader sim_trace_reader_t;

/* `in` and `diag` are borrowed; `name` is for messages; `head`, at most SIM_TRACE_HEAD bytes, was
 * read from `in` already. */
enum { SIM_TRACE_HEAD = 64 };
sim_trace_reader_t *sim_trace_reader_create(const char *name, FILE *in, const char *head,
                                            size_t n_head, base_diag_t *diag);

/* The next call; its settings are valid until the one after it. False at the end, and after a bad
 * line, when all further bad lines have been named in `diag`. */
bool sim_trace_reader_next(sim_trace_reader_t *reader, sim_call_t *call_p);

/* IDs and streams so far, and counts; calls[] stays empty. */
const sim_trace_t *sim_trace_reader_trace(const sim_trace_reader_t *reader);
uint64_t sim_trace_reader_n_allocations(const sim_trace_reader_t *reader);

/* At the end: whether every line was a call and there was one at all; if not, `diag` says why. */
bool sim_trace_reader_finish(sim_trace_reader_t *reader);
void sim_trace_reader_destroy(sim_trace_reader_t *reader);

#endif
