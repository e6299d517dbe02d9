/* SPDX-License-Identifier: Apache-2.0
 * A comparison for people. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/report/rank_list.h"
#include "sim/study/diff.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { N_GROUPS = 10, LIST_TEXT = 40, SIGNED_TEXT = BASE_BYTES_TEXT + 1 };

static json_int_t at(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* "+1.5 GiB", "-20 MiB"; "=" when nothing changes. */
static const char *signed_bytes(json_int_t bytes, char buf[static SIGNED_TEXT])
{
    char text[BASE_BYTES_TEXT];
    if (bytes == 0)
        return "=";
    snprintf(buf, SIGNED_TEXT, "%c%s", bytes < 0 ? '-' : '+',
             base_bytes_format(bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes, text));
    return buf;
}

static void print_triple(FILE *out, const char *name, const json_t *triple)
{
    char a[BASE_BYTES_TEXT], b[BASE_BYTES_TEXT], d[SIGNED_TEXT];
    fprintf(
        out, "  %-22s %11s -> %11s  %12s\n", name, base_bytes_format((uint64_t)at(triple, "a"), a),
        base_bytes_format((uint64_t)at(triple, "b"), b), signed_bytes(at(triple, "difference"), d));
}

/* ---- keys ---- */

static char *value_text(const json_t *value)
{
    if (json_is_null(value))
        return base_xstrdup("none");
    if (json_is_string(value))
        return base_xstrdup(json_string_value(value));
    return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(12));
}

static void print_keys(const json_t *keys, FILE *out)
{
    size_t n = json_array_size(keys);
    fprintf(out, n == 0 ? "No key differs.\n" : "Keys that differ:\n");
    for (size_t i = 0; i < n; i++) {
        const json_t *k = json_array_get(keys, i);
        char *a = value_text(json_object_get(k, "a")), *b = value_text(json_object_get(k, "b"));
        fprintf(out, "  %s.%s: %s -> %s\n", json_string_value(json_object_get(k, "section")),
                json_string_value(json_object_get(k, "key")), a, b);
        free(a);
        free(b);
    }
    fputc('\n', out);
}

/* ---- one rank ---- */

typedef struct {
    const char *name;
    const json_t *triple;
} part_t;

static json_int_t change_of(const part_t *part)
{
    json_int_t d = at(part->triple, "difference");
    return d < 0 ? -d : d;
}

static int by_change(const void *a, const void *b)
{
    json_int_t x = change_of(a), y = change_of(b);
    if (x != y)
        return x > y ? -1 : 1;
    return strcmp(((const part_t *)a)->name, ((const part_t *)b)->name);
}

/* The parts that change, biggest first. */
static void print_parts(FILE *out, const char *title, const json_t *parts)
{
    size_t n = 0;
    part_t *list = base_xcalloc(json_object_size(parts), sizeof(*list));
    const char *name;
    json_t *triple;
    json_object_foreach((json_t *)parts, name, triple)
    {
        if (at(triple, "difference") != 0)
            list[n++] = (part_t){ name, triple };
    }
    if (n > 0) {
        fprintf(out, "%s:\n", title);
        qsort(list, n, sizeof(*list), by_change);
    }
    for (size_t i = 0; i < n; i++)
        print_triple(out, list[i].name, list[i].triple);
    free(list);
}

static void print_place(FILE *out, const char *label, const json_t *rank, const char *which)
{
    const json_t *c = json_object_get(json_object_get(rank, "coordinates"), which);
    const json_t *m = json_object_get(json_object_get(rank, "moment"), which);
    const json_t *layer = json_object_get(m, "layer");
    const char *phase = json_string_value(json_object_get(m, "phase"));
    const char *module = json_string_value(json_object_get(m, "module"));
    fprintf(out,
            "%s rank %" JSON_INTEGER_FORMAT " (tp %" JSON_INTEGER_FORMAT
            ", dp %" JSON_INTEGER_FORMAT ", pp %" JSON_INTEGER_FORMAT
            "), peak in iteration %" JSON_INTEGER_FORMAT ", %s",
            label, at(json_object_get(rank, "rank"), which), at(c, "tp"), at(c, "dp"), at(c, "pp"),
            at(m, "iteration"), phase != NULL ? phase : "?");
    if (json_is_integer(json_object_get(m, "microbatch")))
        fprintf(out, " of micro-batch %" JSON_INTEGER_FORMAT, at(m, "microbatch"));
    if (json_is_integer(layer))
        fprintf(out, ", layer %" JSON_INTEGER_FORMAT, json_integer_value(layer));
    fprintf(out, ", %s\n", module != NULL ? module : "?");
}

