#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mbsim run --snapshot: PyTorch memory snapshots of simulated ranks.
. "$TOP_SRCDIR/tests/lib.sh"

cat >"$work/job.ini" <<'EOF'
[model]
preset = gpt3-125m
[parallel]
world_size = 4
pipeline_model_parallel_size = 2
[train]
global_batch_size = 8
seq_length = 512
EOF

check "a snapshot is written for every rank" \
  "$MBSIM" run "$work/job.ini" --snapshot "$work/all" --json "$work/report.json"
n=$(find "$work/all" -name 'rank-*.pickle' | wc -l)
if [ "$n" -eq 4 ]; then ok "four ranks, four files"; else not_ok "four ranks, four files" "$n"; fi

check "--ranks selects" "$MBSIM" run "$work/job.ini" --snapshot "$work/one" --ranks 3 -q
if [ "$(ls "$work/one")" = rank-00003.pickle ]; then ok "only the selected rank"; else not_ok "only the selected rank" "$(ls "$work/one")"; fi

peak=$(jq '.ranks[3].max_reserved_bytes' "$work/report.json")
replayed=$("$MBSIM" replay "$work/one/rank-00003.pickle" --json - 2>/dev/null | jq '.runs[0].max_reserved_bytes')
if [ "$peak" = "$replayed" ]; then
  ok "replayed, the snapshot has the peak of the report"
else
  not_ok "replayed, the snapshot has the peak of the report" "report $peak, replay $replayed"
fi

mpi 2 "$MBSIM" run "$work/job.ini" --snapshot "$work/mpi" -q >/dev/null 2>&1
if diff -r "$work/all" "$work/mpi" >/dev/null 2>&1; then ok "two processes write the same files"; else not_ok "two processes write the same files"; fi

if command -v python3 >/dev/null 2>&1; then
  check "Python's pickle reads it, and frames name module, micro-batch and phase" python3 - "$work/one/rank-00003.pickle" <<'EOF'
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
trace = snapshot["device_traces"][0]
assert len(trace) > 1000 and snapshot["segments"], "empty"
names = {(f["filename"], f["name"]) for e in trace for f in e["frames"]}
assert ("layer 11, fc1", "fc1_out") in names, "module"
assert ("micro-batch 1, chunk 0", "backward") in names, "micro-batch and phase"
live = {}
for e in trace:
    if e["action"] == "alloc":
        assert e["addr"] not in live, "address handed out twice"
        live[e["addr"]] = e["size"]
    elif e["action"] == "free_completed":
        del live[e["addr"]]
active = sum(1 for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
assert active == len(live), (active, len(live))
EOF
else
  skip "Python's pickle reads it" "no python3"
fi

expect "a folder that cannot be made is an error" 1 'snapshot: /proc/nope: ' \
  "$MBSIM" run "$work/job.ini" --snapshot /proc/nope -q

done_testing
