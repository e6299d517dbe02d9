/* SPDX-License-Identifier: Apache-2.0
 * Who holds the memory of a rank now, and who held it at the peak. */
#ifndef SIM_ENGINE_ACCOUNT_H
#define SIM_ENGINE_ACCOUNT_H

#include "sim/model/tensor.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    SIM_PHASE_MODEL_BUILD,
    SIM_PHASE_DDP_WRAP,
    SIM_PHASE_OPTIMIZER_BUILD,
    SIM_PHASE_FORWARD,
    SIM_PHASE_BACKWARD,
    SIM_PHASE_WEIGHT_GRAD, /* a pass of its own */
    SIM_PHASE_GRAD_SYNC,
    SIM_PHASE_OPTIMIZER_STEP,
    SIM_PHASE_GRAPH_CAPTURE,
    SIM_PHASE_CHECKPOINT_LOAD,
    SIM_PHASE_EVALUATION,
    SIM_PHASE_CHECKPOINT_SAVE,
    SIM_N_PHASES,
} sim_phase_t;

/* "model build", "forward", … */
const char *sim_phase_name(sim_phase_t phase);

/* Whether it is the pass of a micro-batch. */
static inline bool sim_phase_is_pass(sim_phase_t phase)
{
    return phase == SIM_PHASE_FORWARD || phase == SIM_PHASE_BACKWARD ||
           phase == SIM_PHASE_WEIGHT_GRAD;
}

/* A moment of a run. iteration counts from 1; 0 = before the first. microbatch and chunk are
 * meaningful in passes. */
typedef struct {
    uint32_t iteration;
    uint32_t microbatch;
    uint16_t chunk;
    uint16_t layer; /* SIM_NO_LAYER outside a layer */
    uint8_t phase;  /* sim_phase_t */
    uint8_t module; /* of the tensor whose allocation made the peak */
} sim_moment_t;

/* Bytes by category and module; the sum is the allocated bytes. */
typedef struct {
    uint64_t bytes[SIM_N_CATEGORIES][SIM_N_MODULES];
} sim_holders_t;

uint64_t sim_holders_category(const sim_holders_t *holders, sim_category_t category);
uint64_t sim_holders_module(const sim_holders_t *holders, sim_module_t module);
uint64_t sim_holders_total(const sim_holders_t *holders);

typedef struct {
    sim_holders_t now;
    uint64_t allocated_bytes;
    uint64_t peak_bytes; /* highest allocated_bytes since the start */
    sim_moment_t peak_moment;
    sim_holders_t at_peak; /* valid after sim_account_settle() */
    bool peak_is_open;     /* nothing was freed since the peak was set */
} sim_account_t;

/* One tensor more; `at` is the moment of it. True when it makes a new peak. */
static inline bool sim_account_add(sim_account_t *account, const sim_tensor_t *tensor,
                                   uint64_t block_bytes, const sim_moment_t *at)
{
    account->now.bytes[tensor->category][tensor->module] += block_bytes;
    account->allocated_bytes += block_bytes;
    if (account->allocated_bytes <= account->peak_bytes)
        return false;
    account->peak_bytes = account->allocated_bytes;
    account->peak_is_open = true;
    account->peak_moment = *at;
    account->peak_moment.layer = tensor->layer;
    account->peak_moment.module = tensor->module;
    return true;
}

/* Copy who holds what, if the peak was set since the last copy. */
static inline void sim_account_settle(sim_account_t *account)
{
    if (account->peak_is_open) {
        account->at_peak = account->now;
        account->peak_is_open = false;
    }
}

static inline void sim_account_remove(sim_account_t *account, const sim_tensor_t *tensor,
                                      uint64_t block_bytes)
{
    sim_account_settle(account);
    account->now.bytes[tensor->category][tensor->module] -= block_bytes;
    account->allocated_bytes -= block_bytes;
}

#endif
