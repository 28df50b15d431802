"""What `zeus jobs` prints for people, from the same dictionaries that `--json` prints."""

from __future__ import annotations

from typing import Any

import click

from zeus.cli.output import change, joules, print_table, saved, seconds, sparkline

Json = dict[str, Any]


def tell_list(rows: list[Json], store: str) -> None:
    """All jobs."""
    if not rows:
        click.echo(f"No jobs in {store}.")
        return
    headings = ["job", "phase", "recurrences", "size", "last energy", "last cost", "saved so far", "cost"]
    numbers = headings[2:7]
    print_table(headings, [_line(row) for row in rows], numbers=numbers)
    click.echo("(in brackets: against the default batch size at the highest power limit)")
    for row in rows:
        if remark := row.get("remark"):  # a service of before said none
            click.echo(f"{row['job']}: {remark}")


def _line(row: Json) -> list[str]:
    last, default, saving = row["last"], row["default"], row["saving"]
    return [
        row["job"],
        row["phase"],
        _or(row["recurrences"]),
        _or(row["batch_size"]),
        "-" if last is None else f"{joules(last['joules'])} ({_against(last, default, 'joules')})",
        "-" if last is None else f"{joules(last['cost'])} ({_against(last, default, 'cost')})",
        "-" if saving is None else f"{joules(saving['joules'])} ({change(saving['share'])})",
        sparkline(row["costs"], 15),
    ]


def _against(last: Json, default: Json | None, name: str) -> str:
    if default is None or last[name] is None:
        return "-"
    return change(1 - last[name] / default[name])


def tell_job(job: Json, last: int, now: str) -> None:
    """One job; leases are seen as of now."""
    spec = job["spec"]
    sign = ">=" if spec["higher_is_better_metric"] else "<="
    sizes = " ".join(map(str, spec["batch_sizes"]))
    click.echo(f"job {job['job']}, revision {job['revision']} of {job['registered_at']}")
    click.echo(f"  batch sizes {sizes}; default {spec['default_batch_size']}")
    click.echo(f"  target: metric {sign} {spec['target_metric']:g} within {spec['max_epochs']} epochs")
    window = f", window {spec['window_size']}" if spec["window_size"] else ""
    click.echo(
        f"  eta {spec['eta_knob']:g}, beta {spec['beta_knob']:g}{window}, policy {spec['policy']} "
        f"(version {job['policy_version']}), seed {spec['mab_seed']}"
    )
    if job["gpu_model"] is not None:
        click.echo(f"  runs on {job['gpu_model'] or 'a GPU of no name'}, MAXPOWER {job['max_watts']:g} W")
    following = job["next"]
    click.echo(f"phase: {job['phase']}" + (f"; next: {following['reason']}" if following else ""))
    if job["stuck"]:
        click.echo(f"  {job['stuck']}")
    _tell_use(job)
    if job["costs"]:
        click.echo(f"cost by recurrence: {sparkline(job['costs'], 60)}")
    _tell_sizes(job)
    _tell_tries(job["tries"], last, now)


def _tell_use(job: Json) -> None:
    unknown = f", and {job['unknown_tries']} trials of unknown energy" if job["unknown_tries"] else ""
    trials, recurrences = _many(job["trials"], "trial"), _many(job["recurrences"], "recurrence")
    click.echo(f"used: {trials} in {recurrences}, {joules(job['joules'])}{unknown}")
    tell_default(job)


def tell_default(job: Json) -> None:
    """The default, and what was saved against it."""
    default = job["default"]
    if default is None:
        click.echo("default: it has not reached the target yet, so that nothing can be compared with it")
        return
    at = "" if default["limit_watts"] is None else f" at {default['limit_watts']:g} W"
    error = f" ± {joules(default['joules_error'])}" if default["joules_error"] else ""
    click.echo(
        f"default: batch size {default['batch_size']}{at}: {joules(default['joules'])}{error}, "
        f"{seconds(default['seconds'])} ({_basis(default)}; {default['epochs']:.1f} epochs on average)"
    )
    for name, what in (("saving", "all recurrences, exploring included"), ("recent_saving", "the latest of them")):
        saving = job[name]
        if saving is not None:
            click.echo(f"{_many(saving['recurrences'], 'recurrence')} ({what}): {saved(saving)}")


def _basis(default: Json) -> str:
    """What the default rests on."""
    runs, measured = default["runs"], default["runs_measured"]
    match default["basis"]:
        case "measured":
            return f"measured in {_many(measured, 'run')}"
        case "estimated":
            return f"estimated from {_many(runs, 'run')} at other power limits or on other data"
        case _:
            return f"as {_many(runs, 'run')} ran, whatever the power limit"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _tell_sizes(job: Json) -> None:
    rows = []
    for size in job["sizes"]:
        rows.append(
            [
                str(size["batch_size"]) + ("*" if size["batch_size"] == job["spec"]["default_batch_size"] else ""),
                size["standing"],
                str(size["runs"]),
                str(size["converged"]),
                "-" if size["mean"] is None else joules(size["mean"]),
                "-" if size["spread"] is None else joules(size["spread"]),
                "-" if size["limit_watts"] is None else f"{size['limit_watts']:g} W",
            ]
        )
    headings = ["size", "standing", "runs", "converged", "mean cost", "spread", "best limit"]
    click.echo()
    print_table(headings, rows, numbers=[name for name in headings if name != "standing"])
    click.echo("(* the default; spread: how uncertain the mean still is)")


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
            "-" if one["joules"] is None else joules(one["joules"]),
            seconds(one["seconds"]),
            "-" if one["cost"] is None else joules(one["cost"]),
            "-" if one["cost_limit"] is None else joules(one["cost_limit"]),
            one["reason"],
        ]
        for one in some
    ]
    click.echo()
    if len(some) < len(tries):
        click.echo(f"the last {len(some)} of {len(tries)} trials:")
    print_table(headings, rows, numbers=[name for name in headings if name not in ("ending", "reason")])


def _ending(one: Json, now: str) -> str:
    lapsed = one["leased_until"] is not None and one["leased_until"] <= now
    return f"{one['ending']} (lapsed)" if lapsed else str(one["ending"])


def _or(value: object) -> str:
    return "-" if value is None else str(value)
