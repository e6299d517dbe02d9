/* SPDX-License-Identifier: Apache-2.0
 * The model_config.yaml of Megatron-LM's functional tests: MODEL_ARGS maps "--name" to a value,
 * true stands for a flag; ENV_VARS maps variables to values. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/scenario/import.h"
#include "sim/scenario/yaml_tree.h"

#include <stdlib.h>
#include <string.h>

/* How deep a merge key is followed. */
enum { MAX_MERGE_DEPTH = 8 };

typedef struct {
    sim_yaml_t *yaml;
    const char *name;
    sim_import_t *import;
    bool is_env;
} walk_t;

static void add_entry(const walk_t *walk, const sim_yaml_node_t *key, const sim_yaml_node_t *value)
{
    const char *name = sim_yaml_text(key);
    char *origin = base_xasprintf("%s:%lu", walk->name, sim_yaml_line(key));
    if (name == NULL) {
        base_diag_add(&walk->import->errors, "%s: a name was expected", origin);
    } else if (sim_yaml_kind(value) == SIM_YAML_MAPPING) {
        base_diag_add(&walk->import->errors, "%s: %s: a value was expected, not a mapping", origin,
                      name);
    } else {
        char *text = sim_yaml_kind(value) == SIM_YAML_SEQUENCE
                         ? sim_yaml_join(walk->yaml, value, " ", 0)
                         : base_xstrdup(sim_yaml_text(value));
        if (walk->is_env)
            sim_import_set_env(walk->import, name, text);
        else
            sim_import_add(walk->import, name + strspn(name, "-"), text, origin);
        free(text);
    }
    free(origin);
}

static size_t length_of(const sim_yaml_node_t *node)
{
    const char *text = sim_yaml_text(node);
    return text != NULL ? strlen(text) : 0;
}

/* Merged mappings ("<<: *base") come first, so that a mapping's own entries win. */
static void walk_mapping(walk_t *walk, const sim_yaml_node_t *node, int depth)
{
    for (int own = 0; own <= 1; own++) {
        for (size_t i = 0; i < sim_yaml_size(node); i++) {
            const sim_yaml_node_t *key = sim_yaml_key(walk->yaml, node, i);
            const sim_yaml_node_t *value = sim_yaml_value(walk->yaml, node, i);
            bool merge = sim_yaml_text(key) != NULL && strcmp(sim_yaml_text(key), "<<") == 0;
            if (merge != own && !sim_yaml_take(walk->yaml, length_of(key) + length_of(value)))
                return;
            if (!merge && own)
                add_entry(walk, key, value);
            else if (merge && !own && sim_yaml_kind(value) == SIM_YAML_MAPPING &&
                     depth < MAX_MERGE_DEPTH)
                walk_mapping(walk, value, depth + 1);
        }
    }
}

static base_status_t walk_document(sim_import_t *import, const char *name, sim_yaml_t *yaml,
                                   base_err_t *err)
{
    const sim_yaml_node_t *root = sim_yaml_root(yaml);
    bool found = false;
    if (root == NULL || sim_yaml_kind(root) != SIM_YAML_MAPPING)
        return base_err_set(err, BASE_ERR_PARSE, "%s: a mapping with MODEL_ARGS was expected",
                            name);
    for (size_t i = 0; i < sim_yaml_size(root); i++) {
        const char *key = sim_yaml_text(sim_yaml_key(yaml, root, i));
        const sim_yaml_node_t *value = sim_yaml_value(yaml, root, i);
        if (key == NULL || sim_yaml_kind(value) != SIM_YAML_MAPPING)
            continue;
        walk_t walk = { yaml, name, import, strcmp(key, "ENV_VARS") == 0 };
        if (strcmp(key, "MODEL_ARGS") == 0)
            found = true;
        else if (!walk.is_env)
            continue;
        walk_mapping(&walk, value, 0);
    }
    if (!found)
        return base_err_set(err, BASE_ERR_PARSE, "%s: has no mapping MODEL_ARGS", name);
    return sim_yaml_check_spent(yaml, name, err);
}

base_status_t sim_import_yaml(sim_import_t *import, const char *name, const char *text,
                              size_t length, base_err_t *err)
{
    sim_yaml_t *yaml;
    base_status_t status = sim_yaml_load(name, text, length, &yaml, err);
    if (status == BASE_OK) {
        status = walk_document(import, name, yaml, err);
        sim_yaml_destroy(yaml);
    }
    return status;
}
