"""Reads the recurring jobs of a cluster from tables of jobs (§6.3).

There are three formats: a CSV of `group,start_time,end_time`; the same with `dataset,runtime_ratio`, in which the
authors of the paper publish their groups, matched to workloads; and the folder of the Alibaba PAI trace of 2020
(published as cluster-trace-gpu-v2020), of which the job table and the group tags are read. A CSV may be compressed
(.csv.xz). A malformed line raises `InputError` with the file, the line and the fault. Jobs that failed or never ended
are not an error: they are dropped and counted.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from zeus.errors import InputError
from zeus.simulate.traces.csv_tables import Cells, read_lines, read_table
from zeus.simulate.workload_file import table_1

PLAIN_COLUMNS: Final = ("group", "start_time", "end_time")
MATCHED_COLUMNS: Final = (*PLAIN_COLUMNS, "dataset", "runtime_ratio")
PAI_COLUMNS: Final[dict[str, tuple[str, ...]]] = {  # the published files have no header line
    "pai_job_table": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "pai_group_tag_table": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
}
STATUSES: Final = ("Terminated", "Failed", "Running", "Waiting")  # only the first means success


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """A recurring job: start and runtime of each submission, in order of start."""

    name: str
    starts: array[float]  # seconds
    runtimes: array[float]  # seconds, above 0
    dataset: str = ""  # of the workload that it was matched to; empty: not matched yet
    ratios: array[float] | None = None  # work of each submission, if the table says it

    @property
    def mean_runtime(self) -> float:
        return math.fsum(self.runtimes) / len(self.runtimes)

    def work(self, index: int, cluster_runtime: float) -> float:
        """How much work a submission is. 1 is a job of its cluster's mean runtime."""
        return self.runtimes[index] / cluster_runtime if self.ratios is None else self.ratios[index]


@dataclass(frozen=True, slots=True, eq=False)
class ClusterTrace:
    """All groups of a cluster, and how many jobs were left out."""

    source: str  # a description of the groups, for people
    groups: tuple[Group, ...]  # by name
    dropped: int  # jobs that failed, never ended or took no time
    ungrouped: int = 0  # jobs that succeeded but belong to no group

    @property
    def jobs(self) -> int:
        return sum(len(group.starts) for group in self.groups)


class TracedJob(NamedTuple):
    """One job of a table."""

    group: str
    start: float
    end: float | None  # None: it did not succeed
    dataset: str = ""
    ratio: float | None = None


def read_groups(path: Path | str) -> ClusterTrace:
    """Read the groups from a folder with the PAI tables, or from a CSV of one of the two formats."""
    path = Path(path)
    if path.is_dir():
        return _read_pai(path)
    first = next((cells for _, cells in read_lines(path) if cells), [])
    matched = len(first) == len(MATCHED_COLUMNS)
    return collect(str(path), _matched_jobs(path) if matched else _plain_jobs(path))


def collect(
    source: str, jobs: Iterable[TracedJob | tuple[str, float, float | None]], ungrouped: int = 0
) -> ClusterTrace:
    """Collect jobs into groups. Jobs without an end or a duration are dropped."""
    starts: dict[str, array[float]] = {}
    runtimes: dict[str, array[float]] = {}
    ratios: dict[str, array[float]] = {}
    datasets: dict[str, str] = {}
    dropped = 0
    for group, start, end, dataset, ratio in (TracedJob(*job) for job in jobs):
        if end is None or end <= start:
            dropped += 1
            continue
        starts.setdefault(group, array("d")).append(start)
        runtimes.setdefault(group, array("d")).append(end - start)
        if ratio is not None:
            ratios.setdefault(group, array("d")).append(ratio)
            datasets[group] = dataset
    if not starts:
        raise InputError(f"{source}: none of {dropped} jobs succeeded. At least one is needed.")
    groups = tuple(
        _by_start(Group(name, starts[name], runtimes[name], datasets.get(name, ""), ratios.get(name)))
        for name in sorted(starts)
    )
    return ClusterTrace(source, groups, dropped, ungrouped)


def _plain_jobs(path: Path) -> Iterator[TracedJob]:
    return map(_job, read_table(path, PLAIN_COLUMNS))


def _matched_jobs(path: Path) -> Iterator[TracedJob]:
    known = {setting.key.dataset for setting in table_1().values()}
    seen: dict[str, tuple[str, int]] = {}
    for cells in read_table(path, MATCHED_COLUMNS):
        job, dataset = _job(cells), cells["dataset"]
        if dataset not in known:
            raise cells.fault(f"dataset is {dataset!r}, not one of {', '.join(sorted(known))}")
        earlier, at = seen.setdefault(job.group, (dataset, cells.line))
        if earlier != dataset:
            raise cells.fault(f"group {job.group} has dataset {dataset}, but {earlier} in line {at}")
        yield job._replace(dataset=earlier, ratio=cells.positive("runtime_ratio"))


def _job(cells: Cells) -> TracedJob:
    if not cells["group"].strip():
        raise cells.fault(f"group is {cells['group']!r}; give a name")
    began, ended = cells.number("start_time"), _time(cells, "end_time")
    if ended is not None and ended < began:
        raise cells.fault(f"end_time {cells['end_time']} is before start_time {cells['start_time']}")
    return TracedJob(cells["group"], began, ended)


def _read_pai(folder: Path) -> ClusterTrace:
    names = dict[str, str]()  # one copy of each group name
    tags: dict[str, str] = {}
    for cells in read_table(folder / "pai_group_tag_table.csv", PAI_COLUMNS["pai_group_tag_table"]):
        inst, group = cells["inst_id"], cells["group"]
        if not inst:
            raise cells.fault("inst_id is empty. It must name the job of the tag")
        if group:
            group = names.setdefault(group, group)
            if tags.setdefault(inst, group) != group:
                raise cells.fault(f"{inst} is in group {group} and in group {tags[inst]}")
    ungrouped = 0

    def jobs() -> Iterator[tuple[str, float, float | None]]:
        nonlocal ungrouped
        for cells in read_table(folder / "pai_job_table.csv", PAI_COLUMNS["pai_job_table"]):
            status, inst = cells["status"], cells["inst_id"]
            if status not in STATUSES:
                raise cells.fault(f"status is {status!r}, not one of {', '.join(STATUSES)}")
            began, ended = _time(cells, "start_time"), _time(cells, "end_time")
            if status != STATUSES[0] or began is None:
                ended = None
            elif inst not in tags:
                ungrouped += 1
                continue
            yield tags.get(inst, ""), began or 0.0, ended

    trace = collect(f"Alibaba PAI trace of 2020 in {folder}", jobs())
    return ClusterTrace(trace.source, trace.groups, trace.dropped, ungrouped)


def _time(cells: Cells, column: str) -> float | None:
    """Seconds, or None if the cell is empty."""
    return cells.number(column) if cells[column] else None


def _by_start(group: Group) -> Group:
    order = sorted(range(len(group.starts)), key=group.starts.__getitem__)

    def ordered(values: array[float]) -> array[float]:
        return array("d", (values[i] for i in order))

    ratios = None if group.ratios is None else ordered(group.ratios)
    return replace(group, starts=ordered(group.starts), runtimes=ordered(group.runtimes), ratios=ratios)
