/* SPDX-License-Identifier: Apache-2.0
 * What a torchtitan block keeps between its passes, against PyTorch 2.6: what its autograd saves,
 * and what its partitioner (min_cut_rematerialization_partition) lists for the compiled block. */
#include "config.h"

#include "sim/engine/simulate.h"
#include "sim/model/titan.h"

#include "tests/cutap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = 2, S = 64, T = B * S, H = 512, Q = 512, KV = 128, F = 1024, HEADS = 8, V = 1024, E = 2 };

static const char *const base_settings[] = {
    "framework=torchtitan",
    "num_layers=4",
    "hidden_size=512",
    "ffn_hidden_size=1024",
    "vocab_size=1024",
    "num_attention_heads=8",
    "num_query_groups=2",
    "micro_batch_size=2",
    "seq_length=64",
    "world_size=4",
    NULL,
};

static bool make(sim_scenario_t *s, const char *const *more, char message[400])
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(s);
    for (const char *const *t = base_settings; *t != NULL; t++)
        sim_scenario_set_text(s, *t, "test", &diag);
    for (; more != NULL && *more != NULL; more++)
        sim_scenario_set_text(s, *more, "test", &diag);
    bool ok = sim_scenario_resolve(s, &diag) && diag.n == 0;
    message[0] = '\0';
    for (size_t i = 0; i < diag.n; i++)
        snprintf(message + strlen(message), 400 - strlen(message), "%s\n", diag.text[i]);
    base_diag_fini(&diag);
    return ok;
}

static void must_make(sim_scenario_t *s, const char *const *more)
{
    char message[400];
    bool ok = make(s, more, message);
    if (!ok)
        printf("# %s\n", message);
    CU_ASSERT_TRUE_FATAL(ok);
}

static void equal(uint64_t got, uint64_t expected)
{
    if (got != expected)
        printf("# %" PRIu64 ", expected %" PRIu64 "\n", got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

/* Run a plan in numbers; `refs` counts references of each node's memory. */
static void run(const sim_graph_plan_t *plan, int *refs)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        int *ref = &refs[plan->steps[i].node];
        if (plan->steps[i].action == SIM_GRAPH_NEW) {
            CU_ASSERT_EQUAL(*ref, 0);
            *ref = 1;
        } else {
            CU_ASSERT_TRUE(*ref > 0);
            *ref += plan->steps[i].action == SIM_GRAPH_KEEP ? 1 : -1;
        }
    }
}

static uint64_t alive(const sim_graph_t *g, const int *refs)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n; i++)
        bytes += refs[i] > 0 ? g->nodes[i].bytes : 0;
    return bytes;
}

/* Bytes between the passes, the block's output left out; checks that the backward pass leaves the
 * gradients and nothing else. */
static uint64_t kept(const char *const *more, sim_keep_t keep, bool is_compiled)
{
    sim_scenario_t s;
    sim_dims_t d;
    base_err_t err;
    sim_graph_t g;
    sim_graph_plans_t plans;
    int refs[SIM_GRAPH_MAX_NODES] = { 0 };
    must_make(&s, more);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    sim_titan_block_graph(&g, &s, &d, true);
    sim_graph_plans_init(&plans, &g, keep, is_compiled);
    refs[g.input] = 1;
    run(&plans.forward, refs);
    refs[g.input]--; /* the caller's */
    refs[sim_graph_storage(&g, g.output)]--;
    uint64_t bytes = alive(&g, refs);
    refs[g.d_output] = 1;
    run(&plans.backward, refs);
    uint64_t grads = d.hidden_bytes, weights = 2 * H + 2 * H * (Q + KV) / d.tp + 3 * H * F / d.tp;
    weights += s.qk_layernorm ? 2 * d.head_dim : 0;
    equal(alive(&g, refs), grads + weights * E);
    sim_graph_plans_fini(&plans);
    sim_scenario_fini(&s);
    return bytes;
}

enum {
    X = T * H * E,
    LSE = T * HEADS * 4,
    LISTED = T * (Q + KV + F + Q) * E + LSE,          /* q, v, gate, attention */
    NORM = T * H * 4 + T * 4 + T * H * E + T * H * E, /* fp32 copy, factors, product, output */
    ALL = 2 * NORM + 4 * T * Q * E + LSE + 4 * T * F * E,
};

