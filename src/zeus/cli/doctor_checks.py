"""What `zeus doctor` concludes from the facts about a node: the state of each part of it, and how to mend it.

Everything is decided from values, so that each broken machine can be a test of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit

from zeus.cli.format import plural, watts
from zeus.cli.node import Devices, GpuFacts, KeeperFacts, StoreFacts
from zeus.errors import DeviceSilent
from zeus.settings import config_file
from zeus.store.check import StoreCause
from zeus_energy import Damage, install_command

RELEASED = 1_767_225_600.0  # 2026-01-01: no clock that is right shows an earlier time
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CONFIG = config_file.SYSTEM


class Health(StrEnum):
    """How a part of the node is."""

    OK = "ok"
    BROKEN = "broken"
    NOT_APPLICABLE = "not applicable"


class Check(NamedTuple):
    """One line of the page."""

    name: str
    state: Health
    message: str
    command: str | None = None  # mends it


class Mistake(NamedTuple):
    """What is wrong with the configuration, and the command that mends it."""

    text: str
    command: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was found on the node."""

    devices: Devices | Exception  # or why they could not be asked
    store: StoreFacts | Exception
    damage: Damage | None = None  # what is wrong with the files of this package
    mistakes: tuple[Mistake, ...] = ()  # in the configuration
    is_closed: bool = False  # the keeper lends nothing until the policy in the configuration is mended
    is_root: bool = True
    user: str = "root"
    has_systemd: bool = False
    has_unit: bool = False  # of the keeper
    has_service_unit: bool = False
    in_container: bool = False
    has_card: bool = True  # a card of NVIDIA or AMD is plugged in, whatever the drivers say
    masked: str = ""  # the variable that hides all GPUs
    why_none: str = ""  # what the drivers say if they find no card
    installer: str = "apt-get install"
    read_only: str = ""  # why Zeus must not change power limits
    newest: str = ""  # version of a store that this Zeus knows
    floors: Mapping[str, float] = field(default_factory=dict)  # of the policy, in watts by UUID
    ceilings: Mapping[str, float] = field(default_factory=dict)
    now: float = RELEASED  # in seconds since 1970

    def as_root(self, command: str) -> str:
        """The command, for this user."""
        return command if self.is_root else f"sudo {command}"


def examine(facts: NodeFacts) -> list[Check]:
    """All checks, in the order in which to mend what is broken."""
    checks = [_installation(facts), _configuration(facts), _clock(facts), _driver(facts)]
    found = facts.devices
    if isinstance(found, Devices) and found.gpus:
        checks += [
            _energy(facts, found.gpus),
            _keeper(facts, found.keeper),
            _limits(facts, found),
            *_left_limits(facts, found),
            _slowdowns(found.gpus),
        ]
    else:
        parts = ("energy", "keeper", "limits", "left limits", "slowdowns")
        checks += [Check(name, Health.NOT_APPLICABLE, "There is no GPU.") for name in parts]
    return [*checks, _cpu(facts), _store(facts)]


def _installation(facts: NodeFacts) -> Check:
    if facts.damage is None:
        return Check("installation", Health.OK, "The files of Zeus are its own.")
    return Check("installation", Health.BROKEN, f"{facts.damage}.", " && ".join(facts.damage.commands))


def _configuration(facts: NodeFacts) -> Check:
    if not facts.mistakes:
        return Check("configuration", Health.OK, "The configuration files are valid, or there are none.")
    text = " ".join(one.text for one in facts.mistakes)
    return Check("configuration", Health.BROKEN, text, facts.as_root(facts.mistakes[0].command))


def _clock(facts: NodeFacts) -> Check:
    if facts.now >= RELEASED:
        return Check("clock", Health.OK, "The clock is plausible.")
    return Check(
        "clock",
        Health.BROKEN,
        "The clock of this machine shows a time before this Zeus was written, so times in reports are wrong.",
        facts.as_root("timedatectl set-ntp true"),
    )


def _driver(facts: NodeFacts) -> Check:
    match facts.devices:
        case DeviceSilent() | TimeoutError():
            return Check("driver", Health.BROKEN, str(facts.devices), facts.as_root("reboot"))
        case Exception() as failed:
            return Check("driver", Health.BROKEN, str(failed) or type(failed).__name__, _driver_command(facts))
        case Devices(gpus=[]):
            return Check("driver", Health.BROKEN, _no_gpu(facts), _driver_command(facts))
        case Devices(gpus=gpus):
            names = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus)
            return Check("driver", Health.OK, f"{plural(len(gpus), 'GPU')} found ({names}).")


def _no_gpu(facts: NodeFacts) -> str:
    if facts.masked:
        return f"No GPU is visible, because {facts.masked} is set but empty."
    virtual = "" if facts.has_card else "No card of NVIDIA or AMD is plugged in. A virtual GPU shows how Zeus works."
    return " ".join(part for part in ("No GPU was found.", virtual, facts.why_none) if part)


