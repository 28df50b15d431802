"""`zeus measure -- CMD`: like `time`, but also reports joules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import click

from zeus import settings
from zeus.cli.options import indices
from zeus.cli.output import known, print_json
from zeus.launch.process.guard import failed_start, shell_status
from zeus.tariff.rates import hour_text
from zeus.tariff.text import footprint_text, joules

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
FROM_KEYS = (signal.SIGINT, signal.SIGQUIT)  # what a terminal sends to all processes in its foreground


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--json", "as_json", is_flag=True, help="Print the report as JSON to stdout. The command's stdout goes to stderr."
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the JSON report to this file.")
@click.option("--gpu-indices", help="GPUs to measure, such as 0,1.  [default: all visible]")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def measure(command: tuple[str, ...], as_json: bool, output: Path | None, gpu_indices: str | None) -> int:
    """Run COMMAND and report its time and energy. Pass signals on to it, and exit with its exit code.

    The energy is that of the whole GPU while the command runs. It includes other processes on the GPU. If
    ZEUS_PRICE_PER_KWH or ZEUS_GCO2E_PER_KWH is set, the report also has money and carbon.
    """
    from zeus.device.virtual.watched import MEASURED_BATCH_SIZE, WatchedLoad, load_name, notice
    from zeus.monitor import ZeusMonitor

    if output is not None:
        _check_writable(output)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the report says so if no GPU is visible
        monitor = ZeusMonitor(gpu_indices=indices(gpu_indices), sync_execution_with=None)
    gpus = monitor.gpus.values()
    load = load_name(gpus)
    if load and not as_json and not settings.quiet():
        click.echo(f"zeus: {notice(load, f'batch size {MEASURED_BATCH_SIZE}')}", err=True)
    with monitor.window("command") as window, WatchedLoad(gpus, MEASURED_BATCH_SIZE):
        status = run(command, stdout=sys.stderr if as_json else None)
    report = {**_report(command, status, monitor, window.measurement), "modelled_load": load}
    if output is not None:
        import json

        try:
            output.write_text(json.dumps(report, indent=2, allow_nan=False) + "\n")
        except OSError as why:  # the command has run, so still print its use
            click.echo(f"zeus: the report could not be written to {output}: {why.strerror}", err=True)
    if as_json:
        print_json(report)
    elif not settings.quiet():
        _print_report(report)
    monitor.close()
    return status


def _check_writable(output: Path) -> None:
    """Check this first: the command may run for a week."""
    found = output.exists()
    try:
        output.open("a").close()  # try it: os.access() tells root "yes" even on a read-only disk
        if not found:
            output.unlink()
    except OSError as why:
        raise click.BadParameter(f"{output} cannot be written: {why.strerror}.", param_hint="--output") from why


def run(command: Sequence[str], stdout: Any = None) -> int:
    """Run a command and pass our signals on to it. Returns its exit code, as a shell would."""
    from zeus.device.virtual.machine import passed_on

    waiting: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _: FrameType | None) -> None:
        if child is None:
            waiting.append(number)
        elif number not in FROM_KEYS or not _in_foreground():  # a terminal's Ctrl-C has already reached the child
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        child = subprocess.Popen(command, stdout=stdout, env=settings.inherited() | passed_on())
        for number in waiting:
            child.send_signal(number)
        status = child.wait()
    except OSError as why:  # not found; not allowed; a folder; a script whose first line names no interpreter
        reason = "command not found" if isinstance(why, FileNotFoundError) else f"cannot be run: {why.strerror}"
        click.echo(f"zeus: {command[0]}: {reason}", err=True)
        return failed_start(why)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return shell_status(status)


def _in_foreground() -> bool:
    """Whether keys typed at our terminal reach us and the command. Standard input may be a file."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _report(command: Sequence[str], status: int, monitor: Any, measured: Any) -> dict[str, Any]:
    gpus = [
        {
            "index": index,
            "uuid": gpu.spec.uuid,
            "name": gpu.spec.name,
            "joules": known(measured.gpu_energy.get(index)),
            "error_joules": known(measured.errors.get(index)),
            "source": measured.sources.get(index, "unavailable"),
        }
        for index, gpu in monitor.gpus.items()
    ]
    return {
        "command": list(command),
        "exit_code": status,
        "seconds": measured.seconds,
        "joules": known(measured.total_energy),
        "error_joules": known(measured.error),
        "gpus": gpus,
        "cpu_joules": known(sum(measured.cpu_energy.values())) if measured.cpu_energy else None,
        "dram_joules": known(sum(measured.dram_energy.values())) if measured.dram_energy else None,
        **measured.footprint.to_json(),
        **_hours(monitor, measured),
    }


def _hours(monitor: Any, measured: Any) -> dict[str, Any]:
    """The energy of each hour and its rates, if there is a price or a carbon intensity."""
    if not monitor.prices.is_given:
        return {"hours": [], "hours_by": None}
    hours = measured.by_hour(measured.total_energy)
    rows = [(hour, joules, *monitor.prices.at(hour)) for hour, joules in sorted(hours.items())]
    return {
        "hours": [
            {"hour": hour_text(hour), "joules": joules, "price": price, "gco2e_per_kwh": carbon}
            for hour, joules, price, carbon in rows
        ],
        "hours_by": "time" if len(rows) > 1 else None,
    }


def _print_report(report: dict[str, Any]) -> None:
    seconds, total = report["seconds"], report["joules"]
    watts = f" ({total / seconds:.0f} W on average)" if total is not None and seconds > 0 else ""
    bound = f" ± {joules(report['error_joules'], of=total)}" if report["error_joules"] else ""
    click.echo(f"zeus: {seconds:.3f} s, GPU {joules(total)}{bound}{watts}", err=True)
    if seconds == 0:
        click.echo(
            "zeus:   No time has passed. A virtual clock moves only by the steps that the command reports. To measure "
            "in real time, leave clock=virtual out of ZEUS_GPU.",
            err=True,
        )
    if footprint := footprint_text(report):
        by = " (spread evenly over its hours)" if report["hours_by"] else ""
        click.echo(f"zeus:   GPU {footprint}{by}", err=True)
    if len(report["gpus"]) > 1:
        for gpu in report["gpus"]:
            click.echo(f"zeus:   GPU {gpu['index']} {gpu['name']}: {joules(gpu['joules'])} [{gpu['source']}]", err=True)
    if not report["gpus"]:
        from zeus.device.find import no_gpu

        click.echo(f"zeus: {no_gpu()}", err=True)
    if report["cpu_joules"] is not None:
        click.echo(f"zeus:   CPU {joules(report['cpu_joules'])}, DRAM {joules(report['dram_joules'])}", err=True)
