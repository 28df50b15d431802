"""`zeus run job.toml`: recurrences of a job, each ask, run, tell and again, with what they cost as they go."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from zeus.cli.output import joules, print_json, warnings
from zeus.env import quiet
from zeus.errors import ZeusError

if TYPE_CHECKING:
    from zeus.job import Trial
    from zeus.launch.local import Launcher
    from zeus.launch.recurrence import Recurrence
    from zeus.launch.report import Ran

DONE, FAILED, NOT_REACHED, INTERRUPTED = 0, 1, 3, 130
ENDS = (signal.SIGTERM, signal.SIGHUP)  # taken like Ctrl-C


@click.command()
@click.argument("job_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--recurrences", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="How many.")
@click.option("--json", "as_json", is_flag=True, help="A report as JSON on stdout; nothing else is written there.")
def run(job_file: Path, recurrences: int, as_json: bool) -> int:
    """Run the job of JOB_FILE: each recurrence is tried with other batch sizes until one reaches the target.

    Exits with 0 when each recurrence has reached it, 3 when one has not in all its tries, 1 when nothing could be run
    any more, 2 when the job file is wrong, 130 when interrupted.
    """
    from zeus.cli.run_view import view
    from zeus.launch.job_file import read_job_file
    from zeus.launch.local import Hooks, Launcher

    click.get_current_context().with_resource(warnings(silent=quiet()))
    said = read_job_file(job_file)
    trials: dict[int, Trial] = {}
    with view(said, silent=quiet()) as shown:

        def changed(trial: Trial, ran: Ran | None) -> None:
            trials[trial.number] = trial
            shown.trial(trial, ran)

        launcher = Launcher(said, Hooks(changed, shown.live))
        status, why = _recurrences(launcher, recurrences)
    done = by_recurrence(trials)
    found = _saving(launcher, done)
    if as_json:
        print_json(_report(launcher, done, found))
    elif not quiet():
        _tell(launcher, done, found)
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
    except KeyboardInterrupt:
        return INTERRUPTED, "interrupted: the command was ended and its trial given up. Run it again to go on."
    return DONE, ""


@contextmanager
def _interruptible() -> Iterator[None]:
    """Being asked to end is like Ctrl-C: the command is ended, the limit put back and the trial given up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    heeded = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup has one ignored
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def by_recurrence(trials: dict[int, Trial]) -> list[Recurrence]:
    """The trials of one run, sorted."""
    from zeus.launch.recurrence import Recurrence

    numbers = sorted({one.ask.recurrence for one in trials.values()})
    return [Recurrence(tuple(one for one in trials.values() if one.ask.recurrence == n)) for n in numbers]


def _not_reached(launcher: Launcher, last: Recurrence) -> str:
    spec = launcher.job.spec
    sign, sizes = ">=" if spec.higher_is_better_metric else "<=", sorted({one.batch_size for one in last.tries})
    return (
        f"job {spec.id!r}: in {len(last.tries)} tries none of the batch sizes {sizes} reached a metric {sign} "
        f"{spec.target_metric:g}. Offer other batch sizes, raise max_epochs, or relax the target."
    )


def _saving(launcher: Launcher, done: list[Recurrence]) -> dict[str, Any] | str:
    """What the job has come to beside its default, in the numbers of `zeus jobs show`; or why that is not known."""
    spec = launcher.job.spec
    try:
        told = launcher.jobs.full(spec.id)
    except ZeusError as away:
        return f"what was saved is not known: {away}"
    default, recent = told["default"], told["recent"]
    if default is None or recent is None or not any(one.converged for one in done):
        return f"the default, {spec.default_batch_size}, has not reached the target here: nothing to compare with"
    used = ("joules", "seconds", "cost")
    return {
        "default_limit_watts": default["limit_watts"],  # None: not known, the limits that Zeus chose
        **{f"default_{name}": default[name] for name in used},
        **{name: recent[name] for name in used},
        "recurrences": recent["recurrences"],
        **{f"{name}_share": 1 - recent[name] / default[name] for name in used},  # below 0 it is more
    }


# ---------------------------------------------------------------------------------------------------- what is said


def _report(launcher: Launcher, done: list[Recurrence], found: dict[str, Any] | str) -> dict[str, Any]:
    eta = launcher.job.spec.eta_knob
    return {
        "job": launcher.job.spec.id,
        "recurrences": [
            {
                "recurrence": one.number,
                "converged": one.converged,
                "tries": [_try(launcher, trial) for trial in one.tries],
                "joules": one.joules,
                "seconds": one.seconds,
                "cost": one.cost(eta),
            }
            for one in done
        ],
        "saving": None if isinstance(found, str) else found,
        "store": launcher.jobs.address,
        "logs": str(launcher.logs),
    }


def _try(launcher: Launcher, trial: Trial) -> dict[str, Any]:
    outcome, ran = trial.outcome, launcher.ran.get(trial.number)
    used = None if outcome is None else outcome.joules
    seconds = 0.0 if outcome is None else outcome.seconds
    return {
        "trial": trial.number,
        "batch_size": trial.batch_size,
        "power_limit": None if ran is None else ran.limit_watts,
        "ending": str(trial.ending),
        "epochs": 0 if outcome is None else outcome.epochs,
        "metric": None if outcome is None else outcome.metric,
        "joules": used,
        "seconds": seconds,
        "cost": None if used is None else launcher.cost.cost(used, seconds),
        "cost_limit": trial.decision.cost_limit,
        "phase": str(trial.decision.phase),
        "reason": trial.decision.reason,
    }


def _tell(launcher: Launcher, done: list[Recurrence], found: dict[str, Any] | str) -> None:
    from zeus.cli.run_view import numbered

    spec = launcher.job.spec
    for one in done:
        sizes = " -> ".join(str(trial.batch_size) for trial in one.tries)
        cost = one.cost(spec.eta_knob)
        ending = "reached the target" if one.converged else "did not reach the target"
        click.echo(
            f"recurrence {numbered(one.number)}: batch size {sizes} {ending}; {joules(one.joules)}, "
            f"{one.seconds:.1f} s, cost {joules(cost)}"
        )
    if not isinstance(found, str):
        many = "recurrence" if found["recurrences"] == 1 else f"{found['recurrences']} recurrences"
        limit = "the limits that Zeus chose" if found["default_limit_watts"] is None else "the highest limit"
        click.echo(
            f"against the default ({spec.default_batch_size} at {limit}: {joules(found['default_joules'])}, "
            f"{found['default_seconds']:.1f} s), the last {many} used {-found['joules_share']:+.1%} energy, "
            f"{-found['seconds_share']:+.1%} time; cost {-found['cost_share']:+.1%}"
        )
    elif any(one.converged for one in done):
        click.echo(found)
    click.echo(f"store: {launcher.jobs.address}\nlogs:  {launcher.logs}")
