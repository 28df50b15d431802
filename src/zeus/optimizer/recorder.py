"""Measures a training from inside its process: one window, cut into segments at steps, epochs and evaluations.

    cut ──▶ segment whose energy is not known yet ──▶ deliver ──▶ every listener, in order
    mark ─▶ call, such as "an epoch has ended" ──────┘

Whoever wants to know what a training uses listens: the power limit optimizer, the engine of the trial, the energy log.
All that measure the same GPUs share one recorder. A cut waits neither for a sensor nor for the driver. Several ranks
cut at the same steps, and add up what each measures in one exchange when they deliver.
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

from zeus.cost import GPU_ONLY, Include, Use
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

Listener: TypeAlias = Callable[[Measured], None]  # a method; it does not keep its object alive
WeakListener: TypeAlias = "weakref.WeakMethod[Listener]"


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


class _Segment(NamedTuple):
    kind: Kind
    units: int
    begin: _LimitReading
    end: _LimitReading
    measurement: Measurement
    listeners: tuple[WeakListener, ...]

    @property
    def is_ready(self) -> bool:
        return self.measurement.is_ready and self.begin.is_over and self.end.is_over

    @property
    def limit(self) -> float | None:
        """The limit of the whole segment. None if it is unknown, or another process has changed it."""
        return self.end.watts if self.end.watts == self.begin.watts else None


class _Mark(NamedTuple):
    method: weakref.WeakMethod[Callable[..., None]]
    arguments: tuple[object, ...]


_open: weakref.WeakValueDictionary[object, Recorder] = weakref.WeakValueDictionary()  # those that measure, by GPUs
_serials = itertools.count(1)


class Recorder:
    """Measures one training in segments. Every rank makes the same calls at the same steps.

    Args:
        monitor: Measures the GPUs of this rank.
        group: The ranks that train together.
        include: Whose energy counts.
    """

    def __init__(self, monitor: ZeusMonitor, group: RankGroup, include: Include = GPU_ONLY) -> None:
        self.monitor, self.include = monitor, include
        self.steps = 0  # since the last cut
        self.sets_limits = False  # whether a listener has set a limit
        self.local_error: str | None = None  # of a listener; a delivery makes it that of any rank
        self._window = f"zeus: training {next(_serials)}"
        self._group = group
        self._listeners: dict[WeakListener, int] = {}  # and how many steps each has reported
        self._queue: deque[_Segment | _Mark] = deque()
        self._gpus = list(monitor.gpus.values())
        self._clock = monitor.clock
        self._began = 0.0  # when the open segment began
        self._reading = _LimitReading(())  # of the limit where it began
        self._stepped = 0  # steps since the measurement began
        self._hours = EnergyByHour(monitor.prices, include)

    # ------------------------------------------------------------------ who listens

    @classmethod
    def join(cls, monitor: ZeusMonitor, group: RankGroup, listener: Listener, include: Include = GPU_ONLY) -> Recorder:
        """Listen to what these GPUs use from now on. Every rank must call this.

        If a training on the same GPUs is being recorded already, that recorder is shared.
        """
        if (recorder := cls.current(monitor, group, include)) is None:
            _open[_key(monitor, group, include)] = recorder = cls(monitor, group, include)
            recorder._begin()
        else:
            recorder._cut_here(wait=False)
        recorder._listeners[weakref.WeakMethod(listener)] = recorder._stepped
        return recorder

    @classmethod
    def current(cls, monitor: ZeusMonitor, group: RankGroup, include: Include = GPU_ONLY) -> Recorder | None:
        """The recorder of a training on these GPUs. None if there is none."""
        return _open.get(_key(monitor, group, include))

    def leave(self, listener: Listener) -> None:
        """Listen no more. Segments that were cut before can still be delivered. The last one ends the measurement."""
        was_there = self._listeners.pop(weakref.WeakMethod(listener), None) is not None
        if was_there and not self._listeners:
            _open.pop(_key(self.monitor, self._group, self.include), None)
            self.monitor.end_window(self._window, sync_execution=False, cancel=True)

    def _begin(self) -> None:
        self.monitor.begin_window(self._window, restart=True)
        self._mark_edge()
        with contextlib.suppress(DeviceError):  # a rank is lost; training begins all the same
            barrier(self._group)  # no rank may start work before all ranks measure

    # ------------------------------------------------------------------ limits

    @contextlib.contextmanager
    def setting_limit(self, *, wait: bool = True) -> Iterator[None]:
        """A block in which this process sets limits: a segment ends before it, and another begins after it."""
        self._cut_here(wait=wait)
        _ = self._reading.watts  # that of the segment before must not be read after the change
        try:
            yield
        finally:
            self.sets_limits = True
            self.cut(Kind.STEP, 0, wait=wait)

    def found(self) -> float | None:
        """The lowest limit before this process set any, or None if a GPU does not report it."""
        return limit_found(self._gpus)

    # ------------------------------------------------------------------ cutting

    @property
    def open_seconds(self) -> float:
        """How long ago the open segment began."""
        return self._clock.now() - self._began

    def step(self, by: Listener) -> None:
        """A training step has ended. Every listener may say so: it counts once."""
        listener = weakref.WeakMethod(by)
        self._listeners[listener] = steps = self._listeners[listener] + 1
        if steps > self._stepped:
            self._stepped = steps
            self.steps += 1

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
        self.steps = 0
        if not self._listeners:
            return
        measurement, begin = self._split(wait), self._reading
        self._mark_edge()
        self._queue.append(_Segment(kind, count, begin, self._reading, measurement, tuple(self._listeners)))

    def _cut_here(self, *, wait: bool) -> None:
        """End a segment, whatever it holds: the steps so far, or what is between steps."""
        self.cut(Kind.STEP if self.steps else Kind.EVALUATION, self.steps, wait=wait)

    def mark(self, method: Callable[..., None], *arguments: object) -> None:
        """Have this method called when all segments that were cut before it have been delivered."""
        self._queue.append(_Mark(weakref.WeakMethod(method), arguments))

    def _mark_edge(self) -> None:
        self._began = self._clock.now()
        if self._reading.is_over:  # one that has not come yet is not asked for again: the driver may hang
            self._reading = _LimitReading(self._gpus)

    def _split(self, wait: bool) -> Measurement:
        """Split the window, even if the GPU's work failed: the user must see that failure, not one of measuring."""
        if wait and self._group.size > 1 and any(gpu.spec.exact for gpu in self._gpus):
            with contextlib.suppress(DeviceError):
                barrier(self._group)  # virtual cards work only when their rank says so: let all of them do so first
        try:
            return self.monitor.split_window(self._window, sync_execution=wait)
        except RuntimeError as failed:
            log.warning("could not wait for the GPU to finish its work: %s", failed)
            return self.monitor.split_window(self._window, sync_execution=False)

    # ------------------------------------------------------------------ delivering

    def deliver(self, *, wait: bool = False, alone: bool = False) -> None:
        """Pass on the segments whose energy is known on every rank, and make the calls between them.

        Args:
            wait: Whether to wait until the energy of all segments is known.
            alone: Do not wait for other ranks, which may be gone. With several ranks, the energy is not known.
        """
        waiting = [one for one in self._queue if isinstance(one, _Segment)]
        ready = waiting
        if not wait:
            ready = waiting[: next((i for i, one in enumerate(waiting) if not one.is_ready), len(waiting))]
        known = deque(self._alone(ready) if alone else self._summed(ready) if waiting else [])
        while self._queue and (known or not isinstance(self._queue[0], _Segment)):
            head = self._queue.popleft()
            if isinstance(head, _Mark):
                if (method := head.method()) is not None:
                    method(*head.arguments)
                continue
            with contextlib.suppress(Exception) if alone else contextlib.nullcontext():
                self._hours.add(head.measurement)
            measured = Measured(head.kind, head.units, known.popleft(), head.limit)
            for weak in head.listeners:
                if (listener := weak()) is not None:
                    listener(measured)

    def _summed(self, segments: Sequence[_Segment]) -> list[Use]:
        """What each of these segments used on all ranks, as far as all ranks know."""
        own = [one.measurement.use(self.include) for one in segments]
        if self._group.size == 1:
            return own
        try:
            rows = self._group.gather(([(use.joules, use.seconds) for use in own], self.local_error))
        except DeviceError as lost:  # a rank, and with it what its GPUs used
            self.local_error = str(lost)
            return [Use(math.nan, use.seconds) for use in own]
        self.local_error = next((error for _, error in rows if error is not None), None)
        by_segment = zip(*(uses for uses, _ in rows), strict=False)  # only those that are known on every rank
        return [Use(sum(j for j, _ in uses), max(s for _, s in uses)) for uses in by_segment]

    def _alone(self, segments: Sequence[_Segment]) -> list[Use]:
        found, several = [], self._group.size > 1
        for segment in segments:
            try:
                use = segment.measurement.use(self.include)
            except Exception as failed:  # the user must see the exception that ended the training, not this one
                log.warning("what the trial used at its end could not be measured: %s", failed)
                use = Use(math.nan, 0.0)
            seconds = use.seconds if math.isfinite(use.seconds) else 0.0
            found.append(Use(math.nan if several else use.joules, seconds))
        return found

    # ------------------------------------------------------------------ money and carbon

    def priced(self, outcome: Outcome, *, wait: bool = True) -> Outcome:
        """The outcome with its energy by hour. With several ranks, it is spread as this rank's energy is.

        Without `wait`, an online source is not waited for.
        """
        return self._hours.priced(outcome, wait=wait)

    def footprint(self, joules: float) -> Footprint | None:
        """Money and carbon of these joules at the rates of the hours so far. None if no rate is given."""
        hourly = self._hours.hourly(joules, wait=False)
        return None if hourly is None else hourly.footprint


def _key(monitor: ZeusMonitor, group: RankGroup, include: Include) -> object:
    return frozenset(gpu.spec.uuid for gpu in monitor.gpus.values()), monitor.clock, group.size, include


def limit_found(gpus: Sequence[Gpu]) -> float | None:
    """The lowest limit of these GPUs before this process set any, or None if a GPU does not report it."""
    before = found_limits()
    try:
        return min((before.get(gpu.spec.uuid) or gpu.limit() for gpu in gpus), default=None)
    except DeviceError:
        return None
