"""`zeus keeper` lends power limits to a group of users. `zeus restore` restores limits after a keeper died."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from zeus.device.keeper.client import DEFAULT_SOCKET, PRIVATE

RULE = "ExecStart=/usr/bin/python3 "


@click.command()
@click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    default=str(DEFAULT_SOCKET),
    show_default=True,
    envvar="ZEUS_KEEPER",
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
    from zeus.device.keeper.run import run_system

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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
def restore(as_json: bool) -> None:
    """Restore GPU power limits that a dead keeper left behind. The exit code is 1 if a limit cannot be restored."""
    from zeus.device.keeper import run
    from zeus.device.keeper.restore import Restoration

    returned = run.restore()
    if as_json:
        fields = ("uuid", "ending", "found_watts", "limit_watts", "message")
        click.echo(json.dumps({"gpus": [{f: getattr(r, f) for f in fields} for r in returned]}))
    else:
        for r in returned:
            click.echo(r.message)
        if not returned:
            click.echo("Nothing to restore.")
    sys.exit(1 if any(r.ending is Restoration.FAILED for r in returned) else 0)
