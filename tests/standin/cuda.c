/* SPDX-License-Identifier: Apache-2.0
 * The CUDA driver, as far as topology/cuda_api.h has it. */
#include "topology/cuda_api.h"

#include "tests/standin/standin.h"

#include <stdio.h>

typedef unsigned long long address_t;

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101 };

#define ENTER(call)                                                                                \
    do {                                                                                           \
        int error_ = standin_enter(call);                                                          \
        if (error_ != 0)                                                                           \
            return error_;                                                                         \
    } while (0)

int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int n, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuMemGetAllocationGranularity(size_t *bytes, const topo_cuda_prop_t *prop, int option);
int cuMemAddressReserve(address_t *address, size_t bytes, size_t alignment, address_t wanted,
                        address_t flags);
int cuMemAddressFree(address_t address, size_t bytes);
int cuMemCreate(address_t *handle, size_t bytes, const topo_cuda_prop_t *prop, address_t flags);
int cuMemRelease(address_t handle);
int cuMemMap(address_t address, size_t bytes, size_t offset, address_t handle, address_t flags);
int cuMemUnmap(address_t address, size_t bytes);
int cuMemSetAccess(address_t address, size_t bytes, const topo_cuda_access_t *access, size_t n);
int cuGetErrorString(int error, const char **text);

int cuInit(unsigned flags)
{
    ENTER("cuInit");
    if (flags != 0)
        return INVALID_VALUE;
    return standin_n_devices() > 0 ? 0 : NO_DEVICE;
}

int cuDeviceGet(int *device, int ordinal)
{
    ENTER("cuDeviceGet");
    if (standin_physical(ordinal) < 0)
        return BAD_DEVICE;
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int n, int device)
{
    ENTER("cuDeviceGetName");
    if (standin_physical(device) < 0)
        return BAD_DEVICE;
    snprintf(name, (size_t)n, "Stand-in %d", standin_physical(device));
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ENTER("cuDeviceGetAttribute");
    if (standin_physical(device) < 0)
        return BAD_DEVICE;
    *value = attribute == TOPO_CUDA_ATTRIBUTE_VIRTUAL_MEMORY &&
             standin_setting("STANDIN_NO_VMM", 0) == 0;
    return 0;
}

static uint64_t granularity(void)
{
    return standin_setting("STANDIN_GRANULARITY", UINT64_C(2) << 20);
}

static bool is_good(const topo_cuda_prop_t *prop)
{
    return prop->type == TOPO_CUDA_PINNED && prop->location.type == TOPO_CUDA_ON_DEVICE &&
           prop->win32 == NULL && standin_physical(prop->location.id) >= 0;
}

int cuMemGetAllocationGranularity(size_t *bytes, const topo_cuda_prop_t *prop, int option)
{
    ENTER("cuMemGetAllocationGranularity");
    if (!is_good(prop) || option != TOPO_CUDA_GRANULARITY_MINIMUM)
        return INVALID_VALUE;
    *bytes = granularity();
    return 0;
}

int cuMemAddressReserve(address_t *address, size_t bytes, size_t alignment, address_t wanted,
                        address_t flags)
{
    ENTER("cuMemAddressReserve");
    (void)alignment, (void)wanted;
    if (bytes == 0 || bytes % granularity() != 0 || flags != 0)
        return INVALID_VALUE;
    *address = standin_new_address(bytes);
    standin_add(
        (standin_thing_t){ .kind = STANDIN_RESERVATION, .address = *address, .bytes = bytes });
    return 0;
}

int cuMemAddressFree(address_t address, size_t bytes)
{
    ENTER("cuMemAddressFree");
    standin_thing_t *thing = standin_find(STANDIN_RESERVATION, address);
    if (thing == NULL || thing->bytes != bytes) {
        standin_misuse("cuMemAddressFree(%llx, %zu): not reserved so", address, bytes);
        return INVALID_VALUE;
    }
    for (uint64_t at = 0; at < bytes; at += granularity())
        if (standin_around(STANDIN_MAPPING, address + at) != NULL) {
            standin_misuse("cuMemAddressFree(%llx, %zu): something is mapped", address, bytes);
            return INVALID_VALUE;
        }
    standin_remove(thing);
    return 0;
}

