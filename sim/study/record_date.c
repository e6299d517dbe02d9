/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/record_date.h"

#include "sim/base/xmem.h"
#include "sim/study/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Days on which release branches left Megatron-LM's main branch (the next minor version appeared in
 * megatron/core/package_info.py), by minor version of 0.x. */
static const unsigned release_days[] = {
    [8] = 20240711,  [9] = 20241002,  [10] = 20250120, [11] = 20250213,
    [12] = 20250410, [13] = 20250617, [14] = 20250818, [15] = 20251021,
    [16] = 20260331, [17] = 20260331, [18] = 20260603, [19] = 20260729,
};

static unsigned day_of_release(const char *text)
{
    static const char *const forms[] = { "core_r0.", "core_v0.", "Megatron r0.", "core 0." };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const char *at = strstr(text, forms[i]);
        unsigned minor = at != NULL ? (unsigned)strtoul(at + strlen(forms[i]), NULL, 10) : 0;
        if (minor < sizeof(release_days) / sizeof(release_days[0]) && release_days[minor] > 0)
            return release_days[minor];
    }
    return 0;
}

/* "July 2023" */
static unsigned day_of_month_name(const char *text)
{
    static const char *const months[] = { "January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December" };
    for (unsigned i = 0; i < 12; i++) {
        const char *at = strstr(text, months[i]);
        unsigned year = at != NULL ? (unsigned)strtoul(at + strlen(months[i]), NULL, 10) : 0;
        if (year >= 2023 && year < 2100)
            return year * 10000 + (i + 1) * 100 + 15;
    }
    return 0;
}

/* ".nv26.01" of a build of PyTorch, "pytorch:26.04-py3" of an image: the end of that month. */
static unsigned day_of_container(const char *text)
{
    static const char *const forms[] = { ".nv", "pytorch:" };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const char *at = strstr(text, forms[i]);
        unsigned year, month;
        if (at != NULL && sscanf(at + strlen(forms[i]), "%2u.%2u", &year, &month) == 2 &&
            month >= 1 && month <= 12)
            return 20000000 + year * 10000 + month * 100 + 28;
    }
    return 0;
}

static unsigned day_of(const json_t *record, const char *path, unsigned (*read)(const char *))
{
    char *text = sim_record_text(record, path);
    unsigned day = read(text);
    free(text);
    return day;
}

static unsigned day_of_date(const char *text)
{
    unsigned year, month, day;
    return sscanf(text, "%4u-%2u-%2u", &year, &month, &day) == 3 ? year * 10000 + month * 100 + day
                                                                 : 0;
}

void sim_record_put_date(const json_t *record, sim_import_t *import)
{
    static const struct {
        const char *path;
        unsigned (*read)(const char *);
    } places[] = {
        { "recorded", day_of_date },         { "source", day_of_release },
        { "model.type", day_of_month_name }, { "source", day_of_month_name },
        { "container", day_of_container },
    };
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        unsigned day = day_of(record, places[i].path, places[i].read);
        if (day == 0)
            continue;
        char *date = base_xasprintf("%u", day);
        char *origin = base_xasprintf("record: %s", places[i].path);
        sim_import_put_key(import, "run", "software_date", date, origin);
        free(origin);
        free(date);
        return;
    }
}

void sim_record_put_iterations(const json_t *record, sim_import_t *import)
{
    static const char form[] = "after iteration ";
    char *text = sim_record_text(record, "raw");
    const char *at = strstr(text, form);
    unsigned n = at != NULL ? (unsigned)strtoul(at + strlen(form), NULL, 10) : 0;
    if (n > 0 && n < 1000) {
        char *digits = base_xasprintf("%u", n);
        sim_import_put_key(import, "run", "iterations", digits, "record: raw");
        free(digits);
    }
    free(text);
}
