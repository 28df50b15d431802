"""CPU and DRAM energy from the RAPL counters of Intel and AMD, which Linux shows under /sys/class/powercap."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from zeus.device.gpu import Gpu
from zeus.errors import DeviceError, DeviceLost, NoCpuEnergy, NotPermitted
from zeus.lazy import lazy_getattr

log = logging.getLogger(__name__)

__path__: list[str] = []  # modules of the existing package are found below this one: `zeus.compat.finder`
__getattr__ = lazy_getattr(__name__, "zeus.compat.cpus")

POWERCAP = Path("/sys/class/powercap")
PLAUSIBLE_WATTS = 500.0  # about the most that one CPU package draws; limits how soon its counter may wrap

Read = Callable[[Path], str]

UDEV_RULE = 'SUBSYSTEM=="powercap", KERNEL=="intel-rapl:*", ACTION=="add", RUN+="/bin/chmod o+r /sys%p/energy_uj"'
NO_VIRTUAL_CPU = (
    "No CPU energy: these virtual GPUs have no CPU. Give it a power in watts, as in "
    "ZEUS_GPU='virtual:v100?cpu=120', and its memory with dram=WATTS."
)


def unwrap(before: int, now: int, period: int) -> int:
    """How far a counter went between two readings. It wraps at `period`, at most once in between.

    >>> unwrap(90, 95, 100), unwrap(90, 5, 100)
    (5, 15)
    """
    return (now - before) % period


class CounterValue(NamedTuple):
    """What a counter showed. Between two readings with different `breaks` the energy used is unknown."""

    joules: float  # since some fixed moment
    breaks: int = 0  # how often the count was interrupted: by a reset, or by a time in which it may have wrapped


class EnergyCounter(Protocol):
    """A cumulative energy counter."""

    @property
    def wrap_seconds(self) -> float:
        """The shortest time in which it can wrap. Read it more often than that."""

    def reading(self, moment: float = 0.0) -> CounterValue:
        """What it shows now. `moment` is now on the monitor's clock; only virtual counters need it."""


CpuReadings: TypeAlias = Mapping[EnergyCounter, CounterValue | None]  # None: it could not be read


class Domain:
    """One RAPL counter, as joules that never fall. Read it at least every `wrap_seconds`, or a wrap goes unnoticed."""

    def __init__(self, folder: Path, read: Read = Path.read_text, now: Callable[[], float] = time.monotonic) -> None:
        self.counter = folder / "energy_uj"
        self.period_uj = int(read(folder / "max_energy_range_uj"))
        self.wrap_seconds = self.period_uj / 1e6 / PLAUSIBLE_WATTS
        self._read = read
        self._lock = threading.Lock()
        self._now = now
        self._last_uj: int | None = None
        self._last_look = 0.0
        self._total_uj = 0
        self._breaks = 0

    def reading(self, moment: float = 0.0) -> CounterValue:
        """What the counter shows now, and how often its count was interrupted.

        Raises `NotPermitted`, which says how to get access, if only root may read it.
        """
        with self._lock:
            now_uj, look = self._now_uj(), self._now()
            if self._last_uj is None:
                self._total_uj = now_uj
            else:
                used_uj, gap = unwrap(self._last_uj, now_uj, self.period_uj), look - self._last_look
                room_uj = 2e6 * PLAUSIBLE_WATTS * (gap + 1)
                is_reset = now_uj < self._last_uj and used_uj > room_uj  # not a wrap: suspend reset it to 0
                self._total_uj += now_uj if is_reset else used_uj
                self._breaks += is_reset or gap > self.wrap_seconds
            self._last_uj, self._last_look = now_uj, look
            return CounterValue(self._total_uj / 1e6, self._breaks)

    def _now_uj(self) -> int:
        try:
            return int(self._read(self.counter))
        except PermissionError as error:
            raise NotPermitted(fix([self.counter])) from error
        except FileNotFoundError as error:
            raise DeviceLost(f"{self.counter} has disappeared. Was the RAPL driver unloaded?") from error
        except (OSError, ValueError) as error:
            raise DeviceError(f"{self.counter} could not be read: {error}") from error


@dataclass(frozen=True, slots=True)
class CpuPackage:
    """One CPU socket (or die). Its counter includes cores and uncore, so do not add those. DRAM is separate."""

    index: int
    name: str
    cpu: EnergyCounter
    dram: EnergyCounter | None


def cpu_packages(root: Path | str = POWERCAP, read: Read = Path.read_text) -> list[CpuPackage]:
    """Every CPU package that has a counter, readable or not. Empty if there is none; `why_not` explains."""
    packages = [(name, folder) for name, folder in _zones(Path(root), read) if name.startswith("package")]
    return [
        CpuPackage(index, name, Domain(folder, read), _dram(Path(root), folder, read))
        for index, (name, folder) in enumerate(packages)
    ]


def why_not(root: Path | str = POWERCAP, read: Read = Path.read_text) -> str:
    """One sentence on why CPU energy cannot be measured here. Empty if it can."""
    root = Path(root)
    if not root.is_dir():
        return f"No CPU energy: {root} does not exist, as in most containers and virtual machines."
    packages = cpu_packages(root, read)
    if not packages:
        return f"No CPU energy: {root} shows no CPU package, as in most containers and virtual machines."
    return why_unreadable(packages)[0]


