"""What `zeus jobs` prints for people, made from the JSON that `--json` prints."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from zeus.cli.format import joules_cell, plural, seconds, sparkline, watts
from zeus.cli.output import print_table
from zeus.client.report.standing import PHASES, shown_phase
from zeus.tariff.text import footprint_text, joules

Json = dict[str, Any]


def tell_list(rows: list[Json], store: str) -> None:
    if not rows:
        click.echo(f"There are no jobs in {store}.")
        return
    headings = ["job", "phase", "recurrences", "size", "last energy", "last cost", "cost", "saved so far"]
    print_table(headings, [_line(row) for row in rows], numbers=headings[2:6])
    shown = {shown_phase(row) for row in rows}
    if explained := "; ".join(f"{phase}: {text}" for phase, text in PHASES.items() if phase in shown):
        click.echo(f"(phase: {explained})")
    click.echo("(saved: compared with the default batch size at the highest power limit, exploration included)")
    for row in rows:
        if remark := row.get("remark"):  # older services send none
            click.echo(f"{row['job']}: {remark}")


def _line(row: Json) -> list[str]:
    last, saving = row["last"], row["saving"]
    return [
        row["job"],
        shown_phase(row),
        _or(row["recurrences"]),
        _or(row["batch_size"]),
        "-" if last is None else joules(last["joules"]),
        "-" if last is None else joules(last["cost"]),
        sparkline(row["costs"], 15),
        "-" if saving is None else saving["sentence"],
    ]


def _moment(text: str) -> str:
    """A stored moment for people.

    >>> _moment("2026-11-16T03:40:04.666845+00:00")
    '2026-11-16 03:40:04 UTC'
    """
    return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M:%S UTC")


def _line_of(text: str) -> str:
    """A text of somebody else as one line. No escape sequence in it reaches the terminal.

    >>> _line_of("sh -c '\\n train \\x1b[2J'")
    "sh -c ' train [2J'"
    """
    return " ".join("".join(letter for letter in part if letter.isprintable()) for part in text.split())


def tell_job(job: Json, last: int, now: str) -> None:
    """Print one job.

    Args:
        job: What `zeus jobs show --json` prints.
        last: How many trials to show; 0: all.
        now: The time, in UTC, that tells which leases have lapsed.
    """
    spec = job["spec"]
    sign = ">=" if spec["higher_is_better_metric"] else "<="
    sizes = " ".join(map(str, spec["batch_sizes"]))
    click.echo(f"job {job['job']}, revision {job['revision']} of {_moment(job['registered_at'])}")
    click.echo(f"  batch sizes {sizes}; default {spec['default_batch_size']}")
    click.echo(f"  target: metric {sign} {spec['target_metric']:g} within {plural(spec['max_epochs'], 'epoch')}")
    window = f", window {spec['window_size']}" if spec["window_size"] else ""
    beta = "none" if spec["beta_knob"] is None else f"{spec['beta_knob']:g}"
    click.echo(
        f"  eta {spec['eta_knob']:g}, beta {beta}{window}, policy {spec['policy']} "
        f"(version {job['policy_version']}), seed {spec['mab_seed']}"
    )
    if command := spec.get("command"):  # older services send none
        click.echo(f"  command: {_line_of(command)}")
    if job["gpu_model"] is not None:
        click.echo(f"  runs on {job['gpu_model'] or 'an unnamed GPU'}, MAXPOWER {job['max_watts']:g} W")
    if owner := job.get("owner"):  # older services send neither this nor the next
        click.echo(f"  belongs to {owner}")
    if by := job.get("paused_by"):
        click.echo(f"  paused by {by}; `zeus jobs resume {job['job']}` lets Zeus tune it again")
    following = job["next"]
    phase = shown_phase(job)
    click.echo(
        f"phase: {phase}"
        + (f" ({PHASES[phase]})" if phase in PHASES else "")
        + (f"; next: {following['reason']}" if following else "")
    )
    if job["stuck"]:
        click.echo(f"  {job['stuck']}")
    _tell_use(job)
    if job["costs"]:
        click.echo(f"cost by recurrence: {sparkline(job['costs'], 60)}")
    _tell_sizes(job)
    _tell_tries(job["tries"], last, now)


def _tell_use(job: Json) -> None:
    unknown = f", plus {plural(job['unknown_tries'], 'trial')} of unknown energy" if job["unknown_tries"] else ""
    trials, recurrences = plural(job["trials"], "trial"), plural(job["recurrences"], "recurrence")
    click.echo(f"used: {trials} in {recurrences}, {joules(job['joules'])}{unknown}")
    print_footprint(job.get("footprint"))
    tell_lost(job)
    tell_default(job)


def print_footprint(footprint: Json | None, indent: str = "  ") -> None:
    """Print money and carbon, if there is a price or a carbon intensity. Older services send no footprint."""
    if footprint is not None and (text := footprint_text(footprint)):
        by = "; the energy of an hour is estimated from the time" if footprint["hours_by"] == "time" else ""
        click.echo(f"{indent}{text}{by}")


def tell_lost(job: Json) -> None:
    """Print what was used by recurrences that taught nothing. Older services send none."""
    lost = job.get("lost")
    if lost is not None:
        energy = "unknown energy" if lost["joules"] is None else joules(lost["joules"])
        click.echo(
            f"lost: {plural(lost['recurrences'], 'recurrence')}, {energy}. No metric was ever seen, so this is neither "
            "a saving nor a loss."
        )


def tell_default(job: Json) -> None:
    """Print the default, and what was saved against it."""
    default = job["default"]
    if default is None:
        why = job.get("default_why_not") or "the default is not known"  # older services send no reason
        here = "" if job["saving"] is None else " there"
        click.echo(f"default: {why}, so there is nothing to compare with{here}")
    else:
        at = "" if default["limit_watts"] is None else f" at {watts(default['limit_watts'])}"
        error = f" ± {joules(default['joules_error'], of=default['joules'])}" if default["joules_error"] else ""
        click.echo(
            f"default: batch size {default['batch_size']}{at}: {joules(default['joules'])}{error}, "
            f"{seconds(default['seconds'])} ({_basis(default)}; {default['epochs']:.1f} epochs on average)"
        )
    if (saving := job["saving"]) is not None:
        click.echo(f"{_compared(saving['recurrences'], job['recurrences'])}: {saving['sentence']}")
    if (saving := job["recent_saving"]) is not None:
        click.echo(f"the latest {plural(saving['recurrences'], 'recurrence')} that converged: {saving['sentence']}")
    if job.get("surer"):
        click.echo(f"  {job['surer']}")


def _compared(count: int, recurrences: int) -> str:
    """Of which recurrences a saving is told.

    >>> _compared(7, 7), _compared(7, 13)
    ('7 recurrences (all, exploration included)', '7 of 13 recurrences (the others cannot be compared)')
    """
    if count >= recurrences:
        return f"{plural(count, 'recurrence')} (all, exploration included)"
    return f"{count} of {plural(recurrences, 'recurrence')} (the others cannot be compared)"


def _basis(default: Json) -> str:
    """Where the default's numbers come from."""
    runs, measured = default["runs"], default["runs_measured"]
    match default["basis"]:
        case "measured":
            return f"from {plural(measured, 'measured run')}"
        case "estimated":
            return f"estimated from {plural(runs, 'run')}, moved to the highest power limit or to today's data"
        case _:
            return f"as {plural(runs, 'run')} ran, at whatever power limit"


