#!/bin/sh
# A real Slurm on one machine: munged, slurmctld and N slurmd, without systemd. Needs root, slurmctld, slurmd,
# slurm-client and munge.
#   slurm-cluster.sh start DIR N PREFIX          PREFIX1.. in one network namespace of its own, PREFIXc
#   slurm-cluster.sh start DIR N PREFIX HOSTS    one slurmd in each host that netns-hosts.sh started in HOSTS
#   slurm-cluster.sh slurmd DIR NODE             start the slurmd of a node again
#   slurm-cluster.sh stop DIR
# Clients: ip netns exec PREFIXc env SLURM_CONF=DIR/slurm.conf sinfo. It is up when "up" is printed. Each node has eight
# GPUs, which are device files of no driver; the first half hangs on leaf1, the second on leaf2.
set -eu
PATH=$PATH:/usr/sbin:/sbin
act=$1 dir=$2
export SLURM_CONF="$dir/slurm.conf"

daemon() { # NODE: its slurmd, in its host where there is one
    if [ -n "$hosts" ]; then
        nsenter -t "$(cat "$hosts/$1/holder")" --net --uts --mount slurmd -N "$1"
    else
        nsenter --net="/run/netns/${pre}c" slurmd -N "$1"
    fi
}

at_controller() {
    nsenter --net="/run/netns/${pre}c" "$@"
}

case $act in
start)
    n=$3 pre=$4 hosts=${5:-}
    cd "$dir"
    mkdir m state dev
    chmod 700 m
    head -c 1024 /dev/urandom >m/key
    chmod 400 m/key
    for g in 0 1 2 3 4 5 6 7; do mknod "dev/nvidia$g" c 195 "$g" 2>/dev/null || : >"dev/nvidia$g"; done
    printf '%s %s %s\n' "$pre" "$n" "$hosts" >names
    if [ -n "$hosts" ]; then
        control=10.77.0.254 where=
        for i in $(seq "$n"); do
            where="$where
NodeName=$pre$i NodeAddr=10.77.0.$i CPUs=2 RealMemory=2000 Gres=gpu:h200:8"
        done
    else
        control=127.0.0.1
        where="
NodeName=${pre}[1-$n] NodeAddr=127.0.0.1 NodeHostname=$(hostname -s) Port=[17001-$((17000 + n))] \
CPUs=2 RealMemory=2000 Gres=gpu:h200:8"
        ip netns add "${pre}c"
        ip -n "${pre}c" link set lo up
        # An address that is no loopback: without one getaddrinfo finds no IPv4 here.
        ip -n "${pre}c" addr add 10.77.1.1/32 dev lo
    fi
    cat >slurm.conf <<C
ClusterName=imitated
SlurmctldHost=$(hostname -s)($control)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/m/munge.sock
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=1
SlurmdTimeout=30
MessageTimeout=3
KillWait=2
# As unkind as a site may be.
KillOnBadExit=1
WaitTime=1
GresTypes=gpu
SlurmdParameters=config_overrides$where
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=small Nodes=${pre}1 MaxTime=10 State=UP
C
    printf 'CgroupPlugin=cgroup/v1\n' >cgroup.conf
    printf 'NodeName=%s Name=gpu Type=h200 File=%s/dev/nvidia[0-7]\n' "${pre}[1-$n]" "$dir" >gres.conf
    half=$((n / 2))
    printf 'SwitchName=leaf1 Nodes=%s[1-%d]\nSwitchName=leaf2 Nodes=%s[%d-%d]\nSwitchName=spine Switches=leaf[1-2]\n' \
        "$pre" "$half" "$pre" $((half + 1)) "$n" >topology.conf
    munged --key-file "$dir/m/key" --socket "$dir/m/munge.sock" --pid-file "$dir/m/munged.pid" \
        --log-file "$dir/m/munged.log" --seed-file "$dir/m/seed" --force --num-threads 2 2>/dev/null
    at_controller slurmctld
    for i in $(seq "$n"); do
        mkdir -p "spool/$pre$i"
        daemon "$pre$i"
    done
    tries=0
    until [ "$(at_controller sinfo -h -N -p gpu -o %T 2>/dev/null | grep -cx idle)" = "$n" ]; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || { tail -n 5 slurmctld.log >&2; exit 1; }
        sleep 0.05
    done
    echo up
    ;;
slurmd)
    read -r pre n hosts <"$dir/names"
    daemon "$3"
    ;;
stop)
    cd "$dir"
    read -r pre n hosts <names
    for file in slurmd-*.pid slurmctld.pid m/munged.pid; do
        if [ -s "$file" ]; then kill "$(cat "$file")" 2>/dev/null || :; fi
    done
    [ -n "$hosts" ] || ip netns del "${pre}c" 2>/dev/null || :
    ;;
*)
    echo "start|slurmd|stop" >&2
    exit 2
    ;;
esac
