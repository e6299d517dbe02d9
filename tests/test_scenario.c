/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/keys.h"
#include "sim/scenario/presets.h"
#include "sim/scenario/scenario.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tiny[] = "[model]\n"
                           "num_layers = 4\n"
                           "hidden_size = 512\n"
                           "num_attention_heads = 8\n"
                           "vocab_size = 1000\n"
                           "[parallel]\n"
                           "world_size = 8\n"
                           "[train]\n"
                           "seq_length = 1024\n";

/* One scenario and the messages about it. */
static sim_scenario_t s;
static base_diag_t diag;

static void start(void)
{
    sim_scenario_init(&s);
    base_diag_init(&diag);
}

static void finish(void)
{
    sim_scenario_fini(&s);
    base_diag_fini(&diag);
}

static bool read_text(const char *text)
{
    return sim_scenario_read(&s, "t.ini", text, strlen(text), &diag);
}

/* tiny, then more lines (their first is line 10). */
static bool read_tiny(const char *more)
{
    char text[4096];
    snprintf(text, sizeof(text), "%s%s", tiny, more);
    return read_text(text);
}

static bool says(const char *text)
{
    for (size_t i = 0; i < diag.n; i++) {
        if (strcmp(diag.text[i], text) == 0)
            return true;
    }
    for (size_t i = 0; i < diag.n; i++)
        printf("# said: %s\n", diag.text[i]);
    printf("# want: %s\n", text);
    return false;
}

static void a_small_scenario_resolves(void)
{
    start();
    CU_ASSERT_TRUE(read_tiny(""));
    CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_EQUAL(diag.n, 0);
    CU_ASSERT_EQUAL(s.ffn_hidden_size, 2048);
    CU_ASSERT_EQUAL(s.num_query_groups, 8);
    CU_ASSERT_EQUAL(s.kv_channels, 64);
    CU_ASSERT_EQUAL(s.padded_vocab_size, 1024);
    CU_ASSERT_EQUAL(s.global_batch_size, 8);
    CU_ASSERT_EQUAL(s.n_microbatches, 1);
    CU_ASSERT_EQUAL(s.grid.dp, 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s.gpu_p);
    CU_ASSERT_EQUAL(s.memory_bytes, s.gpu_p->total_bytes);
    finish();
}

static void all_errors_are_shown_with_line_and_key(void)
{
    start();
    CU_ASSERT_FALSE(read_tiny("tensor_modle_parallel_size = 2\n"
                              "[parallel]\n"
                              "tensor_model_parallel_size = 7\n"
                              "pipeline_model_parallel_size = x\n"));
    CU_ASSERT_FALSE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_TRUE(says("t.ini:10: train.tensor_modle_parallel_size: unknown key; did you mean "
                        "tensor_model_parallel_size?"));
    CU_ASSERT_TRUE(says("t.ini:12: parallel.tensor_model_parallel_size: 7 does not divide "
                        "num_attention_heads 8"));
    CU_ASSERT_TRUE(
        says("t.ini:13: parallel.pipeline_model_parallel_size: 'x' is not valid: must be "
             "1 to 1048576 GPUs"));
    finish();
}

static void every_preset_resolves_and_reads_back(void)
{
    size_t n;
    const sim_preset_t *presets = sim_presets(&n);
    for (size_t i = 0; i < n; i++) {
        char text[512];
        start();
        snprintf(text, sizeof(text),
                 "[model]\npreset = %s\n[parallel]\nworld_size = 8\n[train]\nseq_length = 2048\n",
                 presets[i].name);
        CU_ASSERT_TRUE(read_text(text) && sim_scenario_resolve(&s, &diag));
        char *once = sim_scenario_text(&s);
        finish();
        start();
        CU_ASSERT_TRUE(read_text(once) && sim_scenario_resolve(&s, &diag));
        char *twice = sim_scenario_text(&s);
        CU_ASSERT_STRING_EQUAL(once, twice);
        free(once);
        free(twice);
        finish();
    }
}

static CU_TestInfo tests[] = {
    { "a small scenario resolves", a_small_scenario_resolves },
    { "all errors are shown with line and key", all_errors_are_shown_with_line_and_key },
    { "every preset resolves and reads back", every_preset_resolves_and_reads_back },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "scenario", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
