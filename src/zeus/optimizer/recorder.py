"""Measures a training from inside its process, in pieces that end at steps, epochs and evaluations.

A piece is measured without waiting for a sensor. It records the power limit that nearly all of it ran at, if there is
one. Several ranks cut at the same steps and add up what each measures.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from zeus.cost import GPU_ONLY, Include, Use
from zeus.deadline import Call, ask
from zeus.device.gpu import Gpu, lowest_limit
from zeus.device.keeper.client import changed_at, found_limits, limit_changes
from zeus.distributed.crew import Crew, barrier, together
from zeus.errors import DeviceError
from zeus.job import Kind, Outcome
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor.hours import EnergyByHour
from zeus.trial.engine import Measured

log = logging.getLogger(__name__)

_WINDOW = "zeus: trial"
EDGE = 0.1  # share of a piece at its beginning or end in which a change of the limit is ignored
HANDOVER_SECONDS = 0.1  # for a limit that was asked for when a piece was cut


class _LimitReading:
    """The lowest limit in force at a moment. It is read in the background, because the driver may hang."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:

        def read() -> tuple[float | None, int]:
            return lowest_limit(gpus), limit_changes()

        self._call: Call[tuple[float | None, int]] | None = None
        self._found: tuple[float | None, int] | None = None  # the limit, and how often this process had set one then
        if all(gpu.spec.exact for gpu in gpus):  # a virtual card has no driver
            self._found = read()
        else:
            with contextlib.suppress(DeviceError):
                self._call = ask("power limits of a training", "reading power limits", read)

    @property
    def is_over(self) -> bool:
        return self._call is None or self._call.is_over

    def watts(self, changes: int) -> float | None:
        """The limit after so many changes by this process. None if it is unknown, or was read after another change."""
        if self._call is not None:
            with contextlib.suppress(DeviceError):
                self._found = self._call.within(HANDOVER_SECONDS, grace=0)
            self._call = None
        return self._found[0] if self._found is not None and self._found[1] == changes else None


class _Edge(NamedTuple):
    """Where one piece ends and the next one begins."""

    moment: float
    changes: int  # how often this process has set a limit
    reading: _LimitReading

    @property
    def limit(self) -> float | None:
        return self.reading.watts(self.changes)


class _Piece(NamedTuple):
    kind: Kind
    units: int
    begin: _Edge
    end: _Edge
    measurement: Measurement

    @property
    def is_ready(self) -> bool:
        return self.measurement.is_ready and self.begin.reading.is_over and self.end.reading.is_over

    @property
    def limit(self) -> float | None:
        """The limit of nearly the whole piece, or None if it changed elsewhere than at the piece's edges."""
        begin, end = self.begin, self.end
        moments = changed_at(begin.changes)[: end.changes - begin.changes]
        if not moments:
            return end.limit if end.limit == begin.limit else None  # another process may have changed it
        edge = EDGE * (end.moment - begin.moment)
        if max(moments) <= begin.moment + edge:
            return end.limit
        return begin.limit if min(moments) >= end.moment - edge else None


