/* SPDX-License-Identifier: Apache-2.0
 * The memory of one GPU, below the caching allocator. One op table (device_ops.h), several
 * backends; `synthetic` is an address-space model with a capacity and no memory behind it. Those
 * that have memory are in store.h. */
#ifndef SIM_MEMORY_DEVICE_H
#define SIM_MEMORY_DEVICE_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Where the synthetic device places a new address range:
 * bump: above all earlier ones, never reused; reuse: the lowest gap that fits; down: below all
 * earlier ones, never reused. A real driver documents none of them, and the caching allocator
 * breaks ties in size by address, so results against a real GPU can be promised up to ties only. */
typedef enum {
    SIM_ADDRESSES_BUMP,
    SIM_ADDRESSES_REUSE,
    SIM_ADDRESSES_DOWN,
} sim_addresses_t;

/* For simulating: reuse. Like a real driver it hands the range of a freed segment out again, so
 * that a training loop that empties its cache comes back to the same addresses (and a long one
 * never runs out of address space, which bump and down do). */
#define SIM_ADDRESSES_DEFAULT SIM_ADDRESSES_REUSE

/* First address of bump and reuse; one past the last of down. bump and reuse stay below 2^53, so
 * that PyTorch's memory viewer, which keeps numbers as doubles, shows addresses exactly. */
#define SIM_ADDRESSES_FIRST    UINT64_C(0x100000000000)
#define SIM_ADDRESSES_DOWN_END UINT64_C(0x700000000000)

/* Largest total_bytes and usable_bytes that a device takes: sizes of blocks, in units of 512
 * bytes, then fit 32 bits. */
#define SIM_DEVICE_MAX_BYTES ((UINT64_C(1) << 41) - (UINT64_C(1) << 21))

typedef struct {
    uint64_t
        total_bytes; /* totalGlobalMem: base of memory fractions and expandable address space */
    uint64_t usable_bytes; /* what can really be had: total less context, communicators, others */
    sim_addresses_t addresses;
} sim_device_config_t;

typedef struct sim_device sim_device_t;

/* "bump", "reuse" or "down"; false on anything else. */
bool sim_addresses_parse(const char *name, sim_addresses_t *addresses_p);
const char *sim_addresses_name(sim_addresses_t addresses);

/* Never fails; both sizes are cut to SIM_DEVICE_MAX_BYTES. Free with sim_device_destroy(). */
sim_device_t *sim_device_create_synthetic(const sim_device_config_t *config);
void sim_device_destroy(sim_device_t *device);

/* A second synthetic device with the same ranges and bytes taken, but of other sizes. */
sim_device_t *sim_device_clone_synthetic(const sim_device_t *device, uint64_t total_bytes,
                                         uint64_t usable_bytes);

uint64_t sim_device_total_bytes(const sim_device_t *device);
uint64_t sim_device_usable_bytes(const sim_device_t *device);
uint64_t sim_device_used_bytes(const sim_device_t *device);

/* cudaMalloc: `bytes` > 0, charged rounded up to 2 MiB. False = out of memory, nothing changed. */
bool sim_device_malloc(sim_device_t *device, uint64_t bytes, uint64_t *addr_p);
void sim_device_free(sim_device_t *device, uint64_t addr, uint64_t bytes);

/* Virtual-memory API. Reserve and release address space (costs no memory); false = no address
 * space left, nothing changed. */
bool sim_device_reserve(sim_device_t *device, uint64_t bytes, uint64_t *addr_p);
void sim_device_unreserve(sim_device_t *device, uint64_t addr, uint64_t bytes);

/* Create `n_pages` physical pages of `page_bytes` one after the other and map them at `addr`,
 * inside a reserved range. False = out of memory: the pages made so far are given back. */
bool sim_device_map(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages);
void sim_device_unmap(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages);

/* Write to all bytes of a buffer, inside a segment or mapped pages, on a stream (the allocator's
 * handle). The synthetic device has nothing to write to. */
void sim_device_fill(sim_device_t *device, uint64_t addr, uint64_t bytes, uint64_t stream);

/* Take memory outside the allocator (context, communicators): counts against usable bytes.
 * False = out of memory, nothing changed. */
bool sim_device_take(sim_device_t *device, uint64_t bytes);
void sim_device_give(sim_device_t *device, uint64_t bytes);

/* What was asked of the driver so far. A map that fails half way counts its pages as made and as
 * released. */
typedef struct {
    uint64_t n_malloc, n_free; /* successful cudaMalloc, cudaFree */
    uint64_t n_page_create, n_page_release;
    uint64_t n_failed; /* cudaMalloc or page creations refused */
    uint64_t peak_used_bytes;
} sim_device_calls_t;

const sim_device_calls_t *sim_device_calls(const sim_device_t *device);

#endif
