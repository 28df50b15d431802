"""What several policies share: mean and variance of samples, the trials that run now, and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from zeus.errors import InputError
from zeus.job import Event, JobSpec

PATIENCE = 3  # an open trial blocks exploration until so many later trials have ended


class Rng(Protocol):
    """A source of random draws, such as `random.Random`."""

    def gauss(self, mu: float, sigma: float) -> float:
        """One draw from a normal distribution."""


class Sample(msgspec.Struct, frozen=True):
    """The observations that a Gaussian needs: their number, mean and sum of squared deviations.

    >>> Sample.of([1.0, 3.0])
    Sample(count=2, mean=2.0, squares=2.0)
    >>> Sample.of([1.0, 3.0]).add(5.0) == Sample.of([1.0, 3.0]).merge(Sample.of([5.0])) == Sample.of([1.0, 3.0, 5.0])
    True
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        sample = cls()
        for value in values:
            sample = sample.add(value)
        return sample

    def add(self, value: float) -> Sample:
        count, off = self.count + 1, value - self.mean
        mean = self.mean + off / count
        return Sample(count, mean, self.squares + off * (value - mean))

    def merge(self, other: Sample) -> Sample:
        if not (self.count and other.count):
            return self if self.count else other
        count, off = self.count + other.count, other.mean - self.mean
        return Sample(
            count,
            self.mean + off * other.count / count,
            self.squares + other.squares + off * off * self.count * other.count / count,
        )

    def without(self, earlier: Sample) -> Sample:
        """The observations that are not in an earlier sample: what `merge` added to it.

        >>> Sample.of([1.0, 3.0, 5.0, 6.0]).without(Sample.of([1.0, 3.0]))
        Sample(count=2, mean=5.5, squares=0.5)
        """
        count = self.count - earlier.count
        if not count:
            return Sample()
        mean = self.mean + (self.mean - earlier.mean) * earlier.count / count
        between = (mean - earlier.mean) ** 2 * earlier.count * count / self.count
        return Sample(count, mean, max(0.0, self.squares - earlier.squares - between))

    def scale(self, factor: float) -> Sample:
        return Sample(self.count, self.mean * factor, self.squares * factor * factor)

    @property
    def variance(self) -> float:
        """Population variance, as in line 2 of Algorithm 2."""
        return self.squares / self.count if self.count else 0.0


NOTHING = Sample()


class Running(msgspec.Struct, frozen=True):
    """What other trials need to know about an open trial."""

    arm: int  # its batch size, or the index of it, as the policy counts
    explores: bool
    gpu_model: str
    expected: tuple[float, float] | None = None  # mean and variance of its log epochs
    later_ended: int = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether it still blocks exploration. A trial that never ends must not block it for good."""
        return self.later_ended < PATIENCE


def one_ended(running: Mapping[int, Running], number: int) -> dict[int, Running]:
    """The open trials after the one of this number ended. For each earlier one, one more later trial has."""
    left = {other: one for other, one in running.items() if other != number}
    for other, one in left.items():
        if other < number:
            left[other] = replace(one, later_ended=one.later_ended + 1)
    return left


def check_order(job: JobSpec, sequence: int, event: Event) -> None:
    """Raise InputError unless the event follows the one with this sequence number."""
    if event.sequence <= sequence:
        raise InputError(
            f"job {job.id!r}: event {event.sequence} came after event {sequence}. Pass each event once, in the order "
            "of sequence numbers."
        )


def all_crashed(job: JobSpec, gpu_model: str) -> InputError:
    """The error for a job that has no batch size left to offer."""
    return InputError(
        f"job {job.id!r}: all batch sizes {list(job.batch_sizes)} crashed or ran out of memory"
        + (f" on {gpu_model}" if gpu_model else "")
        + ". Fix the training script or offer smaller sizes, then allow them again."
    )


def why_best(size: int, *, reached: bool) -> str:
    """Why a policy that explores nothing runs this size; `reached`: whether it ever reached the target.

    >>> why_best(16, reached=False)
    '16 is the nearest size to the default; no size offered has reached the target yet'
    """
    if reached:
        return f"{size} is the best size so far"
    return f"{size} is the nearest size to the default; no size offered has reached the target yet"
