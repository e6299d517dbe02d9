/* SPDX-License-Identifier: Apache-2.0
 * Mixture of experts, multi-latent attention and multi-token prediction: what a layer saves and
 * holds against sums made by hand, tensor by tensor. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/engine/simulate.h"
#include "sim/model/chunk.h"
#include "tests/cutap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One layer of a small model: sizes are multiples of 512 bytes, so that sums are exact. */
enum {
    SEQ = 256,
    H = 512,
    HEADS = 8,
    FM = 256, /* width of an expert */
    E = 16,   /* experts */
    K = 4,    /* of a token */
    Q_RANK = 192,
    KV_RANK = 128,
    NOPE = 64,
    ROPE = 32,
    V = 48,
    BF16 = 2,
    FP32 = 4,
    INT32 = 4,
    INT64 = 8,
};

static const char *const base_settings[] = {
    "num_layers=1",
    "hidden_size=512",
    "num_attention_heads=8",
    "ffn_hidden_size=1024",
    "vocab_size=1024",
    "seq_length=256",
    "normalization=RMSNorm",
    "activation_func=swiglu",
    "position_embedding_type=rope",
    "add_bias_linear=false",
    "hidden_dropout=0",
    "attention_dropout=0",
    "attention_backend=fused",
    "untie_embeddings_and_output_weights=true",
    "num_experts=16",
    "moe_router_topk=4",
    "moe_ffn_hidden_size=256",
    "moe_grouped_gemm=true",
    "moe_permute_fusion=true",
    "moe_token_dispatcher_type=alltoall",
    "world_size=8",
    "use_distributed_optimizer=true",
    NULL,
};

static void set_all(sim_scenario_t *s, const char *const *settings, base_diag_t *diag)
{
    for (; *settings != NULL; settings++)
        sim_scenario_set_text(s, *settings, "test", diag);
}

/* The small model with `more` settings, NULL at the end. */
static void make(sim_scenario_t *s, const char *const *more)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(s);
    set_all(s, base_settings, &diag);
    set_all(s, more, &diag);
    bool ok = sim_scenario_resolve(s, &diag);
    for (size_t i = 0; i < diag.n; i++)
        printf("# %s\n", diag.text[i]);
    CU_ASSERT_TRUE_FATAL(ok);
    base_diag_fini(&diag);
}

/* Bytes that a forward pass leaves to its backward pass: all that is still allocated when its tape
 * ends, but for the output that goes to the next stage. */
static uint64_t live_after_forward(const sim_chunk_t *c)
{
    uint64_t *slots = base_xcalloc(c->n_slots, sizeof(*slots)), sum = 0;
    for (uint32_t i = 0; i < c->forward.n_ops; i++) {
        const sim_op_t *op = &c->forward.ops[i];
        if (op->kind == SIM_OP_ALLOC)
            slots[op->slot] = op->bytes;
        else if (op->kind == SIM_OP_FREE)
            slots[op->slot] = 0;
    }
    for (uint32_t i = SIM_N_SLOTS_FIXED; i < c->n_slots; i++)
        sum += slots[i];
    free(slots);
    return sum;
}

/* What one layer without embedding and loss saves. The input belongs to the schedule and is not
 * counted. */
static uint64_t saved_bytes(const char *const *more)
{
    sim_scenario_t s;
    make(&s, more);
    sim_dims_t dims;
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&dims, &s, &err), BASE_OK);
    const topo_chunk_t place = { .n_layers = 1 };
    sim_persistent_t persistent = { 0 };
    sim_chunk_t chunk;
    sim_chunk_init(&chunk, &s, &dims, &place, 0, &persistent);
    uint64_t bytes = live_after_forward(&chunk);
    sim_chunk_fini(&chunk);
    sim_persistent_fini(&persistent);
    sim_scenario_fini(&s);
    return bytes;
}

