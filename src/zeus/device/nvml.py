"""NVIDIA cards behind the `Gpu` port, through nvidia-ml-py. Only this module works in its milliwatts and millijoules.

Importing this module neither imports the binding nor opens the driver; looking for the first card does both.
Readings have a time limit (`zeus.deadline`). Setters have none: a call that Zeus gave up on could still set a
limit later, unnoticed.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from zeus import settings
from zeus.deadline import answer_within
from zeus.device.gpu import (
    TO_SEE_GPUS,
    Capability,
    GpuSpec,
    PowerSample,
    abilities,
    check_limit,
    check_power,
    refuse_if_read_only,
    works,
)
from zeus.errors import DeviceError, DeviceLost, NoDevice, NotPermitted, Unsupported

logger = logging.getLogger(__name__)

T = TypeVar("T")
_VALUE_FIELDS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # in the order of nvmlValueType_t

# Bits of nvmlClocksEventReasons. Others are usual: no work, the power limit, clocks that somebody set.
_SLOWDOWNS = {0x08: "hardware slowdown", 0x20: "too hot", 0x40: "too hot (hardware)", 0x80: "power brake"}

# How often this process opened the driver: (process id, count). Handles of an earlier opening, or of the process that
# this one was forked from, are invalid and are made again.
_opening = (0, 0)


def nvml_gpus() -> list[NvmlGpu]:
    """All cards, in the driver's (PCI bus) order. A card that cannot be opened is logged and skipped."""
    count: int = _ask(
        "NVIDIA driver", "counting the NVIDIA cards", lambda nvml: nvml.nvmlDeviceGetCount(), opening=True
    )
    gpus, problems = [], []
    for index in range(count):
        try:
            gpus.append(_open(index))
        except DeviceError as error:
            problems.append(str(error))
            logger.warning("NVIDIA card %d is skipped. %s", index, error)
    if not gpus:
        why = " ".join(problems) or "The driver is loaded but lists no card."
        raise NoDevice(f"no usable NVIDIA card ({count} listed). {why} Check the output of `nvidia-smi -L`.")
    return gpus


def mig_parent(uuid: str) -> str:
    """UUID of the card that holds the MIG device `MIG-<uuid>`. Raises `NoDevice` if there is none."""

    def parent(nvml: Any) -> str:
        mig = nvml.nvmlDeviceGetHandleByUUID(uuid)
        return _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)))

    try:
        return _ask(uuid, f"looking for MIG device {uuid}", parent)
    except (DeviceLost, Unsupported) as error:
        raise NoDevice(f"no MIG device '{uuid}' on this machine. `nvidia-smi -L` lists them.") from error


