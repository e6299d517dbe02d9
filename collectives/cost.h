/* SPDX-License-Identifier: Apache-2.0
 * How long messages between GPUs take when nothing else uses the links. Estimates: bandwidth and
 * latency as NCCL's own tuner assumes them (src/graph/tuning.cc, topo.h of NCCL 2.2x), no
 * contention, networks without oversubscription. Times are seconds. */
#ifndef COLLECTIVES_COST_H
#define COLLECTIVES_COST_H

#include "topology/groups.h"

#include <stdint.h>

typedef struct {
    uint32_t nvlink_domain; /* GPUs that NVLink joins; 1 = none; ranks fill domains in order */
    uint32_t gpus_per_node;
    double nvlink_bytes_per_s; /* all links of a GPU, one direction; without links that of PCIe */
    double nic_bytes_per_s;    /* the share of one GPU in its host's network cards */
} coll_network_t;

/* `nvlink_gb_per_s` and `sm` (compute capability, 90 = 9.0) as in topo_gpu_t. */
coll_network_t coll_network(double nvlink_gb_per_s, uint32_t sm, uint32_t nvlink_domain,
                            uint32_t gpus_per_node, uint32_t nics_per_node,
                            uint64_t nic_gbit_per_s);

/* Where the ranks of a group sit. */
typedef struct {
    uint32_t n;         /* ranks */
    uint32_t n_domains; /* islands of NVLink (or hosts, where those are larger) that they are on */
} coll_reach_t;

coll_reach_t coll_reach(const coll_network_t *network, const topo_grid_t *grid, topo_group_t group,
                        uint32_t rank);

/* All-gather to, or reduce-scatter of, `bytes` on each rank; an all-reduce is both. */
double coll_gather_seconds(const coll_network_t *network, const coll_reach_t *reach,
                           uint64_t bytes);
double coll_all_reduce_seconds(const coll_network_t *network, const coll_reach_t *reach,
                               uint64_t bytes);

/* All-to-all: each rank keeps 1/n of its `bytes` and sends the rest in equal parts. */
double coll_all_to_all_seconds(const coll_network_t *network, const coll_reach_t *reach,
                               uint64_t bytes);

/* From a GPU to its host's memory or back. */
double coll_host_copy_seconds(uint64_t bytes);

/* One message between two ranks. */
double coll_message_seconds(const coll_network_t *network, uint32_t from, uint32_t to,
                            uint64_t bytes);

#endif
