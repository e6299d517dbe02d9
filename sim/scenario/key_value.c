/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/keys.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_SHOWN = 60, MAX_WORD = 64 };

/* `sep` between all but the last two of `n` words. */
static char *join(char *list, const char *word, const char *sep)
{
    char *longer = list == NULL ? base_xstrdup(word) : base_xasprintf("%s%s%s", list, sep, word);
    free(list);
    return longer;
}

static char *choices_text(const sim_choice_t *choices)
{
    char *list = NULL;
    const char *last = NULL;
    int last_value = SIM_CHOICE_NOT_SIMULATED;
    for (const sim_choice_t *c = choices; c->name != NULL; c++) {
        if (c->value == SIM_CHOICE_NOT_SIMULATED || c->value == last_value)
            continue;
        if (last != NULL)
            list = join(list, last, ", ");
        last = c->name;
        last_value = c->value;
    }
    return join(list, last, " or ");
}

char *sim_key_allowed(const sim_key_t *key)
{
    const char *none = key->none != NULL ? "none or " : "";
    switch (key->type) {
    case SIM_KEY_COUNT:
        return base_xasprintf("%s%" PRIu64 " to %" PRIu64, none,
                              key->none != NULL ? base_u64_max(key->min, 1) : key->min, key->max);
    case SIM_KEY_BYTES:
        return base_xasprintf("%sa size such as 80GiB or 500 MB", none);
    case SIM_KEY_BOOL:
        return base_xstrdup("true or false");
    case SIM_KEY_REAL:
        return base_xasprintf("a number from %" PRIu64 " to %" PRIu64, key->min, key->max);
    case SIM_KEY_CHOICE:
        return choices_text(key->choices);
    case SIM_KEY_SET: {
        char *list = choices_text(key->choices);
        char *text = base_xasprintf("a list of %s", list);
        free(list);
        return text;
    }
    case SIM_KEY_TEXT:
        break;
    }
    return base_xstrdup("one line without ; and #");
}

size_t sim_key_size(const sim_key_t *key)
{
    static const size_t sizes[] = {
        [SIM_KEY_COUNT] = sizeof(uint64_t), [SIM_KEY_BYTES] = sizeof(uint64_t),
        [SIM_KEY_BOOL] = sizeof(bool),      [SIM_KEY_REAL] = sizeof(double),
        [SIM_KEY_CHOICE] = sizeof(int),     [SIM_KEY_SET] = sizeof(uint32_t),
        [SIM_KEY_TEXT] = sizeof(char *),
    };
    return sizes[key->type];
}

bool sim_bool_parse(const char *value, bool *out_p)
{
    static const char *const words[][2] = {
        { "false", "true" }, { "no", "yes" }, { "off", "on" }, { "0", "1" }
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        for (int v = 0; v < 2; v++) {
            if (strcasecmp(value, words[i][v]) == 0) {
                *out_p = v;
                return true;
            }
        }
    }
    return false;
}

static bool is_none(const sim_key_t *key, const char *value)
{
    return key->none != NULL && (strcasecmp(value, "none") == 0 || strcasecmp(value, "null") == 0 ||
                                 strcmp(value, "0") == 0);
}

static bool parse_number(const sim_key_t *key, const char *value, uint64_t *out_p)
{
    if (is_none(key, value)) {
        *out_p = 0;
        return true;
    }
    uint64_t v;
    bool ok = key->type == SIM_KEY_BYTES ? base_bytes_parse(value, &v) : base_u64_parse(value, &v);
    if (!ok || v < key->min || v > key->max)
        return false;
    *out_p = v;
    return true;
}

static bool parse_real(const sim_key_t *key, const char *value, double *out_p)
{
    char *end;
    double v = strtod(value, &end);
    if (end == value || *end != '\0' || !(v >= (double)key->min && v <= (double)key->max))
        return false;
    *out_p = v;
    return true;
}

static const sim_choice_t *find_choice(const sim_key_t *key, const char *word)
{
    for (const sim_choice_t *c = key->choices; c->name != NULL; c++) {
        if (strcasecmp(c->name, word) == 0)
            return c;
    }
    return NULL;
}

/* Append why `word` is not a choice; false then. */
static bool choose(const sim_key_t *key, const char *word, const char *origin, int *out_p,
                   base_diag_t *diag)
{
    const sim_choice_t *c = find_choice(key, word);
    if (c != NULL && c->value != SIM_CHOICE_NOT_SIMULATED) {
        *out_p = c->value;
        return true;
    }
    char *allowed = choices_text(key->choices);
    base_diag_add(diag, "%s: %s.%s: '%.*s' is %s; use %s", origin, key->section, key->name,
                  MAX_SHOWN, word,
                  c != NULL ? "known to Megatron-LM but not simulated" : "not known", allowed);
    free(allowed);
    return false;
}

