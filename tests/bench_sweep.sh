#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long a sweep takes: some 200 layouts of Llama-3 70B on 32 GPUs, on one core and by two processes;
# some 8,000 of them by two processes; and how long one job of 16,384 GPUs.
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

for mode in "" --quick "--mode live"; do
  # shellcheck disable=SC2086 # empty = no option
  seconds=$(cpu_seconds "$MBSIM" sweep job.ini -q $mode)
  n=$(sed -n 's/^\([0-9]*\) layouts: .*/\1/p' out.txt)
  awk -v n="$n" -v s="$seconds" -v m="$mode" 'BEGIN {
    printf "sweep %s llama3-70b on 32 GPUs, %d layouts: %.2f s on one core, %.1f ms a layout\n",
           m == "" ? "(every rank)" : m, n, s, 1000 * s / n }'
done

by_two() { # by_two FILE [OPTION...]: wall time of a sweep by two processes
  start=$(date +%s.%N)
  mpi 2 "$MBSIM" sweep "$@" -q > out.txt || exit 1
  n=$(sed -n 's/^\([0-9]*\) layouts: .*/\1/p' out.txt)
  shift
  echo "$start $(date +%s.%N) $n $*" | awk '{
    s = $2 - $1; n = $3; $1 = $2 = $3 = ""
    printf "sweep%s, %d layouts by 2 processes: %.2f s, %.0f layouts a second\n", $0, n, s, n / s }' |
    tr -s ' '
}

sed -e 's/^micro_batch_size = 1 2$/micro_batch_size = 1 2 4/' \
  -e 's/^seq_length = 2048 .*/seq_length = 512..32768*2/' job.ini > many.ini
cat >> many.ini << 'EOS'
use_distributed_optimizer = false true
cross_entropy_loss_fusion = false true
recompute_modules = core_attn mlp "core_attn mlp"
EOS
by_two job.ini --quick
by_two many.ini --quick
by_two many.ini --quick --mode live

cat > huge.ini << 'EOS'
[model]
preset = deepseek-v3
[parallel]
world_size = 16384
pipeline_model_parallel_size = 16
expert_model_parallel_size = 64
decoder_first_pipeline_num_layers = 3
decoder_last_pipeline_num_layers = 2
[train]
micro_batch_size = 1
global_batch_size = 16384
seq_length = 4096
[recompute]
recompute_granularity = full
recompute_method = uniform
recompute_num_layers = 1
[optimizer]
use_distributed_optimizer = true
EOS
seconds=$(cpu_seconds "$MBSIM" run huge.ini -q)
echo "run deepseek-v3 on 16384 GPUs, PP16 EP64, every rank: $seconds s on one core"