def _driver_command(facts: NodeFacts) -> str:
    if facts.masked:
        return f"unset {facts.masked}"
    if not facts.has_card:
        return "export ZEUS_GPU=virtual:v100"
    if facts.in_container:
        return "docker run --gpus all IMAGE zeus doctor"
    return facts.as_root(f"{facts.installer} nvidia-driver")


def _energy(facts: NodeFacts, gpus: list[GpuFacts]) -> Check:
    mute = [gpu for gpu in gpus if not {"counter", "power", "samples"} & set(gpu.capabilities)]
    if not mute:
        return Check("energy", Health.OK, "The energy of every GPU can be read.")
    text = f"{_named(mute)} can report neither energy nor power. A newer driver may."
    return Check("energy", Health.BROKEN, text, facts.as_root(f"{facts.installer} nvidia-driver"))


def _keeper(facts: NodeFacts, keeper: KeeperFacts) -> Check:
    if keeper.dead:
        text = f"No keeper answers at {keeper.dead}, so trainings cannot set power limits through it."
        return Check("keeper", Health.BROKEN, text, _keeper_command(facts, keeper.dead))
    policy = f" Its policy: {keeper.policy}." if keeper.policy else ""
    match keeper.use:
        case "system":
            return Check("keeper", Health.OK, f"The keeper at {keeper.socket} answers.{policy}")
        case "private":
            risk = f" Accepted risk: {keeper.risk}" if keeper.risk else ""
            return Check("keeper", Health.OK, f"Each training starts a keeper of its own.{policy}{risk}")
        case _ if keeper.socket:
            return Check("keeper", Health.BROKEN, str(keeper.why_not), _refused_command(facts, keeper.socket, keeper))
        case _:
            return Check("keeper", Health.NOT_APPLICABLE, "No keeper is used on this node.")


def _keeper_command(facts: NodeFacts, socket: str) -> str:
    if facts.has_systemd and facts.has_unit:
        return facts.as_root("systemctl restart zeus-keeper")
    return facts.as_root(f"zeus keeper --socket {socket}")


def _refused_command(facts: NodeFacts, socket: str, keeper: KeeperFacts) -> str:
    """For a keeper that answers, but not to this user."""
    if facts.is_closed:
        return facts.as_root(f"editor {CONFIG}")
    join = f"usermod -aG {keeper.group or 'zeus'} {facts.user}"
    if keeper.group:
        return facts.as_root(join)
    restart = _keeper_command(facts, socket).removeprefix("sudo ")
    return facts.as_root(f"sh -c 'groupadd --system zeus && {join} && {restart}'")


def _limits(facts: NodeFacts, found: Devices) -> Check:
    name = "limits"
    if facts.read_only:
        return Check(name, Health.NOT_APPLICABLE, f"Zeus changes no power limit: {facts.read_only}")
    for gpu in found.gpus:
        floor = facts.floors.get(gpu.uuid, -math.inf)
        if floor >= (gpu.max_watts or math.inf):
            text = (
                f"{_named([gpu])}: the policy's floor of {watts(floor)} leaves no limit below the card's highest, "
                f"{watts(gpu.max_watts)}."
            )
            return Check(name, Health.BROKEN, text, f"{facts.as_root('editor')} {CONFIG}")
    locked = [gpu for gpu in found.gpus if not gpu.can_set_limit]
    if not locked:
        return Check(name, Health.OK, "Power limits can be set.")
    if all("limits" not in gpu.capabilities for gpu in locked):
        return Check(name, Health.NOT_APPLICABLE, f"{_named(locked)}: the card has no power limit that can be set.")
    return Check(name, Health.BROKEN, f"{_named(locked)}: {locked[0].why_not}", _limits_command(facts, found.keeper))


def _limits_command(facts: NodeFacts, keeper: KeeperFacts) -> str:
    if keeper.dead:
        return _keeper_command(facts, keeper.dead)
    if keeper.socket:
        return _refused_command(facts, keeper.socket, keeper)
    if facts.in_container:
        return "docker run --gpus all -v /run/zeus:/run/zeus IMAGE zeus doctor"
    if facts.has_systemd:
        unit = "" if facts.has_unit else "zeus keeper --print-unit > /etc/systemd/system/zeus-keeper.service && "
        return facts.as_root(f"sh -c '{unit}systemctl enable --now zeus-keeper'")
    return facts.as_root("zeus keeper")


def _left_limits(facts: NodeFacts, found: Devices) -> Iterator[Check]:
    """Limits that are lower than they should be, although no training holds the card."""
    name, keeper = "left limits", found.keeper
    low = [gpu for gpu in found.gpus if _is_low(gpu, facts) and gpu.uuid not in keeper.lent]
    left = [gpu for gpu in found.gpus if gpu.uuid in keeper.left]
    if left:
        limits = ", ".join("an unknown limit" if gpu.limit_watts is None else watts(gpu.limit_watts) for gpu in left)
        text = f"{_named(left)}: a keeper died and left {limits} in force. No training holds it."
        yield Check(name, Health.BROKEN, text, facts.as_root("zeus restore"))
    for gpu in low:
        if gpu not in left:
            yield Check(
                name,
                Health.BROKEN,
                f"{_named([gpu])} is throttled: its limit is {watts(gpu.limit_watts)}, its default "
                f"{watts(gpu.default_watts)}, and no training holds it. If that is intended, set `ceiling` in "
                f"[keeper] of {CONFIG}.",
                _raise_command(gpu, facts, keeper),
            )
    if not low and not left:
        yield Check(name, Health.OK, "No limit was left lowered.")


