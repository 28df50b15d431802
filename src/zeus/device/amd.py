"""AMD cards behind the `Gpu` port, through amdsmi. Only this module works in its microjoules and microwatts."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import logging
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

from zeus import settings
from zeus.deadline import answer_within
from zeus.device.gpu import Capability, GpuSpec, PowerSample, abilities, check_limit, check_power, refuse_if_read_only
from zeus.errors import DeviceError, DeviceLost, DeviceSilent, NoDevice, NotPermitted, Unsupported, ZeusError
from zeus_energy import install_command

log = logging.getLogger(__name__)

# Status codes of amdsmi.h that mean more than "it failed".
UNSUPPORTED = {2, 3, 40, 49, 52, 55}  # not supported, not implemented, no data, no message, no file, no such setting
NO_PERMISSION = 10
GONE = {31, 34}  # device not found, driver not loaded

# Many cards report 0 W as their lowest limit. Zeus then goes no lower than this share of the default limit, which is
# about where other cards' limits begin (100 of 300 W, 200 of 700 W).
FLOOR = 1 / 3
SLACK_WATTS = 1.0  # the driver rounds a limit to whole watts


def amd_gpus() -> list[AmdGpu]:
    """Every AMD card, in amdsmi's order. Raises `NoDevice` if the library or the driver is missing."""
    printed = io.StringIO()
    try:
        if importlib.util.find_spec("amdsmi") is None:  # no need to capture standard output then
            raise ModuleNotFoundError("No module named 'amdsmi'", name="amdsmi")
        with _quiet(printed):
            smi, handles = answer_within(
                settings.time_limits().driver_opening, "amdsmi", "opening the AMD driver", _open
            )
    except Exception as error:  # without the driver, importing amdsmi raises KeyError and others
        if isinstance(error, ModuleNotFoundError) and error.name == "amdsmi":
            install = install_command("amd")
            raise NoDevice(f"No AMD cards: the package amdsmi is not installed. Run `{install}`.") from error
        detail = " ".join(f"{type(error).__name__}: {error} {printed.getvalue()}".split())
        raise NoDevice(f"No AMD cards: amdsmi does not start ({detail}). Is the amdgpu driver installed?") from error
    gpus = []
    for index, handle in enumerate(handles):
        try:
            gpus.append(AmdGpu(smi, handle, index))
        except (DeviceLost, DeviceSilent) as silent:  # use the others
            log.warning("AMD GPU %d is skipped. %s", index, silent)
    return gpus


def _open() -> tuple[Any, list[Any]]:
    smi = importlib.import_module("amdsmi")
    smi.amdsmi_init()
    return smi, list(smi.amdsmi_get_processor_handles())


