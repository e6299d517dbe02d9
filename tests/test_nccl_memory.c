/* SPDX-License-Identifier: Apache-2.0
 * The model of NCCL's memory against what NCCL's own host code allocated (tests/data/
 * nccl-measured.tsv: run against a driver that only counts, on HGX H100 topologies), and against
 * figures that others measured on GPUs. */
#include "config.h"

#include "collectives/nccl_memory.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "tests/cutap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB(n) ((uint64_t)(n)*BASE_MIB)

static coll_nccl_t h100(uint32_t version)
{
    return (coll_nccl_t){ .version = version,
                          .machine = { .gpus_per_node = 8, .nvlink_domain = 8 },
                          .sm = 90,
                          .nvlink_links = 18,
                          .nics_per_node = 8,
                          .nic_gbit_per_s = 400 };
}

static coll_nccl_t a100(uint32_t version)
{
    coll_nccl_t n = h100(version);
    n.sm = 80;
    n.nvlink_links = 12;
    n.nic_gbit_per_s = 200;
    return n;
}

static coll_nccl_t b200(uint32_t version)
{
    coll_nccl_t n = h100(version);
    n.sm = 100;
    n.nvlink_links = 18;
    return n;
}

/* `nodes` x `local` ranks. */
static coll_spread_t spread(uint32_t nodes, uint32_t local)
{
    return (coll_spread_t){
        .n_ranks = nodes * local, .n_nodes = nodes, .n_local = local, .n_linked = local
    };
}

static coll_nccl_comm_t make(const coll_nccl_t *n, uint32_t nodes, uint32_t local)
{
    coll_nccl_comm_t comm;
    coll_spread_t s = spread(nodes, local);
    coll_nccl_comm_init(&comm, n, &s);
    return comm;
}

static uint64_t ring(coll_nccl_comm_t *comm)
{
    return coll_nccl_comm_use(comm, COLL_OP_ALL_GATHER, MIB(256), NULL).bytes;
}

static uint64_t large_reduce(coll_nccl_comm_t *comm)
{
    return coll_nccl_comm_use(comm, COLL_OP_ALL_REDUCE, MIB(256), NULL).bytes;
}

static coll_range_t small_reduce(coll_nccl_comm_t *comm)
{
    return coll_nccl_comm_use(comm, COLL_OP_ALL_REDUCE, 8, NULL);
}

static uint64_t all_to_all(coll_nccl_comm_t *comm)
{
    return coll_nccl_comm_use(comm, COLL_OP_ALL_TO_ALL, 0, NULL).bytes;
}

static uint64_t exchange(coll_nccl_comm_t *comm, uint32_t linked, uint32_t net)
{
    coll_peers_t peers = { linked, linked, net, net, 0 };
    return coll_nccl_comm_use(comm, COLL_OP_SEND_RECV, 0, &peers).bytes;
}

/* One step of a row: "ar:64", "ag:8388608", "ring:...", "a2a:...". */
static coll_range_t step(coll_nccl_comm_t *comm, const char *text)
{
    uint64_t bytes = strtoull(strchr(text, ':') + 1, NULL, 10);
    if (strncmp(text, "ar:", 3) == 0)
        return coll_nccl_comm_use(comm, COLL_OP_ALL_REDUCE, bytes, NULL);
    if (strncmp(text, "ag:", 3) == 0)
        return coll_nccl_comm_use(comm, COLL_OP_ALL_GATHER, bytes, NULL);
    if (strncmp(text, "a2a:", 4) == 0)
        return coll_nccl_comm_use(comm, COLL_OP_ALL_TO_ALL, bytes, NULL);
    /* Send to the next rank, receive from the one before. */
    const coll_spread_t *s = &comm->spread;
    coll_peers_t peers = { .send_linked = s->n_local > 1,
                           .recv_linked = s->n_local > 1 && s->n_nodes == 1,
                           .send_net = s->n_nodes > 1 && s->n_local == 1,
                           .recv_net = s->n_nodes > 1,
                           /* The last rank of the node sends to the first of the next one. */
                           .foreign_senders = s->n_nodes > 1 && s->n_local > 1 };
    return coll_nccl_comm_use(comm, COLL_OP_SEND_RECV, bytes, &peers);
}

