/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/cutap.h"
#include "topology/grid.h"
#include "topology/groups.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_WORLD = 512 };

static const char *const orders[] = { "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-pp-dp-cp-ep",
                                      "dp-cp-pp-ep-tp", "pp-tp-cp-ep-dp", "cp-dp-tp-ep-pp" };

/* A legal grid made of small random sizes, at most MAX_WORLD ranks. */
static void random_grid(topo_grid_t *grid)
{
    static const uint32_t sizes[] = { 1, 1, 2, 3, 4 };
    for (;;) {
        uint32_t tp = sizes[rand() % 5], cp = sizes[rand() % 5], pp = sizes[rand() % 5];
        uint32_t ep = sizes[rand() % 5], etp = rand() % 2 ? tp : sizes[rand() % 5];
        uint32_t world = tp * cp * pp * (uint32_t)(1 + rand() % 6);
        const char *order = orders[(size_t)rand() % (sizeof(orders) / sizeof(orders[0]))];
        if (world <= MAX_WORLD &&
            topo_grid_init(grid, world, tp, cp, ep, etp, pp, order, NULL) == BASE_OK)
            return;
    }
}

static void ranks_and_coordinates_are_a_bijection_in_both_grids(void)
{
    srand(1);
    for (int round = 0; round < 300; round++) {
        topo_grid_t grid;
        random_grid(&grid);
        CU_ASSERT_EQUAL(grid.world_size, grid.tp * grid.cp * grid.dp * grid.pp);
        CU_ASSERT_EQUAL(grid.world_size, grid.etp * grid.ep * grid.edp * grid.pp);
        for (uint32_t rank = 0; rank < grid.world_size; rank++) {
            topo_coord_t c;
            CU_ASSERT_EQUAL_FATAL(topo_grid_coord(&grid, rank, &c, NULL), BASE_OK);
            CU_ASSERT_EQUAL(topo_grid_rank(&grid, c.tp, c.cp, c.dp, c.pp), rank);
            CU_ASSERT_EQUAL(topo_grid_expert_rank(&grid, c.etp, c.ep, c.edp, c.pp), rank);
        }
    }
}

static void groups_of_a_kind_partition_the_world(void)
{
    srand(2);
    for (int round = 0; round < 150; round++) {
        topo_grid_t grid;
        random_grid(&grid);
        for (int group = 0; group < TOPO_N_GROUPS; group++) {
            for (uint32_t rank = 0; rank < grid.world_size; rank++) {
                uint32_t mine[MAX_WORLD], theirs[MAX_WORLD];
                uint32_t n = topo_group_ranks(&grid, group, rank, mine);
                int found = 0;
                for (uint32_t i = 0; i < n; i++) {
                    CU_ASSERT_FATAL(mine[i] < grid.world_size);
                    found += mine[i] == rank;
                }
                bool may_be_outside =
                    group == TOPO_GROUP_EMBEDDING || group == TOPO_GROUP_POSITION_EMBEDDING;
                CU_ASSERT_EQUAL(found, n == 0 && may_be_outside ? 0 : 1);
                if (n == 0)
                    continue;
                /* A member sees the same list, so lists of two ranks are equal or disjoint. */
                uint32_t peer = mine[(uint32_t)rand() % n];
                CU_ASSERT_EQUAL(topo_group_ranks(&grid, group, peer, theirs), n);
                CU_ASSERT_EQUAL(memcmp(mine, theirs, n * sizeof(mine[0])), 0);
            }
        }
    }
}

static void check_group(const topo_grid_t *grid, topo_group_t group, uint32_t rank,
                        const uint32_t *expected, uint32_t n)
{
    uint32_t ranks[MAX_WORLD];
    CU_ASSERT_EQUAL_FATAL(topo_group_ranks(grid, group, rank, ranks), n);
    for (uint32_t i = 0; i < n; i++)
        CU_ASSERT_EQUAL(ranks[i], expected[i]);
}

