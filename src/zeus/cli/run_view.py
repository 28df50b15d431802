"""What `zeus run` shows on standard error while it runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

import click

from zeus.cli.format import numbered, plural, watts, which_trial
from zeus.job import Ending, Outcome, Trial
from zeus.launch.progress import FinishedTrial, Live, Restart, RunView
from zeus.ledger.charge import spent
from zeus.tariff.text import joules

if TYPE_CHECKING:
    from rich.table import Table

EVERY_SECONDS = 10.0  # between two plain lines about a running trial


class Plain(RunView):
    """Prints a line for each event."""

    def __init__(self) -> None:
        self._next = 0.0
        self._crash: list[str] = []  # the last lines of the newest crash

    def trial(self, trial: Trial, ran: FinishedTrial | None) -> None:
        """Print a line at the start, and one or more at the end."""
        for line in [began(trial)] if trial.ending is Ending.OPEN else ended(trial, ran):
            self.say(line)
        if ran is None or trial.ending is not Ending.CRASHED:
            return
        known, self._crash = self._crash, ran.last_lines
        same = self._crash == known
        for line in ["the same last lines as at the crash before"] if same else self._crash:
            self.say(f"  | {line}")
        self.say(f"  The whole output is in {ran.log}.")

    def live(self, live: Live) -> None:
        """Print a line, at most every EVERY_SECONDS."""
        if live.so_far.epochs and time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_SECONDS
            self.say("  " + ", ".join(f"{name} {value}" for name, value in standing(live).items()))

    def restart(self, restart: Restart) -> None:
        """Print a line."""
        self.say(started_again(restart))

    def say(self, line: str) -> None:
        """Print a line."""
        click.echo(line, file=_unfailing())


class Terminal(Plain):
    """Shows the running trial as a live table, below the lines about earlier ones."""

    def __init__(self, screen: Any) -> None:
        super().__init__()
        self._screen = screen

    def trial(self, trial: Trial, ran: FinishedTrial | None) -> None:
        """Show the table of a new trial, or remove that of an ended one."""
        super().trial(trial, ran)
        open_ = trial.ending is Ending.OPEN
        self._screen.update(self._table(Live(trial, Outcome(ending=Ending.LOST, joules=0.0))) if open_ else "")

    def live(self, live: Live) -> None:
        """Update the table."""
        self._screen.update(self._table(live))

    def say(self, line: str) -> None:
        """Print a line above the table."""
        self._screen.console.print(line, markup=False, highlight=False)

    def _table(self, live: Live) -> Table:
        from rich.table import Table

        ask, decision = live.trial.ask, live.trial.decision
        table = Table(box=None, padding=(0, 1, 0, 0))
        cells = {
            "recurrence": f"{numbered(ask.recurrence)}, try {ask.attempt}",
            "phase": str(decision.phase),
            "size": str(live.trial.batch_size),
            **standing(live),
        }
        for name in cells:
            table.add_column(name, header_style="dim", no_wrap=True)
        table.add_row(*cells.values())
        return table


@contextmanager
def view(silent: bool) -> Iterator[RunView]:
    """The view for this standard error: none, plain lines, or a live table on a terminal."""
    if silent:
        yield RunView()
    elif not sys.stderr.isatty():
        yield Plain()
    else:
        from rich.console import Console
        from rich.live import Live as Screen

        console = Console(file=_unfailing())
        with Screen("", console=console, refresh_per_second=4, transient=True) as screen:
            yield Terminal(screen)


class _Unfailing:
    """A stream that ignores write errors: a closed pipe or terminal must not end a training."""

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


def began(trial: Trial) -> str:
    """The line about a trial that begins: what runs, and why."""
    decision, ask = trial.decision, trial.ask
    bound = "no cost limit" if decision.cost_limit is None else f"cost limit {joules(decision.cost_limit)}"
    return f"{which_trial(ask.recurrence, ask.attempt)}: batch size {decision.batch_size} ({decision.reason}), {bound}"


def started_again(restart: Restart) -> str:
    """The line about a start that ran out of memory: what it used, and how the next one differs."""
    used, split = restart.used, restart.split
    samples = plural(restart.per_device, "sample")
    return (
        f"  {samples} on a GPU do not fit in memory; this start used {joules(used.joules if used.is_known else None)}, "
        f"{used.seconds:.1f} s, which count for this trial. It is started again with "
        f"{plural(split.per_device, 'sample')} on each GPU, accumulated over {split.accumulation_steps} batches."
    )


def standing(live: Live) -> dict[str, str]:
    """The state of a running trial, by column name."""
    so_far, limit = live.so_far, live.trial.decision.cost_limit
    cost = cost_of(live.trial, so_far)
    return {
        "epoch": str(so_far.epochs),
        "metric": "-" if so_far.metric is None else f"{so_far.metric:g}",
        "energy": joules(so_far.joules),
        "time": f"{so_far.seconds:.1f} s",
        "cost": joules(cost) + ("" if limit is None else f" of {joules(limit)}"),
        "limit": watts(live.limit_watts),
    }


def ended(trial: Trial, ran: FinishedTrial | None) -> list[str]:
    """The lines about a trial that has ended: how, and what to do if it failed."""
    outcome = trial.outcome or Outcome(ending=Ending.LOST)
    if outcome.ending is Ending.STOPPED and not outcome.epochs and not outcome.joules:
        return [f"  not run: one epoch would cost {joules(outcome.next_epoch_cost)}, more than the cost limit"]
    words = {
        Ending.CONVERGED: "reached the target",
        Ending.STOPPED: "stopped: another epoch is not worth its cost",
        Ending.NOT_CONVERGED: "ended without reaching the target",
        Ending.CRASHED: f"crashed with exit code {ran.exit_code if ran is not None else '?'}",
    }.get(outcome.ending, "lost")
    metric = "" if outcome.metric is None else f", metric {outcome.metric:g}"
    at = "" if ran is None or ran.limit_watts is None else f", {watts(ran.limit_watts)}"
    used = f"{joules(outcome.joules)}, {outcome.seconds:.1f} s, cost {joules(cost_of(trial, outcome))}"
    lines = [f"  {words} ({plural(outcome.epochs, 'epoch')}{metric}{at}, {used})"]
    if ran is not None and ran.exit_code and outcome.ending is not Ending.CRASHED:
        lines += [f"  The command then failed with exit code {ran.exit_code}. Its output is in {ran.log}."]
    return lines


def cost_of(trial: Trial, outcome: Outcome) -> float | None:
    """The cost of a trial that has used this much (Equation 2)."""
    use = spent(outcome, trial.ask.eta, trial.ask.max_watts)
    return None if use is None else use.cost
