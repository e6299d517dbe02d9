#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Four hosts, each with a network, a name and shared memory of its own: mpirun over them, ranks bound
# and reported under their host, and what happens when a host is lost.
. "$TOP_SRCDIR/tests/lib.sh"
cd "$work" || exit 99
give_up() {
  skip "four hosts" "$1"
  done_testing
}
[ "$(id -u)" -eq 0 ] || give_up "network namespaces need root"
for program in ip unshare mpirun; do
  command -v $program > /dev/null || give_up "$program is not installed"
done
MBSIM_HOSTS=$work/hosts
export MBSIM_HOSTS
trap 'sh "$TOP_SRCDIR/tests/hosts_down.sh" "$MBSIM_HOSTS"; rm -rf "$work"' EXIT
trap 'exit 99' INT TERM HUP
sh "$TOP_SRCDIR/tests/hosts_up.sh" "$MBSIM_HOSTS" 4 2> up.log || give_up "$(tail -n 1 up.log)"
enter() { sh "$TOP_SRCDIR/tests/hosts_enter.sh" "$@"; }
[ "$(enter 10.73.0.3 hostname 2> up.log)" = node2 ] || give_up "$(tail -n 1 up.log)"
name=$(cat "$MBSIM_HOSTS/name")

# Both cores of a host are packages of their own, so that binding shows on any machine.
export HWLOC_SYNTHETIC='pack:2 numa:1 core:1 pu:1' HWLOC_THISSYSTEM=1
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_plm=rsh OMPI_MCA_plm_rsh_no_tree_spawn=1
export OMPI_MCA_plm_rsh_agent="$TOP_SRCDIR/tests/hosts_enter.sh" OMPI_MCA_orte_keep_fqdn_hostnames=1
export OMPI_MCA_oob_tcp_if_include=eth0 OMPI_MCA_btl_tcp_if_include=eth0
job=$TOP_SRCDIR/scenarios/llama3-8b-8gpu.ini

# over_hosts PROCESSES-A-HOST WORD...: mpirun on the first host, over all of them.
cat > over_hosts << 'EOS'
hosts=10.73.0.1:$1,10.73.0.2:$1,10.73.0.3:$1,10.73.0.4:$1
shift
exec sh "$TOP_SRCDIR/tests/hosts_enter.sh" 10.73.0.1 exec timeout -k 5 100 mpirun --host "$hosts" "$@"
EOS
over_hosts() { sh over_hosts "$@"; }

if [ "$(nproc)" -ge 2 ]; then
  over_hosts 2 -np 8 "$MBSIM" "$job" --bind always --json report.json > bound 2> bound.err
  for host in 0 1 2 3; do
    sed -n "/^  node$host\$/,/^  node/p" bound | sed -n 2,3p > under
    first="rank $((2 * host)) .*package 0, NUMA node 0, hardware threads 0"
    second="rank $((2 * host + 1)) .*package 1, NUMA node 1, hardware threads 1"
    if sed -n 1p under | grep -Eq "$first" && sed -n 2p under | grep -Eq "$second"; then
      ok "host $host: its two ranks are bound and reported under it"
    else
      not_ok "host $host: its two ranks are bound and reported under it" "$(cat bound bound.err)"
    fi
  done
  check "the same in JSON" jq -e '.placement.bound and (.placement.hosts | length) == 4 and
    .placement.hosts[3].host == "node3" and .placement.hosts[3].processes[1].first_rank == 7 and
    .placement.hosts[3].processes[1].numa == 1' report.json
else
  skip "ranks are bound and reported under their host" "one hardware thread only"
fi

"$MBSIM" "$job" --json alone.json > alone
over_hosts 2 -np 8 "$MBSIM" "$job" --json together.json > together
check "unbound, the report is that of one process" cmp alone together
check "the JSON too" cmp alone.json together.json

expect "topo: the hosts of this run" 0 '^  node3$' sh over_hosts 1 -np 4 "$MBSIM" topo "$job"
expect "topo: where their ranks are" 0 '^    ranks 6-7 .*hardware threads .*; not bound' \
  sh over_hosts 1 -np 4 "$MBSIM" topo "$job"
