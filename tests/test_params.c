/* SPDX-License-Identifier: Apache-2.0
 * The parameters of all ranks together are those that the models' publishers count. */
#include "config.h"

#include "sim/model/params.h"

#include "tests/cutap.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void scenario_init(sim_scenario_t *s, const char *settings)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(s);
    char *text = strdup(settings), *rest = NULL;
    bool ok = true;
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        ok = sim_scenario_set_text(s, word, "test", &diag) && ok;
    ok = ok && sim_scenario_resolve(s, &diag);
    if (!ok)
        printf("# %s\n# %s\n", settings, diag.text[0]);
    CU_ASSERT_TRUE_FATAL(ok);
    free(text);
    base_diag_fini(&diag);
}

/* How many ranks hold a part of this parameter: 1 = every rank of a tensor-parallel group has all
 * of it. */
static uint64_t n_parts(const sim_scenario_t *s, const sim_param_t *p)
{
    static const char *const whole[] = { "norm",   "proj.bias", "fc2.bias",          "position",
                                         "router", "down_proj", "latent_proj",       "gate_weight",
                                         "hnorm.", "enorm.",    "up_proj.layer_norm" };
    if (strncmp(p->name, "experts.", 8) == 0)
        return s->expert_tensor_parallel_size * s->expert_model_parallel_size;
    if (strcmp(p->name, "mixer.norm.weight") == 0)
        return s->tensor_model_parallel_size;
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        if (strstr(p->name, whole[i]) != NULL)
            return 1;
    }
    return s->tensor_model_parallel_size;
}

/* Parameters of the whole model: what one rank of every stage has, times the parts, without the
 * second copy of a tied embedding. */
static uint64_t count_all(const char *settings)
{
    sim_scenario_t s;
    sim_dims_t d;
    base_err_t err;
    uint64_t sum = 0, embeddings = 0;
    scenario_init(&s, settings);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    for (uint32_t pp = 0; pp < s.pipeline_model_parallel_size; pp++) {
        for (uint32_t c = 0; c < s.stages.vpp; c++) {
            sim_params_t params;
            uint64_t rank_sum = 0;
            sim_params_init(&params, &s, &d, topo_stages_chunk(&s.stages, pp, c));
            for (uint32_t i = 0; i < params.n; i++) {
                const sim_param_t *p = &params.params[i];
                rank_sum += p->n_elements;
                if (!p->is_shared_embedding || embeddings++ == 0)
                    sum += p->n_elements * n_parts(&s, p);
            }
            CU_ASSERT_EQUAL(rank_sum, params.n_elements);
            sim_params_fini(&params);
        }
    }
    sim_scenario_fini(&s);
    return sum;
}

static void check_counts(const char *model, const char *const *layouts, uint64_t expected)
{
    for (; *layouts != NULL; layouts++) {
        char settings[1024];
        snprintf(settings, sizeof(settings), "%s seq_length=2048 %s", model, *layouts);
        uint64_t n = count_all(settings);
        if (n != expected)
            printf("# %s: %" PRIu64 ", not %" PRIu64 "\n", settings, n, expected);
        CU_ASSERT_EQUAL(n, expected);
    }
}

static const char *const dense_layouts[] = {
    "world_size=8",
    "world_size=16 tp=8 sequence_parallel=true",
    "world_size=64 tp=2 pp=4",
    "world_size=64 tp=4 pp=2 vpp=2 global_batch_size=64",
    NULL,
};

/* Sums of the tensors in the published checkpoints; GPT-3: 12 L h^2 + 13 L h + (V + s) h + 2 h with
 * its 50,257 tokens and 2,048 positions (the paper's 175B). */
