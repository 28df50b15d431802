"""`zeus env`: the devices, what they can do, what this user may do, and what to fix."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from zeus import __version__
from zeus.cli.output import known, print_json
from zeus.device.gpu import Capability, Gpu
from zeus.errors import DeviceError, InputError, ZeusError
from zeus.settings import HERE, SETTINGS
from zeus.settings import keeper as keeper_setting


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def env(as_json: bool) -> None:
    """Show the GPUs, the CPU, the keeper and the store. If something does not work, say how to fix it."""
    report = environment()
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def environment() -> dict[str, Any]:
    """The report of `zeus env --json`."""
    return {
        "zeus": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        **devices(),
        "store": store(),
        "settings": settings(),
    }


def devices() -> dict[str, Any]:
    """The parts of the report that ask the driver."""
    from zeus.device.cpu import counters_of
    from zeus.device.find import find

    gpus = find()
    keeper = _keeper(list(gpus.values()))
    cpus = counters_of(gpus.values())
    return {
        "gpus": [_gpu(index, gpu, keeper) for index, gpu in gpus.items()],
        "cpu": {"packages": cpus.names, "readable": not cpus.why_not, "why_not": cpus.why_not or None},
        "keeper": keeper,
    }


def _keeper(gpus: list[Gpu]) -> dict[str, Any]:
    """Which keeper a training would use, the socket at which one should answer but does not, and what one left."""
    from zeus.device.keeper import status

    if not gpus:
        return {**status(gpus), "dead": None, "left": []}
    return {**status(gpus), "dead": _dead_socket(gpus), "left": _left_behind()}


def _dead_socket(gpus: list[Gpu]) -> str | None:
    from zeus.device.keeper.lease import DEFAULT_SOCKET, PRIVATE, are_virtual, is_alive

    chosen = keeper_setting()
    if chosen == PRIVATE or (not chosen and are_virtual(gpus)):
        return None
    path = Path(chosen or DEFAULT_SOCKET)
    return str(path) if (chosen or path.exists()) and not is_alive(path) else None


def _left_behind() -> list[str]:
    """The GPUs whose limit a dead keeper left changed. Other users' notes cannot be seen, so only root sees all."""
    from zeus.device.keeper.notes import Notes

    try:
        return Notes.here().left_behind()
    except (OSError, ZeusError):
        return []


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


def store() -> dict[str, Any]:
    """Where jobs are kept, and whether a training can use that store."""
    from zeus.store.check import check

    found = check()
    report: dict[str, Any] = {"url": found.url, "kind": found.kind, "ok": found.ok, "why_not": found.why_not}
    report |= {"version": found.version, "waiting": 0}
    if found.kind is None:
        return report
    from zeus.client.connection import Connection
    from zeus.client.http import HttpJobs
    from zeus.client.resilient.outbox import Outbox
    from zeus.client.resilient.spool import Spool, default_folder
    from zeus.store.address import address_of, resolve

    if found.kind != "service":
        address = address_of(resolve())
        return {**report, "waiting": len(Spool(default_folder(address), address).waiting())}
    try:
        service = Connection(resolve())
    except InputError as wrong:
        return {**report, "ok": False, "why_not": str(wrong)}
    outbox = Outbox(HttpJobs(service))
    why_not = service.trouble() if found.ok else found.why_not
    outbox.close()
    return {**report, "ok": why_not is None, "why_not": why_not, "waiting": len(outbox.spool.waiting())}


def _gpu(index: int, gpu: Gpu, keeper: dict[str, Any]) -> dict[str, Any]:
    spec = gpu.spec
    limit = None
    why_not = keeper["why_not"]
    if Capability.LIMITS not in spec.capabilities:
        why_not = "this card has no power limit that can be read"
    else:
        try:
            limit = gpu.limit()
        except DeviceError as failed:
            why_not = str(failed)
    return {
        "index": index,
        "uuid": spec.uuid,
        "name": spec.name,
        "vendor": spec.vendor,
        "limit_watts": limit,
        "min_watts": known(spec.min_watts),
        "max_watts": known(spec.max_watts),
        "default_watts": known(spec.default_watts),
        "slowdowns": _slowdowns(gpu),
        "capabilities": sorted(c.value for c in spec.capabilities),
        "can_set_limit": why_not is None,
        "why_not": why_not,
    }


def _slowdowns(gpu: Gpu) -> list[str] | None:
    """Why the driver holds the clocks down now. None if it does not tell."""
    try:
        reasons: list[str] = gpu.slowdowns()  # type: ignore[attr-defined]  # beyond the port: only some drivers tell
    except (AttributeError, DeviceError):
        return None
    return reasons


def _print_report(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"Zeus {report['zeus']}, Python {report['python']}")
    if report["gpus"]:
        table = Table("GPU", "name", "limit", "range", "can report", "limit can be set")
        for gpu in report["gpus"]:
            span = f"{gpu['min_watts']:g}-{gpu['max_watts']:g} W" if gpu["min_watts"] is not None else "-"
            limit = f"{gpu['limit_watts']:g} W" if gpu["limit_watts"] is not None else "-"
            able = "yes" if gpu["can_set_limit"] else f"no: {gpu['why_not']}"
            table.add_row(str(gpu["index"]), gpu["name"], limit, span, ", ".join(gpu["capabilities"]), able)
        console.print(table)
    else:
        from zeus.device.find import no_gpu

        console.print(f"GPUs: {no_gpu()}", markup=False)
    cpu = report["cpu"]
    console.print(cpu["why_not"] or f"CPU energy: {', '.join(cpu['packages'])}", markup=False)
    keeper = report["keeper"]
    console.print(f"Keeper: {keeper['use'] or keeper['why_not']}", markup=False)
    if keeper["risk"]:
        console.print(f"Accepted risk: {keeper['risk']}", markup=False)
    store = report["store"]
    console.print(f"Store: {store['url']}" if store["ok"] else f"Store: {store['why_not']}", markup=False)
    if store["waiting"]:
        reports = "1 report waits" if store["waiting"] == 1 else f"{store['waiting']} reports wait"
        console.print(f"{reports} to be delivered when Zeus next reaches the store.", markup=False)
    for setting in report["settings"]:
        if setting["from"] != "default":
            console.print(f"Setting {setting['name']} = {setting['value']} (from {setting['from']})", markup=False)
    for mistake in HERE.mistakes():
        console.print(mistake, markup=False)
