/* SPDX-License-Identifier: Apache-2.0
 * The model_config.yaml of Megatron-LM's functional tests: MODEL_ARGS maps "--name" to a value,
 * true stands for a flag; ENV_VARS maps variables to values. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/scenario/import.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* How deep and how often a merge key ("<<: *base") is followed; anchors can multiply without end.
 */
enum { MAX_MERGE_DEPTH = 8, MAX_MERGES = 1000 };

typedef struct {
    yaml_document_t *doc;
    const char *name;
    sim_import_t *import;
    bool is_env;
    int n_merges;
} walk_t;

static const char *scalar(const yaml_node_t *node)
{
    return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value
                                                          : NULL;
}

static char *sequence_text(yaml_document_t *doc, const yaml_node_t *node)
{
    char *text = base_xstrdup("");
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top;
         i++) {
        const char *item = scalar(yaml_document_get_node(doc, *i));
        char *longer = base_xasprintf("%s%s%s", text, *text != '\0' ? " " : "", item ? item : "");
        free(text);
        text = longer;
    }
    return text;
}

static void add_entry(const walk_t *walk, const yaml_node_t *key, const yaml_node_t *value)
{
    const char *name = scalar(key);
    char *origin = base_xasprintf("%s:%zu", walk->name, key->start_mark.line + 1);
    if (name == NULL) {
        base_diag_add(&walk->import->errors, "%s: a name was expected", origin);
    } else if (value->type == YAML_MAPPING_NODE) {
        base_diag_add(&walk->import->errors, "%s: %s: a value was expected, not a mapping", origin,
                      name);
    } else {
        char *text = value->type == YAML_SEQUENCE_NODE ? sequence_text(walk->doc, value)
                                                       : base_xstrdup(scalar(value));
        if (walk->is_env)
            sim_import_set_env(walk->import, name, text);
        else
            sim_import_add(walk->import, name + strspn(name, "-"), text, origin);
        free(text);
    }
    free(origin);
}

/* Merged mappings come first, so that a mapping's own entries win. */
static void walk_mapping(walk_t *walk, const yaml_node_t *node, int depth)
{
    for (int own = 0; own <= 1; own++) {
        for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top;
             p++) {
            const yaml_node_t *key = yaml_document_get_node(walk->doc, p->key);
            const yaml_node_t *value = yaml_document_get_node(walk->doc, p->value);
            bool merge = scalar(key) != NULL && strcmp(scalar(key), "<<") == 0;
            if (!merge && own)
                add_entry(walk, key, value);
            else if (merge && !own && value->type == YAML_MAPPING_NODE && depth < MAX_MERGE_DEPTH &&
                     walk->n_merges++ < MAX_MERGES)
                walk_mapping(walk, value, depth + 1);
        }
    }
}

static base_status_t walk_document(sim_import_t *import, const char *name, yaml_document_t *doc,
                                   base_err_t *err)
{
    const yaml_node_t *root = yaml_document_get_root_node(doc);
    bool found = false;
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return base_err_set(err, BASE_ERR_PARSE, "%s: a mapping with MODEL_ARGS was expected",
                            name);
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top;
         p++) {
        const char *key = scalar(yaml_document_get_node(doc, p->key));
        const yaml_node_t *value = yaml_document_get_node(doc, p->value);
        if (key == NULL || value->type != YAML_MAPPING_NODE)
            continue;
        walk_t walk = { doc, name, import, strcmp(key, "ENV_VARS") == 0, 0 };
        if (strcmp(key, "MODEL_ARGS") == 0)
            found = true;
        else if (!walk.is_env)
            continue;
        walk_mapping(&walk, value, 0);
    }
    if (!found)
        return base_err_set(err, BASE_ERR_PARSE, "%s: has no mapping MODEL_ARGS", name);
    return BASE_OK;
}

base_status_t sim_import_yaml(sim_import_t *import, const char *name, const char *text,
                              size_t length, base_err_t *err)
{
    yaml_parser_t parser;
    yaml_document_t doc;
    base_status_t status;
    if (!yaml_parser_initialize(&parser))
        return base_err_set(err, BASE_ERR_PARSE, "%s: the YAML parser cannot start", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (!yaml_parser_load(&parser, &doc)) {
        status = base_err_set(err, BASE_ERR_PARSE, "%s:%zu: not valid YAML: %s", name,
                              parser.problem_mark.line + 1,
                              parser.problem != NULL ? parser.problem : "unknown problem");
    } else {
        status = walk_document(import, name, &doc, err);
        yaml_document_delete(&doc);
    }
    yaml_parser_delete(&parser);
    return status;
}
