#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a GPU says beside what the model says; takes a few minutes. Not part of `make check`.
#
# Usage: tests/device/check.sh                on a machine with a GPU
#        tests/device/check.sh --bundle DIR   on a machine without: build, and put into DIR what a
#                                             machine that lacks the libraries to build needs
# Needs a C compiler; neither MPI nor a network. mbsim is $MBSIM, or that of $BUNDLE (a DIR made
# by --bundle), or the one in the source tree if it starts, or it is built from a copy.
# Exit code: 0 all that must be equal is; 1 something differs or fails; 77 no GPU.
top=$(cd "$(dirname "$0")/../.." && pwd) || exit 99
work=$(mktemp -d "${TMPDIR:-/tmp}/mbsim-device.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' INT TERM
here=tests/device
n_differ=0
limit=${DEVICE_CHECK_SECONDS:-120} # of each step

die() {
  echo "check.sh: $1" >&2
  exit 1
}

# Configure and make a copy of the tree, so that the tree stays as it is.
build() {
  mkdir "$work/build" && cd "$work/build" || exit 99
  (cd "$top" && tar -cf - --exclude=.git --exclude='*.o' --exclude='*.a' --exclude='./build*' \
    --exclude=config.status --exclude=config.h --exclude=./Makefile .) | tar -xf - || exit 99
  [ -x configure ] || autoreconf -fi >log 2>&1 || return 1
  ./configure -q --without-mpi >>log 2>&1 && make -s -j "$(nproc)" mbsim >>log 2>&1
}

bundle() {
  build || { tail -20 log >&2; die "mbsim cannot be built"; }
  mkdir -p "$1/lib" && cp mbsim "$1" || exit 99
  ldd mbsim | awk '$3 ~ /^\// { print $3 }' | grep -vE '/(libc|libm|libdl|libpthread|ld-linux.*)\.so' |
    xargs -I {} cp -L {} "$1/lib" || exit 99
  ls -l "$1" "$1/lib"
  exit 0
}

[ "$1" != --bundle ] || bundle "$(mkdir -p "$2" && cd "$2" && pwd)"

# ---- the GPU, and what takes memory of it beside PyTorch's allocator ----
: >"$work/config.h"
# shellcheck disable=SC2086 # lists of words
${CC:-cc} -std=gnu11 -O1 ${SAN_FLAGS:-} -I"$work" -I"$top" -DWITH_CUDA \
  -DCUDA_LIBRARY_DIR="\"${CUDA_HOME:-/usr/local/cuda}/lib64\"" -o "$work/probe" \
  "$top/$here/probe.c" "$top/topology/cuda_api.c" "$top/collectives/nccl_api.c" "$top/sim/base/dynlib.c" "$top/sim/base/err.c" \
  -ldl || die "the probe cannot be built"
timeout "$limit" "$work/probe" >"$work/probe.txt"
rc=$?
[ $rc -ne 77 ] || exit 77
[ $rc -eq 0 ] || die "the probe ends with $rc"

value() { # value NAME: of a line of the probe
  sed -n "s/^$1 //p" "$work/probe.txt"
}
echo "GPU: $(value gpu), $(value total) bytes, $(value free) free; driver for CUDA $(value driver)," \
  "runtime $(value runtime), pages of $(value granularity) bytes"
# What both say must be equal to the byte where the last column is not "-".
row() {
  printf '%-46s %15s %15s %15s\n' "$1" "$2" "$3" "$4"
}
compare() { # compare TEXT MODEL DEVICE
  compare_difference=$(($3 - $2))
  row "$1" "$2" "$3" "$compare_difference"
  [ "$compare_difference" -eq 0 ] || n_differ=$((n_differ + 1))
}

# ---- mbsim ----
runs() {
  "$@" --version >/dev/null 2>&1
}
if [ -n "$BUNDLE" ]; then
  mbsim() {
    # the libraries of the bundle behind those that the caller wants first
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$BUNDLE/lib timeout "$limit" "$BUNDLE/mbsim" "$@"
  }
  runs mbsim || die "mbsim of $BUNDLE does not start"
else
  program=${MBSIM:-$top/mbsim}
  if ! runs "$program"; then
    (build) || { tail -5 "$work/build/log" >&2; die "mbsim cannot be built here; see --bundle"; }
    program=$work/build/mbsim
  fi
  mbsim() {
    timeout "$limit" "$program" "$@"
  }
fi
cd "$work" || exit 99

# Eight ranks, all at once on the one GPU.
gib=$(($(value free) >> 30))
case $(value gpu) in
*H200*) gpu=h200-141gb-sxm ;;
*B200*) gpu=b200-180gb ;;
*A100*) gpu=a100-80gb-sxm ;;
*) gpu=h100-80gb-sxm ;;
esac
mbsim gpus | grep -q "^$gpu " || gpu=h100-80gb-sxm
if [ "$gib" -ge 80 ]; then model='preset = llama3.2-1b' length=1024; else
  model='num_layers = 8
hidden_size = 512
num_attention_heads = 8
vocab_size = 32000' length=512
fi
cat >job.ini <<INI
[model]
$model
[parallel]
world_size = 8
pipeline_model_parallel_size = 4
virtual_pipeline_model_parallel_size = 2
[train]
micro_batch_size = 1
global_batch_size = 16
seq_length = $length
[precision]
bf16 = true
[optimizer]
use_distributed_optimizer = true
[device]
gpu = $gpu
backend = cuda
ranks_per_gpu = 8
fill = true
INI

