/* SPDX-License-Identifier: Apache-2.0
 * What CUDA graphs leave behind, worked out by hand for a model of round sizes. */
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
    "model.num_query_groups=4 model.ffn_hidden_size=4096 model.vocab_size=32768 "
    "model.activation_func=swiglu model.normalization=RMSNorm model.add_bias_linear=false "
    "model.position_embedding_type=rope model.untie_embeddings_and_output_weights=true "
    "model.attention_dropout=0 model.hidden_dropout=0 parallel.world_size=2 "
    "train.micro_batch_size=1 train.seq_length=4096 train.global_batch_size=4 "
    "train.check_for_nan_in_loss_and_grad=false run.iterations=3 device.gpu=h100-80gb-sxm "
    "run.software_date=20260801 ";

typedef struct {
    uint64_t allocated[ITERATIONS]; /* at the end of each */
    uint64_t peak[ITERATIONS];
    uint64_t reserved;
    sim_moment_t moment;
    sim_mempools_t pools;
} figures_t;

static figures_t play(const char *settings, uint32_t rank)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    settings_accepted(&s, base, settings);
    CU_ASSERT_EQUAL_FATAL(
        sim_simulate_rank(&s, rank, &(sim_simulate_options_t){ .unlimited = true }, &r, &err),
        BASE_OK);
    CU_ASSERT_EQUAL_FATAL(r.n_iterations, ITERATIONS);
    figures_t f = { .reserved = r.max_reserved_bytes,
                    .moment = r.allocated_moment,
                    .pools = r.mempools };
    for (uint32_t i = 0; i < ITERATIONS; i++) {
        f.allocated[i] = r.iterations[i].allocated_bytes;
        f.peak[i] = r.iterations[i].max_allocated_bytes;
    }
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

#define TE "train.cuda_graph_impl=transformer_engine train.cuda_graph_modules="

/* A copy of every layer's input, one buffer for gradients that come in, and the gradient that the
 * last backward graph gave. Nothing of this is there before the capture. */
static void buffers_stay(void)
{
    figures_t eager = play("", 0), f = play(TE "mlp train.cuda_graph_warmup_steps=1", 0);
    expect(f.allocated[0], eager.allocated[0], "before the capture");
    expect(f.allocated[1] - eager.allocated[1], (LAYERS + 2) * HIDDEN, "after it");
    expect(f.allocated[2], f.allocated[1], "a step later");
    expect(f.pools.reserved_bytes - f.pools.idle_bytes, HIDDEN, "in use of the pool");
    CU_ASSERT_EQUAL(eager.pools.reserved_bytes, 0);
}

/* Of each MLP the pool holds the norm's output, what goes into the activation and what comes out of
 * it (8 + 64 + 32 MiB), and the layer's output, until its gradients are captured: 112 MiB. One pool
 * serves all captures, so that the backward pass adds little. */
static void the_pool_holds_what_layers_save(void)
{
    figures_t f = play(TE "mlp train.cuda_graph_warmup_steps=0", 0);
    uint64_t saved = LAYERS * (112 * BASE_MIB);
    CU_ASSERT(f.pools.reserved_bytes >= saved);
    CU_ASSERT(f.pools.reserved_bytes < saved + 256 * BASE_MIB);
}

/* The graphs' part of the activations is not allocated again by the steps that run them. */
static void steps_allocate_less(void)
{
    figures_t eager = play("optimizer.optimizer=sgd", 0);
    figures_t f = play(TE "mlp train.cuda_graph_warmup_steps=0 optimizer.optimizer=sgd", 0);
    CU_ASSERT(f.peak[2] < eager.peak[2]);
    CU_ASSERT(f.reserved > eager.peak[2]);
}

/* Where the loss is small the capture is the peak, and is named so. */
static void capture_is_a_moment(void)
{
    figures_t f = play(TE "attn,mlp train.cuda_graph_warmup_steps=2 model.num_layers=24 "
                          "model.vocab_size=1024",
                       0);
    CU_ASSERT_EQUAL(f.moment.phase, SIM_PHASE_GRAPH_CAPTURE);
    CU_ASSERT_EQUAL(f.moment.iteration, 3);
}

/* Attention takes a mask of 4096 x 4096 bytes, and all layers one table of 4096 x 128 numbers. */
static void attention_takes_a_mask(void)
{
    figures_t mlp = play(TE "mlp train.cuda_graph_warmup_steps=0", 0);
    figures_t attn = play(TE "attn train.cuda_graph_warmup_steps=0", 0);
    expect(attn.allocated[2] - mlp.allocated[2], LAYERS * 16 * BASE_MIB + 2 * BASE_MIB, "masks");
}

/* The first of two stages has two micro-batches of its 4 layers in flight, the second has one. */
static void inputs_are_for_passes_in_flight(void)
{
    static const char pipeline[] = "parallel.pipeline_model_parallel_size=2 ";
    for (uint32_t stage = 0; stage < 2; stage++) {
        char settings[256];
        snprintf(settings, sizeof(settings), "%s" TE "mlp train.cuda_graph_warmup_steps=0",
                 pipeline);
        uint64_t more = play(settings, stage).allocated[2] - play(pipeline, stage).allocated[2];
        expect(more, ((stage == 0 ? 2 : 1) * LAYERS / 2 + 2) * HIDDEN, "a stage's buffers");
    }
}

