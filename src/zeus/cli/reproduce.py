"""`zeus reproduce`: draws the figures of the paper from its published traces and compares the numbers."""

from __future__ import annotations

import os
from pathlib import Path

import click

from zeus import settings
from zeus.cli.output import progress
from zeus.lazy import require

QUICK_SEEDS = 2


@click.command()
@click.option("--traces", type=click.Path(exists=True, file_okay=False, path_type=Path), required=True,
              help="Folder with summary_train.csv and a summary_power_GPU.csv for each GPU.")  # fmt: skip
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder for the report.")
@click.option("--data", type=click.Path(exists=True, file_okay=False, path_type=Path), default=settings.data,
              help="Folder with the other data sets. Default: ZEUS_DATA, or the parent of --traces.")  # fmt: skip
@click.option("--groups", type=click.Path(exists=True, path_type=Path),
              help="Recurring jobs of a cluster for Figure 9, as for `zeus simulate cluster`. Default: a "
              "composite of two traces in --data.")  # fmt: skip
@click.option(
    "--seeds", type=click.IntRange(min=1), default=None, help="Number of replays of each policy. Default: 20."
)
@click.option("--quick", is_flag=True, help="Quick check: two seeds, small pictures, and four slices of Figure 10.")
@click.option("--only", default=None, help="Draw only these figures, such as figure_01,figure_06.")
@click.option("--processes", type=click.IntRange(min=1), default=None, help="Number of processes. Default: all cores.")
def reproduce(
    traces: Path,
    out: Path,
    data: Path | None,
    groups: Path | None,
    seeds: int | None,
    quick: bool,
    only: str | None,
    processes: int | None,
) -> None:
    """Redraw the figures of the paper, and compare the new numbers with the paper's.

    This writes OUT/report.html, OUT/report.json, OUT/summary.json, OUT/provenance.json (versions, and checksums of
    the input files) and OUT/figures/ with a PNG and a CSV for each panel.
    """
    require("zeus reproduce", "plots", "matplotlib", "matplotlib")
    from zeus.reproduce import comparison, pipeline, provenance, study, style
    from zeus.reproduce.report import HEADINGS, shown

    names = pipeline.ALL if only is None else tuple(name.strip() for name in only.split(","))
    seeds = seeds or (QUICK_SEEDS if quick else study.SEEDS)
    processes = processes or len(os.sched_getaffinity(0))
    known = study.read(traces, seeds, data=data, quick=quick, groups=groups, processes=processes)
    found = pipeline.input_files(known, names)
    for one in found:
        if one.match is provenance.Match.DIFFERS:
            click.echo(f"zeus: {one.name} differs from the published file, so other numbers may come out.", err=True)
    if set(names) == set(pipeline.ALL) and not quick:
        minutes = pipeline.expected_seconds(seeds, processes) / 60
        click.echo(
            f"zeus: all figures with {seeds} seeds take about {max(1, round(minutes))} min on {processes} free "
            f"{'core' if processes == 1 else 'cores'} (measured on an AMD EPYC).",
            err=True,
        )
    if quick:
        click.echo(
            f"zeus: a quick run of {seeds} seeds instead of {study.SEEDS}: more numbers will be outside.", err=True
        )
    with progress() as begin:
        rows = pipeline.reproduce(known, out, names, processes, style.QUICK_DPI if quick else style.DPI, begin)
    for kind, count in comparison.counts(rows).items():
        if count.compared or count.not_computable:
            click.echo(
                f"{HEADINGS[kind]}: {count.within} of {count.compared} are within their tolerance. "
                f"Not computable: {count.not_computable}."
            )
    for row in rows:
        if row.within is False:
            expected = row.expected
            paper, ours = shown(expected.paper, expected.unit), shown(row.ours, expected.unit)
            click.echo(f"  outside: {expected.id}: expected {paper}, got {ours}")
    click.echo(provenance.counts(found))
    click.echo(f"Open {out / 'report.html'}")
