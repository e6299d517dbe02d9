/* SPDX-License-Identifier: Apache-2.0
 * INI text to a scenario. libinih splits lines into names and values; lines are handed to it one by
 * one so that their numbers are known and none is cut. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/scenario/keys.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/state.h"

#include <ctype.h>
#include <ini.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_LINE = 16 << 10, /* characters of one line */
    MAX_NAME = 64, /* of a section or key; longer ones are unknown anyway, libinih cuts at 49 */
    MAX_SWEEP_VALUES = 1000,
    MAX_DROPPED = 1000, /* wrong lines beyond those shown, after which the rest is not read */
};

typedef struct {
    sim_scenario_t *scenario;
    base_diag_t *diag;
    const char *name;
    const char *next, *end; /* text not yet handed out */
    unsigned long line;     /* number of the line handed out last, from 1 */
    /* Line at which each key of the table was set or swept in this text, 0 = not yet. */
    unsigned long *seen, *seen_sweep;
    bool in_section; /* a section header was seen */
    bool ok;
} reader_t;

static char *origin_of(const reader_t *r)
{
    return base_xasprintf("%s:%lu", r->name, r->line);
}

static void __attribute__((format(printf, 2, 3))) complain(reader_t *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = base_xvasprintf(fmt, ap);
    va_end(ap);
    base_diag_add(r->diag, "%s:%lu: %s", r->name, r->line, text);
    free(text);
    r->ok = false;
}

/* Check a line that begins with '['; libinih then reads the same name from it. */
static bool check_header(reader_t *r, const char *s, size_t n)
{
    const char *close = memchr(s, ']', n);
    if (close == NULL) {
        complain(r, "section header without ]");
        return false;
    }
    for (const char *p = close + 1; p < s + n && *p != ';' && *p != '#'; p++) {
        if (!isspace((unsigned char)*p)) {
            complain(r, "text after the ] of a section header");
            return false;
        }
    }
    r->in_section = true;
    char *section = base_xasprintf("%.*s", (int)(close - s - 1), s + 1);
    if (!sim_section_is_known(section) && strcmp(section, "sweep") != 0) {
        char *origin = origin_of(r);
        sim_section_unknown(section, origin, r->diag);
        free(origin);
        r->ok = false;
    }
    free(section);
    return true;
}

/* The line as libinih may see it, else false: it is then skipped. */
static bool check_line(reader_t *r, const char *s, size_t n)
{
    if (n > MAX_LINE) {
        complain(r, "line of %zu characters; at most %d are allowed", n, MAX_LINE);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (iscntrl((unsigned char)s[i]) && s[i] != '\t' && s[i] != '\r') {
            complain(r, "control character 0x%02x: not a text file", (unsigned char)s[i]);
            r->next = r->end; /* one such message is enough */
            return false;
        }
    }
    while (n > 0 && isspace((unsigned char)*s)) {
        s++;
        n--;
    }
    return n == 0 || *s != '[' || check_header(r, s, n);
}

/* fgets() over the text. */
static char *next_line(char *out, int size, void *stream)
{
    reader_t *r = stream;
    if (r->next >= r->end || r->diag->n_dropped >= MAX_DROPPED)
        return NULL;
    const char *s = r->next;
    const char *newline = memchr(s, '\n', (size_t)(r->end - s));
    size_t n = (size_t)((newline != NULL ? newline : r->end) - s);
    r->next = newline != NULL ? newline + 1 : r->end;
    r->line++;
    if (r->line == 1 && n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0) {
        s += 3;
        n -= 3;
    }
    if (!check_line(r, s, n))
        n = 0;
    snprintf(out, (size_t)size, "%.*s\n", (int)n, s);
    return out;
}

static bool only_once(reader_t *r, const char *section, const sim_key_t *key, unsigned long *seen)
{
    size_t n;
    seen += key - sim_keys(&n);
    if (*seen != 0) {
        complain(r, "%s.%s: given twice, first at line %lu", section, key->name, *seen);
        return false;
    }
    *seen = r->line;
    return true;
}

static void add_sweep_value(reader_t *r, sim_sweep_axis_t *axis, const sim_key_t *key,
                            const char *value)
{
    sim_scenario_t scratch;
    sim_scenario_init(&scratch);
    if (!sim_scenario_set(&scratch, key->section, key->name, value, axis->origin, r->diag))
        r->ok = false;
    sim_scenario_fini(&scratch);
    axis->values = base_xrealloc(axis->values, axis->n_values + 1, sizeof(*axis->values));
    axis->values[axis->n_values++] = base_xstrdup(value);
}

