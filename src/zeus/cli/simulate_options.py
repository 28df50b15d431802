"""Options and inputs that the `zeus simulate` commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zeus import settings

if TYPE_CHECKING:
    from zeus.simulate.workers import Engine
    from zeus.simulate.workload import Workload

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

VIRTUAL = "virtual:"
ETA = click.option(
    "--eta",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Weight of energy: 1 counts only energy, 0 only time.",
)
BETA = click.option(
    "--beta",
    type=click.FloatRange(1),
    default=2.0,
    show_default=True,
    help="Stop a trial when it costs beta times as much as the cheapest run so far.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def window(default: int) -> Option:
    help_text = "How many recent costs of each batch size count; 0 counts all."
    return click.option("--window", type=click.IntRange(0), default=default, show_default=True, help=help_text)


def _engine(ctx: click.Context, param: click.Parameter, text: str) -> Engine:
    from zeus.simulate.workers import parse

    return parse(text)


def _names(ctx: click.Context, param: click.Parameter, text: str) -> list[str]:
    """Split names at commas and drop repeated ones."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise click.BadParameter(f"{text!r} holds no name. Give at least one name.")
    return list(dict.fromkeys(names))


def replays(policies: str) -> Option:
    """The options of a replay of workloads. These policies are replayed unless others are named."""
    options = (
        click.option(
            "--traces",
            type=click.Path(path_type=Path),
            help="Folder with summary_train.csv and summary_power_{gpu}.csv. Default: nsdi23_traces in ZEUS_DATA. "
            "Without ZEUS_DATA, virtual workloads are used.",
        ),
        click.option(
            "--gpu",
            default="v100",
            show_default=True,
            help="GPU of the traces, virtual:NAME for a virtual GPU, or a TOML file with one of your own.",
        ),
        click.option(
            "--workload",
            "workloads",
            default="all",
            show_default=True,
            callback=_names,
            help="Workloads to replay, such as BERT-SA,NeuMF.",
        ),
        click.option(
            "--smallest-batch-size",
            "smallest",
            type=click.IntRange(1),
            default=8,
            show_default=True,
            help="Leave out smaller batch sizes of the traces. The paper uses sizes from 8 up.",
        ),
        click.option(
            "--policy",
            "policies",
            default=policies,
            show_default=True,
            callback=_names,
            help="Policies to compare, separated by commas.",
        ),
        ETA,
        BETA,
        window(0),
        click.option(
            "--seeds",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Number of replays, each with its own random seed.",
        ),
        click.option(
            "--engine",
            default="local",
            show_default=True,
            metavar="local|ray[:ADDRESS]",
            callback=_engine,
            help="Where to run: processes on this machine, a Ray started for this, or the Ray cluster at an address.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(1),
            help="Number of processes. Default: all cores, or one if there is little to do.",
        ),
        JSON,
    )

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def load(
    traces: Path | None, gpu: str, names: Sequence[str], file: Path | None = None, *, smallest: int
) -> tuple[str, dict[str, Workload]]:
    """Load workloads. Return the name of the GPU for the output, and the workloads by name."""
    from zeus.simulate import virtual, workload_file
    from zeus.simulate.card_file import SUFFIX
    from zeus.simulate.traces import published
    from zeus.simulate.traces.rows import published as folder

    wanted = None if list(names) == ["all"] else names
    known = None if file is None else workload_file.read(file)
    is_virtual = gpu.startswith(VIRTUAL) or gpu.endswith(SUFFIX)
    if traces is None and settings.data() is not None:
        traces = folder()
    if traces is not None and not is_virtual:
        all_of = published.TraceFolder(traces, known)
        found, every = (all_of.load(gpu, wanted, least) for least in (smallest, 1))
        if fewer := [name for name, one in found.items() if one.sizes != every[name].sizes]:
            click.echo(
                f"zeus: batch sizes below {smallest} of {', '.join(fewer)} are left out. To use them, give "
                "--smallest-batch-size 1.",
                err=True,
            )
    else:
        card = gpu.removeprefix(VIRTUAL)
        click.echo(
            f"zeus: virtual workloads on a virtual {Path(card).stem}. For traces, give --traces DIR or set ZEUS_DATA.",
            err=True,
        )
        found = virtual.load(card, wanted, known)
    return next(iter(found.values())).gpu, found
