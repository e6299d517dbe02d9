/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/comm.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Days on which Megatron-LM's main branch changed who communicates. */
enum {
    /* Data sets are built without asking the data and pipeline parallel groups; stages in the
     * middle of the pipeline get no batch. */
    NEW_DATA_SETS = 20231026,
    /* Norms of a distributed optimizer have a group of their own; before it was the world. */
    OWN_NORM_GROUP = 20241113,
    /* The loss is averaged over dp-cp; before over dp. The same of the router's losses. */
    LOSS_OVER_DP_CP = 20250430,
    ROUTER_OVER_DP_CP = 20260725,
};

const char *coll_phase_name(coll_phase_t phase)
{
    static const char *const names[COLL_N_PHASES] = {
        [COLL_AT_START] = "start",         [COLL_AT_MODEL_BUILD] = "model build",
        [COLL_AT_FORWARD] = "forward",     [COLL_AT_BACKWARD] = "backward",
        [COLL_AT_GRAD_SYNC] = "grad sync", [COLL_AT_OPTIMIZER_STEP] = "optimizer step",
        [COLL_AT_LOGGING] = "logging",
    };
    return names[phase];
}

static bool is_since(const coll_job_t *job, uint32_t date)
{
    return job->software_date == 0 || job->software_date >= date;
}

int coll_moment_compare(coll_moment_t a, coll_moment_t b)
{
    if (a.iteration != b.iteration)
        return a.iteration < b.iteration ? -1 : 1;
    return a.phase < b.phase ? -1 : a.phase > b.phase;
}

/* ---- who is in it ---- */

/* Ranks of a part of a group of `n`. */
static uint32_t part_of(const coll_job_t *job, topo_group_t group, uint32_t n)
{
    return group == TOPO_GROUP_CP ? job->cp_a2a_size : n / job->n_optimizer_instances;
}

static uint32_t pick_instance(const coll_job_t *job, coll_scope_t scope, topo_group_t group,
                              uint32_t rank, uint32_t *ranks)
{
    uint32_t n = topo_group_ranks(&job->grid, group, rank, ranks);
    uint32_t part = part_of(job, group, n), index = 0, kept = 0;
    while (ranks[index] != rank)
        index++;
    for (uint32_t i = 0; i < n; i++)
        if (scope == COLL_SCOPE_INTRA ? i / part == index / part : i % part == index % part)
            ranks[kept++] = ranks[i];
    return kept;
}

/* Ranks whose place in their expert data parallel group lies in the same instance: the expert grid
 * with a part of its data parallel axis. */
static topo_group_shape_t instance_shape(const coll_job_t *job, uint32_t rank)
{
    const topo_grid_t *g = &job->grid;
    uint32_t sizes[TOPO_N_AXES], strides[TOPO_N_AXES];
    uint32_t part = (uint32_t)base_u64_max(g->edp / job->n_optimizer_instances, 1);
    topo_group_shape_t shape = { 0 };
    topo_coord_t coord = { 0 };
    topo_grid_sizes(g, true, sizes);
    topo_grid_strides(g, true, strides);
    topo_grid_coord(g, rank, &coord, NULL);
    sizes[TOPO_AXIS_DP] = part;
    shape.first = coord.edp / part * part * strides[TOPO_AXIS_DP];
    for (int place = 0; place < TOPO_N_AXES; place++) {
        for (int axis = 0; axis < TOPO_N_AXES; axis++) {
            if (g->order[axis] != place || sizes[axis] == 1)
                continue;
            shape.sizes[shape.n_dims] = sizes[axis];
            shape.strides[shape.n_dims++] = strides[axis];
        }
    }
    return shape;
}

static uint32_t instance_ranks(const coll_job_t *job, uint32_t rank, uint32_t *ranks)
{
    topo_group_shape_t shape = instance_shape(job, rank);
    uint32_t n = 1;
    for (int i = 0; i < shape.n_dims; i++)
        n *= shape.sizes[i];
    for (uint32_t index = 0; index < n; index++) {
        uint32_t rest = index;
        ranks[index] = shape.first;
        for (int i = 0; i < shape.n_dims; i++) {
            ranks[index] += rest % shape.sizes[i] * shape.strides[i];
            rest /= shape.sizes[i];
        }
    }
    return n;
}

