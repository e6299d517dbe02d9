/* SPDX-License-Identifier: Apache-2.0
 * What a device backend implements. All ops are required. device.c keeps the account of bytes
 * against usable_bytes before it calls an op; an op fails only when its own resource is exhausted
 * (address space; for backends with memory behind them, that memory). */
#ifndef SIM_MEMORY_DEVICE_OPS_H
#define SIM_MEMORY_DEVICE_OPS_H

#include "sim/memory/device.h"

typedef struct {
    const char *name;
    void (*destroy)(sim_device_t *device); /* frees the backend's own struct */
    bool (*range_take)(sim_device_t *device, uint64_t bytes, uint64_t *addr_p); /* with memory */
    void (*range_give)(sim_device_t *device, uint64_t addr, uint64_t bytes);
    bool (*reserve)(sim_device_t *device, uint64_t bytes, uint64_t *addr_p); /* addresses only */
    void (*unreserve)(sim_device_t *device, uint64_t addr, uint64_t bytes);
    bool (*map)(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages);
    void (*unmap)(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages);
    void (*fill)(sim_device_t *device, uint64_t addr, uint64_t bytes, uint64_t stream);
} sim_device_ops_t;

/* First member of every backend's struct. */
struct sim_device {
    const sim_device_ops_t *ops;
    sim_device_config_t config;
    uint64_t used_bytes;
    sim_device_calls_t calls;
};

/* cudaMalloc's granularity; a range of addresses is a multiple of it. */
enum { SIM_DEVICE_GRANULE = 2 * 1024 * 1024 };

#endif
