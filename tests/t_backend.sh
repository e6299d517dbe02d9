#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016 # $0 is for the inner shells
# The job on real memory: pages of this machine, and GPUs, for which the stand-in stands.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99
standin=$(dirname "$MBSIM")/tests/standin

cat > job.ini <<'INI'
[model]
num_layers = 4
hidden_size = 512
num_attention_heads = 8
vocab_size = 32000
[parallel]
world_size = 4
pipeline_model_parallel_size = 2
[train]
micro_batch_size = 1
global_batch_size = 8
seq_length = 512
[precision]
bf16 = true
[optimizer]
use_distributed_optimizer = true
[device]
gpu = h100-80gb-sxm
INI

# on BACKEND ARGUMENTS...: the job on it
on() {
  on_backend=$1
  shift
  "$MBSIM" job.ini --set device.backend="$on_backend" "$@"
}

# json EXPRESSION FILE: holds for device of the report
json() {
  jq -e ".device | $1" "$2" >/dev/null
}

# with NAME=VALUE... COMMAND: for this command, also a function
with() {
  (
    while case $1 in *=*) ;; *) false ;; esac do
      export "${1?}"
      shift
    done
    "$@"
  )
}
# fails TEXT CODE PATTERN COMMAND...: as expect, of functions too
fails() {
  fails_text=$1 fails_code=$2 fails_pattern=$3
  shift 3
  fails_out=$("$@" 2>&1)
  fails_rc=$?
  if [ "$fails_rc" -eq "$fails_code" ] && printf '%s\n' "$fails_out" | grep -Eq -- "$fails_pattern"; then
    ok "$fails_text"
  else
    not_ok "$fails_text" "exit code $fails_rc, not $fails_code, or no '$fails_pattern' in: $fails_out"
  fi
}

# ---- host ----
for conf in '' expandable_segments:True; do
  for scale in 1 8; do
    on host --set device.scale=$scale --set device.share=0.9 --set "allocator.conf=$conf" \
      --set device.fill=true --json host.json > host.txt 2> host.err
    check "host, $conf scale $scale: it fits and says nothing on standard error" \
      test $? -eq 0 -a ! -s host.err
    check "host, $conf scale $scale: the kernel counts what was taken" json \
      '.backend == "host" and .scale == '$scale' and (.ranks | length) == 4 and
       all(.ranks[]; .difference_bytes == 0 and .account_bytes * '$scale' == .model_reserved_bytes
         and .max_reserved_bytes == .model_reserved_bytes and .filled_bytes > 0
         and .process_highest_resident_bytes > .account_bytes and .process_anonymous_bytes > .account_bytes)
       and all(.pools[]; .held_account_bytes == .held_device_bytes and .left_bytes == 0)' host.json
  done
done
expect "host: the text says so" 0 '^On real memory \(backend = host\): every operation of 4 ranks' cat host.txt
fails "more than the share is refused" 1 \
  'backend = host: rank [0-3] needs .* and may take .*; a larger device.scale or device.share' \
  on host --set device.share=0.0001
fails "a scale that is no power of two is refused" 2 'scale.*3 is no power of two' \
  on host --set device.scale=3
fails "a scale of GPUs is refused" 2 'only backend = host has pages' on cuda --set device.scale=2
fails "sharing GPUs that are not there is refused" 2 'only backend = cuda has GPUs' \
  on host --set device.ranks_per_gpu=2
fails "a share of no memory is refused" 2 'takes no memory' on synthetic --set device.share=0.5
fails "writing to no memory is refused" 2 'no memory to write to' on synthetic --set device.fill=true
fails "some ranks alone" 0 'every operation of 1 rank, a byte for 8$' on host --set device.scale=8 --ranks 2
fails "out of memory by the model is a result" 3 'OUT OF MEMORY on 4 ranks' \
  on host --set device.scale=8 --set device.memory_bytes=3GiB --set device.reserved_outside_bytes=2.9GiB
expect "other commands take the synthetic device and say so" 0 \
  'device.backend = host is for mbsim run alone' "$MBSIM" estimate job.ini --set device.backend=host
