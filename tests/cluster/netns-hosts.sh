#!/bin/sh
# Hosts on one machine: network namespaces on a bridge, each with an sshd, a host name and a mount namespace of its own.
# Needs root, sshd and ip. All hosts share processes, users and files, but for what overlay.sh mounts.
#   netns-hosts.sh start DIR N PREFIX   hosts PREFIX1.. = 10.77.0.1.., prints "up" when all answer
#   netns-hosts.sh sshd DIR HOST        start the sshd of a host again
#   netns-hosts.sh stop DIR
# In DIR: ssh_config, and per host sshd.pid, sshd.log. Before start there may be HOST/overlay.sh (run as root in the
# mount namespace of that host) and HOST/env (NAME=VALUE lines for every command there).
# The controller is namespace PREFIXc, 10.77.0.254: ip netns exec PREFIXc ssh -F DIR/ssh_config PREFIX1.
set -eu
act=$1 dir=$2 net=10.77.0

listen() { # HOST: in its namespaces, which live as long as the holder process
    rm -f "$dir/$1/sshd.pid"
    nsenter -t "$(cat "$dir/$1/holder")" --net --uts --mount "$(PATH=$PATH:/usr/sbin command -v sshd)" \
        -f "$dir/$1/sshd_config" -E "$dir/$1/sshd.log"
}

answer() { # HOST
    tries=0
    until [ -s "$dir/$1/sshd.pid" ]; do
        tries=$((tries + 1))
        [ $tries -lt 250 ] || { echo "$1: sshd did not start: $(tail -1 "$dir/$1/sshd.log")" >&2; exit 1; }
        sleep 0.02
    done
}

case $act in
start)
    n=$3 pre=$4
    cd "$dir"
    ssh-keygen -q -t ed25519 -N '' -f id
    ssh-keygen -q -t ed25519 -N '' -f hostkey
    mkdir -p /run/sshd
    echo "$pre $n" >names
    ip netns add "${pre}c"
    ip -n "${pre}c" link set lo up
    ip -n "${pre}c" link add br0 type bridge
    ip -n "${pre}c" addr add "$net.254/24" dev br0
    ip -n "${pre}c" link set br0 up
    : >ssh_config
    for i in $(seq "$n"); do
        h=$pre$i
        mkdir -p "$h"
        ip netns add "$h"
        ip -n "$h" link set lo up
        ip link add "v$h" netns "${pre}c" type veth peer name eth0 netns "$h"
        ip -n "${pre}c" link set "v$h" master br0 up
        ip -n "$h" addr add "$net.$i/24" dev eth0
        ip -n "$h" link set eth0 up
        touch "$h/env" "$h/overlay.sh"
        # SHLVL: else Debian's bash reads ~/.bashrc for every command.
        cat >"$h/sshd_config" <<C
ListenAddress $net.$i
HostKey $dir/hostkey
AuthorizedKeysFile $dir/id.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
UseDNS no
PidFile $dir/$h/sshd.pid
MaxStartups 200
SetEnv SHLVL=5 $(tr '\n' ' ' <"$h/env")
C
        nsenter --net="/run/netns/$h" unshare --uts --mount --propagation private sh -c '
            hostname "$2"; mount -t sysfs sysfs /sys; sh "$1/$2/overlay.sh"; echo $$ >"$1/$2/holder.new"
            mv "$1/$2/holder.new" "$1/$2/holder"; exec sleep 86400' sh "$dir" "$h" >/dev/null 2>&1 &
        printf 'Host %s\n  HostName %s\n' "$h" "$net.$i" >>ssh_config
    done
    cat >>ssh_config <<C
Host *
  User root
  IdentityFile $dir/id
  IdentitiesOnly yes
  StrictHostKeyChecking accept-new
  UserKnownHostsFile $dir/known_hosts
  LogLevel ERROR
  KexAlgorithms curve25519-sha256
C
    for i in $(seq "$n"); do
        until [ -s "$pre$i/holder" ]; do sleep 0.01; done
        listen "$pre$i"
    done
    for i in $(seq "$n"); do answer "$pre$i"; done
    echo up
    ;;
sshd)
    listen "$3"
    answer "$3"
    ;;
stop)
    cd "$dir"
    read -r pre n <names
    for i in $(seq "$n"); do
        for file in sshd.pid holder; do
            if [ -s "$pre$i/$file" ]; then kill "$(cat "$pre$i/$file")" 2>/dev/null || :; fi
        done
        ip netns del "$pre$i" 2>/dev/null || :
    done
    ip netns del "${pre}c" 2>/dev/null || :
    ;;
*)
    echo "start|sshd|stop" >&2
    exit 2
    ;;
esac
