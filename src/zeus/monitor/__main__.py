"""`python -m zeus.monitor energy|power`: the commands of the existing package. `zeus monitor` shows more."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

from zeus.device.find import find, no_gpu
from zeus.device.gpu import Gpu
from zeus.errors import DeviceError, InputError, NoDevice, ZeusError
from zeus.exit_codes import exit_status
from zeus.monitor.interrupt import until_interrupted
from zeus.monitor.timeline import UPDATE_SECONDS
from zeus.monitor.window import ZeusMonitor


def main(arguments: Sequence[str] | None = None) -> int:
    """Watch until Ctrl-C. Exits with 2 for bad input and with 1 for a failure."""
    parser = argparse.ArgumentParser(prog="python -m zeus.monitor", description="Measure until Ctrl-C.")
    commands = parser.add_subparsers(dest="command", required=True)
    energy = commands.add_parser("energy", help="time and energy from now until Ctrl-C")
    power = commands.add_parser("power", help="power of each GPU, line by line, until Ctrl-C")
    for command in (energy, power):
        command.add_argument(
            "--gpu-indices", nargs="+", type=int, metavar="I", help="GPUs to measure, such as 0 1 (default: all)"
        )
    power.add_argument(
        "--update-period", type=float, default=1.0, metavar="S", help="seconds between lines (default: 1)"
    )
    asked = parser.parse_args(arguments)
    try:
        gpus = find(asked.gpu_indices)
        if not gpus:
            raise NoDevice(no_gpu())
        if asked.command == "energy":
            measure_energy(gpus)
        else:
            show_power(gpus, asked.update_period)
    except ZeusError as wrong:
        code, line = exit_status(wrong)
        _to_stderr(line)
        return code
    return 0


def measure_energy(gpus: dict[int, Gpu]) -> None:
    """Measure one window, from now until Ctrl-C."""
    monitor = ZeusMonitor(gpus=gpus, sync_execution_with=None)
    with until_interrupted() as over:
        with monitor.window("until Ctrl-C") as window:
            _to_stderr("Measuring until you press Ctrl-C.")
            over.wait()
        measured = window.measurement
        assert measured is not None  # the block has ended
        _print(f"Time: {measured.seconds:.3f} s")
        for index, joules in measured.gpu_energy.items():
            _print(f"GPU {index}: {joules:.3f} J ± {measured.errors[index]:.3f} J [{measured.sources[index]}]")
        _print(f"Total: {measured.joules:.3f} J ± {measured.error:.3f} J")
    monitor.close()


def show_power(gpus: dict[int, Gpu], period: float) -> None:
    """Print one line per period."""
    if not UPDATE_SECONDS / 10 <= period <= 3600:
        raise InputError(f"--update-period {period:g}: give seconds between {UPDATE_SECONDS / 10:g} and 3600.")
    with until_interrupted() as over:
        while True:
            stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            _print(f"{stamp}  " + "  ".join(f"GPU {index}: {_power(gpu)}" for index, gpu in gpus.items()))
            if over.wait(period):
                return


def _power(gpu: Gpu) -> str:
    try:
        return f"{gpu.power():.1f} W"
    except DeviceError:
        return "unavailable"


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the reader of our output is gone
        sys.stderr.close()
        sys.exit(1)
