"""Replay of a whole cluster (§6.3): each group is a recurring job, submitted at the times in the trace.

Submissions may overlap. If one comes before the last has ended, the policy decides without knowing how that one will
end (§4.4). A traced job that ran r times as long as the mean of its cluster counts as r times as much work: its energy
and time are charged r-fold, while the policy learns the cost of one unit of work. (A table may give r itself.) A
Default run takes exactly as long as the traced job did. So under Default jobs overlap as in the trace, and under a
faster policy they overlap less.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from zeus.simulate import baselines, regret
from zeus.simulate.cluster.match import Cluster
from zeus.simulate.cluster.tables import Group
from zeus.simulate.replay import ReplayedRecurrence, RunningRecurrence, SimulatedJob, job_of
from zeus.simulate.workers import Workers
from zeus.simulate.workload import Workload

TASK_JOBS = 4_000  # per task of a worker: about a second, so that the progress bar moves


class GroupUse(NamedTuple):
    """What all trials of a group used."""

    tries: int = 0
    failed: int = 0  # recurrences of which no trial reached the target
    energy: float = 0.0  # joules
    time: float = 0.0  # seconds
    cost: float = 0.0  # Equation 2
    work: float = 0.0  # 1 = one job of the cluster's mean length

    def add(self, one: ReplayedRecurrence, ratio: float) -> GroupUse:
        return GroupUse(
            self.tries + len(one.tries),
            self.failed + (not one.converged),
            self.energy + ratio * one.joules,
            self.time + ratio * one.seconds,
            self.cost + ratio * one.cost,
            self.work + ratio,
        )


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One workload under one policy: one bar of Figure 9."""

    workload: str
    policy: str
    seed: int
    groups: int
    jobs: int
    tries: int
    failed: int
    energy: float
    time: float
    cost: float
    cumulative_regret: float | None  # None if no size always reaches the target
    energy_ratio: float  # against Default
    time_ratio: float


@dataclass(frozen=True, slots=True)
class Knobs:
    """The job settings that all groups share."""

    eta: float = 0.5
    beta: float = 2.0
    window: int = 0


def simulate(
    clusters: Sequence[Cluster],
    policies: Sequence[str],
    knobs: Knobs = Knobs(),
    *,
    seed: int = 0,
    workers: Workers = map,
    progress: Callable[[int], None] = lambda jobs: None,
) -> list[GroupRow]:
    """Replay each cluster under each policy. The rows do not depend on the workers.

    `progress` is called with the number of jobs done since its last call.
    """
    tasks: list[_Task] = []
    for policy in policies:
        for cluster in clusters:
            baselines.contender(policy, cluster.workload, knobs.eta)  # raises before any replay starts
            tasks += _tasks(cluster, policy, seed, knobs)
    found: dict[tuple[str, str], list[GroupUse]] = {}
    for task, totals in zip(tasks, workers(_run, tasks), strict=True):
        found.setdefault((task.policy, task.workload.name), []).extend(totals)
        progress(sum(len(group.starts) for group in task.groups))
    return [
        _row(cluster, policy, seed, knobs, found[policy, cluster.workload.name])
        for policy in policies
        for cluster in clusters
    ]


def replay_group(
    workload: Workload, policy: str, knobs: Knobs, group: Group, mean_runtime: float, seed: int
) -> GroupUse:
    """Replay one group in order of time."""
    who = baselines.contender(policy, workload, knobs.eta)
    job = job_of(workload, eta_knob=knobs.eta, beta_knob=knobs.beta, window_size=knobs.window)
    luck = zlib.crc32(f"{seed}:{group.name}".encode())
    simulated = SimulatedJob(workload, who.policy, job, luck, who.limits(workload, knobs.eta), alone=False)
    usual = baselines.default(workload).seconds
    ahead: list[tuple[float, int, RunningRecurrence]] = []  # each recurrence by the time of its next event
    totals = GroupUse()

    def until(now: float, totals: GroupUse) -> GroupUse:
        while ahead and ahead[0][0] <= now:
            when, number, one = heappop(ahead)
            runtime = group.runtimes[number - 1]
            if simulated.goes_on(one):
                heappush(ahead, (when + one.run.seconds * runtime / usual, number, one))
                continue
            over = ReplayedRecurrence(tuple(one.tries))
            charged = over if who.failures_charged else over.charged_if_converged()
            totals = totals.add(charged, group.work(number - 1, mean_runtime))
        return totals

    for number, start in enumerate(group.starts, start=1):
        totals = until(start, totals)
        one = simulated.submit(number)
        heappush(ahead, (start + one.run.seconds * group.runtimes[number - 1] / usual, number, one))
    return until(math.inf, totals)


class _Task(NamedTuple):
    """A worker's task: some groups of one cluster under one policy."""

    workload: Workload
    policy: str
    knobs: Knobs
    groups: tuple[Group, ...]
    mean_runtime: float
    seed: int


def _run(task: _Task) -> list[GroupUse]:
    rest = (task.mean_runtime, task.seed)
    return [replay_group(task.workload, task.policy, task.knobs, group, *rest) for group in task.groups]


def _tasks(cluster: Cluster, policy: str, seed: int, knobs: Knobs) -> Iterator[_Task]:
    mean = cluster.mean_runtime
    part: list[Group] = []
    for group in cluster.groups:
        part.append(group)
        if sum(len(one.starts) for one in part) >= TASK_JOBS or group is cluster.groups[-1]:
            yield _Task(cluster.workload, policy, knobs, tuple(part), mean, seed)
            part = []


def _row(cluster: Cluster, policy: str, seed: int, knobs: Knobs, totals: Iterable[GroupUse]) -> GroupRow:
    tries, failed, energy, time, cost, work = (sum(column) for column in zip(*totals, strict=True))
    usual, workload = baselines.default(cluster.workload), cluster.workload
    best_known = any(workload.always_converges(size) for size in workload.sizes)
    return GroupRow(
        workload=workload.name,
        policy=policy,
        seed=seed,
        groups=len(cluster.groups),
        jobs=cluster.jobs,
        tries=int(tries),
        failed=int(failed),
        energy=energy,
        time=time,
        cost=cost,
        cumulative_regret=cost - work * regret.optimum(workload, knobs.eta) if best_known else None,
        energy_ratio=energy / (work * usual.joules),
        time_ratio=time / (work * usual.seconds),
    )
