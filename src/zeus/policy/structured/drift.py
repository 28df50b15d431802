"""What runs taught about Epochs(b), and the alarm that says that it has changed.

A run that converged is a full lesson: the log of its epochs, up to the noise between runs. A run that was stopped is a
soft one: it needed more, how much is not known. Each full lesson of a size that is known well is compared with what was
expected when the run was launched; a row of surprises to one side rings the alarm:

    z = (seen - expected) / deviation     up = max(0, up + z - slack)     down = max(0, down - z - slack)

When either is above the threshold, all that was learnt before its rise began is worth less from then on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from zeus.policy.structured.curve import EPOCHS, Belief, learn, prior

GUESS, GUESS_WEIGHT = 0.15, 2.0  # noise between runs, in log epochs, before any is seen twice; worth so many runs
OWN_GUESS, OWN_POOLED = 0.5, 1.0  # runs that the guess and the pooled noise are worth for the noise of one size
SLACK, THRESHOLD, CLIP = 0.25, 8.0, 4.0  # of the alarm, in deviations: a false one in 300 to 400 recurrences
CHANGE = 0.3  # variance that a change adds to what was learnt before it
OLDEST = 6  # alarms after which a lesson is forgotten


Value = TypeVar("Value")


def altered(one: Value, **fields: Any) -> Value:
    """`dataclasses.replace` for values that check nothing, without its ten microseconds: an ask makes ten of them."""
    made = object.__new__(type(one))
    seen = one.__dict__
    made.__dict__.update({name: seen[name] for name in type(one).__dataclass_fields__})  # type: ignore[attr-defined]
    made.__dict__.update(fields)
    return made


@dataclass(frozen=True, slots=True)
class Lesson:
    """One run of a size (by index) needed e^log_epochs epochs; or (soft) seems to, with this variance."""

    arm: int
    log_epochs: float
    soft: float = 0.0


@dataclass(frozen=True, slots=True)
class Sum:
    """Lessons of one kind: how many, their mean, the squares about it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> Sum:
        """One more."""
        count, off = self.count + 1, value - self.mean
        mean = self.mean + off / count
        return Sum(count, mean, self.squares + off * (value - mean))


Kind: TypeAlias = tuple[int, float, int]  # size, softness, alarms since


