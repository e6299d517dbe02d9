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

enum { MAX_FIELDS = 4 };

typedef enum { ID_ALIVE, ID_FREED } id_state_t;

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
        *map_slot(p, p->trace->ids[i]) = i + 1;
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

static void parse_line(parser_t *p, const char *at, const char *end)
{
    field_t fields[MAX_FIELDS + 1] = { 0 };
    int n = split_fields(at, end, fields), k = 0;
    if (n == 0 || fields[0].at[0] == '#')
        return;
    const int n_kinds = (int)(sizeof(kinds) / sizeof(kinds[0]));
    while (k < n_kinds && kinds[k].letter != fields[0].at[0])
        k++;
    if (k == n_kinds || fields[0].len != 1) {
        complain(p, "unknown call '%.*s'; known: a f R y Y e r A c m s",
                 (int)(fields[0].len < 40 ? fields[0].len : 40), fields[0].at);
        return;
    }
    if (kinds[k].n_fields != 0 && n != kinds[k].n_fields) {
        complain(p, "%d words, not %d: %s", n, kinds[k].n_fields, kinds[k].usage);
        return;
    }
    sim_call_t call = { .kind = kinds[k].kind, .line = p->line };
    if (call.kind == SIM_CALL_CONFIGURE)
        call.conf = keep_text(p, fields[0].at + 1, end);
    if (parse_call(p, &call, fields))
        add_call(p, &call);
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
        parse_line(&p, at, eol != NULL ? eol : end);
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
