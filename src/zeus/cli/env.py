"""`zeus env`: the devices, what they can do, what this user may do, and what to fix."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import click

from zeus import __version__
from zeus.cli.format import plural, watts
from zeus.cli.node import Devices, StoreFacts, devices, store
from zeus.cli.output import print_json, print_table
from zeus.settings import HERE, SETTINGS


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def env(as_json: bool) -> None:
    """Show the GPUs, the CPU, the keeper and the store. If something does not work, say how to fix it."""
    found, where, python = devices(), store(), ".".join(map(str, sys.version_info[:3]))
    if as_json:
        versions = {"zeus": __version__, "python": python}
        print_json({**versions, **asdict(found), "store": asdict(where), "settings": settings()})
    else:
        _print_report(f"Zeus {__version__}, Python {python}", found, where)


def settings() -> list[dict[str, Any]]:
    """Each setting that a file can have, and the others that are set: its value, and where the value comes from."""
    from zeus.store.address import shown

    found = []
    for one in SETTINGS:
        text = HERE.get(one.variable)
        if not text and not one.in_files:
            continue
        value = one.default_text or None
        if text:
            value = shown(text) if "://" in text else "***" if one.is_secret else text
        origin = HERE.origin(one.variable) if text else "default"
        found.append({"name": one.key, "variable": one.variable, "value": value, "from": origin})
    return found


def _print_report(heading: str, found: Devices, where: StoreFacts) -> None:
    click.echo(heading)
    rows = []
    for gpu in found.gpus:
        span = f"{gpu.min_watts:g}-{gpu.max_watts:g} W" if gpu.min_watts is not None else "-"
        able = "yes" if gpu.can_set_limit else f"no: {gpu.why_not}"
        rows.append((str(gpu.index), gpu.name, watts(gpu.limit_watts), span, ", ".join(gpu.capabilities), able))
    if rows:
        print_table(("GPU", "name", "limit", "range", "can report", "limit can be set"), rows)
    else:
        from zeus.device.find import no_gpu

        click.echo(f"GPUs: {no_gpu()}")
    lines = [
        found.cpu.why_not or f"CPU energy: {', '.join(found.cpu.packages)}",
        f"Keeper: {found.keeper.use or found.keeper.why_not}",
        *([f"Accepted risk: {found.keeper.risk}"] if found.keeper.risk else []),
        f"Store: {where.url if where.ok else where.why_not}",
    ]
    if where.waiting:
        waits = "waits" if where.waiting == 1 else "wait"
        lines.append(f"{plural(where.waiting, 'report')} {waits} to be delivered when Zeus next reaches the store.")
    lines += [f"Setting {one['name']} = {one['value']} (from {one['from']})" for one in settings()
              if one["from"] != "default"]  # fmt: skip
    for line in (*lines, *HERE.mistakes()):
        click.echo(line)
