#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mbsim import: three forms of Megatron-LM arguments, errors with their place, exit codes.
. "$TOP_SRCDIR/tests/lib.sh"

cat >"$work/train.sh" <<'EOF'
#!/bin/bash
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
GPUS=8
touch executed
MODEL_ARGS=(
    --num-layers 8 --hidden-size 1024   # a comment
    --num-attention-heads 16
    --seq-length 2048 --max-position-embeddings 2048
)
torchrun --nproc_per_node $GPUS --nnodes 2 pretrain_gpt.py ${MODEL_ARGS[@]} \
    --micro-batch-size 2 --tensor_model_parallel_size=2 --sequence-parallel --bf16 --lr 1e-4
EOF
cd "$work" || exit 99
expect "a script becomes a scenario" 0 '^world_size = 16$' "$MBSIM" import train.sh
expect "the argument and its line are named" 0 'num-attention-heads, train.sh:7' "$MBSIM" import train.sh
expect "the allocator's settings are taken" 0 '^conf = expandable_segments:True$' "$MBSIM" import train.sh
expect "-v lists what does not move memory" 0 'train.sh:11: --lr: does not move memory' "$MBSIM" import -v train.sh
check "nothing was executed" test ! -e executed
"$MBSIM" import train.sh >job.ini
expect "the scenario is a valid one" 0 '.' "$MBSIM" run job.ini --quiet
expect "standard input works" 0 '^world_size = 16$' sh -c '"$MBSIM" import - <train.sh'

data=$TOP_SRCDIR/tests/data/import
expect "CI YAML becomes a scenario" 0 '^virtual_pipeline_model_parallel_size = 2$' "$MBSIM" import --world-size 8 "$data/model_config.yaml"
expect "a longer script is followed" 0 '^num_layers = 32$' "$MBSIM" import "$data/train.sh"
expect "--set decides" 0 '^vocab_size = 1000$' "$MBSIM" import --set model.vocab_size=1000 --gpu a100 "$data/model_config.yaml"

expect "a printed dump becomes a scenario" 0 '^padded_vocab_size = 32000$' "$MBSIM" import "$data/dump.txt"

arguments="--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --bf16"
echo "$arguments --te-precision-config-file x.yaml" >unsupported.sh
expect "what is not simulated is an error" 2 'unsupported.sh:1: --te-precision-config-file' "$MBSIM" import unsupported.sh
echo "$arguments --optimizer-cuda-graph" >fsdp.sh
expect "with --lenient it is a comment" 0 '^; NOT SIMULATED: fsdp.sh:1: --optimizer-cuda-graph' "$MBSIM" import --lenient fsdp.sh
echo "$arguments --recompute-granularity selective --recompute-modules core_attn nonsense" >module.sh
expect "a wrong value is refused" 2 'nonsense' "$MBSIM" import module.sh
echo "$arguments --tensor-modle-parallel-size 2" >typo.sh
printf 'A=1\ntorchrun pretrain_gpt.py --num-layers "4 --hidden-size 512\n' > quote.sh
expect "an open quote is named" 2 'quote.sh:2: nothing closes the quote' "$MBSIM" import quote.sh
expect "an unknown argument gets a suggestion" 2 'did you mean --tensor-model-parallel-size' "$MBSIM" import typo.sh
echo "$arguments --pipeline-model-parallel-size \$PP" >variable.sh
expect "an unknown variable is an error" 2 'does not say what \$PP is' "$MBSIM" import variable.sh
cat >t5.sh <<'EOF'
python pretrain_t5.py --encoder-num-layers 4 --decoder-num-layers 6 --hidden-size 64 --num-attention-heads 4 \
  --encoder-seq-length 64 --decoder-seq-length 32 --max-position-embeddings 64 --micro-batch-size 1 \
  --tokenizer-type BertWordPieceCase --vocab-extra-ids 100 --bf16
EOF
expect "a decoder makes a T5" 0 '^model_type = t5$' "$MBSIM" import t5.sh
expect "both stacks have layers" 0 '^decoder_num_layers = 6$' "$MBSIM" import t5.sh
expect "extra tokens are added to the vocabulary" 0 '^vocab_size = 29096$' "$MBSIM" import t5.sh
"$MBSIM" import --world-size 1 t5.sh >t5.ini
expect "it runs" 0 'FITS' "$MBSIM" run t5.ini
expect "T5 has one stage" 2 't5 needs pipeline_model_parallel_size = 1' "$MBSIM" run --set world_size=2 --set pp=2 t5.ini
expect "a decoder needs T5" 2 'decoder_num_layers: needs model_type = t5' "$MBSIM" run --set model_type=gpt t5.ini

