#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Sweeps: what they enumerate, their rows, resuming, shards and merging, several processes.
# shellcheck disable=SC2016 # $0 is for the inner shells
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

cat > job.ini <<'EOS'
[model]
preset = gpt3-125m
[parallel]
world_size = 8
[train]
micro_batch_size = 1
global_batch_size = 32
seq_length = 512
[optimizer]
use_distributed_optimizer = true
[device]
memory_bytes = 4GiB
EOS
sweep() { # sweep FILE LINES: job.ini with this [sweep] section
  { cat job.ini; echo '[sweep]'; printf '%b' "$2"; } > "$1"
}
rows() { # rows FILE: its rows without the header, sorted
  sed 1d "$1" | sort
}
lines() { # lines FILE: how many whole lines it has
  if [ -f "$1" ]; then wc -l < "$1"; else echo 0; fi
}
wait_for_lines() { # wait_for_lines FILE N: until it has more than N lines, 10 s at most
  wait_i=0
  while [ "$(lines "$1")" -le "$2" ] && [ $wait_i -lt 1000 ]; do
    sleep 0.01
    wait_i=$((wait_i + 1))
  done
}
same_rows() { # same_rows A B
  rows "$1" > a.rows
  rows "$2" > b.rows
  cmp a.rows b.rows
}

sweep all.ini 'tp = auto\npp = 1..8*2\nvpp = none 2 3\nmicro_batch_size = 1 2\n'
sed 's/^tp /tensor_model_parallel_size /; s/^pp /pipeline_model_parallel_size /
     s/^vpp /virtual_pipeline_model_parallel_size /' all.ini > job2.ini && mv job2.ini all.ini

# ---- what is enumerated ----
"$MBSIM" sweep all.ini --csv all.csv > all.txt
check "auto, a range and lists: 4 x 4 x 3 x 2 combinations" grep -q '^96 combinations, ' all.txt
legal=$(sed -n 's/^96 combinations, \([0-9]*\) legal.*/\1/p' all.txt)
illegal=$(sed -n 's/^  *\([0-9][0-9]*\)  [a-z].*/\1/p' all.txt | awk '{ n += $1 } END { print n }')
check "legal and illegal add up" [ $((legal + illegal)) -eq 96 ]
check "a row for each legal layout" [ "$(rows all.csv | wc -l)" -eq "$legal" ]
check "heads are not split seven ways: the rule is named" \
  sh -c '"$0" sweep all.ini --set world_size=24 | grep -q "tensor_model_parallel_size divides heads"' "$MBSIM"
expect "-v says an example for each rule" 0 'such as all.ini:.*virtual_pipeline' "$MBSIM" sweep all.ini -v
sweep tokens.ini 'tokens_per_batch = 16384\nseq_length = 512 1024 1000\n'
expect "tokens per batch: a length that does not divide is counted" 0 '1  seq_length divides tokens' \
  "$MBSIM" sweep tokens.ini
"$MBSIM" sweep tokens.ini --json tokens.json > /dev/null
check "tokens per batch: batch follows length" grep -q '"seq_length":1024.*"n_microbatches":2,' tokens.json
sweep seq.ini 'seq_length = 256..1024+256, 128\n'
"$MBSIM" sweep seq.ini --csv seq.csv > /dev/null
check "ranges with steps" [ "$(rows seq.csv | wc -l)" -eq 5 ]

# ---- a row says what run says ----
"$MBSIM" run job.ini --json run.json --set tp=2 --set pp=2 --set micro_batch_size=2 > /dev/null
line=$(grep -E '^[^,]*,[^,]*,[^,]*,[^,]*,2,2,none,2,' all.csv)
for key in needed_reserved_bytes headroom_bytes; do
  value=$(sed -n "/\"verdict\"/,/}/s/.*\"$key\": \([0-9]*\).*/\1/p" run.json)
  [ -n "$value" ] || continue
  check "the row's $key is that of run" sh -c 'case $0 in *,$1,*) ;; *) exit 1 ;; esac' "$line" "$value"
done

# ---- resuming ----
expect "a file is not overwritten" 2 'all.csv: is there already; go on with it by --resume' \
  "$MBSIM" sweep all.ini --csv all.csv
cp all.csv again.csv
expect "nothing is left to do" 0 "^$legal rows were there already" \
  "$MBSIM" sweep all.ini --csv again.csv --resume
check "and nothing is written twice" cmp all.csv again.csv
head -c $(($(wc -c < all.csv) - 20)) all.csv > torn.csv
"$MBSIM" sweep all.ini --csv torn.csv --resume > /dev/null
check "a torn row is made again" cmp all.csv torn.csv
expect "another scenario is not resumed" 2 'torn.csv: cannot be resumed: it was written for another' \
  "$MBSIM" sweep all.ini --csv torn.csv --resume --set seq_length=256
check "and the file is as it was" cmp all.csv torn.csv
head -c 30 all.csv > head.csv
"$MBSIM" sweep all.ini --csv head.csv --resume > /dev/null
check "a torn header is made again" cmp all.csv head.csv
{ cat all.csv; tail -1 all.csv; } > twice.csv
expect "a layout that is there twice" 2 'layout [0-9]+ is there twice' "$MBSIM" sweep all.ini --csv twice.csv --resume

