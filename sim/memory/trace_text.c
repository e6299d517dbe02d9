/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/trace_text.h"

#include "sim/base/xmem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FIELDS = 4,
    MAX_FREED_KEPT = 1 << 20,
    MAX_LINE_BYTES = 16 << 20,
    CHUNK_BYTES = 64 << 10
};

/* A forgotten ID is in no map, and its number can be given again. */
typedef enum { ID_ALIVE, ID_FREED, ID_FORGOTTEN } id_state_t;

/* Open addressing, from an ID as written to its number; at most half full. */
typedef struct {
    uint32_t *slot; /* number + 1, 0 = empty */
    size_t mask;
} id_map_t;

typedef struct {
    const char *name;
    base_diag_t *diag;
    sim_trace_t *trace;
    size_t calls_cap, ids_cap, streams_cap, text_len;
    uint8_t *state; /* id_state_t of each number */
    id_map_t map;
    uint32_t line;
    size_t n_errors;
    bool forgets;    /* what was freed, when there are many */
    uint32_t *spare; /* numbers of forgotten IDs */
    size_t n_spare, spare_cap;
    uint64_t n_allocations;
} parser_t;

typedef struct {
    const char *at;
    size_t len;
} field_t;

__attribute__((format(printf, 2, 3))) static void complain(parser_t *p, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    p->n_errors++;
    base_diag_add(p->diag, "%s:%" PRIu32 ": %s", p->name, p->line, text);
}

static size_t hash(uint64_t id)
{
    return (size_t)((id * UINT64_C(0x9E3779B97F4A7C15)) >> 20);
}

static uint32_t *map_slot(const parser_t *p, uint64_t id)
{
    size_t i = hash(id) & p->map.mask;
    while (p->map.slot[i] != 0 && p->trace->ids[p->map.slot[i] - 1] != id)
        i = (i + 1) & p->map.mask;
    return &p->map.slot[i];
}

static void map_grow(parser_t *p)
{
    free(p->map.slot);
    p->map.mask = p->map.mask * 2 + 1;
    p->map.slot = base_xcalloc(p->map.mask + 1, sizeof(*p->map.slot));
    for (uint32_t i = 0; i < p->trace->n_blocks; i++)
        if (p->state[i] != ID_FORGOTTEN)
            *map_slot(p, p->trace->ids[i]) = i + 1;
}

/* Take an ID out; those behind it that it has pushed on move up. */
static void map_remove(parser_t *p, uint64_t id)
{
    size_t mask = p->map.mask, hole = (size_t)(map_slot(p, id) - p->map.slot);
    for (size_t i = (hole + 1) & mask; p->map.slot[i] != 0; i = (i + 1) & mask) {
        size_t home = hash(p->trace->ids[p->map.slot[i] - 1]) & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            p->map.slot[hole] = p->map.slot[i];
            hole = i;
        }
    }
    p->map.slot[hole] = 0;
}

static void forget(parser_t *p, uint32_t block)
{
    map_remove(p, p->trace->ids[block]);
    p->state[block] = ID_FORGOTTEN;
    if (p->n_spare == p->spare_cap) {
        p->spare_cap = p->spare_cap == 0 ? 1024 : p->spare_cap * 2;
        p->spare = base_xrealloc(p->spare, p->spare_cap, sizeof(*p->spare));
    }
    p->spare[p->n_spare++] = block;
}