static void everything_is_what_autograd_saves(void)
{
    equal(kept(NULL, SIM_KEEP_ALL, false), ALL);
}

/* x, the factors of both norms and their outputs, q, k and v as attention reads them, what it and
 * its projection make, and the three tensors in front of matrix products of the MLP. */
static void the_partitioner_keeps_what_is_costly(void)
{
    equal(kept(NULL, SIM_KEEP_ALL, true),
          X + 2 * (T * 4 + T * H * E) + 4 * T * Q * E + LSE + T * H * E + 3 * T * F * E);
}

/* Norms of q and k save what other norms do, and their inputs are not needed any more. */
static void norms_of_heads_save_too(void)
{
    const char *const norms[] = { "qk_layernorm=true", NULL };
    enum { QK = T * (Q + KV) };
    equal(kept(norms, SIM_KEEP_LISTED, true), X + LISTED);
    equal(kept(norms, SIM_KEEP_ALL, false), ALL + QK * 4 + QK * E + T * (HEADS + HEADS / 4) * 4);
}

static void fp8_keeps_the_same_results(void)
{
    const char *const fp8[] = { "compile_model=true", "fp8=hybrid", "fp8_recipe=tensorwise", NULL };
    uint64_t n_scales = 4; /* norm output twice, attention's, the MLP's */
    equal(kept(fp8, SIM_KEEP_LISTED, true), X + LISTED + n_scales * 4);
    equal(kept(fp8, SIM_KEEP_INPUT, true), X);
}

/* MXFP8 has no scale of a whole tensor to keep; NVFP4's products are no listed operator. */
static void block_formats_keep_what_is_listed(void)
{
    const char *const mxfp8[] = { "compile_model=true", "fp8=hybrid", "fp8_recipe=mxfp8", NULL };
    const char *const nvfp4[] = { "compile_model=true", "fp4=e2m1", "gpu=b200-180gb", NULL };
    equal(kept(mxfp8, SIM_KEEP_LISTED, true), X + LISTED);
    equal(kept(nvfp4, SIM_KEEP_LISTED, true), X + T * Q * E + LSE);
    equal(kept(nvfp4, SIM_KEEP_INPUT, true), X);
    CU_ASSERT_TRUE(kept(nvfp4, SIM_KEEP_ALL, true) > kept(nvfp4, SIM_KEEP_LISTED, true));
    CU_ASSERT_TRUE(kept(mxfp8, SIM_KEEP_ALL, true) > kept(mxfp8, SIM_KEEP_LISTED, true));
}

static void listed_results_stay(void)
{
    equal(kept(NULL, SIM_KEEP_LISTED, false), X + LISTED + T * H * E); /* and w2's, for nothing */
    equal(kept(NULL, SIM_KEEP_LISTED, true), X + LISTED);
}

static void the_input_alone_stays(void)
{
    equal(kept(NULL, SIM_KEEP_INPUT, false), X);
    equal(kept(NULL, SIM_KEEP_INPUT, true), X);
}

static void tensor_parallel_ranks_keep_their_part(void)
{
    const char *const tp2[] = { "tensor_model_parallel_size=2", NULL };
    equal(kept(tp2, SIM_KEEP_INPUT, false), X / 2);
    equal(kept(tp2, SIM_KEEP_LISTED, true), (X + LISTED) / 2);
}

static void context_parallel_ranks_keep_their_part(void)
{
    const char *const gather[] = { "context_parallel_size=4", NULL };
    const char *const exchange[] = { "context_parallel_size=4",
                                     "context_parallel_rotate_method=alltoall", NULL };
    equal(kept(gather, SIM_KEEP_INPUT, true), X / 4);
    equal(kept(gather, SIM_KEEP_INPUT, false), X / 4);
    equal(kept(gather, SIM_KEEP_LISTED, true), (X + LISTED) / 4);
    equal(kept(exchange, SIM_KEEP_INPUT, true), X / 4);
    equal(kept(exchange, SIM_KEEP_LISTED, false), (X + LISTED + T * H * E) / 4);
}

