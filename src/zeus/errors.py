"""Everything Zeus raises on purpose, drawn as a tree.

    ZeusError
    ├── InputError (also a ValueError)      what the user gave cannot be used; nothing was changed
    │   ├── WindowError                     a window was opened twice or ended without being open
    │   ├── NotKnown                        there is no such job or trial
    │   ├── AlreadyDone                     what is stored says otherwise, and stands
    │   └── NotAllowed                      a service does not take this token, or not for this
    ├── DeviceError                         a device did not do as asked
    │   ├── NoDevice                        there is no such device, or none at all
    │   ├── DeviceLost                      it was there and is not any more
    │   ├── DeviceSilent                    its driver does not answer; it may again
    │   ├── Unsupported                     this device cannot do that
    │   └── Refused (also a PermissionError)
    │       ├── NotPermitted                the operating system or the driver said no
    │       ├── ReadOnly                    ZEUS_READ_ONLY=1: refused before the driver was reached
    │       └── LeaseRefused                the keeper will not lend this GPU (someone else holds it, or is not allowed)
    ├── KeeperLost                          the keeper went away; limits can no longer be set
    ├── LaunchError                         a command did not do what a trial of its job must
    └── StoreError                          the store did not answer; a training goes on without it

Messages say what happened, with which value, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class ZeusError(Exception):
    """Base of every error Zeus raises on purpose."""


class InputError(ZeusError, ValueError):
    """What the user gave cannot be used; nothing was changed."""


class WindowError(InputError):
    """A measurement window was begun twice or ended without having begun."""


class NotKnown(InputError):
    """There is no such job or trial."""


class AlreadyDone(InputError):
    """What is stored says otherwise, and stands: a trial that has ended, a recurrence that is over."""


class NotAllowed(InputError):
    """A service does not take this token, or not for this."""


class DeviceError(ZeusError):
    """A device did not do as asked."""


class NoDevice(DeviceError):
    """There is no such device, or none at all."""


class DeviceLost(DeviceError):
    """The device was there and is not any more."""


class DeviceSilent(DeviceError):
    """The device's driver did not answer in time. The call may still be in it, and cannot be taken back."""


class Unsupported(DeviceError):
    """This device cannot do that."""


class Refused(DeviceError, PermissionError):
    """Somebody said no."""


class NotPermitted(Refused):
    """The operating system or the driver said no."""


class ReadOnly(Refused):
    """ZEUS_READ_ONLY=1 is set: refused before the driver was reached."""


class LeaseRefused(Refused):
    """The keeper will not lend this GPU to this client."""


class KeeperLost(ZeusError):
    """The keeper went away; limits can no longer be set."""


class LaunchError(ZeusError):
    """A command did not do what a trial of its job must."""


class StoreError(ZeusError):
    """The store did not answer: it is away, busy for too long, or broken. A training goes on without it."""


MOST_NAMES = 30


def suggest(given: str, known: Iterable[str], *, most: int = 1) -> str:
    """A sentence about a name that is not known: what may have been meant, or else what there is.

    >>> suggest("Papre", ["paper", "grid"])
    "Did you mean 'paper'?"
    >>> suggest("tpe", ["paper", "grid"])
    'Known: paper, grid.'
    """
    names = {name.lower(): name for name in known}
    near = [repr(names[one]) for one in get_close_matches(given.lower(), names, n=most)]
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Known: {', '.join([*names.values()][:MOST_NAMES])}{', ...' if len(names) > MOST_NAMES else ''}."
