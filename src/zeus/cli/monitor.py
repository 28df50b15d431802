"""`zeus monitor`: power, limits and energy of the GPUs, live. It only reads; it changes nothing."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import click

from zeus.cli.format import block, power
from zeus.cli.monitor_prometheus import exposed
from zeus.cli.options import indices
from zeus.cli.output import known
from zeus.errors import DeviceError, InputError, NoDevice
from zeus.signals import is_stopped, stop_signal
from zeus.tariff.text import joules

MINUTE = 60.0  # seconds that the power chart goes back
CHART_WIDTH = 15  # characters
COLUMNS = {  # heading -> minimum width; all but the name fit into 80 characters
    "GPU": 3, "name": 8, "power": 6, "last minute": CHART_WIDTH, "limit": 15, "temp": 6, "energy": 7, "average": 7
}  # fmt: skip
PIPE_WIDTH = 120  # width of a table that goes to a file or a pipe

Line = list[tuple[float, float]]  # (seconds since the start, watts)


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU at one moment. A value that the GPU does not report is None."""

    index: int
    uuid: str
    name: str
    watts: float | None
    limit_watts: float | None
    min_watts: float | None
    max_watts: float | None
    celsius: float | None
    joules: float | None
    average_watts: float | None
    recent: Line = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MonitorView:
    """All GPUs at one moment. `seconds` is the time measured, on the cards' own clock."""

    time: str
    seconds: float
    rows: tuple[GpuRow, ...]

    @property
    def watts(self) -> float | None:
        """Power of all GPUs together. None if one does not report it."""
        return _sum(row.watts for row in self.rows)

    @property
    def joules(self) -> float | None:
        """Energy of all GPUs together since the start. None if one does not report it."""
        return _sum(row.joules for row in self.rows)

    @property
    def average_watts(self) -> float | None:
        return _sum(row.average_watts for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        names = [name for name in GpuRow.__slots__ if name != "recent"]
        gpus = [{name: getattr(row, name) for name in names} for row in self.rows]
        total = {"watts": self.watts, "joules": self.joules, "average_watts": self.average_watts}
        return {"time": self.time, "seconds": self.seconds, "gpus": gpus, **total}


class Watch:
    """Measures from its creation on. Each `look` opens the next window and closes the last, so that energies add up."""

    def __init__(self, indices: Sequence[int] | None) -> None:
        from zeus.device.find import find, no_gpu
        from zeus.monitor import ZeusMonitor

        self.gpus = find(indices)
        if not self.gpus:
            raise NoDevice(no_gpu())
        self._monitor = ZeusMonitor(gpus=self.gpus, sync_execution_with=None)
        self._joules = dict.fromkeys(self.gpus, 0.0)
        self._seconds = 0.0
        self._recent: dict[int, deque[tuple[float, float]]] = {index: deque() for index in self.gpus}
        self._began = time.monotonic()
        self._looks = 0
        self._monitor.begin_window("0")

    def look(self) -> MonitorView:
        """Read every GPU now."""
        self._looks += 1
        self._monitor.begin_window(str(self._looks))
        measured = self._monitor.end_window(str(self._looks - 1))
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self._seconds += measured.seconds
        rows = []
        for index in self.gpus:
            self._joules[index] += measured.gpu_energy.get(index, math.nan)
            rows.append(self._row(index))
        return MonitorView(stamp, self._seconds, tuple(rows))

    def _row(self, index: int) -> GpuRow:
        gpu = self.gpus[index]
        spec, used = gpu.spec, known(self._joules[index])
        watts = _read(gpu.power)
        return GpuRow(
            index, spec.uuid, spec.name, watts, _read(gpu.limit), known(spec.min_watts), known(spec.max_watts),
            _read(gpu.temperature), used, used / self._seconds if used is not None and self._seconds > 0 else None,
            self._remember(index, watts),
        )  # fmt: skip

    def _remember(self, index: int, watts: float | None) -> Line:
        recent, now = self._recent[index], time.monotonic() - self._began
        if watts is not None:
            recent.append((now, watts))
        while recent and recent[0][0] < now - MINUTE:
            recent.popleft()
        return list(recent)

    def close(self) -> None:
        self._monitor.close()


def chart(line: Line, top: float) -> str:
    """The last minute in a few characters, newest at the right. `top` watts make a full block.

    >>> chart([(0.0, 0.0), (30.0, 100.0), (58.0, 200.0)], top=200)
    '▁      ▅      █'
    >>> chart([], top=200)
    ''
    """
    if not line:
        return ""
    cells: list[list[float]] = [[] for _ in range(CHART_WIDTH)]
    for moment, watts in line:
        age = min(line[-1][0] - moment, MINUTE)
        cells[CHART_WIDTH - 1 - min(int(age / MINUTE * CHART_WIDTH), CHART_WIDTH - 1)].append(watts)
    return "".join(block(sum(cell) / len(cell) / top) if cell else " " for cell in cells).lstrip()


@click.command()
@click.option("--interval", type=float, default=1.0, show_default=True, metavar="SECONDS", help="Time between updates.")
@click.option("--gpu-indices", help="GPUs to watch, such as 0,1.  [default: all visible]")
@click.option("--once", is_flag=True, help="Measure for one interval, print the result, and exit.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON to stdout: one line per interval, or one object with --once."
)
@click.option(
    "--prometheus",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="Serve Prometheus metrics on this port instead of printing.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address that --prometheus binds to. Use 0.0.0.0 to accept connections from other machines.",
)
def monitor(
    interval: float, gpu_indices: str | None, once: bool, as_json: bool, prometheus: int | None, host: str
) -> None:
    """Show power, limits, temperature and energy of the GPUs until Ctrl-C."""
    if prometheus is not None and (once or as_json):
        raise InputError("--prometheus prints nothing, so it does not go with --once or --json. Remove those.")
    if not 0.01 <= interval <= 3600:
        raise InputError(f"--interval {interval:g}: give seconds between 0.01 and 3600.")
    watch = Watch(indices(gpu_indices))
    view_of = _shown(once, as_json) if prometheus is None else exposed(host, prometheus)
    with stop_signal(signal.SIGINT, once=True) as stop, view_of as show:
        if interval >= MINUTE and prometheus is None:
            click.echo(f"zeus: measuring until Ctrl-C; the first values come in {interval:g} s", err=True)
        view = None
        while not is_stopped(stop, interval):
            view = watch.look()
            show(view)
            if once:
                break
        if once and view is None:
            raise click.Abort
        if not once:
            view = watch.look()
    if not once and not as_json and prometheus is None and view is not None:
        click.echo(summary(view))
    watch.close()


@contextmanager
def _shown(once: bool, as_json: bool) -> Iterator[Callable[[MonitorView], None]]:
    """How each view is shown: as JSON, as a table, as a live table on a terminal, or as plain lines elsewhere."""
    if as_json:
        yield lambda view: click.echo(json.dumps(view.to_json(), indent=2 if once else None, allow_nan=False))
    elif once or sys.stdout.isatty():
        from rich.console import Console
        from rich.live import Live

        console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
        if once:
            yield lambda view: console.print(table(view, console.width))
        else:
            with Live(console=console, auto_refresh=False) as live:
                yield lambda view: live.update(table(view, console.width), refresh=True)
    else:
        yield lambda view: click.echo("\n".join(lines(view)))


def table(view: MonitorView, width: int) -> Any:
    """A rich table. On a narrow terminal, names are cut short."""
    from rich import box
    from rich.table import Table

    spare = max(0, width - sum(COLUMNS.values()) - len(COLUMNS) - 1)
    shown = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False)
    for heading, least in COLUMNS.items():
        room = least + spare if heading == "name" else None
        shown.add_column(heading, no_wrap=True, min_width=least, max_width=room)
    for row in view.rows:
        top = row.max_watts or max((watts for _, watts in row.recent), default=1.0)
        span = f" ({row.min_watts:g}-{row.max_watts:g})" if row.min_watts is not None else ""
        limit = power(row.limit_watts) + span
        drawn, average = chart(row.recent, top), power(row.average_watts)
        cells = (power(row.watts), drawn, limit, _degrees(row.celsius), joules(row.joules), average)
        shown.add_row(str(row.index), row.name, *cells)
    shown.add_section()
    total = (power(view.watts), "", "", "", joules(view.joules), power(view.average_watts))
    shown.add_row("all", f"{view.seconds:.0f} s", *total)
    return shown


