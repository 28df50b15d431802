"""Chunks of training steps at one power limit. Each chunk is measured as one window."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from zeus.cost import GPU_ONLY, Include
from zeus.device.gpu import Clock
from zeus.distributed.crew import Crew, barrier, together
from zeus.errors import DeviceError
from zeus.monitor import Measurement, ZeusMonitor
from zeus.profile import LimitSlice

CHUNK_SECONDS = 0.1  # shortest chunk: sensors cannot resolve shorter ones
WINDOW = "zeus: profiling chunk"


class _Chunk(NamedTuple):
    limit: float
    steps: int
    measurement: Measurement


class Chunks:
    """The chunk that is being measured, and the chunks whose energy is not known yet."""

    def __init__(self, monitor: ZeusMonitor, ranks: Crew, clock: Clock, include: Include = GPU_ONLY) -> None:
        self._monitor, self._ranks, self._clock, self._include = monitor, ranks, clock, include
        self._pending: deque[_Chunk] = deque()
        self._began, self._steps = 0.0, 0
        self.is_open = False

    def open(self) -> None:
        if self.is_open:
            return
        with self._all_here():
            self._monitor.begin_window(WINDOW, restart=True)
        self._began, self._steps, self.is_open = self._clock.now(), 0, True

    def step(self) -> None:
        self._steps += self.is_open

    def is_long_enough(self, pace: float | None) -> bool:
        """Whether the open chunk can be closed. Several ranks use a common pace, so that all close at the same step."""
        if pace is not None:
            return self._steps * pace >= CHUNK_SECONDS
        return self.is_open and self._clock.now() - self._began >= CHUNK_SECONDS

    def close(self, limit: float | None) -> None:
        """End the open chunk, if there is one. It ran at this limit."""
        if not self.is_open:
            return
        self.is_open = False
        with self._all_here():
            measurement = self._monitor.end_window(WINDOW, cancel=True)
        if self._steps and limit is not None:
            self._pending.append(_Chunk(limit, self._steps, measurement))

    def abandon(self) -> None:
        """End the open chunk without a result."""
        if self.is_open:
            self.is_open = False
            self._monitor.end_window(WINDOW, sync_execution=False, cancel=True)

    def forget(self) -> None:
        """Drop every chunk without reading a GPU."""
        self._pending.clear()
        self.is_open = False

    def drop(self) -> None:
        """Drop every chunk, because their limit is no longer in force."""
        self._pending.clear()
        self.abandon()

    def next(self, ailment: str | None) -> LimitSlice | None:
        """The oldest chunk whose energy is known, summed over all ranks. Several ranks wait for it, so that all agree.

        Args:
            ailment: What failed on this rank, if anything. All ranks then raise.

        Raises:
            DeviceError: The energy of a GPU, or of a CPU that counts, is not known, or a rank failed.
        """
        while self._pending and (self._ranks.size > 1 or self._pending[0].measurement.is_ready):
            limit, steps, measurement = self._pending.popleft()
            own = measurement.use(self._include)
            joules, seconds = together(self._ranks, math.nan if ailment else own.joules, own.seconds)
            if not math.isfinite(joules):
                what = "a GPU" if self._include == GPU_ONLY else "a GPU or a CPU"
                raise DeviceError(ailment or f"the energy of {what} cannot be measured any more")
            if seconds > 0:
                return LimitSlice(limit, steps, seconds, joules)
        return None

    @contextlib.contextmanager
    def _all_here(self) -> Iterator[None]:
        """With several ranks, wait for all before and after the block: each is then at the same step."""
        if self._ranks.size > 1:
            barrier(self._ranks)
        yield
        if self._ranks.size > 1:
            barrier(self._ranks)
