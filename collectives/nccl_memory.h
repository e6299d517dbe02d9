/* SPDX-License-Identifier: Apache-2.0
 * Device memory that one NCCL communicator takes on one rank: when it is created, and at the first
 * use of each algorithm and peer. Bytes that PyTorch's allocator never sees.
 *
 * The formulas follow NCCL's host code, versions 2.14 to 2.30 (src/init.cc, channel.cc, graph/,
 * transport/), by family of versions that allocate alike:
 *   to 2.18   cudaMalloc, all connections at creation, NVLS buffers of 6 MiB
 *   2.19-2.20 cuMem (2 MiB granules), the rest as before
 *   2.21      NVLS buffers of 3 MiB
 *   2.22-2.24 connections at first use
 *   2.25-2.27 64 channels; from 2.26 NVLS buffers are not rounded to the multicast granularity
 *   2.28      NVLS for two ranks, its arrays by NVLS channels only
 *   from 2.29 another number of channels to a peer over the network */
#ifndef COLLECTIVES_NCCL_MEMORY_H
#define COLLECTIVES_NCCL_MEMORY_H

#include "collectives/spread.h"

#include <stdbool.h>
#include <stdint.h>

/* "2.28.9" or "2.28" -> 22809 or 22800, as NCCL_VERSION_CODE; 0 = not a version from 2.0 on. */
uint32_t coll_nccl_version_parse(const char *text);

/* The version in NVIDIA's PyTorch container of the day YYYYMMDD; of 0, the newest that the model
 * was compared with throughout. */
uint32_t coll_nccl_version_at(uint32_t date);

/* Of a variable that NCCL decides when it is not set. */
typedef enum { COLL_AUTO, COLL_ON, COLL_OFF } coll_switch_t;

/* Algorithms, a set. */
enum {
    COLL_ALGO_RING = 1 << 0,
    COLL_ALGO_TREE = 1 << 1,
    COLL_ALGO_NVLS = 1 << 2,
    COLL_ALGO_NVLS_TREE = 1 << 3,
    COLL_ALGO_PAT = 1 << 4,
    COLL_ALGO_ALL = (1 << 5) - 1,
};

/* Text of NCCL_ALGO ("Ring,Tree", "^NVLS") as a set; names that NCCL has and this model does not
 * (CollNet) count for nothing. False on any other name. NULL or "" = all. */
bool coll_nccl_algo_parse(const char *text, uint32_t *algos_p);

/* What NCCL finds and what it is told. Counts and sizes of 0 = not set. */
typedef struct {
    uint32_t version; /* as NCCL_VERSION_CODE */
    coll_machine_t machine;
    uint32_t sm;                    /* compute capability, 90 = 9.0 */
    uint32_t nvlink_links;          /* of one GPU; 0 = none */
    uint32_t nics_per_node;         /* >= 1 */
    uint32_t nic_gbit_per_s;        /* of one */
    bool pcie_p2p;                  /* GPUs without NVLink reach each other through PCIe switches */
    coll_switch_t gpu_direct;       /* NICs read and write GPU memory; auto = they do */
    coll_switch_t cumem, nvls, pat; /* NCCL_CUMEM_ENABLE, NCCL_NVLS_ENABLE, NCCL_PAT_ENABLE */
    bool connect_at_init;           /* NCCL_RUNTIME_CONNECT=0 */
    bool p2p_disable, pxn_disable;  /* NCCL_P2P_DISABLE, NCCL_PXN_DISABLE */
    bool net_buffers_not_shared;    /* NCCL_NET_SHARED_BUFFERS=0 */
    uint32_t algos;                 /* COLL_ALGO_*; 0 = all */
    uint64_t ll_bytes, ll128_bytes,
        simple_bytes; /* NCCL_LL_BUFFSIZE, NCCL_LL128_..., NCCL_BUFFSIZE */
    uint64_t p2p_nvl_chunk, p2p_pci_chunk, p2p_net_chunk, nvls_chunk; /* NCCL_*_CHUNKSIZE */
    uint64_t multicast_bytes; /* granularity of multicast objects */
    uint32_t min_channels, max_channels, min_ctas, max_ctas, min_p2p_channels, max_p2p_channels;
    uint32_t nvls_channels;                             /* NCCL_NVLS_NCHANNELS */
    uint32_t channels_per_net_peer;                     /* NCCL_NCHANNELS_PER_NET_PEER */
    uint32_t max_p2p_peers;                             /* NCCL_P2P_MAX_PEERS */
    uint32_t log_coll, log_nvls, log_p2p, log_per_peer; /* as an NCCL_DEBUG=INFO line gives them */
} coll_nccl_t;

/* Channels of a communicator, as NCCL prints them at NCCL_DEBUG=INFO. */
typedef struct {
    uint32_t coll, nvls, p2p, per_peer;
} coll_channels_t;

coll_channels_t coll_nccl_channels(const coll_nccl_t *nccl, const coll_spread_t *spread);

/* Bytes, and the least and most that they may be; which of it holds for a rank depends on its place
 * in NCCL's rings and trees. */
typedef struct {
    uint64_t bytes, low, high;
} coll_range_t;

coll_range_t coll_range_add(coll_range_t a, coll_range_t b);

typedef enum {
    COLL_OP_ALL_REDUCE,
    COLL_OP_ALL_GATHER,
    COLL_OP_REDUCE_SCATTER,
    COLL_OP_BROADCAST,
    COLL_OP_ALL_TO_ALL,
    COLL_OP_SEND_RECV,
    COLL_N_OPS
} coll_op_t;

/* "all-reduce", ... */
const char *coll_op_name(coll_op_t op);

/* Peers of a send/receive, by how they are reached; those in the same node without NVLink need no
 * device memory. */
typedef struct {
    uint32_t send_linked, recv_linked;
    uint32_t send_net, recv_net;
    /* Other ranks of the node whose messages leave through this GPU, because it is near the NIC of
     * the receiver's place (PXN); none where peers have the same place in their nodes, as those of
     * a pipeline do. */
    uint32_t foreign_senders;
} coll_peers_t;

/* A communicator on one rank. */
typedef struct {
    const coll_nccl_t *nccl; /* must outlive it */
    coll_spread_t spread;
    coll_channels_t channels;
    coll_range_t bytes; /* now */
    uint32_t connected; /* COLL_ALGO_* whose connections exist */
    coll_peers_t peers; /* connected for send/receive */
    uint32_t n_send_pools, n_recv_pools;
} coll_nccl_comm_t;

/* Create it; comm_p->bytes is what that takes. */
void coll_nccl_comm_init(coll_nccl_comm_t *comm_p, const coll_nccl_t *nccl,
                         const coll_spread_t *spread);

/* Use it. `message_bytes`: of an all-reduce or broadcast the buffer, of an all-gather the result,
 * of a reduce-scatter the input; not looked at for the others. `peers`: of a send/receive; NULL
 * else. Returns what this use adds, 0 once everything it needs is connected. */
coll_range_t coll_nccl_comm_use(coll_nccl_comm_t *comm, coll_op_t op, uint64_t message_bytes,
                                const coll_peers_t *peers);

/* The algorithm (one of COLL_ALGO_*) that NCCL picks for a collective. */
uint32_t coll_nccl_algo(const coll_nccl_comm_t *comm, coll_op_t op, uint64_t message_bytes);

/* What the first communicator of a process takes beside itself: NCCL's kernels and the local memory
 * that the deepest of them makes the driver reserve. */
coll_range_t coll_nccl_process_bytes(uint32_t sm, uint32_t n_sms);

#endif
