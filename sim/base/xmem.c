/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*hook)(void);

static _Noreturn void out_of_memory(void)
{
    fputs("mbsim: out of host memory\n", stderr);
    if (hook != NULL)
        hook();
    exit(1);
}

void base_xmem_set_hook(void (*out_of_memory_hook)(void))
{
    hook = out_of_memory_hook;
}

void *base_xcalloc(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size > 0 ? size : 1);
    if (p == NULL)
        out_of_memory();
    return p;
}

void *base_xrealloc(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        out_of_memory();
    void *q = realloc(p, bytes > 0 ? bytes : 1);
    if (q == NULL)
        out_of_memory();
    return q;
}

void *base_xgrow(void *p, size_t n, size_t size)
{
    if (n > SIZE_MAX / 2)
        out_of_memory();
    return (n & (n - 1)) == 0 ? base_xrealloc(p, n > 0 ? 2 * n : 1, size) : p;
}

char *base_xstrdup(const char *s)
{
    char *copy = strdup(s);
    if (copy == NULL)
        out_of_memory();
    return copy;
}

char *base_xvasprintf(const char *fmt, va_list ap)
{
    char *s;
    if (vasprintf(&s, fmt, ap) < 0)
        out_of_memory();
    return s;
}

char *base_xasprintf(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *s = base_xvasprintf(fmt, ap);
    va_end(ap);
    return s;
}
