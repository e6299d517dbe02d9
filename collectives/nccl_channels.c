/* SPDX-License-Identifier: Apache-2.0
 * How many channels NCCL gives a communicator (src/graph/search.cc, connect.cc, paths.cc), and
 * which algorithm it picks. */
#include "config.h"

#include "collectives/nccl_memory.h"

#include "collectives/nccl_internal.h"
#include "sim/base/units.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

uint32_t coll_nccl_version_parse(const char *text)
{
    uint32_t part[3] = { 0 };
    int n = 0;
    for (const char *s = text; n < 3; n++) {
        char *end;
        if (*s < '0' || *s > '9')
            return 0;
        unsigned long value = strtoul(s, &end, 10);
        if (value > 99)
            return 0;
        part[n] = (uint32_t)value;
        if (*end == '\0')
            break;
        if (*end != '.')
            return 0;
        s = end + 1;
    }
    return n == 3 || part[0] != 2 ? 0 : part[0] * 10000 + part[1] * 100 + part[2];
}

uint32_t coll_nccl_version_at(uint32_t date)
{
    /* NVIDIA's release notes of the PyTorch containers 23.01 to 26.04, by the month after. */
    static const struct {
        uint32_t until, version;
    } containers[] = {
        { 20230301, 21605 }, { 20230801, 21701 },   { 20231101, 21805 }, { 20240401, 21904 },
        { 20240601, 22005 }, { 20240901, 22105 },   { 20241201, 22203 }, { 20250201, 22304 },
        { 20250501, 22501 }, { 20250701, 22603 },   { 20251001, 22707 }, { 20260301, 22809 },
        { 20260501, 22907 }, { UINT32_MAX, 23007 },
    };
    size_t i = 0;
    if (date == 0)
        return 22809;
    while (date >= containers[i].until)
        i++;
    return containers[i].version;
}

bool coll_nccl_algo_parse(const char *text, uint32_t *algos_p)
{
    static const struct {
        const char *name;
        uint32_t algo;
    } names[] = {
        { "Ring", COLL_ALGO_RING }, { "Tree", COLL_ALGO_TREE },
        { "NVLS", COLL_ALGO_NVLS }, { "NVLSTree", COLL_ALGO_NVLS_TREE },
        { "PAT", COLL_ALGO_PAT },   { "CollNet", 0 },
        { "CollNetDirect", 0 },     { "CollNetChain", 0 },
    };
    uint32_t algos = 0;
    bool negated = text != NULL && *text == '^';
    const char *s = text == NULL ? "" : text + negated;
    if (*s == '\0') {
        *algos_p = COLL_ALGO_ALL;
        return !negated;
    }
    for (;;) {
        size_t n = strcspn(s, ","), i = 0, n_names = sizeof(names) / sizeof(names[0]);
        while (i < n_names && (strlen(names[i].name) != n || strncasecmp(names[i].name, s, n) != 0))
            i++;
        if (i == n_names)
            return false;
        algos |= names[i].algo;
        if (s[n] == '\0')
            break;
        s += n + 1;
    }
    *algos_p = negated ? COLL_ALGO_ALL & ~algos : algos;
    return true;
}

coll_link_t coll_nccl_link(const coll_nccl_t *nccl, const coll_spread_t *spread)
{
    if (nccl->p2p_disable)
        return COLL_LINK_SHM;
    if (nccl->nvlink_links > 0 && spread->n_linked == spread->n_local)
        return COLL_LINK_NVLINK;
    if (nccl->nvlink_links > 0 && spread->n_linked > 1)
        return COLL_LINK_PAIRS;
    return nccl->pcie_p2p ? COLL_LINK_PCIE : COLL_LINK_SHM;
}

/* MAXCHANNELS of src/include/device.h. */
static uint32_t most_channels(const coll_nccl_t *nccl)
{
    return nccl->version >= COLL_NCCL_2_25 ? 64 : 32;
}

