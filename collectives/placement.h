/* SPDX-License-Identifier: Apache-2.0
 * Where the processes of a world sit: host, GPU, package, NUMA node. */
#ifndef COLLECTIVES_PLACEMENT_H
#define COLLECTIVES_PLACEMENT_H

#include "collectives/world.h"
#include "topology/bind.h"
#include "topology/groups.h"

typedef enum {
    COLL_BIND_NONE, /* only look */
    COLL_BIND_TRY,  /* bind; who cannot be is left as it is */
    COLL_BIND_MUST, /* bind, or fail */
} coll_bind_t;

/* Of one process. */
typedef struct {
    const char *host; /* the world's */
    topo_seat_t seat;
    uint32_t first_gpu, n_gpus; /* of the job, that it plays; 0 when not shared out yet */
    char trouble[sizeof(((base_err_t *)0)->text)]; /* why it has no seat or is not bound, else "" */
} coll_placed_t;

typedef struct {
    coll_placed_t *processes; /* n of them, on process 0 only; owned */
    uint32_t n;
    uint32_t n_hosts;
    bool is_bound; /* all of them */
} coll_placement_t;

/* Everybody together: find, or bind, one's own seat and tell process 0. `bus` is the address of the
 * GPU that this process uses, NULL when it uses none. BASE_ERR_UNSUPPORTED, on every process alike:
 * COLL_BIND_MUST and a process cannot be bound; the text names the process and its host. The world
 * must outlive the placement. Free with coll_placement_fini(), which takes a zeroed struct too. */
base_status_t coll_placement_init(coll_placement_t *placement_p, coll_world_t *world,
                                  coll_bind_t bind, const char *bus, base_err_t *err);
void coll_placement_fini(coll_placement_t *placement);

/* Process 0, after the GPUs have been shared out: on how many hosts is the group of this kind that
 * is on most? *rank_p: a rank of that group. */
uint32_t coll_placement_spread(const coll_placement_t *placement, const coll_world_t *world,
                               const topo_grid_t *grid, topo_group_t group, uint32_t *rank_p);

#endif