@dataclass(frozen=True)
class Lessons:
    """All that runs taught. A value: `add` gives a new one, at a cost that does not grow with the history."""

    sizes: tuple[int, ...]
    default: int
    window: int = 0  # a size's so many most recent lessons count; 0: all
    old: Mapping[Kind, Sum] = field(default_factory=dict)
    recent: tuple[Lesson, ...] = ()  # since the first rise still under way; with a window, all that count
    up: float = 0.0
    down: float = 0.0
    alarms: int = 0
    threshold: float = THRESHOLD
    up_since: int = 0  # how many of `recent` came before the rise
    down_since: int = 0

    @cached_property
    def _sums(self) -> dict[Kind, Sum]:
        return _collect(self.old, self.recent)

    @cached_property
    def _seen(self) -> dict[int, tuple[int, float, int]]:
        """Of each size that converged: how often, the squares about its means, and how many are free."""
        seen: dict[int, tuple[int, float, int]] = {}
        for (arm, soft, _), one in self._sums.items():
            if not soft:
                count, squares, free = seen.get(arm, (0, 0.0, 0))
                seen[arm] = count + one.count, squares + one.squares, free + one.count - 1
        return seen

    @cached_property
    def noise(self) -> float:
        """Variance between runs of one size, pooled: guessed at first, then seen."""
        squares, free = GUESS_WEIGHT * GUESS**2, GUESS_WEIGHT
        for _, its_squares, its_free in self._seen.values():
            squares += its_squares
            free += its_free
        return squares / free

    @cached_property
    def _noises(self) -> dict[int, float]:
        """Of each size that converged: the pooled one, until it has shown its own.

        Sizes differ in it. That one of them is steady must not make a single unlucky run of another look certain.
        """
        guess, weight = OWN_GUESS * GUESS**2 + OWN_POOLED * self.noise, OWN_GUESS + OWN_POOLED
        return {arm: (guess + squares) / (weight + free) for arm, (_, squares, free) in self._seen.items()}

    @cached_property
    def counts(self) -> dict[int, int]:
        """How often each size converged."""
        return {arm: count for arm, (count, _, _) in self._seen.items()}

    @cached_property
    def belief(self) -> Belief:
        """What is believed of log Epochs(b): that they change with the size, or that they do not."""
        weights: dict[int, float] = {}
        totals: dict[int, float] = {}
        noise = self._noises
        for (arm, soft, age), one in self._sums.items():
            weight = one.count / ((soft or noise[arm]) + CHANGE * age)
            weights[arm] = weights.get(arm, 0.0) + weight
            totals[arm] = totals.get(arm, 0.0) + weight * one.mean
        arms = sorted(weights)
        before = prior(self.sizes, self.default, EPOCHS)
        return learn(before, arms, [totals[a] / weights[a] for a in arms], [1 / weights[a] for a in arms])

    def add(self, lesson: Lesson, expected: tuple[float, float] | None = None) -> Lessons:
        """One more; `expected`: mean and variance when the run was launched, where it may ring the alarm."""
        now = altered(self, recent=(*self.recent, lesson))
        last = len(self.recent)
        if expected is not None:
            z = max(-CLIP, min(CLIP, (lesson.log_epochs - expected[0]) / math.sqrt(expected[1])))
            now = altered(
                now,
                up=max(0.0, self.up + z - SLACK),
                down=max(0.0, self.down - z - SLACK),
                up_since=self.up_since if self.up else last,
                down_since=self.down_since if self.down else last,
            )
            if max(now.up, now.down) > self.threshold:
                return now._changed(now.up_since if now.up > self.threshold else now.down_since)
        return now._tidy()

    def _changed(self, since: int) -> Lessons:
        before = _collect(self.old, self.recent[:since])
        old = {(arm, soft, age + 1): one for (arm, soft, age), one in before.items() if age < OLDEST}
        alarms = self.alarms + 1
        kept = self.recent[since:]
        return Lessons(
            self.sizes, self.default, self.window, old, kept, alarms=alarms, threshold=self.threshold
        )._tidy()

    def _tidy(self) -> Lessons:
        """Single lessons are kept only where they may yet be parted from older ones, or forgotten one by one."""
        if self.window:
            return self._forget()
        rises = [since for height, since in ((self.up, self.up_since), (self.down, self.down_since)) if height]
        keep = min(rises, default=len(self.recent))
        if not keep:
            return self
        return altered(
            self,
            old=_collect(self.old, self.recent[:keep]),
            recent=self.recent[keep:],
            up_since=max(0, self.up_since - keep),
            down_since=max(0, self.down_since - keep),
        )

    def _forget(self) -> Lessons:
        """Without the oldest lessons of a size that has more than the window holds."""
        left = dict.fromkeys(range(len(self.sizes)), self.window)
        kept, up_since, down_since = [], self.up_since, self.down_since
        for place in range(len(self.recent) - 1, -1, -1):
            one = self.recent[place]
            left[one.arm] -= 1
            if left[one.arm] >= 0:
                kept.append(one)
            else:
                up_since -= place < self.up_since
                down_since -= place < self.down_since
        old = {kind: one for kind, one in self.old.items() if one.count <= left[kind[0]]}
        recent = tuple(reversed(kept))
        return altered(self, old=old, recent=recent, up_since=up_since, down_since=down_since)


def _collect(old: Mapping[Kind, Sum], lessons: Iterable[Lesson]) -> dict[Kind, Sum]:
    sums = dict(old)
    for one in lessons:
        kind = (one.arm, one.soft, 0)
        sums[kind] = sums.get(kind, Sum()).add(one.log_epochs)
    return sums
