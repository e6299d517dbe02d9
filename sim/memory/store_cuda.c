/* SPDX-License-Identifier: Apache-2.0
 * The memory of a GPU. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/device_ops.h"
#include "sim/memory/store_ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    uint64_t handle; /* the allocator's */
    topo_cuda_stream_t stream;
} stream_t;

typedef struct {
    sim_store_t base;
    const topo_cuda_t *cuda;
    int ordinal;
    topo_cuda_prop_t prop;
    stream_t *streams;
    size_t n_streams, streams_cap;
    bool is_filling; /* something may still be written */
    topo_nvml_t nvml;
    void *nvml_library; /* NULL: not in use */
    void *nvml_device;
} cuda_t;

/* ---- errors ---- */

static bool runtime_ok(cuda_t *c, const char *call, int error)
{
    if (error == 0)
        return true;
    sim_store_fail(&c->base, "GPU %d: %s: %s (%d)", c->ordinal, call,
                   topo_cuda_runtime_text(c->cuda, error), error);
    return false;
}

static bool driver_ok(cuda_t *c, const char *call, int error)
{
    if (error == 0)
        return true;
    sim_store_fail(&c->base, "GPU %d: %s: %s (%d)", c->ordinal, call,
                   topo_cuda_driver_text(c->cuda, error), error);
    return false;
}

/* NVML is asked beside CUDA and may be missing: the first reason is kept. */
static bool nvml_ok(cuda_t *c, const char *call, int error)
{
    if (error == 0)
        return true;
    if (c->base.facts.note[0] == '\0')
        snprintf(c->base.facts.note, sizeof(c->base.facts.note), "%s: %s (%d)", call,
                 c->nvml.nvmlErrorString(error), error);
    return false;
}

/* The GPU that the calls of this thread are for. */
static bool choose(cuda_t *c)
{
    return runtime_ok(c, "cudaSetDevice", c->cuda->rt.cudaSetDevice(c->ordinal));
}

/* ---- memory ---- */

static bool cuda_take(sim_store_t *store, uint64_t bytes, uint64_t *addr_p)
{
    cuda_t *c = (cuda_t *)store;
    void *at;
    if (!choose(c))
        return false;
    int error = c->cuda->rt.cudaMalloc(&at, bytes);
    if (error == TOPO_CUDA_OUT_OF_MEMORY) {
        c->cuda->rt.cudaGetLastError(); /* forgets it */
        return false;
    }
    if (!runtime_ok(c, "cudaMalloc", error))
        return false;
    *addr_p = (uintptr_t)at;
    return true;
}

static void cuda_give(sim_store_t *store, uint64_t addr, uint64_t bytes)
{
    cuda_t *c = (cuda_t *)store;
    (void)bytes;
    choose(c);
    runtime_ok(c, "cudaFree", c->cuda->rt.cudaFree((void *)(uintptr_t)addr));
}

static bool cuda_reserve(sim_store_t *store, uint64_t bytes, uint64_t *addr_p)
{
    cuda_t *c = (cuda_t *)store;
    unsigned long long at;
    if (!choose(c))
        return false;
    int error = c->cuda->drv.cuMemAddressReserve(&at, bytes, 0, 0, 0);
    if (error == TOPO_CUDA_OUT_OF_MEMORY || !driver_ok(c, "cuMemAddressReserve", error))
        return false;
    *addr_p = at;
    return true;
}

static void cuda_unreserve(sim_store_t *store, uint64_t addr, uint64_t bytes)
{
    cuda_t *c = (cuda_t *)store;
    driver_ok(c, "cuMemAddressFree", c->cuda->drv.cuMemAddressFree(addr, bytes));
}

/* Unmap and release the first n pages. */
static void drop_pages(cuda_t *c, uint64_t addr, uint64_t page_bytes, uint64_t n,
                       const uint64_t *handles)
{
    for (uint64_t i = 0; i < n; i++) {
        driver_ok(c, "cuMemUnmap", c->cuda->drv.cuMemUnmap(addr + i * page_bytes, page_bytes));
        driver_ok(c, "cuMemRelease", c->cuda->drv.cuMemRelease(handles[i]));
    }
}

/* False: nothing is left of the page. */
static bool map_page(cuda_t *c, uint64_t addr, uint64_t page_bytes, uint64_t *handle_p)
{
    unsigned long long handle;
    int error = c->cuda->drv.cuMemCreate(&handle, page_bytes, &c->prop, 0);
    if (error == TOPO_CUDA_OUT_OF_MEMORY || !driver_ok(c, "cuMemCreate", error))
        return false;
    if (!driver_ok(c, "cuMemMap", c->cuda->drv.cuMemMap(addr, page_bytes, 0, handle, 0))) {
        driver_ok(c, "cuMemRelease", c->cuda->drv.cuMemRelease(handle));
        return false;
    }
    *handle_p = handle;
    return true;
}

