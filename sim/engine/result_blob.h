/* SPDX-License-Identifier: Apache-2.0
 * A rank's result as bytes, to send it to another process of the same build. */
#ifndef SIM_ENGINE_RESULT_BLOB_H
#define SIM_ENGINE_RESULT_BLOB_H

#include "sim/engine/simulate.h"

#include <stddef.h>

/* Equal results give equal bytes. The list of what is alive is left out. The caller frees. */
void *sim_rank_result_pack(const sim_rank_result_t *result, size_t *n_bytes_p);

/* BASE_ERR_PARSE, *result_p untouched: not the bytes of a result. */
base_status_t sim_rank_result_unpack(const void *bytes, size_t n_bytes, sim_rank_result_t *result_p,
                                     base_err_t *err);

#endif
