/* SPDX-License-Identifier: Apache-2.0
 * What waits for the gradients of weights, against closed forms that count by hand what the store
 * of Transformer Engine and that of the Zero Bubble fork of Megatron-LM hold. */
#include "config.h"

#include "sim/model/chunk.h"
#include "tests/cutap.h"
#include "tests/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { S = 128, H = 512, HEADS = 8, GROUPS = 2, D = 64, FFN = 1024, VOCAB = 1024 };

/* One layer on each of three pipeline stages; the one in the middle has nothing else. */
static const char base[] =
    "num_layers=3 pp=3 hidden_size=512 num_attention_heads=8 num_query_groups=2 kv_channels=64 "
    "ffn_hidden_size=1024 vocab_size=1024 seq_length=128 hidden_dropout=0 attention_dropout=0 "
    "activation_func=swiglu normalization=RMSNorm position_embedding_type=rope "
    "add_bias_linear=false untie_embeddings_and_output_weights=true pipeline_schedule=zb-h1 "
    "gpu=h100-80gb-sxm";

/* Bytes that the tape leaves, on top of `bytes`; *most_p = the most on the way. */
static uint64_t play(const sim_tape_t *tape, const sim_tape_tensors_t *of, uint64_t bytes,
                     uint64_t *most_p)
{
    uint64_t most = bytes;
    for (uint32_t i = 0; i < tape->n_ops; i++) {
        const sim_op_t *op = &tape->ops[i];
        if (op->kind == SIM_OP_ALLOC)
            bytes += op->bytes;
        else if (op->kind == SIM_OP_FREE)
            bytes -= of->tensors[op->tensor].bytes;
        most = bytes > most ? bytes : most;
    }
    *most_p = most;
    return bytes;
}

typedef struct {
    uint64_t saved;   /* after the forward pass, its output included */
    uint64_t waiting; /* after the backward pass, without the gradient of the input */
    uint64_t left;    /* after the gradients of weights */
    uint64_t most_weights;
    uint32_t borders;
} held_t;

static held_t held_on_stage(const char *settings, uint32_t stage)
{
    sim_scenario_t s;
    sim_dims_t d;
    sim_chunk_t chunk;
    sim_persistent_t persistent = { 0 };
    base_err_t err;
    settings_accepted(&s, base, settings);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    sim_chunk_init(&chunk, &s, &d, topo_stages_chunk(&s.stages, stage, 0), 0, &persistent);
    held_t held = { .borders = chunk.split.borders };
    uint64_t most, out = chunk.place.has_loss ? 0 : d.hidden_bytes;
    uint64_t in_grad = chunk.place.has_embedding ? 0 : d.hidden_bytes;
    held.saved = play(&chunk.forward, &chunk.of, 0, &most);
    uint64_t after = play(&chunk.split.backward, &chunk.split.of, held.saved, &most);
    held.waiting = after - out - in_grad;
    held.left =
        play(&chunk.split.weights, &chunk.split.of, after, &held.most_weights) - out - in_grad;
    held.most_weights -= out + in_grad;
    /* A backward pass in one leaves nothing. */
    CU_ASSERT_EQUAL(play(&chunk.backward, &chunk.of, held.saved, &most), out + in_grad);
    sim_chunk_fini(&chunk);
    sim_persistent_fini(&persistent);
    sim_scenario_fini(&s);
    return held;
}

static held_t expect_on_stage(const char *settings, uint32_t stage, uint64_t waiting)
{
    held_t held = held_on_stage(settings, stage);
    if (held.waiting != waiting)
        printf("# %s: %" PRIu64 " wait, not %" PRIu64 "\n", settings, held.waiting, waiting);
    CU_ASSERT_EQUAL(held.waiting, waiting);
    CU_ASSERT_EQUAL(held.left, 0);
    CU_ASSERT_EQUAL(held.most_weights, waiting);
    return held;
}

static held_t expect(const char *settings, uint64_t waiting)
{
    return expect_on_stage(settings, 1, waiting);
}

/* Elements of both operands of the four products, by rows of column-parallel inputs, of what lies
 * between the linears, and of gradients of row-parallel outputs. */
static uint64_t operands(uint64_t in_rows, uint64_t rows, uint64_t row_grads, uint64_t tp)
{
    uint64_t qkv = in_rows * H + rows * (HEADS + 2 * GROUPS) * D / tp;
    uint64_t proj = rows * HEADS * D / tp + row_grads * H;
    uint64_t fc1 = in_rows * H + rows * 2 * FFN / tp;
    uint64_t fc2 = rows * FFN / tp + row_grads * H;
    return qkv + proj + fc1 + fc2;
}

/* [ln_out_total, grad_output], [inputmat_total, grad_output]: gathered with sequence parallelism.
 * The gradient of the layer's output is the one that came from the next stage, whose memory is not
 * the tape's. */
static void transformer_engine_keeps_gathered_operands(void)
{
    held_t held = expect("world_size=3", 2 * operands(S, S, S, 1) - 2 * S * H);
    CU_ASSERT_EQUAL(held.borders, 1U << SIM_SLOT_OUTPUT_GRAD);
    expect("world_size=6 tp=2", 2 * operands(S, S, S, 2) - 2 * S * H);
    held = expect("world_size=6 tp=2 sequence_parallel=true", 2 * operands(S, S, S, 2));
    CU_ASSERT_EQUAL(held.borders, 0);
}

