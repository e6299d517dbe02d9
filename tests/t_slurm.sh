#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The batch scripts under a real Slurm on this machine: an array, one task of which is killed and
# requeued, and one simulation with a rank for each GPU.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99
for program in munged slurmctld slurmd sbatch; do
  PATH=$PATH:/usr/sbin
  command -v $program > /dev/null && continue
  skip "Slurm" "$program is not installed"
  done_testing
done
if [ "$(id -u)" -ne 0 ]; then
  skip "Slurm" "its daemons are started as root"
  done_testing
fi
trap 'sh "$TOP_SRCDIR/tests/slurm_down.sh" "$work/slurm"; rm -rf "$work"' EXIT
if ! SLURM_CONF=$(sh "$TOP_SRCDIR/tests/slurm_up.sh" "$work/slurm" 16 2> up.log); then
  skip "Slurm" "it does not come up: $(tail -1 up.log)"
  done_testing
fi
export SLURM_CONF MBSIM
ok "Slurm is up"

cat > job.ini <<'EOS'
[model]
preset = gpt3-125m
[parallel]
world_size = 8
[train]
global_batch_size = 1024
seq_length = 512
[optimizer]
use_distributed_optimizer = true
[device]
memory_bytes = 4GiB
[sweep]
tensor_model_parallel_size = auto
pipeline_model_parallel_size = auto
micro_batch_size = 1..4*2
EOS

# wait_until SECONDS COMMAND...: until the command succeeds.
wait_until() {
  wait_end=$(($(date +%s) + $1))
  shift
  until "$@"; do
    [ "$(date +%s)" -le $wait_end ] || return 1
    sleep 0.1
  done
}
lines() {
  if [ -f "$1" ]; then wc -l < "$1"; else echo 0; fi
}
has_rows() { [ "$(lines "$1")" -gt "$2" ]; }
# Without a controller they would wait for minutes.
is_over() {
  over=$(timeout 10 squeue -h -j "$1" 2>&1)
  case $? in
  0) [ -z "$over" ] ;;
  *) printf '%s' "$over" | grep -q 'Invalid job id' ;;
  esac
}
state_of() { timeout 10 scontrol show job "$1" 2> /dev/null | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p' | head -1; }
is_in_state() { [ "$(state_of "$1")" = "$2" ]; }

"$MBSIM" sweep job.ini --csv all.csv > all.txt
job=$(timeout 30 sbatch --parsable --array=1-4 "$TOP_SRCDIR/scenarios/slurm/sweep.sbatch" job.ini rows)
check "the array is submitted" [ -n "$job" ]
check "task 2 has written rows" wait_until 60 has_rows rows/shard-2.csv 1
timeout 30 scancel --signal=KILL --full "${job}_2"
before=$(lines rows/shard-2.csv)
if wait_until 30 is_in_state "${job}_2" FAILED || wait_until 5 is_in_state "${job}_2" CANCELLED; then
  ok "task 2 is killed, after $before lines"
  check "task 2 is requeued" timeout 30 scontrol requeue "${job}_2"
else
  skip "task 2 is killed" "it was through before: $(state_of "${job}_2")"
fi
check "all tasks end" wait_until 120 is_over "$job"
"$MBSIM" merge rows/shard-*.csv --csv merged.csv > merged.txt
check "nothing is missing" [ $? -eq 0 ]
check "the rows are those of one process" cmp all.csv merged.csv

sed '/^\[sweep\]/,$d' job.ini > one.ini
"$MBSIM" run one.ini --json alone.json > /dev/null
code=$?
MBSIM_LAUNCH="srun --mpi=pmix"
if ! timeout 30 srun --mpi=list 2>&1 | grep -q pmix; then MBSIM_LAUNCH="mpirun -np 8"; fi
export MBSIM_LAUNCH
timeout 120 sbatch --wait --nodes=1 --ntasks-per-node=8 "$TOP_SRCDIR/scenarios/slurm/simulate.sbatch" \
  one.ini report.json > /dev/null
check "a job with one rank for each GPU ends as one process does" [ $? -eq $code ]
check "and writes the same report" cmp alone.json report.json
[ -s report.json ] || cat mbsim-*.log | sed 's/^/# /'
done_testing
