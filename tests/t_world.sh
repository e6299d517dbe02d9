#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The processes that play the GPUs: alone, and under mpirun with as many and with fewer processes.
. "$TOP_SRCDIR/tests/lib.sh"
probe=$(dirname "$MBSIM")/tests/world_probe

expect "one process plays all GPUs" 0 '^ring: 7 GPUs heard everything$' "$probe" ring 7
expect "one process knows a deadlock at once" 1 \
  'deadlock: GPU 1 waits for GPU 0: activations of micro-batch 3, chunk 7, iteration 1' \
  timeout 5 "$probe" missing 5
expect "one process ends with the code of a usage error" 2 'a mistake' "$probe" usage 1
expect "an unusable deadline is refused" 2 "MBSIM_WATCHDOG_SECONDS: '1x' is not a number" \
  env MBSIM_WATCHDOG_SECONDS=1x "$probe" ring 2
expect "a deadline that is no number at all is refused" 2 "'nan' is not a number" \
  env MBSIM_WATCHDOG_SECONDS=nan "$probe" ring 2

expect "two processes, two GPUs" 0 '^ring: 2 GPUs heard everything$' mpirun -np 2 "$probe" ring 2
expect "two processes, seven GPUs" 0 '^ring: 7 GPUs heard everything$' mpirun -np 2 "$probe" ring 7
expect "four processes, 130 GPUs" 0 '^ring: 130 GPUs heard everything$' mpirun -np 4 "$probe" ring 130
expect "one process under mpirun" 0 '^ring: 3 GPUs heard everything$' mpirun -np 1 "$probe" ring 3
expect "one process under mpirun knows a deadlock at once" 1 'deadlock: GPU 1 waits for GPU 0' \
  mpirun -np 1 timeout 5 "$probe" missing 3
expect "more processes than GPUs are refused" 2 \
  '4 MPI processes for a world_size of 3 GPUs: start at most 3' mpirun -np 4 "$probe" ring 3

expect "one process takes every number" 0 '^counter: 1000 of 1000 numbers came once$' "$probe" counter 1000
for n in 2 5; do
  expect "$n processes take each number once" 0 '^counter: 1000 of 1000 numbers came once$' \
    mpirun -np $n "$probe" counter 1000
done

MBSIM_WATCHDOG_SECONDS=0.5
export MBSIM_WATCHDOG_SECONDS
expect "a missing sender ends everybody, and both GPUs are named" 1 \
  'deadlock: nobody went on for 0.5 s: .*GPU 1 waits for GPU 0: activations of micro-batch 3,' \
  timeout 20 mpirun -np 4 "$probe" missing 4
expect "the same with several GPUs a process" 1 'GPU 1 waits for GPU 0: .* micro-batch 3,' \
  timeout 20 mpirun -np 2 "$probe" missing 9
expect "a process that is only slow is waited for" 0 '^late: 4 GPUs heard everything$' \
  mpirun -np 4 "$probe" late 4
expect "a process without a sign of life ends everybody" 1 \
  "no sign of life for 1[0-9.]* s from process 2 on $(hostname)" \
  env MBSIM_WATCHDOG_SECONDS=0.1 timeout 20 mpirun -np 3 "$probe" absent 3
unset MBSIM_WATCHDOG_SECONDS

# With the launcher's threads as they are by default: what mpirun 4.1 cannot bear is processes that end
# before MPI_Init.
unset OMPI_MCA_odls_base_num_threads
expect "64 processes, 64 GPUs" 0 '^ring: 64 GPUs heard everything$' mpirun -np 64 "$probe" ring 64
out=$(timeout -k 5 120 mpirun -np 64 "$probe" usage 64 2>&1)
code=$?
if [ "$code" -eq 2 ] && [ "$(printf '%s\n' "$out" | grep -c 'a mistake')" -eq 1 ]; then
  ok "64 processes end a usage error with one message and one code"
else
  not_ok "64 processes end a usage error with one message and one code" "code $code: $out"
fi
done_testing
