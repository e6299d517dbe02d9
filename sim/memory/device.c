/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/device.h"

#include "sim/base/units.h"
#include "sim/memory/device_ops.h"

#include <string.h>

static const char *const address_names[] = { "bump", "reuse", "down" };

bool sim_addresses_parse(const char *name, sim_addresses_t *addresses_p)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(name, address_names[i]) == 0) {
            *addresses_p = (sim_addresses_t)i;
            return true;
        }
    return false;
}

const char *sim_addresses_name(sim_addresses_t addresses)
{
    return address_names[addresses];
}

void sim_device_destroy(sim_device_t *device)
{
    if (device != NULL)
        device->ops->destroy(device);
}

uint64_t sim_device_total_bytes(const sim_device_t *device)
{
    return device->config.total_bytes;
}

uint64_t sim_device_usable_bytes(const sim_device_t *device)
{
    return device->config.usable_bytes;
}

uint64_t sim_device_used_bytes(const sim_device_t *device)
{
    return device->used_bytes;
}

const sim_device_calls_t *sim_device_calls(const sim_device_t *device)
{
    return &device->calls;
}

static bool fits(const sim_device_t *device, uint64_t bytes)
{
    return device->used_bytes <= device->config.usable_bytes &&
           bytes <= device->config.usable_bytes - device->used_bytes;
}

static void charge(sim_device_t *device, uint64_t bytes)
{
    device->used_bytes += bytes;
    if (device->used_bytes > device->calls.peak_used_bytes)
        device->calls.peak_used_bytes = device->used_bytes;
}

bool sim_device_malloc(sim_device_t *device, uint64_t bytes, uint64_t *addr_p)
{
    if (!fits(device, bytes) || !fits(device, base_u64_round_up(bytes, SIM_DEVICE_GRANULE)) ||
        !device->ops->range_take(device, base_u64_round_up(bytes, SIM_DEVICE_GRANULE), addr_p)) {
        device->calls.n_failed++;
        return false;
    }
    charge(device, base_u64_round_up(bytes, SIM_DEVICE_GRANULE));
    device->calls.n_malloc++;
    return true;
}

void sim_device_free(sim_device_t *device, uint64_t addr, uint64_t bytes)
{
    uint64_t rounded = base_u64_round_up(bytes, SIM_DEVICE_GRANULE);
    device->ops->range_give(device, addr, rounded);
    device->used_bytes -= rounded;
    device->calls.n_free++;
}

/* No reservation is larger than this, so that rounding it up and adding it never overflows. */
#define MAX_RESERVE (UINT64_C(1) << 60)

bool sim_device_reserve(sim_device_t *device, uint64_t bytes, uint64_t *addr_p)
{
    return bytes <= MAX_RESERVE &&
           device->ops->reserve(device, base_u64_round_up(bytes, SIM_DEVICE_GRANULE), addr_p);
}

void sim_device_unreserve(sim_device_t *device, uint64_t addr, uint64_t bytes)
{
    device->ops->unreserve(device, addr, base_u64_round_up(bytes, SIM_DEVICE_GRANULE));
}

bool sim_device_map(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages)
{
    uint64_t room = fits(device, 0) ? device->config.usable_bytes - device->used_bytes : 0;
    uint64_t n_made = base_u64_min(n_pages, room / page_bytes);
    charge(device, n_made * page_bytes);
    device->calls.n_page_create += n_made;
    if (n_made == n_pages && device->ops->map(device, addr, page_bytes, n_pages))
        return true;
    device->used_bytes -= n_made * page_bytes;
    device->calls.n_page_release += n_made;
    device->calls.n_failed++;
    return false;
}

void sim_device_unmap(sim_device_t *device, uint64_t addr, uint64_t page_bytes, uint64_t n_pages)
{
    device->ops->unmap(device, addr, page_bytes, n_pages);
    device->used_bytes -= page_bytes * n_pages;
    device->calls.n_page_release += n_pages;
}

void sim_device_fill(sim_device_t *device, uint64_t addr, uint64_t bytes, uint64_t stream)
{
    device->ops->fill(device, addr, bytes, stream);
}

bool sim_device_take(sim_device_t *device, uint64_t bytes)
{
    if (!fits(device, bytes))
        return false;
    charge(device, bytes);
    return true;
}

void sim_device_give(sim_device_t *device, uint64_t bytes)
{
    device->used_bytes -= bytes;
}
