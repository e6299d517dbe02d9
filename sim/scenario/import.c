/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/import.h"

#include "sim/base/nearest.h"
#include "sim/base/xmem.h"
#include "sim/scenario/keys.h"
#include "sim/scenario/shell_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENV = 1000 };

void sim_import_init(sim_import_t *import)
{
    memset(import, 0, sizeof(*import));
    base_diag_init(&import->errors);
    base_diag_init(&import->unsupported);
    base_diag_init(&import->unsupported_names);
    base_diag_init(&import->warnings);
    base_diag_init(&import->ignored);
}

static void free_keys(sim_import_key_t *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(keys[i].section);
        free(keys[i].key);
        free(keys[i].value);
        free(keys[i].origin);
    }
    free(keys);
}

void sim_import_fini(sim_import_t *import)
{
    for (size_t i = 0; i < import->n_args; i++) {
        free(import->args[i].value);
        free(import->args[i].origin);
    }
    for (size_t i = 0; i < import->n_env; i++) {
        free(import->env[i].name);
        free(import->env[i].value);
    }
    for (size_t i = 0; i < import->n_fields; i++) {
        free(import->fields[i].path);
        free(import->fields[i].value);
        free(import->fields[i].origin);
    }
    free(import->fields);
    free(import->recipe);
    free_keys(import->overrides, import->n_overrides);
    free_keys(import->keys, import->n_keys);
    free(import->args);
    free(import->env);
    free(import->world_size_origin);
    base_diag_fini(&import->errors);
    base_diag_fini(&import->unsupported);
    base_diag_fini(&import->unsupported_names);
    base_diag_fini(&import->warnings);
    base_diag_fini(&import->ignored);
}

static sim_import_arg_t *find_arg(const sim_import_t *import, const char *name)
{
    for (size_t i = 0; i < import->n_args; i++)
        if (strcmp(import->args[i].arg.name, name) == 0)
            return &import->args[i];
    return NULL;
}

static void remove_arg(sim_import_t *import, const char *name)
{
    sim_import_arg_t *a = find_arg(import, name);
    if (a == NULL)
        return;
    free(a->value);
    free(a->origin);
    *a = import->args[--import->n_args];
}

static void store(sim_import_t *import, const sim_arg_t *arg, const char *value, const char *origin)
{
    sim_import_arg_t *a = find_arg(import, arg->name);
    if (a == NULL) {
        import->args = base_xrealloc(import->args, import->n_args + 1, sizeof(*import->args));
        a = &import->args[import->n_args++];
        memset(a, 0, sizeof(*a));
        a->arg = *arg;
    }
    free(a->value);
    free(a->origin);
    a->value = base_xstrdup(value);
    a->origin = base_xstrdup(origin);
}

typedef struct {
    base_nearest_t nearest;
    char best[SIM_ARG_NAME];
} suggestion_t;

static void offer_nearest(const sim_arg_t *arg, void *ctx)
{
    suggestion_t *suggestion = ctx;
    base_nearest_offer(&suggestion->nearest, arg->name);
    if (suggestion->nearest.best == arg->name) { /* `arg` does not outlive this call */
        snprintf(suggestion->best, sizeof(suggestion->best), "%s", arg->name);
        suggestion->nearest.best = suggestion->best;
    }
}

static void report_unknown(sim_import_t *import, const char *name, const char *origin)
{
    suggestion_t suggestion = { 0 };
    char wanted[SIM_ARG_NAME];
    if (base_diag_is_full(&import->errors)) {
        base_diag_add(&import->errors, "%s", name);
        return;
    }
    snprintf(wanted, sizeof(wanted), "%s", name);
    for (char *s = wanted; *s != '\0'; s++)
        if (*s == '_')
            *s = '-';
    base_nearest_init(&suggestion.nearest, wanted);
    sim_megatron_arg_foreach(offer_nearest, &suggestion);
    bool found = suggestion.nearest.best != NULL;
    base_diag_add(&import->errors,
                  "%s: --%s: not an argument of Megatron-LM that is known here%s%s%s", origin, name,
                  found ? "; did you mean --" : "", suggestion.best, found ? "?" : "");
}

static bool means_absent(const char *value)
{
    return strcmp(value, "false") == 0 || strcmp(value, "False") == 0 ||
           strcmp(value, "None") == 0 || strcmp(value, "null") == 0;
}

