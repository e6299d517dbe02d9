/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/comm.h"
#include "collectives/context.h"
#include "sim/base/units.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <string.h>

static coll_job_t job_of(uint32_t world, uint32_t tp, uint32_t cp, uint32_t ep, uint32_t pp)
{
    coll_job_t job = { .machine = { .gpus_per_node = 8, .nvlink_domain = 8 },
                       .distributed_optimizer = true,
                       .n_optimizer_instances = 1,
                       .sequence_parallel = tp > 1,
                       .activation_bytes = 64 * BASE_MIB,
                       .norm_grad_bytes = BASE_MIB,
                       .embedding_bytes = 256 * BASE_MIB };
    CU_ASSERT_EQUAL_FATAL(
        topo_grid_init(&job.grid, world, tp, cp, ep, tp, pp, "tp-cp-ep-dp-pp", NULL), BASE_OK);
    return job;
}

/* Names of the communicators that need device memory, in order of creation, blank-separated. */
static const char *names(const coll_job_t *job, uint32_t rank)
{
    static char text[2048];
    static coll_comms_t comms;
    coll_comms_of_rank(job, rank, &comms);
    size_t n = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < comms.n; i++)
        if (!comms.items[i].is_gloo)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", n > 0 ? "," : "",
                                  comms.items[i].name);
    return text;
}

static const coll_comm_t *find(const coll_job_t *job, uint32_t rank, const char *name)
{
    static coll_comms_t comms;
    coll_comms_of_rank(job, rank, &comms);
    for (uint32_t i = 0; i < comms.n; i++)
        if (strcmp(comms.items[i].name, name) == 0)
            return &comms.items[i];
    return NULL;
}

static void a_dense_job_has_these(void)
{
    coll_job_t job = job_of(256, 8, 1, 1, 4);
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,pp,dp-cp,dist-opt");
    CU_ASSERT_STRING_EQUAL(names(&job, 64), "world,tp,pp,dp-cp,dist-opt");
    job.tied_embeddings = true;
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,embd,tp,pp,dp-cp,dist-opt");
    CU_ASSERT_STRING_EQUAL(names(&job, 64), "world,tp,pp,dp-cp,dist-opt");
    CU_ASSERT_STRING_EQUAL(names(&job, 255), "world,embd,tp,pp,dp-cp,dist-opt");
    job.distributed_optimizer = false;
    CU_ASSERT_STRING_EQUAL(names(&job, 64), "world,tp,pp,dp-cp,mp");
    /* One GPU: groups of one rank have communicators too. */
    job = job_of(1, 1, 1, 1, 1);
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,dp-cp,dist-opt");
    /* Without tensor parallelism the stages in the middle never use the group. */
    job = job_of(8, 1, 1, 1, 4);
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,pp,dp-cp,dist-opt");
    CU_ASSERT_STRING_EQUAL(names(&job, 2), "world,pp,dp-cp,dist-opt");
}

static void software_decides_too(void)
{
    coll_job_t job = job_of(4, 1, 1, 1, 4);
    job.distributed_optimizer = false;
    job.tied_embeddings = true;
    job.software_date = 20230715;
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,dp,pp,embd,tp,mp");
    CU_ASSERT_STRING_EQUAL(names(&job, 1), "world,dp,pp,tp,mp");
    job.software_date = 20240601; /* the loss goes over dp, gradients over dp-cp */
    CU_ASSERT_STRING_EQUAL(names(&job, 3), "world,embd,tp,pp,dp-cp,mp,dp");
    job.distributed_optimizer = true;
    CU_ASSERT_STRING_EQUAL(names(&job, 1), "world,pp,dp-cp");
    job.software_date = 20250601;
    CU_ASSERT_STRING_EQUAL(names(&job, 3), "world,embd,tp,pp,dp-cp,dist-opt");
}

