/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/scenario.h"

#include "sim/base/nearest.h"
#include "sim/base/xmem.h"
#include "sim/scenario/hf_config.h"
#include "sim/scenario/keys.h"
#include "sim/scenario/presets.h"
#include "sim/scenario/state.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_SHOWN = 60, MAX_NAME = 128 };

static void *field_of(sim_scenario_t *scenario, const sim_key_t *key)
{
    return (char *)scenario + key->offset;
}

static const void *const_field_of(const sim_scenario_t *scenario, const sim_key_t *key)
{
    return (const char *)scenario + key->offset;
}

/* The table of keys by name: open addressing, made at the first use. A sweep looks up keys by the
 * million. */
enum { INDEX_SLOTS = 1024 };

static size_t slot_of(const char *name)
{
    uint32_t h = 2166136261U; /* FNV-1a */
    for (const char *c = name; *c != '\0'; c++)
        h = (h ^ (unsigned char)*c) * 16777619U;
    return h % INDEX_SLOTS;
}

static const uint16_t *key_slots(void)
{
    static uint16_t slots[INDEX_SLOTS]; /* number of a key plus 1; 0 = empty */
    static bool is_made;
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    assert(n < INDEX_SLOTS / 2);
    for (size_t i = 0; i < n && !is_made; i++) {
        size_t slot = slot_of(keys[i].name);
        while (slots[slot] != 0)
            slot = (slot + 1) % INDEX_SLOTS;
        slots[slot] = (uint16_t)(i + 1);
    }
    is_made = true;
    return slots;
}

size_t sim_key_index(const char *name)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    const uint16_t *slots = key_slots();
    for (size_t slot = slot_of(name); slots[slot] != 0; slot = (slot + 1) % INDEX_SLOTS) {
        if (strcmp(keys[slots[slot] - 1].name, name) == 0)
            return (size_t)slots[slot] - 1;
    }
    assert(!"a key of the table");
    return n;
}

void sim_key_reset(sim_scenario_t *scenario, size_t k)
{
    size_t n;
    const sim_key_t *key = &sim_keys(&n)[k];
    sim_key_entry_t *entry = &scenario->state->entries[k];
    base_diag_t diag;
    base_diag_init(&diag);
    bool ok = true;
    if (key->type == SIM_KEY_COUNT || key->type == SIM_KEY_BYTES)
        *(uint64_t *)field_of(scenario, key) = strtoull(key->text, NULL, 10);
    else
        ok = sim_key_parse(key, key->text != NULL ? key->text : "", "default",
                           field_of(scenario, key), &diag);
    assert(ok);
    (void)ok;
    base_diag_fini(&diag);
    free(entry->origin);
    *entry = (sim_key_entry_t){ .how = SIM_KEY_DEFAULT };
}

void sim_scenario_init(sim_scenario_t *scenario)
{
    size_t n;
    sim_keys(&n);
    *scenario = (sim_scenario_t){ 0 };
    scenario->state = base_xcalloc(1, sizeof(*scenario->state));
    scenario->state->entries = base_xcalloc(n, sizeof(*scenario->state->entries));
    for (size_t i = 0; i < n; i++)
        sim_key_reset(scenario, i);
}

static void free_sweep(sim_scenario_t *scenario)
{
    for (size_t i = 0; i < scenario->n_sweep; i++) {
        sim_sweep_axis_t *axis = &scenario->sweep[i];
        for (size_t v = 0; v < axis->n_values; v++)
            free(axis->values[v]);
        free(axis->values);
        free(axis->origin);
    }
    free(scenario->sweep);
}

void sim_scenario_fini(sim_scenario_t *scenario)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (keys[i].type == SIM_KEY_TEXT)
            free(*(char **)field_of(scenario, &keys[i]));
        if (scenario->state != NULL)
            free(scenario->state->entries[i].origin);
    }
    if (scenario->state != NULL) {
        free(scenario->state->entries);
        free(scenario->state->name);
        free(scenario->state);
    }
    free_sweep(scenario);
    topo_stages_fini(&scenario->stages);
    free(scenario->layer_is_moe);
    free(scenario->layer_kinds);
    sim_routing_destroy(scenario->routing);
    *scenario = (sim_scenario_t){ 0 };
}

static char *dup_or_null(const char *s)
{
    return s == NULL ? NULL : base_xstrdup(s);
}

static void copy_sweep(sim_scenario_t *copy, const sim_scenario_t *scenario)
{
    copy->n_sweep = scenario->n_sweep;
    copy->sweep = base_xcalloc(scenario->n_sweep, sizeof(*copy->sweep));
    for (size_t i = 0; i < copy->n_sweep; i++) {
        const sim_sweep_axis_t *from = &scenario->sweep[i];
        sim_sweep_axis_t *to = &copy->sweep[i];
        *to = *from;
        to->origin = base_xstrdup(from->origin);
        to->values = base_xcalloc(from->n_values, sizeof(*to->values));
        for (size_t v = 0; v < from->n_values; v++)
            to->values[v] = base_xstrdup(from->values[v]);
    }
}

