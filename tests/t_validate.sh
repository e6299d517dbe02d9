#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mbsim validate over a few published measurements.
. "$TOP_SRCDIR/tests/lib.sh"
corpus=$TOP_SRCDIR/tests/data/validate.jsonl

expect "records are counted" 0 '^Total: 7 of 8 records covered' "$MBSIM" validate "$corpus"
expect "reasons are counted" 0 '^ +1  run with torchtune, which is not simulated' "$MBSIM" validate "$corpus"
expect "records are listed" 0 'tp4_pp1_memory_speed.* 54496\.6 ' "$MBSIM" validate -v "$corpus"
check "tables fit 100 columns" sh -c '! "$MBSIM" validate -v "$0" | grep -E "^.{101}"' "$corpus"
expect "BERT has its heads" 0 ' 3274\.4 +3274\.4 ' "$MBSIM" validate -v --filter model.type=bert "$corpus"
expect "a filter selects" 0 'Total: 1 of 1 ' "$MBSIM" validate --filter 'gpu=B200*' "$corpus"
expect "filters join" 0 'Total: 1 of 1 ' "$MBSIM" validate --filter parallel.pp=1 --filter 'model.type=gpt' \
  --filter 'family!=userlog*' --filter "family!=torcht*" "$corpus"
expect "a filter that nothing passes is an error" 2 'no record passes' "$MBSIM" validate --filter id=none "$corpus"
expect "a filter without = is refused" 2 'KEY=GLOB' "$MBSIM" validate --filter gpu "$corpus"

cd "$work" || exit 99
check "JSON is written" "$MBSIM" validate --json out.json --csv out.csv "$corpus"
check "it has the schema" grep -q '"schema": "mbsim.validate/1"' out.json
check "every record is in it" sh -c 'test "$(grep -c "\"verdict\"" out.json)" = 7 && test "$(grep -c "\"reason\": null" out.json)" = 7'
for name in max_allocated_bytes allocated_bytes_step2 max_reserved_bytes weight_and_optimizer_bytes; do
  check "$name is in it" grep -q "\"$name\":" out.json
done
check "CSV has a line for every record" sh -c 'test "$(wc -l <out.csv)" = 9'
expect "JSON to standard output is JSON alone" 0 '^\{' sh -c '"$MBSIM" validate --json - "$0" | head -1' "$corpus"

expect "a generous threshold holds" 0 'Total' "$MBSIM" validate --max-median 50 --max-p90 90 "$corpus"
expect "a missed median is exit code 4" 4 'median error' "$MBSIM" validate --max-median 0 "$corpus"
expect "a missed percentile is exit code 4" 4 '90th percentile' "$MBSIM" validate --max-p90 0.0001 "$corpus"
expect "thresholds over nothing are missed" 4 'no record' "$MBSIM" validate --filter "family=torchtitan*" --max-median 5 "$corpus"
expect "a wrong threshold is refused" 2 'percentage' "$MBSIM" validate --max-median x "$corpus"

check "scenarios are written" "$MBSIM" validate -q --scenarios scenarios "$corpus"
check "one for each record" sh -c 'test "$(ls scenarios | wc -l)" = 8'
expect "and run" 0 . "$MBSIM" run scenarios/userlog-byoc-llama1b_h100.ini