static void check_saved(const char *const *more, uint64_t expected)
{
    uint64_t bytes = saved_bytes(more);
    if (bytes != expected)
        printf("# %s: %llu saved, %llu expected\n", more[0], (unsigned long long)bytes,
               (unsigned long long)expected);
    CU_ASSERT_EQUAL(bytes, expected);
}

/* Grouped-query attention of the small model, without its input: normed input and statistics,
 * rotated q and k, v, context, log-sum-exp, and the residual sum. */
static uint64_t attention_by_hand(uint64_t t)
{
    return t * H * BF16 + t * FP32 + 3 * t * H * BF16 + t * H * BF16 + t * HEADS * FP32 +
           t * H * BF16;
}

/* Router of softmax after the choice: probabilities of the chosen ones in fp32, and indices; norm
 * output and statistics. */
static uint64_t router_by_hand(uint64_t t)
{
    return t * H * BF16 + t * FP32 + t * K * (INT64 + FP32);
}

/* Input, first linear's output, activation and probabilities of `rows` rows. */
static uint64_t experts_by_hand(uint64_t rows)
{
    return rows * (H + 2 * FM + FM) * BF16 + rows * BF16;
}

static void alltoall_saves_rows_in_the_order_of_experts(void)
{
    uint64_t t = SEQ, rows = t * K;
    uint64_t map = t * (2 * E + 1) * INT32, sort_map = rows * INT32;
    uint64_t by_hand = attention_by_hand(t) + router_by_hand(t) + experts_by_hand(rows);
    check_saved((const char *[]){ "expert_model_parallel_size=4", NULL }, by_hand + map + sort_map);
    /* With one expert a rank what has been received needs no order. */
    check_saved((const char *[]){ "num_experts=8", "expert_model_parallel_size=8", NULL },
                by_hand + t * (2 * 8 + 1) * INT32);
    /* Unfused, the sorted table of all pairs stays, and the indices of tokens. */
    check_saved(
        (const char *[]){ "expert_model_parallel_size=4", "moe_permute_fusion=false", NULL },
        by_hand + t * E * INT64 + rows * INT64);
}

static void experts_can_be_split_over_ranks(void)
{
    /* Two tensor parallel ranks with half of the sequence each; an expert's halves see the rows of
     * both. */
    uint64_t t = SEQ / 2, rows = 2 * t * K;
    uint64_t attention =
        2 * t * H * BF16 + t * FP32 + 4 * t * H * BF16 + 2 * t * (HEADS / 2) * FP32;
    uint64_t experts = rows * (H + 3 * FM / 2) * BF16 + rows * BF16;
    check_saved((const char *[]){ "tensor_model_parallel_size=2", "sequence_parallel=true",
                                  "expert_model_parallel_size=4", NULL },
                attention + router_by_hand(t) + experts + t * (2 * E + 1) * INT32 + rows * INT32);
}

static void allgather_saves_the_local_map(void)
{
    uint64_t t = SEQ, group = 4 * t, local = E / 4, rows = t * K;
    check_saved((const char *[]){ "expert_model_parallel_size=4",
                                  "moe_token_dispatcher_type=allgather", NULL },
                attention_by_hand(t) + router_by_hand(t) + experts_by_hand(rows) +
                    group * (2 * local + 1) * INT32 + group * local);
}

static void capacity_is_independent_of_routing(void)
{
    /* 1.5 times an even share: 96 tokens of each expert from each rank. */
    uint64_t t = SEQ, capacity = t * K / E * 3 / 2, rows = capacity * E;
    check_saved((const char *[]){ "expert_model_parallel_size=4", "moe_permute_fusion=false",
                                  "moe_expert_capacity_factor=1.5",
                                  "moe_pad_expert_input_to_capacity=true", "moe_imbalance=3",
                                  NULL },
                attention_by_hand(t) + router_by_hand(t) + experts_by_hand(rows) + rows * INT64);
}