def lines(view: MonitorView) -> list[str]:
    """One line per GPU, and one for all GPUs if there are several."""
    stamp = view.time
    rows = [
        f"{stamp}  GPU {row.index} {row.name}: {power(row.watts)} of {power(row.limit_watts)}, "
        f"{_degrees(row.celsius)}, {joules(row.joules)} since the start, {power(row.average_watts)} on average"
        for row in view.rows
    ]
    if len(view.rows) > 1:
        rows.append(f"{stamp}  all: {power(view.watts)}, {joules(view.joules)} since the start")
    return rows


def summary(view: MonitorView) -> str:
    """The line printed at the end."""
    several = ", ".join(f"GPU {row.index}: {joules(row.joules)}" for row in view.rows) if len(view.rows) > 1 else ""
    of_each = f" ({several})" if several else ""
    return f"zeus: {view.seconds:.1f} s, GPU {joules(view.joules)}{of_each}, {power(view.average_watts)} on average"


def _degrees(number: float | None) -> str:
    return "-" if number is None else f"{number:.0f} °C"


def _read(reading: Callable[[], float]) -> float | None:
    try:
        return known(reading())
    except DeviceError:
        return None


def _sum(numbers: Iterable[float | None]) -> float | None:
    found = list(numbers)
    return None if None in found else sum((one for one in found if one is not None), 0.0)
