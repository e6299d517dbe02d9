/* SPDX-License-Identifier: Apache-2.0
 * Expected figures: what the two original Python functions return for these inputs, run with their
 * imports stubbed (Megatron-LM commit d98e8a64, Megatron-Bridge 067f987d). */
#include "config.h"

#include "sim/study/estimate.h"

#include "tests/cutap.h"

#include <stdlib.h>
#include <string.h>

static const uint8_t first_layer_dense[30] = { 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };

static const sim_estimate_input_t llama3_8b = {
    .num_layers = 32,
    .hidden_size = 4096,
    .ffn_hidden_size = 14336,
    .num_attention_heads = 32,
    .num_query_groups = 8,
    .kv_channels = 128,
    .gated = true,
    .rmsnorm = true,
    .untie = true,
    .padded_vocab_size = 128256,
    .world_size = 8,
    .tp = 2,
    .pp = 1,
    .cp = 1,
    .ep = 1,
    .etp = 2,
    .use_distributed_optimizer = true,
    .seq_length = 8192,
    .micro_batch_size = 1,
    .n_microbatches = 32,
    .sequence_parallel = true,
    .recompute_selective = true,
};
static const sim_estimate_input_t mixtral_8x7b = {
    .num_layers = 32,
    .hidden_size = 4096,
    .ffn_hidden_size = 14336,
    .num_attention_heads = 32,
    .num_query_groups = 8,
    .kv_channels = 128,
    .gated = true,
    .rmsnorm = true,
    .untie = true,
    .padded_vocab_size = 32000,
    .num_experts = 8,
    .moe_router_topk = 2,
    .moe_ffn_hidden_size = 14336,
    .world_size = 64,
    .tp = 1,
    .pp = 4,
    .vpp = 8,
    .cp = 1,
    .ep = 8,
    .etp = 1,
    .use_distributed_optimizer = true,
    .seq_length = 4096,
    .micro_batch_size = 1,
    .n_microbatches = 16,
};
static const sim_estimate_input_t gelu_7b = {
    .num_layers = 32,
    .hidden_size = 4096,
    .ffn_hidden_size = 16384,
    .num_attention_heads = 32,
    .num_query_groups = 32,
    .kv_channels = 128,
    .padded_vocab_size = 131072,
    .add_bias_linear = true,
    .world_size = 8,
    .tp = 4,
    .pp = 2,
    .cp = 1,
    .ep = 1,
    .etp = 4,
    .seq_length = 8192,
    .micro_batch_size = 2,
    .n_microbatches = 8,
};
static const sim_estimate_input_t shared_experts = {
    .num_layers = 30,
    .hidden_size = 4096,
    .ffn_hidden_size = 12288,
    .num_attention_heads = 32,
    .num_query_groups = 32,
    .kv_channels = 128,
    .gated = true,
    .rmsnorm = true,
    .untie = true,
    .padded_vocab_size = 129280,
    .num_experts = 64,
    .moe_router_topk = 6,
    .moe_ffn_hidden_size = 1536,
    .moe_shared_expert_intermediate_size = 3072,
    .moe_layers = first_layer_dense,
    .mtp_num_layers = 1,
    .world_size = 128,
    .tp = 2,
    .pp = 4,
    .cp = 2,
    .ep = 16,
    .etp = 1,
    .first_stage = 7,
    .last_stage = 7,
    .use_distributed_optimizer = true,
    .seq_length = 4096,
    .micro_batch_size = 1,
    .n_microbatches = 8,
    .sequence_parallel = true,
    .recompute_selective = true,
};

static const struct {
    const sim_estimate_input_t *in;
    double weights, activation;              /* Megatron-LM */
    double dense, routed, bridge_activation; /* Megatron-Bridge */
    const char *line, *bridge_line;
} cases[] = {
    { &llama3_8b, 36137373696.0, 19365134336.0, 36137373696.0, 0, 19365134336.0,
      "weight and optimizer=34463.29 MB, activation=18468.03 MB, total=52931.32 MB",
      "weight and optimizer=34463.29 MB, activation=18468.03 MB, total=52931.32 MB" },
    { &mixtral_8x7b, 20063312640.0, 21040352256.0, 3150558720.0, 16911433728.0, 27084861440.0,
      "weight and optimizer=19133.87 MB, activation=20065.64 MB, total=39199.51 MB",
      "weight and optimizer=19132.61 MB" },
    { &gelu_7b, 16916226048.0, 36218929152.0, 16912631808.0, 0, 18287230976.0,
      "weight and optimizer=16132.57 MB, activation=34541.06 MB, total=50673.63 MB",
      "weight and optimizer=16129.14 MB" },
    { &shared_experts, 12925244928.0, 7583367168.0, 4647020544.0, 7247757312.0, 3917512704.0,
      "weight and optimizer=12326.47 MB, activation=7232.06 MB, total=19558.54 MB",
      "weight and optimizer=11343.74 MB, activation=3736.03 MB, total=15079.78 MB" },
};
enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };

