/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/cost.h"

#include "sim/base/units.h"

#include <stdlib.h>

/* What NCCL expects of one NVLink, over its data-sheet rate: topo.h, SM80_NVLINK_BW 20.0 of 25,
 * SM90 20.6 of 25, SM100 40.1 of 50 GB/s. */
static double nvlink_efficiency(uint32_t sm)
{
    if (sm >= 100)
        return 40.1 / 50.0;
    return sm >= 90 ? 20.6 / 25.0 : 20.0 / 25.0;
}

/* NCCL's PCI_BW of a fourth generation slot is twice this of the third: topo.h. */
static const double pcie_bytes_per_s = 24e9;

/* tuning.cc: base latencies of a ring by protocol, and what a step adds over NVLink and over the
 * network. */
static const double base_simple_s = 8.4e-6;
static const double nvlink_step_simple_s = 3.4e-6;
static const double network_step_s = 14.0e-6;

/* Rings over NVLink. LL sends as many flags as data, LL128 120 of 128 bytes. */
static const struct {
    double base_s, step_s, efficiency;
} protocols[] = {
    { 6.6e-6, 0.6e-6, 0.5 },
    { 14.0e-6, 1.9e-6, 120.0 / 128.0 },
    { 8.4e-6, 3.4e-6, 1.0 },
};

coll_network_t coll_network(double nvlink_gb_per_s, uint32_t sm, uint32_t nvlink_domain,
                            uint32_t gpus_per_node, uint32_t nics_per_node, uint64_t nic_gbit_per_s)
{
    double nics_per_gpu = (double)nics_per_node / gpus_per_node;
    bool has_nvlink = nvlink_domain > 1 && nvlink_gb_per_s > 0;
    return (coll_network_t){
        .nvlink_domain = has_nvlink ? nvlink_domain : 1,
        .gpus_per_node = gpus_per_node,
        .nvlink_bytes_per_s =
            has_nvlink ? nvlink_gb_per_s * 1e9 * nvlink_efficiency(sm) : pcie_bytes_per_s,
        .nic_bytes_per_s = nics_per_gpu * (double)nic_gbit_per_s * 1e9 / 8,
    };
}

/* GPUs that reach each other without the network. */
static uint32_t domain_gpus(const coll_network_t *network)
{
    return network->nvlink_domain > network->gpus_per_node ? network->nvlink_domain
                                                           : network->gpus_per_node;
}

coll_reach_t coll_reach(const coll_network_t *network, const topo_grid_t *grid, topo_group_t group,
                        uint32_t rank)
{
    topo_group_shape_t shape;
    coll_reach_t reach = { .n = 1, .n_domains = 1 };
    if (!topo_group_shape(grid, group, rank, &shape))
        return reach;
    for (int d = 0; d < shape.n_dims; d++)
        reach.n *= shape.sizes[d];
    uint32_t last = shape.first / domain_gpus(network);
    for (uint32_t i = 1; i < reach.n; i++) {
        uint32_t member = shape.first;
        for (uint32_t d = 0, rest = i; d < (uint32_t)shape.n_dims; d++) {
            member += rest % shape.sizes[d] * shape.strides[d];
            rest /= shape.sizes[d];
        }
        uint32_t domain = member / domain_gpus(network);
        reach.n_domains += domain != last;
        last = domain;
    }
    return reach;
}

/* Steps that a message over the network waits for: those of a ring, or of the parallel aggregated
 * trees that NCCL has for many hosts. */
static uint32_t network_steps(uint32_t n_domains)
{
    uint32_t log2_up = 0;
    while ((UINT32_C(1) << log2_up) < n_domains)
        log2_up++;
    return n_domains - 1 < 2 * log2_up ? n_domains - 1 : 2 * log2_up;
}

/* A ring within one NVLink domain, by the protocol that is fastest. */
static double ring_seconds(const coll_network_t *network, uint32_t steps, double moved)
{
    double least = 0;
    for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
        double seconds = protocols[i].base_s + steps * protocols[i].step_s +
                         moved / (network->nvlink_bytes_per_s * protocols[i].efficiency);
        if (i == 0 || seconds < least)
            least = seconds;
    }
    return least;
}

double coll_gather_seconds(const coll_network_t *network, const coll_reach_t *reach, uint64_t bytes)
{
    if (reach->n <= 1)
        return 0;
    double moved = (double)bytes * (reach->n - 1) / reach->n;
    uint32_t local = reach->n / reach->n_domains;
    double local_steps = local > 1 ? local - 1 : 0;
    if (reach->n_domains > 1) {
        /* The group's rings of one host leave it through the cards of all its members. */
        double rate = network->nic_bytes_per_s * local;
        if (local > 1 && rate > network->nvlink_bytes_per_s)
            rate = network->nvlink_bytes_per_s;
        return base_simple_s + local_steps * nvlink_step_simple_s +
               network_steps(reach->n_domains) * network_step_s + moved / rate;
    }
    return ring_seconds(network, reach->n - 1, moved);
}

double coll_all_reduce_seconds(const coll_network_t *network, const coll_reach_t *reach,
                               uint64_t bytes)
{
    if (reach->n <= 1)
        return 0;
    if (reach->n_domains == 1)
        return ring_seconds(network, 2 * (reach->n - 1),
                            2 * (double)bytes * (reach->n - 1) / reach->n);
    return 2 * coll_gather_seconds(network, reach, bytes) - base_simple_s;
}

double coll_all_to_all_seconds(const coll_network_t *network, const coll_reach_t *reach,
                               uint64_t bytes)
{
    if (reach->n <= 1)
        return 0;
    uint32_t local = reach->n / reach->n_domains;
    double part = (double)bytes / reach->n;
    double near = part * (local - 1) / network->nvlink_bytes_per_s;
    if (reach->n_domains == 1)
        return base_simple_s + nvlink_step_simple_s + near;
    double far = part * (reach->n - local) / network->nic_bytes_per_s;
    return base_simple_s + network_step_s + (near > far ? near : far);
}

double coll_host_copy_seconds(uint64_t bytes)
{
    return (double)bytes / pcie_bytes_per_s;
}

double coll_message_seconds(const coll_network_t *network, uint32_t from, uint32_t to,
                            uint64_t bytes)
{
    if (from / domain_gpus(network) == to / domain_gpus(network))
        return base_simple_s + nvlink_step_simple_s + (double)bytes / network->nvlink_bytes_per_s;
    return base_simple_s + network_step_s + (double)bytes / network->nic_bytes_per_s;
}
