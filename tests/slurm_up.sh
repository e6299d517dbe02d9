#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Start munged, slurmctld and one slurmd on this machine, as root, without systemd and cgroups; all
# they write is in DIRECTORY. Prints the path of slurm.conf when the node is idle. Ports that turn
# out to be taken are given up for others, three times; FIRST_PORT is where to begin.
#     slurm_up.sh DIRECTORY CPUS [FIRST_PORT]
set -eu
dir=$1 cpus=$2
host=$(hostname -s)
# Below the range from which the kernel gives ports to clients.
port=${3:-$((20000 + $$ % 12000))}
mkdir -p "$dir/munge" "$dir/state" "$dir/spool" "$dir/log" "$dir/run"
chmod 755 "$dir"
chmod 700 "$dir/munge"
(umask 077 && head -c 1024 /dev/urandom > "$dir/munge/key")
munged --force --num-threads=2 --key-file="$dir/munge/key" --seed-file="$dir/munge/seed" \
  --socket="$dir/run/munge.sock" --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log"

# A requeued job waits until its old credential has expired: 5 s is the least.
write_conf() {
  cat > "$dir/slurm.conf" <<EOC
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.sock,cred_expire=5
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cpus RealMemory=8000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOC
}

# is_running NAME: the daemon lives and is no zombie.
is_running() {
  pid=$(cat "$dir/run/$1.pid" 2> /dev/null) || return 1
  state=$(sed 's/.*) //' "/proc/$pid/stat" 2> /dev/null) && [ "${state%% *}" != Z ]
}

# wait_for SECONDS DAEMON COMMAND...: until the command succeeds; false when the daemon is gone.
wait_for() {
  wait_n=$(($1 * 10))
  daemon=$2
  shift 2
  until "$@"; do
    wait_n=$((wait_n - 1))
    if [ $wait_n -le 0 ] || ! is_running "$daemon"; then return 1; fi
    sleep 0.1
  done
}
answers() { timeout 2 scontrol ping 2> /dev/null | grep -q 'is UP'; }
is_idle() { [ "$(timeout 2 sinfo -h -o %t 2> /dev/null)" = idle ]; }

# Both go to the background before they open their ports: their logs tell what came of that.
start() {
  write_conf
  rm -f "$dir"/log/slurm*.log "$dir"/run/slurm*.pid
  slurmctld -c >&2 || return 1
  sleep 0.1
  wait_for 10 slurmctld answers || return 1
  slurmd >&2 || return 1
  sleep 0.1
  wait_for 15 slurmd is_idle
}

# Its end takes the pid file along, which may not be the next one's.
stop() {
  stop_n=0
  while is_running "$1" && [ $stop_n -lt 100 ]; do
    [ $stop_n -gt 0 ] || kill "$(cat "$dir/run/$1.pid")"
    stop_n=$((stop_n + 1))
    sleep 0.1
  done
}

export SLURM_CONF="$dir/slurm.conf"
tries=1
until start; do
  reason=$(cat "$dir"/log/slurm*.log 2> /dev/null | sed -n 's/.* \(fatal\|error\): //p' | tail -1)
  stop slurmctld
  stop slurmd
  if [ $tries -eq 4 ] || ! grep -qs 'in use' "$dir"/log/slurm*.log; then
    tail -n 20 "$dir"/log/*.log >&2
    echo "Slurm does not start on port $port: $reason" >&2
    exit 1
  fi
  tries=$((tries + 1))
  port=$((20000 + (port - 20000 + 1013) % 12000))
done
echo "$dir/slurm.conf"
