/* SPDX-License-Identifier: Apache-2.0
 * What a layer saves for its backward pass, against closed forms that count by hand what the
 * modules of Transformer Engine and Megatron-LM keep. */
#include "config.h"

#include "sim/model/chunk.h"

#include "tests/cutap.h"
#include "tests/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The layer: sizes of the whole model, small enough for closed forms by hand. */
enum { S = 128, H = 512, HEADS = 8, GROUPS = 2, D = 64, FFN = 1024 };

/* One layer on each of three pipeline stages; the one in the middle has nothing else. */
static const char base[] =
    "num_layers=3 pp=3 hidden_size=512 num_attention_heads=8 num_query_groups=2 kv_channels=64 "
    "ffn_hidden_size=1024 vocab_size=1000 seq_length=128 hidden_dropout=0 attention_dropout=0 "
    "activation_func=swiglu normalization=RMSNorm position_embedding_type=rope "
    "add_bias_linear=false gpu=h100-80gb-sxm";

/* Bytes that a stage's forward pass leaves. */
static uint64_t saved_on_stage(const char *settings, uint32_t stage)
{
    sim_scenario_t s;
    sim_dims_t d;
    sim_chunk_t chunk;
    sim_persistent_t persistent = { 0 };
    base_err_t err;
    uint64_t bytes = 0;
    settings_accepted(&s, base, settings);
    CU_ASSERT_EQUAL_FATAL(sim_dims_init(&d, &s, &err), BASE_OK);
    sim_chunk_init(&chunk, &s, &d, topo_stages_chunk(&s.stages, stage, 0), 0, &persistent);
    for (uint32_t i = 0; i < chunk.forward.n_ops; i++) {
        const sim_op_t *op = &chunk.forward.ops[i];
        if (op->kind == SIM_OP_ALLOC)
            bytes += op->bytes;
        else if (op->kind == SIM_OP_FREE)
            bytes -= chunk.of.tensors[op->tensor].bytes;
    }
    sim_chunk_fini(&chunk);
    sim_persistent_fini(&persistent);
    sim_scenario_fini(&s);
    return bytes;
}

/* The middle stage: what its layer saves, with the layer's output in the place of its input, which
 * the stage before made. */
static uint64_t saved(const char *settings)
{
    return saved_on_stage(settings, 1);
}

/* What a rank sees: T tokens for its GEMMs, Tl for norms and residuals; heads, groups and width of
 * its part. */
typedef struct {
    uint64_t T, Tl, heads, groups, ffn;
} part_t;

static const part_t whole = { S, S, HEADS, GROUPS, FFN };

enum { GATED = 2, PLAIN = 1 };

/* x, its norm, x after attention, its norm; q, k, v and the context; log-sum-exp; what the
 * activation reads and what it writes; the statistics of two norms. */
static uint64_t dense(const part_t *p, uint64_t gate)
{
    return 4 * 2 * p->Tl * H + 2 * 2 * p->T * (p->heads + p->groups) * D + 4 * p->T * p->heads +
           2 * p->T * (gate + 1) * p->ffn + 2 * 4 * p->Tl;
}

static void expect(const char *settings, uint64_t bytes)
{
    uint64_t got = saved(settings);
    if (got != bytes)
        printf("# %s: saves %" PRIu64 ", not %" PRIu64 "\n", settings, got, bytes);
    CU_ASSERT_EQUAL(got, bytes);
}

static void dense_layer(void)
{
    expect("world_size=3", dense(&whole, GATED));
    expect("world_size=3 attention_backend=flash", dense(&whole, GATED));
    expect("world_size=3 gpu=a100-80gb-sxm", dense(&whole, GATED));
    expect("world_size=3 micro_batch_size=4",
           dense(&(part_t){ 4 * S, 4 * S, HEADS, GROUPS, FFN }, GATED));
    expect("world_size=3 activation_func=geglu", dense(&whole, GATED));
}

static void tensor_and_sequence_parallel(void)
{
    const part_t half = { S, S, HEADS / 2, GROUPS / 2, FFN / 2 };
    const part_t half_rows = { S, S / 2, HEADS / 2, GROUPS / 2, FFN / 2 };
    expect("world_size=6 tp=2", dense(&half, GATED));
    expect("world_size=6 tp=2 sequence_parallel=true", dense(&half_rows, GATED));
    expect("world_size=6 tp=2 sequence_parallel=true tp_comm_overlap=true",
           dense(&half_rows, GATED));
    /* More ranks than query groups: each sees a whole group. */
    expect("world_size=24 tp=8", dense(&(part_t){ S, S, 1, 1, FFN / 8 }, GATED));
}