/* Since July 2026 warm-up follows the schedule and holds every output till its end. */
static void newer_warmup_holds_outputs(void)
{
    static const char graphs[] = TE "full train.cuda_graph_warmup_steps=0 "
                                    "train.global_batch_size=64 "
                                    "parallel.pipeline_model_parallel_size=2 ";
    char newer[256];
    snprintf(newer, sizeof(newer), "%srun.software_date=20261001", graphs);
    CU_ASSERT(play(newer, 1).peak[0] >= 64 * (LAYERS / 2) * HIDDEN);
    CU_ASSERT(play(graphs, 1).peak[0] < 64 * (LAYERS / 2) * HIDDEN);
}

/* Megatron-LM's own graphs keep their buffers in the pool, all of which is idle in the end. */
static void local_graphs_leave_nothing_allocated(void)
{
    figures_t eager = play("", 0), f = play("train.cuda_graph_impl=local", 0);
    expect(f.allocated[2], eager.allocated[2], "allocated");
    expect(f.pools.idle_bytes, f.pools.reserved_bytes, "idle");
    CU_ASSERT(f.pools.reserved_bytes > LAYERS * (112 * BASE_MIB));
}

/* Each rank reads two micro-batches: tokens, labels and positions of 8 bytes, a loss mask of 4. */
static void a_whole_iteration_keeps_its_batches(void)
{
    figures_t eager = play("", 0);
    figures_t f = play("train.cuda_graph_impl=full_iteration train.cuda_graph_warmup_steps=1", 0);
    expect(f.allocated[0] - eager.allocated[0], 2 * 4096 * (8 + 8 + 4 + 8), "batches");
    CU_ASSERT(f.pools.reserved_bytes > 1 * BASE_GIB);
    expect(f.allocated[2], f.allocated[1], "a step later");
}

/* Older names, and what each step looks at by default. */
static void names_and_defaults(void)
{
    sim_scenario_t s;
    settings_accepted(&s, base,
                      "train.cuda_graph_impl=local train.cuda_graph_scope=full_iteration");
    CU_ASSERT_EQUAL(s.cuda_graph_impl, SIM_GRAPHS_FULL_ITERATION);
    CU_ASSERT_EQUAL(s.cuda_graph_modules, 0);
    sim_scenario_fini(&s);
    settings_accepted(&s, base, "train.external_cuda_graph=true train.cuda_graph_scope=[attn,mlp]");
    CU_ASSERT_EQUAL(s.cuda_graph_impl, SIM_GRAPHS_TRANSFORMER_ENGINE);
    CU_ASSERT_EQUAL(s.cuda_graph_modules, SIM_CUDA_GRAPH_ATTN | SIM_CUDA_GRAPH_MLP);
    sim_scenario_fini(&s);
}

#define MOE                                                                                        \
    "moe.num_experts=4 moe.moe_router_topk=2 moe.moe_ffn_hidden_size=1024 "                        \
    "parallel.sequence_parallel=true "

static void wrong_combinations(void)
{
    static const struct {
        const char *settings, *message;
    } cases[] = {
        { TE "mlp allocator.conf=expandable_segments:True", "NCCL_GRAPH_REGISTER=0" },
        { TE "mlp offload.cpu_offloading_num_layers=1", "not with cpu_offloading" },
        { TE "mlp train.transformer_impl=local", "transformer_impl = transformer_engine" },
        { TE "moe", "need experts" },
        { TE "full_iteration", "full_iteration not with" },
        { MOE TE "moe_preprocess", "needs moe_router" },
        { MOE TE "moe,moe_router", "not both" },
        { MOE TE "moe", "moe_pad_expert_input_to_capacity" },
        { MOE TE "mlp", "needs a dense layer" },
        { MOE TE "full", "name modules" },
        { MOE TE "moe_router recompute.recompute_granularity=selective "
                 "recompute.recompute_modules=moe",
          "not with recompute_modules moe" },
        { TE "mlp recompute.recompute_granularity=full recompute.recompute_method=uniform "
             "recompute.recompute_num_layers=1",
          "full recompute only with" },
        { TE "attn recompute.recompute_granularity=selective model.attention_dropout=0.1",
          "core_attn is recomputed" },
        { "train.cuda_graph_impl=full_iteration train.check_for_nan_in_loss_and_grad=true",
          "check_for_nan_in_loss_and_grad = false" },
        { "train.cuda_graph_impl=full_iteration train.cuda_graph_modules=mlp", "must be empty" },
        { TE "mlp optimizer.use_megatron_fsdp=true", "not simulated" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        settings_refused(base, cases[i].settings, cases[i].message);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "buffers stay allocated", buffers_stay },
        { "the pool holds what layers save", the_pool_holds_what_layers_save },
        { "steps allocate less, and reserve more", steps_allocate_less },
        { "the capture is a moment", capture_is_a_moment },
        { "attention takes a mask", attention_takes_a_mask },
        { "inputs are for passes in flight", inputs_are_for_passes_in_flight },
        { "newer warm-up holds outputs", newer_warmup_holds_outputs },
        { "local graphs leave nothing allocated", local_graphs_leave_nothing_allocated },
        { "a whole iteration keeps its batches", a_whole_iteration_keeps_its_batches },
        { "names and defaults", names_and_defaults },
        { "wrong combinations are refused", wrong_combinations },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { .pName = "graphs", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
