/* SPDX-License-Identifier: Apache-2.0
 * Device memory of a process that neither PyTorch's allocator nor NCCL counts. */
#ifndef COLLECTIVES_CONTEXT_H
#define COLLECTIVES_CONTEXT_H

#include "collectives/nccl_memory.h"

/* The driver's context on a GPU of compute capability `sm`: page tables, launch and error queues,
 * the local memory that every context starts with. */
coll_range_t coll_context_bytes(uint32_t sm);

/* Code of PyTorch, cuBLAS, cuDNN and Transformer Engine that a training step loads (with lazy
 * loading, CUDA 11.7 on), and the libraries' handles. Their workspaces are PyTorch's. */
coll_range_t coll_library_bytes(uint32_t sm);

/* Transformer Engine's buffers for tp_comm_overlap: twelve of [tokens, width], of which those that
 * gather hold FP8 where the layers do. `tokens` before they are split over tensor parallel ranks.
 * False on overflow. */
bool coll_user_buffer_bytes(uint64_t tokens, uint64_t width, bool fp8, uint64_t *bytes_p);

/* DeepEP's buffers of an expert parallel group of n_ranks: over NVLink, and over the network (0
 * within a host of 8). */
typedef struct {
    uint64_t nvlink_bytes, network_bytes;
} coll_deepep_t;

coll_deepep_t coll_deepep_bytes(uint32_t n_ranks, uint64_t width);

#endif