/* FlashAttention's output has the batch first, and is copied when there is more than one sample. */
static void flash_attention_with_several_samples(void)
{
    const part_t two = { 2 * S, 2 * S, HEADS, GROUPS, FFN };
    expect("world_size=3 micro_batch_size=2", dense(&two, GATED));
    expect("world_size=3 micro_batch_size=2 attention_backend=flash",
           dense(&two, GATED) + 2 * two.T * HEADS * D);
}

static void dropout_saves_masks(void)
{
    expect("world_size=3 hidden_dropout=0.1", dense(&whole, GATED) + 2 * S * H);
    expect("world_size=6 tp=2 sequence_parallel=true hidden_dropout=0.1",
           dense(&(part_t){ S, S / 2, HEADS / 2, GROUPS / 2, FFN / 2 }, GATED) + 2 * S / 2 * H);
}

static void activations_and_bias(void)
{
    const char *const bias = "world_size=3 activation_func=gelu add_bias_linear=true";
    expect(bias, dense(&whole, PLAIN));
    expect("world_size=3 activation_func=gelu add_bias_linear=true bias_activation_fusion=false",
           dense(&whole, PLAIN));
    expect("world_size=3 activation_func=squared_relu", dense(&whole, PLAIN));
    /* silu of one half is a tensor of its own, saved for the product. */
    expect("world_size=3 bias_activation_fusion=false", dense(&whole, GATED) + 2 * S * FFN);
}

static void norms(void)
{
    expect("world_size=3 normalization=LayerNorm", dense(&whole, GATED) + 2 * 4 * S);
    uint64_t rows = S * (HEADS + GROUPS);
    expect("world_size=3 qk_layernorm=true", dense(&whole, GATED) + rows * D * 2 + rows * 4);
}

static void positions(void)
{
    expect("world_size=3 apply_rope_fusion=false", dense(&whole, GATED) + 4 * S * D * 2);
    expect("world_size=3 apply_rope_fusion=false rotary_percent=0.5",
           dense(&whole, GATED) + 4 * S * D / 2 * 2);
    /* Without rotation the heads are copied or viewed; either way they are there once. */
    expect("world_size=3 position_embedding_type=none", dense(&whole, GATED));
    const part_t all_heads = { S, S, HEADS, HEADS, FFN };
    expect("world_size=3 position_embedding_type=none num_query_groups=8",
           dense(&all_heads, GATED));
    expect("world_size=3 num_query_groups=8", dense(&all_heads, GATED));
}

/* Softmax instead of the log-sum-exp; keys and values repeated for all heads. */
static uint64_t unfused(uint64_t b)
{
    const part_t p = { b * S, b * S, HEADS, GROUPS, FFN };
    return dense(&p, GATED) - 4 * p.T * HEADS + 2 * b * HEADS * S * S +
           2 * 2 * p.T * (HEADS - GROUPS) * D;
}

static void unfused_attention(void)
{
    expect("world_size=3 attention_backend=unfused", unfused(1));
    expect("world_size=3 attention_backend=unfused micro_batch_size=2", unfused(2));
    /* A mask, and the result of the dropout. */
    expect("world_size=3 attention_backend=unfused attention_dropout=0.1",
           unfused(1) + (1 + 2) * HEADS * S * S);
    expect("world_size=3 transformer_impl=local", unfused(1));
    expect("world_size=3 transformer_impl=local masked_softmax_fusion=false", unfused(1));
    /* fp32 softmax and its 16-bit copy. */
    expect("world_size=3 transformer_impl=local masked_softmax_fusion=false "
           "attention_softmax_in_fp32=true",
           unfused(1) + 4 * HEADS * S * S);
}

/* q and k stay, and v as a view of all of mixed_qkv; the context is the projection's input. */
static void recomputed_attention(void)
{
    const char *const keys = "recompute_granularity=selective recompute_modules=core_attn";
    char settings[256];
    snprintf(settings, sizeof(settings), "world_size=3 %s", keys);
    expect(settings, dense(&whole, GATED) + 2 * S * (HEADS + GROUPS) * D - 4 * S * HEADS);
    snprintf(settings, sizeof(settings), "world_size=3 attention_backend=unfused %s", keys);
    expect(settings, dense(&whole, GATED) + 2 * S * (HEADS + GROUPS) * D - 4 * S * HEADS);
}

