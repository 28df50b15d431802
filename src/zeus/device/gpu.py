"""The `Gpu` and `Clock` ports and their types, in watts, joules and seconds."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from zeus import settings
from zeus.errors import DeviceError, DeviceLost, DeviceSilent, InputError, ReadOnly
from zeus.lazy import lazy_getattr

__path__: list[str] = []  # modules of the existing package are found below this one: `zeus.compat.finder`
__getattr__ = lazy_getattr(__name__, "zeus.compat.gpus")

log = logging.getLogger(__name__)

SURGE = 1.5  # a card may briefly draw this many times its highest limit
HIGHEST_WATTS = 5000.0  # no card draws more; used if its highest limit is unknown

TO_SEE_GPUS = (
    "Check that `nvidia-smi` or `amd-smi` lists the GPU. In a container, ask for the GPUs (--gpus all). To try Zeus "
    "without a GPU, set ZEUS_GPU=virtual:v100."
)


class Capability(StrEnum):
    """Something that a card may be able to do. Zeus finds out by trying, never from the card's name."""

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
    """The fixed facts about one card. Without the LIMITS capability, the three limits are NaN."""

    uuid: str
    name: str
    vendor: str
    min_watts: float = math.nan
    max_watts: float = math.nan
    default_watts: float = math.nan
    capabilities: frozenset[Capability] = frozenset()
    exact: bool = False  # energy() is exact at any instant: it comes from a model, not a sensor
    shared: bool = False  # a slice of a card (MIG); its energy is the whole card's, which others may use too
    aliases: tuple[str, ...] = ()  # other ids that a mask can use for it, such as HIP's

    @property
    def ceiling_watts(self) -> float:
        """The card never draws more than this; a higher reading is wrong."""
        return HIGHEST_WATTS if math.isnan(self.max_watts) else SURGE * self.max_watts


class PowerSample(NamedTuple):
    """One entry of the driver's buffer: wall-clock seconds and watts."""

    stamp: float
    watts: float


class Ticker(Protocol):
    """A running `Clock.every`. It sleeps in a forked child until it is woken: most children never need it."""

    is_asleep: bool

    def wake(self) -> None:
        """Go on in a forked child."""

    def pace(self, seconds: float) -> None:
        """Run the action this often from now on."""

    def stop(self, wait: float = 10.0) -> None:
        """Stop running the action. Waits up to `wait` seconds for one that is running."""


class Clock(Protocol):
    """Time, passed as an argument. `now` never goes back; `wall` may jump at any moment."""

    @property
    def speed(self) -> float:
        """Its seconds in one real second."""

    def now(self) -> float: ...

    def wall(self) -> float: ...

    def sleep(self, seconds: float) -> None:
        """Return after `now` has moved by this much."""

    def every(self, seconds: float, action: Callable[[], None]) -> Ticker:
        """Run the action every `seconds` until stopped, never twice at once."""


class Gpu(Protocol):
    """One card.

    Every implementation keeps these promises; tests/contract/device/test_gpu.py checks them on each:

    - Units are SI and readings are floats. An unknown reading is never returned as 0.
    - A reading that the card cannot give raises `Unsupported`. One that needs more rights raises `NotPermitted`. A card
      that vanished raises `DeviceLost`.
    - No reading waits for ever. If the driver does not answer, it raises `DeviceSilent`: after a few seconds the first
      time, at once from then on.
    - An impossible power is never returned: `power()` raises, `samples()` leaves it out.
    - `energy()` never decreases while the card stays. `samples()` are oldest first.
    - `set_limit` outside `[min_watts, max_watts]` raises `InputError` and changes nothing. After it returns, `limit()`
      returns the new limit, rounded to whole watts if the driver rounds.
    - With `ZEUS_READ_ONLY=1` every setter raises `ReadOnly` and does not call the driver.
    - Only `zeus.device.keeper` calls setters.
    """

    @property
    def index(self) -> int:
        """The card's number on this machine, in the driver's (PCI bus) order."""

    @property
    def spec(self) -> GpuSpec: ...

    def energy(self) -> float:
        """Joules since some fixed moment, from the card's cumulative counter."""

    def power(self) -> float:
        """Watts drawn now, as reported by the card."""

    def samples(self) -> list[PowerSample]:
        """All recent power samples that the driver has buffered, stamped in wall-clock seconds."""

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


def abilities(probes: Mapping[Capability, Callable[[], object]]) -> set[Capability]:
    """What a card can do: each capability is tried once. Raises if the card is lost or its driver does not answer."""
    return {capability for capability, probe in probes.items() if works(probe)}


def works(probe: Callable[[], object]) -> bool:
    """Whether the card can do this."""
    try:
        probe()
    except (DeviceLost, DeviceSilent):
        raise  # this says nothing about what the card can do
    except DeviceError as error:
        log.debug("%s", error)
        return False
    return True


def lowest_limit(gpus: Iterable[Gpu]) -> float | None:
    """The lowest power limit in force, or None if a GPU does not report it."""
    try:
        return min((gpu.limit() for gpu in gpus), default=None)
    except DeviceError:
        return None


def check_limit(spec: GpuSpec, watts: float) -> None:
    """Raise `InputError` if the limit is outside the card's range."""
    if not spec.min_watts <= watts <= spec.max_watts:
        raise InputError(
            f"{spec.name} ({spec.uuid}): a power limit of {watts:g} W is outside its range. "
            f"Choose between {spec.min_watts:g} and {spec.max_watts:g} W."
        )


def check_power(spec: GpuSpec, watts: float) -> float:
    """Return the watts. Raise `DeviceError` if impossible: drivers report 0xFFFFFFFF or the like for "unknown"."""
    if not 0 < watts <= spec.ceiling_watts:
        raise DeviceError(
            f"{spec.name}: the driver reports {watts:g} W, but this card can draw at most {spec.ceiling_watts:g} W."
        )
    return watts


def refuse_if_read_only(what: str, *, or_unclear: bool = True) -> None:
    """Raise `ReadOnly` if ZEUS_READ_ONLY=1. Whoever wants to change a setting of a card calls this first.

    Args:
        what: What is wanted, for the message.
        or_unclear: Refuse also if a configuration file leaves open whether settings may be changed. Not so the setters
            of a card, because a limit that was lowered must be restored.
    """
    if (why := settings.why_read_only()) and (or_unclear or settings.read_only()):
        raise ReadOnly(f"{what}: refused, because {why}")
