"""The ranks of a job over torch.distributed: DDP, FSDP, torchrun and accelerate, with any backend.

    every rank posts its value ──▶ the first rank collects them ──▶ verdict ──▶ every rank reads it

A verdict is all values, or the rank that is lost. The store keeps the first one that is written, so all ranks that
reach it get the same: they give up together, at the same call, and the next call may work again. A rank that does not
even reach the store leaves the crew for good.

A rank may also be lost between two calls, while the others wait for it in the training itself. The board's watch then
has each rank restore its limits at once, on another thread. If the lost rank comes back, the next call returns all
values, and before that every rank gives up.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ParamSpec, TypeAlias, TypeVar

import torch.distributed as dist

from zeus.device.virtual import machine
from zeus.distributed.crew import Alone, Crew
from zeus.distributed.notice import say_here
from zeus.distributed.torch_board import BUSY_SECONDS, START_SECONDS, TorchBoard, board
from zeus.errors import DeviceError

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Weak: TypeAlias = Callable[[], Callable[P, R] | None]  # a weak reference to a function
Row: TypeAlias = tuple[Any, float, str | None]  # of each rank: its value, its virtual time, the loss that it noticed

log = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=START_SECONDS)  # how long to wait for the other ranks, from the first call of `crew` on


@dataclass(frozen=True, slots=True)
class _Lost:
    """The verdict that the ranks did not all come."""

    why: str


class TorchCrew:
    """All ranks of the job. Implements `zeus.distributed.crew.Crew`."""

    def __init__(self, ranks: TorchBoard) -> None:
        self._board = ranks
        self.rank, self.size = ranks.rank, ranks.size
        self.waited = 0.0
        self._turn = 0  # how often this rank has called `gather`
        self._kept: list[str] = []  # verdicts that a rank may not have read yet
        self._cut_off: str | None = None  # why this rank has left for good
        self._said = False
        self._alarm: str | None = None  # a loss that the watch has noticed, until all ranks know of it
        self._restoring = threading.Lock()
        self._listeners: list[tuple[Weak[[], str | None], Weak[[str], None]]] = []

    @property
    def writes(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The value of every rank. Also brings the clocks of virtual GPUs together."""
        if self._cut_off is not None:
            raise DeviceError(self._cut_off)
        here, began, alarm = machine.position(), time.monotonic(), self._alarm
        try:
            verdict = self._verdict((value, here, alarm))
        except DeviceError as failed:
            self._cut_off = str(failed)
            verdict = _Lost(str(failed))
        if self._alarm is alarm:  # otherwise there was another meanwhile, which all ranks learn next time
            self._alarm = None
        if isinstance(verdict, _Lost):
            self.waited += time.monotonic() - began
            self._lose(verdict.why)
            raise DeviceError(verdict.why)
        if why := next((theirs for _, _, theirs in verdict if theirs is not None), None):
            self._lose(why)
        there = max(moment for _, moment, _ in verdict)
        machine.meet(there)
        self.waited += there - here if machine.has_position() else time.monotonic() - began
        return [theirs for theirs, _, _ in verdict]

    def broadcast(self, value: T) -> T:
        return self.gather(value if self.writes else None)[0]  # type: ignore[return-value]

    def on_loss(self, restore: Callable[[], str | None], give_up: Callable[[str], None]) -> None:
        self._listeners.append((_weak(restore), _weak(give_up)))

    def alarm(self, why: str) -> None:
        """A rank is lost, as the watch has noticed. What this rank has set is restored at once, on this thread."""
        if did := self._restore():
            self._alarm = why
            self._say(why, did, "Zeus does not end the training.")

    def _verdict(self, mine: Row) -> list[Row] | _Lost:
        self._turn += 1
        key, ranks = f"turn {self._turn}", range(self.size)
        self._board.post(f"{key} of {self.rank}", mine)
        found: list[Row] | _Lost
        if self.writes:
            try:
                rows = self._board.read_all({rank: f"{key} of {rank}" for rank in ranks})
                found = [rows[rank] for rank in ranks]
            except DeviceError as lost:
                found = _Lost(str(lost))
            found = self._board.settle(key, found)
            if not isinstance(found, _Lost):
                self._board.forget(*self._kept)  # all ranks have come here, so none of them still reads these
                self._kept = []
            self._kept.append(key)
        else:
            try:
                # The first rank knows better who is missing, so it decides before the others lose their patience.
                found = self._board.read_all({0: key}, 1.1 * BUSY_SECONDS)[0]
            except DeviceError as lost:
                found = self._board.settle(key, _Lost(str(lost)))
        self._board.forget(f"turn {self._turn - 1} of {self.rank}")
        return found

    def _lose(self, why: str) -> None:
        """Have everyone here restore and give up, and say once what happened and what was done."""
        did = self._restore()
        for _, give_up in self._listeners:
            if (react := give_up()) is not None:
                react(why)
        if not self._said or did:
            self._say(why, did or ["does not know what the others do"], "Training goes on.")

    def _restore(self) -> list[str]:
        """What was done. Nothing is done twice."""
        with self._restoring:
            return [done for weak, _ in self._listeners if (restore := weak()) is not None and (done := restore())]

    def _say(self, why: str, did: list[str], then: str) -> None:
        self._said = True
        say_here(f"rank {self.rank}: {why}. This rank {' and '.join(did)}. {then}")


def _weak(call: Callable[P, R]) -> Weak[P, R]:
    """A reference that does not keep a method's object alive."""
    return weakref.WeakMethod(call) if hasattr(call, "__self__") else lambda: call


_current: tuple[weakref.ref[Any], Crew] | None = None  # the process group and its crew


def crew(patience: timedelta = PATIENCE) -> Crew:
    """The crew of this process: every rank if torch.distributed is set up for several, else this process alone.

    All ranks must call this. A script may use Zeus on its first rank only; then the ranks that do call go on alone
    after `patience`.
    """
    global _current
    here = board()
    if here is None:
        return Alone()
    world = dist.group.WORLD
    if _current is None or _current[0]() is not world:
        _current = weakref.ref(world), _watched(here) if here.everyone(patience) else Alone()
    return _current[1]


def _watched(ranks: TorchBoard) -> TorchCrew:
    made = TorchCrew(ranks)
    ranks.watch(made.alarm)
    return made
