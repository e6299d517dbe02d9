/* SPDX-License-Identifier: Apache-2.0
 * Passes that take turns (overlap_moe_expert_parallel_comm), for a model of round sizes. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/engine/simulate.h"
#include "tests/cutap.h"
#include "tests/settings.h"

#include <inttypes.h>
#include <stdio.h>

/* A hidden tensor has 4096 tokens of 1024 numbers in bf16. */
#define HIDDEN (8 * BASE_MIB)

enum { LAYERS = 8, ITERATIONS = 3 };

static const char base[] =
    "model.num_layers=8 model.hidden_size=1024 model.num_attention_heads=8 "
    "model.num_query_groups=4 model.ffn_hidden_size=4096 model.vocab_size=1024 "
    "model.activation_func=swiglu model.normalization=RMSNorm model.add_bias_linear=false "
    "model.position_embedding_type=rope model.untie_embeddings_and_output_weights=true "
    "model.attention_dropout=0 model.hidden_dropout=0 parallel.world_size=2 "
    "moe.num_experts=4 moe.moe_ffn_hidden_size=512 moe.moe_grouped_gemm=true "
    "moe.moe_router_dtype=fp32 parallel.expert_model_parallel_size=2 "
    "train.micro_batch_size=1 train.seq_length=4096 train.global_batch_size=8 "
    "optimizer.optimizer=sgd run.iterations=3 device.gpu=h100-80gb-sxm ";

#define OVERLAP  "parallel.overlap_moe_expert_parallel_comm=true "
#define ALLTOALL "moe.moe_token_dispatcher_type=alltoall "
#define HYBRIDEP "moe.moe_token_dispatcher_type=flex moe.moe_flex_dispatcher_backend=hybridep "

typedef struct {
    uint64_t allocated[ITERATIONS]; /* at the end of each */
    uint64_t peak;
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
    CU_ASSERT_EQUAL_FATAL(r.n_iterations, ITERATIONS);
    figures_t f = { .peak = r.max_allocated_bytes };
    for (uint32_t i = 0; i < ITERATIONS; i++)
        f.allocated[i] = r.iterations[i].allocated_bytes;
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return f;
}

static void expect(uint64_t got, uint64_t expected, const char *what)
{
    if (got != expected)
        printf("# %s: %" PRIu64 " instead of %" PRIu64 "\n", what, got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

/* The dispatcher's probabilities lead to the input of every layer's first node and to its gradient.
 */
static void graphs_begin_at_inputs(void)
{
    figures_t off = play(ALLTOALL), on = play(ALLTOALL OVERLAP);
    for (uint32_t i = 0; i < ITERATIONS; i++)
        expect(on.allocated[i] - off.allocated[i], 2 * LAYERS * HIDDEN, "all layers");
}

/* One micro-batch meets no other, but leaves the same behind. */
static void one_microbatch_leaves_the_same(void)
{
    static const char one[] = ALLTOALL "train.global_batch_size=2 ";
    static const char one_on[] = ALLTOALL "train.global_batch_size=2 " OVERLAP;
    figures_t off = play(one), on = play(one_on);
    for (uint32_t i = 0; i < ITERATIONS; i++)
        expect(on.allocated[i] - off.allocated[i], 2 * LAYERS * HIDDEN, "one micro-batch");
}

/* Dense layers have no dispatcher. */
static void dense_layers_leave_nothing(void)
{
    figures_t off = play(ALLTOALL "moe.moe_layer_freq=[0]*3+[1]*5");
    figures_t on = play(ALLTOALL "moe.moe_layer_freq=[0]*3+[1]*5 " OVERLAP);
    expect(on.allocated[1] - off.allocated[1], 2 * 5 * HIDDEN, "5 layers");
}

/* HybridEP's manager has probabilities of its own: of 4096 tokens and 4 experts, and of the 8192
 * received rows. Only their gradients are more. */
static void managers_keep_gradients(void)
{
    figures_t off = play(HYBRIDEP), on = play(HYBRIDEP OVERLAP);
    uint64_t more = 4096 * 4 * 4 + 8192 * 4;
    expect(on.allocated[1] - off.allocated[1], LAYERS * more, "gradients of probabilities");
}

/* One pass fills from below what the other empties from above, so that little more than the
 * activations of one layer is added, not those of a micro-batch. */
static void passes_take_turns(void)
{
    static const char *const dispatchers[] = { ALLTOALL, HYBRIDEP };
    for (size_t i = 0; i < 2; i++) {
        char fewer[256], more[256];
        snprintf(fewer, sizeof(fewer), "%smodel.num_layers=7", dispatchers[i]);
        snprintf(more, sizeof(more), "%s" OVERLAP, dispatchers[i]);
        figures_t off = play(dispatchers[i]), on = play(more), less = play(fewer);
        uint64_t layer = (off.peak - off.allocated[2]) - (less.peak - less.allocated[2]);
        CU_ASSERT(layer > 10 * HIDDEN);
        CU_ASSERT(on.peak > off.peak);
        CU_ASSERT(on.peak < off.peak + 2 * layer);
    }
}

static void wrong_combinations(void)
{
    static const struct {
        const char *settings, *message;
    } cases[] = {
        { "moe.moe_token_dispatcher_type=allgather " OVERLAP, "alltoall or flex" },
        { ALLTOALL "parallel.expert_model_parallel_size=1 " OVERLAP,
          "expert_model_parallel_size > 1" },
        { ALLTOALL "moe.moe_shared_expert_intermediate_size=512 "
                   "moe.moe_shared_expert_overlap=true " OVERLAP,
          "not with moe_shared_expert_overlap" },
        { ALLTOALL "recompute.recompute_granularity=full recompute.recompute_method=uniform "
                   "recompute.recompute_num_layers=1 " OVERLAP,
          "not with full recompute" },
        { ALLTOALL
          "recompute.recompute_granularity=selective recompute.recompute_modules=moe " OVERLAP,
          "not with recompute_modules moe" },
        { ALLTOALL "moe.overlap_dispatch_backward_with_experts_wgrad=true " OVERLAP,
          "not with overlap_dispatch_backward_with_experts_wgrad" },
        { ALLTOALL "precision.bf16=false " OVERLAP, "needs bf16 or fp16" },
        { ALLTOALL "model.mtp_num_layers=1 " OVERLAP, "not simulated" },
        { ALLTOALL "parallel.world_size=4 parallel.pipeline_model_parallel_size=2 " OVERLAP,
          "with a pipeline it needs a virtual one" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        settings_refused(base, cases[i].settings, cases[i].message);
}

static CU_TestInfo tests[] = {
    { "the router's graph keeps its input and gradient", graphs_begin_at_inputs },
    { "one micro-batch leaves the same", one_microbatch_leaves_the_same },
    { "dense layers leave nothing", dense_layers_leave_nothing },
    { "managers keep gradients of probabilities", managers_keep_gradients },
    { "passes take turns, layer by layer", passes_take_turns },
    { "wrong combinations are refused", wrong_combinations },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = { { .pName = "nodes", .pTests = tests }, CU_SUITE_INFO_NULL };

int main(void)
{
    return cutap_run(suites);
}