static void experts_add_their_groups(void)
{
    coll_job_t job = job_of(64, 1, 1, 8, 1);
    job.has_experts = true;
    job.moe = COLL_MOE_ALLTOALL;
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,etp-ep,ep,dp-cp,edp,dist-opt");
    const coll_comm_t *ep = find(&job, 9, "ep");
    CU_ASSERT_PTR_NOT_NULL_FATAL(ep);
    CU_ASSERT_EQUAL(ep->uses[0].op, COLL_OP_ALL_TO_ALL);
    CU_ASSERT_EQUAL(ep->spread.n_ranks, 8);
    CU_ASSERT_EQUAL(ep->spread.n_nodes, 1);
    job.moe = COLL_MOE_FLEX;
    job.aux_loss = job.expert_bias = true;
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,etp-ep,tp-dp-cp,dp-cp,edp,dist-opt,pp,tp-cp");
    job.moe = COLL_MOE_ALLGATHER;
    job.aux_loss = job.expert_bias = job.distributed_optimizer = false;
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,etp-ep,dp-cp,edp,mp,etp-ep-pp");
}

static void lone_messages_have_pairs(void)
{
    coll_job_t job = job_of(16, 2, 1, 1, 4);
    job.interleaved = job.unbatched_p2p = true;
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,pp pair prev,pp pair next,dp-cp,dist-opt");
    const coll_comm_t *next = find(&job, 1, "pp pair next");
    CU_ASSERT_PTR_NOT_NULL_FATAL(next);
    CU_ASSERT_EQUAL(next->peer, 5);
    CU_ASSERT_EQUAL(next->spread.n_ranks, 2);
    CU_ASSERT_EQUAL(next->spread.n_nodes, 1);
    CU_ASSERT_EQUAL(next->uses[0].peers.send_linked, 1);
    CU_ASSERT_EQUAL(next->uses[0].peers.recv_linked, 1);
    const coll_comm_t *prev = find(&job, 1, "pp pair prev");
    CU_ASSERT_EQUAL(prev->peer, 13);
    CU_ASSERT_EQUAL(prev->spread.n_nodes, 2);
    CU_ASSERT_EQUAL(prev->uses[0].peers.send_net, 1);
    /* Two stages: one direction goes over the world's. */
    job = job_of(8, 2, 1, 1, 2);
    job.interleaved = job.unbatched_p2p = true;
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,pp pair,world pair,dp-cp,dist-opt");
    const coll_comm_t *pair = find(&job, 0, "pp pair");
    CU_ASSERT_EQUAL(pair->uses[0].peers.send_linked, 1);
    CU_ASSERT_EQUAL(pair->uses[0].peers.recv_linked, 0);
    pair = find(&job, 4, "pp pair");
    CU_ASSERT_EQUAL(pair->uses[0].peers.send_linked, 0);
    CU_ASSERT_EQUAL(pair->uses[0].peers.recv_linked, 1);
    /* Eager: the groups' own, all there from the start. */
    job.eager = true;
    CU_ASSERT_PTR_NULL(find(&job, 0, "pp pair"));
    const coll_comm_t *pp = find(&job, 0, "pp");
    CU_ASSERT_EQUAL(pp->created.iteration, 0);
    CU_ASSERT_PTR_NOT_NULL(find(&job, 0, "etp-ep-pp"));
    CU_ASSERT_PTR_NOT_NULL(find(&job, 0, "pos_embd"));
    CU_ASSERT_PTR_NULL(find(&job, 4, "pos_embd"));
    /* Ring attention of more than two ranks sends alone, of two in a batch. */
    job = job_of(8, 1, 4, 1, 1);
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,cp pair next,cp pair prev,dp-cp,dist-opt");
    job = job_of(8, 1, 2, 1, 1);
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,cp,dp-cp,dist-opt");
    job = job_of(8, 1, 4, 1, 1);
    job.cp = COLL_CP_ALL_TO_ALL;
    CU_ASSERT_EQUAL(find(&job, 0, "cp")->uses[0].op, COLL_OP_ALL_TO_ALL);
    job.cp = COLL_CP_ALL_GATHER;
    CU_ASSERT_EQUAL(find(&job, 0, "cp")->uses[0].op, COLL_OP_ALL_GATHER);
    job = job_of(16, 1, 8, 1, 1);
    job.cp = COLL_CP_ALL_TO_ALL_RING;
    job.cp_a2a_size = 2;
    CU_ASSERT_STRING_EQUAL(names(&job, 5),
                           "world,tp,cp a2a,cp pair next,cp pair prev,dp-cp,dist-opt");
    uint32_t ranks[16];
    CU_ASSERT_EQUAL(coll_comm_ranks(&job, find(&job, 5, "cp a2a"), 5, ranks), 2);
    CU_ASSERT_EQUAL(ranks[0], 4);
    CU_ASSERT_EQUAL(find(&job, 5, "cp pair next")->peer, 7);
    CU_ASSERT_EQUAL(find(&job, 1, "cp pair prev")->peer, 7);
    job.cp_a2a_size = 4;
    CU_ASSERT_EQUAL(coll_comm_ranks(&job, find(&job, 5, "cp p2p"), 5, ranks), 2);
    CU_ASSERT_EQUAL(ranks[0], 1);
    job = job_of(8, 1, 4, 1, 1);
    job.cp = COLL_CP_RING;
    job.splits_heads = true;
    CU_ASSERT_EQUAL(find(&job, 0, "cp")->uses[0].op, COLL_OP_ALL_TO_ALL);
    CU_ASSERT_PTR_NOT_NULL(find(&job, 0, "cp pair next"));
}