/* Keys for which "auto" stands for every size that may be legal. */
static bool can_be_auto(const sim_key_t *key)
{
    static const char *const names[] = {
        "tensor_model_parallel_size",           "pipeline_model_parallel_size",
        "virtual_pipeline_model_parallel_size", "context_parallel_size",
        "expert_model_parallel_size",           "expert_tensor_parallel_size"
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], key->name) == 0)
            return true;
    }
    return false;
}

/* "FIRST..LAST", "FIRST..LAST+STEP" or "FIRST..LAST*FACTOR". False: not a range, or a wrong one. */
static bool parse_range(const char *value, uint64_t *first_p, uint64_t *last_p, char *op_p,
                        uint64_t *step_p)
{
    const char *dots = strstr(value, "..");
    if (dots == NULL)
        return false;
    char *first = base_xasprintf("%.*s", (int)(dots - value), value);
    const char *rest = dots + 2;
    size_t n = strcspn(rest, "+*");
    char *last = base_xasprintf("%.*s", (int)n, rest);
    *op_p = rest[n] != '\0' ? rest[n] : '+';
    *step_p = 1;
    bool ok = base_u64_parse(first, first_p) && base_u64_parse(last, last_p) &&
              (rest[n] == '\0' || base_u64_parse(rest + n + 1, step_p)) && *first_p <= *last_p &&
              (*op_p == '+' ? *step_p > 0 : *step_p > 1 && *first_p > 0);
    free(first);
    free(last);
    return ok;
}

static void add_sweep_range(reader_t *r, sim_sweep_axis_t *axis, const sim_key_t *key,
                            const char *value)
{
    uint64_t first, last, step;
    char op;
    if (!parse_range(value, &first, &last, &op, &step)) {
        complain(r,
                 "sweep.%s: '%.40s' is no range; write FIRST..LAST, FIRST..LAST+STEP or "
                 "FIRST..LAST*FACTOR",
                 key->name, value);
        return;
    }
    while (first <= last && axis->n_values < MAX_SWEEP_VALUES && r->ok) {
        char text[24];
        snprintf(text, sizeof(text), "%" PRIu64, first);
        add_sweep_value(r, axis, key, text);
        bool fits =
            op == '+' ? base_u64_add(first, step, &first) : base_u64_mul(first, step, &first);
        if (!fits)
            break;
    }
}

/* One value, one range, or auto. */
static void add_sweep_word(reader_t *r, sim_sweep_axis_t *axis, const sim_key_t *key,
                           const char *value)
{
    bool is_number = key->type == SIM_KEY_COUNT || key->type == SIM_KEY_BYTES;
    if (strcmp(value, "auto") == 0 && can_be_auto(key)) {
        axis->values = base_xrealloc(axis->values, axis->n_values + 1, sizeof(*axis->values));
        axis->values[axis->n_values++] = base_xstrdup(value);
    } else if (is_number && strstr(value, "..") != NULL) {
        add_sweep_range(r, axis, key, value);
    } else {
        add_sweep_value(r, axis, key, value);
    }
}

static void check_auto_stands_alone(reader_t *r, const sim_sweep_axis_t *axis)
{
    for (size_t i = 0; i < axis->n_values && axis->n_values > 1; i++) {
        if (strcmp(axis->values[i], "auto") == 0) {
            complain(r, "sweep.%s: auto stands alone, without other values", axis->key);
            return;
        }
    }
}

/* Not a key: what joins global_batch_size and seq_length. */
static void read_tokens_per_batch(reader_t *r, const char *value)
{
    if (r->scenario->sweep_tokens_per_batch != 0)
        complain(r, "sweep.tokens_per_batch: given twice");
    else if (!base_u64_parse(value, &r->scenario->sweep_tokens_per_batch) ||
             r->scenario->sweep_tokens_per_batch == 0)
        complain(r, "sweep.tokens_per_batch: '%.40s' is not a number of tokens above 0", value);
}

