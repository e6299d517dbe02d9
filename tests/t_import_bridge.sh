#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mbsim import: Megatron-Bridge overrides and YAML, config.json of Hugging Face models.
. "$TOP_SRCDIR/tests/lib.sh"

data=$TOP_SRCDIR/tests/data/import
cd "$work" || exit 99

# Overrides
cat >run.sh <<'EOF'
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True torchrun --nproc_per_node=8 --nnodes 2 \
  scripts/training/run_recipe.py --recipe llama3_8b_pretrain_config \
  model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=2 \
  model.sequence_parallel=true train.micro_batch_size=1 train.global_batch_size=16 \
  model.recompute_granularity=selective 'model.recompute_modules=[core_attn,mlp]' \
  mixed_precision=bf16_with_fp8_current_scaling_mixed checkpoint.save=/x rng.seed=7
EOF
expect "the recipe names the model" 0 '^preset = llama3-8b$' "$MBSIM" import run.sh
expect "an override becomes a key" 0 '^tensor_model_parallel_size = 4$' "$MBSIM" import run.sh
expect "its line is named" 0 'model.tensor_model_parallel_size, run.sh:3' "$MBSIM" import run.sh
expect "a list becomes a set" 0 '^recompute_modules = core_attn mlp$' "$MBSIM" import run.sh
expect "the launcher says how many GPUs" 0 '^world_size = 16$' "$MBSIM" import run.sh
expect "the environment is read" 0 '^conf = expandable_segments:True$' "$MBSIM" import run.sh
expect "current scaling is tensorwise" 0 '^fp8_recipe = tensorwise$' "$MBSIM" import run.sh
expect "with FP8 parameters" 0 '^fp8_param_gather = true$' "$MBSIM" import run.sh
expect "and ends in bf16" 0 '^first_last_layers_bf16 = true$' "$MBSIM" import run.sh
expect "dropout is off" 0 '^hidden_dropout = 0$' "$MBSIM" import run.sh
expect "cross-entropy is fused" 0 '^cross_entropy_fusion_impl = native$' "$MBSIM" import run.sh
expect "what the recipe sets is not known, and said so" 0 'recipe llama3_8b_pretrain_config itself' "$MBSIM" import run.sh
expect "-v lists what does not move memory" 0 'rng.seed: does not move memory' "$MBSIM" import -v run.sh

cat >fsdp.sh <<'EOF'
run_recipe.py --recipe llama3_8b_pretrain_config ddp.data_parallel_sharding_strategy=optim_grads_params
EOF
expect "a strategy without Megatron-FSDP has no effect" 0 '^use_distributed_optimizer = true$' "$MBSIM" import fsdp.sh
if "$MBSIM" import fsdp.sh 2>/dev/null | grep -q sharding_strategy; then not_ok "and is left out"; else ok "and is left out"; fi
echo "run_recipe.py --recipe llama3_8b_pretrain_config ddp.use_megatron_fsdp=true ddp.data_parallel_sharding_strategy=optim_grads_params" >fsdp.sh
expect "with it, it counts" 0 '^data_parallel_sharding_strategy = optim_grads_params$' "$MBSIM" import fsdp.sh
"$MBSIM" import run.sh >job.ini
expect "the scenario is a valid one" 0 '.' "$MBSIM" run job.ini --quiet

echo 'model.tensor_model_parallel_size=4 train.micro_batch_size=1' >bare
expect "a model is needed" 2 'the model is not in the input' "$MBSIM" import bare
expect "--set names it" 0 '^preset = qwen3-8b$' "$MBSIM" import bare --set model.preset=qwen3-8b
expect "the smallest number of GPUs is taken" 0 '^world_size = 4$' "$MBSIM" import bare --set model.preset=qwen3-8b