static bool cuda_map(sim_store_t *store, uint64_t addr, uint64_t page_bytes, uint64_t n_pages,
                     uint64_t *handles)
{
    cuda_t *c = (cuda_t *)store;
    const topo_cuda_access_t access = { .location = c->prop.location,
                                        .flags = TOPO_CUDA_READ_WRITE };
    if (!choose(c))
        return false;
    uint64_t n = 0;
    while (n < n_pages && map_page(c, addr + n * page_bytes, page_bytes, &handles[n]))
        n++;
    if (n == n_pages &&
        driver_ok(c, "cuMemSetAccess",
                  c->cuda->drv.cuMemSetAccess(addr, n_pages * page_bytes, &access, 1)))
        return true;
    drop_pages(c, addr, page_bytes, n, handles);
    return false;
}

/* Nothing may be written any more when its pages go. cudaFree() waits by itself. */
static void finish_filling(cuda_t *c)
{
    if (!c->is_filling)
        return;
    c->is_filling = false;
    runtime_ok(c, "cudaDeviceSynchronize", c->cuda->rt.cudaDeviceSynchronize());
}

static void cuda_unmap(sim_store_t *store, uint64_t addr, uint64_t page_bytes, uint64_t n_pages,
                       const uint64_t *handles)
{
    cuda_t *c = (cuda_t *)store;
    choose(c);
    finish_filling(c);
    drop_pages(c, addr, page_bytes, n_pages, handles);
}

/* ---- streams ---- */

/* NULL = it cannot be made. */
static topo_cuda_stream_t stream_of(cuda_t *c, uint64_t handle)
{
    for (size_t i = 0; i < c->n_streams; i++)
        if (c->streams[i].handle == handle)
            return c->streams[i].stream;
    topo_cuda_stream_t stream;
    int error = c->cuda->rt.cudaStreamCreateWithFlags(&stream, TOPO_CUDA_STREAM_NON_BLOCKING);
    if (!runtime_ok(c, "cudaStreamCreateWithFlags", error))
        return NULL;
    if (c->n_streams == c->streams_cap) {
        c->streams_cap = c->streams_cap == 0 ? 4 : 2 * c->streams_cap;
        c->streams = base_xrealloc(c->streams, c->streams_cap, sizeof(*c->streams));
    }
    c->streams[c->n_streams++] = (stream_t){ .handle = handle, .stream = stream };
    return stream;
}

static void cuda_fill(sim_store_t *store, uint64_t addr, uint64_t bytes, uint64_t handle)
{
    cuda_t *c = (cuda_t *)store;
    if (!choose(c))
        return;
    topo_cuda_stream_t stream = stream_of(c, handle);
    if (stream == NULL)
        return;
    c->is_filling = true;
    runtime_ok(c, "cudaMemsetAsync",
               c->cuda->rt.cudaMemsetAsync((void *)(uintptr_t)addr, 0x5a, bytes, stream));
}

/* ---- what is used ---- */

static void note(cuda_t *c, const char *text)
{
    if (c->base.facts.note[0] == '\0')
        snprintf(c->base.facts.note, sizeof(c->base.facts.note), "%.*s",
                 (int)sizeof(c->base.facts.note) - 1, text);
}

static bool find_process(const topo_nvml_process_t *list, unsigned n, uint64_t *bytes_p)
{
    for (unsigned i = 0; i < n; i++)
        if (list[i].pid == (unsigned)getpid() && list[i].used_bytes != TOPO_NVML_NOT_KNOWN) {
            *bytes_p = list[i].used_bytes;
            return true;
        }
    return false;
}

/* Of this process on the GPU. False: NVML does not tell, or does not know this process by the
 * number that it has here. */
static bool ask_process(cuda_t *c, uint64_t *bytes_p)
{
    enum { ROOM = 64, MAX_ROOM = 1 << 16 };
    topo_nvml_process_t *list = NULL;
    unsigned n = 0;
    int error = TOPO_NVML_INSUFFICIENT_SIZE;
    for (unsigned room = ROOM; error == TOPO_NVML_INSUFFICIENT_SIZE && room <= MAX_ROOM;
         room *= 4) {
        list = base_xrealloc(list, room, sizeof(*list));
        n = room;
        error = c->nvml.nvmlDeviceGetComputeRunningProcesses_v3(c->nvml_device, &n, list);
    }
    bool found = nvml_ok(c, "nvmlDeviceGetComputeRunningProcesses_v3", error);
    if (found && !find_process(list, n, bytes_p)) {
        found = false;
        note(c, "NVML does not tell what this process uses");
    }
    free(list);
    return found;
}

static base_status_t cuda_measure(sim_store_t *store, sim_measure_t *measure_p, base_err_t *err)
{
    cuda_t *c = (cuda_t *)store;
    size_t free_bytes, total;
    sim_measure_t m = { 0 };
    if (!choose(c) ||
        !runtime_ok(c, "cudaMemGetInfo", c->cuda->rt.cudaMemGetInfo(&free_bytes, &total)))
        return sim_store_status(store, err);
    m.used_bytes = total - free_bytes;
    topo_nvml_memory_t memory;
    if (c->nvml_device != NULL &&
        nvml_ok(c, "nvmlDeviceGetMemoryInfo",
                c->nvml.nvmlDeviceGetMemoryInfo(c->nvml_device, &memory))) {
        m.has_whole = true;
        m.whole_bytes = memory.used;
        m.has_process = ask_process(c, &m.process_bytes);
    }
    *measure_p = m;
    return BASE_OK;
}

