"""The keeper's audit: one line for each limit that was set, restored or refused, and for whom.

    set allowed gpu=GPU-1 old_watts=250 new_watts=150 user=alice uid=1000 pid=4711 job="asr"
    set refused gpu=GPU-1 old_watts=250 new_watts=100 user=alice uid=1000 pid=4711 job="asr" reason="..."
    restore allowed gpu=GPU-1 old_watts=150 new_watts=250 user=alice uid=1000 pid=4711 job="asr"

The log adds the time, in UTC. The kernel says who the user and the process are. The job is what the client says it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass

from zeus.device.keeper.policy import user_name

log = logging.getLogger("zeus.device.keeper.audit")

JOB_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Borrower:
    """For whom the keeper acts. None: not known, for instance after a crash of the keeper."""

    uid: int | None = None
    pid: int | None = None
    job: str = ""

    def __str__(self) -> str:
        user = "-" if self.uid is None else user_name(self.uid)
        return f"user={user} uid={_known(self.uid)} pid={_known(self.pid)} job={quoted(self.job[:JOB_LENGTH])}"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One event.

    >>> print(AuditEntry("set", "refused", "GPU-1", 250, 100, "user=al uid=7 pid=9 job=-", "below the floor"))
    set refused gpu=GPU-1 old_watts=250 new_watts=100 user=al uid=7 pid=9 job=- reason="below the floor"
    """

    event: str  # "lease", "set" or "restore"
    verdict: str  # "allowed", "refused" by a rule of the keeper, or "failed" in the driver
    uuid: str
    old_watts: float | None
    new_watts: float | None
    borrower: str
    reason: str = ""

    def __str__(self) -> str:
        text = f"{self.event} {self.verdict} gpu={self.uuid} old_watts={_watts(self.old_watts)} "
        text += f"new_watts={_watts(self.new_watts)} {self.borrower}"
        return f"{text} reason={quoted(self.reason)}" if self.reason else text


Audit = Callable[[AuditEntry], None]


def write(entry: AuditEntry) -> None:
    """Log the line."""
    log.info("%s", entry)


def quoted(text: str) -> str:
    r"""Text of a client as one word, so that it cannot imitate other fields or another line.

    >>> print(quoted('a" user=root\nset allowed'), quoted(""))
    "a\" user=root\nset allowed" -
    """
    return json.dumps(text) if text else "-"


def _known(number: int | None) -> str:
    return "-" if number is None else str(number)


def _watts(watts: float | None) -> str:
    return "-" if watts is None else f"{watts:g}"
