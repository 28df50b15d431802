"""What `zeus demo` says while it runs and at its end."""

from __future__ import annotations

from typing import Any

from zeus.cli.output import change, joules, plain_table, seconds, sparkline
from zeus.job import JobSpec, Trial
from zeus.policy.paper.state import cost_of

COLUMNS = "{:>10}  {:>5}  {:>5}  {:>6}  {:>8}  {:>8}  {:<13}  {}"


def opening(spec: JobSpec, gpu: str, runs: int) -> list[str]:
    """Before the first run."""
    sizes = f"{len(spec.batch_sizes)} from {min(spec.batch_sizes)} to {max(spec.batch_sizes)}"
    return [
        f"A classifier (PyTorch) learns, again and again, until it is right in {spec.target_metric:.0%} of cases.",
        f"It runs on a virtual {gpu}, whose steps take the time and power of ShuffleNet-v2's.",
        f"Its default batch size is {spec.default_batch_size}; the batch sizes to choose from are {sizes}.",
        *heading(f"Without Zeus, {runs} runs at the highest power limit:"),
    ]


def heading(what: str) -> list[str]:
    """Before the first recurrence of a job."""
    names = ("recurrence", "size", "limit", "epochs", "energy", "cost", "ended", "why this size")
    return ["", what, COLUMNS.format(*names)]


def line(trial: Trial, limit_watts: float | None, eta: float) -> str:
    """One trial that has ended."""
    told, cost = trial.outcome, cost_of(trial, eta)
    again = f".{trial.ask.attempt}" if trial.ask.attempt > 1 else ""
    return COLUMNS.format(
        f"{trial.ask.recurrence}{again}",
        trial.batch_size,
        "-" if limit_watts is None else f"{limit_watts:.0f} W",
        "-" if told is None else told.epochs,
        "-" if told is None else joules(told.joules),
        "-" if cost is None else joules(cost),
        trial.ending.value.replace("_", " "),
        trial.decision.reason,
    )


def result(report: dict[str, Any]) -> list[str]:
    """The end: what the job has come to, against the default, and where everything lies."""
    lines = ["", f"cost by recurrence: {sparkline(report['costs'], 60)}", ""]
    if report["default"] is None or report["recent"] is None:
        lines += ["Default or Zeus has not reached the target, so that there is nothing to compare."]
    else:
        lines += _comparison(report)
    before, after = report["limit_before_watts"], report["limit_after_watts"]
    lines += [
        f"The GPU's limit was {before:g} W before and is {after:g} W again. Took {report['elapsed_seconds']:.0f} s.",
        f"Report: {report['folder']}/report.json and report.txt",
        f"Store:  {report['store']}",
        f"Look:   zeus jobs show {report['job']} --store {report['store']}",
    ]
    return lines


def _comparison(report: dict[str, Any]) -> list[str]:
    default, recent = report["default"], report["recent"]
    limit = {row["batch_size"]: row["limit_watts"] for row in report["sizes"]}[recent["batch_size"]]
    rows = [
        ["default", str(default["batch_size"]), _watts(default["limit_watts"])],
        [f"Zeus, last {recent['recurrences']}", str(recent["batch_size"]), _watts(limit)],
        ["", "", ""],
    ]
    for name, show in (("joules", joules), ("seconds", seconds), ("cost", joules)):
        against = change(1 - recent[name] / default[name])
        for row, cell in zip(rows, (show(default[name]), show(recent[name]), against), strict=True):
            row.append(cell)
    headings = ["", "size", "limit", "energy", "time", "cost"]
    saving = report["saving"]
    return [
        *plain_table(headings, rows, numbers=headings[1:]),
        "",
        f"The default is the mean of the {default['runs']} runs without Zeus; a recurrence counts all its tries.",
        f"Over all {saving['recurrences']} recurrences, exploring included, Zeus used {joules(abs(saving['joules']))} "
        f"{'less' if saving['joules'] >= 0 else 'more'} than the default",
        f"({change(saving['share'])} energy, {change(saving['time_share'])} time).",
    ]


def _watts(limit: float | None) -> str:
    return "-" if limit is None else f"{limit:.0f} W"