void sim_scenario_copy(sim_scenario_t *copy_p, const sim_scenario_t *scenario)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    *copy_p = *scenario;
    copy_p->stages = (topo_stages_t){ 0 };
    copy_p->grid = (topo_grid_t){ 0 };
    copy_p->gpu_p = NULL;
    copy_p->n_microbatches = 0;
    copy_p->layer_is_moe = NULL;
    copy_p->layer_kinds = NULL;
    copy_p->routing = NULL;
    copy_p->state = base_xcalloc(1, sizeof(*copy_p->state));
    copy_p->state->name = dup_or_null(scenario->state->name);
    copy_p->state->entries = base_xcalloc(n, sizeof(*copy_p->state->entries));
    for (size_t i = 0; i < n; i++) {
        copy_p->state->entries[i] = scenario->state->entries[i];
        copy_p->state->entries[i].origin = dup_or_null(scenario->state->entries[i].origin);
        if (keys[i].type == SIM_KEY_TEXT)
            *(char **)field_of(copy_p, &keys[i]) =
                dup_or_null(*(char *const *)const_field_of(scenario, &keys[i]));
    }
    copy_sweep(copy_p, scenario);
}

/* A key as given, in lower case and with '_' for '-'. */
static void normal_name(char out[static MAX_NAME], const char *name)
{
    size_t n = 0;
    for (; n < MAX_NAME - 1 && name[n] != '\0'; n++)
        out[n] = name[n] == '-' ? '_' : (char)tolower((unsigned char)name[n]);
    out[n] = '\0';
}

static const sim_key_t *find_key(const char *section, const char *name)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(keys[i].name, name) == 0 &&
            (section == NULL || !keys[i].own_section || strcmp(keys[i].section, section) == 0))
            return &keys[i];
    }
    return NULL;
}

static const sim_key_alias_t *find_alias(const char *name)
{
    size_t n;
    const sim_key_alias_t *aliases = sim_key_aliases(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(aliases[i].name, name) == 0)
            return &aliases[i];
    }
    return NULL;
}

static const sim_key_refused_t *find_refused(const char *name)
{
    size_t n;
    const sim_key_refused_t *refused = sim_keys_refused(&n);
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(refused[i].name);
        bool prefix = refused[i].name[length - 1] == '*';
        if (prefix ? strncmp(refused[i].name, name, length - 1) == 0
                   : strcmp(refused[i].name, name) == 0)
            return &refused[i];
    }
    return NULL;
}

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *s = words; *s != '\0'; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        if (n == length && strncasecmp(s, word, n) == 0)
            return true;
        s += n;
    }
    return false;
}

static void unknown_key(const char *section, const char *name, const char *origin,
                        base_diag_t *diag)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    const char *dot = section != NULL ? "." : "";
    if (diag == NULL || base_diag_is_full(diag)) {
        base_diag_add(diag, "%s", name);
        return;
    }
    base_nearest_t nearest;
    base_nearest_init(&nearest, name);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(keys[i].name, name) == 0) {
            base_diag_add(diag, "%s: %s%s%s: belongs to section [%s]", origin, section, dot, name,
                          keys[i].section);
            return;
        }
        base_nearest_offer(&nearest, keys[i].name);
    }
    const sim_key_alias_t *aliases = sim_key_aliases(&n);
    for (size_t i = 0; i < n; i++)
        base_nearest_offer(&nearest, aliases[i].name);
    if (nearest.best != NULL)
        base_diag_add(diag, "%s: %s%s%.*s: unknown key; did you mean %s?", origin,
                      section != NULL ? section : "", dot, MAX_SHOWN, name, nearest.best);
    else
        base_diag_add(diag, "%s: %s%s%.*s: unknown key; `mbsim keys` lists what there is", origin,
                      section != NULL ? section : "", dot, MAX_SHOWN, name);
}

