/* SPDX-License-Identifier: Apache-2.0
 * Where a process runs on its host, and keeping it near its GPU. */
#ifndef TOPOLOGY_BIND_H
#define TOPOLOGY_BIND_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { TOPO_CPUS_TEXT = 128, TOPO_BUS_TEXT = 16 };

/* More than one of them. */
#define TOPO_SEVERAL UINT32_MAX

/* Plain data without pointers: equal programs may send it to each other. */
typedef struct {
    char bus[TOPO_BUS_TEXT]; /* of its GPU, "0000:1b:00.0"; "" = none is known */
    uint32_t gpu;            /* place of its GPU on the host, by bus; where there is none, its own
                                among the processes of the host */
    uint32_t package, numa;  /* that it may run on: logical index, number of the operating system */
    bool is_bound, is_memory_bound;
    char cpus[TOPO_CPUS_TEXT];           /* hardware threads that it may run on: "0-27,56-83" */
    char why_not_memory[TOPO_CPUS_TEXT]; /* of a bound process whose memory is not, else "" */
} topo_seat_t;

/* What this process, number `place` (from 0) of `n` on its host, has now. Its GPU is the one with
 * the address `bus`, or, with NULL, the `place`-th of the host, in equal parts where there are more
 * processes than GPUs. BASE_ERR_IO: hwloc cannot tell. */
base_status_t topo_seat_find(uint32_t place, uint32_t n, const char *bus, topo_seat_t *seat_p,
                             base_err_t *err);

/* Bind it, and what it allocates from now on, to the hardware threads and the memory near its GPU;
 * where hwloc sees no such GPU, to the NUMA node that a GPU of this number would have. Of these
 * threads it gets the ones that it may run on already. BASE_ERR_UNSUPPORTED, nothing changed: there
 * are none, or the system does not bind; else as above. That memory alone cannot be bound is no
 * error. */
base_status_t topo_seat_take(uint32_t place, uint32_t n, const char *bus, topo_seat_t *seat_p,
                             base_err_t *err);

#endif
