"""Ranks on one node: which one this process is, which cards it trains on, and where it shares files with the others."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from zeus import settings
from zeus.files import private_folder

PLACEMENTS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")  # set by torchrun, Slurm, Open MPI
TORCH_JOB = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
# Where launchers tell the rank among all nodes. The first that is set counts.
FIRST = (("RANK",), ("OMPI_COMM_WORLD_RANK",), ("NODE_RANK", "LOCAL_RANK"), ("SLURM_PROCID",))

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rank:
    """This process's rank among those of its job on this node."""

    job: str
    local: int
    size: int


def rank(environ: Mapping[str, str] = settings.HERE) -> Rank | None:
    """The rank that the launcher put into the environment, or else torch.distributed. None for a process on its own.

    >>> rank({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"})
    Rank(job='29500', local=1, size=2)
    """
    for local, size, job in (
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE", TORCH_JOB),
        ("LOCAL_RANK", "LOCAL_SIZE", TORCH_JOB),  # DeepSpeed
        ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
        ("SLURM_LOCALID", "SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),  # set where the former is not
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ("OMPI_MCA_ess_base_jobid",)),
    ):
        index, count = environ.get(local, ""), environ.get(size, "")
        if index.isdigit() and count.isdigit() and int(count) > 1:
            names = "|".join(environ.get(name, "") for name in job)
            return Rank(names.strip("|") or f"parent-{os.getppid()}", int(index), int(count))
    return _torch_rank() if environ is settings.HERE else None


def connected() -> Any:
    """The module torch.distributed once it connects several ranks, else None. Does not import it."""
    ranks = sys.modules.get("torch.distributed")
    if ranks is None or not ranks.is_available() or not ranks.is_initialized():
        return None
    return ranks if ranks.get_world_size() > 1 else None


def is_first(environ: Mapping[str, str] = settings.HERE) -> bool:
    """Whether this is the first rank of its training, which speaks for all, or a process on its own.

    >>> is_first({"RANK": "0", "LOCAL_RANK": "0"}), is_first({"NODE_RANK": "1", "LOCAL_RANK": "0"}), is_first({})
    (True, False, True)
    """
    ranks = connected() if environ is settings.HERE else None
    if ranks is not None:
        return bool(ranks.get_rank() == 0)
    names = next((names for names in FIRST if any(environ.get(name) for name in names)), ())
    return all(environ.get(name, "0") in ("", "0") for name in names)


_found: tuple[weakref.ref[Any], Rank] | None = None  # the process group, and this process's rank in it


def _torch_rank() -> Rank | None:
    """The rank of a process that no launcher told its place: Lightning's own, `torch.multiprocessing.spawn`.

    Rank and size are those over all nodes. They also tell which rank is the lowest on a node.
    """
    global _found
    ranks = connected()
    if ranks is None:
        return None
    world = ranks.group.WORLD
    if _found is None or _found[0]() is not world:
        store = ranks.PrefixStore("zeus ranks", ranks.distributed_c10d._get_default_store())
        job = store.compare_set("job", "", uuid4().hex).decode()  # that of the rank that comes first
        _found = weakref.ref(world), Rank(job, ranks.get_rank(), ranks.get_world_size())
    return _found[1]


def own(cards: Sequence[T], me: Rank | None) -> list[T]:
    """The cards that this rank trains on: one if there are enough for every rank, else all that it sees.

    >>> own(["a", "b"], Rank("job", 1, 2)), own(["b"], Rank("job", 1, 2)), own(["a", "b"], None)
    (['b'], ['b'], ['a', 'b'])
    """
    return [cards[me.local]] if me is not None and len(cards) >= me.size > me.local else list(cards)


def shared_folder(environ: Mapping[str, str] = settings.HERE) -> Path:
    """Where the processes of one user share small files, such as rank locks and virtual cards.

    It is in XDG_RUNTIME_DIR, or else in the temporary folder, which other users can write to. It is gone after logout
    or reboot.

    Raises:
        NotPermitted: The folder's name is taken by something that is not a folder, or that others own or may write to.
    """
    if (runtime := settings.runtime_folder(environ)) is not None:
        return runtime / "zeus"
    folder = settings.temporary_folder(environ)
    return private_folder(folder, "the folder of virtual cards and ranks", "set XDG_RUNTIME_DIR to another folder")
