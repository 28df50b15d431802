"""What draws power: the `Gpu` and `Clock` ports and the words they speak. Watts, joules and seconds only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from zeus import env
from zeus.errors import DeviceError, InputError, ReadOnly

SURGE = 1.5  # times its highest limit a card may draw, for a moment
HIGHEST_WATTS = 5000.0  # no card draws more, where its highest limit is not known


class Capability(StrEnum):
    """One thing a card can or cannot do; each is probed by trying it, never assumed from the card's name."""

    COUNTER = "counter"  # a cumulative energy counter
    SAMPLES = "samples"  # a buffer of recent power samples kept by the driver
    POWER = "power"  # a power reading
    INSTANT = "instant"  # that reading is instantaneous, not a moving average
    LIMITS = "limits"  # a power limit that can be read, with its range
    PERSISTENCE = "persistence"  # a persistence mode that can be read
    TEMPERATURE = "temperature"
    PROCESSES = "processes"  # which processes use the card


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """What is fixed about one card. Without the LIMITS capability the three watts are NaN."""

    uuid: str
    name: str
    vendor: str
    min_watts: float = math.nan
    max_watts: float = math.nan
    default_watts: float = math.nan
    capabilities: frozenset[Capability] = frozenset()
    exact: bool = False  # energy() is the truth at any instant: a model, not a sensor
    shared: bool = False  # a slice of a card (MIG): energy is the parent's, and others may share it

    @property
    def ceiling_watts(self) -> float:
        """More than this the card never draws, whatever its driver says."""
        return HIGHEST_WATTS if math.isnan(self.max_watts) else SURGE * self.max_watts


@dataclass(frozen=True, slots=True)
class PowerSample:
    """One entry of the driver's buffer: its wall-clock stamp in seconds, and its power."""

    stamp: float
    watts: float


class Ticker(Protocol):
    """A running `Clock.every`."""

    def stop(self, wait: float = 10.0) -> None:
        """Do not begin the action again. One that is running is waited for, so long at most."""


class Clock(Protocol):
    """Time as an argument. `now` never goes back; `wall` may be stepped by anybody at any moment."""

    def now(self) -> float:
        """Monotonic seconds."""

    def wall(self) -> float:
        """Seconds since 1970, UTC."""

    def sleep(self, seconds: float) -> None:
        """Return when `now` has moved by this much."""

    def every(self, seconds: float, action: Callable[[], None]) -> Ticker:
        """Run the action each time this much has passed, until stopped. It is never run twice at once."""


class Gpu(Protocol):
    """One card.

    Promises that every implementation keeps (tests/contracts/test_gpu.py runs them on each):

    - Units are SI; readings are floats. A reading that the card cannot give raises `Unsupported`, one that needs more
      rights raises `NotPermitted`, a card that vanished raises `DeviceLost`; no reading is ever 0 in place of unknown.
    - No reading waits for ever: a driver that does not answer is `DeviceSilent` after some seconds, at once thereafter.
    - A power that no such card draws is not told: `power()` raises, `samples()` leaves it out.
    - `energy()` never decreases while the card stays; `samples()` are oldest first.
    - `set_limit` outside `[min_watts, max_watts]` raises `InputError` and changes nothing; after it returns, `limit()`
      says what was set, to the whole watt where the driver keeps no finer.
    - With `ZEUS_READ_ONLY=1` every setter raises `ReadOnly` before the driver is reached.
    - Only `zeus.device.keeper` calls setters.
    """

    @property
    def index(self) -> int:
        """Place on this machine, in the driver's (PCI bus) order."""

    @property
    def spec(self) -> GpuSpec:
        """What is fixed about this card."""

    def energy(self) -> float:
        """Joules since some fixed moment: the card's cumulative counter."""

    def power(self) -> float:
        """Watts drawn now, as the card reports it."""

    def samples(self) -> list[PowerSample]:
        """The driver's whole buffer of recent power samples, stamped in wall-clock seconds."""

    def limit(self) -> float:
        """The power limit in force, in watts."""

    def set_limit(self, watts: float) -> None:
        """Set the power limit. Only the keeper calls this."""

    def persistence(self) -> bool:
        """Whether the driver stays loaded without clients."""

    def set_persistence(self, on: bool) -> None:
        """Set persistence mode. Only the keeper calls this."""

    def temperature(self) -> float:
        """Degrees Celsius."""

    def processes(self) -> list[int]:
        """Ids of the processes that have work on this card."""


def check_limit(spec: GpuSpec, watts: float) -> None:
    """A limit outside the card's range is refused before anything is changed."""
    if not spec.min_watts <= watts <= spec.max_watts:
        raise InputError(
            f"{spec.name}: a power limit of {watts:g} W is outside its range. "
            f"Choose between {spec.min_watts:g} and {spec.max_watts:g} W."
        )


def check_power(spec: GpuSpec, watts: float) -> float:
    """These watts; a reading that cannot be is refused, because drivers say 0xFFFFFFFF and the like for "not known"."""
    if not 0 < watts <= spec.ceiling_watts:
        raise DeviceError(
            f"{spec.name}: its driver reports {watts:g} W, but it can draw {spec.ceiling_watts:g} W at most."
        )
    return watts


def refuse_if_read_only(what: str) -> None:
    """Every setter calls this first, so that read-only means the driver never hears of it."""
    if env.read_only():
        raise ReadOnly(f"{what}: refused, because ZEUS_READ_ONLY=1 is set. Unset it to let Zeus change GPU settings.")
