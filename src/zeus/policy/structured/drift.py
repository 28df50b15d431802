"""What runs taught about Epochs(b), and the alarm that detects a change.

A run that converged tells log Epochs(b), with the noise between runs. A run that was stopped only hints at it: it
needed more epochs. A run of a well-known size is compared with what was expected when it was launched. A series of
surprises in one direction raises the alarm:

    z = (seen - expected) / deviation     up = max(0, up + z - slack)     down = max(0, down - z - slack)

When either exceeds the threshold, all that was learnt becomes a hint, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from zeus.policy.common import NOTHING, Sample
from zeus.policy.structured.curve import EPOCHS, Belief, Estimate, learn, prior
from zeus.policy.structured.normal import above

GUESS, GUESS_WEIGHT = 0.15, 2.0  # prior for the noise between runs, in log epochs, and its weight in runs
STEADY = 6.0  # runs of a size that count for the noise: one steady size must not make all others look certain
SLACK, THRESHOLD, CLIP = 0.25, 8.0, 4.0  # of the alarm, in deviations: one false alarm in 300 to 400 recurrences
CHANGE = 0.3  # variance that an alarm adds to each run before
KNOWN_WELL = 2  # converged runs of a size after which another may raise the alarm


class Rise(NamedTuple):
    """One of the alarm's two sums, and the runs before it began to rise."""

    height: float = 0.0
    before: Mapping[int, Sample] = {}

    def after(self, z: float, runs: Mapping[int, Sample]) -> Rise:
        return Rise(max(0.0, self.height + z - SLACK), self.before if self.height else runs)


class Lessons(msgspec.Struct, frozen=True, dict=True):
    """All that the runs of a job taught, by size (as an index). A value of the same size for any length of history."""

    sizes: tuple[int, ...]
    default: int
    window: int = 0  # the number of most recent runs of a size that count; 0: all
    threshold: float = THRESHOLD
    runs: Mapping[int, Sample] = {}  # log epochs of the runs that converged since the last alarm
    hints: Mapping[int, Estimate] = {}  # from runs that were stopped, and from all runs before the alarm
    recent: Mapping[int, tuple[float, ...]] = {}  # with a window: its runs
    counts: Mapping[int, int] = {}  # how often each size converged
    scatter_before: tuple[float, float] = (GUESS_WEIGHT * GUESS**2, GUESS_WEIGHT)  # a guess, and runs before the alarm
    up: Rise = Rise()
    down: Rise = Rise()
    alarms: int = 0

    @property
    def noise(self) -> float:
        """Variance between runs of one size, pooled over sizes, with a prior guess."""
        return self.scatter[0] / self.scatter[1]

    @cached_property
    def scatter(self) -> tuple[float, float]:
        """The squares of all runs around the mean of their size, and their degrees of freedom."""
        squares, free = self.scatter_before
        for one in self.runs.values():
            if one.count > 1:
                share = min(1.0, STEADY / (one.count - 1))
                squares += share * one.squares
                free += share * (one.count - 1)
        return squares, free

    @cached_property
    def belief(self) -> Belief:
        """The belief about log Epochs(b)."""
        return learn(prior(self.sizes, self.default, EPOCHS), _estimates(self.runs, self.noise, self.hints))

    def expected(self, arm: int) -> Estimate | None:
        """Mean and variance of the next run of a size, from its own runs alone; None if they are too few."""
        one = self.runs.get(arm, NOTHING)
        return None if one.count < KNOWN_WELL else Estimate(one.mean, self.noise / one.count + self.noise)

    def stopped(self, arm: int, epochs: float) -> Lessons:
        """The lessons after a run that needed more epochs than these."""
        least = above(self.belief.mean[arm], self.belief.var[arm], self.noise, math.log(epochs))
        if least is None:
            return self
        return replace(self, hints={**self.hints, arm: Estimate(*least).joined(self.hints.get(arm))})

    def converged(self, arm: int, epochs: float, expected: tuple[float, float] | None = None) -> Lessons:
        """The lessons after a run that converged.

        Args:
            arm: Its size.
            epochs: How many it needed.
            expected: Mean and variance expected of their log at its launch; None if it must not raise the alarm.
        """
        found, hints, recent = math.log(epochs), self.hints, self.recent
        sample = self.runs.get(arm, NOTHING).add(found)
        if self.window:
            recent = {**recent, arm: (*recent.get(arm, ()), found)[-self.window :]}
            sample = Sample.of(recent[arm])
            if sample.count == self.window:
                hints = {other: one for other, one in hints.items() if other != arm}
        counts = {**self.counts, arm: self.counts.get(arm, 0) + 1}
        now = replace(self, runs={**self.runs, arm: sample}, hints=hints, recent=recent, counts=counts)
        if expected is None:
            return now
        z = max(-CLIP, min(CLIP, (found - expected[0]) / math.sqrt(expected[1])))
        up, down = self.up.after(z, self.runs), self.down.after(-z, self.runs)
        if max(up.height, down.height) <= self.threshold:
            return replace(now, up=up, down=down)
        old = replace(now, runs=(up if up.height > self.threshold else down).before)
        halved = {arm: Estimate(one.mean, 2 * one.variance) for arm, one in hints.items()}
        hints = _estimates(old.runs, old.noise + CHANGE, halved)
        since = {arm: one.without(old.runs.get(arm, NOTHING)) for arm, one in now.runs.items()}
        runs = {arm: one for arm, one in since.items() if one.count and not self.window}
        fresh = Lessons(self.sizes, self.default, self.window, self.threshold, runs, hints, counts=counts)
        return replace(fresh, scatter_before=old.scatter, alarms=self.alarms + 1)


def _estimates(runs: Mapping[int, Sample], noise: float, hints: Mapping[int, Estimate]) -> dict[int, Estimate]:
    """What is known of each size alone, from runs with this variance and from hints."""
    own = {arm: Estimate(one.mean, noise / one.count).joined(hints.get(arm)) for arm, one in runs.items()}
    return {**hints, **own}
