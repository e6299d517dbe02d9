#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2016 # $0 is for the inner shells
# The ledger of a device: its lines add up, and what is outside PyTorch decides what fits.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99

cat > dense.ini <<'INI'
; 64 GPUs on eight hosts
[model]
preset = llama3-8b
[parallel]
world_size = 64
tensor_model_parallel_size = 4
pipeline_model_parallel_size = 4
sequence_parallel = true
[train]
micro_batch_size = 1
global_batch_size = 32
seq_length = 4096
[optimizer]
use_distributed_optimizer = true
INI

"$MBSIM" dense.ini --json dense.json --csv dense.csv > dense.txt
"$MBSIM" -v dense.ini > verbose.txt

# ---- sums ----
if command -v jq > /dev/null; then
  sums='[.ranks[].ledger | (.outside | add // 0) == .outside_bytes and
    .outside_bytes + .reserved_bytes == .device_used_bytes and
    .device_used_bytes + .headroom_bytes == .total_bytes] | all'
  check "what is outside adds up on every rank" jq -e "$sums" dense.json
  check "each communicator's steps add up to it" jq -e '[.worst.outside[] |
    select(.communicator) | .bytes == ([.communicator.steps[].bytes] | add)] | all and length > 4' \
    dense.json
  check "every line has bounds, moment and source" jq -e '[.worst.outside[] |
    .least_bytes <= .bytes and .bytes <= .most_bytes and .bytes > 0 and
    (.source | length) > 0 and (.phase | length) > 0 and .iteration >= 0] | all' dense.json
  check "the lines of the worst rank are those of its ledger" jq -e '.worst.rank as $r |
    (.ranks[$r].ledger.outside | to_entries | map([.key, .value]) | sort) ==
    (.worst.outside | map([.name, .bytes]) | sort)' dense.json
  check "communicators appear in order of time" jq -e '[.worst.outside[].iteration] |
    . == sort' dense.json
  for settings in device.gpu=b200-180gb device.gpu=a100-80gb-pcie nccl.version=2.18.5 \
    nccl.version=2.21 cluster.gpus_per_node=4 nccl.eager_init=true nccl.NCCL_CUMEM_ENABLE=0 \
    parallel.virtual_pipeline_model_parallel_size=2 parallel.tp_comm_overlap=true \
    run.software_date=20230601 device.gpu=gb200; do
    "$MBSIM" dense.ini --set "$settings" --json other.json > /dev/null
    check "it adds up with $settings" jq -e "$sums" other.json
  done
else
  skip "what is outside adds up on every rank" "no jq"
fi
check "the columns of the CSV add up" awk -F, '
  NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
  $at["outside_bytes"] + $at["max_reserved_bytes"] != $at["device_used_bytes"] { bad = 1 }
  END { exit bad || NR != 65 }' dense.csv

# ---- text ----
expect "the report has one line for all of it" 0 '^    outside PyTorch +[0-9.]+ GiB' cat dense.txt
expect "and two for its parts" 0 '^      communicators +[0-9.]+ GiB' cat dense.txt
expect "-v lists every communicator, with its ranks" 0 \
  '^  NCCL tp, 4 ranks on 1 node +518\.0 MiB' cat verbose.txt
expect "and when it appears" 0 'NCCL dist-opt, 64 ranks on 8 nodes.* i1 optimizer step$' cat verbose.txt
expect "and what it grew by" 0 '^    send/receive +16\.00 MiB' cat verbose.txt
check "no line is longer than 100 columns" sh -c '! grep -qE "^.{101}" verbose.txt'

# ---- what it decides ----
outside() { awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } NR == 2 { print $at["outside_bytes"] }'; }
whole=$("$MBSIM" dense.ini --csv - | outside)
check "reserved_outside_bytes takes the place of the estimate" test \
  "$("$MBSIM" dense.ini --set device.reserved_outside_bytes=5GiB --csv - | outside)" -eq 5368709120
