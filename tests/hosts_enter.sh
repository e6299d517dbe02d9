#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a command on a host of hosts_up.sh, whose directory MBSIM_HOSTS names; mpirun's rsh agent.
#     hosts_enter.sh ADDRESS WORD...       the words are one line for the shell
# A host has its own network, name (node0, node1, ...) and shared memory.
host=$((${1##*.} - 1))
name=$(cat "$MBSIM_HOSTS/name") || exit 1
shift
# shellcheck disable=SC2016 # expanded inside
exec ip netns exec "$name-$host" unshare --uts --mount sh -c '
  hostname "$1" && mount -t tmpfs none /dev/shm && shift && exec sh -c "$*"' sh "node$host" "$@"
