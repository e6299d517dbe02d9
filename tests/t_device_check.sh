#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The check that is for machines with a GPU, against the stand-in.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99
standin=$(dirname "$MBSIM")/tests/standin
script=$TOP_SRCDIR/tests/device/check.sh
if "$MBSIM" --version | grep -q 'CUDA none'; then
  skip "the device check" "built without CUDA"
  done_testing
fi

if [ ! -e /dev/nvidiactl ]; then
  expect "without a GPU it exits 77" 77 'no NVIDIA driver on this machine' sh "$script"
fi
expect "no GPU beside a driver: 77" 77 'no CUDA-capable device' \
  env LD_LIBRARY_PATH="$standin" STANDIN_DEVICES=0 sh "$script"

# PyTorch that plays what it is asked for in mbsim's allocator.
mkdir torch
cat > torch/__init__.py <<'PY'
import json, os, subprocess
__version__ = "0.0"
calls = []
class cuda:
    class OutOfMemoryError(Exception): pass
    class Stream: pass
    init = synchronize = staticmethod(lambda: None)
    is_available = staticmethod(lambda: True)
    default_stream = staticmethod(lambda: None)
    class memory:
        n = 0
        streams = {}
        def empty_cache(): calls.append("e")
        def reset_peak_memory_stats():
            calls.clear()
            cuda.memory.streams.clear()
        def caching_allocator_alloc(size, device, stream):
            cuda.memory.n += 1
            number = 0 if stream is None else cuda.memory.streams.setdefault(stream, len(cuda.memory.streams) + 1)
            calls.append("a %d %d %d" % (cuda.memory.n, size, number))
            return cuda.memory.n
        def caching_allocator_delete(block): calls.append("f %d" % block)
        def memory_stats():
            if not calls: return {}
            text = subprocess.run([os.environ["MBSIM"], "replay", "-", "-c", os.environ["PYTORCH_CUDA_ALLOC_CONF"],
                "--json", "-"], input="\n".join(calls) + "\n", capture_output=True, text=True).stdout
            run = json.loads(text)["runs"][0]
            return {"allocated_bytes.all.peak": run["max_allocated_bytes"] + int(os.environ.get("EXTRA", "0")),
                "reserved_bytes.all.peak": run["max_reserved_bytes"],
                "allocated_bytes.all.current": run["end_allocated_bytes"],
                "reserved_bytes.all.current": run["end_reserved_bytes"], "num_alloc_retries": run["n_retries"]}
PY

LD_LIBRARY_PATH=$standin PYTHONPATH=$work STANDIN_CAPACITY=$((32 << 30)) sh "$script" > ok.txt 2> ok.err
check "with a GPU that does as the model does it exits 0" test $? -eq 0 -a ! -s ok.err
check "each rank is compared, default and expandable" test \
  "$(grep -cE '^rank [0-7], peak reserved, (cudaMalloc|expandable_segments:True) +([0-9]+) +\2 +0$' ok.txt)" -eq 16
expect "all was given back" 0 '^not given back, expandable_segments:True +0 +0 +0$' cat ok.txt
expect "the context is measured" 0 '^CUDA context +[0-9]+ +268435456 +-?[0-9]+$' cat ok.txt
expect "a communicator is measured" 0 "^NCCL 22809, communicator of one rank +[0-9]+ +33554432 " cat ok.txt
expect "cudaMalloc's steps are measured" 0 '^cudaMalloc of 3145728 +4194304 +4194304 +0$' cat ok.txt
if command -v python3 > /dev/null; then
  check "PyTorch's figures are compared" test \
    "$(grep -cE 'traces with all six figures equal: ([0-9]{2,}) of \1; [0-9]+ need more' ok.txt)" -eq 2
  expect "other figures of PyTorch are a difference" 1 '^edge_ties.txt, max_allocated_bytes .* 512$' \
    env LD_LIBRARY_PATH="$standin" PYTHONPATH="$work" EXTRA=512 STANDIN_CAPACITY=$((32 << 30)) sh "$script"
fi
expect "a GPU that takes more is a difference" 1 '^[0-9]+ figures differ$' \
  env LD_LIBRARY_PATH="$standin" STANDIN_CAPACITY=$((32 << 30)) STANDIN_MALLOC_STEP=3145728 sh "$script"
expect "a GPU that fails ends it" 1 'the job with cudaMalloc ends with 1: mbsim: GPU 0: cudaMalloc' \
  env LD_LIBRARY_PATH="$standin" STANDIN_FAIL_CALL=cudaMalloc STANDIN_FAIL_AT=9 sh "$script"
done_testing
