/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/simulate.h"
#include "tests/cutap.h"
#include "tests/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Eight layers as wide as they are easy to add up: h = 1024, 8 heads of 128, 4 groups, FFN 4096. */
enum { LAYERS = 8, H = 1024, QKV = 2048, FFN = 4096, TOKENS = 4096, TP = 2, RANK = 16, E = 2 };

static const char base[] =
    "model.num_layers=8 model.hidden_size=1024 model.num_attention_heads=8 "
    "model.num_query_groups=4 model.ffn_hidden_size=4096 model.vocab_size=131072 "
    "model.activation_func=swiglu model.normalization=RMSNorm model.add_bias_linear=false "
    "model.position_embedding_type=rope model.untie_embeddings_and_output_weights=true "
    "model.attention_dropout=0 model.hidden_dropout=0 parallel.world_size=4 "
    "parallel.tensor_model_parallel_size=2 parallel.sequence_parallel=true "
    "train.micro_batch_size=1 train.seq_length=4096 train.global_batch_size=2 "
    "optimizer.use_distributed_optimizer=true allocator.conf=expandable_segments:True ";

/* Rank 0 with these settings added; the caller frees. */
static sim_rank_result_t play(const char *settings)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    settings_accepted(&s, base, settings);
    CU_ASSERT_EQUAL_FATAL(
        sim_simulate_rank(&s, 0, &(sim_simulate_options_t){ .unlimited = true }, &r, &err),
        BASE_OK);
    sim_scenario_fini(&s);
    return r;
}

static uint64_t peak(const char *settings)
{
    sim_rank_result_t r = play(settings);
    uint64_t bytes = r.max_allocated_bytes;
    sim_rank_result_fini(&r);
    return bytes;
}

static uint64_t category(const char *settings, sim_category_t which)
{
    sim_rank_result_t r = play(settings);
    uint64_t bytes = sim_holders_category(&r.at_peak, which);
    sim_rank_result_fini(&r);
    return bytes;
}

static uint64_t n_parameters(const char *settings)
{
    sim_rank_result_t r = play(settings);
    uint64_t n = r.n_parameters;
    sim_rank_result_fini(&r);
    return n;
}

