"""Taking a lease on power limits: `lend(gpus)` answers with a `Lease`, or with `Observing` and the reason.

    match lend(gpus):
        case Lease() as lease:
            lease.set_limit(150)
        case Observing(reason):
            ...

1. ZEUS_READ_ONLY=1: only observe.
2. A system keeper, named by argument or by ZEUS_KEEPER, or found at its usual place.
3. A private keeper, where this process may set limits itself (root, or virtual cards), and where it is safe or
   ZEUS_KEEPER=private asks for it.
4. Otherwise only observe, and say once how to change that.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from zeus import env
from zeus.device.clock import clock_of
from zeus.device.gpu import Capability, Gpu, refuse_if_read_only
from zeus.device.keeper import container, protocol
from zeus.device.keeper.channel import LEASE_SECONDS, Channel, connect
from zeus.device.keeper.notes import Notes
from zeus.device.keeper.private import reap, recover, start_private
from zeus.errors import DeviceError, InputError, KeeperLost, ReadOnly, ZeusError

log = logging.getLogger("zeus.device.keeper")

DEFAULT_SOCKET = Path("/run/zeus/keeper.sock")
PRIVATE = "private"  # in place of a socket: a keeper of one's own, also where that is a risk
_said: set[str] = set()
_changes: list[float] = []  # when this process set a limit, by the clock of its GPUs


def limit_changes() -> int:
    """How often this process has set a limit: whoever measures steps learns cheaply that it changed between two."""
    return len(_changes)


def changed_at(since: int) -> list[float]:
    """When it did, after the first `since` times; by the clock of the GPUs."""
    return _changes[since:]


@dataclass(frozen=True, slots=True)
class Observing:
    """No limit can be set; `reason` says why, and what to do about it."""

    reason: str


class Lease:
    """Exclusive use of the power limits of some GPUs. They are put back when it ends, however it ends.

    Any thread may use it. It belongs to the process that took it: in a forked child it cannot set, and releasing it
    there does nothing.
    """

    def __init__(self, channel: Channel, gpus: Sequence[Gpu], kind: str) -> None:
        self._channel = channel
        self._clock = clock_of(gpus[0])
        self.kind = kind  # "private" or "system"
        answer = channel.ask(LEASE_SECONDS, op="lease", gpus=[gpu.spec.uuid for gpu in gpus])
        self.found: dict[str, float] = answer["found"]  # the limit put back at the end, watts by UUID
        _leases.add(self)

    def set_limit(self, watts: float, gpu: Gpu | str | None = None) -> dict[str, float]:
        """Set the limit of one GPU, or of all of the lease: all or none. Returns the limits now in force by UUID.

        Raises InputError above the limit found or outside the card's range, KeeperLost once the lease is over.
        """
        refuse_if_read_only(f"setting a power limit of {watts:g} W")
        uuids = list(self.found) if gpu is None else [gpu if isinstance(gpu, str) else gpu.spec.uuid]
        try:
            line = {uuid: float(watts) for uuid in uuids}
            protocol.encode(line)
        except ValueError as e:
            raise InputError(f"a power limit of {watts} W is no limit.") from e
        answer = self._channel.ask(op="set", watts=line)
        self.found = answer["found"]
        limits: dict[str, float] = answer["limits"]
        _changes.append(self._clock.now())
        return limits

    def release(self) -> None:
        """Have the limits put back, and return when they are. Doing so twice is fine, and so is a keeper that died."""
        if self not in _leases or not self._channel.is_mine:
            return
        _leases.discard(self)
        _changes.append(self._clock.now())
        try:
            for returned in self._channel.ask(op="release")["returned"]:
                if returned["ending"] in ("left", "failed"):
                    log.warning("%s", returned["message"])
        except KeeperLost as e:
            log.warning("while giving limits back: %s", e)
            if self.kind == "private":
                recover()
        finally:
            self._channel.close()
            if self.kind == "private":
                reap(self._channel.keeper_pid)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is not None:
            channel.close()  # without waiting: the keeper sees the end of the connection


_leases: weakref.WeakSet[Lease] = weakref.WeakSet()


def found_limits() -> dict[str, float]:
    """The limits that this process's leases found, in watts by UUID: what was in force before it set any."""
    return {uuid: watts for lease in _leases for uuid, watts in lease.found.items()}


@atexit.register
def _release_all() -> None:
    for lease in list(_leases):
        lease.release()


