/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/replay_check.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/device_ops.h"
#include "sim/study/replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- FNV-1a, 64 bits ---- */

#define FNV_START UINT64_C(1469598103934665603)
#define FNV_PRIME UINT64_C(1099511628211)

static uint64_t hash_bytes(uint64_t h, const void *data, size_t len)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * FNV_PRIME;
    return h;
}

static uint64_t hash_u64(uint64_t h, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        h = (h ^ (value & 0xff)) * FNV_PRIME;
        value >>= 8;
    }
    return h;
}

/* ---- a device that numbers the ranges of addresses in the order in which they are made ---- */

typedef struct {
    uint64_t addr, bytes;
    bool is_live;
} range_t;

typedef struct {
    sim_device_t base;
    sim_device_t *inner;
    range_t *ranges;
    size_t n, cap;
} numbering_t;

static bool numbering_take(sim_device_t *device, uint64_t bytes, uint64_t *addr_p)
{
    numbering_t *d = (numbering_t *)device;
    if (!d->inner->ops->range_take(d->inner, bytes, addr_p))
        return false;
    if (d->n == d->cap) {
        d->cap = d->cap == 0 ? 64 : d->cap * 2;
        d->ranges = base_xrealloc(d->ranges, d->cap, sizeof(*d->ranges));
    }
    d->ranges[d->n++] = (range_t){ *addr_p, bytes, true };
    return true;
}

static void range_gone(numbering_t *d, uint64_t addr)
{
    for (size_t i = d->n; i-- > 0;)
        if (d->ranges[i].is_live && d->ranges[i].addr == addr) {
            d->ranges[i].is_live = false;
            return;
        }
}

static void numbering_give(sim_device_t *device, uint64_t addr, uint64_t bytes)
{
    numbering_t *d = (numbering_t *)device;
    range_gone(d, addr);
    d->inner->ops->range_give(d->inner, addr, bytes);
}

static bool numbering_map(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n)
{
    numbering_t *d = (numbering_t *)device;
    return d->inner->ops->map(d->inner, addr, page_bytes, n);
}

static void numbering_unmap(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n)
{
    numbering_t *d = (numbering_t *)device;
    d->inner->ops->unmap(d->inner, addr, page_bytes, n);
}

static void numbering_fill(sim_device_t *device, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    numbering_t *d = (numbering_t *)device;
    d->inner->ops->fill(d->inner, addr, bytes, stream);
}

static void numbering_destroy(sim_device_t *device)
{
    numbering_t *d = (numbering_t *)device;
    sim_device_destroy(d->inner);
    free(d->ranges);
    free(d);
}

static const sim_device_ops_t numbering_ops = {
    .name = "numbering",
    .destroy = numbering_destroy,
    .range_take = numbering_take,
    .range_give = numbering_give,
    .reserve = numbering_take,
    .unreserve = numbering_give,
    .map = numbering_map,
    .unmap = numbering_unmap,
    .fill = numbering_fill,
};

static numbering_t *numbering_create(const sim_device_config_t *config)
{
    numbering_t *d = base_xcalloc(1, sizeof(*d));
    d->inner = sim_device_create_synthetic(config);
    d->base.ops = &numbering_ops;
    d->base.config = d->inner->config;
    return d;
}

/* ---- one run ---- */

typedef struct {
    sim_replay_t replay;
    numbering_t *device;
    uint64_t addr_base; /* subtracted in hashes */
    uint64_t ah, sh;
    bool hash_order;      /* fields that depend on PyTorch's order of streams are left out */
    bool shows_addrs;     /* the expected text has the address of every allocation */
    const char *expected; /* what is left of the run's text */
    char *difference;     /* NULL = none so far */
} run_t;

/* Field numbers (from 0, the word `s` or `p` is field 0, then for `s` the line, for `p` the pool)
 * that depend on PyTorch's order of streams. */
static bool is_exempt(const char *line, int field)
{
    if (line[0] == 's')
        return field == 1 + 8 || field == 1 + 18 || field == 1 + 33;
    if (strncmp(line, "p accum", 7) == 0)
        return field == 1 + 7 || field == 1 + 8 || field == 1 + 17 || field == 1 + 18;
    return line[0] == 'p' && (field == 1 + 8 || field == 1 + 18);
}

