/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/simulate.h"
#include "tests/cutap.h"
#include "tests/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Eight layers that are easy to add up; the vocabulary is so large that the peak is in the loss. */
enum { LAYERS = 8, H = 1024, Q = 1024, KV = 512, FFN = 4096, TOKENS = 4096, E = 2 };

static const char base[] =
    "model.num_layers=8 model.hidden_size=1024 model.num_attention_heads=8 "
    "model.num_query_groups=4 model.ffn_hidden_size=4096 model.vocab_size=131072 "
    "model.activation_func=swiglu model.normalization=RMSNorm model.add_bias_linear=false "
    "model.position_embedding_type=rope model.untie_embeddings_and_output_weights=true "
    "model.attention_dropout=0 model.hidden_dropout=0 parallel.world_size=2 "
    "train.micro_batch_size=1 train.seq_length=4096 train.global_batch_size=4 "
    "optimizer.use_distributed_optimizer=true optimizer.use_precision_aware_optimizer=true "
    "allocator.conf=expandable_segments:True ";

typedef struct {
    uint64_t peak, host, optimizer;
} figures_t;

static figures_t play(const char *settings)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    settings_accepted(&s, base, settings);
    CU_ASSERT_EQUAL_FATAL(
        sim_simulate_rank(&s, 0, &(sim_simulate_options_t){ .unlimited = true }, &r, &err),
        BASE_OK);
    figures_t f = { r.max_allocated_bytes, r.host_bytes,
                    sim_holders_category(&r.at_peak, SIM_CAT_OPTIMIZER) };
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return f;
}

