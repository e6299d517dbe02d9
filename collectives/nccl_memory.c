/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/nccl_memory.h"

#include "collectives/nccl_internal.h"
#include "sim/base/units.h"

#include <assert.h>

enum {
    /* A flag page of each connection; steps of a pipelined buffer (NCCL_STEPS), of a pool of
     * network buffers (NCCL_SHARED_STEPS): src/include/device.h, transport/net.cc. */
    PAGE = 4096,
    STEPS = 8,
    POOL_STEPS = 16,
    /* sizeof(ncclDevChannelPeer), device communicator and channel table: src/include/device.h. */
    PEER_BYTES = 608,
    DEVCOMM_BYTES = 23648,
};

/* cuMemGetAllocationGranularity() of every data-centre GPU. */
#define GRANULE (2 * BASE_MIB)

static uint64_t granules(uint64_t bytes)
{
    return base_u64_round_up(bytes, GRANULE);
}

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

coll_range_t coll_range_add(coll_range_t a, coll_range_t b)
{
    return (coll_range_t){ a.bytes + b.bytes, a.low + b.low, a.high + b.high };
}

static coll_range_t exactly(uint64_t bytes)
{
    return (coll_range_t){ bytes, bytes, bytes };
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

const char *coll_op_name(coll_op_t op)
{
    static const char *const names[COLL_N_OPS] = {
        [COLL_OP_ALL_REDUCE] = "all-reduce",         [COLL_OP_ALL_GATHER] = "all-gather",
        [COLL_OP_REDUCE_SCATTER] = "reduce-scatter", [COLL_OP_BROADCAST] = "broadcast",
        [COLL_OP_ALL_TO_ALL] = "all-to-all",         [COLL_OP_SEND_RECV] = "send/receive",
    };
    return names[op];
}

/* Buffers of one channel to one neighbour: on the sender's and on the receiver's GPU. */
typedef struct {
    uint64_t send, recv;
} coll_pair_t;

static uint64_t pair_sum(coll_pair_t pair)
{
    return pair.send + pair.recv;
}

/* computeBuffSizes() of src/init.cc. All three protocols have their buffers, used or not. */
static uint64_t ll_bytes(const coll_nccl_t *nccl)
{
    return or_default(nccl->ll_bytes, UINT64_C(8) * 512 * STEPS * 16);
}

static uint64_t ll128_bytes(const coll_nccl_t *nccl)
{
    return or_default(nccl->ll128_bytes, UINT64_C(120) * 640 * STEPS * 8);
}

static uint64_t simple_bytes(const coll_nccl_t *nccl)
{
    return or_default(nccl->simple_bytes, 4 * BASE_MIB);
}

/* p2pSendSetup(), p2pRecvSetup() of transport/p2p.cc. Between A100s NVLink reads: the large buffer
 * is then the sender's. */
static coll_pair_t node_pair(const coll_nccl_comm_t *comm)
{
    const coll_nccl_t *n = comm->nccl;
    coll_link_t link = coll_nccl_link(n, &comm->spread);
    if (link == COLL_LINK_SHM)
        return (coll_pair_t){ 0 };
    if (n->sm == 80 && link != COLL_LINK_PCIE)
        return (coll_pair_t){ granules(PAGE + simple_bytes(n)),
                              granules(PAGE + ll_bytes(n) + ll128_bytes(n)) };
    return (coll_pair_t){ granules(PAGE),
                          granules(PAGE + ll_bytes(n) + ll128_bytes(n) + simple_bytes(n)) };
}

/* sendProxyConnect(), recvProxyConnect() of transport/net.cc; the sender's LL buffer is in host
 * memory, and all of it without GPUDirect. */
static coll_pair_t net_pair(const coll_nccl_comm_t *comm)
{
    const coll_nccl_t *n = comm->nccl;
    if (n->gpu_direct == COLL_OFF)
        return (coll_pair_t){ 0 };
    return (coll_pair_t){ granules(ll128_bytes(n) + simple_bytes(n)),
                          granules(ll_bytes(n) + ll128_bytes(n) + simple_bytes(n)) };
}

/* ncclTopoPathAllNVLink(): before 2.25 it asked for one NVLink path, and said no to a single GPU.
 */
static bool chunks_for_nvlink(const coll_nccl_comm_t *comm)
{
    coll_link_t link = coll_nccl_link(comm->nccl, &comm->spread);
    if (comm->nccl->version >= COLL_NCCL_2_25)
        return comm->spread.n_ranks == 1 || link == COLL_LINK_NVLINK;
    return comm->spread.n_ranks > 1 && (link == COLL_LINK_NVLINK || link == COLL_LINK_PAIRS);
}

/* One pool of network buffers: sharedNetBuffersInit() of transport/net.cc. */
static uint64_t pool_bytes(const coll_nccl_comm_t *comm)
{
    const coll_nccl_t *n = comm->nccl;
    uint64_t chunk = comm->spread.n_nodes > 1  ? or_default(n->p2p_net_chunk, 128 * BASE_KIB)
                     : chunks_for_nvlink(comm) ? or_default(n->p2p_nvl_chunk, 512 * BASE_KIB)
                                               : or_default(n->p2p_pci_chunk, 128 * BASE_KIB);
    if (n->version >= COLL_NCCL_2_21)
        chunk = base_u64_min(chunk, simple_bytes(n) / STEPS);
    return granules(comm->channels.p2p * (uint64_t)POOL_STEPS * chunk);
}

/* Connections along a ring. On each channel a rank has one neighbour each way; C / L channels leave
 * the node at this rank. In an island of k ranks k - 1 of the k links are NVLink. */
static coll_range_t ring_alone(const coll_nccl_comm_t *comm)
{
    const coll_spread_t *s = &comm->spread;
    uint64_t c = comm->channels.coll;
    coll_pair_t in = node_pair(comm), net = net_pair(comm);
    if (s->n_ranks == 1)
        return exactly(0);
    if (coll_nccl_link(comm->nccl, s) == COLL_LINK_PAIRS) {
        uint64_t least = base_u64_min(in.send, in.recv);
        uint64_t most = s->n_linked > 2 ? pair_sum(in) : base_u64_max(in.send, in.recv);
        return (coll_range_t){ c * pair_sum(in) * (s->n_linked - 1) / s->n_linked, c * least,
                               c * most };
    }
    uint64_t inside = c * pair_sum(in);
    if (s->n_nodes == 1)
        return exactly(inside);
    uint64_t leaving = c / s->n_local + (c % s->n_local != 0);
    return exactly(inside + leaving * pair_sum(net) - base_u64_min(leaving * pair_sum(in), inside));
}

/* ---- the double binary tree over the nodes: ncclGetBtree(), ncclGetDtree() of graph/trees.cc ----
 */

enum { MAX_NEIGHBOURS = 3 };

/* Parent and children of `node` in the first tree over n nodes; returns how many. */
static uint32_t first_tree(uint32_t n, uint32_t node, uint32_t neighbours[static MAX_NEIGHBOURS])
{
    uint32_t found = 0, bit = 1;
    while (bit < n && (node & bit) == 0)
        bit <<= 1;
    if (node == 0) {
        if (n > 1)
            neighbours[found++] = bit >> 1;
        return found;
    }
    uint32_t up = (node ^ bit) | (bit << 1);
    neighbours[found++] = up < n ? up : node ^ bit;
    uint32_t low = bit >> 1;
    if (low > 0)
        neighbours[found++] = node - low;
    while (low > 0 && node + low >= n)
        low >>= 1;
    if (low > 0)
        neighbours[found++] = node + low;
    return found;
}

/* The second one is the first turned round, or for an odd number of nodes shifted by one. */
static uint32_t second_tree(uint32_t n, uint32_t node, uint32_t neighbours[static MAX_NEIGHBOURS])
{
    bool is_odd = n % 2 == 1;
    uint32_t found = first_tree(n, is_odd ? (node + n - 1) % n : n - 1 - node, neighbours);
    for (uint32_t i = 0; i < found; i++)
        neighbours[i] = is_odd ? (neighbours[i] + 1) % n : n - 1 - neighbours[i];
    return found;
}

/* Neighbours of the rank's node in both trees together. Each tree has half of the channels. */
static uint32_t both_degrees(const coll_spread_t *s)
{
    uint32_t neighbours[MAX_NEIGHBOURS];
    return first_tree(s->n_nodes, s->node, neighbours) +
           second_tree(s->n_nodes, s->node, neighbours);
}

/* Whether this rank has channels of both trees alike. */
static bool is_place_known(const coll_nccl_comm_t *comm)
{
    return comm->spread.is_placed && comm->spread.n_nodes > 1 &&
           comm->channels.coll / comm->spread.n_local % 2 == 0;
}

/* Of one rank a node: bytes for its neighbours in the ring that it does not have in the trees. */
static uint64_t ring_neighbours_beside_trees(const coll_nccl_comm_t *comm)
{
    const coll_spread_t *s = &comm->spread;
    coll_pair_t net = net_pair(comm);
    uint32_t next = (s->node + 1) % s->n_nodes;
    uint32_t prev = (s->node + s->n_nodes - 1) % s->n_nodes;
    uint64_t bytes = 0;
    for (int tree = 0; tree < 2; tree++) {
        uint32_t neighbours[MAX_NEIGHBOURS];
        uint32_t n = tree == 0 ? first_tree(s->n_nodes, s->node, neighbours)
                               : second_tree(s->n_nodes, s->node, neighbours);
        bool has_next = false, has_prev = false;
        for (uint32_t i = 0; i < n; i++) {
            has_next = has_next || neighbours[i] == next;
            has_prev = has_prev || neighbours[i] == prev;
        }
        bytes += (has_next ? 0 : net.send) + (has_prev ? 0 : net.recv);
    }
    return comm->channels.coll / 2 * bytes;
}

/* A double binary tree over the nodes, a chain within each. Neighbours over the network: 1 of a
 * leaf, up to 2 in the mean of both trees. */
static coll_range_t tree_alone(const coll_nccl_comm_t *comm)
{
    const coll_spread_t *s = &comm->spread;
    uint64_t c = comm->channels.coll;
    uint64_t w = pair_sum(node_pair(comm)), x = pair_sum(net_pair(comm));
    uint64_t chain = coll_nccl_link(comm->nccl, s) == COLL_LINK_PAIRS ? s->n_linked : s->n_local;
    uint64_t inside = 2 * c * w * (chain - 1) / chain;
    if (s->n_nodes == 1 && s->is_placed && s->place == 0) /* the chain begins here */
        return exactly(c * w);
    if (s->n_nodes == 1)
        return (coll_range_t){ inside, chain > 2 ? c * w : inside, chain > 2 ? 2 * c * w : inside };
    uint64_t one = c * x / s->n_local;
    if (is_place_known(comm))
        return exactly(inside + one * both_degrees(s) / 2);
    uint64_t most = s->n_nodes > 2 ? 2 * one : one;
    return (coll_range_t){ inside + 2 * one * (s->n_nodes - 1) / s->n_nodes, inside + one,
                           inside + most };
}

/* Of the ring's connections the ones that a tree over the same ranks does not have. Several nodes:
 * found by running NCCL's own search on HGX topologies, per 4, 8, 16 and 16 channels. */
static coll_range_t ring_beside_tree(const coll_nccl_comm_t *comm)
{
    const coll_spread_t *s = &comm->spread;
    uint64_t c = comm->channels.coll;
    coll_pair_t in = node_pair(comm);
    uint64_t w = pair_sum(in), x = pair_sum(net_pair(comm));
    if (s->n_ranks <= 2)
        return exactly(0);
    if (s->n_nodes == 1) /* the way from the chain's end to its start */
        return coll_nccl_link(comm->nccl, s) == COLL_LINK_PAIRS
                   ? exactly(0)
                   : (coll_range_t){ c * w / s->n_local, 0, c * base_u64_max(in.send, in.recv) };
    if (s->n_local == 1 && is_place_known(comm))
        return exactly(ring_neighbours_beside_trees(comm));
    if (s->n_local == 1)
        return (coll_range_t){ c * x / 2, c * x / 4, c * x * 3 / 4 };
    if (s->n_local == 2)
        return exactly(c * w * 5 / 6);
    if (s->n_local < 8)
        return exactly(c * w * 2 / 3);
    if (comm->nccl->sm == 90)
        return (coll_range_t){ c * w / 6, c * w / 8, c * w * 5 / 16 };
    return exactly(c * w / 3);
}

/* nvlsAllocateMem() of transport/nvls.cc: two buffers a channel and head. */
static uint64_t nvls_bytes(const coll_nccl_comm_t *comm)
{
    const coll_nccl_t *n = comm->nccl;
    uint64_t step = or_default(n->nvls_chunk, 128 * BASE_KIB) * STEPS;
    uint64_t channels = comm->channels.nvls;
    if (n->version < COLL_NCCL_2_22)
        channels = n->version >= COLL_NCCL_2_21 && comm->spread.n_nodes > 1 ? 16 : 24;
    /* Before 2.22 the buffers held more than the simple protocol's share. */
    uint64_t share = n->version >= COLL_NCCL_2_22   ? step
                     : n->version >= COLL_NCCL_2_21 ? step + 2 * BASE_MIB
                                                    : step + 5 * BASE_MIB;
    uint64_t bytes = channels * 2 * share * comm->spread.n_local;
    if (n->version < COLL_NCCL_2_26)
        return base_u64_round_up(bytes, or_default(n->multicast_bytes, 512 * BASE_MIB));
    return granules(bytes);
}

/* The network side of NVLSTree, less what tree and ring have connected. */
static coll_range_t nvls_tree_net(const coll_nccl_comm_t *comm)
{
    const coll_spread_t *s = &comm->spread;
    uint64_t x = pair_sum(net_pair(comm));
    uint64_t all = comm->channels.nvls * x, tree = 0, ring = 0;
    if (comm->connected & COLL_ALGO_TREE)
        tree = comm->channels.coll * x / s->n_local;
    if (comm->connected & COLL_ALGO_RING)
        ring = comm->channels.coll * x / (2 * s->n_local);
    uint64_t mean = 2 * (all - base_u64_min(tree, all)) * (s->n_nodes - 1) / s->n_nodes;
    uint64_t least = all - base_u64_min(tree, all);
    if (is_place_known(comm))
        return exactly(minus(least * both_degrees(s) / 2, ring));
    uint64_t most = s->n_nodes > 2 ? 2 * least : least;
    return (coll_range_t){ minus(mean, ring), minus(least, ring), minus(most, ring) };
}

/* 2 log2(N) - 1 neighbours, those of the ring and the tree among them. */
static uint64_t pat_alone(const coll_nccl_comm_t *comm)
{
    uint64_t steps = 0;
    while (UINT64_C(1) << steps < comm->spread.n_ranks)
        steps++;
    return steps == 0 ? 0 : (2 * steps - 1) * comm->channels.coll * pair_sum(net_pair(comm));
}

static coll_range_t connect_ring(const coll_nccl_comm_t *comm)
{
    if (!(comm->connected & COLL_ALGO_TREE))
        return ring_alone(comm);
    coll_range_t more = ring_beside_tree(comm);
    if (comm->connected & COLL_ALGO_NVLS_TREE) {
        uint64_t shared =
            comm->channels.coll * pair_sum(net_pair(comm)) / (2 * comm->spread.n_local);
        more = (coll_range_t){ minus(more.bytes, shared), minus(more.low, shared),
                               minus(more.high, shared) };
    }
    return more;
}

static coll_range_t connect_tree(const coll_nccl_comm_t *comm)
{
    coll_range_t tree = tree_alone(comm);
    if (!(comm->connected & COLL_ALGO_RING))
        return tree;
    if (comm->spread.n_ranks <= 2)
        return exactly(0);
    if (comm->spread.n_nodes == 1 && coll_nccl_link(comm->nccl, &comm->spread) != COLL_LINK_PAIRS) {
        /* The chain's other direction: of the first rank the way up, of the last the way down. */
        coll_pair_t in = node_pair(comm);
        uint64_t c = comm->channels.coll, w = pair_sum(in), n = comm->spread.n_local;
        if (comm->spread.is_placed && comm->spread.place == 0)
            return exactly(c * in.recv);
        return (coll_range_t){ c * w * (n - 1) / n, c * base_u64_min(in.send, in.recv), c * w };
    }
    coll_range_t ring = ring_alone(comm), more = ring_beside_tree(comm);
    return (coll_range_t){ minus(tree.bytes + more.bytes, ring.bytes),
                           minus(tree.low + more.low, ring.low),
                           minus(tree.high + more.high, ring.high) };
}

static coll_range_t connect_pat(const coll_nccl_comm_t *comm)
{
    uint64_t had = 0;
    if (comm->connected & COLL_ALGO_RING)
        had = ring_alone(comm).bytes;
    if (comm->connected & COLL_ALGO_TREE)
        had = tree_alone(comm).bytes +
              (comm->connected & COLL_ALGO_RING ? ring_beside_tree(comm).bytes : 0);
    return exactly(minus(pat_alone(comm), had));
}

/* ncclCollPreconnect() of src/group.cc: all channels of the algorithm at its first use. */
static coll_range_t preconnect(coll_nccl_comm_t *comm, uint32_t algo)
{
    coll_range_t added = exactly(0);
    bool covered =
        (comm->connected & COLL_ALGO_PAT) && (algo == COLL_ALGO_RING || algo == COLL_ALGO_TREE);
    if ((comm->connected & algo) || comm->spread.n_ranks == 1)
        return added;
    if (!covered) {
        switch (algo) {
        case COLL_ALGO_RING:
            added = connect_ring(comm);
            break;
        case COLL_ALGO_TREE:
            added = connect_tree(comm);
            break;
        case COLL_ALGO_PAT:
            added = connect_pat(comm);
            break;
        case COLL_ALGO_NVLS:
            added = exactly(nvls_bytes(comm));
            break;
        case COLL_ALGO_NVLS_TREE:
            if (!(comm->connected & COLL_ALGO_NVLS))
                added = exactly(nvls_bytes(comm));
            added = coll_range_add(added, nvls_tree_net(comm));
            comm->connected |= COLL_ALGO_NVLS; /* one buffer serves both */
            break;
        default:
            assert(false);
        }
    }
    comm->connected |= algo;
    comm->bytes = coll_range_add(comm->bytes, added);
    return added;
}

static bool uses_cumem(const coll_nccl_t *nccl)
{
    return nccl->cumem == COLL_AUTO ? nccl->version >= COLL_NCCL_2_19
                                    : nccl->cumem == COLL_ON && nccl->version >= 21800;
}

static bool connects_at_init(const coll_nccl_t *nccl)
{
    return nccl->version < COLL_NCCL_2_22 || !uses_cumem(nccl) || nccl->connect_at_init;
}

/* Through a neighbour's NIC (PXN), from 2.12 on: only where NVLink joins the node. */
static bool uses_pxn(const coll_nccl_comm_t *comm)
{
    return comm->spread.n_nodes > 1 && comm->spread.n_local > 1 && !comm->nccl->pxn_disable &&
           coll_nccl_link(comm->nccl, &comm->spread) == COLL_LINK_NVLINK;
}

/* devCommSetup(), initChannel(), initNvlsChannel(). */
static uint64_t fixed_bytes(const coll_nccl_comm_t *comm)
{
    const coll_nccl_t *n = comm->nccl;
    const coll_channels_t *c = &comm->channels;
    uint64_t ranks = comm->spread.n_ranks, local = comm->spread.n_local;
    uint64_t n_channels = base_u64_max(base_u64_max(c->coll, c->p2p), c->nvls);
    uint64_t peers = PEER_BYTES * ranks, pointers = 8 * (ranks + 1 + local), order = 4 * ranks;
    uint64_t credits = c->nvls > 0 && n->version >= COLL_NCCL_2_22 ? GRANULE : 0;
    if (!uses_cumem(n)) /* cudaMalloc packs what is small */
        return granules(DEVCOMM_BYTES + n_channels * (peers + pointers + order)) + credits;
    uint64_t bytes = GRANULE + (n->version >= COLL_NCCL_2_23 ? granules(4 * ranks) : 0);
    bytes += n_channels * (granules(peers) + granules(pointers) + granules(order));
    if (c->nvls > 0) {
        uint64_t arrays = n->version >= COLL_NCCL_2_28 ? c->nvls
                          : n->version < COLL_NCCL_2_22 && comm->spread.n_nodes == 1
                              ? base_u64_max(c->coll, 24)
                              : base_u64_max(c->nvls, c->coll);
        bytes += arrays * granules(PEER_BYTES * local) + credits;
    }
    return bytes;
}

void coll_nccl_comm_init(coll_nccl_comm_t *comm_p, const coll_nccl_t *nccl,
                         const coll_spread_t *spread)
{
    *comm_p = (coll_nccl_comm_t){ .nccl = nccl, .spread = *spread };
    comm_p->channels = coll_nccl_channels(nccl, spread);
    comm_p->bytes = exactly(fixed_bytes(comm_p));
    if (!connects_at_init(nccl))
        return;
    preconnect(comm_p, COLL_ALGO_RING);
    preconnect(comm_p, COLL_ALGO_TREE);
    if (coll_nccl_has_pat(nccl, spread))
        preconnect(comm_p, COLL_ALGO_PAT);
    if (comm_p->channels.nvls > 0)
        preconnect(comm_p, spread->n_nodes > 1 ? COLL_ALGO_NVLS_TREE : COLL_ALGO_NVLS);
    /* ncclProxyMsgSharedInit to the own and to the neighbours' proxies, whatever is used later. */
    comm_p->n_send_pools = uses_pxn(comm_p) ? spread->n_local : 1;
    comm_p->bytes =
        coll_range_add(comm_p->bytes, exactly(comm_p->n_send_pools * pool_bytes(comm_p)));
}

static uint32_t raise(uint32_t *have, uint32_t want)
{
    uint32_t more = want > *have ? want - *have : 0;
    *have += more;
    return more;
}

/* ncclP2PPreconnect(): all channels of a peer at its first use; a connection of its own beside the
 * ring's. Over the network pools, or connections where pools are switched off. */
static coll_range_t connect_peers(coll_nccl_comm_t *comm, const coll_peers_t *peers, bool all)
{
    const coll_nccl_t *n = comm->nccl;
    coll_pair_t in = node_pair(comm), net = net_pair(comm);
    uint64_t per_peer = comm->channels.per_peer;
    uint64_t bytes = per_peer * (raise(&comm->peers.send_linked, peers->send_linked) * in.send +
                                 raise(&comm->peers.recv_linked, peers->recv_linked) * in.recv);
    uint32_t send = raise(&comm->peers.send_net, peers->send_net);
    uint32_t recv = raise(&comm->peers.recv_net, peers->recv_net);
    if (n->net_buffers_not_shared) {
        bytes += per_peer * (send * net.send + recv * net.recv);
    } else if (n->gpu_direct != COLL_OFF) {
        uint32_t senders = peers->send_net == 0    ? 0
                           : all && uses_pxn(comm) ? comm->spread.n_local
                                                   : 1;
        if (!all && uses_pxn(comm))
            senders += peers->foreign_senders;
        bytes += pool_bytes(comm) * (raise(&comm->n_send_pools, senders) +
                                     raise(&comm->n_recv_pools, peers->recv_net > 0));
    }
    comm->bytes = coll_range_add(comm->bytes, exactly(bytes));
    return exactly(bytes);
}

coll_range_t coll_nccl_comm_use(coll_nccl_comm_t *comm, coll_op_t op, uint64_t message_bytes,
                                const coll_peers_t *peers)
{
    if (op == COLL_OP_SEND_RECV)
        return connect_peers(comm, peers, false);
    if (op != COLL_OP_ALL_TO_ALL)
        return preconnect(comm, coll_nccl_algo(comm, op, message_bytes));
    const coll_spread_t *s = &comm->spread;
    uint32_t linked =
        coll_nccl_link(comm->nccl, s) == COLL_LINK_PCIE ? s->n_local - 1 : s->n_linked - 1;
    uint32_t far = s->n_ranks - s->n_local;
    coll_peers_t everyone = { linked, linked, far, far, 0 };
    return connect_peers(comm, &everyone, true);
}

coll_range_t coll_nccl_process_bytes(uint32_t sm, uint32_t n_sms)
{
    /* Size of the kernels' image and deepest stack in libnccl 2.28.9; 1024 bytes of stack a thread
     * are there from the start. Another build's image differs by 30 %, and the stack counts only
     * beyond what other libraries' kernels have asked for. */
    static const struct {
        uint32_t sm, image_mib, stack, threads;
    } table[] = {
        { 100, 91, 2040, 2048 }, { 90, 95, 1976, 2048 }, { 86, 43, 1474, 1536 },
        { 80, 43, 1504, 2048 },  { 0, 40, 1504, 2048 },
    };
    size_t i = 0;
    while (sm < table[i].sm)
        i++;
    uint64_t image = table[i].image_mib * BASE_MIB;
    uint64_t local = (uint64_t)n_sms * table[i].threads * (table[i].stack - 1024);
    return (coll_range_t){ granules(image + local), image * 7 / 10,
                           granules(image * 13 / 10 + local) };
}
