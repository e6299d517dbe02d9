/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/bind.h"

#include "topology/node.h"

#include <errno.h>
#include <hwloc.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed;    /* hardware threads that this process may run on */
    hwloc_bitmap_t near;       /* those near its GPU */
    hwloc_bitmap_t near_nodes; /* memory near it */
    char near_text[160];       /* "GPU 3 (0000:9d:00.0)" */
} host_t;

/* ---- this host ---- */

static void host_fini(host_t *h)
{
    hwloc_bitmap_free(h->allowed);
    hwloc_bitmap_free(h->near);
    hwloc_bitmap_free(h->near_nodes);
    if (h->topology != NULL)
        hwloc_topology_destroy(h->topology);
}

static base_status_t host_init(host_t *h, base_err_t *err)
{
    *h = (host_t){ .allowed = hwloc_bitmap_alloc(),
                   .near = hwloc_bitmap_alloc(),
                   .near_nodes = hwloc_bitmap_alloc() };
    if (hwloc_topology_init(&h->topology) != 0 ||
        hwloc_topology_set_io_types_filter(h->topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
        hwloc_topology_load(h->topology) != 0)
        return base_err_set(err, BASE_ERR_IO, "hwloc does not know this machine: %s",
                            strerror(errno));
    if (!hwloc_topology_is_thissystem(h->topology))
        return base_err_set(err, BASE_ERR_UNSUPPORTED,
                            "hwloc was told to describe another machine (HWLOC_XMLFILE, "
                            "HWLOC_SYNTHETIC), on which nothing runs");
    if (hwloc_get_cpubind(h->topology, h->allowed, HWLOC_CPUBIND_PROCESS) != 0)
        return base_err_set(err, BASE_ERR_IO, "hwloc cannot tell where this process may run: %s",
                            strerror(errno));
    return BASE_OK;
}

/* Its GPU among those of the host; false: it has none. */
static bool find_gpu(const topo_node_t *node, uint32_t place, uint32_t n, const char *bus,
                     uint32_t *gpu_p)
{
    for (uint32_t i = 0; bus != NULL && i < node->n_gpus; i++) {
        if (strcasecmp(node->gpus[i].bus, bus) == 0) {
            *gpu_p = i;
            return true;
        }
    }
    if (bus != NULL || node->n_gpus == 0)
        return false;
    *gpu_p = n <= node->n_gpus ? place : (uint32_t)((uint64_t)place * node->n_gpus / n);
    return true;
}

static hwloc_obj_t object_of_bus(hwloc_topology_t t, const char *bus)
{
    hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(t, bus);
    return device != NULL ? hwloc_get_non_io_ancestor_obj(t, device) : NULL;
}

/* The NUMA node of one of n GPUs that share the host's nodes evenly. Nodes without hardware
 * threads (a GPU's own memory) are nobody's. */
static hwloc_obj_t node_of_share(hwloc_topology_t t, uint32_t place, uint32_t n)
{
    uint32_t n_nodes = 0, wanted;
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)) != NULL)
        n_nodes += !hwloc_bitmap_iszero(node->cpuset);
    if (n_nodes == 0)
        return NULL;
    wanted = (uint32_t)((uint64_t)place * n_nodes / n);
    while ((node = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (!hwloc_bitmap_iszero(node->cpuset) && wanted-- == 0)
            return node;
    }
    return NULL;
}

/* What is near the process's GPU. */
static base_status_t find_near(host_t *h, uint32_t place, uint32_t n, const char *bus,
                               topo_seat_t *seat, base_err_t *err)
{
    topo_node_t node;
    base_status_t status = topo_node_load(&node, NULL, err);
    if (status != BASE_OK)
        return status;
    hwloc_obj_t near;
    seat->gpu = place;
    if (find_gpu(&node, place, n, bus, &seat->gpu)) {
        snprintf(seat->bus, sizeof(seat->bus), "%s", node.gpus[seat->gpu].bus);
        snprintf(h->near_text, sizeof(h->near_text), "GPU %" PRIu32 " (%s)", seat->gpu, seat->bus);
        near = object_of_bus(h->topology, seat->bus);
    } else {
        near = node_of_share(h->topology, place, n);
        snprintf(seat->bus, sizeof(seat->bus), "%s", bus != NULL ? bus : "");
        snprintf(h->near_text, sizeof(h->near_text), "NUMA node %u",
                 near != NULL ? near->os_index : 0);
    }
    topo_node_fini(&node);
    if (near == NULL)
        return base_err_set(err, BASE_ERR_IO, "hwloc does not say what is near %s", h->near_text);
    hwloc_bitmap_copy(h->near, near->cpuset);
    hwloc_bitmap_copy(h->near_nodes, near->nodeset);
    return BASE_OK;
}

