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
  [ "$(grep -c "^rank [0-3]: world of 4, creation: model 241172480, real 33554432$" one.txt)" = 4 ]'
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
