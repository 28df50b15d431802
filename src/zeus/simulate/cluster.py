"""A whole cluster replayed (§6.3): each group a recurring job, its submissions as far apart as the trace has them.

Submissions overlap: the next may come before the last has ended, and the policy then decides without knowing how that
one will end (§4.4). A traced job that ran r times as long as the mean of its cluster is r times as much work: energy
and time are charged r-fold, while the policy learns the cost of one unit of work. On the time line of the trace a
Default run of the matched workload takes exactly as long as the traced job did, so that under Default jobs overlap as
they did in the cluster, and under a policy less or more as it is faster or slower.
"""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, NamedTuple

from zeus.job import MAX_TRIES, Ending, Outcome, Trial
from zeus.optimizer.batch_size.policy import Policy, find_policy
from zeus.simulate import baselines, regret
from zeus.simulate.cluster_match import Cluster
from zeus.simulate.cluster_traces import Group
from zeus.simulate.replay import World, job_of
from zeus.simulate.workload import Workload

TASK_JOBS = 4_000  # handed to a worker at once: about a second, so that a progress bar moves


class Totals(NamedTuple):
    """What the jobs of a group used, all tries."""

    tries: int = 0
    failed: int = 0  # jobs that did not reach the target in any try
    energy: float = 0.0  # joules
    time: float = 0.0  # seconds
    cost: float = 0.0  # Equation 2
    work: float = 0.0  # in jobs of the cluster's mean length


@dataclass(frozen=True, slots=True)
class Row:
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
    cumulative_regret: float
    energy_ratio: float  # against Default
    time_ratio: float


@dataclass(frozen=True, slots=True)
class Knobs:
    """What JobSpec asks of every group."""

    eta: float = 0.5
    beta: float = 2.0
    window: int = 0


def simulate(
    clusters: Sequence[Cluster],
    policies: Sequence[str],
    knobs: Knobs = Knobs(),  # noqa: B008
    *,
    seed: int = 0,
    workers: int = 1,
    progress: Callable[[int], None] = lambda jobs: None,
) -> list[Row]:
    """Each cluster under each policy; `progress` hears of every so many jobs done. Any number of workers, same rows."""
    rows: dict[tuple[str, str], Row] = {}
    tasks: list[_Task] = []
    for policy in policies:
        for cluster in clusters:
            if policy == "default":
                rows[policy, cluster.workload.name] = _row(cluster, policy, seed, knobs, [_by_default(cluster, knobs)])
                progress(cluster.jobs)
            else:
                find_policy(policy)  # an unknown name is refused before anything is run
                tasks += _tasks(cluster, policy, seed, knobs)
    found: dict[tuple[str, str], list[Totals]] = {}
    for task, totals in zip(tasks, _each(tasks, workers), strict=True):
        found.setdefault((task.policy, task.workload.name), []).extend(totals)
        progress(sum(len(group.starts) for group in task.groups))
    by_name = {cluster.workload.name: cluster for cluster in clusters}
    for (policy, name), totals in found.items():
        rows[policy, name] = _row(by_name[name], policy, seed, knobs, totals)
    return [rows[policy, cluster.workload.name] for policy in policies for cluster in clusters]


