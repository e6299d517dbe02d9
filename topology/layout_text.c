/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/layout_text.h"

#include "sim/base/xmem.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Append chars[0..n) `times` times; false when that would be too long. */
static bool append(topo_layout_text_t *text, const topo_layout_char_t *chars, size_t n,
                   size_t times)
{
    if (n > 0 && times > (TOPO_LAYOUT_MAX_CHARS - text->n) / n)
        return false;
    for (size_t i = 0; i < times; i++) {
        memcpy(text->chars + text->n, chars, n * sizeof(*chars));
        text->n += n;
    }
    return true;
}

/* Read "*digits" at chars[at]; returns how many characters that is, 0 when it is not there. Counts
 * beyond the longest expansion all read as one more than it. */
static size_t read_count(const topo_layout_text_t *text, size_t at, size_t *count_p)
{
    size_t i = at + 1;
    if (i >= text->n || text->chars[at].c != '*' || !isdigit((unsigned char)text->chars[i].c))
        return 0;
    size_t count = 0;
    for (; i < text->n && isdigit((unsigned char)text->chars[i].c); i++) {
        count = count * 10 + (size_t)(text->chars[i].c - '0');
        if (count > TOPO_LAYOUT_MAX_CHARS)
            count = TOPO_LAYOUT_MAX_CHARS + 1;
    }
    *count_p = count;
    return i - at;
}

/* The length of "(...)" at chars[at], up to the first ')'; 0 when it is not there or empty. */
static size_t group_length(const topo_layout_text_t *text, size_t at)
{
    if (text->chars[at].c != '(')
        return 0;
    for (size_t i = at + 1; i < text->n; i++) {
        if (text->chars[i].c == ')')
            return i == at + 1 ? 0 : i + 1 - at;
    }
    return 0;
}

/* One pass over `in`: repeat groups, or else single characters. False when it gets too long. */
static bool repeat(topo_layout_text_t *out, const topo_layout_text_t *in, bool groups)
{
    out->n = 0;
    for (size_t i = 0; i < in->n;) {
        size_t length = groups ? group_length(in, i) : 1;
        size_t count = 1;
        size_t count_length = length > 0 ? read_count(in, i + length, &count) : 0;
        size_t skip = groups && count_length > 0; /* the parenthesis */
        if (count_length == 0)
            length = 1;
        if (!append(out, in->chars + i + skip, length - 2 * skip, count))
            return false;
        i += length + count_length;
    }
    return true;
}

static base_status_t check_characters(const topo_layout_text_t *text, base_err_t *err)
{
    for (size_t i = 0; i < text->n; i++) {
        char c = text->chars[i].c;
        if (strchr("EtmL|", c) != NULL)
            continue;
        const char *why = "the layers are E, t, m and L, and | separates stages";
        if (c == '(' || c == ')')
            why = "parentheses do not nest and stand as (...)*n";
        else if (c == '*' || isdigit((unsigned char)c))
            why = "a count stands after a layer or a group, as t*3 or (t|)*3";
        return base_err_set(err, BASE_ERR_INVAL,
                            "pipeline_model_parallel_layout: position %" PRIu32 ": '%c': %s",
                            text->chars[i].position, isprint((unsigned char)c) ? c : '?', why);
    }
    return BASE_OK;
}

base_status_t topo_layout_text_expand(topo_layout_text_t *expanded_p, const char *text,
                                      base_err_t *err)
{
    size_t length = strlen(text);
    topo_layout_text_t a = { 0 }, b = { 0 };
    bool fits = length <= TOPO_LAYOUT_MAX_CHARS;
    base_status_t status = BASE_OK;
    if (fits) {
        a.chars = base_xcalloc(TOPO_LAYOUT_MAX_CHARS, sizeof(*a.chars));
        b.chars = base_xcalloc(TOPO_LAYOUT_MAX_CHARS, sizeof(*b.chars));
        for (size_t i = 0; i < length; i++) {
            if (text[i] != ',')
                a.chars[a.n++] = (topo_layout_char_t){ text[i], (uint32_t)i + 1 };
        }
        fits = repeat(&b, &a, true) && repeat(&a, &b, false);
    }
    if (!fits)
        status = base_err_set(err, BASE_ERR_INVAL,
                              "pipeline_model_parallel_layout is longer than %d layers and "
                              "separators when written out",
                              TOPO_LAYOUT_MAX_CHARS);
    else
        status = check_characters(&a, err);
    free(b.chars);
    if (status != BASE_OK) {
        free(a.chars);
        return status;
    }
    *expanded_p = a;
    return BASE_OK;
}
