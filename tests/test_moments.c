/* SPDX-License-Identifier: Apache-2.0
 * Loading, evaluation and saving beside the training steps; micro-batches of other lengths. */
#include "config.h"

#include "sim/engine/lengths.h"
#include "sim/engine/simulate.h"
#include "tests/cutap.h"
#include "tests/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All sizes are multiples of 512 bytes, so that what is allocated is what is asked for. */
static const char base[] =
    "num_layers=2 hidden_size=512 num_attention_heads=8 ffn_hidden_size=2048 vocab_size=1024 "
    "seq_length=1024 position_embedding_type=rope normalization=RMSNorm add_bias_linear=false "
    "hidden_dropout=0 attention_dropout=0 untie_embeddings_and_output_weights=true world_size=4 "
    "global_batch_size=8 use_distributed_optimizer=true conf=expandable_segments:True ";

enum {
    H = 512,
    FFN = 2048,
    VOCAB = 1024,
    RANKS = 4,
    LAYER = 4 * H * H + 2 * FFN * H + 2 * H,
    ALL = 2 * LAYER + 2 * VOCAB * H + H
};

static sim_rank_result_t play(const char *settings)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    settings_accepted(&s, base, settings);
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, 0, NULL, &r, &err), BASE_OK);
    CU_ASSERT_FALSE(r.is_out_of_memory);
    sim_scenario_fini(&s);
    return r;
}

static void equal(uint64_t got, uint64_t expected)
{
    if (got != expected)
        printf("# %" PRIu64 ", expected %" PRIu64 "\n", got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

/* What was loaded is there in the first iteration; without, its step makes it. */
static void loading_makes_the_moments(void)
{
    sim_rank_result_t without = play(""), with = play("moments=checkpoint_load");
    CU_ASSERT_EQUAL(without.n_extras, 0);
    CU_ASSERT_EQUAL_FATAL(with.n_extras, 1);
    CU_ASSERT_EQUAL(with.extras[0].which, SIM_PHASE_CHECKPOINT_LOAD);
    uint64_t main_param = 4 * ALL / RANKS, buffers = (2 + 4) * (uint64_t)ALL;
    equal(with.extras[0].max_allocated_bytes, buffers + 3 * main_param);
    equal(with.iterations[0].max_allocated_bytes, without.iterations[1].max_allocated_bytes);
    CU_ASSERT_TRUE(without.iterations[0].max_allocated_bytes <
                   without.iterations[1].max_allocated_bytes);
    sim_rank_result_fini(&without);
    sim_rank_result_fini(&with);
}

static uint64_t evaluated(const char *settings)
{
    char text[512];
    snprintf(text, sizeof(text), "moments=evaluation %s", settings);
    sim_rank_result_t r = play(text);
    CU_ASSERT_EQUAL_FATAL(r.n_extras, 1);
    CU_ASSERT_EQUAL(r.extras[0].which, SIM_PHASE_EVALUATION);
    /* It leaves nothing, and stays below a training step. */
    equal(r.iterations[2].allocated_bytes, r.iterations[1].allocated_bytes);
    CU_ASSERT_TRUE(r.extras[0].max_allocated_bytes < r.max_allocated_bytes);
    uint64_t bytes = r.extras[0].max_allocated_bytes - r.iterations[1].allocated_bytes;
    sim_rank_result_fini(&r);
    return bytes;
}

static void evaluation_saves_nothing(void)
{
    static const char *const more[] = {
        "",
        "tp=2 sequence_parallel=true",
        "pp=2",
        "num_experts=4 ep=2 moe_grouped_gemm=true",
        "recompute_granularity=full recompute_method=uniform recompute_num_layers=1",
    };
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        char twice[512];
        snprintf(twice, sizeof(twice), "%s num_layers=8", more[i]);
        uint64_t bytes = evaluated(more[i]);
        CU_ASSERT_TRUE(bytes > 0);
        equal(evaluated(twice), bytes);
    }
    /* Logits in 16 bits, and twice in 32 where the fused loss makes a new tensor. */
    uint64_t logits = evaluated("vocab_size=65536 cross_entropy_loss_fusion=true");
    uint64_t expected = UINT64_C(1024) * 65536 * (2 + 4 + 4);
    CU_ASSERT_TRUE(logits >= expected && logits < expected + expected / 50);
}

static uint64_t saved(const char *settings)
{
    char text[512];
    snprintf(text, sizeof(text), "moments=checkpoint_save %s", settings);
    sim_rank_result_t r = play(text);
    CU_ASSERT_EQUAL_FATAL(r.n_extras, 1);
    equal(r.iterations[2].allocated_bytes, r.iterations[1].allocated_bytes);
    uint64_t bytes = r.extras[0].max_allocated_bytes - r.iterations[1].allocated_bytes;
    sim_rank_result_fini(&r);
    return bytes;
}

/* Every rank's part of a state, what is sent, and the flat tensor; a bucket at a time. */
static void saving_gathers_what_fits_any_layout(void)
{
    equal(saved(""), 0);
    uint64_t part = 4 * ALL / RANKS;
    equal(saved("dist_ckpt_optim_fully_reshardable=true"), (RANKS + 1 + RANKS) * part);
    equal(saved("dist_ckpt_optim_fully_reshardable=true "
                "distrib_optim_fully_reshardable_mem_efficient=true"),
          0);
    uint64_t in_buckets = saved("dist_ckpt_optim_fully_reshardable=true overlap_grad_reduce=true "
                                "ddp_num_buckets=4");
    CU_ASSERT_TRUE(in_buckets > 0 && in_buckets < (RANKS + 1 + RANKS) * part / 2);
    equal(saved("fp8=hybrid fp8_recipe=tensorwise fp8_param_gather=true gpu=h100-80gb-sxm"),
          2 * 2 * (uint64_t)(LAYER - 2 * H));
}

static sim_scenario_t lengths_of(const char *more)
{
    sim_scenario_t s;
    char text[256];
    snprintf(text, sizeof(text), "iterations=100 global_batch_size=64 %s", more);
    settings_accepted(&s, base, text);
    return s;
}

/* Drawn lengths have the mean that was asked for, differ between ranks and are always the same. */
static void lengths_have_their_mean(void)
{
    static const uint64_t means[] = { 64, 128, 512, 900, 1024 };
    for (size_t i = 0; i < sizeof(means) / sizeof(means[0]); i++) {
        char text[64];
        snprintf(text, sizeof(text), "mean_seq_length=%" PRIu64, means[i]);
        sim_scenario_t s = lengths_of(text);
        CU_ASSERT_EQUAL(sim_lengths_count(&s), SIM_MAX_LENGTHS);
        CU_ASSERT_EQUAL(s.n_microbatches, 16);
        uint8_t first[1600], again[1600], other[1600];
        sim_lengths_fill(&s, 0, first);
        sim_lengths_fill(&s, 0, again);
        sim_lengths_fill(&s, 1, other);
        CU_ASSERT_EQUAL(memcmp(first, again, sizeof(first)), 0);
        CU_ASSERT_TRUE(means[i] == 1024 || memcmp(first, other, sizeof(first)) != 0);
        double sum = 0;
        for (size_t k = 0; k < sizeof(first); k++) {
            CU_ASSERT_TRUE(first[k] >= 1 && first[k] <= SIM_MAX_LENGTHS);
            sum += first[k] * 1024.0 / SIM_MAX_LENGTHS;
        }
        double mean = sum / sizeof(first);
        CU_ASSERT_TRUE(mean > 0.93 * (double)means[i] && mean < 1.07 * (double)means[i] + 1);
        sim_scenario_fini(&s);
    }
    sim_scenario_t s = lengths_of("seq_length=1000 mean_seq_length=100");
    CU_ASSERT_EQUAL(sim_lengths_count(&s), 25); /* of 40 tokens each */
    CU_ASSERT_EQUAL(sim_lengths_mean(&s), 120);
    sim_scenario_fini(&s);
}

/* The longest are as large as if all were; shorter ones hold less and leave nothing. */
static void longest_batch_is_as_large_as_all(void)
{
    static const char *const more[] = { "", "tp=2 sequence_parallel=true", "pp=2 world_size=4",
                                        ("recompute_granularity=full recompute_method=uniform "
                                         "recompute_num_layers=1") };
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        char drawn[512], longest[640], full[512];
        snprintf(drawn, sizeof(drawn), "global_batch_size=16 mean_seq_length=128 %s", more[i]);
        snprintf(longest, sizeof(longest), "%s moments=longest_batch", drawn);
        snprintf(full, sizeof(full), "global_batch_size=16 %s", more[i]);
        sim_rank_result_t all = play(full), one = play(longest), few = play(drawn);
        equal(one.max_allocated_bytes, all.max_allocated_bytes);
        CU_ASSERT_TRUE(few.max_allocated_bytes < all.max_allocated_bytes);
        CU_ASSERT_TRUE(one.iterations[0].max_allocated_bytes < one.max_allocated_bytes);
        for (uint32_t k = 1; k < 3; k++)
            CU_ASSERT_TRUE(few.iterations[k].allocated_bytes <= all.iterations[k].allocated_bytes);
        sim_rank_result_fini(&all);
        sim_rank_result_fini(&one);
        sim_rank_result_fini(&few);
    }
}

