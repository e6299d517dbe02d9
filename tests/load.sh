#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Load that is too much for every run of the tests: a thousand scenarios in one process, 256
# processes on this machine, a sweep of a hundred thousand layouts that goes on where it was killed,
# and a trace of 8 GB. Prints what each took. LOAD_BYTES, LOAD_LONGEST and
# LOAD_PROCESSES change the sizes; needs GNU time.
. "$TOP_SRCDIR/tests/lib.sh"
build=$(dirname "$MBSIM")
bytes=${LOAD_BYTES:-8000000000} processes=${LOAD_PROCESSES:-256}
cd "$work" || exit 99

# measured LIMIT_MB COMMAND...: its peak memory, and whether it stays below.
measured() {
  measured_limit=$1
  shift
  /usr/bin/time -f '%e s, %M KiB' -o time.txt "$@" >out.txt 2>&1
  measured_rc=$?
  measured_kib=$(sed -n 's/.* s, \([0-9]*\) KiB/\1/p' time.txt)
  echo "# $(tail -n 1 time.txt)"
  [ "$measured_rc" -eq 0 ] && [ "$measured_kib" -le $((measured_limit * 1024)) ]
}

check "a thousand scenarios in one process" env MBSIM_LOAD=1000 "$build/tests/test_load"

cat >sweep.ini <<EOS
[model]
num_layers = 4
hidden_size = 1024
num_attention_heads = 16
vocab_size = 32000
[parallel]
world_size = 8
[train]
seq_length = 4096
global_batch_size = 16
micro_batch_size = 1
[sweep]
tensor_model_parallel_size = 1 2 4 8
pipeline_model_parallel_size = 1 2 4
micro_batch_size = 1 2
recompute_granularity = none selective
seq_length = 64..${LOAD_LONGEST:-45000}+64
ffn_hidden_size = 1024..4096+1024
EOS
timeout "${LOAD_KILL_SECONDS:-20}" "$MBSIM" sweep sweep.ini --quick --csv rows.csv -q >/dev/null 2>&1
check "a sweep that was killed has rows" test "$(wc -l <rows.csv)" -gt 10
if measured 300 "$MBSIM" sweep sweep.ini --quick --resume --csv rows.csv -q; then
  ok "and goes on to $(($(wc -l <rows.csv) - 1)) layouts in 300 MB"
else
  not_ok "and goes on" "$(cat time.txt out.txt)"
fi

# Tensors that come and go, some of them after a long time.
trace() {
  awk -v bytes="$bytes" 'BEGIN {
    for (i = 1; n < bytes; i++) {
      line = "a " i " " (i % 97 + 1) * 4096 " 0"
      if (i > 50) line = line "\nf " (i - 50)
      print line
      n += length(line) + 1
    }
  }'
}
mkfifo pipe
trace >pipe &
if measured 200 "$MBSIM" replay pipe; then
  ok "a trace of $bytes bytes through a pipe in 200 MB"
else
  not_ok "a trace of $bytes bytes" "$(cat time.txt out.txt)"
fi
wait

begin=$(date +%s)
if timeout 900 mpirun -np "$processes" "$MBSIM" "$TOP_SRCDIR/scenarios/llama3-8b-8gpu.ini" \
  --set parallel.world_size=256 --set train.global_batch_size=2048 >out.txt 2>&1; then
  ok "$processes processes in $(($(date +%s) - begin)) s"
else
  not_ok "$processes processes" "$(tail out.txt)"
fi
done_testing
