"""The traces and the replays that figures need. Each replay runs once, in one process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zeus.errors import InputError
from zeus.simulate.cluster.tables import ClusterTrace, read_groups
from zeus.simulate.replay import ReplayedRecurrence
from zeus.simulate.results import charged
from zeus.simulate.traces import published
from zeus.simulate.traces.published import SMALLEST
from zeus.simulate.workers import spread
from zeus.simulate.workload import Workload
from zeus.simulate.workload_file import table_1

MAIN: Final = "v100"  # the GPU of all experiments, unless noted (§6.1)
ORDER: Final = ("a40", "v100", "rtx6000", "p100")  # the order of the paper
SEEDS: Final = 20
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Case:
    """One policy on one workload with one setting: a replay to run."""

    workload: str
    policy: str = "paper"
    gpu: str = MAIN
    eta: float = 0.5
    beta: float = 2.0
    every_size: bool = False  # also with the sizes below the paper's sweep


@dataclass(frozen=True, slots=True)
class CaseUse:
    """What the recurrences of a case used, with one row per seed and one column per recurrence."""

    cost: Floats
    joules: Floats
    seconds: Floats
    last: tuple[tuple[int, float], ...]  # the batch size and power limit of the last recurrence, one per seed


@dataclass(frozen=True)
class Study:
    """Traces, seeds, and the replays so far."""

    workloads: dict[str, dict[str, Workload]]  # by GPU, by name; sizes from 8 up, as the paper sweeps them
    every_size: dict[str, dict[str, Workload]]  # the same with all sizes of the traces
    traces: Path  # the folder with the paper's traces
    data: Path  # the folder with the other data sets
    seeds: int = SEEDS
    quick: bool = False  # leave out slow parts
    groups: ClusterTrace | None = None  # the recurring jobs of a cluster (Figure 9); None: a composite
    processes: int = 1  # for what a figure replays itself
    made: dict[Case, CaseUse] = field(default_factory=dict)

    @property
    def main(self) -> dict[str, Workload]:
        """The workloads on the paper's main GPU."""
        return self.workloads[MAIN]

    def workload(self, case: Case) -> Workload:
        return (self.every_size if case.every_size else self.workloads)[case.gpu][case.workload]

    def past(self, case: Case) -> CaseUse:
        """The use of a case. It is replayed now unless it was before."""
        if case not in self.made:
            self.made[case] = replayed((self.workload(case), case, self.seeds))
        return self.made[case]

    def tries(self, case: Case, seed: int = 0) -> list[ReplayedRecurrence]:
        """The recurrences of a case for one seed, with all trials."""
        return run(self.workload(case), case, seed)

    def prepare(self, cases: Iterable[Case], processes: int, progress: Callable[[int], object]) -> None:
        """Replay these cases, longest first. `progress` is called after each, with 1."""
        missing = [case for case in dict.fromkeys(cases) if case not in self.made]
        missing.sort(key=lambda case: -self.workload(case).horizon)
        tasks = [(self.workload(case), case, self.seeds) for case in missing]
        for case, past in zip(missing, spread(replayed, tasks, processes), strict=True):
            self.made[case] = past
            progress(1)


def read(
    traces: Path,
    seeds: int = SEEDS,
    *,
    data: Path | None = None,
    quick: bool = False,
    groups: Path | None = None,
    processes: int = 1,
) -> Study:
    """Read the traces of all GPUs in the folder. The other data sets are in `data` (default: the parent folder)."""
    found = published.gpus(traces)
    if MAIN not in found:
        raise InputError(
            f"{traces}: no summary_power_{MAIN}.csv, which most figures need. Give the folder of the published traces "
            "(summary_train.csv and a summary_power_GPU.csv for each GPU)."
        )
    order = [gpu for gpu in ORDER if gpu in found] + [gpu for gpu in found if gpu not in ORDER]
    folder = published.TraceFolder(traces)
    workloads, every_size = ({gpu: folder.load(gpu, smallest=least) for gpu in order} for least in (SMALLEST, 1))
    if absent := [name for name in table_1() if name not in workloads[MAIN]]:
        raise InputError(f"{traces}: no traces of {', '.join(absent)} on {MAIN}. The figures need all of Table 1.")
    given = None if groups is None else read_groups(groups)
    return Study(workloads, every_size, traces, data or traces.parent, seeds, quick, given, processes)


def run(workload: Workload, case: Case, seed: int) -> list[ReplayedRecurrence]:
    return charged(workload, case.policy, seed, eta=case.eta, beta=case.beta)


def replayed(task: tuple[Workload, Case, int]) -> CaseUse:
    workload, case, seeds = task
    pasts = [run(workload, case, seed) for seed in range(seeds)]
    return CaseUse(
        np.array([[r.cost for r in past] for past in pasts]),
        np.array([[r.joules for r in past] for past in pasts]),
        np.array([[r.seconds for r in past] for past in pasts]),
        tuple(past[-1].choice for past in pasts),
    )
