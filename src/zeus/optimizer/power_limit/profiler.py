"""The just-in-time profiler of §4.2, as a pure state machine: which limit is next, and when it is done.

    Waiting ──wait_steps──▶ Settling ──warm-up──▶ Measuring ──sure, or ceiling──▶ Settling (next limit) ... ──▶ Done

Steps are real training steps, which are cut into chunks at their boundaries. The profiler walks down from the starting
limit, then up if it did not start at the top. It leaves a direction once a limit is worse than the best so far by more
than θ beyond the noise. Limits of a stored profile are not measured again. At the end it measures those limits again
between which noise might decide. For the reasons of these rules and numbers, see docs/decisions/profiling-walk.md.

The numbers of a `Plan` say how far this goes. `zeus.optimizer.power_limit.plans` has the two sets of them that users
can choose: the walk, which is the default, and the paper's, in which nothing is left out or measured twice.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from zeus.errors import InputError
from zeus.optimizer.power_limit.selector import (
    MaxSlowdownConstraint,
    OptimumSelector,
    PowerLimitMeasurement,
    Scored,
    ZeusCost,
)
from zeus.profile import LimitSlice, PowerProfile

FREEDOM: Final = 4  # degrees of freedom below which the scatter of chunks is a guess; the first limit gathers them
PROFILE_STEPS: Final = 40  # most steps of one look, unless the user gives another number
SIGMAS: Final = 3  # noise beyond this many standard errors is ruled out
THETA: Final = 0.2  # measured curves are not convex: .05 loses up to 67 % on the published traces, .2 below 0.5 %


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how precisely."""

    limits: tuple[float, ...]  # highest first
    selector: OptimumSelector
    start_watts: float | None = None  # where to begin the walk; None: at the top
    wait_steps: int = 1
    warmup_steps: int = 10
    profile_steps: int = PROFILE_STEPS
    max_seconds: float = 5.0  # most time at one limit; profile_steps limits the steps of one visit
    min_seconds: float = 0.2  # least time of a visit: no sensor can measure less, however many steps it holds
    # The cost's relative standard error after the first visit; most limits are far off anyway. 0: never precise enough.
    tolerance: float = 0.02
    # Limits are measured again while noise might hide a saving of more than this share. inf: none is measured again.
    fine: float = 0.0075
    refine_seconds: float = 1.5  # or two steps, per limit on average: after that none is measured again
    settle_seconds: float = 0.1  # a GPU follows a new limit within this time; more warm-up steps are not needed
    theta: float = THETA  # how much worse than the best a limit must be to end the walk. inf: every limit is measured

    def __post_init__(self) -> None:
        if not self.limits or sorted(set(self.limits), reverse=True) != list(self.limits):
            raise InputError(f"power limits {self.limits!r}: give at least one, highest first, each once.")
        for name in ("wait_steps", "warmup_steps"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}={getattr(self, name)!r}: give 0 or more steps.")
        if self.profile_steps < 1:
            raise InputError(f"profile_steps={self.profile_steps!r}: give at least 1 step.")
        if isinstance(self.selector, ZeusCost) and self.selector.max_watts is None:
            own = copy.copy(self.selector)  # fixes MAXPOWER for all chunks without changing the user's selector
            own.max_watts = self.limits[0] * own.world_size
            object.__setattr__(self, "selector", own)
        elif isinstance(self.selector, Scored):
            self.selector.learn_max_watts(self.limits[0])  # the first chunk already needs a score