static void shared_experts_add_their_own(void)
{
    const uint64_t t = SEQ, fs = 384;
    uint64_t base = saved_bytes((const char *[]){ "expert_model_parallel_size=4", NULL });
    uint64_t own = t * 3 * fs * BF16;
    const char *plain[] = { "expert_model_parallel_size=4",
                            "moe_shared_expert_intermediate_size=384", NULL };
    check_saved(plain, base + own);
    const char *again[] = { plain[0], plain[1], "recompute_granularity=selective",
                            "recompute_modules=shared_experts", NULL };
    check_saved(again, base);
    /* Overlapped with tensor parallelism, the gathered input is saved too. */
    const char *tp[] = { plain[0], "tensor_model_parallel_size=2", "sequence_parallel=true", NULL };
    const char *overlap[] = {
        tp[0], tp[1], tp[2], plain[1], "moe_shared_expert_overlap=true", NULL
    };
    check_saved(overlap, saved_bytes(tp) + own / 2 + t * H * BF16);
}

static void recomputed_modules_are_not_saved(void)
{
    const uint64_t t = SEQ, rows = t * K;
    const char *ep = "expert_model_parallel_size=4", *on = "recompute_granularity=selective";
    uint64_t base = saved_bytes((const char *[]){ ep, NULL });
    check_saved((const char *[]){ ep, on, "recompute_modules=moe_act", NULL },
                base - rows * FM * BF16);
    check_saved((const char *[]){ ep, on, "recompute_modules=layernorm", NULL },
                base - t * H * BF16);
    /* Only the norm's output, the checkpoint's input, and its statistics are left. */
    check_saved((const char *[]){ ep, on, "recompute_modules=moe", NULL },
                attention_by_hand(t) + t * H * BF16 + t * FP32);
}

#define MLA                                                                                        \
    "multi_latent_attention=true", "qk_layernorm=true", "kv_lora_rank=128", "qk_head_dim=64",      \
        "qk_pos_emb_head_dim=32", "v_head_dim=48"

static uint64_t mla_by_hand(uint64_t t, uint64_t q_rank)
{
    uint64_t norm = t * H * BF16 + t * FP32;
    uint64_t latents = 2 * t * q_rank * BF16 + (q_rank > 0 ? t * FP32 : 0) +
                       t * (KV_RANK + ROPE) * BF16 + t * KV_RANK * BF16 + t * FP32;
    uint64_t heads = t * HEADS * (2 * (NOPE + ROPE) + V) * BF16;
    uint64_t out = t * HEADS * V * BF16 + t * HEADS * FP32;
    return norm + latents + heads + out;
}

static void latent_attention_saves_compressed_and_full_heads(void)
{
    const uint64_t t = SEQ, mlp = 2 * t * H * BF16 + t * FP32 + 3 * t * 1024 * BF16;
    check_saved((const char *[]){ MLA, "num_experts=0", "q_lora_rank=192", NULL },
                mla_by_hand(t, Q_RANK) + mlp);
    check_saved((const char *[]){ MLA, "num_experts=0", NULL }, mla_by_hand(t, 0) + mlp);
    check_saved((const char *[]){ MLA, "num_experts=0", "q_lora_rank=192",
                                  "recompute_granularity=selective",
                                  "recompute_modules=mla_up_proj", NULL },
                mla_by_hand(t, Q_RANK) + mlp - t * HEADS * (2 * (NOPE + ROPE) + V) * BF16 -
                    t * (Q_RANK + KV_RANK) * BF16 - 2 * t * FP32);
}

/* The inputs of the core are saved as they are gathered, or as the ring or the exchange copies
 * them; the exchange also has the context in both orders. What is copied outlives a recomputation.
 */