int cuMemCreate(address_t *handle, size_t bytes, const topo_cuda_prop_t *prop, address_t flags)
{
    ENTER("cuMemCreate");
    if (!is_good(prop) || bytes == 0 || bytes % granularity() != 0 || flags != 0)
        return INVALID_VALUE;
    int device = standin_physical(prop->location.id);
    if (!standin_charge(device, bytes))
        return OUT_OF_MEMORY;
    *handle = standin_new_address(1);
    standin_add((standin_thing_t){ .kind = STANDIN_HANDLE,
                                   .address = *handle,
                                   .bytes = bytes,
                                   .charged_bytes = bytes,
                                   .device = device });
    return 0;
}

int cuMemRelease(address_t handle)
{
    ENTER("cuMemRelease");
    standin_thing_t *thing = standin_find(STANDIN_HANDLE, handle);
    if (thing == NULL) {
        standin_misuse("cuMemRelease(%llx): no such handle", handle);
        return INVALID_VALUE;
    }
    if (thing->other > 0)
        standin_misuse("cuMemRelease(%llx): still mapped", handle);
    standin_discharge(thing->device, thing->charged_bytes);
    standin_remove(thing);
    return 0;
}

int cuMemMap(address_t address, size_t bytes, size_t offset, address_t handle, address_t flags)
{
    ENTER("cuMemMap");
    const standin_thing_t *range = standin_around(STANDIN_RESERVATION, address);
    standin_thing_t *memory = standin_find(STANDIN_HANDLE, handle);
    if (range == NULL || memory == NULL || offset != 0 || flags != 0 || bytes != memory->bytes ||
        address % granularity() != 0 || address + bytes > range->address + range->bytes) {
        standin_misuse("cuMemMap(%llx, %zu): cannot be", address, bytes);
        return INVALID_VALUE;
    }
    for (uint64_t at = 0; at < bytes; at += granularity())
        if (standin_around(STANDIN_MAPPING, address + at) != NULL) {
            standin_misuse("cuMemMap(%llx, %zu): mapped already", address, bytes);
            return INVALID_VALUE;
        }
    memory->other++;
    standin_add((standin_thing_t){
        .kind = STANDIN_MAPPING, .address = address, .bytes = bytes, .other = handle });
    return 0;
}

/* Whole mappings, one after the other. */
static bool is_mapped(uint64_t address, uint64_t bytes)
{
    uint64_t end = address + bytes;
    while (address < end) {
        const standin_thing_t *thing = standin_find(STANDIN_MAPPING, address);
        if (thing == NULL)
            return false;
        address += thing->bytes;
    }
    return address == end;
}

int cuMemUnmap(address_t address, size_t bytes)
{
    ENTER("cuMemUnmap");
    if (!is_mapped(address, bytes)) {
        standin_misuse("cuMemUnmap(%llx, %zu): not mapped so", address, bytes);
        return INVALID_VALUE;
    }
    for (uint64_t at = 0; at < bytes;) {
        standin_thing_t *thing = standin_find(STANDIN_MAPPING, address + at);
        at += thing->bytes;
        standin_find(STANDIN_HANDLE, thing->other)->other--;
        standin_remove(thing);
    }
    return 0;
}

int cuMemSetAccess(address_t address, size_t bytes, const topo_cuda_access_t *access, size_t n)
{
    ENTER("cuMemSetAccess");
    if (n != 1 || access->location.type != TOPO_CUDA_ON_DEVICE ||
        access->flags != TOPO_CUDA_READ_WRITE)
        return INVALID_VALUE;
    if (!is_mapped(address, bytes)) {
        standin_misuse("cuMemSetAccess(%llx, %zu): not mapped so", address, bytes);
        return INVALID_VALUE;
    }
    for (uint64_t at = 0; at < bytes;) {
        standin_thing_t *thing = standin_find(STANDIN_MAPPING, address + at);
        thing->is_accessible = true;
        at += thing->bytes;
    }
    return 0;
}

int cuGetErrorString(int error, const char **text)
{
    switch (error) {
    case INVALID_VALUE:
        *text = "invalid argument";
        return 0;
    case OUT_OF_MEMORY:
        *text = "out of memory";
        return 0;
    case NO_DEVICE:
        *text = "no CUDA-capable device is detected";
        return 0;
    case STANDIN_UNKNOWN:
        *text = "unknown error";
        return 0;
    default:
        return INVALID_VALUE;
    }
}
