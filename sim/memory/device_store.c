/* SPDX-License-Identifier: Apache-2.0
 * A device on a store: the synthetic device gives the addresses, the store the memory. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/memory/device_ops.h"
#include "sim/memory/store_ops.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    sim_device_t base;
    sim_device_t *inner; /* gives the addresses; owned */
    sim_store_t *store;
    sim_store_range_t *ranges; /* by ascending address */
    size_t n_ranges, ranges_cap;
    uint64_t taken_bytes; /* now, of the store */
    bool peak_is_open;    /* taken_bytes is the peak and was not measured */
    sim_device_own_t own;
} stored_t;

/* ---- ranges ---- */

/* Index of the first range above addr. */
static size_t above(const stored_t *d, uint64_t addr)
{
    size_t lo = 0, hi = d->n_ranges;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->ranges[mid].addr <= addr)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The one that contains addr. */
static sim_store_range_t *range_of(const stored_t *d, uint64_t addr)
{
    size_t i = above(d, addr);
    assert(i > 0 && addr - d->ranges[i - 1].addr < d->ranges[i - 1].bytes);
    return &d->ranges[i - 1];
}

static void add_range(stored_t *d, uint64_t addr, uint64_t bytes, uint64_t store_addr)
{
    if (d->n_ranges == d->ranges_cap) {
        d->ranges_cap = d->ranges_cap == 0 ? 64 : 2 * d->ranges_cap;
        d->ranges = base_xrealloc(d->ranges, d->ranges_cap, sizeof(*d->ranges));
    }
    size_t at = above(d, addr);
    memmove(&d->ranges[at + 1], &d->ranges[at], (d->n_ranges - at) * sizeof(*d->ranges));
    d->ranges[at] = (sim_store_range_t){ .addr = addr, .bytes = bytes, .store_addr = store_addr };
    d->n_ranges++;
}

static void remove_range(stored_t *d, sim_store_range_t *range)
{
    free(range->handles);
    size_t at = (size_t)(range - d->ranges);
    d->n_ranges--;
    memmove(range, range + 1, (d->n_ranges - at) * sizeof(*range));
}

static uint64_t store_addr_of(const stored_t *d, const sim_store_range_t *range, uint64_t addr)
{
    return range->store_addr + (addr - range->addr) / d->store->scale;
}

/* ---- account ---- */