static void latent_attention_under_context_parallelism(void)
{
#define CP       MLA, "num_experts=0", "q_lora_rank=192", "context_parallel_size=2"
#define UP_AGAIN "recompute_granularity=selective", "recompute_modules=mla_up_proj"
    const uint64_t t = SEQ / 2, mlp = 2 * t * H * BF16 + t * FP32 + 3 * t * 1024 * BF16;
    const uint64_t qk = t * HEADS * (NOPE + ROPE) * BF16, v = t * HEADS * V * BF16;
    const uint64_t all = mla_by_hand(t, Q_RANK) + mlp;
    const uint64_t again = all - t * (Q_RANK + KV_RANK) * BF16 - 2 * t * FP32;
    check_saved((const char *[]){ CP, "cp_comm_type=p2p", NULL }, all);
    check_saved((const char *[]){ CP, "cp_comm_type=all_gather", NULL }, all);
    check_saved((const char *[]){ CP, "cp_comm_type=a2a", NULL }, all + v);
    check_saved((const char *[]){ CP, "cp_comm_type=p2p", UP_AGAIN, NULL }, again - qk);
    check_saved((const char *[]){ CP, "cp_comm_type=all_gather", UP_AGAIN, NULL },
                again - 2 * qk - v);
    check_saved((const char *[]){ CP, "cp_comm_type=a2a", UP_AGAIN, NULL }, again + v);
}

/* As the models' own files say, without what is no parameter: the router's bias for balance and
 * attention sinks; DeepSeek-V3 and GLM share embedding and output layer with multi-token
 * prediction. */
static const struct {
    const char *preset;
    uint64_t parameters;
} totals[] = {
    { "mixtral-8x7b", 46702792704 },
    { "mixtral-8x22b", 140620634112 },
    { "deepseek-v2", 235741434880 },
    { "deepseek-v2-lite", 15706484224 },
    { "kimi-k2", 1026408232448 - 384 * 60 },
    { "qwen3-30b-a3b", 30532122624 },
    { "qwen3-235b-a22b", 235093634560 },
    { "gpt-oss-20b", 20914757184 - 24 * 64 },
    { "gpt-oss-120b", 116829156672 - 36 * 64 },
};

static void presets_have_the_models_parameters(void)
{
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        sim_scenario_t s;
        base_diag_t diag;
        base_diag_init(&diag);
        sim_scenario_init(&s);
        sim_scenario_set(&s, "model", "preset", totals[i].preset, "test", &diag);
        set_all(&s,
                (const char *[]){ "world_size=1", "seq_length=128", "padded_vocab_size=0",
                                  "make_vocab_size_divisible_by=1", NULL },
                &diag);
        CU_ASSERT_TRUE_FATAL(sim_scenario_resolve(&s, &diag));
        sim_dims_t dims;
        base_err_t err;
        CU_ASSERT_EQUAL_FATAL(sim_dims_init(&dims, &s, &err), BASE_OK);
        sim_params_t params;
        sim_params_init(&params, &s, &dims, topo_stages_chunk(&s.stages, 0, 0));
        CU_ASSERT_EQUAL(params.n_elements, totals[i].parameters);
        sim_params_fini(&params);
        sim_scenario_fini(&s);
        base_diag_fini(&diag);
    }
}

static uint64_t peak(const char *const *more, uint32_t rank)
{
    sim_scenario_t s;
    make(&s, more);
    sim_simulate_options_t options = { .unlimited = true };
    sim_rank_result_t r;
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, rank, &options, &r, &err), BASE_OK);
    uint64_t bytes = r.max_allocated_bytes;
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return bytes;
}

static void the_hottest_rank_holds_most(void)
{
    const char *ep = "expert_model_parallel_size=4";
    uint64_t even = peak((const char *[]){ ep, NULL }, 0);
    CU_ASSERT_EQUAL(peak((const char *[]){ ep, "moe_imbalance=1", NULL }, 0), even);
    CU_ASSERT_TRUE(peak((const char *[]){ ep, "moe_imbalance=1.5", NULL }, 0) > even);
    const char *list = "moe_imbalance=1 2 0.5 0.5";
    CU_ASSERT_EQUAL(peak((const char *[]){ ep, list, NULL }, 0), even);
    CU_ASSERT_TRUE(peak((const char *[]){ ep, list, NULL }, 1) > even);
    CU_ASSERT_TRUE(peak((const char *[]){ ep, list, NULL }, 2) < even);
    /* Tokens of each expert: the second rank's four have half of all. */
    const char *tokens = "moe_imbalance=tokens: 1 1 1 1 3 3 3 3 1 1 1 1 1 1 1 1";
    CU_ASSERT_EQUAL(peak((const char *[]){ ep, tokens, NULL }, 1),
                    peak((const char *[]){ ep, list, NULL }, 1));
}

