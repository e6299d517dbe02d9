/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/glob.h"

#include <stddef.h>

/* Length of the "[...]" at `p`, 0 when it is not closed and "[" stands for itself. */
static size_t set_length(const char *p)
{
    size_t n = 1;
    n += p[n] == '!' || p[n] == '^';
    n += p[n] == ']'; /* first, it stands for itself */
    while (p[n] != '\0' && p[n] != ']')
        n += p[n] == '\\' && p[n + 1] != '\0' ? 2 : 1;
    return p[n] == ']' ? n + 1 : 0;
}

static bool set_has(const char *p, size_t n, unsigned char c)
{
    const char *end = p + n - 1;
    bool negated = p[1] == '!' || p[1] == '^', found = false;
    p += 1 + negated;
    do {
        p += *p == '\\';
        unsigned char first = (unsigned char)*p, last = first;
        if (p[1] == '-' && p + 2 < end) {
            p += 2;
            p += *p == '\\';
            last = (unsigned char)*p;
        }
        found = found || (c >= first && c <= last);
        p++;
    } while (p < end);
    return found != negated;
}

/* Whether the element at `p` (no "*") matches `c`; its length in *n_p. */
static bool element_matches(const char *p, char c, size_t *n_p)
{
    size_t n = *p == '[' ? set_length(p) : 0;
    *n_p = n > 0 ? n : 1;
    if (n > 0)
        return set_has(p, n, (unsigned char)c);
    if (*p == '?')
        return true;
    if (*p == '\\' && p[1] != '\0') {
        *n_p = 2;
        p++;
    }
    return *p == c;
}

bool base_glob_match(const char *pattern, const char *text)
{
    const char *star = NULL, *from = NULL; /* the last "*" and what it has not swallowed yet */
    while (*text != '\0') {
        size_t n;
        if (*pattern == '*') {
            star = ++pattern;
            from = text;
        } else if (*pattern != '\0' && element_matches(pattern, *text, &n)) {
            pattern += n;
            text++;
        } else if (star != NULL) { /* the star takes one more; earlier ones need not change */
            pattern = star;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}