/* Digits only, fits 64 bits. */
static bool parse_u64(field_t field, uint64_t *out_p)
{
    uint64_t value = 0;
    if (field.len == 0 || field.len > 20)
        return false;
    for (size_t i = 0; i < field.len; i++) {
        unsigned digit = (unsigned)(field.at[i] - '0');
        if (digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out_p = value;
    return true;
}

static bool want_u64(parser_t *p, const char *what, field_t field, uint64_t *out_p)
{
    if (parse_u64(field, out_p))
        return true;
    complain(p, "%s is '%.*s', not a whole number below 2^64", what,
             (int)(field.len < 40 ? field.len : 40), field.at);
    return false;
}

static bool want_stream(parser_t *p, field_t field, uint32_t *stream_p)
{
    sim_trace_t *t = p->trace;
    uint64_t number;
    if (!want_u64(p, "STREAM", field, &number))
        return false;
    if (number > UINT64_MAX / SIM_TRACE_HANDLE_STEP) {
        complain(p, "STREAM %" PRIu64 " is too large, at most %" PRIu64, number,
                 UINT64_MAX / SIM_TRACE_HANDLE_STEP);
        return false;
    }
    for (uint32_t i = 0; i < t->n_streams; i++)
        if (t->streams[i] == number * SIM_TRACE_HANDLE_STEP) {
            *stream_p = i;
            return true;
        }
    if (t->n_streams == SIM_TRACE_MAX_STREAMS) {
        complain(p, "more than %d different streams", SIM_TRACE_MAX_STREAMS);
        return false;
    }
    if (t->n_streams == p->streams_cap) {
        p->streams_cap = p->streams_cap == 0 ? 4 : p->streams_cap * 2;
        t->streams = base_xrealloc(t->streams, p->streams_cap, sizeof(*t->streams));
    }
    *stream_p = t->n_streams;
    t->streams[t->n_streams++] = number * SIM_TRACE_HANDLE_STEP;
    return true;
}

static bool want_new_id(parser_t *p, field_t field, uint32_t *block_p)
{
    sim_trace_t *t = p->trace;
    uint64_t id;
    if (!want_u64(p, "ID", field, &id))
        return false;
    if (*map_slot(p, id) != 0) {
        complain(p, "ID %" PRIu64 " was allocated before; IDs are not reused", id);
        return false;
    }
    p->n_allocations++;
    if (p->n_spare > 0) {
        *block_p = p->spare[--p->n_spare];
        t->ids[*block_p] = id;
        p->state[*block_p] = ID_ALIVE;
        *map_slot(p, id) = *block_p + 1;
        return true;
    }
    if (t->n_blocks == p->ids_cap) {
        p->ids_cap = p->ids_cap == 0 ? 64 : p->ids_cap * 2;
        t->ids = base_xrealloc(t->ids, p->ids_cap, sizeof(*t->ids));
        p->state = base_xrealloc(p->state, p->ids_cap, sizeof(*p->state));
    }
    *block_p = t->n_blocks;
    t->ids[t->n_blocks] = id;
    p->state[t->n_blocks++] = ID_ALIVE;
    if (t->n_blocks > p->map.mask / 2)
        map_grow(p);
    else
        *map_slot(p, id) = t->n_blocks;
    return true;
}

static bool want_alive_id(parser_t *p, field_t field, uint32_t *block_p)
{
    uint64_t id;
    if (!want_u64(p, "ID", field, &id))
        return false;
    uint32_t found = *map_slot(p, id);
    if (found == 0) {
        complain(p, "ID %" PRIu64 " was never allocated", id);
        return false;
    }
    if (p->state[found - 1] == ID_FREED) {
        complain(p, "ID %" PRIu64 " was freed before", id);
        return false;
    }
    *block_p = found - 1;
    return true;
}

static bool want_fraction(parser_t *p, field_t field, double *fraction_p)
{
    char text[64] = "";
    if (field.len > 0 && field.len < sizeof(text))
        memcpy(text, field.at, field.len);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= 0.0 && value < 1.0)) {
        complain(p, "memory fraction is '%.*s', not a number in [0, 1)",
                 (int)(field.len < 40 ? field.len : 40), field.at);
        return false;
    }
    *fraction_p = value;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Up to MAX_FIELDS + 1 words of a line. */
static int split_fields(const char *at, const char *end, field_t fields[static MAX_FIELDS + 1])
{
    int n = 0;
    while (n <= MAX_FIELDS) {
        while (at < end && is_blank(*at))
            at++;
        if (at == end)
            break;
        fields[n].at = at;
        while (at < end && !is_blank(*at))
            at++;
        fields[n].len = (size_t)(at - fields[n].at);
        n++;
    }
    return n;
}

static const struct {
    char letter;
    uint8_t kind;
    int n_fields; /* with the letter; 0 = the rest of the line is text */
    const char *usage;
} kinds[] = {
    { 'a', SIM_CALL_ALLOC, 4, "a ID BYTES STREAM" },
    { 'f', SIM_CALL_FREE, 2, "f ID" },
    { 'R', SIM_CALL_RECORD_STREAM, 3, "R ID STREAM" },
    { 'y', SIM_CALL_STREAM_DONE, 2, "y STREAM" },
    { 'Y', SIM_CALL_ALL_STREAMS_DONE, 1, "Y" },
    { 'e', SIM_CALL_EMPTY_CACHE, 1, "e" },
    { 'r', SIM_CALL_RESET_PEAK, 1, "r" },
    { 'A', SIM_CALL_RESET_ACCUMULATED, 1, "A" },
    { 'c', SIM_CALL_CONFIGURE, 0, "c SETTINGS" },
    { 'm', SIM_CALL_FRACTION, 2, "m X" },
    { 's', SIM_CALL_PRINT, 1, "s" },
};

/* The settings after `c`, blanks at both ends taken off, as a string that stays in place. */
static const char *keep_text(parser_t *p, const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    while (end > at && is_blank(end[-1]))
        end--;
    char *kept = p->trace->text + p->text_len;
    size_t len = strnlen(at, (size_t)(end - at));
    memcpy(kept, at, len);
    kept[len] = '\0';
    p->text_len += len + 1;
    return kept;
}

static bool parse_call(parser_t *p, sim_call_t *call, const field_t *f)
{
    switch ((sim_call_kind_t)call->kind) {
    case SIM_CALL_ALLOC:
        return want_u64(p, "BYTES", f[2], &call->bytes) && want_stream(p, f[3], &call->stream) &&
               want_new_id(p, f[1], &call->block);
    case SIM_CALL_FREE:
        if (!want_alive_id(p, f[1], &call->block))
            return false;
        p->state[call->block] = ID_FREED;
        if (p->forgets && p->trace->n_blocks > MAX_FREED_KEPT)
            forget(p, call->block);
        return true;
    case SIM_CALL_RECORD_STREAM:
        return want_alive_id(p, f[1], &call->block) && want_stream(p, f[2], &call->stream);
    case SIM_CALL_STREAM_DONE:
        return want_stream(p, f[1], &call->stream);
    case SIM_CALL_FRACTION:
        return want_fraction(p, f[1], &call->fraction);
    default:
        return true;
    }
}

static void add_call(parser_t *p, const sim_call_t *call)
{
    sim_trace_t *t = p->trace;
    if (t->n_calls == p->calls_cap) {
        p->calls_cap = p->calls_cap == 0 ? 256 : p->calls_cap * 2;
        t->calls = base_xrealloc(t->calls, p->calls_cap, sizeof(*t->calls));
    }
    t->calls[t->n_calls++] = *call;
}

/* False: no call in it. */
static bool parse_line(parser_t *p, const char *at, const char *end, sim_call_t *call_p)
{
    field_t fields[MAX_FIELDS + 1] = { 0 };
    int n = split_fields(at, end, fields), k = 0;
    if (n == 0 || fields[0].at[0] == '#')
        return false;
    const int n_kinds = (int)(sizeof(kinds) / sizeof(kinds[0]));
    while (k < n_kinds && kinds[k].letter != fields[0].at[0])
        k++;
    if (k == n_kinds || fields[0].len != 1) {
        complain(p, "unknown call '%.*s'; known: a f R y Y e r A c m s",
                 (int)(fields[0].len < 40 ? fields[0].len : 40), fields[0].at);
        return false;
    }
    if (kinds[k].n_fields != 0 && n != kinds[k].n_fields) {
        complain(p, "%d words, not %d: %s", n, kinds[k].n_fields, kinds[k].usage);
        return false;
    }
    sim_call_t call = { .kind = kinds[k].kind, .line = p->line };
    if (call.kind == SIM_CALL_CONFIGURE)
        call.conf = keep_text(p, fields[0].at + 1, end);
    if (!parse_call(p, &call, fields))
        return false;
    *call_p = call;
    return true;
}

base_status_t sim_trace_parse(const char *name, const char *text, size_t len, sim_trace_t **trace_p,
                              base_diag_t *diag)
{
    parser_t p = { .name = name, .diag = diag, .map = { .mask = 63 } };
    p.trace = base_xcalloc(1, sizeof(*p.trace));
    p.trace->text = base_xcalloc(len + 1, 1);
    p.map.slot = base_xcalloc(p.map.mask + 1, sizeof(*p.map.slot));
    const char *at = text, *end = text + len;
    if (len > 0 && memchr(text, '\0', len) != NULL) {
        p.n_errors++;
        base_diag_add(diag, "%s: binary file, not a trace", name);
        at = end;
    }
    while (at < end) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        if (p.line == SIM_TRACE_MAX_LINES) {
            complain(&p, "more than %d lines", SIM_TRACE_MAX_LINES);
            break;
        }
        p.line++;
        sim_call_t call;
        if (parse_line(&p, at, eol != NULL ? eol : end, &call))
            add_call(&p, &call);
        at = eol != NULL ? eol + 1 : end;
    }
    p.trace->n_lines = p.line;
    if (p.trace->n_calls == 0 && p.n_errors == 0) {
        p.n_errors++;
        base_diag_add(diag, "%s: there is no allocator call in it", name);
    }
    free(p.state);
    free(p.map.slot);
    if (p.n_errors > 0) {
        sim_trace_destroy(p.trace);
        return BASE_ERR_PARSE;
    }
    *trace_p = p.trace;
    return BASE_OK;
}

