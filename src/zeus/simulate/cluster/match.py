"""Matches groups of jobs to workloads (§6.3): as the table says; or K-means on mean runtimes, then both in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zeus.errors import InputError
from zeus.simulate.baselines import default
from zeus.simulate.cluster.tables import ClusterTrace, Group
from zeus.simulate.workload import Workload
from zeus.simulate.workload_file import table_1


@dataclass(frozen=True, slots=True, eq=False)
class Cluster:
    """Groups of similar runtime, and the workload that is replayed for them."""

    workload: Workload
    groups: tuple[Group, ...]

    @property
    def jobs(self) -> int:
        return sum(len(group.starts) for group in self.groups)

    @property
    def mean_runtime(self) -> float:
        """Mean over all jobs, in seconds."""
        return sum(sum(group.runtimes) for group in self.groups) / self.jobs


def match(trace: ClusterTrace, workloads: Mapping[str, Workload]) -> tuple[Cluster, ...]:
    """One cluster for each workload, shortest first. The runtime of a workload is that of Default.

    Groups that the table has matched stay as they are. Those of other workloads are left out.
    """
    ordered = sorted(workloads.values(), key=lambda workload: default(workload).seconds)
    if any(group.dataset for group in trace.groups):
        return _as_given(trace, ordered)
    groups = sorted(trace.groups, key=lambda group: (group.mean_runtime, group.name))
    means = [group.mean_runtime for group in groups]
    if len(set(means)) < len(ordered):
        raise InputError(
            f"{trace.source}: {len(groups)} groups with {len(set(means))} different mean runtimes; "
            f"{len(ordered)} workloads need at least {len(ordered)}. Give fewer workloads or more groups."
        )
    edges = (0, *split(means, len(ordered)), len(groups))
    return tuple(
        Cluster(workload, tuple(groups[begin:end]))
        for workload, begin, end in zip(ordered, edges, edges[1:], strict=False)
    )


def _as_given(trace: ClusterTrace, workloads: Sequence[Workload]) -> tuple[Cluster, ...]:
    datasets = {workload.name: table_1()[workload.name].key.dataset for workload in workloads}
    found = {name: tuple(g for g in trace.groups if g.dataset == dataset) for name, dataset in datasets.items()}
    clusters = tuple(Cluster(workload, found[workload.name]) for workload in workloads if found[workload.name])
    if not clusters:
        held = ", ".join(sorted({group.dataset for group in trace.groups}))
        raise InputError(
            f"{trace.source}: no group of {', '.join(datasets)} (dataset {', '.join(datasets.values())}). "
            f"The table has groups of {held}."
        )
    return clusters


def split(values: Sequence[float], clusters: int) -> tuple[int, ...]:
    """Exact K-means of ascending numbers: the index at which each cluster but the first begins.

    On a line each cluster is a stretch of neighbours, and the best last cut only moves forward as numbers are added.
    So each further cluster costs n log n sums, and nothing depends on a random start.

    >>> split([1.0, 1.1, 5.0, 5.2, 9.0], 3)
    (2, 4)
    """
    line = np.asarray(values, dtype=float)
    sums = _Sums(line - line.mean())
    best = sums.squares(np.zeros(len(line), dtype=int), np.arange(1, len(line) + 1))
    cuts: list[npt.NDArray[np.int64]] = []
    for _ in range(clusters - 1):
        best, cut = _one_more(best, sums)
        cuts.append(cut)
    edges: list[int] = []
    last = len(line) - 1
    for cut in reversed(cuts):
        edges.append(int(cut[last]))
        last = edges[-1] - 1
    return tuple(reversed(edges))


class _Sums:
    """Sum of squares about the mean of any stretch, from prefix sums."""

    def __init__(self, line: npt.NDArray[np.float64]) -> None:
        self._first = np.concatenate(([0.0], np.cumsum(line)))
        self._second = np.concatenate(([0.0], np.cumsum(line**2)))

    def squares(self, begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64] | int) -> npt.NDArray[np.float64]:
        total = self._first[end] - self._first[begin]
        spread: npt.NDArray[np.float64] = self._second[end] - self._second[begin] - total**2 / (end - begin)
        return np.maximum(spread, 0.0)


def _one_more(best: npt.NDArray[np.float64], sums: _Sums) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """For one more cluster: the least sum of squares of each prefix, and where its last cluster begins."""
    after = np.full(len(best), np.inf)
    cut = np.zeros(len(best), dtype=np.int64)
    todo = [(1, len(best) - 1, 1, len(best) - 1)]
    while todo:
        low, high, least, most = todo.pop()
        if low > high:
            continue
        middle = (low + high) // 2
        begins = np.arange(least, min(middle, most) + 1)
        costs = best[begins - 1] + sums.squares(begins, middle + 1)
        at = int(np.argmin(costs))
        after[middle], cut[middle] = costs[at], begins[at]
        todo += [(low, middle - 1, least, int(begins[at])), (middle + 1, high, int(begins[at]), most)]
    return after, cut
