"""Measures the energy and time of a piece of code: `ZeusMonitor` and its windows."""

from __future__ import annotations

import math
import sys
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from zeus import settings
from zeus.device.clock import REAL, common_clock
from zeus.device.cpu import CpuCounters, counters_of
from zeus.device.find import find, no_gpu
from zeus.device.gpu import Clock, Gpu, Ticker
from zeus.device.ranks import is_first
from zeus.distributed import counting
from zeus.errors import InputError, WindowError
from zeus.monitor.measurement import Measurement
from zeus.monitor.meter import Meter, Stamp, meter_for
from zeus.monitor.other_processes import warn_of_foreign_processes
from zeus.monitor.window_log import WindowLog
from zeus.tariff.online import OnlineRate
from zeus.tariff.rates import Prices
from zeus.tariff.settings import prices as prices_given


class Window:
    """An open or finished window. `joules`, `seconds` and `error` are known once it has ended."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.measurement: Measurement | None = None

    def _ended(self) -> Measurement:
        if self.measurement is None:
            raise WindowError(f"window '{self.key}' is still open. Read it after the `with` block.")
        return self.measurement

    @property
    def joules(self) -> float:
        """Energy of all GPUs together. Raises `WindowError` while the window is open."""
        return self._ended().total_energy

    @property
    def seconds(self) -> float:
        """How long the window was open. Raises `WindowError` while it still is."""
        return self._ended().seconds

    @property
    def error(self) -> float:
        """Half-width of the 95 % interval of `joules`. Raises `WindowError` while the window is open."""
        return self._ended().error


class ZeusMonitor:
    """Measures time and energy of windows: `begin_window("epoch")` ... `end_window("epoch")`, or `with window(...)`.

    Windows may nest and overlap. Beginning or ending one only takes a time stamp, so the training loop never waits for
    the driver. Times come from the monotonic clock.

    Args:
        gpu_indices: GPUs to measure, as torch counts them (within CUDA_VISIBLE_DEVICES). None means all visible ones.
            If several ranks on a node leave this None, only the lowest counts each GPU. Sums over ranks are then right.
        cpu_indices: CPU packages to measure. None means all that can be read. If several ranks on a node leave this
            None, only the lowest counts the CPUs.
        approx_instant_energy: Accepted for compatibility. Short windows need no approximation here.
        log_file: CSV file to append to, one line per window.
        sync_execution_with: "torch", "jax" or "cupy": wait for its GPU work at both ends of a window. None: no wait.
        prices: Price and carbon intensity of a kilowatt-hour. None: those of ZEUS_PRICE_PER_KWH, ZEUS_CURRENCY and
            ZEUS_GCO2E_PER_KWH.
        gpus: Cards to measure instead of the ones found. For tests and simulations.
        cpus: CPU counters to read instead of the ones found. For tests and simulations.
        clock: Clock to measure by instead of the cards' own. For tests and simulations.

    Raises:
        InputError: An index does not exist, or `log_file` cannot be opened or was written for other GPUs.

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
        prices: Prices | None = None,
        gpus: Mapping[int, Gpu] | None = None,
        cpus: CpuCounters | None = None,
        clock: Clock | None = None,
    ) -> None:
        if sync_execution_with is not None and sync_execution_with not in FRAMEWORKS:
            known = ", ".join(map(repr, FRAMEWORKS))
            raise InputError(f"sync_execution_with={sync_execution_with!r}: give {known} or None.")
        self._sync_with = sync_execution_with
        self.prices = prices_given() if prices is None else prices
        self._online = [r for r in (self.prices.per_kwh, self.prices.gco2e_per_kwh) if isinstance(r, OnlineRate)]
        self._gpus = find(gpu_indices) if gpus is None else dict(gpus)
        self.clock = clock or common_clock(self._gpus.values())  # of the windows' moments
        self._cpus = counters_of(self._gpus.values(), cpu_indices) if cpus is None else cpus
        self.gpu_indices = list(self._gpus)
        self._virtual = any(gpu.spec.vendor == "virtual" for gpu in self._gpus.values())
        self.cpu_indices = self._cpus.indices
        if not self._gpus and gpu_indices is None and gpus is None:
            _warn_of_no_gpu(" and CPU energy" if self.cpu_indices else "")
        self._log = None if log_file is None else WindowLog(Path(log_file), self.gpu_indices)
        shared = [gpu.spec.uuid for gpu in self._gpus.values()] if gpu_indices is None and gpus is None else []
        shared_cpus = [counting.CPUS] if self.cpu_indices and cpu_indices is None else []
        self._counting = counting.CountingLocks([*shared, *shared_cpus])
        listener = None if self._log is None else self._log.write
        self._meters = {index: meter_for(gpu, self.clock, listener) for index, gpu in self._gpus.items()}
        self._open: dict[str, Stamp] = {}
        self._lock = threading.Lock()
        self._close = weakref.finalize(
            self, _close, list(self._meters.values()), self._counting, self._log, _keep_counting(self._cpus)
        )
        warn_of_foreign_processes(self._gpus.values())

    @property
    def gpus(self) -> dict[int, Gpu]:
        """The cards that are measured, by index."""
        return dict(self._gpus)

    @property
    def counted(self) -> dict[int, Gpu]:
        """The cards whose energy this process's measurements include: all that no lower rank counts."""
        return {i: gpu for i, gpu in self._gpus.items() if self._counting.counts(gpu.spec.uuid)}

    @property
    def why_no_cpu(self) -> str:
        """One sentence on why the CPU's and its memory's energy cannot be measured in full. Empty if it can."""
        return self._cpus.why_not

    # ------------------------------------------------------------------ windows

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Open a window.

        Args:
            key: The window's name.
            sync_execution: Wait for queued GPU work first.
            restart: Discard an open window of the same name. Without it, such a window is a `WindowError`.
        """
        if sync_execution:
            self._synchronise()
        self._look_ahead()
        self._counting.join()
        with self._lock:
            if key in self._open and not restart:
                raise WindowError(f"window '{key}' is already open. End it first, or begin it with restart=True.")
            self._open[key] = self._now()

    def end_window(self, key: str, sync_execution: bool = True, cancel: bool = False) -> Measurement:
        """Close a window and measure it. Its energy is worked out when it is first read.

        Args:
            key: The window's name.
            sync_execution: Wait for queued GPU work first.
            cancel: Do not write the window to the log file.

        Raises:
            WindowError: No window of this name is open.
        """
        return self._end(key, sync_execution, log=None if cancel else self._log)

    def split_window(self, key: str, sync_execution: bool = True) -> Measurement:
        """Measure a window so far, and begin it again at the same moment, so that nothing between is lost.

        Args:
            key: The window's name.
            sync_execution: Wait for queued GPU work first.

        Raises:
            WindowError: No window of this name is open.
        """
        return self._end(key, sync_execution, again=True)

    @contextmanager
    def window(self, key: str, sync_execution: bool = True) -> Iterator[Window]:
        """Measure a `with` block, also if it raises."""
        window = Window(key)
        self.begin_window(key, sync_execution)
        try:
            yield window
        except BaseException:
            with suppress(Exception):  # the user must see the block's own exception
                if sync_execution:
                    self._synchronise()
            with suppress(WindowError):
                window.measurement = self.end_window(key, sync_execution=False)
            raise
        window.measurement = self.end_window(key, sync_execution)

    def reset_windows(self) -> None:
        """Discard all open windows."""
        with self._lock:
            self._open.clear()

    def report_step(self, samples: int, *, by: object = None, trainer: object = None) -> None:
        """Report that a batch of this many samples ran on each GPU. Virtual cards need this; real cards ignore it.

        Args:
            samples: Samples on each GPU.
            by: The callback that reports. If a trainer has several callbacks, only the first that reports counts.
            trainer: The object that all callbacks of one trainer receive.
        """
        if not self._virtual:
            return
        from zeus.device.virtual.machine import step

        if trainer is None or _is_reporter(by, trainer):
            step(self._gpus.values(), samples)

    def watch_closely(self, on: bool) -> None:
        """If on, energies are known 0.1 s after a window's end (for profiling), else after 1 to 2 s."""
        for meter in self._meters.values():
            meter.poll_fast(on)

    def close(self) -> None:
        """Stop the background threads and write out the log. Also happens when the monitor is garbage collected."""
        self._close()

    # ------------------------------------------------------------------ inside

    def _end(self, key: str, sync_execution: bool, *, again: bool = False, log: WindowLog | None = None) -> Measurement:
        if sync_execution:
            self._synchronise()
        end = self._now()
        with self._lock:
            begin = self._open.pop(key, None)
            if begin is None:
                names = ", ".join(f"'{name}'" for name in self._open) or "none"
                raise WindowError(f"window '{key}' is not open. Open windows: {names}.")
            if again:
                self._open[key] = end
        self._look_ahead()
        measurement = self._measure(begin, end)
        if log is not None:
            log.add(key, begin.wall, measurement)
        return measurement

    def _look_ahead(self) -> None:
        """Ask online sources about the present hour, in the background, if it is not known yet."""
        for rate in self._online:
            rate.look()

    def _now(self) -> Stamp:
        moment = self.clock.now()
        stamp = Stamp(moment, self.clock.wall(), self._cpus.read(moment) if self.cpu_indices else {})
        for meter in self._meters.values():
            meter.mark(stamp)
        return stamp

    def _measure(self, begin: Stamp, end: Stamp) -> Measurement:
        # Decide now: a lower rank may end before this is read, but it has counted the GPU.
        counted = {index: self._meters[index] for index in self.counted}
        meters = list(self._meters.values())
        counts_cpus = bool(self.cpu_indices) and self._counting.counts(counting.CPUS)
        cpu, dram = self._cpus.between(begin.cpus, end.cpus) if counts_cpus else ({}, {})
        return Measurement(
            end.moment - begin.moment,
            {},
            cpu or None,
            dram or None,
            resolve=lambda: {index: meter.read(begin, end) for index, meter in counted.items()},
            ready=lambda: all(meter.ready(end) for meter in meters),
            of_none=0.0 if meters else math.nan,  # 0 if another rank counts the GPUs, NaN if there are none
            of_no_cpu=0.0 if self.cpu_indices else math.nan,  # likewise
            walls=(begin.wall, end.wall),
            prices=self.prices,
        )

    def _synchronise(self) -> None:
        """Wait for queued GPU work, if the framework is loaded and has started it."""
        if self._sync_with is not None:
            wait_for(self._sync_with, self._gpus)


