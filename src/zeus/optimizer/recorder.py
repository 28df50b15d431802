"""Measures a training from inside its process, in segments of steps, epochs and evaluations.

    cut ──▶ segment whose energy is not known yet ──▶ deliver ──▶ the listener, in order
    mark ─▶ call, such as "an epoch has ended" ──────┘

Whoever wants to know what a training uses has a recorder: the power limit optimizer, the engine of the trial, the
energy log. All recorders of the same GPUs share one window (`zeus.optimizer.shared_window`). A segment is all pieces of
that window since the recorder's last cut. So each listener gets its own units, and all get the same energy.

A cut waits neither for a sensor nor for the driver. Several ranks cut at the same steps, and add up what each measures
in one exchange when they deliver.

    IDLE ──begin──▶ RECORDING ──end──▶ IDLE
                        └── another trial begins ──▶ DISPLACED
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple, TypeAlias

from zeus.cost import GPU_ONLY, ZERO, Include, Use
from zeus.distributed.group import RankGroup
from zeus.job import Kind, Outcome
from zeus.monitor import ZeusMonitor
from zeus.optimizer.shared_window import Piece, SharedWindow, window_key
from zeus.tariff.rates import Footprint
from zeus.trial.engine import Measured

Listener: TypeAlias = Callable[[Measured], None]


def _nobody() -> None:
    """The window of others, if there are none."""


class State(Enum):
    """Whether a recorder measures (drawn above)."""

    IDLE = auto()
    RECORDING = auto()
    DISPLACED = auto()  # another trial has taken the GPUs over: nobody can tell the energy of this one any more


class _Segment(NamedTuple):
    kind: Kind
    units: int
    pieces: tuple[Piece, ...]

    def measured(self) -> Measured:
        limits = {piece.limit for piece in self.pieces}
        use = sum((piece.use or ZERO for piece in self.pieces), ZERO) if self.pieces else Use(math.nan, 0.0)
        return Measured(self.kind, self.units, use, limits.pop() if len(limits) == 1 else None)


class _Mark(NamedTuple):
    method: weakref.WeakMethod[Callable[..., None]]
    arguments: tuple[object, ...]


class Recorder:
    """Records one training for one listener. Every rank makes the same calls at the same steps.

    Args:
        monitor: Measures the GPUs of this rank.
        group: The ranks that train together.
        listener: Is called with each segment. A method; the recorder does not keep its object alive.
        include: Whose energy counts.
        is_trial: Whether this records a trial. Only one trial at a time is measured on the same GPUs: the latest.
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
        self.is_trial = is_trial
        self.state = State.IDLE
        self.pieces: list[Piece] = []  # since the last cut
        self.in_unit = False  # whether an epoch is running that is measured as a whole unless steps are seen in it
        self.sees_steps = False
        self._group = group
        self._listener = weakref.WeakMethod(listener)
        self._queue: deque[_Segment | _Mark] = deque()
        self._window: SharedWindow | None = None
        self._others: Callable[[], SharedWindow | None] = _nobody  # who record while this recorder does not
        self._began = 0.0  # when the open segment began
        self._cut_at = 0  # steps of the window that had ended then

    def begin(self) -> None:
        """Start measuring. Every rank must call this."""
        self._queue.clear()
        self.pieces.clear()
        self._window = window = SharedWindow.of(self.monitor, self._group, self.include)
        window.join(self)
        self.state = State.RECORDING
        self._began, self._cut_at = window.began, window.steps

    def end(self) -> None:
        """Stop measuring. Segments that were cut before can still be delivered."""
        if self._window is not None and self.is_recording:
            self._window.leave(self)
        self.state = State.IDLE

    def displace(self) -> None:
        """Another trial begins on these GPUs. This one is charged until now."""
        self.close_segment(Kind.EVALUATION, 0)
        self.state = State.DISPLACED

    @cached_property
    def _key(self) -> object:
        """Kept, because an idle recorder looks for the window at every step."""
        return window_key(self.monitor, self._group, self.include)

    # ------------------------------------------------------------------ limits

    @property
    def sets_limits(self) -> bool:
        """Whether this process has set a limit since the training began."""
        return self._window is not None and self._window.sets_limits

    @property
    def local_error(self) -> str | None:
        """Why this rank could not set a limit; once something was delivered, why any rank could not."""
        return None if self._window is None else self._window.local_error

    # ------------------------------------------------------------------ cutting

    @property
    def is_recording(self) -> bool:
        return self.state is State.RECORDING

    @property
    def open_seconds(self) -> float:
        """How long ago the open segment began."""
        return self.monitor.clock.now() - self._began

    @property
    def is_whole(self) -> bool:
        """Whether it measures an epoch as a whole, which a change of the limit must not divide."""
        return self.in_unit and not self.sees_steps

    @property
    def steps(self) -> int:
        """Steps since the last cut. 0 in an epoch that is measured as a whole."""
        return 0 if self._window is None or self.is_whole else self._window.steps - self._cut_at

    def step(self) -> None:
        """A training step has ended. All recorders of the same GPUs count it, even if this one is idle."""
        self.sees_steps = True
        if self.state is State.DISPLACED:
            self._queue.append(_Segment(Kind.STEP, 1, ()))
            return
        window = self._window if self.is_recording else self._window_of_others()
        if window is not None:
            window.step(self)

    def _window_of_others(self) -> SharedWindow | None:
        """The window in which others record these GPUs. It is remembered while it is open, to be found fast."""
        window = self._others()
        if window is None or not window.is_open:
            window = SharedWindow.opened(self._key)
            self._others = weakref.ref(window) if window is not None else _nobody
        return window

    def cut_steps(self, *, wait: bool = True) -> None:
        """Cut off the steps since the last cut, if there are any."""
        if self.is_recording and self.steps:
            self.cut(Kind.STEP, self.steps, wait=wait)

    def cut(self, kind: Kind, count: int, *, wait: bool = True) -> None:
        """End a segment of so many units and begin the next one. Steps before it are a segment of their own.

        Args:
            kind: Kind of its units.
            count: Number of its units; 0 if it holds none, but must be charged.
            wait: Whether to wait for the GPU to finish its work, so that all of it counts.
        """
        if kind is not Kind.STEP:
            self.cut_steps(wait=wait)
        if self._window is not None and self.is_recording:
            self._window.split(wait=wait)
            self.close_segment(kind, count)
        elif count and self.state is State.DISPLACED:
            self._queue.append(_Segment(kind, count, ()))

    def divide(self) -> None:
        """End a segment where the window was split because a limit changes."""
        if not self.is_whole:
            self.close_segment(Kind.STEP if self.steps else Kind.EVALUATION, self.steps)

    def close_segment(self, kind: Kind, count: int) -> None:
        """End a segment where the window was split just now."""
        self._queue.append(_Segment(kind, count, tuple(self.pieces)))
        self.pieces.clear()
        if self._window is not None:
            self._began, self._cut_at = self._window.began, self._window.steps

    def mark(self, method: Callable[..., None], *arguments: object) -> None:
        """Have this method called when all that came before it, steps included, has been delivered."""
        self.cut_steps(wait=False)
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
