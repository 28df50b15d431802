"""`zeus simulate`: replays policies on traces or on virtual GPUs, and compares their cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zeus import settings
from zeus.cli.format import seconds
from zeus.cli.output import print_json, print_table, progress, warnings
from zeus.cli.simulate_cluster import cluster
from zeus.cli.simulate_drift import capriccio, drift
from zeus.cli.simulate_files import check_file, write
from zeus.cli.simulate_options import load, replays
from zeus.tariff.text import joules

if TYPE_CHECKING:
    from zeus.simulate.results import ReplayResult, SweepTask
    from zeus.simulate.workers import Engine
    from zeus.simulate.workload import Workload


@click.group(invoke_without_command=True)
@replays("structured,paper,grid,default")
@click.option(
    "--workloads",
    "file",
    type=click.Path(path_type=Path),
    help="TOML file that describes the workloads. Default: workloads.toml beside the traces, or the paper's Table 1.",
)
@click.option(
    "--recurrences",
    type=click.IntRange(1),
    help="Number of recurrences. Default: 2 x number of batch sizes x number of power limits.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of recurrences that run at the same time.",
)
@click.option(
    "--out",
    "files",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="Also write the results to this file: .csv, .parquet (needs pandas) or .png (a picture). May be given again.",
)
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    traces: Path | None,
    gpu: str,
    workloads: list[str],
    file: Path | None,
    smallest: int,
    policies: list[str],
    seeds: int,
    engine: Engine,
    workers: int | None,
    files: tuple[Path, ...],
    as_json: bool,
    **knobs: Any,
) -> None:
    """Replay policies on workloads from traces or virtual GPUs, and compare their costs."""
    if ctx.invoked_subcommand is not None:
        given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given:
            raise click.UsageError(f"`{ctx.invoked_subcommand}` has its own options. Write them after it.")
        return
    from zeus.simulate.baselines import check

    for path in files:
        check_file(path)
    for name in policies:
        check(name)
    where, found = load(traces, gpu, workloads, file, smallest=smallest)
    pairs = _defined(found.values(), policies, named=workloads != ["all"])
    runs = _replay([(one, name, seed, knobs) for one, name in pairs for seed in range(seeds)], engine, workers)
    for path in files:
        write(path, where, runs)
    if as_json:
        print_json({"gpu": where, "runs": [run.to_json() for run in runs]})
    else:
        _print_results(where, runs)


def _defined(workloads: Iterable[Workload], policies: Sequence[str], *, named: bool) -> list[tuple[Workload, str]]:
    """The pairs of workload and policy to replay.

    A pair that cannot be replayed is left out with a message. It is an error if the user named the workloads.
    """
    from zeus.errors import InputError
    from zeus.simulate.results import why_not

    pairs: list[tuple[Workload, str]] = []
    reasons: list[str] = []
    for workload in workloads:
        for policy in policies:
            reason = why_not(workload, policy)
            if reason is None:
                pairs.append((workload, policy))
            else:
                reasons.append(reason)
    if reasons and (named or not pairs):
        raise InputError(reasons[0])
    for reason in reasons:
        click.echo(f"zeus: skipped: {reason}", err=True)
    return pairs


def _replay(tasks: Sequence[SweepTask], engine: Engine, workers: int | None) -> list[ReplayResult]:
    """Run the replays, with a progress bar on a terminal."""
    from zeus.simulate.results import replay_task

    total = sum(knobs["recurrences"] or workload.horizon for workload, _, _, knobs in tasks)
    runs: list[ReplayResult] = []
    with warnings(settings.quiet()), progress() as begin, engine.open(workers, total) as opened:
        done = begin("Replays", len(tasks))
        for run in opened(replay_task, tasks):
            runs.append(run)
            done(1)
    return runs


def _print_results(gpu: str, runs: Sequence[ReplayResult]) -> None:
    from itertools import groupby
    from statistics import fmean

    seeds = len({run.seed for run in runs})
    of = f"mean of {seeds} seeds" if seeds > 1 else "seed 0"
    click.echo(f"{gpu}, η = {runs[0].eta:g}, β = {runs[0].beta:g}, {of}")
    rows = []
    for (workload, policy), its in groupby(runs, key=lambda run: (run.workload, run.policy)):
        some = list(its)
        regrets = [run.cumulative_regret for run in some if run.cumulative_regret is not None]
        row = (
            workload,
            policy,
            str(some[0].recurrences),
            joules(fmean(run.cumulative_energy for run in some)),
            seconds(fmean(run.cumulative_time for run in some)),
            joules(fmean(run.cumulative_cost for run in some)),
            joules(fmean(regrets)) if regrets else "undefined",
            f"{fmean(run.last5_energy_ratio for run in some):.3f}",
            f"{fmean(run.last5_time_ratio for run in some):.3f}",
        )
        rows.append(row)
    headings = ("workload", "policy", "recurrences", "energy", "time", "cost", "regret", "last 5: energy", "time")
    print_table(headings, rows, numbers=headings[2:])
    click.echo("Regret is the cost above that of the best pair. The last 5 recurrences are relative to Default (= 1).")


for command in (cluster, capriccio, drift):
    simulate.add_command(command)
