"""The time stamps of a driver's power samples: which clock they follow, and how far apart they are."""

from __future__ import annotations

import itertools

from zeus.device.gpu import PowerSample
from zeus.monitor.curve.sample_curve import SAMPLE_BUFFER, SampleCurve


def spacing(samples: list[PowerSample]) -> float:
    """The usual number of seconds between two samples in the driver's buffer, even if some are missing."""
    gaps = sorted(b.stamp - a.stamp for a, b in itertools.pairwise(samples))
    return gaps[len(gaps) // 2] if gaps else SAMPLE_BUFFER.spacing


class StampMapper:
    """Moves samples to the monotonic clock. The driver stamps them with the wall clock, which may be stepped."""

    STEP = 0.002  # seconds: a smaller change of the offset is slewing, not a step
    RECENT = 1.0  # seconds: the newest sample in the buffer is not older than this

    def __init__(self) -> None:
        self._offset: float | None = None  # wall minus monotonic when last looked at
        self._last: float | None = None  # newest stamp seen, as stamped
        self.span = 0.0  # seconds that the driver's buffer held when last looked at

    def to_monotonic(self, samples: list[PowerSample], now: float, wall: float) -> list[tuple[float, float]]:
        """The samples not seen before, on the monotonic clock.

        The buffer is in sampling order, so new samples come after the newest one seen, whatever their stamps. If the
        clock was stepped since the last look, there is one jump among the stamps. The stamps before the jump follow the
        old clock.
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
            seen = [i for i, s in enumerate(samples) if abs(s.stamp - self._last) < SampleCurve.SAME]
            new = samples[seen[-1] + 1 :] if seen else samples
        self._last = samples[-1].stamp
        if not stepped or before is None:
            return [(s.stamp - offset, s.watts) for s in new]
        jump = _jump(samples, offset - before)
        if jump == len(samples) and abs(samples[-1].stamp - before - now) > self.RECENT:
            jump = 0  # the step came before the oldest sample: on the old clock the samples would not be recent
        first_on_new = jump - (len(samples) - len(new))
        return [(s.stamp - (before if i < first_on_new else offset), s.watts) for i, s in enumerate(new)]


def _jump(samples: list[PowerSample], step: float) -> int:
    """Index of the first sample stamped after the step: where the gap between two stamps is about as large as the step.

    If there is no such gap, no sample has been taken since.
    """
    gaps = [b.stamp - a.stamp for a, b in itertools.pairwise(samples)]
    if not gaps:
        return 0
    nearest = min(range(len(gaps)), key=lambda i: abs(gaps[i] - step))
    return nearest + 1 if abs(gaps[nearest] - step) < abs(step) / 2 else len(samples)
