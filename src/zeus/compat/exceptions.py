"""The exceptions of the existing package, as names of ours: who catches the old name catches what is raised here.

Where nothing here is like the old one, it is a class of its own that is never raised.
"""

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
    """Base class of errors that the existing package distinguishes and this one does not."""


class ZeusGPUAlreadyInitializedError(NeverRaised):
    """Never raised."""


class ZeusGPUInsufficientSizeError(NeverRaised):
    """Never raised."""


class ZeusGPUInsufficientPowerError(NeverRaised):
    """Never raised."""


class ZeusGPUIRQError(NeverRaised):
    """Never raised."""


class ZeusGPUCorruptedInfoROMError(NeverRaised):
    """Never raised."""


class ZeusGPUResetRequiredError(NeverRaised):
    """Never raised."""


class ZeusGPUOperatingSystemError(NeverRaised):
    """Never raised."""


class ZeusGPULibRMVersionMismatchError(NeverRaised):
    """Never raised."""


class ZeusGPUMemoryError(NeverRaised):
    """Never raised."""


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
