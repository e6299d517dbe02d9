#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Estimated step times beside published ones (tests/data/iteration-times.tsv).
. "$TOP_SRCDIR/tests/lib.sh"
data=$TOP_SRCDIR/tests/data
"$MBSIM" validate --scenarios "$work/jobs" "$data/measured-peaks.jsonl" > /dev/null
while read -r id seconds; do
  file=$work/jobs/$(printf '%s' "$id" | tr / _).ini
  [ "$id" != '#' ] && [ -f "$file" ] || continue
  "$MBSIM" run --quiet --json - "$file" 2> /dev/null |
    jq -r --arg seconds "$seconds" --arg id "$id" \
      'select(.time) | [.time.step_ns / 1e9 / ($seconds | tonumber), $id] | @tsv'
done < "$data/iteration-times.tsv" | sort -g > "$work/ratios"

n=$(wc -l < "$work/ratios")
median=$(awk -v n="$n" 'NR == int((n + 1) / 2) { print $1 }' "$work/ratios")
near=$(awk '$1 > 0.5 && $1 < 2 { n++ } END { print n + 0 }' "$work/ratios")
printf '# %s jobs, estimated over measured: median %.2f, %s within a factor of two\n' "$n" "$median" "$near"
check "jobs are compared" [ "$n" -ge 110 ]
check "the median is near" sh -c 'echo "$0" | awk "{ exit !(\$1 > 0.6 && \$1 < 1.2) }"' "$median"
check "three in four are within a factor of two" [ $((near * 4)) -ge $((n * 3)) ]
done_testing
