/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/nearest.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_NAME = 127 };

static size_t min3(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

static int same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

size_t base_edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > MAX_NAME || m > MAX_NAME)
        return MAX_NAME + 1;
    size_t rows[3][MAX_NAME + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t replace = last[j - 1] + !same(a[i - 1], b[j - 1]);
            row[j] = min3(last[j] + 1, row[j - 1] + 1, replace);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        size_t *spare = before;
        before = last;
        last = row;
        row = spare;
    }
    return last[m];
}

/* Letters by their last five bits: a case folds into one, and what else falls together only makes
 * the bound below weaker. */
static unsigned letter(char c)
{
    return (unsigned char)c % BASE_NEAREST_LETTERS;
}

void base_nearest_init(base_nearest_t *nearest, const char *wanted)
{
    size_t n = strlen(wanted), limit = n / 3;
    if (limit > MAX_NAME / 3) /* a name that is too long is near none */
        limit = MAX_NAME / 3;
    *nearest = (base_nearest_t){ .wanted = wanted,
                                 .length = n,
                                 .best_distance = (limit > 1 ? limit : 1) + 1 };
    for (size_t i = 0; i < n && n <= MAX_NAME; i++)
        nearest->letters[letter(wanted[i])]++;
}

/* Each letter that only one of both has costs an edit; an edit takes one away on each side. Most
 * names are told apart after a few letters. */
static bool may_be_near(const base_nearest_t *nearest, const char *known)
{
    signed char left[BASE_NEAREST_LETTERS];
    size_t n = strlen(known), strange = 0;
    size_t longer = n > nearest->length ? n - nearest->length : 0;
    size_t shorter = nearest->length > n ? nearest->length - n : 0;
    if (nearest->length > MAX_NAME || longer >= nearest->best_distance)
        return false;
    memcpy(left, nearest->letters, sizeof(left));
    for (size_t i = 0; i < n && strange + shorter < nearest->best_distance; i++)
        strange += --left[letter(known[i])] < 0;
    return strange + shorter < nearest->best_distance;
}

void base_nearest_offer(base_nearest_t *nearest, const char *known)
{
    if (!may_be_near(nearest, known))
        return;
    size_t distance = base_edit_distance(nearest->wanted, known);
    if (distance < nearest->best_distance) {
        nearest->best_distance = distance;
        nearest->best = known;
    }
}
