#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mbsim replay of PyTorch memory snapshots.
. "$TOP_SRCDIR/tests/lib.sh"
data=$TOP_SRCDIR/tests/data/snapshots

tab=$(printf '\t')
while IFS="$tab" read -r name conf total usable; do
  [ "$name" = snapshot ] && continue
  expect "$name ($conf) ends as recorded" 0 'under the recorded settings the two agree' \
    "$MBSIM" replay --capacity "$total" --usable "$usable" "$data/$name"
done <"$data/INDEX.tsv"

expect "recorded settings come first" 0 '^max_split_size_mb:128 ' "$MBSIM" replay "$data/edge_maxsplit.p4.pickle"
expect "and are compared with expandable segments" 0 '^max_split_size_mb:128,expandable_segments:True ' \
  "$MBSIM" replay "$data/edge_maxsplit.p4.pickle"
expect "or without, where they were recorded" 0 '^expandable_segments:False ' "$MBSIM" replay "$data/edge_exp_grow.p4.pickle"
expect "or with what is asked for" 0 '^roundup_power2_divisions:4 ' \
  "$MBSIM" replay -c roundup_power2_divisions:4 "$data/edge_exp_grow.p4.pickle"
expect "what the device had is deduced from a retry" 0 '^device: usable 180\.0 MiB' "$MBSIM" replay "$data/edge_retry_split.p2.pickle"
expect "and the retry is repeated" 0 '^\(default\) .* 1  +0  -$' "$MBSIM" replay "$data/edge_retry_split.p2.pickle"
expect "what cannot be known is said" 0 'The size of the device is not in a snapshot' "$MBSIM" replay "$data/edge_events.p3.pickle"
expect "too little memory: exit code 3" 3 'line 2, allocation 2 of .* failed \(capacity\)' \
  "$MBSIM" replay --capacity 1MiB "$data/edge_events.p3.pickle"
expect "which is why it differs from the recording" 3 'the two differ: what is played runs out of memory$' \
  "$MBSIM" replay --capacity 1MiB "$data/edge_events.p3.pickle"

"$MBSIM" replay "$data/edge_gc.p3.pickle" >"$work/file"
"$MBSIM" replay - <"$data/edge_gc.p3.pickle" | sed "s|^stdin|$data/edge_gc.p3.pickle|" >"$work/stdin"
check "standard input is recognised too" cmp "$work/file" "$work/stdin"
"$MBSIM" replay --json "$work/out.json" "$data/edge_gc.p3.pickle" >/dev/null
check "the JSON has the recording" grep -q '"usable_is_exact"' "$work/out.json"

expect "a snapshot without history" 2 '_record_memory_history' "$MBSIM" replay "$data/old_layout.p4.pickle"
expect "a device that is not there" 2 'no recorded events of device 7' "$MBSIM" replay --device 7 "$data/edge_gc.p3.pickle"
expect "a device that is no number" 2 '--device x' "$MBSIM" replay --device x "$data/edge_gc.p3.pickle"
printf '\200\004cposix\nsystem\n.' >"$work/evil.pickle"
expect "a pickle that calls code is refused by opcode and offset" 2 \
  'evil.pickle: pickle, offset 2: opcode GLOBAL is not accepted' "$MBSIM" replay "$work/evil.pickle"
printf '(lp0\n.' >"$work/old.pickle"
expect "protocol 0 is refused" 2 'not a pickle of protocol 2 to 5' "$MBSIM" replay "$work/old.pickle"
head -c 2000 "$data/edge_gc.p3.pickle" >"$work/cut.pickle"
expect "a file cut off is refused" 2 'cut off' "$MBSIM" replay "$work/cut.pickle"
done_testing
