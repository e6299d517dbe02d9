#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hosts on this machine: network namespaces joined by a bridge that has one of its own. Needs root.
#     hosts_up.sh DIRECTORY [N]
# N (4) hosts NAME-0, NAME-1, ... with the addresses 10.73.0.1, .2, ...; DIRECTORY/name has NAME.
# Nothing changes in the namespaces that are there already. Programs are started on a host with
# hosts_enter.sh; hosts_down.sh takes all of it away, also what came up half.
set -eu
dir=$1
n=${2:-4}
mkdir -p "$dir"
name=$(basename "$(mktemp -u /mbsim-XXXXXX)")
echo "$name" > "$dir/name"
ip netns add "$name-net"
ip -n "$name-net" link add bridge type bridge
ip -n "$name-net" link set bridge up
host=0
while [ "$host" -lt "$n" ]; do
  ip netns add "$name-$host"
  ip -n "$name-$host" link set lo up
  ip link add eth0 netns "$name-$host" type veth peer name "port$host" netns "$name-net"
  ip -n "$name-net" link set "port$host" master bridge up
  ip -n "$name-$host" addr add "10.73.0.$((host + 1))/24" dev eth0
  ip -n "$name-$host" link set eth0 up
  host=$((host + 1))
done
