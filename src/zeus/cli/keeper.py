"""`zeus keeper` lends power limits to a group of users. `zeus restore` restores limits after a keeper died."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from zeus import settings
from zeus.cli.options import FiniteRange
from zeus.device.keeper.lease import DEFAULT_SOCKET, PRIVATE

RULE = "ExecStart=/opt/zeus/bin/python3 "


@click.command()
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    default=lambda: settings.keeper() or DEFAULT_SOCKET,
    show_default=str(DEFAULT_SOCKET),
    help="Unix socket to listen on.",
)
@click.option("--group", help="Group whose members may set limits. Root always may.  [default: zeus]")
@click.option("--print-unit", is_flag=True, help="Print a systemd unit that runs this keeper, and exit.")
def keeper(path: Path, group: str | None, print_unit: bool) -> None:
    """Let the members of a group set GPU power limits.

    The keeper restores a limit when the program that set it ends, for any reason.
    """
    if str(path) == PRIVATE:
        raise click.UsageError("ZEUS_KEEPER=private is not a socket. Give one with --socket, or unset ZEUS_KEEPER.")
    if print_unit:
        click.echo(unit(path, group), nl=False)
        return
    from zeus.device.keeper.__main__ import run_system

    sys.exit(run_system(path.absolute(), group))


def unit(path: Path, group: str | None) -> str:
    """A systemd unit that runs the keeper with this Python interpreter."""
    text = (Path(__file__).parents[1] / "device" / "keeper" / "zeus-keeper.service").read_text()
    text = text.replace(RULE, f"ExecStart={sys.executable} ").replace(str(DEFAULT_SOCKET), str(path.absolute()))
    if group is not None:
        text = text.replace(f"--socket {path.absolute()}", f"--socket {path.absolute()} --group {group}")
        text = text.replace('group "zeus"', f'group "{group}"').replace("system zeus", f"system {group}")
        text = text.replace("-aG zeus", f"-aG {group}")
    return text


@click.command()
@click.option("--check", is_flag=True, help="Then fail if the power limit of a visible GPU is below its default.")
@click.option(
    "--least",
    type=FiniteRange(0, min_open=True),
    metavar="WATTS",
    help="With --check: the power limit that each visible GPU must have, in place of its default.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def restore(check: bool, least: float | None, as_json: bool) -> None:
    """Restore GPU power limits that a dead keeper left behind.

    The exit code is 1 if a limit cannot be restored, or with --check if a GPU is throttled.
    """
    from zeus.device.keeper import __main__ as keeper_process
    from zeus.device.keeper.loan import Restoration

    if least is not None and not check:
        raise click.UsageError("--least needs --check.")
    results = keeper_process.restore()
    slow = _throttled(least) if check else []
    if as_json:
        gpus = {"gpus": [asdict(r) for r in results]}
        click.echo(json.dumps({**gpus, "throttled": slow} if check else gpus))
    else:
        for r in results:
            click.echo(r.message)
        for one in slow:
            click.echo(f"GPU {one['uuid']}: throttled to {one['limit_watts']:g} W, below {one['least_watts']:g} W.")
        if not results and not slow:
            click.echo("Nothing to restore.")
    sys.exit(1 if slow or any(r.ending is Restoration.FAILED for r in results) else 0)


def _throttled(least: float | None) -> list[dict[str, Any]]:
    """The visible GPUs whose limit is below `least` watts, or if that is None below their own default."""
    from zeus.device.find import find
    from zeus.device.gpu import Capability
    from zeus.device.keeper.notes import near

    slow = []
    for gpu in find().values():
        expected, name = gpu.spec.default_watts if least is None else least, gpu.spec.uuid
        if Capability.LIMITS not in gpu.spec.capabilities or math.isnan(expected):
            continue
        if (limit := gpu.limit()) < expected and not near(limit, expected):
            slow.append({"uuid": name, "limit_watts": limit, "least_watts": expected})
    return slow
