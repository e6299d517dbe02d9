/* SPDX-License-Identifier: Apache-2.0
 * A PyTorch memory snapshot of one simulated rank. */
#ifndef SIM_ENGINE_RECORD_H
#define SIM_ENGINE_RECORD_H

#include "sim/engine/simulate.h"

/* Play `rank` once more and write what its allocator did to `path`: one event an allocation or
 * free, with frames that name the tensor and its layer and module, the micro-batch and phase, and
 * the iteration; the time is the number of operations, as microseconds. Written as it is played.
 * *bytes_p (may be NULL): the file's size. BASE_ERR_IO: it could not be written, nothing is left.
 */
base_status_t sim_record_rank(const sim_scenario_t *scenario, uint32_t rank, const char *path,
                              uint64_t *bytes_p, base_err_t *err);

#endif