static bool read_all(FILE *file, char **text_p, size_t *len_p)
{
    char *text = NULL;
    size_t len = 0, cap = 0, n;
    do {
        if (len == cap) {
            cap = cap == 0 ? 65536 : cap * 2;
            text = base_xrealloc(text, cap, 1);
        }
        n = fread(text + len, 1, cap - len, file);
        len += n;
    } while (n > 0);
    *text_p = text;
    *len_p = len;
    return ferror(file) == 0;
}

base_status_t sim_trace_read(const char *path, sim_trace_t **trace_p, base_diag_t *diag)
{
    bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (file == NULL) {
        base_diag_add(diag, "%s: %s", path, strerror(errno));
        return BASE_ERR_IO;
    }
    char *text;
    size_t len;
    base_status_t status = BASE_ERR_IO;
    if (read_all(file, &text, &len))
        status = sim_trace_parse(is_stdin ? "stdin" : path, text, len, trace_p, diag);
    else
        base_diag_add(diag, "%s: %s", path, strerror(errno));
    free(text);
    if (!is_stdin)
        fclose(file);
    return status;
}

void sim_trace_destroy(sim_trace_t *trace)
{
    if (trace == NULL)
        return;
    free(trace->calls);
    free(trace->ids);
    free(trace->streams);
    free(trace->text);
    free(trace);
}

