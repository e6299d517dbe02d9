/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/diagnose_scan.h"

#include "sim/base/units.h"
#include "sim/study/diagnose.h"

#include <ctype.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool three_digits(const char *s)
{
    return is_digit(s[0]) && is_digit(s[1]) && is_digit(s[2]) && !is_digit(s[3]);
}

static bool add_digit(uint64_t *digits, char c)
{
    uint64_t x;
    if (!base_u64_mul(*digits, 10, &x) || !base_u64_add(x, (uint64_t)(c - '0'), &x))
        return false;
    *digits = x;
    return true;
}

const char *diag_scan_number(const char *s, diag_number_t *number_p)
{
    diag_number_t n = { 0, 0 };
    if (!is_digit(*s))
        return NULL;
    const char *begin = s;
    for (; is_digit(*s) || (*s == ',' && s - begin <= 3 + 4 * 6 && three_digits(s + 1)); s++)
        if (*s != ',' && !add_digit(&n.digits, *s))
            return NULL;
    if (*s == '.' && is_digit(s[1])) {
        for (s++; is_digit(*s); s++)
            if (n.n_decimals < 6 && add_digit(&n.digits, *s)) /* beyond a millionth: cut */
                n.n_decimals++;
    }
    *number_p = n;
    return s;
}

const char *diag_scan_unit(const char *s, diag_labels_t labels, uint64_t *unit_p)
{
    static const struct {
        const char *name;
        unsigned power;
        bool is_binary;
    } units[] = {
        { "bytes", 0, true }, { "byte", 0, true }, { "KiB", 1, true }, { "MiB", 2, true },
        { "GiB", 3, true },   { "TiB", 4, true },  { "KB", 1, false }, { "kB", 1, false },
        { "MB", 2, false },   { "GB", 3, false },  { "TB", 4, false }, { "B", 0, true },
        { "K", 1, false },    { "M", 2, false },   { "G", 3, false },
    };
    while (*s == ' ')
        s++;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(s, units[i].name, n) != 0 || isalpha((unsigned char)s[n]))
            continue;
        uint64_t unit = 1;
        for (unsigned k = 0; k < units[i].power; k++)
            unit *= units[i].is_binary || labels == DIAG_LABELS_1024 ? 1024 : 1000;
        *unit_p = unit;
        return s + n;
    }
    return NULL;
}

uint64_t diag_scan_bytes(diag_number_t number, uint64_t unit)
{
    unsigned __int128 x = (unsigned __int128)number.digits * unit;
    uint64_t scale = 1;
    for (unsigned i = 0; i < number.n_decimals; i++)
        scale *= 10;
    x = (x + scale / 2) / scale;
    return x > INT64_MAX ? DIAG_UNKNOWN : (uint64_t)x;
}

uint64_t diag_scan_amount(const char *s, diag_labels_t labels, const char **end_p)
{
    diag_number_t number;
    uint64_t unit;
    while (*s == ' ')
        s++;
    s = diag_scan_number(s, &number);
    if (s == NULL || (s = diag_scan_unit(s, labels, &unit)) == NULL)
        return DIAG_UNKNOWN;
    if (end_p != NULL)
        *end_p = s;
    return diag_scan_bytes(number, unit);
}

uint64_t diag_amount_after(const char *text, const char *marker)
{
    const char *at = strstr(text, marker);
    return at == NULL ? DIAG_UNKNOWN
                      : diag_scan_amount(at + strlen(marker), DIAG_LABELS_1024, NULL);
}

uint64_t diag_amount_before(const char *text, const char *marker)
{
    const char *at = strstr(text, marker);
    if (at == NULL)
        return DIAG_UNKNOWN;
    const char *s = at;
    while (s > text && s[-1] == ' ')
        s--;
    while (s > text && isalpha((unsigned char)s[-1]))
        s--;
    while (s > text && s[-1] == ' ')
        s--;
    while (s > text && (is_digit(s[-1]) || s[-1] == '.' || s[-1] == ','))
        s--;
    while (*s == '.' || *s == ',')
        s++;
    const char *end = NULL;
    uint64_t bytes = diag_scan_amount(s, DIAG_LABELS_1024, &end);
    return end != NULL && end <= at ? bytes : DIAG_UNKNOWN;
}

int64_t diag_int_after(const char *text, const char *marker)
{
    const char *at = strstr(text, marker);
    if (at == NULL)
        return -1;
    at += strlen(marker);
    while (*at == ' ')
        at++;
    int64_t x = 0;
    if (!is_digit(*at))
        return -1;
    for (; is_digit(*at); at++) {
        if (x > INT64_MAX / 10 - 10)
            return -1;
        x = x * 10 + (*at - '0');
    }
    return x;
}
