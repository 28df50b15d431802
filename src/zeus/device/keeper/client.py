"""Takes a lease on power limits. `lend(gpus)` returns a `Lease`, or `Observing` with the reason why not.

    match lend(gpus):
        case Lease() as lease:
            lease.set_limit(150)
        case Observing(reason):
            ...

The first rule that applies decides:

1. With ZEUS_READ_ONLY=1, only observe.
2. Use a system keeper: the one given as an argument or by ZEUS_KEEPER, or one at the usual socket.
3. Start a private keeper, if this process may set limits itself (as root, or on virtual cards). It must also be safe,
   or ZEUS_KEEPER=private must ask for it.
4. Otherwise only observe, and log once how to change that.
"""

from __future__ import annotations

import atexit
import functools
import logging
import math
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from zeus import settings
from zeus.device import container
from zeus.device.clock import clock_of
from zeus.device.gpu import Capability, Gpu, refuse_if_read_only
from zeus.device.keeper import protocol
from zeus.device.keeper.notes import Notes
from zeus.device.keeper.policy import DEFAULT_GROUP, Allowed, Peer, group_name, policy_of, user_name
from zeus.device.keeper.private import reap, recover, start_private
from zeus.device.keeper.protocol import LEASE_SECONDS, Channel, connect
from zeus.errors import DeviceError, InputError, KeeperLost, ReadOnly, ZeusError

log = logging.getLogger("zeus.device.keeper")

DEFAULT_SOCKET = Path("/run/zeus/keeper.sock")
PRIVATE = "private"  # in place of a socket: start a private keeper, even if that is a risk
_changes: list[float] = []  # when this process set a limit, by its GPUs' clock


def limit_changes() -> int:
    """How often this process has set a limit. A cheap way to see whether one changed between two steps."""
    return len(_changes)


def changed_at(since: int) -> list[float]:
    """When this process set a limit, by its GPUs' clock, without the first `since` times."""
    return _changes[since:]


@dataclass(frozen=True, slots=True)
class Observing:
    """No limit can be set. `reason` says why, and what to do about it."""

    reason: str


class Lease:
    """Exclusive use of the power limits of some GPUs. The limits are restored when it ends, however it ends.

    Any thread may use it. It belongs to the process that took it: a forked child cannot set limits through it, and
    releasing it there does nothing.
    """

    def __init__(self, channel: Channel, gpus: Sequence[Gpu], kind: str) -> None:
        self._channel = channel
        self._clock = clock_of(gpus[0])
        self.kind = kind  # "private" or "system"
        self.is_left = False  # whether it was released, but the keeper did not confirm that limits are restored
        answer = channel.ask(LEASE_SECONDS, op="lease", gpus=[gpu.spec.uuid for gpu in gpus], job=settings.job_name())
        self.found: dict[str, float] = answer["found"]  # watts by UUID, restored at the end
        _leases.add(self)

    def set_limit(self, watts: float, gpu: Gpu | str | None = None) -> dict[str, float]:
        """Set the limit of one GPU, or of all GPUs of the lease: all or none. Returns the limits now in force, by UUID.

        Raises:
            InputError: The limit is above the one found, or outside the card's range.
            KeeperLost: The lease has ended.
        """
        refuse_if_read_only(f"setting a power limit of {watts:g} W")
        uuids = list(self.found) if gpu is None else [gpu if isinstance(gpu, str) else gpu.spec.uuid]
        try:
            limits = {uuid: float(watts) for uuid in uuids}
            protocol.encode(limits)
        except ValueError as e:
            raise InputError(f"{watts} W is not a power limit. Give a number of watts.") from e
        answer = self._channel.ask(op="set", watts=limits)
        self.found = answer["found"]
        in_force: dict[str, float] = answer["limits"]
        _changes.append(self._clock.now())
        return in_force

    def release(self) -> None:
        """Restore the limits and wait until that is done. May be called twice, or after the keeper died."""
        if not self._channel.is_mine:
            return
        with _ending:  # two threads may end it at once
            if self not in _leases:
                return
            _leases.discard(self)
        _changes.append(self._clock.now())
        try:
            for result in self._channel.ask(op="release")["returned"]:
                if result["ending"] in ("left", "failed"):
                    self.is_left = True
                    log.warning("%s", result["message"])
        except KeeperLost as e:
            self.is_left = True
            log.warning("While releasing the lease: %s", e)
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
            channel.close()  # the keeper notices; there is no need to wait


_leases: weakref.WeakSet[Lease] = weakref.WeakSet()
_ending = threading.Lock()


def found_limits() -> dict[str, float]:
    """The limits in force before this process set any, in watts by UUID."""
    return {uuid: watts for lease in _leases for uuid, watts in lease.found.items()}


@atexit.register
def _release_all() -> None:
    for lease in list(_leases):
        lease.release()


