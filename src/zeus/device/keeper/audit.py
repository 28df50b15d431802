"""The audit of the keeper: each limit that is set, restored or refused is one line.

set allowed gpu=GPU-1 old_watts=250 new_watts=150 user=alice uid=1000 pid=4711 job="asr"
set refused gpu=GPU-1 old_watts=250 new_watts=100 user=alice uid=1000 pid=4711 job="asr" reason="..."
restore allowed gpu=GPU-1 old_watts=150 new_watts=250 user=alice uid=1000 pid=4711 job="asr"
"""

from __future__ import annotations

import json
import logging

from zeus.device.keeper.policy import user_name

audit_log = logging.getLogger("zeus.device.keeper.audit")

_JOB_LENGTH = 200  # letters in the audit; a client sends as many as it likes
_REASON_LENGTH = 500


def borrower(uid: int | None = None, pid: int | None = None, job: str = "") -> str:
    r"""For whom the keeper acts, as the audit has it. Unknown is `-`.

    The kernel says who user and process are. The client names the job, which is quoted so that it cannot imitate other
    fields or another line.

    >>> print(borrower(0, 4711, 'asr" user=alice\nset allowed'))
    user=root uid=0 pid=4711 job="asr\" user=alice\nset allowed"
    >>> print(borrower())
    user=- uid=- pid=- job=-
    """
    user, number, process = ("-" if x is None else str(x) for x in (None if uid is None else user_name(uid), uid, pid))
    return f"user={user} uid={number} pid={process} job={json.dumps(job[:_JOB_LENGTH]) if job else '-'}"


def audit(
    event: str, verdict: str, uuid: str, old: float | None, new: float | None, who: str, reason: str = ""
) -> None:
    """Log one line of the audit.

    Args:
        event: "lease", "set" or "restore".
        verdict: "allowed", "refused" by a rule of the keeper, or "failed" in the driver.
        uuid: The GPU.
        old: The limit before, in watts. None: not known.
        new: The limit after, or the one asked for.
        who: For whom (`borrower`).
        reason: Why not.
    """
    before, after = ("-" if watts is None else f"{watts:g}" for watts in (old, new))
    why = f" reason={json.dumps(reason[:_REASON_LENGTH])}" if reason else ""
    audit_log.info("%s %s gpu=%s old_watts=%s new_watts=%s %s%s", event, verdict, uuid, before, after, who, why)
