#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every scenario is played and compared with the figure that its first comment expects:
#   ; Expected: rank R max_allocated_bytes|max_reserved_bytes N within P % (...)
#   ; Expected: out of memory on N ranks, by capacity|fragmentation
# shellcheck disable=SC2016 # $0 is for the inner shells
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

number() { # number FILE KEY RANK: an integer of a rank, from JSON as mbsim indents it
  awk -v key="\"$2\":" -v rank="$3" '
    /^      "rank": / { here = ($2 + 0 == rank) }
    here && $1 == key && /^      "/ { sub(/,$/, "", $2); print $2; exit }' "$1"
}

# shellcheck disable=SC2317 # called through check
within() { # within FOUND EXPECTED PERCENT
  awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN {
    d = 100 * (a - b) / b
    printf "%.0f bytes, %.0f expected: %+.3f %%\n", a, b, d
    exit !(a > 0 && d <= p && d >= -p) }'
}

n_scenarios=0
for ini in "$TOP_SRCDIR"/scenarios/*.ini; do
  name=$(basename "$ini")
  n_scenarios=$((n_scenarios + 1))
  timeout 60 "$MBSIM" "$ini" --json out.json > out.txt 2> out.err
  rc=$?
  check "$name begins with model and source" sh -c 'sed -n 1p "$0" | grep -q "^; Model: ." &&
    sed -n 2p "$0" | grep -q "^; Source: ."' "$ini"
  check "$name says nothing on standard error" test ! -s out.err
  expected=$(sed -n 's/^; Expected: //p' "$ini")
  # shellcheck disable=SC2086 # the words are wanted
  set -- $expected
  case $expected in
    "rank "*" max_allocated_bytes "*" within "*" %"* | "rank "*" max_reserved_bytes "*" within "*" %"*)
      check "$name fits" test "$rc" -eq 0
      check "$name is within $6 % of $4 bytes" \
        within "$(number out.json "$3" "$2")" "$4" "$6"
      ;;
    "out of memory on "*" ranks, by "*)
      check "$name runs out of memory" test "$rc" -eq 3
      check "$name does so on $5 ranks" grep -q "^OUT OF MEMORY on $5 ranks:" out.txt
      check "$name does so by $8" grep -qi "^  $8: " out.txt
      ;;
    *) not_ok "$name says what is expected" "$expected" ;;
  esac
done
check "there are at least six" test "$n_scenarios" -ge 6

done_testing
