/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/memory/alloc_conf.h"
#include "tests/cutap.h"

#include <stdlib.h>

static void errors_are_pytorchs(void)
{
    static const struct {
        const char *text, *error; /* NULL = accepted */
    } cases[] = {
        { "", NULL },
        { "max_split_size_mb:20", NULL },
        { " max_split_size_mb : 1 2 8 ", NULL },
        { "max_split_size_mb:128MB", NULL }, /* std::stoull drops what follows the digits */
        { "max_split_size_mb:19",
          "CachingAllocator option max_split_size_mb too small, must be >= 20" },
        { "max_split_size_mb:31,large_segment_size_mb:32",
          "CachingAllocator option max_split_size_mb too small, must be >= 32" },
        { "max_non_split_rounding_mb:1",
          "CachingAllocator option max_non_split_rounding_mb too small, must be >= 20" },
        { "max_split_size_mb", "Index out of bounds in ConfigTokenizer" },
        { "max_split_size_mb:", "Index out of bounds in ConfigTokenizer" },
        { "max_split_size_mb:abc", "stoull: 'abc' is not a whole number" },
        { "max_split_size_mb:99999999999999999999",
          "stoull: '99999999999999999999' is out of range" },
        { "large_segment_size_mb:10",
          "CachingAllocator option large_segment_size_mb must be > 10 MB" },
        { "large_segment_size_mb:11", NULL },
        { "garbage_collection_threshold:0.8", NULL },
        { "garbage_collection_threshold:1.0",
          "garbage_collect_threshold is invalid, set it in (0.0, 1.0)" },
        { "garbage_collection_threshold:0",
          "garbage_collect_threshold is invalid, set it in (0.0, 1.0)" },
        { "garbage_collection_threshold:nan",
          "garbage_collect_threshold is invalid, set it in (0.0, 1.0)" },
        { "garbage_collection_threshold:x", "stod: 'x' is not a number" },
        { "expandable_segments:True", NULL },
        { "expandable_segments:true",
          "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got 'true'" },
        { "roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2 " },
        { "roundup_power2_divisions:[256:1,512:2,>:8]", NULL },
        { "roundup_power2_divisions:[256:3]",
          "For roundups, the divisions has to be power of 2 or 0 to disable roundup " },
        { "roundup_power2_divisions:[100:4]",
          "For roundups, the intervals have to be power of 2 " },
        { "roundup_power2_divisions:[64:8",
          "Expected closing bracket ']' in ConfigTokenizer but reached end of config" },
        { "roundup_power2_divisions:[64", "Index out of bounds in ConfigTokenizer" },
        { "backend:native", NULL },
        { "backend:none", "Unknown allocator backend, options are native and cudaMallocAsync" },
        { "backend:cudaMallocAsync",
          "backend:cudaMallocAsync is not simulated; the native backend is" },
        { "pinned_num_register_threads:3",
          "Number of register threads has to be power of 2, got 3" },
        { "pinned_num_register_threads:256",
          "Number of register threads should be less than or equal to 128, got 256" },
        { "pinned_reserve_segment_size_mb:0",
          "Pinned reserve segment size has to be greater than 0" },
        { "pinned_use_background_threads:True,pinned_use_cuda_host_register:False,"
          "pinned_free_catch_all:True,release_lock_on_cudamalloc:True,"
          "graph_capture_record_stream_reuse:True,throw_on_cudamalloc_oom:True",
          NULL },
        { "per_process_memory_fraction:1.5",
          "per_process_memory_fraction is invalid, set it in [0.0, 1.0]" },
        { "per_process_memory_fraction:0", NULL },
        { "expandable_segments_reserve:0.5", NULL },
        { "expandable_segments_reserve:rubbish", NULL }, /* a warning */
        { "expandable_segments_reserve_by_class:[a:0.5,b:40G],expandable_segments:True", NULL },
        { "expandable_segments_reserve_by_class:[a:0.5",
          "Expected closing bracket ']' in ConfigTokenizer but reached end of config" },
        { "expandable_segment:True",
          "Unrecognized key 'expandable_segment' in CUDA allocator config." },
        { "a:[", "Expected closing bracket ']' in ConfigTokenizer but reached end of config" },
        { ",", "Index out of bounds in ConfigTokenizer" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_alloc_conf_t conf;
        base_err_t err = { 0 };
        sim_alloc_conf_init(&conf);
        base_status_t status = sim_alloc_conf_parse(&conf, cases[i].text, &err);
        CU_ASSERT_EQUAL(status == BASE_OK, cases[i].error == NULL);
        CU_ASSERT_STRING_EQUAL(err.text, cases[i].error != NULL ? cases[i].error : "");
    }
}

static void values_arrive(void)
{
    sim_alloc_conf_t c;
    sim_alloc_conf_init(&c);
    CU_ASSERT_EQUAL(c.max_split_bytes, UINT64_MAX);
    CU_ASSERT_EQUAL(c.large_segment_bytes, 20 * BASE_MIB);
    CU_ASSERT_EQUAL_FATAL(
        sim_alloc_conf_parse(&c,
                             "max_split_size_mb:64,large_segment_size_mb:32,"
                             "garbage_collection_threshold:0.5,expandable_segments:True,"
                             "roundup_power2_divisions:[4:2,16:0,>:8],"
                             "per_process_memory_fraction:0.25,throw_on_cudamalloc_oom:True",
                             NULL),
        BASE_OK);
    CU_ASSERT_EQUAL(c.max_split_bytes, 64 * BASE_MIB);
    CU_ASSERT_EQUAL(c.large_segment_bytes, 32 * BASE_MIB);
    CU_ASSERT_EQUAL(c.max_non_split_rounding_bytes, 32 * BASE_MIB);
    CU_ASSERT_EQUAL(c.gc_threshold, 0.5);
    CU_ASSERT_EQUAL(c.per_process_memory_fraction, 0.25);
    CU_ASSERT_TRUE(c.expandable_segments && c.throw_on_cudamalloc_oom && c.has_divisions);
    static const uint64_t want[SIM_ALLOC_CONF_SLOTS] = { 2, 2, 2, 0, 0, 8, 8, 8,
                                                         8, 8, 8, 8, 8, 8, 8, 8 };
    for (int i = 0; i < SIM_ALLOC_CONF_SLOTS; i++)
        CU_ASSERT_EQUAL(c.divisions[i], want[i]);
}

static void a_second_parse_resets_what_pytorch_resets(void)
{
    sim_alloc_conf_t c;
    sim_alloc_conf_init(&c);
    sim_alloc_conf_parse(&c,
                         "max_split_size_mb:64,max_non_split_rounding_mb:40,"
                         "garbage_collection_threshold:0.5,roundup_power2_divisions:4,"
                         "large_segment_size_mb:32,expandable_segments:True,"
                         "throw_on_cudamalloc_oom:True",
                         NULL);
    CU_ASSERT_EQUAL_FATAL(sim_alloc_conf_parse(&c, "", NULL), BASE_OK);
    CU_ASSERT_EQUAL(c.max_split_bytes, UINT64_MAX);
    CU_ASSERT_EQUAL(c.max_non_split_rounding_bytes, 32 * BASE_MIB);
    CU_ASSERT_EQUAL(c.gc_threshold, 0.0);
    CU_ASSERT_FALSE(c.has_divisions);
    CU_ASSERT_EQUAL(c.large_segment_bytes, 32 * BASE_MIB);
    CU_ASSERT_TRUE(c.expandable_segments && c.throw_on_cudamalloc_oom);
}

static void keys_before_a_bad_one_have_taken_effect(void)
{
    sim_alloc_conf_t c;
    sim_alloc_conf_init(&c);
    CU_ASSERT_EQUAL(sim_alloc_conf_parse(&c, "expandable_segments:True,max_split_size_mb:5", NULL),
                    BASE_ERR_INVAL);
    CU_ASSERT_TRUE(c.expandable_segments);
    /* An unknown key is noticed in the second pass, after every common key. */
    sim_alloc_conf_init(&c);
    CU_ASSERT_EQUAL(sim_alloc_conf_parse(&c, "unknown:1,expandable_segments:True", NULL),
                    BASE_ERR_INVAL);
    CU_ASSERT_TRUE(c.expandable_segments);
}

static void reserved_address_space_follows_its_setting(void)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* on a device of 64 GiB */
    } cases[] = {
        { "", 72 * BASE_GIB },
        { "expandable_segments_reserve:0.5", 32 * BASE_GIB },
        { "expandable_segments_reserve:40G", 40 * BASE_GIB },
        { "expandable_segments_reserve:1e20G", 72 * BASE_GIB },
        { "expandable_segments_reserve:0", 72 * BASE_GIB },
        { "expandable_segments_reserve:-1", 72 * BASE_GIB },
        { "expandable_segments_reserve:G", 72 * BASE_GIB },
        { "expandable_segments_reserve:inf", 72 * BASE_GIB },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_alloc_conf_t c;
        sim_alloc_conf_init(&c);
        CU_ASSERT_EQUAL_FATAL(sim_alloc_conf_parse(&c, cases[i].text, NULL), BASE_OK);
        CU_ASSERT_EQUAL(sim_alloc_conf_reserve_bytes(&c, 64 * BASE_GIB), cases[i].bytes);
        CU_ASSERT_EQUAL(c.warning[0] != '\0', i >= 4);
    }
}