uint32_t coll_comm_ranks(const coll_job_t *job, const coll_comm_t *comm, uint32_t rank,
                         uint32_t *ranks)
{
    switch (comm->scope) {
    case COLL_SCOPE_GROUP:
        return topo_group_ranks(&job->grid, comm->group, rank, ranks);
    case COLL_SCOPE_INTRA:
    case COLL_SCOPE_INTER: {
        uint32_t n = topo_group_size(&job->grid, comm->group, rank);
        uint32_t *all = base_xcalloc(n, sizeof(*all));
        n = pick_instance(job, comm->scope, comm->group, rank, all);
        memcpy(ranks, all, n * sizeof(*ranks));
        free(all);
        return n;
    }
    case COLL_SCOPE_PAIR:
        ranks[0] = rank < comm->peer ? rank : comm->peer;
        ranks[1] = rank < comm->peer ? comm->peer : rank;
        return 2;
    case COLL_SCOPE_INSTANCE:
        return instance_ranks(job, rank, ranks);
    case COLL_SCOPE_WORLD:
        break;
    }
    for (uint32_t r = 0; r < job->grid.world_size; r++)
        ranks[r] = r;
    return job->grid.world_size;
}

static coll_spread_t spread_of(const coll_job_t *job, const coll_comm_t *comm, uint32_t rank)
{
    topo_group_shape_t shape = { .n_dims = 1, .sizes = { job->grid.world_size }, .strides = { 1 } };
    switch (comm->scope) {
    case COLL_SCOPE_WORLD:
        break;
    case COLL_SCOPE_INSTANCE:
        shape = instance_shape(job, rank);
        break;
    case COLL_SCOPE_GROUP:
        topo_group_shape(&job->grid, comm->group, rank, &shape);
        break;
    case COLL_SCOPE_PAIR: {
        uint32_t ranks[2];
        coll_comm_ranks(job, comm, rank, ranks);
        return coll_spread_of_list(&job->machine, ranks, 2, rank);
    }
    case COLL_SCOPE_INTRA:
    case COLL_SCOPE_INTER: {
        uint32_t n = topo_group_size(&job->grid, comm->group, rank);
        uint32_t *ranks = base_xcalloc(n, sizeof(*ranks));
        n = coll_comm_ranks(job, comm, rank, ranks);
        coll_spread_t spread = coll_spread_of_list(&job->machine, ranks, n, rank);
        free(ranks);
        return spread;
    }
    }
    return coll_spread_of_shape(&job->machine, &shape, rank);
}

/* ---- building the list ---- */

typedef struct {
    const coll_job_t *job;
    uint32_t rank;
    topo_coord_t coord;
    bool is_first, is_last; /* pipeline stage */
    coll_comms_t *comms;
} coll_build_t;

static coll_comm_t *find(coll_build_t *b, const char *name)
{
    for (uint32_t i = 0; i < b->comms->n; i++)
        if (strcmp(b->comms->items[i].name, name) == 0)
            return &b->comms->items[i];
    return NULL;
}

static coll_comm_t *add(coll_build_t *b, coll_scope_t scope, topo_group_t group, uint32_t peer,
                        const char *name)
{
    coll_comm_t *comm = find(b, name);
    if (comm != NULL)
        return comm;
    assert(b->comms->n < COLL_MAX_COMMS);
    comm = &b->comms->items[b->comms->n++];
    *comm = (coll_comm_t){ .scope = scope, .group = group, .peer = peer };
    snprintf(comm->name, sizeof(comm->name), "%s", name);
    comm->spread = spread_of(b->job, comm, b->rank);
    return comm;
}

static coll_comm_t *world(coll_build_t *b)
{
    return add(b, COLL_SCOPE_WORLD, TOPO_GROUP_TP, 0, "world");
}

static coll_comm_t *group(coll_build_t *b, topo_group_t which)
{
    return add(b, COLL_SCOPE_GROUP, which, 0, topo_group_name(which));
}

/* Uses stay in order of time; one beyond the first COLL_MAX_USES would be a kind that is there. */
static void use(coll_comm_t *comm, coll_op_t op, uint64_t bytes, const coll_use_t *exchange,
                uint32_t iteration, coll_phase_t phase)
{
    coll_use_t u = { .op = op };
    if (exchange != NULL)
        u = *exchange;
    u.op = op;
    u.message_bytes = bytes;
    u.at = (coll_moment_t){ iteration, phase };
    assert(comm->n_uses < COLL_MAX_USES);
    uint32_t at = comm->n_uses++;
    while (at > 0 && coll_moment_compare(u.at, comm->uses[at - 1].at) < 0) {
        comm->uses[at] = comm->uses[at - 1];
        at--;
    }
    comm->uses[at] = u;
}