static void expect_equal(uint64_t got, uint64_t expected, const char *what)
{
    if (got != expected)
        printf("# %s: %" PRIu64 " instead of %" PRIu64 "\n", what, got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

/* What a layer saves in tensors of at least 256 Ki elements: both norms' inputs and outputs, q, k,
 * v, the attention's output, and what goes into activation and second linear. */
static uint64_t layer_bytes(void)
{
    return (uint64_t)TOKENS * (4 * H + 2 * Q + 2 * KV + 3 * FFN) * E;
}

static void layers_are_offloaded_one_by_one(void)
{
    uint64_t all = play("").peak;
    for (uint64_t n = 1; n < LAYERS; n++) {
        char settings[64];
        snprintf(settings, sizeof(settings), "offload.cpu_offloading_num_layers=%" PRIu64, n);
        figures_t f = play(settings);
        expect_equal(all - f.peak, n * layer_bytes(), "freed");
        expect_equal(f.host, n * layer_bytes(), "in host memory");
    }
}

static void weights_alone_are_not_offloaded(void)
{
    figures_t f = play("offload.cpu_offloading_num_layers=4 "
                       "offload.cpu_offloading_activations=false "
                       "offload.cpu_offloading_weights=true");
    expect_equal(f.peak, play("").peak, "peak");
    expect_equal(f.host, 0, "host");
}

#define FINE "offload.fine_grained_activation_offloading=true offload.offload_modules="

static void modules_are_offloaded_but_the_last_of_each(void)
{
    uint64_t all = play("").peak, n = LAYERS - 1, qkv = (uint64_t)TOKENS * (Q + 2 * KV) * E;
    uint64_t out = (uint64_t)TOKENS * Q * E, hidden = (uint64_t)TOKENS * H * E;
    figures_t core = play(FINE "core_attn");
    expect_equal(all - core.peak, n * qkv, "core_attn: its output is the projection's input");
    expect_equal(core.host, n * (qkv + out), "core_attn in host memory");
    figures_t both = play(FINE "core_attn,attn_proj");
    expect_equal(all - both.peak, n * (qkv + out), "attn_proj lets go of it");
    figures_t three = play(FINE "qkv_linear,core_attn,attn_proj");
    expect_equal(all - three.peak, n * (qkv + out + 2 * hidden), "qkv_linear: norm and its input");
}

static void small_tensors_stay(void)
{
    figures_t f = play(FINE "core_attn offload.min_offloaded_tensor_size=3000000");
    expect_equal(play("").peak - f.peak, (LAYERS - 1) * (uint64_t)TOKENS * Q * E, "q alone");
}

static void a_fraction_of_the_groups_is_offloaded(void)
{
    uint64_t qkv = (uint64_t)TOKENS * (Q + 2 * KV) * E;
    figures_t f = play(FINE "core_attn offload.activation_offload_fraction=0.5");
    expect_equal(play("").peak - f.peak, 4 * qkv, "7 groups, of which 3 stay");
    expect_equal(play(FINE "core_attn offload.activation_offload_fraction=0").peak, play("").peak,
                 "none");
}

static void stages_without_a_loss_offload_all(void)
{
    static const char pipeline[] = "parallel.pipeline_model_parallel_size=2 model.vocab_size=1024 "
                                   "train.global_batch_size=8 ";
    char settings[512];
    uint64_t qkv = (uint64_t)TOKENS * (Q + 2 * KV) * E;
    uint64_t out = (uint64_t)TOKENS * Q * E;
    snprintf(settings, sizeof(settings), "%s" FINE "core_attn,attn_proj", pipeline);
    /* Rank 0 has two micro-batches of four layers in flight. */
    expect_equal(play(settings).host, 2 * 4 * (qkv + 2 * out), "both copies of the output");
}

#define EXPERTS                                                                                    \
    "moe.num_experts=4 moe.moe_router_topk=2 moe.moe_ffn_hidden_size=1024 "                        \
    "moe.moe_token_dispatcher_type=alltoall moe.moe_grouped_gemm=true "

static void experts_are_offloaded(void)
{
    uint64_t rows = (uint64_t)TOKENS * 2, n = LAYERS - 1;
    uint64_t all = play(EXPERTS).peak;
    expect_equal(all - play(EXPERTS FINE "expert_fc1").peak, n * rows * H * E, "expert_fc1");
    expect_equal(all - play(EXPERTS FINE "moe_act").peak, n * rows * 2 * 1024 * E, "moe_act");
    expect_equal(all - play(EXPERTS FINE "mlp_norm").peak, n * TOKENS * H * E, "mlp_norm");
}

/* A gradient in fp32 stays in its buffer; the state of half the ranks' elements is here. */
static void optimizer_state_goes_to_the_host(void)
{
    figures_t none = play("optimizer.store_param_remainders=false");
    figures_t all = play("optimizer.optimizer_cpu_offload=true");
    figures_t half =
        play("optimizer.optimizer_cpu_offload=true optimizer.optimizer_offload_fraction=0.5");
    uint64_t owned = none.optimizer / 12;
    expect_equal(all.optimizer, 0, "on the GPU");
    expect_equal(all.host, 16 * owned, "parameter, gradient and two moments");
    expect_equal(half.optimizer + half.host / 16 * 12, none.optimizer, "together");
    CU_ASSERT_TRUE(half.host >= 8 * owned && half.host < 16 * owned); /* the last overshoots */
    CU_ASSERT_TRUE(all.peak < half.peak && half.peak < none.peak);
}

static const struct {
    const char *settings, *message;
} refused[] = {
    { "offload.cpu_offloading_num_layers=8",
      "test: offload.cpu_offloading_num_layers: 8 must be less than num_layers 8" },
    { "offload.cpu_offloading_num_layers=1 parallel.pipeline_model_parallel_size=2",
      "offload.cpu_offloading: needs pipeline_model_parallel_size = 1, not 2" },
    { "offload.cpu_offloading_num_layers=1 recompute.recompute_granularity=selective",
      "offload.cpu_offloading: not with recompute_granularity" },
    { "offload.cpu_offloading=true offload.cpu_offloading_num_layers=1 " FINE "core_attn",
      "test: offload.cpu_offloading: not with fine_grained_activation_offloading" },
    { "offload.fine_grained_activation_offloading=true",
      "offload.offload_modules: fine_grained_activation_offloading needs at least one module" },
    { FINE "attn_proj",
      "test: offload.offload_modules: attn_proj needs core_attn, whose output is attn_proj's "
      "input" },
    { EXPERTS FINE "moe_act recompute.recompute_granularity=selective "
                   "recompute.recompute_modules=moe",
      "test: offload.offload_modules: expert_fc1 and moe_act not with recompute_modules moe, "
      "which computes all of the layer again" },
    { FINE "core_attn train.transformer_impl=local",
      "test: offload.fine_grained_activation_offloading: needs transformer_impl = "
      "transformer_engine" },
    { FINE "nonsense", "test: offload.offload_modules: 'nonsense'" },
    { FINE "core_attn offload.activation_offload_fraction=1.5",
      "test: offload.activation_offload_fraction: " },
    { "optimizer.optimizer_cpu_offload=true optimizer.use_precision_aware_optimizer=false",
      "test: optimizer.optimizer_cpu_offload: needs use_precision_aware_optimizer = true" },
    { "optimizer.optimizer_cpu_offload=true precision.fp8=hybrid precision.fp8_recipe=tensorwise "
      "precision.fp8_param_gather=true",
      "test: optimizer.optimizer_cpu_offload: with fp8_param_gather needs fp8_recipe = delayed" },
};

static void each_rule_is_stated(void)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        settings_refused(base, refused[i].settings, refused[i].message);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "layers are offloaded one by one", layers_are_offloaded_one_by_one },
        { "weights alone are not offloaded", weights_alone_are_not_offloaded },
        { "modules are offloaded but the last of each",
          modules_are_offloaded_but_the_last_of_each },
        { "small tensors stay", small_tensors_stay },
        { "a fraction of the groups is offloaded", a_fraction_of_the_groups_is_offloaded },
        { "stages without a loss offload all", stages_without_a_loss_offload_all },
        { "experts are offloaded", experts_are_offloaded },
        { "optimizer state goes to the host", optimizer_state_goes_to_the_host },
        { "each rule is stated", each_rule_is_stated },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "offload", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
