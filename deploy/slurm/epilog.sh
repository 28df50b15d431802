#!/bin/sh
# Epilog of Slurm. It restores power limits that the job left behind, for example because Slurm killed all its processes
# at once. If a limit cannot be restored, it fails, and Slurm drains the node. See docs/clusters.md#slurm.
#
# Slurm runs this as root with few variables. Set others in /etc/zeus/slurm.env: ZEUS_COMMAND is the zeus command, if it
# is not in /usr/local/bin or /usr/bin.
set -u
PATH=/usr/local/bin:/usr/bin:/bin:${PATH:-}
settings=${ZEUS_SLURM_ENV:-/etc/zeus/slurm.env}
set -a
[ ! -r "$settings" ] || . "$settings"
set +a

said=$("${ZEUS_COMMAND:-zeus}" restore 2>&1) && exit 0
echo "zeus epilog: $said" >&2
! command -v logger >/dev/null || logger -t zeus "epilog of job ${SLURM_JOB_ID:-?}: $said"
exit 1