bool sim_key_resolve_name(const char *section, const char *name, const char *value,
                          const char *origin, const sim_key_t **key_p, const char **value_p,
                          base_diag_t *diag)
{
    char normal[MAX_NAME];
    normal_name(normal, name);
    *key_p = find_key(section, normal);
    *value_p = value;
    if (*key_p != NULL)
        return true;
    const sim_key_alias_t *alias = find_alias(normal);
    if (alias != NULL) {
        const sim_key_t *key = find_key(NULL, alias->key);
        bool on;
        if (alias->if_true != NULL || alias->if_false != NULL) {
            if (!sim_bool_parse(value, &on)) {
                base_diag_add(diag, "%s: %s.%s: '%.*s' is not valid: must be true or false", origin,
                              key->section, normal, MAX_SHOWN, value);
                return false;
            }
            *value_p = on ? alias->if_true : alias->if_false;
        }
        *key_p = *value_p != NULL ? key : NULL;
        return true;
    }
    const sim_key_refused_t *refused = find_refused(normal);
    if (refused == NULL) {
        unknown_key(section, normal, origin, diag);
        return false;
    }
    if (strcmp(refused->neutral, "*") == 0 || has_word(refused->neutral, value))
        return true;
    base_diag_add(diag, "%s: %s%s%s: %s", origin, section != NULL ? section : "",
                  section != NULL ? "." : "", normal,
                  refused->why != NULL ? refused->why : "known to Megatron-LM but not simulated");
    return false;
}

/* Give key `k` a value; `how` SET or SUGGESTED. */
static bool assign(sim_scenario_t *scenario, const sim_key_t *key, const char *value,
                   sim_key_how_t how, const char *origin, base_diag_t *diag)
{
    size_t n;
    size_t k = (size_t)(key - sim_keys(&n));
    sim_key_entry_t *entry = &scenario->state->entries[k];
    if (how == SIM_KEY_SUGGESTED && (entry->how == SIM_KEY_GIVEN || entry->how == SIM_KEY_WRONG))
        return true;
    bool ok = sim_key_parse(key, value, origin, field_of(scenario, key), diag);
    char *copy = base_xstrdup(origin);
    free(entry->origin);
    *entry = (sim_key_entry_t){ .how = ok ? how : SIM_KEY_WRONG, .origin = copy };
    return ok;
}

/* A file named in the scenario file is found beside it. */
static char *path_beside(const sim_scenario_t *scenario, const char *path, const char *origin)
{
    const char *name = scenario->state->name;
    const char *slash = name != NULL ? strrchr(name, '/') : NULL;
    if (path[0] == '/' || slash == NULL || strncmp(origin, name, strlen(name)) != 0)
        return base_xstrdup(path);
    return base_xasprintf("%.*s/%s", (int)(slash - name), name, path);
}

/* Take back what an earlier model description suggested, and apply the one of `key`. */
static bool apply_description(sim_scenario_t *scenario, const sim_key_t *key, const char *origin,
                              base_diag_t *diag)
{
    size_t n;
    sim_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (scenario->state->entries[i].how == SIM_KEY_SUGGESTED)
            sim_key_reset(scenario, i);
    }
    const char *value = *(char *const *)field_of(scenario, key);
    if (value == NULL)
        return true;
    bool ok;
    if (key->offset == offsetof(sim_scenario_t, preset)) {
        ok = sim_preset_apply(scenario, value, origin, diag);
    } else {
        char *path = path_beside(scenario, value, origin);
        ok = sim_hf_config_apply(scenario, path, origin, diag);
        free(path);
    }
    if (!ok)
        scenario->state->entries[key - sim_keys(&n)].how = SIM_KEY_WRONG;
    return ok;
}

bool sim_scenario_set(sim_scenario_t *scenario, const char *section, const char *key,
                      const char *value, const char *origin, base_diag_t *diag)
{
    const sim_key_t *found;
    if (!sim_key_resolve_name(section, key, value, origin, &found, &value, diag))
        return false;
    if (found == NULL)
        return true;
    if (!assign(scenario, found, value, SIM_KEY_GIVEN, origin, diag))
        return false;
    bool describes = found->offset == offsetof(sim_scenario_t, preset) ||
                     found->offset == offsetof(sim_scenario_t, hf_config);
    return !describes || apply_description(scenario, found, origin, diag);
}

bool sim_scenario_suggest(sim_scenario_t *scenario, const char *key, const char *value,
                          const char *origin, base_diag_t *diag)
{
    const sim_key_t *found;
    if (!sim_key_resolve_name(NULL, key, value, origin, &found, &value, diag))
        return false;
    return found == NULL || assign(scenario, found, value, SIM_KEY_SUGGESTED, origin, diag);
}

bool sim_scenario_set_text(sim_scenario_t *scenario, const char *assignment, const char *origin,
                           base_diag_t *diag)
{
    const char *equals = strchr(assignment, '=');
    if (equals == NULL || equals == assignment) {
        base_diag_add(diag, "%s: '%.*s' is not of the form section.key=value", origin, MAX_SHOWN,
                      assignment);
        return false;
    }
    char *name = base_xasprintf("%.*s", (int)(equals - assignment), assignment);
    char *dot = strchr(name, '.');
    const char *section = NULL, *key = name;
    if (dot != NULL) {
        *dot = '\0';
        section = name;
        key = dot + 1;
    }
    bool ok;
    if (section != NULL && !sim_section_is_known(section)) {
        sim_section_unknown(section, origin, diag);
        ok = false;
    } else {
        ok = sim_scenario_set(scenario, section, key, equals + 1, origin, diag);
    }
    free(name);
    return ok;
}

