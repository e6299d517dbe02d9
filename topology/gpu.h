/* SPDX-License-Identifier: Apache-2.0
 * Known GPUs. */
#ifndef TOPOLOGY_GPU_H
#define TOPOLOGY_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char *name;    /* "h100-80gb-sxm": lower case, as in device.gpu */
    const char *aliases; /* blank-separated further spellings, may be "" */
    const char *product; /* "NVIDIA H100 80GB HBM3", as the driver names it */
    uint32_t sm;         /* compute capability, 80 = 8.0, 90, 100, 120 */
    /* cudaDeviceProp.totalGlobalMem: what a program can see of the memory. */
    uint64_t total_bytes;
    uint32_t n_sms;
    /* Dense peak rates without sparsity, for the time estimate. */
    double bf16_tflops, fp8_tflops;
    double memory_gb_per_s; /* 1e9 bytes */
    double nvlink_gb_per_s; /* all links, one direction, 1e9 bytes; 0 = PCIe only */
    /* GPUs that NVLink joins: 1 = none, 2 = a pair under a bridge, 8 = a board, 72 = a rack. */
    uint32_t nvlink_domain;
    uint32_t node_gpus; /* of one host in NVIDIA's own design */
    const char *source; /* where the capacity was read */
} topo_gpu_t;

/* By name or alias, case and '_'/'-' ignored; NULL when not known. */
const topo_gpu_t *topo_gpu_find(const char *name);

/* The table, for listing. */
const topo_gpu_t *topo_gpu_table(size_t *n_p);

#endif