on host --set device.scale=8 --json many.json > many.txt
mpi 2 "$MBSIM" job.ini --set device.backend=host --set device.scale=8 --json two.json > two.txt
check "two processes take the same" sh -c 'jq -S ".device.ranks[] | {rank, account_bytes, device_bytes}" many.json > a &&
  jq -S ".device.ranks[] | {rank, account_bytes, device_bytes}" two.json | cmp - a'
check "the report by the model is the same on all backends" sh -c '
  "$0" job.ini --json synthetic.json > /dev/null && for f in synthetic many two; do
    jq "del(.device, .scenario.device)" $f.json > $f.rest; done && cmp synthetic.rest many.rest && cmp synthetic.rest two.rest' "$MBSIM"
check "the page has it" sh -c '"$0" job.ini --set device.backend=host --set device.scale=8 --html p.html >/dev/null &&
  grep -q "\"backend\": *\"host\"" p.html' "$MBSIM"

# ---- GPUs ----
# Communicators take nothing here, so that all that GPUs give is the ranks'; t_nccl.sh is about them.
export STANDIN_NCCL_BYTES=0 STANDIN_NCCL_USE_BYTES=0
if "$MBSIM" --version | grep -q 'CUDA none'; then
  fails "a build without CUDA says so" 1 'backend = cuda: this mbsim was built --without-cuda' on cuda
  done_testing
fi

# gpu ARGUMENTS...: the job on the stand-in's GPUs, whatever else this machine has
gpu() {
  LD_LIBRARY_PATH=$standin "$MBSIM" job.ini --set device.backend=cuda "$@"
}
# gpus N ARGUMENTS...: the same by N processes, which share the GPUs
gpus() {
  gpus_n=$1
  shift
  rm -f shared
  LD_LIBRARY_PATH=$standin STANDIN_SHARED=$work/shared \
    mpi "$gpus_n" "$MBSIM" job.ini --set device.backend=cuda "$@"
}
mkdir none
if [ ! -e /dev/nvidiactl ]; then
  fails "no driver is one line" 1 '^mbsim: backend = cuda: no NVIDIA driver on this machine' \
    with LD_LIBRARY_PATH=none on cuda
fi
fails "an old driver" 1 'for CUDA 11.4, too old' with STANDIN_DRIVER=11040 gpu
fails "no GPU" 1 'no CUDA-capable device' with STANDIN_DEVICES=0 gpu
fails "no GPU is left visible" 1 'no CUDA-capable device' with CUDA_VISIBLE_DEVICES= gpu
fails "a GPU that somebody else fills" 1 'GPU 0: no memory is free' \
  with STANDIN_BUSY=$(((64 << 30) - (256 << 20))) gpu
fails "more ranks than GPUs" 1 \
  'backend = cuda: 4 ranks on GPU 0000:01:00.0 of .*device.ranks_per_gpu = 1 lets no more share it' gpu
fails "two GPUs are not enough either" 1 'backend = cuda: 2 ranks on GPU' with STANDIN_DEVICES=2 gpu
fails "too little memory" 1 'rank [0-3] needs .* and may take .* GPU 0000:01:00.0 of' \
  with STANDIN_CAPACITY=$((1 << 30)) gpu --set device.ranks_per_gpu=4
fails "no virtual memory management" 1 'no virtual memory management' \
  with STANDIN_DEVICES=4 STANDIN_NO_VMM=1 gpu --set allocator.conf=expandable_segments:True
fails "a granularity that pages are no multiple of" 1 'makes pages of 4194304 bytes' \
  with STANDIN_DEVICES=4 STANDIN_GRANULARITY=4194304 gpu --set allocator.conf=expandable_segments:True