static bool means_true(const char *value)
{
    return strcmp(value, "true") == 0 || strcmp(value, "True") == 0;
}

/* "[a, 'b']" and "a b" become "a b": how YAML and the dump write lists. */
static char *list_items(const char *value)
{
    char *out = base_xcalloc(strlen(value) + 1, 1);
    size_t n = 0;
    bool gap = false;
    for (const char *s = value; *s != '\0'; s++) {
        if (strchr("[]'\", \t", *s) != NULL) {
            gap = n > 0;
            continue;
        }
        if (gap)
            out[n++] = ' ';
        gap = false;
        out[n++] = *s;
    }
    return out;
}

/* Only running the script would tell the value. True when that matters and was reported. */
static bool report_unknown_value(sim_import_t *import, const sim_arg_t *arg, const char *value,
                                 const char *origin)
{
    const char *start = value != NULL ? strchr(value, SHELL_UNKNOWN) : NULL;
    if (start == NULL || arg->class_ == SIM_ARG_NO_EFFECT)
        return false;
    base_diag_add(&import->errors, "%s: --%s: the text does not say what %.*s is", origin,
                  arg->name, (int)strcspn(start + 1, "\2"), start + 1);
    return true;
}

static void add_known(sim_import_t *import, const sim_arg_t *arg, const char *value,
                      const char *origin)
{
    if (report_unknown_value(import, arg, value, origin))
        return;
    if (arg->arity == SIM_ARITY_FLAG) {
        if (value == NULL || means_true(value) || strcmp(value, "") == 0)
            store(import, arg, "true", origin);
        else if (means_absent(value))
            remove_arg(import, arg->name);
        else
            base_diag_add(&import->errors, "%s: --%s takes no value, but \"%s\" follows it", origin,
                          arg->name, value);
        return;
    }
    if (value == NULL) {
        base_diag_add(&import->errors, "%s: --%s needs a value", origin, arg->name);
    } else if (means_absent(value) || *value == '\0') {
        remove_arg(import, arg->name);
    } else if (arg->arity == SIM_ARITY_LIST && arg->class_ != SIM_ARG_NO_EFFECT) {
        char *items = list_items(value);
        store(import, arg, items, origin);
        free(items);
    } else {
        store(import, arg, value, origin);
    }
}

void sim_import_add(sim_import_t *import, const char *name, const char *value, const char *origin)
{
    sim_arg_t arg;
    if (!sim_megatron_arg_find(name, &arg))
        report_unknown(import, name, origin);
    else
        add_known(import, &arg, value, origin);
}

void sim_import_add_attribute(sim_import_t *import, const char *attribute, const char *value,
                              const char *origin)
{
    sim_arg_t arg;
    if (strcmp(attribute, "world_size") == 0) {
        sim_import_set_world_size(import, strtoull(value, NULL, 10), origin);
        return;
    }
    if (!sim_megatron_arg_find_attribute(attribute, &arg)) {
        if (!sim_megatron_attribute_is_derived(attribute) && !means_absent(value))
            base_diag_add(&import->warnings, "%s: %s = %s: not known here, ignored", origin,
                          attribute, value);
        return;
    }
    if (!arg.negated)
        add_known(import, &arg, value, origin);
    else if (means_absent(value))
        add_known(import, &arg, "true", origin);
}

/* A word that is nothing but an unset variable: the shell would drop it. */
static bool is_dropped(sim_import_t *import, const char *word, const char *origin)
{
    if (word[0] != SHELL_UNKNOWN || word[strlen(word) - 1] != SHELL_UNKNOWN_END)
        return false;
    base_diag_add(&import->warnings, "%s: the text does not say what %.*s is; taken as empty",
                  origin, (int)strcspn(word + 1, "\2"), word + 1);
    return true;
}

static bool is_option(const char *word)
{
    return strncmp(word, "--", 2) == 0 && word[2] != '\0' && word[2] != '-';
}

static char *join_words(char *const *words, size_t n)
{
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "%s%s", i > 0 ? " " : "", words[i]);
    fclose(out);
    return text;
}

