/* SPDX-License-Identifier: Apache-2.0
 * What switches of FP8 change of the tensors that are saved. */
#include "config.h"

#include "sim/engine/simulate.h"
#include "tests/cutap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 8, Q = 1024, KV = 512, FFN = 4096, TOKENS = 4096 };

static const char base[] =
    "model.num_layers=8 model.hidden_size=1024 model.num_attention_heads=8 "
    "model.num_query_groups=4 model.ffn_hidden_size=4096 model.vocab_size=131072 "
    "model.activation_func=swiglu model.normalization=RMSNorm model.add_bias_linear=false "
    "model.position_embedding_type=rope model.untie_embeddings_and_output_weights=true "
    "model.attention_dropout=0 model.hidden_dropout=0 parallel.world_size=2 "
    "train.micro_batch_size=1 train.seq_length=4096 train.global_batch_size=4 "
    "optimizer.use_distributed_optimizer=true allocator.conf=expandable_segments:True ";

static bool make(sim_scenario_t *s, const char *settings, base_diag_t *diag)
{
    sim_scenario_init(s);
    char *text = malloc(strlen(base) + strlen(settings) + 1);
    strcpy(text, base);
    strcat(text, settings);
    char *rest = text;
    bool ok = true;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        ok = (*word == '\0' || sim_scenario_set_text(s, word, "test", diag)) && ok;
    free(text);
    return sim_scenario_resolve(s, diag) && ok;
}

static uint64_t saved(const char *settings)
{
    sim_scenario_t s;
    base_diag_t diag;
    sim_rank_result_t r = { 0 };
    base_diag_init(&diag);
    bool ok = make(&s, settings, &diag) &&
              sim_simulate_rank(&s, 0, &(sim_simulate_options_t){ .unlimited = true }, &r, NULL) ==
                  BASE_OK;
    if (!ok)
        printf("# %s: %s\n", settings, diag.n > 0 ? diag.text[0] : "?");
    CU_ASSERT_TRUE_FATAL(ok);
    uint64_t bytes = sim_holders_category(&r.at_peak, SIM_CAT_ACTIVATIONS);
    sim_rank_result_fini(&r);
    base_diag_fini(&diag);
    sim_scenario_fini(&s);
    return bytes;
}

static void expect_equal(uint64_t got, uint64_t expected, const char *what)
{
    if (got != expected)
        printf("# %s: %" PRIu64 " instead of %" PRIu64 "\n", what, got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

#define STORE "precision.activation_func_fp8_input_store=true "
#define EXPERTS                                                                                    \
    "moe.num_experts=4 moe.moe_router_topk=2 moe.moe_ffn_hidden_size=1024 "                        \
    "moe.moe_token_dispatcher_type=alltoall moe.moe_grouped_gemm=true "

static void the_input_of_swiglu_takes_a_byte(void)
{
    expect_equal(saved("") - saved(STORE), (uint64_t)LAYERS * TOKENS * 2 * FFN, "dense");
    expect_equal(saved(EXPERTS) - saved(EXPERTS STORE), (uint64_t)LAYERS * TOKENS * 2 * 2 * 1024,
                 "experts");
    expect_equal(saved(STORE "train.bias_activation_fusion=false"),
                 saved("train.bias_activation_fusion=false"), "not where it is not fused");
}

#define FP8(recipe) "precision.fp8=hybrid precision.fp8_recipe=" recipe " "
#define DPA         "precision.fp8_dot_product_attention=true "

static void attention_in_fp8_saves_half(void)
{
    uint64_t qkv = (uint64_t)LAYERS * TOKENS * (Q + 2 * KV), out = (uint64_t)LAYERS * TOKENS * Q;
    expect_equal(saved(FP8("tensorwise")) - saved(FP8("tensorwise") DPA), qkv, "tensorwise");
    /* Here the projection saves its own copy in FP8, so that none of the wide output is left. */
    expect_equal(saved(FP8("delayed")) - saved(FP8("delayed") DPA), qkv + out, "delayed");
    expect_equal(saved(FP8("blockwise")), saved(FP8("blockwise") DPA), "blockwise has no kernel");
    expect_equal(saved(FP8("mxfp8") DPA) - saved(FP8("mxfp8")), 2 * qkv / 32,
                 "MXFP8 has rows, columns and scales");
}

static void wrong_combinations_are_refused(void)
{
    static const char *const cases[][2] = {
        { DPA, "test: precision.fp8_dot_product_attention: needs fp8" },
        { STORE "model.activation_func=gelu",
          "test: precision.activation_func_fp8_input_store: needs activation_func = swiglu" },
        { "precision.reuse_grad_buf_for_mxfp8_param_ag=true",
          "test: precision.reuse_grad_buf_for_mxfp8_param_ag: needs fp8_recipe = mxfp8 and "
          "fp8_param_gather = true" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_scenario_t s;
        base_diag_t diag;
        base_diag_init(&diag);
        CU_ASSERT_FALSE(make(&s, cases[i][0], &diag));
        CU_ASSERT_TRUE_FATAL(diag.n > 0);
        CU_ASSERT_STRING_EQUAL(diag.text[diag.n - 1], cases[i][1]);
        base_diag_fini(&diag);
        sim_scenario_fini(&s);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "the input of swiglu takes a byte", the_input_of_swiglu_takes_a_byte },
        { "attention in FP8 saves half", attention_in_fp8_saves_half },
        { "wrong combinations are refused", wrong_combinations_are_refused },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "fp8_saves", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
