/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool base_u64_mul(uint64_t a, uint64_t b, uint64_t *out_p)
{
    uint64_t out;
    if (__builtin_mul_overflow(a, b, &out))
        return false;
    *out_p = out;
    return true;
}

bool base_u64_add(uint64_t a, uint64_t b, uint64_t *out_p)
{
    uint64_t out;
    if (__builtin_add_overflow(a, b, &out))
        return false;
    *out_p = out;
    return true;
}

uint64_t base_u64_gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

uint64_t base_u64_lcm(uint64_t a, uint64_t b)
{
    return a == 0 || b == 0 ? 0 : a / base_u64_gcd(a, b) * b;
}

bool base_u64_parse(const char *s, uint64_t *out_p)
{
    uint64_t v = 0;
    if (*s == '\0')
        return false;
    for (; *s != '\0'; s++) {
        if (!isdigit((unsigned char)*s) || !base_u64_mul(v, 10, &v) ||
            !base_u64_add(v, (uint64_t)(*s - '0'), &v))
            return false;
    }
    *out_p = v;
    return true;
}

static bool unit_factor(const char *unit, uint64_t *factor_p)
{
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {
        { "", 1 },
        { "B", 1 },
        { "KiB", UINT64_C(1) << 10 },
        { "MiB", UINT64_C(1) << 20 },
        { "GiB", UINT64_C(1) << 30 },
        { "TiB", UINT64_C(1) << 40 },
        { "kB", UINT64_C(1000) },
        { "MB", UINT64_C(1000000) },
        { "GB", UINT64_C(1000000000) },
        { "TB", UINT64_C(1000000000000) },
    };
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(unit, units[i].name) == 0) {
            *factor_p = units[i].factor;
            return true;
        }
    }
    return false;
}

bool base_bytes_parse(const char *s, uint64_t *bytes_p)
{
    uint64_t whole = 0, fraction = 0, scale = 1;
    if (!isdigit((unsigned char)*s))
        return false;
    for (; isdigit((unsigned char)*s); s++) {
        if (!base_u64_mul(whole, 10, &whole) || !base_u64_add(whole, (uint64_t)(*s - '0'), &whole))
            return false;
    }
    if (*s == '.') {
        s++;
        if (!isdigit((unsigned char)*s))
            return false;
        for (; isdigit((unsigned char)*s); s++) {
            if (scale <= UINT64_C(100000000)) { /* nine digits; the rest is below a byte's worth */
                fraction = fraction * 10 + (uint64_t)(*s - '0');
                scale *= 10;
            }
        }
    }
    while (*s == ' ')
        s++;
    uint64_t factor, bytes;
    if (!unit_factor(s, &factor) || !base_u64_mul(whole, factor, &bytes))
        return false;
    uint64_t part = (uint64_t)((unsigned __int128)fraction * factor / scale);
    return base_u64_add(bytes, part, bytes_p);
}

const char *base_bytes_format(uint64_t bytes, char buf[static BASE_BYTES_TEXT])
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    size_t unit = 0;
    uint64_t divisor = 1;
    while (unit + 1 < sizeof(names) / sizeof(names[0]) && bytes / divisor >= 1024) {
        divisor <<= 10;
        unit++;
    }
    double value = (double)bytes / (double)divisor; /* for people only */
    int digits = unit == 0 ? 0 : value < 100.0 ? 2 : 1;
    snprintf(buf, BASE_BYTES_TEXT, "%.*f %s", digits, value, names[unit]);
    return buf;
}
