/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/keys.h"
#include "sim/scenario/presets.h"
#include "sim/scenario/scenario.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char tiny[] = "[model]\n"
                           "num_layers = 4\n"
                           "hidden_size = 512\n"
                           "num_attention_heads = 8\n"
                           "vocab_size = 1000\n"
                           "[parallel]\n"
                           "world_size = 8\n"
                           "[train]\n"
                           "seq_length = 1024\n";

/* One scenario and the messages about it. */
static sim_scenario_t s;
static base_diag_t diag;

static void start(void)
{
    sim_scenario_init(&s);
    base_diag_init(&diag);
}

static void finish(void)
{
    sim_scenario_fini(&s);
    base_diag_fini(&diag);
}

static bool read_text(const char *text)
{
    return sim_scenario_read(&s, "t.ini", text, strlen(text), &diag);
}

/* tiny, then more lines (their first is line 10). */
static bool read_tiny(const char *more)
{
    char text[4096];
    snprintf(text, sizeof(text), "%s%s", tiny, more);
    return read_text(text);
}

static bool says(const char *text)
{
    for (size_t i = 0; i < diag.n; i++) {
        if (strcmp(diag.text[i], text) == 0)
            return true;
    }
    for (size_t i = 0; i < diag.n; i++)
        printf("# said: %s\n", diag.text[i]);
    printf("# want: %s\n", text);
    return false;
}

static void a_small_scenario_resolves(void)
{
    start();
    CU_ASSERT_TRUE(read_tiny(""));
    CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_EQUAL(diag.n, 0);
    CU_ASSERT_EQUAL(s.ffn_hidden_size, 2048);
    CU_ASSERT_EQUAL(s.num_query_groups, 8);
    CU_ASSERT_EQUAL(s.kv_channels, 64);
    CU_ASSERT_EQUAL(s.padded_vocab_size, 1024);
    CU_ASSERT_EQUAL(s.global_batch_size, 8);
    CU_ASSERT_EQUAL(s.n_microbatches, 1);
    CU_ASSERT_EQUAL(s.grid.dp, 8);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s.gpu_p);
    CU_ASSERT_EQUAL(s.memory_bytes, s.gpu_p->total_bytes);
    finish();
}

static void all_errors_are_shown_with_line_and_key(void)
{
    start();
    CU_ASSERT_FALSE(read_tiny("tensor_modle_parallel_size = 2\n"
                              "[parallel]\n"
                              "tensor_model_parallel_size = 7\n"
                              "pipeline_model_parallel_size = x\n"));
    CU_ASSERT_FALSE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_TRUE(says("t.ini:10: train.tensor_modle_parallel_size: unknown key; did you mean "
                        "tensor_model_parallel_size?"));
    CU_ASSERT_TRUE(says("t.ini:12: parallel.tensor_model_parallel_size: 7 does not divide "
                        "num_attention_heads 8"));
    CU_ASSERT_TRUE(
        says("t.ini:13: parallel.pipeline_model_parallel_size: 'x' is not valid: must be "
             "1 to 1024 GPUs"));
    finish();
}

