/* SPDX-License-Identifier: Apache-2.0
 * Patterns of file names, for texts that others wrote: fnmatch() takes exponential time for some.
 */
#ifndef SIM_BASE_GLOB_H
#define SIM_BASE_GLOB_H

#include <stdbool.h>

/* Whether all of `text` matches `pattern`, as fnmatch() without flags says it: "*", "?", "[a-z]",
 * "[!a-z]" and "\" before any of these. At most the product of both lengths in time. */
bool base_glob_match(const char *pattern, const char *text);

#endif