static void recomputed_mlp(void)
{
    uint64_t mlp = 2 * S * H + 4 * S + 2 * S * (GATED + 1) * FFN;
    expect("world_size=3 recompute_granularity=selective recompute_modules=mlp",
           dense(&whole, GATED) - mlp);
}

static void recomputed_layers(void)
{
    expect("world_size=3 recompute_granularity=full recompute_method=uniform "
           "recompute_num_layers=1",
           2 * S * H);
    expect("world_size=6 tp=2 sequence_parallel=true recompute_granularity=full "
           "recompute_method=block recompute_num_layers=1",
           2 * S / 2 * H);
    /* Each rank of two keeps half of the group's input, beside the whole output. */
    expect("world_size=6 tp=2 recompute_granularity=full recompute_method=uniform "
           "recompute_num_layers=1 distribute_saved_activations=true",
           2 * S * H + 2 * S * H / 2);
    /* Three layers a stage: the groups' inputs alone; one layer recomputed, two not. */
    expect("world_size=3 num_layers=9 recompute_granularity=full recompute_method=uniform "
           "recompute_num_layers=2",
           2 * 2 * S * H);
    expect("world_size=3 num_layers=9 recompute_granularity=full recompute_method=block "
           "recompute_num_layers=1",
           2 * S * H + 2 * dense(&whole, GATED));
}

/* The norms' outputs and the input of fc2 in FP8, with their scales; the projection keeps the
 * context in bf16 (delayed scaling: in FP8 beside it). */
static uint64_t fp8(const part_t *p, uint64_t scale_bytes_of_512, bool is_delayed)
{
    uint64_t n = 2 * p->Tl * H + p->T * p->ffn;
    uint64_t context = is_delayed ? p->T * p->heads * D : 0;
    return dense(p, GATED) - n + n / 512 * scale_bytes_of_512 + context;
}

static void fp8_recipes(void)
{
    static const struct {
        const char *recipe;
        uint64_t scale_bytes_of_512;
    } recipes[] = { { "delayed", 0 }, { "tensorwise", 0 }, { "blockwise", 16 }, { "mxfp8", 16 } };
    const part_t half_rows = { S, S / 2, HEADS / 2, GROUPS / 2, FFN / 2 };
    for (int i = 0; i < 4; i++) {
        char settings[256];
        snprintf(settings, sizeof(settings), "world_size=3 fp8=hybrid fp8_recipe=%s",
                 recipes[i].recipe);
        expect(settings, fp8(&whole, recipes[i].scale_bytes_of_512, i == 0));
        snprintf(settings, sizeof(settings),
                 "world_size=6 tp=2 sequence_parallel=true fp8=hybrid fp8_recipe=%s",
                 recipes[i].recipe);
        expect(settings, fp8(&half_rows, recipes[i].scale_bytes_of_512, i == 0));
    }
    expect("world_size=3 gpu=b200-180gb fp8=hybrid fp8_recipe=tensorwise", fp8(&whole, 0, false));
}

static void layers_that_stay_in_bf16(void)
{
    expect("world_size=3 fp8=hybrid fp8_recipe=tensorwise first_last_layers_bf16=true",
           fp8(&whole, 0, false));
    expect("world_size=3 fp8=hybrid fp8_recipe=tensorwise first_last_layers_bf16=true "
           "num_layers_at_start_in_bf16=2",
           dense(&whole, GATED));
}

/* Weights that are quantised anew for every micro-batch are saved with it, by rows and columns. */
static void weights_without_a_cache(void)
{
    uint64_t weights = (HEADS + 2 * GROUPS) * D * H + HEADS * D * H + 3 * FFN * H;
    expect("world_size=3 fp8=hybrid fp8_recipe=tensorwise disable_parameter_transpose_cache=true",
           fp8(&whole, 0, false) + 2 * weights);
}

/* The gate, and the context before it beside the one after it. */
static void output_gate(void)
{
    const char *const keys[] = { "", "apply_rope_fusion=false", "recompute_granularity=selective" };
    for (int i = 0; i < 3; i++) {
        char plain[128], gated[192];
        snprintf(plain, sizeof(plain), "world_size=3 %s", keys[i]);
        snprintf(gated, sizeof(gated), "%s attention_output_gate=true", plain);
        uint64_t wider = i == 2 ? 2 * S * HEADS * D : 0; /* mixed_qkv, which v keeps alive */
        expect(gated, saved(plain) + 2 * 2 * S * HEADS * D + wider);
    }
}

