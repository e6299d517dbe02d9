/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/scenario/import.h"

#include "sim/scenario/keys.h"
#include "sim/scenario/scenario.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The arguments that every job needs. */
#define BASE                                                                                       \
    "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 128 "                   \
    "--max-position-embeddings 128 --micro-batch-size 2 --bf16 "

static sim_import_t import;

static void read_shell(const char *text)
{
    base_err_t err = { 0 };
    sim_import_init(&import);
    CU_ASSERT_EQUAL_FATAL(
        sim_import_text(&import, SIM_IMPORT_AUTO, "x.sh", text, strlen(text), &err), BASE_OK);
    sim_import_resolve(&import);
}

static void expect_key(const char *section, const char *key, const char *value)
{
    const char *got = sim_import_key_value(&import, section, key);
    if (got == NULL || strcmp(got, value) != 0)
        printf("# %s.%s is %s, not %s\n", section, key, got != NULL ? got : "not there", value);
    CU_ASSERT(got != NULL && strcmp(got, value) == 0);
}

static void expect_message(const base_diag_t *diag, const char *part)
{
    for (size_t i = 0; i < diag->n; i++)
        if (strstr(diag->text[i], part) != NULL)
            return;
    printf("# no message has \"%s\"\n", part);
    for (size_t i = 0; i < diag->n; i++)
        printf("#   %s\n", diag->text[i]);
    CU_FAIL("message not found");
}

typedef struct {
    char names[1200][SIM_ARG_NAME];
    size_t n;
} seen_t;

static void see(const sim_arg_t *arg, void *ctx)
{
    seen_t *seen = ctx;
    sim_arg_t found;
    CU_ASSERT_FATAL(seen->n < 1200);
    for (size_t i = 0; i < seen->n; i++)
        CU_ASSERT_STRING_NOT_EQUAL(seen->names[i], arg->name);
    snprintf(seen->names[seen->n++], SIM_ARG_NAME, "%s", arg->name);
    CU_ASSERT_TRUE(sim_megatron_arg_find(arg->name, &found));
    CU_ASSERT_EQUAL(found.class_, arg->class_);
    if (arg->class_ == SIM_ARG_DETAIL) {
        CU_ASSERT_TRUE(sim_megatron_arg_find(arg->parent, &found));
        CU_ASSERT_NOT_EQUAL(found.class_, SIM_ARG_NO_EFFECT);
    }
}

static void every_argument_is_in_the_table_once(void)
{
    seen_t *seen = calloc(1, sizeof(*seen));
    sim_megatron_arg_foreach(see, seen);
    CU_ASSERT(seen->n > 900);
    free(seen);
}

/* Whatever the importer can say, the table of keys must take. */
static void every_key_is_one_of_the_scenario(void)
{
    size_t n_keys;
    const sim_key_t *keys = sim_keys(&n_keys);
    sim_arg_t arg;
    for (size_t i = 0; sim_megatron_arg_key_at(i, &arg); i++) {
        bool found = arg.key == NULL;
        for (size_t k = 0; k < n_keys && !found; k++) {
            char name[128];
            snprintf(name, sizeof(name), "%s.%s", keys[k].section, keys[k].name);
            found = strcmp(name, arg.key) == 0;
        }
        if (!found)
            printf("# %s\n", arg.key);
        CU_ASSERT_TRUE(found);
    }
}

static void defaults_are_megatrons(void)
{
    read_shell(BASE);
    expect_key("model", "ffn_hidden_size", "1024");
    expect_key("model", "vocab_size", "50257");
    expect_key("model", "hidden_dropout", "0.1");
    expect_key("model", "attention_dropout", "0.1");
    expect_key("model", "normalization", "LayerNorm");
    expect_key("model", "position_embedding_type", "learned_absolute");
    expect_key("model", "add_bias_linear", "true");
    expect_key("train", "create_attention_mask_in_dataloader", "true");
    expect_key("train", "gradient_accumulation_fusion", "true");
    expect_key("train", "global_batch_size", "2");
    expect_key("precision", "accumulate_allreduce_grads_in_fp32", "true");
    CU_ASSERT_EQUAL(import.errors.n, 0);
    CU_ASSERT_EQUAL(import.unsupported.n, 0);
    expect_message(&import.warnings, "number of GPUs");
    sim_import_fini(&import);
}

