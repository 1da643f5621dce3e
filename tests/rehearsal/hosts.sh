#!/usr/bin/env bash
# Pretend hosts on one Linux machine, as root: each has its own network, processes, name, /tmp, /dev/shm, home and sshd,
# and one folder that all of them see, as NFS would be. The rest of the file system is this machine's.
#   hosts.sh check        says what is missing here and ends with 1 where something is
#   hosts.sh up COUNT     hosts 0 to COUNT-1, at NET.10, NET.11, ...
#   hosts.sh kill N       a power cut: host N falls silent with all its processes
#   hosts.sh start N      the same host again, with its home and empty /tmp
#   hosts.sh down         no host, no bridge, no folder is left
# What may be set, so that two of them do not meet:
#   HOSTS_DIR     folder of keys, homes and the shared folder
#   HOSTS_BRIDGE  the bridge, HOSTS_NET its first three numbers, HOSTS_NAME what the hosts are called before their number
#   HOSTS_FIRST   the command that a host runs instead of sshd
#   HOSTS_TOOLS   what `check` looks for beside ip, unshare and ssh-keygen, as COMMAND:PACKAGE
#   HOSTS_SEEN    folders below /tmp, parted by colons, that the hosts see although their /tmp is empty
# Inside a host: /srv/home is root's home, /srv/shared the folder that all see.
set -euo pipefail

DIR=${HOSTS_DIR:-/tmp/unlearning-hosts}
BRIDGE=${HOSTS_BRIDGE:-unlearn-bridge}
NET=${HOSTS_NET:-10.77.0}
NAME=${HOSTS_NAME:-unlearn}
SEEN=${HOSTS_SEEN:-}
PATH=$PATH:/usr/sbin:/sbin
FIRST=${HOSTS_FIRST:-$(command -v sshd || true) -D -e -f /srv/sshd_config}
TOOLS=${HOSTS_TOOLS:-sshd:openssh-server ssh:openssh-client rsync:rsync}

missing() { # prints what a rehearsal needs and this machine lacks, one a line
  [ "$(id -u)" = 0 ] || { echo "root (network namespaces are made by root alone)"; return; }
  local tool
  for tool in ip:iproute2 unshare:util-linux ssh-keygen:openssh-client $TOOLS; do
    command -v "${tool%:*}" > /dev/null || echo "${tool%:*} (${tool#*:})"
  done
  unshare --net --pid --mount --uts --fork --mount-proc true 2> /dev/null || { echo "namespaces (unshare is refused here)"; return; }
  local probe=p$$
  { ip link add "$probe" type bridge && ip link del "$probe"; } 2> /dev/null || echo "a network bridge (ip link add is refused here)"
  { ip netns add "$NAME-$probe" && ip netns del "$NAME-$probe"; } 2> /dev/null || echo "ip netns (refused here)"
}

taken() { # what others use, or earlier hosts have left
  [ ! -e "$DIR" ] || echo "$DIR is there: end those hosts (hosts.sh down), or set HOSTS_DIR"
  ! ip link show "$BRIDGE" > /dev/null 2>&1 || echo "the link $BRIDGE is there: set HOSTS_BRIDGE"
  ! ip -4 addr | grep -qF " $NET." || echo "the addresses $NET.* are in use: set HOSTS_NET"
  ! ip netns list | grep -q "^$NAME-[0-9]" || echo "hosts called $NAME-* are there: set HOSTS_NAME"
}

keys() { # one pair for people, one for the hosts
  mkdir -p "$DIR/shared"
  local key
  for key in id hostkey; do
    [ -f "$DIR/$key" ] || ssh-keygen -q -t ed25519 -N '' -C unlearning -f "$DIR/$key"
  done
}

network() { # N: its own network, one cable to the bridge; the same card after a power cut, as others remember it
  local name=$NAME-$1
  ip netns add "$name"
  ip link add "$NAME$1" type veth peer name eth0 address "$(printf '02:00:00:00:00:%02x' $((10 + $1)))" netns "$name"
  ip link set "$NAME$1" master "$BRIDGE" up
  ip -n "$name" link set lo up
  ip -n "$name" addr add "$NET.$((10 + $1))/24" dev eth0
  ip -n "$name" link set eth0 up
  ip -n "$name" route add default via "$NET.1"
}