class NvmlGpu:
    """One NVIDIA card. It survives a fork: each process opens the card, by UUID, for itself."""

    def __init__(self, index: int, uuid: str, name: str) -> None:
        self.index = index
        self._uuid = uuid
        self._name = name
        self._handle: tuple[tuple[int, int], Any] | None = None

    def __repr__(self) -> str:
        return f"NvmlGpu({self.index}, {self._uuid!r}, {self._name!r})"

    @cached_property
    def spec(self) -> GpuSpec:
        """The fixed facts about this card. Each capability is probed once, by trying it."""
        probes: dict[Capability, Callable[[], object]] = {
            Capability.COUNTER: self.energy,
            Capability.SAMPLES: self._some_samples,
            Capability.INSTANT: self._instant_power,
            Capability.LIMITS: lambda: (self._limits(), self.limit()),
            Capability.PERSISTENCE: self.persistence,
            Capability.TEMPERATURE: self.temperature,
            Capability.PROCESSES: self.processes,
        }
        can = abilities(probes)
        if Capability.INSTANT in can or works(self._average_power):
            can.add(Capability.POWER)
        limits = self._limits() if Capability.LIMITS in can else (math.nan,) * 3
        return GpuSpec(self._uuid, self._name, "nvidia", *limits, capabilities=frozenset(can))

    def energy(self) -> float:
        """Joules since the driver was loaded. Takes milliseconds on recent cards."""
        return float(self._call("nvmlDeviceGetTotalEnergyConsumption")) / 1e3

    def power(self) -> float:
        """Watts drawn now. Without the INSTANT capability, a moving average (about a second on recent cards)."""
        can = self.spec.capabilities
        return check_power(self.spec, self._instant_power() if Capability.INSTANT in can else self._average_power())

    def samples(self) -> list[PowerSample]:
        return [sample for sample in self._buffer() if 0 < sample.watts <= self.spec.ceiling_watts]

    def _buffer(self) -> list[PowerSample]:
        nvml = _binding()
        try:
            # Always from 0. Asking for "newer than the last" would hide new samples after the wall clock is set back.
            kind, raw = self._call("nvmlDeviceGetSamples", nvml.NVML_TOTAL_POWER_SAMPLES, 0)
        except DeviceLost as error:
            if not isinstance(error.__cause__, nvml.NVMLError_NotFound):
                raise
            self._handle = None  # "not found" means a lost card or an empty buffer: look the card up again to tell
            self._call("nvmlDeviceGetIndex")
            return []
        read = attrgetter("timeStamp", f"sampleValue.{self._field_of(kind)}")
        # A stamp of 0 marks an entry of the buffer that was never filled.
        return [PowerSample(stamp / 1e6, milliwatts / 1e3) for stamp, milliwatts in map(read, raw) if stamp]

    def limit(self) -> float:
        return float(self._call("nvmlDeviceGetPowerManagementLimit")) / 1e3

    def set_limit(self, watts: float) -> None:
        """Set the power limit. Only the keeper calls this."""
        refuse_if_read_only(f"setting {self._label} to {watts:g} W", or_unclear=False)
        spec = self.spec
        if Capability.LIMITS not in spec.capabilities:
            raise Unsupported(f"{self._label}: its driver offers no power limit, so {watts:g} W cannot be set.")
        check_limit(spec, watts)
        self._call("nvmlDeviceSetPowerManagementLimit", round(watts * 1e3), setting=True)

    def persistence(self) -> bool:
        return bool(self._call("nvmlDeviceGetPersistenceMode"))

    def set_persistence(self, on: bool) -> None:
        """Set persistence mode. Only the keeper calls this."""
        refuse_if_read_only(f"setting persistence mode of {self._label}", or_unclear=False)
        self._call("nvmlDeviceSetPersistenceMode", int(on), setting=True)

    def temperature(self) -> float:
        return float(self._call("nvmlDeviceGetTemperature", _binding().NVML_TEMPERATURE_GPU))

    def processes(self) -> list[int]:
        """Ids of the processes that compute on this card, as the host numbers them (a container may differ)."""
        # Name the version: on an older driver the unversioned function fails with an error that is no NVMLError.
        try:
            processes = self._call("nvmlDeviceGetComputeRunningProcesses_v3")
        except Unsupported:
            processes = self._call("nvmlDeviceGetComputeRunningProcesses_v2")
        return sorted({int(process.pid) for process in processes})

    def slowdowns(self) -> list[str]:
        """Why the driver holds the clocks down now, other than by the power limit or for want of work."""
        bits = int(self._call("nvmlDeviceGetCurrentClocksThrottleReasons"))
        return [name for bit, name in _SLOWDOWNS.items() if bits & bit]

    def speed(self) -> float:
        """Cores times highest SM clock, to rank cards as CUDA's FASTEST_FIRST does. NaN if unknown."""
        with suppress(DeviceError):
            megahertz = self._call("nvmlDeviceGetMaxClockInfo", _binding().NVML_CLOCK_SM)
            return float(self._call("nvmlDeviceGetNumGpuCores") * megahertz * 1e6)
        return math.nan

    @property
    def _label(self) -> str:
        return f"GPU {self.index} ({self._name}, {self._uuid})"

    def _call(self, function: str, *arguments: Any, setting: bool = False) -> Any:
        def call(nvml: Any) -> Any:
            return getattr(nvml, function)(self._opened(nvml), *arguments)

        if not hasattr(_binding(), function):
            raise Unsupported(
                f"{self._label}: this version of nvidia-ml-py has no {function}. Run `pip install -U nvidia-ml-py`."
            )
        return _ask(self._uuid, f"{self._label}: {function}", call, setting=setting)

    def _opened(self, nvml: Any) -> Any:
        if self._handle is None or self._handle[0] != _opening:
            self._handle = (_opening, nvml.nvmlDeviceGetHandleByUUID(self._uuid))
        return self._handle[1]

    def _some_samples(self) -> None:
        if not self._buffer():
            raise Unsupported(f"{self._label}: the driver's buffer of power samples is empty.")

    def _instant_power(self) -> float:
        nvml = _binding()
        (answer,) = self._call("nvmlDeviceGetFieldValues", [nvml.NVML_FI_DEV_POWER_INSTANT])
        with _our_errors(f"{self._label}: the power drawn now"):
            if answer.nvmlReturn != nvml.NVML_SUCCESS:
                raise nvml.NVMLError(answer.nvmlReturn)
        return self._watts(getattr(answer.value, self._field_of(answer.valueType)))

    def _average_power(self) -> float:
        return self._watts(self._call("nvmlDeviceGetPowerUsage"))

    def _watts(self, milliwatts: float) -> float:
        if milliwatts <= 0:  # drivers report 0 for "unknown"
            raise Unsupported(f"{self._label}: the driver reports {milliwatts} mW, which no running card draws.")
        return milliwatts / 1e3

    def _limits(self) -> tuple[float, float, float]:
        low, high = self._call("nvmlDeviceGetPowerManagementLimitConstraints")
        default = math.nan  # some drivers report the range but not the default
        with suppress(Unsupported):
            default = self._call("nvmlDeviceGetPowerManagementDefaultLimit") / 1e3
        return low / 1e3, high / 1e3, default

    def _field_of(self, kind: int) -> str:
        if not 0 <= kind < len(_VALUE_FIELDS):
            raise Unsupported(f"{self._label}: the driver answers with value type {kind}, which Zeus does not know.")
        return _VALUE_FIELDS[kind]