# What records say about experts, types of optimizer state, offloaded activations and MTP.
cat >experts.jsonl <<'EOF'
{"id": "x/bridge", "source": "Megatron-Bridge recipe", "gpu": "H100-80GB", "world_size": 8, "measured_on": "max", "measured": {"max_allocated_bytes": 1000000000}, "model": {"type": "gpt-moe", "layers": 4, "hidden": 512, "heads": 8, "vocab": 1024, "norm": "RMSNorm", "activation": "swiglu", "bias_linear": false, "experts": 8, "topk": 2, "moe_ffn": 512}, "parallel": {"tp": 1, "pp": 1, "ep": 8, "etp": 1}, "train": {"mbs": 1, "gbs": 8, "seq": 1024, "precision": "bf16", "grad_dtype": "bf16", "dist_opt": true, "moe_grouped_gemm": true, "optimizer": "adam precision-aware (fp16 main params, bf16 grads, bf16 moments)", "fine_grained_offload": ["moe_act"]}}
{"id": "x/even", "source": "a log", "recorded": "2025-08-17", "gpu": "H100-80GB", "world_size": 8, "measured_on": "max", "measured": {"max_allocated_bytes": 1000000000}, "model": {"type": "gpt-moe", "experts": 8}, "parallel": {"tp": 1, "pp": 2, "ep": 4}, "train": {"router_force_balance": true}, "args": {"num-layers": 3, "hidden-size": 512, "num-attention-heads": 8, "seq-length": 1024, "max-position-embeddings": 1024, "vocab-size": 1024, "micro-batch-size": 1, "global-batch-size": 8, "bf16": true, "num-experts": 8, "expert-model-parallel-size": 4, "pipeline-model-parallel-size": 2, "pipeline-model-parallel-layout": "Ett|tL", "mtp-num-layers": 1, "disable-bias-linear": true}}
EOF
check "records with experts are read" "$MBSIM" validate -q --scenarios experts experts.jsonl
expect "types of main parameters are read" 0 '^main_params_dtype = fp16$' cat experts/x_bridge.ini
expect "and of moments" 0 '^exp_avg_sq_dtype = bf16$' cat experts/x_bridge.ini
expect "Megatron-Bridge's FP8 recipe counts" 0 '^fp8_recipe = tensorwise$' cat experts/x_bridge.ini
expect "modules of offloading are read" 0 '^offload_modules = moe_act$' cat experts/x_bridge.ini
check "routing that no record tells is even" sh -c '! grep moe_imbalance experts/x_*.ini'
expect "older layouts end with MTP" 0 '^pipeline_model_parallel_layout = Ett.tm.1L$' cat experts/x_even.ini

# What is measured over several ranks: the highest, the mean.
sed -n 's/"rank": 7, "measured_on": "rank"/"rank": null, "measured_on": "max"/p' "$corpus" | head -2 >max.jsonl
sed 's/"measured_on": "max"/"measured_on": "mean"/' max.jsonl >mean.jsonl
peak() {
  "$MBSIM" validate -q --filter 'parallel.pp=4' --json - "$1" |
    sed -n '/"simulated"/,/}/s/.*"max_allocated_bytes": \([0-9]*\).*/\1/p'
}
check "the mean over stages is below the highest" test "$(peak mean.jsonl)" -lt "$(peak max.jsonl)"
check "and the last stage is not the highest" test "$(peak "$corpus")" -lt "$(peak max.jsonl)"

printf '\n{"id": "a", "measured": {}}\n{"id": \n' >broken.jsonl
expect "a broken line is named" 2 'broken.jsonl:3: not a JSON object' "$MBSIM" validate broken.jsonl
echo '{"name": 1}' >other.jsonl
expect "another kind of JSON is refused" 2 'other.jsonl:1: not a record' "$MBSIM" validate other.jsonl
echo '[1]' >list.jsonl
expect "a list is refused" 2 'list.jsonl:1: not a record' "$MBSIM" validate list.jsonl
: >empty.jsonl
expect "an empty corpus is refused" 2 'no record' "$MBSIM" validate empty.jsonl
echo '{"id": "x", "measured": {"max_allocated_bytes": 5}, "model": {"type": "gpt", "layers": "many"}, "world_size": 8}' >odd.jsonl
expect "a record that makes no scenario is not covered" 0 'Total: 0 of 1' "$MBSIM" validate odd.jsonl
if [ -w /dev/full ]; then
  expect "a full disk is exit code 1" 1 '/dev/full' "$MBSIM" validate --json /dev/full "$corpus"
fi
done_testing
