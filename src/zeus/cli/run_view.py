"""What `zeus run` shows while it runs, on standard error: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

import click

from zeus.cli.output import joules
from zeus.job import Ending, Outcome, Trial
from zeus.job.charge import spent
from zeus.jobs.api import ALONE
from zeus.launch.job_file.values import JobFile
from zeus.launch.progress import FinishedTrial, Live

if TYPE_CHECKING:
    from rich.table import Table

EVERY_SECONDS = 10.0  # at most so often a plain line of a running trial


class RunView(Protocol):
    """Whom the launcher tells."""

    def trial(self, trial: Trial, ran: FinishedTrial | None) -> None:
        """It was asked for (no Ran), or has ended."""

    def live(self, live: Live) -> None:
        """It goes on."""


class QuietView:
    """Says nothing (ZEUS_QUIET)."""

    def trial(self, trial: Trial, ran: FinishedTrial | None) -> None:
        """Nothing."""

    def live(self, live: Live) -> None:
        """Nothing."""


class Plain:
    """A line for each thing that happens."""

    def __init__(self, said: JobFile) -> None:
        self._said = said
        self._next = 0.0

    def trial(self, trial: Trial, ran: FinishedTrial | None) -> None:
        """A line when it begins; one or more when it ends."""
        for line in [began(trial)] if trial.ending is Ending.OPEN else ended(self._said, trial, ran):
            self.say(line)

    def live(self, live: Live) -> None:
        """A line now and then."""
        if live.so_far.epochs and time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_SECONDS
            self.say("  " + ", ".join(f"{name} {value}" for name, value in standing(self._said, live).items()))

    def say(self, line: str) -> None:
        """Write it."""
        click.echo(line, file=_unfailing())


class Terminal(Plain):
    """The running trial as a table that is kept up to date; what has ended scrolls away above it."""

    def __init__(self, said: JobFile, screen: Any) -> None:
        super().__init__(said)
        self._screen = screen

    def trial(self, trial: Trial, ran: FinishedTrial | None) -> None:
        """Begin or remove the table."""
        super().trial(trial, ran)
        open_ = trial.ending is Ending.OPEN
        self._screen.update(self._table(Live(trial, Outcome(ending=Ending.LOST, joules=0.0))) if open_ else "")

    def live(self, live: Live) -> None:
        """Renew the table."""
        self._screen.update(self._table(live))

    def say(self, line: str) -> None:
        """Above the table."""
        self._screen.console.print(line, markup=False, highlight=False)

    def _table(self, live: Live) -> Table:
        from rich.table import Table

        ask, decision = live.trial.ask, live.trial.decision
        table = Table(box=None, padding=(0, 1, 0, 0))
        cells = {
            "recurrence": f"{numbered(ask.recurrence)}, try {ask.attempt}",
            "phase": str(decision.phase),
            "size": str(live.trial.batch_size),
            **standing(self._said, live),
        }
        for name in cells:
            table.add_column(name, header_style="dim", no_wrap=True)
        table.add_row(*cells.values())
        return table


@contextmanager
def view(said: JobFile, silent: bool) -> Iterator[RunView]:
    """The one that suits where standard error goes."""
    if silent:
        yield QuietView()
    elif not sys.stderr.isatty():
        yield Plain(said)
    else:
        from rich.console import Console
        from rich.live import Live as Screen

        console = Console(file=_unfailing())
        with Screen("", console=console, refresh_per_second=4, transient=True) as screen:
            yield Terminal(said, screen)


class _Unfailing:
    """A stream on which a training goes on where nobody reads any more: a closed pipe, a terminal that is gone."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _unfailing() -> IO[str]:
    return cast("IO[str]", _Unfailing(sys.stderr))


def numbered(recurrence: int) -> str:
    """Its number, once its service has given it one.

    >>> numbered(7), numbered(ALONE + 7)
    ('7', '?')
    """
    return str(recurrence) if recurrence < ALONE else "?"


def began(trial: Trial) -> str:
    """What is about to run, and why."""
    decision, ask = trial.decision, trial.ask
    bound = "no bound" if decision.cost_limit is None else f"at most {joules(decision.cost_limit)} of cost"
    return (
        f"recurrence {numbered(ask.recurrence)}, try {ask.attempt}: batch size {decision.batch_size} "
        f"({decision.reason}), {bound}"
    )


def standing(said: JobFile, live: Live) -> dict[str, str]:
    """How a running trial stands, by name."""
    so_far, limit = live.so_far, live.trial.decision.cost_limit
    cost = cost_of(live.trial, so_far)
    return {
        "epoch": str(so_far.epochs),
        "metric": "-" if so_far.metric is None else f"{so_far.metric:g}",
        "energy": joules(so_far.joules),
        "time": f"{so_far.seconds:.1f} s",
        "cost": joules(cost) + ("" if limit is None else f" of {joules(limit)}"),
        "limit": "-" if live.limit_watts is None else f"{live.limit_watts:g} W",
    }


def ended(said: JobFile, trial: Trial, ran: FinishedTrial | None) -> list[str]:
    """How it ended, and what to look at where it failed."""
    outcome = trial.outcome or Outcome(ending=Ending.LOST)
    if outcome.ending is Ending.STOPPED and not outcome.epochs and not outcome.joules:
        return [f"  not run: not even one epoch fits, at {joules(outcome.next_epoch_cost)} of cost"]
    words = {
        Ending.CONVERGED: "reached the target",
        Ending.STOPPED: "stopped: to go on is not worth what it costs",
        Ending.NOT_CONVERGED: "ended without reaching the target",
        Ending.CRASHED: f"crashed with exit code {ran.exit_code if ran is not None else '?'}",
    }.get(outcome.ending, "given up")
    metric = "" if outcome.metric is None else f", metric {outcome.metric:g}"
    at = "" if ran is None or ran.limit_watts is None else f", {ran.limit_watts:g} W"
    used = f"{joules(outcome.joules)}, {outcome.seconds:.1f} s, cost {joules(cost_of(trial, outcome))}"
    lines = [f"  {words}; epoch {outcome.epochs}{metric}{at}, {used}"]
    if ran is not None and ran.exit_code and outcome.ending is not Ending.CRASHED:
        lines += [f"  but then the command failed with exit code {ran.exit_code}. Its output is in {ran.log}."]
    if ran is not None and outcome.ending is Ending.CRASHED:
        size, job = trial.batch_size, shlex.quote(said.spec.id)
        lines += [f"  | {line}" for line in ran.last_lines]
        lines += [
            f"  The whole output is in {ran.log}. Batch size {size} is not offered again until you say so: "
            f"`zeus jobs reset {job} --batch-size {size}`."
        ]
    return lines


def cost_of(trial: Trial, outcome: Outcome) -> float | None:
    """Equation 2 for a trial that used this much."""
    use = spent(outcome, trial.ask.eta, trial.ask.max_watts)
    return None if use is None else use.cost
