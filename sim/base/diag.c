/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/diag.h"

#include "sim/base/log.h"
#include "sim/base/xmem.h"

#include <stdarg.h>
#include <stdlib.h>

void base_diag_init(base_diag_t *diag)
{
    *diag = (base_diag_t){ 0 };
}

void base_diag_fini(base_diag_t *diag)
{
    for (size_t i = 0; i < diag->n; i++)
        free(diag->text[i]);
    free(diag->text);
    base_diag_init(diag);
}

void base_diag_add(base_diag_t *diag, const char *fmt, ...)
{
    if (diag->n == BASE_DIAG_MAX) {
        diag->n_dropped++;
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    diag->text = base_xrealloc(diag->text, diag->n + 1, sizeof(*diag->text));
    diag->text[diag->n] = base_xvasprintf(fmt, ap);
    base_printable(diag->text[diag->n++]);
    va_end(ap);
}