FRAMEWORKS = ("torch", "jax", "cupy")


def wait_for(framework: str, gpu_indices: Iterable[int]) -> None:
    """Return when the work that this framework has queued on these GPUs is done. If it is not loaded, there is none.

    Raises:
        InputError: The framework is not known.
    """
    if framework not in FRAMEWORKS:
        raise InputError(f"framework {framework!r} is not known. Give one of: {', '.join(FRAMEWORKS)}.")
    loaded: Any = sys.modules.get(framework)
    if loaded is None:
        return
    match framework:
        case "torch":
            cuda = getattr(loaded, "cuda", None)  # missing while torch is being imported
            if cuda is None or not cuda.is_initialized():
                return
            here = cuda.current_device()
            for index in gpu_indices:
                # Skip GPUs that this process does not use: synchronising would allocate memory on them.
                if index < cuda.device_count() and (index == here or cuda.memory_reserved(index)):
                    cuda.synchronize(index)
        case "jax":
            for device in loaded.local_devices():
                loaded.device_put(0.0, device).block_until_ready()
        case "cupy":
            count = loaded.cuda.runtime.getDeviceCount()
            for index in (i for i in gpu_indices if i < count):
                loaded.cuda.Device(index).synchronize()


@cache  # once in a process, however many monitors it makes
def _warn_of_no_gpu(also: str) -> None:
    """Say that no GPU is visible, on stderr: who runs a script sees no log. Ranks other than the first are silent."""
    if not settings.quiet() and is_first():
        warnings.warn(f"zeus: {no_gpu()} Zeus measures only time{also}.", RuntimeWarning, stacklevel=3)


_reporters: dict[int, int] = {}  # trainer id -> id of the callback that reports its steps


def _is_reporter(by: object, trainer: object) -> bool:
    if id(trainer) not in _reporters:
        weakref.finalize(trainer, _reporters.pop, id(trainer), None)
    return _reporters.setdefault(id(trainer), id(by)) == id(by)


def _keep_counting(cpus: CpuCounters) -> Ticker | None:
    """Read the counters often enough to notice each wrap (within minutes), however long a window is."""
    if math.isinf(cpus.wrap_seconds):
        return None

    def look() -> None:
        cpus.read(REAL.now())

    return REAL.every(cpus.wrap_seconds / 2, look)


def _close(
    meters: list[Meter], locks: counting.CountingLocks, window_log: WindowLog | None, cpu_ticker: Ticker | None
) -> None:
    if window_log is not None:
        window_log.close()
    if cpu_ticker is not None:
        cpu_ticker.stop(wait=0)
    for meter in meters:
        meter.close()
    locks.close()
