#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How much longer 64 processes take for a job of 64 GPUs than an MPI program that does nothing. Runs of
# both take turns, so that other load on the machine meets both; the medians count.
. "$TOP_SRCDIR/tests/lib.sh"
empty=$(dirname "$MBSIM")/tests/bench_empty_mpi
n=64 rounds=${MBSIM_BENCH_ROUNDS:-5}
# shellcheck disable=SC2154 # lib.sh sets it
scenario=$work/job.ini
sed -e "s/^world_size = .*/world_size = $n/" -e "s/^global_batch_size = .*/global_batch_size = $n/" \
  "$TOP_SRCDIR/scenarios/llama3-70b-32xh100-tp4-pp4-vpp5.ini" > "$scenario"

seconds() { # seconds COMMAND...: wall time of one run under mpirun
  start=$(date +%s.%N)
  mpi "$n" "$@" > /dev/null || exit 1
  echo "$start $(date +%s.%N)" | awk '{ printf "%.3f\n", $2 - $1 }'
}

median() { # median FILE
  sort -n "$1" | awk '{ v[NR] = $1 } END { printf "%.2f", v[int((NR + 1) / 2)] }'
}

i=0
while [ "$i" -lt "$rounds" ]; do
  seconds "$empty" >> "$work/empty"
  seconds "$MBSIM" -q "$scenario" >> "$work/mbsim"
  i=$((i + 1))
done
a=$(median "$work/empty") b=$(median "$work/mbsim")
awk -v n="$n" -v a="$a" -v b="$b" -v r="$rounds" 'BEGIN {
  printf "mpirun -np %d, llama3-70b TP4 PP4 VPP5 DP4: %.2f s, an empty MPI program %.2f s, ", n, b, a
  printf "difference %.2f s (medians of %d)\n", b - a, r }'
