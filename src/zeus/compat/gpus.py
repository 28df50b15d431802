"""`get_gpus()` of the existing package: the GPUs of this process, in milliwatts, millijoules and milliseconds.

Readings come from our cards. Limits are set through the keeper, so they are restored at the end; no setter reaches the
driver from here. Frequencies and the persistence mode are not set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from zeus.compat.devices import ByIndex, CamelCase
from zeus.compat.exceptions import *  # noqa: F403 - scripts catch them from the module that has the GPUs
from zeus.compat.exceptions import ZeusGPUHeterogeneousError
from zeus.device.find import find
from zeus.device.gpu import Capability, Gpu
from zeus.device.keeper import Lease, Observing, lend
from zeus.errors import NoDevice, NotPermitted, Unsupported

_leases: dict[str, Lease] = {}  # by UUID; each ends with this process, or when the limit is reset


class GPU(CamelCase):
    """One card, as the existing package shows it."""

    supports_nonblocking_setters = False

    def __init__(self, gpu_index: int, card: Gpu | None = None) -> None:
        self.gpu_index = gpu_index
        self._card = find([gpu_index])[gpu_index] if card is None else card

    def get_name(self) -> str:
        return self._card.spec.name

    def get_power_management_limit_constraints(self) -> tuple[int, int]:
        """The lowest and the highest limit, in mW."""
        if Capability.LIMITS not in self._card.spec.capabilities:
            self._refuse("this card does not report a power limit")
        return _milli(self._card.spec.min_watts), _milli(self._card.spec.max_watts)

    def get_power_management_limit(self) -> int:
        """The limit in force, in mW."""
        return _milli(self._card.limit())

    def set_power_management_limit(self, power_limit_mw: int, block: bool = True) -> None:
        """Set the limit through the keeper, which puts it back when this process ends. It always blocks."""
        uuid = self._card.spec.uuid
        if uuid not in _leases:
            match lend([self._card]):
                case Observing(reason):
                    raise NotPermitted(reason)
                case Lease() as lease:
                    _leases[uuid] = lease
        _leases[uuid].set_limit(power_limit_mw / 1e3)

    def reset_power_management_limit(self, block: bool = True) -> None:
        """Put the limit back as it was found."""
        lease = _leases.pop(self._card.spec.uuid, None)
        if lease is not None:
            lease.release()

    def get_persistence_mode(self) -> bool:
        return self._card.persistence()

    def set_persistence_mode(self, enabled: bool, block: bool = True) -> None:
        """Nothing is set here: Unsupported, unless the mode is the wanted one already."""
        if self._card.persistence() is not enabled:
            raise Unsupported(
                f"{self.get_name()}: the persistence mode is not set by Zeus. An administrator sets it with "
                f"`nvidia-smi -pm {int(enabled)}`."
            )

    def get_average_power_usage(self) -> int:
        """Power in mW. Cards differ in how long they average."""
        return _milli(self._card.power())

    get_instant_power_usage = get_average_power_usage

    def supports_get_total_energy_consumption(self) -> bool:
        return Capability.COUNTER in self._card.spec.capabilities

    def get_total_energy_consumption(self) -> int:
        """The card's energy counter, in mJ."""
        return _milli(self._card.energy())

    def get_gpu_temperature(self) -> int:
        """Degrees Celsius."""
        return round(self._card.temperature())

    def get_average_memory_power_usage(self) -> int:
        self._refuse("the power of the memory alone is not read by Zeus")

    def set_gpu_locked_clocks(self, *_: object, **__: object) -> NoReturn:
        """Unsupported, as is everything about frequencies."""
        self._refuse("Zeus neither reads nor sets frequencies; use set_power_management_limit, or `nvidia-smi -lgc`")

    reset_gpu_locked_clocks = get_supported_graphics_clocks = set_gpu_locked_clocks
    set_memory_locked_clocks = reset_memory_locked_clocks = get_supported_memory_clocks = set_gpu_locked_clocks

    def _refuse(self, why: str) -> NoReturn:
        raise Unsupported(f"{self.get_name()}: {why}.")


class GPUs(ByIndex):
    """All cards of this process."""

    _kind, _index = GPU, "gpu_index"

    def __init__(self, ensure_homogeneous: bool = False) -> None:
        super().__init__([GPU(index, card) for index, card in find().items()])
        names = sorted({gpu.get_name() for gpu in self.gpus})
        if ensure_homogeneous and len(names) > 1:
            raise ZeusGPUHeterogeneousError(
                f"the GPUs are of several models ({', '.join(names)}). Choose those of one with CUDA_VISIBLE_DEVICES."
            )

    @property
    def gpus(self) -> Sequence[GPU]:
        return self._devices


class EmptyGPUs(GPUs):
    """No GPU."""

    def __init__(self, ensure_homogeneous: bool = False) -> None:
        ByIndex.__init__(self, [])


NVIDIAGPU = ZeusdNVIDIAGPU = AMDGPU = GPU
NVIDIAGPUs = AMDGPUs = GPUs


def get_gpus(ensure_homogeneous: bool = False) -> GPUs:
    """The GPUs of this process.

    Raises:
        NoDevice: There is none.
        ZeusGPUHeterogeneousError: They are of several models, though `ensure_homogeneous` asks for one.
    """
    gpus = GPUs(ensure_homogeneous)
    if not gpus:
        raise NoDevice("no GPU is visible to this process. `zeus env` says why.")
    return gpus


def nvml_is_available() -> bool:
    """Whether this process has NVIDIA cards."""
    return _has("nvidia")


def amdsmi_is_available() -> bool:
    """Whether this process has AMD cards."""
    return _has("amd")


def _has(vendor: str) -> bool:
    return any(card.spec.vendor == vendor for card in find().values())


def _milli(value: float) -> int:
    return round(value * 1e3)
