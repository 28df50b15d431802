"""A composite of two real clusters, used when no table of recurring training jobs is available (§6.3).

Neither source is enough alone. Microsoft's Philly trace has the durations of real training jobs, but does not say which
of them recur. Alibaba's DLRM trace of 2025 has real groups that overlap, but they are inference instances. So:

- Group sizes, order of submission and overlap come from the DLRM applications.
- Durations come from Philly jobs. Each application takes consecutive jobs of one (virtual cluster, GPU count); the
  longer an application lived, the longer its jobs. Its submissions are then stretched or squeezed in time, so that as
  many of its jobs overlap as in the application.

The composite is neither cluster. Nothing computed from it is a statement about either.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from zeus import settings
from zeus.errors import InputError
from zeus.simulate.cluster.tables import ClusterTrace, collect
from zeus.simulate.traces.csv_tables import Cells, Header, read_table

DLRM: Final = Path("alibaba_gpu_v2025_dlrm") / "disaggregated_DLRM_trace.csv"
PHILLY: Final = Path("philly_jobs_adaptdl") / "philly.csv"
SOURCE: Final = (
    "composite: durations of Microsoft Philly training jobs, group sizes and overlap of Alibaba DLRM inference "
    "applications of 2025 (neither cluster as it was)"
)


def composite(data: Path | str) -> ClusterTrace:
    """Build the composite from the folder that holds both traces. The result is always the same; nothing is random."""
    groups = sorted(_applications(Path(data) / DLRM).items(), key=lambda item: (_mean_life(item[1]), item[0]))
    queues = sorted(_durations(Path(data) / PHILLY), key=lambda queue: (math.fsum(queue) / len(queue), queue))

    def jobs() -> Iterator[tuple[str, float, float]]:
        for rank, (name, lives) in enumerate(groups):
            queue = queues[rank * len(queues) // len(groups)]
            taken = [queue[(rank + i) % len(queue)] for i in range(len(lives))]
            stretch = math.fsum(taken) / math.fsum(end - start for start, end in lives)
            for (start, _), took in zip(lives, taken, strict=True):
                yield name, start * stretch, start * stretch + took

    return collect(SOURCE, jobs())


def _applications(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Start and end of each instance by application, in order of start. Instances without both are left out."""
    lives: dict[str, list[tuple[float, float]]] = {}
    for row in _rows(path, ("app_name", "creation_time", "deletion_time")):
        if row["creation_time"] and row["deletion_time"]:
            start, end = row.number("creation_time"), row.number("deletion_time")
            if end > start:
                lives.setdefault(row["app_name"], []).append((start, end))
    return {name: sorted(each) for name, each in lives.items()}


def _durations(path: Path) -> list[list[float]]:
    """Durations of jobs in order of submission, one list per virtual cluster and number of GPUs."""
    queues: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for row in _rows(path, ("timestamp", "duration", "num_gpus", "cluster")):
        took = row.number("duration")
        if took > 0:
            queues.setdefault((row["cluster"], row["num_gpus"]), []).append((row["timestamp"], took))
    if not queues:
        raise InputError(f"{path}: no job has a duration above 0. At least one is needed.")
    return [[took for _, took in sorted(queue)] for queue in queues.values()]


def _mean_life(lives: list[tuple[float, float]]) -> float:
    return math.fsum(end - start for start, end in lives) / len(lives)


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[Cells]:
    """Rows of a CSV with at least these columns."""
    if not path.exists():
        folder = path.parent.parent
        where = f"the default folder, {folder}" if settings.data() is None else f"ZEUS_DATA, {folder}"
        raise InputError(
            f"the trace {path.parent.name}/{path.name} is needed, and is not in {where}. Set ZEUS_DATA to the folder "
            f"that holds {path.parent.name}, or give a table of your own with --groups."
        )
    return read_table(path, columns, Header.AMONG)