# Many micro-batches, so that there is time to kill it.
sed 's/^global_batch_size.*/global_batch_size = 2048/' all.ini > slow.ini
"$MBSIM" sweep slow.ini --csv slow.csv > /dev/null
for kill_after in 1 7 20; do
  "$MBSIM" sweep slow.ini --csv killed.csv --resume > /dev/null &
  pid=$!
  wait_for_lines killed.csv "$kill_after"
  kill -9 "$pid" 2> /dev/null
  wait "$pid" 2> /dev/null
done
killed=$(rows killed.csv | wc -l)
"$MBSIM" sweep slow.ini --csv killed.csv --resume > /dev/null
check "killed three times and resumed: the rows of one sweep" same_rows slow.csv killed.csv
check "some rows were there before" [ "$killed" -gt 0 ]

# ---- faults ----
"$MBSIM" sweep slow.ini --csv crash.csv > crash.txt 2>&1 &
pid=$!
wait_for_lines crash.csv 3
kill -SEGV "$pid"
wait "$pid"
code=$?
if [ "$code" -eq 0 ] && grep -q ',error,.*the simulation crashed: segmentation fault$' crash.csv; then
  ok "a layout that crashes becomes a row"
  check "and the others have theirs" [ "$(rows crash.csv | wc -l)" -eq "$(rows slow.csv | wc -l)" ]
else
  skip "a layout that crashes becomes a row" "the signal came between two layouts (code $code)"
fi
expect "a full disk is an error" 1 'full.csv: cannot be written' \
  sh -c 'ulimit -f 4; exec "$0" sweep all.ini --csv full.csv' "$MBSIM"
check "whole rows stay" sh -c 'n=$(wc -l < full.csv); [ "$n" -gt 1 ] && head -n "$n" all.csv | cmp - full.csv'
"$MBSIM" sweep all.ini --csv full.csv --resume > /dev/null
check "and are gone on from" cmp all.csv full.csv
"$MBSIM" sweep slow.ini --csv locked.csv > /dev/null &
pid=$!
wait_for_lines locked.csv 0
expect "two sweeps do not write to one file" 2 'locked.csv: another sweep is writing to it' \
  "$MBSIM" sweep slow.ini --csv locked.csv --resume
kill "$pid" 2> /dev/null
wait "$pid" 2> /dev/null

# A file system without locks, played by a library in front of the C library's flock().
cat > noflock.c <<'EOS'
#include <errno.h>
int flock(int fd, int operation);
int flock(int fd, int operation)
{
    (void)fd;
    (void)operation;
    errno = ENOLCK;
    return -1;
}
EOS
if nm -D "$MBSIM" 2> /dev/null | grep -q __asan; then
  skip "a file system without locks" "not under a sanitizer"
elif ${CC:-cc} -shared -fPIC -o noflock.so noflock.c 2> /dev/null; then
  expect "a file system without locks is warned about" 0 'unlocked.csv: cannot be locked .*let no other sweep' \
    env LD_PRELOAD="$work/noflock.so" "$MBSIM" sweep all.ini --csv unlocked.csv
  check "and the rows are there" cmp all.csv unlocked.csv
else
  skip "a file system without locks" "no shared library can be made"
fi

sweep none.ini 'tensor_model_parallel_size = 3 5 7\n'
expect "no legal layout" 2 'none of the 3 combinations of \[sweep\] is legal' "$MBSIM" sweep none.ini
expect "no legal layout: the rule" 2 '3  the parallel sizes fit world_size' "$MBSIM" sweep none.ini
expect "no [sweep]" 2 'there is nothing to vary' "$MBSIM" sweep job.ini
sweep wrong.ini 'seq_length = 1..\n'
expect "a wrong range" 2 "wrong.ini:14: sweep.seq_length: '1..' is no range" "$MBSIM" sweep wrong.ini
sweep wrong.ini 'tensor_model_parallel_size = auto 2\n'
expect "auto stands alone" 2 'wrong.ini:14: sweep.tensor_model_parallel_size: auto stands alone' "$MBSIM" sweep wrong.ini
sweep wrong.ini 'seq_length = 1..999\nvocab_size = 1..999\nglobal_batch_size = 1..999\n'
expect "too many" 2 'more than [0-9]+ combinations' "$MBSIM" sweep wrong.ini
expect "both formats" 2 'not both' "$MBSIM" sweep all.ini --csv a --json b
expect "resume needs a file" 2 'needs --csv FILE or --json' "$MBSIM" sweep all.ini --resume
for shard in 5/4 0/0 /4 x 1/x -1/4; do
  expect "--shard $shard" 2 'must be I/N' "$MBSIM" sweep all.ini "--shard=$shard"
done