files() { # N: what differs on this host
  local n etc=$DIR/$1/etc home=$DIR/$1/home name=$NAME-$1 address=$NET.$((10 + $1))
  mkdir -p "$etc" "$home/.ssh"
  chmod 700 "$home" "$home/.ssh"
  cp "$DIR/id.pub" "$home/.ssh/authorized_keys"
  sed 's#^root:.*#root:x:0:0:root:/srv/home:/bin/bash#' /etc/passwd > "$etc/passwd"
  { echo '127.0.0.1 localhost'; for n in {0..9}; do echo "$NET.$((10 + n)) $NAME-$n"; done; } > "$etc/hosts"
  printf '%s\n' "ListenAddress $address" "HostKey /srv/hostkey" 'PidFile none' 'PermitRootLogin prohibit-password' \
    'PasswordAuthentication no' 'StrictModes no' 'UsePAM no' 'PrintMotd no' 'MaxStartups 100' 'MaxSessions 100' \
    'Subsystem sftp internal-sftp' > "$etc/sshd_config"
}

inside() { # NAME FOLDER: from here on as the first process of a host, in its namespaces
  local place
  hostname "$1"
  mount -t tmpfs tmpfs /srv
  mkdir -p /srv/home /srv/shared /srv/tmp
  mount --bind "$2/home" /srv/home
  mount --bind "$DIR/shared" /srv/shared
  mount --bind "$2/etc/passwd" /etc/passwd
  mount --bind "$2/etc/hosts" /etc/hosts
  mount -t tmpfs tmpfs /dev/shm
  mount -t tmpfs tmpfs /run
  mkdir -p /run/sshd
  cp "$2/etc/sshd_config" "$DIR/hostkey" /srv/
  mount -t tmpfs tmpfs /srv/tmp
  chmod 1777 /srv/tmp
  for place in ${SEEN//:/ }; do
    mkdir -p "/srv/tmp/${place#/tmp/}"
    mount --bind "$place" "/srv/tmp/${place#/tmp/}"
  done
  mount --rbind /srv/tmp /tmp
  mount -t tmpfs cgroup /sys/fs/cgroup  # `ip netns exec` leaves none; slurmd wants to see one, and uses nothing of it
  mkdir /sys/fs/cgroup/systemd
  exec $FIRST
}

start() { # N
  local name=$NAME-$1 folder=$DIR/$1
  files "$1"
  network "$1"
  setsid nohup ip netns exec "$name" unshare --pid --fork --kill-child --mount --uts --mount-proc \
    bash "$0" inside "$name" "$folder" > "$folder/log" 2>&1 < /dev/null &
  echo $! > "$folder/pid"
}

cut() { # N: first the cable, so that nobody is told, then every process
  local name=$NAME-$1 pid
  ip link del "$NAME$1" 2> /dev/null || true
  pid=$(cat "$DIR/$1/pid" 2> /dev/null || true)
  if [ -n "$pid" ] && grep -qsF "$DIR/$1" "/proc/$pid/cmdline"; then
    kill -9 "$pid"  # --kill-child takes everything in its room of pids along
  fi
  while [ -n "$(ip netns pids "$name" 2> /dev/null)" ]; do sleep 0.1; done
  ip netns del "$name" 2> /dev/null || true
  rm -f "$DIR/$1/pid"
}

case ${1:-} in
  check) lacking=$(missing); [ -z "$lacking" ] || { echo "missing: ${lacking//$'\n'/, }"; exit 1; } ;;
  up)
    bash "$0" check >&2
    others=$(taken)
    [ -z "$others" ] || { echo "$others" >&2; exit 1; }
    set -E
    trap 'bash "$0" down' ERR
    keys
    ip link add "$BRIDGE" type bridge
    ip addr add "$NET.1/24" dev "$BRIDGE"
    ip link set "$BRIDGE" up
    for ((n = 0; n < $2; n++)); do start "$n"; done ;;
  start) start "$2" ;;
  kill) cut "$2" ;;
  inside) inside "$2" "$3" ;;
  down)
    for folder in "$DIR"/[0-9]*; do [ ! -d "$folder" ] || cut "$(basename "$folder")"; done
    ip link del "$BRIDGE" 2> /dev/null || true
    [ ! -f "$DIR/hostkey" ] || rm -rf "$DIR" ;;
  *) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