/* ---- words ---- */

static void list_cpus(char text[static TOPO_CPUS_TEXT], hwloc_const_bitmap_t cpus)
{
    if (hwloc_bitmap_list_snprintf(text, TOPO_CPUS_TEXT, cpus) >= TOPO_CPUS_TEXT)
        memcpy(text + TOPO_CPUS_TEXT - 3, "..", 3);
}

/* The one object of a type that `cpus` lie in. */
static uint32_t only_object(hwloc_topology_t t, hwloc_obj_type_t type, hwloc_const_bitmap_t cpus)
{
    uint32_t found = TOPO_SEVERAL;
    hwloc_obj_t o = NULL;
    while ((o = hwloc_get_next_obj_by_type(t, type, o)) != NULL) {
        if (o->cpuset == NULL || !hwloc_bitmap_intersects(o->cpuset, cpus))
            continue;
        if (found != TOPO_SEVERAL)
            return TOPO_SEVERAL;
        found = type == HWLOC_OBJ_NUMANODE ? o->os_index : o->logical_index;
    }
    return found;
}

static void describe(const host_t *h, hwloc_const_bitmap_t cpus, topo_seat_t *seat)
{
    seat->package = only_object(h->topology, HWLOC_OBJ_PACKAGE, cpus);
    seat->numa = only_object(h->topology, HWLOC_OBJ_NUMANODE, cpus);
    list_cpus(seat->cpus, cpus);
}

/* ---- binding ---- */

static base_status_t bind_here(host_t *h, topo_seat_t *seat, base_err_t *err)
{
    char wanted[TOPO_CPUS_TEXT], allowed[TOPO_CPUS_TEXT];
    list_cpus(wanted, h->near);
    list_cpus(allowed, h->allowed);
    hwloc_bitmap_and(h->near, h->near, h->allowed);
    if (hwloc_bitmap_iszero(h->near))
        return base_err_set(err, BASE_ERR_UNSUPPORTED,
                            "near %s are hardware threads %s, but it may run on %s only: start "
                            "mpirun with --bind-to none, or give the job these threads",
                            h->near_text, wanted, allowed);
    if (hwloc_set_cpubind(h->topology, h->near, HWLOC_CPUBIND_PROCESS) != 0)
        return base_err_set(err, BASE_ERR_UNSUPPORTED,
                            "it cannot be bound to hardware threads %s: %s", wanted,
                            strerror(errno));
    seat->is_bound = true;
    seat->is_memory_bound = hwloc_set_membind(h->topology, h->near_nodes, HWLOC_MEMBIND_BIND,
                                              HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) == 0;
    if (!seat->is_memory_bound)
        snprintf(seat->why_not_memory, sizeof(seat->why_not_memory), "%s", strerror(errno));
    /* What is said is what the system says, not what it was asked for. */
    if (hwloc_get_cpubind(h->topology, h->near, HWLOC_CPUBIND_PROCESS) != 0)
        return base_err_set(err, BASE_ERR_IO, "hwloc cannot tell where this process is bound: %s",
                            strerror(errno));
    describe(h, h->near, seat);
    return BASE_OK;
}

static base_status_t take_seat(uint32_t place, uint32_t n, const char *bus, bool binds,
                               topo_seat_t *seat_p, base_err_t *err)
{
    host_t h;
    topo_seat_t seat = { .bus = "" };
    base_status_t status = host_init(&h, err);
    if (status == BASE_OK)
        status = find_near(&h, place, n, bus, &seat, err);
    if (status == BASE_OK && binds)
        status = bind_here(&h, &seat, err);
    else if (status == BASE_OK)
        describe(&h, h.allowed, &seat);
    if (status == BASE_OK)
        *seat_p = seat;
    host_fini(&h);
    return status;
}

base_status_t topo_seat_find(uint32_t place, uint32_t n, const char *bus, topo_seat_t *seat_p,
                             base_err_t *err)
{
    return take_seat(place, n, bus, false, seat_p, err);
}

base_status_t topo_seat_take(uint32_t place, uint32_t n, const char *bus, topo_seat_t *seat_p,
                             base_err_t *err)
{
    return take_seat(place, n, bus, true, seat_p, err);
}