# ---- shards ----
for i in 1 2 3; do "$MBSIM" sweep all.ini --shard $i/3 --csv s$i.csv > s$i.txt; done
check "a shard says what it is" grep -q '^shard 2 of 3: ' s2.txt
expect "shards joined" 0 "^$legal layouts: " "$MBSIM" merge s1.csv s2.csv s3.csv --csv joined.csv
check "shards joined are the whole sweep" cmp all.csv joined.csv
expect "a missing shard" 1 'MISSING: [0-9]+ of [0-9]+ layouts: 3, 6, 9' "$MBSIM" merge s1.csv s2.csv
expect "a shard given twice" 0 'rows are in two files; each counts once' "$MBSIM" merge s1.csv s2.csv s3.csv s1.csv
"$MBSIM" sweep all.ini --shard 0/3 --csv s0.csv > /dev/null
check "shard 0 of 3 is shard 3 of 3" cmp s0.csv s3.csv
SLURM_ARRAY_TASK_ID=11 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_MIN=10 \
  "$MBSIM" sweep all.ini --csv slurm.csv > /dev/null
check "the second task of a Slurm array has the second shard" cmp slurm.csv s2.csv
sed '2s/,fits,/,at risk,/;2s/,out of memory,/,fits,/' s1.csv > lie.csv
expect "rows for one layout that differ" 2 'layout 1 has two rows that differ' "$MBSIM" merge s1.csv lie.csv
sed 's/^\([^,]*\),[^,]*,/\1,0.0.1,/' s2.csv | sed '1s/0.0.1/version/' > old.csv
expect "rows of another version" 2 "old.csv: row 1 has version '0.0.1'" "$MBSIM" merge s1.csv old.csv
"$MBSIM" sweep all.ini --shard 2/3 --csv other.csv --set seq_length=256 > /dev/null
expect "rows of another sweep" 2 'rows of different sweeps' "$MBSIM" merge s1.csv other.csv
expect "a file that is no sweep" 2 'job.ini:1: not the header of a sweep' "$MBSIM" merge job.ini
"$MBSIM" sweep all.ini --json all.json > /dev/null
expect "JSON lines name their schema" 0 '"schema":"mbsim.sweep/1"' sed -n 2p all.json
"$MBSIM" merge all.json --csv from-json.csv > /dev/null
check "JSON rows are the CSV rows" cmp all.csv from-json.csv
"$MBSIM" merge all.csv all.json --json back.json > /dev/null 2>&1
check "formats can be mixed" cmp all.json back.json
"$MBSIM" sweep all.ini --json torn.json > /dev/null
head -c $(($(wc -c < all.json) - 100)) all.json > torn.json
"$MBSIM" sweep all.ini --json torn.json --resume > /dev/null
check "JSON lines are resumed too" cmp all.json torn.json

"$MBSIM" sweep all.ini --quick --csv quick.csv > /dev/null
check "--quick says so in every row" [ "$(grep -c ',stages,' quick.csv)" -eq "$legal" ]
expect "--quick is another sweep" 2 'rows of different sweeps' "$MBSIM" merge quick.csv s1.csv

# ---- mode live ----
"$MBSIM" sweep all.ini --mode live --csv live.csv > live.txt
check "mode live says so in every row" [ "$(grep -c ',live,' live.csv)" -eq "$legal" ]
check "the others say stepped" [ "$(grep -c ',stepped,' all.csv)" -eq "$legal" ]
expect "mode live says so below the table" 0 '^mode live: live bytes only' cat live.txt
"$MBSIM" merge live.csv --json live.json > /dev/null
check "with it nothing fits for certain, and nothing is reserved" jq -es '
  [.[] | select(.schema == "mbsim.sweep/1")] | (map(select(.status == "may fit")) | length > 0) and
  all(.status != "fits" and .reserved_bytes == null and .allocated_bytes > 0)' live.json
expect "mode live is another sweep" 2 'rows of different sweeps' "$MBSIM" merge live.csv s1.csv
expect "mode live has no page" 2 'sweep: --html shows what an allocator holds' \
  "$MBSIM" sweep all.ini --mode live --html live.html

# ---- several processes ----
mpi 3 "$MBSIM" sweep all.ini --csv three.csv > three.txt
check "three processes write the same rows" same_rows all.csv three.csv
check "and print the same" cmp all.txt three.txt
mpi 3 "$MBSIM" sweep none.ini > mpi.txt 2>&1
check "three processes: one message" [ "$(grep -c 'none of the 3' mpi.txt)" -eq 1 ]
expect "three processes and a full disk end" 1 'cannot be written' \
  mpirun -np 3 "$MBSIM" sweep all.ini --csv /dev/full

expect "progress on standard error" 0 "^sweep: $legal of $legal layouts" \
  sh -c '"$0" sweep all.ini --progress always 2>&1 > /dev/null' "$MBSIM"

# Rows are the answer, so that a Slurm task that finds none that fits has not failed.
sweep none.ini 'tensor_model_parallel_size = 1 2\n'
expect "where no layout fits the sweep is done all the same" 0 '^2 layouts: 0 fit, 0 at risk, 2 out of memory' \
  "$MBSIM" sweep none.ini --set device.memory_bytes=512MiB --csv none.csv
expect "and so is merging" 0 '^2 layouts: 0 fit' "$MBSIM" merge none.csv
done_testing
