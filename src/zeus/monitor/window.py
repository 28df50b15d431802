"""Energy and time of a stretch of code: `ZeusMonitor` and its windows (Journey 1)."""

from __future__ import annotations

import logging
import math
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from zeus.device.clock import REAL, clock_of
from zeus.device.cpu import CpuPackage, cpu_packages
from zeus.device.find import find
from zeus.device.gpu import Clock, Gpu, Ticker
from zeus.distributed import counting
from zeus.errors import DeviceError, InputError, WindowError
from zeus.monitor.energy import EnergyEstimate
from zeus.monitor.measurement import Measurement
from zeus.monitor.meter import Mark, Meter, meter_for
from zeus.monitor.other_processes import warn_of_strangers
from zeus.monitor.window_log import WindowLog

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Instant:
    """One moment: on both clocks, on every card's curve, and the processors' counters."""

    moment: float
    wall: float
    marks: dict[int, Mark]
    cpu: dict[int, float]
    dram: dict[int, float]


class Window:
    """An open or finished window; `joules`, `seconds` and `error` once it has ended."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.measurement: Measurement | None = None

    def _ended(self) -> Measurement:
        if self.measurement is None:
            raise WindowError(f"window '{self.key}' is still open: read it after the `with` block.")
        return self.measurement

    @property
    def joules(self) -> float:
        """Energy of all GPUs together."""
        return self._ended().total_energy

    @property
    def seconds(self) -> float:
        """How long the window was open."""
        return self._ended().seconds

    @property
    def error(self) -> float:
        """95 % half-width of `joules`."""
        return self._ended().error


class ZeusMonitor:
    """Measures time and energy of windows: `begin_window("epoch")` ... `end_window("epoch")`, or `with window(...)`.

    Windows may nest and overlap. Beginning and ending one takes a time stamp only; no driver is called in the training
    loop. Times come from the monotonic clock.

    Args:
        gpu_indices: GPUs to measure, counted as torch counts them (within CUDA_VISIBLE_DEVICES); None: all visible.
            Of several ranks on a node that leave this None, the lowest counts each GPU, so that sums over ranks hold.
        cpu_indices: CPU packages to measure; None: all that can be read.
        approx_instant_energy: Accepted for compatibility. Short windows need no approximation here.
        log_file: CSV file that one line a window is appended to.
        sync_execution_with: "torch" or "jax": whose GPU work to wait for at either end; None: do not wait.
        gpus: Cards to measure instead of the ones found, and `clock` to measure by; for tests and simulations.

    >>> from zeus.device.virtual import VirtualMachine
    >>> machine = VirtualMachine.in_memory("v100")
    >>> monitor = ZeusMonitor(gpus={0: machine.gpus[0]})
    >>> with monitor.window("step") as w:
    ...     machine.run([0], seconds=10, watts=200)
    >>> w.joules, w.seconds
    (2000.0, 10.0)
    """

    def __init__(
        self,
        gpu_indices: Sequence[int] | None = None,
        cpu_indices: Sequence[int] | None = None,
        approx_instant_energy: bool = False,
        log_file: str | Path | None = None,
        sync_execution_with: str | None = "torch",
        *,
        gpus: Mapping[int, Gpu] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if sync_execution_with not in (None, "torch", "jax"):
            raise InputError(f"sync_execution_with={sync_execution_with!r}: give 'torch', 'jax' or None.")
        self._sync_with = sync_execution_with
        self._gpus = find(gpu_indices) if gpus is None else dict(gpus)
        clocks = [clock_of(gpu) for gpu in self._gpus.values()]
        self._clock: Clock = clock or (clocks[0] if clocks else REAL)
        self._cpus = _readable_cpus(cpu_indices)
        self.gpu_indices = list(self._gpus)
        self._virtual = any(gpu.spec.vendor == "virtual" for gpu in self._gpus.values())
        self.cpu_indices = list(self._cpus)
        if not self._gpus:
            log.info(
                "no GPU is visible to this process; only time%s is measured", " and CPU energy" if self._cpus else ""
            )
        self._log = None if log_file is None else WindowLog(Path(log_file), self.gpu_indices)
        me = counting.rank() if gpu_indices is None and gpus is None else None
        things = [gpu.spec.uuid for gpu in self._gpus.values()] + [counting.CPUS]
        self._roll = counting.enrol(me, things)
        listener = None if self._log is None else self._log.write
        self._meters = {index: meter_for(gpu, self._clock, listener) for index, gpu in self._gpus.items()}
        self._cpu_ticker = _keep_counting(self._cpus) if self._cpus else None
        self._open: dict[str, _Instant] = {}
        self._lock = threading.Lock()
        self._close = weakref.finalize(
            self, _close, list(self._meters.values()), self._roll, self._log, self._cpu_ticker
        )
        warn_of_strangers(self._gpus.values())

    @property
    def gpus(self) -> dict[int, Gpu]:
        """The cards measured, by index."""
        return dict(self._gpus)

    @property
    def counted(self) -> dict[int, Gpu]:
        """The cards whose energy is in this process's measurements: all but those that a lower rank counts."""
        return {i: gpu for i, gpu in self._gpus.items() if self._roll is None or self._roll.mine(gpu.spec.uuid)}

    # ------------------------------------------------------------------ windows

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Open a window. `restart` forgets one of the same name that is still open; without it that is an error."""
        if sync_execution:
            self._synchronise()
        with self._lock:
            if key in self._open and not restart:
                raise WindowError(f"window '{key}' is already open: end it first, or begin it with restart=True.")
            self._open[key] = self._now()

    def end_window(self, key: str, sync_execution: bool = True, cancel: bool = False) -> Measurement:
        """Close a window and measure it; the joules are resolved when read. `cancel` keeps it out of the log file."""
        if sync_execution:
            self._synchronise()
        end = self._now()
        with self._lock:
            begin = self._open.pop(key, None)
            if begin is None:
                known = ", ".join(f"'{name}'" for name in self._open) or "none"
                raise WindowError(f"window '{key}' is not open. Open windows: {known}.")
        measurement = self._measure(begin, end)
        if self._log is not None and not cancel:
            self._log.add(key, begin.wall, measurement)
        return measurement

    @contextmanager
    def window(self, key: str, sync_execution: bool = True) -> Iterator[Window]:
        """Measure a block; it is measured also when the block raises."""
        window = Window(key)
        self.begin_window(key, sync_execution)
        try:
            yield window
        except BaseException:
            with suppress(Exception):  # what the block raised is what the user must see, not what follows from it
                if sync_execution:
                    self._synchronise()
            with suppress(WindowError):
                window.measurement = self.end_window(key, sync_execution=False)
            raise
        window.measurement = self.end_window(key, sync_execution)

    def reset_windows(self) -> None:
        """Forget all open windows."""
        with self._lock:
            self._open.clear()

    def report_step(self, samples: int, *, by: object = None, trainer: object = None) -> None:
        """Say that a batch of this many samples ran on each GPU. Virtual cards need it; on real ones it does nothing.

        Args:
            samples: On each GPU.
            by: The callback that reports. Of several callbacks of one trainer only the first to report counts.
            trainer: The object that all callbacks of one trainer are called with.
        """
        if not self._virtual:
            return
        from zeus.device.virtual.machine import step

        if trainer is None or _is_reporter(by, trainer):
            step(self._gpus.values(), samples)

    def watch_closely(self, on: bool) -> None:
        """Have energies known a tenth of a second after a window's end (for profiling) rather than a second or two."""
        for meter in self._meters.values():
            meter.hurry(on)

    def close(self) -> None:
        """Stop the background thread and write out the log; the monitor also does this when it is forgotten."""
        self._close()

    # ------------------------------------------------------------------ inside

    def _now(self) -> _Instant:
        moment = self._clock.now()
        marks = {index: meter.mark(moment) for index, meter in self._meters.items()}
        cpu, dram = _read_cpus(self._cpus) if self._cpus else ({}, {})
        return _Instant(moment, self._clock.wall(), marks, cpu, dram)

    def _measure(self, begin: _Instant, end: _Instant) -> Measurement:
        meters, roll = self._meters, self._roll
        # Decided now: a lower rank that ends before this is read has counted it all the same.
        counted = [i for i, gpu in self._gpus.items() if roll is None or roll.mine(gpu.spec.uuid)]

        def resolve() -> dict[int, EnergyEstimate]:
            return {i: meters[i].read(begin.marks[i], end.marks[i]) for i in counted}

        cpus = self._cpus if self._cpus and (roll is None or roll.mine(counting.CPUS)) else {}
        cpu = {i: end.cpu[i] - begin.cpu[i] for i in cpus if i in end.cpu and i in begin.cpu}
        dram = {i: end.dram[i] - begin.dram[i] for i in cpus if i in end.dram and i in begin.dram}
        of_none = 0.0 if meters else math.nan  # counted by another rank, or by nobody

        def ready() -> bool:
            return all(meters[i].ready(end.marks[i]) for i in meters)

        return Measurement.pending(end.moment - begin.moment, resolve, cpu or None, dram or None, of_none, ready)

    def _synchronise(self) -> None:
        """Wait for the GPU's queued work, only where a framework is loaded and has started it."""
        if self._sync_with == "torch":
            torch = sys.modules.get("torch")
            cuda = getattr(torch, "cuda", None)  # half imported: nothing can be running
            if cuda is not None and cuda.is_initialized():
                here = cuda.current_device()
                for index in self._gpus:
                    # One that this process does not use has nothing to wait for, and asking it would take memory there.
                    if index < cuda.device_count() and (index == here or cuda.memory_reserved(index)):
                        cuda.synchronize(index)
        elif self._sync_with == "jax":
            jax = sys.modules.get("jax")
            if jax is not None:
                for device in jax.local_devices():
                    jax.device_put(0.0, device).block_until_ready()