Known = Mapping[float, tuple[LimitSlice, ...]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """No limit is set yet, because the first steps of a training are slow."""

    plan: Plan
    known: Known
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Settling:
    """A new limit is in force, and the GPU is adapting to it."""

    plan: Plan
    known: Known
    limit: float
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Measuring:
    """Chunks of steps at this limit are being measured."""

    plan: Plan
    known: Known
    limit: float
    chunks: tuple[LimitSlice, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Done:
    """Profiling is over."""

    plan: Plan
    known: Known

    @property
    def profile(self) -> PowerProfile:
        """All that was measured, and which limits were skipped."""
        return so_far(self)

    @property
    def best_limit(self) -> float:
        return choose(self.plan.selector, self.known, self.plan.limits)


State = Waiting | Settling | Measuring | Done


def so_far(state: State) -> PowerProfile:
    """The limits that were measured, and which were not (yet). Looks that have not ended are left out."""
    return PowerProfile.of((s for chunks in state.known.values() for s in chunks), state.plan.limits)


def start(plan: Plan, known: Known | None = None) -> State:
    """The first state. It is `Done` if nothing is left to measure."""
    have = {w: s for w, s in (known or {}).items() if w in plan.limits}
    if next_limit(plan, have) is None:
        return Done(plan, have)
    return Waiting(plan, have) if plan.wait_steps else _next(plan, have, pace=0.0)


def step(state: State, seconds: float) -> State:
    """A training step that is not part of a chunk has ended."""
    match state:
        case Waiting(plan, known, steps):
            return replace(state, steps=steps + 1) if steps + 1 < plan.wait_steps else _next(plan, known, seconds)
        case Settling(plan, known, limit):
            now = replace(state, steps=state.steps + 1, seconds=state.seconds + seconds)
            settled = now.steps >= plan.warmup_steps or now.seconds >= plan.settle_seconds
            return Measuring(plan, known, limit) if settled else now
        case _:
            return state


def measured(state: State, chunk: LimitSlice) -> State:
    """A chunk of steps was measured. A chunk at another limit than the one in force is ignored."""
    if not isinstance(state, Measuring) or chunk.limit_watts != state.limit:
        return state
    now = replace(state, chunks=(*state.chunks, chunk))
    if not _enough(now):
        return now
    merged = (*state.known.get(state.limit, ()), *_settled(now))
    return _next(state.plan, {**state.known, state.limit: merged}, chunk.seconds / chunk.steps, in_force=state.limit)


def _next(plan: Plan, known: Known, pace: float, in_force: float | None = None) -> State:
    limit = next_limit(plan, known)
    if limit is None:
        return Done(plan, known)
    # Settling takes at most a quarter of so long a step, and the error favours a limit that costs nearly the same.
    if plan.warmup_steps == 0 or pace > 4 * plan.settle_seconds or limit == in_force:
        return Measuring(plan, known, limit)
    return Settling(plan, known, limit)


def _enough(state: Measuring) -> bool:
    plan, known = state.plan, state.known.get(state.limit, ())
    seconds, before = _seconds(state.chunks), _seconds(known)
    if seconds + before >= plan.max_seconds:
        return True
    if seconds < plan.min_seconds:
        return False
    if sum(c.steps for c in state.chunks) >= plan.profile_steps:
        return True
    if known:  # measured before: add half as much, because each change of the limit costs time to settle
        return seconds >= before / 2
    error, freedom = _error(plan.selector, state.known, _settled(state))
    return freedom >= FREEDOM and error < plan.tolerance


def _settled(state: Measuring) -> tuple[LimitSlice, ...]:
    """The chunks without the first ones, whose power has not yet settled to that of the later half."""
    early, late = state.chunks[: len(state.chunks) // 2], state.chunks[len(state.chunks) // 2 :]
    watts = fmean(c.watts for c in late)
    scatter, freedom = _scatter((*state.known.values(), late), lambda c: c.watts)
    if not freedom:  # two chunks alone do not show which of them is off, or whether it is noise
        return state.chunks
    for dropped, chunk in enumerate(early):
        if abs(chunk.watts - watts) <= max(SIGMAS * scatter / math.sqrt(chunk.steps), 0.03) * watts:
            return (*early[dropped:], *late)
    return late


# ---------------------------------------------------------------------------------------------------- the walk


def next_limit(plan: Plan, known: Known) -> float | None:
    """The limit to measure next, or None if no unmeasured limit can win."""
    limits = plan.limits
    if isinstance(plan.selector, MaxSlowdownConstraint) or plan.start_watts is None:
        begin = 0  # a slowdown is relative to the highest limit
    else:
        begin = min(range(len(limits)), key=lambda i: abs(limits[i] - (plan.start_watts or 0.0)))
    walked: dict[float, tuple[LimitSlice, ...]] = {}
    for way in (limits[begin:], limits[:begin][::-1]):
        for limit in way:
            if limit not in known:
                return limit
            walked[limit] = known[limit]
            if hopeless(plan, walked, limit):
                break
    return _unsure(plan, known)


def _unsure(plan: Plan, known: Known) -> float | None:
    """The limit to measure again, because noise may hide a better choice. None once that costs too much."""
    budget = sum(max(plan.refine_seconds, 2 * _time(chunks)) for chunks in known.values())
    if sum(_seconds(chunks) for chunks in known.values()) >= budget:
        return None
    doubt = {w: spread(plan.selector, known, chunks) for w, chunks in known.items()}
    worth = {w for w, chunks in known.items() if _seconds(chunks) < plan.max_seconds}
    hidden = {pair: SIGMAS * math.hypot(*(doubt[w] for w in pair)) - gap for pair, gap in _duels(plan, known).items()}
    most = max((pair for pair in hidden if worth.intersection(pair)), key=lambda pair: hidden[pair], default=None)
    if most is None or hidden[most] <= plan.fine:
        return None
    return max(worth.intersection(most), key=lambda w: doubt[w])


def _duels(plan: Plan, known: Known) -> dict[tuple[float, float], float]:
    """The pairs of limits between which the choice is made, and the relative gap of each pair."""
    match plan.selector:
        case MaxSlowdownConstraint(factor=factor):
            top, chosen = plan.limits[0], choose(plan.selector, known, plan.limits)
            bound = factor * _time(known[top])
            return {(w, top): abs(_time(known[w]) / bound - 1) for w in known if w <= chosen and w != top}
        case Scored() as selector:
            scores = {w: _score(selector, chunks) for w, chunks in known.items()}
            best = min(scores, key=lambda w: scores[w])
            return {(w, best): score / scores[best] - 1 for w, score in scores.items() if w != best and scores[best]}
        case _:
            return {}


def hopeless(plan: Plan, walked: Known, limit: float) -> bool:
    """Whether no limit beyond this one is worth measuring, given those walked over so far."""
    if math.isinf(plan.theta):
        return False
    match plan.selector:
        case MaxSlowdownConstraint(factor=factor):
            top = walked[plan.limits[0]]
            noise = math.hypot(*(spread(plan.selector, walked, chunks) for chunks in (walked[limit], top)))
            return _time(walked[limit]) / _time(top) * (1 - SIGMAS * noise) > factor
        case Scored() as selector:
            scores = {w: _score(selector, chunks) for w, chunks in walked.items()}
            best = min(scores, key=lambda w: scores[w])
            noise = math.hypot(*(spread(selector, walked, walked[w]) for w in (limit, best)))
            return scores[limit] > (1 + plan.theta + SIGMAS * noise) * scores[best]
        case _:
            return False  # a selector of the user's own may choose any limit


def choose(selector: OptimumSelector, known: Known, limits: Sequence[float]) -> float:
    """The selector's choice among the measured limits, compared per step."""
    rows = []
    for watts in limits:
        if chunks := known.get(watts):
            steps = sum(c.steps for c in chunks)
            energy, time = sum(c.joules for c in chunks) / steps, sum(c.seconds for c in chunks) / steps
            rows.append(PowerLimitMeasurement(int(watts) if float(watts).is_integer() else watts, energy, time))  # type: ignore[arg-type]
    return float(selector.select(rows))


def spread(selector: OptimumSelector, known: Known, chunks: Sequence[LimitSlice]) -> float:
    """Relative standard error of a limit's score per step; 0 if the scatter is not known."""
    return _error(selector, known, chunks)[0]


def _error(selector: OptimumSelector, known: Known, chunks: Sequence[LimitSlice]) -> tuple[float, int]:
    """The relative standard error, and the degrees of freedom of its estimate.

    Few chunks may agree by luck. With f degrees of freedom, Student's t allows about 1 + 3/f times the deviation of a
    normal distribution at 3 sigma.
    """
    scatter, freedom = _scatter((*known.values(), chunks), lambda c: _value(selector, c) / c.steps)
    return (1 + 3 / freedom) * scatter / math.sqrt(sum(c.steps for c in chunks)) if freedom else 0.0, freedom


def _scatter(groups: Iterable[Sequence[LimitSlice]], value: Callable[[LimitSlice], float]) -> tuple[float, int]:
    """Relative standard deviation of one step's value. It is pooled over all limits, because it depends on the job.

    Chunks are weighted by their steps, because they differ in length, and a stored profile holds a single sum.
    """
    squares, freedom = 0.0, 0
    for chunks in groups:
        mean = sum(value(c) * c.steps for c in chunks) / sum(c.steps for c in chunks)
        if mean > 0:  # a GPU that reports 0 W shows no scatter
            squares += sum(c.steps * (value(c) / mean - 1) ** 2 for c in chunks)
            freedom += len(chunks) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0, freedom


def _value(selector: OptimumSelector, chunk: LimitSlice) -> float:
    return selector.score(chunk.joules, chunk.seconds) if isinstance(selector, Scored) else chunk.seconds


def _score(selector: Scored, chunks: Sequence[LimitSlice]) -> float:
    steps = sum(c.steps for c in chunks)
    return selector.score(sum(c.joules for c in chunks), sum(c.seconds for c in chunks)) / steps


def _time(chunks: Sequence[LimitSlice]) -> float:
    return sum(c.seconds for c in chunks) / sum(c.steps for c in chunks)


def _seconds(chunks: Sequence[LimitSlice]) -> float:
    return sum(c.seconds for c in chunks)
