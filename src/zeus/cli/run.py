"""`zeus run job.toml`: runs recurrences of a job and reports what they used and saved."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from zeus.cli.format import numbered, plural, seconds
from zeus.cli.options import STORE_DEFAULT
from zeus.cli.output import print_json, printed, warnings
from zeus.cli.run_placement import LOCAL, PLACEMENTS, refuse_unused, submit
from zeus.errors import DONE, FAILED, NOT_REACHED, ZeusError
from zeus.job import Ending, replace
from zeus.launch.process.guard import shell_status
from zeus.settings import Mode, put, quiet, run_id, slurm_job
from zeus.tariff.text import joules

if TYPE_CHECKING:
    from zeus.job import Trial
    from zeus.launch.launcher import Launcher
    from zeus.launch.recurrence import LaunchedRecurrence

Json = dict[str, Any]
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # all are handled like Ctrl-C


class Interrupted(KeyboardInterrupt):
    """A signal asked the command to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.status = shell_status(-number)


@click.command()
@click.argument("job_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--recurrences",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How often to run the job.",
)
@click.option(
    "--revise",
    is_flag=True,
    help="Continue the job even if its command, target, higher_is_better or include has changed.",
)
@click.option(
    "--off",
    is_flag=True,
    help="Train as without Zeus: the default batch size, no power limit. The energy is measured all the same.",
)
@click.option("--store", "url", metavar="URL", help=f"Store or service that keeps the job. {STORE_DEFAULT}")
@click.option(
    "--on",
    "place",
    type=click.Choice([LOCAL, *PLACEMENTS]),
    default=LOCAL,
    show_default=True,
    help="Where to run the job.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of [slurm], [ray] or [kubernetes] for this run, such as partition=gpu. Can be repeated.",
)
@click.option("--watch", is_flag=True, help="Wait until the job has ended, and show its progress. (slurm, ray)")
@click.option("--dry-run", is_flag=True, help="Check everything and show what would be run, but run nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def run(
    job_file: Path,
    recurrences: int,
    revise: bool,
    off: bool,
    url: str | None,
    place: str,
    settings: tuple[str, ...],
    watch: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run the recurring job described in JOB_FILE.

    Zeus chooses the batch size and the power limit. If a trial does not reach the target, Zeus tries another
    batch size.

    \b
    Exit codes:
      0        every recurrence reached the target
      1        the job could not be run
      2        the job file is wrong
      3        a recurrence did not reach the target
      128 + N  signal N ended the run (130 after Ctrl-C, 143 after SIGTERM)
    """
    from zeus.cli.run_plan import print_plan
    from zeus.cli.run_view import view
    from zeus.launch.job_file.placements import override
    from zeus.launch.job_file.reader import read_job_file
    from zeus.launch.launcher import Launcher
    from zeus.launch.placement.submission import Submission

    refuse_unused(place, settings, watch)
    if url:
        put({"ZEUS_STORE": url})  # the command uses the same store, and its logs lie beside it
    if place != LOCAL:
        submission = Submission(
            file=(file := read_job_file(job_file)),
            path=job_file.absolute(),
            folder=Path.cwd(),
            recurrences=recurrences,
            revise=revise,
            off=off,
            settings=override(place, file.places.get(place, {}), settings),
        )
        return submit(place, submission, watch=watch, dry_run=dry_run, as_json=as_json)
    click.get_current_context().with_resource(warnings(silent=quiet()))
    file = read_job_file(job_file)
    if off:
        file = replace(file, mode=Mode.OFF)
    if dry_run:
        return print_plan(file, revise, as_json)
    with view(silent=quiet()) as shown:
        launcher = Launcher(file, shown, revise=revise)
        click.get_current_context().call_on_close(launcher.close)
        if launcher.revision and not quiet():
            click.echo(f"zeus: job {file.spec.id!r} was revised: {launcher.revision}", err=True)
        status, why = _recurrences(launcher, recurrences, run_id())
    was_printed = printed(lambda: _print(launcher, as_json))
    if not quiet():
        _print_ruled_out(launcher)
    if why:
        click.echo(f"zeus: {why}", err=True)
    return status if was_printed else status or FAILED


def _print(launcher: Launcher, as_json: bool) -> None:
    report, trials = _stored(launcher, launcher.trials)
    if job := slurm_job():
        _note_energy(job, _rows(report, trials))
    if as_json:
        print_json(_report(launcher, trials, report))
    elif not quiet():
        _print_text(launcher, trials, report)


def _recurrences(launcher: Launcher, count: int, run: str) -> tuple[int, str]:
    """Run recurrences until one misses the target. Returns the exit code, and the reason if it is not 0.

    If an earlier process had the same `run` id, its recurrences are continued. Those that are over are not run again.
    """
    from zeus.launch.size_profiler import profile_first

    try:
        with interruptible():
            for one in profile_first(launcher, lambda size: _note(f"profiling batch size {size} before the first run")):
                if one.failure:
                    _note(f"batch size {one.batch_size} could not be profiled: {one.failure}")
            for number in range(1, count + 1):
                this = launcher.recur(f"{run}.{number}" if run else None)
                if all(one.ending is Ending.CRASHED for one in this.tries):
                    return FAILED, f"job {launcher.job.spec.id!r}: the command crashed in every trial; see its logs."
                if not this.converged:
                    return NOT_REACHED, _not_reached(launcher, this)
    except ZeusError as failed:  # the job file has been read, so the input is not at fault
        return FAILED, str(failed)
    except Interrupted as by:
        following = "continues this recurrence" if run else "begins a new recurrence"
        return by.status, f"{by}. The command was ended, and its trial is lost. The next `zeus run` {following}."
    return DONE, ""


def _note(text: str) -> None:
    if not quiet():
        click.echo(f"zeus: {text}", err=True)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn signals that end a process into `Interrupted`, so that the launcher cleans up as after Ctrl-C."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    heeded = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
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
        f"job {spec.id!r}: in {plural(len(last.tries), 'trial')} none of the batch sizes {sizes} reached a metric "
        f"{sign} {spec.target_metric:g}. Offer other batch sizes, raise max_epochs, or relax the target."
    )


def _print_ruled_out(launcher: Launcher) -> None:
    """Print which sizes crashed. Only at the end of a run is it known whether the script itself was at fault."""
    excused = launcher.diagnosis.excused
    crashed = [one for one in launcher.trials.values() if one.ending is Ending.CRASHED and one.number not in excused]
    for size in sorted({one.batch_size for one in crashed}):
        job = shlex.quote(launcher.job.spec.id)
        click.echo(
            f"zeus: batch size {size} crashed. It is not offered again unless you run "
            f"`zeus jobs reset {job} --batch-size {size}`.",
            err=True,
        )


def _stored(launcher: Launcher, begun: dict[int, Trial]) -> tuple[Json, dict[int, Trial]]:
    """The job as `zeus jobs show --json` prints it, and the trials of this run as the store has them.

    If the store cannot say how this run went: what the run knows.

    Args:
        launcher: Of this run.
        begun: Its trials by the number that they began with. One that began without its store has another one there.
    """
    from zeus.client.api import ALONE
    from zeus.client.report import full_without_store
    from zeus.tariff.settings import prices

    try:
        report = launcher.jobs.full(launcher.job.spec.id)
    except ZeusError as away:
        why = f"the job could not be read ({str(away).rstrip('.')})"
        return full_without_store(launcher.job.spec, begun.values(), why, prices()), begun
    trials = {number: launcher.job.trial(number) if number >= ALONE else one for number, one in begun.items()}
    endings = {one["number"]: one["ending"] for one in report["tries"]}
    late = [one for one in trials.values() if one.number >= ALONE or endings.get(one.number) == Ending.OPEN]
    other = [one for one in trials.values() if endings.get(one.number) != one.ending]
    if not other:
        return report, trials
    why = "the results of this run have not reached the store yet" if late else "the store holds other results of it"
    return full_without_store(launcher.job.spec, trials.values(), why, prices()), trials


# ---------------------------------------------------------------------------------------------------- the report


def _report(launcher: Launcher, trials: dict[int, Trial], stored: Json) -> Json:
    from zeus.client.api import ALONE
    from zeus.client.report import run_json

    limits = {trials[number].number: ran.limit_watts for number, ran in launcher.ran.items()}
    report = run_json(launcher.job.spec.id, stored, _recurrences_of(trials), limits)
    for row in report["recurrences"]:
        for one in (row, *row["tries"]):  # a trial that the store does not know yet has no number of its own
            one |= {name: None for name in ("number", "recurrence", "trial") if (one.get(name) or 0) >= ALONE}
    return {**report, "store": launcher.jobs.address, "logs": str(launcher.logs)}


def _note_energy(slurm_job_id: str, rows: Sequence[Json]) -> None:
    """Write into the comment of this Slurm job what its recurrences used. Says so if it is not allowed."""
    from zeus.client.api import ALONE
    from zeus.launch.placement.slurm import set_comment
    from zeus.launch.placement.slurm_records import energy_comment

    joules = [row["known_joules"] for row in rows if row["known_joules"] is not None]
    seconds = [row["seconds"] for row in rows]
    whole = None if not seconds or None in seconds else sum(seconds)
    unknown = sum(row["unknown_tries"] for row in rows)
    numbers = [row["number"] for row in rows if row["number"] < ALONE]
    energy = energy_comment(sum(joules) if joules else None, whole, numbers, unknown)
    try:
        set_comment(slurm_job_id, energy)
    except (ZeusError, OSError) as refused:
        click.echo(f"zeus: the energy could not be written into the comment of the job: {refused}", err=True)


def _recurrences_of(trials: dict[int, Trial]) -> set[int]:
    return {one.ask.recurrence for one in trials.values()}


def _rows(report: Json, trials: dict[int, Trial]) -> list[Json]:
    """The recurrences of these trials."""
    numbers = _recurrences_of(trials)
    return [row for row in report["history"] if row["number"] in numbers]


def _print_text(launcher: Launcher, trials: dict[int, Trial], report: Json) -> None:
    from zeus.cli.jobs_text import print_footprint, tell_default, tell_lost

    for row in _rows(report, trials):
        tries = [one for one in report["tries"] if one["recurrence"] == row["number"]]
        sizes = " -> ".join(str(one["batch_size"]) for one in tries)
        ending = "reached the target" if row["end"] == "converged" else "did not reach the target"
        click.echo(
            f"recurrence {numbered(row['number'])}: batch size {sizes} {ending}; {joules(row['joules'])}, "
            f"{seconds(row['seconds'])}, cost {joules(row['cost'])}"
        )
        print_footprint(row.get("footprint"))
    tell_lost(report)
    tell_default(report)
    click.echo(f"store: {launcher.jobs.address}\nlogs:  {launcher.logs}")