static void print_rank(const json_t *rank, FILE *out)
{
    print_place(out, "A:", rank, "a");
    print_place(out, "B:", rank, "b");
    print_triple(out, "allocated, peak", json_object_get(rank, "allocated_bytes"));
    print_triple(out, "cached", json_object_get(rank, "cached_bytes"));
    print_triple(out, "reserved, peak", json_object_get(rank, "reserved_bytes"));
    print_triple(out, "outside PyTorch", json_object_get(rank, "outside_bytes"));
    print_triple(out, "device used", json_object_get(rank, "device_used_bytes"));
    print_parts(out, "what is allocated at the peak, by category",
                json_object_get(rank, "categories"));
    print_parts(out, "the same by module", json_object_get(rank, "modules"));
    fputc('\n', out);
}

/* ---- all ranks ---- */

/* By how much a rank changes. */
typedef struct {
    json_int_t allocated, reserved;
    uint32_t rank;
} rank_change_t;

/* Biggest change of what is reserved first; ranks that change by the same are neighbours. */
static int by_rank_change(const void *a, const void *b)
{
    const rank_change_t *x = a, *y = b;
    json_int_t size_x = x->reserved < 0 ? -x->reserved : x->reserved;
    json_int_t size_y = y->reserved < 0 ? -y->reserved : y->reserved;
    if (size_x != size_y)
        return size_x > size_y ? -1 : 1;
    if (x->reserved != y->reserved)
        return x->reserved > y->reserved ? -1 : 1;
    if (x->allocated != y->allocated)
        return x->allocated > y->allocated ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static bool same_change(const rank_change_t *a, const rank_change_t *b)
{
    return a->allocated == b->allocated && a->reserved == b->reserved;
}

static void print_group(FILE *out, const rank_change_t *group, size_t n, uint32_t n_ranks)
{
    char list[LIST_TEXT], allocated[SIGNED_TEXT], reserved[SIGNED_TEXT];
    bool *is_in = base_xcalloc(n_ranks, sizeof(*is_in));
    for (size_t i = 0; i < n; i++)
        is_in[group[i].rank] = true;
    fprintf(out, "  %-*s %13s %13s\n", LIST_TEXT,
            sim_rank_list_format(is_in, n_ranks, list, sizeof(list)),
            signed_bytes(group->allocated, allocated), signed_bytes(group->reserved, reserved));
    free(is_in);
}

static void print_ranks(const json_t *ranks, FILE *out)
{
    if (!json_is_array(ranks)) {
        fputs("The jobs have different ranks, so only these two are compared.\n", out);
        return;
    }
    size_t n = json_array_size(ranks), n_groups = 0;
    uint32_t n_ranks = 0;
    rank_change_t *changes = base_xcalloc(n, sizeof(*changes));
    for (size_t i = 0; i < n; i++) {
        const json_t *r = json_array_get(ranks, i);
        changes[i] =
            (rank_change_t){ .allocated = at(json_object_get(r, "allocated_bytes"), "difference"),
                             .reserved = at(json_object_get(r, "reserved_bytes"), "difference"),
                             .rank = (uint32_t)at(json_object_get(r, "rank"), "a") };
        n_ranks = changes[i].rank + 1; /* ascending */
    }
    if (n > 0)
        qsort(changes, n, sizeof(*changes), by_rank_change);
    fprintf(out, "Change of every rank, biggest first:\n  %-*s %13s %13s\n", LIST_TEXT, "ranks",
            "allocated", "reserved");
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && same_change(&changes[end], &changes[first]);)
            end++;
        if (n_groups++ < N_GROUPS)
            print_group(out, changes + first, end - first, n_ranks);
    }
    if (n_groups > N_GROUPS)
        fprintf(out, "  and %zu more lines\n", n_groups - N_GROUPS);
    free(changes);
}

static void print_side(FILE *out, const char *label, const json_t *side)
{
    const char *name = json_string_value(json_object_get(side, "name"));
    const json_t *verdict = json_object_get(side, "verdict");
    bool fits = json_is_true(json_object_get(verdict, "fits"));
    fprintf(out, "%s: %s, %s\n", label, name != NULL ? name : "?",
            fits ? "fits" : "does NOT fit; its figures are what it would need");
}

void sim_diff_text(const json_t *diff, FILE *out)
{
    const json_t *worst = json_object_get(diff, "worst");
    print_side(out, "A", json_object_get(diff, "a"));
    print_side(out, "B", json_object_get(diff, "b"));
    fputc('\n', out);
    print_keys(json_object_get(diff, "keys"), out);
    fputs(worst != NULL ? "The worst rank of each\n" : "", out);
    print_rank(worst != NULL ? worst : json_object_get(diff, "rank"), out);
    print_ranks(json_object_get(diff, "ranks"), out);
}
