/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/diag.h"

#include "sim/base/log.h"
#include "sim/base/xmem.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

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

bool base_diag_is_full(const base_diag_t *diag)
{
    return diag->n == BASE_DIAG_MAX;
}

static void shorten(char *text)
{
    if (strnlen(text, BASE_DIAG_TEXT + 1) > BASE_DIAG_TEXT)
        memcpy(text + BASE_DIAG_TEXT - 3, "...", 4);
}

void base_diag_add(base_diag_t *diag, const char *fmt, ...)
{
    if (diag == NULL)
        return;
    if (base_diag_is_full(diag)) {
        diag->n_dropped++;
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    diag->text = base_xrealloc(diag->text, diag->n + 1, sizeof(*diag->text));
    diag->text[diag->n] = base_xvasprintf(fmt, ap);
    shorten(diag->text[diag->n]);
    base_printable(diag->text[diag->n++]);
    va_end(ap);
}