/* Settings after `tiny`, and the one message that they give. */
static const struct {
    const char *more, *message;
} one_error[] = {
    { "micro_batch_size = 0\n",
      "t.ini:10: train.micro_batch_size: '0' is not valid: must be 1 to 16384 sequences" },
    { "global_batch_size = 99999999999999999999\n",
      "t.ini:10: train.global_batch_size: '99999999999999999999' is not valid: must be none or 1 "
      "to 16777216 sequences" },
    { "global_batch_size = 12\n",
      "t.ini:10: train.global_batch_size: 12 is not a multiple of micro_batch_size 1 * data "
      "parallel size 8" },
    { "bf16 = maybe\n", "t.ini:10: precision.bf16: 'maybe' is not valid: must be true or false" },
    { "hidden_dropout = 1.5\n",
      "t.ini:10: model.hidden_dropout: '1.5' is not valid: must be a number from 0 to 1" },
    { "hidden_dropout = nan\n",
      "t.ini:10: model.hidden_dropout: 'nan' is not valid: must be a number from 0 to 1" },
    { "[device]\nmemory_bytes = 80 GiBs\n",
      "t.ini:11: device.memory_bytes: '80 GiBs' is not valid: must be none or a size such as 80GiB "
      "or 500 MB" },
    { "[device]\ngpu = h1000\n",
      "t.ini:11: device.gpu: unknown GPU 'h1000'; `mbsim gpus` lists them, and memory_bytes gives "
      "another capacity" },
    { "gpu = h100\n", "t.ini:10: train.gpu: belongs to section [device]" },
    { "[modle]\n", "t.ini:10: [modle]: unknown section; did you mean [model]?" },
    { "[model\n", "t.ini:10: section header without ]" },
    { "[model] x\n", "t.ini:10: text after the ] of a section header" },
    { "novalue\n", "t.ini:10: 'novalue' is not of the form key = value" },
    { "x\x01y = 1\n", "t.ini:10: control character 0x01: not a text file" },
    { "seq_length = 2048\n", "t.ini:10: train.seq_length: given twice, first at line 9" },
    { "seq_len = 2048\n", "t.ini:10: train.seq_length: given twice, first at line 9" },
    { "fp4_quantizer_factory = x\n",
      "t.ini:10: train.fp4_quantizer_factory: known to Megatron-LM but not simulated" },
    { "moe_paged_stash = true\n",
      "t.ini:10: train.moe_paged_stash: known to Megatron-LM but not simulated" },
    { "moe_expert_capacity_factor = 1001\n",
      "t.ini:10: moe.moe_expert_capacity_factor: '1001' is not valid: must be a number from 0 to "
      "1000" },
    { "expert_model_parallel_size = 2\n",
      "t.ini:10: parallel.expert_model_parallel_size: needs num_experts" },
    { "num_experts = 8\nadd_bias_linear = false\nmoe_router_topk = 9\n",
      "t.ini:12: moe.moe_router_topk: 9 is more than num_experts 8" },
    { "num_experts = 8\nadd_bias_linear = false\nexpert_model_parallel_size = 4\n"
      "moe_layer_freq = [0]*2+[1]*3\n",
      "t.ini:13: moe.moe_layer_freq: names more than the 4 layers" },
    { "num_experts = 8\nadd_bias_linear = false\nmoe_layer_freq = [0,2]*2\n",
      "t.ini:12: moe.moe_layer_freq: 0 or 1 expected at \"2]*2\"; use a number or a list such as "
      "[0]*3+[1]*58" },
    { "num_experts = 8\nadd_bias_linear = false\nexpert_model_parallel_size = 2\n"
      "moe_imbalance = 1 1 1\n",
      "t.ini:13: moe.moe_imbalance: 3 factors; give one, or one for each of the 2 expert parallel "
      "ranks" },
    { "num_experts = 8\nadd_bias_linear = false\nmoe_token_dispatcher_type = flex\n",
      "t.ini:12: moe.moe_token_dispatcher_type: flex needs expert_tensor_parallel_size * "
      "expert_model_parallel_size > 1" },
    { "multi_latent_attention = true\nnum_query_groups = 2\n",
      "t.ini:11: model.num_query_groups: must be num_attention_heads with "
      "multi_latent_attention" },
    { "activation_func = quick_gelu\n", "t.ini:10: model.activation_func: 'quick_gelu' is known to "
                                        "Megatron-LM but not simulated; use "
                                        "gelu, swiglu, geglu, squared_relu or silu" },
    { "recompute_granularity = selective\nrecompute_modules = core_attn,mhc\n",
      "t.ini:11: recompute.recompute_modules: 'mhc' is known to Megatron-LM but not simulated; use "
      "core_attn, mlp, layernorm, moe, moe_act, shared_experts, mla_up_proj or gdn_norm_out" },
    { "num_query_groups = 3\n",
      "t.ini:10: model.num_query_groups: 3 does not divide num_attention_heads 8" },
    { "padded_vocab_size = 999\n",
      "t.ini:10: model.padded_vocab_size: 999 is less than vocab_size 1000" },
    { "max_position_embeddings = 512\n",
      "t.ini:10: model.max_position_embeddings: 512 is less than seq_length 1024 with learned "
      "positions" },
    { "activation_func = squared_relu\nbias_activation_fusion = true\n",
      "t.ini:11: train.bias_activation_fusion: only with activation_func gelu, geglu or swiglu" },
    { "attention_backend = local\n",
      "t.ini:10: train.attention_backend: local needs transformer_impl = local" },
    { "fp16 = true\nbf16 = true\n", "t.ini:10: precision.fp16: not together with bf16 = true" },
    { "virtual_pipeline_model_parallel_size = 2\n",
      "t.ini:10: parallel.virtual_pipeline_model_parallel_size: "
      "virtual_pipeline_model_parallel_size "
      "2 needs pipeline_model_parallel_size > 1" },
    { "pp = 2\nvpp = 2\noverlap_p2p_communication = false\nglobal_batch_size = 8\n",
      "t.ini:11: parallel.virtual_pipeline_model_parallel_size: needs pipeline_model_parallel_size "
      ">= 3 without overlap_p2p_communication" },
    { "pp = 2\nvpp = 2\nglobal_batch_size = 4\n",
      "t.ini: parallel.microbatch_group_size_per_virtual_pipeline_stage: 2 must be from "
      "pipeline_model_parallel_size 2 to the 1 micro-batches of a step" },
    { "pp = 8\n",
      "t.ini:10: parallel.pipeline_model_parallel_size: num_layers 4 is not a multiple of "
      "pipeline_model_parallel_size 8" },
    { "pp = 2\nvpp = 3\nglobal_batch_size = 8\n",
      "t.ini:11: parallel.virtual_pipeline_model_parallel_size: the 2 layers of pipeline rank 0 "
      "are "
      "not a multiple of virtual_pipeline_model_parallel_size 3" },
    { "pp = 4\ndecoder_first_pipeline_num_layers = 2\n",
      "t.ini:11: parallel.decoder_first_pipeline_num_layers: 2 layers are left for the 3 pipeline "
      "stages whose count is not given; they must divide evenly" },
    { "pp = 2\npipeline_model_parallel_layout = Ettt|L\n",
      "t.ini:11: parallel.pipeline_model_parallel_layout: pipeline_model_parallel_layout has 3 "
      "decoder layers (t), but num_layers is 4" },
    { "pp = 4\ntp = 4\n",
      "t.ini:7: parallel.world_size: world_size 8 is not a multiple of tensor_model_parallel_size "
      "4 x context_parallel_size 1 x pipeline_model_parallel_size 4" },
    { "pp = 2\nnum_layers_per_virtual_pipeline_stage = 3\n",
      "t.ini:11: parallel.num_layers_per_virtual_pipeline_stage: 3 does not divide the 2 layers of "
      "a pipeline rank" },
    { "defer_embedding_wgrad_compute = true\n",
      "t.ini:10: parallel.defer_embedding_wgrad_compute: needs pipeline_model_parallel_size > 1" },
    { "recompute_granularity = selective\nrecompute_num_layers = 1\n",
      "t.ini:11: recompute.recompute_num_layers: not with recompute_granularity = selective" },
    { "recompute_granularity = full\nrecompute_num_layers = 1\n",
      "t.ini: recompute.recompute_method: full recompute needs uniform or block" },
    { "distribute_saved_activations = true\nrecompute_granularity = full\nrecompute_method = "
      "block\n"
      "recompute_num_layers = 1\n",
      "t.ini:10: recompute.distribute_saved_activations: needs tensor_model_parallel_size > 1" },
    { "overlap_param_gather = true\noverlap_grad_reduce = true\n",
      "t.ini:10: optimizer.overlap_param_gather: needs use_distributed_optimizer = true" },
    { "use_distributed_optimizer = true\nnum_distributed_optimizer_instances = 3\n",
      "t.ini:11: optimizer.num_distributed_optimizer_instances: 3 does not divide data parallel "
      "size 8" },
    { "exp_avg_dtype = bf16\n",
      "t.ini: optimizer.use_precision_aware_optimizer: must be true for optimizer types other than "
      "fp32" },
    { "ddp_bucket_size = 1000\nddp_num_buckets = 2\n",
      "t.ini:11: optimizer.ddp_num_buckets: not together with ddp_bucket_size" },
    { "[device]\nmemory_bytes = 1GiB\nreserved_outside_bytes = 2GiB\n",
      "t.ini:12: device.reserved_outside_bytes: 2147483648 leaves nothing of memory_bytes "
      "1073741824" },
    { "preset = llama3-70c\n", "t.ini:10: train.preset: belongs to section [model]" },
    { "[model]\npreset = llama3-70c\n", "t.ini:11: model.preset: unknown model 'llama3-70c'; did "
                                        "you mean llama3-70b; `mbsim models` "
                                        "lists them" },
    { "[model]\nhf_config = /nonexistent.json\n",
      "t.ini:11: model.hf_config: /nonexistent.json: No such file or directory" },
    { "[sweep]\ntensor_model_parallel_size = 1 2 x\n",
      "t.ini:11: parallel.tensor_model_parallel_size: 'x' is not valid: must be 1 to 1048576 "
      "GPUs" },
    { "[sweep]\nseq_length =\n",
      "t.ini:11: sweep.seq_length: give 1 to 999 values, separated by blanks" },
};

