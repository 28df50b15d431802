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
import contextlib
import functools
import logging
import math
import os
import site
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from zeus import settings
from zeus.device import container, ranks
from zeus.device.gpu import Capability, Gpu, refuse_if_read_only
from zeus.device.keeper.notes import Notes
from zeus.device.keeper.policy import DEFAULT_GROUP, Allowed, Peer, group_name, policy_of, user_name
from zeus.device.keeper.protocol import LEASE_SECONDS, Channel, connect, pair
from zeus.device.virtual.machine import passed_on
from zeus.errors import DeviceError, InputError, KeeperLost, NoDevice, NotPermitted, Unsupported, ZeusError

log = logging.getLogger("zeus.device.keeper")
_warn_once = functools.cache(log.warning)  # of each text

DEFAULT_SOCKET = Path("/run/zeus/keeper.sock")
START_SECONDS = 60.0  # for the interpreter of a private keeper to start on a very busy machine
PRIVATE = "private"  # in place of a socket: start a private keeper, even if that is a risk


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
        self.kind = kind  # "private" or "system"
        self.is_left = False  # whether it was released, but the keeper did not confirm that limits are restored
        try:
            answer = channel.ask(
                LEASE_SECONDS, op="lease", gpus=[gpu.spec.uuid for gpu in gpus], job=settings.job_name()
            )
        except BaseException:
            channel.close()
            raise
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
        if not math.isfinite(watts):
            raise InputError(f"{watts} W is not a power limit. Give a number of watts.")
        return self._set(dict.fromkeys(uuids, float(watts)))

    def set_found(self) -> None:
        """Set on each GPU the limit found, and keep the lease. Raises like `set_limit`."""
        refuse_if_read_only("setting the power limits found")
        self._set(self.found)

    def _set(self, watts: dict[str, float]) -> dict[str, float]:
        answer = self._channel.ask(op="set", watts=watts)
        self.found = answer["found"]
        in_force: dict[str, float] = answer["limits"]
        return in_force

    def release(self) -> None:
        """Restore the limits and wait until that is done. May be called twice, or after the keeper died."""
        if not self._channel.is_mine:
            return
        with _ending:  # two threads may end it at once
            if self not in _leases:
                return
            _leases.discard(self)
        try:
            for result in self._channel.ask(op="release")["results"]:
                if result["ending"] in ("left", "failed"):
                    self.is_left = True
                    log.warning("%s", result["message"])
        except KeeperLost as e:
            self.is_left = True
            log.warning("While releasing the lease: %s", e)
            if self.kind == "private":
                _restart()
        finally:
            self._channel.close()
            if self.kind == "private":
                _reap(self._channel.keeper_pid)

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
        if (path := _route(gpus, socket)) is not None:
            return Lease(_greet(path), gpus, "system")
        if risk := _risk(gpus):
            _warn_once(f"ZEUS_KEEPER=private: {risk}")
        return Lease(_start_private(), gpus, "private")
    except ZeusError as e:
        observing = Observing(f"Power limits cannot be set: {e}")
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
    try:
        if (path := _route(gpus, socket)) is not None:
            found["socket"] = str(path)
            answer = _ask_status(path)
            return found | {"use": "system", "lent": answer["lent"], "policy": answer["policy"] or None}
        policy = policy_of(settings.HERE.policy_file())
        found |= {"lent": Notes.here().lent(), "risk": _risk(gpus), "policy": policy.text or None}
        return found | ({"why_not": policy.closed} if policy.closed else {"use": "private"})
    except ZeusError as e:
        return found | {"why_not": str(e)}


def _ask_status(path: Path, within: float | None = None, **more: Any) -> dict[str, Any]:
    channel = _greet(path)
    try:
        return channel.ask(within, op="status", **more)
    finally:
        channel.close()


def _route(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None) -> Path | None:
    """The socket of the keeper to use. None: start a private one.

    Raises:
        ZeusError: Limits can only be observed.
    """
    if not gpus:
        raise NoDevice("there is no GPU.")
    refuse_if_read_only("setting power limits")
    for gpu in gpus:
        if Capability.LIMITS not in gpu.spec.capabilities:
            raise Unsupported(f"GPU {gpu.index} ({gpu.spec.name}) has no power limit that can be set.")
        if gpu.spec.shared:
            raise Unsupported(f"GPU {gpu.index} ({gpu.spec.name}) is a slice of a shared card.")
    path = _system_socket(gpus, socket)
    if path is None:
        _check_private(gpus, is_risk_accepted=bool(socket or settings.keeper()))
    return path


