/* SPDX-License-Identifier: Apache-2.0
 * Optimizer state of a small model against sums made by hand. */
#include "config.h"

#include "sim/engine/simulate.h"

#include "tests/cutap.h"
#include "tests/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    H = 512,
    FFN = 1024,
    VOCAB = 1024,
    LAYERS = 2,
    QKV = 3 * H * H,
    PROJ = H * H,
    FC = H * FFN,
    MATRICES = LAYERS * (QKV + PROJ + 2 * FC),
    EMBEDDINGS = 2 * VOCAB * H,
    VECTORS = (2 * LAYERS + 1) * H,
    ALL = MATRICES + EMBEDDINGS + VECTORS,
};

static const char *const base_settings[] = {
    "num_layers=2",
    "hidden_size=512",
    "num_attention_heads=8",
    "ffn_hidden_size=1024",
    "vocab_size=1024",
    "seq_length=16",
    "normalization=RMSNorm",
    "position_embedding_type=rope",
    "add_bias_linear=false",
    "hidden_dropout=0",
    "attention_dropout=0",
    "untie_embeddings_and_output_weights=true",
    "conf=expandable_segments:True", /* blocks are as large as what they hold */
    NULL,
};

typedef struct {
    uint64_t optimizer, parameters, gradients; /* at the peak of the run */
    uint64_t host;
    uint64_t held, peak, first_peak; /* after the last step; of all, of the first */
} figures_t;

static figures_t play(const char *const *more, uint32_t rank)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    const sim_simulate_options_t options = { .unlimited = true };
    settings_accepted_lists(&s, base_settings, more);
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, rank, &options, &r, &err), BASE_OK);
    figures_t f = { .optimizer = sim_holders_category(&r.at_peak, SIM_CAT_OPTIMIZER),
                    .parameters = sim_holders_category(&r.at_peak, SIM_CAT_PARAMETERS),
                    .gradients = sim_holders_category(&r.at_peak, SIM_CAT_GRADIENTS),
                    .host = r.host_bytes,
                    .held = r.iterations[r.n_iterations - 1].allocated_bytes,
                    .peak = r.max_allocated_bytes,
                    .first_peak = r.iterations[0].max_allocated_bytes };
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return f;
}