static double sum_of(uint64_t bytes)
{
    return (double)bytes / (double)BASE_MIB;
}

static void every_measured_step_is_within_its_bounds(void)
{
    char *path = base_xasprintf("%s/tests/data/nccl-measured.tsv", getenv("TOP_SRCDIR"));
    FILE *in = fopen(path, "r");
    free(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(in);
    char line[256], version[16], node[16], what[32];
    coll_nccl_t nccl = { 0 };
    coll_nccl_comm_t comm = { 0 }, first_rank = { 0 };
    coll_range_t of_first;
    const uint32_t zero = 0;
    unsigned n_rows = 0, n_equal = 0;
    while (fgets(line, sizeof(line), in) != NULL) {
        unsigned ranks, local;
        double first, least, most, total;
        char counts[4][8] = { "" };
        if (sscanf(line, "%15s %15s %u %u %7[0-9] %7[0-9] %7[0-9] %7[0-9] %31s %lf %lf %lf %lf",
                   version, node, &ranks, &local, counts[0], counts[1], counts[2], counts[3], what,
                   &first, &least, &most, &total) != 13 &&
            sscanf(line, "%15s %15s %u %u %31s %lf %lf %lf %lf", version, node, &ranks, &local,
                   what, &first, &least, &most, &total) != 9)
            continue;
        coll_range_t got;
        if (strcmp(what, "init") == 0) {
            nccl = h100(coll_nccl_version_parse(version));
            coll_spread_t at = spread((ranks + local - 1) / local, ranks < local ? ranks : local);
            coll_nccl_comm_init(&comm, &nccl, &at);
            got = comm.bytes;
            /* The first rank alone, whose place in NCCL's trees is known. */
            coll_spread_place(&at, &nccl.machine, &zero, 1, 0);
            coll_nccl_comm_init(&first_rank, &nccl, &at);
            of_first = first_rank.bytes;
        } else {
            got = step(&comm, what);
            of_first = step(&first_rank, what);
        }
        n_rows++;
        n_equal += (double)of_first.bytes == first * (double)BASE_MIB;
        if ((double)of_first.bytes != first * (double)BASE_MIB)
            printf("# %s %u x %u %s: rank 0 %g, model %g\n", version, ranks, local, what, first,
                   sum_of(of_first.bytes));
        /* Which ranks send through this GPU differs from rank to rank. */
        bool foreign = strncmp(what, "ring:", 5) == 0 && ranks == 16;
        double low = sum_of(got.low), high = sum_of(got.high);
        bool inside =
            foreign || strncmp(what, "a2a:", 4) == 0 ? true : low <= least && most <= high;
        CU_ASSERT(inside);
        if (!inside)
            printf("# %s %u x %u %s: %g..%g, model %g..%g\n", version, ranks, local, what, least,
                   most, low, high);
        bool near =
            foreign || (sum_of(comm.bytes.low) <= total && total <= sum_of(comm.bytes.high));
        CU_ASSERT(near);
        if (!near)
            printf("# %s %u x %u after %s: %g, model %g\n", version, ranks, local, what, total,
                   sum_of(comm.bytes.bytes));
        if (counts[0][0] != '\0') {
            CU_ASSERT_EQUAL(comm.channels.coll, strtoul(counts[0], NULL, 10));
            CU_ASSERT_EQUAL(comm.channels.nvls, strtoul(counts[1], NULL, 10));
            CU_ASSERT_EQUAL(comm.channels.p2p, strtoul(counts[2], NULL, 10));
            CU_ASSERT_EQUAL(comm.channels.per_peer, strtoul(counts[3], NULL, 10));
        }
    }
    fclose(in);
    printf("# %u rows, %u equal to rank 0\n", n_rows, n_equal);
    CU_ASSERT_EQUAL(n_rows, 232);
    /* The other four depend on the order of eight ranks in their node along rings and trees. */
    CU_ASSERT_EQUAL(n_equal, 228);
}

static void every_layout_has_its_closed_form(void)
{
    /* ranks as nodes x local; channels; creation, ring, tree (least, most), large all-reduce beyond
     * the ring where NVLSTree serves it (0 = not), all-to-all. */
    static const struct {
        uint32_t nodes, local, c, v, p, q;
        uint32_t init, ring, tree_low, tree_high, nvls_tree, all;
    } rows[] = {
        { 1, 1, 64, 0, 64, 64, 388, 0, 0, 0, 0, 0 },
        { 1, 2, 24, 16, 32, 32, 230, 288, 288, 288, 0, 384 },
        { 1, 4, 24, 16, 32, 32, 230, 288, 288, 288, 0, 1152 },
        { 1, 8, 24, 16, 32, 32, 230, 288, 288, 288, 0, 2688 },
        { 2, 1, 4, 0, 4, 2, 28, 80, 80, 80, 0, 16 },
        { 4, 1, 4, 0, 4, 2, 28, 80, 80, 160, 0, 16 },
        { 8, 1, 4, 0, 4, 2, 28, 80, 80, 160, 0, 16 },
        { 4, 2, 8, 16, 8, 2, 134, 128, 176, 256, 0, 72 },
        { 2, 4, 16, 16, 16, 2, 134, 224, 368, 368, 448, 232 },
        { 2, 8, 16, 16, 16, 2, 134, 208, 376, 376, 576, 456 },
        { 4, 8, 16, 16, 16, 2, 134, 208, 376, 416, 736, 456 },
        { 8, 8, 16, 16, 16, 1, 134, 208, 376, 416, 816, 372 },
    };
    coll_nccl_t n = h100(22809);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        coll_nccl_comm_t comm = make(&n, rows[i].nodes, rows[i].local);
        CU_ASSERT_EQUAL(comm.channels.coll, rows[i].c);
        CU_ASSERT_EQUAL(comm.channels.nvls, rows[i].v);
        CU_ASSERT_EQUAL(comm.channels.p2p, rows[i].p);
        CU_ASSERT_EQUAL(comm.channels.per_peer, rows[i].q);
        CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(rows[i].init));
        coll_range_t tree = small_reduce(&comm);
        CU_ASSERT_EQUAL(tree.low, MIB(rows[i].tree_low));
        CU_ASSERT_EQUAL(tree.high, MIB(rows[i].tree_high));
        comm = make(&n, rows[i].nodes, rows[i].local);
        CU_ASSERT_EQUAL(ring(&comm), MIB(rows[i].ring));
        CU_ASSERT_EQUAL(all_to_all(&comm), MIB(rows[i].all));
        CU_ASSERT_EQUAL(all_to_all(&comm), 0);
        comm = make(&n, rows[i].nodes, rows[i].local);
        if (rows[i].nvls_tree > 0)
            CU_ASSERT_EQUAL(large_reduce(&comm), MIB(rows[i].nvls_tree));
    }
}

