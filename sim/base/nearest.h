/* SPDX-License-Identifier: Apache-2.0
 * The known name nearest to a mistyped one. */
#ifndef SIM_BASE_NEAREST_H
#define SIM_BASE_NEAREST_H

#include <stddef.h>

/* Edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`; case is ignored.
 * Names longer than 127 characters count as 128 edits away. */
size_t base_edit_distance(const char *a, const char *b);

/* Call base_nearest_offer() for every known name, then read `best`: NULL unless one is near enough
 * (at most a third of the mistyped name's length, and at least one edit is always allowed). */
enum { BASE_NEAREST_LETTERS = 32 };
typedef struct {
    const char *wanted;
    const char *best;
    size_t length, best_distance;
    signed char letters[BASE_NEAREST_LETTERS]; /* how often `wanted` has each */
} base_nearest_t;

void base_nearest_init(base_nearest_t *nearest, const char *wanted);
void base_nearest_offer(base_nearest_t *nearest, const char *known);

#endif
