#!/usr/bin/env bash
# Installs Debian's Slurm (controller, node daemon, commands) and munge, unless they are there. Starts nothing.
set -euo pipefail

for program in munged slurmctld slurmd sbatch srun scontrol; do
  command -v "$program" >/dev/null || missing=1
done
[ -n "${missing:-}" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "install_slurm: Slurm is not installed, and only root can install it; run as root, or: apt-get install slurmctld slurmd slurm-client munge" >&2
  exit 2
fi
if ! command -v apt-get >/dev/null; then
  echo "install_slurm: there is no apt-get here; install slurmctld, slurmd, the Slurm commands and munge by hand" >&2
  exit 2
fi
export DEBIAN_FRONTEND=noninteractive
# Another package manager at work is waited for.
wait=(-o DPkg::Lock::Timeout=300)
apt-get "${wait[@]}" update -qq
apt-get "${wait[@]}" install -qq --yes --no-install-recommends slurmctld slurmd slurm-client munge