def replay_group(
    workload: Workload, policy: Policy[Any], knobs: Knobs, group: Group, mean_runtime: float, seed: int
) -> Totals:
    """One group: its submissions and ends in order of time."""
    job = job_of(workload, eta_knob=knobs.eta, beta_knob=knobs.beta, window_size=knobs.window)
    world = World(workload, policy, job, zlib.crc32(f"{seed}:{group.name}".encode()))
    default_seconds = baselines.default(workload).seconds
    ahead: list[tuple[float, int, Trial, Outcome | None]] = []  # ends of trials; without outcome: of a first epoch
    order = failed = tries = 0
    energy = time = cost = 0.0

    def push(when: float, trial: Trial, outcome: Outcome | None) -> None:
        nonlocal order
        order += 1  # of things at the same time the first to be known comes first
        heapq.heappush(ahead, (when, order, trial, outcome))

    def begin(now: float, recurrence: int, attempt: int) -> None:
        while True:
            trial = world.ask(recurrence, attempt)
            outcome = world.run(trial)
            if outcome.epochs:
                break
            world.end(trial, outcome)  # not even one epoch fits: not run, no try
        pace = group.runtimes[recurrence - 1] / default_seconds
        if not world.knows(trial.batch_size):
            push(now + pace * world.first_epoch(trial.batch_size)[1], trial, None)
        push(now + pace * outcome.seconds, trial, outcome)

    def until(now: float) -> None:
        nonlocal failed, tries, energy, time, cost
        while ahead and ahead[0][0] <= now:
            when, _, trial, outcome = heapq.heappop(ahead)
            if outcome is None:
                world.know(trial.batch_size)
                continue
            world.end(trial, outcome)
            recurrence, attempt = trial.ask.recurrence, trial.ask.attempt
            ratio = group.runtimes[recurrence - 1] / mean_runtime
            joules = outcome.joules or 0.0
            tries += 1
            energy += ratio * joules
            time += ratio * outcome.seconds
            cost += ratio * world.cost.cost(joules, outcome.seconds)
            if outcome.ending is not Ending.CONVERGED:
                if attempt < MAX_TRIES:
                    begin(when, recurrence, attempt + 1)
                else:
                    failed += 1

    for recurrence, start in enumerate(group.starts, start=1):
        until(start)
        begin(start, recurrence, 1)
    until(math.inf)
    return Totals(tries, failed, energy, time, cost, sum(group.runtimes) / mean_runtime)


class _Task(NamedTuple):
    """Some groups of one cluster under one policy: what a worker is given."""

    workload: Workload
    policy: str
    knobs: Knobs
    groups: tuple[Group, ...]
    mean_runtime: float
    seed: int


def _run(task: _Task) -> list[Totals]:
    policy = find_policy(task.policy)
    return [
        replay_group(task.workload, policy, task.knobs, group, task.mean_runtime, task.seed) for group in task.groups
    ]


def _each(tasks: Sequence[_Task], workers: int) -> Iterator[list[Totals]]:
    if workers <= 1:
        yield from map(_run, tasks)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_run, tasks)


def _tasks(cluster: Cluster, policy: str, seed: int, knobs: Knobs) -> Iterator[_Task]:
    mean = cluster.mean_runtime
    part: list[Group] = []
    for group in cluster.groups:
        part.append(group)
        if sum(len(one.starts) for one in part) >= TASK_JOBS or group is cluster.groups[-1]:
            yield _Task(cluster.workload, policy, knobs, tuple(part), mean, seed)
            part = []


def _by_default(cluster: Cluster, knobs: Knobs) -> Totals:
    """Default as it is expected to be: nothing about it depends on when jobs are submitted."""
    usual, work = baselines.default(cluster.workload), float(cluster.jobs)
    cost = cluster.workload.cost_model(knobs.eta).cost(usual.joules, usual.seconds)
    return Totals(cluster.jobs, 0, work * usual.joules, work * usual.seconds, work * cost, work)


def _row(cluster: Cluster, policy: str, seed: int, knobs: Knobs, totals: Iterable[Totals]) -> Row:
    tries, failed, energy, time, cost, work = (sum(column) for column in zip(*totals, strict=True))
    usual = baselines.default(cluster.workload)
    return Row(
        workload=cluster.workload.name,
        policy=policy,
        seed=seed,
        groups=len(cluster.groups),
        jobs=cluster.jobs,
        tries=int(tries),
        failed=int(failed),
        energy=energy,
        time=time,
        cost=cost,
        cumulative_regret=cost - work * regret.optimum(cluster.workload, knobs.eta),
        energy_ratio=energy / (work * usual.joules),
        time_ratio=time / (work * usual.seconds),
    )
