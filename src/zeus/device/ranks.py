"""Ranks on one node: which one this process is, and which cards it trains on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from zeus import env

PLACES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")  # set by torchrun, Slurm, Open MPI

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rank:
    """This process's rank among those of its job on this node."""

    job: str
    local: int
    size: int


def rank(environ: Mapping[str, str] = env.HERE) -> Rank | None:
    """The rank that the launcher put into the environment. None for a process on its own.

    >>> rank({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"})
    Rank(job='29500', local=1, size=2)
    """
    for local, size, job in (
        ("LOCAL_RANK", "LOCAL_WORLD_SIZE", ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")),
        ("SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
        ("SLURM_LOCALID", "SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),  # set where the former is not
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", ("OMPI_MCA_ess_base_jobid",)),
    ):
        index, count = environ.get(local, ""), environ.get(size, "")
        if index.isdigit() and count.isdigit() and int(count) > 1:
            names = "|".join(environ.get(name, "") for name in job)
            return Rank(names.strip("|") or f"parent-{os.getppid()}", int(index), int(count))
    return None


def own(cards: Sequence[T], me: Rank | None) -> list[T]:
    """The cards that this rank trains on: one if there are enough for every rank, else all that it sees.

    >>> own(["a", "b"], Rank("job", 1, 2)), own(["b"], Rank("job", 1, 2)), own(["a", "b"], None)
    (['b'], ['b'], ['a', 'b'])
    """
    return [cards[me.local]] if me is not None and len(cards) >= me.size > me.local else list(cards)