def lend(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None = None) -> Lease | Observing:
    """Take a lease on these GPUs from the system's keeper or a private one.

    Returns `Observing` if there is an obstacle, such as missing rights or another lease: training can go on without.

    Raises:
        InputError: There are no GPUs.
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


def permitted(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None = None) -> tuple[float, float]:
    """The lowest and the highest limit that this machine's policy lets us set on all of these GPUs, in watts.

    Without a policy, or if no keeper can be asked, there is no bound.
    """
    ranges: list[tuple[float, float]] = []
    try:
        if (path := _system_socket(gpus, socket)) is not None:
            asked = [gpu.spec.uuid for gpu in gpus]
            ranges = list(_ask_status(path, LEASE_SECONDS, gpus=asked).get("ranges", {}).values())
        elif isinstance(allowed := policy_of(settings.HERE.policy_file()).rule_for(Peer.here()), Allowed):
            ranges = [allowed.range_on(gpu.spec) for gpu in gpus]
    except ZeusError as e:
        log.info("The policy for power limits is not known: %s", e)
    return max((low for low, _ in ranges), default=0.0), min((high for _, high in ranges), default=math.inf)


def status(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Which keeper `lend` would use. Takes no lease."""
    found: dict[str, Any] = {"use": None, "socket": None, "lent": [], "why_not": None, "risk": None, "policy": None}
    if not gpus:
        return found | {"why_not": "there is no GPU."}
    match _route(gpus, socket):
        case Observing(reason):
            return found | {"why_not": reason}
        case _Private(risk):
            policy = policy_of(settings.HERE.policy_file())
            found |= {"use": None if policy.closed else "private", "risk": risk, "policy": policy.text or None}
            return found | {"lent": Notes.here().lent(), "why_not": policy.closed or None}
        case Path() as path:
            found |= {"socket": str(path)}
            try:
                answer = _ask_status(path)
                return found | {"use": "system", "lent": answer["lent"], "policy": answer.get("policy") or None}
            except ZeusError as e:
                return found | {"why_not": str(e)}


def _ask_status(path: Path, within: float | None = None, **more: Any) -> dict[str, Any]:
    channel = _greet(path)
    try:
        return channel.ask(within, op="status", **more)
    finally:
        channel.close()


@dataclass(frozen=True, slots=True)
class _Private:
    """Use a private keeper. `risk` says what it cannot guarantee here."""

    risk: str | None = None


def _route(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None) -> Path | _Private | Observing:
    """Which keeper to use: the one at this path, a private one, or none."""
    if obstacle := _obstacle(gpus):
        return Observing(obstacle)
    path = _system_socket(gpus, socket)
    return path or _private(are_virtual(gpus), risk_accepted=bool(socket or settings.keeper()))


def _system_socket(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None) -> Path | None:
    """The socket of the system keeper to use. None: there is none, or a private keeper is wanted."""
    chosen = socket or settings.keeper()
    if chosen:
        return None if str(chosen) == PRIVATE else Path(chosen)
    return DEFAULT_SOCKET if not are_virtual(gpus) and is_alive(DEFAULT_SOCKET) else None


def are_virtual(gpus: Sequence[Gpu]) -> bool:
    """Whether the system's keeper does not know these cards."""
    return all(gpu.spec.vendor == "virtual" for gpu in gpus)


def _private(virtual: bool, risk_accepted: bool) -> _Private | Observing:
    """A private keeper, if it has a folder. For real cards: if this user may start one and the risk is accepted."""
    if not virtual and os.geteuid() != 0:
        return Observing(
            f"Power limits are only observed: user {os.geteuid()} may not set them and no keeper runs on this machine. "
            "Ask an administrator to start `zeus keeper` (as a service: `zeus keeper --print-unit`), "
            "or run the training as root."
        )
    try:
        folder = Notes.here().folder
    except ZeusError as e:
        return Observing(f"Power limits are only observed: {e}")
    except OSError as e:
        return Observing(
            f"Power limits are only observed: the keeper's folder cannot be made ({e}). "
            "Set ZEUS_KEEPER_STATE to another folder."
        )
    risk = None if virtual else container.risk(folder)
    if risk and not risk_accepted:
        return Observing(
            f"Power limits are only observed: {risk} Run `zeus keeper` on the host and mount its folder into the "
            "container (docker run -v /run/zeus:/run/zeus), or accept the risk with ZEUS_KEEPER=private."
        )
    return _Private(risk)


def _obstacle(gpus: Sequence[Gpu]) -> str:
    """Why no keeper can help. Empty if nothing is in the way."""
    try:
        refuse_if_read_only("setting power limits")
    except ReadOnly as e:
        return str(e)
    for gpu in gpus:
        if Capability.LIMITS not in gpu.spec.capabilities:
            return f"GPU {gpu.index} ({gpu.spec.name}) has no power limit that can be set. Zeus only observes it."
        if gpu.spec.shared:
            return f"GPU {gpu.index} ({gpu.spec.name}) is a slice of a shared card. Zeus only observes it."
    return ""


def is_alive(path: Path) -> bool:
    """Whether a keeper listens on this socket."""
    try:
        connect(path).close()
    except PermissionError:  # a keeper runs, but refuses this user
        return True
    except OSError:
        return False
    return True


def _greet(path: Path) -> Channel:
    try:
        channel = Channel(connect(path))
    except PermissionError as e:
        raise DeviceError(f"user {os.geteuid()} may not use the keeper at {path}. {_admission(path)}") from e
    except OSError as e:
        raise DeviceError(
            f"no keeper answers at {path} ({e.strerror}). Start one with `zeus keeper --socket {path}`."
        ) from e
    try:
        return channel.greet()
    except BaseException:
        channel.close()
        raise


def _admission(path: Path) -> str:
    """How a user gets access to the keeper at this path."""
    try:
        gid = path.stat().st_gid
    except OSError:  # nor may this user see the folder
        return f"Ask an administrator to add you to its group: `ls -l {path}` shows the group. Then log in again."
    user = user_name(os.geteuid())
    if gid == 0:
        return (
            f"It serves only root. Ask an administrator to run `groupadd --system {DEFAULT_GROUP}` and `usermod -aG "
            f"{DEFAULT_GROUP} {user}`, and to restart the keeper. Then log in again."
        )
    return f"Ask an administrator to run `usermod -aG {group_name(gid)} {user}`. Then log in again."


def _take(channel: Channel, gpus: Sequence[Gpu], kind: str) -> Lease:
    try:
        return Lease(channel, gpus, kind)
    except BaseException:
        channel.close()
        raise


@functools.cache
def _warn_once(text: str) -> None:
    log.warning("%s", text)
