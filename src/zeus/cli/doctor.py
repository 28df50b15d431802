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
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import zeus_energy
from zeus import __version__, settings
from zeus.cli import env as report
from zeus.cli.doctor_checks import Check, Health, NodeFacts, examine
from zeus.cli.output import print_json
from zeus.errors import DONE, FAILED

if TYPE_CHECKING:
    from zeus.device.keeper.policy import Bound, KeeperPolicy

TIMEOUT_SECONDS = 30.0
UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
INSTALLERS = ("apt-get", "dnf", "zypper")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
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
        print_json({**fields, "checks": [check.to_json() for check in checks]})
    else:
        click.echo(f"Zeus {__version__} on {host}, {stamp}")
        for check in checks:
            _print_check(check)
        broken = sum(check.state is Health.BROKEN for check in checks)
        click.echo("Nothing is broken." if is_ok else f"{broken} check{'s' * (broken > 1)} failed.")
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
    from zeus.device.keeper.policy import policy_of
    from zeus.store.sql.upgrade import HEAD

    found = ask_all({"devices": _devices, "store": report.store}, timeout)
    devices = found["devices"]
    policy = policy_of(settings.HERE.policy_file())
    gpus = [] if isinstance(devices, str) else devices["gpus"]
    return NodeFacts(
        devices=devices,
        store=found["store"],
        damage=zeus_energy.damage() or zeus_energy.hidden(),
        mistakes=(*settings.HERE.mistakes(), *_missing_group(policy), *_open_token(settings.token_file())),
        is_root=os.geteuid() == 0,
        user=_user(),
        has_systemd=Path("/run/systemd/system").is_dir(),
        has_unit=_is_unit("zeus-keeper"),
        has_service_unit=_is_unit("zeus-serve"),
        container=container.mark(),
        masked=_masked(),
        installer=next((f"{one} install" for one in INSTALLERS if shutil.which(one)), "apt-get install"),
        read_only=settings.why_read_only(),
        newest=HEAD,
        floors=_on_each(policy.base.floor, gpus),
        ceilings=_on_each(policy.base.ceiling, gpus),
        now=time.time(),
    )


def _is_unit(name: str) -> bool:
    return any(Path(folder, f"{name}.service").exists() for folder in UNITS)


def ask_all(questions: Mapping[str, Callable[[], Any]], timeout: float) -> dict[str, Any]:
    """The answers, asked for at once. An error or a missing answer becomes a sentence.

    The threads are daemons: nothing can end a call that hangs in a driver, and the command must end all the same.
    """
    answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def ask(name: str, question: Callable[[], Any]) -> None:
        try:
            answers.put((name, question()))
        except Exception as failed:
            answers.put((name, str(failed) or type(failed).__name__))

    for name, question in questions.items():
        threading.Thread(target=ask, args=(name, question), daemon=True).start()
    found: dict[str, Any] = {}
    deadline = time.monotonic() + timeout
    while len(found) < len(questions):
        try:
            name, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[name] = answer
    silent = f"did not answer within {timeout:g} s."
    words = {"devices": "The GPU driver or the keeper", "store": "The store"}
    return {name: found.get(name, f"{words.get(name, name)} {silent}") for name in questions}


def _devices() -> dict[str, Any]:
    """The devices, and if there is no GPU, why."""
    from zeus.device.find import why_none

    found = report.devices()
    if found["gpus"]:
        return found
    return {**found, "why_none": " ".join(f"{text[:1].upper()}{text[1:]}" for text in why_none())}


def _missing_group(policy: KeeperPolicy) -> list[str]:
    """What is wrong if the policy is for a group that does not exist. The default group need not."""
    from zeus.device.keeper.policy import DEFAULT_GROUP, group_id

    if policy.group == DEFAULT_GROUP or group_id(policy.group) is not None:
        return []
    what = f"group = '{policy.group}' in [keeper]: this machine has no such group, so only root may set power limits."
    return [f"{settings.HERE.policy_file().path}: {what} Run `groupadd --system {policy.group}`."]


def _open_token(path: Path | None) -> list[str]:
    """What is wrong if every user can read the token."""
    with contextlib.suppress(OSError):  # that it cannot be read is said about the store
        if path is not None and path.stat().st_mode & stat.S_IROTH:
            return [f"{path}: every user can read this token, and so use it. Run `chmod o-r {path}`."]
    return []


def _on_each(bound: Bound | None, gpus: list[dict[str, Any]]) -> dict[str, float]:
    """What a bound is on each card, in watts by UUID."""
    from zeus.device.keeper.policy import watts_of

    known = [gpu for gpu in gpus if gpu["max_watts"] is not None]
    return {} if bound is None else {gpu["uuid"]: watts_of(bound, gpu["max_watts"]) for gpu in known}


def _user() -> str:
    from zeus.device.keeper.policy import user_name

    return user_name(os.getuid())


def _masked() -> str:
    """The variable that hides all GPUs. Empty if none does."""
    return next(
        (name for name in ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES") if settings.HERE.get(name) == ""), ""
    )