enum { SCALAR = 8 };
/* Gradients of a bucket; only whether it is more than a few MiB matters. */
#define BUCKET (64 * BASE_MIB)

/* Add a neighbour to a send/receive. */
static void reach(const coll_build_t *b, uint32_t other, bool send, bool recv, coll_use_t *exchange)
{
    const coll_job_t *job = b->job;
    coll_peers_t *peers = &exchange->peers;
    if (send)
        exchange->send_to[exchange->n_send++] = other;
    if (recv)
        exchange->recv_from[exchange->n_recv++] = other;
    bool same = coll_same_node(&job->machine, b->rank, other);
    bool linked = coll_is_linked(&job->machine, b->rank, other) || (same && job->pcie_p2p);
    peers->send_linked += send && linked;
    peers->recv_linked += recv && linked;
    peers->send_net += send && !same;
    peers->recv_net += recv && !same;
}

/* A send or receive outside a batch; `which` tells the pairs of a group apart. */
static void pair(coll_build_t *b, const char *which, uint32_t other, bool send, bool recv)
{
    coll_use_t peers = { .op = COLL_OP_SEND_RECV };
    coll_comm_t *comm = add(b, COLL_SCOPE_PAIR, TOPO_GROUP_PP, other, which);
    reach(b, other, send, recv, &peers);
    use(comm, COLL_OP_SEND_RECV, 0, &peers, 1, COLL_AT_FORWARD);
}

static void add_start(coll_build_t *b)
{
    const coll_job_t *job = b->job;
    /* training/initialize.py, training.py: barriers, start time. */
    use(world(b), COLL_OP_ALL_REDUCE, SCALAR, NULL, 0, COLL_AT_START);
    /* gpt_dataset.py of then, _build_index_mappings(): on ranks that read data. */
    if (!is_since(job, NEW_DATA_SETS) && b->coord.tp == 0) {
        use(group(b, TOPO_GROUP_DP), COLL_OP_ALL_REDUCE, SCALAR, NULL, 0, COLL_AT_START);
        use(group(b, TOPO_GROUP_PP), COLL_OP_ALL_REDUCE, SCALAR, NULL, 0, COLL_AT_START);
    }
    /* language_module.py: tied embeddings start equal. */
    if (job->grid.pp > 1 && job->tied_embeddings && (b->is_first || b->is_last)) {
        coll_comm_t *embd = group(b, TOPO_GROUP_EMBEDDING);
        use(embd, COLL_OP_ALL_REDUCE, job->embedding_bytes, NULL, 0, COLL_AT_MODEL_BUILD);
    }
}

static void add_tensor_parallel(coll_build_t *b)
{
    const coll_job_t *job = b->job;
    bool gets_batch = b->is_first || b->is_last || !is_since(job, NEW_DATA_SETS);
    if (gets_batch) /* pretrain_gpt.py, get_batch(): whatever the size of the group */
        use(group(b, TOPO_GROUP_TP), COLL_OP_BROADCAST, SCALAR, NULL, 1, COLL_AT_FORWARD);
    if (job->grid.tp == 1)
        return; /* vocab_parallel_cross_entropy() reduces over one rank: nothing new */
    coll_comm_t *tp = group(b, TOPO_GROUP_TP);
    if (job->sequence_parallel) {
        use(tp, COLL_OP_ALL_GATHER, job->activation_bytes, NULL, 1, COLL_AT_FORWARD);
        /* finalize_model_grads.py: norms are replicated, their gradients are not */
        use(tp, COLL_OP_ALL_REDUCE, job->norm_grad_bytes, NULL, 1, COLL_AT_GRAD_SYNC);
    } else {
        use(tp, COLL_OP_ALL_REDUCE, job->activation_bytes, NULL, 1, COLL_AT_FORWARD);
    }
    if (b->is_last)
        use(tp, COLL_OP_ALL_REDUCE, SCALAR, NULL, 1, COLL_AT_FORWARD);
}