for conf in '' expandable_segments:True; do
  what="cuda, ${conf:-default}:"
  with STANDIN_DEVICES=4 gpu --set "allocator.conf=$conf" --set device.fill=true --json own.json \
    --csv own.csv > own.txt 2> own.err
  check "$what four GPUs, nothing leaks" test $? -eq 0 -a ! -s own.err
  check "$what the GPU says what the model says" json '.backend == "cuda" and (.pools | length) == 4 and
    all(.ranks[]; .difference_bytes == 0 and .account_bytes == .model_reserved_bytes and
      .max_reserved_bytes == .model_reserved_bytes and .filled_bytes > 0 and
      .nvml_process_bytes == .device_bytes + 268435456 and .cuda_used_bytes == .nvml_used_bytes)
    and all(.pools[]; .held_account_bytes == .held_device_bytes and .left_bytes == 0)' own.json
  expect "$what CSV" 0 '^3,.*,cuda,[0-9]+,[0-9]+,0,true(,|$)' cat own.csv
  gpu --set "allocator.conf=$conf" --set device.ranks_per_gpu=4 --json one.json > one.txt 2> one.err
  check "$what one GPU for four ranks, nothing leaks" test $? -eq 0 -a ! -s one.err
  check "$what one GPU says what the model says" json '(.pools | length) == 1 and
    all(.ranks[]; .difference_bytes == 0) and .pools[0].held_account_bytes > 0' one.json
  gpus 4 --set "allocator.conf=$conf" --set device.ranks_per_gpu=4 --json four.json > four.txt 2> four.err
  check "$what four processes on one GPU, nothing leaks" test $? -eq 0 -a ! -s four.err
  check "$what NVML tells each process" json '(.pools | length) == 1 and
    .pools[0].n_processes == 4 and .pools[0].held_account_bytes == .pools[0].held_device_bytes and
    .pools[0].left_bytes == 0 and all(.ranks[]; .difference_bytes == 0)' four.json
  with STANDIN_DEVICES=2 STANDIN_NO_PROCESSES=1 gpus 2 --set "allocator.conf=$conf" \
    --set device.ranks_per_gpu=2 --json two.json > two.txt 2> two.err
  check "$what two processes with two ranks each" test $? -eq 0 -a ! -s two.err
  check "$what where NVML does not tell, nothing is claimed of a rank, but of the GPU" json \
    '(.pools | length) == 2 and all(.ranks[]; .device_bytes == null) and
     all(.pools[]; .n_ranks == 2 and .held_account_bytes == .held_device_bytes)' two.json
  check "$what all took the same" sh -c 'for f in own one four two; do
    jq ".device.ranks[] | .account_bytes" $f.json > $f.account; done
    cmp own.account one.account && cmp own.account four.account && cmp own.account two.account'
done
expect "the text has the GPU" 0 'Stand-in 0 0000:01:00.0: 64.00 GiB, ' cat own.txt

# The launcher shows each process one GPU of its own.
cat > one_gpu.sh <<'SH'
CUDA_VISIBLE_DEVICES=$((3 - OMPI_COMM_WORLD_LOCAL_RANK)) exec "$@"
SH
LD_LIBRARY_PATH=$standin STANDIN_DEVICES=4 STANDIN_SHARED=$work/shared4 mpi 4 sh one_gpu.sh \
  "$MBSIM" job.ini --set device.backend=cuda --json visible.json > visible.txt 2> visible.err
check "CUDA_VISIBLE_DEVICES of each process is respected" json \
  '[.ranks[] | .pool] as $p | [.pools[$p[]].pci_address] ==
   ["0000:04:00.0", "0000:03:00.0", "0000:02:00.0", "0000:01:00.0"]' visible.json
fails "one GPU of the list for all" 1 '4 ranks on GPU 0000:03:00.0' \
  with STANDIN_DEVICES=4 CUDA_VISIBLE_DEVICES=2 gpus 4

# Memory beyond the account shows.
with STANDIN_DEVICES=4 STANDIN_MALLOC_STEP=$((3 << 20)) gpu --json beyond.json > beyond.txt
check "what the GPU takes beyond the account is a difference" json \
  'all(.ranks[]; .difference_bytes > 0)' beyond.json

