"""`zeus run job.toml`: recurrences of a job, each ask, run, tell and again, with what they cost as they go."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from zeus.cli.output import joules, print_json, seconds, warnings
from zeus.env import quiet
from zeus.errors import ZeusError

if TYPE_CHECKING:
    from zeus.job import Trial
    from zeus.launch.launcher import Launcher
    from zeus.launch.progress import FinishedTrial
    from zeus.launch.recurrence import LaunchedRecurrence

Json = dict[str, Any]
DONE, FAILED, NOT_REACHED, BY_SIGNAL = 0, 1, 3, 128
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # all are taken like Ctrl-C


class Interrupted(KeyboardInterrupt):
    """Somebody has asked `zeus run` to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.status = BY_SIGNAL + number  # as shells say it


@click.command()
@click.argument("job_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--recurrences", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="How many.")
@click.option("--revise", is_flag=True, help="Go on with a job of this name that ran another command or direction.")
@click.option("--json", "as_json", is_flag=True, help="A report as JSON on stdout; nothing else is written there.")
def run(job_file: Path, recurrences: int, revise: bool, as_json: bool) -> int:
    """Run the job of JOB_FILE: each recurrence is tried with other batch sizes until one reaches the target.

    Exits with 0 when each recurrence has reached it, 3 when one has not in all its tries, 1 when nothing could be run
    any more, 2 when the job file is wrong, 128 + N when interrupted by signal N: 130 after Ctrl-C, 143 after SIGTERM.
    """
    from zeus.cli.run_view import view
    from zeus.launch.job_file.reader import read_job_file
    from zeus.launch.launcher import Hooks, Launcher

    click.get_current_context().with_resource(warnings(silent=quiet()))
    said = read_job_file(job_file)
    trials: dict[int, Trial] = {}
    with view(said, silent=quiet()) as shown:

        def changed(trial: Trial, ran: FinishedTrial | None) -> None:
            trials[trial.number] = trial
            shown.trial(trial, ran)

        launcher = Launcher(said, Hooks(changed, shown.live), revise=revise)
        if launcher.revision and not quiet():
            click.echo(f"zeus: job {said.spec.id!r} is revised: {launcher.revision}", err=True)
        status, why = _recurrences(launcher, recurrences)
    told = _told(launcher, list(trials.values()))
    if as_json:
        print_json(_report(launcher, trials, told))
    elif not quiet():
        _tell(launcher, trials, told)
    launcher.close()
    if why:
        click.echo(f"zeus: {why}", err=True)
    return status


def _recurrences(launcher: Launcher, count: int) -> tuple[int, str]:
    """Run so many, or as many as reach their target; the exit status, and why it is not 0."""
    try:
        with _interruptible():
            for _ in range(count):
                this = launcher.recur()
                if not this.converged:
                    return NOT_REACHED, _not_reached(launcher, this)
    except ZeusError as failed:  # by now it is no longer the job file that is wrong
        return FAILED, str(failed)
    except Interrupted as by:
        return by.status, f"{by}: the command was ended and its trial given up. Run it again to go on."
    return DONE, ""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Being asked to end is like Ctrl-C: the command is ended, the limit put back and the trial given up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    heeded = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup has one ignored
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _not_reached(launcher: Launcher, last: LaunchedRecurrence) -> str:
    spec = launcher.job.spec
    sign, sizes = ">=" if spec.higher_is_better_metric else "<=", sorted({one.batch_size for one in last.tries})
    return (
        f"job {spec.id!r}: in {len(last.tries)} tries none of the batch sizes {sizes} reached a metric {sign} "
        f"{spec.target_metric:g}. Offer other batch sizes, raise max_epochs, or relax the target."
    )


def _told(launcher: Launcher, trials: list[Trial]) -> Json:
    """The job as `zeus jobs show` tells it; as far as this run alone knows it where its store cannot be asked."""
    try:
        return launcher.jobs.full(launcher.job.spec.id)
    except ZeusError as away:
        from zeus.jobs.report import told_alone

        return {**told_alone(launcher.job.spec, trials), "remark": f"what was saved is not known: {away}"}


# ---------------------------------------------------------------------------------------------------- what is said


def _report(launcher: Launcher, trials: dict[int, Trial], told: Json) -> Json:
    return {
        "job": launcher.job.spec.id,
        "recurrences": [
            {
                **row,
                "recurrence": row["number"],
                "converged": row["end"] == "converged",
                "tries": [_try(launcher, one) for one in told["tries"] if one["recurrence"] == row["number"]],
            }
            for row in _rows(trials, told)
        ],
        "default": told["default"],
        "recent": told["recent"],
        "saving": _with_old_names(told["saving"], told["default"]),
        "recent_saving": told["recent_saving"],
        "store": launcher.jobs.address,
        "logs": str(launcher.logs),
    }


def _rows(trials: dict[int, Trial], told: Json) -> list[Json]:
    """The recurrences of this run."""
    mine = {one.ask.recurrence for one in trials.values()}
    return [row for row in told["history"] if row["number"] in mine]


def _with_old_names(saving: Json | None, default: Json | None) -> Json | None:
    """What was saved, also under the names that it had in version 0.1."""
    if saving is None or default is None:
        return saving
    shares = {"joules_share": saving["share"], "seconds_share": saving["time_share"]}
    usual = {f"default_{name}": default[name] for name in ("limit_watts", "joules", "seconds", "cost")}
    return {**saving, **shares, **usual}


def _try(launcher: Launcher, one: Json) -> Json:
    ran = launcher.ran.get(one["number"])
    return {**one, "trial": one["number"], "power_limit": None if ran is None else ran.limit_watts}


def _tell(launcher: Launcher, trials: dict[int, Trial], told: Json) -> None:
    from zeus.cli.jobs_text import tell_default
    from zeus.cli.run_view import numbered

    rows = _rows(trials, told)
    for row in rows:
        tries = [one for one in told["tries"] if one["recurrence"] == row["number"]]
        sizes = " -> ".join(str(one["batch_size"]) for one in tries)
        ending = "reached the target" if row["end"] == "converged" else "did not reach the target"
        click.echo(
            f"recurrence {numbered(row['number'])}: batch size {sizes} {ending}; {joules(row['joules'])}, "
            f"{seconds(row['seconds'])}, cost {joules(row['cost'])}"
        )
    if any(row["end"] == "converged" for row in rows):
        if told.get("remark") and told["default"] is None:
            click.echo(told["remark"])
        tell_default(told)
    click.echo(f"store: {launcher.jobs.address}\nlogs:  {launcher.logs}")
