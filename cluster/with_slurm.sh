#!/usr/bin/env bash
# Runs a command beside a Slurm of its own on this machine, which is started before and stopped after it:
#   bash cluster/with_slurm.sh sinfo
# The command finds it through SLURM_CONF. Ports, sockets and files are its own, so that another Slurm is not disturbed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ $# -eq 0 ]; then
  echo "usage: with_slurm.sh COMMAND [ARGUMENT ...]" >&2
  exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "with_slurm: slurmd starts jobs as their users and so must be root; run as root, in a container for instance" >&2
  exit 2
fi

# Not below the repository: the path of a socket may have 107 characters at most.
state=$(mktemp -d "${TMPDIR:-/tmp}/babelcap-slurm.XXXXXX")
chmod 755 "$state"
mkdir "$state/controller" "$state/node"
daemons=()

stop() {
  status=$?
  trap - EXIT INT TERM
  [ -z "${running:-}" ] || kill "$running" 2>/dev/null || true
  if [ ${#daemons[@]} -gt 1 ]; then
    scancel --quiet --user=root 2>/dev/null || true
    # Longer than KillWait, or processes that do not leave by themselves would outlive Slurm.
    for _ in $(seq 80); do
      [ -n "$(squeue --noheader --states=all --format=%T 2>/dev/null | grep -E 'RUNNING|COMPLETING' || true)" ] || break
      sleep 0.5
    done
  fi
  # The last one started goes first: the node, the controller, then what both authenticate with.
  for ((index = ${#daemons[@]} - 1; index >= 0; index--)); do
    kill "${daemons[index]}" 2>/dev/null || true
    for _ in $(seq 40); do
      kill -0 "${daemons[index]}" 2>/dev/null || break
      sleep 0.25
    done
    kill -KILL "${daemons[index]}" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  if [ "$status" -ne 0 ]; then
    for log in munged slurmctld slurmd; do
      echo "--- the end of $log.log" >&2
      tail -n 40 "$state/$log.log" >&2 2>/dev/null || true
    done
  fi
  rm -rf "$state"
  exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

read -r controller_port node_port < <(python3 - <<'PYTHON'
import socket

sockets = [socket.socket() for _ in range(2)]
for one in sockets:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))
PYTHON
)
sed -e "s|@HOST@|$(hostname -s)|g" -e "s|@STATE@|$state|g" -e "s|@CONTROLLER_PORT@|$controller_port|g" \
  -e "s|@NODE_PORT@|$node_port|g" "$here/slurm.conf.template" >"$state/slurm.conf"
export SLURM_CONF="$state/slurm.conf"

head -c 1024 /dev/urandom >"$state/munge.key"
chmod 400 "$state/munge.key"
# setsid: what a terminal or `timeout` sends to all processes here must not end Slurm before its jobs.
# --force: a folder below a world-writable one is only warned about.
setsid munged --foreground --force --key-file="$state/munge.key" --socket="$state/munge.socket" --pid-file="$state/munged.pid" \
  --seed-file="$state/munge.seed" --log-file="$state/munged.log" >>"$state/munged.log" 2>&1 &
daemons+=($!)
for _ in $(seq 40); do
  [ ! -S "$state/munge.socket" ] || break
  sleep 0.25
done
setsid slurmctld -D -f "$SLURM_CONF" >>"$state/slurmctld.log" 2>&1 &
daemons+=($!)
setsid slurmd -D -f "$SLURM_CONF" >>"$state/slurmd.log" 2>&1 &
daemons+=($!)

for _ in $(seq 240); do
  ready=$(sinfo --noheader --format=%T --partition=scavenge 2>/dev/null || true)
  [ "$ready" != idle ] || break
  sleep 0.5
done
if [ "$ready" != idle ]; then
  echo "with_slurm: the node is '${ready:-not there}' and not idle two minutes after Slurm was started" >&2
  exit 1
fi
# In the background, so that a signal to this script is not kept waiting for the command's end.
"$@" &
running=$!
wait "$running"