pool() { # pool NAME: a figure of the GPU in job.json
  sed -n "s/^ *\"$1\": \(-*[0-9]*\),*\$/\1/p" job.json | head -1
}
echo
row "bytes" "model" "device" "difference"
for conf in '' expandable_segments:True; do
  what=${conf:-cudaMalloc}
  began=$(date +%s)
  mbsim job.ini --set "allocator.conf=$conf" --json job.json --csv job.csv >job.txt 2>job.err ||
    die "the job with $what ends with $?: $(tail -1 job.err)"
  took=$(($(date +%s) - began))
  awk -F, -v OFS=' ' 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { print $at["rank"], $at["max_reserved_bytes"], $at["device_own_bytes"] }' job.csv >ranks
  [ "$(wc -l <ranks)" -eq 8 ] || die "not eight ranks in the CSV"
  while read -r rank reserved own; do
    compare "rank $rank, peak reserved, $what" "$reserved" "$own"
  done <ranks
  compare "all ranks at the end, $what" "$(pool held_account_bytes)" "$(pool held_device_bytes)"
  compare "not given back, $what" 0 "$(pool left_bytes)"
  echo "  ($took s)"
done

# ---- outside PyTorch ----
outside() { # outside NAME...: bytes that the model gives for these lines
  awk -v names="$*" 'BEGIN { n = split(names, list, ";") }
    /"name": / { name = $0; sub(/.*"name": "/, "", name); sub(/".*/, "", name) }
    /"bytes": / { b = $2; sub(/,/, "", b); for (i = 1; i <= n; i++) if (list[i] == name) { sum += b; name = "" } }
    END { print sum + 0 }' job.json
}
measured() { # measured NAME: of the probe, "-" when it has none
  case $(value "$1") in '' | none*) echo - ;; *) value "$1" ;; esac
}
show() { # show TEXT MODEL DEVICE: an estimate, which need not be equal
  if [ "$2" = - ] || [ "$3" = - ]; then row "$1" "$2" "$3" -; else row "$1" "$2" "$3" "$(($3 - $2))"; fi
}
mbsim job.ini --set device.backend=synthetic --set device.ranks_per_gpu=1 --set device.fill=false \
  --json job.json >/dev/null 2>&1
echo
row "bytes, an estimate" "model" "device" "difference"
show "CUDA context" "$(outside 'CUDA context')" "$(measured context)"
for bytes in 2097152 3145728 20971520 1073741824; do
  step=$(((bytes + 2097151) / 2097152 * 2097152))
  show "cudaMalloc of $bytes" "$step" "$(measured malloc_$bytes)"
done
show "cuBLAS handle" - "$(measured cublas_handle)"
show "cuBLAS, first product" - "$(measured cublas_first_product)"
show "NCCL $(value nccl_version), communicator of one rank" "$(outside 'NCCL tp')" "$(measured nccl_creation)"
show "NCCL, its first all-reduce" - "$(measured nccl_first_all_reduce)"
sed -n 's/^\([a-z_]*\) none /  \1: /p' "$work/probe.txt"

# ---- PyTorch ----
echo
traces=$top/tests/data/allocator/traces
if ! command -v python3 >/dev/null || ! python3 -c 'import torch' 2>/dev/null; then
  echo "PyTorch: not here"
else
  replayed() { # replayed NAME: a figure of replay.json
    sed -n "s/^ *\"$1\": \([0-9]*\),*\$/\1/p" replay.json | head -1
  }
  free=$(value free)
  row "PyTorch, bytes" "model" "PyTorch" "difference"
  for conf in '' expandable_segments:True; do
    timeout "$limit" python3 "$top/$here/torch_traces.py" "$conf" "$traces"/*.txt >torch.txt ||
      die "PyTorch with ${conf:-default} ends with $?"
    n_equal=0 n_large=0
    while read -r name allocated reserved end_allocated end_reserved retries failures; do
      [ "$name" != torch ] || { echo "  PyTorch $allocated, ${conf:-default}"; continue; }
      mbsim replay "$traces/$name" -c "$conf" --json replay.json >/dev/null 2>&1
      # When memory runs out depends on what else is on the GPU.
      [ "$(replayed max_reserved_bytes)" -le "$free" ] || { n_large=$((n_large + 1)); continue; }
      same=1
      for pair in "max_allocated_bytes $allocated" "max_reserved_bytes $reserved" \
        "end_allocated_bytes $end_allocated" "end_reserved_bytes $end_reserved" \
        "n_retries $retries" "n_failures $failures"; do
        key=${pair% *}
        ours=$(replayed "$key")
        [ "$ours" = "${pair#* }" ] || { same=0; compare "$name, $key" "$ours" "${pair#* }"; }
      done
      n_equal=$((n_equal + same))
    done <torch.txt
    echo "  traces with all six figures equal: $n_equal of $(($(wc -l <torch.txt) - 1 - n_large));" \
      "$n_large need more than is free"
  done
fi

echo
if [ "$n_differ" -eq 0 ]; then echo "all that must be equal is equal"; exit 0; fi
echo "$n_differ figures differ"
exit 1