over_hosts 1 -np 4 "$MBSIM" topo "$job" > topo 2>&1
check "groups within a host are not warned of" sh -c '! grep -q "warning.*hosts of this run" topo'
expect "a tensor-parallel group over two hosts is, with what it costs" 0 \
  'the tp group of rank 0 is on 2 hosts of this run: .* takes [0-9.]+ times as long' \
  sh over_hosts 1 -np 4 "$MBSIM" topo "$job" --set parallel.tensor_model_parallel_size=4
expect "the same when it runs" 0 'the tp group of rank 0 is on 2 hosts of this run' \
  sh over_hosts 1 -np 4 "$MBSIM" "$job" --bind always --set parallel.tensor_model_parallel_size=4
cp "$MBSIM" other
LC_ALL=C sed -i 's/tp-cp-ep-dp-pp/tp-cp-ep-pp-dp/g' other
if ./other "$job" > other.log 2>&1; then
  skip "one host has another mbsim" "this build's words cannot be exchanged"
else
  expect "one host has another mbsim" 1 'process 6 on node3 understands the scenario not at all' \
    sh over_hosts 2 -np 6 "$MBSIM" "$job" : -np 2 "$work/other" "$job"
fi

# ---- a host is lost ----

# A file of its own tells these processes from those of tests that run beside this one.
long=$work/long.ini
cp "$TOP_SRCDIR/scenarios/qwen3-235b-a22b-128xh200-imbalance.ini" "$long"
running() { ps -eo args= | grep -c "^$MBSIM $long"; }

# lose COMMAND...: in the middle of a run of two processes a host, COMMAND takes the fourth away.
# Sets lost_rc and lost_seconds. $mca: options for mpirun.
lose() {
  echo old > report.json
  # shellcheck disable=SC2086 # words
  over_hosts 2 $mca -np 8 "$MBSIM" "$long" --set run.iterations=1000 --json report.json > log 2>&1 &
  lost_mpirun=$!
  lost_n=100
  while [ "$(running)" -lt 8 ] && [ $lost_n -gt 0 ]; do
    sleep 0.1
    lost_n=$((lost_n - 1))
  done
  sleep 2
  lost_begin=$(date +%s)
  "$@"
  wait "$lost_mpirun"
  lost_rc=$?
  lost_seconds=$(($(date +%s) - lost_begin))
}
kill_host() {
  for pid in $(ip netns pids "$name-3"); do
    kill -9 "$pid"
  done
}
cut_link() { ip -n "$name-net" link set port3 down; }

# lost TEXT PATTERN: what has to hold afterwards.
lost() {
  check "$1: a failure" test "$lost_rc" -ne 0 -a "$lost_rc" -ne 124 -a "$lost_rc" -ne 137
  check "$1: within 40 s" test "$lost_seconds" -le 40
  if grep -Eq "$2" log; then ok "$1: who was there is said"; else not_ok "$1: said" "$(cat log)"; fi
  check "$1: mbsim says one thing" test "$(grep -c '^mbsim: ' log)" -le 1
  check "$1: the old file is as it was" test "$(cat report.json)" = old
  ip -n "$name-net" link set port3 up
  lost_n=200
  while [ "$(running)" -gt 0 ] && [ $lost_n -gt 0 ]; do
    sleep 0.1
    lost_n=$((lost_n - 1))
  done
  check "$1: nothing runs on" test "$(running)" -eq 0
}

# A host's shared memory goes with its processes; temporary files could stay.
mkdir tmp
export OMPI_MCA_orte_tmpdir_base="$work/tmp"
# The launcher names the host and mbsim its processes; a launcher in a hurry may drop mbsim's line.
launcher='there were .*process 6 on node3, process 7 on node3|Remote daemon: .* on node 10.73.0.4'
mca=
lose kill_host
lost "a host dies" "$launcher"
check "a host dies: the others leave nothing behind" \
  sh -c '! ls -d tmp/*node[012]* 2> /dev/null | grep .'

mca='--mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3'
lose cut_link
lost "a link is cut" "$launcher"

# mbsim's own watch comes first here; then mpirun ends when the kernel gives up the lost host.
mca=
MBSIM_WATCHDOG_SECONDS=0.5
export MBSIM_WATCHDOG_SECONDS
enter 10.73.0.1 'echo 4 > /proc/sys/net/ipv4/tcp_retries2'
lose cut_link
lost "a link is cut, mbsim notices" \
  'mbsim: process 0: no sign of life for [0-9.]+ s from process 6 on node3, process 7 on node3: '
done_testing