static void uses_come_in_order_of_time(void)
{
    coll_job_t job = job_of(64, 2, 2, 4, 2);
    job.has_experts = job.aux_loss = job.tied_embeddings = true;
    job.moe = COLL_MOE_ALLTOALL;
    for (uint32_t rank = 0; rank < 64; rank++) {
        coll_comms_t comms;
        coll_comms_of_rank(&job, rank, &comms);
        for (uint32_t i = 0; i < comms.n; i++) {
            const coll_comm_t *c = &comms.items[i];
            if (c->is_gloo) {
                CU_ASSERT_EQUAL(c->n_uses, 0);
                continue;
            }
            CU_ASSERT(c->n_uses > 0);
            CU_ASSERT_EQUAL(coll_moment_compare(c->created, c->uses[0].at), 0);
            for (uint32_t u = 1; u < c->n_uses; u++)
                CU_ASSERT(coll_moment_compare(c->uses[u - 1].at, c->uses[u].at) <= 0);
            if (i > 0)
                CU_ASSERT(coll_moment_compare(comms.items[i - 1].created, c->created) <= 0);
        }
    }
    const coll_comm_t *tp = find(&job, 0, "tp");
    CU_ASSERT_EQUAL(tp->uses[0].op, COLL_OP_BROADCAST);
    CU_ASSERT_EQUAL(tp->uses[0].at.phase, COLL_AT_FORWARD);
    CU_ASSERT_EQUAL(find(&job, 0, "embd")->created.phase, COLL_AT_MODEL_BUILD);
    CU_ASSERT_EQUAL(find(&job, 0, "dp-cp")->created.phase, COLL_AT_GRAD_SYNC);
    job.overlap_grad_reduce = true;
    CU_ASSERT_EQUAL(find(&job, 0, "dp-cp")->created.phase, COLL_AT_BACKWARD);
}

/* Every member sees the same communicator: same ranks, and a spread that fits them. */
static void members_agree(void)
{
    for (int variant = 0; variant < 24; variant++) {
        static const uint32_t hosts[] = { 8, 4, 6 };
        coll_job_t job = job_of(64, 2, 2, 4, 2);
        job.has_experts = true;
        job.moe = COLL_MOE_ALLTOALL;
        job.machine.gpus_per_node = hosts[variant % 3];
        job.machine.nvlink_domain = variant % 3 == 1 ? 2 : hosts[variant % 3];
        job.n_optimizer_instances = variant / 3 % 2 ? 4 : 1;
        job.interleaved = job.unbatched_p2p = variant / 6 % 2;
        job.eager = variant / 12 % 2;
        for (uint32_t rank = 0; rank < 64; rank++) {
            coll_comms_t comms;
            coll_comms_of_rank(&job, rank, &comms);
            for (uint32_t i = 0; i < comms.n; i++) {
                const coll_comm_t *c = &comms.items[i];
                uint32_t ranks[64], theirs[64], me = 0;
                uint32_t n = coll_comm_ranks(&job, c, rank, ranks);
                CU_ASSERT_EQUAL(n, c->spread.n_ranks);
                coll_spread_t s = coll_spread_of_list(&job.machine, ranks, n, rank);
                CU_ASSERT_EQUAL(s.n_ranks, c->spread.n_ranks);
                CU_ASSERT_EQUAL(s.n_nodes, c->spread.n_nodes);
                CU_ASSERT_EQUAL(s.n_local, c->spread.n_local);
                CU_ASSERT_EQUAL(s.n_linked, c->spread.n_linked);
                for (uint32_t m = 0; m < n; m++)
                    me += ranks[m] == rank;
                CU_ASSERT_EQUAL(me, 1);
                if (c->scope == COLL_SCOPE_PAIR)
                    continue;
                CU_ASSERT_EQUAL(coll_comm_ranks(&job, c, ranks[n - 1], theirs), n);
                CU_ASSERT_EQUAL(memcmp(ranks, theirs, n * sizeof(*ranks)), 0);
            }
        }
    }
}

