"""The ranks of a job over torch.distributed: DDP, FSDP, torchrun and accelerate, whatever the backend.

Zeus talks over a gloo group of its own where there is gloo, so that its few bytes never queue with the gradients.
"""

from __future__ import annotations

import logging
import weakref
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from zeus.device.virtual import machine
from zeus.distributed.crew import Alone, Crew
from zeus.errors import DeviceError

T = TypeVar("T")

log = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=60)  # that all ranks have to come together in, once the first of them asks for a crew


class TorchCrew:
    """All ranks of the job, as `zeus.distributed.crew.Crew` wants them."""

    def __init__(self) -> None:
        own = dist.is_gloo_available()
        # Held by torch until `destroy_process_group`; held here too, it would outlive its threads at exit and abort.
        self._group = weakref.ref(dist.new_group(backend="gloo") if own else dist.group.WORLD)
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    @property
    def writes(self) -> bool:
        """The first rank of the job does."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The value of every rank; also where virtual ranks wait for each other."""
        every: list[Any] = [None] * self.size
        try:
            dist.all_gather_object(every, (value, machine.position()), group=self._alive())
        except RuntimeError as failed:
            raise DeviceError(f"the ranks of this training cannot agree any more: {failed}") from failed
        machine.meet(max(moment for _, moment in every))
        return [theirs for theirs, _ in every]

    def broadcast(self, value: T) -> T:
        """Rank 0's value."""
        return self.gather(value if self.writes else None)[0]  # type: ignore[return-value]

    def _alive(self) -> Any:
        group = self._group()
        if group is None:
            raise DeviceError("the ranks of this training have parted: destroy_process_group() was called.")
        return group


_known: tuple[weakref.ref[Any], Crew] | None = None  # the process group it was made for: another gets another


def crew(patience: timedelta = PATIENCE) -> Crew:
    """The crew of this process: every rank of torch.distributed where it is set up for several, else this one alone.

    All ranks must ask. Where some never do (a script that uses Zeus on its first rank only), those that did go on
    alone once their patience is over.
    """
    global _known
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return Alone()
    world = dist.group.WORLD
    if _known is None or _known[0]() is not world:
        _known = weakref.ref(world), TorchCrew() if _all_are_here(patience) else Alone()
    return _known[1]


def _all_are_here(patience: timedelta) -> bool:
    """A roll call before the first collective, which would wait for ever for a rank that never comes."""
    store = dist.distributed_c10d.PrefixStore("zeus", dist.distributed_c10d._get_default_store())
    me, size = dist.get_rank(), dist.get_world_size()
    store.set(f"here {me}", "1")
    try:
        if me == 0:
            try:
                store.wait([f"here {rank}" for rank in range(size)], patience)
                store.set("verdict", "together")
            except RuntimeError:
                store.set("verdict", "alone")
                log.warning("only some of the %d ranks use Zeus: each goes on by itself", size)
        return bool(store.get("verdict") == b"together")  # waits until rank 0 has come, as long as the group is patient
    except RuntimeError as failed:
        log.warning("rank 0 does not use Zeus, so rank %d goes on by itself: %s", me, failed)
        return False