static void worked_examples(void)
{
    coll_nccl_t n = h100(22809);
    coll_nccl_comm_t comm = make(&n, 1, 8);
    ring(&comm);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(518));
    CU_ASSERT_EQUAL(large_reduce(&comm), MIB(256));
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(774));
    comm = make(&n, 1, 2); /* pipeline pair in a node */
    exchange(&comm, 1, 0);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(614));
    comm = make(&n, 1, 4); /* a middle stage */
    exchange(&comm, 2, 0);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(998));
    comm = make(&n, 2, 1);
    exchange(&comm, 0, 1);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(44));
    CU_ASSERT_EQUAL(ring(&comm), MIB(80));
    comm = make(&n, 8, 8);
    ring(&comm);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(342));
    small_reduce(&comm);
    CU_ASSERT(comm.bytes.low <= MIB(554) && comm.bytes.high >= MIB(610));
    comm = make(&n, 8, 1);
    ring(&comm);
    small_reduce(&comm);
    CU_ASSERT(comm.bytes.low <= MIB(168) && comm.bytes.high >= MIB(248));
    comm = make(&n, 16, 1);
    CU_ASSERT_EQUAL(coll_nccl_comm_use(&comm, COLL_OP_ALL_GATHER, MIB(8), NULL).bytes, MIB(560));

    n = b200(22809);
    comm = make(&n, 1, 8);
    ring(&comm);
    large_reduce(&comm);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(1014));
    n = a100(22809);
    comm = make(&n, 1, 8);
    ring(&comm);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(196 + 288));
    comm = make(&n, 2, 8);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(100));
    CU_ASSERT_EQUAL(all_to_all(&comm), MIB(456));
    n = h100(23007);
    comm = make(&n, 2, 8);
    CU_ASSERT_EQUAL(all_to_all(&comm), MIB(624));
    comm = make(&n, 8, 8);
    CU_ASSERT_EQUAL(all_to_all(&comm), MIB(456));
    n = b200(22809);
    n.machine = (coll_machine_t){ .gpus_per_node = 4, .nvlink_domain = 72 };
    comm = make(&n, 1, 16); /* a part of an NVLink rack is one node */
    CU_ASSERT_EQUAL(large_reduce(&comm), MIB(768));
}