/* -1 = none. */
static int first_different_field(const char *want, const char *got, bool hash_order)
{
    const char *line = want;
    for (int field = 0;; field++) {
        size_t n = strcspn(want, " "), m = strcspn(got, " ");
        bool same = n == m && memcmp(want, got, n) == 0;
        if (!same && !(hash_order && is_exempt(line, field)))
            return field;
        if (want[n] == '\0' || got[m] == '\0')
            return want[n] == got[m] ? -1 : field + 1;
        want += n + 1;
        got += m + 1;
    }
}

/* Compare the next line with what is expected. */
static void check_line(run_t *run, const char *got)
{
    if (run->difference != NULL)
        return;
    size_t n = strcspn(run->expected, "\n");
    char want[2048];
    snprintf(want, sizeof(want), "%.*s", (int)base_u64_min(n, sizeof(want) - 1), run->expected);
    run->expected += n + (run->expected[n] == '\n');
    int field = first_different_field(want, got, run->hash_order);
    if (field >= 0)
        run->difference = base_xasprintf("field %d: expected \"%s\", got \"%s\"", field, want, got);
}

__attribute__((format(printf, 2, 3))) static void emit(run_t *run, const char *fmt, ...)
{
    char line[2048];
    va_list ap;
    if (run->difference != NULL)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    check_line(run, line);
}

/* The nine statistics in the order of the expected text. */
static void list_stats(const sim_alloc_stats_t *s, const sim_stat_t *out[static 9])
{
    out[0] = s->allocated_bytes;
    out[1] = s->reserved_bytes;
    out[2] = s->active_bytes;
    out[3] = s->inactive_split_bytes;
    out[4] = s->requested_bytes;
    out[5] = s->allocation;
    out[6] = s->segment;
    out[7] = s->active;
    out[8] = s->inactive_split;
}

static void hash_stats(run_t *run)
{
    const sim_alloc_stats_t *s = sim_alloc_stats(run->replay.alloc);
    const sim_stat_t *stats[9];
    list_stats(s, stats);
    uint64_t h = run->sh;
    for (int i = 0; i < 9; i++) {
        h = hash_u64(h, stats[i][SIM_POOL_ALL].current);
        h = hash_u64(h, stats[i][SIM_POOL_ALL].peak);
    }
    h = hash_u64(h, s->num_alloc_retries);
    h = hash_u64(h, s->num_ooms);
    h = hash_u64(h, s->num_device_alloc);
    run->sh = hash_u64(h, s->num_device_free);
}

typedef struct {
    const run_t *run;
    uint64_t hash, segment_addr, n_segments, n_blocks, largest_inactive;
} layout_t;

static void add_block(void *arg, const sim_block_info_t *b)
{
    layout_t *l = arg;
    char text[256];
    if (l->n_segments == 0 || b->segment_addr != l->segment_addr) {
        l->segment_addr = b->segment_addr;
        l->n_segments++;
        int n = snprintf(text, sizeof(text), "S %" PRIu64 " %" PRIu64 " %d %d %" PRIu64 "\n",
                         b->segment_addr - l->run->addr_base, b->segment_bytes, b->is_large,
                         b->is_expandable, b->stream / SIM_TRACE_HANDLE_STEP);
        l->hash = hash_bytes(l->hash, text, (size_t)n);
    }
    l->n_blocks++;
    if (!b->is_active)
        l->largest_inactive = base_u64_max(l->largest_inactive, b->bytes);
    int n = snprintf(text, sizeof(text), "B %" PRIu64 " %" PRIu64 " %d %d\n", b->bytes,
                     b->is_active ? b->requested_bytes : 0, b->is_allocated, b->is_active);
    l->hash = hash_bytes(l->hash, text, (size_t)n);
}

static size_t put_u64(char *text, size_t at, size_t size, uint64_t value)
{
    return at + (size_t)snprintf(text + at, size - at, " %" PRIu64, value);
}

