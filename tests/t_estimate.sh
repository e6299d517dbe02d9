#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The closed-form estimators beside the simulation.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

# Both lines for this job were printed by the real programs: Llama-3-8B, TP 2, DP 4, 8192 tokens.
cat > job.ini <<'EOS'
[model]
preset = llama3-8b
[parallel]
world_size = 8
tensor_model_parallel_size = 2
sequence_parallel = true
[train]
micro_batch_size = 1
global_batch_size = 128
seq_length = 8192
[recompute]
recompute_granularity = selective
[optimizer]
use_distributed_optimizer = true
EOS
line='weight and optimizer=34463.29 MB, activation=18468.03 MB, total=52931.32 MB'
expect "Megatron-LM's line" 0 "^Megatron-LM prints: .*$line" "$MBSIM" estimate job.ini
expect "Bridge's line" 0 "^Megatron-Bridge prints: .*$line" "$MBSIM" estimate job.ini
"$MBSIM" estimate job.ini --json out.json > text
check "the exact bytes" grep -q '"weight_and_optimizer_bytes": 36137373696.0' out.json
check "text beside a file" grep -q '^allocated at the peak' text
expect "JSON alone on standard output" 0 '^  "schema": "mbsim.estimate/1"' \
  "$MBSIM" estimate job.ini --json -
"$MBSIM" run job.ini --json run.json --set device.memory_bytes=1TiB > /dev/null
peak=$(sed -n 's/^      "max_allocated_bytes": \([0-9]*\),$/\1/p' run.json | sort -n | tail -1)
check "the simulated peak is that of run" grep -q "\"max_allocated_bytes\": $peak," out.json
expect "out of memory is no failure of the comparison" 0 '^reserved at the peak' \
  "$MBSIM" estimate job.ini --set device.memory_bytes=1GiB
expect "a wrong scenario" 2 'tensor_model_parallel_size: 3 ' "$MBSIM" estimate job.ini --set tp=3
done_testing
