"""The power limits of a replayed run, and what its epochs use at them.

A real run finds its power limit while it trains (§4.2), whichever policy chose its batch size. A replay works the same
way: the policy chooses the batch size, and one of these classes says what the epochs of the run use.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, Protocol

from zeus.cost import Use, fits
from zeus.errors import InputError
from zeus.job import Decision
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.profiler import THETA
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate.workload import Workload


class LimitPlan(NamedTuple):
    """What the first epoch of a run uses, and what each later epoch uses at the chosen limit."""

    first: Use
    rest: Use
    limit_watts: float
    profiles: bool = False  # whether the first epoch profiles power limits


class Limits(Protocol):
    """A way to choose power limits. It remembers what was profiled in one replay."""

    def plan(self, decision: Decision) -> LimitPlan:
        """The plan of a run that is about to begin."""

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        """Record that the first epoch of a profiling run has ended.

        Return what an epoch of this batch size uses, or None if that is not known yet or was known before.
        """


class JustInTime:
    """§4.2: the first epoch of a new size profiles all limits; later epochs run at the best one (Equation 7).

    This is `profiling = "paper"` with slices of equal shares of an epoch in place of five seconds each.
    """

    def __init__(self, workload: Workload, eta: float) -> None:
        self._first: dict[int, LimitPlan] = {}
        self._later: dict[int, LimitPlan] = {}
        for size in workload.sizes:
            best = workload.best_epoch(size, eta)
            use = Use(best.joules, best.seconds)
            self._first[size] = LimitPlan(workload.profiling_epoch(size), use, best.limit_watts, profiles=True)
            self._later[size] = LimitPlan(use, use, best.limit_watts)
        self._plans = dict(self._first)

    def plan(self, decision: Decision) -> LimitPlan:
        return self._plans[decision.batch_size]

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        size = decision.batch_size
        if self._plans[size] is self._later[size]:  # a concurrent run has profiled it already
            return None
        self._plans[size] = self._later[size]
        return plan.rest


class WalkProfiling:
    """`profiling = "walk"`, without noise. It starts at the best limit of the nearest profiled size.

    The first epoch is cut into as many slices as there are limits. Each limit on the walk takes one slice. The rest of
    the epoch runs at the best limit found.
    """

    def __init__(self, workload: Workload, eta: float, theta: float = THETA) -> None:
        self._profiles = workload.profiles
        self._model = eta, workload.max_watts
        self._theta = theta
        self._plans: dict[int, LimitPlan] = {}

    def plan(self, decision: Decision) -> LimitPlan:
        size = decision.batch_size
        known = self._plans.get(size)
        if known is not None:
            return known
        near = min(self._plans, key=lambda other: (abs(math.log(other / size)), other), default=None)
        start = None if near is None else self._plans[near].limit_watts
        return walk(self._profiles[size], *self._model, start, self._theta)

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        if decision.batch_size in self._plans:  # a concurrent run has profiled it already
            return None
        self._plans[decision.batch_size] = LimitPlan(plan.rest, plan.rest, plan.limit_watts)
        return plan.rest


@lru_cache(maxsize=4096)
def walk(profile: PowerProfile, eta: float, max_watts: float, start: float | None, theta: float = THETA) -> LimitPlan:
    """The plan of a run of a new size whose walk starts at this limit. None means the highest limit."""
    job = profiler.Plan(profile.limits, ZeusCost(eta, max_watts=max_watts), start, theta=theta)
    known: dict[float, tuple[LimitSlice, ...]] = {}
    while (limit := profiler.next_limit(job, known)) is not None:
        known[limit] = (profile.at(limit),)
    best = profile.at(profiler.choose(job.selector, known, job.limits))
    share, left = 1 / len(job.limits), 1 - len(known) / len(job.limits)
    first = Use(
        share * sum(one.joules for (one,) in known.values()) + left * best.joules,
        share * sum(one.seconds for (one,) in known.values()) + left * best.seconds,
    )
    return LimitPlan(first, _use(best), best.limit_watts, profiles=True)


class OneLimitPerRun:
    """No just-in-time profiling (§6.7): each run of a size tries one more limit, highest first. Then the best is used.

    A limit is skipped if not even one epoch at it fits under the cost limit of the trial.
    """

    def __init__(self, workload: Workload, eta: float) -> None:
        self._cost = workload.cost_model(eta)
        self._profiles = workload.profiles
        self._tried: dict[int, set[float]] = {size: set() for size in workload.sizes}

    def plan(self, decision: Decision) -> LimitPlan:
        slices = self._profiles[decision.batch_size].slices
        tried = self._tried[decision.batch_size]
        for one in slices:
            if one.limit_watts not in tried and fits(self._price(one), decision.cost_limit):
                return LimitPlan(_use(one), _use(one), one.limit_watts, profiles=True)
        best = min([one for one in slices if one.limit_watts in tried] or slices, key=self._price)
        return LimitPlan(_use(best), _use(best), best.limit_watts)

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        slices, tried = self._profiles[decision.batch_size].slices, self._tried[decision.batch_size]
        tried.add(plan.limit_watts)
        return _use(min(slices, key=self._price)) if len(tried) == len(slices) else None

    def _price(self, one: LimitSlice) -> float:
        return self._cost.cost(one.joules, one.seconds)


class Pinned(Decision, frozen=True, kw_only=True):
    """A decision that also names the power limit."""

    limit_watts: float


class LimitFromPolicy:
    """The policy chooses the power limit too (`Pinned`), so nothing is profiled."""

    def __init__(self, workload: Workload, eta: float) -> None:
        self._plans = {
            (size, one.limit_watts): LimitPlan(_use(one), _use(one), one.limit_watts)
            for size in workload.sizes
            for one in workload.profiles[size].slices
        }

    def plan(self, decision: Decision) -> LimitPlan:
        if not isinstance(decision, Pinned):
            raise InputError(f"{decision}: the policy names no power limit. Replay it with just-in-time profiling.")
        return self._plans[decision.batch_size, decision.limit_watts]

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        return None


def _use(one: LimitSlice) -> Use:
    return Use(one.joules, one.seconds)
