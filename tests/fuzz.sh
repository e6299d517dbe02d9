#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh BUILD SECONDS FUZZER...: run each fuzzer for its share of SECONDS, from the seeds in
# tests/data/fuzz/<name>/ where there are any. An input that fails stays in BUILD as fuzz_<name>-*.
set -u
build=$1 seconds=$2
shift 2
[ $# -gt 0 ] || exit 0
share=$((seconds / $#))
[ "$share" -ge 1 ] || share=1
cd "$build" || exit 1
failed=0
for fuzzer in "$@"; do
  name=${fuzzer##*/fuzz_}
  mkdir -p "corpus/$name"
  set -- "corpus/$name"
  [ ! -d "tests/data/fuzz/$name" ] || set -- "$@" "tests/data/fuzz/$name"
  echo "$fuzzer: $share s"
  if ! "./$fuzzer" -max_total_time="$share" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -verbosity=0 -close_fd_mask=1 -artifact_prefix="fuzz_$name-" "$@" >"fuzz_$name.out" 2>&1; then
    echo "$fuzzer: FAILED"
    tail -n 60 "fuzz_$name.out"
    failed=1
  fi
  grep 'number_of_executed_units' "fuzz_$name.out"
done
exit "$failed"
