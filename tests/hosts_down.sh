#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ends what runs on the hosts of hosts_up.sh and takes them away.
#     hosts_down.sh DIRECTORY
name=$(cat "$1/name" 2> /dev/null) || exit 0
for space in $(ip netns list | awk -v name="$name-" 'index($1, name) == 1 { print $1 }'); do
  for pid in $(ip netns pids "$space"); do
    kill -9 "$pid" 2> /dev/null
  done
  ip netns del "$space"
done
