/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/diagnose_note.h"

#include "sim/base/units.h"
#include "sim/study/diagnose_scan.h"

#include <ctype.h>
#include <string.h>

enum { MAX_TOKENS = 128, MAX_NOTE = 1000 };

typedef struct {
    const char *text; /* word: its letters; number: NULL; separator: "" */
    size_t n;
    diag_number_t number;
    uint64_t unit; /* 0: none written */
    const char *unit_text;
} token_t;

typedef struct {
    token_t t[MAX_TOKENS];
    size_t n;
} tokens_t;

static bool is_word_char(char c)
{
    return isalpha((unsigned char)c) || c == '-' || c == '_';
}

static void split(const char *line, tokens_t *out)
{
    out->n = 0;
    for (const char *s = line; *s != '\0' && out->n < MAX_TOKENS;) {
        token_t *t = &out->t[out->n];
        *t = (token_t){ .text = "" };
        const char *end;
        if (*s == ' ') {
            s++;
        } else if ((end = diag_scan_number(s, &t->number)) != NULL) {
            const char *after = diag_scan_unit(end, DIAG_LABELS_1000, &t->unit);
            t->text = NULL;
            if (after != NULL) {
                t->unit_text = end + strspn(end, " ");
                end = after;
            }
            s = end;
            if (*s != '%' && !is_word_char(*s)) /* shares and names such as "7B" are no bytes */
                out->n++;
        } else if (is_word_char(*s)) {
            t->text = s;
            while (is_word_char(*s))
                s++;
            t->n = (size_t)(s - t->text);
            out->n++;
            while (isdigit((unsigned char)*s)) /* "H100", "step1": a name */
                s++;
        } else {
            s++;
            out->n++;
        }
    }
}

static bool is(const tokens_t *t, size_t i, const char *word)
{
    return i < t->n && t->t[i].text != NULL && t->t[i].n == strlen(word) &&
           strncasecmp(t->t[i].text, word, t->t[i].n) == 0;
}

static bool is_any(const tokens_t *t, size_t i, const char *const *words)
{
    for (; *words != NULL; words++)
        if (is(t, i, *words))
            return true;
    return false;
}

/* What the words after number i say it is; DIAG_N_FIGURES: nothing. */
static diag_figure_t figure_after(const tokens_t *t, size_t i)
{
    static const char *const cached[] = { "reserved-unallocated", "unallocated", "inactive", "gap",
                                          NULL };
    if (is_any(t, i + 1, cached) || (is(t, i + 1, "reserved") && is(t, i + 2, "but")))
        return DIAG_CACHED;
    if (is(t, i + 1, "reserved"))
        return DIAG_RESERVED;
    if (is(t, i + 1, "allocated") || (is(t, i + 1, "already") && is(t, i + 2, "allocated")))
        return DIAG_ALLOCATED;
    if (is(t, i + 1, "free"))
        return DIAG_FREE;
    if (is(t, i + 1, "total") || is(t, i + 1, "capacity"))
        return DIAG_TOTAL;
    return DIAG_N_FIGURES;
}

static diag_figure_t figure_before(const tokens_t *t, size_t i)
{
    static const char *const requests[] = { "tried",    "request", "requested",
                                            "allocate", "calloc",  NULL };
    static const char *const fillers[] = { "of", "about", "by", "is", "was", "at", "to", NULL };
    bool has_of = i > 0 && is(t, i - 1, "of");
    if (has_of && i > 1 && is(t, i - 2, "free"))
        return DIAG_TOTAL;
    size_t k = i;
    while (k > 0 && is_any(t, k - 1, fillers))
        k--;
    if (k == 0)
        return DIAG_N_FIGURES;
    bool is_max = k > 1 && (is(t, k - 2, "max") || is(t, k - 2, "peak"));
    if (is_any(t, k - 1, requests))
        return DIAG_REQUEST;
    if (is(t, k - 1, "short"))
        return DIAG_SHORTFALL;
    if (is(t, k - 1, "reserved"))
        return is_max ? DIAG_MAX_RESERVED : DIAG_RESERVED;
    if (is(t, k - 1, "allocated"))
        return is_max ? DIAG_MAX_ALLOCATED : DIAG_ALLOCATED;
    if (is(t, k - 1, "max"))
        return DIAG_MAX_ALLOCATED;
    return DIAG_N_FIGURES;
}

/* The largest unit on the line, which numbers without one are taken to be in: people drop it when
 * they repeat it ("74.77 GiB allocated, 1.07 free"). NULL: no number has one. */
