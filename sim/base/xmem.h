/* SPDX-License-Identifier: Apache-2.0
 * Host memory that ends the program when there is none: nothing useful can be done without it. */
#ifndef SIM_BASE_XMEM_H
#define SIM_BASE_XMEM_H

#include <stdarg.h>
#include <stddef.h>

/* n * size zeroed bytes; never NULL, also for 0 bytes. The caller frees with free(). */
void *base_xcalloc(size_t n, size_t size);

/* Resize to n * size bytes, new bytes undefined; the product is checked. */
void *base_xrealloc(void *p, size_t n, size_t size);

/* Room for one more behind the n elements of an array that only this call resizes (n may have
 * become less since): the array is doubled when n is a power of two. */
void *base_xgrow(void *p, size_t n, size_t size);

char *base_xstrdup(const char *s);
char *base_xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *base_xvasprintf(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));

/* Called instead of abort() when host memory is exhausted; main sets it so that MPI ends too. */
void base_xmem_set_hook(void (*out_of_memory)(void));

#endif