/* ---- as it is played ---- */

struct sim_trace_reader {
    parser_t p;
    FILE *in;
    char *buffer; /* bytes at..end are not handed out yet */
    size_t at, end, cap;
    bool is_over; /* nothing follows what is in the buffer */
};

sim_trace_reader_t *sim_trace_reader_create(const char *name, FILE *in, const char *head,
                                            size_t n_head, base_diag_t *diag)
{
    sim_trace_reader_t *r = base_xcalloc(1, sizeof(*r));
    r->in = in;
    r->cap = CHUNK_BYTES;
    r->buffer = base_xcalloc(r->cap, 1);
    memcpy(r->buffer, head, n_head);
    r->end = n_head;
    r->p = (parser_t){ .name = name, .diag = diag, .map = { .mask = 63 }, .forgets = true };
    r->p.trace = base_xcalloc(1, sizeof(*r->p.trace));
    r->p.map.slot = base_xcalloc(r->p.map.mask + 1, sizeof(*r->p.map.slot));
    return r;
}

/* Fill what is free of the buffer; when nothing is, it grows. */
static void read_more(sim_trace_reader_t *r)
{
    memmove(r->buffer, r->buffer + r->at, r->end - r->at);
    r->end -= r->at;
    r->at = 0;
    if (r->end == r->cap) {
        r->cap *= 2;
        r->buffer = base_xrealloc(r->buffer, r->cap, 1);
    }
    size_t n = fread(r->buffer + r->end, 1, r->cap - r->end, r->in);
    r->end += n;
    r->is_over = n == 0;
    if (n == 0 && ferror(r->in)) {
        r->p.n_errors++;
        base_diag_add(r->p.diag, "%s: %s", r->p.name, strerror(errno));
    }
}