class Recorder:
    """Measures one training in pieces.

    Args:
        monitor: Measures the GPUs of this rank.
        crew: The ranks that train together.
        include: Whose energy counts.
        window: Name of its window. Two recorders of one monitor need two names.
    """

    def __init__(self, monitor: ZeusMonitor, crew: Crew, include: Include = GPU_ONLY, window: str = _WINDOW) -> None:
        self._monitor = monitor
        self._window = window
        self._include = include
        self._crew = crew
        self._pieces: deque[_Piece] = deque()
        self._clock = monitor.clock
        self._is_open = False
        self._edge = _Edge(0.0, 0, _LimitReading(()))  # where the open piece began
        self._hours = EnergyByHour(monitor.prices, include)

    def begin(self) -> None:
        """Start measuring. Every rank must call this."""
        self._monitor.begin_window(self._window, restart=True)
        self._is_open = True
        self._edge = self._edge_now()
        with contextlib.suppress(DeviceError):  # a rank is lost; training begins all the same
            barrier(self._crew)  # no rank may start work before all ranks measure

    def found(self) -> float | None:
        """The lowest limit before this process set any, or None if a GPU does not report it."""
        before = found_limits()
        try:
            return min((before.get(gpu.spec.uuid) or gpu.limit() for gpu in self._monitor.gpus.values()), default=None)
        except DeviceError:
            return None

    @property
    def limit_changed(self) -> bool:
        """Whether this process has set a limit since the piece began. Always false with several ranks."""
        return self._crew.size == 1 and limit_changes() != self._edge.changes

    def cut(self, kind: Kind, count: int, *, wait: bool = True) -> None:
        """End a piece of so many units and begin the next one.

        Args:
            kind: Kind of its units.
            count: Number of its units; 0 if it holds none, but must be charged.
            wait: Whether to wait for the GPU to finish its work, so that all of it counts.
        """
        if not self._is_open:
            return
        measurement = self._split(wait)
        begin, self._edge = self._edge, self._edge_now()
        self._pieces.append(_Piece(kind, count, begin, self._edge, measurement))

    def _edge_now(self) -> _Edge:
        last = self._edge.reading  # one that has not come yet is not asked for again: the driver may hang
        reading = _LimitReading(list(self._monitor.gpus.values())) if last.is_over else last
        return _Edge(self._clock.now(), limit_changes(), reading)

    def ready(self) -> list[Measured]:
        """The pieces whose energy is known without waiting. Several ranks wait for all pieces."""
        found = []
        while self._pieces and (self._crew.size > 1 or self._pieces[0].is_ready):
            found.append(self._take(self._pieces.popleft()))
        return found

    def all(self) -> list[Measured]:
        """All pieces that were cut. Every rank must call this."""
        found = [self._take(piece) for piece in self._pieces]
        self._pieces.clear()
        return found

    def alone(self) -> list[Measured]:
        """Like `all`, without the other ranks, which may be gone. With several ranks, the energy is not known."""
        found, several = [], self._crew.size > 1
        for piece in self._pieces:
            try:
                self._hours.add(piece.measurement)
                use = piece.measurement.use(self._include)
            except Exception as failed:  # the user must see the exception that ended the training, not this one
                log.warning("what the trial used at its end could not be measured: %s", failed)
                use = Use(math.nan, 0.0)
            seconds = use.seconds if math.isfinite(use.seconds) else 0.0
            known = Use(math.nan if several else use.joules, seconds)
            found.append(Measured(piece.kind, piece.units, known, piece.limit))
        self._pieces.clear()
        return found

    def end(self) -> None:
        """Stop measuring. Pieces that were cut can still be read."""
        if self._is_open:
            self._is_open = False
            self._monitor.end_window(self._window, sync_execution=False, cancel=True)

    def _split(self, wait: bool) -> Measurement:
        """Split the window, even if the GPU's work failed: the user must see that failure, not one of measuring."""
        try:
            return self._monitor.split_window(self._window, sync_execution=wait)
        except RuntimeError as failed:
            log.warning("could not wait for the GPU to finish its work: %s", failed)
            return self._monitor.split_window(self._window, sync_execution=False)

    def priced(self, outcome: Outcome, *, wait: bool = True) -> Outcome:
        """The outcome with its energy by hour. With several ranks, it is spread as this rank's energy is.

        Without `wait`, an online source is not waited for.
        """
        return self._hours.priced(outcome, wait=wait)

    def _take(self, piece: _Piece) -> Measured:
        self._hours.add(piece.measurement)
        use = piece.measurement.use(self._include)
        try:
            use = Use(*together(self._crew, use.joules, use.seconds))
        except DeviceError:  # a rank is lost, and with it what its GPUs used
            use = Use(math.nan, use.seconds)
        return Measured(piece.kind, piece.units, use, piece.limit)