static void emit_statistics(run_t *run, uint32_t line)
{
    const sim_alloc_stats_t *s = sim_alloc_stats(run->replay.alloc);
    const sim_stat_t *stats[9];
    char text[1024];
    size_t at = 0;
    list_stats(s, stats);
    for (int i = 0; i < 9; i++) {
        at = put_u64(text, at, sizeof(text), stats[i][SIM_POOL_ALL].current);
        at = put_u64(text, at, sizeof(text), stats[i][SIM_POOL_ALL].peak);
    }
    const uint64_t counts[] = { s->num_device_alloc, s->num_device_free, s->num_alloc_retries,
                                s->num_ooms, s->num_sync_all_streams };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        at = put_u64(text, at, sizeof(text), counts[i]);
    layout_t layout = { .run = run, .hash = FNV_START };
    sim_alloc_foreach(run->replay.alloc, add_block, &layout);
    emit(run,
         "s %" PRIu32 "%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu64 " %" PRIu64
         " %" PRIu64 " %" PRIu64 " %016" PRIx64 " %016" PRIx64 " %016" PRIx64,
         line, text, (int64_t)s->oversize_allocations.current,
         (int64_t)s->oversize_allocations.peak, (int64_t)s->oversize_segments.current,
         (int64_t)s->oversize_segments.peak, sim_device_used_bytes(run->replay.device),
         layout.n_segments, layout.n_blocks, layout.largest_inactive, run->ah, run->sh,
         layout.hash);
}

static void emit_end(run_t *run)
{
    static const char *const names[] = { [SIM_POOL_SMALL] = "small", [SIM_POOL_LARGE] = "large" };
    const sim_alloc_stats_t *s = sim_alloc_stats(run->replay.alloc);
    const sim_stat_t *stats[9];
    char text[1024];
    list_stats(s, stats);
    for (int pool = SIM_POOL_SMALL; pool <= SIM_POOL_LARGE; pool++) {
        size_t at = 0;
        for (int i = 0; i < 9; i++) {
            at = put_u64(text, at, sizeof(text), stats[i][pool].current);
            at = put_u64(text, at, sizeof(text), stats[i][pool].peak);
        }
        emit(run, "p %s%s", names[pool], text);
    }
    size_t at = 0;
    for (int i = 0; i < 9; i++) {
        at = put_u64(text, at, sizeof(text), stats[i][SIM_POOL_ALL].allocated);
        at = put_u64(text, at, sizeof(text), stats[i][SIM_POOL_ALL].freed);
    }
    emit(run, "p accum%s", text);
    const sim_device_calls_t *c = sim_device_calls(run->replay.device);
    emit(run, "d %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, c->n_malloc,
         c->n_free, c->n_page_create, c->n_page_release, c->n_failed, c->peak_used_bytes);
}

static void emit_address(run_t *run, const sim_call_t *call)
{
    uint64_t id = run->replay.trace->ids[call->block];
    sim_block_t block = run->replay.blocks[call->block];
    if (block == SIM_BLOCK_NONE) {
        emit(run, "a %" PRIu32 " %" PRIu64 " null", call->line, id);
        return;
    }
    uint64_t addr = sim_alloc_block_addr(run->replay.alloc, block);
    for (size_t i = run->device->n; i-- > 0;) {
        const range_t *r = &run->device->ranges[i];
        if (r->is_live && addr >= r->addr && addr - r->addr < r->bytes) {
            emit(run, "a %" PRIu32 " %" PRIu64 " %zu %" PRIu64, call->line, id, i, addr - r->addr);
            return;
        }
    }
}

static void note_allocation(run_t *run, const sim_call_t *call)
{
    sim_block_t block = run->replay.blocks[call->block];
    if (block != SIM_BLOCK_NONE)
        run->ah =
            hash_u64(run->ah, sim_alloc_block_addr(run->replay.alloc, block) - run->addr_base);
    if (run->shows_addrs)
        emit_address(run, call);
}

static void step(run_t *run, const sim_call_t *call)
{
    base_err_t err;
    switch (sim_replay_step(&run->replay, call, &err)) {
    case BASE_OK:
        if (call->kind == SIM_CALL_ALLOC)
            note_allocation(run, call);
        break;
    case BASE_ERR_DEVICE_OOM:
        emit(run, "o %" PRIu32 " %" PRIu64 " %" PRIu64, call->line,
             run->replay.trace->ids[call->block], call->bytes);
        break;
    default:
        emit(run, "conferror %" PRIu32, call->line);
        break;
    }
}

