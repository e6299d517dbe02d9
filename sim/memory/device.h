/* SPDX-License-Identifier: Apache-2.0
 * The memory of one GPU, below the caching allocator. One op table, several backends; `synthetic`
 * is an address-space model with a capacity and no memory behind it. */
#ifndef SIM_MEMORY_DEVICE_H
#define SIM_MEMORY_DEVICE_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Where the synthetic device places a new address range (../data README of the golden runs):
 * bump: above all earlier ones, never reused; reuse: the lowest gap that fits; down: below all
 * earlier ones, never reused. */
typedef enum {
    SIM_ADDRESSES_BUMP,
    SIM_ADDRESSES_REUSE,
    SIM_ADDRESSES_DOWN,
} sim_addresses_t;

typedef struct {
    uint64_t total_bytes;  /* totalGlobalMem: base of memory fractions and expandable address space */
    uint64_t usable_bytes; /* what can really be had: total less context, communicators, others */
    sim_addresses_t addresses;
} sim_device_config_t;

typedef struct sim_device sim_device_t;

/* Never fails; free with sim_device_destroy(). */
sim_device_t *sim_device_create_synthetic(const sim_device_config_t *config);
void sim_device_destroy(sim_device_t *device);

uint64_t sim_device_total_bytes(const sim_device_t *device);
uint64_t sim_device_usable_bytes(const sim_device_t *device);
uint64_t sim_device_used_bytes(const sim_device_t *device);

/* cudaMalloc: `bytes` > 0, charged rounded up to 2 MiB. False = out of memory, nothing changed. */
bool sim_device_malloc(sim_device_t *device, uint64_t bytes, uint64_t *addr_p);
void sim_device_free(sim_device_t *device, uint64_t addr, uint64_t bytes);

/* Virtual-memory API: reserve and release address space (costs no memory), create and release
 * physical pages. False = out of memory, nothing changed. */
bool sim_device_reserve(sim_device_t *device, uint64_t bytes, uint64_t *addr_p);
void sim_device_unreserve(sim_device_t *device, uint64_t addr, uint64_t bytes);
bool sim_device_create_page(sim_device_t *device, uint64_t bytes);
void sim_device_release_page(sim_device_t *device, uint64_t bytes);

/* Take memory outside the allocator (context, communicators): counts against usable bytes.
 * False = out of memory, nothing changed. */
bool sim_device_take(sim_device_t *device, uint64_t bytes);
void sim_device_give(sim_device_t *device, uint64_t bytes);

#endif
