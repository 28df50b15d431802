"""`python -m zeus.monitor energy|power`: the commands of the existing package, which are `zeus monitor` here."""

from __future__ import annotations

import argparse

from zeus.cli.main import main

LONGEST_SECONDS = "3600"  # `energy` is for its last line, so it shows as few others as it can


def command_line(arguments: list[str] | None = None) -> list[str]:
    """The command line of `zeus` that does the same.

    >>> command_line(["power", "--gpu-indices", "0", "1"])
    ['monitor', '--interval', '1', '--gpu-indices', '0,1']
    """
    parser = argparse.ArgumentParser(prog="python -m zeus.monitor", description="Measure until Ctrl-C.")
    commands = parser.add_subparsers(dest="command", required=True)
    energy = commands.add_parser("energy", help="time and energy from now until Ctrl-C")
    power = commands.add_parser("power", help="power and energy of each GPU, line by line, until Ctrl-C")
    for command in (energy, power):
        command.add_argument(
            "--gpu-indices", nargs="+", metavar="I", help="GPUs to measure, such as 0 1 (default: all)"
        )
    energy.set_defaults(update_period=LONGEST_SECONDS)
    power.add_argument("--update-period", default="1", metavar="S", help="`--interval` of zeus monitor (default: 1)")
    asked = parser.parse_args(arguments)
    gpus = ["--gpu-indices", ",".join(asked.gpu_indices)] if asked.gpu_indices else []
    return ["monitor", "--interval", asked.update_period, *gpus]


if __name__ == "__main__":
    main(command_line())