def _system_socket(gpus: Sequence[Gpu], socket: str | os.PathLike[str] | None) -> Path | None:
    """The socket of the system keeper to use. None: there is none, or a private keeper is wanted."""
    chosen = socket or settings.keeper()
    if chosen:
        return None if str(chosen) == PRIVATE else Path(chosen)
    return DEFAULT_SOCKET if not are_virtual(gpus) and is_alive(DEFAULT_SOCKET) else None


def are_virtual(gpus: Sequence[Gpu]) -> bool:
    """Whether the system's keeper does not know these cards."""
    return all(gpu.spec.vendor == "virtual" for gpu in gpus)


def _risk(gpus: Sequence[Gpu]) -> str | None:
    """What a private keeper cannot guarantee here. Raises `DeviceError` if it has no folder for its notes."""
    folder = Notes.here().folder
    return None if are_virtual(gpus) else container.risk(folder)


def _check_private(gpus: Sequence[Gpu], is_risk_accepted: bool) -> None:
    """Raise `DeviceError` if this process may not start a private keeper."""
    if not are_virtual(gpus) and os.geteuid() != 0:
        raise NotPermitted(
            f"user {os.geteuid()} may not set them and no keeper runs on this machine. "
            "Ask an administrator to start `zeus keeper` (as a service: `zeus keeper --print-unit`), "
            "or run the training as root."
        )
    risk = _risk(gpus)
    if risk and not is_risk_accepted:
        raise NotPermitted(
            f"{risk} Run `zeus keeper` on the host and mount its folder into the container "
            "(docker run -v /run/zeus:/run/zeus), or accept the risk with ZEUS_KEEPER=private."
        )


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
            f"no keeper answers at {path} ({e.strerror or e}). Start one with `zeus keeper --socket {path}`."
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


def _start_private() -> Channel:
    """Start a keeper for this process alone and connect to it. It outlives us just long enough to restore the limits.

    It is not a child of this process, so killing a process tree does not kill it, and it leaves no zombie. It has its
    own session, so Ctrl-C does not reach it. The only thing that it inherits is one end of a socket.
    """
    ours, theirs = pair()
    channel = Channel(ours)
    command = [sys.executable, "-P", "-m", "zeus.device.keeper", "--fd", str(theirs.fileno())]
    try:
        with theirs:
            subprocess.run(  # it forks the keeper and exits
                command,
                check=False,
                timeout=START_SECONDS,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env=_environment(),
            )
        return channel.greet(START_SECONDS)
    except BaseException as e:
        channel.close()
        if isinstance(e, OSError | subprocess.TimeoutExpired):
            raise KeeperLost(f"a private keeper could not be started with {sys.executable}: {e}") from e
        raise


def _reap(pid: int) -> None:
    """Collect a private keeper that has ended. Needed only as a container's first process, which inherits orphans."""
    deadline = time.monotonic() + settings.time_limits().keeper_answer  # a suspended keeper does not end
    with contextlib.suppress(ChildProcessError):
        while os.getpid() == 1 and os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)


def _restart() -> None:
    """Start a keeper without a client. It restores what a killed keeper left behind, and then ends."""
    with contextlib.suppress(ZeusError):
        channel = _start_private()
        channel.close()
        _reap(channel.keeper_pid)


def _environment() -> dict[str, str]:
    """This process's environment, with absolute paths (the keeper runs in /) and without what only we need."""
    masks = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    own = (*masks, *ranks.PLACEMENTS, "NOTIFY_SOCKET", "PYTHONINSPECT")
    variables = settings.inherited(own) | passed_on()
    for name in ("ZEUS_KEEPER_STATE", "ZEUS_CONFIG"):
        if variables.get(name):
            variables[name] = str(Path(variables[name]).absolute())
    folders = [str(Path(p).absolute()) for p in variables.get("PYTHONPATH", "").split(os.pathsep) if p]
    package = str(Path(__file__).absolute().parents[3])
    if package not in (*folders, *site.getsitepackages(), site.getusersitepackages()):
        folders.insert(0, package)  # the keeper would not find Zeus otherwise
    if folders:
        variables["PYTHONPATH"] = os.pathsep.join(folders)
    return variables