def _open(index: int) -> NvmlGpu:
    def card(nvml: Any) -> NvmlGpu:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return NvmlGpu(index, _text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle)))

    return _ask(f"NVIDIA card {index}", f"opening NVIDIA card {index}", card, opening=True)


def _text(answer: str | bytes) -> str:
    return answer.decode() if isinstance(answer, bytes) else answer


def _ask(who: str, what: str, question: Callable[[Any], T], *, opening: bool = False, setting: bool = False) -> T:
    """Ask the binding, with Zeus's errors. Asks again if other code in this process has shut NVML down."""

    def put() -> T:
        nvml = _nvml()
        with _our_errors(what, setting=setting):
            try:
                return question(nvml)
            except nvml.NVMLError_Uninitialized:
                return question(_nvml(again=True))

    if setting:
        return put()
    limits = settings.time_limits()
    return answer_within(limits.driver_opening if opening else limits.driver_answer, who, what, put)


def _binding() -> Any:
    """The nvidia-ml-py module. The driver may not be open yet."""
    try:
        import pynvml
    except ImportError as error:
        raise NoDevice("NVIDIA cards need the package nvidia-ml-py. Run `pip install nvidia-ml-py`.") from error
    return pynvml


def _nvml(again: bool = False) -> Any:
    """The nvidia-ml-py module, with the driver opened in this process."""
    global _opening
    pynvml = _binding()
    if again or _opening[0] != os.getpid():
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NoDevice(f"the NVIDIA driver cannot be opened: {error}. Install or load it. {TO_SEE_GPUS}") from error
        _opening = (os.getpid(), _opening[1] + 1)
    return pynvml


@contextmanager
def _our_errors(what: str, *, setting: bool = False) -> Iterator[None]:
    """Translate NVML's errors into Zeus's. Matches by class name, because older bindings lack some classes."""
    import pynvml

    try:
        yield
    except pynvml.NVMLError as error:
        match type(error).__name__.removeprefix("NVMLError_"):
            case "NoPermission":
                fix = "Run as root, or start `zeus keeper` and let it set limits." if setting else "Run as root."
                raise NotPermitted(f"{what}: the driver does not allow user {os.geteuid()} to. {fix}") from error
            case "GpuIsLost" | "ResetRequired" | "NotFound" | "GpuNotFound":
                raise DeviceLost(
                    f"{what}: {error}. The card is lost. See `nvidia-smi` and `dmesg`; a reset may bring it back."
                ) from error
            case "FunctionNotFound":
                raise Unsupported(f"{what}: this driver does not offer it. A newer driver may.") from error
            case "NotSupported":
                raise Unsupported(f"{what}: this card does not support it.") from error
            case "InvalidArgument" if not setting:
                raise Unsupported(f"{what}: the driver does not know this query for this card.") from error
            case _:
                raise DeviceError(f"{what}: {error} (NVML error {error.value}).") from error
