"""`zeus profile job.toml`: what an epoch of each batch size uses at each power limit, in minutes."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import click

from zeus.cli.format import seconds
from zeus.cli.options import STORE_DEFAULT, FiniteRange
from zeus.cli.output import known, print_json, print_table, warnings
from zeus.cli.run import Interrupted, interruptible
from zeus.errors import DONE, FAILED, InputError, ZeusError
from zeus.launch.size_profiler import MOST_SECONDS
from zeus.settings import quiet
from zeus.tariff.text import joules

if TYPE_CHECKING:
    from zeus.cost import CostModel
    from zeus.launch.launcher import Launcher
    from zeus.launch.size_profiler import SizeProfile
    from zeus.trial.quick_profile import EpochUse

Json = dict[str, Any]


@click.command()
@click.argument("job_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--batch-sizes", metavar="N,N,...", help="Profile only these batch sizes. Default: all of the job.")
@click.option(
    "--max-seconds",
    type=FiniteRange(0, min_open=True),
    default=MOST_SECONDS,
    show_default=True,
    metavar="S",
    help="Most time for one batch size. Its command is then ended.",
)
@click.option("--revise", is_flag=True, help="As for `zeus run`.")
@click.option("--store", "url", metavar="URL", help=f"Store or service that keeps the job. {STORE_DEFAULT}")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def profile(
    job_file: Path, batch_sizes: str | None, max_seconds: float, revise: bool, url: str | None, as_json: bool
) -> int:
    """Measure what an epoch of each batch size uses at each power limit.

    Zeus starts the command of JOB_FILE with each batch size and ends it after a few steps. Nothing is recorded
    as a trial. `zeus run` uses what was found: it does not profile these batch sizes again, and runs on other GPU
    models are translated to this one.

    \b
    Exit codes:
      0        every batch size was profiled
      1        a batch size could not be profiled; what was found for the others is kept
      2        the job file or an option is wrong
      128 + N  signal N ended the command (130 after Ctrl-C, 143 after SIGTERM)
    """
    from zeus.launch.job_file.reader import read_job_file
    from zeus.launch.launcher import Launcher
    from zeus.launch.size_profiler import SizeProfiler

    context = click.get_current_context()
    context.with_resource(warnings(silent=quiet()))
    file = read_job_file(job_file)
    sizes = _sizes(batch_sizes, file.spec.batch_sizes)
    launcher = Launcher(file, store=url, revise=revise)
    context.call_on_close(launcher.close)
    profiler = SizeProfiler(launcher, max_seconds)
    context.call_on_close(profiler.close)
    found: list[SizeProfile] = []
    status, why = DONE, ""
    if profiler.why_not:
        _note(profiler.why_not)
    try:
        with interruptible():
            for one in profiler.run(sizes, lambda size: _note(f"profiling batch size {size}")):
                found.append(one)
                if one.failure:
                    status = FAILED
                    _note(f"batch size {one.batch_size} could not be profiled: {one.failure}")
    except ZeusError as failed:
        status, why = FAILED, str(failed)
    except Interrupted as by:
        status, why = by.status, f"{by}. The command was ended. What was found before is kept."
    report = _report(launcher, found, profiler.why_not)
    if as_json:
        print_json(report)
    elif not quiet() and found:
        _tell(report)
    if why:
        click.echo(f"zeus: {why}", err=True)
    return status


def _sizes(text: str | None, offered: tuple[int, ...]) -> list[int]:
    if text is None:
        return list(offered)
    try:
        wanted = [int(part) for part in text.replace(",", " ").split()]
    except ValueError:
        raise click.BadParameter(f"{text!r}: give batch sizes such as 32,64.", param_hint="--batch-sizes") from None
    if not wanted or not {*wanted} <= {*offered}:
        raise InputError(f"--batch-sizes {text}: give some of the job's batch sizes {list(offered)}.")
    return sorted(set(wanted))


def _note(text: str) -> None:
    if not quiet():
        click.echo(f"zeus: {text}", err=True)


# ---------------------------------------------------------------------------------------------------- the report


def _report(launcher: Launcher, found: list[SizeProfile], why_not: str) -> Json:
    spec, gpus, epochs = launcher.job.spec, launcher.gpus, _epochs_to_target(launcher)
    sizes = [_size_json(one, launcher.cost, epochs.get(one.batch_size)) for one in found]
    return {
        "job": spec.id,
        "gpu_model": gpus.model,
        "gpus": gpus.count,
        "max_watts": gpus.max_watts,
        "eta": spec.eta_knob,
        "why_not": why_not or None,
        "sizes": sizes,
        "profiling": {
            "seconds": known(sum(one.used.seconds for one in found)),
            "joules": known(sum(one.used.joules for one in found)),
        },
        "epochs_unknown": [one.batch_size for one in found if one.batch_size not in epochs],
        "store": launcher.jobs.address,
        "logs": str(launcher.logs),
    }


def _epochs_to_target(launcher: Launcher) -> dict[int, float]:
    """Mean epochs to the target of each size that reached it, on any GPU. Empty if the store does not answer."""
    try:
        tries = launcher.jobs.trials(launcher.job.spec.id)
    except ZeusError:
        return {}
    reached: dict[int, list[int]] = {}
    for one in tries:
        if one["ending"] == "converged":
            reached.setdefault(one["batch_size"], []).append(one["epochs"])
    return {size: fmean(some) for size, some in reached.items()}


def _size_json(one: SizeProfile, cost: CostModel, epochs: float | None) -> Json:
    rows = [_use_json(use, cost) for use in one.uses.at]
    highest, best = one.uses.at[0] if one.uses.at else None, one.best
    return {
        "batch_size": one.batch_size,
        "failure": one.failure or None,
        "steps_per_epoch": one.uses.steps,
        "evaluation_included": one.uses.has_evaluation,
        "limits_compared": one.has_limits,
        "limits": rows,
        "highest": None if highest is None else _use_json(highest, cost),
        "best": None if best is None else _use_json(best, cost),
        "saving": _saving(highest, best, cost) if one.has_limits and highest and best else None,
        "epochs_to_target": epochs,
        "profiling": {"seconds": known(one.used.seconds), "joules": known(one.used.joules)},
        "log": str(one.log),
    }


def _use_json(use: EpochUse, cost: CostModel) -> Json:
    return {
        "limit_watts": use.limit_watts,
        "joules": known(use.use.joules),
        "joules_error": known(use.error.joules),
        "seconds": known(use.use.seconds),
        "seconds_error": known(use.error.seconds),
        "cost": known(use.cost(cost)),
    }


def _saving(highest: EpochUse, best: EpochUse, cost: CostModel) -> Json:
    """What the best limit saves in an epoch against the highest one."""
    saved = highest.use - best.use
    return {
        "joules": saved.joules,
        "joules_error": 0.0 if highest == best else known(highest.error.hypot(best.error).joules),
        "share": saved.joules / highest.use.joules if highest.use.joules else None,
        "seconds": saved.seconds,
        "time_share": saved.seconds / highest.use.seconds,
        "cost_share": 1 - best.cost(cost) / highest.cost(cost),
    }


# ---------------------------------------------------------------------------------------------------- for people


def _tell(report: Json) -> None:
    gpus = report["gpu_model"] if report["gpus"] == 1 else f"{report['gpus']} x {report['gpu_model']}"
    click.echo(f"job {report['job']!r} on {gpus}, eta {report['eta']:g}: one epoch of each batch size\n")
    headings = ["batch size", "at highest limit", "best limit", "at best limit", "saved", "epochs to target", "took"]
    print_table(headings, [_row(one) for one in report["sizes"]], numbers=["batch size", "best limit"])
    total, compared = report["profiling"], any(one["limits_compared"] for one in report["sizes"])
    click.echo(f"\nThe profiling took {seconds(total['seconds'])} and {joules(total['joules'])}.")
    if compared:
        click.echo("'saved' is what the power limit alone is expected to save in an epoch: energy, and time.")
    alone = [one["batch_size"] for one in report["sizes"] if one["best"] and not one["limits_compared"]]
    if alone and not report["why_not"]:
        click.echo(f"Power limits of {alone} were not compared: the script did not set any, or was over too soon.")
    without = [one["batch_size"] for one in report["sizes"] if one["best"] and not one["evaluation_included"]]
    if without:
        click.echo(f"Evaluation was not measured for {without}: the profiling ended before it. It is not included.")
    if report["epochs_unknown"]:
        click.echo(
            f"Not known: how many epochs {report['epochs_unknown']} need to reach the target. `zeus run` finds out."
        )
    click.echo(f"store: {report['store']}\nlogs:  {report['logs']}")


def _row(one: Json) -> list[str]:
    took = f"{seconds(one['profiling']['seconds'])}, {joules(one['profiling']['joules'])}"
    epochs = "not known" if one["epochs_to_target"] is None else f"{one['epochs_to_target']:.3g}"
    if one["best"] is None:
        return [str(one["batch_size"]), "failed", "-", "-", "-", epochs, took]
    highest, saving = one["highest"], one["saving"]
    top = _watts(highest["limit_watts"])
    rest = (
        ["-", "-", "-"] if saving is None else [_watts(one["best"]["limit_watts"]), _use(one["best"]), _saved(saving)]
    )
    return [str(one["batch_size"]), f"{top}: {_use(highest)}", *rest, epochs, took]


def _watts(limit: float | None) -> str:
    return "limit unknown" if limit is None else f"{limit:g} W"


def _use(use: Json) -> str:
    parts = ((seconds, use["seconds"], use["seconds_error"]), (joules, use["joules"], use["joules_error"]))
    return ", ".join(f"{show(value)}{_error(value, error)}" for show, value, error in parts)


def _error(value: float | None, error: float | None) -> str:
    """A relative standard error.

    >>> _error(200.0, 3.0), _error(200.0, None)
    (' ± 1.5 %', '')
    """
    return "" if not value or error is None else f" ± {error / value:.1%}".replace("%", " %")


def _saved(saving: Json) -> str:
    energy = "-" if saving["share"] is None else f"{saving['share']:.1%}"
    slower = -saving["time_share"]
    return f"{energy} energy, {abs(slower):.1%} {'more' if slower >= 0 else 'less'} time".replace("%", " %")