static bool parse_set(const sim_key_t *key, const char *value, const char *origin, uint32_t *out_p,
                      base_diag_t *diag)
{
    uint32_t set = 0;
    bool ok = true;
    for (const char *s = value + strspn(value, " \t,[]\"'"); *s != '\0';) {
        char word[MAX_WORD];
        size_t n = strcspn(s, " \t,[]\"'");
        snprintf(word, sizeof(word), "%.*s", n < MAX_WORD ? (int)n : MAX_WORD - 1, s);
        int v;
        if (choose(key, word, origin, &v, diag))
            set |= (uint32_t)v;
        else
            ok = false;
        s += n;
        s += strspn(s, " \t,[]\"'");
    }
    if (ok)
        *out_p = set;
    return ok;
}

/* Written into a scenario file the text must read back: one line, nothing that may start a comment.
 */
static bool is_one_ini_value(const char *value)
{
    for (; *value != '\0'; value++) {
        if ((unsigned char)*value < ' ' || *value == 0x7f || *value == ';' || *value == '#')
            return false;
    }
    return true;
}

static bool wrong(const sim_key_t *key, const char *value, const char *origin, base_diag_t *diag)
{
    char *allowed = sim_key_allowed(key);
    base_diag_add(diag, "%s: %s.%s: '%.*s%s' is not valid: must be %s%s%s", origin, key->section,
                  key->name, MAX_SHOWN, value, strlen(value) > MAX_SHOWN ? "..." : "", allowed,
                  key->unit != NULL ? " " : "", key->unit != NULL ? key->unit : "");
    free(allowed);
    return false;
}

bool sim_key_parse(const sim_key_t *key, const char *value, const char *origin, void *field,
                   base_diag_t *diag)
{
    switch (key->type) {
    case SIM_KEY_COUNT:
    case SIM_KEY_BYTES:
        return parse_number(key, value, field) || wrong(key, value, origin, diag);
    case SIM_KEY_BOOL:
        return sim_bool_parse(value, field) || wrong(key, value, origin, diag);
    case SIM_KEY_REAL:
        return parse_real(key, value, field) || wrong(key, value, origin, diag);
    case SIM_KEY_CHOICE: {
        int v;
        if (!choose(key, value, origin, &v, diag))
            return false;
        memcpy(field, &v, sizeof(v));
        return true;
    }
    case SIM_KEY_SET:
        return parse_set(key, value, origin, field, diag);
    case SIM_KEY_TEXT:
        break;
    }
    if (!is_one_ini_value(value))
        return wrong(key, "", origin, diag);
    char **text_p = field;
    bool given = *value != '\0' && strcasecmp(value, "none") != 0 && strcasecmp(value, "null") != 0;
    char *text = given ? base_xstrdup(value) : NULL;
    free(*text_p);
    *text_p = text;
    return true;
}

static char *format_set(const sim_choice_t *choices, uint32_t set)
{
    char *list = NULL;
    uint32_t done = 0;
    for (const sim_choice_t *c = choices; c->name != NULL; c++) {
        if (c->value == SIM_CHOICE_NOT_SIMULATED || (set & (uint32_t)c->value) == 0 ||
            (done & (uint32_t)c->value) != 0)
            continue;
        list = join(list, c->name, ",");
        done |= (uint32_t)c->value;
    }
    return list;
}

char *sim_key_format(const sim_key_t *key, const void *field)
{
    switch (key->type) {
    case SIM_KEY_COUNT:
    case SIM_KEY_BYTES: {
        uint64_t v;
        memcpy(&v, field, sizeof(v));
        return v == 0 && key->none != NULL ? base_xstrdup("none") : base_xasprintf("%" PRIu64, v);
    }
    case SIM_KEY_BOOL:
        return base_xstrdup(*(const bool *)field ? "true" : "false");
    case SIM_KEY_REAL:
        return base_xasprintf("%.15g", *(const double *)field);
    case SIM_KEY_CHOICE: {
        int v;
        memcpy(&v, field, sizeof(v));
        for (const sim_choice_t *c = key->choices; c->name != NULL; c++) {
            if (c->value == v)
                return base_xstrdup(c->name);
        }
        return NULL;
    }
    case SIM_KEY_SET: {
        uint32_t set;
        memcpy(&set, field, sizeof(set));
        return format_set(key->choices, set);
    }
    case SIM_KEY_TEXT:
        break;
    }
    const char *text = *(char *const *)field;
    return text == NULL ? NULL : base_xstrdup(text);
}
