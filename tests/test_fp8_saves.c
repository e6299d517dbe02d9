/* SPDX-License-Identifier: Apache-2.0
 * What switches of FP8 change of the tensors that are saved. */
#include "config.h"

#include "sim/engine/simulate.h"
#include "tests/cutap.h"
#include "tests/settings.h"

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

static uint64_t at_peak(const char *settings, sim_category_t category)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    settings_accepted(&s, base, settings);
    CU_ASSERT_EQUAL_FATAL(
        sim_simulate_rank(&s, 0, &(sim_simulate_options_t){ .unlimited = true }, &r, &err),
        BASE_OK);
    uint64_t bytes = sim_holders_category(&r.at_peak, category);
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return bytes;
}

static uint64_t saved(const char *settings)
{
    return at_peak(settings, SIM_CAT_ACTIVATIONS);
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

#define B200 "device.gpu=b200 "
#define FP4  B200 "precision.fp4=e2m1 "
#define TP2  "parallel.tensor_model_parallel_size=2 parallel.sequence_parallel=true "

static void fp4_takes_nine_sixteenths_of_a_byte(void)
{
    const uint64_t h = 1024, rows = (uint64_t)LAYERS * TOKENS;
    expect_equal(saved(B200 FP8("mxfp8")) - saved(FP4), rows * (2 * h + FFN) * 15 / 32,
                 "inputs of qkv, fc1 and fc2");
    /* Rows and columns of the norms' outputs, which are gathered. */
    expect_equal(saved(B200 TP2 FP8("mxfp8")) - saved(FP4 TP2),
                 rows * (FFN / 2) * 15 / 32 - rows * h * 3 / 32, "with sequence parallel");
    expect_equal(saved(FP4 TP2 "precision.first_last_layers_bf16=true "
                               "precision.num_layers_at_start_in_bf16=4 "
                               "precision.num_layers_at_end_in_bf16=4"),
                 saved(B200 TP2), "not in layers in bf16");
}

static void fp4_parameters_take_half_a_byte(void)
{
    const uint64_t h = 1024, n = LAYERS * h * ((Q + 2 * KV) + Q + 3 * FFN);
    expect_equal(at_peak(FP4, SIM_CAT_PARAMETERS) -
                     at_peak(FP4 "precision.fp4_param_gather=true", SIM_CAT_PARAMETERS),
                 n * 3 / 2, "parameters");
}

static void wrong_combinations_are_refused(void)
{
    static const char *const cases[][2] = {
        { DPA, "test: precision.fp8_dot_product_attention: needs fp8" },
        { STORE "model.activation_func=gelu",
          "test: precision.activation_func_fp8_input_store: needs activation_func = swiglu" },
        { FP4 FP8("mxfp8"), "test: precision.fp4: not together with fp8" },
        { "precision.fp4=e2m1",
          "test: precision.fp4: needs a Blackwell GPU, which h100-80gb-sxm is not" },
        { FP4 TP2 "parallel.tp_comm_overlap=true",
          "test: precision.fp4: with tp_comm_overlap it is not simulated" },
        { "precision.fp4_param_gather=true", "test: precision.fp4_param_gather: needs fp4" },
        { "precision.reuse_grad_buf_for_mxfp8_param_ag=true",
          "test: precision.reuse_grad_buf_for_mxfp8_param_ag: needs fp8_recipe = mxfp8 and "
          "fp8_param_gather = true" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        settings_refused(base, cases[i][0], cases[i][1]);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "the input of swiglu takes a byte", the_input_of_swiglu_takes_a_byte },
        { "attention in FP8 saves half", attention_in_fp8_saves_half },
        { "FP4 takes nine sixteenths of a byte", fp4_takes_nine_sixteenths_of_a_byte },
        { "FP4 parameters take half a byte", fp4_parameters_take_half_a_byte },
        { "wrong combinations are refused", wrong_combinations_are_refused },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "fp8_saves", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
