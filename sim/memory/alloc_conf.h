/* SPDX-License-Identifier: Apache-2.0
 * The text of PYTORCH_CUDA_ALLOC_CONF, read as PyTorch's newest line (main, mid 2026) reads it:
 * c10/core/AllocatorConfig.{h,cpp} for the keys of every accelerator, c10/cuda/
 * CUDAAllocatorConfig.{h,cpp} for those of CUDA. */
#ifndef SIM_MEMORY_ALLOC_CONF_H
#define SIM_MEMORY_ALLOC_CONF_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { SIM_ALLOC_CONF_SLOTS = 16 };

typedef struct {
    uint64_t max_split_bytes; /* UINT64_MAX = unlimited */
    uint64_t max_non_split_rounding_bytes;
    uint64_t large_segment_bytes;
    double gc_threshold;                      /* 0 = off */
    uint64_t divisions[SIM_ALLOC_CONF_SLOTS]; /* slot i: sizes from 2^(20+i); 0 = no rounding */
    bool has_divisions;                       /* a slot is above 1 */
    bool expandable_segments;
    double per_process_memory_fraction; /* 1 = no limit; read when an allocator is created */
    bool throw_on_cudamalloc_oom;
    bool has_reserve; /* expandable_segments_reserve was given */
    bool reserve_is_fraction;
    double reserve;    /* fraction of the device's total, or GiB */
    char warning[256]; /* a value that PyTorch warns about and ignores; "" = none */
} sim_alloc_conf_t;

/* PyTorch's defaults. */
void sim_alloc_conf_init(sim_alloc_conf_t *conf);

/* Parse `text` on top of `conf`: what PyTorch resets at every parse is reset first. BASE_ERR_INVAL:
 * `err` says what PyTorch says, and the keys read before have taken effect.
 * BASE_ERR_UNSUPPORTED: backend:cudaMallocAsync. */
base_status_t sim_alloc_conf_parse(sim_alloc_conf_t *conf, const char *text, base_err_t *err);

/* The size that the allocator rounds a request of `bytes` > 0 to. */
uint64_t sim_alloc_conf_round(const sim_alloc_conf_t *conf, uint64_t bytes);

/* Address space that one expandable segment reserves at most on a device of `total_bytes`. */
uint64_t sim_alloc_conf_reserve_bytes(const sim_alloc_conf_t *conf, uint64_t total_bytes);

/* The settings in the environment, NULL if there are none: the first that is set of
 * PYTORCH_CUDA_ALLOC_CONF, PYTORCH_HIP_ALLOC_CONF and PYTORCH_ALLOC_CONF (they are not merged).
 * `name_p` (may be NULL) gets the variable's name. */
const char *sim_alloc_conf_from_env(const char **name_p);

#endif
