/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/software.h"
#include "sim/model/workspace.h"

#include "tests/cutap.h"

static bool has(uint64_t date, sim_software_t feature)
{
    sim_scenario_t s = { .software_date = date };
    return sim_software_has(&s, feature);
}

static void features_begin_on_their_day(void)
{
    static const struct {
        sim_software_t feature;
        uint64_t first_day, day_before;
    } cases[] = {
        { SIM_SOFTWARE_TE_DUMMY_WGRAD, 20250530, 20250529 },
        { SIM_SOFTWARE_OUTPUT_DUMMY_WGRAD, 20250801, 20250731 },
        { SIM_SOFTWARE_SAVED_BATCHES_ON_GPU, 20260522, 20260521 },
        { SIM_SOFTWARE_BLACKWELL_WORKSPACE, 20260501, 20260430 },
        { SIM_SOFTWARE_CROSS_ENTROPY_IN_PLACE, 20240613, 20240612 },
        { SIM_SOFTWARE_NORM_COPIES_VIEWS, 20241105, 20241104 },
        { SIM_SOFTWARE_LAYER_WISE_LAYOUT, 20260520, 20260519 },
        { SIM_SOFTWARE_LAYER_WISE_BY_COST, 20260812, 20260811 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CU_ASSERT_TRUE(has(cases[i].first_day, cases[i].feature));
        CU_ASSERT_FALSE(has(cases[i].day_before, cases[i].feature));
        CU_ASSERT_FALSE(has(20230101, cases[i].feature));
    }
}

static void features_can_end(void)
{
    CU_ASSERT_TRUE(has(20260708, SIM_SOFTWARE_SAVED_BATCHES_ON_GPU));
    CU_ASSERT_FALSE(has(20260709, SIM_SOFTWARE_SAVED_BATCHES_ON_GPU));
    CU_ASSERT_FALSE(has(20991231, SIM_SOFTWARE_SAVED_BATCHES_ON_GPU));
}

static void no_day_is_the_newest_software(void)
{
    CU_ASSERT_TRUE(has(0, SIM_SOFTWARE_TE_DUMMY_WGRAD));
    CU_ASSERT_TRUE(has(0, SIM_SOFTWARE_BLACKWELL_WORKSPACE));
    CU_ASSERT_FALSE(has(0, SIM_SOFTWARE_SAVED_BATCHES_ON_GPU));
}

static uint64_t workspace(uint32_t sm, const char *config, uint64_t date)
{
    topo_gpu_t gpu = { .sm = sm };
    sim_scenario_t s = { .gpu_p = &gpu,
                         .cublas_workspace_config = (char *)config,
                         .software_date = date };
    return sim_torch_workspace_bytes(&s);
}

static void workspaces_follow_the_gpu(void)
{
    const uint64_t small = (2 * 4096 + 8 * 16) << 10, large = 32 << 20;
    CU_ASSERT_EQUAL(sim_te_workspace_bytes(80), 4 << 20);
    CU_ASSERT_EQUAL(sim_te_workspace_bytes(90), (32 << 20) + 1024);
    CU_ASSERT_EQUAL(sim_te_workspace_bytes(100), (32 << 20) + 1024);
    CU_ASSERT_EQUAL(workspace(80, NULL, 0), small);
    CU_ASSERT_EQUAL(workspace(90, NULL, 0), large);
    CU_ASSERT_EQUAL(workspace(100, NULL, 0), large);
    CU_ASSERT_EQUAL(workspace(100, NULL, 20260401), small);
    CU_ASSERT_EQUAL(workspace(90, NULL, 20240101), large);
    CU_ASSERT_EQUAL(workspace(120, NULL, 0), small);
}

static void workspaces_follow_their_setting(void)
{
    CU_ASSERT_EQUAL(workspace(80, ":4096:8", 0), 32 << 20);
    CU_ASSERT_EQUAL(workspace(90, ":16:8", 0), 128 << 10);
    CU_ASSERT_EQUAL(workspace(90, ":4096:2:16:8", 0), (2 * 4096 + 8 * 16) << 10);
    CU_ASSERT_EQUAL(workspace(90, ":0:0", 0), 0);
}

static void a_setting_that_cannot_be_read_is_ignored(void)
{
    static const char *const texts[] = { "",     ":",        ":4096",    "4096:8", ":4096:8:",
                                         ":a:b", ":4096:8x", ":4096:-1", ": 4:8",  "::" };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        CU_ASSERT_EQUAL(workspace(90, texts[i], 0), 32 << 20);
    CU_ASSERT_EQUAL(workspace(90, ":4294967295:4294967295", 0), 32 << 20);
    CU_ASSERT_EQUAL(workspace(90, ":99999999999999999999:1", 0), 32 << 20);
}

static CU_TestInfo tests[] = {
    { "features begin on their day", features_begin_on_their_day },
    { "features can end", features_can_end },
    { "no day is the newest software", no_day_is_the_newest_software },
    { "workspaces follow the GPU", workspaces_follow_the_gpu },
    { "workspaces follow their setting", workspaces_follow_their_setting },
    { "a setting that cannot be read is ignored", a_setting_that_cannot_be_read_is_ignored },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "software", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