static void channel_limits_scale_everything(void)
{
    static const struct {
        uint32_t max_ctas, min_ctas, max_channels, init, ring, nvls, all;
    } rows[] = {
        { 1, 0, 0, 14, 12, 16, 84 },       { 2, 0, 0, 22, 24, 32, 168 },
        { 4, 0, 0, 38, 48, 64, 336 },      { 8, 0, 0, 70, 96, 128, 672 },
        { 16, 0, 0, 134, 192, 256, 1344 }, { 0, 32, 0, 262, 384, 512, 2688 },
        { 0, 0, 8, 134, 96, 256, 672 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        coll_nccl_t n = h100(22809);
        n.max_ctas = rows[i].max_ctas;
        n.min_ctas = rows[i].min_ctas;
        n.max_channels = rows[i].max_channels;
        coll_nccl_comm_t comm = make(&n, 1, 8);
        CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(rows[i].init));
        CU_ASSERT_EQUAL(ring(&comm), MIB(rows[i].ring));
        CU_ASSERT_EQUAL(large_reduce(&comm), MIB(rows[i].nvls));
        CU_ASSERT_EQUAL(all_to_all(&comm), MIB(rows[i].all));
    }
    coll_nccl_t n = h100(22809);
    n.max_p2p_channels = 8;
    coll_nccl_comm_t comm = make(&n, 1, 8);
    CU_ASSERT_EQUAL(all_to_all(&comm), MIB(672));
}

static void variables_move_what_they_should(void)
{
    coll_nccl_t n = h100(22809);
    n.simple_bytes = MIB(1);
    coll_nccl_comm_t comm = make(&n, 1, 8);
    CU_ASSERT_EQUAL(ring(&comm), 24 * MIB(10));
    n.simple_bytes = MIB(8);
    comm = make(&n, 1, 8);
    CU_ASSERT_EQUAL(ring(&comm), 24 * MIB(16));
    n = h100(22809);
    n.nvls = COLL_OFF;
    comm = make(&n, 1, 8);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(196));
    CU_ASSERT_EQUAL(large_reduce(&comm), MIB(288));
    n = h100(22809);
    n.algos = COLL_ALGO_RING;
    comm = make(&n, 1, 8);
    CU_ASSERT_EQUAL(large_reduce(&comm), MIB(288));
    n = h100(22809);
    n.pxn_disable = true;
    comm = make(&n, 2, 8);
    CU_ASSERT_EQUAL(all_to_all(&comm), MIB(168 + 64));
    n = h100(22809);
    n.net_buffers_not_shared = true;
    comm = make(&n, 2, 8);
    CU_ASSERT_EQUAL(all_to_all(&comm), MIB(488));
    n = h100(22809);
    n.gpu_direct = COLL_OFF;
    comm = make(&n, 8, 1);
    CU_ASSERT_EQUAL(ring(&comm) + all_to_all(&comm), 0);
    n = h100(22809);
    n.p2p_disable = true;
    comm = make(&n, 1, 8);
    CU_ASSERT_EQUAL(ring(&comm) + all_to_all(&comm), 0);
    n = h100(22809);
    n.nics_per_node = 32;
    n.nic_gbit_per_s = 100;
    comm = make(&n, 2, 8);
    CU_ASSERT_EQUAL(ring(&comm), MIB(832));
    CU_ASSERT_EQUAL(all_to_all(&comm), MIB(168 + 9 * 128));
    n = h100(22809);
    n.log_coll = 8;
    n.log_p2p = 16;
    n.log_per_peer = 4;
    comm = make(&n, 1, 8);
    CU_ASSERT_EQUAL(ring(&comm), MIB(96));
    CU_ASSERT_EQUAL(all_to_all(&comm), MIB(7 * 4 * 12));
}

