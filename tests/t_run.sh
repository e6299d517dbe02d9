#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016 # $0 is for the inner shells
# The main job: alone and under mpirun, its report, its files, and what it says when memory runs out.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99
probe=$(dirname "$MBSIM")/tests/job_probe

cat > fits.ini <<'INI'
; eight GPUs on four stages, two chunks each
[model]
preset = llama3.2-1b
[parallel]
world_size = 8
pipeline_model_parallel_size = 4
virtual_pipeline_model_parallel_size = 2
[train]
micro_batch_size = 1
global_batch_size = 16
seq_length = 1024
[precision]
bf16 = true
[optimizer]
use_distributed_optimizer = true
[device]
gpu = h100-80gb-sxm
reserved_outside_bytes = 2GiB
INI
# The same on a GPU that is too small for the last stage only.
sed 's/^gpu = .*/&\nmemory_bytes = 10.2GiB/' fits.ini > oom.ini

# ---- one report, whatever the number of processes ----
"$MBSIM" fits.ini --json fits.json --csv fits.csv > fits.txt 2> fits.err
check "a job that fits ends with 0 and says nothing on standard error" test $? -eq 0 -a ! -s fits.err
for n in 1 2 3 8; do
  mpi "$n" "$MBSIM" fits.ini --json many.json --csv many.csv > many.txt 2> many.err
  check "$n processes end with 0" test $? -eq 0
  check "$n processes print what one prints" cmp fits.txt many.txt
  check "$n processes write the same JSON" cmp fits.json many.json
  check "$n processes write the same CSV" cmp fits.csv many.csv
  check "$n processes say nothing on standard error" test ! -s many.err
done
check "a second run writes the same bytes" sh -c '"$0" run fits.ini | cmp - fits.txt' "$MBSIM"
check "no line is longer than 100 columns" sh -c '! grep -qE "^.{101}" fits.txt'
expect "ranks that are alike share a line" 0 '^2,3 +pp1 ' cat fits.txt
expect "the verdict is the last line" 0 '^FITS with .* headroom on rank [67], the fullest\.$' tail -1 fits.txt
expect "the moment is said in words" 0 \
  'peak in iteration [123], (forward|backward) of micro-batch [0-9]+, chunk [01], ' cat fits.txt

expect "each iteration has its line" 0 '^  iteration 3: peak allocated ' cat fits.txt

# ---- mode live ----
"$MBSIM" fits.ini --mode live --json live.json --csv live.csv > live.txt 2> live.err
check "mode live ends with 0 and says nothing on standard error" test $? -eq 0 -a ! -s live.err
expect "mode live says so above its figures" 0 '^LIVE BYTES ONLY \(mode live\)' cat live.txt
expect "what may fit is not said to fit" 0 '^MAY FIT: the tensors leave at most ' cat live.txt
check "it gives no figure for what is reserved" sh -c '! grep -q "FITS\|reserved [ 0-9]" live.txt'
check "JSON has the mode, and null for what is not known" jq -e '.mode == "live" and
  .scenario.run.mode == "live" and .verdict.fits == null and .verdict.headroom_bytes > 0 and
  ([.ranks[] | .fits == null and .max_reserved_bytes == null and .reserved_moment == null and
    .ledger.reserved_bytes == null and .ledger.cached_bytes == null and .max_allocated_bytes > 0 and
    .ledger.outside_bytes + .max_allocated_bytes == .device_used_bytes] | all)' live.json
check "stepped JSON has its mode too" jq -e '.mode == "stepped" and .verdict.fits' fits.json
check "CSV has the mode in its last column" awk -F, '
  NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; if ($NF != "mode") bad = 1; next }
  $NF != "live" || $at["max_reserved_bytes"] != "" || $at["fits"] != "" { bad = 1 }
  END { exit bad || NR != 9 }' live.csv
check "its peaks are at most those of the allocator" jq -e -n --slurpfile a live.json \
  --slurpfile b fits.json '[range($a[0].ranks | length)] |
  all(. as $i | $a[0].ranks[$i].max_allocated_bytes <= $b[0].ranks[$i].max_allocated_bytes)'
mpi 3 "$MBSIM" fits.ini --mode live > live3.txt 2> /dev/null
check "several processes print the same" cmp live.txt live3.txt
expect "tensors that do not fit are out of memory" 3 'Capacity: the tensors alone do not fit' \
  "$MBSIM" fits.ini --mode live --set device.memory_bytes=6GiB
for option in --html --perfetto --snapshot; do
  expect "mode live with $option is refused" 2 "run: $option shows what an allocator holds" \
    "$MBSIM" fits.ini --mode live "$option" live.out