void sim_section_unknown(const char *section, const char *origin, base_diag_t *diag)
{
    if (strcmp(section, "sweep") == 0) { /* a file's section of that name does not come here */
        base_diag_add(diag, "%s: [sweep]: only a scenario file has this section", origin);
        return;
    }
    base_nearest_t nearest;
    base_nearest_init(&nearest, section);
    for (const char *const *s = sim_sections; *s != NULL; s++)
        base_nearest_offer(&nearest, *s);
    base_nearest_offer(&nearest, "sweep");
    if (nearest.best != NULL)
        base_diag_add(diag, "%s: [%.*s]: unknown section; did you mean [%s]?", origin, MAX_SHOWN,
                      section, nearest.best);
    else
        base_diag_add(diag, "%s: [%.*s]: unknown section; `mbsim keys` lists what there is", origin,
                      MAX_SHOWN, section);
}

const char *sim_scenario_origin(const sim_scenario_t *scenario, const char *key)
{
    return scenario->state->entries[sim_key_index(key)].origin;
}

char *sim_scenario_text(const sim_scenario_t *scenario)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    char *text;
    size_t length;
    const char *section = "";
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < n; i++) {
        char *value = sim_key_format(&keys[i], const_field_of(scenario, &keys[i]));
        if (value == NULL)
            continue;
        if (strcmp(section, keys[i].section) != 0)
            fprintf(out, "[%s]\n", keys[i].section);
        section = keys[i].section;
        /* What was read from there follows; the reader of this text need not have the file. */
        bool comment = keys[i].offset == offsetof(sim_scenario_t, hf_config);
        fprintf(out, "%s%s = %s\n", comment ? "; " : "", keys[i].name, value);
        free(value);
    }
    fclose(out);
    return text;
}

/* Whether the key has to stand in sim_scenario_given_text(). */
static bool is_worth_saying(const sim_scenario_t *scenario, size_t k)
{
    sim_key_how_t how = scenario->state->entries[k].how;
    return how == SIM_KEY_GIVEN || (how == SIM_KEY_SUGGESTED && scenario->hf_config != NULL);
}

/* The value as given, not what resolving made of it. */
static char *given_value(const sim_scenario_t *scenario, size_t k)
{
    size_t n;
    const sim_key_t *key = &sim_keys(&n)[k];
    const sim_key_entry_t *entry = &scenario->state->entries[k];
    const void *field = const_field_of(scenario, key);
    return sim_key_format(key, entry->overruled ? entry->given : field);
}

static void print_sweep(const sim_scenario_t *scenario, FILE *out)
{
    if (scenario->n_sweep > 0 || scenario->sweep_tokens_per_batch > 0)
        fputs("[sweep]\n", out);
    if (scenario->sweep_tokens_per_batch > 0)
        fprintf(out, "tokens_per_batch = %" PRIu64 "\n", scenario->sweep_tokens_per_batch);
    for (size_t i = 0; i < scenario->n_sweep; i++) {
        const sim_sweep_axis_t *axis = &scenario->sweep[i];
        fprintf(out, "%s =", axis->key);
        for (size_t v = 0; v < axis->n_values; v++)
            fprintf(out, " %s", axis->values[v]);
        fputc('\n', out);
    }
}

char *sim_scenario_given_text(const sim_scenario_t *scenario)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    char *text;
    size_t length;
    const char *section = "";
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < n; i++) {
        if (!is_worth_saying(scenario, i) || keys[i].offset == offsetof(sim_scenario_t, hf_config))
            continue;
        char *value = given_value(scenario, i);
        if (value == NULL)
            continue;
        if (strcmp(section, keys[i].section) != 0)
            fprintf(out, "[%s]\n", keys[i].section);
        section = keys[i].section;
        fprintf(out, "%s = %s\n", keys[i].name, value);
        free(value);
    }
    print_sweep(scenario, out);
    fclose(out);
    return text;
}

uint64_t sim_dtype_bytes(sim_dtype_t dtype)
{
    static const uint64_t bytes[SIM_N_DTYPES] = {
        [SIM_DTYPE_FP32] = 4, [SIM_DTYPE_BF16] = 2, [SIM_DTYPE_FP16] = 2, [SIM_DTYPE_FP8] = 1
    };
    return bytes[dtype];
}

sim_dtype_t sim_scenario_params_dtype(const sim_scenario_t *scenario)
{
    return scenario->bf16 ? SIM_DTYPE_BF16 : scenario->fp16 ? SIM_DTYPE_FP16 : SIM_DTYPE_FP32;
}
