/* SPDX-License-Identifier: Apache-2.0
 * Optimizer state by type: bytes of a parameter, from what differs between jobs on one GPU. */
#include "config.h"

#include "sim/engine/simulate.h"
#include "tests/cutap.h"

#include <stdio.h>

#define PRECISION_AWARE "use_precision_aware_optimizer=true"
#define BF16_STATES                                                                                \
    PRECISION_AWARE, "main_grads_dtype=bf16", "exp_avg_dtype=bf16", "exp_avg_sq_dtype=bf16"

/* Every tensor is a multiple of 512 bytes and, the buffer of all gradients too, at most 1 MiB:
 * nothing is lost to rounding, and the allocator splits blocks of that size exactly. */
static const char *const base_settings[] = {
    "num_layers=1",
    "hidden_size=256",
    "num_attention_heads=4",
    "num_query_groups=1",
    "ffn_hidden_size=64",
    "vocab_size=128",
    "seq_length=128",
    "normalization=RMSNorm",
    "activation_func=swiglu",
    "position_embedding_type=rope",
    "add_bias_linear=false",
    "hidden_dropout=0",
    "attention_dropout=0",
    "world_size=1",
    "use_distributed_optimizer=true",
    NULL,
};

/* Embedding; QKV, projection, FC1 with its gate, FC2; three norms. */
enum { N_PARAMS = 128 * 256 + 256 * (256 + 2 * 64) + 256 * 256 + 3 * 256 * 64 + 3 * 256 };

typedef struct {
    int64_t end;  /* allocated after an iteration */
    int64_t peak; /* of the job */
} figures_t;

static figures_t play(const char *const *more)
{
    const char *const *const lists[] = { base_settings, more };
    sim_scenario_t s;
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(&s);
    for (int i = 0; i < 2; i++)
        for (const char *const *setting = lists[i]; *setting != NULL; setting++)
            sim_scenario_set_text(&s, *setting, "test", &diag);
    bool ok = sim_scenario_resolve(&s, &diag);
    for (size_t i = 0; i < diag.n; i++)
        printf("# %s\n", diag.text[i]);
    CU_ASSERT_TRUE_FATAL(ok);
    base_diag_fini(&diag);
    sim_rank_result_t r;
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, 0, NULL, &r, &err), BASE_OK);
    figures_t f = { (int64_t)r.iterations[1].allocated_bytes, (int64_t)r.max_allocated_bytes };
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return f;
}

#define PLAY(...) play((const char *const[]){ __VA_ARGS__, NULL })

/* Of parameter, gradient, main parameter, moments. */
enum { PLAIN = 2 + 4 + 4 + 8 };

static void expect_bytes_of_a_parameter(int bytes, figures_t f)
{
    figures_t plain = PLAY("world_size=1");
    CU_ASSERT_EQUAL(f.end - plain.end, (int64_t)N_PARAMS * (bytes - PLAIN));
}

static void precision_aware_stores_remainders(void)
{
    expect_bytes_of_a_parameter(2 + 4 + 2 + 8, PLAY(PRECISION_AWARE));
    expect_bytes_of_a_parameter(2 + 4 + 4 + 8,
                                PLAY(PRECISION_AWARE, "store_param_remainders=false"));
    expect_bytes_of_a_parameter(2 + 2 + 2 + 4, PLAY(BF16_STATES));
    expect_bytes_of_a_parameter(2 + 2 + 2 + 4, PLAY(BF16_STATES, "main_params_dtype=fp16"));
}

/* The copies of the gradients stay until the next iteration. */
static void another_recipe_leaves_main_params_to_megatron(void)
{
    expect_bytes_of_a_parameter(2 + 4 + 4 + 8, PLAY(PRECISION_AWARE, "fp8_recipe=tensorwise"));
    expect_bytes_of_a_parameter(2 + 2 + 4 + 4 + 4, PLAY(BF16_STATES, "fp8_recipe=tensorwise"));
    expect_bytes_of_a_parameter(
        2 + 2 + 2 + 4, PLAY(BF16_STATES, "main_params_dtype=fp16", "fp8_recipe=tensorwise"));
}

static void bf16_gradients_are_copied(void)
{
    expect_bytes_of_a_parameter(2 + 2 + 4 + 4 + 8,
                                PLAY("accumulate_allreduce_grads_in_fp32=false"));
}

static void older_adam_converts_bf16_moments(void)
{
    figures_t now = PLAY(BF16_STATES), then = PLAY(BF16_STATES, "software_date=20260201");
    CU_ASSERT_EQUAL(now.end, then.end);
    CU_ASSERT_EQUAL(then.peak - then.end, (int64_t)N_PARAMS * 8);
    CU_ASSERT_TRUE(now.peak < then.peak);
}

static CU_TestInfo tests[] = {
    { "precision-aware stores remainders", precision_aware_stores_remainders },
    { "another recipe leaves main parameters to Megatron",
      another_recipe_leaves_main_params_to_megatron },
    { "bf16 gradients are copied", bf16_gradients_are_copied },
    { "older Adam converts bf16 moments", older_adam_converts_bf16_moments },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "optimizer", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