static void the_first_variable_that_is_set_counts(void)
{
    const char *name = NULL;
    unsetenv("PYTORCH_CUDA_ALLOC_CONF");
    unsetenv("PYTORCH_HIP_ALLOC_CONF");
    unsetenv("PYTORCH_ALLOC_CONF");
    CU_ASSERT_PTR_NULL(sim_alloc_conf_from_env(&name));
    setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True", 1);
    CU_ASSERT_STRING_EQUAL(sim_alloc_conf_from_env(&name), "expandable_segments:True");
    CU_ASSERT_STRING_EQUAL(name, "PYTORCH_ALLOC_CONF");
    setenv("PYTORCH_CUDA_ALLOC_CONF", "", 1);
    CU_ASSERT_STRING_EQUAL(sim_alloc_conf_from_env(&name), "");
    CU_ASSERT_STRING_EQUAL(name, "PYTORCH_CUDA_ALLOC_CONF");
}

static CU_TestInfo tests[] = {
    { "errors are PyTorch's", errors_are_pytorchs },
    { "values arrive", values_arrive },
    { "a second parse resets what PyTorch resets", a_second_parse_resets_what_pytorch_resets },
    { "keys before a bad one have taken effect", keys_before_a_bad_one_have_taken_effect },
    { "reserved address space follows its setting", reserved_address_space_follows_its_setting },
    { "the first variable that is set counts", the_first_variable_that_is_set_counts },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "alloc_conf", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
