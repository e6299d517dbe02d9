/* SPDX-License-Identifier: Apache-2.0
 * Real memory that devices of this process stand on: that of one GPU (cuda), or pages of the
 * operating system (host).
 *
 * A device on a store does what the synthetic one does, with the same addresses, so that the
 * allocator above it takes the same decisions to the byte; beside that it takes each segment and
 * each page from the store and gives it back. The store's memory lies where it lies: addresses are
 * translated. What the store itself says of its memory is measured at the device's peak.
 *
 * An operation of the store can fail in two ways. No memory left: the device says so, as the
 * synthetic one does. Anything else is an error: the device says that it has no memory left, and
 * sim_store_status() has the error. */
#ifndef SIM_MEMORY_STORE_H
#define SIM_MEMORY_STORE_H

#include "sim/memory/device.h"
#include "topology/cuda_api.h"

typedef struct sim_store sim_store_t;

enum { SIM_STORE_TEXT = 96 };

typedef struct {
    char name[SIM_STORE_TEXT];     /* "NVIDIA H200"; "memory of the machine" */
    char bus[16];                  /* PCI address, "" of host */
    char note[SIM_STORE_TEXT * 2]; /* why NVML, or the kernel, is silent; "" = it is not */
    uint64_t total_bytes;
    uint64_t free_bytes;  /* at sim_store_begin() */
    uint64_t granularity; /* of pages */
} sim_store_facts_t;

/* What the store says of its memory; has_... false: not told. */
typedef struct {
    uint64_t used_bytes; /* cuda: total less free of cudaMemGetInfo(), whoever uses it; host:
                          * resident pages of all devices on the store, by mincore() */
    bool has_whole;
    uint64_t whole_bytes; /* cuda: used on the GPU as NVML has it; host: anonymous pages of this
                           * process (RssAnon) */
    bool has_process;
    uint64_t process_bytes; /* cuda: of this process as NVML has it; host: highest resident set of
                             * this process (VmHWM) */
} sim_measure_t;

/* Of one device; bytes of the store, which are the device's divided by the scale. */
typedef struct {
    uint64_t account_bytes; /* at most at once, by the device's own account */
    uint64_t own_bytes; /* at that moment as the store has it: used since sim_store_begin(), less
                         * the account of the other devices of this process */
    bool is_measured;   /* own_bytes and `then` are set */
    bool has_process;   /* cuda, NVML tells what this process uses: */
    uint64_t process_bytes; /* own_bytes by that, without what other processes use */
    sim_measure_t then;
    uint64_t filled_bytes; /* written in all */
} sim_device_own_t;

/* GPU number `ordinal` of those that CUDA_VISIBLE_DEVICES leaves; `cuda` is borrowed. Makes the
 * context, a stream, and uses both once, so that what follows takes memory for the devices alone.
 * BASE_ERR_IO with one line of text: the GPU cannot be used. */
base_status_t sim_store_open_cuda(const topo_cuda_t *cuda, int ordinal, sim_store_t **store_p,
                                  base_err_t *err);

/* The memory of this machine, as far as the control groups of this process let it: a byte here
 * stands for `scale` bytes of a device. BASE_ERR_INVAL: a page does not divide 2 MiB / scale;
 * BASE_ERR_IO: the kernel does not say what memory there is. */
base_status_t sim_store_open_host(uint64_t scale, sim_store_t **store_p, base_err_t *err);

/* Takes NULL; all devices must be gone. What fails is in sim_store_status() just before only, so
 * that errors are asked for with sim_store_end(). */
void sim_store_close(sim_store_t *store);

/* Give back all but what comes with the process; BASE_ERR_IO as sim_store_status(). Call before
 * sim_store_close(), with all devices gone. */
base_status_t sim_store_end(sim_store_t *store, base_err_t *err);

/* Measure what is used before the devices take anything. BASE_ERR_IO: it cannot be. */
base_status_t sim_store_begin(sim_store_t *store, base_err_t *err);

/* What is used now, by the store and, of what devices of this process hold, by the account. */
base_status_t sim_store_measure(sim_store_t *store, sim_measure_t *measure_p, base_err_t *err);
uint64_t sim_store_used_before(const sim_store_t *store); /* used_bytes at sim_store_begin() */
uint64_t sim_store_account_bytes(const sim_store_t *store);

/* BASE_OK, or the first error. */
base_status_t sim_store_status(const sim_store_t *store, base_err_t *err);

const sim_store_facts_t *sim_store_facts(const sim_store_t *store);
uint64_t sim_store_scale(const sim_store_t *store);

/* A device on the store, which must outlive it. Free with sim_device_destroy(). */
sim_device_t *sim_device_create_on(sim_store_t *store, const sim_device_config_t *config);

/* Of such a device; measures the peak if that is not done. Valid until the next call for it. */
const sim_device_own_t *sim_device_own(sim_device_t *device);

#endif