static void instances_split_the_data_parallel_group(void)
{
    coll_job_t job = job_of(64, 2, 1, 1, 2);
    job.n_optimizer_instances = 4;
    CU_ASSERT_STRING_EQUAL(names(&job, 0), "world,tp,pp,dp-cp intra,dp-cp inter,dist-opt");
    CU_ASSERT_EQUAL(find(&job, 0, "dp-cp intra")->spread.n_ranks, 4);
    CU_ASSERT_EQUAL(find(&job, 0, "dp-cp inter")->spread.n_ranks, 4);
    CU_ASSERT_EQUAL(find(&job, 0, "dist-opt")->spread.n_ranks, 16);
    uint32_t ranks[64];
    coll_comm_ranks(&job, find(&job, 0, "dp-cp inter"), 0, ranks);
    CU_ASSERT_EQUAL(ranks[1], 8);
}

static void buffers_outside_have_their_formulas(void)
{
    uint64_t bytes = 0;
    CU_ASSERT(coll_user_buffer_bytes(8192, 8192, false, &bytes));
    CU_ASSERT_EQUAL(bytes, UINT64_C(12) * 8192 * 8192 * 2);
    CU_ASSERT(coll_user_buffer_bytes(8192, 8192, true, &bytes));
    CU_ASSERT_EQUAL(bytes, UINT64_C(20) * 8192 * 8192);
    CU_ASSERT_FALSE(coll_user_buffer_bytes(UINT64_MAX / 2, 8, false, &bytes));
    CU_ASSERT_EQUAL(bytes, UINT64_C(20) * 8192 * 8192);
    /* 10 channels x 8 ranks x 256 tokens of 7168 x 2 + 8 + 128 x 12 + 128 x 4 bytes, and 5 words.
     */
    coll_deepep_t deepep = coll_deepep_bytes(8, 7168);
    CU_ASSERT_EQUAL(deepep.nvlink_bytes, UINT64_C(80) * (20 + 256 * 16392));
    CU_ASSERT_EQUAL(deepep.network_bytes, 0);
    deepep = coll_deepep_bytes(64, 7168);
    CU_ASSERT_EQUAL(deepep.nvlink_bytes, UINT64_C(80) * (19 * 4 + 288 * 16392));
    CU_ASSERT(deepep.network_bytes > UINT64_C(80) * 2 * 140 * 16392);
    for (uint32_t sm = 70; sm < 130; sm++) {
        coll_range_t c = coll_context_bytes(sm), l = coll_library_bytes(sm);
        coll_range_t k = coll_nccl_process_bytes(sm, 132);
        CU_ASSERT(0 < c.low && c.low <= c.bytes && c.bytes <= c.high && c.high < BASE_GIB);
        CU_ASSERT(0 < l.low && l.low <= l.bytes && l.bytes <= l.high && l.high < BASE_GIB);
        CU_ASSERT(0 < k.low && k.low <= k.bytes && k.bytes <= k.high && k.high < BASE_GIB);
    }
}

static CU_TestInfo tests[] = {
    { "a dense job has these", a_dense_job_has_these },
    { "software decides too", software_decides_too },
    { "experts add their groups", experts_add_their_groups },
    { "lone messages have pairs", lone_messages_have_pairs },
    { "uses come in order of time", uses_come_in_order_of_time },
    { "members agree", members_agree },
    { "instances split the data parallel group", instances_split_the_data_parallel_group },
    { "buffers outside have their formulas", buffers_outside_have_their_formulas },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "comm", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
