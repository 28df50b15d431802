"""Measures a training from inside its process, in segments of steps, epochs and evaluations.

    cut ──▶ segment whose energy is not known yet ──▶ deliver ──▶ the listener, in order
    mark ─▶ call, such as "an epoch has ended" ──────┘

Whoever wants to know what a training uses has a recorder: the power limit optimizer, the engine of the trial, the
energy log. All recorders of the same GPUs share one window. A cut of any of them divides it into pieces, and a segment
is all pieces since the recorder's last cut. So each hears of its own units alone, and all hear the same energy.

A cut waits neither for a sensor nor for the driver. Several ranks cut at the same steps, and add up what each measures
in one exchange when they deliver.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from zeus.cost import GPU_ONLY, ZERO, Include, Use
from zeus.deadline import Call, ask
from zeus.device.gpu import Gpu, lowest_limit
from zeus.device.keeper.lease import found_limits
from zeus.distributed.group import RankGroup, barrier
from zeus.errors import DeviceError
from zeus.job import Kind, Outcome
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor.hours import EnergyByHour
from zeus.tariff.rates import Footprint
from zeus.trial.engine import Measured

log = logging.getLogger(__name__)

HANDOVER_SECONDS = 0.1  # for a limit that was asked for when a segment was cut

Listener: TypeAlias = Callable[[Measured], None]


class _LimitReading:
    """The lowest limit in force at a moment. It is read in the background, because the driver may hang."""

    def __init__(self, gpus: Sequence[Gpu]) -> None:
        self._call: Call[float | None] | None = None
        self._watts: float | None = None
        if all(gpu.spec.exact for gpu in gpus):  # a virtual card has no driver
            self._watts = lowest_limit(gpus)
        else:
            with contextlib.suppress(DeviceError):
                self._call = ask("power limits of a training", "reading power limits", lambda: lowest_limit(gpus))

    @property
    def is_over(self) -> bool:
        return self._call is None or self._call.is_over

    @property
    def watts(self) -> float | None:
        """The limit, or None if it is not known in time."""
        if self._call is not None:
            with contextlib.suppress(DeviceError):
                self._watts = self._call.within(HANDOVER_SECONDS, grace=0)
            self._call = None
        return self._watts


class _Piece:
    """A part of the window between two cuts."""

    def __init__(self, measurement: Measurement, begin: _LimitReading, end: _LimitReading) -> None:
        self.measurement = measurement
        self.use: Use | None = None  # on all ranks; None: not known yet
        self._begin, self._end = begin, end

    @property
    def is_ready(self) -> bool:
        return self.measurement.is_ready and self._begin.is_over and self._end.is_over

    @property
    def limit(self) -> float | None:
        """The limit in force. None if it is unknown, or another process has changed it."""
        return self._end.watts if self._end.watts == self._begin.watts else None


class _Segment(NamedTuple):
    kind: Kind
    units: int
    pieces: tuple[_Piece, ...]

    def measured(self) -> Measured:
        limits = {piece.limit for piece in self.pieces}
        use = sum((piece.use or ZERO for piece in self.pieces), ZERO) if self.pieces else Use(math.nan, 0.0)
        return Measured(self.kind, self.units, use, limits.pop() if len(limits) == 1 else None)


class _Mark(NamedTuple):
    method: weakref.WeakMethod[Callable[..., None]]
    arguments: tuple[object, ...]


class _Window:
    """The window that all recorders of the same GPUs share."""

    def __init__(self, monitor: ZeusMonitor, group: RankGroup, include: Include) -> None:
        self.recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
        self.trial: weakref.ref[Recorder] | None = None  # the recorder of the trial that runs
        self.began = 0.0  # when the open piece began
        self.steps = 0  # that have ended, as far as any recorder has been told
        self.sets_limits = False  # whether this process has set a limit since the training began
        self.local_error: str | None = None  # of this rank; an exchange makes it that of any rank
        self.hours = EnergyByHour(monitor.prices, include)
        self._name = f"zeus: training {next(_serials)}"
        self._monitor, self._group, self._include = monitor, group, include
        self._gpus = list(monitor.gpus.values())
        self._pending: deque[_Piece] = deque()
        self._reading = _LimitReading(())  # of the limit where the open piece began
        monitor.begin_window(self._name, restart=True)
        self._mark_edge()
        with contextlib.suppress(DeviceError):  # a rank is lost; training begins all the same
            barrier(group)  # no rank may start work before all ranks measure

    def split(self, *, wait: bool) -> None:
        """End a piece and begin the next one."""
        measurement, begin = self._split(wait), self._reading
        self._mark_edge()
        piece = _Piece(measurement, begin, self._reading)
        self._pending.append(piece)
        for recorder in self.recorders:
            recorder.pieces.append(piece)

    def close(self) -> None:
        self._monitor.end_window(self._name, sync_execution=False, cancel=True)

    @contextlib.contextmanager
    def setting_limit(self, *, wait: bool) -> Iterator[None]:
        """A block in which this process sets limits. Steps before it and after it are in different segments."""
        self._divide(wait=wait)
        _ = self._reading.watts  # that of the piece before must not be read after the change
        try:
            yield
        finally:
            self.sets_limits = True
            self._divide(wait=wait)

    def _divide(self, *, wait: bool) -> None:
        self.split(wait=wait)
        for recorder in self.recorders:
            recorder.divide(self)

    def resolve(self, *, wait: bool, alone: bool) -> None:
        """Find out what the pieces used on all ranks. Arguments are those of `Recorder.deliver`."""
        ready = list(self._pending)
        if not wait:
            ready = ready[: next((i for i, one in enumerate(ready) if not one.is_ready), len(ready))]
        uses = self._alone(ready) if alone else self._summed(ready) if self._pending else []
        for use in uses:
            piece = self._pending.popleft()
            piece.use = use
            with contextlib.suppress(Exception) if alone else contextlib.nullcontext():
                self.hours.add(piece.measurement)

    def _mark_edge(self) -> None:
        self.began = self._monitor.clock.now()
        if self._reading.is_over:  # one that has not come yet is not asked for again: the driver may hang
            self._reading = _LimitReading(self._gpus)

    def _split(self, wait: bool) -> Measurement:
        """Split the window, even if the GPU's work failed: the user must see that failure, not one of measuring."""
        if wait and self._group.size > 1 and any(gpu.spec.exact for gpu in self._gpus):
            with contextlib.suppress(DeviceError):
                barrier(self._group)  # virtual cards work only when their rank says so: let all of them do so first
        try:
            return self._monitor.split_window(self._name, sync_execution=wait)
        except RuntimeError as failed:
            log.warning("could not wait for the GPU to finish its work: %s", failed)
            return self._monitor.split_window(self._name, sync_execution=False)

    def _summed(self, pieces: Sequence[_Piece]) -> list[Use]:
        """What each of these pieces used on all ranks, as far as all ranks know."""
        own = [one.measurement.use(self._include) for one in pieces]
        if self._group.size == 1:
            return own
        try:
            rows = self._group.gather(([(use.joules, use.seconds) for use in own], self.local_error))
        except DeviceError as lost:  # a rank, and with it what its GPUs used
            self.local_error = str(lost)
            return [Use(math.nan, use.seconds) for use in own]
        self.local_error = next((error for _, error in rows if error is not None), None)
        by_piece = zip(*(uses for uses, _ in rows), strict=False)  # only those that are known on every rank
        return [Use(sum(j for j, _ in uses), max(s for _, s in uses)) for uses in by_piece]

    def _alone(self, pieces: Sequence[_Piece]) -> list[Use]:
        found, several = [], self._group.size > 1
        for piece in pieces:
            try:
                use = piece.measurement.use(self._include)
            except Exception as failed:  # the user must see the exception that ended the training, not this one
                log.warning("what the trial used at its end could not be measured: %s", failed)
                use = Use(math.nan, 0.0)
            seconds = use.seconds if math.isfinite(use.seconds) else 0.0
            found.append(Use(math.nan if several else use.joules, seconds))
        return found


