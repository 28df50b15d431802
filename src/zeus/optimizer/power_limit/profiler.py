"""The just-in-time profiler of §4.2 as a pure state machine: which limit next, and when enough is known.

    Waiting ──wait_steps──▶ Settling ──warm-up──▶ Measuring ──sure, or ceiling──▶ Settling (next limit) ... ──▶ Done

Steps are real training steps; the profiler only cuts them into chunks at their boundaries. It walks from the starting
limit down, then (if it did not start at the top) up, and leaves a direction once a limit is worse than the best so far
by more than θ beyond the noise. What is already known (a stored profile) is walked over without measuring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from zeus.errors import InputError
from zeus.optimizer.power_limit.selector import (
    MaxSlowdownConstraint,
    OptimumSelector,
    PowerLimitMeasurement,
    Scored,
)
from zeus.profile import PowerProfile, Slice


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure and how well."""

    limits: tuple[float, ...]  # highest first
    selector: OptimumSelector
    start_watts: float | None = None  # where to begin the walk; None: at the top
    wait_steps: int = 1
    warmup_steps: int = 10
    profile_steps: int = 40
    max_seconds: float = 5.0  # ceiling of the time at one limit, as is profile_steps of the steps
    min_seconds: float = 0.2  # floor: less than this no sensor can measure, however many steps it holds
    tolerance: float = 0.015  # relative standard error of the cost at which a limit is known well enough
    fine: float = 0.005  # the same for the last few, between which noise might decide
    refine_seconds: float = 1.0  # per limit on average: once all of them took this long, none is looked at again
    settle_seconds: float = 0.1  # a card follows a new limit within this; warm-up steps beyond it are not needed
    theta: float = 0.2  # measured curves are not convex: .05 loses up to 67 % on the published traces, .2 below 0.5 %

    def __post_init__(self) -> None:
        if not self.limits or sorted(set(self.limits), reverse=True) != list(self.limits):
            raise InputError(f"power limits {self.limits!r}: give at least one, highest first, each once.")
        for name in ("wait_steps", "warmup_steps"):
            if getattr(self, name) < 0:
                raise InputError(f"{name}={getattr(self, name)!r}: give 0 or more steps.")
        if self.profile_steps < 1:
            raise InputError(f"profile_steps={self.profile_steps!r}: give at least 1 step.")


Known = Mapping[float, tuple[Slice, ...]]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is touched yet: the first steps are slow in ways of their own."""

    plan: Plan
    known: Known
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Settling:
    """A limit is in force and the card is getting used to it."""

    plan: Plan
    known: Known
    limit: float
    pace: float  # seconds per step, as last seen
    steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Measuring:
    """Chunks of steps under this limit are being measured."""

    plan: Plan
    known: Known
    limit: float
    chunks: tuple[Slice, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Done:
    """Enough is known."""

    plan: Plan
    known: Known

    @property
    def profile(self) -> PowerProfile:
        """Everything measured, and the limits left out."""
        return PowerProfile.of((s for chunks in self.known.values() for s in chunks), self.plan.limits)

    @property
    def best_limit(self) -> float:
        """The selector's choice."""
        return choose(self.plan.selector, self.known, self.plan.limits)


State = Waiting | Settling | Measuring | Done


def start(plan: Plan, known: Known | None = None) -> State:
    """Begin; with everything needed known already, the beginning is the end."""
    have = {w: s for w, s in (known or {}).items() if w in plan.limits}
    if next_limit(plan, have) is None:
        return Done(plan, have)
    return Waiting(plan, have) if plan.wait_steps else _next(plan, have, pace=0.0)


def step(state: State, seconds: float) -> State:
    """One training step has ended that was not part of a chunk."""
    match state:
        case Waiting(plan, known, steps):
            return replace(state, steps=steps + 1) if steps + 1 < plan.wait_steps else _next(plan, known, seconds)
        case Settling(plan, known, limit):
            now = replace(state, steps=state.steps + 1, seconds=state.seconds + seconds, pace=seconds)
            settled = now.steps >= plan.warmup_steps or now.seconds >= plan.settle_seconds
            return Measuring(plan, known, limit) if settled else now
        case _:
            return state


def measured(state: State, chunk: Slice) -> State:
    """A chunk of steps was measured under the limit in force; a chunk of another limit is passed over."""
    if not isinstance(state, Measuring) or chunk.limit_watts != state.limit:
        return state
    now = replace(state, chunks=(*state.chunks, chunk))
    if not _enough(now):
        return now
    merged = (*state.known.get(state.limit, ()), *_settled(now))
    return _next(state.plan, {**state.known, state.limit: merged}, pace=chunk.seconds / chunk.steps)


def _next(plan: Plan, known: Known, pace: float) -> State:
    limit = next_limit(plan, known)
    if limit is None:
        return Done(plan, known)
    if plan.warmup_steps == 0 or pace > 4 * plan.settle_seconds:  # in so long a step the settling hardly shows
        return Measuring(plan, known, limit)
    return Settling(plan, known, limit, pace)


def _enough(state: Measuring) -> bool:
    plan, chunks = state.plan, state.chunks
    seconds = sum(c.seconds for c in chunks)
    if seconds >= plan.max_seconds:
        return True
    if seconds < plan.min_seconds:
        return False
    if sum(c.steps for c in chunks) >= plan.profile_steps:
        return True
    if state.limit in state.known:  # looked at again: a little more each time
        return True
    kept = _settled(state)
    return len(kept) >= 3 and spread(plan.selector, state.known, kept) <= plan.tolerance


