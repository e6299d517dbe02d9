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
ended "stopped" 'no sign of life for [0-9.]+ s from process [0-9]+ on|waits? for'

# one_message TEXT CODE PATTERN COMMAND...: expect, and mbsim itself says one thing only.
one_message() {
  om_text=$1
  expect "$@"
  om_n=$(printf '%s\n' "$expect_out" | grep -c '^mbsim: ')
  check "$om_text: in one message" test "$om_n" -eq 1
}

# Processes that are not alike: one has other arguments, one is another build, and one does not know
# a word that the others know.
small=$TOP_SRCDIR/scenarios/llama3-8b-8gpu.ini
one_message "other arguments" 2 \
  'process 2 on [^ ]+ was given the arguments .*gradients=1, process 0 on [^ ]+ .*' \
  mpirun -np 2 "$MBSIM" "$small" : -np 1 "$MBSIM" "$small" --set ddp.gradients=1
if objcopy --dump-section .note.gnu.build-id="$work/note" "$MBSIM" "$work/copy" 2>"$work/log"; then
  # The name "GNU" and its head take the first 16 bytes.
  { head -c 16 "$work/note"; printf other; tail -c +22 "$work/note"; } >"$work/other"
  objcopy --update-section .note.gnu.build-id="$work/other" "$MBSIM" "$work/variant"
  one_message "another build" 2 \
    'process 3 on [^ ]+ runs .*6f74686572[0-9a-f]*, process 0 on [^ ]+ .*; 1 more differ from it' \
    mpirun -np 3 "$MBSIM" "$small" : -np 2 "$work/variant" "$small"
else
  skip "another build" "$(cat "$work/log")"
fi
LC_ALL=C sed 's/tp-cp-ep-dp-pp/tp-cp-ep-pp-dp/g' "$MBSIM" >"$work/variant"
if "$work/variant" "$small" >"$work/log" 2>&1; then
  skip "a scenario that is not understood alike" "this build's words cannot be exchanged"
else
  one_message "a scenario that is not understood alike" 1 \
    'process 1 on [^ ]+ understands the scenario not at all, process 0 on [^ ]+ as [0-9a-f]{16}' \
    mpirun -np 1 "$MBSIM" "$small" : -np 1 "$work/variant" "$small"
fi
done_testing