static void check_layers(const char *const *more, const uint32_t *expected, uint32_t n)
{
    sim_scenario_t s;
    must_make(&s, more);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pp = (uint32_t)s.pipeline_model_parallel_size;
        equal(topo_stages_chunk(&s.stages, i % pp, i / pp)->n_layers, expected[i]);
    }
    sim_scenario_fini(&s);
}

/* generate_split_points(), then generate_llm_fqn_per_model_part(). */
static void layers_are_split_as_torchtitan_does(void)
{
    const char *const old[] = { "num_layers=14",          "pipeline_model_parallel_size=4",
                                "world_size=8",           "global_batch_size=16",
                                "software_date=20241226", NULL };
    const char *const now[] = { "num_layers=14", "pipeline_model_parallel_size=4", "world_size=8",
                                "global_batch_size=16", NULL };
    const char *const loops[] = { "num_layers=30",
                                  "pipeline_model_parallel_size=4",
                                  "virtual_pipeline_model_parallel_size=2",
                                  "world_size=8",
                                  "global_batch_size=16",
                                  "software_date=20241226",
                                  NULL };
    check_layers(old, (const uint32_t[]){ 3, 4, 4, 3 }, 4);
    check_layers(now, (const uint32_t[]){ 3, 4, 4, 3 }, 4);
    check_layers(loops, (const uint32_t[]){ 3, 4, 4, 4, 4, 4, 4, 3 }, 8);
    const char *const rest[] = { "num_layers=15", "pipeline_model_parallel_size=4", "world_size=8",
                                 "global_batch_size=16", NULL };
    check_layers(rest, (const uint32_t[]){ 4, 4, 4, 3 }, 4);
}

typedef struct {
    const char *name;
    uint64_t now, most;
} watch_t;

static void see(void *arg, const sim_observation_t *seen)
{
    watch_t *w = arg;
    if (strcmp(seen->tensor->name, w->name) != 0)
        return;
    w->now += seen->is_free ? -seen->block_bytes : seen->block_bytes;
    w->most = w->now > w->most ? w->now : w->most;
}

/* The most that tensors called `name` have at a time, on one rank. */
static uint64_t most(const char *const *more, uint32_t rank, const char *name)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    watch_t watch = { .name = name };
    const sim_simulate_options_t options = { .unlimited = true, .observer = { see, &watch } };
    must_make(&s, more);
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, rank, &options, &r, &err), BASE_OK);
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return watch.most;
}

/* Four micro-batches on two stages of two layers each. */
static void stages_hold_what_they_receive_and_return(void)
{
    const char *const two[] = { "pipeline_model_parallel_size=2", "global_batch_size=16",
                                "software_date=20241226", "conf=expandable_segments:True", NULL };
    enum { LAYER = 2 * H * (Q + KV) + 3 * H * F + 2 * H, ENDS = V * H + H };
    equal(most(two, 0, "stage_input"), 0);
    equal(most(two, 2, "stage_input"), 4 * X);
    equal(most(two, 0, "output_grad"), 4 * X);
    equal(most(two, 2, "logits"), 4 * T * V * E); /* of one iteration */
    equal(most(two, 2, "merged_outputs"), 4 * T * V * E);
    equal(most(two, 2, "summed_grad"), (2 * LAYER + ENDS) * 4);
    equal(most(two, 2, "unit_params"), (2 * LAYER + ENDS) * E); /* all stay gathered */
}

static sim_rank_result_t play(const char *const *more)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    const sim_simulate_options_t options = { .unlimited = true };
    must_make(&s, more);
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, 0, &options, &r, &err), BASE_OK);
    sim_scenario_fini(&s);
    return r;
}

static uint64_t peak(const char *const *more)
{
    sim_rank_result_t r = play(more);
    uint64_t bytes = r.max_allocated_bytes;
    sim_rank_result_fini(&r);
    return bytes;
}

static void checkpoints_cost_and_save(void)
{
    const char *const none[] = { "activation_checkpoint_mode=none", NULL };
    const char *const every_second[] = { "selective_ac_option=2", NULL };
    const char *const by_operator[] = { NULL };
    const char *const full[] = { "activation_checkpoint_mode=full", NULL };
    CU_ASSERT_TRUE(peak(none) > peak(every_second));
    CU_ASSERT_TRUE(peak(every_second) > peak(by_operator));
    CU_ASSERT_TRUE(peak(by_operator) > peak(full));
}