/* The input is kept as it was saved, a part of the sequence, and gathered again. */
static void own_linears_keep_their_part_of_the_input(void)
{
    expect("world_size=3 transformer_impl=local", 2 * operands(S, S, S, 1) - 2 * S * H);
    expect("world_size=6 tp=2 sequence_parallel=true transformer_impl=local",
           2 * operands(S / 2, S, S, 2));
}

/* The input that the forward pass has quantised; gradients are quantised by rows and by columns,
 * and stay so. Hopper's tensors of one scale keep a byte an element each way. */
static void quantised_operands_are_smaller(void)
{
    held_t fp8 = held_on_stage("world_size=3 fp8=hybrid fp8_recipe=delayed", 1);
    uint64_t inputs = S * (2 * H + HEADS * D + FFN);
    uint64_t grads = S * ((HEADS + 2 * GROUPS) * D + 2 * FFN + 2 * H);
    if (fp8.waiting != inputs + 2 * grads)
        printf("# fp8: %" PRIu64 " wait, not %" PRIu64 "\n", fp8.waiting, inputs + 2 * grads);
    CU_ASSERT_EQUAL(fp8.waiting, inputs + 2 * grads);
    CU_ASSERT_EQUAL(fp8.left, 0);
    CU_ASSERT_EQUAL(fp8.borders, 0);
}

/* The output layer is Megatron-LM's own: Transformer Engine's store does not have it, the fork's
 * does. */
static void output_layer_waits_in_the_fork_only(void)
{
    uint64_t layer = 2 * operands(S, S, S, 1);
    uint64_t output = 2 * S * (H + VOCAB);
    held_t te = held_on_stage("world_size=3", 2),
           own = held_on_stage("world_size=3 transformer_impl=local", 2);
    CU_ASSERT_EQUAL(te.waiting, layer);
    CU_ASSERT_EQUAL(own.waiting, layer + output);
}

/* What was recomputed for the backward pass waits as what was saved. */
static void recompute_frees_nothing_of_it(void)
{
    uint64_t all = 2 * operands(S, S, S, 1) - 2 * S * H;
    expect("world_size=3 recompute_granularity=full recompute_method=uniform "
           "recompute_num_layers=1",
           all);
    expect("world_size=3 recompute_granularity=selective recompute_modules=core_attn", all);
}

/* Place of the last allocation or free of a tensor of that name in the backward pass. */
static uint32_t place_of(const sim_chunk_t *chunk, const char *name, sim_op_kind_t kind)
{
    uint32_t place = UINT32_MAX;
    for (uint32_t i = 0; i < chunk->backward.n_ops; i++) {
        const sim_op_t *op = &chunk->backward.ops[i];
        if (op->kind == kind && (kind == SIM_OP_ALLOC || kind == SIM_OP_FREE) &&
            strcmp(chunk->of.tensors[op->tensor].name, name) == 0)
            place = i;
    }
    CU_ASSERT_NOT_EQUAL(place, UINT32_MAX);
    return place;
}

/* Operands of the experts' products, and unfused gradients, outlive the exchange of tokens, but not
 * the permutation before it. */
static void experts_wait_for_the_exchange(void)
{
    static const char moe[] =
        "world_size=6 num_experts=8 moe_router_topk=2 moe_ffn_hidden_size=256 "
        "expert_model_parallel_size=2 moe_grouped_gemm=true moe_token_dispatcher_type=alltoall "
        "global_batch_size=2 pipeline_schedule=1f1b gradient_accumulation_fusion=false "
        "overlap_dispatch_backward_with_experts_wgrad=";
    static const char *const operands_of[] = { "act_out", "d_fc1_out", "weight_grads" };
    for (int delays = 0; delays < 2; delays++) {
        char settings[512];
        sim_scenario_t s;
        sim_dims_t d;
        sim_chunk_t chunk;
        sim_persistent_t persistent = { 0 };
        snprintf(settings, sizeof(settings), "%s%s", moe, delays ? "true" : "false");
        settings_accepted(&s, base, settings);
        CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, NULL), BASE_OK);
        sim_chunk_init(&chunk, &s, &d, topo_stages_chunk(&s.stages, 1, 0), 0, &persistent);
        uint32_t exchange = place_of(&chunk, "d_permuted", SIM_OP_ALLOC);
        uint32_t permutation = place_of(&chunk, "d_dispatched", SIM_OP_ALLOC);
        for (int i = 0; i < 3; i++) {
            uint32_t freed = place_of(&chunk, operands_of[i], SIM_OP_FREE);
            CU_ASSERT_EQUAL(freed > exchange, delays);
            CU_ASSERT_TRUE(freed < permutation);
        }
        sim_chunk_fini(&chunk);
        sim_persistent_fini(&persistent);
        sim_scenario_fini(&s);
    }
}

static CU_TestInfo tests[] = {
    { "Transformer Engine keeps gathered operands", transformer_engine_keeps_gathered_operands },
    { "Megatron-LM's own linears keep their part of the input",
      own_linears_keep_their_part_of_the_input },
    { "quantised operands are smaller", quantised_operands_are_smaller },
    { "the output layer waits in the fork only", output_layer_waits_in_the_fork_only },
    { "experts wait for the exchange", experts_wait_for_the_exchange },
    { "recompute frees nothing of it", recompute_frees_nothing_of_it },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "weights", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
