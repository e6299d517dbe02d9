#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mbsim replay: golden runs of the real allocator, comparisons, and what it says about bad traces.
. "$TOP_SRCDIR/tests/lib.sh"
data=$TOP_SRCDIR/tests/data/allocator

expect "every golden run agrees" 0 '^542 of 542 runs agree$' "$MBSIM" replay --check "$data/INDEX.tsv"

# A changed expectation must be noticed, and the run named.
mkdir "$work/a" "$work/a/b"
cp -R "$data/traces" "$data/expected" "$work/a/b/"
chmod -R u+w "$work/a"
sed 's|allocator/|b/|g' "$data/INDEX.tsv" | grep -E '^trace|edge_ties' >"$work/a/b/INDEX.tsv"
expect "a part of the index, with its own folder name" 0 ' runs agree$' "$MBSIM" replay --check "$work/a/b/INDEX.tsv"
sed 's/^\(s [0-9]*\) [0-9]*/\1 1/' "$data/expected/edge_ties.txt" >"$work/a/b/expected/edge_ties.txt"
expect "a run that differs is named, with the field" 1 '^b/traces/edge_ties.txt run 0: field 2: expected "s ' \
  "$MBSIM" replay --check "$work/a/b/INDEX.tsv"
printf 'x\ty\n' >"$work/a/b/INDEX.tsv"
expect "a bad index" 2 'INDEX.tsv:1: not 12 columns' "$MBSIM" replay --check "$work/a/b/INDEX.tsv"
expect "a missing index" 2 'No such file' "$MBSIM" replay --check "$work/none.tsv"

# Twice 60 MiB in holes of 60 and 50: expandable segments fit where segments do not.
cat >"$work/trace" <<'TRACE'
# two large blocks, freed, then one that needs both places
a 1 62914560 0
a 2 52428800 0
f 1
f 2
a 3 104857600 0
TRACE
expect "without a bound the default needs more" 0 '^\(default\) +110.0 MiB +210.0 MiB' "$MBSIM" replay "$work/trace"
expect "side by side" 0 '^expandable_segments:True +110.0 MiB +120.0 MiB' \
  "$MBSIM" replay "$work/trace" --alloc-conf '' --alloc-conf expandable_segments:True
expect "with a bound it retries" 0 '^\(default\) .* 1 +0  -$' "$MBSIM" replay "$work/trace" --capacity 120MiB
expect "a request beyond the capacity fails: exit code 3" 3 '^\(default\): line 3, allocation 2 of 50.00 MiB failed \(capacity\)' \
  "$MBSIM" replay "$work/trace" --capacity 80MiB
expect "standard input" 0 '^stdin: 5 calls, 3 allocations, 1 streams$' sh -c "'$MBSIM' replay - <'$work/trace'"
expect "settings from the environment" 0 '^expandable_segments:True ' \
  env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "$MBSIM" replay "$work/trace" -c env

# Two blocks of 8 MiB share each segment of 20; one of each pair is freed, so no segment can go back.
for i in 1 2 3 4 5 6 7 8; do echo "a $i 8388608 0"; done >"$work/frag"
printf 'f 1\nf 3\nf 5\nf 7\na 9 31457280 0\n' >>"$work/frag"
expect "fragmentation is told from capacity" 3 \
  'allocation 9 of 30.0[0-9]* MiB failed \(fragmentation\): 32.0[0-9]* MiB allocated, 48.0[0-9]* MiB reserved' \
  "$MBSIM" replay "$work/frag" --capacity 104MiB
expect "which expandable segments cure" 0 '^expandable_segments:True .* 0  -$' \
  "$MBSIM" replay "$work/frag" --capacity 104MiB -c expandable_segments:True

"$MBSIM" replay "$work/trace" --capacity 80MiB --json "$work/out.json" >/dev/null
check "the JSON names the schema" grep -q '"schema": *"mbsim.replay/1"' "$work/out.json"
check "the JSON has the failure" grep -q '"cause": *"capacity"' "$work/out.json"

bad() { # bad TEXT PATTERN LINES: a trace of these lines is refused
  printf '%b' "$3" >"$work/bad"
  expect "$1" 2 "$2" "$MBSIM" replay "$work/bad"
}
bad "an unknown call" 'bad:2: unknown call .x.; known: a f R y Y e r A c m s' '\nx 1\n'
bad "a binary file" 'bad: binary file, not a trace$' 'a 1 2 0\n\0000\n'
bad "what could steer a terminal is not repeated" 'unknown call .[?][[]31mx.;' '\0033[31mx\n'
bad "words missing" 'bad:1: 3 words, not 4: a ID BYTES STREAM' 'a 1 2\n'
bad "words too many" 'bad:1: 3 words, not 2: f ID' 'f 1 2\n'
bad "no number" "bad:1: BYTES is '-5', not a whole number below 2\\^64" 'a 1 -5 0\n'
bad "beyond 64 bits" 'bad:1: BYTES is ' 'a 1 18446744073709551616 0\n'
bad "an ID used twice" 'bad:2: ID 1 was allocated before' 'a 1 2 0\na 1 2 0\n'
bad "a free without allocation" 'bad:1: ID 7 was never allocated' 'f 7\n'
bad "a second free" 'bad:3: ID 1 was freed before' 'a 1 2 0\nf 1\nf 1'
bad "a stream too large" 'bad:1: STREAM 99999999999999999 is too large' 'y 99999999999999999\n'
bad "a fraction out of range" 'bad:1: memory fraction is .1.5., not a number in' 'm 1.5\n'
bad "settings that PyTorch refuses" 'line 1: CachingAllocator option max_split_size_mb too small, must be >= 20' 'c max_split_size_mb:5\n'
bad "two bad lines are both named" 'bad:2: unknown call' 'q\nw\n'

expect "settings on the command line" 2 "Unrecognized key 'max_split' in CUDA allocator config" \
  "$MBSIM" replay "$work/trace" -c max_split:1
expect "a size that is none" 2 'capacity 80X: not a size' "$MBSIM" replay "$work/trace" --capacity 80X
expect "usable above capacity" 2 'is more than' "$MBSIM" replay "$work/trace" --capacity 1GiB --usable 2GiB
expect "an unknown policy" 2 'not bump, reuse or down' "$MBSIM" replay "$work/trace" --addresses up
expect "a missing trace" 2 'No such file' "$MBSIM" replay "$work/none"
expect "a folder" 2 'Is a directory' "$MBSIM" replay "$work"
expect "neither trace nor index" 2 'one TRACE or --check' "$MBSIM" replay

# Memory follows the input, whatever numbers it has.
printf 'a 1 1152921504606846975 0\na 2 18446744073709551615 4503599627370495\nc expandable_segments:True\na 3 1152921504606846975 1\n' >"$work/huge"
: > "$work/empty"
printf '# only a comment\n\n' > "$work/comment"
expect "an empty trace is refused" 2 'empty: there is no allocator call in it' "$MBSIM" replay "$work/empty"
expect "and one without calls" 2 'comment: there is no' "$MBSIM" replay "$work/comment"
expect "huge requests fail and nothing else" 3 '^\(default\) +0 B +0 B' "$MBSIM" replay "$work/huge"
done_testing