static void consequences_of_the_argument_checks_are_drawn(void)
{
    static const struct {
        const char *args, *section, *key, *value;
    } cases[] = {
        { BASE "--swiglu --disable-bias-linear", "model", "ffn_hidden_size", "640" },
        { BASE "--swiglu --disable-bias-linear", "train", "bias_activation_fusion", "true" },
        { BASE "--disable-bias-linear", "train", "bias_activation_fusion", "false" },
        { BASE "--disable-bias-linear --add-qkv-bias", "model", "add_qkv_bias", "true" },
        { BASE "--sequence-parallel", "parallel", "sequence_parallel", "false" },
        { BASE "--sequence-parallel --tensor-model-parallel-size 2", "parallel",
          "sequence_parallel", "true" },
        { BASE "--grad-reduce-in-bf16", "precision", "accumulate_allreduce_grads_in_fp32",
          "false" },
        { BASE "--recompute-activations", "recompute", "recompute_granularity", "selective" },
        { BASE "--group-query-attention --num-query-groups 2", "model", "num_query_groups", "2" },
        { BASE "--use-rotary-position-embeddings", "model", "position_embedding_type", "rope" },
        { BASE "--use-rotary-position-embeddings --no-rope-fusion", "train", "apply_rope_fusion",
          "false" },
        { BASE "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1",
          "parallel", "virtual_pipeline_model_parallel_size", "2" },
        { BASE "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1",
          "parallel", "overlap_p2p_communication", "true" },
        { BASE "--pipeline_model_parallel_size=2", "parallel", "overlap_p2p_communication",
          "false" },
        { BASE "--transformer-impl local", "train", "attention_backend", "local" },
        { "NVTE_FLASH_ATTN=0 NVTE_FUSED_ATTN=0 python pretrain_gpt.py " BASE, "train",
          "attention_backend", "unfused" },
        { "NVTE_FUSED_ATTN=0 python pretrain_gpt.py " BASE, "train", "attention_backend", "flash" },
        { "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\npython pretrain_gpt.py " BASE,
          "allocator", "conf", "expandable_segments:True" },
        { BASE "--step-batch-size-schedule 0:384 2.4B:768", "train", "global_batch_size", "768" },
        { BASE "--fp16 --loss-scale 1", "train", "check_for_nan_in_loss_and_grad", "true" },
        { BASE "--fp16", "train", "check_for_nan_in_loss_and_grad", "false" },
        { BASE "--tokenizer-type Llama2Tokenizer", "model", "vocab_size", "32000" },
        { BASE "--squared-relu", "model", "activation_func", "squared_relu" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        read_shell(cases[i].args);
        expect_key(cases[i].section, cases[i].key, cases[i].value);
        CU_ASSERT_EQUAL(import.errors.n, 0);
        sim_import_fini(&import);
    }
    read_shell("--num-layers 4 --fp16 --hidden-size 256 --num-attention-heads 8 --seq-length 128 "
               "--micro-batch-size 1");
    expect_key("precision", "accumulate_allreduce_grads_in_fp32", "false");
    sim_import_fini(&import);
}

static void what_moves_memory_and_is_not_simulated_is_named(void)
{
    static const struct {
        const char *args, *message; /* message NULL = no complaint */
    } cases[] = {
        { BASE "--te-precision-config-file x.yaml", "--te-precision-config-file x.yaml" },
        { BASE "--optimizer-cuda-graph", "--optimizer-cuda-graph" },
        { BASE "--optimizer soap", "--optimizer soap" },
        { BASE "--cuda-graph-impl none", NULL },
        { BASE "--cuda-graph-impl local --cuda-graph-scope attn mlp", NULL },
        { BASE "--cuda-graph-impl local --delay-offload-until-cuda-graph",
          "--delay-offload-until-cuda-graph" },
        { BASE "--cuda-graph-retain-backward-graph", "--cuda-graph-retain-backward-graph" },
        { BASE "--delta-offload-bytes-across-pp-ranks 0", NULL },
        { BASE "--delta-offload-bytes-across-pp-ranks 2",
          "--delta-offload-bytes-across-pp-ranks 2" },
        { BASE "--fp8-recipe tensorwise", NULL }, /* says nothing without --fp8-format */
        { BASE "--transformer-impl inference_optimized", "--transformer-impl" },
        { BASE "--lr 1e-4 --data-path a b c --save x", NULL },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        read_shell(cases[i].args);
        CU_ASSERT_EQUAL(import.errors.n, 0);
        CU_ASSERT_EQUAL(import.unsupported.n, cases[i].message != NULL);
        if (cases[i].message != NULL)
            expect_message(&import.unsupported, cases[i].message);
        sim_import_fini(&import);
    }
}

static void wrong_arguments_are_refused_with_the_place(void)
{
    static const struct {
        const char *args, *message;
    } cases[] = {
        { BASE "--tensor-modle-parallel-size 2", "did you mean --tensor-model-parallel-size?" },
        { BASE "\n--bf16 yes", "x.sh:2: --bf16 takes no value" },
        { BASE "--num-layers", "--num-layers needs a value" },
        { BASE "--num-layers four", "is not a whole number" },
        { BASE "--num-layers 4 5", "takes one value" },
        { BASE "--tensor-model-parallel-size $TP", "the text does not say what $TP is" },
        { BASE "--seq-length $(cat n)", "the text does not say what $(cat n) is" },
        { "--num-layers 4 --seq-length 1 --micro-batch-size 1 --num-attention-heads 1",
          "--hidden-size is missing" },
        { BASE "--tokenizer-type HuggingFaceTokenizer", "model.vocab_size" },
        { BASE "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 3",
          "does not divide" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        read_shell(cases[i].args);
        expect_message(&import.errors, cases[i].message);
        sim_import_fini(&import);
    }
}

static void shell_text_is_followed_without_running_it(void)
{
    static const char script[] =
        "#!/bin/bash\n"
        "#SBATCH --nodes=4 --gpus-per-node=8\n"
        "GPUS=8; NODES=$SLURM_NNODES\n"
        "WORLD=$((GPUS * (${NODES} + 1) - $GPUS))\n"
        "TP=${TP:-2}   # a default\n"
        "if [ \"$TP\" -gt 1 ]; then SP=--sequence-parallel; else TP=64; fi\n"
        "[[ -n \"$DEBUG\" ]] && LAYERS=1\n"
        "case $SIZE in 7b) LAYERS=32 ;; *) LAYERS=6 ;; esac\n"
        "MODEL=(\n"
        "  --num-layers ${LAYERS}  # comment\n"
        "  --hidden-size 256 \\\n"
        "  --num-attention-heads '8'\n"
        ")\n"
        "MODEL+=(--seq-length \"128\" --max-position-embeddings=128)\n"
        "OPTS=\"--micro-batch-size 2 --bf16\"\n"
        "OPTS+=\" --global-batch-size $((WORLD*2))\"\n"
        "cat <<EOF > /dev/null\n"
        "torchrun pretrain_gpt.py --num-layers 999 --hidden-size 1 --seq-length 1 --bf16 --swiglu "
        "--num-attention-heads 1 --micro-batch-size 1 --global-batch-size 1\n"
        "EOF\n"
        "python preprocess_data.py --seq-length 7\n"
        "torchrun --nproc_per_node $GPUS --nnodes=$NODES pretrain_gpt.py ${MODEL[@]} $OPTS \\\n"
        "  --tensor-model-parallel-size $TP $SP 2>&1 | tee log\n";
    read_shell(script);
    CU_ASSERT_EQUAL(import.errors.n, 0);
    expect_key("parallel", "world_size", "32");
    expect_key("model", "num_layers", "6");
    expect_key("model", "num_attention_heads", "8");
    expect_key("train", "seq_length", "128");
    expect_key("train", "global_batch_size", "64");
    expect_key("parallel", "tensor_model_parallel_size", "2");
    expect_key("parallel", "sequence_parallel", "true");
    for (size_t i = 0; i < import.n_keys; i++)
        if (strcmp(import.keys[i].key, "num_layers") == 0)
            CU_ASSERT_STRING_EQUAL(import.keys[i].origin, "--num-layers, x.sh:10");
    sim_import_fini(&import);
}

static void a_command_in_one_word_is_read(void)
{
    read_shell("ARGS=\"" BASE
               "\"\nCMD=\"python train.py $ARGS --swiglu\"\nsrun bash -c \"$CMD\"\n");
    expect_key("model", "activation_func", "swiglu");
    sim_import_fini(&import);
    read_shell("MODEL=\"\n" BASE "\n\"\n");
    expect_key("model", "num_layers", "4");
    sim_import_fini(&import);
}

static void hostile_text_ends(void)
{
    char *text = malloc(1 << 20);
    base_err_t err;
    size_t n = 0;
    /* Doubling variables, unclosed quotes and brackets, deep nesting. */
    n += (size_t)sprintf(text + n, "A=--bf16xxxxxxxxxxxxxxxxxxxxxxxxxxxx\n");
    for (int i = 0; i < 60; i++)
        n += (size_t)sprintf(text + n, "A=\"$A $A\"\n");
    for (int i = 0; i < 20000; i++)
        n += (size_t)sprintf(text + n, "${B:-");
    n += (size_t)sprintf(text + n, "$((((((\"'`${");
    sim_import_init(&import);
    sim_import_text(&import, SIM_IMPORT_AUTO, "x", text, n, &err);
    sim_import_fini(&import);
    for (n = 0; n < 200000; n += 3)
        memcpy(text + n, "if ", 4);
    sim_import_init(&import);
    CU_ASSERT_EQUAL(sim_import_text(&import, SIM_IMPORT_AUTO, "x", text, n, &err), BASE_ERR_PARSE);
    sim_import_fini(&import);
    static const char *const texts[] = {
        "",     " \n",       "$",           "${",   "$((",          "a=(", "<<", "\\",
        "\n\n", "case x in", "hello world", "if [", "[[ ! ]] && x", "for", ";;", "esac"
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        sim_import_init(&import);
        CU_ASSERT_EQUAL(
            sim_import_text(&import, SIM_IMPORT_AUTO, "x", texts[i], strlen(texts[i]), &err),
            BASE_ERR_PARSE);
        sim_import_fini(&import);
    }
    sim_import_init(&import);
    CU_ASSERT_EQUAL(sim_import_text(&import, SIM_IMPORT_AUTO, "x", "a\0b", 3, &err),
                    BASE_ERR_PARSE);
    sim_import_fini(&import);
    free(text);
}

static void the_printed_dump_is_read(void)
{
    static const char dump[] =
        "using world size: 64\n"
        "0: ------------------------ arguments ------------------------\n"
        "0:   accumulate_allreduce_grads_in_fp32 .............. True\n"
        "0:   add_bias_linear ................................. False\n"
        "0:   add_qkv_bias .................................... False\n"
        "0:   attention_backend ............................... AttnBackend.flash\n"
        "0:   attention_dropout ............................... 0.0\n"
        "0:   bf16 ............................................ True\n"
        "0:   bias_gelu_fusion ................................ False\n"
        "0:   cross_entropy_loss_fusion ....................... True\n"
        "0:   data_parallel_size .............................. 16\n"
        "0:   ffn_hidden_size ................................. 1024\n"
        "0:   fp8 ............................................. None\n"
        "0:   global_batch_size ............................... 64\n"
        "0:   gradient_accumulation_fusion .................... False\n"
        "0:   group_query_attention ........................... False\n"
        "0:   hidden_size ..................................... 256\n"
        "0:   micro_batch_size ................................ 1\n"
        "0:   my_own_patch .................................... 7\n"
        "0:   num_attention_heads ............................. 8\n"
        "0:   num_experts ..................................... None\n"
        "0:   num_layers ...................................... 4\n"
        "0:   num_query_groups ................................ 1\n"
        "0:   padded_vocab_size ............................... 32000\n"
        "0:   recompute_modules ............................... ['core_attn', 'mlp']\n"
        "0:   seq_length ...................................... 128\n"
        "0:   tensor_model_parallel_size ...................... 4\n"
        "0:   tensor_parallel_num_weight_shards ............... 4\n"
        "0:   tokenizer_type .................................. HuggingFaceTokenizer\n"
        "0:   world_size ...................................... 64\n"
        "0: -------------------- end of arguments ---------------------\n"
        "0:   num_layers ...................................... 99\n";
    read_shell(dump);
    CU_ASSERT_EQUAL(import.errors.n, 0);
    CU_ASSERT_EQUAL(import.unsupported.n, 0);
    expect_key("model", "num_layers", "4");
    expect_key("model", "padded_vocab_size", "32000");
    expect_key("model", "add_bias_linear", "false");
    expect_key("model", "attention_dropout", "0.0");
    expect_key("train", "gradient_accumulation_fusion", "false");
    expect_key("train", "attention_backend", "flash");
    expect_key("recompute", "recompute_modules", "core_attn mlp");
    expect_key("parallel", "world_size", "64");
    expect_message(&import.warnings, "my_own_patch");
    sim_import_fini(&import);
}

static void ci_yaml_is_read(void)
{
    static const char yaml[] = "ENV_VARS:\n"
                               "  CUDA_DEVICE_MAX_CONNECTIONS: 1\n"
                               "  PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True\n"
                               "  CUBLAS_WORKSPACE_CONFIG: :4096:8\n"
                               "COMMON: &common\n"
                               "  --num-layers: 12\n"
                               "  --hidden-size: 512\n"
                               "MODEL_ARGS:\n"
                               "  <<: *common\n"
                               "  --num-layers: 4\n"
                               "  --num-attention-heads: 8\n"
                               "  --micro-batch-size: 4\n"
                               "  --seq-length: 128\n"
                               "  --max-position-embeddings: 128\n"
                               "  --recompute-granularity: selective\n"
                               "  --recompute-modules: [core_attn mlp]\n"
                               "  --bf16: true\n"
                               "  --swiglu: false\n"
                               "  --save: ${CHECKPOINT_SAVE_PATH}\n"
                               "TEST_TYPE: regular\n";
    read_shell(yaml);
    CU_ASSERT_EQUAL(import.errors.n, 0);
    expect_key("model", "num_layers", "4");
    expect_key("model", "hidden_size", "512");
    expect_key("model", "activation_func", "gelu");
    expect_key("recompute", "recompute_modules", "core_attn mlp");
    expect_key("allocator", "conf", "expandable_segments:True");
    expect_key("device", "cublas_workspace_config", ":4096:8");
    sim_import_fini(&import);
}

static void the_written_scenario_reads_back(void)
{
    sim_scenario_t scenario;
    base_diag_t diag;
    read_shell(BASE "--tensor-model-parallel-size 2 --sequence-parallel --swiglu");
    sim_import_override(&import, "model", "vocab_size", "1000", "--set");
    sim_import_override(&import, "device", "gpu", "h100-80gb-sxm", "--gpu");
    sim_import_resolve(&import);
    char *text = sim_import_write(&import, "x.sh");
    sim_scenario_init(&scenario);
    base_diag_init(&diag);
    CU_ASSERT_TRUE(sim_scenario_read(&scenario, "x.ini", text, strlen(text), &diag));
    CU_ASSERT_TRUE(sim_scenario_resolve(&scenario, &diag));
    for (size_t i = 0; i < diag.n; i++)
        printf("# %s\n", diag.text[i]);
    CU_ASSERT_EQUAL(scenario.vocab_size, 1000);
    CU_ASSERT_TRUE(scenario.sequence_parallel);
    CU_ASSERT_EQUAL(scenario.ffn_hidden_size, 640);
    sim_scenario_fini(&scenario);
    base_diag_fini(&diag);
    free(text);
    sim_import_fini(&import);
}

static CU_TestInfo tests[] = {
    { "every argument is in the table once", every_argument_is_in_the_table_once },
    { "every key is one of the scenario", every_key_is_one_of_the_scenario },
    { "defaults are Megatron's", defaults_are_megatrons },
    { "consequences of the argument checks are drawn",
      consequences_of_the_argument_checks_are_drawn },
    { "what moves memory and is not simulated is named",
      what_moves_memory_and_is_not_simulated_is_named },
    { "wrong arguments are refused with the place", wrong_arguments_are_refused_with_the_place },
    { "shell text is followed without running it", shell_text_is_followed_without_running_it },
    { "a command in one word is read", a_command_in_one_word_is_read },
    { "hostile text ends", hostile_text_ends },
    { "the printed dump is read", the_printed_dump_is_read },
    { "CI YAML is read", ci_yaml_is_read },
    { "the written scenario reads back", the_written_scenario_reads_back },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "megatron_args", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