static void each_wrong_setting_gives_one_message(void)
{
    for (size_t i = 0; i < sizeof(one_error) / sizeof(one_error[0]); i++) {
        start();
        bool ok = read_tiny(one_error[i].more);
        ok = sim_scenario_resolve(&s, &diag) && ok;
        CU_ASSERT_FALSE(ok);
        CU_ASSERT_EQUAL(diag.n, 1);
        if (!says(one_error[i].message) || diag.n != 1)
            CU_FAIL("not the one message for these settings");
        finish();
    }
}

/* Settings after `tiny` that Megatron-LM accepts, some of them by changing others. */
static void what_megatron_accepts_is_accepted(void)
{
    static const char *const fine[] = {
        "fp8 = none\nmoe_grouped_gemm = false\nnum_experts = none\n",
        "sequence_parallel = true\n",
        "pp = 2\nvirtual_pipeline_model_parallel_size = 1\n",
        "pp = 2\nvpp = 2\nglobal_batch_size = 8\n",
        "pp = 4\ndecoder_first_pipeline_num_layers = 1\nglobal_batch_size = 8\n",
        "pp = 2\npipeline_model_parallel_layout = Et|t|t|tL\nglobal_batch_size = 8\n",
        "tp = 8\nnum_query_groups = 2\n",
        "fp16 = yes\n",
        "recompute_modules = [core_attn, mlp]\nrecompute_granularity = selective\n",
        "use_distributed_optimizer = on\nuse_precision_aware_optimizer = on\nexp_avg_dtype = fp8\n",
        "gated_linear_unit = true\nactivation_func = silu\n",
        "disable_bias_linear = true\nsquared_relu = true\n",
    };
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        start();
        bool ok = read_tiny(fine[i]);
        CU_ASSERT_TRUE(ok && sim_scenario_resolve(&s, &diag));
        for (size_t d = 0; d < diag.n; d++)
            printf("# %s\n", diag.text[d]);
        finish();
    }
}