static void published_dense_models(void)
{
    static const struct {
        const char *model;
        uint64_t n;
    } models[] = {
        { "preset=llama2-7b padded_vocab_size=32000", 6738415616 },
        { "preset=llama2-70b padded_vocab_size=32000", 68976648192 },
        { "preset=llama3-8b padded_vocab_size=128256", 8030261248 },
        { "preset=llama3-70b padded_vocab_size=128256", 70553706496 },
        { "preset=llama3.2-1b padded_vocab_size=128256", 1235814400 },
        { "preset=mistral-7b padded_vocab_size=32000", 7241732096 },
        { "preset=qwen3-0.6b padded_vocab_size=151936", 596049920 },
        { "preset=qwen3-8b padded_vocab_size=151936", 8190735360 },
    };
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        check_counts(models[i].model, dense_layouts, models[i].n);
}

static void gpt3_with_its_own_vocabulary(void)
{
    static const char *const one[] = { "world_size=8 make_vocab_size_divisible_by=1", NULL };
    check_counts("preset=gpt3-175b", one, 174604259328);
}

static const char mixtral_8x7b[] =
    "num_layers=32 hidden_size=4096 ffn_hidden_size=14336 num_attention_heads=32 "
    "num_query_groups=8 vocab_size=32000 padded_vocab_size=32000 num_experts=8 "
    "activation_func=swiglu "
    "add_bias_linear=false normalization=RMSNorm position_embedding_type=rope "
    "untie_embeddings_and_output_weights=true";
static const char qwen3_30b_a3b[] =
    "num_layers=48 hidden_size=2048 ffn_hidden_size=6144 num_attention_heads=32 "
    "num_query_groups=4 kv_channels=128 vocab_size=151936 padded_vocab_size=151936 num_experts=128 "
    "moe_router_topk=8 moe_ffn_hidden_size=768 activation_func=swiglu add_bias_linear=false "
    "normalization=RMSNorm position_embedding_type=rope qk_layernorm=true "
    "untie_embeddings_and_output_weights=true";

static void published_mixtures_of_experts(void)
{
    static const char *const layouts[] = {
        "world_size=8",
        "world_size=8 ep=8 moe_grouped_gemm=true",
        "world_size=64 pp=4 ep=8 vpp=2 global_batch_size=64",
        "world_size=64 tp=2 pp=2 ep=4 etp=1 sequence_parallel=true",
        NULL,
    };
    check_counts(mixtral_8x7b, layouts, 46702792704);
    check_counts(qwen3_30b_a3b, layouts, 30532122624);
}

/* DeepSeek-V3 without its multi-token prediction module; the checkpoint counts also 58 * 256 biases
 * of the routers, which are buffers here. */
static void published_latent_attention(void)
{
    static const char *const layouts[] = {
        "world_size=8",
        "world_size=64 tp=2 ep=16 etp=1 sequence_parallel=true moe_grouped_gemm=true",
        NULL,
    };
    static const char deepseek_v3[] =
        "num_layers=61 hidden_size=7168 ffn_hidden_size=18432 num_attention_heads=128 "
        "multi_latent_attention=true q_lora_rank=1536 kv_lora_rank=512 qk_head_dim=128 "
        "qk_pos_emb_head_dim=64 v_head_dim=128 qk_layernorm=true vocab_size=129280 "
        "padded_vocab_size=129280 num_experts=256 moe_router_topk=8 moe_ffn_hidden_size=2048 "
        "moe_shared_expert_intermediate_size=2048 moe_layer_freq=[0]*3+[1]*58 "
        "activation_func=swiglu add_bias_linear=false normalization=RMSNorm "
        "position_embedding_type=rope untie_embeddings_and_output_weights=true";
    check_counts(deepseek_v3, layouts, UINT64_C(671026419200) - 58 * 256);
}

static void published_linear_attention(void)
{
    static const char *const layouts[] = {
        "world_size=8",
        "world_size=64 tp=2 pp=2 ep=16 etp=1 sequence_parallel=true moe_grouped_gemm=true",
        NULL,
    };
    check_counts("preset=qwen3-next-80b-a3b padded_vocab_size=151936", layouts,
                 UINT64_C(79674391296));
}