def _settled(state: Measuring) -> tuple[Slice, ...]:
    """Without the first chunks, as long as their power is still on its way to that of the rest; at most half go."""
    chunks = state.chunks
    for drop in range(len(chunks) // 2):
        rest = chunks[drop + 1 :]
        watts = fmean(c.watts for c in rest)
        noise = stdev(c.watts for c in rest) if len(rest) > 1 else 0.0
        if abs(chunks[drop].watts - watts) <= max(3 * noise, 0.03 * watts):
            return chunks[drop:]
    return chunks[len(chunks) // 2 :]


# ---------------------------------------------------------------------------------------------------- the walk


def next_limit(plan: Plan, known: Known) -> float | None:
    """The limit to measure next, None when nothing that is unmeasured can win any more."""
    limits = plan.limits
    if isinstance(plan.selector, MaxSlowdownConstraint) or plan.start_watts is None:
        begin = 0  # a slowdown is against the top
    else:
        begin = min(range(len(limits)), key=lambda i: abs(limits[i] - (plan.start_watts or 0.0)))
    walked: dict[float, tuple[Slice, ...]] = {}
    for way in (limits[begin:], limits[:begin][::-1]):
        for limit in way:
            if limit not in known:
                return limit
            walked[limit] = known[limit]
            if hopeless(plan, walked, limit):
                break
    return _unsure(plan, known)


def _unsure(plan: Plan, known: Known) -> float | None:
    """A limit between which and the best so far noise might decide, to be looked at again while that is cheap."""
    if sum(c.seconds for chunks in known.values() for c in chunks) >= plan.refine_seconds * len(known):
        return None
    doubt = {w: spread(plan.selector, known, chunks) for w, chunks in known.items()}
    rivals = [w for w in _rivals(plan, known, doubt) if sum(c.seconds for c in known[w]) < plan.max_seconds]
    worst = max(rivals, key=lambda w: doubt[w], default=None)
    return worst if worst is not None and doubt[worst] > plan.fine else None


def _rivals(plan: Plan, known: Known, doubt: Mapping[float, float]) -> list[float]:
    match plan.selector:
        case MaxSlowdownConstraint(factor=factor):
            top = plan.limits[0]
            ratio = {w: _time(chunks) / _time(known[top]) / factor for w, chunks in known.items()}
            close = [w for w in known if w != top and abs(ratio[w] - 1) < 3 * math.hypot(doubt[w], doubt[top])]
            return [top, *close] if close else []
        case Scored() as selector:
            scores = {w: _score(selector, chunks) for w, chunks in known.items()}
            best = min(scores, key=lambda w: scores[w])
            close = [w for w in known if scores[w] < scores[best] * (1 + 3 * math.hypot(doubt[w], doubt[best]))]
            return close if len(close) > 1 else []
        case _:
            return []


def hopeless(plan: Plan, walked: Known, limit: float) -> bool:
    """Whether nothing beyond this limit is worth a look, after those walked over so far."""
    match plan.selector:
        case MaxSlowdownConstraint(factor=factor):
            top = walked[plan.limits[0]]
            noise = math.hypot(*(spread(plan.selector, walked, chunks) for chunks in (walked[limit], top)))
            return _time(walked[limit]) / _time(top) * (1 - 2 * noise) > factor
        case Scored() as selector:
            selector.learn_max_watts(plan.limits[0])
            scores = {w: _score(selector, chunks) for w, chunks in walked.items()}
            best = min(scores, key=lambda w: scores[w])
            noise = math.hypot(*(spread(selector, walked, walked[w]) for w in (limit, best)))
            return scores[limit] > (1 + plan.theta + noise) * scores[best]
        case _:
            return False  # a selector of the user's own wants to see everything


def choose(selector: OptimumSelector, known: Known, limits: Sequence[float]) -> float:
    """The selector's choice among what was measured, on equal work."""
    rows = []
    for watts in limits:
        if chunks := known.get(watts):
            steps = sum(c.steps for c in chunks)
            energy, time = sum(c.joules for c in chunks) / steps, sum(c.seconds for c in chunks) / steps
            rows.append(PowerLimitMeasurement(int(watts) if float(watts).is_integer() else watts, energy, time))  # type: ignore[arg-type]
    return float(selector.select(rows))


def spread(selector: OptimumSelector, known: Known, chunks: Sequence[Slice]) -> float:
    """Relative standard error of a limit's score per step.

    How much chunks scatter is a property of the job more than of the limit, and three of them may agree by luck: the
    scatter is pooled over all limits.
    """
    squares, freedom = 0.0, 0
    for group in (*known.values(), chunks):
        values = [_value(selector, c) / c.steps for c in group]
        mean = fmean(values)
        squares += sum((v / mean - 1) ** 2 for v in values)
        freedom += len(values) - 1
    return math.sqrt(squares / freedom / len(chunks)) if freedom else 0.0


def _value(selector: OptimumSelector, chunk: Slice) -> float:
    return selector.score(chunk.joules, chunk.seconds) if isinstance(selector, Scored) else chunk.seconds


def _score(selector: Scored, chunks: Sequence[Slice]) -> float:
    steps = sum(c.steps for c in chunks)
    return selector.score(sum(c.joules for c in chunks), sum(c.seconds for c in chunks)) / steps


def _time(chunks: Sequence[Slice]) -> float:
    return sum(c.seconds for c in chunks) / sum(c.steps for c in chunks)