static void a_preset_gives_way_wherever_it_stands(void)
{
    static const char *const texts[] = {
        "[model]\nnum_layers = 3\npreset = llama2-7b\n[parallel]\nworld_size = 1\n[train]\n"
        "seq_length = 64\n",
        "[model]\npreset = llama2-7b\nnum_layers = 3\n[parallel]\nworld_size = 1\n[train]\n"
        "seq_length = 64\n",
    };
    for (size_t i = 0; i < 2; i++) {
        start();
        CU_ASSERT_TRUE(read_text(texts[i]));
        CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
        CU_ASSERT_EQUAL(s.num_layers, 3);
        CU_ASSERT_EQUAL(s.hidden_size, 4096);
        CU_ASSERT_TRUE(s.untie_embeddings_and_output_weights);
        /* Another preset takes back all that the first one said. */
        CU_ASSERT_TRUE(sim_scenario_set_text(&s, "model.preset=gpt3-125m", "--set", &diag));
        CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
        CU_ASSERT_EQUAL(s.num_layers, 3);
        CU_ASSERT_EQUAL(s.hidden_size, 768);
        CU_ASSERT_FALSE(s.untie_embeddings_and_output_weights);
        CU_ASSERT_EQUAL(s.normalization, SIM_NORM_LAYERNORM);
        finish();
    }
}