/* pipeline_parallel/p2p_communication.py */
static void add_pipeline(coll_build_t *b)
{
    const coll_job_t *job = b->job;
    uint32_t pp = job->grid.pp, p = b->coord.pp;
    if (pp <= 1)
        return;
    uint32_t next = topo_grid_rank(&job->grid, b->coord.tp, b->coord.cp, b->coord.dp, (p + 1) % pp);
    uint32_t prev =
        topo_grid_rank(&job->grid, b->coord.tp, b->coord.cp, b->coord.dp, (p + pp - 1) % pp);
    bool has_next = job->interleaved || p + 1 < pp, has_prev = job->interleaved || p > 0;
    bool lone = job->unbatched_p2p && !job->eager;
    if (pp == 2 && job->unbatched_p2p) {
        /* The first of the two sends over the pipeline's group and receives over the world's. */
        if (lone) {
            pair(b, "pp pair", next, p == 0, p != 0);
            pair(b, "world pair", next, p != 0, p == 0);
            return;
        }
        coll_use_t own = { .op = COLL_OP_SEND_RECV }, other = own;
        reach(b, next, p == 0, p != 0, &own);
        reach(b, next, p != 0, p == 0, &other);
        use(group(b, TOPO_GROUP_PP), COLL_OP_SEND_RECV, 0, &own, 1, COLL_AT_FORWARD);
        use(world(b), COLL_OP_SEND_RECV, 0, &other, 1, COLL_AT_FORWARD);
        return;
    }
    if (lone) {
        if (has_prev)
            pair(b, "pp pair prev", prev, true, true);
        if (has_next)
            pair(b, "pp pair next", next, true, true);
        return;
    }
    coll_use_t peers = { .op = COLL_OP_SEND_RECV };
    if (has_prev)
        reach(b, prev, true, true, &peers);
    if (has_next && (next != prev || !has_prev))
        reach(b, next, true, true, &peers);
    use(group(b, TOPO_GROUP_PP), COLL_OP_SEND_RECV, 0, &peers, 1, COLL_AT_FORWARD);
}

static uint32_t cp_rank(const coll_build_t *b, uint32_t index)
{
    const topo_coord_t *c = &b->coord;
    return topo_grid_rank(&b->job->grid, c->tp, index, c->dp, c->pp);
}

/* Heads go over the ranks of a part, keys and values over the same places of all parts. */
static void add_two_levels(coll_build_t *b)
{
    uint32_t near = b->job->cp_a2a_size, cp = b->job->grid.cp, index = b->coord.cp;
    if (near > 1)
        use(add(b, COLL_SCOPE_INTRA, TOPO_GROUP_CP, 0, "cp a2a"), COLL_OP_ALL_TO_ALL, 0, NULL, 1,
            COLL_AT_FORWARD);
    if (cp == near)
        return;
    uint32_t next = cp_rank(b, (index + near) % cp), prev = cp_rank(b, (index + cp - near) % cp);
    if (cp / near > 2 && !b->job->eager) {
        pair(b, "cp pair next", next, true, false);
        pair(b, "cp pair prev", prev, false, true);
        return;
    }
    coll_use_t peers = { .op = COLL_OP_SEND_RECV };
    reach(b, next, true, false, &peers);
    reach(b, prev, false, true, &peers);
    use(add(b, COLL_SCOPE_INTER, TOPO_GROUP_CP, 0, "cp p2p"), COLL_OP_SEND_RECV, 0, &peers, 1,
        COLL_AT_FORWARD);
}

/* Transformer Engine's attn_forward_func_with_cp(); the ring's messages are a batch for two ranks
 * and lone for more. */
static void add_context_parallel(coll_build_t *b)
{
    const topo_grid_t *g = &b->job->grid;
    if (g->cp == 1)
        return;
    if (b->job->cp == COLL_CP_ALL_GATHER)
        use(group(b, TOPO_GROUP_CP), COLL_OP_ALL_GATHER, b->job->activation_bytes, NULL, 1,
            COLL_AT_FORWARD);
    if (b->job->cp == COLL_CP_ALL_TO_ALL || b->job->splits_heads)
        use(group(b, TOPO_GROUP_CP), COLL_OP_ALL_TO_ALL, 0, NULL, 1, COLL_AT_FORWARD);
    if (b->job->cp == COLL_CP_ALL_TO_ALL_RING)
        add_two_levels(b);
    if (b->job->cp != COLL_CP_RING)
        return;
    const topo_coord_t *c = &b->coord;
    uint32_t next = topo_grid_rank(g, c->tp, (c->cp + 1) % g->cp, c->dp, c->pp);
    uint32_t prev = topo_grid_rank(g, c->tp, (c->cp + g->cp - 1) % g->cp, c->dp, c->pp);
    if (g->cp > 2 && !b->job->eager) {
        pair(b, "cp pair next", next, true, false);
        pair(b, "cp pair prev", prev, false, true);
        return;
    }
    coll_use_t peers = { .op = COLL_OP_SEND_RECV };
    reach(b, next, true, false, &peers);
    reach(b, prev, false, true, &peers);
    use(group(b, TOPO_GROUP_CP), COLL_OP_SEND_RECV, 0, &peers, 1, COLL_AT_FORWARD);
}