check "without estimate nothing is outside" test \
  "$("$MBSIM" dense.ini --set device.estimate_outside=false --csv - | outside)" -eq 0
reserved=$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
  $at["max_reserved_bytes"] > most { most = $at["max_reserved_bytes"] } END { printf "%.0f", most }' dense.csv)
mib() { echo $((($1 + 1048575) / 1048576))MiB; }
expect "a device that holds both fits" 0 '^FITS' "$MBSIM" dense.ini \
  --set "device.memory_bytes=$(mib $((reserved + whole + 104857600)))"
expect "one that holds PyTorch's part alone does not" 3 '^OUT OF MEMORY' "$MBSIM" dense.ini \
  --set "device.memory_bytes=$(mib $((reserved + 104857600)))"
expect "it does when nothing is outside" 0 '^FITS' "$MBSIM" dense.ini \
  --set "device.memory_bytes=$(mib $((reserved + 104857600)))" --set device.estimate_outside=false
expect "a device smaller than what is outside is out of memory, not an error" 3 '^OUT OF MEMORY' \
  "$MBSIM" dense.ini --set device.memory_bytes=1GiB

# ---- variables ----
less() { # less NAME SETTING: the setting takes memory away
  check "$1" test "$("$MBSIM" dense.ini --set "$2" --csv - | outside)" -lt "$whole"
}
less "fewer channels are less" nccl.NCCL_MAX_CTAS=4
less "smaller buffers are less" nccl.NCCL_BUFFSIZE=1MiB
less "NVLS arrays can be switched off" nccl.NCCL_NVLS_ENABLE=0
less "sockets need no device memory" nccl.NCCL_IB_DISABLE=1
more() { check "$1" test "$("$MBSIM" dense.ini --set "$2" --csv - | outside)" -gt "$whole"; }
more "connecting at once is more" nccl.NCCL_RUNTIME_CONNECT=0
more "eager communicators are more" nccl.eager_init=true
expect "a wrong version is refused" 2 "nccl\.version: 'two' is not a version of NCCL" \
  "$MBSIM" dense.ini --set nccl.version=two
expect "a wrong algorithm is refused" 2 "nccl\.algo: 'Rings' is not a list of" \
  "$MBSIM" dense.ini --set nccl.NCCL_ALGO=Rings
expect "an NVLink domain that cuts hosts is refused" 2 'cluster\.nvlink_domain: 3 GPUs' \
  "$MBSIM" dense.ini --set cluster.nvlink_domain=3
expect "SHARP is refused" 2 'nccl_collnet_enable' "$MBSIM" dense.ini --set nccl.NCCL_COLLNET_ENABLE=1
check "a variable that moves nothing is taken" test \
  "$("$MBSIM" dense.ini --set nccl.NCCL_DEBUG=INFO --csv - | outside)" -eq "$whole"

# ---- beside what nvidia-smi showed ----
if command -v jq > /dev/null; then
  "$MBSIM" validate "$TOP_SRCDIR/tests/data/device-used.jsonl" --json used.json > /dev/null
  check "device memory outside PyTorch is within 15 % or 150 MiB of what was measured" jq -e '
    [.records[] | (.measured | .device_used_bytes - .max_reserved_bytes) as $was |
      (.simulated | .device_used_bytes - .max_reserved_bytes) as $is |
      ($is - $was | fabs) <= ([0.15 * $was, 157286400] | max)] | length == 8 and all' used.json
  check "its errors are in the summary" jq -e '.summary.outside.n == 8 and
    .summary.outside.max_percent < 15' used.json
else
  skip "device memory outside PyTorch is within 15 % or 150 MiB of what was measured" "no jq"
fi

# ---- processes ----
for n in 2 5; do
  mpi "$n" "$MBSIM" -v dense.ini > many.txt 2> /dev/null
  check "$n processes print the same ledger" cmp verbose.txt many.txt
done

done_testing