def why_unreadable(packages: Iterable[CpuPackage]) -> tuple[str, list[Path]]:
    """One sentence on why a counter of these packages cannot be read, DRAM included, and those that only root may read.

    Both are empty if all can be read.
    """
    locked: list[Path] = []
    for counter in (one for package in packages for one in (package.cpu, package.dram) if one is not None):
        try:
            counter.reading()
        except NotPermitted:
            if isinstance(counter, Domain):
                locked.append(counter.counter)
        except DeviceError as error:
            return f"No CPU energy: {error}", []
    return fix(locked) if locked else "", locked


def fix(counters: list[Path]) -> str:
    """The commands that let every user read these counters, now and after the next boot."""
    paths = " ".join(str(path) for path in counters)
    return (
        f"Only root may read CPU energy. `sudo chmod o+r {paths}` allows it until the next boot. The line "
        f"`{UDEV_RULE}` in /etc/udev/rules.d/90-zeus-rapl.rules allows it for good. (Linux forbids it by default, "
        "because frequent readings can reveal what other users compute.)"
    )


def _zones(root: Path, read: Read, inside: str = r"intel-rapl:\d+") -> Iterator[tuple[str, Path]]:
    """Zones in numeric order. `intel-rapl-mmio` does not match: it counts the same packages a second time."""
    if not root.is_dir():
        return
    folders = [folder for folder in root.iterdir() if re.fullmatch(inside, folder.name)]
    for folder in sorted(folders, key=lambda folder: [int(part) for part in folder.name.split(":")[1:]]):
        try:
            name = read(folder / "name").strip()
            int(read(folder / "max_energy_range_uj"))
        except (OSError, ValueError):
            continue  # a zone without a counter
        yield name, folder


def _dram(root: Path, package: Path, read: Read) -> Domain | None:
    """The sub-zone named dram. The kernel shows it both beside its package and inside it."""
    pattern = re.escape(package.name) + r":\d+"
    for where in (package, root):
        for name, folder in _zones(where, read, pattern):
            if name == "dram":
                return Domain(folder, read)
    return None


# ------------------------------------------------------------------------------------------------ all of a node


class CpuCounters:
    """The counters of some CPU packages, read together. One that fails makes its energy unknown, never less.

    Args:
        packages: The packages to read. Those that cannot be read at all are left out.
        why_not: Why there are none, if there are none.

    >>> from zeus.device.virtual import VirtualMachine
    >>> counters = counters_of(VirtualMachine.in_memory("v100", cpu_watts=100, dram_watts=20).gpus)
    >>> counters.between(counters.read(1.0), counters.read(3.0))
    ({0: 200.0}, {0: 40.0})
    """

    def __init__(self, packages: Sequence[CpuPackage], why_not: str = "") -> None:
        readable = [package for package in packages if _reading(package.cpu) is not None]
        self._cpu = {package.index: package.cpu for package in readable}
        self._dram = {p.index: p.dram for p in readable if p.dram is not None and _reading(p.dram) is not None}
        self._all: list[EnergyCounter] = [*self._cpu.values(), *self._dram.values()]
        self.names = [package.name for package in packages]  # readable or not
        self.indices = list(self._cpu)  # of the packages that can be read
        unreadable, self.locked = why_unreadable(packages)
        self.why_not = why_not or unreadable  # why some of the energy cannot be read; empty if all can
        self.wrap_seconds = min((one.wrap_seconds for one in self._all), default=math.inf)  # read more often than that

    def read(self, moment: float) -> CpuReadings:
        """Read all counters. `moment` is now, on the monitor's clock."""
        return {counter: _reading(counter, moment) for counter in self._all}

    def between(self, begin: CpuReadings, end: CpuReadings) -> tuple[dict[int, float], dict[int, float]]:
        """Joules of each package, and of its memory where that has a counter. NaN if a counter failed in between."""
        cpu = {index: _joules(begin[counter], end[counter]) for index, counter in self._cpu.items()}
        return cpu, {index: _joules(begin[counter], end[counter]) for index, counter in self._dram.items()}


def counters_of(gpus: Iterable[Gpu], indices: Sequence[int] | None = None) -> CpuCounters:
    """The counters of the node that these GPUs are in. Virtual GPUs are in a virtual node, which may have no CPU.

    Args:
        gpus: The GPUs.
        indices: The CPU packages wanted. None means all that can be read.

    Raises:
        NoCpuEnergy: There is no such package, or it cannot be read.
    """
    machine = next((found for gpu in gpus if (found := getattr(gpu, "machine", None)) is not None), None)
    packages: list[CpuPackage] = cpu_packages() if machine is None else machine.cpus
    nothing = "" if packages else why_not() if machine is None else NO_VIRTUAL_CPU
    if indices is None:
        return CpuCounters(packages, nothing)
    known = {package.index: package for package in packages}
    if missing := [index for index in indices if index not in known]:
        there = nothing or f"The CPUs are {list(known)}."
        raise NoCpuEnergy(f"cpu_indices={list(indices)}: there is no CPU {missing}. {there}")
    for index in indices:
        try:
            known[index].cpu.reading()
        except DeviceError as why:
            raise NoCpuEnergy(str(why)) from why
    return CpuCounters([known[index] for index in indices], "" if indices else "No CPU energy: cpu_indices is empty.")


def _reading(counter: EnergyCounter, moment: float = 0.0) -> CounterValue | None:
    """What it shows, or None if it cannot be read."""
    try:
        return counter.reading(moment)
    except DeviceError as why:
        log.debug("%s", why)
        return None


def _joules(begin: CounterValue | None, end: CounterValue | None) -> float:
    if begin is None or end is None or begin.breaks != end.breaks:
        return math.nan
    return end.joules - begin.joules
