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
from zeus.simulate.traces.csv_tables import number, read_lines, read_table
from zeus.simulate.workload_file import table_1

PLAIN_COLUMNS: Final = ("group", "start_time", "end_time")
MATCHED_COLUMNS: Final = (*PLAIN_COLUMNS, "dataset", "runtime_ratio")
PAI_COLUMNS: Final[dict[str, tuple[str, ...]]] = {  # the published files have no header line
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
    for line, (group, start, end) in read_table(path, PLAIN_COLUMNS):
        yield _job(path, line, group, start, end)


def _matched_jobs(path: Path) -> Iterator[TracedJob]:
    known = {setting.key.dataset for setting in table_1().values()}
    seen: dict[str, tuple[str, int]] = {}
    for line, (group, start, end, dataset, text) in read_table(path, MATCHED_COLUMNS):
        job = _job(path, line, group, start, end)
        if dataset not in known:
            names = ", ".join(sorted(known))
            raise InputError(f"{path}, line {line}: dataset is {dataset!r}, not one of {names}.")
        earlier, at = seen.setdefault(group, (dataset, line))
        if earlier != dataset:
            raise InputError(f"{path}, line {line}: group {group} has dataset {dataset}, but {earlier} in line {at}.")
        ratio = number(path, line, "runtime_ratio", text)
        if ratio <= 0:
            raise InputError(f"{path}, line {line}: runtime_ratio is {text!r}; give a number above 0.")
        yield job._replace(dataset=earlier, ratio=ratio)


def _job(path: Path, line: int, group: str, start: str, end: str) -> TracedJob:
    if not group.strip():
        raise InputError(f"{path}, line {line}: group is {group!r}; give a name.")
    began, ended = number(path, line, "start_time", start), _time(path, line, "end_time", end)
    if ended is not None and ended < began:
        raise InputError(f"{path}, line {line}: end_time {end} is before start_time {start}.")
    return TracedJob(group, began, ended)


def _read_pai(folder: Path) -> ClusterTrace:
    job_table, tag_table = folder / "pai_job_table.csv", folder / "pai_group_tag_table.csv"
    columns = PAI_COLUMNS["pai_group_tag_table"]
    at, names = (columns.index("inst_id"), columns.index("group")), dict[str, str]()  # one copy of each group name
    tags: dict[str, str] = {}
    for line, cells in read_table(tag_table, columns):
        inst, group = (cells[i] for i in at)
        if not inst:
            raise InputError(f"{tag_table}, line {line}: inst_id is empty. It must name the job of the tag.")
        if group:
            group = names.setdefault(group, group)
            if tags.setdefault(inst, group) != group:
                raise InputError(f"{tag_table}, line {line}: {inst} is in group {group} and in group {tags[inst]}.")
    ungrouped = 0

    def jobs() -> Iterator[tuple[str, float, float | None]]:
        nonlocal ungrouped
        for line, (_, inst, _, status, start, end) in read_table(job_table, PAI_COLUMNS["pai_job_table"]):
            if status not in STATUSES:
                raise InputError(f"{job_table}, line {line}: status is {status!r}, not one of {', '.join(STATUSES)}.")
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
    """Seconds, or None if the cell is empty."""
    return number(path, line, column, text) if text else None


def _by_start(group: Group) -> Group:
    order = sorted(range(len(group.starts)), key=group.starts.__getitem__)

    def ordered(values: array[float]) -> array[float]:
        return array("d", (values[i] for i in order))

    ratios = None if group.ratios is None else ordered(group.ratios)
    return replace(group, starts=ordered(group.starts), runtimes=ordered(group.runtimes), ratios=ratios)
