"""`zeus simulate capriccio` and `zeus simulate drift`: policies on data that drift (§6.4)."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from zeus.cli.format import plural
from zeus.cli.output import print_json, progress
from zeus.cli.simulate_options import BETA, ETA, JSON, window
from zeus.tariff.text import joules

if TYPE_CHECKING:
    from zeus.simulate.drift.capriccio import DataSlice

_INPUT = click.option(
    "--input",
    "source",
    type=click.Path(path_type=Path),
    required=True,
    help="Sentiment140 as a CSV with the columns target,ids,date,flag,user,text.",
)
_TWEETS = click.option(
    "--tweets", type=click.IntRange(1), help="Number of tweets in a slice. Default: 5/16 of the input."
)
_FIRST_DATE = click.option(
    "--first-date",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Begin the first slice on this date or later, such as 2009-05-01 (as the paper does). Default: the first date "
    "of the input.",
)


@click.command()
@_INPUT
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A new or empty folder for the slices.")
@click.option("--window", type=click.IntRange(1), help="Number of tweets in a slice. Default: 5/16 of the input.")
@_FIRST_DATE
@JSON
def capriccio(source: Path, out: Path, window: int | None, first_date: datetime | None, as_json: bool) -> None:
    """Cut Sentiment140 into slices that drift.

    Each slice is a window of tweets. The window moves one day at a time.
    """
    from zeus.simulate.drift.capriccio import empty_dates, write

    cut, about = _cut(source, window, first_date)
    empty = empty_dates(cut, first_date.date() if first_date else None)
    index = write(cut, out, f"{source.name}: {about}")
    if as_json:
        found = {"slices": len(cut), "empty_dates": empty, "index": str(index)}
        print_json({"source": source.name, "about": about, **found})
    else:
        click.echo(f"{about}. {len(cut)} slices are in {out}; {index.name} lists them.")
        if empty:
            click.echo(f"{empty} dates up to the last slice have no tweets and begin no slice.")


@click.command()
@_INPUT
@_TWEETS
@_FIRST_DATE
@click.option("--gpu", default="v100", show_default=True, help="Virtual GPU whose energy and time are used.")
@click.option("--policy", default="paper", show_default=True, help="Policy that chooses the batch size.")
@window(10)
@ETA
@BETA
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@JSON
def drift(
    source: Path,
    tweets: int | None,
    first_date: datetime | None,
    gpu: str,
    policy: str,
    window: int,
    eta: float,
    beta: float,
    seed: int,
    as_json: bool,
) -> None:
    """Train on data that drift (Figure 10).

    This cuts Sentiment140 into slices like `zeus simulate capriccio`. It trains a small text classifier on each slice,
    with the batch size that the policy chooses.
    """
    from zeus.simulate.drift import experiment

    cut, about = _cut(source, tweets, first_date)
    workloads = experiment.tweets(cut, gpu=gpu, seed=seed)
    with progress() as begin:
        done = begin("Slices", len(workloads))
        rows = experiment.run(workloads, policy, window=window, eta=eta, beta=beta, seed=seed, progress=done)
    if as_json:
        knobs = {"policy": policy, "window": window, "eta": eta, "beta": beta, "seed": seed}
        print_json(
            {
                "source": source.name,
                "about": about,
                "gpu": f"virtual {gpu}",
                **knobs,
                "slices": [asdict(row) for row in rows],
            }
        )
        return
    click.echo(f"{about}. A real text classifier, with the energy and time of BERT on a virtual {gpu}.")
    for row in rows:
        trials = plural(row.tries, "trial").rjust(9)
        end = "" if row.converged else "  did not reach the target"
        click.echo(
            f"{row.label}  batch size {row.batch_size:4d} at {row.power_limit:3.0f} W, {trials}, "
            f"{joules(row.energy):>8}, {row.time:6.1f} s{end}"
        )
    click.echo(f"Total: {joules(sum(row.energy for row in rows))}, {sum(row.time for row in rows):.0f} s.")


def _cut(source: Path, window: int | None, first: datetime | None) -> tuple[list[DataSlice], str]:
    """The slices, and a description of them for people."""
    from zeus.simulate.drift.capriccio import FULL_SET, proportional_window, read_tweets, slices

    found = read_tweets(source)
    size = window or proportional_window(len(found))
    part = "" if len(found) == FULL_SET else f", a sample of Sentiment140's {FULL_SET}"
    about = f"windows of {size} of {len(found)} tweets{part}"
    if first is None:
        return list(slices(found, size)), about
    return list(slices(found, size, first.date())), f"{about}, from {first.date()} on"
