"""`zeus keeper` lends power limits to a group of users; `zeus restore` puts back what a dead keeper left behind."""

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
    help="The unix socket to listen on.",
)
@click.option("--group", help="Whose members may set limits, besides root.  [default: zeus]")
@click.option("--print-unit", is_flag=True, help="Print a systemd unit that runs this keeper, and exit.")
def keeper(path: Path, group: str | None, print_unit: bool) -> None:
    """Lend GPU power limits, and put back what was found when a client ends, however it ends."""
    if str(path) == PRIVATE:
        raise click.UsageError("ZEUS_KEEPER=private names no socket to serve. Give one with --socket, or unset it.")
    if print_unit:
        click.echo(unit(path, group), nl=False)
        return
    from zeus.device.keeper.run import run_system

    sys.exit(run_system(path.absolute(), group))


def unit(path: Path, group: str | None) -> str:
    """The systemd unit, for this interpreter."""
    text = (Path(__file__).parents[1] / "device" / "keeper" / "zeus-keeper.service").read_text()
    text = text.replace(RULE, f"ExecStart={sys.executable} ").replace(str(DEFAULT_SOCKET), str(path.absolute()))
    if group is not None:
        text = text.replace(f"--socket {path.absolute()}", f"--socket {path.absolute()} --group {group}")
        text = text.replace('group "zeus"', f'group "{group}"').replace("system zeus", f"system {group}")
        text = text.replace("-aG zeus", f"-aG {group}")
    return text


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def restore(as_json: bool) -> None:
    """Put GPU power limits back that a keeper which died could not. Exit 1 if one could not be put back now either."""
    from zeus.device.keeper import run
    from zeus.device.keeper.restore import Restoration
    from zeus.errors import ZeusError

    try:
        returned = run.restore()
    except ZeusError as e:
        raise click.ClickException(str(e)) from e
    if as_json:
        fields = ("uuid", "ending", "found_watts", "limit_watts", "message")
        click.echo(json.dumps({"gpus": [{f: getattr(r, f) for f in fields} for r in returned]}))
    else:
        for r in returned:
            click.echo(r.message)
        if not returned:
            click.echo("Nothing to put back.")
    sys.exit(1 if any(r.ending is Restoration.FAILED for r in returned) else 0)
