"""The lines that `zeus demo` prints."""

from __future__ import annotations

from typing import Any

from zeus.cli.format import joules_cell, plain_table, seconds, sparkline, watts
from zeus.job import JobSpec, Trial
from zeus.ledger.charge import cost_of
from zeus.tariff.text import joules

COLUMNS = "{:>10}  {:>5}  {:>5}  {:>6}  {:>8}  {:>8}  {:<13}  {}"


def opening(spec: JobSpec, gpu: str, runs: int) -> list[str]:
    """The lines before the first run."""
    sizes = f"{len(spec.batch_sizes)} from {min(spec.batch_sizes)} to {max(spec.batch_sizes)}"
    return [
        f"A PyTorch classifier is trained many times, each time to an accuracy of {spec.target_metric:.0%}.",
        f"It runs on a virtual {gpu}. Each step takes the time and power of a step of ShuffleNet-v2.",
        f"The default batch size is {spec.default_batch_size}. Zeus may choose from {sizes}.",
        *heading(f"Without Zeus, {runs} runs at the highest power limit:"),
    ]


def heading(what: str) -> list[str]:
    """The lines before the first recurrence of a job."""
    names = ("recurrence", "size", "limit", "epochs", "energy", "cost", "ended", "why this size")
    return ["", what, COLUMNS.format(*names)]


def line(trial: Trial, limit_watts: float | None, eta: float) -> str:
    """The line of a trial that has ended."""
    outcome, cost = trial.outcome, cost_of(trial, eta)
    again = f".{trial.ask.attempt}" if trial.ask.attempt > 1 else ""
    return COLUMNS.format(
        f"{trial.ask.recurrence}{again}",
        trial.batch_size,
        watts(limit_watts),
        "-" if outcome is None else outcome.epochs,
        "-" if outcome is None else joules(outcome.joules),
        joules_cell(cost),
        trial.ending.value.replace("_", " "),
        trial.decision.reason,
    )


def result(report: dict[str, Any]) -> list[str]:
    """The lines at the end: the last recurrences against the default, and where the report and the store are."""
    lines = ["", f"cost by recurrence: {sparkline(report['costs'], 60)}", ""]
    if report["default"] is None or report["recent"] is None:
        lines += ["There is nothing to compare, as the default or Zeus did not reach the target."]
    else:
        lines += _comparison(report)
    before, after = report["limit_before_watts"], report["limit_after_watts"]
    lines += [
        f"The GPU's power limit was {before:g} W before the demo and is {after:g} W after it. "
        f"The demo took {report['elapsed_seconds']:.0f} s.",
        f"Report: {report['folder']}/report.json and report.txt",
        f"Store:  {report['store']}",
        f"Next:   zeus jobs show {report['job']} --store {report['store']}",
    ]
    return lines


def _comparison(report: dict[str, Any]) -> list[str]:
    default, recent = report["default"], report["recent"]
    limit = {row["batch_size"]: row["limit_watts"] for row in report["sizes"]}[recent["batch_size"]]
    rows = [
        ["default", str(default["batch_size"]), watts(default["limit_watts"])],
        [f"Zeus, last {recent['recurrences']}", str(recent["batch_size"]), watts(limit)],
    ]
    for name, show in (("joules", joules), ("seconds", seconds), ("cost", joules)):
        for row, cell in zip(rows, (show(default[name]), show(recent[name])), strict=True):
            row.append(cell)
    headings = ["", "size", "limit", "energy", "time", "cost"]
    saving, lately = report["saving"], report["recent_saving"]
    return [
        *plain_table(headings, rows, numbers=headings[1:]),
        "",
        f"The default is the mean of the {default['runs']} runs without Zeus. A recurrence counts all its trials.",
        f"The last {lately['recurrences']} recurrences: {lately['sentence']}.",
        f"All {saving['recurrences']}, exploration included: {saving['sentence']}.",
    ]
