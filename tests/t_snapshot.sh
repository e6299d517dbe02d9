#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A snapshot that mbsim wrote, read by Python's own pickle and checked field by field.
. "$TOP_SRCDIR/tests/lib.sh"
writer=$(dirname "$MBSIM")/tests/test_snapshot

if ! command -v python3 >/dev/null; then
  skip "Python reads a written snapshot" "no python3"
elif [ ! -x "$writer" ]; then
  skip "Python reads a written snapshot" "tests/test_snapshot is not built (no CUnit)"
else
  KEEP_SNAPSHOT=$work/s.pickle "$writer" >/dev/null
  check "Python reads a written snapshot" python3 - "$work/s.pickle" <<'EOF'
import pickle, sys

class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise SystemExit(f"{module}.{name}: not plain data")

s = Plain(open(sys.argv[1], "rb")).load()
assert set(s) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
ends = 0
for seg in s["segments"]:
    assert seg["address"] >= ends, "segments are not in order"
    ends = seg["address"] + seg["total_size"]
    assert ends < 2**53 and seg["segment_pool_id"] == (0, 0) and seg["segment_type"] in ("small", "large")
    at, active, allocated, requested = seg["address"], 0, 0, 0
    for b in seg["blocks"]:
        assert b["address"] == at
        assert b["state"] in ("active_allocated", "active_pending_free", "inactive")
        assert (b["state"] == "inactive") == (b["frames"] == [])
        at += b["size"]
        if b["state"] != "inactive":
            active += b["size"]
            requested += b["requested_size"]
        allocated += b["size"] if b["state"] == "active_allocated" else 0
    assert at == ends and active == seg["active_size"] and allocated == seg["allocated_size"]
    assert requested == seg["requested_size"]
assert len(s["device_traces"]) == 1
live, mapped = {}, 0
for e in s["device_traces"][0]:
    assert set(e) == {"action", "addr" if e["action"] != "oom" else "device_free", "size", "stream", "time_us", "frames"}
    assert all(set(f) == {"name", "filename", "line"} for f in e["frames"])
    if e["action"] == "alloc":
        assert e["addr"] not in live
        live[e["addr"]] = e["size"]
    elif e["action"] == "free_completed":
        assert live.pop(e["addr"]) == e["size"]
    elif e["action"] in ("segment_alloc", "segment_map"):
        mapped += e["size"]
    elif e["action"] in ("segment_free", "segment_unmap"):
        mapped -= e["size"]
assert mapped == sum(seg["total_size"] for seg in s["segments"])
blocks = {b["address"]: b["requested_size"] for seg in s["segments"] for b in seg["blocks"] if b["state"] != "inactive"}
assert blocks == live, "the trace and the segments differ"
assert s["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
assert s["allocator_settings"]["expandable_segments"] is True
assert list(s["allocator_settings"]["roundup_power2_divisions"]) == [str(1 << i) for i in range(16)]
EOF
fi
done_testing