static void set_wins_over_the_file(void)
{
    start();
    CU_ASSERT_TRUE(read_tiny("tensor_model_parallel_size = 2\n"));
    CU_ASSERT_STRING_EQUAL(sim_scenario_origin(&s, "tensor_model_parallel_size"), "t.ini:10");
    CU_ASSERT_PTR_NULL(sim_scenario_origin(&s, "pipeline_model_parallel_size"));
    CU_ASSERT_TRUE(
        sim_scenario_set_text(&s, "parallel.tensor_model_parallel_size=4", "--set", &diag));
    CU_ASSERT_TRUE(sim_scenario_set_text(&s, "pp=2", "--set", &diag));
    CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_EQUAL(s.grid.tp, 4);
    CU_ASSERT_EQUAL(s.grid.dp, 1);
    CU_ASSERT_FALSE(sim_scenario_set_text(&s, "nothing", "--set", &diag));
    CU_ASSERT_FALSE(sim_scenario_set_text(&s, "paralel.tp=2", "--set", &diag));
    CU_ASSERT_TRUE(says("--set: [paralel]: unknown section; did you mean [parallel]?"));
    finish();
}

static void resolving_again_starts_from_what_was_given(void)
{
    sim_scenario_t copy;
    start();
    CU_ASSERT_TRUE(read_tiny("sequence_parallel = true\nactivation_func = silu\n"
                             "gated_linear_unit = true\n"));
    CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_FALSE(s.sequence_parallel);
    CU_ASSERT_EQUAL(s.activation_func, SIM_ACT_SWIGLU);
    CU_ASSERT_EQUAL(s.ffn_hidden_size, 1344);
    sim_scenario_copy(&copy, &s);
    CU_ASSERT_TRUE(sim_scenario_set_text(&copy, "tp=2", "--set", &diag));
    CU_ASSERT_TRUE(sim_scenario_set_text(&copy, "gated_linear_unit=false", "--set", &diag));
    CU_ASSERT_TRUE(sim_scenario_set_text(&copy, "hidden_size=1024", "--set", &diag));
    CU_ASSERT_TRUE(sim_scenario_resolve(&copy, &diag));
    CU_ASSERT_TRUE(copy.sequence_parallel);
    CU_ASSERT_EQUAL(copy.activation_func, SIM_ACT_SILU);
    CU_ASSERT_EQUAL(copy.ffn_hidden_size, 4096);
    CU_ASSERT_EQUAL(copy.kv_channels, 128);
    CU_ASSERT_EQUAL(copy.global_batch_size, 4);
    CU_ASSERT_EQUAL(s.ffn_hidden_size, 1344);
    sim_scenario_fini(&copy);
    finish();
}

static void defaults_that_depend_on_others(void)
{
    start();
    CU_ASSERT_TRUE(
        read_tiny("fp16 = true\ntp = 4\npp = 2\nnum_layers_per_virtual_pipeline_stage = 1\n"
                  "global_batch_size = 8\nsquared_relu = true\n"));
    CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_FALSE(s.bf16);
    CU_ASSERT_FALSE(s.accumulate_allreduce_grads_in_fp32);
    CU_ASSERT_EQUAL(sim_scenario_params_dtype(&s), SIM_DTYPE_FP16);
    CU_ASSERT_EQUAL(s.padded_vocab_size, 1024);
    CU_ASSERT_EQUAL(s.virtual_pipeline_model_parallel_size, 2);
    CU_ASSERT_EQUAL(s.microbatch_group_size_per_virtual_pipeline_stage, 2);
    CU_ASSERT_FALSE(s.bias_activation_fusion);
    CU_ASSERT_EQUAL(s.n_microbatches, 8);
    CU_ASSERT_EQUAL(s.stages.vpp, 2);
    finish();
}

static void deterministic_mode_sets_the_workspace(void)
{
    start();
    CU_ASSERT_TRUE(read_tiny("deterministic_mode = true\nuse_distributed_optimizer = true\n"
                             "use_precision_aware_optimizer = true\nmain_grads_dtype = bf16\n"));
    CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_PTR_NOT_NULL_FATAL(s.cublas_workspace_config);
    CU_ASSERT_STRING_EQUAL(s.cublas_workspace_config, ":4096:8");
    CU_ASSERT_FALSE(s.accumulate_allreduce_grads_in_fp32);
    CU_ASSERT_TRUE(s.add_qkv_bias);
    CU_ASSERT_FALSE(s.apply_rope_fusion);
    CU_ASSERT_TRUE(sim_scenario_set_text(&s, "deterministic_mode=false", "--set", &diag));
    CU_ASSERT_TRUE(sim_scenario_resolve(&s, &diag));
    CU_ASSERT_PTR_NULL(s.cublas_workspace_config);
    finish();
}

