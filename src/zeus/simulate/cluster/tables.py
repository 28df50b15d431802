"""Recurring jobs of a cluster (§6.3): who ran what again and again, read strictly from tables of jobs.

Two forms are read: a CSV of `group,start_time,end_time`, and the folder of the Alibaba PAI trace of 2020 (public as
cluster-trace-gpu-v2020), of which the job table and the group tags are needed (`tables.read_table` with
`PAI_COLUMNS` reads the others as well). A fault raises `InputError` with the
file, the line and what is wrong there. Jobs that did not end well are no fault: they are dropped and counted.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zeus.errors import InputError
from zeus.simulate.traces.csv_tables import number, read_table

PLAIN_COLUMNS: Final = ("group", "start_time", "end_time")
PAI_COLUMNS: Final[dict[str, tuple[str, ...]]] = {  # the published files hold no header line
    "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "pai_task_table": (
        *("job_name", "task_name", "inst_num", "status", "start_time", "end_time"),
        *("plan_cpu", "plan_mem", "plan_gpu", "gpu_type"),
    ),
    "pai_instance_table": (
        *("job_name", "task_name", "inst_name", "worker_name", "inst_id"),
        *("status", "start_time", "end_time", "machine"),
    ),
    "pai_group_tag_table": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
}
STATUSES: Final = ("Terminated", "Failed", "Running", "Waiting")  # only the first is a job that ended well


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A recurring job: when each of its submissions started and how long it ran, by start."""

    name: str
    starts: array[float]  # seconds
    runtimes: array[float]  # seconds, above 0

    @property
    def mean_runtime(self) -> float:
        """Over its jobs."""
        return math.fsum(self.runtimes) / len(self.runtimes)


@dataclass(frozen=True, slots=True, eq=False)
class ClusterTrace:
    """All groups of a cluster, and what was left out on the way."""

    source: str  # what the groups are, in words
    groups: tuple[Group, ...]  # by name
    dropped: int  # jobs that did not end well or took no time
    ungrouped: int = 0  # jobs that ended well and belong to no group

    @property
    def jobs(self) -> int:
        """How many there are to replay."""
        return sum(len(group.starts) for group in self.groups)


def read_groups(path: Path | str) -> ClusterTrace:
    """The groups of a folder with the PAI tables, or of a CSV of `group,start_time,end_time`."""
    path = Path(path)
    return _read_pai(path) if path.is_dir() else _read_plain(path)


def collect(source: str, jobs: Iterable[tuple[str, float, float | None]], ungrouped: int = 0) -> ClusterTrace:
    """Jobs as (group, start, end) to groups; without an end, or with no time between, a job is dropped."""
    starts: dict[str, array[float]] = {}
    runtimes: dict[str, array[float]] = {}
    dropped = 0
    for group, start, end in jobs:
        if end is None or end <= start:
            dropped += 1
            continue
        starts.setdefault(group, array("d")).append(start)
        runtimes.setdefault(group, array("d")).append(end - start)
    if not starts:
        raise InputError(f"{source}: no job ended well, of {dropped}. At least one is needed.")
    return ClusterTrace(
        source, tuple(_by_start(name, starts[name], runtimes[name]) for name in sorted(starts)), dropped, ungrouped
    )


def _read_plain(path: Path) -> ClusterTrace:
    def jobs() -> Iterator[tuple[str, float, float | None]]:
        for line, (group, start, end) in read_table(path, PLAIN_COLUMNS):
            if not group.strip():
                raise InputError(f"{path}, line {line}: group is {group!r}; a name is needed.")
            began, ended = number(path, line, "start_time", start), _time(path, line, "end_time", end)
            if ended is not None and ended < began:
                raise InputError(f"{path}, line {line}: end_time {end} is before start_time {start}.")
            yield group, began, ended

    return collect(str(path), jobs())


def _read_pai(folder: Path) -> ClusterTrace:
    job_table, tag_table = folder / "pai_job_table.csv", folder / "pai_group_tag_table.csv"
    columns = PAI_COLUMNS["pai_group_tag_table"]
    at, names = (columns.index("inst_id"), columns.index("group")), dict[str, str]()  # of groups: each kept once
    tags: dict[str, str] = {}
    for line, cells in read_table(tag_table, columns):
        inst, group = (cells[i] for i in at)
        if not inst:
            raise InputError(f"{tag_table}, line {line}: inst_id is empty; it says which job the tag is of.")
        if group:
            group = names.setdefault(group, group)
            if tags.setdefault(inst, group) != group:
                raise InputError(f"{tag_table}, line {line}: {inst} is of group {group} and of group {tags[inst]}.")
    ungrouped = 0

    def jobs() -> Iterator[tuple[str, float, float | None]]:
        nonlocal ungrouped
        for line, (_, inst, _, status, start, end) in read_table(job_table, PAI_COLUMNS["pai_job_table"]):
            if status not in STATUSES:
                raise InputError(f"{job_table}, line {line}: status is {status!r}; one of {', '.join(STATUSES)}.")
            began, ended = _time(job_table, line, "start_time", start), _time(job_table, line, "end_time", end)
            if status != STATUSES[0] or began is None:
                ended = None
            elif inst not in tags:
                ungrouped += 1
                continue
            yield tags.get(inst, ""), began or 0.0, ended

    trace = collect(f"Alibaba PAI trace of 2020 in {folder}", jobs())
    return ClusterTrace(trace.source, trace.groups, trace.dropped, ungrouped)


def _time(path: Path, line: int, column: str, text: str) -> float | None:
    """Seconds, or None where the cell is empty."""
    return number(path, line, column, text) if text else None


def _by_start(name: str, starts: array[float], runtimes: array[float]) -> Group:
    order = sorted(range(len(starts)), key=starts.__getitem__)
    return Group(name, array("d", (starts[i] for i in order)), array("d", (runtimes[i] for i in order)))
