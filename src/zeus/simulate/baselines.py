"""The baselines that Zeus is compared with (§6.1, §6.7), and all contenders of a replay by name.

A contender is a batch size policy together with a way to choose power limits. To add one, add a line to `OWN`. Every
policy of real jobs (`find_policy`) is a contender too; it profiles power limits just in time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

from zeus.cost import Use
from zeus.errors import InputError, suggest
from zeus.job import Ask, Decision, Ending, Event, JobSpec, Phase, Trial, replace
from zeus.ledger.charge import cost_of
from zeus.policy.api import Policy
from zeus.policy.common import Rng
from zeus.policy.registry import find_policy, is_path, policy_names
from zeus.simulate.limit_plans import JustInTime, LimitFromPolicy, Limits, OneLimitPerRun, Pinned, WalkProfiling
from zeus.simulate.regret import best_pair
from zeus.simulate.workload import Workload

Pair: TypeAlias = tuple[int, float]  # (b, p)


def default(workload: Workload) -> Use:
    """The expected use of one run of Default: b0 at the highest limit."""
    return workload.expected(*default_pair(workload))


def default_pair(workload: Workload) -> Pair:
    return workload.default, workload.profiles[workload.default].slices[0].limit_watts


@dataclass(frozen=True, slots=True)
class Fixed:
    """A policy that always chooses the same pair. Default and the oracle are such policies."""

    name: str
    pair: Pair
    version: int = 1
    monotone: bool = True
    one_size: bool = True

    def start(self, job: JobSpec) -> JobSpec:
        return job

    def observe(self, state: JobSpec, event: Event) -> JobSpec:
        return state

    def decide(self, state: JobSpec, rng: Rng, ask: Ask) -> Decision:
        size, watts = self.pair
        return Pinned(size, Phase.DEFAULT, f"{self.name}: always {size} at {watts:g} W", limit_watts=watts)

    def keep_going(self, state: JobSpec, trial: Trial, epochs: int, cost: float) -> bool:
        return epochs < state.max_epochs


@dataclass(frozen=True, slots=True)
class Search:
    """Policy state of a grid search."""

    job: JobSpec
    ahead: tuple[Pair, ...]  # pairs not tried yet
    costs: Mapping[Pair, float] = field(default_factory=dict)  # of the first run of each pair that reached the target
    failed: frozenset[int] = frozenset()  # sizes with a run that missed the target


@dataclass(frozen=True, slots=True)
class Grid:
    """Grid Search with Pruning (§6.1): try one (b, p) per recurrence, then always use the cheapest.

    If a run misses the target, its batch size leaves the grid with all its pairs. If no size is left, the pairs that
    reached the target are used again.
    """

    pairs: tuple[Pair, ...]
    name: str = "grid"
    version: int = 1
    monotone: bool = True

    def start(self, job: JobSpec) -> Search:
        return Search(job, self.pairs)

    def observe(self, state: Search, event: Event) -> Search:
        if not isinstance(event, Trial) or not isinstance(event.decision, Pinned):
            return state
        size, pair = event.batch_size, (event.batch_size, event.decision.limit_watts)
        if event.ending is Ending.OPEN:
            return replace(state, ahead=tuple(one for one in state.ahead if one != pair))
        cost = cost_of(event, state.job.eta_knob)
        if event.ending is not Ending.CONVERGED or cost is None:
            left = tuple(one for one in state.ahead if one[0] != size)
            return replace(state, ahead=left, failed=state.failed | {size})
        return replace(state, costs={pair: cost, **state.costs})

    def decide(self, state: Search, rng: Rng, ask: Ask) -> Decision:
        if state.ahead:
            size, watts = state.ahead[0]
            reason = f"grid: {size} at {watts:g} W, {len(state.ahead) - 1} more to try"
            return Pinned(size, Phase.PRUNING, reason, limit_watts=watts)
        usable = {pair: cost for pair, cost in state.costs.items() if pair[0] not in state.failed} or state.costs
        if not usable:  # nothing has reached the target yet: go through the grid again
            size, watts = self.pairs[ask.number % len(self.pairs)]
            reason = f"grid: {size} again, as no pair has reached the target yet"
            return Pinned(size, Phase.UNBOUNDED, reason, limit_watts=watts)
        size, watts = min(usable, key=lambda pair: (usable[pair], pair))
        return Pinned(size, Phase.UNBOUNDED, f"grid: {size} at {watts:g} W is the cheapest pair", limit_watts=watts)

    def keep_going(self, state: Search, trial: Trial, epochs: int, cost: float) -> bool:
        return epochs < state.job.max_epochs


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy to replay, how power limits are chosen, and whether failed runs are charged."""

    policy: Policy[Any]
    limits: Callable[[Workload, float], Limits] = JustInTime
    failures_charged: bool = True


def _grid(workload: Workload, eta: float, *, free: bool, from_default: bool) -> Contender:
    """Grid Search from the smallest size up, or from b0 down and then up."""
    pairs = workload.pairs
    if from_default:
        b0 = workload.default
        pairs = tuple(sorted(pairs, key=lambda pair: (pair[0] > b0, pair[0] if pair[0] > b0 else -pair[0])))
    return Contender(Grid(pairs, "grid-free" if free else "grid"), LimitFromPolicy, failures_charged=not free)


Maker: TypeAlias = Callable[[Workload, float], Contender]  # takes a workload and η

POLLUX: Final = "pollux"  # changes the batch size during a run, so `zeus.simulate.pollux` replays it

OWN: Final[dict[str, Maker]] = {
    "default": lambda workload, eta: Contender(Fixed("default", default_pair(workload)), LimitFromPolicy),
    **{
        f"grid{free}{order}": partial(_grid, free=bool(free), from_default=bool(order))
        for free in ("", "-free")
        for order in ("", ":from-default")
    },
    "oracle": lambda workload, eta: Contender(Fixed("oracle", best_pair(workload, eta)), LimitFromPolicy),
    "structured": lambda workload, eta: Contender(find_policy("structured"), WalkProfiling),
    "structured:no-alarm": lambda workload, eta: Contender(find_policy("structured:no-alarm"), WalkProfiling),
    "paper:no-jit": lambda workload, eta: Contender(find_policy("paper"), OneLimitPerRun),
}


def names() -> list[str]:
    return sorted({*OWN, POLLUX, *policy_names()})


def check(name: str) -> None:
    """Raise InputError unless a contender has this name, or the name is `module:Class` of a policy."""
    if name not in OWN and name != POLLUX:
        _policy(name)


def contender(name: str, workload: Workload, eta: float) -> Contender:
    if name == POLLUX:
        raise InputError(
            "pollux changes the batch size during a run and learns nothing between recurrences. Only `zeus simulate` "
            "can replay it."
        )
    return OWN[name](workload, eta) if name in OWN else Contender(_policy(name))


def _policy(name: str) -> Policy[Any]:
    """As `find_policy`. All names are only looked up if there is none of this one: that takes milliseconds."""
    try:
        return find_policy(name)
    except InputError:
        if is_path(name) or name in names():
            raise
        raise InputError(f"unknown policy {name!r}. {suggest(name, names())}") from None