static void a_sweep_is_kept_in_order(void)
{
    start();
    CU_ASSERT_TRUE(
        read_tiny("tp = 2\n[sweep]\ntensor_model_parallel_size = 1, 2 4\nrecompute_modules = "
                  "core_attn core_attn,mlp\n"));
    CU_ASSERT_EQUAL_FATAL(s.n_sweep, 2);
    CU_ASSERT_STRING_EQUAL(s.sweep[0].section, "parallel");
    CU_ASSERT_STRING_EQUAL(s.sweep[0].key, "tensor_model_parallel_size");
    CU_ASSERT_EQUAL_FATAL(s.sweep[0].n_values, 3);
    CU_ASSERT_STRING_EQUAL(s.sweep[0].values[2], "4");
    CU_ASSERT_EQUAL_FATAL(s.sweep[1].n_values, 2);
    CU_ASSERT_STRING_EQUAL(s.sweep[1].values[1], "core_attn,mlp");
    CU_ASSERT_EQUAL(s.tensor_model_parallel_size, 2);
    finish();
}

static void files_that_are_no_scenario_give_one_message(void)
{
    static const struct {
        const char *text;
        size_t length;
        const char *message;
    } cases[] = {
        { "", 0, "t.ini: the file is empty" },
        { "; nothing\n\n", 11, "t.ini: no key = value line in it" },
        { "\x7f"
          "ELF\0\1",
          6, "t.ini: binary file, not a scenario" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        start();
        CU_ASSERT_FALSE(sim_scenario_read(&s, "t.ini", cases[i].text, cases[i].length, &diag));
        CU_ASSERT_TRUE(diag.n == 1 && says(cases[i].message));
        finish();
    }
}

static void long_lines_are_refused_and_never_cut(void)
{
    enum { LIMIT = 16 << 10, MORE = 100 };
    char *text = malloc(LIMIT + MORE);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    for (size_t n = LIMIT - 1; n <= LIMIT + 1; n++) {
        int head = sprintf(text, "[allocator]\nconf = ");
        memset(text + head, 'a', n - 7);
        strcpy(text + head + n - 7, "\n");
        start();
        bool ok = read_text(text);
        CU_ASSERT_EQUAL(ok, n <= LIMIT);
        if (ok) {
            CU_ASSERT_EQUAL(strlen(s.conf), n - 7);
        } else {
            CU_ASSERT_TRUE(says("t.ini:2: line of 16385 characters; at most 16384 are allowed"));
        }
        finish();
    }
    free(text);
}

static void keys_without_a_section_are_said_once(void)
{
    start();
    CU_ASSERT_FALSE(read_text("num_layers = 2\nhidden_size = 64\n[model]\nvocab_size = 9\n"));
    CU_ASSERT_EQUAL(diag.n, 1);
    CU_ASSERT_TRUE(says("t.ini:1: num_layers: stands before the first [section]"));
    CU_ASSERT_EQUAL(s.hidden_size, 64);
    finish();
}

static void comments_bom_and_carriage_returns_are_fine(void)
{
    start();
    CU_ASSERT_TRUE(read_text("\xef\xbb\xbf[model] ; the model\r\n  num_layers=2 # two\r\n"
                             "hidden_size : 64 ; narrow\r\n[allocator]\n"
                             "conf = expandable_segments:True,max_split_size_mb:128"));
    CU_ASSERT_EQUAL(s.num_layers, 2);
    CU_ASSERT_EQUAL(s.hidden_size, 64);
    CU_ASSERT_STRING_EQUAL(s.conf, "expandable_segments:True,max_split_size_mb:128");
    finish();
}

static void every_key_is_documented_and_its_default_is_valid(void)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    for (size_t i = 0; i < n; i++) {
        CU_ASSERT_TRUE(strlen(keys[i].doc) > 5);
        CU_ASSERT_TRUE(sim_section_is_known(keys[i].section));
        for (size_t j = 0; j < i; j++)
            CU_ASSERT_STRING_NOT_EQUAL(keys[i].name, keys[j].name);
    }
    const sim_key_alias_t *aliases = sim_key_aliases(&n);
    size_t n_keys;
    sim_keys(&n_keys);
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < n_keys; k++) {
            found = found || strcmp(aliases[i].key, keys[k].name) == 0;
            CU_ASSERT_STRING_NOT_EQUAL(aliases[i].name, keys[k].name);
        }
        CU_ASSERT_TRUE(found);
    }
}

