"""The stamps of a driver's power samples: on whose clock they are, and how far apart."""

from __future__ import annotations

import itertools

from zeus.device.gpu import PowerSample
from zeus.monitor.sample_curve import SAMPLE_BUFFER, SampleCurve


def spacing(samples: list[PowerSample]) -> float:
    """Seconds from one sample in the driver's buffer to the next, whichever are missing."""
    gaps = sorted(b.stamp - a.stamp for a, b in itertools.pairwise(samples))
    return gaps[len(gaps) // 2] if gaps else SAMPLE_BUFFER.spacing


class StampMapper:
    """The driver stamps samples with the wall clock, which anybody may step; windows live on the monotonic one."""

    STEP = 0.002  # seconds: offsets closer than this are the same clock, slewed
    RECENT = 1.0  # seconds: the newest sample in the buffer is not older than this

    def __init__(self) -> None:
        self._offset: float | None = None  # wall minus monotonic when last looked at
        self._last: float | None = None  # newest stamp seen, as stamped
        self.span = 0.0  # seconds that the driver's buffer held when last looked at

    def to_monotonic(self, samples: list[PowerSample], now: float, wall: float) -> list[tuple[float, float]]:
        """The samples not seen before, on the monotonic clock.

        The buffer is in order of sampling, so what is new comes after the newest one seen, whatever the stamps say. If
        the clock was stepped since the last look, stamps up to the one jump among them are on the old clock.
        """
        if not samples:
            return []
        offset, before = wall - now, self._offset
        self._offset = offset
        stepped = before is not None and abs(offset - before) > self.STEP
        if not stepped:
            self.span = samples[-1].stamp - samples[0].stamp
        new = samples
        if self._last is not None:
            known = [i for i, s in enumerate(samples) if abs(s.stamp - self._last) < SampleCurve.SAME]
            new = samples[known[-1] + 1 :] if known else samples
        self._last = samples[-1].stamp
        if not stepped or before is None:
            return [(s.stamp - offset, s.watts) for s in new]
        jump = _jump(samples, offset - before)
        if jump == len(samples) and abs(samples[-1].stamp - before - now) > self.RECENT:
            jump = 0  # stepped before the oldest of them was taken: on the old clock they would be from another time
        first_on_new = jump - (len(samples) - len(new))
        return [(s.stamp - (before if i < first_on_new else offset), s.watts) for i, s in enumerate(new)]


def _jump(samples: list[PowerSample], step: float) -> int:
    """Index of the first sample stamped on the new clock: where the distance of two stamps is off by the step.

    No such place means that none has been taken since.
    """
    gaps = [b.stamp - a.stamp for a, b in itertools.pairwise(samples)]
    if not gaps:
        return 0
    nearest = min(range(len(gaps)), key=lambda i: abs(gaps[i] - step))
    return nearest + 1 if abs(gaps[nearest] - step) < abs(step) / 2 else len(samples)