/* ---- life ---- */

static void open_nvml(cuda_t *c)
{
    base_err_t err;
    if (topo_nvml_open(&c->nvml, &c->nvml_library, &err) != BASE_OK) {
        note(c, err.text);
        return;
    }
    int error = c->nvml.nvmlDeviceGetHandleByPciBusId_v2(c->base.facts.bus, &c->nvml_device);
    if (!nvml_ok(c, "nvmlDeviceGetHandleByPciBusId_v2", error))
        c->nvml_device = NULL;
}

static void cuda_end(sim_store_t *store)
{
    cuda_t *c = (cuda_t *)store;
    base_err_t err;
    for (size_t i = 0; i < c->n_streams; i++) {
        topo_cuda_stream_t stream = c->streams[i].stream;
        runtime_ok(c, "cudaStreamSynchronize", c->cuda->rt.cudaStreamSynchronize(stream));
        runtime_ok(c, "cudaStreamDestroy", c->cuda->rt.cudaStreamDestroy(stream));
    }
    c->n_streams = 0;
    if (c->nvml_library != NULL && topo_nvml_close(&c->nvml, c->nvml_library, &err) != BASE_OK)
        note(c, err.text);
    c->nvml_library = c->nvml_device = NULL;
}

static void cuda_destroy(sim_store_t *store)
{
    cuda_t *c = (cuda_t *)store;
    cuda_end(store);
    free(c->streams);
    free(c);
}

static const sim_store_ops_t ops = {
    .name = "cuda",
    .destroy = cuda_destroy,
    .end = cuda_end,
    .measure = cuda_measure,
    .take = cuda_take,
    .give = cuda_give,
    .reserve = cuda_reserve,
    .unreserve = cuda_unreserve,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .fill = cuda_fill,
};

static void ask_facts(cuda_t *c)
{
    sim_store_facts_t *f = &c->base.facts;
    const topo_cuda_driver_t *drv = &c->cuda->drv;
    int device, has_pages = 0;
    size_t free_bytes, total, granularity = 0;
    if (!driver_ok(c, "cuDeviceGet", drv->cuDeviceGet(&device, c->ordinal)) ||
        !driver_ok(c, "cuDeviceGetName",
                   drv->cuDeviceGetName(f->name, (int)sizeof(f->name), device)) ||
        !runtime_ok(c, "cudaDeviceGetPCIBusId",
                    c->cuda->rt.cudaDeviceGetPCIBusId(f->bus, (int)sizeof(f->bus), c->ordinal)) ||
        !driver_ok(
            c, "cuDeviceGetAttribute",
            drv->cuDeviceGetAttribute(&has_pages, TOPO_CUDA_ATTRIBUTE_VIRTUAL_MEMORY, device)) ||
        !choose(c) ||
        !runtime_ok(c, "cudaMemGetInfo", c->cuda->rt.cudaMemGetInfo(&free_bytes, &total)))
        return;
    f->total_bytes = total;
    if (has_pages != 0 && driver_ok(c, "cuMemGetAllocationGranularity",
                                    drv->cuMemGetAllocationGranularity(
                                        &granularity, &c->prop, TOPO_CUDA_GRANULARITY_MINIMUM)))
        f->granularity = granularity;
}

/* Use once what will be used, so that what the driver needs for it is there. */
static void warm_up(cuda_t *c)
{
    uint64_t at;
    if (!cuda_take(&c->base, SIM_DEVICE_GRANULE, &at)) {
        sim_store_fail(&c->base, "GPU %d: no memory is free", c->ordinal);
        return;
    }
    cuda_fill(&c->base, at, SIM_DEVICE_GRANULE, 0);
    finish_filling(c);
    cuda_give(&c->base, at, SIM_DEVICE_GRANULE);
}

base_status_t sim_store_open_cuda(const topo_cuda_t *cuda, int ordinal, sim_store_t **store_p,
                                  base_err_t *err)
{
    cuda_t *c = base_xcalloc(1, sizeof(*c));
    c->base.ops = &ops;
    c->base.scale = 1;
    c->cuda = cuda;
    c->ordinal = ordinal;
    c->prop.type = TOPO_CUDA_PINNED;
    c->prop.location = (topo_cuda_location_t){ .type = TOPO_CUDA_ON_DEVICE, .id = ordinal };
    ask_facts(c);
    if (!sim_store_has_failed(&c->base))
        warm_up(c);
    base_status_t status = sim_store_status(&c->base, err);
    if (status != BASE_OK) {
        sim_store_close(&c->base);
        return status;
    }
    open_nvml(c);
    *store_p = &c->base;
    return BASE_OK;
}