/* Held after a step: fp32 parameters, gradients and two moments, each a quarter, the table of
 * angles and two workspaces of cuBLAS. */
static void states_are_shared(void)
{
    const char *const exact[] = { "conf=expandable_segments:True", NULL };
    enum { LAYER = 2 * H * (Q + KV) + 3 * H * F + 2 * H, N = 4 * LAYER + 2 * V * H + H };
    sim_rank_result_t r = play(exact);
    uint64_t held = r.iterations[r.n_iterations - 1].allocated_bytes, counts = 39 * 512;
    equal(held, N / 4 * 16 + S * (H / HEADS) / 2 * 8 + 2 * (UINT64_C(32) << 20) + counts);
    sim_rank_result_fini(&r);
}

static void replicas_hold_more(void)
{
    const char *const replicas[] = { "data_parallel_replicate_degree=2", NULL };
    CU_ASSERT_TRUE(peak(replicas) > peak(NULL));
}

static void says(const char *setting, const char *message)
{
    sim_scenario_t s;
    char text[400];
    const char *const more[] = {
        setting, strncmp(setting, "framework", 9) == 0 ? "compile_model=true" : NULL, NULL
    };
    bool ok = make(&s, more, text);
    if (strstr(text, message) == NULL)
        printf("# %s: %s\n", setting, text);
    CU_ASSERT_FALSE(ok);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, message));
    sim_scenario_fini(&s);
}

static void what_is_not_simulated_is_refused(void)
{
    says("activation_checkpoint_mode=memory_budget", "memory_budget");
    says("selective_ac_option=0", "is op or a number from 1");
    says("selective_ac_option=2x", "is op or a number from 1");
    says("num_experts=8", "num_experts: is not read with framework = torchtitan");
    says("mtp_num_layers=1", "mtp_num_layers: is not read");
    says("scheme=lora", "scheme: is not read");
    says("framework=megatron", "torchtitan.compile_model: needs framework = torchtitan");
    says("normalization=LayerNorm", "normalization: is not simulated");
    says("fp16=true", "bf16: false is not simulated");
    says("use_distributed_optimizer=true", "use_distributed_optimizer: is not read");
    says("recompute_granularity=selective", "recompute_granularity: is not read");
    says("data_parallel_replicate_degree=3", "3 does not divide data parallel size 4");
    says("data_parallel_replicate_degree=4", "over two ranks or more");
    says("fp8=hybrid", "fp8_recipe: of torchtitan tensorwise and mxfp8 alone are simulated");
    says("fp8=hybrid", "with compile_model = true alone");
    says("enable_fsdp_float8_all_gather=true", "needs fp8 = hybrid");
    says("gradient_accumulation_fusion=true", "gradient_accumulation_fusion: is not simulated");
    says("accumulate_allreduce_grads_in_fp32=false", "is not read with framework = torchtitan");
    says("context_parallel_size=128", "context_parallel_size: above 64 is not simulated");
    says("optimizer=sgd", "optimizer: is not simulated");
    says("optimizer_implementation=for-loop", "for-loop");
}

static CU_TestInfo tests[] = {
    { "everything is what autograd saves", everything_is_what_autograd_saves },
    { "the partitioner keeps what is costly", the_partitioner_keeps_what_is_costly },
    { "block formats keep what is listed", block_formats_keep_what_is_listed },
    { "listed results stay", listed_results_stay },
    { "norms of heads save too", norms_of_heads_save_too },
    { "FP8 keeps the same results", fp8_keeps_the_same_results },
    { "the input alone stays", the_input_alone_stays },
    { "tensor parallel ranks keep their part", tensor_parallel_ranks_keep_their_part },
    { "context parallel ranks keep their part", context_parallel_ranks_keep_their_part },
    { "layers are split as torchtitan does", layers_are_split_as_torchtitan_does },
    { "stages hold what they receive and return", stages_hold_what_they_receive_and_return },
    { "checkpoints cost and save", checkpoints_cost_and_save },
    { "states are shared", states_are_shared },
    { "replicas hold more", replicas_hold_more },
    { "what is not simulated is refused", what_is_not_simulated_is_refused },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "titan", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