/* The first difference, NULL if there is none; the caller frees it. */
static char *play(const sim_trace_t *trace, const char *conf, const sim_device_config_t *config,
                  bool hash_order, const char *expected)
{
    base_err_t err;
    run_t run = {
        .hash_order = hash_order, .expected = expected, .ah = FNV_START, .sh = FNV_START
    };
    run.device = numbering_create(config);
    run.addr_base = config->addresses == SIM_ADDRESSES_DOWN ? 0 : SIM_ADDRESSES_FIRST;
    run.shows_addrs = strncmp(expected, "a ", 2) == 0 || strstr(expected, "\na ") != NULL;
    if (sim_replay_open(&run.replay, trace, &run.device->base, conf, &err) != BASE_OK) {
        sim_device_destroy(&run.device->base);
        return base_xasprintf("settings \"%s\": %s", conf, err.text);
    }
    for (size_t i = 0; i < trace->n_calls && run.difference == NULL; i++) {
        const sim_call_t *call = &trace->calls[i];
        if (call->kind == SIM_CALL_PRINT)
            emit_statistics(&run, call->line);
        step(&run, call);
        hash_stats(&run);
    }
    emit_statistics(&run, trace->n_lines + 1);
    emit_end(&run);
    if (run.difference == NULL && run.expected[0] != '\0')
        run.difference = base_xasprintf("more is expected: \"%.*s\"",
                                        (int)strcspn(run.expected, "\n"), run.expected);
    sim_replay_close(&run.replay);
    sim_device_destroy(&run.device->base);
    return run.difference;
}

/* ---- the index ---- */

enum {
    COL_TRACE,
    COL_CONFIG,
    COL_TOTAL,
    COL_USABLE,
    COL_POLICY,
    COL_EXPECTED,
    COL_RUN,
    COL_ORACLE,
    COL_N_OOM,
    COL_N_RETRY,
    COL_LAST_PEAK,
    COL_ORDER,
    N_COLS
};

/* Runs of one trace follow each other, so the last trace and expected text are kept. */
typedef struct {
    const char *index_path;
    size_t line;
    char *dir; /* of the index's folder */
    char *trace_path, *expected_path;
    sim_trace_t *trace;
    char *expected;
    FILE *out;
    base_diag_t *diag;
} index_t;

static base_status_t complain(index_t *x, base_status_t status, const char *what, const char *value)
{
    base_diag_add(x->diag, "%s:%zu: %s '%s'", x->index_path, x->line, what, value);
    return status;
}

