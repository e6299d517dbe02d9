/* SPDX-License-Identifier: Apache-2.0
 * A result file that is there completely or not at all: it is written beside its place and moved
 * there at the end, so that after a failure the old file stays. */
#ifndef SIM_BASE_OUTFILE_H
#define SIM_BASE_OUTFILE_H

#include "sim/base/err.h"

#include <stdio.h>

typedef struct base_outfile base_outfile_t;

/* Begin to write `path`; "-" is standard output, and what is not a regular file (a pipe, /dev/null)
 * is written in place. BASE_ERR_IO with path and reason, *out_p untouched, when that cannot be.
 * End with base_outfile_commit() or base_outfile_discard(). */
base_status_t base_outfile_open(const char *path, base_outfile_t **out_p, base_err_t *err);

/* Where to write. Belongs to `out`; errors need not be looked at, commit does. */
FILE *base_outfile_stream(base_outfile_t *out);

/* Put the file in its place and free `out`. BASE_ERR_IO when anything written did not reach the
 * disk; the old file is then as it was. */
base_status_t base_outfile_commit(base_outfile_t *out, base_err_t *err);

/* Forget what was written and free `out`, which may be NULL. */
void base_outfile_discard(base_outfile_t *out);

#endif
