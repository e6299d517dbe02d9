#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A process that dies or stops answering ends the run: soon, not silently, and with nothing left.
. "$TOP_SRCDIR/tests/lib.sh"
job=$TOP_SRCDIR/scenarios/qwen3-235b-a22b-128xh200-imbalance.ini
# Shared memory of Open MPI where this test alone looks at it.
mkdir "$work/shm" "$work/out"
export OMPI_MCA_btl_vader_backing_directory="$work/shm"
export MBSIM_WATCHDOG_SECONDS=4

# fault SIGNAL: a run of four processes, one of which gets SIGNAL in the middle. Sets fault_rc,
# fault_seconds.
fault() {
  echo old >"$work/out/report.json"
  timeout -k 5 100 mpirun -np 4 "$MBSIM" "$job" --set run.iterations=1000 \
    --json "$work/out/report.json" >"$work/log" 2>&1 &
  fault_mpirun=$!
  fault_victim=
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    sleep 0.5
    fault_victim=$(ps -eo pid=,args= | awk -v at="$work/out/report.json" \
      '$2 ~ /mbsim$/ && index($0, at) { print $1 }' | tail -n 1)
    # All four are there, and have had time to begin.
    if [ -n "$fault_victim" ] && [ "$(find "$work/shm" -type f | wc -l)" -ge 4 ]; then break; fi
  done
  sleep 1
  fault_begin=$(date +%s)
  kill "-$1" "$fault_victim"
  wait "$fault_mpirun"
  fault_rc=$?
  fault_seconds=$(($(date +%s) - fault_begin))
}

# ended TEXT PATTERN: what has to hold after each fault.
ended() {
  check "$1: a failure" test "$fault_rc" -ne 0 -a "$fault_rc" -ne 124 # 137: mpirun hands signal 9 on
  check "$1: within a minute" test "$fault_seconds" -le 60
  if grep -Eq "$2" "$work/log"; then ok "$1: said"; else not_ok "$1: said" "$(cat "$work/log")"; fi
  check "$1: the old file is as it was" test "$(cat "$work/out/report.json")" = old
  check "$1: no other file beside it" test "$(ls "$work/out")" = report.json
  sleep 1
  check "$1: no shared memory left" test -z "$(ls "$work/shm")"
}

fault KILL
ended "killed" 'signal 9'
fault STOP
ended "stopped" 'process [0-9]+ gives no sign of life|waits? for'
done_testing
