#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Advice: what it says fits, fits; what it leaves out is not needed.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

cat > job.ini <<'EOS'
[model]
preset = llama3.2-1b
[parallel]
world_size = 8
tensor_model_parallel_size = 2
[train]
micro_batch_size = 2
global_batch_size = 32
seq_length = 4096
[device]
memory_bytes = 21GiB
estimate_outside = false
EOS

# follow FILE [NAME]: --set options for the chosen changes of a JSON advice but NAME, one a line
follow() {
  jq -r --arg but "${2-}" \
    '.changes[] | select(.is_chosen and .name != $but) | .settings[] | "--set=" + .' "$1"
}

# run_with FILE ARGUMENT...: mbsim run with the options in FILE, one a line
cat > run_with.sh <<'EOS'
file=$1
shift
while read -r option; do set -- "$@" "$option"; done < "$file"
exec "$MBSIM" run job.ini "$@"
EOS

expect "the job does not fit" 3 'OUT OF MEMORY|does not fit|DOES NOT FIT' "$MBSIM" run job.ini
"$MBSIM" advise job.ini --json advice.json > advice.txt
check "advice is found" [ $? -eq 0 ]
check "it names the cheapest change first" grep -q '^ 1\. expandable segments' advice.txt
check "and no other" [ "$(grep -c '^ *[0-9]*\. ' advice.txt)" -eq 1 ]
check "with bytes and throughput" grep -Eq '^    saves [0-9.]+ GiB on the worst rank, throughput [+-]' advice.txt
follow advice.json > advice.sets
expect "with it the job fits" 0 'FITS' sh run_with.sh advice.sets

"$MBSIM" advise job.ini --set device.memory_bytes=9GiB --margin 0 --json hard.json > hard.txt
check "less memory: several changes" [ "$(grep -c '^ *[0-9]*\. ' hard.txt)" -gt 1 ]
check "as Megatron-LM spells it" grep -q '^    Megatron-LM: --use-distributed-optimizer$' hard.txt
check "as Bridge spells it" grep -q '^    Bridge:      optimizer.use_distributed_optimizer=true' hard.txt
follow hard.json > hard.sets
expect "they fit together" 0 'FITS' sh run_with.sh hard.sets --set device.memory_bytes=9GiB
# Each of them is needed: without it the rest does not fit, or is not even legal.
jq -r '.changes[] | select(.is_chosen) | .name' hard.json > names
n=0
while read -r name; do
  follow hard.json "$name" > rest
  sh run_with.sh rest --set device.memory_bytes=9GiB > rest.txt 2>&1
  code=$?
  check "without $name it does not fit" [ $code -eq 3 -o $code -eq 2 ]
  n=$((n + 1))
done < names
check "several were left out in turn" [ $n -gt 1 ]
# shellcheck disable=SC2016 # $0 is for the inner shell
check "savings add up to what changed" sh -c '
  before=$(sed -n "/^  \"before\"/,/^  }/s/.*\"device_used_bytes\": \([0-9]*\).*/\1/p" "$0")
  after=$(sed -n "/^  \"after\"/,/^  }/s/.*\"device_used_bytes\": \([0-9]*\).*/\1/p" "$0")
  sum=$(sed -n "s/.*\"then_saved_bytes\": \(-*[0-9]*\).*/\1/p" "$0" | awk "{ n += \$1 } END { printf \"%.0f\", n }")
  [ "$sum" -eq $((before - after)) ]' hard.json

# Recompute is tried in the order of what it saves for each second that it costs.
moe=$TOP_SRCDIR/scenarios/mla-moe-mtp-8xh100-vpp4.ini
"$MBSIM" advise "$moe" --set device.memory_bytes=30GiB --json moe.json > moe.txt
values=$(jq '(1 / .before.estimated_tokens_per_s) as $before
  | .changes[] | select(.name == "full recompute" | not) | select(.name | startswith("recompute "))
  | select(.alone) | (1 / .alone.estimated_tokens_per_s - $before) as $cost
  | if .saved_bytes <= 0 then 0 else .saved_bytes / ([$cost, 1e-18] | max) end' moe.json)
check "modules to recompute are compared" [ "$(echo "$values" | wc -l)" -ge 5 ]
check "the best bargain comes first" [ "$(echo "$values" | sort -gr)" = "$values" ]
check "it is not the order of another job" [ "$(jq -c '[.changes[].name | select(startswith("recompute "))]' moe.json)" != \
  "$(jq -c '[.changes[].name | select(startswith("recompute "))]' hard.json)" ]

# A costly change gives way to cheaper switches: MLPs alone would do as well.
big=$TOP_SRCDIR/scenarios/llama3-70b-32xh100-tp4-pp4-vpp5.ini
"$MBSIM" advise "$big" --json big.json > big.txt
check "a costly change would do alone" \
  [ "$(jq -r '.changes[] | select(.name == "recompute mlp") | .alone.status' big.json)" = fits ]
check "but it is not needed" [ "$(jq '[.changes[] | select(.is_chosen and .name == "recompute mlp")] | length' big.json)" = 0 ]
check "what stands for it costs less" \
  [ "$(jq '.after.estimated_tokens_per_s > 0.95 * .before.estimated_tokens_per_s' big.json)" = true ]

# More GPUs are never assumed.
needs_more() {
  "$MBSIM" advise "$big" --set device.memory_bytes=30GiB --json more.json "$@" > more.txt
  jq '[.changes[] | select(.is_chosen) | .settings[] | select(startswith("parallel.world_size"))] | length' more.json
}
check "more GPUs are not chosen" [ "$(needs_more)" = 0 ]
check "but for those who ask" [ "$(needs_more --more-gpus)" = 1 ]
check "it is said" grep -q 'effect: needs twice as many GPUs' more.txt

expect "a job that fits needs nothing" 0 'nothing has to change' \
  "$MBSIM" advise job.ini --set device.memory_bytes=80GiB
check "and is told in a line" [ "$("$MBSIM" advise job.ini --set device.memory_bytes=80GiB | wc -l)" -eq 1 ]
expect "a margin that is asked for counts" 0 '^ 1\. ' \
  "$MBSIM" advise job.ini --set device.memory_bytes=80GiB --margin 60GiB
expect "nothing helps" 3 'No set of these changes makes it fit' \
  "$MBSIM" advise job.ini --set device.memory_bytes=2GiB
expect "why a change is not possible" 0 '^  twice the expert parallelism  *for mixture' "$MBSIM" advise job.ini
expect "conflicts are said" 0 'mind: .*--use-nccl-ub|expandable segments' "$MBSIM" advise job.ini
expect "JSON names its schema" 0 '"schema": "mbsim.advise/1"' "$MBSIM" advise job.ini --json -
expect "a wrong margin" 2 'a size such as 2GiB' "$MBSIM" advise job.ini --margin x
expect "a wrong scenario" 2 'tensor_model_parallel_size: 3 ' "$MBSIM" advise job.ini --set tp=3
done_testing