done
expect "mode live with settings of the allocator is refused" 2 'conf: there is no allocator to set' \
  "$MBSIM" fits.ini --mode live --set allocator.conf=expandable_segments:True
for command in advise estimate; do
  expect "mode live is not for $command" 2 'run.mode: live is for mbsim run and mbsim sweep' \
    "$MBSIM" "$command" fits.ini --set run.mode=live
done
expect "a report of mode live is not compared" 2 'live.json: a report of mode live' \
  "$MBSIM" diff live.json fits.json
expect "an unknown mode is named" 2 "run.mode: 'dead' is not known; use stepped or live" \
  "$MBSIM" fits.ini --mode dead

# ---- messages of the schedule ----
expect "equal schedules come to their end" 0 '^[0-9]+ classes, rank 7 peaks at' mpirun -np 4 "$probe" same
expect "a schedule that does not match is a deadlock with names" 1 \
  'deadlock: .*GPU [0-9] waits for GPU [0-9]: .*micro-batch' \
  env MBSIM_WATCHDOG_SECONDS=1 mpirun -np 4 "$probe" schedules
expect "equal ranks with different results are noticed" 1 'equal but gave different results' \
  mpirun -np 8 "$probe" results

# ---- memory that runs out ----
"$MBSIM" oom.ini --json oom.json > oom.txt 2> oom.err
check "a job that does not fit ends with 3" test $? -eq 3
check "that is a result, not an error" test ! -s oom.err
for line in '^OUT OF MEMORY on 2 ranks: 6,7$' \
  '^  Tried to allocate [0-9.]+ [MG]iB for softmax\.$' \
  '^  The GPU has 10\.20 GiB in total, of which [0-9.]+ [MG]iB is free;$' \
  '^  [0-9.]+ GiB is allocated by PyTorch, and [0-9.]+ [MG]iB is reserved by PyTorch but unallocated\.$' \
  '^  It needs [0-9.]+ GiB reserved for a peak of [0-9.]+ GiB allocated;$' \
  '^  there is 8\.20 GiB: it misses by [0-9.]+ [MG]iB\.$' \
  '^  Fragmentation: ' '^  With expandable_segments:True it fits: at most 8\.[01][0-9]? GiB reserved'; do
  expect "the report says $line" 0 "$line" cat oom.txt
done
expect "what was tried is true" 0 '^FITS' "$MBSIM" oom.ini --set allocator.conf=expandable_segments:True
expect "less than the tensors take is a lack of capacity" 3 '^  Capacity: ' \
  "$MBSIM" oom.ini --set device.memory_bytes=9.8GiB
expect "no setting helps then" 3 '^OUT OF MEMORY on' "$MBSIM" oom.ini \
  --set device.memory_bytes=9.8GiB --set allocator.conf=expandable_segments:True
for n in 2 8; do
  mpi "$n" "$MBSIM" oom.ini --json many.json > many.txt 2> /dev/null
  check "$n processes end with 3 too" test $? -eq 3
  check "$n processes print the same verdict" cmp oom.txt many.txt
  check "$n processes write the same JSON about it" cmp oom.json many.json
done
if command -v jq > /dev/null; then
  check "the ledger in the JSON adds up on every rank" jq -e '.schema == "mbsim.report/1" and
    (.ranks | length) == 8 and ([.ranks[].ledger |
      (.categories | add) == .allocated_bytes and (.modules | add) == .allocated_bytes and
      .allocated_bytes + .cached_bytes == .reserved_bytes and
      .outside_bytes + .reserved_bytes == .device_used_bytes and
      .device_used_bytes + .headroom_bytes == .total_bytes] | all)' fits.json
  check "the verdict in the JSON names the ranks" jq -e '.verdict.fits == false and
    .verdict.out_of_memory_ranks == [6, 7] and (.verdict.misses_by_bytes > 0) and
    (.ranks[6].out_of_memory.tried_to_allocate_bytes > .ranks[6].out_of_memory.device_free_bytes) and
    .ranks[0].out_of_memory == null and .ranks[0].fits' oom.json
  check "what is alive adds up to the peak" jq -e '([.worst.tensors[].bytes] | add) ==
    (.worst.rank as $r | .ranks[$r].max_allocated_bytes)' fits.json
else
  skip "the ledger in the JSON adds up on every rank" "no jq"
fi

# Less than the default allocator would reserve, but enough once it gives its cache back.
sed 's/^gpu = .*/&\nmemory_bytes = 31GiB/' \
  "$TOP_SRCDIR"/scenarios/llama2-7b-8xrtx4090-48gb-pp4.ini | grep -v '^memory_bytes = 47' > tight.ini