/* To a byte: the originals' order of operations may differ in the last bits. */
static void expect_bytes(double got, double expected)
{
    CU_ASSERT_DOUBLE_EQUAL(got, expected, 1.0);
}

static void megatrons_formula_gives_its_figures(void)
{
    for (size_t i = 0; i < N_CASES; i++) {
        sim_estimate_t e = sim_estimate_megatron(cases[i].in);
        expect_bytes(e.weight_and_optimizer_bytes, cases[i].weights);
        expect_bytes(e.activation_bytes, cases[i].activation);
        char *line = sim_estimate_megatron_line(&e);
        CU_ASSERT_PTR_NOT_NULL(strstr(line, cases[i].line));
        free(line);
    }
}

static void bridges_formula_gives_its_figures(void)
{
    for (size_t i = 0; i < N_CASES; i++) {
        sim_estimate_bridge_t e;
        CU_ASSERT_EQUAL_FATAL(sim_estimate_bridge(cases[i].in, &e, NULL), BASE_OK);
        expect_bytes(e.dense_bytes, cases[i].dense);
        expect_bytes(e.routed_bytes, cases[i].routed);
        expect_bytes(e.activation_bytes, cases[i].bridge_activation);
        char *line = sim_estimate_bridge_line(&e);
        CU_ASSERT_PTR_NOT_NULL(strstr(line, cases[i].bridge_line));
        CU_ASSERT_EQUAL(strlen(strstr(line, "weight")), strlen(cases[i].bridge_line));
        free(line);
    }
}

static void few_microbatches_hold_fewer_activations(void)
{
    sim_estimate_input_t in = gelu_7b;
    double full = sim_estimate_megatron(&in).activation_bytes;
    in.n_microbatches = 1; /* of two stages only one is ever filled */
    CU_ASSERT_DOUBLE_EQUAL(sim_estimate_megatron(&in).activation_bytes, full / 2, 1.0);
    in.n_microbatches = 0;
    CU_ASSERT_DOUBLE_EQUAL(sim_estimate_megatron(&in).activation_bytes, full, 1.0);
}

static void an_uneven_split_that_does_not_come_out_is_refused(void)
{
    sim_estimate_bridge_t e = { .dense_bytes = 5 };
    base_err_t err;
    sim_estimate_input_t in = shared_experts;
    in.first_stage = 8;
    CU_ASSERT_EQUAL(sim_estimate_bridge(&in, &e, &err), BASE_ERR_INVAL);
    in.first_stage = 29;
    CU_ASSERT_EQUAL(sim_estimate_bridge(&in, &e, &err), BASE_ERR_INVAL);
    in = shared_experts;
    in.vpp = 2;
    CU_ASSERT_EQUAL(sim_estimate_bridge(&in, &e, &err), BASE_ERR_INVAL);
    CU_ASSERT_EQUAL(e.dense_bytes, 5);
}

static void latent_attention_counts_its_projections(void)
{
    sim_estimate_input_t in = gelu_7b;
    in.pp = 1;
    in.tp = 1;
    in.etp = 1;
    in.num_layers = 1;
    in.multi_latent_attention = true;
    in.kv_lora_rank = 512;
    in.qk_head_dim = 128;
    in.qk_pos_emb_head_dim = 64;
    in.v_head_dim = 128;
    double h = 4096, a = 32, mlp = 2 * h * 16384, norms = 4 * h + 2 * h, embedding = h * 131072;
    double kv = 512 * (h + a * 256 + 2) + h * 64 + a * 128 * h;
    double n = mlp + norms + embedding + kv + h * a * 192;
    CU_ASSERT_DOUBLE_EQUAL(sim_estimate_megatron(&in).weight_and_optimizer_bytes, n * 18, 1.0);
    in.q_lora_rank = 1536;
    n = mlp + norms + embedding + kv + 1536 * (h + a * 192 + 2);
    CU_ASSERT_DOUBLE_EQUAL(sim_estimate_megatron(&in).weight_and_optimizer_bytes, n * 18, 1.0);
}

static CU_TestInfo tests[] = {
    { "Megatron's formula gives its figures", megatrons_formula_gives_its_figures },
    { "Bridge's formula gives its figures", bridges_formula_gives_its_figures },
    { "few micro-batches hold fewer activations", few_microbatches_hold_fewer_activations },
    { "an uneven split that does not come out is refused",
      an_uneven_split_that_does_not_come_out_is_refused },
    { "latent attention counts its projections", latent_attention_counts_its_projections },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "estimate", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
