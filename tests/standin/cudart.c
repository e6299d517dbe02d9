/* SPDX-License-Identifier: Apache-2.0
 * The CUDA runtime, as far as topology/cuda_api.h has it. */
#include "topology/cuda_api.h"

#include "tests/standin/standin.h"

#include <stdio.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, OLD_DRIVER = 35, NO_DEVICE = 100, BAD_DEVICE = 101 };
enum { RUNTIME_VERSION = 13000 };

#define ENTER(call)                                                                                \
    do {                                                                                           \
        int error_ = standin_enter(call);                                                          \
        if (error_ != 0)                                                                           \
            return error_;                                                                         \
    } while (0)

int cudaDriverGetVersion(int *version);
int cudaRuntimeGetVersion(int *version);
int cudaGetDeviceCount(int *n);
int cudaSetDevice(int device);
int cudaDeviceGetPCIBusId(char *text, int n, int device);
int cudaMalloc(void **address, size_t bytes);
int cudaFree(void *address);
int cudaMemGetInfo(size_t *free_bytes, size_t *total);
int cudaMemsetAsync(void *address, int value, size_t bytes, topo_cuda_stream_t stream);
int cudaStreamCreateWithFlags(topo_cuda_stream_t *stream, unsigned flags);
int cudaStreamSynchronize(topo_cuda_stream_t stream);
int cudaStreamQuery(topo_cuda_stream_t stream);
int cudaStreamDestroy(topo_cuda_stream_t stream);
int cudaDeviceSynchronize(void);
int cudaGetLastError(void);
const char *cudaGetErrorString(int error);

int cudaDriverGetVersion(int *version)
{
    ENTER("cudaDriverGetVersion");
    *version = (int)standin_setting("STANDIN_DRIVER", RUNTIME_VERSION);
    return 0;
}

int cudaRuntimeGetVersion(int *version)
{
    ENTER("cudaRuntimeGetVersion");
    *version = RUNTIME_VERSION;
    return 0;
}

int cudaGetDeviceCount(int *n)
{
    ENTER("cudaGetDeviceCount");
    if (standin_setting("STANDIN_DRIVER", RUNTIME_VERSION) < RUNTIME_VERSION)
        return OLD_DRIVER;
    *n = standin_n_devices();
    return *n > 0 ? 0 : NO_DEVICE;
}

int cudaSetDevice(int device)
{
    ENTER("cudaSetDevice");
    if (standin_physical(device) < 0)
        return BAD_DEVICE;
    return standin_set_current(device) ? 0 : OUT_OF_MEMORY;
}

int cudaDeviceGetPCIBusId(char *text, int n, int device)
{
    ENTER("cudaDeviceGetPCIBusId");
    if (standin_physical(device) < 0)
        return BAD_DEVICE;
    snprintf(text, (size_t)n, "0000:%02X:00.0", standin_physical(device) + 1);
    return 0;
}

int cudaMalloc(void **address, size_t bytes)
{
    ENTER("cudaMalloc");
    uint64_t step = standin_setting("STANDIN_MALLOC_STEP", UINT64_C(2) << 20);
    uint64_t charged = (bytes + step - 1) / step * step;
    int device = standin_current();
    if (device < 0)
        return OUT_OF_MEMORY;
    if (bytes == 0)
        return INVALID_VALUE;
    if (!standin_charge(device, charged))
        return OUT_OF_MEMORY;
    uint64_t at = standin_new_address(charged);
    standin_add((standin_thing_t){ .kind = STANDIN_MALLOC,
                                   .address = at,
                                   .bytes = bytes,
                                   .charged_bytes = charged,
                                   .device = device });
    *address = (void *)(uintptr_t)at;
    return 0;
}

int cudaFree(void *address)
{
    ENTER("cudaFree");
    if (address == NULL)
        return 0;
    standin_thing_t *thing = standin_find(STANDIN_MALLOC, (uintptr_t)address);
    if (thing == NULL) {
        standin_misuse("cudaFree(%p): not allocated", address);
        return INVALID_VALUE;
    }
    standin_discharge(thing->device, thing->charged_bytes);
    standin_remove(thing);
    return 0;
}

int cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    ENTER("cudaMemGetInfo");
    int device = standin_current();
    if (device < 0)
        return OUT_OF_MEMORY;
    *total = standin_capacity();
    *free_bytes = *total > standin_used(device) ? *total - standin_used(device) : 0;
    return 0;
}

static bool is_stream(topo_cuda_stream_t stream)
{
    return stream == NULL || standin_find(STANDIN_STREAM, (uintptr_t)stream) != NULL;
}

int cudaMemsetAsync(void *address, int value, size_t bytes, topo_cuda_stream_t stream)
{
    (void)value;
    ENTER("cudaMemsetAsync");
    if (!is_stream(stream))
        standin_misuse("cudaMemsetAsync: not a stream");
    if (!standin_is_accessible((uintptr_t)address, bytes)) {
        standin_misuse("cudaMemsetAsync(%p, %zu): not all of it is mapped", address, bytes);
        return INVALID_VALUE;
    }
    return 0;
}

int cudaStreamCreateWithFlags(topo_cuda_stream_t *stream, unsigned flags)
{
    ENTER("cudaStreamCreateWithFlags");
    if (flags > TOPO_CUDA_STREAM_NON_BLOCKING)
        return INVALID_VALUE;
    if (standin_current() < 0)
        return OUT_OF_MEMORY;
    uint64_t at = standin_new_address(1);
    standin_add((standin_thing_t){ .kind = STANDIN_STREAM, .address = at });
    *stream = (void *)(uintptr_t)at;
    return 0;
}

int cudaStreamSynchronize(topo_cuda_stream_t stream)
{
    ENTER("cudaStreamSynchronize");
    if (!is_stream(stream))
        standin_misuse("cudaStreamSynchronize: not a stream");
    return 0;
}

int cudaStreamQuery(topo_cuda_stream_t stream)
{
    ENTER("cudaStreamQuery");
    if (!is_stream(stream))
        standin_misuse("cudaStreamQuery: not a stream");
    return standin_has_met((uintptr_t)stream) ? 0 : TOPO_CUDA_NOT_READY;
}

int cudaStreamDestroy(topo_cuda_stream_t stream)
{
    ENTER("cudaStreamDestroy");
    standin_thing_t *thing = standin_find(STANDIN_STREAM, (uintptr_t)stream);
    if (thing == NULL) {
        standin_misuse("cudaStreamDestroy: not a stream");
        return INVALID_VALUE;
    }
    standin_remove(thing);
    return 0;
}

int cudaDeviceSynchronize(void)
{
    ENTER("cudaDeviceSynchronize");
    return 0;
}

int cudaGetLastError(void)
{
    return 0;
}

const char *cudaGetErrorString(int error)
{
    switch (error) {
    case 0:
        return "no error";
    case INVALID_VALUE:
        return "invalid argument";
    case OUT_OF_MEMORY:
        return "out of memory";
    case OLD_DRIVER:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case NO_DEVICE:
        return "no CUDA-capable device is detected";
    case BAD_DEVICE:
        return "invalid device ordinal";
    default:
        return "unknown error";
    }
}
