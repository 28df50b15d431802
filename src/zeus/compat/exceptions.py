"""The exceptions of the existing package, as names of ours, so that code which catches an old name catches ours."""

from __future__ import annotations

from zeus.errors import (
    DeviceError,
    DeviceLost,
    DeviceSilent,
    InputError,
    KeeperLost,
    NoDevice,
    Refused,
    Unsupported,
    ZeusError,
)


class NeverRaised(DeviceError):
    """Stands for errors that the existing package distinguishes and this one does not."""


class ZeusGPUHeterogeneousError(DeviceError):
    """The GPUs are not all of one model, though the caller asked for that."""


ZeusBaseError = ZeusError
ZeusBaseGPUError = ZeusBaseCPUError = ZeusBaseSoCError = DeviceError
ZeusdError = KeeperLost
ZeusGPUInitError = ZeusGPUNotFoundError = ZeusGPUDriverNotLoadedError = ZeusGPULibraryNotFoundError = NoDevice
ZeusGPUInvalidArgError = InputError
ZeusGPUNotSupportedError = ZeusGPUFunctionNotFoundError = Unsupported
ZeusGPUNoPermissionError = Refused
ZeusGPUTimeoutError = DeviceSilent
ZeusGPULostError = DeviceLost
ZeusGPUUnknownError = DeviceError
ZeusCPUInitError = ZeusCPUNotFoundError = ZeusRAPLNotSupportedError = ZeusRAPLFileInitError = NoDevice
ZeusCPUNoPermissionError = ZeusRAPLPermissionError = Refused
ZeusSoCInitError = NoDevice
ZeusGPUAlreadyInitializedError = ZeusGPUInsufficientSizeError = ZeusGPUInsufficientPowerError = NeverRaised
ZeusGPUIRQError = ZeusGPUCorruptedInfoROMError = ZeusGPUResetRequiredError = NeverRaised
ZeusGPUOperatingSystemError = ZeusGPULibRMVersionMismatchError = ZeusGPUMemoryError = NeverRaised
