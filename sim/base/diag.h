/* SPDX-License-Identifier: Apache-2.0
 * A list of messages, so that all errors of an input are shown in one go. */
#ifndef SIM_BASE_DIAG_H
#define SIM_BASE_DIAG_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    char **text; /* n messages, one line each, in the order in which they were found */
    size_t n;
    size_t n_dropped; /* found after BASE_DIAG_MAX messages were kept */
} base_diag_t;

enum { BASE_DIAG_MAX = 100, BASE_DIAG_TEXT = 2000 };

void base_diag_init(base_diag_t *diag);
void base_diag_fini(base_diag_t *diag);

/* Further messages are only counted, so that it is not worth while to look for a good one. */
bool base_diag_is_full(const base_diag_t *diag);

/* Append one message, cut after BASE_DIAG_TEXT characters; from BASE_DIAG_MAX on it is only
 * counted. With NULL it is forgotten. */
void base_diag_add(base_diag_t *diag, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