_reporters: dict[int, int] = {}  # by trainer: the callback that reports its steps


def _is_reporter(by: object, trainer: object) -> bool:
    if id(trainer) not in _reporters:
        weakref.finalize(trainer, _reporters.pop, id(trainer), None)
    return _reporters.setdefault(id(trainer), id(by)) == id(by)


def _readable_cpus(indices: Sequence[int] | None) -> dict[int, CpuPackage]:
    packages = {package.index: package for package in cpu_packages()}
    if indices is not None:
        missing = [i for i in indices if i not in packages]
        if missing:
            raise InputError(f"cpu_indices={list(indices)}: there is no CPU {missing}. Known: {list(packages)}.")
        packages = {i: packages[i] for i in indices}
    readable = {}
    for index, package in packages.items():
        try:
            package.energy()
            readable[index] = package
        except DeviceError as why:
            if indices is not None:
                raise
            log.info("%s", why)
    return readable


def _read_cpus(cpus: dict[int, CpuPackage]) -> tuple[dict[int, float], dict[int, float]]:
    cpu, dram = {}, {}
    for index, package in cpus.items():
        try:
            cpu[index] = package.energy()
            dram[index] = package.dram_energy()
        except DeviceError:
            continue
    return cpu, dram


def _keep_counting(cpus: dict[int, CpuPackage]) -> Ticker:
    """RAPL counters come round within minutes: looked at often enough, no round is lost however long a window is."""

    def look() -> None:
        _read_cpus(cpus)

    return REAL.every(min(package.wrap_seconds for package in cpus.values()) / 2, look)


def _close(
    meters: list[Meter], roll: counting.Roll | None, window_log: WindowLog | None, cpu_ticker: Ticker | None
) -> None:
    if window_log is not None:
        window_log.close()
    if cpu_ticker is not None:
        cpu_ticker.stop(wait=0)
    for meter in meters:
        meter.close()
    if roll is not None:
        roll.close()