/* GPT-2's 50,257 tokens: the next multiple of 128 times the tensor-parallel size. */
static void vocabulary_is_padded(void)
{
    static const struct {
        const char *settings;
        uint64_t padded;
    } cases[] = {
        { "world_size=1", 50304 },
        { "world_size=2 tp=2", 50432 },
        { "world_size=4 tp=4", 50688 },
        { "world_size=1 make_vocab_size_divisible_by=1", 50257 },
        { "world_size=4 tp=4 make_vocab_size_divisible_by=1", 50260 },
        { "world_size=2 tp=2 padded_vocab_size=60000", 60000 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char settings[256];
        sim_scenario_t s;
        sim_dims_t d;
        base_err_t err;
        snprintf(settings, sizeof(settings), "preset=gpt3-125m seq_length=1024 %s",
                 cases[i].settings);
        scenario_init(&s, settings);
        CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
        CU_ASSERT_EQUAL(d.padded_vocab, cases[i].padded);
        CU_ASSERT_EQUAL(d.vocab_tp * d.tp, cases[i].padded);
        sim_scenario_fini(&s);
    }
}

/* Eight heads and two groups over four ranks: the weight is cut evenly, though a rank's attention
 * sees a whole group. */
static void fewer_groups_than_tensor_parallel_ranks(void)
{
    static const char small[] = "num_layers=1 hidden_size=64 num_attention_heads=8 "
                                "num_query_groups=2 kv_channels=8 ffn_hidden_size=128 "
                                "vocab_size=512 position_embedding_type=none "
                                "add_bias_linear=false normalization=RMSNorm seq_length=64 "
                                "world_size=4 tp=4";
    sim_scenario_t s;
    sim_dims_t d;
    base_err_t err;
    sim_params_t params;
    scenario_init(&s, small);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    CU_ASSERT_EQUAL(d.heads_tp, 2);
    CU_ASSERT_EQUAL(d.groups_tp, 1);
    sim_params_init(&params, &s, &d, topo_stages_chunk(&s.stages, 0, 0));
    const uint64_t expected[] = { 128 * 64,          /* embedding, also output */
                                  64 * 16,  64,      /* projection; norm */
                                  24 * 64,  64,      /* (8 + 2 * 2) * 8 / 4 rows; norm */
                                  32 * 64,  64 * 32, /* MLP */
                                  64 };              /* final norm */
    CU_ASSERT_EQUAL_FATAL(params.n, sizeof(expected) / sizeof(expected[0]));
    for (uint32_t i = 0; i < params.n; i++)
        CU_ASSERT_EQUAL(params.params[i].n_elements, expected[i]);
    sim_params_fini(&params);
    sim_scenario_fini(&s);
}

/* One rank of a layer with everything: LayerNorm, biases, QK norm, learned positions. */
static void biases_and_norms_are_vectors(void)
{
    static const char small[] = "num_layers=2 hidden_size=64 num_attention_heads=4 "
                                "ffn_hidden_size=256 vocab_size=1000 qk_layernorm=true "
                                "max_position_embeddings=100 seq_length=64 world_size=2 tp=2 "
                                "untie_embeddings_and_output_weights=true";
    sim_scenario_t s;
    sim_dims_t d;
    base_err_t err;
    sim_params_t params;
    scenario_init(&s, small);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    sim_params_init(&params, &s, &d, topo_stages_chunk(&s.stages, 0, 0));
    uint64_t vectors = 0, matrices = 0;
    for (uint32_t i = 0; i < params.n; i++)
        *(params.params[i].is_vector ? &vectors : &matrices) += params.params[i].n_elements;
    uint64_t vocabulary = 1024 / 2;
    uint64_t layer_vectors = 64 + 2 * 64 + 3 * 64 / 2 + 4 * 16 + 2 * 64 + 256 / 2 + 64;
    CU_ASSERT_EQUAL(vectors, 2 * layer_vectors + 2 * 64);
    CU_ASSERT_EQUAL(matrices,
                    2 * vocabulary * 64 + 100 * 64 + 2 * (64 * 32 + 96 * 64 + 128 * 64 + 64 * 128));
    CU_ASSERT_EQUAL(params.n_elements, vectors + matrices);
    sim_params_fini(&params);
    sim_scenario_fini(&s);
}

/* BERT: two types of tokens, a dense head with its norm before the output layer, a bias of the
 * output, and a pooler and two outputs for pairs of sentences. */
static void bert_has_heads(void)
{
    static const char small[] = "num_layers=2 hidden_size=64 num_attention_heads=4 "
                                "ffn_hidden_size=256 vocab_size=1000 max_position_embeddings=100 "
                                "seq_length=64 world_size=2 tp=2 ";
    enum { H = 64, HEADS = 2 * H + H * H + 3 * H + 1024 / 2, PAIRS = 2 * H + 2 + H * H + H };
    static const struct {
        const char *more;
        uint64_t extra;
    } cases[] = {
        { "model_type=gpt", 0 },
        { "model_type=bert", HEADS + PAIRS },
        { "model_type=bert bert_binary_head=false", HEADS - 2 * H },
    };
    uint64_t gpt = 0;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char settings[512];
        sim_scenario_t s;
        sim_dims_t d;
        base_err_t err;
        sim_params_t params;
        snprintf(settings, sizeof(settings), "%s%s", small, cases[i].more);
        scenario_init(&s, settings);
        CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
        sim_params_init(&params, &s, &d, topo_stages_chunk(&s.stages, 0, 0));
        gpt = i == 0 ? params.n_elements : gpt;
        CU_ASSERT_EQUAL(params.n_elements, gpt + cases[i].extra);
        sim_params_fini(&params);
        sim_scenario_fini(&s);
    }
}

