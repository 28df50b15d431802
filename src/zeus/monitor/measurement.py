"""The result of a window: seconds and joules, each number with its source and error bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass
from typing import Any, ClassVar

from zeus.cost import GPU_ONLY, Include, Use
from zeus.monitor.energy import EnergyEstimate
from zeus.tariff.rates import Footprint, Prices, spread


@dataclass(slots=True)
class _Fields:
    """Lets `dataclasses.asdict` and `replace` work, as in the existing package, where a measurement is a dataclass."""

    time: float
    gpu_energy: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    soc_energy: object | None = None


class Measurement:
    """Time (seconds) and energy (joules) of a window.

    `cpu_energy` and `dram_energy` are joules by CPU package. They are None if no counter can be read here, or if
    another rank counts them.

    Energies are worked out when they are first read, because a window's last power samples arrive about 60 ms after its
    end. An unknown energy is NaN with source `unavailable`; it is never 0.

    >>> m = Measurement(time=2.0, gpu_energy={0: 300.0, 1: 310.0})
    >>> m.total_energy, m.seconds
    (610.0, 2.0)
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]] = _Fields.__dataclass_fields__

    def __init__(
        self,
        time: float,
        gpu_energy: Mapping[int, float],
        cpu_energy: Mapping[int, float] | None = None,
        dram_energy: Mapping[int, float] | None = None,
        soc_energy: object | None = None,
        *,
        resolve: Callable[[], dict[int, EnergyEstimate]] | None = None,  # works out the GPUs' energies
        ready: Callable[[], bool] = lambda: True,  # whether that needs no waiting
        of_none: float = math.nan,  # the total if no GPU is counted here
        of_no_cpu: float = math.nan,  # likewise for the CPUs
        walls: tuple[float, float] | None = None,  # its beginning and end, in seconds since 1970
        prices: Prices | None = None,
    ) -> None:
        self.time = time
        self.cpu_energy = None if cpu_energy is None else dict(cpu_energy)
        self.dram_energy = None if dram_energy is None else dict(dram_energy)
        self.soc_energy = soc_energy
        self._gpu_energy = dict(gpu_energy)
        self._sources: dict[int, str] = {}
        self._errors: dict[int, float] = {}
        self._resolve, self._ready = resolve, ready
        self._of_none, self._of_no_cpu = of_none, of_no_cpu
        self._walls = walls
        self._prices = Prices() if prices is None else prices
        self._footprint: Footprint | None = None

    def _settle(self) -> None:
        resolve = self._resolve
        if resolve is None:
            return
        estimates = resolve()  # if two threads do this at once, both get the same answer
        self._gpu_energy = {i: e.joules for i, e in estimates.items()}
        self._sources = {i: e.source.value for i, e in estimates.items()}
        self._errors = {i: e.error for i, e in estimates.items()}
        self._resolve = None

    @property
    def is_ready(self) -> bool:
        """Whether the energies can be read without waiting."""
        return self._resolve is None or self._ready()

    @property
    def gpu_energy(self) -> dict[int, float]:
        """Joules by GPU index."""
        self._settle()
        return self._gpu_energy

    @property
    def sources(self) -> dict[int, str]:
        """How each GPU's joules were obtained: counter+samples, counter, integrated, model or unavailable."""
        self._settle()
        return self._sources

    @property
    def errors(self) -> dict[int, float]:
        """Half-width of the 95 % interval of each GPU's joules."""
        self._settle()
        return self._errors

    @property
    def total_energy(self) -> float:
        """Joules of all GPUs together. NaN if any is unknown or there is none; 0 if another rank counts them all."""
        return sum(self.gpu_energy.values()) if self.gpu_energy else self._of_none

    joules = total_energy

    def use(self, include: Include = GPU_ONLY) -> Use:
        """Time, and the joules that a cost counts. This is the one place that says which of them count.

        With "cpu" these are the GPUs, the CPUs, and the memory of those CPUs that have a counter for it. Joules that
        another rank counts are 0 here. If any joules that count are unknown, the sum is NaN.

        >>> m = Measurement(time=2.0, gpu_energy={0: 300.0}, cpu_energy={0: 100.0}, dram_energy={0: 10.0})
        >>> m.use(), m.use(("gpu", "cpu"))
        (Use(joules=300.0, seconds=2.0), Use(joules=410.0, seconds=2.0))
        """
        joules = self.total_energy
        if "cpu" in include:
            joules += sum(self.cpu_energy.values()) if self.cpu_energy else self._of_no_cpu
            joules += sum((self.dram_energy or {}).values())
        return Use(joules, self.time)

    # ------------------------------------------------------------------ money and carbon

    @property
    def kwh(self) -> float:
        """Kilowatt-hours of all GPUs together; NaN if unknown."""
        return self.footprint.kwh

    @property
    def money(self) -> float | None:
        """What the energy of all GPUs costs. None if no price is given, or the price of some hour is unknown."""
        return self.footprint.money

    @property
    def gco2e(self) -> float | None:
        """Grams of CO2 equivalent of all GPUs. None if no intensity is given, or that of some hour is unknown."""
        return self.footprint.gco2e

    @property
    def footprint(self) -> Footprint:
        """Energy, money and carbon of all GPUs, also if the rates of only some hours are known."""
        if self._footprint is None:
            self._footprint = self.footprint_of(self.total_energy)
        return self._footprint

    def footprint_of(self, joules: float) -> Footprint:
        """The footprint of a part of the energy, such as that of one GPU."""
        hours = self.by_hour(joules)
        return self._prices.footprint(hours) if hours else Footprint(joules)

    def by_hour(self, joules: float) -> dict[int, float]:
        """These joules by hour (hours since 1970, UTC), spread evenly over the window. Unknown ones are in no hour."""
        return spread(*self._walls, joules) if self._walls is not None and math.isfinite(joules) else {}

    @property
    def error(self) -> float:
        """Half-width of the 95 % interval of `joules`. The cards' errors are independent."""
        return math.hypot(*self.errors.values()) if self.errors else self._of_none

    @property
    def seconds(self) -> float:
        return self.time

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Measurement) and asdict(self) == asdict(other)

    __hash__ = None  # type: ignore[assignment]  # holds dictionaries, as a plain dataclass would

    def __repr__(self) -> str:
        return f"Measurement(time={self.time!r}, gpu_energy={self.gpu_energy!r}, cpu_energy={self.cpu_energy!r})"

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the numbers, and nothing that still reads a card or asks for a price."""
        done = {"_footprint": self.footprint, "_resolve": None, "_ready": None, "_walls": None, "_prices": None}
        return {**self.__dict__, **done}
