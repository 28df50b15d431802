"""Every exception that Zeus raises on purpose, as a tree, and how a command ends with one.

    ZeusError
    ├── InputError (also a ValueError)      the user's input cannot be used; nothing was changed
    │   ├── WindowError                     a window was begun twice, or ended without having begun
    │   ├── NoCpuEnergy (also a RuntimeError)
    │   │                                   the energy of a CPU that was asked for cannot be measured
    │   ├── NotKnown                        there is no such job or trial
    │   ├── NotInstalled (also an ImportError)
    │   │                                   an optional package is missing
    │   ├── StoreUnusable                   the store cannot be opened, or its data are damaged; waiting does not help
    │   ├── AlreadyDone                     the store already holds a different result; it was not overwritten
    │   └── NotAllowed                      the service rejects this token
    │       └── Forbidden                   the service knows who asks, but they may not do this
    ├── DeviceError                         a device did not do what was asked
    │   ├── NoDevice                        there is no such device, or none at all
    │   ├── DeviceLost                      the device has disappeared
    │   ├── DeviceSilent                    the driver does not answer; it may later
    │   ├── Unsupported                     this device cannot do that
    │   └── Refused (also a PermissionError)
    │       ├── NotPermitted                the operating system or the driver does not allow it
    │       ├── ReadOnly                    ZEUS_READ_ONLY=1 is set; the driver was not called
    │       └── LeaseRefused                the keeper does not lend this GPU: it is on lease, or the user may not
    ├── KeeperLost                          the keeper is gone; limits can no longer be set
    ├── NotHere (also an ImportError)       a name of the existing package that this one does not have
    ├── LaunchError                         a command did not do what a trial of its job must do, or was not started
    ├── EngineError                         the workers of a simulation cannot be started, or are lost again and again
    └── StoreError                          the store did not answer; training goes on without it

Messages say what happened, with which value, and what to do.

Exit codes: 0 done · 1 failed · 2 bad input or usage · 3 the target was not reached · 128 + N ended by signal N
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

DONE: Final = 0
FAILED: Final = 1
BAD_INPUT: Final = 2
NOT_REACHED: Final = 3
INTERRUPTED: Final = 130  # by Ctrl-C
TERMINATED: Final = 143  # by SIGTERM


class ZeusError(Exception):
    """Base class of every exception that Zeus raises on purpose."""


class InputError(ZeusError, ValueError):
    """The user's input cannot be used. Nothing was changed."""


class WindowError(InputError):
    """A measurement window was begun twice, or ended without having begun."""


class NoCpuEnergy(InputError, RuntimeError):
    """The energy of a CPU that was asked for cannot be measured here."""


class NotKnown(InputError):
    """There is no such job or trial."""


class NotInstalled(InputError, ImportError):
    """An optional package is missing. The message says how to install it."""


class StoreUnusable(InputError):
    """The store cannot be opened, or its own data cannot be read, so waiting does not help. Nothing was changed."""


class AlreadyDone(InputError):
    """The store already holds a different result, such as a trial that has ended. It was not overwritten."""


class NotAllowed(InputError):
    """The service rejects this token, or the token does not allow this."""


class Forbidden(NotAllowed):
    """The service knows who asks, but they may not do this, as with a job that is somebody else's."""


class DeviceError(ZeusError):
    """A device did not do what was asked."""


class NoDevice(DeviceError):
    """There is no such device, or none at all."""


class DeviceLost(DeviceError):
    """The device has disappeared."""


class DeviceSilent(DeviceError):
    """The driver did not answer in time. The call may still be running, and cannot be cancelled."""


class Unsupported(DeviceError):
    """This device cannot do that."""


class Refused(DeviceError, PermissionError):
    """Base class of errors about missing permission."""


class NotPermitted(Refused):
    """The operating system or the driver does not allow it."""


class ReadOnly(Refused):
    """ZEUS_READ_ONLY=1 is set. The driver was not called."""


class LeaseRefused(Refused):
    """The keeper does not lend this GPU to this client."""


class KeeperLost(ZeusError):
    """The keeper is gone. Limits can no longer be set."""


class NotHere(ZeusError, ImportError):
    """A name of the existing package that this one does not have. The message says what to use instead."""


class LaunchError(ZeusError):
    """A command did not do what a trial of its job must do, or could not be started where it was to run."""


class EngineError(ZeusError):
    """The workers of a simulation cannot be reached or started, or the same task lost its worker again and again."""


class StoreError(ZeusError):
    """The store did not answer: it is unreachable, busy for too long, or broken. Training goes on without it."""


def exit_status(error: ZeusError) -> tuple[int, str]:
    """How a command ends with this error: its exit code, and its line on standard error.

    >>> exit_status(InputError("--port 0: give 1 to 65535."))
    (2, 'zeus: --port 0: give 1 to 65535.')
    >>> exit_status(ZeusError("the store did not answer."))
    (1, 'zeus: the store did not answer.')
    """
    return BAD_INPUT if isinstance(error, InputError) else FAILED, f"zeus: {error}"


MOST_NAMES = 30


def suggest(given: str, known: Iterable[str], *, most: int = 1) -> str:
    """A sentence about an unknown name: the names that may have been meant, or else all names.

    >>> suggest("Papre", ["paper", "grid"])
    "Did you mean 'paper'?"
    >>> suggest("tpe", ["paper", "grid"])
    'Known: paper, grid.'
    """
    from difflib import get_close_matches  # slow to import, and seldom needed

    names = {name.lower(): name for name in known}
    near = [repr(names[one]) for one in get_close_matches(given.lower(), names, n=most)]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Known: {', '.join([*names.values()][:MOST_NAMES])}{', ...' if len(names) > MOST_NAMES else ''}."