/* NVSwitch of Hopper and later has multicast. */
static bool has_nvls(const coll_nccl_t *nccl, const coll_spread_t *spread)
{
    uint32_t least = nccl->version >= COLL_NCCL_2_28 ? 2 : 3;
    return nccl->nvls != COLL_OFF && nccl->version >= COLL_NCCL_2_17 && nccl->sm >= 90 &&
           nccl->machine.nvlink_domain > 2 && coll_nccl_link(nccl, spread) == COLL_LINK_NVLINK &&
           spread->n_ranks >= least && spread->n_local >= 2;
}

/* Rings that the search finds within one node, doubled. What NCCL prints on such machines: 24 with
 * all links of an A100 or H100, 32 on Blackwell, 2 over PCIe. */
static uint32_t channels_of_node(const coll_nccl_t *nccl, const coll_spread_t *spread)
{
    switch (coll_nccl_link(nccl, spread)) {
    case COLL_LINK_NVLINK:
        return nccl->sm >= 100 ? 32 : (uint32_t)base_u64_min(2 * nccl->nvlink_links, 24);
    case COLL_LINK_PCIE:
        return spread->n_ranks == 2 ? 4 : 2;
    case COLL_LINK_PAIRS:
    case COLL_LINK_SHM:
        break;
    }
    return 2;
}

/* One ring a NIC that the ranks of a node can use, doubled; doubled once more where the node is
 * faster than one NIC (ncclTopoPostset). */
static uint32_t channels_of_network(const coll_nccl_t *nccl, const coll_spread_t *spread)
{
    coll_link_t link = coll_nccl_link(nccl, spread);
    if (spread->n_local > 1 && link != COLL_LINK_NVLINK)
        return 2;
    uint32_t nics_per_gpu =
        (uint32_t)base_u64_max(nccl->nics_per_node / nccl->machine.gpus_per_node, 1);
    uint64_t rings = base_u64_min(nccl->nics_per_node, (uint64_t)spread->n_local * nics_per_gpu);
    uint64_t channels = 2 * rings;
    if (nccl->sm >= 90 && channels < 16 && link == COLL_LINK_NVLINK)
        channels *= 2;
    return (uint32_t)base_u64_min(channels, most_channels(nccl));
}

static uint32_t clamp(uint32_t n, uint32_t least, uint32_t most)
{
    if (most > 0 && n > most)
        n = most;
    return n < least ? least : n;
}

