#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh BUILD SECONDS FUZZER...: run each fuzzer for its share of SECONDS, from the files that the
# tests have of that kind. An input that fails stays in BUILD as fuzz_NAME-*.
set -u
build=$1 seconds=$2
shift 2
[ $# -gt 0 ] || exit 0
share=$((seconds / $#))
[ "$share" -ge 1 ] || share=1
cd "$build" || exit 1

seeds_of() {
  echo "tests/data/fuzz/$1"
  case $1 in
  import | yaml) echo tests/data/import ;;
  machine) echo topology/machines ;;
  log) echo tests/data/diagnose ;;
  pickle) echo tests/data/snapshots ;;
  replay) echo tests/data/allocator/traces ;;
  scenario) echo scenarios ;;
  esac
}

failed=0
for fuzzer in "$@"; do
  name=${fuzzer##*/fuzz_}
  mkdir -p "corpus/$name"
  set -- "corpus/$name"
  [ ! -e "tests/data/fuzz/$name.dict" ] || set -- "-dict=tests/data/fuzz/$name.dict" "$@"
  for seeds in $(seeds_of "$name"); do
    [ ! -d "$seeds" ] || set -- "$@" "$seeds"
  done
  if ! "./$fuzzer" -max_total_time="$share" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="fuzz_$name-" "$@" >"fuzz_$name.out" 2>&1; then
    tail -n 60 "fuzz_$name.out"
    echo "$fuzzer: FAILED"
    failed=1
  fi
  echo "$fuzzer: $share s, $(sed -n 's/^stat::number_of_executed_units: *//p' "fuzz_$name.out") inputs"
done
exit "$failed"
