"""The test driver's clock, for whoever measures."""

from __future__ import annotations

from support.nvml.fake import FakeNvml
from zeus.device.clock import VirtualClock


class FakeTime(VirtualClock):
    """The test driver's frozen clock as a `Clock`: whoever sleeps on it moves the driver's time."""

    def __init__(self, fake: FakeNvml) -> None:
        super().__init__()
        self._fake = fake
        fake.freeze(at=1000.0)

    def now(self) -> float:
        return self._fake.now()

    def wall(self) -> float:
        return self._fake.wall()

    def _set(self, moment: float) -> None:
        self._fake.advance(max(0.0, moment - self._fake.now()))
