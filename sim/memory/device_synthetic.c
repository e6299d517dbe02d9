/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/device.h"
#include "sim/memory/device_ops.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* bump and reuse: addresses from `top` on were never given out. reuse: `gaps` are the ranges below
 * `top` that are free again, ascending, never touching each other or `top`. down: addresses below
 * `bottom` were never given out. */
typedef struct {
    uint64_t addr, bytes;
} gap_t;

typedef struct {
    sim_device_t base;
    uint64_t top, bottom;
    gap_t *gaps;
    size_t n_gaps, gaps_cap;
} synthetic_t;

/* Bounds of the address space, see SIM_ADDRESSES_FIRST. */
#define TOP_MAX    (UINT64_C(1) << 53)
#define BOTTOM_MIN UINT64_C(0x10000000)

static bool take_gap(synthetic_t *d, uint64_t bytes, uint64_t *addr_p)
{
    for (size_t i = 0; i < d->n_gaps; i++) {
        gap_t *gap = &d->gaps[i];
        if (gap->bytes < bytes)
            continue;
        *addr_p = gap->addr;
        gap->addr += bytes;
        gap->bytes -= bytes;
        if (gap->bytes == 0) {
            d->n_gaps--;
            memmove(gap, gap + 1, (d->n_gaps - i) * sizeof(*gap));
        }
        return true;
    }
    return false;
}

static bool take(sim_device_t *device, uint64_t bytes, uint64_t *addr_p)
{
    synthetic_t *d = (synthetic_t *)device;
    if (d->base.config.addresses == SIM_ADDRESSES_DOWN) {
        if (bytes > d->bottom - BOTTOM_MIN)
            return false;
        d->bottom -= bytes;
        *addr_p = d->bottom;
        return true;
    }
    if (take_gap(d, bytes, addr_p))
        return true;
    if (bytes > TOP_MAX - d->top)
        return false;
    *addr_p = d->top;
    d->top += bytes;
    return true;
}

static void insert_gap(synthetic_t *d, size_t at, uint64_t addr, uint64_t bytes)
{
    if (d->n_gaps == d->gaps_cap) {
        d->gaps_cap = d->gaps_cap == 0 ? 16 : d->gaps_cap * 2;
        d->gaps = base_xrealloc(d->gaps, d->gaps_cap, sizeof(*d->gaps));
    }
    memmove(&d->gaps[at + 1], &d->gaps[at], (d->n_gaps - at) * sizeof(*d->gaps));
    d->gaps[at] = (gap_t){ addr, bytes };
    d->n_gaps++;
}

static void give(sim_device_t *device, uint64_t addr, uint64_t bytes)
{
    synthetic_t *d = (synthetic_t *)device;
    if (d->base.config.addresses != SIM_ADDRESSES_REUSE)
        return;
    size_t lo = 0, hi = d->n_gaps; /* first gap above addr */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->gaps[mid].addr < addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo > 0 && d->gaps[lo - 1].addr + d->gaps[lo - 1].bytes == addr) {
        lo--;
        d->gaps[lo].bytes += bytes;
    } else {
        insert_gap(d, lo, addr, bytes);
    }
    gap_t *gap = &d->gaps[lo];
    if (lo + 1 < d->n_gaps && gap->addr + gap->bytes == gap[1].addr) {
        gap->bytes += gap[1].bytes;
        d->n_gaps--;
        memmove(gap + 1, gap + 2, (d->n_gaps - lo - 1) * sizeof(*gap));
    }
    if (gap->addr + gap->bytes == d->top) { /* it is the last one */
        d->top = gap->addr;
        d->n_gaps--;
    }
}

static bool map(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages)
{
    (void)device, (void)addr, (void)page_bytes, (void)n_pages;
    return true;
}

static void unmap(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages)
{
    (void)device, (void)addr, (void)page_bytes, (void)n_pages;
}

static void fill(sim_device_t *device, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    (void)device, (void)addr, (void)bytes, (void)stream;
}

static void destroy(sim_device_t *device)
{
    synthetic_t *d = (synthetic_t *)device;
    free(d->gaps);
    free(d);
}

static const sim_device_ops_t ops = {
    .name = "synthetic",
    .destroy = destroy,
    .range_take = take,
    .range_give = give,
    .reserve = take,
    .unreserve = give,
    .map = map,
    .unmap = unmap,
    .fill = fill,
};

sim_device_t *sim_device_create_synthetic(const sim_device_config_t *config)
{
    synthetic_t *d = base_xcalloc(1, sizeof(*d));
    d->base.ops = &ops;
    d->base.config = *config;
    d->base.config.total_bytes = base_u64_min(config->total_bytes, SIM_DEVICE_MAX_BYTES);
    d->base.config.usable_bytes = base_u64_min(config->usable_bytes, SIM_DEVICE_MAX_BYTES);
    d->top = SIM_ADDRESSES_FIRST;
    d->bottom = SIM_ADDRESSES_DOWN_END;
    return &d->base;
}

sim_device_t *sim_device_clone_synthetic(const sim_device_t *device, uint64_t total_bytes,
                                         uint64_t usable_bytes)
{
    const synthetic_t *from = (const synthetic_t *)device;
    assert(device->ops == &ops);
    synthetic_t *d = base_xcalloc(1, sizeof(*d));
    *d = *from;
    d->base.config.total_bytes = base_u64_min(total_bytes, SIM_DEVICE_MAX_BYTES);
    d->base.config.usable_bytes = base_u64_min(usable_bytes, SIM_DEVICE_MAX_BYTES);
    d->gaps = NULL;
    if (from->gaps_cap > 0) {
        d->gaps = base_xrealloc(NULL, from->gaps_cap, sizeof(*d->gaps));
        memcpy(d->gaps, from->gaps, from->n_gaps * sizeof(*d->gaps));
    }
    return &d->base;
}