static const token_t *largest_unit(const tokens_t *t)
{
    const token_t *largest = NULL;
    for (size_t i = 0; i < t->n; i++)
        if (t->t[i].text == NULL && t->t[i].unit != 0 &&
            (largest == NULL || t->t[i].unit > largest->unit))
            largest = &t->t[i];
    return largest;
}

/* Bytes of a number without a unit. What a device holds is never a few MiB: a fraction below 1000
 * is GiB then, and so it is where the line has no unit at all. */
static uint64_t guess_bytes(diag_record_t *note, diag_number_t number, const token_t *unit)
{
    bool is_fraction = number.n_decimals > 0 && diag_scan_bytes(number, 1) < 1000;
    if (is_fraction && (unit == NULL || unit->unit < 1000 * 1000 * 1000)) {
        note->unit = BASE_GIB;
        note->label = "a number without a unit";
        return diag_scan_bytes(number, BASE_GIB);
    }
    return unit != NULL ? diag_scan_bytes(number, unit->unit) : DIAG_UNKNOWN;
}

static void note_unit(diag_record_t *note, const token_t *unit)
{
    static const char *const labels[] = { "kB", "KB", "MB", "GB", "TB", NULL };
    for (const char *const *l = labels; *l != NULL && note->unit == 0; l++)
        if (strncmp(unit->unit_text, *l, 2) == 0) {
            note->unit = unit->unit;
            note->label = *l;
        }
}

/* "reserved 17,482 MB": a whole number of 2 MiB pages in MiB, and in MB not. */
static void prefer_mib(diag_record_t *note)
{
    uint64_t *f = note->figures, page = 2 * BASE_MIB;
    if (note->unit != 1000000 || f[DIAG_RESERVED] == DIAG_UNKNOWN ||
        f[DIAG_RESERVED] % 1000000 != 0 || f[DIAG_RESERVED] / 1000000 % 2 != 0 ||
        f[DIAG_RESERVED] % page == 0)
        return;
    for (size_t i = 0; i < DIAG_N_FIGURES; i++)
        if (f[i] != DIAG_UNKNOWN && f[i] % 1000000 == 0)
            f[i] = f[i] / 1000000 * BASE_MIB;
    note->unit = BASE_MIB;
}

static bool is_failure(const tokens_t *t)
{
    static const char *const words[] = {
        "OOM", "tried", "failure", "failed", "short", "OOMs", NULL
    };
    for (size_t i = 0; i < t->n; i++)
        if (is_any(t, i, words))
            return true;
    return false;
}

bool diag_note_read(const char *line, diag_record_t *note)
{
    static const char *const ordinals[] = { "rank",  "step",  "iteration", "iterations", "after",
                                            "ratio", "stage", "GPU",       "epoch",      NULL };
    if (strnlen(line, MAX_NOTE) == MAX_NOTE ||
        (strstr(line, "llocated") == NULL && strstr(line, "eserved") == NULL &&
         strstr(line, "free") == NULL && strstr(line, "calloc") == NULL))
        return false;
    tokens_t t;
    split(line, &t);
    *note = (diag_record_t){ .kind = DIAG_KIND_NOTE };
    for (size_t i = 0; i < DIAG_N_FIGURES; i++)
        note->figures[i] = DIAG_UNKNOWN;
    size_t n_found = 0;
    const token_t *unit = largest_unit(&t);
    for (size_t i = 0; i < t.n; i++) {
        if (t.t[i].text != NULL || (i > 0 && is_any(&t, i - 1, ordinals)))
            continue;
        diag_figure_t figure = figure_after(&t, i);
        if (figure == DIAG_N_FIGURES)
            figure = figure_before(&t, i);
        if (figure == DIAG_N_FIGURES || note->figures[figure] != DIAG_UNKNOWN)
            continue;
        if (t.t[i].unit != 0) {
            note->figures[figure] = diag_scan_bytes(t.t[i].number, t.t[i].unit);
            note_unit(note, &t.t[i]);
        } else {
            note->figures[figure] = guess_bytes(note, t.t[i].number, unit);
        }
        n_found += note->figures[figure] != DIAG_UNKNOWN;
    }
    if (unit != NULL)
        note_unit(note, unit);
    prefer_mib(note);
    note->is_failure = is_failure(&t);
    for (size_t i = 0; i < t.n; i++)
        if (note->is_failure && is(&t, i, "calloc")) /* only NCCL says it so */
            note->kind = DIAG_KIND_NCCL;
    return n_found >= 2 || (note->is_failure && note->figures[DIAG_REQUEST] != DIAG_UNKNOWN);
}
