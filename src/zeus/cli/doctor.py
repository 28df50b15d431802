"""`zeus doctor`: what works on this node, what does not, and the command that mends it."""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import zeus_energy
from zeus import __version__, settings
from zeus.cli import node
from zeus.cli.doctor_checks import Check, Health, Mistake, NodeFacts, examine
from zeus.cli.format import plural
from zeus.cli.options import FiniteRange
from zeus.cli.output import print_json
from zeus.errors import DONE, FAILED

if TYPE_CHECKING:
    from zeus.device.keeper.policy import Bound, KeeperPolicy

TIMEOUT_SECONDS = 30.0
UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
INSTALLERS = ("apt-get", "dnf", "zypper")
MASKS = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
PCI = Path("/sys/bus/pci/devices")
DISPLAY = "0x03"  # the class of what shows or computes pictures
VENDORS = ("0x10de", "0x1002")  # NVIDIA, AMD


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--timeout",
    type=FiniteRange(0.1, 3600),
    default=TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the driver, and for the store. Both are asked at once.",
)
def doctor(as_json: bool, timeout: float) -> None:
    """Say what works on this node, what does not, and which command mends it.

    It changes nothing. The exit code is 0 if nothing is broken, else 1.
    """
    checks = examine(node_facts(timeout))
    is_ok = all(check.state is not Health.BROKEN for check in checks)
    host, stamp = platform.node(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if as_json:
        fields = {"zeus": __version__, "host": host, "time": stamp, "ok": is_ok}
        print_json({**fields, "checks": [check._asdict() for check in checks]})
    else:
        click.echo(f"Zeus {__version__} on {host}, {stamp}")
        for check in checks:
            _print_check(check)
        broken = sum(check.state is Health.BROKEN for check in checks)
        click.echo("Nothing is broken." if is_ok else f"{plural(broken, 'check')} failed.")
    sys.stdout.flush()
    sys.exit(DONE if is_ok else FAILED)


def _print_check(check: Check) -> None:
    word, colour = {
        Health.OK: ("ok", "green"),
        Health.BROKEN: ("BROKEN", "red"),
        Health.NOT_APPLICABLE: ("-", None),
    }[check.state]
    click.echo(f"{click.style(f'{word:6}', fg=colour)}  {check.name:13}  {check.message}")
    if check.command:
        click.echo(f"{'':23}$ {check.command}")


def node_facts(timeout: float) -> NodeFacts:
    """Ask the node, each part for at most so many seconds."""
    from zeus.device import container
    from zeus.device.keeper.policy import policy_of, user_name
    from zeus.store.sql.migrations import HEAD

    found = ask_all({"The GPU driver or the keeper": node.devices, "The store": node.store}, timeout)
    devices, store = found.values()
    policy = policy_of(settings.HERE.policy_file())
    gpus = devices.gpus if isinstance(devices, node.Devices) else []
    return NodeFacts(
        devices=devices,
        store=store,
        damage=zeus_energy.damage() or zeus_energy.hidden(),
        mistakes=tuple(_mistakes(policy)),
        is_closed=bool(policy.closed),
        is_root=os.geteuid() == 0,
        user=user_name(os.getuid()),
        has_systemd=Path("/run/systemd/system").is_dir(),
        has_unit=_is_unit("zeus-keeper"),
        has_service_unit=_is_unit("zeus-serve"),
        in_container=container.mark() is not None,
        has_card=_has_card(),
        masked=next((name for name in MASKS if settings.HERE.get(name) == ""), ""),
        why_none="" if gpus or not isinstance(devices, node.Devices) else _why_none(),
        installer=next((f"{one} install" for one in INSTALLERS if shutil.which(one)), "apt-get install"),
        read_only=settings.why_read_only(),
        newest=HEAD,
        floors=_on_each(policy.base.floor, gpus),
        ceilings=_on_each(policy.base.ceiling, gpus),
        now=time.time(),
    )


def ask_all(questions: Mapping[str, Callable[[], Any]], timeout: float) -> dict[str, Any]:
    """The answers by who was asked, all at once. What was raised is the answer; so is a TimeoutError.

    The threads are daemons: nothing can end a call that hangs in a driver, and the command must end all the same.
    """
    answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def ask(who: str, question: Callable[[], Any]) -> None:
        try:
            answers.put((who, question()))
        except Exception as failed:
            answers.put((who, failed))

    for who, question in questions.items():
        threading.Thread(target=ask, args=(who, question), daemon=True).start()
    found: dict[str, Any] = {who: TimeoutError(f"{who} did not answer within {timeout:g} s.") for who in questions}
    deadline = time.monotonic() + timeout
    with contextlib.suppress(queue.Empty):
        for _ in questions:
            who, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            found[who] = answer
    return found


def _mistakes(policy: KeeperPolicy) -> Iterator[Mistake]:
    """What is wrong in the configuration files, with the policy's group, and with the token's file."""
    from zeus.device.keeper.policy import DEFAULT_GROUP, group_id

    for file in settings.HERE.files():
        for text in file.mistakes:
            yield Mistake(text, file.mend or f"editor {file.path}")
    if policy.group != DEFAULT_GROUP and group_id(policy.group) is None:  # the default group need not exist
        mend, path = f"groupadd --system {policy.group}", settings.HERE.policy_file().path
        what = f"group = '{policy.group}' in [keeper]: this machine has no such group"
        yield Mistake(f"{path}: {what}, so only root may set power limits. Run `{mend}`.", mend)
    token = settings.token_file()
    with contextlib.suppress(OSError):  # that it cannot be read is said about the store
        if token is not None and token.stat().st_mode & stat.S_IROTH:
            mend = f"chmod o-r {token}"
            yield Mistake(f"{token}: every user can read this token, and so use it. Run `{mend}`.", mend)


def _is_unit(name: str) -> bool:
    return any(Path(folder, f"{name}.service").exists() for folder in UNITS)


def _has_card() -> bool:
    """Whether a card of NVIDIA or AMD is plugged in. True if that cannot be seen."""
    try:
        cards = list(PCI.iterdir())
        return any(
            (card / "class").read_text().startswith(DISPLAY) and (card / "vendor").read_text().strip() in VENDORS
            for card in cards
        )
    except OSError:
        return True


def _why_none() -> str:
    from zeus.device.find import why_none

    return " ".join(f"{text[:1].upper()}{text[1:]}" for text in why_none())


def _on_each(bound: Bound | None, gpus: list[node.GpuFacts]) -> dict[str, float]:
    """What a bound is on each card, in watts by UUID."""
    from zeus.device.keeper.policy import watts_of

    if bound is None:
        return {}
    return {gpu.uuid: watts_of(bound, gpu.max_watts) for gpu in gpus if gpu.max_watts is not None}