static void a_hugging_face_config_is_read(void)
{
    char path[] = "/tmp/mbsim-hf.XXXXXX";
    int fd = mkstemp(path);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    FILE *out = fdopen(fd, "w");
    fputs("{\"model_type\": \"qwen3\", \"num_hidden_layers\": 28, \"hidden_size\": 1024,"
          " \"intermediate_size\": 3072, \"num_attention_heads\": 16, \"num_key_value_heads\": 8,"
          " \"head_dim\": 128, \"vocab_size\": 151936, \"max_position_embeddings\": 40960,"
          " \"tie_word_embeddings\": true}",
          out);
    fclose(out);
    char text[256];
    snprintf(text, sizeof(text), "[model]\nhf_config = %s\nnum_layers = 2\n", path);
    start();
    CU_ASSERT_TRUE(read_text(text));
    CU_ASSERT_EQUAL(s.num_layers, 2);
    CU_ASSERT_EQUAL(s.kv_channels, 128);
    CU_ASSERT_TRUE(s.qk_layernorm);
    CU_ASSERT_FALSE(s.untie_embeddings_and_output_weights);
    CU_ASSERT_EQUAL(s.activation_func, SIM_ACT_SWIGLU);
    finish();
    out = fopen(path, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(out);
    fputs("{\"model_type\": \"mamba2\"}", out);
    fclose(out);
    start();
    CU_ASSERT_FALSE(read_text(text));
    CU_ASSERT_TRUE(
        says("t.ini:2: model.hf_config: model_type 'mamba2' is not simulated; these are: llama "
             "mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next deepseek_v2 deepseek_v3 "
             "kimi_k2 "
             "gpt_oss glm glm4_moe gemma gpt2"));
    finish();
    remove(path);
}

static void every_preset_resolves_and_reads_back(void)
{
    size_t n;
    const sim_preset_t *presets = sim_presets(&n);
    for (size_t i = 0; i < n; i++) {
        char text[512];
        start();
        snprintf(text, sizeof(text),
                 "[model]\npreset = %s\n[parallel]\nworld_size = 8\n[train]\nseq_length = 2048\n",
                 presets[i].name);
        CU_ASSERT_TRUE(read_text(text) && sim_scenario_resolve(&s, &diag));
        char *once = sim_scenario_text(&s);
        finish();
        start();
        CU_ASSERT_TRUE(read_text(once) && sim_scenario_resolve(&s, &diag));
        char *twice = sim_scenario_text(&s);
        CU_ASSERT_STRING_EQUAL(once, twice);
        free(once);
        free(twice);
        finish();
    }
}

static CU_TestInfo tests[] = {
    { "a small scenario resolves", a_small_scenario_resolves },
    { "all errors are shown with line and key", all_errors_are_shown_with_line_and_key },
    { "each wrong setting gives one message", each_wrong_setting_gives_one_message },
    { "what Megatron-LM accepts is accepted", what_megatron_accepts_is_accepted },
    { "a preset gives way wherever it stands", a_preset_gives_way_wherever_it_stands },
    { "--set wins over the file", set_wins_over_the_file },
    { "resolving again starts from what was given", resolving_again_starts_from_what_was_given },
    { "defaults that depend on others", defaults_that_depend_on_others },
    { "deterministic mode sets the workspace", deterministic_mode_sets_the_workspace },
    { "a sweep is kept in order", a_sweep_is_kept_in_order },
    { "files that are no scenario give one message", files_that_are_no_scenario_give_one_message },
    { "long lines are refused and never cut", long_lines_are_refused_and_never_cut },
    { "keys without a section are said once", keys_without_a_section_are_said_once },
    { "comments, BOM and carriage returns are fine", comments_bom_and_carriage_returns_are_fine },
    { "every key is documented, every alias leads to one",
      every_key_is_documented_and_its_default_is_valid },
    { "a Hugging Face config is read", a_hugging_face_config_is_read },
    { "every preset resolves and reads back", every_preset_resolves_and_reads_back },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "scenario", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
