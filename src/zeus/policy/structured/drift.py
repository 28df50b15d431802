"""What runs taught about Epochs(b), and the alarm that detects a change.

A run that converged is a full lesson: the log of its epochs, with the noise between runs. A run that was stopped is a
soft lesson: it needed more epochs, but how many is unknown. A full lesson of a well-known size is compared with what
was expected when the run was launched. A series of surprises in one direction raises the alarm:

    z = (seen - expected) / deviation     up = max(0, up + z - slack)     down = max(0, down - z - slack)

When either exceeds the threshold, all lessons from before its rise lose weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from zeus.policy.common import NOTHING, Sample
from zeus.policy.structured.curve import EPOCHS, Belief, learn, prior

GUESS, GUESS_WEIGHT = 0.15, 2.0  # prior for the noise between runs, in log epochs, and its weight in runs
OWN_GUESS, OWN_POOLED = 0.5, 1.0  # weights, in runs, of the guess and of the pooled noise for the noise of one size
SLACK, THRESHOLD, CLIP = 0.25, 8.0, 4.0  # of the alarm, in deviations: one false alarm in 300 to 400 recurrences
CHANGE = 0.3  # variance that an alarm adds to earlier lessons
OLDEST = 6  # alarms after which a lesson is dropped


class Lesson(msgspec.Struct, frozen=True):
    """One run of a size (by index) needed e^log_epochs epochs, or is estimated to, with variance `soft`."""

    arm: int
    log_epochs: float
    soft: float = 0.0


Kind: TypeAlias = tuple[int, float, int]  # size, softness, alarms since


class Lessons(msgspec.Struct, frozen=True, dict=True):
    """All lessons of a job. A value: `add` returns a new one, in the same time for any length of history."""

    sizes: tuple[int, ...]
    default: int
    window: int = 0  # the number of most recent lessons of a size that count; 0: all
    old: Mapping[Kind, Sample] = {}
    recent: tuple[Lesson, ...] = ()  # lessons since the oldest rise in progress; with a window, all that count
    up: float = 0.0
    down: float = 0.0
    alarms: int = 0
    threshold: float = THRESHOLD
    up_since: int = 0  # how many of `recent` came before the rise began
    down_since: int = 0

    @cached_property
    def _sums(self) -> dict[Kind, Sample]:
        return _collect(self.old, self.recent)

    @cached_property
    def _seen(self) -> dict[int, tuple[int, float, int]]:
        """For each size that converged: runs, sum of squared deviations, and degrees of freedom."""
        seen: dict[int, tuple[int, float, int]] = {}
        for (arm, soft, _), one in self._sums.items():
            if not soft:
                count, squares, free = seen.get(arm, (0, 0.0, 0))
                seen[arm] = count + one.count, squares + one.squares, free + one.count - 1
        return seen

    @cached_property
    def noise(self) -> float:
        """Variance between runs of one size, pooled over sizes, with a prior guess."""
        squares, free = GUESS_WEIGHT * GUESS**2, GUESS_WEIGHT
        for _, its_squares, its_free in self._seen.values():
            squares += its_squares
            free += its_free
        return squares / free

    @cached_property
    def _noises(self) -> dict[int, float]:
        """Variance between runs of each size that converged: the pooled one, replaced by its own as runs accumulate.

        Sizes differ in it. A steady size must not make a single unlucky run of another size look certain.
        """
        guess, weight = OWN_GUESS * GUESS**2 + OWN_POOLED * self.noise, OWN_GUESS + OWN_POOLED
        return {arm: (guess + squares) / (weight + free) for arm, (_, squares, free) in self._seen.items()}

    @cached_property
    def counts(self) -> dict[int, int]:
        """How often each size converged."""
        return {arm: count for arm, (count, _, _) in self._seen.items()}

    @cached_property
    def belief(self) -> Belief:
        """The belief about log Epochs(b)."""
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
        """The lessons with one more.

        Args:
            lesson: The new one.
            expected: Mean and variance expected at the launch of the run; None if it must not raise the alarm.
        """
        now = replace(self, recent=(*self.recent, lesson))
        last = len(self.recent)
        if expected is not None:
            z = max(-CLIP, min(CLIP, (lesson.log_epochs - expected[0]) / math.sqrt(expected[1])))
            now = replace(
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
        """Sum up the lessons that need not be kept one by one: those before any rise, if there is no window."""
        if self.window:
            return self._forget()
        rises = [since for height, since in ((self.up, self.up_since), (self.down, self.down_since)) if height]
        keep = min(rises, default=len(self.recent))
        if not keep:
            return self
        return replace(
            self,
            old=_collect(self.old, self.recent[:keep]),
            recent=self.recent[keep:],
            up_since=max(0, self.up_since - keep),
            down_since=max(0, self.down_since - keep),
        )

    def _forget(self) -> Lessons:
        """Drop the oldest lessons of each size beyond the window."""
        left = dict.fromkeys(range(len(self.sizes)), self.window)
        kept, up_since, down_since = [], self.up_since, self.down_since
        for index in range(len(self.recent) - 1, -1, -1):
            one = self.recent[index]
            left[one.arm] -= 1
            if left[one.arm] >= 0:
                kept.append(one)
            else:
                up_since -= index < self.up_since
                down_since -= index < self.down_since
        old = {kind: one for kind, one in self.old.items() if one.count <= left[kind[0]]}
        recent = tuple(reversed(kept))
        return replace(self, old=old, recent=recent, up_since=up_since, down_since=down_since)


def _collect(old: Mapping[Kind, Sample], lessons: Iterable[Lesson]) -> dict[Kind, Sample]:
    sums = dict(old)
    for one in lessons:
        kind = (one.arm, one.soft, 0)
        sums[kind] = sums.get(kind, NOTHING).add(one.log_epochs)
    return sums