static void without_cumem_all_is_connected_at_once(void)
{
    static const struct {
        uint32_t nodes, local, low, high, without_nvls_low, without_nvls_high;
    } rows[] = {
        { 1, 1, 512, 512, 512, 512 },
        { 1, 2, 610, 610, 544, 544 },
        { 1, 4, 722, 962, 592, 832 },
        { 1, 8, 850, 1090, 592, 832 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        coll_nccl_t n = h100(22809);
        n.cumem = COLL_OFF;
        coll_nccl_comm_t comm = make(&n, rows[i].nodes, rows[i].local);
        /* Small cudaMallocs: one slab of 2 MiB. */
        CU_ASSERT_EQUAL(comm.bytes.low, MIB(rows[i].low + 2));
        CU_ASSERT_EQUAL(comm.bytes.high, MIB(rows[i].high + 2));
        CU_ASSERT_EQUAL(ring(&comm) + large_reduce(&comm) + small_reduce(&comm).bytes, 0);
        n.nvls = COLL_OFF;
        comm = make(&n, rows[i].nodes, rows[i].local);
        CU_ASSERT_EQUAL(comm.bytes.low, MIB(rows[i].without_nvls_low + 2));
        CU_ASSERT_EQUAL(comm.bytes.high, MIB(rows[i].without_nvls_high + 2));
    }
    coll_nccl_t n = h100(22809);
    n.connect_at_init = true;
    coll_nccl_comm_t comm = make(&n, 1, 1);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(900));
    comm = make(&n, 2, 1);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(116));
    n.cumem = COLL_OFF;
    comm = make(&n, 4, 1); /* 222.5 of payload, which the driver rounds */
    CU_ASSERT(comm.bytes.bytes >= MIB(222) && comm.bytes.bytes <= MIB(222) * 115 / 100);
    comm = make(&n, 8, 1);
    CU_ASSERT(comm.bytes.bytes >= MIB(365) && comm.bytes.bytes <= MIB(365) * 115 / 100);
    comm = make(&n, 2, 8);
    CU_ASSERT(comm.bytes.bytes >= MIB(1140) && comm.bytes.bytes <= MIB(1156) * 110 / 100);
}

static void trees_have_all_their_edges(void)
{
    coll_nccl_t n = h100(22809);
    n.algos = COLL_ALGO_TREE;
    for (uint32_t nodes = 3; nodes <= 65; nodes++) {
        uint64_t sum = 0;
        coll_nccl_comm_t any = make(&n, nodes, 1);
        coll_range_t bounds = small_reduce(&any);
        for (uint32_t node = 0; node < nodes; node++) {
            coll_spread_t s = spread(nodes, 1);
            coll_nccl_comm_t comm;
            s.is_placed = true;
            s.node = node;
            coll_nccl_comm_init(&comm, &n, &s);
            coll_range_t tree = small_reduce(&comm);
            CU_ASSERT(tree.low == tree.high && bounds.low <= tree.low && tree.high <= bounds.high);
            sum += tree.bytes;
        }
        /* Both trees have an edge less than nodes, on two channels each, at both ends. */
        CU_ASSERT_EQUAL(sum, (uint64_t)(nodes - 1) * 2 * 4 * MIB(20));
    }
}

