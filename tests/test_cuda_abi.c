/* SPDX-License-Identifier: Apache-2.0
 * topology/cuda_api.h against CUDA's own headers, when it is compiled. */
#include "topology/cuda_api.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>

#define SAME(mine, theirs) _Static_assert((int)(mine) == (int)(theirs), #theirs)
#define SAME_PLACE(type, mine, their_type, theirs)                                                 \
    SAME(offsetof(type, mine), offsetof(their_type, theirs))

SAME(TOPO_CUDA_OUT_OF_MEMORY, cudaErrorMemoryAllocation);
SAME(TOPO_CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(TOPO_CUDA_ATTRIBUTE_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(TOPO_CUDA_STREAM_NON_BLOCKING, cudaStreamNonBlocking);
SAME(TOPO_CUDA_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(TOPO_CUDA_ON_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(TOPO_CUDA_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(TOPO_CUDA_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(sizeof(topo_cuda_location_t), sizeof(CUmemLocation));
SAME(sizeof(topo_cuda_prop_t), sizeof(CUmemAllocationProp));
SAME_PLACE(topo_cuda_prop_t, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(topo_cuda_prop_t, location, CUmemAllocationProp, location);
SAME_PLACE(topo_cuda_prop_t, win32, CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(topo_cuda_prop_t, flags, CUmemAllocationProp, allocFlags);
SAME(sizeof(topo_cuda_access_t), sizeof(CUmemAccessDesc));
SAME_PLACE(topo_cuda_access_t, flags, CUmemAccessDesc, flags);
SAME(sizeof(unsigned long long), sizeof(CUdeviceptr));
SAME(sizeof(unsigned long long), sizeof(CUmemGenericAllocationHandle));
SAME(sizeof(int), sizeof(CUdevice));
SAME(sizeof(topo_cuda_stream_t), sizeof(cudaStream_t));

int main(void)
{
    puts("1..1\nok 1 - what is called of CUDA is as its headers say");
    return 0;
}