/* argparse takes everything up to the next option; a list joins it, a value takes the first. */
static size_t add_option(sim_import_t *import, char *const *words, char *const *origins, size_t n)
{
    char name[SIM_ARG_NAME + 8];
    const char *equals = strchr(words[0], '=');
    size_t length = equals != NULL ? (size_t)(equals - words[0]) : strlen(words[0]);
    sim_arg_t arg;
    snprintf(name, sizeof(name), "%.*s", (int)(length - 2), words[0] + 2);
    size_t used = 1;
    while (used < n && !is_option(words[used]))
        used++;
    if (!sim_megatron_arg_find(name, &arg)) {
        report_unknown(import, name, origins[0]);
        return used;
    }
    if (equals != NULL) {
        add_known(import, &arg, equals + 1, origins[0]);
        return used;
    }
    if (arg.arity == SIM_ARITY_LIST) {
        char *list = join_words(words + 1, used - 1);
        add_known(import, &arg, list, origins[0]);
        free(list);
    } else if (arg.arity == SIM_ARITY_FLAG) {
        add_known(import, &arg, NULL, origins[0]);
        if (used > 1 && !is_dropped(import, words[1], origins[1]))
            base_diag_add(&import->errors, "%s: --%s takes no value, but \"%s\" follows it",
                          origins[0], arg.name, words[1]);
    } else {
        add_known(import, &arg, used > 1 ? words[1] : NULL, origins[0]);
        if (used > 2 && arg.class_ != SIM_ARG_NO_EFFECT &&
            !is_dropped(import, words[2], origins[2]))
            base_diag_add(&import->errors, "%s: --%s takes one value, but \"%s\" follows as well",
                          origins[0], arg.name, words[2]);
    }
    return used;
}

void sim_import_add_words(sim_import_t *import, char *const *words, char *const *origins, size_t n)
{
    for (size_t i = 0; i < n;) {
        if (is_option(words[i])) {
            i += add_option(import, &words[i], &origins[i], n - i);
        } else {
            if (!is_dropped(import, words[i], origins[i]))
                base_diag_add(&import->errors, "%s: \"%s\" belongs to no argument", origins[i],
                              words[i]);
            i++;
        }
    }
}

void sim_import_set_env(sim_import_t *import, const char *name, const char *value)
{
    if (import->n_env == MAX_ENV) {
        base_diag_add(&import->errors, "%s: more than %d environment variables", name, MAX_ENV);
        return;
    }
    for (size_t i = 0; i < import->n_env; i++) {
        if (strcmp(import->env[i].name, name) == 0) {
            free(import->env[i].value);
            import->env[i].value = base_xstrdup(value);
            return;
        }
    }
    import->env = base_xrealloc(import->env, import->n_env + 1, sizeof(*import->env));
    import->env[import->n_env++] = (sim_import_env_t){ base_xstrdup(name), base_xstrdup(value) };
}

const char *sim_import_env(const sim_import_t *import, const char *name)
{
    for (size_t i = 0; i < import->n_env; i++)
        if (strcmp(import->env[i].name, name) == 0)
            return import->env[i].value;
    return NULL;
}

void sim_import_set_world_size(sim_import_t *import, uint64_t world_size, const char *origin)
{
    import->world_size = world_size;
    free(import->world_size_origin);
    import->world_size_origin = base_xstrdup(origin);
}

static void put_key(sim_import_key_t **keys_p, size_t *n_p, const char *section, const char *key,
                    const char *value, const char *origin)
{
    sim_import_key_t *k = NULL;
    for (size_t i = 0; i < *n_p && k == NULL; i++)
        if (strcmp((*keys_p)[i].section, section) == 0 && strcmp((*keys_p)[i].key, key) == 0)
            k = &(*keys_p)[i];
    if (k == NULL) {
        *keys_p = base_xrealloc(*keys_p, *n_p + 1, sizeof(**keys_p));
        k = &(*keys_p)[(*n_p)++];
        *k = (sim_import_key_t){ base_xstrdup(section), base_xstrdup(key), NULL, NULL };
    }
    free(k->value);
    free(k->origin);
    k->value = base_xstrdup(value);
    k->origin = base_xstrdup(origin);
}

void sim_import_put_key(sim_import_t *import, const char *section, const char *key,
                        const char *value, const char *origin)
{
    put_key(&import->keys, &import->n_keys, section, key, value, origin);
}

void sim_import_override(sim_import_t *import, const char *section, const char *key,
                         const char *value, const char *origin)
{
    put_key(&import->overrides, &import->n_overrides, section, key, value, origin);
}

const char *sim_import_key_value(const sim_import_t *import, const char *section, const char *key)
{
    for (size_t i = 0; i < import->n_keys; i++)
        if (strcmp(import->keys[i].section, section) == 0 && strcmp(import->keys[i].key, key) == 0)
            return import->keys[i].value;
    return NULL;
}