static void context_parallel(void)
{
    const part_t half = { S / 2, S / 2, HEADS, GROUPS, FFN };
    expect("world_size=6 cp=2 cp_comm_type=p2p", dense(&half, GATED));
    expect("world_size=6 cp=2 cp_comm_type=all_gather", dense(&half, GATED));
    /* The context is saved as the kernel made it and as the projection reads it. */
    expect("world_size=6 cp=2 cp_comm_type=a2a", dense(&half, GATED) + 2 * half.T * HEADS * D);
    /* The ring's output is kept beside what has been sent back. */
    static const part_t quarter = { S / 4, S / 4, HEADS, GROUPS, FFN };
    expect("world_size=12 cp=4 cp_comm_type=a2a+p2p hierarchical_context_parallel_sizes=2,2",
           dense(&quarter, GATED) + 2 * quarter.T * HEADS * D);
}

/* Both directions: the mask of padding, a byte for every query and key, is kept for the backward
 * pass of what it fills; the local attention takes it as it came. */
static void padding_mask_of_bert(void)
{
    uint64_t mask = 2 * S * S;
    static const char gpt[] = "world_size=3 micro_batch_size=2 attention_backend=unfused "
                              "attention_dropout=0.1";
    char bert[256];
    snprintf(bert, sizeof(bert), "%s model_type=bert", gpt);
    CU_ASSERT_EQUAL(saved(bert), saved(gpt) + mask);
    expect("world_size=3 model_type=bert attention_backend=fused", dense(&whole, GATED));
}

/* A T5 on one stage; what is saved there with one more layer in the decoder, of half as many tokens
 * as the encoder: what any layer saves, the norm and the projections of cross attention, keys and
 * values of the encoder's tokens. What they are made of is the same for all layers. */
static uint64_t saved_by_decoder_layer(const char *more)
{
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        char settings[512];
        snprintf(settings, sizeof(settings),
                 "model_type=t5 num_layers=1 pp=1 num_query_groups=8 decoder_seq_length=64 "
                 "decoder_num_layers=%d %s",
                 1 + i, more);
        bytes[i] = saved_on_stage(settings, 0);
    }
    return bytes[1] - bytes[0];
}

static void cross_attention_of_t5(void)
{
    enum { T = S / 2 };
    const part_t all = { T, T, HEADS, HEADS, FFN };
    const part_t half = { T, T / 2, HEADS / 2, HEADS / 2, FFN / 2 };
    uint64_t layer = dense(&all, GATED) + 2 * 2 * T * H + 2 * 2 * T * HEADS * D +
                     2 * 2 * S * HEADS * D + 4 * T * HEADS + 4 * T;
    CU_ASSERT_EQUAL(saved_by_decoder_layer("world_size=1"), layer);
    layer = dense(&half, GATED) + 2 * 2 * T / 2 * H + 2 * 2 * T * HEADS / 2 * D +
            2 * 2 * S * HEADS / 2 * D + 4 * T * HEADS / 2 + 4 * T / 2;
    CU_ASSERT_EQUAL(saved_by_decoder_layer("world_size=2 tp=2 sequence_parallel=true"), layer);
}

/* Mamba-2 keeps its input and that normed; what the projection made (z, x, B, C, dt); the scan's
 * output before and after the gate; the normed output; statistics of both norms. The attention and
 * the MLP of a hybrid keep together what a Transformer layer does. */
static void mamba_layer(void)
{
    enum { INNER = 2 * H, CONV = INNER + 2 * 8 * 16, ROWS = INNER + CONV + INNER / 64 };
    static const char keys[] = "mamba_state_dim=16 add_bias_linear=false";
    char settings[256];
    snprintf(settings, sizeof(settings), "%s world_size=3 hybrid_layer_pattern=M|M|M", keys);
    expect(settings, 2 * 2 * S * H + 2 * S * ROWS + 3 * 2 * S * INNER + 4 * S * 8 + 4 * S);
    snprintf(settings, sizeof(settings),
             "%s world_size=6 tp=2 sequence_parallel=true hybrid_layer_pattern=M|M|M", keys);
    expect(settings,
           2 * 2 * S / 2 * H + 2 * S * ROWS / 2 + 3 * 2 * S * INNER / 2 + 4 * S * 4 + 4 * S / 2);
    /* With context parallelism the heads are split in the scan, and a group may be on two ranks. */
    snprintf(settings, sizeof(settings), "%s world_size=6 cp=2 hybrid_layer_pattern=M|M|M", keys);
    expect(settings, 2 * 2 * S / 2 * H + 2 * S * ROWS / 2 + 3 * 2 * S * INNER / 2 + 4 * S / 2 * 8 +
                         4 * S / 2);
    enum { ONE_GROUP = INNER / 2 + 2 * 16, ONE_ROWS = INNER / 2 + ONE_GROUP + INNER / 64 / 2 };
    snprintf(settings, sizeof(settings),
             "%s world_size=6 cp=2 mamba_num_groups=1 hybrid_layer_pattern=M|M|M", keys);
    expect(settings, 2 * 2 * S / 2 * H + 2 * S * ONE_ROWS + 3 * 2 * S * INNER / 2 + 4 * S / 2 * 1 +
                         4 * S / 2);
    snprintf(settings, sizeof(settings), "%s world_size=3 num_layers=4 hybrid_layer_pattern=M|*-|M",
             keys);
    expect(settings, dense(&whole, GATED));
}

