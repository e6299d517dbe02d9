/* SPDX-License-Identifier: Apache-2.0
 * A choice of ranks as people write it: "0,4-7,last". */
#ifndef SIM_BASE_RANKLIST_H
#define SIM_BASE_RANKLIST_H

#include "sim/base/err.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t *ranks; /* n of them, ascending, each once; owned */
    size_t n;
} base_ranklist_t;

/* Read `text` for a world of `world_size` (> 0) ranks; "last" is world_size - 1, "all" is every
 * rank. BASE_ERR_INVAL, *list_p untouched, on anything else and on ranks outside the world. */
base_status_t base_ranklist_parse(const char *text, uint32_t world_size, base_ranklist_t *list_p,
                                  base_err_t *err);

void base_ranklist_fini(base_ranklist_t *list);

#endif