static void check_draw(const char *text, double spread_at_least)
{
    const sim_routing_config_t config = { .n_layers = 3, .n_ranks = 4, .n_experts = 16, .topk = 2 };
    sim_routing_t *a, *b;
    base_err_t err;
    CU_ASSERT_EQUAL_FATAL(sim_routing_create(&a, text, &config, &err), BASE_OK);
    CU_ASSERT_EQUAL_FATAL(sim_routing_create(&b, text, &config, &err), BASE_OK);
    double widest = 0.0;
    for (uint32_t layer = 0; layer < 3; layer++) {
        double sum = 0.0;
        for (uint32_t r = 0; r < 4; r++) {
            double load = a->loads[layer * 4 + r];
            CU_ASSERT_TRUE(load >= 0.0);
            CU_ASSERT_EQUAL(load, b->loads[layer * 4 + r]);
            sum += load;
            widest = fmax(widest, fabs(load - 1.0));
        }
        CU_ASSERT_DOUBLE_EQUAL(sum, 4.0, 1e-9);
    }
    CU_ASSERT_TRUE(widest >= spread_at_least);
    sim_routing_destroy(a);
    sim_routing_destroy(b);
}

static const sim_routing_config_t of_file = {
    .n_layers = 3, .n_ranks = 2, .n_experts = 4, .topk = 2
};

static base_status_t read_file(const char *text, sim_routing_t **routing_p, base_err_t *err)
{
    static const char path[] = "test_moe.routing";
    FILE *f = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    fputs(text, f);
    fclose(f);
    char *value = base_xasprintf("file: %s", path);
    base_status_t status = sim_routing_create(routing_p, value, &of_file, err);
    free(value);
    remove(path);
    return status;
}

static void files_have_a_line_for_each_layer(void)
{
    static const struct {
        const char *text;
        double loads[6];
    } cases[] = {
        { "# experts\n-\n1 1 3 3 # hot\n\n2,0,1,1\n", { 1, 1, 0.5, 1.5, 1, 1 } },
        { "3 0 0\t1", { 1.5, 0.5, 1.5, 0.5, 1.5, 0.5 } },
    };
    for (int i = 0; i < 2; i++) {
        sim_routing_t *r;
        base_err_t err;
        CU_ASSERT_EQUAL_FATAL(read_file(cases[i].text, &r, &err), BASE_OK);
        for (int k = 0; k < 6; k++)
            CU_ASSERT_DOUBLE_EQUAL(r->loads[k], cases[i].loads[k], 1e-12);
        sim_routing_destroy(r);
    }
}

