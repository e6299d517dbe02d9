/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/nearest.h"
#include "sim/base/units.h"
#include "tests/cutap.h"

#include <string.h>

static void products_beyond_64_bits_are_refused(void)
{
    uint64_t out = 7;
    CU_ASSERT_FALSE(base_u64_mul(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    CU_ASSERT_FALSE(base_u64_add(UINT64_MAX, 1, &out));
    CU_ASSERT_EQUAL(out, 7);
    CU_ASSERT_TRUE(base_u64_mul(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &out));
    CU_ASSERT_EQUAL(out, UINT64_MAX - UINT32_MAX);
}

static void sizes_are_read_exactly(void)
{
    static const struct {
        const char *text;
        int ok;
        uint64_t bytes;
    } cases[] = {
        { "0", 1, 0 },
        { "80GiB", 1, UINT64_C(85899345920) },
        { "80 GB", 1, UINT64_C(80000000000) },
        { "79.25 GiB", 1, UINT64_C(85094039552) },
        { "1.5kB", 1, 1500 },
        { "18446744073709551615", 1, UINT64_MAX },
        { "18446744073709551616", 0, 0 },
        { "17179869184GiB", 0, 0 },
        { "80GiBs", 0, 0 },
        { "80G", 0, 0 },
        { "-1", 0, 0 },
        { "", 0, 0 },
        { "1.", 0, 0 },
        { ".5GiB", 0, 0 },
        { "1e9", 0, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t bytes = 12345;
        CU_ASSERT_EQUAL(base_bytes_parse(cases[i].text, &bytes), cases[i].ok);
        CU_ASSERT_EQUAL(bytes, cases[i].ok ? cases[i].bytes : 12345);
    }
}

static void sizes_are_printed_in_the_nearest_unit(void)
{
    char buf[BASE_BYTES_TEXT];
    CU_ASSERT_STRING_EQUAL(base_bytes_format(0, buf), "0 B");
    CU_ASSERT_STRING_EQUAL(base_bytes_format(1023, buf), "1023 B");
    CU_ASSERT_STRING_EQUAL(base_bytes_format(BASE_MIB * 3 / 2, buf), "1.50 MiB");
    CU_ASSERT_STRING_EQUAL(base_bytes_format(UINT64_MAX, buf), "16.00 EiB");
}

static void the_nearest_name_is_found_and_far_ones_are_not(void)
{
    base_nearest_t n;
    base_nearest_init(&n, "tensor_modle_parallel_size");
    base_nearest_offer(&n, "tensor_model_parallel_size");
    base_nearest_offer(&n, "pipeline_model_parallel_size");
    CU_ASSERT_PTR_NOT_NULL_FATAL(n.best);
    CU_ASSERT_STRING_EQUAL(n.best, "tensor_model_parallel_size");
    base_nearest_init(&n, "banana");
    base_nearest_offer(&n, "hidden_size");
    CU_ASSERT_PTR_NULL(n.best);
    CU_ASSERT_EQUAL(base_edit_distance("ab", "ba"), 1);
    char longest[500] = { 0 };
    memset(longest, 'a', sizeof(longest) - 1);
    base_nearest_init(&n, longest);
    base_nearest_offer(&n, "hidden_size");
    CU_ASSERT_PTR_NULL(n.best);
}

static CU_TestInfo tests[] = {
    { "products beyond 64 bits are refused", products_beyond_64_bits_are_refused },
    { "sizes are read exactly", sizes_are_read_exactly },
    { "sizes are printed in the nearest unit", sizes_are_printed_in_the_nearest_unit },
    { "the nearest name is found and far ones are not",
      the_nearest_name_is_found_and_far_ones_are_not },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "units", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