/* The next line, without its end. */
static bool next_line(sim_trace_reader_t *r, const char **line_p, const char **end_p)
{
    size_t looked = 0;
    for (;;) {
        const char *line = r->buffer + r->at;
        const char *eol = memchr(line + looked, '\n', r->end - r->at - looked);
        if (eol != NULL || (r->is_over && r->at < r->end)) {
            *line_p = line;
            *end_p = eol != NULL ? eol : r->buffer + r->end;
            r->at = (size_t)(*end_p - r->buffer) + (eol != NULL);
            return true;
        }
        looked = r->end - r->at;
        if (r->is_over)
            return false;
        if (looked >= MAX_LINE_BYTES) {
            r->p.line++;
            complain(&r->p, "a line longer than %d bytes", MAX_LINE_BYTES);
            return false;
        }
        read_more(r);
    }
}

/* What the parser cannot take; the rest is not read then. */
static bool is_readable(parser_t *p, const char *line, const char *end)
{
    if (memchr(line, '\0', (size_t)(end - line)) != NULL) {
        p->n_errors++;
        base_diag_add(p->diag, "%s: binary file, not a trace", p->name);
        return false;
    }
    if (p->line == UINT32_MAX)
        complain(p, "more than %" PRIu32 " lines", UINT32_MAX);
    return p->line < UINT32_MAX;
}

bool sim_trace_reader_next(sim_trace_reader_t *r, sim_call_t *call_p)
{
    parser_t *p = &r->p;
    const char *line, *end;
    while (!base_diag_is_full(p->diag) && next_line(r, &line, &end) && is_readable(p, line, end)) {
        p->line++;
        p->text_len = 0;
        p->trace->text = base_xrealloc(p->trace->text, (size_t)(end - line) + 1, 1);
        if (!parse_line(p, line, end, call_p) || p->n_errors > 0)
            continue;
        p->trace->n_calls++;
        p->trace->n_lines = p->line;
        return true;
    }
    r->is_over = true;
    r->at = r->end;
    return false;
}

const sim_trace_t *sim_trace_reader_trace(const sim_trace_reader_t *r)
{
    return r->p.trace;
}

uint64_t sim_trace_reader_n_allocations(const sim_trace_reader_t *r)
{
    return r->p.n_allocations;
}

bool sim_trace_reader_finish(sim_trace_reader_t *r)
{
    parser_t *p = &r->p;
    if (p->trace->n_calls == 0 && p->n_errors == 0) {
        p->n_errors++;
        base_diag_add(p->diag, "%s: there is no allocator call in it", p->name);
    }
    return p->n_errors == 0;
}

void sim_trace_reader_destroy(sim_trace_reader_t *r)
{
    sim_trace_destroy(r->p.trace);
    free(r->p.state);
    free(r->p.map.slot);
    free(r->p.spare);
    free(r->buffer);
    free(r);
}