echo "pretrain_bert.py $arguments --bert-no-binary-head --vocab-size 1000 --tokenizer-type NullTokenizer" >bert.sh
expect "a flag that switches off does" 0 '^bert_binary_head = false$' "$MBSIM" import bert.sh

hybrid="--hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --bf16 --spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec"
echo "pretrain_mamba.py $hybrid --hybrid-override-pattern M-M* --mamba-state-dim 16 --mamba-num-groups 2 --num-layers 9 --vocab-size 1000 --tokenizer-type NullTokenizer" >hybrid.sh
expect "a pattern makes a hybrid" 0 '^hybrid_layer_pattern = M-M\*$' "$MBSIM" import hybrid.sh
"$MBSIM" import --world-size 2 hybrid.sh >hybrid.ini
expect "it runs" 0 'FITS' "$MBSIM" run hybrid.ini
expect "stages follow from the pattern" 2 'hybrid_layer_pattern: ' "$MBSIM" run --set 'hybrid_layer_pattern=M|-|M' --set pp=2 hybrid.ini
expect "an unknown kind of layer is named" 2 "hybrid_layer_pattern: 'x' is no kind of layer" "$MBSIM" run --set hybrid_layer_pattern=Mx hybrid.ini
expect "a kind that is not simulated is named" 2 "hybrid_layer_pattern: 'D' is not simulated" "$MBSIM" run --set hybrid_layer_pattern=MD hybrid.ini
expect "a gated delta net wants silu" 2 'activation_func: must be swiglu or silu' "$MBSIM" run --set hybrid_layer_pattern=MG --set activation_func=gelu hybrid.ini
echo "$arguments --vocab-size 1000 --tokenizer-type NullTokenizer --swiglu --disable-bias-linear --experimental-attention-variant gated_delta_net --linear-attention-freq 4 --linear-num-value-heads 16" >gdn.sh
expect "linear attention is imported" 0 '^linear_attention_freq = 4$' "$MBSIM" import gdn.sh
"$MBSIM" import gdn.sh >gdn.ini
expect "and simulated" 0 'delta_net' "$MBSIM" run gdn.ini
expect "its heads are split" 2 'linear_num_key_heads: 3 is not a multiple' "$MBSIM" run --set tp=2 --set linear_num_key_heads=3 gdn.ini
expect "and repeated" 2 'linear_num_value_heads: 16 is not a multiple of linear_num_key_heads 6' "$MBSIM" run --set linear_num_key_heads=6 gdn.ini
expect "its layers are named" 2 'experimental_attention_variant: gdn needs linear_attention_freq' "$MBSIM" run --set linear_attention_freq=none gdn.ini
expect "all of them" 2 'linear_attention_freq: names 3 of 8 layers' "$MBSIM" run --set 'linear_attention_freq=[1,1,0]' gdn.ini
echo "$arguments --vocab-size 1000 --tokenizer-type NullTokenizer --context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 --use-flash-attn" >cp.sh
expect "two levels of context parallelism" 0 '^hierarchical_context_parallel_sizes = 2 2$' "$MBSIM" import cp.sh
"$MBSIM" import cp.sh >cp.ini
expect "are simulated" 0 'FITS' "$MBSIM" run cp.ini
expect "their product is checked" 2 'hierarchical_context_parallel_sizes: must be two sizes whose product is context_parallel_size 4' "$MBSIM" run --set 'hierarchical_context_parallel_sizes=2 4' cp.ini
expect "a2a alone has none" 2 'hierarchical_context_parallel_sizes: needs cp_comm_type' "$MBSIM" run --set cp_comm_type=a2a cp.ini
expect "the first divides the heads" 2 'a2a among 8 ranks needs that to divide' "$MBSIM" run --set cp=8 --set 'hierarchical_context_parallel_sizes=8 1' cp.ini
expect "a frequency needs the variant" 2 'linear_attention_freq: needs experimental_attention_variant = gdn' "$MBSIM" run --set experimental_attention_variant=none gdn.ini
echo "pretrain_mamba.py $hybrid --hybrid-layer-pattern M-M* --mtp-num-layers 2 --mtp-hybrid-override-pattern *- --mtp-use-repeated-layer --position-embedding-type none --mamba-state-dim 16 --mamba-num-groups 2 --vocab-size 1000 --tokenizer-type NullTokenizer" >depths.sh
expect "older spelling of a hybrid's depths" 0 '^hybrid_layer_pattern = M-M\*/\*-/\*-$' "$MBSIM" import depths.sh
sed 's,M-M\*,M-M*/E/E,; s/num-layers 2/num-layers 3/; s/--mtp-hybrid-override-pattern .-//' depths.sh >pattern.sh
expect "the pattern decides on depths" 0 '^hybrid_layer_pattern = M-M\*/E/E$' "$MBSIM" import pattern.sh
"$MBSIM" import depths.sh >depths.ini
expect "further tokens are predicted" 0 'FITS' "$MBSIM" run depths.ini
expect "depths are alike" 2 'depth 2 of multi-token prediction differs' "$MBSIM" run --set 'hybrid_layer_pattern=M-M*/*-/--' depths.ini
expect "depths have layers" 2 'depth 1 of multi-token prediction names no layer' "$MBSIM" run --set 'hybrid_layer_pattern=M-M*//' depths.ini
expect "depths are counted" 2 'mtp_num_layers: 1, but hybrid_layer_pattern names 2' "$MBSIM" run --set mtp_num_layers=1 depths.ini
expect "a fused squared ReLU needs experts" 2 'use_fused_weighted_squared_relu: needs' "$MBSIM" run --set use_fused_weighted_squared_relu=true depths.ini
echo "$arguments --data-parallel-sharding-strategy optim --vocab-size 1000" >strategy.sh
expect "a strategy is nothing without FSDP" 0 '' sh -c "\"$MBSIM\" import strategy.sh >strategy.ini && ! grep ^data_parallel_sharding strategy.ini"
expect "the number of layers agrees" 2 'num_layers: 3, but hybrid_layer_pattern names 4' "$MBSIM" run --set num_layers=3 hybrid.ini
expect "heads are split" 2 'mamba_num_heads: 3 is not a multiple' "$MBSIM" run --set tp=2 --set mamba_num_heads=3 hybrid.ini