static void files_that_do_not_fit_are_refused(void)
{
    static const char *const cases[][2] = {
        { "1 1 1 1\n1 1 1 1\n", "test_moe.routing: 2 layers; give one for all, or each of the 3" },
        { "1 1 1 1\n1 1 x 1\n-\n", "test_moe.routing:2: \"x 1\" is not a number from 0 to 1e12" },
        { "1 1 1\n", "test_moe.routing:1: tokens of 3 experts, 3 in all; there are 4 experts" },
        { "", "test_moe.routing: 0 layers; give one for all, or each of the 3" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sim_routing_t *r;
        base_err_t err;
        CU_ASSERT_EQUAL_FATAL(read_file(cases[i][0], &r, &err), BASE_ERR_INVAL);
        CU_ASSERT_STRING_EQUAL(err.text, cases[i][1]);
    }
}

static void draws_share_out_all_tokens(void)
{
    check_draw("dirichlet: 1 7", 0.05);
    check_draw("noisy_topk: 1 7", 0.05);
    /* A large concentration and no spread are nearly even. */
    const sim_routing_config_t config = { .n_layers = 1, .n_ranks = 4, .n_experts = 16, .topk = 2 };
    static const char *const even[] = { "dirichlet: 1e6", "noisy_topk: 0" };
    for (int i = 0; i < 2; i++) {
        sim_routing_t *r;
        base_err_t err;
        CU_ASSERT_EQUAL_FATAL(sim_routing_create(&r, even[i], &config, &err), BASE_OK);
        for (int k = 0; k < 4; k++)
            CU_ASSERT_DOUBLE_EQUAL(r->loads[k], 1.0, 0.2);
        sim_routing_destroy(r);
    }
}

static void lists_of_layers_are_read(void)
{
    bool out[5];
    base_err_t err;
    CU_ASSERT_EQUAL(sim_layer_freq_parse("2", 5, out, &err), BASE_OK);
    CU_ASSERT_TRUE(out[0] && !out[1] && out[2] && !out[3] && out[4]);
    CU_ASSERT_EQUAL(sim_layer_freq_parse("([0]*2 + [1, 0, 1])", 5, out, &err), BASE_OK);
    CU_ASSERT_TRUE(!out[0] && !out[1] && out[2] && !out[3] && out[4]);
    CU_ASSERT_EQUAL(sim_layer_freq_parse("[0]*0+[1]*5", 5, out, &err), BASE_OK);
    CU_ASSERT_TRUE(out[0] && out[4]);
    static const char *const wrong[] = { "",      "[1]*4", "[1]*6", "[1]*5 x", "0",
                                         "[1]*x", "[1,2]", "[1",    "1]",      "[1]*99999999999" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        CU_ASSERT_EQUAL(sim_layer_freq_parse(wrong[i], 5, out, &err), BASE_ERR_INVAL);
}

static void token_prediction_adds_a_layer_and_its_loss(void)
{
    uint64_t t = SEQ, u = t * 1024 * BF16;
    const char *ep = "expert_model_parallel_size=4";
    uint64_t without = peak((const char *[]){ ep, "iterations=1", NULL }, 0);
    uint64_t with = peak((const char *[]){ ep, "iterations=1", "mtp_num_layers=1", NULL }, 0);
    /* At least the layer's saved tensors, the fp32 softmax of its loss, and its parameters with
     * gradients. */
    uint64_t layer = saved_bytes((const char *[]){ ep, NULL });
    CU_ASSERT_TRUE(with - without > layer + 2 * u);
}

int main(void)
{
    static CU_TestInfo tests[] = {
        { "all-to-all saves rows in the order of experts",
          alltoall_saves_rows_in_the_order_of_experts },
        { "experts can be split over ranks", experts_can_be_split_over_ranks },
        { "all-gather saves the local map", allgather_saves_the_local_map },
        { "a capacity is independent of routing", capacity_is_independent_of_routing },
        { "shared experts add their own", shared_experts_add_their_own },
        { "recomputed modules are not saved", recomputed_modules_are_not_saved },
        { "latent attention saves compressed tensors and full heads",
          latent_attention_saves_compressed_and_full_heads },
        { "latent attention under context parallelism",
          latent_attention_under_context_parallelism },
        { "presets have the models' parameters", presets_have_the_models_parameters },
        { "the hottest rank holds most", the_hottest_rank_holds_most },
        { "files have a line for each layer", files_have_a_line_for_each_layer },
        { "files that do not fit are refused", files_that_do_not_fit_are_refused },
        { "draws share out all tokens", draws_share_out_all_tokens },
        { "lists of layers are read", lists_of_layers_are_read },
        { "token prediction adds a layer and its loss",
          token_prediction_adds_a_layer_and_its_loss },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "moe", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
