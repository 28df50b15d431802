"""The results of one replay: total use, regret, and the last recurrences against Default (§6.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import fmean
from typing import Any

from zeus.errors import InputError
from zeus.profile import whole
from zeus.simulate import pollux
from zeus.simulate.baselines import POLLUX, contender, default
from zeus.simulate.regret import cumulative, optimum
from zeus.simulate.replay import ReplayedRecurrence, job_of, replay
from zeus.simulate.workload import Workload

SweepTask = tuple[Workload, str, int, Mapping[str, Any]]  # workload, policy, seed, and the options of `simulate`
LAST = 5  # recurrences at the end that show what a policy converged to


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """One policy on one workload with one seed. The fields are those of `zeus simulate --json`."""

    workload: str
    policy: str
    seed: int
    eta: float
    beta: float
    recurrences: int
    cumulative_cost: float
    cumulative_energy: float
    cumulative_time: float
    cumulative_regret: float | None  # None if no size always reaches the target
    last5_energy_ratio: float
    last5_time_ratio: float
    choices: tuple[tuple[int, float], ...]  # (b, p) of the last trial of each recurrence

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "choices": [[size, whole(watts)] for size, watts in self.choices]}


def charged(
    workload: Workload,
    policy: str,
    seed: int,
    *,
    eta: float = 0.5,
    beta: float = 2.0,
    window: int = 0,
    recurrences: int | None = None,
    concurrency: int = 1,
) -> list[ReplayedRecurrence]:
    """The recurrences of the contender of this name, charged as it says. Without a number, as many as the horizon."""
    recurrences = recurrences or workload.horizon
    if policy == POLLUX:  # it learns nothing between recurrences: concurrency, β and the window do not matter
        return list(islice(pollux.replay(workload, pollux.noise_scale(workload.name), seed, eta), recurrences))
    who = contender(policy, workload, eta)
    job = job_of(workload, eta_knob=eta, beta_knob=beta, window_size=window, mab_seed=seed)
    steps = replay(workload, who.policy, job, seed, limits=who.limits, concurrency=concurrency, recurrences=recurrences)
    return [one if who.failures_charged else one.charged_if_converged() for one in steps]


def replay_task(task: SweepTask) -> ReplayResult:
    """One replay of a sweep, as a worker runs it."""
    workload, policy, seed, knobs = task
    return simulate(workload, policy, seed, **knobs)


def simulate(
    workload: Workload, policy: str, seed: int, *, eta: float = 0.5, beta: float = 2.0, **knobs: Any
) -> ReplayResult:
    """Replay the contender of this name. `knobs` are the others of `charged`."""
    past = charged(workload, policy, seed, eta=eta, beta=beta, **knobs)
    return summarize(workload, policy, seed, past, eta=eta, beta=beta)


def why_not(workload: Workload, policy: str) -> str | None:
    """Why the contender of this name cannot run on this workload. None if it can."""
    try:
        if policy == POLLUX:
            pollux.model(workload.name)
        else:
            contender(policy, workload, eta=0.5)
    except InputError as reason:
        return str(reason)
    return None


def summarize(
    workload: Workload, policy: str, seed: int, past: Sequence[ReplayedRecurrence], *, eta: float, beta: float
) -> ReplayResult:
    base, costs = default(workload), [one.cost for one in past]
    best_known = any(workload.always_converges(size) for size in workload.sizes)
    return ReplayResult(
        workload=workload.name,
        policy=policy,
        seed=seed,
        eta=eta,
        beta=beta,
        recurrences=len(past),
        cumulative_cost=sum(costs),
        cumulative_energy=sum(one.joules for one in past),
        cumulative_time=sum(one.seconds for one in past),
        cumulative_regret=cumulative(costs, optimum(workload, eta)) if best_known else None,
        last5_energy_ratio=fmean(one.joules for one in past[-LAST:]) / base.joules,
        last5_time_ratio=fmean(one.seconds for one in past[-LAST:]) / base.seconds,
        choices=tuple(one.choice for one in past),
    )
