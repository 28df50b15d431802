"""The just-in-time profiler of §4.2, as a pure state machine: which limit is next, and when it is done.

    Waiting ──wait_steps──▶ Settling ──warm-up──▶ Measuring ──sure, or ceiling──▶ Settling (next limit) ... ──▶ Done

Steps are real training steps, which are cut into chunks at their boundaries. The profiler walks down from the starting
limit, then up if it did not start at the top. It leaves a direction once a limit is worse than the best so far by more
than θ beyond the noise. Limits of a stored profile are not measured again. At the end it measures those limits again
between which noise might decide. For the reasons of these rules and numbers, see docs/decisions.md#profiling-walk.

The numbers of a `Plan` say how far this goes. Users can choose between two sets of them: the walk, which is the
default, and the paper's.

| | walk | paper (§4.2 and §5) |
|---|---|---|
| which limits | from limit to limit, until one is worse than the best by more than θ | all |
| how long a look | until the cost is known to 2 %, at least 0.2 s | five seconds |
| a second look | if noise may hide a better limit | none |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from zeus.errors import InputError
from zeus.optimizer.power_limit.selector import (
    MaxSlowdownConstraint,
    OptimumSelector,
    PowerLimitMeasurement,
    Scored,
)
from zeus.profile import LimitSlice, PowerProfile, pooled_scatter, whole

FREEDOM: Final = 4  # degrees of freedom below which the scatter of chunks is a guess; the first limit gathers them
PAPER_SECONDS: Final = 5.0  # at each limit (§5)
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
        if isinstance(self.selector, Scored):
            object.__setattr__(self, "selector", self.selector.with_highest(self.limits[0]))

    def of_paper(self) -> Plan:
        """The paper's plan for the same limits.

        `profile_steps` ends a look after so many steps, but not before 0.2 s, unless it is 40, the default: then a look
        takes five seconds, however many steps these are.
        """
        least = PAPER_SECONDS if self.profile_steps == PROFILE_STEPS else self.min_seconds
        return replace(self, min_seconds=least, max_seconds=PAPER_SECONDS, tolerance=0.0, fine=math.inf, theta=math.inf)


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


def wanted_limit(state: State | None) -> float | None:
    """The limit that must be in force in this state, or None if any may be."""
    return state.limit if isinstance(state, Settling | Measuring) else None


def cut_short(state: State) -> str:
    """What to say of a training that ended in this state."""
    known, limits = len(state.known), len(state.plan.limits)
    return f"the training ended during profiling, with {known} of {limits} limits measured"


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
    merged = (*state.known.get(state.limit, ()), *now.chunks)
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
    all_chunks = {**state.known, state.limit: state.chunks}
    freedom = sum(len(chunks) - 1 for chunks in all_chunks.values())
    return freedom >= FREEDOM and _errors(plan.selector, all_chunks)[state.limit] < plan.tolerance


# ---------------------------------------------------------------------------------------------------- the walk


def next_limit(plan: Plan, known: Known) -> float | None:
    """The limit to measure next, or None if no unmeasured limit can win."""
    limits = plan.limits
    if isinstance(plan.selector, MaxSlowdownConstraint) or plan.start_watts is None:
        begin = 0  # a slowdown is relative to the highest limit
    else:
        begin = min(range(len(limits)), key=lambda i: abs(limits[i] - (plan.start_watts or 0.0)))
    costs = {w: _cost(plan.selector, chunks) for w, chunks in known.items()}
    errors = _errors(plan.selector, known)
    walked: dict[float, float] = {}
    for way in (limits[begin:], limits[:begin][::-1]):
        for limit in way:
            if limit not in known:
                return limit
            walked[limit] = costs[limit]
            if _is_hopeless(plan, walked, errors, limit):
                break
    return _unsure(plan, known, costs, errors)


def _is_hopeless(plan: Plan, walked: Mapping[float, float], errors: Mapping[float, float], limit: float) -> bool:
    """Whether no limit beyond this one is worth measuring, given the costs of those walked over so far."""
    if math.isinf(plan.theta):
        return False
    rival, excess = _excess(plan, walked)
    worse = plan.theta if isinstance(plan.selector, Scored) else 0.0
    return excess.get(limit, 0.0) > worse + SIGMAS * math.hypot(errors[limit], errors[rival])


def _unsure(plan: Plan, known: Known, costs: Mapping[float, float], errors: Mapping[float, float]) -> float | None:
    """The limit to measure again, because noise may hide a better choice. None once that costs too much."""
    budget = sum(max(plan.refine_seconds, 2 * _seconds(chunks) / _steps(chunks)) for chunks in known.values())
    if sum(map(_seconds, known.values())) >= budget:
        return None
    worth = {w for w, chunks in known.items() if _seconds(chunks) < plan.max_seconds}
    rival, excess = _excess(plan, costs)
    hidden = {w: SIGMAS * math.hypot(errors[w], errors[rival]) - abs(x) for w, x in excess.items() if w != rival}
    most = max((w for w in hidden if worth & {w, rival}), key=lambda w: hidden[w], default=None)
    if most is None or hidden[most] <= plan.fine:
        return None
    return max(worth & {most, rival}, key=lambda w: errors[w])


def _excess(plan: Plan, costs: Mapping[float, float]) -> tuple[float, dict[float, float]]:
    """By which share a limit costs more than the best one, or takes longer than the constraint allows.

    Returns the limit that the others are compared with, and the excess of all between which the choice is made.
    """
    match plan.selector:
        case MaxSlowdownConstraint(factor=factor):
            top = plan.limits[0]
            excess = {w: cost / (factor * costs[top]) - 1 for w, cost in costs.items()}
            chosen = min(w for w, x in excess.items() if x <= 0)
            return top, {w: x for w, x in excess.items() if w <= chosen}
        case Scored():
            best = min(costs, key=lambda w: costs[w])
            return best, {w: cost / costs[best] - 1 if costs[best] else float(cost > 0) for w, cost in costs.items()}
    return next(iter(costs)), {}  # a selector of the user's own may choose any limit


def choose(selector: OptimumSelector, known: Known, limits: Sequence[float]) -> float:
    """The selector's choice among the measured limits, compared per step."""
    rows = []
    for watts in limits:
        if chunks := known.get(watts):
            energy, time = sum(c.joules for c in chunks) / _steps(chunks), _seconds(chunks) / _steps(chunks)
            rows.append(PowerLimitMeasurement(whole(watts), energy, time))  # type: ignore[arg-type]
    return float(selector.select(rows))


def _cost(selector: OptimumSelector, chunks: Sequence[LimitSlice]) -> float:
    """What the selector minimises, per step: its score, or else the time."""
    seconds = _seconds(chunks)
    score = selector.score(sum(c.joules for c in chunks), seconds) if isinstance(selector, Scored) else seconds
    return score / _steps(chunks)


def _errors(selector: OptimumSelector, known: Known) -> dict[float, float]:
    """The relative standard error of the cost at each limit; 0 if the scatter is not known.

    The scatter of one step's cost is pooled over all limits, because it depends on the job. Few chunks may agree by
    luck. With f degrees of freedom, Student's t allows about 1 + 3/f times the deviation of a normal distribution at
    3 sigma.
    """
    scatter, freedom = pooled_scatter(known.values(), lambda chunk: _cost(selector, (chunk,)))
    wide = (1 + 3 / freedom) * scatter if freedom else 0.0
    return {w: wide / math.sqrt(_steps(chunks)) for w, chunks in known.items()}


def _seconds(chunks: Sequence[LimitSlice]) -> float:
    return sum(c.seconds for c in chunks)


def _steps(chunks: Sequence[LimitSlice]) -> int:
    return sum(c.steps for c in chunks)
