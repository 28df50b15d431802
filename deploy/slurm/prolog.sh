#!/bin/sh
# Prolog of Slurm. It restores power limits that a killed job left behind. If a card of the new job is throttled even
# so, it fails: Slurm then drains the node and requeues the job. See docs/clusters.md#slurm.
#
# Slurm runs this as root with few variables. Set others in /etc/zeus/slurm.env:
#   ZEUS_COMMAND      the zeus command, if it is not in /usr/local/bin or /usr/bin
#   ZEUS_LEAST_WATTS  the power limit that every card must have; default: the default limit of the card
set -u
PATH=/usr/local/bin:/usr/bin:/bin:${PATH:-}
settings=${ZEUS_SLURM_ENV:-/etc/zeus/slurm.env}
set -a
[ ! -r "$settings" ] || . "$settings"
set +a

refuse() {
    echo "zeus prolog: $1" >&2
    ! command -v logger >/dev/null || logger -t zeus "prolog of job ${SLURM_JOB_ID:-?}: $1"
    exit 1
}

said=$("${ZEUS_COMMAND:-zeus}" restore --check ${ZEUS_LEAST_WATTS:+--least "$ZEUS_LEAST_WATTS"} 2>&1) || refuse "$said"

# The driver says if it slows a card down by itself, because of heat or of its power supply.
if command -v nvidia-smi >/dev/null; then
    reasons=clocks_throttle_reasons.hw_thermal_slowdown,clocks_throttle_reasons.hw_power_brake_slowdown
    slowed=$(nvidia-smi ${SLURM_JOB_GPUS:+--id="$SLURM_JOB_GPUS"} --query-gpu=index,"$reasons" --format=csv,noheader |
        grep -w Active)
    [ -z "$slowed" ] || refuse "the driver slows a card down: $slowed"
fi
