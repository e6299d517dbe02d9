/* SPDX-License-Identifier: Apache-2.0
 * The text of pipeline_model_parallel_layout, expanded but not yet checked against a model. */
#ifndef TOPOLOGY_LAYOUT_TEXT_H
#define TOPOLOGY_LAYOUT_TEXT_H

#include "sim/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* One character after expansion, and where it came from. */
typedef struct {
    char c;            /* 'E', 't', 'm', 'L' or '|' */
    uint32_t position; /* in the text as written, 1-based */
} topo_layout_char_t;

typedef struct {
    topo_layout_char_t *chars; /* owned; free() */
    size_t n;
} topo_layout_text_t;

/* The longest expansion that is accepted: far beyond any model, small enough to hold. */
enum { TOPO_LAYOUT_MAX_CHARS = 1 << 16 };

/* Expand "(...)*n" first and then "x*n", as Megatron-LM does: groups do not nest, and a count after
 * a group that already has one repeats the group's last character. Commas are dropped; blanks are
 * no layers and are refused. BASE_ERR_INVAL with the position of the first character that is left
 * and means nothing, or when the expansion is too long. */
base_status_t topo_layout_text_expand(topo_layout_text_t *expanded_p, const char *text,
                                      base_err_t *err);

#endif