/* A gated delta net keeps its input and that normed; what the projection made; normed queries and
 * keys, with a number a head, and those repeated for the values' heads; values, gate and write
 * strength; the sums of the decay; the triangles' inverses; the rule's output, normed, and gated.
 */
static uint64_t delta_net(uint64_t tokens, uint64_t local, uint64_t keys, uint64_t values,
                          bool norm_is_saved)
{
    enum { K = 32, V = 16, CHUNK = 64 };
    uint64_t conv = 2 * keys * K + values * V, rows = conv + values * V + 2 * values;
    uint64_t norm = 2 * tokens * values * V + 4 * tokens * values + 2 * tokens * values * V;
    return 2 * 2 * local * H + 4 * local + 2 * tokens * rows + 2 * tokens * 2 * keys * K +
           4 * tokens * 2 * keys + 2 * 2 * tokens * values * K + 2 * 2 * tokens * values * V +
           2 * tokens * values + 4 * tokens * values + 2 * tokens * values * CHUNK +
           2 * tokens * values * V + (norm_is_saved ? norm : 0);
}

static void delta_net_layer(void)
{
#define DELTA                                                                                      \
    "linear_num_key_heads=4 linear_num_value_heads=8 linear_key_head_dim=32 "                      \
    "linear_value_head_dim=16 "
    expect(DELTA "world_size=3 hybrid_layer_pattern=G|G|G", delta_net(S, S, 4, 8, true));
    expect(DELTA "world_size=6 tp=2 sequence_parallel=true hybrid_layer_pattern=G|G|G",
           delta_net(S, S / 2, 2, 4, true));
    /* Under context parallelism all tokens of half of the heads. */
    expect(DELTA "world_size=6 cp=2 hybrid_layer_pattern=G|G|G", delta_net(S, S / 2, 2, 4, true));
    expect(DELTA "world_size=3 hybrid_layer_pattern=G|G|G recompute_granularity=selective "
                 "recompute_modules=gdn_norm_out",
           delta_net(S, S, 4, 8, false));
    /* In the place of attention: what the MLP saves is there as well. */
    uint64_t mlp = saved("world_size=3 num_layers=4 hybrid_layer_pattern=M|G-|M") -
                   saved("world_size=3 hybrid_layer_pattern=M|G|M");
    uint64_t with_mlp =
        saved("world_size=3 experimental_attention_variant=gdn linear_attention_freq=3");
    CU_ASSERT_EQUAL(with_mlp, saved("world_size=3 hybrid_layer_pattern=M|G|M") + mlp);
#undef DELTA
}

static CU_TestInfo tests[] = {
    { "dense layer", dense_layer },
    { "tensor and sequence parallel", tensor_and_sequence_parallel },
    { "FlashAttention with several samples", flash_attention_with_several_samples },
    { "dropout saves masks", dropout_saves_masks },
    { "activations and bias", activations_and_bias },
    { "norms", norms },
    { "positions", positions },
    { "unfused attention", unfused_attention },
    { "recomputed attention", recomputed_attention },
    { "recomputed MLP", recomputed_mlp },
    { "recomputed layers", recomputed_layers },
    { "FP8 recipes", fp8_recipes },
    { "layers that stay in bf16", layers_that_stay_in_bf16 },
    { "weights without a cache", weights_without_a_cache },
    { "output gate", output_gate },
    { "context parallel", context_parallel },
    { "padding mask of BERT", padding_mask_of_bert },
    { "cross attention of T5", cross_attention_of_t5 },
    { "Mamba layer", mamba_layer },
    { "gated delta net", delta_net_layer },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "layer", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
