#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mbsim topo: this machine, known ones, synthetic ones, and where the ranks of a job sit.
. "$TOP_SRCDIR/tests/lib.sh"
machines=$TOP_SRCDIR/topology/machines
job=$TOP_SRCDIR/scenarios/llama3-8b-8gpu.ini

expect "this machine" 0 'packages [1-9][0-9]*, NUMA nodes [1-9]' "$MBSIM" topo
expect "a synthetic host" 0 '^packages 2, NUMA nodes 2, cores 8, hardware threads 16' \
  "$MBSIM" topo --host 'pack:2 numa:1 core:4 pu:2'
expect "DGX A100: GPUs of four NUMA nodes" 0 'GPU 0 .*07:00.0  package 0, NUMA node 3; mlx5_0, mlx5_1 .same switch' \
  "$MBSIM" topo --host "$machines/dgx-a100.xml"
expect "DGX H100: a card for each GPU" 0 'GPU 4 .*9d:00.0  package 1, NUMA node 1; mlx5_6 .same switch' \
  "$MBSIM" topo --host "$machines/dgx-h100.xml"
expect "DGX B200" 0 '^GPUs 8, network cards 8' "$MBSIM" topo --host "$machines/dgx-b200.xml"
expect "GB200 NVL72: four GPUs a tray" 0 'GPU 3 .*39:00.0  package 1, NUMA node 1; mlx5_2, mlx5_3 .same NUMA' \
  "$MBSIM" topo --host "$machines/gb200-nvl72.xml"
expect "PCIe host: half of the GPUs is far from the card" 0 'GPU 0 .*; ens1f0 .other socket' \
  "$MBSIM" topo --host "$machines/pcie-4.xml"

expect "ranks beside their GPUs" 0 '^  5 +5 +tp1 cp0 dp0 pp1 .* package 1, NUMA node 1' \
  "$MBSIM" topo --host "$machines/dgx-h100.xml" "$job"
expect "groups within NVLink are not warned of" 0 '^  tp +2 ranks in +1 domain ' "$MBSIM" topo "$job"
expect "a tensor-parallel group over hosts is" 0 'warning: tp groups leave the NVLink domain: [0-9.]+ times' \
  "$MBSIM" topo "$job" --set parallel.world_size=16 --set parallel.tensor_model_parallel_size=8 \
  --set cluster.gpus_per_node=4 --set cluster.nvlink_domain=4

check "JSON" sh -c '"$1" topo --host "$2" --json | jq -e "
  .schema == \"mbsim.topo/1\" and (.gpus | length) == 8 and .nics[0].name == \"mlx5_0\""' \
  sh "$MBSIM" "$machines/dgx-h100.xml"

# Binding, on a host that hwloc is told to see in this machine.
export HWLOC_THISSYSTEM=1
if [ "$(nproc)" -ge 2 ]; then
  expect "two processes, each near its own NUMA node" 0 \
    '^    ranks 4-7 .*package 1, NUMA node 1, hardware threads 1(;|$)' env \
    HWLOC_SYNTHETIC='pack:2 numa:1 core:1 pu:1' mpirun -np 2 "$MBSIM" topo "$job" --bind always
  expect "memory that cannot be bound is said" 0 'hardware threads 1; memory not bound: ' env \
    HWLOC_SYNTHETIC='pack:2 numa:1 core:1 pu:1' mpirun -np 2 "$MBSIM" "$job" --bind always
  expect "a process that may not run near its GPU" 1 \
    'process 1 on .*: near NUMA node 1 are hardware threads 1, but it may run on 0 only' env \
    HWLOC_SYNTHETIC='pack:2 numa:1 core:1 pu:1' taskset -c 0 mpirun -np 2 "$MBSIM" "$job" --bind always
else
  skip "processes near their own NUMA node" "one hardware thread only"
fi
expect "the GPUs of a host are its processes'" 0 '^    ranks 4-7 .*GPU 1 \(0000:43:00.0\), ' env \
  HWLOC_XMLFILE="$machines/dgx-h100.xml" mpirun -np 2 "$MBSIM" topo "$job"
expect "threads that are not there" 1 'near GPU 4 \(0000:9d:00.0\) are hardware threads 56-111' env \
  HWLOC_XMLFILE="$machines/dgx-h100.xml" mpirun -np 8 "$MBSIM" topo "$job" --bind always
unset HWLOC_THISSYSTEM
expect "a description is no place to run" 1 'hwloc was told to describe another machine' env \
  HWLOC_XMLFILE="$machines/dgx-h100.xml" "$MBSIM" "$job" --bind always
expect "left alone unless it is asked for" 0 'hardware threads .*; not bound' \
  mpirun -np 2 "$MBSIM" topo "$job" --bind never
expect "no such word" 2 '^mbsim: run: --bind often: must be auto, always or never' \
  "$MBSIM" "$job" --bind often

expect "no such description" 2 "'nonsense' is neither a file that ends in .xml, nor a known machine" "$MBSIM" topo --host nonsense
expect "no such file" 2 'nowhere.xml: No such file' "$MBSIM" topo --host nowhere.xml
printf '<topology' >"$work/broken.xml"
expect "a broken file" 2 'broken.xml' "$MBSIM" topo --host "$work/broken.xml"
done_testing
