/* SPDX-License-Identifier: Apache-2.0
 * The communicators that a Megatron-LM job makes on one rank: which process group each belongs to,
 * who is in it, when it is first used and by what.
 *
 * PyTorch creates NCCL's communicator of a group at the group's first operation, unless
 * init_process_group() got a device (eager). A send or receive outside a batch gets a communicator
 * of its own for the pair of ranks. Groups of one rank get one too. Gloo groups need no device
 * memory. Sources: megatron/core/parallel_state.py and the callers named in comm.c;
 * torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp. */
#ifndef COLLECTIVES_COMM_H
#define COLLECTIVES_COMM_H

#include "collectives/nccl_memory.h"
#include "topology/grid.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    COLL_MOE_ALLGATHER,
    COLL_MOE_ALLTOALL,
    COLL_MOE_FLEX, /* DeepEP, HybridEP: the exchange itself is not NCCL's */
} coll_moe_t;

typedef enum {
    COLL_CP_RING, /* keys and values go round */
    COLL_CP_ALL_GATHER,
    COLL_CP_ALL_TO_ALL,
    COLL_CP_ALL_TO_ALL_RING, /* all-to-all among near ranks, then the ring of their groups */
} coll_cp_t;

/* What decides about communicators. */
typedef struct {
    topo_grid_t grid;
    coll_machine_t machine;
    bool pcie_p2p;          /* as in coll_nccl_t */
    bool eager;             /* init_process_group(device_id=...) */
    uint32_t software_date; /* YYYYMMDD of Megatron-LM; 0 = the newest */
    bool distributed_optimizer;
    uint32_t n_optimizer_instances; /* num_distributed_optimizer_instances, >= 1 */
    bool overlap_grad_reduce, sequence_parallel;
    bool tied_embeddings; /* the first and the last stage hold the same word embeddings */
    coll_cp_t cp;
    uint32_t cp_a2a_size;      /* of ALL_TO_ALL_RING: ranks of the all-to-all, next to each other */
    bool splits_heads;         /* context parallel ranks take heads: Mamba-2, gated delta nets */
    bool interleaved;          /* virtual pipeline: the last stage sends to the first */
    bool unbatched_p2p;        /* overlap_p2p_communication */
    uint64_t activation_bytes; /* a tensor-parallel all-reduce of activations */
    uint64_t norm_grad_bytes;  /* gradients that sequence parallelism reduces, of one rank */
    uint64_t embedding_bytes;  /* word embeddings of one rank */
    bool has_experts;
    coll_moe_t moe;
    bool aux_loss, expert_bias; /* the router's balance by loss, by bias */
} coll_job_t;

typedef enum {
    COLL_AT_START, /* before the model is built */
    COLL_AT_MODEL_BUILD,
    COLL_AT_FORWARD,
    COLL_AT_BACKWARD,
    COLL_AT_GRAD_SYNC,
    COLL_AT_OPTIMIZER_STEP,
    COLL_AT_LOGGING, /* end of the iteration */
    COLL_N_PHASES
} coll_phase_t;

/* "start", "forward", ... */
const char *coll_phase_name(coll_phase_t phase);

typedef struct {
    uint32_t iteration; /* from 1; 0 = before the first */
    coll_phase_t phase;
} coll_moment_t;

/* < 0: a before b; 0: the same. */
int coll_moment_compare(coll_moment_t a, coll_moment_t b);

/* Which ranks a communicator joins. */
typedef enum {
    COLL_SCOPE_WORLD,
    COLL_SCOPE_GROUP,    /* a group of the grid */
    COLL_SCOPE_INTRA,    /* of a group the ranks of one part: of a data parallel group those that
                             share one optimizer instance, of a context parallel group those of
                             one all-to-all */
    COLL_SCOPE_INTER,    /* ... those with the same place in all parts */
    COLL_SCOPE_INSTANCE, /* all ranks of one optimizer instance */
    COLL_SCOPE_PAIR,     /* this rank and `peer` */
} coll_scope_t;

/* One way in which it is used, with the first time. */
typedef struct {
    coll_op_t op;
    uint64_t message_bytes;
    coll_peers_t peers;                                /* of send/receive */
    uint32_t send_to[2], recv_from[2], n_send, n_recv; /* the same as ranks */
    coll_moment_t at;
} coll_use_t;

enum { COLL_MAX_USES = 6, COLL_MAX_COMMS = 48, COLL_COMM_NAME = 40 };

typedef struct {
    char name[COLL_COMM_NAME]; /* "tp", "dp-cp", "pp pair next", ... */
    coll_scope_t scope;
    topo_group_t group; /* of GROUP, INTRA, INTER */
    uint32_t peer;      /* of PAIR */
    bool is_gloo;       /* in host memory */
    coll_spread_t spread;
    coll_moment_t created;
    coll_use_t uses[COLL_MAX_USES]; /* in order of time */
    uint32_t n_uses;
} coll_comm_t;

typedef struct {
    coll_comm_t items[COLL_MAX_COMMS]; /* in order of creation; gloo last */
    uint32_t n;
} coll_comms_t;

/* The communicators of `rank` (< world size). Cost grows with none of the grid's axes but pp, and
 * with the data parallel size where optimizer instances are several. */
void coll_comms_of_rank(const coll_job_t *job, uint32_t rank, coll_comms_t *comms_p);

/* Members of a communicator of `rank`, ascending for WORLD and INSTANCE, else in the group's own
 * order; ranks[] has room for spread.n_ranks. Returns how many. */
uint32_t coll_comm_ranks(const coll_job_t *job, const coll_comm_t *comm, uint32_t rank,
                         uint32_t *ranks);

#endif