/* T5: a decoder layer has three projections of cross attention and their norm beside what any layer
 * has; both stacks end in a norm, and the output has a bias where it is the embedding. */
static void t5_has_two_stacks(void)
{
    static const char small[] = "model_type=t5 num_layers=1 decoder_num_layers=2 hidden_size=64 "
                                "num_attention_heads=4 ffn_hidden_size=256 vocab_size=1000 "
                                "max_position_embeddings=100 seq_length=64 decoder_seq_length=32 "
                                "world_size=2 tp=2";
    enum { H = 64, F = 256 / 2, W = 64 / 2 };
    enum {
        LAYER = (H * W + H) + 2 * H + (3 * W * H + 3 * W) + 2 * H + (F * H + F) + (H * F + H),
        CROSS = 2 * H + (H * W + H) + (W * H + W) + (2 * W * H + 2 * W),
        ENDS = 1024 / 2 * H + 100 * H + 2 * 2 * H + 1024 / 2
    };
    sim_scenario_t s;
    sim_dims_t d;
    base_err_t err;
    sim_params_t params;
    scenario_init(&s, small);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    sim_params_init(&params, &s, &d, topo_stages_chunk(&s.stages, 0, 0));
    CU_ASSERT_EQUAL(params.n_elements, 3 * LAYER + 2 * CROSS + ENDS);
    sim_params_fini(&params);
    sim_scenario_fini(&s);
}

/* One layer of each kind. Mamba-2: 2 * 64 / 16 = 8 heads of 16 channels, 4 groups with a state of
 * 32 numbers; with a pattern that puts them on two stages. */
