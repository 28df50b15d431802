"""What several figures share: expected time and energy of configurations, means, and ratios to Default."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from zeus.ledger.pareto import ParetoPoint
from zeus.reproduce import style
from zeus.reproduce.panel import Number, Result
from zeus.reproduce.study import ORDER, Case, Floats, Study
from zeus.simulate import baselines
from zeus.simulate.results import LAST
from zeus.simulate.workload import Workload


def points(workload: Workload) -> list[ParetoPoint]:
    """All configurations whose batch size reaches the target in every traced run."""
    return [point(workload, *pair) for pair in workload.pairs if workload.always_converges(pair[0])]


def point(workload: Workload, size: int, limit_watts: float) -> ParetoPoint:
    use = workload.expected(size, limit_watts)
    return ParetoPoint(size, limit_watts, use.seconds, use.joules)


def default_point(workload: Workload) -> ParetoPoint:
    """Default: b0 at the highest limit."""
    return point(workload, *baselines.default_pair(workload))


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of ratios.

    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


class Ratios(NamedTuple):
    """Last five recurrences relative to Default, one value per seed."""

    energy: Floats
    time: Floats


def converged(study: Study, case: Case) -> Ratios:
    """What a case converged to, relative to Default."""
    past, default = study.past(case), baselines.default(study.workload(case))
    return Ratios(
        past.joules[:, -LAST:].mean(axis=1) / default.joules, past.seconds[:, -LAST:].mean(axis=1) / default.seconds
    )


def not_at_hand(study: Study) -> str:
    """A note on the paper's GPUs without a power trace. Empty if all have one."""
    absent = [style.GPUS[gpu] for gpu in ORDER if gpu not in study.workloads]
    return f"There is no power trace of the {', '.join(absent)}." if absent else ""


def unknown(figure: str, names: Iterable[str], why: str) -> Result:
    """The result of a figure whose data are missing."""
    return Result(numbers=tuple(Number(f"{figure}.{name}", None, note=why) for name in names), remark=why)


def over_seeds(name: str, values: Floats | Sequence[float], note: str = "") -> Number:
    """The mean over seeds, with its range."""
    array = np.asarray(values, dtype=float)
    return Number(name, float(array.mean()), float(array.min()), float(array.max()), note)