cat >overrides <<'EOF'
#!/bin/sh
echo "train.py --recipe llama3_8b_sft_config $*" >one.sh
"$MBSIM" import one.sh
EOF
cat >hf <<EOF
#!/bin/sh
"\$MBSIM" import --world-size 64 "$data/hf/\$1.json"
EOF
chmod +x overrides hf
expect "fine-tuning has other defaults" 0 '^seq_length = 2048$' ./overrides train.train_iters=5
expect "a precision name may have hyphens" 0 '^fp8_recipe = mxfp8$' ./overrides mixed_precision=bf16-with-mxfp8-mixed
expect "NVFP4 is FP4" 0 '^fp4 = e2m1$' ./overrides mixed_precision=bf16_with_nvfp4_mixed
expect "fp4_param is fp4_param_gather" 0 '^fp4_param_gather = true$' ./overrides model.fp4=e2m1 model.fp4_param=true
expect "with FP4 weights" 0 '^fp4_param_gather = true$' ./overrides mixed_precision=bf16_with_nvfp4_mixed
expect "subchannel scaling is blockwise" 0 '^fp8_recipe = blockwise$' ./overrides mixed_precision=bf16_with_fp8_subchannel_scaling_mixed
expect "the recipe of FP8 counts without FP8" 0 '^fp8_recipe = tensorwise$' ./overrides mixed_precision=bf16_mixed
expect "fp16 reduces gradients in fp16" 0 '^accumulate_allreduce_grads_in_fp32 = false$' ./overrides mixed_precision=fp16_mixed
expect "an unknown precision is refused" 2 "unknown recipe 'bf8_mixed'" ./overrides mixed_precision=bf8_mixed
expect "fields of the precision win" 0 '^accumulate_allreduce_grads_in_fp32 = false$' ./overrides mixed_precision.grad_reduce_in_fp32=false
expect "the precision wins over ddp" 0 '^accumulate_allreduce_grads_in_fp32 = true$' ./overrides ddp.grad_reduce_in_fp32=false
expect "a typing error gets a suggestion" 2 'did you mean tensor_model_parallel_size' ./overrides model.tensor_modle_parallel_size=4
expect "what is not simulated is an error" 2 'model.use_kitchen = true: moves memory' ./overrides model.use_kitchen=true
expect "switched off it is none" 0 '^preset' ./overrides model.use_kitchen=false
expect "overlap of communication sets the bucket" 0 '^ddp_bucket_size = 134217728$' ./overrides comm_overlap.tp_comm_overlap=false train.global_batch_size=8 --num_gpus 8
expect "yarn is rope" 0 '^position_embedding_type = rope$' ./overrides model.position_embedding_type=yarn
expect "a wrong value is refused" 2 'micro_batch_size' ./overrides train.micro_batch_size=many

expect "fine-tuning of adapters is LoRA" 0 '^scheme = lora$' ./overrides peft.dim=16
expect "its rank is read" 0 '^dim = 16$' ./overrides peft.dim=16
expect "and its linears" 0 '^target_modules = linear_qkv linear_proj$' ./overrides peft.dim=16 'peft.target_modules=[linear_qkv,linear_proj]'
expect "and re-gather" 0 '^sequence_parallel_input_regather = true$' ./overrides peft.dim=16 peft.sequence_parallel_input_regather=true
expect "another target is refused" 2 "router" ./overrides peft.dim=16 'peft.target_modules=[router]'

# YAML
yaml=$data/bridge.yaml
expect "YAML becomes a scenario" 0 '^num_layers = 4$' "$MBSIM" import --world-size 16 "$yaml"
expect "silu stays gated" 0 '^gated_linear_unit = true$' "$MBSIM" import --world-size 16 "$yaml"
expect "an enumeration is read by its number" 0 '^attention_backend = auto$' "$MBSIM" import --world-size 16 "$yaml"
expect "a layout becomes letters" 0 '^pipeline_model_parallel_layout = Ett|ttL$' "$MBSIM" import --world-size 16 "$yaml"
expect "a dtype is read" 0 '^exp_avg_dtype = torch.bfloat16$' "$MBSIM" import --world-size 16 "$yaml"
expect "the precision's gradients win" 0 '^accumulate_allreduce_grads_in_fp32 = false$' "$MBSIM" import --world-size 16 "$yaml"
expect "the vocabulary is padded only when asked" 0 '^vocab_size = 128256$' "$MBSIM" import --world-size 16 "$yaml"
expect "an unknown field is a warning" 0 'model.some_new_field: not known here, ignored' "$MBSIM" import --world-size 16 "$yaml"
"$MBSIM" import --world-size 16 "$yaml" >yaml.ini
expect "its scenario is a valid one" 0 '.' "$MBSIM" run yaml.ini --quiet
cat "$yaml" - >peft.yaml <<'EOF'
peft:
  _target_: megatron.bridge.peft.lora.LoRA
  a2a_experimental: false
  alpha: 32
  dim: 8
  dropout: 0.0
  dropout_position: pre
  exclude_modules: []
  lora_A_init_method: xavier
  lora_dtype: null
  normalize_moe_lora: false
  sequence_parallel_input_regather: true
  target_modules:
  - linear_qkv