static void hybrids_have_single_blocks(void)
{
    static const char small[] = "hybrid_layer_pattern=M*|-E hidden_size=64 num_attention_heads=4 "
                                "ffn_hidden_size=256 vocab_size=1000 position_embedding_type=none "
                                "mamba_head_dim=16 mamba_num_groups=4 mamba_state_dim=32 "
                                "add_bias_linear=false activation_func=squared_relu num_experts=2 "
                                "moe_router_topk=1 moe_ffn_hidden_size=32 seq_length=64 "
                                "world_size=4 tp=2 pp=2 sequence_parallel=true etp=1 "
                                "normalization=RMSNorm untie_embeddings_and_output_weights=true";
    enum { H = 64, INNER = 128 / 2, CONV = INNER + 2 * 2 * 32, ROWS = INNER + CONV + 4 };
    enum {
        MAMBA = CONV * 4 + CONV + 3 * 4 + H + ROWS * H + INNER + H * INNER,
        ATTENTION = H * H / 2 + H + 3 * H / 2 * H,
        MLP = H + 128 * H + H * 128,
        MOE = H + 2 * H + 2 * (32 * H + H * 32),
    };
    static const uint64_t expected[] = { 1024 / 2 * H + MAMBA + ATTENTION,
                                         MLP + MOE + H + 1024 / 2 * H };
    sim_scenario_t s;
    sim_dims_t d;
    base_err_t err;
    scenario_init(&s, small);
    CU_ASSERT_EQUAL(s.num_layers, 4);
    CU_ASSERT_EQUAL(s.mamba_num_heads, 8);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    for (uint32_t pp = 0; pp < 2; pp++) {
        sim_params_t params;
        sim_params_init(&params, &s, &d, topo_stages_chunk(&s.stages, pp, 0));
        CU_ASSERT_EQUAL(params.n_elements, expected[pp]);
        sim_params_fini(&params);
    }
    sim_scenario_fini(&s);
}

static uint64_t elements_of(const char *settings)
{
    sim_scenario_t s;
    sim_dims_t d;
    sim_params_t params;
    base_err_t err;
    scenario_init(&s, settings);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    sim_params_init(&params, &s, &d, topo_stages_chunk(&s.stages, 0, 0));
    uint64_t n = params.n_elements;
    sim_params_fini(&params);
    sim_scenario_fini(&s);
    return n;
}

/* A depth of multi-token prediction has two norms, the projection of both, the layers that the
 * pattern names, and a norm; repeated, one serves all depths. */
static void hybrids_predict_further_tokens(void)
{
#define SMALL                                                                                      \
    "hidden_size=64 num_attention_heads=4 ffn_hidden_size=256 vocab_size=1000 "                    \
    "position_embedding_type=none add_bias_linear=false activation_func=squared_relu "             \
    "seq_length=64 world_size=1 normalization=RMSNorm "                                            \
    "untie_embeddings_and_output_weights=true mamba_head_dim=16 mamba_num_groups=4 "               \
    "mamba_state_dim=32 "
    enum { H = 64, ATTENTION = H * H + H + 3 * H * H, MLP = H + 2 * 256 * H };
    uint64_t without = elements_of(SMALL "hybrid_layer_pattern=M*-");
    uint64_t depth = 2 * H + 2 * H * H + ATTENTION + MLP + H;
    CU_ASSERT_EQUAL(elements_of(SMALL "hybrid_layer_pattern=M*-/*-/*-"), without + 2 * depth);
    CU_ASSERT_EQUAL(elements_of(SMALL "hybrid_layer_pattern=M*-/*-/*- mtp_use_repeated_layer=true"),
                    without + depth);
#undef SMALL
}

/* Nemotron-H 8B: 52 layers, of which 24 are Mamba-2, 24 MLPs and 4 attention. */
static void hybrid_in_any_layout(void)
{
    static const char nemotron_h_8b[] =
        "hybrid_layer_pattern=M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M- "
        "hidden_size=4096 num_attention_heads=32 num_query_groups=8 kv_channels=128 "
        "ffn_hidden_size=21504 vocab_size=131072 mamba_num_heads=128 position_embedding_type=none "
        "activation_func=squared_relu add_bias_linear=false normalization=RMSNorm "
        "untie_embeddings_and_output_weights=true";
    static const char *const layouts[] = { "world_size=8", "world_size=8 tp=4",
                                           "world_size=8 tp=2 pp=4 sequence_parallel=true", NULL };
    enum { H = 4096, INNER = 128 * 64, CONV = INNER + 2 * 8 * 128 };
    uint64_t mamba =
        CONV * 5 + 3 * 128 + H + (uint64_t)(INNER + CONV + 128) * H + INNER + (uint64_t)H * INNER;
    uint64_t attention = H + (uint64_t)(32 + 2 * 8) * 128 * H + (uint64_t)H * H;
    uint64_t mlp = H + 2 * (uint64_t)H * 21504;
    uint64_t n = 24 * mamba + 4 * attention + 24 * mlp + 2 * UINT64_C(131072) * H + H;
    check_counts(nemotron_h_8b, layouts, n);
}

