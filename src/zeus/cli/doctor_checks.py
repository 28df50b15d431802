"""What `zeus doctor` concludes from what `zeus env` found: the state of each part of a node, and how to mend it.

Everything is decided from values, so that each broken machine can be a test of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from zeus_energy import install_command

RELEASED = 1_767_225_600.0  # 2026-01-01: no clock that is right shows an earlier time
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Health(StrEnum):
    """How a part of the node is."""

    OK = "ok"
    BROKEN = "broken"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the page."""

    name: str
    state: Health
    message: str
    command: str | None = None  # mends it

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "state": str(self.state), "message": self.message, "command": self.command}


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What was found on the node. A part that could not be asked is an error message in place of its report.

    Args:
        devices: The GPUs, the CPU and the keeper, as in `zeus env --json`.
        store: The store, as in `zeus env --json`.
        damage: What is wrong with the files of this package. None if nothing is.
        mistakes: What is wrong with the configuration files.
        is_root: Whether this user is root.
        user: This user's name.
        has_systemd: Whether services are run by systemd.
        has_unit: Whether systemd knows a unit for the keeper.
        has_service_unit: Whether systemd knows a unit for the service.
        container: Why this is a container. None if it is not.
        masked: The variables that hide all GPUs, in words. Empty if none does.
        installer: The command that installs a package on this machine.
        read_only: Why Zeus must not change power limits. Empty if it may.
        newest: The newest version of a store that this Zeus knows.
        floors: The policy's floor on each card, in watts by UUID.
        ceilings: The policy's ceiling on each card, in watts by UUID.
        now: The time, in seconds since 1970.
    """

    devices: Mapping[str, Any] | str
    store: Mapping[str, Any] | str
    damage: str | None = None
    mistakes: tuple[str, ...] = ()
    is_root: bool = True
    user: str = "root"
    has_systemd: bool = False
    has_unit: bool = False
    has_service_unit: bool = False
    container: str | None = None
    masked: str = ""
    installer: str = "apt-get install"
    read_only: str = ""
    newest: str = ""
    floors: Mapping[str, float] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)
    now: float = RELEASED

    def as_root(self, command: str) -> str:
        """The command, for this user."""
        return command if self.is_root else f"sudo {command}"

    @property
    def gpus(self) -> list[dict[str, Any]]:
        return [] if isinstance(self.devices, str) else list(self.devices["gpus"])

    @property
    def keeper(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = {} if isinstance(self.devices, str) else self.devices["keeper"]
        return found


def examine(facts: NodeFacts) -> list[Check]:
    """All checks, in the order in which to mend what is broken."""
    return [
        _installation(facts),
        _configuration(facts),
        _clock(facts),
        _driver(facts),
        _energy(facts),
        _keeper(facts),
        _limits(facts),
        *_left_limits(facts),
        _slowdowns(facts),
        _cpu(facts),
        _store(facts),
    ]


def _installation(facts: NodeFacts) -> Check:
    if facts.damage is None:
        return Check("installation", Health.OK, "The files of Zeus are its own.")
    return Check("installation", Health.BROKEN, f"{facts.damage}.", " && ".join(re.findall("`([^`]+)`", facts.damage)))


def _configuration(facts: NodeFacts) -> Check:
    name = "configuration"
    if not facts.mistakes:
        return Check(name, Health.OK, "The configuration files are valid, or there are none.")
    text = " ".join(facts.mistakes)
    path = re.split(r"[,:]", facts.mistakes[0])[0]
    command = _command_in(facts.mistakes[0])
    return Check(name, Health.BROKEN, text, facts.as_root(command) if command else f"{facts.as_root('editor')} {path}")


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
    if isinstance(facts.devices, str):
        if "has not answered" in facts.devices or "did not answer" in facts.devices:
            return Check("driver", Health.BROKEN, facts.devices, facts.as_root("reboot"))
        return Check("driver", Health.BROKEN, facts.devices, _driver_command(facts))
    if not facts.gpus:
        return Check("driver", Health.BROKEN, _no_gpu(facts), _driver_command(facts))
    names = ", ".join(f"{gpu['index']}: {gpu['name']}" for gpu in facts.gpus)
    return Check("driver", Health.OK, f"{_count(len(facts.gpus), 'GPU')} found ({names}).")


def _no_gpu(facts: NodeFacts) -> str:
    if facts.masked:
        return f"No GPU is visible, because {facts.masked} is set but empty."
    return f"No GPU was found. {'' if isinstance(facts.devices, str) else facts.devices.get('why_none', '')}"


def _driver_command(facts: NodeFacts) -> str:
    if facts.masked:
        return f"unset {facts.masked}"
    if facts.container:
        return "docker run --gpus all IMAGE zeus doctor"
    return facts.as_root(f"{facts.installer} nvidia-driver")


def _energy(facts: NodeFacts) -> Check:
    if not facts.gpus:
        return Check("energy", Health.NOT_APPLICABLE, "There is no GPU to measure.")
    mute = [gpu for gpu in facts.gpus if not {"counter", "power", "samples"} & set(gpu["capabilities"])]
    if mute:
        return Check(
            "energy",
            Health.BROKEN,
            f"{_named(mute)} can report neither energy nor power. A newer driver may.",
            facts.as_root(f"{facts.installer} nvidia-driver"),
        )
    return Check("energy", Health.OK, "The energy of every GPU can be read.")


def _keeper(facts: NodeFacts) -> Check:
    if not facts.gpus:
        return Check("keeper", Health.NOT_APPLICABLE, "There is no GPU whose limits it could keep.")
    keeper = facts.keeper
    if keeper["dead"]:
        return Check(
            "keeper",
            Health.BROKEN,
            f"No keeper answers at {keeper['dead']}, so trainings cannot set power limits through it.",
            _keeper_command(facts, keeper["dead"]),
        )
    policy = f" Its policy: {keeper['policy']}." if keeper["policy"] else ""
    match keeper["use"]:
        case "system":
            return Check("keeper", Health.OK, f"The keeper at {keeper['socket']} answers.{policy}")
        case "private":
            risk = f" Accepted risk: {keeper['risk']}" if keeper["risk"] else ""
            return Check("keeper", Health.OK, f"Each training starts a keeper of its own.{policy}{risk}")
        case _ if keeper["socket"]:
            return Check("keeper", Health.BROKEN, keeper["why_not"], _refused_command(facts))
        case _:
            return Check("keeper", Health.NOT_APPLICABLE, "No keeper is used on this node.")


def _keeper_command(facts: NodeFacts, socket: str) -> str:
    if facts.has_systemd and facts.has_unit:
        return facts.as_root("systemctl restart zeus-keeper")
    return facts.as_root(f"zeus keeper --socket {socket}")


def _refused_command(facts: NodeFacts) -> str:
    """For a keeper that answers, but not to this user."""
    reason = str(facts.keeper["why_not"])
    if "policy is mended" in reason:
        return facts.as_root("editor /etc/zeus/config.toml")
    group = re.search(r"usermod -aG (\S+)", reason)
    join = f"usermod -aG {group[1] if group else 'zeus'} {facts.user}"
    if "groupadd" not in reason:
        return facts.as_root(join)
    restart = _keeper_command(facts, facts.keeper["socket"])
    return facts.as_root(f"sh -c 'groupadd --system zeus && {join} && {restart.removeprefix('sudo ')}'")


def _limits(facts: NodeFacts) -> Check:
    name = "limits"
    if not facts.gpus:
        return Check(name, Health.NOT_APPLICABLE, "There is no GPU whose limit could be set.")
    if facts.read_only:
        return Check(name, Health.NOT_APPLICABLE, f"Zeus changes no power limit: {facts.read_only}")
    locked = [gpu for gpu in facts.gpus if not gpu["can_set_limit"]]
    stuck = [gpu for gpu in facts.gpus if facts.floors.get(gpu["uuid"], -math.inf) >= (gpu["max_watts"] or math.inf)]
    if stuck:
        floor, top = facts.floors[stuck[0]["uuid"]], stuck[0]["max_watts"]
        text = (
            f"{_named(stuck)}: the policy's floor of {floor:g} W leaves no limit below the card's highest, {top:g} W."
        )
        return Check(name, Health.BROKEN, text, f"{facts.as_root('editor')} /etc/zeus/config.toml")
    if not locked:
        return Check(name, Health.OK, "Power limits can be set.")
    if all("limits" not in gpu["capabilities"] for gpu in locked):
        return Check(name, Health.NOT_APPLICABLE, f"{_named(locked)}: the card has no power limit that can be set.")
    return Check(name, Health.BROKEN, f"{_named(locked)}: {locked[0]['why_not']}", _limits_command(facts))


def _limits_command(facts: NodeFacts) -> str:
    keeper = facts.keeper
    if keeper["dead"]:
        return _keeper_command(facts, keeper["dead"])
    if keeper["socket"]:
        return _refused_command(facts)
    if facts.container:
        return "docker run --gpus all -v /run/zeus:/run/zeus IMAGE zeus doctor"
    if facts.has_systemd:
        unit = "" if facts.has_unit else "zeus keeper --print-unit > /etc/systemd/system/zeus-keeper.service && "
        return facts.as_root(f"sh -c '{unit}systemctl enable --now zeus-keeper'")
    return facts.as_root("zeus keeper")


def _left_limits(facts: NodeFacts) -> Iterator[Check]:
    """Limits that are lower than they should be, although no training holds the card."""
    name, keeper = "left limits", facts.keeper
    if not facts.gpus:
        yield Check(name, Health.NOT_APPLICABLE, "There is no GPU.")
        return
    low = [gpu for gpu in facts.gpus if _is_low(gpu, facts) and gpu["uuid"] not in keeper["lent"]]
    left = [gpu for gpu in facts.gpus if gpu["uuid"] in keeper["left"]]
    if left:
        yield Check(
            name,
            Health.BROKEN,
            f"{_named(left)}: a keeper died and left {_watts(left)} in force. No training holds it.",
            facts.as_root("zeus restore"),
        )
    for gpu in low:
        if gpu not in left:
            yield Check(
                name,
                Health.BROKEN,
                f"{_named([gpu])} is throttled: its limit is {gpu['limit_watts']:g} W, its default "
                f"{gpu['default_watts']:g} W, and no training holds it. If that is intended, set `ceiling` in "
                "[keeper] of /etc/zeus/config.toml.",
                _raise_command(gpu, facts),
            )
    if not low and not left:
        yield Check(name, Health.OK, "No limit was left lowered.")


def _is_low(gpu: Mapping[str, Any], facts: NodeFacts) -> bool:
    if gpu["limit_watts"] is None or gpu["default_watts"] is None:
        return False
    intended = min(gpu["default_watts"], facts.ceilings.get(gpu["uuid"], gpu["default_watts"]))
    return bool(gpu["limit_watts"] < intended - 1)  # drivers round to whole watts


def _raise_command(gpu: Mapping[str, Any], facts: NodeFacts) -> str:
    if not facts.is_root and facts.keeper["use"] != "system":  # root's notes cannot be seen
        return "sudo zeus restore"
    watts = f"{gpu['default_watts']:g}"
    match gpu["vendor"]:
        case "nvidia":
            return facts.as_root(f"nvidia-smi -i {gpu['uuid']} -pl {watts}")
        case "amd":
            return facts.as_root(f"amd-smi set --gpu {gpu['index']} --power-cap {watts}")
        case _:
            return "zeus restore"


def _slowdowns(facts: NodeFacts) -> Check:
    name = "slowdowns"
    told = [gpu for gpu in facts.gpus if gpu["slowdowns"] is not None]
    if not told:
        return Check(name, Health.NOT_APPLICABLE, "The driver does not tell whether it holds clocks down.")
    slow = [gpu for gpu in told if gpu["slowdowns"]]
    if not slow:
        return Check(name, Health.OK, "No GPU is slowed down by heat or by its power supply.")
    why = "; ".join(f"{_named([gpu])}: {', '.join(gpu['slowdowns'])}" for gpu in slow)
    return Check(
        name,
        Health.BROKEN,
        f"The driver slows GPUs down. {why}. Energy and time measured meanwhile are not those of a healthy card. Check "
        "its cooling and its power supply.",
        "nvidia-smi -q -d PERFORMANCE,TEMPERATURE",
    )


def _cpu(facts: NodeFacts) -> Check:
    if isinstance(facts.devices, str):
        return Check("cpu", Health.NOT_APPLICABLE, "It was not asked, because the driver did not answer.")
    cpu = facts.devices["cpu"]
    if cpu["readable"]:
        return Check("cpu", Health.OK, f"CPU energy can be read ({', '.join(cpu['packages'])}).")
    command = _command_in(cpu["why_not"])
    return Check("cpu", Health.NOT_APPLICABLE, f"{cpu['why_not']} Only jobs that count the CPU need it.", command)


def _store(facts: NodeFacts) -> Check:
    store = facts.store
    if isinstance(store, str):
        return Check("store", Health.BROKEN, store, _store_command("", None, facts))
    waits = f" {_count(store['waiting'], 'report')} will be delivered when it is next used." if store["waiting"] else ""
    if not store["ok"]:
        return Check(
            "store", Health.BROKEN, f"{store['why_not']}{waits}", _store_command(store["url"], store["kind"], facts)
        )
    if store["version"] is not None and facts.newest and store["version"] > facts.newest:
        text = f"{store['url']} has version {store['version']}, but this Zeus knows versions up to {facts.newest}."
        return Check("store", Health.BROKEN, text, f"{install_command()} --upgrade")
    version = f", version {store['version']}" if store["version"] else ""
    return Check("store", Health.OK, f"{store['url']} can be used ({store['kind']}{version}).{waits}")


def _store_command(url: str, kind: str | None, facts: NodeFacts) -> str:
    why = "" if isinstance(facts.store, str) else str(facts.store["why_not"])
    if kind == "sqlite":
        return _file_command(url.removeprefix("sqlite:///"), why, facts)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    there = "" if host in ("", *LOOPBACK) else f"ssh {host} "
    match kind:
        case "service" if "token" in why:
            return f"{there}zeus token create {facts.user}"
        case "service":
            return _service_command(there, port, facts)
        case "postgresql":
            return f"{there}sudo systemctl restart postgresql" if there else facts.as_root("service postgresql restart")
        case _:
            return "zeus env"


def _service_command(there: str, port: int | None, facts: NodeFacts) -> str:
    if there:
        return f"{there}sudo systemctl restart zeus-serve"
    if facts.has_systemd and facts.has_service_unit:
        return facts.as_root("systemctl restart zeus-serve")
    return f"zeus serve --port {port or 80}"


def _file_command(path: str, why: str, facts: NodeFacts) -> str:
    if "may not read" in why:
        return f"sudo chown {facts.user} {path}"
    if "cannot be created" in why:
        return f"sudo install -d -o {facts.user} {path.rpartition('/')[0]}"
    return f"mv {path} {path}.broken"


def _command_in(text: str) -> str | None:
    """The first command that a message quotes."""
    found = re.search(r"`((?:sudo )?(?:chmod|chown|mv|groupadd) [^`]+)`", text)
    return found[1] if found else None


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"


def _named(gpus: list[dict[str, Any]]) -> str:
    return ", ".join(f"GPU {gpu['index']} ({gpu['name']})" for gpu in gpus)


def _watts(gpus: list[dict[str, Any]]) -> str:
    return ", ".join("an unknown limit" if gpu["limit_watts"] is None else f"{gpu['limit_watts']:g} W" for gpu in gpus)
