/* SPDX-License-Identifier: Apache-2.0
 * The functions of the CUDA runtime, the CUDA driver and NVML that this program calls, loaded when
 * they are asked for. No header of CUDA is needed to build, no library of it to start.
 *
 * The types below are the binary interface of CUDA 11.2 to 13 on 64-bit Linux; none of it changed
 * in that time. tests/test_cuda_abi.c compares them with CUDA's own headers where there are any. */
#ifndef TOPOLOGY_CUDA_API_H
#define TOPOLOGY_CUDA_API_H

#include "sim/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* cudaError_t, CUresult, nvmlReturn_t: 0 = success. */
enum {
    TOPO_CUDA_OUT_OF_MEMORY = 2, /* cudaErrorMemoryAllocation, CUDA_ERROR_OUT_OF_MEMORY */
    TOPO_CUDA_NOT_READY = 600,   /* cudaErrorNotReady */
    TOPO_CUDA_ATTRIBUTE_VIRTUAL_MEMORY = 102,
    TOPO_CUDA_STREAM_NON_BLOCKING = 1,
    TOPO_CUDA_PINNED = 1,     /* CU_MEM_ALLOCATION_TYPE_PINNED */
    TOPO_CUDA_ON_DEVICE = 1,  /* CU_MEM_LOCATION_TYPE_DEVICE */
    TOPO_CUDA_READ_WRITE = 3, /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
    TOPO_CUDA_GRANULARITY_MINIMUM = 0,
    TOPO_NVML_INSUFFICIENT_SIZE = 7,
};

typedef void *topo_cuda_stream_t; /* NULL = default stream */

typedef struct {
    int type, id;
} topo_cuda_location_t; /* CUmemLocation */

typedef struct {
    int type, handle_types;
    topo_cuda_location_t location;
    void *win32;
    struct {
        unsigned char compression, rdma_capable;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} topo_cuda_prop_t; /* CUmemAllocationProp */

typedef struct {
    topo_cuda_location_t location;
    int flags;
} topo_cuda_access_t; /* CUmemAccessDesc */

typedef struct {
    unsigned long long total, free, used;
} topo_nvml_memory_t; /* nvmlMemory_t: used contains what the driver reserves */

typedef struct {
    unsigned pid;
    unsigned long long used_bytes; /* all ones: not known */
    unsigned gpu_instance, compute_instance;
} topo_nvml_process_t; /* nvmlProcessInfo_v2_t */

#define TOPO_NVML_NOT_KNOWN (~0ULL)

/* Named as the functions are; see CUDA's own reference. */
typedef struct {
    int (*cudaDriverGetVersion)(int *version);
    int (*cudaRuntimeGetVersion)(int *version);
    int (*cudaGetDeviceCount)(int *n);
    int (*cudaSetDevice)(int device);
    int (*cudaDeviceGetPCIBusId)(char *text, int n, int device);
    int (*cudaMalloc)(void **address, size_t bytes);
    int (*cudaFree)(void *address);
    int (*cudaMemGetInfo)(size_t *free, size_t *total);
    int (*cudaMemsetAsync)(void *address, int value, size_t bytes, topo_cuda_stream_t stream);
    int (*cudaStreamCreateWithFlags)(topo_cuda_stream_t *stream, unsigned flags);
    int (*cudaStreamSynchronize)(topo_cuda_stream_t stream);
    int (*cudaStreamQuery)(topo_cuda_stream_t stream);
    int (*cudaStreamDestroy)(topo_cuda_stream_t stream);
    int (*cudaDeviceSynchronize)(void);
    int (*cudaGetLastError)(void);
    const char *(*cudaGetErrorString)(int error);
} topo_cuda_runtime_t;

typedef struct {
    int (*cuInit)(unsigned flags);
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDeviceGetName)(char *name, int n, int device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, int device);
    int (*cuMemGetAllocationGranularity)(size_t *bytes, const topo_cuda_prop_t *prop, int option);
    int (*cuMemAddressReserve)(unsigned long long *address, size_t bytes, size_t alignment,
                               unsigned long long wanted, unsigned long long flags);
    int (*cuMemAddressFree)(unsigned long long address, size_t bytes);
    int (*cuMemCreate)(unsigned long long *handle, size_t bytes, const topo_cuda_prop_t *prop,
                       unsigned long long flags);
    int (*cuMemRelease)(unsigned long long handle);
    int (*cuMemMap)(unsigned long long address, size_t bytes, size_t offset,
                    unsigned long long handle, unsigned long long flags);
    int (*cuMemUnmap)(unsigned long long address, size_t bytes);
    int (*cuMemSetAccess)(unsigned long long address, size_t bytes,
                          const topo_cuda_access_t *access, size_t n);
    int (*cuGetErrorString)(int error, const char **text);
} topo_cuda_driver_t;

typedef struct {
    int (*nvmlInit_v2)(void);
    int (*nvmlShutdown)(void);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus, void **device);
    int (*nvmlDeviceGetMemoryInfo)(void *device, topo_nvml_memory_t *memory);
    int (*nvmlDeviceGetComputeRunningProcesses_v3)(void *device, unsigned *n,
                                                   topo_nvml_process_t *processes);
    const char *(*nvmlErrorString)(int error);
} topo_nvml_t;

typedef struct {
    topo_cuda_runtime_t rt;
    topo_cuda_driver_t drv;
    void *rt_library, *drv_library;
} topo_cuda_t;

/* Load driver and runtime and call cuInit(). BASE_ERR_UNSUPPORTED: built --without-cuda.
 * BASE_ERR_IO: no driver, no runtime, a runtime that is too new for the driver, or cuInit() fails.
 * On success close with topo_cuda_close(). */
base_status_t topo_cuda_open(topo_cuda_t *cuda_p, base_err_t *err);
void topo_cuda_close(topo_cuda_t *cuda);

/* What the runtime, or the driver, says of an error; never NULL. */
const char *topo_cuda_runtime_text(const topo_cuda_t *cuda, int error);
const char *topo_cuda_driver_text(const topo_cuda_t *cuda, int error);

/* Load NVML and call nvmlInit_v2(). BASE_ERR_IO: it is not there or does not start. On success
 * close with topo_nvml_close(). */
base_status_t topo_nvml_open(topo_nvml_t *nvml_p, void **library_p, base_err_t *err);

/* nvmlShutdown() and unload; BASE_ERR_IO when that fails. */
base_status_t topo_nvml_close(const topo_nvml_t *nvml, void *library, base_err_t *err);

#endif