static void equal(uint64_t got, uint64_t expected)
{
    if (got != expected)
        printf("# %" PRIu64 ", expected %" PRIu64 "\n", got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

static void state_is_per_element(void)
{
    static const struct {
        const char *const settings[4];
        uint64_t bytes;
    } cases[] = {
        { { "world_size=1" }, 12 * ALL },
        { { "world_size=1", "optimizer=sgd" }, 8 * ALL },
        { { "world_size=1", "optimizer=muon" }, 8 * MATRICES + 12 * (EMBEDDINGS + VECTORS) },
        { { "world_size=1", "optimizer=muon", "muon_scalar_optimizer=lion" }, 8 * ALL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        figures_t f = play(cases[i].settings, 0);
        equal(f.optimizer, cases[i].bytes);
        equal(f.parameters, 2 * ALL);
        equal(f.gradients, 4 * ALL);
    }
}

/* Muon takes the projections of Mamba-2; its convolution has three axes and stays with Adam, whose
 * second moment Muon does without. */
static void convolutions_are_no_matrices(void)
{
    static const char *const adam[] = { "world_size=1", "hybrid_layer_pattern=MM",
                                        "mamba_state_dim=16", "mamba_num_groups=2", NULL };
    static const char *const muon[] = { "world_size=1",       "hybrid_layer_pattern=MM",
                                        "mamba_state_dim=16", "mamba_num_groups=2",
                                        "optimizer=muon",     NULL };
    enum { INNER = 2 * H, ROWS = 2 * INNER + 2 * 2 * 16 + INNER / 64 };
    equal(play(adam, 0).optimizer - play(muon, 0).optimizer, 4 * 2 * (ROWS * H + H * INNER));
}

static uint64_t optimizer_of_ranks(const char *const *settings, uint32_t from, uint32_t to)
{
    uint64_t sum = 0;
    for (uint32_t rank = from; rank < to; rank++)
        sum += play(settings, rank).optimizer;
    return sum;
}

/* Each instance has all of the state, over ranks next to each other. */
static void instances_have_all_of_the_state(void)
{
    static const char *const settings[] = { "world_size=8", "use_distributed_optimizer=true",
                                            "num_distributed_optimizer_instances=2", NULL };
    static const char *const half[] = { "world_size=4", "use_distributed_optimizer=true", NULL };
    equal(optimizer_of_ranks(settings, 0, 4), 12 * ALL);
    equal(optimizer_of_ranks(settings, 4, 8), 12 * ALL);
    for (uint32_t rank = 0; rank < 4; rank++) {
        figures_t a = play(settings, rank), b = play(settings, rank + 4), c = play(half, rank);
        equal(a.optimizer, b.optimizer);
        equal(a.held, c.held);
        equal(a.peak, c.peak);
    }
}

/* Each rank has a quarter of the matrices, whole ones, and a slice of the rest. */
static void matrices_lie_with_one_rank(void)
{
    static const char *const settings[] = { "world_size=4", "use_distributed_optimizer=true",
                                            "optimizer=muon", NULL };
    enum { REST = EMBEDDINGS + VECTORS };
    equal(optimizer_of_ranks(settings, 0, 4), 8 * MATRICES + 12 * REST);
    figures_t f = play(settings, 1);
    equal(f.optimizer, 8 * (MATRICES / 4) + 12 * (REST / 4));
    equal(f.parameters, 2 * ALL); /* nothing has to be padded */
}

/* Before such a layout: vectors 0..4, proj, proj, fc x 4, embeddings x 2, qkv x 2, there and back.
 */
static void parameters_are_dealt(void)
{
    static const char *const settings[] = { "world_size=4", "use_distributed_optimizer=true",
                                            "optimizer=muon", "use_layer_wise_param_layout=false",
                                            NULL };
    static const char *const before[] = { "world_size=4", "use_distributed_optimizer=true",
                                          "optimizer=muon", "software_date=20260401", NULL };
    const uint64_t expected[4] = {
        12 * H + 8 * 2 * FC,
        12 * H + 8 * (PROJ + FC + QKV),
        12 * H + 8 * (PROJ + FC + QKV),
        12 * (2 * H + EMBEDDINGS),
    };
    for (uint32_t rank = 0; rank < 4; rank++) {
        equal(play(settings, rank).optimizer, expected[rank]);
        equal(play(before, rank).optimizer, expected[rank]);
    }
}

/* The step is the peak of this model: the update of the projection before is still there when that
 * of queries, keys and values is scaled twice. */
static void an_update_needs_three_of_its_matrix(void)
{
    static const char *const settings[] = { "world_size=1", "optimizer=muon",
                                            "muon_split_qkv=false", NULL };
    static const char *const nesterov[] = { "world_size=1", "optimizer=muon",
                                            "muon_split_qkv=false", "muon_nesterov=true", NULL };
    static const char *const split[] = { "world_size=1", "optimizer=muon", NULL };
    figures_t f = play(settings, 0);
    equal(f.peak - f.held, 4 * PROJ + 3 * 4 * QKV);
    f = play(nesterov, 0);
    equal(f.peak - f.held, 4 * PROJ + 4 * 4 * QKV);
    /* Queries, keys and values are copied, updated, and put together. */
    f = play(split, 0);
    equal(f.peak - f.held, 4 * PROJ + 3 * 4 * QKV);
}

/* Matrices in order of the buffer, last layer first: output layer, then fc2, fc1, qkv, proj of the
 * second layer ... A quarter of the elements is reached within fc2. */
static void a_fraction_of_the_state_is_in_host_memory(void)
{
    static const char *const all[] = { "world_size=1", "use_distributed_optimizer=true",
                                       "use_precision_aware_optimizer=true",
                                       "optimizer_cpu_offload=true", NULL };
    static const char *const quarter[] = { "world_size=1",
                                           "use_distributed_optimizer=true",
                                           "use_precision_aware_optimizer=true",
                                           "optimizer_cpu_offload=true",
                                           "optimizer_offload_fraction=0.25",
                                           NULL };
    static const char *const bf16[] = { "world_size=1",
                                        "use_distributed_optimizer=true",
                                        "use_precision_aware_optimizer=true",
                                        "main_grads_dtype=bf16",
                                        "optimizer_cpu_offload=true",
                                        "optimizer_offload_fraction=0.25",
                                        NULL };
    enum { OFFLOADED = VOCAB * H + 2 * FC }; /* 1572864 of 5245440: 1311360 were due */
    figures_t f = play(all, 0);
    equal(f.optimizer, 0);
    equal(f.host, 16 * ALL);
    f = play(quarter, 0);
    equal(f.optimizer, 12 * (ALL - OFFLOADED));
    equal(f.host, 16 * OFFLOADED);
    f = play(bf16, 0); /* an fp32 gradient of what is on the GPU, which nobody clears */
    equal(f.optimizer, 16 * (ALL - OFFLOADED));
    equal(f.gradients, 2 * ALL);
}

static void wrong_combinations_are_refused(void)
{
    static const struct {
        const char *const settings[5];
        const char *message;
    } cases[] = {
        { { "world_size=2", "optimizer=muon", "fp16=true" }, "muon does not go with fp16" },
        { { "world_size=2", "optimizer=muon", "use_distributed_optimizer=true",
            "num_distributed_optimizer_instances=2" },
          "must be 1 with optimizer = muon" },
        { { "world_size=2", "use_distributed_optimizer=true", "optimizer_cpu_offload=true" },
          "needs use_precision_aware_optimizer" },
        { { "world_size=2", "optimizer=muon", "fp8=hybrid", "fp8_param_gather=true" },
          "not simulated with fp8_param_gather" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        settings_refused_lists(base_settings, cases[i].settings, cases[i].message);
}

static CU_TestInfo tests[] = {
    { "state is per element", state_is_per_element },
    { "instances have all of the state", instances_have_all_of_the_state },
    { "matrices lie with one rank", matrices_lie_with_one_rank },
    { "parameters are dealt", parameters_are_dealt },
    { "an update needs three of its matrix", an_update_needs_three_of_its_matrix },
    { "a fraction of the state is in host memory", a_fraction_of_the_state_is_in_host_memory },
    { "wrong combinations are refused", wrong_combinations_are_refused },
    { "convolutions are no matrices", convolutions_are_no_matrices },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "optimizers", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
