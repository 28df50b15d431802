"""The `zeus` command: a group that loads a command's file only when that command is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from zeus import __version__
from zeus.errors import ZeusError
from zeus.exit_codes import DONE, FAILED, INTERRUPTED, exit_status

# name -> (module, object, one line of help); help is here so that `zeus --help` imports nothing else
COMMANDS = {
    "demo": ("zeus.cli.demo", "demo", "Measure and save energy on a virtual GPU, here and now."),
    "env": ("zeus.cli.env", "env", "Devices, what they can do, and what to fix."),
    "export": ("zeus.cli.export", "export", "The page of a store's jobs as one file."),
    "jobs": ("zeus.cli.jobs", "jobs", "Recurring jobs: what they learnt and saved; export, import, forget."),
    "keeper": ("zeus.cli.keeper", "keeper", "Serve power limits to unprivileged users (system service)."),
    "measure": ("zeus.cli.measure", "measure", "Run a command and report its time and energy, like `time`."),
    "monitor": ("zeus.cli.monitor", "monitor", "Live view of power, energy and limits."),
    "reproduce": ("zeus.cli.reproduce", "reproduce", "Every figure of the paper from its published traces."),
    "restore": ("zeus.cli.keeper", "restore", "Put back power limits that a dead keeper left behind."),
    "run": ("zeus.cli.run", "run", "Run a recurring job, each time with the batch size and limit that cost least."),
    "serve": ("zeus.cli.serve", "serve", "Serve the store and its page to a team."),
    "simulate": ("zeus.cli.simulate", "simulate", "What batch size policies would cost, on traces or virtual GPUs."),
    "token": ("zeus.cli.token", "token", "Make, list and revoke tokens for the service."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, name, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="zeus")
def zeus() -> None:
    """Measure the energy of DNN training on GPUs, and cut it."""


def main(args: list[str] | None = None) -> Any:
    """Run the command line. The exit code is 2 for bad input, 1 for a failure and 130 after Ctrl-C."""
    try:
        status = zeus.main(args, standalone_mode=False)
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except ZeusError as wrong:
        code, line = exit_status(wrong)
        click.echo(line, err=True)
        sys.exit(code)
    except BrokenPipeError:  # nobody reads our output any more, so nothing may be written there, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    sys.exit(status if isinstance(status, int) else DONE)