def _tell_sizes(job: Json) -> None:
    rows = []
    for size in job["sizes"]:
        rows.append(
            [
                str(size["batch_size"]) + ("*" if size["batch_size"] == job["spec"]["default_batch_size"] else ""),
                size["standing"],
                str(size["runs"]),
                str(size["converged"]),
                joules_cell(size["mean"]),
                joules_cell(size["spread"]),
                watts(size["limit_watts"]),
            ]
        )
    headings = ["size", "standing", "runs", "converged", "mean cost", "spread", "best limit"]
    click.echo()
    print_table(headings, rows, numbers=[name for name in headings if name != "standing"])
    click.echo("(* default batch size; spread: how uncertain the mean cost still is)")


def _tell_tries(tries: list[Json], last: int, now: str) -> None:
    if not tries:
        return
    some = tries[-last:] if last else tries
    headings = ["trial", "recurrence", "size", "ending", "epochs", "energy", "time", "cost", "bound", "reason"]
    rows = [
        [
            str(one["number"]),
            f"{one['recurrence']}.{one['attempt']}",
            str(one["batch_size"]),
            _ending(one, now),
            _or(one["epochs"]),
            joules_cell(one["joules"]),
            seconds(one["seconds"]),
            joules_cell(one["cost"]),
            joules_cell(one["cost_limit"]),
            one["reason"],
        ]
        for one in some
    ]
    click.echo()
    if len(some) < len(tries):
        click.echo(f"the last {len(some)} of {len(tries)} trials:")
    print_table(headings, rows, numbers=[name for name in headings if name not in ("ending", "reason")])
    if (first := tries[0]["number"]) > 1:
        click.echo(f"(trials before {first} were forgotten or reset; their numbers are not used again)")


def _ending(one: Json, now: str) -> str:
    lapsed = one["leased_until"] is not None and one["leased_until"] <= now
    return f"{one['ending']} (lapsed)" if lapsed else str(one["ending"])


def _or(value: object) -> str:
    return "-" if value is None else str(value)
