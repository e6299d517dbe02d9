# SPDX-License-Identifier: Apache-2.0
"""Play recorded allocations in PyTorch on a GPU, one line a trace on standard output:
NAME max_allocated max_reserved end_allocated end_reserved retries failures

Usage: torch_traces.py SETTINGS TRACE...
SETTINGS is the text of PYTORCH_CUDA_ALLOC_CONF ("" for none). Exit code 77: no PyTorch, no GPU.
A trace with other calls than allocate, free, empty_cache and those about statistics is left out."""
import os
import sys


def play(torch, path):
    """The figures of one trace, None when it has calls that are left out."""
    with open(path, encoding="ascii") as file:
        calls = [line.split() for line in file if line.strip() and not line.startswith("#")]
    if any(call[0] not in "aferAs" for call in calls):
        return None
    memory = torch.cuda.memory
    torch.cuda.synchronize()
    memory.empty_cache()
    memory.reset_peak_memory_stats()
    before = memory.memory_stats()
    blocks, streams, failures = {}, {}, 0
    for call in calls:
        if call[0] == "a":
            number = int(call[3])
            if number != 0 and number not in streams:
                streams[number] = torch.cuda.Stream()
            try:
                if int(call[2]) > 0:
                    blocks[call[1]] = memory.caching_allocator_alloc(
                        int(call[2]), 0, streams.get(number, torch.cuda.default_stream()))
            except torch.cuda.OutOfMemoryError:
                failures += 1
        elif call[0] == "f":
            block = blocks.pop(call[1], None)
            if block is not None:
                memory.caching_allocator_delete(block)
        elif call[0] == "e":
            memory.empty_cache()
    stats = memory.memory_stats()
    for block in blocks.values():
        memory.caching_allocator_delete(block)
    return [stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"],
            stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"],
            stats["num_alloc_retries"] - before.get("num_alloc_retries", 0), failures]


def main():
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = sys.argv[1]
    try:
        import torch
    except ImportError:
        return 77
    if not torch.cuda.is_available():
        return 77
    torch.cuda.init()
    print("torch", torch.__version__)
    for path in sys.argv[2:]:
        figures = play(torch, path)
        if figures is not None:
            print(os.path.basename(path), *figures, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
