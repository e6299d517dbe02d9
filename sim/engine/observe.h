/* SPDX-License-Identifier: Apache-2.0
 * Somebody who watches a rank while it is played. */
#ifndef SIM_ENGINE_OBSERVE_H
#define SIM_ENGINE_OBSERVE_H

#include "sim/engine/account.h"

/* One allocation or free that has just happened. Valid during the call. */
typedef struct {
    const sim_moment_t *now; /* layer and module are not set */
    const sim_tensor_t *tensor;
    uint64_t block_bytes; /* gained, or given back */
    bool is_free;
    uint64_t op; /* allocations and frees so far, this one included */
    uint64_t allocated_bytes, reserved_bytes;
} sim_observation_t;

typedef struct {
    void (*see)(void *arg, const sim_observation_t *seen); /* NULL = nobody watches */
    void *arg;
} sim_observer_t;

#endif
