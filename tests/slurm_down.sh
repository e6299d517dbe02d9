#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# End what slurm_up.sh started in DIRECTORY, by its own pid files.
#     slurm_down.sh DIRECTORY
dir=$1
# A zombie counts as gone: in a container process 1 may be slow to take it in.
is_alive() { # is_alive PID
  state=$(sed 's/.*) //' "/proc/$1/stat" 2> /dev/null) && [ "${state%% *}" != Z ]
}
SLURM_CONF="$dir/slurm.conf" timeout 10 scancel --user=root > /dev/null 2>&1
for name in slurmctld slurmd munged; do
  pid=$(cat "$dir/run/$name.pid" 2> /dev/null) || continue
  kill "$pid" 2> /dev/null || continue
  i=0
  while is_alive "$pid" && [ $i -lt 100 ]; do
    sleep 0.1
    i=$((i + 1))
  done
  if is_alive "$pid"; then kill -9 "$pid"; fi
done