static uint32_t power_of_two_up(uint32_t n)
{
    uint32_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

static uint32_t nvls_channels(const coll_nccl_t *nccl, const coll_spread_t *spread)
{
    if (!has_nvls(nccl, spread))
        return 0;
    uint32_t n = nccl->sm < 100 ? 16 : spread->n_nodes > 1 ? 32 : 24;
    if (nccl->nvls_channels > 0)
        n = nccl->nvls_channels;
    return clamp(n, nccl->min_ctas, nccl->max_ctas);
}

/* ncclTopoGetNchannels(); the least over all peers is used for every peer. */
static uint32_t channels_per_peer(const coll_nccl_t *nccl, const coll_spread_t *spread,
                                  uint32_t p2p_channels)
{
    if (spread->n_nodes == 1) {
        bool nvlink = coll_nccl_link(nccl, spread) == COLL_LINK_NVLINK;
        uint32_t most = nvlink ? power_of_two_up(2 * nccl->nvlink_links) : 2;
        return (uint32_t)base_u64_min(p2p_channels, most);
    }
    uint32_t nics = (uint32_t)base_u64_max(nccl->nics_per_node / nccl->machine.gpus_per_node, 1);
    uint32_t n;
    uint64_t peers = spread->n_ranks;
    if (nccl->version < COLL_NCCL_2_29) {
        n = 2;
        while (n * peers > 4 * (uint64_t)p2p_channels && n > 1)
            n /= 2;
        /* As many as it takes to drive the NICs: two at most on the machines that were looked at.
         */
        n = (uint32_t)base_u64_max(n, base_u64_min(nics, 2));
        if (nccl->channels_per_net_peer > 0)
            n = nccl->channels_per_net_peer;
    } else {
        /* 14 GB/s a channel. */
        uint64_t rate = base_u64_div_up((uint64_t)nccl->nic_gbit_per_s * nics, 8 * 14);
        n = power_of_two_up((uint32_t)base_u64_max(nics, rate));
        if (nccl->channels_per_net_peer > 0)
            n = nccl->channels_per_net_peer;
        if (nccl->max_p2p_peers > 0)
            peers = nccl->max_p2p_peers;
        while (n * base_u64_div_up(peers, 8) > p2p_channels && n > 1)
            n /= 2;
    }
    return (uint32_t)base_u64_min(power_of_two_up(n), p2p_channels);
}

coll_channels_t coll_nccl_channels(const coll_nccl_t *nccl, const coll_spread_t *spread)
{
    coll_channels_t c = { 0 };
    uint32_t most = most_channels(nccl);
    c.coll = spread->n_ranks == 1   ? most
             : spread->n_nodes == 1 ? channels_of_node(nccl, spread)
                                    : channels_of_network(nccl, spread);
    c.coll = clamp(c.coll, nccl->min_channels, nccl->max_channels);
    c.coll = clamp(clamp(c.coll, nccl->min_ctas, nccl->max_ctas), 1, most);
    if (nccl->log_coll > 0)
        c.coll = nccl->log_coll;
    c.nvls = nvls_channels(nccl, spread);
    if (c.nvls > 0 && nccl->log_nvls > 0)
        c.nvls = nccl->log_nvls;
    c.p2p = clamp(c.coll, nccl->min_p2p_channels, nccl->max_p2p_channels);
    c.p2p = clamp(power_of_two_up(c.p2p), 1, most);
    if (nccl->log_p2p > 0)
        c.p2p = nccl->log_p2p;
    c.per_peer = channels_per_peer(nccl, spread, c.p2p);
    if (nccl->log_per_peer > 0)
        c.per_peer = nccl->log_per_peer;
    return c;
}

/* What the tuner of 2.28.9 picks (src/graph/tuning.cc), by layout. */
static uint32_t preferred(const coll_nccl_comm_t *comm, coll_op_t op, uint64_t bytes)
{
    const coll_spread_t *s = &comm->spread;
    const uint64_t large = 2 * BASE_MIB;
    if (op != COLL_OP_ALL_REDUCE) {
        bool small = bytes >= 64 * BASE_KIB && bytes < s->n_nodes * BASE_MIB;
        bool pat = op != COLL_OP_BROADCAST && s->n_local == 1 && s->n_nodes >= 8 && small &&
                   coll_nccl_has_pat(comm->nccl, s);
        return pat ? COLL_ALGO_PAT : COLL_ALGO_RING;
    }
    if (s->n_nodes == 1)
        return bytes >= large && comm->channels.nvls > 0 && s->n_local >= 8 ? COLL_ALGO_NVLS
                                                                            : COLL_ALGO_RING;
    if (bytes >= large) {
        bool tree = s->n_local >= 8 || (s->n_local == 4 && s->n_nodes == 2);
        return tree && comm->channels.nvls > 0 ? COLL_ALGO_NVLS_TREE : COLL_ALGO_RING;
    }
    return s->n_nodes < 4 && s->n_local <= 2 ? COLL_ALGO_RING : COLL_ALGO_TREE;
}

uint32_t coll_nccl_algo(const coll_nccl_comm_t *comm, coll_op_t op, uint64_t bytes)
{
    uint32_t allowed = comm->nccl->algos == 0 ? COLL_ALGO_ALL : comm->nccl->algos;
    uint32_t algo = preferred(comm, op, bytes);
    if (algo & allowed)
        return algo;
    if (op == COLL_OP_ALL_REDUCE && !(allowed & COLL_ALGO_RING) && (allowed & COLL_ALGO_TREE))
        return COLL_ALGO_TREE;
    return COLL_ALGO_RING; /* all but all-reduce fall back to it */
}
