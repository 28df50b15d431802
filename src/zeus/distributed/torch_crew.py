"""The ranks of a job over torch.distributed: DDP, FSDP, torchrun and accelerate, with any backend.

Zeus uses its own gloo group if gloo is available, so that its few bytes do not queue behind the gradients.
"""

from __future__ import annotations

import logging
import pickle
import weakref
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from zeus.device.virtual import machine
from zeus.distributed.crew import Alone, Crew
from zeus.errors import DeviceError

T = TypeVar("T")

log = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=60)  # how long to wait for the other ranks, from the first call of `crew` on


class TorchCrew:
    """All ranks of the job. Implements `zeus.distributed.crew.Crew`."""

    def __init__(self) -> None:
        own = dist.is_gloo_available()
        # Torch holds the group until `destroy_process_group`. A second reference would keep it alive at exit, after its
        # threads have ended, and the process would abort.
        self._group = weakref.ref(dist.new_group(backend="gloo") if own else dist.group.WORLD)
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    @property
    def writes(self) -> bool:
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The value of every rank. Also brings the clocks of virtual GPUs together."""
        every: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(every, (value, machine.position()), group=self._alive())
        except RuntimeError as failed:
            raise DeviceError(f"the ranks of this training can no longer communicate: {failed}") from failed
        machine.meet(max(moment for _, moment in every))
        return [theirs for theirs, _ in every]

    def broadcast(self, value: T) -> T:
        return self.gather(value if self.writes else None)[0]  # type: ignore[return-value]

    def _alive(self) -> Any:
        group = self._group()
        if group is None:
            raise DeviceError("the ranks can no longer communicate: destroy_process_group() was called.")
        return group


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
        _current = weakref.ref(world), TorchCrew() if here.everyone(patience) else Alone()
    return _current[1]


class TorchBoard:
    """The store of torch.distributed. Implements `zeus.distributed.crew.Board`."""

    def __init__(self) -> None:
        store = dist.distributed_c10d._get_default_store()
        self._store = dist.distributed_c10d.PrefixStore("zeus", store)
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._together: bool | None = None
        self._store.set(f"here {self.rank}", "1")

    def post(self, key: str, value: object) -> None:
        self._store.set(f"posted {key}", pickle.dumps(value).hex())

    def read(self, key: str) -> Any:
        try:
            text = self._store.get(f"posted {key}")  # waits, up to the group's timeout
        except RuntimeError as failed:
            raise DeviceError(f"another rank of this training did not answer: {failed}") from failed
        return pickle.loads(bytes.fromhex(text.decode()))

    def everyone(self, patience: timedelta = PATIENCE) -> bool:
        if self._together is None:
            self._together = self._all_are_here(patience)
        return self._together

    def _all_are_here(self, patience: timedelta) -> bool:
        """Check that all ranks use Zeus. Otherwise the first collective would wait for ever."""
        try:
            if self.rank == 0:
                try:
                    self._store.wait([f"here {rank}" for rank in range(self.size)], patience)
                    self._store.set("verdict", "together")
                except RuntimeError:
                    self._store.set("verdict", "alone")
                    log.warning("Only some of the %d ranks use Zeus, so each goes on alone.", self.size)
            return bool(self._store.get("verdict") == b"together")  # waits for rank 0, up to the group's timeout
        except RuntimeError as failed:
            log.warning("Rank 0 does not use Zeus, so rank %d goes on alone: %s", self.rank, failed)
            return False


_board: tuple[weakref.ref[Any], TorchBoard] | None = None  # the process group and its board


def board() -> TorchBoard | None:
    """The board of all ranks; None if torch.distributed is not set up for several. Does not wait."""
    global _board
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    world = dist.group.WORLD
    if _board is None or _board[0]() is not world:
        _board = weakref.ref(world), TorchBoard()
    return _board[1]
