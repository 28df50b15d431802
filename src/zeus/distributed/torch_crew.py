"""The ranks of a job over torch.distributed: DDP, FSDP, torchrun and accelerate, with any backend.

    every rank posts its value ──▶ the first rank collects them ──▶ verdict ──▶ every rank reads it

A verdict is all values, or the rank that is lost. The store keeps the first one that is written, so all ranks that
reach it get the same: they give up together, at the same call, and the next call may work again. A rank that does not
even reach the store leaves the crew for good.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from zeus.device.virtual import machine
from zeus.distributed.crew import Alone, Crew
from zeus.distributed.notice import say_here
from zeus.distributed.torch_board import BUSY_SECONDS, START_SECONDS, TorchBoard, board
from zeus.errors import DeviceError

T = TypeVar("T")

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
        self._listeners: list[Callable[[], Callable[[str], str | None] | None]] = []  # weak references

    @property
    def writes(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The value of every rank. Also brings the clocks of virtual GPUs together."""
        if self._cut_off is not None:
            raise DeviceError(self._cut_off)
        here, began = machine.position(), time.monotonic()
        try:
            verdict = self._verdict((value, here))
        except DeviceError as failed:
            self._cut_off = str(failed)
            verdict = _Lost(str(failed))
        if isinstance(verdict, _Lost):
            self.waited += time.monotonic() - began
            self._lose(verdict.why)
            raise DeviceError(verdict.why)
        there = max(moment for _, moment in verdict)
        machine.meet(there)
        self.waited += there - here if machine.has_position() else time.monotonic() - began
        return [theirs for theirs, _ in verdict]

    def broadcast(self, value: T) -> T:
        return self.gather(value if self.writes else None)[0]  # type: ignore[return-value]

    def on_loss(self, react: Callable[[str], str | None]) -> None:
        self._listeners.append(weakref.WeakMethod(react) if hasattr(react, "__self__") else lambda: react)

    def _verdict(self, mine: tuple[Any, float]) -> list[tuple[Any, float]] | _Lost:
        self._turn += 1
        key, ranks = f"turn {self._turn}", range(self.size)
        self._board.post(f"{key} of {self.rank}", mine)
        found: list[tuple[Any, float]] | _Lost
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
        """Let everyone here react, and say once what happened and what was done."""
        did = [done for weak in self._listeners if (react := weak()) is not None and (done := react(why))]
        if not self._said or did:
            self._said = True
            what = " and ".join(did) or "does not know what the others do"
            say_here(f"rank {self.rank}: {why}. This rank {what}. Training goes on.")


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
        _current = weakref.ref(world), TorchCrew(here) if here.everyone(patience) else Alone()
    return _current[1]