/* distributed/param_and_grad_buffer.py: also for a group of one rank. */
static void add_gradients_of(coll_build_t *b, topo_group_t over)
{
    const coll_job_t *job = b->job;
    coll_phase_t phase = job->overlap_grad_reduce ? COLL_AT_BACKWARD : COLL_AT_GRAD_SYNC;
    if (!job->distributed_optimizer) {
        use(group(b, over), COLL_OP_ALL_REDUCE, BUCKET, NULL, 1, phase);
        return;
    }
    char intra[COLL_COMM_NAME], inter[COLL_COMM_NAME];
    bool one = job->n_optimizer_instances == 1;
    snprintf(intra, sizeof(intra), "%s intra", topo_group_name(over));
    snprintf(inter, sizeof(inter), "%s inter", topo_group_name(over));
    coll_comm_t *shards = one ? group(b, over) : add(b, COLL_SCOPE_INTRA, over, 0, intra);
    use(shards, COLL_OP_REDUCE_SCATTER, BUCKET, NULL, 1, phase);
    use(shards, COLL_OP_ALL_GATHER, BUCKET, NULL, 1, COLL_AT_OPTIMIZER_STEP);
    if (!one)
        use(add(b, COLL_SCOPE_INTER, over, 0, inter), COLL_OP_ALL_REDUCE, BUCKET, NULL, 1, phase);
}

static void add_data_parallel(coll_build_t *b)
{
    const coll_job_t *job = b->job;
    /* Before context parallelism there was one group, dp. */
    add_gradients_of(b, is_since(job, NEW_DATA_SETS) ? TOPO_GROUP_DP_CP : TOPO_GROUP_DP);
    if (job->has_experts)
        add_gradients_of(b, TOPO_GROUP_EDP);
    if (b->is_last) {
        topo_group_t over = is_since(job, LOSS_OVER_DP_CP) ? TOPO_GROUP_DP_CP : TOPO_GROUP_DP;
        use(group(b, over), COLL_OP_ALL_REDUCE, SCALAR, NULL, 1, COLL_AT_LOGGING);
    }
    if (job->grid.pp > 1 && job->tied_embeddings && (b->is_first || b->is_last))
        use(group(b, TOPO_GROUP_EMBEDDING), COLL_OP_ALL_REDUCE, job->embedding_bytes, NULL, 1,
            COLL_AT_GRAD_SYNC);
}

/* optimizer/clip_grads.py: norm of the gradients, and whether one overflowed. */
static void add_norms(coll_build_t *b)
{
    const coll_job_t *job = b->job;
    coll_comm_t *comm;
    if (!job->distributed_optimizer)
        comm = group(b, TOPO_GROUP_MP);
    else if (is_since(job, OWN_NORM_GROUP))
        comm = add(b, COLL_SCOPE_INSTANCE, TOPO_GROUP_TP, 0, "dist-opt");
    else
        comm = world(b);
    use(comm, COLL_OP_ALL_REDUCE, SCALAR, NULL, 1, COLL_AT_OPTIMIZER_STEP);
    if (!job->distributed_optimizer && job->has_experts)
        use(group(b, TOPO_GROUP_ETP_EP_PP), COLL_OP_ALL_REDUCE, SCALAR, NULL, 1,
            COLL_AT_OPTIMIZER_STEP);
}

