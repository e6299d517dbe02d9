/* SPDX-License-Identifier: Apache-2.0
 * No allocator at all: blocks are as large as what was asked for, rounded up to what an allocator
 * can hand out at least, have no addresses, and are the device's again as soon as they are freed.
 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/memory/alloc_internal.h"

sim_alloc_t *sim_alloc_create_live(sim_device_t *device)
{
    sim_alloc_t *a;
    sim_alloc_create(device, NULL, &a, NULL); /* fails with settings only */
    sim_alloc_drop_stats(a);
    a->is_live = true;
    return a;
}

bool sim__live_malloc(sim_alloc_t *a, uint64_t bytes, sim_block_t *block_p)
{
    bool is_refused = bytes >= REFUSED;
    uint64_t size = is_refused ? bytes : base_u64_round_up(bytes, MIN_BLOCK);
    if (is_refused || !sim_device_take(a->device, size)) {
        a->num_ooms++;
        sim__note_oom(a, 0, LARGE, size);
        return false;
    }
    a->totals.allocated_bytes += size;
    a->totals.reserved_bytes += size;
    *block_p = sim__block_new(a, 0, size, 0, LARGE);
    return true;
}

void sim__live_free(sim_alloc_t *a, uint32_t id)
{
    uint64_t size = a->blocks[id].size;
    a->totals.allocated_bytes -= size;
    a->totals.reserved_bytes -= size;
    sim_device_give(a->device, size);
    sim__block_delete(a, id);
}