static void expect_equal(uint64_t got, uint64_t expected, const char *what)
{
    if (got != expected)
        printf("# %s: %" PRIu64 " instead of %" PRIu64 "\n", what, got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

#define LORA "peft.scheme=lora peft.dim=16 "

/* Elements of both matrices of every adapter of a layer on one rank. */
static uint64_t adapter_elements(void)
{
    uint64_t qkv = RANK * H / TP + QKV * RANK / TP, proj = RANK * H / TP + H * RANK / TP;
    uint64_t fc1 = RANK * H / TP + 2 * FFN * RANK / TP, fc2 = RANK * FFN / TP + H * RANK / TP;
    return LAYERS * (qkv + proj + fc1 + fc2);
}

static void adapters_are_split_like_their_linears(void)
{
    expect_equal(n_parameters(LORA) - n_parameters(""), adapter_elements(), "adapters");
}

static void only_adapters_have_gradients_and_moments(void)
{
    /* All sizes are multiples of 128, so that the buffer has no padding; two ranks share it. */
    expect_equal(category(LORA, SIM_CAT_GRADIENTS), 4 * adapter_elements(), "gradients");
    expect_equal(category(LORA, SIM_CAT_OPTIMIZER), 12 * adapter_elements() / 2, "optimizer");
    CU_ASSERT_TRUE(category(LORA, SIM_CAT_GRADIENTS) < category("", SIM_CAT_GRADIENTS) / 20);
}

static void without_targets_nothing_is_saved_for_weights(void)
{
    /* proj alone: qkv, fc1 and fc2 save neither their norm's output nor the activation. */
    uint64_t all = category(LORA, SIM_CAT_ACTIVATIONS);
    uint64_t proj = category(LORA "peft.target_modules=linear_proj", SIM_CAT_ACTIVATIONS);
    uint64_t full = (uint64_t)TOKENS * H * E, local = full / TP, mid = (uint64_t)TOKENS * RANK * E;
    uint64_t act = (uint64_t)TOKENS * FFN / TP * E;
    /* The first layer's qkv saves no part of its own: the embedding is frozen. */
    uint64_t norms = 2 * LAYERS * (full + local) - local;
    expect_equal(all - proj, norms + LAYERS * (act + 3 * mid), "targets");
}

static void regather_keeps_a_part_and_a_buffer(void)
{
    uint64_t full = (uint64_t)TOKENS * H * E;
    uint64_t saving = peak(LORA) - peak(LORA "peft.sequence_parallel_input_regather=true");
    /* Each of 16 adapters gives up the gathered input and reads what the norm saved anyway, but in
     * the first layer's qkv, where it saves its part itself; all share one buffer. */
    expect_equal(saving, 2 * LAYERS * full - full / TP - full, "saving");
}

/* What falls back keeps the gathered input. */
static void regather_falls_back(void)
{
    static const char *const settings[] = {
        ("recompute.recompute_granularity=full recompute.recompute_method=uniform "
         "recompute.recompute_num_layers=1"),
        "peft.a2a_experimental=true",
        "parallel.sequence_parallel=false",
        "parallel.tensor_model_parallel_size=1 parallel.world_size=2",
        "peft.target_modules=linear_proj,linear_fc2",
    };
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
        char with[640], without[512];
        snprintf(without, sizeof(without), LORA "%s", settings[i]);
        snprintf(with, sizeof(with), "%s peft.sequence_parallel_input_regather=true", without);
        expect_equal(peak(with), peak(without), settings[i]);
    }
}

static void recomputed_mlp_falls_back_alone(void)
{
    static const char mlp[] = LORA "recompute.recompute_granularity=selective "
                                   "recompute.recompute_modules=mlp ";
    char with[640];
    uint64_t full = (uint64_t)TOKENS * H * E;
    snprintf(with, sizeof(with), "%s peft.sequence_parallel_input_regather=true", mlp);
    uint64_t saving = category(mlp, SIM_CAT_ACTIVATIONS) - category(with, SIM_CAT_ACTIVATIONS);
    expect_equal(saving, LAYERS * full - full / TP, "qkv alone");
}

static void dropout_saves_a_copy_and_a_mask(void)
{
    uint64_t full = (uint64_t)TOKENS * H * E;
    uint64_t plain = category(LORA "peft.target_modules=linear_qkv", SIM_CAT_ACTIVATIONS);
    uint64_t pre =
        category(LORA "peft.target_modules=linear_qkv peft.dropout=0.1", SIM_CAT_ACTIVATIONS);
    uint64_t post = category(LORA "peft.target_modules=linear_qkv peft.dropout=0.1 "
                                  "peft.dropout_position=post",
                             SIM_CAT_ACTIVATIONS);
    expect_equal(pre - plain, LAYERS * full / 2, "mask of the input; the copy replaces it");
    expect_equal(post - plain, (uint64_t)LAYERS * TOKENS * QKV / TP, "mask of the output");
}

static void dora_saves_what_its_magnitude_scales(void)
{
    uint64_t lora = category(LORA "peft.target_modules=linear_qkv", SIM_CAT_ACTIVATIONS);
    uint64_t dora = category("peft.scheme=dora peft.dim=16 peft.target_modules=linear_qkv",
                             SIM_CAT_ACTIVATIONS);
    expect_equal(dora - lora, (uint64_t)LAYERS * TOKENS * QKV / TP * E, "sums");
    expect_equal(n_parameters("peft.scheme=dora peft.dim=16 peft.target_modules=linear_qkv") -
                     n_parameters(LORA "peft.target_modules=linear_qkv"),
                 LAYERS * QKV / TP, "magnitudes");
}

#define EXPERTS                                                                                    \
    "moe.num_experts=8 moe.moe_router_topk=2 moe.moe_ffn_hidden_size=512 "                         \
    "moe.moe_token_dispatcher_type=alltoall moe.moe_grouped_gemm=true "                            \
    "parallel.expert_model_parallel_size=2 parallel.expert_tensor_parallel_size=1 "

static void experts_share_an_adapter_or_have_their_own(void)
{
    static const char fc[] = EXPERTS LORA "peft.target_modules=linear_fc1,linear_fc2 ";
    char own[1024], small[1024];
    uint64_t one = RANK * (H + 2 * 512) + RANK * (512 + H);
    uint64_t shared = n_parameters(fc) - n_parameters(EXPERTS);
    snprintf(own, sizeof(own), "%s peft.share_expert_adapters=false", fc);
    snprintf(small, sizeof(small), "%s peft.normalize_moe_lora=true", fc);
    expect_equal(shared, LAYERS * one, "shared");
    expect_equal(n_parameters(own) - n_parameters(EXPERTS), 4 * LAYERS * one, "own");
    expect_equal(n_parameters(small) - n_parameters(EXPERTS), LAYERS * one / 2, "rank / topk");
}

static void experts_never_gather_again(void)
{
    static const char fc[] = EXPERTS LORA "peft.target_modules=linear_fc1 ";
    char with[1024];
    snprintf(with, sizeof(with), "%s peft.sequence_parallel_input_regather=true", fc);
    expect_equal(peak(with), peak(fc), "experts");
}

static const struct {
    const char *settings, *message;
} refused[] = {
    { LORA "peft.dim=5", "test: peft.dim: 5 is not a multiple of tensor_model_parallel_size 2" },
    { "peft.scheme=dora peft.dropout_position=post",
      "test: peft.dropout_position: must be pre with scheme = dora" },
    { "peft.scheme=dora peft.sequence_parallel_input_regather=true",
      "test: peft.sequence_parallel_input_regather: needs scheme = lora" },
    { LORA "train.transformer_impl=local",
      "test: peft.scheme: adapters are simulated with transformer_impl = transformer_engine "
      "alone" },
    { EXPERTS LORA "peft.normalize_moe_lora=true moe.moe_router_topk=3",
      "test: peft.normalize_moe_lora: needs dim 16 to be a multiple of moe_router_topk 3" },
    { LORA "peft.target_modules=linear_kv_up_proj",
      "test: peft.target_modules: these linears need multi_latent_attention = true" },
    { LORA "model.multi_latent_attention=true model.q_lora_rank=512 model.num_query_groups=8 "
           "model.mla_down_proj_fusion=true peft.target_modules=linear_q_down_proj",
      "test: peft.target_modules: linear_q_down_proj and linear_kv_down_proj are one linear with "
      "mla_down_proj_fusion: it is not simulated with an adapter" },
};

static void wrong_combinations_are_refused(void)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        settings_refused(base, refused[i].settings, refused[i].message);
}

