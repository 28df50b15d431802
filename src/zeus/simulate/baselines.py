"""What Zeus is compared with."""

from __future__ import annotations

from typing import NamedTuple

from zeus.simulate.workload import Workload


class Expected(NamedTuple):
    """What a fixed choice uses on average."""

    joules: float
    seconds: float


def default(workload: Workload) -> Expected:
    """Default: b0 at the highest limit, expected over its runs."""
    epoch = workload.profiles[workload.default].slices[0]
    epochs = workload.epochs_charged(workload.default)
    return Expected(epochs * epoch.joules, epochs * epoch.seconds)
