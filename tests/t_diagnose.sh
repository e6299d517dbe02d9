#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `mbsim diagnose` makes of pasted messages: tests/data/diagnose/INDEX.tsv names the report that each text's
# figures are from, the verdict, and a line that must be there.
. "$TOP_SRCDIR/tests/lib.sh"
data=$TOP_SRCDIR/tests/data/diagnose

tab=$(printf '\t')
while IFS="$tab" read -r file report verdict pattern; do
  [ "$file" = file ] && continue
  out=$("$MBSIM" diagnose --json "$work/out.json" "$data/$file.txt" 2>&1)
  rc=$?
  flat=$(printf '%s\n' "$out" | tr -s '\n ' ' ')
  if [ "$rc" -ne 0 ]; then
    not_ok "$file: $report" "exit code $rc: $out"
  elif ! printf '%s\n' "$out" | grep -qx "verdict: $verdict"; then
    not_ok "$file: $report" "verdict is not '$verdict': $out"
  elif ! printf '%s\n' "$flat" | grep -Eq -- "$pattern"; then
    not_ok "$file: $report" "nothing matches '$pattern': $out"
  elif ! grep -q "\"verdict\": \"$verdict\"" "$work/out.json"; then
    not_ok "$file: $report" "the JSON file has another verdict"
  else
    ok "$file: $report: $verdict"
  fi
done <"$data/INDEX.tsv"

stdin_out=$("$MBSIM" diagnose <"$data/mlm_525.txt")
file_out=$("$MBSIM" diagnose "$data/mlm_525.txt")
dash_out=$("$MBSIM" diagnose - <"$data/mlm_525.txt")
if [ "$stdin_out" = "$file_out" ] && [ "$dash_out" = "$file_out" ]; then
  ok "standard input, - and a file are read alike"
else
  not_ok "standard input, - and a file are read alike"
fi

# The parts of the device add up: 79.26 GiB = allocated + cached + non-PyTorch + others + free + unaccounted.
"$MBSIM" diagnose --json - "$data/pytorch_152135.txt" >"$work/sum.json"
if command -v python3 >/dev/null; then
  check "the parts of the device add up to its size" python3 -c "
import json, sys
r = json.load(open('$work/sum.json'))
d = r['device']
parts = [d[k] or 0 for k in ('allocated_bytes', 'cached_bytes', 'private_pool_bytes', 'non_pytorch_bytes',
                             'other_processes_bytes', 'free_bytes', 'unaccounted_bytes')]
assert r['schema'] == 'mbsim.diagnose/1'
assert abs(sum(parts) - d['total_bytes']) <= 32 << 20, (parts, d)
"
else
  skip "the parts of the device add up to its size" "no python3"
fi

sed "s/\$/$(printf '\r')/" "$data/bridge_hot_ranks.txt" >"$work/crlf.txt"
expect "lines that end in CR LF are read" 0 '2 ranks failed; furthest from fitting: line 4, rank 11' "$MBSIM" diagnose "$work/crlf.txt"
expect "the first rank that failed is named" 0 '^first failure: line 3, rank 9, GPU 1' "$MBSIM" diagnose "$data/bridge_hot_ranks.txt"

# A message that a terminal has wrapped.
fold -s -w 70 "$data/pytorch_152135.txt" >"$work/folded.txt"
expect "a wrapped message is put together" 0 'cached +3\.87 GiB' "$MBSIM" diagnose "$work/folded.txt"
fold -w 67 "$data/pytorch_152135.txt" | sed '1s/^/[rank3]: /; s/^/> /' >"$work/cut.txt"
expect "cut in the middle of words, behind a rank, quoted: so too" 0 'cached +3\.87 GiB' "$MBSIM" diagnose "$work/cut.txt"
check "whatever the width" sh -c 'for width in 59 66 71 80 97; do
  fold -w $width "$1" | "$0" diagnose | grep -q "cached  *3\.87 GiB" || exit 1; done' \
  "$MBSIM" "$data/pytorch_152135.txt"

head -c 300000 /dev/zero >"$work/zeros"
expect "binary input is no message" 0 'no line of the text was recognised' "$MBSIM" diagnose "$work/zeros"
expect "a missing file is wrong usage" 2 'No such file' "$MBSIM" diagnose "$work/none"
expect "a directory is wrong usage" 2 'directory' "$MBSIM" diagnose "$work"
expect "a snapshot is pointed to replay" 2 'mbsim replay reads memory snapshots' \
  "$MBSIM" diagnose "$TOP_SRCDIR/tests/data/snapshots/edge_gc.p3.pickle"
expect "two files are wrong usage" 2 'diagnose' "$MBSIM" diagnose a b
done_testing