/* Values are separated by blanks, and by commas too unless one value may itself be a list. */
static void read_sweep(reader_t *r, const char *name, const char *text)
{
    if (strcmp(name, "tokens_per_batch") == 0) {
        read_tokens_per_batch(r, text);
        return;
    }
    const sim_key_t *key;
    const char *same;
    char *origin = origin_of(r);
    sim_sweep_axis_t axis = { .origin = origin };
    bool known = sim_key_resolve_name(NULL, name, text, origin, &key, &same, r->diag);
    if (known && (key == NULL || same != text)) {
        complain(r, "sweep.%s: sweep over the key that this name stands for instead", name);
        known = false;
    }
    if (!known || !only_once(r, "sweep", key, r->seen_sweep)) {
        r->ok = false;
        free(origin);
        return;
    }
    axis.section = key->section;
    axis.key = key->name;
    const char *blanks = key->type == SIM_KEY_SET || key->type == SIM_KEY_TEXT ? " \t" : " \t,";
    for (const char *s = text + strspn(text, blanks); *s != '\0'; s += strspn(s, blanks)) {
        size_t n = strcspn(s, blanks);
        char *value = base_xasprintf("%.*s", (int)n, s);
        add_sweep_word(r, &axis, key, value);
        free(value);
        s += n;
        if (axis.n_values == MAX_SWEEP_VALUES)
            break;
    }
    if (axis.n_values == 0 || axis.n_values == MAX_SWEEP_VALUES)
        complain(r, "sweep.%s: give 1 to %d values, separated by blanks", name,
                 MAX_SWEEP_VALUES - 1);
    check_auto_stands_alone(r, &axis);
    sim_scenario_t *scenario = r->scenario;
    scenario->sweep =
        base_xrealloc(scenario->sweep, scenario->n_sweep + 1, sizeof(*scenario->sweep));
    scenario->sweep[scenario->n_sweep++] = axis;
}

static void read_setting(reader_t *r, const char *section, const char *name, const char *value)
{
    const sim_key_t *key;
    const char *meant;
    char *origin = origin_of(r);
    bool known = sim_key_resolve_name(section, name, value, origin, &key, &meant, NULL);
    if (known && key != NULL && !only_once(r, key->section, key, r->seen))
        r->ok = false;
    else if (!sim_scenario_set(r->scenario, section, name, value, origin, r->diag))
        r->ok = false;
    free(origin);
}

static int on_value(void *user, const char *section, const char *name, const char *value)
{
    reader_t *r = user;
    if (!r->in_section && value != NULL) {
        complain(r, "%.40s: stands before the first [section]", name);
        r->in_section = true; /* say it once */
    }
    r->scenario->n_settings++;
    if (value == NULL || *name == '\0')
        complain(r, "'%.40s' is not of the form key = value", name);
    else if (strlen(name) >= MAX_NAME)
        complain(r, "%.40s...: unknown key; `mbsim keys` lists what there is", name);
    else if (strcmp(section, "sweep") == 0)
        read_sweep(r, name, value);
    else
        read_setting(r, sim_section_is_known(section) ? section : NULL, name, value);
    return 1;
}

static void set_up_inih(void)
{
    static char inline_comments[] = ";#";
    ini_use_stack = false; /* its stack buffer holds 200 characters */
    ini_initial_alloc = MAX_LINE + 3;
    ini_max_line = MAX_LINE + 3;
    ini_allow_realloc = false;
    ini_allow_multiline = false;
    ini_allow_no_value = true; /* to name the line ourselves */
    ini_stop_on_first_error = false;
    ini_allow_inline_comments = true;
    ini_inline_comment_prefixes = inline_comments;
}

bool sim_scenario_read(sim_scenario_t *scenario, const char *name, const char *text, size_t length,
                       base_diag_t *diag)
{
    size_t n;
    sim_keys(&n);
    free(scenario->state->name);
    scenario->state->name = base_xstrdup(name);
    if (memchr(text, '\0', length) != NULL) {
        base_diag_add(diag, "%s: binary file, not a scenario", name);
        return false;
    }
    if (length > 0 && text[strspn(text, " \t\r\n")] == '{') {
        base_diag_add(diag,
                      "%s: JSON, not a scenario; `mbsim import` makes one of the config.json of a "
                      "model, and `mbsim diff` reads saved reports",
                      name);
        return false;
    }
    reader_t r = { .scenario = scenario,
                   .diag = diag,
                   .name = name,
                   .next = text,
                   .end = text + length,
                   .ok = true };
    r.seen = base_xcalloc(n, sizeof(*r.seen));
    r.seen_sweep = base_xcalloc(n, sizeof(*r.seen_sweep));
    set_up_inih();
    int rc = ini_parse_stream(next_line, &r, on_value, &r);
    free(r.seen);
    free(r.seen_sweep);
    if (rc != 0 && r.ok) {
        base_diag_add(diag, "%s:%d: not of the form key = value", name, rc);
        r.ok = false;
    } else if (scenario->n_settings == 0 && r.ok) {
        base_diag_add(diag, "%s: %s", name,
                      length == 0 ? "the file is empty" : "no key = value line in it");
        r.ok = false;
    }
    return r.ok;
}