_open: weakref.WeakValueDictionary[object, _Window] = weakref.WeakValueDictionary()  # by what they measure
_serials = itertools.count(1)


class Recorder:
    """Records one training for one listener. Every rank makes the same calls at the same steps.

    Args:
        monitor: Measures the GPUs of this rank.
        group: The ranks that train together.
        listener: Hears of each segment. A method; it does not keep its object alive.
        include: Whose energy counts.
        is_trial: Whether this records a trial. One that was left open on these GPUs, such as by an error in a notebook,
            is then measured no longer.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        group: RankGroup,
        listener: Listener,
        include: Include = GPU_ONLY,
        *,
        is_trial: bool = False,
    ) -> None:
        self.monitor, self.include = monitor, include
        self.is_displaced = False  # whether another trial has begun on these GPUs before this one ended
        self._is_trial = is_trial
        self.steps = 0  # since the last cut
        self.pieces: list[_Piece] = []  # since the last cut
        self.is_whole = False  # whether it measures a unit that a change of the limit must not divide
        self._group = group
        self._listener = weakref.WeakMethod(listener)
        self._queue: deque[_Segment | _Mark] = deque()
        self._window: _Window | None = None
        self._is_open = False
        self._began = 0.0  # when the open segment began
        self._steps_seen = 0  # of the window's steps
        self._counted_ahead = False  # whether the next step was counted already, when a limit was set

    def begin(self) -> None:
        """Start measuring. Every rank must call this."""
        key = _key(self.monitor, self._group, self.include)
        window = _open.get(key)
        if window is None:
            _open[key] = window = _Window(self.monitor, self._group, self.include)
        else:
            window.split(wait=False)
        if self._is_trial:
            before = None if window.trial is None else window.trial()
            if before is not None:
                before.displace(window)
            window.trial = weakref.ref(self)
        self._window, self._is_open, self._began = window, True, window.began
        self._steps_seen = window.steps
        window.recorders.add(self)

    def end(self) -> None:
        """Stop measuring. Segments that were cut before can still be delivered."""
        if self._window is not None and self._is_open:
            self._is_open = False
            self._window.recorders.discard(self)
            if self._window.trial is not None and self._window.trial() is self:
                self._window.trial = None
            if not self._window.recorders:
                _open.pop(_key(self.monitor, self._group, self.include), None)
                self._window.close()

    # ------------------------------------------------------------------ limits

    @property
    def sets_limits(self) -> bool:
        """Whether this process has set a limit since the training began."""
        return self._window is not None and self._window.sets_limits

    @property
    def local_error(self) -> str | None:
        """Why this rank could not set a limit; once something was delivered, why any rank could not."""
        return None if self._window is None else self._window.local_error

    @local_error.setter
    def local_error(self, error: str) -> None:
        if self._window is not None:
            self._window.local_error = error

    # ------------------------------------------------------------------ cutting

    @property
    def open_seconds(self) -> float:
        """How long ago the open segment began."""
        return self.monitor.clock.now() - self._began

    def step(self) -> None:
        """A training step has ended."""
        if self._window is not None:
            self._steps_seen += 1
            self._window.steps = max(self._window.steps, self._steps_seen)
        self.steps += not self._counted_ahead
        self._counted_ahead = False

    def cut_steps(self, *, wait: bool = True) -> None:
        """Cut off the steps since the last cut, if there are any."""
        if self.steps:
            self.cut(Kind.STEP, self.steps, wait=wait)

    def cut(self, kind: Kind, count: int, *, wait: bool = True) -> None:
        """End a segment of so many units and begin the next one.

        Args:
            kind: Kind of its units.
            count: Number of its units; 0 if it holds none, but must be charged.
            wait: Whether to wait for the GPU to finish its work, so that all of it counts.
        """
        if self._window is not None and self._is_open:
            self._window.split(wait=wait)
            self._close(self._window, kind, count)
        elif self.is_displaced:  # it goes on all the same, and nobody can tell its energy from the other's
            self._queue.append(_Segment(kind, count, ()))

    def displace(self, window: _Window) -> None:
        """Another trial begins on these GPUs: this one is charged until now."""
        self._close(window, Kind.EVALUATION, 0)
        window.recorders.discard(self)
        self._is_open, self.is_displaced = False, True

    def divide(self, window: _Window) -> None:
        """End a segment where the window was split because a limit changes."""
        if self.is_whole:
            return
        if self._steps_seen == window.steps - 1 and not self._counted_ahead:
            self.steps, self._counted_ahead = self.steps + 1, True  # it ran before the change, and is reported after
        self._close(window, Kind.STEP if self.steps else Kind.EVALUATION, self.steps)

    def _close(self, window: _Window, kind: Kind, count: int) -> None:
        self._queue.append(_Segment(kind, count, tuple(self.pieces)))
        self.pieces.clear()
        self.steps, self._began = 0, window.began

    def mark(self, method: Callable[..., None], *arguments: object) -> None:
        """Have this method called when all segments that were cut before it have been delivered."""
        self._queue.append(_Mark(weakref.WeakMethod(method), arguments))

    # ------------------------------------------------------------------ delivering

    def deliver(self, *, wait: bool = False, alone: bool = False) -> None:
        """Pass on the segments whose energy is known on every rank, and make the calls between them.

        Args:
            wait: Whether to wait until the energy of all segments is known.
            alone: Do not wait for other ranks, which may be gone. With several ranks, the energy is not known.
        """
        if self._window is not None:
            self._window.resolve(wait=wait or alone, alone=alone)
        while self._queue:
            head = self._queue[0]
            if isinstance(head, _Segment) and any(piece.use is None for piece in head.pieces):
                return
            self._queue.popleft()
            if isinstance(head, _Segment):
                if (listener := self._listener()) is not None:
                    listener(head.measured())
            elif (method := head.method()) is not None:
                method(*head.arguments)

    # ------------------------------------------------------------------ money and carbon

    def priced(self, outcome: Outcome, *, wait: bool = True) -> Outcome:
        """The outcome with its energy by hour. With several ranks, it is spread as this rank's energy is.

        Without `wait`, an online source is not waited for.
        """
        return outcome if self._window is None else self._window.hours.priced(outcome, wait=wait)

    def footprint(self, joules: float) -> Footprint | None:
        """Money and carbon of these joules at the rates of the hours so far. None if no rate is given."""
        hourly = None if self._window is None else self._window.hours.hourly(joules, wait=False)
        return None if hourly is None else hourly.footprint


def setting_limit(
    monitor: ZeusMonitor, group: RankGroup, include: Include, *, wait: bool = True
) -> contextlib.AbstractContextManager[None]:
    """A block in which this process sets limits of these GPUs: a recorded training has other segments after it."""
    window = _open.get(_key(monitor, group, include))
    return contextlib.nullcontext() if window is None else window.setting_limit(wait=wait)


def _key(monitor: ZeusMonitor, group: RankGroup, include: Include) -> object:
    return frozenset(gpu.spec.uuid for gpu in monitor.gpus.values()), monitor.clock, group.size, include


def limit_found(gpus: Sequence[Gpu]) -> float | None:
    """The lowest limit of these GPUs before this process set any, or None if a GPU does not report it."""
    before = found_limits()
    try:
        return min((before.get(gpu.spec.uuid) or gpu.limit() for gpu in gpus), default=None)
    except DeviceError:
        return None
