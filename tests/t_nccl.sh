#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Real communicators, made and used in the model's order and measured, against the stand-in for CUDA
# and NCCL: alone and by several processes, and with every call failing once.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99
standin=$(dirname "$MBSIM")/tests/standin
probe=$(dirname "$MBSIM")/tests/nccl_probe
if "$MBSIM" --version | grep -q 'CUDA none'; then
  skip "communicators" "built without CUDA"
  done_testing
fi
export STANDIN_DEVICES=4 STANDIN_SHARED="$work/shared"

# on N SET...: the probe in N processes on the stand-in; one without mpirun.
on() {
  on_n=$1
  shift
  rm -f "$STANDIN_SHARED"
  if [ "$on_n" -eq 1 ]; then
    LD_LIBRARY_PATH=$standin timeout -k 5 60 "$probe" "$@"
  else
    LD_LIBRARY_PATH=$standin timeout -k 5 60 mpirun -np "$on_n" "$probe" "$@"
  fi
}

if [ ! -e /dev/nvidiactl ]; then
  expect "no driver: the model stands in" 0 'the model stands in: no NVIDIA driver' "$probe"
fi
mkdir cuda
for name in libcuda.so.1 libcudart.so.13 libnvidia-ml.so.1; do ln -s "$standin/$name" cuda; done
if ! ldconfig -p 2> /dev/null | grep -q libnccl.so.2; then
  expect "no NCCL: the model stands in" 0 'the model stands in: no NCCL from 2.14 on .libnccl.so.2' \
    env LD_LIBRARY_PATH=cuda "$probe"
fi
PROBE_SHARE=1 on 1 > shared.txt
check "ranks that share a GPU: the model stands in" \
  grep -q '^the model stands in: ranks 0 and 1 share the GPU 0000:01:00.0 of .*, which NCCL refuses' shared.txt

on 1 > one.txt
check "every rank makes and uses its communicators" sh -c '
  [ "$(grep -c "^rank [0-3]: mp of 4, creation: model 241172480, real 33554432$" one.txt)" = 4 ]'
check "the first use of a function is measured, the second takes nothing" sh -c '
  grep -q "^rank 3: tp of 2, all-reduce: model 0, real 12582912$" one.txt &&
  grep -q "^rank 3: tp of 2, all-reduce: model 0, real 0$" one.txt'
check "in the order of the model" sh -c '
  sed -n "s/^rank 0: \([a-z-]*\) of .*creation.*/\1/p" one.txt | tr "\n" " " | grep -qx "world embd tp pp dp-cp mp "'
for n in 2 4; do
  on $n > many.txt 2> many.err
  check "$n processes measure the same, nothing leaks" sh -c 'cmp one.txt many.txt && [ ! -s many.err ]'
done
for sets in "parallel.pipeline_model_parallel_size=1 parallel.context_parallel_size=2" \
  "parallel.virtual_pipeline_model_parallel_size=2 parallel.overlap_p2p_communication=true" \
  "parallel.tensor_model_parallel_size=1 parallel.pipeline_model_parallel_size=4"; do
  # shellcheck disable=SC2086 # words
  on 4 $sets > many.txt 2> many.err
  check "$sets" sh -c 'grep -q "^rank 3: .*send/receive" many.txt && [ ! -s many.err ] || { cat many.txt many.err; false; }'
done
on 4 model.preset=mixtral-8x7b parallel.expert_model_parallel_size=4 \
  parallel.tensor_model_parallel_size=1 parallel.pipeline_model_parallel_size=1 > many.txt 2> many.err
check "an all-to-all of experts" sh -c 'grep -q "^rank 3: ep of 4, all-to-all: model 1207959552, real " many.txt && [ ! -s many.err ] || { cat many.txt many.err; false; }'

# ---- in a run ----
cat > job.ini << 'INI'
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
[device]
gpu = h100-80gb-sxm
backend = cuda
INI
# run N ARGUMENTS...: mbsim in N processes on the stand-in.
run() {
  run_n=$1
  shift
  rm -f "$STANDIN_SHARED"
  LD_LIBRARY_PATH=$standin mpi "$run_n" "$MBSIM" job.ini "$@"
}
run 4 --json run.json > run.txt 2> run.err
check "a run measures its communicators, and nothing leaks" test $? -eq 0 -a ! -s run.err
check "text: model, device, difference of the worst rank" grep -q \
  '^  pp, 2 ranks, send/receive  *384.0 MiB    24.00 MiB   -360.0 MiB$' run.txt
check "text: the first comes with the kernels" grep -q \
  "^  world, 4 ranks, creation and NCCL's kernels  *572.0 MiB    32.00 MiB   -540.0 MiB\$" run.txt
check "JSON: every step of every rank" jq -e '.device.communicators | .is_measured and
  .nccl_version == "2.28.9" and ([.steps[].rank] | unique) == [0, 1, 2, 3] and
  ([.steps[] | select(.rank == 3 and .step == "creation") | .device_bytes] | unique) == [33554432] and
  (.steps[] | select(.rank == 0 and .communicator == "world" and .step == "all-reduce") |
    .model_bytes == 301989888 and .device_bytes == 12582912)' run.json
