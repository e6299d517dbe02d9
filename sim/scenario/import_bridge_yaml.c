/* SPDX-License-Identifier: Apache-2.0
 * Megatron-Bridge's configuration as YAML: groups of settings, as ConfigContainer.to_yaml() writes
 * them (with _target_ naming the classes) or as a user writes the few that differ from a recipe. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/scenario/import.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* Aliases can multiply without end. */
enum { MAX_DEPTH = 8, MAX_VALUES = 20000 };

typedef struct {
    yaml_document_t *doc;
    const char *name;
    sim_import_t *import;
    int n_values;
} walk_t;

static const char *scalar(const yaml_node_t *node)
{
    return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value
                                                          : NULL;
}

static yaml_node_t *entry(const walk_t *walk, const yaml_node_t *mapping, const char *name)
{
    for (yaml_node_pair_t *p = mapping->data.mapping.pairs.start;
         p < mapping->data.mapping.pairs.top; p++) {
        const char *key = scalar(yaml_document_get_node(walk->doc, p->key));
        if (key != NULL && strcmp(key, name) == 0)
            return yaml_document_get_node(walk->doc, p->value);
    }
    return NULL;
}

/* "[a, b]", nested as it is. */
static char *list_text(walk_t *walk, const yaml_node_t *node, int depth)
{
    char *text = base_xstrdup("[");
    for (yaml_node_item_t *i = node->data.sequence.items.start;
         i < node->data.sequence.items.top && walk->n_values++ < MAX_VALUES; i++) {
        yaml_node_t *item = yaml_document_get_node(walk->doc, *i);
        char *inner = item->type == YAML_SEQUENCE_NODE && depth < MAX_DEPTH
                          ? list_text(walk, item, depth + 1)
                          : base_xstrdup(scalar(item) != NULL ? scalar(item) : "?");
        char *longer = base_xasprintf("%s%s%s", text, text[1] != '\0' ? ", " : "", inner);
        free(inner);
        free(text);
        text = longer;
    }
    char *closed = base_xasprintf("%s]", text);
    free(text);
    return closed;
}

/* "_target_: X, _args_: [5]" and "_target_: X, _call_: false" stand for one value: "X:5", "X". */
static char *object_text(walk_t *walk, const yaml_node_t *node)
{
    const char *target = scalar(entry(walk, node, "_target_"));
    const char *call = scalar(entry(walk, node, "_call_"));
    const yaml_node_t *args = entry(walk, node, "_args_");
    if (target == NULL)
        return NULL;
    if (args != NULL && args->type == YAML_SEQUENCE_NODE) {
        char *list = list_text(walk, args, 0);
        char *text = base_xasprintf("%s:%.*s", target, (int)strlen(list) - 2, list + 1);
        free(list);
        return text;
    }
    return call != NULL && strcmp(call, "false") == 0 ? base_xstrdup(target) : NULL;
}

static void walk_mapping(walk_t *walk, const yaml_node_t *node, const char *path, int depth);

static void add_value(walk_t *walk, const char *path, const yaml_node_t *node, int depth)
{
    char *text = node->type == YAML_MAPPING_NODE    ? object_text(walk, node)
                 : node->type == YAML_SEQUENCE_NODE ? list_text(walk, node, 0)
                                                    : base_xstrdup(scalar(node));
    if (text == NULL) {
        if (depth < MAX_DEPTH)
            walk_mapping(walk, node, path, depth + 1);
        return;
    }
    char *origin = base_xasprintf("%s:%zu", walk->name, node->start_mark.line + 1);
    sim_import_add_field(walk->import, path, text, origin);
    free(origin);
    free(text);
}

static void walk_mapping(walk_t *walk, const yaml_node_t *node, const char *path, int depth)
{
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start;
         p < node->data.mapping.pairs.top && walk->n_values++ < MAX_VALUES; p++) {
        const char *key = scalar(yaml_document_get_node(walk->doc, p->key));
        if (key == NULL || (strcmp(key, "_target_") == 0 && depth == 0))
            continue;
        char *longer = base_xasprintf("%s%s%s", path, *path != '\0' ? "." : "", key);
        add_value(walk, longer, yaml_document_get_node(walk->doc, p->value), depth);
        free(longer);
    }
}

base_status_t sim_import_bridge_yaml(sim_import_t *import, const char *name, const char *text,
                                     size_t length, base_err_t *err)
{
    yaml_parser_t parser;
    yaml_document_t doc;
    if (!yaml_parser_initialize(&parser))
        return base_err_set(err, BASE_ERR_PARSE, "%s: the YAML parser cannot start", name);
    base_status_t status = BASE_OK;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (!yaml_parser_load(&parser, &doc)) {
        status = base_err_set(err, BASE_ERR_PARSE, "%s:%zu: not valid YAML: %s", name,
                              parser.problem_mark.line + 1,
                              parser.problem != NULL ? parser.problem : "unknown problem");
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&doc);
        walk_t walk = { &doc, name, import, 0 };
        if (root == NULL || root->type != YAML_MAPPING_NODE)
            status = base_err_set(err, BASE_ERR_PARSE,
                                  "%s: groups of Megatron-Bridge settings were expected, such as "
                                  "\"model:\" and \"train:\"",
                                  name);
        else
            walk_mapping(&walk, root, "", 0);
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&parser);
    return status;
}
