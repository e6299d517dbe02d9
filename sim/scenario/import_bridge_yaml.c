/* SPDX-License-Identifier: Apache-2.0
 * Megatron-Bridge's configuration as YAML: groups of settings, as ConfigContainer.to_yaml() writes
 * them (with _target_ naming the classes) or as a user writes the few that differ from a recipe. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/scenario/import.h"
#include "sim/scenario/yaml_tree.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 8 };

typedef struct {
    sim_yaml_t *yaml;
    const char *name;
    sim_import_t *import;
} walk_t;

static const sim_yaml_node_t *entry(const walk_t *walk, const sim_yaml_node_t *mapping,
                                    const char *name)
{
    for (size_t i = 0; i < sim_yaml_size(mapping); i++) {
        const char *key = sim_yaml_text(sim_yaml_key(walk->yaml, mapping, i));
        if (key != NULL && strcmp(key, name) == 0)
            return sim_yaml_value(walk->yaml, mapping, i);
    }
    return NULL;
}

/* "[a, b]", nested as it is. */
static char *list_text(const walk_t *walk, const sim_yaml_node_t *node)
{
    char *inner = sim_yaml_join(walk->yaml, node, ", ", MAX_DEPTH);
    char *text = base_xasprintf("[%s]", inner);
    free(inner);
    return text;
}

/* "_target_: X, _args_: [5]" and "_target_: X, _call_: false" stand for one value: "X:5", "X". */
static char *object_text(const walk_t *walk, const sim_yaml_node_t *node)
{
    const char *target = sim_yaml_text(entry(walk, node, "_target_"));
    const char *call = sim_yaml_text(entry(walk, node, "_call_"));
    const sim_yaml_node_t *args = entry(walk, node, "_args_");
    if (target == NULL)
        return NULL;
    if (args != NULL && sim_yaml_kind(args) == SIM_YAML_SEQUENCE) {
        char *list = sim_yaml_join(walk->yaml, args, ", ", MAX_DEPTH);
        char *text = base_xasprintf("%s:%s", target, list);
        free(list);
        return text;
    }
    return call != NULL && strcmp(call, "false") == 0 ? base_xstrdup(target) : NULL;
}

static void walk_mapping(walk_t *walk, const sim_yaml_node_t *node, const char *path, int depth);

static void add_value(walk_t *walk, const char *path, const sim_yaml_node_t *node, int depth)
{
    char *text = sim_yaml_kind(node) == SIM_YAML_MAPPING    ? object_text(walk, node)
                 : sim_yaml_kind(node) == SIM_YAML_SEQUENCE ? list_text(walk, node)
                                                            : base_xstrdup(sim_yaml_text(node));
    if (text == NULL) {
        if (depth < MAX_DEPTH)
            walk_mapping(walk, node, path, depth + 1);
        return;
    }
    char *origin = base_xasprintf("%s:%lu", walk->name, sim_yaml_line(node));
    if (sim_yaml_take(walk->yaml, strlen(text)))
        sim_import_add_field(walk->import, path, text, origin);
    free(origin);
    free(text);
}

static void walk_mapping(walk_t *walk, const sim_yaml_node_t *node, const char *path, int depth)
{
    for (size_t i = 0; i < sim_yaml_size(node); i++) {
        const char *key = sim_yaml_text(sim_yaml_key(walk->yaml, node, i));
        if (key == NULL || (strcmp(key, "_target_") == 0 && depth == 0))
            continue;
        if (!sim_yaml_take(walk->yaml, strlen(path) + strlen(key)))
            return;
        char *longer = base_xasprintf("%s%s%s", path, *path != '\0' ? "." : "", key);
        add_value(walk, longer, sim_yaml_value(walk->yaml, node, i), depth);
        free(longer);
    }
}

base_status_t sim_import_bridge_yaml(sim_import_t *import, const char *name, const char *text,
                                     size_t length, base_err_t *err)
{
    sim_yaml_t *yaml;
    base_status_t status = sim_yaml_load(name, text, length, &yaml, err);
    if (status != BASE_OK)
        return status;
    const sim_yaml_node_t *root = sim_yaml_root(yaml);
    walk_t walk = { yaml, name, import };
    if (root == NULL || sim_yaml_kind(root) != SIM_YAML_MAPPING) {
        status = base_err_set(err, BASE_ERR_PARSE,
                              "%s: groups of Megatron-Bridge settings were expected, such as "
                              "\"model:\" and \"train:\"",
                              name);
    } else {
        walk_mapping(&walk, root, "", 0);
        status = sim_yaml_check_spent(yaml, name, err);
    }
    sim_yaml_destroy(yaml);
    return status;
}
