/* SPDX-License-Identifier: Apache-2.0
 * Pages of the operating system. Addresses without memory are private mappings without access;
 * memory is made of them by opening them and writing to each page. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/device_ops.h"
#include "sim/memory/host_memory.h"
#include "sim/memory/store_ops.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Mapped ranges, in no order: what is measured. */
typedef struct {
    uint64_t addr, bytes;
} extent_t;

typedef struct {
    sim_store_t base;
    uint64_t page_bytes; /* of the operating system */
    extent_t *extents;
    size_t n_extents, extents_cap;
} host_t;

/* Left to the rest of the machine, whatever the share: below it the kernel ends processes. */
#define LEFT_ALONE (64 * BASE_MIB)

static void *pointer(uint64_t addr)
{
    return (void *)(uintptr_t)addr;
}

static bool has_room(host_t *h, uint64_t bytes)
{
    sim_host_memory_t memory;
    if (!sim_host_memory(&memory)) {
        sim_store_fail(&h->base, "the kernel does not say any more what memory is available");
        return false;
    }
    return memory.available_bytes > LEFT_ALONE && bytes <= memory.available_bytes - LEFT_ALONE;
}

static bool host_reserve(sim_store_t *store, uint64_t bytes, uint64_t *addr_p)
{
    host_t *h = (host_t *)store;
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED && errno == ENOMEM)
        return false;
    if (at == MAP_FAILED) {
        sim_store_fail(store, "mmap of %" PRIu64 " bytes: %s", bytes, strerror(errno));
        return false;
    }
    /* Whole huge pages would be taken where small ones are asked for. A kernel without them does
     * not know the advice. */
    if (madvise(at, bytes, MADV_NOHUGEPAGE) != 0 && errno != EINVAL) {
        sim_store_fail(store, "madvise: %s", strerror(errno));
        munmap(at, bytes);
        return false;
    }
    if (h->n_extents == h->extents_cap) {
        h->extents_cap = h->extents_cap == 0 ? 64 : 2 * h->extents_cap;
        h->extents = base_xrealloc(h->extents, h->extents_cap, sizeof(*h->extents));
    }
    *addr_p = (uintptr_t)at;
    h->extents[h->n_extents++] = (extent_t){ .addr = *addr_p, .bytes = bytes };
    return true;
}

static void host_unreserve(sim_store_t *store, uint64_t addr, uint64_t bytes)
{
    host_t *h = (host_t *)store;
    if (munmap(pointer(addr), bytes) != 0)
        sim_store_fail(store, "munmap: %s", strerror(errno));
    for (size_t i = 0; i < h->n_extents; i++)
        if (h->extents[i].addr == addr) {
            h->extents[i] = h->extents[--h->n_extents];
            return;
        }
}

/* Open and touch. */
static bool open_pages(host_t *h, uint64_t addr, uint64_t bytes)
{
    if (!has_room(h, bytes))
        return false;
    if (mprotect(pointer(addr), bytes, PROT_READ | PROT_WRITE) != 0) {
        if (errno != ENOMEM)
            sim_store_fail(&h->base, "mprotect: %s", strerror(errno));
        return false;
    }
    volatile char *p = pointer(addr);
    for (uint64_t at = 0; at < bytes; at += h->page_bytes)
        p[at] = 1;
    return true;
}

static bool host_map(sim_store_t *store, uint64_t addr, uint64_t page_bytes, uint64_t n_pages,
                     uint64_t *handles)
{
    (void)handles;
    return open_pages((host_t *)store, addr, page_bytes * n_pages);
}

static void host_unmap(sim_store_t *store, uint64_t addr, uint64_t page_bytes, uint64_t n_pages,
                       const uint64_t *handles)
{
    (void)handles;
    uint64_t bytes = page_bytes * n_pages;
    if (madvise(pointer(addr), bytes, MADV_DONTNEED) != 0 ||
        mprotect(pointer(addr), bytes, PROT_NONE) != 0)
        sim_store_fail(store, "giving pages back: %s", strerror(errno));
}

static bool host_take(sim_store_t *store, uint64_t bytes, uint64_t *addr_p)
{
    uint64_t addr;
    if (!host_reserve(store, bytes, &addr))
        return false;
    if (!open_pages((host_t *)store, addr, bytes)) {
        host_unreserve(store, addr, bytes);
        return false;
    }
    *addr_p = addr;
    return true;
}

static void host_fill(sim_store_t *store, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    (void)store, (void)stream;
    memset(pointer(addr), 0x5a, bytes);
}

/* Resident bytes of a range, as the kernel has them. */
static bool count_resident(host_t *h, const extent_t *extent, uint64_t *bytes_p)
{
    enum { PIECE = 1 << 16 };
    unsigned char *is_there = base_xcalloc(PIECE, 1);
    uint64_t n_pages = extent->bytes / h->page_bytes;
    bool ok = true;
    for (uint64_t at = 0; at < n_pages && ok; at += PIECE) {
        uint64_t n = base_u64_min(PIECE, n_pages - at);
        ok = mincore(pointer(extent->addr + at * h->page_bytes), n * h->page_bytes, is_there) == 0;
        for (uint64_t i = 0; i < n && ok; i++)
            *bytes_p += (is_there[i] & 1) * h->page_bytes;
    }
    free(is_there);
    return ok;
}

static base_status_t host_measure(sim_store_t *store, sim_measure_t *measure_p, base_err_t *err)
{
    host_t *h = (host_t *)store;
    sim_measure_t m = { 0 };
    for (size_t i = 0; i < h->n_extents; i++)
        if (!count_resident(h, &h->extents[i], &m.used_bytes))
            return base_err_set(err, BASE_ERR_IO, "mincore: %s", strerror(errno));
    m.has_whole = sim_host_process("RssAnon", &m.whole_bytes);
    m.has_process = sim_host_process("VmHWM", &m.process_bytes);
    *measure_p = m;
    return BASE_OK;
}

static void host_end(sim_store_t *store)
{
    (void)store;
}

static void host_destroy(sim_store_t *store)
{
    host_t *h = (host_t *)store;
    free(h->extents);
    free(h);
}

static const sim_store_ops_t ops = {
    .name = "host",
    .destroy = host_destroy,
    .end = host_end,
    .measure = host_measure,
    .take = host_take,
    .give = host_unreserve,
    .reserve = host_reserve,
    .unreserve = host_unreserve,
    .map = host_map,
    .unmap = host_unmap,
    .fill = host_fill,
};

base_status_t sim_store_open_host(uint64_t scale, sim_store_t **store_p, base_err_t *err)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    if (scale == 0 || SIM_DEVICE_GRANULE % (scale * page_bytes) != 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "scale %" PRIu64
                            ": 2 MiB of a device would be no whole pages of %" PRIu64
                            " bytes; a power of two up to %" PRIu64 " can be",
                            scale, page_bytes, SIM_DEVICE_GRANULE / page_bytes);
    sim_host_memory_t memory;
    if (!sim_host_memory(&memory))
        return base_err_set(err, BASE_ERR_IO,
                            "the kernel does not say in /proc/meminfo what memory "
                            "there is");
    host_t *h = base_xcalloc(1, sizeof(*h));
    h->base.ops = &ops;
    h->base.scale = scale;
    h->page_bytes = page_bytes;
    snprintf(h->base.facts.name, sizeof(h->base.facts.name), "memory of the machine");
    h->base.facts.total_bytes = memory.total_bytes;
    h->base.facts.free_bytes = memory.available_bytes;
    h->base.facts.granularity = page_bytes;
    *store_p = &h->base;
    return BASE_OK;
}
