#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long a sweep takes: some 200 layouts of Llama-3 70B on 32 GPUs, and many small ones.
. "$TOP_SRCDIR/tests/lib.sh"
# shellcheck disable=SC2154 # lib.sh sets it
cd "$work" || exit 99
{
  cat "$TOP_SRCDIR/scenarios/llama3-70b-32xh100-tp4-pp4-vpp5.ini"
  cat << 'EOS'
[sweep]
tensor_model_parallel_size = 1..8*2
pipeline_model_parallel_size = 1..8*2
virtual_pipeline_model_parallel_size = none 2 5
micro_batch_size = 1 2
seq_length = 2048 4096 8192
EOS
} > job.ini

cpu_seconds() { # cpu_seconds COMMAND...: user and system time of the command
  # shellcheck disable=SC2016 # $@ is for the inner shell
  sh -c '"$@" > out.txt 2>&1; times' sh "$@" | tail -1 |
    sed 's/m/ /g; s/s//g' | awk '{ printf "%.2f", $1 * 60 + $2 + $3 * 60 + $4 }'
}

for mode in "" --quick; do
  # shellcheck disable=SC2086 # empty = no option
  seconds=$(cpu_seconds "$MBSIM" sweep job.ini -q $mode)
  n=$(sed -n 's/^\([0-9]*\) layouts: .*/\1/p' out.txt)
  awk -v n="$n" -v s="$seconds" -v m="$mode" 'BEGIN {
    printf "sweep %s llama3-70b on 32 GPUs, %d layouts: %.2f s on one core, %.1f ms a layout\n",
           m == "" ? "(every rank)" : m, n, s, 1000 * s / n }'
done
