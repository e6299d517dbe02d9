/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/dynlib.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

base_status_t base_dynlib_open(const char *const *names, const base_symbol_t *symbols,
                               size_t n_symbols, void *table, void **handle_p, base_err_t *err)
{
    void *handle = NULL;
    const char *name = names[0];
    char reason[512] = "no name for it";
    for (size_t i = 0; names[i] != NULL && handle == NULL; i++) {
        name = names[i];
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        const char *said = handle == NULL ? dlerror() : NULL;
        if (i == 0 && said != NULL)
            snprintf(reason, sizeof(reason), "%s", said);
    }
    if (handle == NULL)
        return base_err_set(err, BASE_ERR_IO, "%s", reason);
    for (size_t i = 0; i < n_symbols; i++) {
        void *function = dlsym(handle, symbols[i].name);
        if (function == NULL) {
            dlclose(handle);
            return base_err_set(err, BASE_ERR_IO, "%s has no function %s", name, symbols[i].name);
        }
        /* POSIX gives functions the representation of void *; C has no cast for it. */
        memcpy((char *)table + symbols[i].offset, &function, sizeof(function));
    }
    *handle_p = handle;
    return BASE_OK;
}

void base_dynlib_close(void *handle)
{
    if (handle != NULL)
        dlclose(handle);
}