#define CHECK_GROUP(grid, group, rank, ...)                                                        \
    check_group(grid, group, rank, (const uint32_t[]){ __VA_ARGS__ },                              \
                sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

/* The example in the docstring of Megatron-LM's initialize_model_parallel(): 16 GPUs, tp 2, pp 4.
 */
static void sixteen_gpus_tp2_pp4_have_the_documented_groups(void)
{
    topo_grid_t grid;
    CU_ASSERT_EQUAL_FATAL(topo_grid_init(&grid, 16, 2, 1, 1, 2, 4, "tp-cp-ep-dp-pp", NULL),
                          BASE_OK);
    CU_ASSERT_EQUAL(grid.dp, 2);
    CHECK_GROUP(&grid, TOPO_GROUP_TP, 7, 6, 7);
    CHECK_GROUP(&grid, TOPO_GROUP_DP, 5, 5, 7);
    CHECK_GROUP(&grid, TOPO_GROUP_PP, 9, 1, 5, 9, 13);
    CHECK_GROUP(&grid, TOPO_GROUP_MP, 0, 0, 1, 4, 5, 8, 9, 12, 13);
    CHECK_GROUP(&grid, TOPO_GROUP_EMBEDDING, 13, 1, 13);
    CU_ASSERT_EQUAL(topo_group_size(&grid, TOPO_GROUP_EMBEDDING, 9), 0);
    CHECK_GROUP(&grid, TOPO_GROUP_POSITION_EMBEDDING, 2, 2);
    CU_ASSERT_EQUAL(topo_group_size(&grid, TOPO_GROUP_POSITION_EMBEDDING, 14), 0);
}

/* rank = t + tp * (c + cp * (D + dp * P)); experts: et + etp * (x + ep * (ed + edp * P)). */
static void dense_and_expert_grids_lie_over_the_same_ranks(void)
{
    topo_grid_t grid;
    CU_ASSERT_EQUAL_FATAL(topo_grid_init(&grid, 32, 2, 2, 4, 1, 2, "tp-cp-ep-dp-pp", NULL),
                          BASE_OK);
    CU_ASSERT_EQUAL(grid.dp, 4);
    CU_ASSERT_EQUAL(grid.edp, 4);
    CHECK_GROUP(&grid, TOPO_GROUP_CP, 20, 20, 22);
    CHECK_GROUP(&grid, TOPO_GROUP_DP, 18, 18, 22, 26, 30);
    CHECK_GROUP(&grid, TOPO_GROUP_DP_CP, 17, 17, 19, 21, 23, 25, 27, 29, 31);
    CHECK_GROUP(&grid, TOPO_GROUP_TP_CP, 5, 4, 5, 6, 7);
    CHECK_GROUP(&grid, TOPO_GROUP_TP_DP, 0, 0, 1, 4, 5, 8, 9, 12, 13);
    CU_ASSERT_EQUAL(topo_group_size(&grid, TOPO_GROUP_TP_DP_CP, 0), 16);
    CHECK_GROUP(&grid, TOPO_GROUP_EP, 21, 20, 21, 22, 23);
    CHECK_GROUP(&grid, TOPO_GROUP_ETP, 21, 21);
    CHECK_GROUP(&grid, TOPO_GROUP_EDP, 21, 17, 21, 25, 29);
    CHECK_GROUP(&grid, TOPO_GROUP_ETP_EP_PP, 0, 0, 1, 2, 3, 16, 17, 18, 19);
}

static void the_tp_pp_dp_mapping_puts_pipeline_stages_nearer_than_replicas(void)
{
    topo_grid_t grid;
    CU_ASSERT_EQUAL_FATAL(topo_grid_init(&grid, 16, 2, 1, 1, 2, 4, "tp-cp-ep-pp-dp", NULL),
                          BASE_OK);
    CHECK_GROUP(&grid, TOPO_GROUP_PP, 1, 1, 3, 5, 7);
    CHECK_GROUP(&grid, TOPO_GROUP_DP, 1, 1, 9);
}

static void sizes_that_do_not_fit_are_refused_with_the_reason(void)
{
    static const struct {
        uint32_t world, tp, cp, ep, etp, pp;
        const char *order, *reason;
    } cases[] = {
        { 16, 3, 1, 1, 3, 1, "tp-cp-ep-dp-pp", "world_size 16 is not a multiple of tensor_model" },
        { 16, 2, 1, 3, 2, 1, "tp-cp-ep-dp-pp", "expert_model_parallel_size 3" },
        { 0, 1, 1, 1, 1, 1, "tp-cp-ep-dp-pp", "world_size must be at least 1" },
        { 8, 0, 1, 1, 1, 1, "tp-cp-ep-dp-pp", "tensor_model_parallel_size must be at least 1" },
        { 8, UINT32_MAX, UINT32_MAX, 1, 1, UINT32_MAX, "tp-cp-ep-dp-pp", "not a multiple" },
        { 8, 1, 1, 1, 1, 1, "tp-cp-ep-dp-xx", "'xx' is not an axis" },
        { 8, 1, 1, 1, 1, 1, "tp-cp-ep-dp-", "'' is not an axis" },
        { 8, 1, 1, 1, 1, 1, "", "'' is not an axis" },
        { 8, 1, 1, 1, 1, 1, "tp-cp-tp-dp-pp", "axis tp stands there twice" },
        { 8, 1, 1, 2, 1, 1, "tp-cp-dp-pp", "does not name axis ep, whose size is 2" },
        { 8, 8, 1, 1, 1, 1, "tp-cp-ep-pp", "does not name axis dp, whose size is 8" },
        { 16, 2, 1, 2, 2, 2, "tp-cp-ep-pp-dp", "expert data parallel size 2 must be equal" },
        { 16, 2, 2, 2, 2, 2, "tp-pp-cp-ep-dp", NULL },
        { 16, 2, 2, 4, 1, 2, "tp-pp-cp-ep-dp", "pipeline groups differ" },
        { 8, 2, 1, 1, 2, 2, "tp-pp-dp", NULL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        base_err_t err = { 0 };
        topo_grid_t grid = { .world_size = 77 };
        base_status_t status =
            topo_grid_init(&grid, cases[i].world, cases[i].tp, cases[i].cp, cases[i].ep,
                           cases[i].etp, cases[i].pp, cases[i].order, &err);
        CU_ASSERT_EQUAL(status, cases[i].reason != NULL ? BASE_ERR_INVAL : BASE_OK);
        if (cases[i].reason != NULL) {
            CU_ASSERT_PTR_NOT_NULL(strstr(err.text, cases[i].reason));
            CU_ASSERT_EQUAL(grid.world_size, 77);
        }
    }
}

static void a_rank_outside_is_refused_and_the_output_untouched(void)
{
    topo_grid_t grid;
    topo_coord_t c = { .tp = 99 };
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(topo_grid_init(&grid, 4, 2, 1, 1, 2, 1, "tp-cp-ep-dp-pp", NULL), BASE_OK);
    CU_ASSERT_EQUAL(topo_grid_coord(&grid, 4, &c, &err), BASE_ERR_INVAL);
    CU_ASSERT_STRING_EQUAL(err.text, "rank 4 is outside the grid of 4 ranks");
    CU_ASSERT_EQUAL(c.tp, 99);
}

static CU_TestInfo tests[] = {
    { "ranks and coordinates are a bijection in both grids",
      ranks_and_coordinates_are_a_bijection_in_both_grids },
    { "groups of a kind partition the world", groups_of_a_kind_partition_the_world },
    { "16 GPUs, tp 2, pp 4 have the documented groups",
      sixteen_gpus_tp2_pp4_have_the_documented_groups },
    { "dense and expert grids lie over the same ranks",
      dense_and_expert_grids_lie_over_the_same_ranks },
    { "the tp-pp-dp mapping puts pipeline stages nearer than replicas",
      the_tp_pp_dp_mapping_puts_pipeline_stages_nearer_than_replicas },
    { "sizes that do not fit are refused with the reason",
      sizes_that_do_not_fit_are_refused_with_the_reason },
    { "a rank outside is refused and the output untouched",
      a_rank_outside_is_refused_and_the_output_untouched },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "grid", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