bool sim_import_format_parse(const char *name, sim_import_format_t *format_p)
{
    static const char *const names[] = {
        [SIM_IMPORT_AUTO] = "auto",     [SIM_IMPORT_ARGUMENTS] = "shell",
        [SIM_IMPORT_DUMP] = "dump",     [SIM_IMPORT_CI_YAML] = "ci-yaml",
        [SIM_IMPORT_BRIDGE] = "bridge", [SIM_IMPORT_BRIDGE_YAML] = "bridge-yaml",
        [SIM_IMPORT_HF] = "hf",         [SIM_IMPORT_TITAN] = "torchtitan",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            *format_p = (sim_import_format_t)i;
            return true;
        }
    }
    return false;
}

/* One of the groups of Megatron-Bridge's configuration, as a mapping at the top of a YAML file. */
static bool is_bridge_yaml(const char *text)
{
    static const char *const groups[] = { "model:",   "train:",     "ddp:",  "mixed_precision:",
                                          "dataset:", "optimizer:", "peft:", "comm_overlap:" };
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
            if (strncmp(line, groups[i], strlen(groups[i])) == 0)
                return true;
    }
    return false;
}

static sim_import_format_t recognise(const char *text)
{
    if (text[strspn(text, " \t\r\n")] == '{')
        return SIM_IMPORT_HF;
    if (strstr(text, "MODEL_ARGS:") != NULL)
        return SIM_IMPORT_CI_YAML;
    if (strstr(text, " ...") != NULL && strstr(text, "hidden_size ..") != NULL)
        return SIM_IMPORT_DUMP;
    return is_bridge_yaml(text) ? SIM_IMPORT_BRIDGE_YAML : SIM_IMPORT_ARGUMENTS;
}

base_status_t sim_import_text(sim_import_t *import, sim_import_format_t format, const char *name,
                              const char *text, size_t length, base_err_t *err)
{
    if (strlen(text) != length)
        return base_err_set(err, BASE_ERR_PARSE, "%s: contains a NUL byte: not a text file", name);
    if (text[strspn(text, " \t\r\n")] == '\0')
        return base_err_set(err, BASE_ERR_PARSE, "%s: is empty", name);
    import->format = format;
    bool decided = format != SIM_IMPORT_AUTO;
    if (!decided)
        import->format = recognise(text);
    switch (import->format) {
    case SIM_IMPORT_HF:
        return sim_import_hf(import, name, text, length, err);
    case SIM_IMPORT_CI_YAML:
        return sim_import_yaml(import, name, text, length, err);
    case SIM_IMPORT_DUMP:
        return sim_import_dump(import, name, text, err);
    case SIM_IMPORT_BRIDGE_YAML:
        return sim_import_bridge_yaml(import, name, text, length, err);
    default:
        if (!decided)
            import->format = SIM_IMPORT_AUTO; /* the reader tells arguments from overrides */
        return sim_import_shell(import, name, text, err);
    }
}

static void append(char **text_p, const char *more)
{
    char *longer = base_xasprintf("%s%s", *text_p, more);
    free(*text_p);
    *text_p = longer;
}

static void append_messages(char **text_p, const base_diag_t *diag, const char *what)
{
    for (size_t i = 0; i < diag->n; i++) {
        char *line = base_xasprintf("; %s: %s\n", what, diag->text[i]);
        append(text_p, line);
        free(line);
    }
}

char *sim_import_write(const sim_import_t *import, const char *title)
{
    char *text = base_xasprintf("; Scenario made from %s\n", title);
    append_messages(&text, &import->unsupported, "NOT SIMULATED");
    append_messages(&text, &import->warnings, "note");
    for (const char *const *s = sim_sections; *s != NULL; s++) {
        bool open = false;
        for (size_t i = 0; i < import->n_keys; i++) {
            const sim_import_key_t *k = &import->keys[i];
            if (strcmp(k->section, *s) != 0)
                continue;
            if (!open)
                append(&text, "\n[");
            if (!open)
                append(&text, k->section);
            if (!open)
                append(&text, "]\n");
            open = true;
            char *line = base_xasprintf("; %s\n%s = %s\n", k->origin, k->key, k->value);
            append(&text, line);
            free(line);
        }
    }
    return text;
}