static void places_are_counted(void)
{
    coll_machine_t machine = { .gpus_per_node = 4, .nvlink_domain = 4 };
    const uint32_t ranks[] = { 1, 3, 6, 7, 5, 12 };
    static const uint32_t nodes[] = { 0, 0, 1, 1, 1, 2 }, places[] = { 0, 1, 0, 1, 2, 0 };
    for (uint32_t i = 0; i < 6; i++) {
        coll_spread_t s = spread(3, 3);
        coll_spread_place(&s, &machine, ranks, 6, ranks[i]);
        CU_ASSERT(s.is_placed);
        CU_ASSERT_EQUAL(s.node, nodes[i]);
        CU_ASSERT_EQUAL(s.place, places[i]);
    }
}

/* A figure that somebody reported, the model's, and how far they may be apart in percent. */
static void reported(const char *who, uint64_t report_bytes, uint64_t model_bytes, double most)
{
    double off = 100.0 * ((double)model_bytes / (double)report_bytes - 1.0);
    printf("# %-34s report %8.1f MiB, model %8.1f MiB, %+.1f %%\n", who, sum_of(report_bytes),
           sum_of(model_bytes), off);
    CU_ASSERT(off <= most && -off <= most);
}

static void public_reports_with_numbers(void)
{
    coll_nccl_t n = a100(21805);
    n.machine = (coll_machine_t){ .gpus_per_node = 4, .nvlink_domain = 4 };
    coll_nccl_comm_t comm = make(&n, 1, 2);
    reported("nccl#964, 2 x A100", MIB(544), comm.bytes.bytes, 0.5);
    comm = make(&n, 1, 4);
    reported("nccl#964, end of 4 x A100", MIB(688), comm.bytes.low, 0.5);
    n = h100(22602);
    comm = make(&n, 1, 8);
    all_to_all(&comm);
    reported("nccl#1685, 8 x H100 all-to-all", UINT64_C(3280000000),
             comm.bytes.bytes + coll_nccl_process_bytes(90, 132).bytes, 5);
    n = h100(22809);
    comm = make(&n, 1, 1);
    uint64_t lazy = comm.bytes.bytes, kernels = coll_nccl_process_bytes(86, 82).bytes;
    n.connect_at_init = true;
    comm = make(&n, 1, 1);
    reported("nccl#2363, pool of one rank", UINT64_C(536870912), comm.bytes.bytes - lazy, 0);
    reported("nccl pull 2366, before, RTX 3090", MIB(996), comm.bytes.bytes + kernels, 5);
    reported("nccl pull 2366, after, RTX 3090", MIB(484), lazy + kernels, 10);
    /* What ncclCommSuspend() gives back: arrays of the channels, and the ring. */
    n = b200(23004);
    n.machine = (coll_machine_t){ .gpus_per_node = 4, .nvlink_domain = 72 };
    comm = make(&n, 1, 8);
    reported("sglang pull 30908, 8 x GB200", MIB(576), comm.channels.coll * MIB(6) + ring(&comm),
             0);
    n = h100(23007);
    comm = make(&n, 1, 8);
    reported("vLLM pull 46234, 2 of 8 ranks", MIB(958),
             2 * (comm.channels.p2p * MIB(6) + ring(&comm)), 0.5);
    n = h100(22809);
    comm = make(&n, 1, 4);
    ring(&comm);
    reported("vLLM pull 51485, 2 at TP 4", BASE_GIB, 2 * comm.bytes.bytes, 2);
    n = h100(22005);
    coll_nccl_comm_t with = make(&n, 1, 8);
    n.nvls = COLL_OFF;
    comm = make(&n, 1, 8);
    /* 5.1 thousand blocks of 0.984 MiB less with NVLS, on two communicators. */
    reported("vLLM#9699, NVLS of 8 x H200", MIB(5018), 2 * (with.bytes.bytes - comm.bytes.bytes),
             5);
    n = a100(22105);
    comm = make(&n, 1, 8);
    /* nccl-tests#220: 1 GiB of room was too little. */
    CU_ASSERT(comm.bytes.low + coll_nccl_process_bytes(80, 108).bytes > BASE_GIB);
}