/* Nemotron 3 Nano 30B-A3B; the checkpoint's 31,577,940,288 count also 23 * 128 biases of the
 * routers, which are buffers here. */
static void published_hybrid_with_experts(void)
{
    static const char *const layouts[] = {
        "world_size=8",
        "world_size=16 ep=8 moe_grouped_gemm=true",
        "world_size=16 tp=2 pp=2 ep=4 etp=1 sequence_parallel=true",
        NULL,
    };
    static const char nemotron_3_nano[] =
        "hybrid_layer_pattern=MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME "
        "hidden_size=2688 ffn_hidden_size=1856 num_attention_heads=32 num_query_groups=2 "
        "kv_channels=128 vocab_size=131072 mamba_num_heads=64 activation_func=squared_relu "
        "normalization=RMSNorm add_bias_linear=false position_embedding_type=none "
        "num_experts=128 moe_router_topk=6 moe_ffn_hidden_size=1856 "
        "moe_shared_expert_intermediate_size=3712 untie_embeddings_and_output_weights=true";
    check_counts(nemotron_3_nano, layouts, UINT64_C(31577940288) - 23 * 128);
}

static uint32_t n_shared(const sim_params_t *params)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < params->n; i++)
        n += params->params[i].is_shared_embedding;
    return n;
}

static void tied_embeddings_are_copied_to_the_last_stage(void)
{
    static const char tied[] = "preset=gpt3-125m seq_length=1024 world_size=4 pp=4";
    static const char untied[] = "preset=gpt3-125m seq_length=1024 world_size=4 pp=4 "
                                 "untie_embeddings_and_output_weights=true";
    const char *const settings[] = { tied, untied };
    for (int is_untied = 0; is_untied < 2; is_untied++) {
        sim_scenario_t s;
        sim_dims_t d;
        base_err_t err;
        scenario_init(&s, settings[is_untied]);
        CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
        for (uint32_t pp = 0; pp < 4; pp++) {
            sim_params_t params;
            sim_params_init(&params, &s, &d, topo_stages_chunk(&s.stages, pp, 0));
            CU_ASSERT_EQUAL(n_shared(&params), !is_untied && (pp == 0 || pp == 3));
            sim_params_fini(&params);
        }
        sim_scenario_fini(&s);
    }
}

static CU_TestInfo tests[] = {
    { "published dense models", published_dense_models },
    { "GPT-3 with its own vocabulary", gpt3_with_its_own_vocabulary },
    { "published mixtures of experts", published_mixtures_of_experts },
    { "published latent attention", published_latent_attention },
    { "published linear attention", published_linear_attention },
    { "the vocabulary is padded", vocabulary_is_padded },
    { "fewer groups than tensor-parallel ranks", fewer_groups_than_tensor_parallel_ranks },
    { "biases and norms are vectors", biases_and_norms_are_vectors },
    { "BERT has heads", bert_has_heads },
    { "T5 has two stacks", t5_has_two_stacks },
    { "hybrids have single blocks", hybrids_have_single_blocks },
    { "hybrids predict further tokens", hybrids_predict_further_tokens },
    { "hybrid in any layout", hybrid_in_any_layout },
    { "published hybrid with experts", published_hybrid_with_experts },
    { "tied embeddings are copied to the last stage",
      tied_embeddings_are_copied_to_the_last_stage },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "params", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
