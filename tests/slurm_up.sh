#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Start munged, slurmctld and one slurmd on this machine, as root, without systemd and cgroups; all
# they write is in DIRECTORY. Prints the path of slurm.conf when the node is idle.
#     slurm_up.sh DIRECTORY CPUS
set -eu
dir=$1 cpus=$2
host=$(hostname -s)
port=$((20000 + $$ % 20000))
mkdir -p "$dir/munge" "$dir/state" "$dir/spool" "$dir/log" "$dir/run"
chmod 755 "$dir"
chmod 700 "$dir/munge"
(umask 077 && head -c 1024 /dev/urandom > "$dir/munge/key")
munged --force --num-threads=2 --key-file="$dir/munge/key" --seed-file="$dir/munge/seed" \
  --socket="$dir/run/munge.sock" --pid-file="$dir/run/munged.pid" --log-file="$dir/log/munged.log"

# A requeued job waits until its old credential has expired: 5 s is the least.
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
export SLURM_CONF="$dir/slurm.conf"
slurmctld -c >&2
slurmd >&2
i=0
until [ "$(sinfo -h -o %t 2> /dev/null)" = idle ]; do
  i=$((i + 1))
  [ $i -lt 150 ] || { cat "$dir"/log/*.log >&2; exit 1; }
  sleep 0.1
done
echo "$dir/slurm.conf"
