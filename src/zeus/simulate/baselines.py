"""What Zeus is compared with (§6.1, §6.7), and every contender of a replay by name.

A contender is a policy for the batch size and a way to choose power limits. A new one is a line in `OWN`; any policy
that jobs know (`find_policy`) is one already, with just-in-time profiling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from zeus.cost import Use
from zeus.errors import InputError, suggest
from zeus.job import Ask, Decision, Ending, Event, JobSpec, Phase, Trial
from zeus.policy.api import Policy
from zeus.policy.paper.state import cost_of
from zeus.policy.paper.thompson import Rng
from zeus.policy.registry import POLICIES, find_policy
from zeus.simulate.limit_plans import JustInTime, Limits, OneARun, Pinned, Told, Walked
from zeus.simulate.regret import best_pair
from zeus.simulate.workload import Workload

Pair: TypeAlias = tuple[int, float]  # (b, p)


def default(workload: Workload) -> Use:
    """Default: b0 at the highest limit, expected over its runs."""
    return workload.expected(*default_pair(workload))


def default_pair(workload: Workload) -> Pair:
    """(b0, MAXPOWER)."""
    return workload.default, workload.profiles[workload.default].slices[0].limit_watts


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same pair: Default, and the oracle."""

    name: str
    pair: Pair
    version: int = 1
    monotone: bool = True
    one_size: bool = True

    def start(self, job: JobSpec) -> JobSpec:
        """Nothing is ever learnt."""
        return job

    def observe(self, state: JobSpec, event: Event) -> JobSpec:
        """Nothing."""
        return state

    def decide(self, state: JobSpec, rng: Rng, ask: Ask) -> Decision:
        """The pair."""
        size, watts = self.pair
        return Pinned(size, Phase.DEFAULT, f"{self.name}: always {size} at {watts:g} W", limit_watts=watts)

    def keep_going(self, state: JobSpec, trial: Trial, epochs: int, cost: float) -> bool:
        """Until max_epochs."""
        return epochs < state.max_epochs


@dataclass(frozen=True, slots=True)
class Search:
    """How far a grid search is."""

    job: JobSpec
    ahead: tuple[Pair, ...]  # not yet handed out
    costs: Mapping[Pair, float] = field(default_factory=dict)  # of the first run of each pair that converged
    failed: frozenset[int] = frozenset()  # sizes of which a run missed the target


@dataclass(frozen=True, slots=True)
class Grid:
    """Grid Search with Pruning (§6.1): one (b, p) a recurrence, then for ever the one that cost least.

    A size of which a run misses the target leaves the grid, with all its pairs. If all leave, what converged stays.
    """

    pairs: tuple[Pair, ...]
    name: str = "grid"
    version: int = 1
    monotone: bool = True

    def start(self, job: JobSpec) -> Search:
        """The whole grid is ahead."""
        return Search(job, self.pairs)

    def observe(self, state: Search, event: Event) -> Search:
        """A pair was handed out, or its run ended."""
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
        """The next pair; with none ahead, the cheapest."""
        if state.ahead:
            size, watts = state.ahead[0]
            reason = f"grid: {size} at {watts:g} W, {len(state.ahead) - 1} pairs to go"
            return Pinned(size, Phase.PRUNING, reason, limit_watts=watts)
        usable = {pair: cost for pair, cost in state.costs.items() if pair[0] not in state.failed} or state.costs
        if not usable:  # nothing has reached the target: round and round
            size, watts = self.pairs[ask.number % len(self.pairs)]
            return Pinned(size, Phase.UNBOUNDED, f"grid: {size} again, nothing has converged yet", limit_watts=watts)
        size, watts = min(usable, key=lambda pair: (usable[pair], pair))
        return Pinned(size, Phase.UNBOUNDED, f"grid: {size} at {watts:g} W cost least", limit_watts=watts)

    def keep_going(self, state: Search, trial: Trial, epochs: int, cost: float) -> bool:
        """Until max_epochs."""
        return epochs < state.job.max_epochs


@dataclass(frozen=True, slots=True)
class Contender:
    """What can be replayed: who decides, how limits are chosen, and whether runs that fail are charged."""

    policy: Policy[Any]
    limits: Callable[[Workload, float], Limits] = JustInTime
    failures_charged: bool = True


Maker: TypeAlias = Callable[[Workload, float], Contender]  # of a workload and η

POLLUX: Final = "pollux"  # no contender for a batch size held for a run; replayed by `zeus.simulate.pollux`

OWN: Final[dict[str, Maker]] = {
    "default": lambda workload, eta: Contender(Fixed("default", default_pair(workload)), Told),
    "grid": lambda workload, eta: Contender(Grid(workload.pairs), Told),
    "grid-free": lambda workload, eta: Contender(Grid(workload.pairs, "grid-free"), Told, failures_charged=False),
    "oracle": lambda workload, eta: Contender(Fixed("oracle", best_pair(workload, eta)), Told),
    "structured": lambda workload, eta: Contender(find_policy("structured"), Walked),
    "structured:no-alarm": lambda workload, eta: Contender(find_policy("structured:no-alarm"), Walked),
    "paper:no-jit": lambda workload, eta: Contender(find_policy("paper"), OneARun),
}


def names() -> list[str]:
    """Everything that can be replayed."""
    return sorted({*OWN, POLLUX, *(name for name, _ in POLICIES)})


def check(name: str) -> None:
    """Raises InputError unless there is such a contender."""
    if name not in names():
        raise InputError(f"policy {name!r} is not known. {suggest(name, names())}")


def contender(name: str, workload: Workload, eta: float) -> Contender:
    """The contender of this name, for this workload."""
    check(name)
    if name == POLLUX:
        raise InputError(
            "pollux changes the batch size while it trains and learns nothing from one recurrence to the next: it can "
            "be replayed by `zeus simulate` alone (`zeus.simulate.pollux`)."
        )
    return OWN[name](workload, eta) if name in OWN else Contender(find_policy(name))