static void public_reports(void)
{
    /* nccl#964: 4 x A100, 544 MB for two ranks, 688 MB at the ends of the chain of four. */
    coll_nccl_t n = a100(21805);
    n.machine = (coll_machine_t){ .gpus_per_node = 4, .nvlink_domain = 4 };
    coll_nccl_comm_t comm = make(&n, 1, 2);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(544 + 2));
    comm = make(&n, 1, 4);
    CU_ASSERT_EQUAL(comm.bytes.low, MIB(688 + 2));
    /* nccl#1685: 8 x H100, +3.28 GB when the first communicator does its first all-to-all. */
    n = h100(22602);
    comm = make(&n, 1, 8);
    all_to_all(&comm);
    uint64_t total = comm.bytes.bytes + coll_nccl_process_bytes(90, 132).bytes;
    CU_ASSERT(total > UINT64_C(3280000000) * 97 / 100 && total < UINT64_C(3522000000));
    /* nccl#2363 and pull request 2366: 536870912 bytes of pool for one rank, else 484 MiB. */
    n = h100(22809);
    comm = make(&n, 1, 1);
    uint64_t lazy = comm.bytes.bytes;
    n.connect_at_init = true;
    comm = make(&n, 1, 1);
    CU_ASSERT_EQUAL(comm.bytes.bytes - lazy, UINT64_C(536870912));
    coll_range_t process = coll_nccl_process_bytes(86, 82);
    CU_ASSERT(lazy + process.low <= MIB(484) && MIB(484) <= lazy + process.high);
    /* vLLM#9699: 8 x H200 with 2.20, NVLS buffers of 2415919104 bytes. */
    n = h100(22005);
    n.multicast_bytes = MIB(2);
    comm = make(&n, 1, 8);
    n.nvls = COLL_OFF;
    coll_nccl_comm_t without = make(&n, 1, 8);
    CU_ASSERT_EQUAL(comm.bytes.bytes - without.bytes.bytes, UINT64_C(2415919104) + MIB(48));
    /* nccl#864, #986: in proportion to communicators and channels, not to nodes beyond two. */
    n = h100(22809);
    comm = make(&n, 2, 8);
    coll_nccl_comm_t larger = make(&n, 64, 8);
    CU_ASSERT_EQUAL(ring(&comm), ring(&larger));
    /* nccl#818: more NICs, more memory. */
    n.nics_per_node = 2;
    comm = make(&n, 2, 8);
    CU_ASSERT(ring(&comm) < ring(&larger) || MIB(208) > ring(&comm));
}

static void versions_and_algorithms_are_read(void)
{
    CU_ASSERT_EQUAL(coll_nccl_version_parse("2.28.9"), 22809);
    CU_ASSERT_EQUAL(coll_nccl_version_parse("2.28"), 22800);
    CU_ASSERT_EQUAL(coll_nccl_version_parse("3.1"), 0);
    CU_ASSERT_EQUAL(coll_nccl_version_parse("2.28.9.1"), 0);
    CU_ASSERT_EQUAL(coll_nccl_version_parse("2."), 0);
    CU_ASSERT_EQUAL(coll_nccl_version_parse("x"), 0);
    uint32_t algos = 0;
    CU_ASSERT(coll_nccl_algo_parse("Ring,tree", &algos));
    CU_ASSERT_EQUAL(algos, COLL_ALGO_RING | COLL_ALGO_TREE);
    CU_ASSERT(coll_nccl_algo_parse("^NVLS,NVLSTree", &algos));
    CU_ASSERT_EQUAL(algos, COLL_ALGO_RING | COLL_ALGO_TREE | COLL_ALGO_PAT);
    CU_ASSERT(coll_nccl_algo_parse(NULL, &algos));
    CU_ASSERT_EQUAL(algos, COLL_ALGO_ALL);
    CU_ASSERT_FALSE(coll_nccl_algo_parse("Rings", &algos));
    CU_ASSERT_FALSE(coll_nccl_algo_parse("^", &algos));
    CU_ASSERT_FALSE(coll_nccl_algo_parse("Ring,", &algos));
}