# ---- memory that runs out in the middle, calls that fail ----
for conf in '' expandable_segments:True; do
  call=cudaMalloc at=92 # the first 72 are for communicators
  [ -z "$conf" ] || { call=cuMemCreate at=20; }
  rm -f report
  fails "out of memory in the middle is a result ($call)" 3 \
    'the device had no more, though it fits by the model: .* for ' \
    with STANDIN_DEVICES=4 STANDIN_REPORT=report STANDIN_FAIL_CALL=$call STANDIN_FAIL_AT=$at \
    STANDIN_FAIL_CODE=2 STANDIN_FAIL_FOR=100000 gpu --set "allocator.conf=$conf"
  expect "and everything is given back" 0 ' leaks=0 misuses=0 ' cat report
done
fails "an error of one process ends all" 1 'process 2 on .*: GPU 0: cudaMalloc: unknown error \(999\)' \
  with STANDIN_FAIL_RANK=2 STANDIN_FAIL_CALL=cudaMalloc STANDIN_FAIL_AT=4 \
  gpus 4 --set device.ranks_per_gpu=4
fails "an error of one process at the start ends all" 1 'process 3 on .*cuDeviceGet: unknown error' \
  with STANDIN_FAIL_RANK=3 STANDIN_FAIL_CALL=cuDeviceGet STANDIN_FAIL_AT=1 \
  gpus 4 --set device.ranks_per_gpu=4

# every_call CONF CODE: the small job with the n-th call failing, n = 1, 2, ... until none does.
# A failing call of NVML leaves a note, NCCL that does not load the model in its place, and one for lack of memory may be a result; all others are
# an error in one line, and nothing is left but what could not be given back.
every_call() {
  n=1
  while :; do
    rm -f report
    with STANDIN_LENIENT=1 STANDIN_REPORT=report STANDIN_FAIL_AT=$n STANDIN_FAIL_CODE="$2" \
      LD_LIBRARY_PATH="$standin" "$MBSIM" tiny.ini --set "allocator.conf=$1" --json tiny.json \
      > tiny.txt 2> tiny.all
    rc=$?
    grep -v '^stand-in: ' tiny.all > tiny.err
    read -r calls rest < report
    [ "${calls#calls=}" -ge "$n" ] || break
    case $rc in
    0) jq -e '.device | .pools[0].note != "" or .ranks[0].n_alloc_retries > 0 or .communicators.why_not != null' tiny.json > /dev/null || { echo "call $n: not noticed"; return 1; } ;;
    1) [ "$(wc -l < tiny.err)" -eq 1 ] || { cat tiny.err; return 1; } ;;
    3) [ "$2" = 2 ] || { echo "call $n: $rc"; return 1; } ;;
    *) echo "call $n: exit code $rc"; cat tiny.err; return 1 ;;
    esac
    case $rest in
    *'leaks=0 misuses=0'*) ;;
    *) echo "$n $rest" >> left ;;
    esac
    n=$((n + 1))
  done
  echo "$n calls"
  [ "$n" -gt 40 ]
}
sed -e 's/^world_size = 4/world_size = 1/; /^pipeline_model/d; s/^num_layers = .*/num_layers = 1/
  s/^global_batch_size = .*/global_batch_size = 1/; s/^gpu = .*/&\nbackend = cuda\nfill = false/' job.ini > tiny.ini
echo '[run]
iterations = 1' >> tiny.ini
for conf in '' expandable_segments:True; do
  for code in 999 2; do
    rm -f left
    check "each call fails once with $code ($conf)" every_call "$conf" $code
    # Only a call that gives back can leave something: what it would have given back.
    check "nothing else is left behind ($conf $code)" sh -c '[ ! -e left ] || ! grep -vE \
      "leaks=[12] (cudaMalloc:1|stream:1|nvmlInit:1|reservation:1( mapping:1)?|handle:1|handle:1 mapping:1|reservation:1 handle:1( mapping:1)?|reservation:1 mapping:1)|leaks=3 reservation:1 handle:1 mapping:1" left'
  done
done
done_testing