: >empty
expect "an empty file is refused" 2 'empty' "$MBSIM" import empty
expect "a number of GPUs that the script says already" 0 'warning: --world-size 12 is left out: the input says [0-9]+ GPUs' \
  "$MBSIM" import --world-size 12 train.sh
expect "an unknown GPU" 2 '^mbsim: import: --gpu h900: unknown GPU' "$MBSIM" import --gpu h900 train.sh
head -c 3000 /dev/urandom >binary
expect "a binary file is refused" 2 'binary' "$MBSIM" import binary
head -c 20000000 /dev/zero | tr '\0' 'a' >long
expect "a long file is refused" 2 'long' "$MBSIM" import long
expect "a missing file is refused" 2 'nowhere' "$MBSIM" import nowhere
printf 'MODEL_ARGS: [1, 2\n' >bad.yaml
expect "broken YAML is refused with its line" 2 'bad.yaml:2?' "$MBSIM" import bad.yaml
expect "text without arguments is refused" 2 'no Megatron-LM arguments' sh -c 'echo hello | "$MBSIM" import -'
expect "a wrong --world-size is refused" 2 'world-size' "$MBSIM" import --world-size many train.sh
# torchtitan's command lines.
titan=$TOP_SRCDIR/tests/data/import/torchtitan.sh
expect "torchtitan's options are known" 0 '^framework = torchtitan$' "$MBSIM" import "$titan"
expect "a configuration names the model" 0 '^preset = llama3-8b$' "$MBSIM" import "$titan"
expect "a local batch makes the global one" 0 '^global_batch_size = 32$' "$MBSIM" import "$titan"
expect "FP8 comes from converters" 0 '^fp8_recipe = tensorwise$' "$MBSIM" import "$titan"
expect "FP8 all-gather is an option" 0 '^enable_fsdp_float8_all_gather = true$' "$MBSIM" import "$titan"
expect "what moves no memory is listed" 0 'metrics.enable_wandb' "$MBSIM" import -v "$titan"
cat >"$work/titan.sh" <<'EOF'
torchrun --nproc_per_node=8 train.py --model.name llama3 --model.flavor 70B --training.batch_size 16 \
  --experimental.pipeline_parallel_degree 4 --parallelism.pipeline_parallel_schedule ZBVZeroBubble
EOF
expect "a flavor names the model" 2 '^preset = llama3-70b$|ZBVZeroBubble' "$MBSIM" import "$work/titan.sh"
expect "other schedules are refused" 2 'pipeline_parallel_schedule ZBVZeroBubble is not simulated' \
  "$MBSIM" import "$work/titan.sh"
expect "a pipeline splits the local batch" 0 '^micro_batch_size = 4$' "$MBSIM" import --lenient "$work/titan.sh"
expect "ranks may come from shards" 0 '^world_size = 16$' sh -c \
  'echo "train.py --model.flavor 8B --parallelism.data_parallel_shard_degree 4 --parallelism.tensor_parallel_degree 4" |
   "$0" import --format torchtitan -' "$MBSIM"
done_testing
