/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/nearest.h"
#include "sim/base/xmem.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/options.h"
#include "sim/scenario/keys.h"
#include "sim/scenario/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 6, WIDTH = 98 };

static const sim_usage_t usage = {
    .command = "keys",
    .arguments = "[KEY]...",
    .about = "List every key that a scenario file or --set may give, with its default, what is\n"
             "allowed and what it means; with KEY, only those whose name contains it.",
    .groups = SIM_OPTIONS_LIST,
    .max_operands = 100,
};

static const char *const type_names[] = {
    [SIM_KEY_COUNT] = "count", [SIM_KEY_BYTES] = "bytes",   [SIM_KEY_BOOL] = "bool",
    [SIM_KEY_REAL] = "real",   [SIM_KEY_CHOICE] = "choice", [SIM_KEY_SET] = "set",
    [SIM_KEY_TEXT] = "text",
};

/* The default as it would be written; "" when the key must be given or has none. */
static const char *default_text(const sim_key_t *key)
{
    if (key->text == NULL)
        return "none";
    if (strcmp(key->text, "0") == 0 && key->none != NULL)
        return "none";
    return strcmp(key->text, "0") == 0 && key->min > 0 ? "" : key->text;
}

/* Words of `text` broken into indented lines. */
static void print_wrapped(const char *text)
{
    size_t column = WIDTH;
    for (const char *s = text; *s != '\0'; s += strspn(s, " ")) {
        size_t n = strcspn(s, " ");
        if (column + 1 + n > WIDTH) {
            printf("%s%*s", s == text ? "" : "\n", INDENT, "");
            column = INDENT;
        } else {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)n, s);
        column += n;
        s += n;
    }
    putchar('\n');
}

static void print_aliases(const sim_key_t *key)
{
    size_t n, length;
    char *text;
    const sim_key_alias_t *aliases = sim_key_aliases(&n);
    const char *separator = "also: ";
    FILE *out = open_memstream(&text, &length);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(aliases[i].key, key->name) != 0)
            continue;
        fprintf(out, "%s%s", separator, aliases[i].name);
        if (aliases[i].if_true != NULL)
            fprintf(out, " (true: %s)", aliases[i].if_true);
        separator = ", ";
    }
    fclose(out);
    if (*text != '\0')
        print_wrapped(text);
    free(text);
}

static void print_key(const sim_key_t *key)
{
    char *allowed = sim_key_allowed(key);
    const char *value = default_text(key);
    printf("  %s = %s\n", key->name, *value != '\0' ? value : "(required)");
    print_wrapped(key->doc);
    char *values = base_xasprintf("%s%s%s", allowed, key->unit != NULL ? " " : "",
                                  key->unit != NULL ? key->unit : "");
    print_wrapped(values);
    free(values);
    if (key->none != NULL) {
        char text[256];
        snprintf(text, sizeof(text), "none: %s", key->none);
        print_wrapped(text);
    }
    print_aliases(key);
    free(allowed);
}

static json_t *json_choices(const sim_key_t *key)
{
    json_t *list = json_array();
    for (const sim_choice_t *c = key->choices; c != NULL && c->name != NULL; c++) {
        if (c->value != SIM_CHOICE_NOT_SIMULATED)
            json_array_append_new(list, json_string(c->name));
    }
    return list;
}

static json_t *json_aliases(const sim_key_t *key)
{
    size_t n;
    const sim_key_alias_t *aliases = sim_key_aliases(&n);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        if (strcmp(aliases[i].key, key->name) == 0)
            json_array_append_new(list, json_string(aliases[i].name));
    }
    return list;
}

static json_t *json_key(const sim_key_t *key)
{
    char *allowed = sim_key_allowed(key);
    const char *value = default_text(key);
    json_t *row = json_pack("{s:s, s:s, s:s, s:s*, s:b, s:s, s:s*, s:s*, s:o, s:o, s:s}", "section",
                            key->section, "name", key->name, "type", type_names[key->type],
                            "default", *value != '\0' ? value : NULL, "required", *value == '\0',
                            "allowed", allowed, "unit", key->unit, "none", key->none, "choices",
                            json_choices(key), "aliases", json_aliases(key), "doc", key->doc);
    free(allowed);
    return row;
}

static bool is_wanted(const sim_key_t *key, const sim_options_t *options)
{
    for (size_t i = 0; i < options->n_operands; i++) {
        if (strstr(key->name, options->operands[i]) != NULL)
            return true;
    }
    return options->n_operands == 0;
}

/* 0, or 2 after a message when a KEY is in no name. */
static int check_wanted(const sim_options_t *options)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    for (size_t o = 0; o < options->n_operands; o++) {
        bool found = false;
        base_nearest_t nearest;
        base_nearest_init(&nearest, options->operands[o]);
        for (size_t i = 0; i < n; i++) {
            found = found || strstr(keys[i].name, options->operands[o]) != NULL;
            base_nearest_offer(&nearest, keys[i].name);
        }
        if (!found) {
            base_log(BASE_LOG_ERROR, "keys: no key is called '%.60s'%s%s", options->operands[o],
                     nearest.best != NULL ? "; did you mean " : "",
                     nearest.best != NULL ? nearest.best : "");
            return 2;
        }
    }
    return 0;
}

static int write_json(const sim_options_t *options)
{
    size_t n, n_rules;
    const sim_key_t *keys = sim_keys(&n);
    const sim_rule_t *rules = sim_rules(&n_rules);
    json_t *rows = json_array(), *texts = json_array();
    for (size_t i = 0; i < n; i++) {
        if (is_wanted(&keys[i], options))
            json_array_append_new(rows, json_key(&keys[i]));
    }
    for (size_t i = 0; i < n_rules; i++)
        json_array_append_new(texts, json_string(rules[i].text));
    return sim_cli_write_json(options->json, json_pack("{s:s, s:o, s:o}", "schema", "mbsim.keys/1",
                                                       "keys", rows, "rules", texts));
}

static void print_rules(void)
{
    size_t n;
    const sim_rule_t *rules = sim_rules(&n);
    printf("\nRules\n");
    for (size_t i = 0; i < n; i++)
        printf("  %s\n", rules[i].text);
}

static void print_text(const sim_options_t *options)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    const char *section = "";
    for (size_t i = 0; i < n; i++) {
        if (!is_wanted(&keys[i], options))
            continue;
        if (strcmp(section, keys[i].section) != 0)
            printf("%s[%s]\n", *section != '\0' ? "\n" : "", keys[i].section);
        section = keys[i].section;
        print_key(&keys[i]);
    }
    if (options->n_operands == 0)
        print_rules();
}

int sim_cmd_keys(int argc, char **argv)
{
    sim_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        code = check_wanted(&options);
        if (code == 0 && options.json != NULL)
            code = write_json(&options);
        else if (code == 0)
            print_text(&options);
    }
    sim_options_fini(&options);
    return code;
}