expect "a retry that helps is told" 0 '^  2 of the ranks went on only after PyTorch' "$MBSIM" tight.ini

# ---- some ranks only ----
expect "--ranks shows these ranks" 0 '^6 +pp3 dp0' "$MBSIM" fits.ini --ranks 2,6
check "--ranks shows no others" sh -c 'test "$("$0" fits.ini --ranks 2,6 --csv - | wc -l)" -eq 3' "$MBSIM"
"$MBSIM" fits.ini --ranks 2,6 > ranks.txt
mpi 4 "$MBSIM" fits.ini --ranks 2,6 > many.txt
check "--ranks under mpirun prints the same" cmp ranks.txt many.txt
expect "the verdict is about these ranks" 0 '^FITS' "$MBSIM" oom.ini --ranks 0-5

# ---- what repeats ----
cat > many.ini <<'INI'
[model]
preset = llama3.2-3b
[parallel]
world_size = 8
tensor_model_parallel_size = 2
sequence_parallel = true
[train]
micro_batch_size = 1
global_batch_size = 80000
seq_length = 8192
[optimizer]
use_distributed_optimizer = true
[device]
gpu = h100-80gb-sxm
INI
if [ -n "${SAN_FLAGS:-}" ]; then
  skip "20,000 micro-batches take seconds" "sanitizers are slow"
else
  expect "20,000 micro-batches take seconds" 0 '^FITS' timeout 12 "$MBSIM" many.ini
fi

# ---- files ----
expect "--json - takes the place of the text" 0 '^\{$' sh -c '"$0" fits.ini --json - | head -1' "$MBSIM"
check "--csv - takes the place of the text" sh -c '"$0" fits.ini --csv - | cmp - fits.csv' "$MBSIM"
expect "a folder that is not there" 1 'none/x\.json: cannot be written' "$MBSIM" fits.ini --json none/x.json
cp fits.ini own.ini
expect "a scenario is not written over" 2 'own\.ini would be written over' "$MBSIM" own.ini --json ./own.ini
check "and stays as it was" cmp fits.ini own.ini
expect "two outputs in one file are refused" 2 'two outputs go to both\.txt' \
  "$MBSIM" fits.ini --json both.txt --csv both.txt
expect "two outputs to nowhere are not" 0 '^FITS' \
  "$MBSIM" fits.ini --json /dev/null --csv /dev/null
echo old > old.json
expect "a file that cannot grow" 1 'old\.json: cannot be written' \
  sh -c 'ulimit -f 0; exec "$0" fits.ini --json old.json' "$MBSIM"
check "the old file stays" grep -qx old old.json
mkdir small
if mount -t tmpfs -o size=64k tmpfs small 2> /dev/null; then
  echo old > small/report.json
  expect "a full disk is an error" 1 'small/report\.json: cannot be written: No space left' \
    "$MBSIM" fits.ini --json small/report.json
  check "the old report stays" grep -qx old small/report.json
  check "nothing else is left on the full disk" test "$(ls -A small)" = report.json
  expect "a full disk under mpirun" 1 'small/report\.json: cannot be written: No space left' \
    mpirun -np 4 "$MBSIM" fits.ini --json small/report.json
  umount small
else
  skip "a full disk is an error" "mount is not allowed"
fi

# ---- wrong use, by many processes ----
sed 's/^seq_length = 1024/seq_lenght = 1024/' fits.ini > bad.ini
one_message() { # one_message N CODE PATTERN ARGUMENT...: one line of mbsim's, and the code
  n=$1 code=$2 pattern=$3
  shift 3
  mpi "$n" "$MBSIM" "$@" > many.txt 2>&1
  [ $? -eq "$code" ] && [ "$(grep -Ec "$pattern" many.txt)" -eq 1 ]
}
check "64 processes and a wrong scenario: one message, code 2" one_message 64 2 '^bad\.ini:[0-9]+: ' bad.ini
check "64 processes and no scenario: one message, code 2" one_message 64 2 'none\.ini: No such file' none.ini
check "64 processes and a wrong option: one message, code 2" one_message 64 2 'unknown option' fits.ini --jsno x
check "more processes than GPUs: one message, code 2" \
  one_message 9 2 '9 MPI processes for a world_size of 8 GPUs' fits.ini
check "settings that PyTorch refuses: one message, code 2" \
  one_message 4 2 'max_split_size_mb' fits.ini --set allocator.conf=max_split_size_mb:1

done_testing
