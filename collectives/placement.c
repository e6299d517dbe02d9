/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/placement.h"

#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a process tells process 0. */
typedef struct {
    topo_seat_t seat;
    base_status_t status;
    char text[sizeof(((base_err_t *)0)->text)];
} told_t;

static told_t find_seat(const coll_world_t *world, coll_bind_t bind, const char *bus)
{
    told_t told = { .status = BASE_OK };
    base_err_t err = { .text = "" };
    uint32_t n, place = coll_world_place_on_host(world, coll_world_process(world), &n);
    if (bind != COLL_BIND_NONE)
        told.status = topo_seat_take(place, n, bus, &told.seat, &err);
    if (told.status != BASE_OK || bind == COLL_BIND_NONE) {
        base_err_t unknown = { .text = "" };
        base_status_t found = topo_seat_find(place, n, bus, &told.seat, &unknown);
        if (found != BASE_OK && told.status == BASE_OK) {
            told.status = found;
            err = unknown;
        }
    }
    memcpy(told.text, err.text, sizeof(told.text));
    return told;
}

static bool is_new_host(const coll_placement_t *p, uint32_t process)
{
    for (uint32_t i = 0; i < process; i++)
        if (strcmp(p->processes[i].host, p->processes[process].host) == 0)
            return false;
    return true;
}

static void take_in(coll_placement_t *p, const coll_world_t *world, const coll_blob_t *blobs)
{
    p->n = coll_world_n_processes(world);
    p->processes = base_xcalloc(p->n, sizeof(*p->processes));
    p->is_bound = true;
    for (uint32_t i = 0; i < p->n; i++) {
        coll_placed_t *process = &p->processes[i];
        told_t told;
        memcpy(&told, blobs[i].data, sizeof(told));
        process->host = coll_world_host(world, i);
        process->seat = told.seat;
        memcpy(process->trouble, told.text, sizeof(process->trouble));
        coll_world_share_of(world, i, &process->first_gpu, &process->n_gpus);
        p->n_hosts += is_new_host(p, i);
        p->is_bound = p->is_bound && told.seat.is_bound;
    }
}

/* Process 0: the first process that cannot be bound, in words, or "". */
static void find_trouble(const coll_placement_t *p, base_err_t *trouble)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->processes[i].trouble[0] == '\0')
            continue;
        base_err_set(trouble, BASE_ERR_UNSUPPORTED, "process %" PRIu32 " on %.64s: %.800s", i,
                     p->processes[i].host, p->processes[i].trouble);
        return;
    }
}

base_status_t coll_placement_init(coll_placement_t *placement_p, coll_world_t *world,
                                  coll_bind_t bind, const char *bus, base_err_t *err)
{
    told_t told = find_seat(world, bind, bus);
    coll_placement_t placement = { .n = 0 };
    base_err_t trouble = { .text = "" };
    coll_blob_t *blobs;
    coll_world_collect(world, &told, sizeof(told), &blobs);
    if (coll_world_process(world) == 0)
        take_in(&placement, world, blobs);
    coll_blobs_free(blobs, coll_world_n_processes(world));
    if (coll_world_process(world) == 0 && bind == COLL_BIND_MUST)
        find_trouble(&placement, &trouble);
    char *verdict = trouble.text;
    size_t n = strlen(verdict);
    coll_world_broadcast(world, &verdict, &n);
    base_status_t status = n > 0 ? base_err_set(err, BASE_ERR_UNSUPPORTED, "%s", verdict) : BASE_OK;
    if (verdict != trouble.text)
        free(verdict);
    if (status == BASE_OK)
        *placement_p = placement;
    else
        coll_placement_fini(&placement);
    return status;
}

void coll_placement_fini(coll_placement_t *placement)
{
    free(placement->processes);
    *placement = (coll_placement_t){ .n = 0 };
}

static uint32_t count_hosts(const coll_placement_t *p, const coll_world_t *world,
                            const uint32_t *ranks, uint32_t n)
{
    uint32_t n_hosts = 0;
    for (uint32_t i = 0; i < n; i++) {
        const char *host = p->processes[coll_world_owner(world, ranks[i])].host;
        uint32_t k = 0;
        while (k < i && strcmp(p->processes[coll_world_owner(world, ranks[k])].host, host) != 0)
            k++;
        n_hosts += k == i;
    }
    return n_hosts;
}

uint32_t coll_placement_spread(const coll_placement_t *placement, const coll_world_t *world,
                               const topo_grid_t *grid, topo_group_t group, uint32_t *rank_p)
{
    uint32_t most = 0;
    uint32_t *ranks = base_xcalloc(grid->world_size, sizeof(*ranks));
    for (uint32_t rank = 0; rank < grid->world_size; rank++) {
        uint32_t n = topo_group_ranks(grid, group, rank, ranks);
        if (n == 0 || ranks[0] != rank) /* a group counts once, at its first rank */
            continue;
        uint32_t n_hosts = count_hosts(placement, world, ranks, n);
        if (n_hosts > most) {
            most = n_hosts;
            *rank_p = rank;
        }
    }
    free(ranks);
    return most;
}
