"""At which power limits a replayed run goes, and what its epochs use there.

A real run finds its limit while it trains (§4.2), whatever chose its batch size. So here too: a policy decides the
batch size, and one of these says how that run is charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

from zeus.cost import Use, fits
from zeus.errors import InputError
from zeus.job import Decision
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate.workload import Workload

THETA = 0.2  # the profiler's (docs/decisions/profiling-walk.md)


class LimitPlan(NamedTuple):
    """The epochs of one run: the first, and each one after it, which are at this limit."""

    first: Use
    rest: Use
    limit_watts: float
    profiles: bool = False  # whether the first epoch teaches something


class Limits(Protocol):
    """How limits are chosen in one replay; it remembers what was profiled."""

    def plan(self, decision: Decision) -> LimitPlan:
        """A run with this batch size is about to begin."""

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        """The first epoch of a plan that profiles is over. What an epoch is now known to use; None: not known yet."""


class JustInTime:
    """§4.2: all limits take their turn in the first epoch of a new size; the others run at the best (Equation 7)."""

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
        """Profiling first, if this size is new."""
        return self._plans[decision.batch_size]

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        """The whole profile at once."""
        size = decision.batch_size
        if self._plans[size] is self._later[size]:  # a run beside this one was there first
            return None
        self._plans[size] = self._later[size]
        return plan.rest


class Walked:
    """The profiler's walk, without noise: it begins at the best limit of the nearest size profiled before.

    The epoch is cut into as many slices as there are limits. Each limit that is walked over takes one, as it would if
    all took their turn; what is left of the epoch runs at the best of them.
    """

    def __init__(self, workload: Workload, eta: float, theta: float = THETA) -> None:
        self._profiles = workload.profiles
        self._model = eta, workload.max_watts
        self._theta = theta
        self._plans: dict[int, LimitPlan] = {}

    def plan(self, decision: Decision) -> LimitPlan:
        """Profiling first, if this size is new."""
        size = decision.batch_size
        known = self._plans.get(size)
        if known is not None:
            return known
        near = min(self._plans, key=lambda other: (abs(math.log(other / size)), other), default=None)
        start = None if near is None else self._plans[near].limit_watts
        return walk(self._profiles[size], *self._model, start, self._theta)

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        """Those limits that were walked over."""
        if decision.batch_size in self._plans:  # a run beside this one was there first
            return None
        self._plans[decision.batch_size] = LimitPlan(plan.rest, plan.rest, plan.limit_watts)
        return plan.rest


@lru_cache(maxsize=4096)
def walk(profile: PowerProfile, eta: float, max_watts: float, start: float | None, theta: float = THETA) -> LimitPlan:
    """How a run of a new size goes whose walk begins at this limit (None: at the top)."""
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


class OneARun:
    """Without just-in-time profiling (§6.7): each run of a size tries one more limit, highest first, then the best.

    A limit of which not even one epoch fits under the bound is passed over.
    """

    def __init__(self, workload: Workload, eta: float) -> None:
        self._cost = workload.cost_model(eta)
        self._profiles = workload.profiles
        self._tried: dict[int, set[float]] = {size: set() for size in workload.sizes}

    def plan(self, decision: Decision) -> LimitPlan:
        """The next limit to try, or the best of those tried."""
        slices = self._profiles[decision.batch_size].slices
        tried = self._tried[decision.batch_size]
        for one in slices:
            if one.limit_watts not in tried and fits(self._price(one), decision.cost_limit):
                return LimitPlan(_use(one), _use(one), one.limit_watts, profiles=True)
        best = min([one for one in slices if one.limit_watts in tried] or slices, key=self._price)
        return LimitPlan(_use(best), _use(best), best.limit_watts)

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        """One limit; the best is known when all have been tried."""
        slices, tried = self._profiles[decision.batch_size].slices, self._tried[decision.batch_size]
        tried.add(plan.limit_watts)
        return _use(min(slices, key=self._price)) if len(tried) == len(slices) else None

    def _price(self, one: LimitSlice) -> float:
        return self._cost.cost(one.joules, one.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned(Decision):
    """A decision that names the power limit too."""

    limit_watts: float


class Told:
    """The policy names the limit with the batch size (`Pinned`); there is nothing to profile."""

    def __init__(self, workload: Workload, eta: float) -> None:
        self._plans = {
            (size, one.limit_watts): LimitPlan(_use(one), _use(one), one.limit_watts)
            for size in workload.sizes
            for one in workload.profiles[size].slices
        }

    def plan(self, decision: Decision) -> LimitPlan:
        """As it was decided."""
        if not isinstance(decision, Pinned):
            raise InputError(f"{decision}: no power limit is named. Replay this policy with just-in-time profiling.")
        return self._plans[decision.batch_size, decision.limit_watts]

    def learn(self, decision: Decision, plan: LimitPlan) -> Use | None:
        """Never asked."""
        return None


def _use(one: LimitSlice) -> Use:
    return Use(one.joules, one.seconds)