/* transformer/moe/: token_dispatcher.py, router.py, moe_logging.py */
static void add_experts(coll_build_t *b)
{
    const coll_job_t *job = b->job;
    const topo_grid_t *g = &job->grid;
    if (!job->has_experts)
        return;
    if (g->etp * g->ep > 1) {
        coll_comm_t *tp_ep = group(b, TOPO_GROUP_ETP_EP);
        /* All-gather: the tokens; all-to-all: how many there are; flex: handles of its buffers. */
        uint64_t bytes = job->moe == COLL_MOE_ALLGATHER ? BUCKET : SCALAR;
        use(tp_ep, COLL_OP_ALL_GATHER, bytes, NULL, 1, COLL_AT_FORWARD);
    }
    if (job->moe == COLL_MOE_ALLTOALL && g->ep > 1)
        use(group(b, TOPO_GROUP_EP), COLL_OP_ALL_TO_ALL, 0, NULL, 1, COLL_AT_FORWARD);
    if (job->moe == COLL_MOE_ALLTOALL && g->etp > 1)
        use(group(b, TOPO_GROUP_ETP), COLL_OP_ALL_GATHER, BUCKET, NULL, 1, COLL_AT_FORWARD);
    if (job->expert_bias)
        use(group(b, TOPO_GROUP_TP_DP_CP), COLL_OP_ALL_REDUCE, SCALAR, NULL, 1, COLL_AT_GRAD_SYNC);
    if (!job->aux_loss)
        return;
    if (g->tp * g->cp > 1)
        use(group(b, TOPO_GROUP_TP_CP), COLL_OP_ALL_REDUCE, SCALAR, NULL, 1, COLL_AT_FORWARD);
    /* What is logged of it is averaged over every one of these, of one rank too. */
    use(group(b, TOPO_GROUP_PP), COLL_OP_ALL_REDUCE, SCALAR, NULL, 1, COLL_AT_LOGGING);
    use(group(b, TOPO_GROUP_TP_CP), COLL_OP_ALL_REDUCE, SCALAR, NULL, 1, COLL_AT_LOGGING);
    topo_group_t over = is_since(job, ROUTER_OVER_DP_CP) ? TOPO_GROUP_DP_CP : TOPO_GROUP_DP;
    use(group(b, over), COLL_OP_ALL_REDUCE, SCALAR, NULL, 1, COLL_AT_LOGGING);
}

/* Every group that parallel_state.py creates is there from the start. */
static void add_eager(coll_build_t *b)
{
    world(b);
    for (int g = 0; g < TOPO_N_GROUPS; g++)
        if (topo_group_size(&b->job->grid, (topo_group_t)g, b->rank) > 0)
            group(b, (topo_group_t)g);
    add(b, COLL_SCOPE_INSTANCE, TOPO_GROUP_TP, 0, "dist-opt");
}

static void add_gloo(coll_build_t *b)
{
    static const topo_group_t groups[] = { TOPO_GROUP_DP_CP, TOPO_GROUP_DP, TOPO_GROUP_EDP };
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        char name[COLL_COMM_NAME];
        snprintf(name, sizeof(name), "%s gloo", topo_group_name(groups[i]));
        coll_comm_t *comm = add(b, COLL_SCOPE_GROUP, groups[i], 0, name);
        comm->is_gloo = true;
    }
}

/* In order of creation; insertion sort keeps the order of equal moments. */
static void sort(coll_comms_t *comms)
{
    for (uint32_t i = 1; i < comms->n; i++) {
        coll_comm_t comm = comms->items[i];
        uint32_t at = i;
        while (at > 0 && coll_moment_compare(comm.created, comms->items[at - 1].created) < 0) {
            comms->items[at] = comms->items[at - 1];
            at--;
        }
        comms->items[at] = comm;
    }
}

void coll_comms_of_rank(const coll_job_t *job, uint32_t rank, coll_comms_t *comms_p)
{
    coll_build_t b = { .job = job, .rank = rank, .comms = comms_p };
    comms_p->n = 0;
    topo_grid_coord(&job->grid, rank, &b.coord, NULL);
    b.is_first = b.coord.pp == 0;
    b.is_last = b.coord.pp == job->grid.pp - 1;
    if (job->eager)
        add_eager(&b);
    add_start(&b);
    add_tensor_parallel(&b);
    add_context_parallel(&b);
    add_experts(&b);
    add_pipeline(&b);
    add_data_parallel(&b);
    add_norms(&b);
    for (uint32_t i = 0; i < comms_p->n; i++) {
        coll_comm_t *comm = &comms_p->items[i];
        comm->created = job->eager || comm->n_uses == 0 ? (coll_moment_t){ 0, COLL_AT_START }
                                                        : comm->uses[0].at;
    }
    sort(comms_p);
    add_gloo(&b);
}
