"""What is on this node: its GPUs, its CPU, the keeper and the store, as `zeus env` and `zeus doctor` report them.

The fields are those of `zeus env --json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zeus import settings
from zeus.cli.output import known
from zeus.device.gpu import Capability, Gpu
from zeus.errors import DeviceError, InputError, NotAllowed, StoreError, ZeusError
from zeus.store.check import StoreCause, check


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """A GPU, and whether this user can set its limit."""

    index: int
    uuid: str
    name: str
    vendor: str
    limit_watts: float | None
    min_watts: float | None
    max_watts: float | None
    default_watts: float | None
    slowdowns: list[str] | None  # why the driver holds the clocks down now; None: it does not report that
    capabilities: list[str]
    can_set_limit: bool
    why_not: str | None


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """The CPU's energy counters."""

    packages: list[str]
    readable: bool
    why_not: str | None
    locked: list[str]  # counters that only root may read


@dataclass(frozen=True, slots=True)
class KeeperFacts:
    """The keeper that a training would use."""

    use: str | None  # "system", or "private": each training starts its own. None: no keeper can be used
    socket: str | None  # where the system's keeper listens
    lent: list[str]  # the GPUs on lease
    why_not: str | None
    risk: str | None  # what the machine's owner has accepted
    policy: str | None  # in words
    dead: str | None  # the socket at which a keeper should answer, but none does
    left: list[str]  # the GPUs whose limit a dead keeper left changed; only root sees those of other users
    group: str | None  # whose members may use the socket; None: only root, or there is no socket


@dataclass(frozen=True, slots=True)
class Devices:
    """What the drivers and the keeper say."""

    gpus: list[GpuFacts]
    cpu: CpuFacts
    keeper: KeeperFacts


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Where jobs are kept, and whether a training can use that store."""

    url: str  # without its password
    kind: str | None  # "sqlite", "postgresql" or "service". None: this is no address of a store
    ok: bool
    why_not: str | None
    version: str | None  # of its tables, if they can be seen
    waiting: int  # reports that wait here to be delivered to it
    cause: StoreCause | None  # of `why_not`


def devices() -> Devices:
    """Ask the drivers and the keeper."""
    from zeus.device.cpu import counters_of
    from zeus.device.find import find

    gpus = find()
    keeper = _keeper(list(gpus.values()))
    cpus = counters_of(gpus.values())
    locked = [str(path) for path in cpus.locked]
    return Devices(
        [_gpu(index, gpu, keeper) for index, gpu in gpus.items()],
        CpuFacts(cpus.names, not cpus.why_not, cpus.why_not or None, locked),
        keeper,
    )


def _keeper(gpus: list[Gpu]) -> KeeperFacts:
    from zeus.device.keeper import status

    found = status(gpus)
    return KeeperFacts(
        **found,
        dead=_dead_socket(gpus) if gpus else None,
        left=_left_behind() if gpus else [],
        group=_group_of(found["socket"]),
    )


def _dead_socket(gpus: list[Gpu]) -> str | None:
    from zeus.device.keeper.lease import DEFAULT_SOCKET, PRIVATE, are_virtual, is_alive

    chosen = settings.keeper()
    if chosen == PRIVATE or (not chosen and are_virtual(gpus)):
        return None
    path = Path(chosen or DEFAULT_SOCKET)
    return str(path) if (chosen or path.exists()) and not is_alive(path) else None


def _left_behind() -> list[str]:
    from zeus.device.keeper.notes import Notes

    try:
        return Notes.here().left_behind()
    except (OSError, ZeusError):
        return []


def _group_of(socket: str | None) -> str | None:
    from zeus.device.keeper.policy import group_name

    try:
        gid = Path(socket).stat().st_gid if socket else 0
    except OSError:
        return None
    return group_name(gid) if gid else None


def _gpu(index: int, gpu: Gpu, keeper: KeeperFacts) -> GpuFacts:
    spec, limit, why_not = gpu.spec, None, keeper.why_not
    if Capability.LIMITS not in spec.capabilities:
        why_not = "this card has no power limit that can be read"
    else:
        try:
            limit = gpu.limit()
        except DeviceError as failed:
            why_not = str(failed)
    return GpuFacts(
        index=index,
        uuid=spec.uuid,
        name=spec.name,
        vendor=spec.vendor,
        limit_watts=limit,
        min_watts=known(spec.min_watts),
        max_watts=known(spec.max_watts),
        default_watts=known(spec.default_watts),
        slowdowns=_slowdowns(gpu),
        capabilities=sorted(c.value for c in spec.capabilities),
        can_set_limit=why_not is None,
        why_not=why_not,
    )


def _slowdowns(gpu: Gpu) -> list[str] | None:
    try:
        reasons: list[str] = gpu.slowdowns()  # type: ignore[attr-defined]  # beyond the port: only some drivers tell
    except (AttributeError, DeviceError):
        return None
    return reasons


def store() -> StoreFacts:
    """Look at the store without creating or writing anything."""
    found = check()
    why_not, cause, waiting = found.why_not, found.cause, 0
    if found.kind == "service":
        why_not, cause, waiting = _service(why_not, cause)
    elif found.kind is not None:
        from zeus.client.resilient.spool import Spool, default_folder
        from zeus.store.address import address_of, resolve

        address = address_of(resolve())
        waiting = len(Spool(default_folder(address), address).waiting())
    return StoreFacts(found.url, found.kind, why_not is None, why_not, found.version, waiting, cause)


def _service(why_not: str | None, cause: StoreCause | None) -> tuple[str | None, StoreCause | None, int]:
    """Why a training could not use the service, which answers unless a reason is given, and what waits for it."""
    from zeus.client.connection import Connection
    from zeus.client.http import HttpJobs
    from zeus.client.resilient.outbox import Outbox
    from zeus.store.address import resolve

    try:
        service = Connection(resolve())
    except InputError as wrong:
        return str(wrong), StoreCause.TOKEN, 0
    outbox = Outbox(HttpJobs(service))
    if why_not is None:
        try:
            service.check()
        except NotAllowed as wrong:
            why_not, cause = str(wrong), StoreCause.TOKEN
        except (InputError, StoreError) as wrong:
            why_not, cause = str(wrong), StoreCause.AWAY
    outbox.close()
    return why_not, cause, len(outbox.spool.waiting())
