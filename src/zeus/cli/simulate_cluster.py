"""`zeus simulate cluster`: replays policies on a whole cluster of recurring jobs (§6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zeus.cli.output import print_json, print_table, progress, warnings
from zeus.cli.simulate_options import load, replays
from zeus.settings import quiet
from zeus.tariff.text import joules

if TYPE_CHECKING:
    from zeus.simulate.cluster.groups import GroupRow
    from zeus.simulate.cluster.match import Cluster
    from zeus.simulate.cluster.tables import ClusterTrace
    from zeus.simulate.workers import Engine


@click.command()
@click.option(
    "--groups",
    type=click.Path(path_type=Path),
    help="CSV (or .csv.xz) with the columns group,start_time,end_time and, if groups are matched already, "
    "dataset,runtime_ratio; or a folder with the Alibaba PAI tables of 2020. Default: a trace made of two real traces "
    "in ZEUS_DATA.",
)
@replays("paper,grid,default")
def cluster(
    groups: Path | None,
    traces: Path | None,
    gpu: str,
    workloads: list[str],
    smallest: int,
    policies: list[str],
    seeds: int,
    engine: Engine,
    workers: int | None,
    as_json: bool,
    **knobs: float,
) -> None:
    """Replay the recurring jobs of a cluster.

    Each policy runs all jobs, and jobs overlap as they did in the cluster. Energy and time are compared with those of
    Default, which always uses the default batch size at the highest power limit.
    """
    from zeus.simulate.baselines import check
    from zeus.simulate.cluster.groups import Knobs, simulate
    from zeus.simulate.cluster.match import match

    for name in policies:
        check(name)
    trace = _read(groups)
    where, found = load(traces, gpu, workloads, smallest=smallest)
    clusters = match(trace, found)
    total = trace.jobs * len(policies) * seeds
    rows: list[GroupRow] = []
    with warnings(quiet()), progress() as begin, engine.open(workers, total) as opened:
        done = begin("Jobs", total)
        for seed in range(seeds):
            rows += simulate(clusters, policies, Knobs(**knobs), seed=seed, workers=opened, progress=done)  # type: ignore[arg-type]
    if as_json:
        print_json(_json(where, trace, clusters, rows, knobs))
    else:
        _print_results(where, trace, clusters, rows)


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


def _print_results(gpu: str, trace: ClusterTrace, clusters: Sequence[Cluster], rows: Sequence[GroupRow]) -> None:
    click.echo(trace.source)
    left = f"{trace.dropped} that did not succeed" + (f", {trace.ungrouped} without a group" if trace.ungrouped else "")
    click.echo(f"{trace.jobs} jobs of {len(trace.groups)} groups on {gpu}. Left out: {left}.")
    lines = []
    for one in clusters:
        for row in rows:
            if row.workload == one.workload.name:
                regret = "undefined" if row.cumulative_regret is None else joules(row.cumulative_regret)
                ratios = (f"{row.energy_ratio:.3f}", f"{row.time_ratio:.3f}")
                counts = (str(n) for n in (row.groups, row.jobs, row.tries, row.failed))
                lines.append((row.workload, row.policy, *counts, joules(row.energy), *ratios, regret))
    headings = (
        "workload", "policy", "groups", "jobs", "tries", "failed", "energy", "of Default", "time", "regret",
    )  # fmt: skip
    print_table(headings, lines, numbers=headings[2:])
    click.echo("Energy and time cover all trials. They are relative to the expected use of Default (= 1).")