class AmdGpu:
    """One AMD card. Each capability is probed once, by trying it."""

    def __init__(self, smi: Any, handle: Any, index: int) -> None:
        self._smi = smi
        self._handle = handle
        self.index = index
        self._label = f"AMD GPU {index}"
        ids = self._if_known("amdsmi_get_gpu_enumeration_info")
        self.hip_index = _integer(ids.get("hip_id"))  # HIP's masks count by this
        self.spec = self._probe(_text(ids.get("hip_uuid")))
        self._label = f"AMD GPU {index} ({self.spec.name})"

    def __repr__(self) -> str:
        return f"AmdGpu({self.index}, {self.spec.name!r})"

    def energy(self) -> float:
        """Joules since the driver was loaded."""
        count = self._ask("amdsmi_get_energy_count")
        steps = _number(count.get("energy_accumulator", count.get("power")))  # the key was renamed in 6.2
        step_uj = _number(count.get("counter_resolution"))
        if not steps or not step_uj or steps >= 2**64 - 1:
            raise Unsupported(f"{self._label} has no energy counter: amdsmi answers {count}.")
        return steps * step_uj / 1e6

    def power(self) -> float:
        """Watts of the socket: instantaneous if the card has that, else a moving average."""
        return check_power(self.spec, self._power())

    def _power(self) -> float:
        info = self._ask("amdsmi_get_power_info")
        for key in ("current_socket_power", "average_socket_power"):
            if watts := _number(info.get(key)):  # cards report 0 for "unknown"
                return watts
        raise Unsupported(f"{self._label} does not report its power: amdsmi answers {info}.")

    def samples(self) -> list[PowerSample]:
        raise Unsupported(f"{self._label}: the driver keeps no power samples.")

    def limit(self) -> float:
        return self._caps()["power_cap"]

    def set_limit(self, watts: float) -> None:
        """Set the power cap. Only the keeper calls this."""
        refuse_if_read_only(f"{self._label}: set power limit to {watts:g} W", or_unclear=False)
        if Capability.LIMITS not in self.spec.capabilities:
            raise Unsupported(f"{self._label} has no power limit that can be read, so Zeus sets none.")
        check_limit(self.spec, watts)
        self._call("amdsmi_set_power_cap", 0, round(watts * 1e6))  # no time limit: an abandoned call could set it later
        if abs(self.limit() - watts) > SLACK_WATTS:
            raise DeviceError(f"{self._label}: asked for {watts:g} W, but the driver keeps {self.limit():g} W.")

    def persistence(self) -> bool:
        raise Unsupported(f"{self._label}: AMD cards have no persistence mode.")

    def set_persistence(self, on: bool) -> None:
        refuse_if_read_only(f"{self._label}: set persistence mode", or_unclear=False)
        raise Unsupported(f"{self._label}: AMD cards have no persistence mode.")

    def temperature(self) -> float:
        """Degrees Celsius at the edge sensor, or at the hot spot if the card has no edge sensor."""
        kinds, now = self._smi.AmdSmiTemperatureType, self._smi.AmdSmiTemperatureMetric.CURRENT
        for kind in (kinds.EDGE, kinds.HOTSPOT):
            with contextlib.suppress(Unsupported):
                celsius = _number(self._ask("amdsmi_get_temp_metric", kind, now))
                if celsius is not None:
                    return celsius
        raise Unsupported(f"{self._label} does not report its temperature.")

    def processes(self) -> list[int]:
        entries = self._ask("amdsmi_get_gpu_process_list")
        if not all(isinstance(entry, dict) and "pid" in entry for entry in entries):
            raise Unsupported(f"{self._label}: this amdsmi does not list processes by id; 6.2 or newer does.")
        return [int(entry["pid"]) for entry in entries]

    def _probe(self, hip_uuid: str) -> GpuSpec:
        asic = self._if_known("amdsmi_get_gpu_asic_info")
        board = self._if_known("amdsmi_get_gpu_board_info")
        uuid = _text(self._if_known("amdsmi_get_gpu_device_uuid"))
        bus = _text(self._if_known("amdsmi_get_gpu_device_bdf"))
        power = self._if_known("amdsmi_get_power_info")
        can = abilities(
            {
                Capability.COUNTER: self.energy,
                Capability.POWER: self._power,
                Capability.LIMITS: self._caps,
                Capability.TEMPERATURE: self.temperature,
                Capability.PROCESSES: self.processes,
            }
        )
        if _number(power.get("current_socket_power")):
            can.add(Capability.INSTANT)
        caps = self._caps() if Capability.LIMITS in can else {}
        return GpuSpec(
            uuid=uuid or f"PCI-{bus or self.index}",
            name=_text(asic.get("market_name")) or _text(board.get("product_name")) or "AMD GPU",
            vendor="amd",
            min_watts=self._floor(caps) if caps else math.nan,
            max_watts=caps.get("max_power_cap", math.nan),
            default_watts=caps.get("default_power_cap", math.nan),
            capabilities=frozenset(can),
            aliases=(hip_uuid,) if hip_uuid else (),
        )

    def _floor(self, caps: dict[str, float]) -> float:
        if caps["min_power_cap"] > 0:
            return caps["min_power_cap"]
        # The keeper must be able to restore the current limit, so it may not lie below the floor.
        floor = min(math.ceil(caps["default_power_cap"] * FLOOR), caps["power_cap"])
        log.info("%s states no lowest power limit. Zeus chose %g W and will not go below.", self._label, floor)
        return floor

    def _caps(self) -> dict[str, float]:
        """The current limit and its range, in watts."""
        info = self._ask("amdsmi_get_power_cap_info")
        caps = {key: (_number(info.get(key)) or 0.0) / 1e6 for key in ("power_cap", "min_power_cap", "max_power_cap")}
        if caps["power_cap"] < 1 or caps["max_power_cap"] < 1:  # not a real cap
            raise Unsupported(f"{self._label} has no power limit that can be read: amdsmi answers {info}.")
        default = (_number(info.get("default_power_cap")) or 0.0) / 1e6
        return {**caps, "default_power_cap": default or caps["max_power_cap"]}

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Call amdsmi with a time limit."""
        what = f"{self._label}: {function}"
        seconds = settings.time_limits().driver_answer
        return answer_within(seconds, f"AMD GPU {self.index}", what, lambda: self._call(function, *arguments))

    def _call(self, function: str, *arguments: Any) -> Any:
        """Call amdsmi and translate its errors into Zeus's."""
        try:
            return getattr(self._smi, function)(self._handle, *arguments)
        except (AttributeError, NotImplementedError) as error:
            raise Unsupported(f"{self._label}: this amdsmi has no {function}.") from error
        except self._smi.AmdSmiException as error:
            code = getattr(error, "err_code", None)
            what = f"{self._label}: {function}: {' '.join(str(error).split())}"
            if code in UNSUPPORTED:
                raise Unsupported(what) from error
            if code == NO_PERMISSION:
                raise NotPermitted(
                    f"{what}. Run as root, or let `zeus keeper` set limits; to read, join the groups render and video."
                ) from error
            if code in GONE:
                raise DeviceLost(f"{what}. The card is lost; `dmesg` may say why.") from error
            raise DeviceError(what) from error

    def _if_known(self, function: str) -> Any:
        """The answer, or an empty one if the card does not know."""
        try:
            return self._ask(function)
        except DeviceSilent:
            raise  # a silent driver does not mean that the card does not know
        except ZeusError:
            return {}


def _number(value: Any) -> float | None:
    """A number, or None for "N/A" and the like."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) and value.strip() != "N/A" else ""


@contextlib.contextmanager
def _quiet(printed: io.StringIO) -> Iterator[None]:
    """Capture what Python prints, and discard what the C library writes to standard output."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(printed))
        with contextlib.suppress(OSError):  # a daemon may have no standard output
            if sys.__stdout__ is not None:
                sys.__stdout__.flush()
            keep = os.dup(1)
            stack.callback(os.close, keep)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            stack.callback(os.close, nowhere)
            os.dup2(nowhere, 1)
            stack.callback(os.dup2, keep, 1)
        yield