EOF
expect "adapters are read" 0 '^dim = 8$' "$MBSIM" import --world-size 16 peft.yaml
"$MBSIM" import --world-size 16 peft.yaml >peft.ini
expect "and simulated" 0 '.' "$MBSIM" run peft.ini --quiet
sed 's/lora.LoRA/canonical_lora.CanonicalLoRA/' peft.yaml >canonical.yaml
expect "another kind is refused" 2 'this kind of fine-tuning is not simulated' "$MBSIM" import --world-size 16 canonical.yaml
expect "every field with its default is no obstacle" 0 '^num_layers = 4$' "$MBSIM" import --world-size 8 "$data/bridge_full.yaml"
"$MBSIM" import --world-size 8 "$data/bridge_full.yaml" >full.ini 2>full.err
check "and none of them is unknown" test ! -s full.err
expect "and they can be simulated" 0 '.' "$MBSIM" run full.ini --quiet
printf 'model: [1, 2\n' >bad.yaml
expect "broken YAML is refused with its line" 2 'bad.yaml:2?' "$MBSIM" import bad.yaml
printf 'a: &a [x, x, x, x, x, x, x, x, x]\nmodel: &b {p: [*a, *a, *a, *a], q: *a}\n' >alias.yaml
expect "aliases do not multiply" 2 'the model is not in the input' "$MBSIM" import alias.yaml

# Hugging Face
expect "llama" 0 '^ffn_hidden_size = 14336$' ./hf llama3-8b
expect "mixtral has experts" 0 '^num_experts = 8$' ./hf mixtral-8x7b
expect "qwen3_moe has narrow experts" 0 '^moe_ffn_hidden_size = 768$' ./hf qwen3-30b-a3b
expect "deepseek_v3 has compressed keys" 0 '^kv_lora_rank = 512$' ./hf deepseek-v3
expect "and dense layers first" 0 '^moe_layer_freq = .0..3.*1..58$' ./hf deepseek-v3
expect "and predicts a second token" 0 '^mtp_num_layers = 1$' ./hf deepseek-v3
expect "deepseek_v2 adds its shared experts up" 0 '^moe_shared_expert_intermediate_size = 2816$' ./hf deepseek-v2-lite
expect "kimi_k2" 0 '^num_experts = 384$' ./hf kimi-k2
expect "gpt_oss has biases" 0 '^add_bias_linear = true$' ./hf gpt-oss-20b
expect "glm4_moe rotates half" 0 '^rotary_percent = 0.5$' ./hf glm-4.5-air
expect "qwen3_next has linear attention" 0 '^experimental_attention_variant = gdn$' ./hf qwen3-next-80b-a3b
expect "in three layers of four" 0 '^linear_attention_freq = .1..3..0..1..1..3' ./hf qwen3-next-80b-a3b
expect "gemma gates gelu" 0 '^activation_func = geglu$' ./hf gemma-7b
expect "what is not simulated is named" 2 'not simulated: norms after attention and after the MLP' ./hf gemma-2-9b
expect "--lenient goes on" 0 '^; NOT SIMULATED: .*capped logits' "$MBSIM" import --lenient "$data/hf/gemma-2-9b.json"
expect "the run has to be said" 0 'says nothing about the run' ./hf llama3-8b
for model in mixtral-8x7b qwen3-30b-a3b qwen3-next-80b-a3b deepseek-v2-lite gpt-oss-20b glm-4.5-air; do
	"$MBSIM" import --world-size 256 --set parallel.expert_model_parallel_size=8 \
		--set device.memory_bytes=2TiB "$data/hf/$model.json" >hf.ini 2>/dev/null
	expect "$model can be simulated" 0 '.' "$MBSIM" run hf.ini --quiet
done
echo '{"model_type": "mamba2"}' >mamba.json
expect "an unknown type is refused" 2 "model_type 'mamba2' is not simulated; these are: llama" "$MBSIM" import mamba.json
echo '{"model_type": "llama", ' >broken.json
expect "broken JSON is refused" 2 'broken.json' "$MBSIM" import broken.json
echo '{"model_type": "llama", "num_hidden_layers": "two"}' >text.json
expect "a text for a number is refused" 2 'num_hidden_layers is not a whole number' "$MBSIM" import text.json

# Formats
expect "--format decides" 2 'not valid YAML' "$MBSIM" import --format bridge-yaml bad.yaml
expect "a wrong --format is refused" 2 'bridge-yaml, hf or auto was expected' "$MBSIM" import --format xml run.sh
expect "overrides are not Megatron-LM arguments" 2 'no Megatron-LM arguments' "$MBSIM" import --format shell run.sh
done_testing
