#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two scenarios or reports compared.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

cat > a.ini <<'EOS'
[model]
preset = llama3.2-1b
[parallel]
world_size = 8
pipeline_model_parallel_size = 2
[train]
micro_batch_size = 1
global_batch_size = 16
seq_length = 2048
[optimizer]
use_distributed_optimizer = true
EOS
sed 's/^seq_length.*/seq_length = 4096/' a.ini > b.ini

"$MBSIM" diff a.ini b.ini --json diff.json > diff.txt
check "keys that differ" grep -q '^  train.seq_length: 2048 -> 4096$' diff.txt
check "and no others but what follows from them" \
  [ "$(sed -n '/^Keys/,/^$/p' diff.txt | grep -c '^  ')" -eq "$(grep -c '^      "key": ' diff.json)" ]
check "every rank has its line" grep -q '^  0-3 ' diff.txt

# sum LIST-NAME: differences of the worst rank's parts, added
sum() {
  sed -n '/^  "worst"/,/^  "ranks"/p' diff.json | sed -n "/^    \"$1\"/,/^    }/p" |
    sed -n 's/.*"difference": \(-*[0-9]*\).*/\1/p' | awk '{ n += $1 } END { printf "%.0f", n }'
}
change=$(sed -n '/^  "worst"/,/^  "ranks"/p' diff.json | sed -n '/^    "allocated_bytes"/,/^    }/p' |
  sed -n 's/.*"difference": \(-*[0-9]*\).*/\1/p')
check "the change is not zero" [ "$change" -gt 0 ]
check "categories add up to it" [ "$(sum categories)" = "$change" ]
check "modules add up to it" [ "$(sum modules)" = "$change" ]

"$MBSIM" run a.ini --json a.json > /dev/null
"$MBSIM" run b.ini --json b.json > /dev/null
"$MBSIM" diff a.json b.json > saved.txt
check "saved reports give the same" cmp diff.txt saved.txt
"$MBSIM" diff a.ini a.ini --set-b train.seq_length=4096 | sed 's/^B: a.ini/B: b.ini/' > set.txt
check "--set-b sets the second only" cmp diff.txt set.txt
"$MBSIM" diff a.ini b.json > mixed.txt
check "a scenario and a report" cmp diff.txt mixed.txt
expect "nothing differs" 0 '^No key differs' "$MBSIM" diff a.ini a.json
expect "nothing differs: no rank changes" 0 '^  0-7 +=  *=$' "$MBSIM" diff a.ini a.json
expect "another rank than the worst" 0 '^A: rank 7 ' "$MBSIM" diff a.ini b.ini --rank 7
expect "different numbers of ranks" 0 'different ranks' "$MBSIM" diff a.ini a.ini --set-b world_size=4
expect "one that does not fit says what it would need" 0 'B: a.ini, does NOT fit' \
  "$MBSIM" diff a.ini a.ini --set-b device.memory_bytes=2GiB
"$MBSIM" diff a.ini a.ini --set-b device.memory_bytes=2GiB > need.txt
check "and that is the same" grep -Eq '^  allocated, peak .* =$' need.txt

expect "a rank that is not there" 2 'the first report has no rank 8' "$MBSIM" diff a.ini b.ini --rank 8
echo '{"schema": "mbsim.sweep/1"}' > other.json
expect "another schema" 2 'other.json: schema is mbsim.sweep/1, not mbsim.report/1' "$MBSIM" diff a.ini other.json
echo '{"schema": "mbsim.report/1", "scenario": {}, "verdict": {"worst_rank": 0}, "ranks": [{}]}' > part.json
expect "a part of a report" 2 'part.json: ranks\[0\] is not complete' "$MBSIM" diff part.json a.ini
jq '.ranks[7].rank = 4000000000' a.json > far.json
expect "a rank beyond any job" 2 'far.json: ranks\[7\]: its rank is out of order' "$MBSIM" diff far.json a.ini
jq '.ranks[1].rank = 0' a.json > again.json
expect "a rank that is there twice" 2 'ranks\[1\]: its rank is out of order' "$MBSIM" diff again.json a.ini
sed 's/"headroom_bytes": -*[0-9]*/"headroom_bytes": -9223372036854775808/' a.json > least.json
expect "a number beyond any machine" 2 'least.json: has a number beyond 2.60' "$MBSIM" diff least.json a.ini
head -c 1000 a.json > torn.json
expect "a torn report" 2 '^mbsim: diff: torn.json:[0-9]+: ' "$MBSIM" diff torn.json a.ini
expect "one operand" 2 'A B is missing' "$MBSIM" diff a.ini
done_testing
