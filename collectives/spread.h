/* SPDX-License-Identifier: Apache-2.0
 * How the ranks of a communicator lie over the machine: what its memory depends on beside its size.
 * Ranks fill hosts in order, as torchrun and mpirun place them. */
#ifndef COLLECTIVES_SPREAD_H
#define COLLECTIVES_SPREAD_H

#include "topology/groups.h"

#include <stddef.h>
#include <stdint.h>

/* The machine as far as NCCL sees it. */
typedef struct {
    uint32_t gpus_per_node; /* of one host, >= 1 */
    /* GPUs that NVLink joins; 1 = none, less than gpus_per_node: islands within a host, more: a
     * rack that NCCL counts as one node. */
    uint32_t nvlink_domain;
} coll_machine_t;

/* Seen from one rank. A node is what NCCL counts as one: a host, or a rack joined by NVLink. */
typedef struct {
    uint32_t n_ranks;
    uint32_t n_nodes;
    uint32_t n_local;  /* ranks in this rank's node, itself included */
    uint32_t n_linked; /* of these the ones that NVLink reaches, itself included */
    /* Which rank it is: its node among the communicator's, its place in the node. Unknown as a
     * rule, so that ranks whose communicators differ in this alone are alike. */
    bool is_placed;
    uint32_t node, place;
} coll_spread_t;

/* Of the group that `rank` is in (topo_group_shape()). Cost does not grow with ranks that lie in a
 * row. */
coll_spread_t coll_spread_of_shape(const coll_machine_t *machine, const topo_group_shape_t *shape,
                                   uint32_t rank);

/* Of `n` ranks in ascending order, `rank` among them. */
coll_spread_t coll_spread_of_list(const coll_machine_t *machine, const uint32_t *ranks, size_t n,
                                  uint32_t rank);

/* Set is_placed, node and place of a spread: `rank` among `n` ranks in the communicator's order. */
void coll_spread_place(coll_spread_t *spread, const coll_machine_t *machine, const uint32_t *ranks,
                       size_t n, uint32_t rank);

/* Whether two ranks are in one node, and whether NVLink joins them. */
bool coll_same_node(const coll_machine_t *machine, uint32_t a, uint32_t b);
bool coll_is_linked(const coll_machine_t *machine, uint32_t a, uint32_t b);

#endif
