/* SPDX-License-Identifier: Apache-2.0
 * A whole file in memory, never more than a bound. */
#ifndef SIM_BASE_INFILE_H
#define SIM_BASE_INFILE_H

#include "sim/base/err.h"

#include <stddef.h>

/* Read `path`, "-" for standard input, into *text_p: *length_p bytes and a NUL, freed by the
 * caller. BASE_ERR_INVAL, *text_p untouched: it cannot be read, or is longer than max_bytes (no
 * more than that is ever read). The message begins with the path. */
base_status_t base_infile_read(const char *path, size_t max_bytes, char **text_p, size_t *length_p,
                               base_err_t *err);

#endif