/* Published: Megatron-Bridge skills/nemo-mbridge-perf-memory-tuning, "LoRA + SP input re-gather",
 * GB = 1e9 bytes; of the last two the sequence length is not said. */
static void published_savings_are_met(void)
{
    static const char qwen[] =
        "model.preset=qwen3-8b model.num_layers=36 model.hidden_size=4096 "
        "model.num_attention_heads=32 model.num_query_groups=8 model.ffn_hidden_size=12288 "
        "model.kv_channels=128 model.qk_layernorm=true model.vocab_size=151936 "
        "train.seq_length=8192 train.cross_entropy_loss_fusion=true peft.scheme=lora ";
    char with[1024];
    snprintf(with, sizeof(with), "%s peft.sequence_parallel_input_regather=true", qwen);
    double saving = (double)(peak(qwen) - peak(with)) / 1e9;
    CU_ASSERT_TRUE(saving > 0.95 * 4.731 && saving < 1.05 * 4.731);
}

/* Multi-latent attention: down projections are whole on every rank, and yet their adapters are
 * split and their outputs gathered; the up projections' adapters read the gathered output of the
 * norm. */
static void latent_attention_has_adapters(void)
{
#define MLA                                                                                        \
    LORA "model.multi_latent_attention=true model.q_lora_rank=512 model.kv_lora_rank=256 "         \
         "model.qk_head_dim=128 model.qk_pos_emb_head_dim=64 model.v_head_dim=128 "                \
         "model.num_query_groups=8 model.qk_layernorm=true peft.target_modules=linear_proj"
    enum { Q = 512, KV = 256, ROPE = 64, HEADS = 8 };
    static const char all[] = MLA ",linear_q_down_proj,linear_q_up_proj,linear_kv_down_proj,"
                                  "linear_kv_up_proj";
    uint64_t down = RANK * H + Q * RANK + RANK * H + (KV + ROPE) * RANK;
    uint64_t up = RANK * Q + HEADS * (128 + ROPE) * RANK + RANK * KV + HEADS * (128 + 128) * RANK;
    expect_equal(n_parameters(all) - n_parameters(MLA), LAYERS * (down + up) / TP, "elements");
    uint64_t local = TOKENS / TP;
    uint64_t read_down = local * H + 2 * local * RANK;
    uint64_t read_up = (TOKENS + local) * (Q + KV) + 2 * TOKENS * RANK;
    expect_equal(category(all, SIM_CAT_ACTIVATIONS) - category(MLA, SIM_CAT_ACTIVATIONS),
                 LAYERS * E * (read_down + read_up), "saved");
#undef MLA
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "adapters are split like their linears", adapters_are_split_like_their_linears },
        { "only adapters have gradients and moments", only_adapters_have_gradients_and_moments },
        { "without targets nothing is saved for weights",
          without_targets_nothing_is_saved_for_weights },
        { "re-gather keeps a part and a buffer", regather_keeps_a_part_and_a_buffer },
        { "re-gather falls back", regather_falls_back },
        { "a recomputed MLP falls back alone", recomputed_mlp_falls_back_alone },
        { "dropout saves a copy and a mask", dropout_saves_a_copy_and_a_mask },
        { "DoRA saves what its magnitude scales", dora_saves_what_its_magnitude_scales },
        { "experts share an adapter or have their own",
          experts_share_an_adapter_or_have_their_own },
        { "experts never gather again", experts_never_gather_again },
        { "latent attention has adapters", latent_attention_has_adapters },
        { "wrong combinations are refused", wrong_combinations_are_refused },
        { "published savings are met", published_savings_are_met },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "peft", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