def _is_low(gpu: GpuFacts, facts: NodeFacts) -> bool:
    if gpu.limit_watts is None or gpu.default_watts is None:
        return False
    intended = min(gpu.default_watts, facts.ceilings.get(gpu.uuid, gpu.default_watts))
    return gpu.limit_watts < intended - 1  # drivers round to whole watts


def _raise_command(gpu: GpuFacts, facts: NodeFacts, keeper: KeeperFacts) -> str:
    if not facts.is_root and keeper.use != "system":  # root's notes cannot be seen
        return "sudo zeus restore"
    match gpu.vendor:
        case "nvidia":
            return facts.as_root(f"nvidia-smi -i {gpu.uuid} -pl {gpu.default_watts:g}")
        case "amd":
            return facts.as_root(f"amd-smi set --gpu {gpu.index} --power-cap {gpu.default_watts:g}")
        case _:
            return "zeus restore"


def _slowdowns(gpus: list[GpuFacts]) -> Check:
    name = "slowdowns"
    if all(gpu.slowdowns is None for gpu in gpus):
        return Check(name, Health.NOT_APPLICABLE, "The driver does not report whether it holds clocks down.")
    why = "; ".join(f"{_named([gpu])}: {', '.join(gpu.slowdowns)}" for gpu in gpus if gpu.slowdowns)
    if not why:
        return Check(name, Health.OK, "No GPU is slowed down by heat or by its power supply.")
    return Check(
        name,
        Health.BROKEN,
        f"The driver slows GPUs down. {why}. Energy and time measured meanwhile are not those of a healthy card. Check "
        "its cooling and its power supply.",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
    )


def _cpu(facts: NodeFacts) -> Check:
    if isinstance(facts.devices, Exception):
        return Check("cpu", Health.NOT_APPLICABLE, "It was not asked, because the driver did not answer.")
    cpu = facts.devices.cpu
    if cpu.readable:
        return Check("cpu", Health.OK, f"CPU energy can be read ({', '.join(cpu.packages)}).")
    command = f"sudo chmod o+r {' '.join(cpu.locked)}" if cpu.locked else None
    return Check("cpu", Health.NOT_APPLICABLE, f"{cpu.why_not} Only jobs that count the CPU need it.", command)


def _store(facts: NodeFacts) -> Check:
    store = facts.store
    if isinstance(store, Exception):
        return Check("store", Health.BROKEN, str(store) or type(store).__name__, "zeus env")
    waits = f" {plural(store.waiting, 'report')} will be delivered when it is next used." if store.waiting else ""
    if not store.ok:
        return Check("store", Health.BROKEN, f"{store.why_not}{waits}", _store_command(store, facts))
    if store.version is not None and facts.newest and store.version > facts.newest:
        text = f"{store.url} has version {store.version}, but this Zeus knows versions up to {facts.newest}."
        return Check("store", Health.BROKEN, text, f"{install_command()} --upgrade")
    version = f", version {store.version}" if store.version else ""
    return Check("store", Health.OK, f"{store.url} can be used ({store.kind}{version}).{waits}")


def _store_command(store: StoreFacts, facts: NodeFacts) -> str:
    path = store.url.removeprefix("sqlite:///")
    host, port = _place(store.url)
    there = "" if host in ("", *LOOPBACK) else f"ssh {host} "
    match store.kind, store.cause:
        case "sqlite", StoreCause.PERMISSION:
            command = f"sudo chown {facts.user} {path}"
        case "sqlite", StoreCause.FOLDER:
            command = f"sudo install -d -o {facts.user} {path.rpartition('/')[0]}"
        case "sqlite", _:
            command = f"mv {path} {path}.broken"
        case "service", StoreCause.TOKEN:
            command = f"{there}zeus token create {facts.user}"
        case "service", _ if there:
            command = f"{there}sudo systemctl restart zeus-serve"
        case "service", _ if facts.has_systemd and facts.has_service_unit:
            command = facts.as_root("systemctl restart zeus-serve")
        case "service", _:
            command = f"zeus serve --port {port or 80}"
        case "postgresql", _:
            command = (
                f"{there}sudo systemctl restart postgresql" if there else facts.as_root("service postgresql restart")
            )
        case _:
            command = "zeus env"
    return command


def _place(url: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port
    except ValueError:
        return "", None


def _named(gpus: Iterable[GpuFacts]) -> str:
    return ", ".join(f"GPU {gpu.index} ({gpu.name})" for gpu in gpus)
