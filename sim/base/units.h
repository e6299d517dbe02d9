/* SPDX-License-Identifier: Apache-2.0
 * Checked 64-bit arithmetic, and sizes as text. Bytes are uint64_t everywhere, never double. */
#ifndef SIM_BASE_UNITS_H
#define SIM_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BASE_KIB (UINT64_C(1) << 10)
#define BASE_MIB (UINT64_C(1) << 20)
#define BASE_GIB (UINT64_C(1) << 30)

/* Each returns false, with *out_p untouched, when the result does not fit 64 bits. */
bool base_u64_mul(uint64_t a, uint64_t b, uint64_t *out_p);
bool base_u64_add(uint64_t a, uint64_t b, uint64_t *out_p);

static inline uint64_t base_u64_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* `a` rounded up to a multiple of `step` > 0; the caller knows that it fits. */
static inline uint64_t base_u64_round_up(uint64_t a, uint64_t step)
{
    return base_u64_div_up(a, step) * step;
}

static inline uint64_t base_u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t base_u64_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t base_u64_gcd(uint64_t a, uint64_t b);
uint64_t base_u64_lcm(uint64_t a, uint64_t b);

/* Whole decimal number, digits only; false on anything else or beyond 64 bits. */
bool base_u64_parse(const char *s, uint64_t *out_p);

/* Bytes: a whole or decimal number, then B, KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB
 * (powers of 1000); no unit means bytes; blanks between are allowed. Exact (no floating point);
 * a fraction that is not a whole number of bytes is rounded down. False on anything else, trailing
 * text and overflow included. */
bool base_bytes_parse(const char *s, uint64_t *bytes_p);

enum { BASE_BYTES_TEXT = 24 };

/* "0 B", "17.3 MiB", "59.61 GiB": four significant digits at most, unit of 1024. Returns `buf`. */
const char *base_bytes_format(uint64_t bytes, char buf[static BASE_BYTES_TEXT]);

#endif