static char *read_text(index_t *x, const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    size_t len = 0, cap = 0, n;
    if (file == NULL) {
        base_diag_add(x->diag, "%s: %s", path, strerror(errno));
        return NULL;
    }
    do {
        if (len + 1 >= cap) {
            cap = cap == 0 ? 65536 : cap * 2;
            text = base_xrealloc(text, cap, 1);
        }
        n = fread(text + len, 1, cap - 1 - len, file);
        len += n;
    } while (n > 0);
    text[len] = '\0';
    if (ferror(file)) {
        base_diag_add(x->diag, "%s: %s", path, strerror(errno));
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

static base_status_t load_trace(index_t *x, const char *name)
{
    char *path = base_xasprintf("%s/%s", x->dir, name);
    base_status_t status = BASE_OK;
    if (x->trace_path == NULL || strcmp(x->trace_path, path) != 0) {
        sim_trace_destroy(x->trace);
        x->trace = NULL;
        free(x->trace_path);
        x->trace_path = base_xstrdup(path);
        status = sim_trace_read(path, &x->trace, x->diag);
    }
    free(path);
    return status;
}

static base_status_t load_expected(index_t *x, const char *name)
{
    char *path = base_xasprintf("%s/%s", x->dir, name);
    if (x->expected_path == NULL || strcmp(x->expected_path, path) != 0) {
        free(x->expected);
        free(x->expected_path);
        x->expected_path = base_xstrdup(path);
        x->expected = read_text(x, path);
    }
    free(path);
    return x->expected != NULL ? BASE_OK : BASE_ERR_IO;
}

/* The lines of `run N`, as a new string; NULL if there is none. */
static char *find_run(const char *expected, const char *number)
{
    size_t len = strlen(number);
    for (const char *at = expected; at != NULL && *at != '\0';) {
        const char *eol = strchr(at, '\n');
        if (strncmp(at, "run ", 4) == 0 && strncmp(at + 4, number, len) == 0 &&
            (at[4 + len] == '\n' || at[4 + len] == '\0')) {
            char *text = base_xstrdup(eol != NULL ? eol + 1 : "");
            char *end = strncmp(text, "run ", 4) == 0 ? text : strstr(text, "\nrun ");
            if (end != NULL)
                end[end != text] = '\0';
            return text;
        }
        at = eol != NULL ? eol + 1 : NULL;
    }
    return NULL;
}

static base_status_t check_run(index_t *x, char *cols[static N_COLS], sim_replay_check_t *result)
{
    sim_device_config_t config;
    if (!base_u64_parse(cols[COL_TOTAL], &config.total_bytes))
        return complain(x, BASE_ERR_PARSE, "total is not a number:", cols[COL_TOTAL]);
    if (!base_u64_parse(cols[COL_USABLE], &config.usable_bytes))
        return complain(x, BASE_ERR_PARSE, "usable is not a number:", cols[COL_USABLE]);
    if (!sim_addresses_parse(cols[COL_POLICY], &config.addresses))
        return complain(x, BASE_ERR_PARSE, "policy is not bump, reuse or down:", cols[COL_POLICY]);
    base_status_t status = load_trace(x, cols[COL_TRACE]);
    if (status == BASE_OK)
        status = load_expected(x, cols[COL_EXPECTED]);
    if (status != BASE_OK)
        return status;
    char *expected = find_run(x->expected, cols[COL_RUN]);
    if (expected == NULL)
        return complain(x, BASE_ERR_PARSE, "the expected file has no run", cols[COL_RUN]);
    const char *conf = strcmp(cols[COL_CONFIG], "-") == 0 ? "" : cols[COL_CONFIG];
    char *difference = play(x->trace, conf, &config, strcmp(cols[COL_ORDER], "y") == 0, expected);
    result->n_runs++;
    result->n_agree += difference == NULL;
    if (difference != NULL)
        fprintf(x->out, "%s run %s: %s\n", cols[COL_TRACE], cols[COL_RUN], difference);
    free(difference);
    free(expected);
    return BASE_OK;
}

static base_status_t check_index_line(index_t *x, char *line, sim_replay_check_t *result)
{
    char *cols[N_COLS], *at = line;
    int n = 0;
    for (char *col; n < N_COLS && (col = strsep(&at, "\t")) != NULL; n++)
        cols[n] = col;
    if (n < N_COLS || at != NULL)
        return complain(x, BASE_ERR_PARSE, "not 12 columns between tabs:", line);
    if (x->line == 1 && strcmp(cols[COL_TRACE], "trace") == 0)
        return BASE_OK;
    return check_run(x, cols, result);
}

/* The folder above the one that `path` is in. */
static char *folder_above(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? base_xstrdup("..")
                         : base_xasprintf("%.*s/..", (int)(slash - path), path);
}

base_status_t sim_replay_check(const char *index_path, FILE *out, sim_replay_check_t *result,
                               base_diag_t *diag)
{
    index_t x = { .index_path = index_path, .out = out, .diag = diag };
    char *index = read_text(&x, index_path);
    if (index == NULL)
        return BASE_ERR_IO;
    x.dir = folder_above(index_path);
    *result = (sim_replay_check_t){ 0 };
    base_status_t status = BASE_OK;
    char *at = index;
    for (char *line; status == BASE_OK && (line = strsep(&at, "\n")) != NULL;) {
        x.line++;
        if (line[0] != '\0')
            status = check_index_line(&x, line, result);
    }
    sim_trace_destroy(x.trace);
    free(x.trace_path);
    free(x.expected_path);
    free(x.expected);
    free(x.dir);
    free(index);
    return status;
}
