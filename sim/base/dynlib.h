/* SPDX-License-Identifier: Apache-2.0
 * A shared library that is loaded when it is asked for, and the table of its functions. */
#ifndef SIM_BASE_DYNLIB_H
#define SIM_BASE_DYNLIB_H

#include "sim/base/err.h"

#include <stddef.h>

typedef struct {
    const char *name; /* of the function in the library */
    size_t offset;    /* of the pointer to it in the table */
} base_symbol_t;

/* A row for the field `name` of the table type `table`, named as the function is. */
#define BASE_SYMBOL(table, name)                                                                   \
    {                                                                                              \
#name, offsetof(table, name)                                                               \
    }

/* Load the first library of `names` (ends with NULL; file names as dlopen() takes them) that there
 * is, and fill `table`. BASE_ERR_IO: none can be loaded, or a function is missing in the first that
 * can; `err` says what the loader says of the first. On success close with base_dynlib_close(). */
base_status_t base_dynlib_open(const char *const *names, const base_symbol_t *symbols,
                               size_t n_symbols, void *table, void **handle_p, base_err_t *err);

/* Takes NULL. The code stays in the process: drivers do not bear being unloaded. */
void base_dynlib_close(void *handle);

#endif