static void bridged_pairs_share_a_host(void)
{
    /* Four A800 PCIe in two bridged pairs, all connected at creation: two channels over the host,
     * of which a rank has one NVLink neighbour both ways; a pair alone has all its links. */
    coll_nccl_t n = a100(21701);
    n.nvlink_links = 8;
    n.machine = (coll_machine_t){ .gpus_per_node = 8, .nvlink_domain = 2 };
    coll_spread_t s = spread(1, 4);
    s.n_linked = 2;
    coll_nccl_comm_t comm;
    coll_nccl_comm_init(&comm, &n, &s);
    CU_ASSERT_EQUAL(comm.channels.coll, 2);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(2 + 16 + 24));
    s = spread(1, 2);
    coll_nccl_comm_init(&comm, &n, &s);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(2 + 128 + 192));
    s.n_linked = 1; /* of two pairs: through host memory */
    coll_nccl_comm_init(&comm, &n, &s);
    CU_ASSERT_EQUAL(comm.bytes.bytes, MIB(2 + 4));
    CU_ASSERT_EQUAL(exchange(&comm, 0, 0), 0);
}

static void spread_counts_nodes_and_neighbours(void)
{
    static const char *const orders[] = { "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp" };
    static const uint32_t worlds[] = { 96, 128, 48 }, hosts[] = { 8, 4, 6, 5 },
                          domains[] = { 1, 2, 8, 16 };
    for (unsigned i = 0; i < 2 * 3 * 4 * 4; i++) {
        topo_grid_t grid;
        coll_machine_t machine = { hosts[i / 6 % 4], domains[i / 24] };
        CU_ASSERT_EQUAL_FATAL(
            topo_grid_init(&grid, worlds[i / 2 % 3], 2, 2, 2, 2, 2, orders[i % 2], NULL), BASE_OK);
        for (uint32_t rank = 0; rank < grid.world_size; rank += 7) {
            for (int g = 0; g < TOPO_N_GROUPS; g++) {
                uint32_t ranks[128];
                topo_group_shape_t shape;
                uint32_t n = topo_group_ranks(&grid, (topo_group_t)g, rank, ranks);
                if (!topo_group_shape(&grid, (topo_group_t)g, rank, &shape))
                    continue;
                coll_spread_t a = coll_spread_of_shape(&machine, &shape, rank);
                coll_spread_t b = coll_spread_of_list(&machine, ranks, n, rank);
                uint32_t linked = 0, local = 0;
                for (uint32_t k = 0; k < n; k++) {
                    linked += coll_is_linked(&machine, rank, ranks[k]);
                    local += coll_same_node(&machine, rank, ranks[k]);
                }
                CU_ASSERT_EQUAL(a.n_ranks, n);
                CU_ASSERT_EQUAL(a.n_nodes, b.n_nodes);
                CU_ASSERT_EQUAL(a.n_local, local);
                CU_ASSERT_EQUAL(a.n_linked, linked);
                CU_ASSERT_EQUAL(b.n_linked, linked);
            }
        }
    }
}

static CU_TestInfo tests[] = {
    { "every measured step is within its bounds", every_measured_step_is_within_its_bounds },
    { "every layout has its closed form", every_layout_has_its_closed_form },
    { "worked examples", worked_examples },
    { "channel limits scale everything", channel_limits_scale_everything },
    { "variables move what they should", variables_move_what_they_should },
    { "without cuMem all is connected at once", without_cumem_all_is_connected_at_once },
    { "trees have all their edges", trees_have_all_their_edges },
    { "places are counted", places_are_counted },
    { "public reports with numbers", public_reports_with_numbers },
    { "public reports", public_reports },
    { "versions and algorithms are read", versions_and_algorithms_are_read },
    { "bridged pairs share a host", bridged_pairs_share_a_host },
    { "spread counts nodes and neighbours", spread_counts_nodes_and_neighbours },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "nccl_memory", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
