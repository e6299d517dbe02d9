/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/glob.h"
#include "sim/base/nearest.h"
#include "sim/base/units.h"
#include "tests/cutap.h"

#include <fnmatch.h>
#include <stdio.h>
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

/* The bound that spares most distances never hides a near name. */
static void every_name_within_the_limit_is_found(void)
{
    static const char *const names[] = { "abcdef", "abcdfe", "bcdef",  "Abcdef", "abcdefg",
                                         "xbcdef", "fedcba", "aaaaaa", "abc",    "a_bcdef",
                                         "",       "a",      "ba",     "abab",   "aabbccddeeff" };
    enum { N = sizeof(names) / sizeof(names[0]) };
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < N; j++) {
            base_nearest_t n;
            base_nearest_init(&n, names[i]);
            bool near = base_edit_distance(names[i], names[j]) < n.best_distance;
            base_nearest_offer(&n, names[j]);
            CU_ASSERT_EQUAL(n.best != NULL, near);
        }
    }
}

/* All patterns of up to five of these characters against all texts of up to four. */
static void patterns_match_as_those_of_file_names(void)
{
    static const char in_pattern[] = "*?a-[]!", in_text[] = "a-b";
    enum { P = sizeof(in_pattern) - 1, T = sizeof(in_text) - 1, MAX_P = 5, MAX_T = 4 };
    size_t n_patterns = 1, n_texts = 1, n_wrong = 0;
    for (int i = 0; i < MAX_P; i++)
        n_patterns = n_patterns * P + 1;
    for (int i = 0; i < MAX_T; i++)
        n_texts = n_texts * T + 1;
    for (size_t p = 0; p < n_patterns; p++) {
        char pattern[MAX_P + 1], text[MAX_T + 1];
        size_t n = 0;
        for (size_t left = p; left > 0; left = (left - 1) / P)
            pattern[n++] = in_pattern[(left - 1) % P];
        pattern[n] = '\0';
        for (size_t t = 0; t < n_texts; t++) {
            n = 0;
            for (size_t left = t; left > 0; left = (left - 1) / T)
                text[n++] = in_text[(left - 1) % T];
            text[n] = '\0';
            if (base_glob_match(pattern, text) != (fnmatch(pattern, text, 0) == 0) && n_wrong++ < 5)
                printf("# '%s' and '%s'\n", pattern, text);
        }
    }
    CU_ASSERT_EQUAL(n_wrong, 0);
    CU_ASSERT_TRUE(base_glob_match("\\*[\\]a]", "*]"));
    CU_ASSERT_FALSE(base_glob_match("\\*", "a"));
}

static CU_TestInfo tests[] = {
    { "products beyond 64 bits are refused", products_beyond_64_bits_are_refused },
    { "sizes are read exactly", sizes_are_read_exactly },
    { "sizes are printed in the nearest unit", sizes_are_printed_in_the_nearest_unit },
    { "the nearest name is found and far ones are not",
      the_nearest_name_is_found_and_far_ones_are_not },
    { "every name within the limit is found", every_name_within_the_limit_is_found },
    { "patterns match as those of file names", patterns_match_as_those_of_file_names },
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