def lend(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None = None) -> Lease | Observing:
    """Take a lease on these GPUs from the system's keeper or a private one.

    InputError where the call itself is wrong. Whatever else is in the way (nobody may set limits here, somebody
    else holds a GPU) is a reason to observe: training goes on without.
    """
    if not gpus:
        raise InputError("a lease needs at least one GPU.")
    try:
        match _route(gpus, socket):
            case Path() as path:
                return _take(_greet(path), gpus, "system")
            case _Private(risk):
                if risk:
                    _warn_once(f"ZEUS_KEEPER=private: {risk}")
                return _take(start_private(), gpus, "private")
            case Observing() as observing:
                pass
    except ZeusError as e:
        observing = Observing(f"Power limits are only observed: {e}")
    _warn_once(observing.reason)
    return observing


def status(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Which keeper `lend` would turn to, for `zeus env`; takes no lease."""
    found: dict[str, Any] = {"use": None, "socket": None, "lent": [], "why_not": None, "risk": None}
    if not gpus:
        return found | {"why_not": "there is no GPU."}
    match _route(gpus, socket):
        case Observing(reason):
            return found | {"why_not": reason}
        case _Private(risk):
            return found | {"use": "private", "risk": risk}
        case Path() as path:
            found["socket"] = str(path)
            try:
                channel = _greet(path)
                try:
                    return found | {"use": "system", "lent": channel.ask(op="status")["lent"]}
                finally:
                    channel.close()
            except ZeusError as e:
                return found | {"why_not": str(e)}


@dataclass(frozen=True, slots=True)
class _Private:
    """A keeper of one's own; `risk` says what it cannot promise here."""

    risk: str | None = None


def _route(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None) -> Path | _Private | Observing:
    """Whom to ask: the keeper at this path, a private one, or nobody."""
    if obstacle := _obstacle(gpus):
        return Observing(obstacle)
    chosen = socket or env.keeper()
    if chosen and str(chosen) != PRIVATE:
        return Path(chosen)
    if all(gpu.spec.vendor == "virtual" for gpu in gpus):  # the machine's keeper knows nothing of them
        return _Private()
    if not chosen and _is_alive(DEFAULT_SOCKET):
        return DEFAULT_SOCKET
    return _own(accepted=bool(chosen))


def _own(accepted: bool) -> _Private | Observing:
    """A private keeper for real cards, if this user may have one, and what it cannot promise here was accepted."""
    if os.geteuid() != 0:
        return Observing(
            f"Power limits are only observed: user {os.geteuid()} may not set them and no keeper runs on this machine. "
            "An administrator can start one with `zeus keeper` (as a service: `zeus keeper --print-unit`), "
            "or the training can run as root."
        )
    try:
        risk = container.risk(Notes.here().folder)
    except (ZeusError, OSError) as e:
        return Observing(f"Power limits are only observed: a keeper would have no folder for its notes. {e}")
    if risk and not accepted:
        return Observing(
            f"Power limits are only observed: {risk} Run `zeus keeper` on the host and mount its folder into the "
            "container (docker run -v /run/zeus:/run/zeus), or accept the risk with ZEUS_KEEPER=private."
        )
    return _Private(risk)


def _obstacle(gpus: Sequence[Gpu]) -> str:
    """Why no keeper whatsoever would do; empty where nothing is in the way."""
    try:
        refuse_if_read_only("setting power limits")
    except ReadOnly as e:
        return str(e)
    for gpu in gpus:
        if Capability.LIMITS not in gpu.spec.capabilities:
            return f"GPU {gpu.index} ({gpu.spec.name}) has no power limit that can be set; it is only observed."
        if gpu.spec.shared:
            return f"GPU {gpu.index} ({gpu.spec.name}) is a slice of a card that others share; it is only observed."
    return ""


def _is_alive(path: Path) -> bool:
    try:
        connect(path).close()
    except PermissionError:  # somebody is there, and will not have us
        return True
    except OSError:
        return False
    return True


def _greet(path: Path) -> Channel:
    try:
        channel = Channel(connect(path))
    except PermissionError as e:
        raise DeviceError(
            f"user {os.geteuid()} may not use the keeper at {path}. Ask an administrator to be added to its group "
            f"(`ls -l {path}` shows which; `usermod -aG GROUP USER`), and log in again."
        ) from e
    except OSError as e:
        raise DeviceError(
            f"no keeper answers at {path} ({e.strerror}). Start one: `zeus keeper --socket {path}`."
        ) from e
    try:
        return channel.greet()
    except BaseException:
        channel.close()
        raise


def _take(channel: Channel, gpus: Sequence[Gpu], kind: str) -> Lease:
    try:
        return Lease(channel, gpus, kind)
    except BaseException:
        channel.close()
        raise


def _warn_once(text: str) -> None:
    """Once per process and text."""
    if text not in _said:
        _said.add(text)
        log.warning("%s", text)
