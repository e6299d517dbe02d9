/* SPDX-License-Identifier: Apache-2.0
 * How memory was cut up when a recording begins: worked out backwards from its end, as a list of
 * allocations that rebuilds it. */
#ifndef SIM_STUDY_RECORDING_START_H
#define SIM_STUDY_RECORDING_START_H

#include "sim/memory/alloc_conf.h"
#include "sim/memory/snapshot_read.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A block that was alive before the first event. */
typedef struct {
    uint64_t addr, bytes, stream;
    bool is_waiting; /* was freed before the first event, and waits for another stream */
} sim_before_t;

typedef enum {
    SIM_START_BLOCK, /* before[idx] */
    SIM_START_HOLE,  /* free; freed again when everything is in place */
    SIM_START_WHOLE, /* makes a segment of this size; freed again at once */
    SIM_START_GAP,   /* unmapped pages between mapped ones; freed when everything is in place, and
                      * the cache emptied before the holes are */
} sim_start_kind_t;

typedef struct {
    sim_start_kind_t kind;
    uint64_t bytes, stream;
    size_t idx;
} sim_start_step_t;

typedef struct {
    sim_start_step_t *steps;
    size_t n, cap;
} sim_start_t;

typedef struct {
    const sim_snapshot_t *snapshot;
    size_t device;
    const sim_snapshot_event_t *events; /* of the device */
    size_t n_events;
    const sim_before_t *before; /* by address */
    size_t n_before;
    const sim_alloc_conf_t *conf; /* recorded settings */
    uint64_t gap_bytes;           /* that gaps may take in all while they are allocated */
    bool (*is_left_out)(const void *arg, const sim_snapshot_event_t *event);
    const void *arg;
} sim_start_input_t;

/* False, with nothing to free: more segments than a GPU can have. Free with sim_start_fini(). */
bool sim_start_find(const sim_start_input_t *input, sim_start_t *start);
void sim_start_fini(sim_start_t *start);

#endif
