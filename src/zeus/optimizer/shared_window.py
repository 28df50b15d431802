"""The energy window that all recorders of the same GPUs share, in pieces.

    split ──▶ piece whose energy is not known yet ──▶ resolve: what it used on all ranks

A piece ends wherever a recorder cuts, and wherever this process sets a limit. So each recorder has all pieces since its
own last cut, whoever cut them. Splitting waits neither for a sensor nor for the driver.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from zeus.cost import Include, Use
from zeus.deadline import Call, ask
from zeus.device.gpu import Gpu, lowest_limit
from zeus.device.keeper.lease import found_limits
from zeus.distributed.group import RankGroup, barrier
from zeus.errors import DeviceError
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor.hours import EnergyByHour

if TYPE_CHECKING:
    from zeus.optimizer.recorder import Recorder

log = logging.getLogger(__name__)

HANDOVER_SECONDS = 0.1  # for a limit that was asked for when a piece began


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


class Piece:
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


class SharedWindow:
    """The window that all recorders of the same GPUs share."""

    def __init__(self, monitor: ZeusMonitor, group: RankGroup, include: Include) -> None:
        self.recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
        self.began = 0.0  # when the open piece began
        self.steps = 0  # that have ended
        self._reporters = set[int]()  # ids of the recorders that have reported the last step
        self.is_open = True
        self.sets_limits = False  # whether this process has set a limit since the training began
        self.local_error: str | None = None  # of this rank; an exchange makes it that of any rank
        self.hours = EnergyByHour(monitor.prices, include)
        self._name = f"zeus: training {next(_serials)}"
        self._monitor, self._group, self._include = monitor, group, include
        self._gpus = list(monitor.gpus.values())
        self._pending: deque[Piece] = deque()
        self._reading = _LimitReading(())  # of the limit where the open piece began
        monitor.begin_window(self._name, restart=True)
        self._mark_edge()
        with contextlib.suppress(DeviceError):  # a rank is lost; training begins all the same
            barrier(group)  # no rank may start work before all ranks measure

    @classmethod
    def of(cls, monitor: ZeusMonitor, group: RankGroup, include: Include) -> SharedWindow:
        """The window of these GPUs, in which a piece begins now. Every rank must call this."""
        key = window_key(monitor, group, include)
        if (window := cls.opened(key)) is None:
            _open[key] = window = cls(monitor, group, include)
        else:
            window.split(wait=False)
        return window

    @classmethod
    def opened(cls, key: object) -> SharedWindow | None:
        """The window of what `window_key` names, if anybody records it."""
        return _open.get(key)

    def join(self, recorder: Recorder) -> None:
        """Give this recorder the pieces from now on.

        A trial takes the GPUs over from an earlier one that was left open, such as by an error in a notebook.
        """
        for before in [one for one in self.recorders if one.is_trial and recorder.is_trial]:
            before.displace()
            self.recorders.discard(before)
        self.recorders.add(recorder)
        if id(recorder) not in self._reporters:
            self._reporters.clear()  # what is reported next is a new step

    def step(self, recorder: Recorder) -> None:
        """A training step has ended. The first recorder that reports it counts it.

        Recorders of one training report each step one after the other. A recorder that reports again has a new step.
        """
        who = id(recorder)
        if who in self._reporters:
            self._reporters.clear()
        if not self._reporters:
            self.steps += 1
        self._reporters.add(who)

    def leave(self, recorder: Recorder) -> None:
        """Give this recorder no more pieces. The window ends with its last recorder."""
        self.recorders.discard(recorder)
        if not self.recorders:
            self.is_open = False
            _open.pop(window_key(self._monitor, self._group, self._include), None)
            self._monitor.end_window(self._name, sync_execution=False, cancel=True)

    def split(self, *, wait: bool) -> None:
        """End a piece and begin the next one."""
        measurement, begin = self._split(wait), self._reading
        self._mark_edge()
        piece = Piece(measurement, begin, self._reading)
        self._pending.append(piece)
        for recorder in self.recorders:
            recorder.pieces.append(piece)

    @contextlib.contextmanager
    def setting_limit(self, *, wait: bool) -> Iterator[SharedWindow]:
        """A block in which this process sets limits. Steps before it and after it are in different segments."""
        self._divide(wait=wait)
        _ = self._reading.watts  # that of the piece before must not be read after the change
        try:
            yield self
        finally:
            self.sets_limits = True
            self._divide(wait=wait)

    def _divide(self, *, wait: bool) -> None:
        self.split(wait=wait)
        for recorder in self.recorders:
            recorder.divide()

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

    def _summed(self, pieces: Sequence[Piece]) -> list[Use]:
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

    def _alone(self, pieces: Sequence[Piece]) -> list[Use]:
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


_open: weakref.WeakValueDictionary[object, SharedWindow] = weakref.WeakValueDictionary()  # by what they measure
_serials = itertools.count(1)


def setting_limit(
    monitor: ZeusMonitor, group: RankGroup, include: Include, *, wait: bool = True
) -> contextlib.AbstractContextManager[SharedWindow | None]:
    """A block in which this process sets limits of these GPUs: a recorded training has other segments after it."""
    window = SharedWindow.opened(window_key(monitor, group, include))
    return contextlib.nullcontext() if window is None else window.setting_limit(wait=wait)


def window_key(monitor: ZeusMonitor, group: RankGroup, include: Include) -> object:
    """What a window measures, and by which clock. Recorders for which this is equal share a window."""
    return frozenset(gpu.spec.uuid for gpu in monitor.gpus.values()), monitor.clock, group.size, include


def limit_found(gpus: Sequence[Gpu]) -> float | None:
    """The lowest limit of these GPUs before this process set any, or None if a GPU does not report it."""
    before = found_limits()
    try:
        return min((before.get(gpu.spec.uuid) or gpu.limit() for gpu in gpus), default=None)
    except DeviceError:
        return None
