#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What differs in front of a terminal: colour, a bar a rank, progress.
# shellcheck disable=SC2016 # $0 is for the inner shells
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

cat > job.ini <<'INI'
[model]
preset = llama3.2-1b
[parallel]
world_size = 8
pipeline_model_parallel_size = 4
[train]
micro_batch_size = 1
global_batch_size = 16
seq_length = 1024
[precision]
bf16 = true
[device]
gpu = h100-80gb-sxm
INI
sed 's/^gpu = .*/&\nmemory_bytes = 6GiB/' job.ini > oom.ini
# 64 ranks that differ, and many micro-batches: a second or two.
sed 's/^world_size = .*/world_size = 64/; s/^global_batch_size = .*/global_batch_size = 4096/
  s/^bf16 = .*/&\n[optimizer]\nuse_distributed_optimizer = true/' job.ini > long.ini
escape=$(printf '\033')

"$MBSIM" job.ini > plain.txt 2> plain.err
check "no colour, no bar and no progress in a file" sh -c '! grep -q "$0\|####" plain.txt && test ! -s plain.err' "$escape"
expect "--progress=always speaks without a terminal" 0 '^run: 4 of 4 kinds of rank, 100 %, ' \
  "$MBSIM" job.ini --progress=always
check "progress goes to standard error" sh -c '"$0" job.ini --progress=always 2>/dev/null | cmp - plain.txt' "$MBSIM"
expect "replay has no progress to show" 2 'unknown option --progress' "$MBSIM" keys --progress=always

if ! command -v script >/dev/null || ! script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
  skip "what a terminal gets" "no script(1)"
  done_testing
fi
# on_terminal COLUMNS ARGUMENT...: its output, carriage returns left out.
on_terminal() {
  columns=$1
  shift
  TERM=xterm timeout -k 5 120 script -qec "stty cols $columns; '$MBSIM' $*" /dev/null </dev/null
}
on_terminal 120 job.ini | tr -d '\r' > tty.txt
check "colour on a terminal" grep -q "${escape}\[1;32mFITS" tty.txt
check "a bar a rank" sh -c 'test "$(grep -cE "  [#.]{8,}$" tty.txt)" -ge 4'
check "lines fit the terminal" sh -c '! sed "s/$0\[[0-9;]*m//g" tty.txt | grep -E "^.{121}"' "$escape"
check "without colour and bars the text is that of a file" sh -c '
  sed "s/$0\[[0-9;]*[mK]//g; s/ *device$//; s/  [#.]*$//" tty.txt | sed "s/ *$//" > a
  sed "s/ *device$//; s/ *$//" plain.txt > b; cmp a b' "$escape"
on_terminal 100 oom.ini > oom.txt
check "out of memory is red" grep -q "${escape}\[1;31mOUT OF MEMORY" oom.txt
NO_COLOR=1 on_terminal 120 oom.ini > none.txt
check "NO_COLOR is obeyed" sh -c '! grep -q "$0\[[0-9;]*m" none.txt && grep -q "##" none.txt' "$escape"
on_terminal 60 job.ini > narrow.txt
check "no bars without room" sh -c '! grep -q "##" narrow.txt'

on_terminal 100 long.ini > long.txt
check "progress on a terminal: rate and time left, on one line that is wiped in the end" sh -c '
  grep -q "kinds of rank, [0-9]* %, [0-9.]* a second, [0-9]* s to go" long.txt &&
  tr "\r" "\n" <long.txt | grep -q "^$0\[K"' "$escape"
for option in --quiet --progress=never; do
  on_terminal 100 long.ini $option > quiet.txt
  check "$option: no progress" sh -c '! grep -q "kinds of rank" quiet.txt'
done
done_testing