static void wrong_combinations_are_refused(void)
{
    static const struct {
        const char *settings, *message;
    } cases[] = {
        { "moments=evaluation iterations=1",
          "test: run.moments: come after the second step: iterations must be at least 2" },
        { "moments=evaluation mtp_num_layers=1",
          "test: run.moments: evaluation is simulated with model_type = gpt and without "
          "multi-token prediction" },
        { "moments=checkpoint_load use_megatron_fsdp=true",
          "test: run.moments: are simulated with framework = megatron, without FSDP and "
          "optimizer_cpu_offload" },
        { "moments=longest_batch", "test: run.moments: longest_batch needs mean_seq_length" },
        { "mean_seq_length=2048",
          "test: train.mean_seq_length: 2048 is more than seq_length 1024, the longest" },
        { "mean_seq_length=512 num_experts=4 ep=2 moe_grouped_gemm=true",
          "test: train.mean_seq_length: is simulated with framework = megatron and model_type = "
          "gpt, without expert parallelism and FSDP" },
        { "mean_seq_length=512 seq_length=1022 tp=2",
          "test: train.mean_seq_length: needs a seq_length that can be halved: a multiple of 8" },
        { "distrib_optim_fully_reshardable_mem_efficient=true",
          "test: run.distrib_optim_fully_reshardable_mem_efficient: needs "
          "dist_ckpt_optim_fully_reshardable = true" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        settings_refused(base, cases[i].settings, cases[i].message);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "loading makes the moments", loading_makes_the_moments },
        { "evaluation saves nothing", evaluation_saves_nothing },
        { "saving gathers what fits any layout", saving_gathers_what_fits_any_layout },
        { "lengths have their mean", lengths_have_their_mean },
        { "the longest batch is as large as all", longest_batch_is_as_large_as_all },
        { "wrong combinations are refused", wrong_combinations_are_refused },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "moments", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