static void add_taken(stored_t *d, uint64_t bytes)
{
    uint64_t real = bytes / d->store->scale;
    d->taken_bytes += real;
    d->store->account_bytes += real;
    if (d->taken_bytes > d->own.account_bytes) {
        d->own.account_bytes = d->taken_bytes;
        d->peak_is_open = true;
    }
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Before the first byte is given back after a peak. */
static void settle(stored_t *d)
{
    if (!d->peak_is_open || sim_store_has_failed(d->store))
        return;
    d->peak_is_open = false;
    base_err_t err;
    if (sim_store_measure(d->store, &d->own.then, &err) != BASE_OK) {
        sim_store_fail(d->store, "%s", err.text);
        return;
    }
    const sim_measure_t *then = &d->own.then;
    uint64_t others = d->store->account_bytes - d->taken_bytes;
    d->own.own_bytes = less(then->used_bytes, d->store->used_before + others);
    d->own.has_process =
        d->store->facts.bus[0] != '\0' && then->has_process && d->store->has_process_before;
    d->own.process_bytes = less(then->process_bytes, d->store->process_before + others);
    d->own.is_measured = true;
}

static void remove_taken(stored_t *d, uint64_t bytes)
{
    d->taken_bytes -= bytes / d->store->scale;
    d->store->account_bytes -= bytes / d->store->scale;
}

/* ---- ops ---- */

static bool range_take(sim_device_t *device, uint64_t bytes, uint64_t *addr_p)
{
    stored_t *d = (stored_t *)device;
    uint64_t store_addr;
    if (sim_store_has_failed(d->store) || !d->inner->ops->range_take(d->inner, bytes, addr_p))
        return false;
    if (!d->store->ops->take(d->store, bytes / d->store->scale, &store_addr)) {
        d->inner->ops->range_give(d->inner, *addr_p, bytes);
        return false;
    }
    add_range(d, *addr_p, bytes, store_addr);
    add_taken(d, bytes);
    return true;
}

static void range_give(sim_device_t *device, uint64_t addr, uint64_t bytes)
{
    stored_t *d = (stored_t *)device;
    settle(d);
    sim_store_range_t *range = range_of(d, addr);
    d->store->ops->give(d->store, range->store_addr, bytes / d->store->scale);
    remove_taken(d, bytes);
    remove_range(d, range);
    d->inner->ops->range_give(d->inner, addr, bytes);
}

/* Whether pages of so many of the store's bytes can be made. */
static bool can_be_pages(stored_t *d, uint64_t bytes)
{
    uint64_t granularity = d->store->facts.granularity;
    if (granularity == 0)
        sim_store_fail(d->store, "%s: no virtual memory management, which expandable segments need",
                       d->store->facts.name);
    else if (bytes % granularity != 0)
        sim_store_fail(d->store,
                       "%s: makes pages of %" PRIu64 " bytes; expandable segments need %" PRIu64,
                       d->store->facts.name, granularity, bytes);
    return !sim_store_has_failed(d->store);
}

static bool reserve(sim_device_t *device, uint64_t bytes, uint64_t *addr_p)
{
    stored_t *d = (stored_t *)device;
    uint64_t store_addr;
    if (!can_be_pages(d, SIM_DEVICE_GRANULE / d->store->scale))
        return false;
    if (sim_store_has_failed(d->store) || !d->inner->ops->reserve(d->inner, bytes, addr_p))
        return false;
    if (!d->store->ops->reserve(d->store, bytes / d->store->scale, &store_addr)) {
        d->inner->ops->unreserve(d->inner, *addr_p, bytes);
        return false;
    }
    add_range(d, *addr_p, bytes, store_addr);
    return true;
}

static void unreserve(sim_device_t *device, uint64_t addr, uint64_t bytes)
{
    stored_t *d = (stored_t *)device;
    sim_store_range_t *range = range_of(d, addr);
    d->store->ops->unreserve(d->store, range->store_addr, bytes / d->store->scale);
    remove_range(d, range);
    d->inner->ops->unreserve(d->inner, addr, bytes);
}

/* The handles of the pages from `addr` on. */
static uint64_t *handles_at(sim_store_range_t *range, uint64_t addr, uint64_t page_bytes)
{
    if (range->handles == NULL) {
        range->page_bytes = page_bytes;
        range->handles = base_xcalloc(range->bytes / page_bytes, sizeof(*range->handles));
    }
    assert(range->page_bytes == page_bytes);
    return range->handles + (addr - range->addr) / page_bytes;
}

static bool map(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages)
{
    stored_t *d = (stored_t *)device;
    sim_store_range_t *range = range_of(d, addr);
    if (sim_store_has_failed(d->store) ||
        !d->store->ops->map(d->store, store_addr_of(d, range, addr), page_bytes / d->store->scale,
                            n_pages, handles_at(range, addr, page_bytes)))
        return false;
    add_taken(d, page_bytes * n_pages);
    return true;
}

static void unmap(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages)
{
    stored_t *d = (stored_t *)device;
    settle(d);
    sim_store_range_t *range = range_of(d, addr);
    d->store->ops->unmap(d->store, store_addr_of(d, range, addr), page_bytes / d->store->scale,
                         n_pages, handles_at(range, addr, page_bytes));
    remove_taken(d, page_bytes * n_pages);
}

static void fill(sim_device_t *device, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    stored_t *d = (stored_t *)device;
    const sim_store_range_t *range = range_of(d, addr);
    uint64_t real = base_u64_div_up(bytes, d->store->scale);
    if (sim_store_has_failed(d->store))
        return;
    d->store->ops->fill(d->store, store_addr_of(d, range, addr), real, stream);
    d->own.filled_bytes += real;
}

static void destroy(sim_device_t *device)
{
    stored_t *d = (stored_t *)device;
    assert(d->n_ranges == 0);
    sim_device_destroy(d->inner);
    free(d->ranges);
    free(d);
}

static const sim_device_ops_t ops = {
    .name = "store",
    .destroy = destroy,
    .range_take = range_take,
    .range_give = range_give,
    .reserve = reserve,
    .unreserve = unreserve,
    .map = map,
    .unmap = unmap,
    .fill = fill,
};

sim_device_t *sim_device_create_on(sim_store_t *store, const sim_device_config_t *config)
{
    stored_t *d = base_xcalloc(1, sizeof(*d));
    d->inner = sim_device_create_synthetic(config);
    d->base.ops = &ops;
    d->base.config = d->inner->config;
    d->store = store;
    return &d->base;
}

const sim_device_own_t *sim_device_own(sim_device_t *device)
{
    stored_t *d = (stored_t *)device;
    settle(d);
    return &d->own;
}
