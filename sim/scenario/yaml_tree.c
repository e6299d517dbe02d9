/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/yaml_tree.h"

#include "sim/base/xmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* A value costs its text and this; a document without aliases takes less than the factor. */
enum { BYTES_OF_A_VALUE = 16, FREE_BYTES = 1 << 20, FACTOR = 10 };
/* libyaml takes a time that grows with the square of it; configurations have six. */
enum { MAX_DEPTH = 64 };

struct sim_yaml {
    yaml_document_t doc;
    size_t n_left;
    bool is_spent;
};

static const yaml_node_t *real(const sim_yaml_node_t *node)
{
    return (const yaml_node_t *)(const void *)node;
}

static const sim_yaml_node_t *node_at(sim_yaml_t *yaml, int index)
{
    return (const sim_yaml_node_t *)(const void *)yaml_document_get_node(&yaml->doc, index);
}

static base_status_t invalid(const yaml_parser_t *parser, const char *name, base_err_t *err)
{
    return base_err_set(err, BASE_ERR_PARSE, "%s:%zu: not valid YAML: %s", name,
                        parser->problem_mark.line + 1,
                        parser->problem != NULL ? parser->problem : "unknown problem");
}

static base_status_t check_depth(const char *name, const char *text, size_t length, base_err_t *err)
{
    yaml_parser_t parser;
    base_status_t status = BASE_OK;
    bool at_end = false;
    if (!yaml_parser_initialize(&parser))
        return base_err_set(err, BASE_ERR_PARSE, "%s: the YAML parser cannot start", name);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    for (int depth = 0; !at_end && status == BASE_OK;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            status = invalid(&parser, name, err);
            break;
        }
        depth += event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT;
        depth -= event.type == YAML_SEQUENCE_END_EVENT || event.type == YAML_MAPPING_END_EVENT;
        at_end = event.type == YAML_DOCUMENT_END_EVENT || event.type == YAML_STREAM_END_EVENT;
        if (depth > MAX_DEPTH)
            status = base_err_set(err, BASE_ERR_PARSE, "%s:%zu: nested more than %d deep", name,
                                  event.start_mark.line + 1, MAX_DEPTH);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return status;
}

base_status_t sim_yaml_load(const char *name, const char *text, size_t length, sim_yaml_t **yaml_p,
                            base_err_t *err)
{
    yaml_parser_t parser;
    base_status_t status = check_depth(name, text, length, err);
    if (status != BASE_OK)
        return status;
    if (!yaml_parser_initialize(&parser))
        return base_err_set(err, BASE_ERR_PARSE, "%s: the YAML parser cannot start", name);
    sim_yaml_t *yaml = base_xcalloc(1, sizeof(*yaml));
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (yaml_parser_load(&parser, &yaml->doc)) {
        yaml->n_left = FREE_BYTES + FACTOR * length;
        *yaml_p = yaml;
    } else {
        status = invalid(&parser, name, err);
        free(yaml);
    }
    yaml_parser_delete(&parser);
    return status;
}

void sim_yaml_destroy(sim_yaml_t *yaml)
{
    yaml_document_delete(&yaml->doc);
    free(yaml);
}

const sim_yaml_node_t *sim_yaml_root(sim_yaml_t *yaml)
{
    return (const sim_yaml_node_t *)(const void *)yaml_document_get_root_node(&yaml->doc);
}

sim_yaml_kind_t sim_yaml_kind(const sim_yaml_node_t *node)
{
    return real(node)->type == YAML_MAPPING_NODE    ? SIM_YAML_MAPPING
           : real(node)->type == YAML_SEQUENCE_NODE ? SIM_YAML_SEQUENCE
                                                    : SIM_YAML_SCALAR;
}

unsigned long sim_yaml_line(const sim_yaml_node_t *node)
{
    return real(node)->start_mark.line + 1;
}

const char *sim_yaml_text(const sim_yaml_node_t *node)
{
    return node != NULL && real(node)->type == YAML_SCALAR_NODE
               ? (const char *)real(node)->data.scalar.value
               : NULL;
}

size_t sim_yaml_size(const sim_yaml_node_t *node)
{
    const yaml_node_t *n = real(node);
    if (n->type == YAML_MAPPING_NODE)
        return (size_t)(n->data.mapping.pairs.top - n->data.mapping.pairs.start);
    if (n->type == YAML_SEQUENCE_NODE)
        return (size_t)(n->data.sequence.items.top - n->data.sequence.items.start);
    return 0;
}

const sim_yaml_node_t *sim_yaml_key(sim_yaml_t *yaml, const sim_yaml_node_t *node, size_t i)
{
    return real(node)->type == YAML_MAPPING_NODE
               ? node_at(yaml, real(node)->data.mapping.pairs.start[i].key)
               : NULL;
}

const sim_yaml_node_t *sim_yaml_value(sim_yaml_t *yaml, const sim_yaml_node_t *node, size_t i)
{
    return node_at(yaml, real(node)->type == YAML_MAPPING_NODE
                             ? real(node)->data.mapping.pairs.start[i].value
                             : real(node)->data.sequence.items.start[i]);
}

bool sim_yaml_take(sim_yaml_t *yaml, size_t n_bytes)
{
    if (yaml->is_spent || n_bytes > yaml->n_left || yaml->n_left - n_bytes < BYTES_OF_A_VALUE)
        yaml->is_spent = true;
    else
        yaml->n_left -= n_bytes + BYTES_OF_A_VALUE;
    return !yaml->is_spent;
}

static void join(sim_yaml_t *yaml, const sim_yaml_node_t *sequence, const char *separator,
                 int depth, FILE *out)
{
    for (size_t i = 0; i < sim_yaml_size(sequence); i++) {
        const sim_yaml_node_t *item = sim_yaml_value(yaml, sequence, i);
        const char *text = sim_yaml_text(item) != NULL ? sim_yaml_text(item) : "?";
        if (!sim_yaml_take(yaml, strlen(text)))
            return;
        if (i > 0)
            fputs(separator, out);
        if (sim_yaml_kind(item) == SIM_YAML_SEQUENCE && depth > 0) {
            putc('[', out);
            join(yaml, item, separator, depth - 1, out);
            putc(']', out);
        } else {
            fputs(text, out);
        }
    }
}

char *sim_yaml_join(sim_yaml_t *yaml, const sim_yaml_node_t *sequence, const char *separator,
                    int depth)
{
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    join(yaml, sequence, separator, depth, out);
    fclose(out);
    return text;
}

base_status_t sim_yaml_check_spent(const sim_yaml_t *yaml, const char *name, base_err_t *err)
{
    if (!yaml->is_spent)
        return BASE_OK;
    return base_err_set(err, BASE_ERR_PARSE,
                        "%s: its aliases stand for far more text than the file has", name);
}
