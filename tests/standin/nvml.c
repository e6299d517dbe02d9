/* SPDX-License-Identifier: Apache-2.0
 * NVML, as far as topology/cuda_api.h has it. It sees all GPUs, whatever CUDA_VISIBLE_DEVICES
 * says. */
#include "topology/cuda_api.h"

#include "tests/standin/standin.h"

#include <stdlib.h>

enum { UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6 };

#define ENTER(call)                                                                                \
    do {                                                                                           \
        int error_ = standin_enter(call);                                                          \
        if (error_ != 0)                                                                           \
            return error_;                                                                         \
    } while (0)

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetMemoryInfo(void *device, topo_nvml_memory_t *memory);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n,
                                            topo_nvml_process_t *processes);
const char *nvmlErrorString(int error);

int nvmlInit_v2(void)
{
    ENTER("nvmlInit_v2");
    standin_add((standin_thing_t){ .kind = STANDIN_NVML });
    return 0;
}

int nvmlShutdown(void)
{
    ENTER("nvmlShutdown");
    standin_thing_t *thing = standin_find(STANDIN_NVML, 0);
    if (thing == NULL)
        return UNINITIALIZED;
    standin_remove(thing);
    return 0;
}

/* A handle is the number of the GPU, from 1. */
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    ENTER("nvmlDeviceGetHandleByPciBusId_v2");
    unsigned long number = strtoul(bus + 5, NULL, 16); /* behind "0000:" */
    if (number < 1 || number > standin_setting("STANDIN_DEVICES", 1))
        return NOT_FOUND;
    *device = (void *)(uintptr_t)number;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, topo_nvml_memory_t *memory)
{
    ENTER("nvmlDeviceGetMemoryInfo");
    if (standin_find(STANDIN_NVML, 0) == NULL)
        return UNINITIALIZED;
    memory->total = standin_capacity();
    memory->used = standin_used((int)(uintptr_t)device - 1);
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n,
                                            topo_nvml_process_t *processes)
{
    ENTER("nvmlDeviceGetComputeRunningProcesses_v3");
    bool is_known = standin_setting("STANDIN_NO_PROCESSES", 0) == 0;
    unsigned found = 0, pid, room = *n;
    for (unsigned i = 0; i < 64; i++) {
        uint64_t bytes = standin_used_by((int)(uintptr_t)device - 1, i, &pid);
        if (pid == 0 || bytes == 0)
            continue;
        if (found < room)
            processes[found] =
                (topo_nvml_process_t){ .pid = pid,
                                       .used_bytes = is_known ? bytes : TOPO_NVML_NOT_KNOWN };
        found++;
    }
    *n = found;
    return found <= room ? 0 : TOPO_NVML_INSUFFICIENT_SIZE;
}

const char *nvmlErrorString(int error)
{
    return error == UNINITIALIZED ? "Uninitialized" : "Unknown Error";
}
