"""The `zeus` command. It imports a command's module only when that command is used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from zeus import __version__, settings
from zeus.errors import DONE, FAILED, INTERRUPTED, ZeusError, exit_status

# name -> (module, object, help); the help is here so that `zeus --help` imports no command
COMMANDS = {
    "demo": ("zeus.cli.demo", "demo", "Watch a training job get cheaper, on a virtual GPU."),
    "digest": ("zeus.cli.digest", "digest", "Report what all jobs used and saved in a week, for cron and mail."),
    "doctor": ("zeus.cli.doctor", "doctor", "Check this node, and say which command mends what is broken."),
    "env": ("zeus.cli.env", "env", "Show GPUs, what Zeus can do with them, and how to fix problems."),
    "export": ("zeus.cli.export", "export", "Write a web page about your jobs to one HTML file."),
    "jobs": ("zeus.cli.jobs", "jobs", "Show and manage recurring jobs."),
    "keeper": ("zeus.cli.keeper", "keeper", "Run a system service that lets users set power limits."),
    "logs": ("zeus.cli.logs", "logs", "Print the output of a job's trial."),
    "measure": ("zeus.cli.measure", "measure", "Run a command and report its time and energy, like `time`."),
    "monitor": ("zeus.cli.monitor", "monitor", "Show power, energy and power limits live."),
    "profile": (
        "zeus.cli.profile",
        "profile",
        "Measure in minutes what a job's batch sizes and power limits use.",
    ),
    "reproduce": ("zeus.cli.reproduce", "reproduce", "Redraw the paper's figures from its published traces."),
    "restore": ("zeus.cli.keeper", "restore", "Restore power limits that a dead keeper left behind."),
    "run": ("zeus.cli.run", "run", "Run a recurring job, and tune its batch size and power limit."),
    "serve": ("zeus.cli.serve", "serve", "Serve a store of jobs, with a web page, to a team."),
    "simulate": ("zeus.cli.simulate", "simulate", "Simulate batch size policies on traces or virtual GPUs."),
    "store": ("zeus.cli.store", "store", "Show the state of a store, back it up and restore it."),
    "token": ("zeus.cli.token", "token", "Create, list and revoke tokens for the service."),
}


# These say what is wrong with a configuration file, or restore limits whatever it says.
WITH_BROKEN_FILES = {"doctor", "env", "keeper", "restore"}


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
@click.pass_context
def zeus(ctx: click.Context) -> None:
    """Measure the energy of DNN training on GPUs, and reduce it."""
    if ctx.invoked_subcommand not in WITH_BROKEN_FILES:
        settings.refuse_mistakes()


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