check "the ranks get what the communicators leave" jq -e \
  'all(.device.pools[]; .free_bytes + .used_before_bytes == .total_bytes and .left_bytes == 0)' run.json
check "the processes are bound to the GPUs' places" jq -e '[.placement.hosts[0].processes[].bus] ==
  ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"]' run.json
STANDIN_DEVICES=1 run 4 --set device.ranks_per_gpu=4 --json one.json > one_gpu.txt 2> one_gpu.err
check "ranks on one GPU: the report says that the model stands in" grep -q \
  "^NCCL's communicators are the model's: ranks 0 and 1 share the GPU 0000:01:00.0 of .*" one_gpu.txt
check "JSON says so" jq -e '.device.communicators | (.is_measured | not) and .steps == [] and
  .nccl_version == null and (.why_not | startswith("ranks 0 and 1 share"))' one.json
run 2 --ranks 0,1 > some.txt
check "some of the ranks: the model stands in" grep -q 'not all ranks are played (--ranks)' some.txt
STANDIN_FAIL_RANK=2 STANDIN_FAIL_CALL=ncclCommInitRankConfig STANDIN_FAIL_AT=2 STANDIN_LENIENT=1 \
  run 4 > failed.txt 2> failed.err
check "an error inside NCCL: one message, exit code 1" sh -c '[ $1 -eq 1 ] && [ ! -s failed.txt ] &&
  [ "$(grep -c "^mbsim: NCCL: process 2 on .*: ncclCommInitRankConfig: unknown" failed.err)" -eq 1 ] &&
  ! grep -q leaked failed.err || { cat failed.err; false; }' sh $?
STANDIN_FAIL_RANK=1 STANDIN_FAIL_CALL=ncclCommFinalize STANDIN_FAIL_AT=2 STANDIN_LENIENT=1 \
  run 4 > failed.txt 2> failed.err
check "an error at their end, too" sh -c '[ $1 -eq 1 ] && ! grep -q leaked failed.err &&
  grep -q "^mbsim: process 1 on .*: NCCL: ncclCommFinalize: unknown" failed.err || { cat failed.err; false; }' sh $?

# ---- every call fails once ----

# A call that gives back can leave what it would have given back; all else must be gone.
every_call() {
  n=1
  while :; do
    rm -f report
    STANDIN_LENIENT=1 STANDIN_REPORT=report STANDIN_FAIL_AT=$n on 1 parallel.world_size=2 \
      parallel.tensor_model_parallel_size=1 model.untie_embeddings_and_output_weights=true > every.txt 2> every.all
    rc=$?
    read -r calls rest < report
    [ "${calls#calls=}" -ge "$n" ] || break
    said=$(grep -vc '^stand-in: ' every.all)
    if grep -q '^the model stands in' every.txt; then
      [ $rc -eq 0 ] || { echo "call $n: exit code $rc"; return 1; }
    elif [ $rc -ne 1 ] || [ "$said" -ne 1 ]; then
      echo "call $n: exit code $rc"
      cat every.txt every.all
      return 1
    fi
    case $rest in
    *'leaks=0 misuses=0'* | *'leaks=1 cudaMalloc:1 misuses=0'* | *'leaks=1 stream:1 misuses=0'*) ;;
    *)
      echo "call $n: $rest"
      cat every.txt every.all
      return 1
      ;;
    esac
    n=$((n + 1))
  done
  echo "$n calls"
  [ "$n" -gt 200 ]
}
check "each call fails once: one message, nothing left" every_call

# fails_there CALL N: the N-th such call of process 1 of 2 fails; process 0, which waits for it in
# NCCL, stops, gives all back and says who failed.
fails_there() {
  rm -f report
  STANDIN_LENIENT=1 STANDIN_REPORT=$work/report STANDIN_FAIL_RANK=1 STANDIN_FAIL_CALL=$1 \
    STANDIN_FAIL_AT=$2 on 2 > there.txt 2> there.err
  there_rc=$?
  [ "$there_rc" -eq 1 ] || { echo "exit code $there_rc"; cat there.txt there.err; return 1; }
  grep -q "process 0: NCCL: process 1 on .*: $1: unknown" there.err || { cat there.err; return 1; }
  # mpirun may end the other process before it writes its line.
  if [ ! -s report ] || grep -vq 'leaks=0 misuses=0\|leaks=1 cudaMalloc:1' report; then
    cat report
    return 1
  fi
}
for call in ncclCommInitRankConfig ncclCommGetAsyncError ncclGroupStart ncclGroupEnd ncclAllReduce \
  ncclBroadcast ncclSend ncclRecv cudaMemGetInfo cudaStreamQuery cudaMalloc cudaFree \
  cudaDeviceSynchronize cudaStreamCreateWithFlags; do
  for n in 1 2; do
    check "$call fails in one of two processes, time $n" fails_there $call $n
  done
done
STANDIN_LENIENT=1 STANDIN_FAIL_RANK=0 STANDIN_FAIL_CALL=ncclGetUniqueId STANDIN_FAIL_AT=3 on 2 \
  > there.txt 2> there.err
check "no id: all stop" sh -c 'grep -q "process 1: NCCL: process 0 on .*: ncclGetUniqueId: unknown" there.err'

done_testing
