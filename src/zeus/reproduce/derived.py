"""What several figures compute: expected time and energy of every configuration, fronts, means, ratios to Default."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from zeus.reproduce import style
from zeus.reproduce.panel import Number, Result
from zeus.reproduce.study import ORDER, Case, Floats, Study
from zeus.simulate import baselines
from zeus.simulate.results import LAST
from zeus.simulate.workload import Workload


class Point(NamedTuple):
    """A configuration and what it takes to the target, expected over the traced runs (Equation 1)."""

    batch_size: int
    limit_watts: float
    seconds: float  # TTA
    joules: float  # ETA


def points(workload: Workload) -> list[Point]:
    """Every configuration whose size reaches the target in every traced run."""
    return [point(workload, *pair) for pair in workload.pairs if workload.always_converges(pair[0])]


def point(workload: Workload, size: int, limit_watts: float) -> Point:
    """One configuration."""
    use = workload.expected(size, limit_watts)
    return Point(size, limit_watts, use.seconds, use.joules)


def default_point(workload: Workload) -> Point:
    """Default: b0 at the highest limit."""
    return point(workload, *baselines.default_pair(workload))


def front(every: Sequence[Point]) -> list[Point]:
    """Those that no other beats in both time and energy, fastest first.

    >>> kept = front([Point(8, 250, 1.0, 3.0), Point(8, 100, 2.0, 2.0), Point(16, 250, 2.0, 4.0)])
    >>> [(one.batch_size, one.limit_watts) for one in kept]
    [(8, 250), (8, 100)]
    """
    kept: list[Point] = []
    for one in sorted(every, key=lambda p: (p.seconds, p.joules)):
        if not kept or one.joules < kept[-1].joules:
            kept.append(one)
    return kept


def geometric_mean(values: Iterable[float]) -> float:
    """Of ratios.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


class Ratios(NamedTuple):
    """Last five recurrences against Default, one value a seed."""

    energy: Floats
    time: Floats


def converged(study: Study, case: Case) -> Ratios:
    """Where a case converged to, against Default."""
    past, default = study.past(case), baselines.default(study.workload(case))
    return Ratios(
        past.joules[:, -LAST:].mean(axis=1) / default.joules, past.seconds[:, -LAST:].mean(axis=1) / default.seconds
    )


def not_at_hand(study: Study) -> str:
    """Which of the paper's GPUs have no power trace here; nothing where all have."""
    absent = [style.GPUS[gpu] for gpu in ORDER if gpu not in study.workloads]
    return f"No power trace of the {', '.join(absent)} is at hand." if absent else ""


def unknown(figure: str, names: Iterable[str], why: str) -> Result:
    """A figure whose data are not at hand."""
    return Result(numbers=tuple(Number(f"{figure}.{name}", None, note=why) for name in names), remark=why)


def over_seeds(name: str, values: Floats | Sequence[float], note: str = "") -> Number:
    """The mean over seeds, with their range."""
    array = np.asarray(values, dtype=float)
    return Number(name, float(array.mean()), float(array.min()), float(array.max()), note)
