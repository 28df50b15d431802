"""`zeus simulate cluster`: what policies would have cost a whole cluster of recurring jobs (§6.3)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zeus.cli.output import joules, print_json

if TYPE_CHECKING:
    from zeus.simulate.cluster.groups import GroupRow
    from zeus.simulate.cluster.match import Cluster
    from zeus.simulate.cluster.tables import ClusterTrace


@click.command()
@click.option(
    "--groups",
    type=click.Path(path_type=Path),
    help="CSV of group,start_time,end_time, or the folder with the Alibaba PAI tables of 2020. Default: a composite of "
    "two real traces in ZEUS_DATA, which is neither of them.",
)
@click.option("--traces", type=click.Path(path_type=Path), help="As of `zeus simulate`.")
@click.option("--gpu", default="v100", show_default=True, help="As of `zeus simulate`.")
@click.option("--workload", "workloads", default="all", show_default=True, help="One cluster each.")
@click.option("--policy", "policies", default="paper,grid,default", show_default=True, help="Names, by commas.")
@click.option("--eta", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="1: only energy counts.")
@click.option("--beta", type=click.FloatRange(1), default=2.0, show_default=True, help="Early stopping at beta·min C.")
@click.option("--window", type=click.IntRange(0), default=0, show_default=True, help="Observations kept; 0: all.")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="Seeds 0 to N-1.")
@click.option("--workers", type=click.IntRange(1), help="Processes; default: as many as there are cores.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")
def cluster(
    groups: Path | None,
    traces: Path | None,
    gpu: str,
    workloads: str,
    policies: str,
    eta: float,
    beta: float,
    window: int,
    seeds: int,
    workers: int | None,
    as_json: bool,
) -> None:
    """Replay a cluster's recurring jobs, overlapping as they did, under each policy, and compare with Default."""
    from zeus.cli.simulate import load, split
    from zeus.simulate.baselines import check
    from zeus.simulate.cluster.groups import TASK_JOBS, Knobs, simulate
    from zeus.simulate.cluster.match import match

    names = split(policies)
    for name in names:
        check(name)
    trace = _read(groups)
    where, found = load(traces, gpu, None if workloads == "all" else split(workloads))
    clusters = match(trace, found)
    total = trace.jobs * len(names) * seeds
    if workers is None:  # starting processes takes longer than a few thousand jobs do
        workers = len(os.sched_getaffinity(0)) if total > 4 * TASK_JOBS else 1
    rows: list[GroupRow] = []
    with bar("Jobs", total) as progress:
        for seed in range(seeds):
            rows += simulate(clusters, names, Knobs(eta, beta, window), seed=seed, workers=workers, progress=progress)
    if as_json:
        print_json(_json(where, trace, clusters, rows, {"eta": eta, "beta": beta, "window": window}))
    else:
        _tell(where, trace, clusters, rows)


def _read(groups: Path | None) -> ClusterTrace:
    if groups is not None:
        from zeus.simulate.cluster.tables import read_groups

        return read_groups(groups)
    from zeus.simulate.cluster.composite import composite
    from zeus.simulate.traces.rows import published

    return composite(published().parent)


def _json(
    gpu: str, trace: ClusterTrace, clusters: Sequence[Cluster], rows: Sequence[GroupRow], knobs: dict[str, float]
) -> dict[str, object]:
    matched = [
        {
            "workload": one.workload.name,
            "groups": len(one.groups),
            "jobs": one.jobs,
            "mean_runtime": one.mean_runtime,
        }
        for one in clusters
    ]
    return {
        "gpu": gpu,
        "source": trace.source,
        "jobs": trace.jobs,
        "groups": len(trace.groups),
        "dropped": trace.dropped,
        "ungrouped": trace.ungrouped,
        **knobs,
        "clusters": matched,
        "runs": [asdict(row) for row in rows],
    }


def _tell(gpu: str, trace: ClusterTrace, clusters: Sequence[Cluster], rows: Sequence[GroupRow]) -> None:
    from rich.console import Console
    from rich.table import Table

    click.echo(f"{trace.source}")
    left = f"{trace.dropped} that did not end well" + (f", {trace.ungrouped} of no group" if trace.ungrouped else "")
    click.echo(f"{trace.jobs} jobs of {len(trace.groups)} groups on {gpu}; left out: {left}.")
    table = Table()
    for heading in ("workload", "policy"):
        table.add_column(heading, no_wrap=True)
    for heading in ("groups", "jobs", "tries", "failed", "energy", "of Default", "time", "regret"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in clusters:
        for row in rows:
            if row.workload == one.workload.name:
                regret = "undefined" if row.cumulative_regret is None else joules(row.cumulative_regret)
                ratios = (f"{row.energy_ratio:.3f}", f"{row.time_ratio:.3f}")
                counts = (str(n) for n in (row.groups, row.jobs, row.tries, row.failed))
                table.add_row(row.workload, row.policy, *counts, joules(row.energy), *ratios, regret)
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    click.echo("Energy and time of all tries, against what Default is expected to use (= 1).")


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal's stderr; elsewhere nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.advance(task, done)
