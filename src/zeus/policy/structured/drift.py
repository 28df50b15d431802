"""What runs taught about Epochs(b), and the alarm that detects a change.

A run that converged is a full lesson: the log of its epochs, with the noise between runs. A run that was stopped is a
soft lesson: it needed more epochs, but how many is unknown. A full lesson of a well-known size is compared with what
was expected when the run was launched. A series of surprises in one direction raises the alarm:

    z = (seen - expected) / deviation     up = max(0, up + z - slack)     down = max(0, down - z - slack)

When either exceeds the threshold, all lessons from before its rise lose weight.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from zeus.policy.common import NOTHING, Sample
from zeus.policy.structured.curve import EPOCHS, Belief, learn, prior

GUESS, GUESS_WEIGHT = 0.15, 2.0  # prior for the noise between runs, in log epochs, and its weight in runs
STEADY = 6.0  # runs of a size that count for the noise: one steady size must not make all others look certain
SLACK, THRESHOLD, CLIP = 0.25, 8.0, 4.0  # of the alarm, in deviations: one false alarm in 300 to 400 recurrences
CHANGE = 0.3  # variance that an alarm adds to earlier lessons
KNOWN_WELL = 2  # converged runs of a size after which another may raise the alarm
OLDEST = 6  # alarms after which a lesson is dropped


class Lesson(msgspec.Struct, frozen=True):
    """One run of a size (by index) needed e^log_epochs epochs, or is estimated to, with variance `soft`."""

    arm: int
    log_epochs: float
    soft: float = 0.0
    age: int = 0  # alarms since
    number: int = 0


class Rise(msgspec.Struct, frozen=True):
    """One of the alarm's two sums, and the number of the lesson with which it began to rise."""

    height: float = 0.0
    since: int = 0

    def after(self, z: float, number: int) -> Rise:
        return Rise(max(0.0, self.height + z - SLACK), self.since if self.height else number)


Kind: TypeAlias = tuple[int, float, int]  # size, softness, age


class Lessons(msgspec.Struct, frozen=True, dict=True):
    """All lessons of a job. A value: `add` returns a new one, in the same time for any length of history."""

    sizes: tuple[int, ...]
    default: int
    window: int = 0  # the number of most recent lessons of a size that count; 0: all
    threshold: float = THRESHOLD
    old: Mapping[Kind, Sample] = {}
    recent: tuple[Lesson, ...] = ()  # lessons since the oldest rise in progress; with a window, all that count
    rises: tuple[Rise, Rise] = (Rise(), Rise())  # up, down
    alarms: int = 0
    added: int = 0

    @cached_property
    def _sums(self) -> dict[Kind, Sample]:
        return _collect(self.old, self.recent)

    @cached_property
    def noise(self) -> float:
        """Variance between runs of one size, pooled over sizes, with a prior guess."""
        squares, free = GUESS_WEIGHT * GUESS**2, GUESS_WEIGHT
        for (_, soft, _), one in self._sums.items():
            if not soft and one.count > 1:
                share = min(1.0, STEADY / (one.count - 1))
                squares += share * one.squares
                free += share * (one.count - 1)
        return squares / free

    @cached_property
    def counts(self) -> Counter[int]:
        """How often each size converged."""
        found = Counter[int]()
        for (arm, soft, _), one in self._sums.items():
            if not soft:
                found[arm] += one.count
        return found

    @cached_property
    def belief(self) -> Belief:
        """The belief about log Epochs(b)."""
        weights: dict[int, float] = {}
        totals: dict[int, float] = {}
        for (arm, soft, age), one in self._sums.items():
            weight = one.count / ((soft or self.noise) + CHANGE * age)
            weights[arm] = weights.get(arm, 0.0) + weight
            totals[arm] = totals.get(arm, 0.0) + weight * one.mean
        arms = sorted(weights)
        before = prior(self.sizes, self.default, EPOCHS)
        return learn(before, arms, [totals[a] / weights[a] for a in arms], [1 / weights[a] for a in arms])

    def expected(self, arm: int) -> tuple[float, float] | None:
        """Mean and variance of the next run of a size, from its own runs alone; None if they are too few."""
        if self.counts[arm] < KNOWN_WELL:
            return None
        own = [
            (one.count / (self.noise + CHANGE * age), one.mean)
            for (at, soft, age), one in self._sums.items()
            if at == arm and not soft
        ]
        weight = sum(share for share, _ in own)
        return sum(share * mean for share, mean in own) / weight, 1 / weight + self.noise

    def add(self, lesson: Lesson, expected: tuple[float, float] | None = None) -> Lessons:
        """The lessons with one more.

        Args:
            lesson: The new one.
            expected: Mean and variance expected at the launch of the run; None if it must not raise the alarm.
        """
        number = self.added + 1
        now = replace(self, recent=(*self.recent, replace(lesson, number=number)), added=number)
        if expected is None:
            return now._tidy()
        z = max(-CLIP, min(CLIP, (lesson.log_epochs - expected[0]) / math.sqrt(expected[1])))
        up, down = self.rises[0].after(z, number), self.rises[1].after(-z, number)
        if max(up.height, down.height) <= self.threshold:
            return replace(now, rises=(up, down))._tidy()
        since = (up if up.height > self.threshold else down).since
        old = {(arm, soft, age + 1): one for (arm, soft, age), one in self.old.items() if age < OLDEST}
        recent = tuple(one if one.number >= since else replace(one, age=one.age + 1) for one in now.recent)
        recent = tuple(one for one in recent if one.age <= OLDEST)
        return replace(now, old=old, recent=recent, rises=(Rise(), Rise()), alarms=self.alarms + 1)._tidy()

    def _tidy(self) -> Lessons:
        """Drop the lessons beyond the window. Without a window, sum up those from before any rise."""
        if self.window:
            seen, kept = Counter[int](), []
            for one in reversed(self.recent):
                seen[one.arm] += 1
                if seen[one.arm] <= self.window:
                    kept.append(one)
            return replace(self, recent=tuple(reversed(kept)))
        first = min((rise.since for rise in self.rises if rise.height), default=self.added + 1)
        past = [one for one in self.recent if one.number < first]
        return replace(self, old=_collect(self.old, past), recent=self.recent[len(past) :]) if past else self


def _collect(old: Mapping[Kind, Sample], lessons: Iterable[Lesson]) -> dict[Kind, Sample]:
    sums = dict(old)
    for one in lessons:
        kind = (one.arm, one.soft, one.age)
        sums[kind] = sums.get(kind, NOTHING).add(one.log_epochs)
    return sums
