/* SPDX-License-Identifier: Apache-2.0
 * A YAML document as a tree of mappings, sequences and scalars; the only place that knows libyaml.
 * Aliases are followed, so a short document can stand for a long text: what is made of it is
 * counted with sim_yaml_take(). */
#ifndef SIM_SCENARIO_YAML_TREE_H
#define SIM_SCENARIO_YAML_TREE_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sim_yaml sim_yaml_t;
typedef struct sim_yaml_node sim_yaml_node_t;

typedef enum { SIM_YAML_SCALAR, SIM_YAML_SEQUENCE, SIM_YAML_MAPPING } sim_yaml_kind_t;

/* Read the first document of `text`; `name` is for messages. BASE_ERR_PARSE: not YAML, err names
 * the line. Free with sim_yaml_destroy(). */
base_status_t sim_yaml_load(const char *name, const char *text, size_t length, sim_yaml_t **yaml_p,
                            base_err_t *err);
void sim_yaml_destroy(sim_yaml_t *yaml);

/* NULL: an empty document. Nodes belong to the tree. */
const sim_yaml_node_t *sim_yaml_root(sim_yaml_t *yaml);
sim_yaml_kind_t sim_yaml_kind(const sim_yaml_node_t *node);
unsigned long sim_yaml_line(const sim_yaml_node_t *node); /* from 1 */

/* The text of a scalar; NULL of anything else, and of NULL. */
const char *sim_yaml_text(const sim_yaml_node_t *node);

/* Items of a sequence or pairs of a mapping, 0 of a scalar, and the one numbered i < size. The
 * value of a sequence's item is the item, its key NULL. */
size_t sim_yaml_size(const sim_yaml_node_t *node);
const sim_yaml_node_t *sim_yaml_key(sim_yaml_t *yaml, const sim_yaml_node_t *node, size_t i);
const sim_yaml_node_t *sim_yaml_value(sim_yaml_t *yaml, const sim_yaml_node_t *node, size_t i);

/* Count one more value of n_bytes that is made of the document. False, from then on, when all of
 * them are more than a document of its length has without aliases that multiply: stop then. */
bool sim_yaml_take(sim_yaml_t *yaml, size_t n_bytes);

/* The scalars of a sequence, `separator` between them, "?" for what is neither scalar nor, down to
 * `depth` levels, sequence; inner sequences stand in brackets. The caller frees. */
char *sim_yaml_join(sim_yaml_t *yaml, const sim_yaml_node_t *sequence, const char *separator,
                    int depth);

/* BASE_ERR_PARSE when sim_yaml_take() has said no. */
base_status_t sim_yaml_check_spent(const sim_yaml_t *yaml, const char *name, base_err_t *err);

#endif
