/* SPDX-License-Identifier: Apache-2.0
 * Numbers with units in log text. */
#ifndef SIM_STUDY_DIAGNOSE_SCAN_H
#define SIM_STUDY_DIAGNOSE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A decimal number: digits / 10^n_decimals. */
typedef struct {
    uint64_t digits;
    unsigned n_decimals;
} diag_number_t;

/* What "kB", "MB", "GB", "TB" stand for. */
typedef enum { DIAG_LABELS_1000, DIAG_LABELS_1024 } diag_labels_t;

/* A number at `s` ("1234", "1,234", "12.50"); returns the end, NULL when there is none or it does
 * not fit. "1,234" is one number only if three digits follow each comma. */
const char *diag_scan_number(const char *s, diag_number_t *number_p);

/* A unit at `s`, blanks before it allowed: bytes, B, KiB, kB, K, MiB, MB, M, GiB, GB, G, TiB, TB.
 * Returns the end, or NULL and *unit_p untouched. */
const char *diag_scan_unit(const char *s, diag_labels_t labels, uint64_t *unit_p);

/* number x unit in bytes, rounded to the nearest; DIAG_UNKNOWN when it does not fit 2^63. */
uint64_t diag_scan_bytes(diag_number_t number, uint64_t unit);

/* Number and unit directly at `s` (blanks before them allowed); DIAG_UNKNOWN when there are none.
 * `end_p` may be NULL. */
uint64_t diag_scan_amount(const char *s, diag_labels_t labels, const char **end_p);

/* The amount right after, or right before, the first `marker` in text; DIAG_UNKNOWN when not there.
 */
uint64_t diag_amount_after(const char *text, const char *marker);
uint64_t diag_amount_before(const char *text, const char *marker);

/* The whole number right after the first `marker`; -1 when there is none. */
int64_t diag_int_after(const char *text, const char *marker);

#endif
