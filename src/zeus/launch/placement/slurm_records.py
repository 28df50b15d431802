"""What Slurm says about jobs, as values: the records of `scontrol` and `sacct`, states and exit codes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.exit_codes import DONE, FAILED

FINAL = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "REVOKED"),
        *("NODE_FAIL", "PREEMPTED"),
    }
)
MAY_RETURN = frozenset({"NODE_FAIL", "PREEMPTED"})  # shown for a moment before the job is requeued
ENDED_BY_TERM = frozenset({"CANCELLED", "PREEMPTED", "TIMEOUT"})
BY_SIGNAL, TERM = 128, 15
SACCT_FIELDS = ("JobID", "State", "ExitCode", "NodeList", "Restarts")
PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(.*?)(?=\s[A-Za-z][\w/:]*=|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTask:
    """A job of Slurm, one task of an array, or all tasks of an array that have not begun."""

    id: str
    state: str
    reason: str = ""
    exit_code: int = 0
    signal: int = 0
    nodes: str = ""
    restarts: int = 0
    log: str = ""
    comment: str = ""

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def status(self) -> int:
        """The exit status of the `zeus run` on the node, as a shell says it.

        >>> BatchTask(id="7", state="FAILED", exit_code=3).status
        3
        >>> BatchTask(id="7", state="CANCELLED", signal=15).status
        143
        """
        if self.state == "COMPLETED":
            return DONE
        if self.exit_code or self.signal:
            return self.exit_code or BY_SIGNAL + self.signal
        return BY_SIGNAL + TERM if self.state in ENDED_BY_TERM else FAILED


def status_of(tasks: Sequence[BatchTask]) -> int:
    """The exit status of several tasks: that of the first that failed."""
    return next((one.status for one in tasks if one.status != DONE), DONE)


def read_scontrol(text: str) -> list[BatchTask]:
    """The records of `scontrol --oneliner show job`.

    >>> read_scontrol("JobId=8 ArrayJobId=7 ArrayTaskId=1 JobState=RUNNING Restarts=1 ExitCode=0:0 NodeList=n1")[0].id
    '7_1'
    """
    tasks = []
    for line in text.splitlines():
        pairs: dict[str, str] = {}
        for name, value in PAIR.findall(line):
            pairs.setdefault(name, "" if value.strip() in ("(null)", "None", "N/A") else value.strip())
        if "JobId" not in pairs:
            continue
        job, task = pairs.get("ArrayJobId", pairs["JobId"]), pairs.get("ArrayTaskId", "")
        code, signal = _codes(pairs.get("ExitCode", ""))
        tasks.append(
            BatchTask(
                id=job if not task else f"{job}_{task}" if task.isdecimal() else f"{job}_[{task}]",
                state=pairs.get("JobState", ""),
                reason=pairs.get("Reason", ""),
                exit_code=code,
                signal=signal,
                nodes=pairs.get("NodeList", ""),
                restarts=int(pairs.get("Restarts", "0") or 0),
                log=pairs.get("StdOut", ""),
                comment=pairs.get("Comment", ""),
            )
        )
    return sorted(tasks, key=_order)


def read_sacct(text: str) -> list[BatchTask]:
    """The records of `sacct --parsable2 --noheader --allocations` with SACCT_FIELDS.

    >>> read_sacct("7_1|CANCELLED by 0|0:15|n1|2")[0].state
    'CANCELLED'
    """
    tasks = []
    for line in text.splitlines():
        job, state, code, nodes, restarts = line.split("|")
        exit_code, signal = _codes(code)
        tasks.append(
            BatchTask(
                id=job,
                state=state.split(" ")[0],
                exit_code=exit_code,
                signal=signal,
                nodes="" if nodes == "None assigned" else nodes,
                restarts=int(restarts or 0),
            )
        )
    return sorted(tasks, key=_order)


def energy_comment(joules: float | None, seconds: float | None, recurrences: Sequence[int], unknown: int = 0) -> str:
    """What a job used, for its comment. The energy comes first and is in joules, so that programs can read it.

    >>> energy_comment(1234.56, 7.8, [3]), energy_comment(None, None, [3, 4], unknown=2)
    ('zeus: 1234.6 J, 7.8 s, recurrence 3', 'zeus: unknown energy, recurrences 3-4')
    >>> energy_comment(10.0, None, [3], unknown=1)
    'zeus: 10.0 J and more (1 trial of unknown energy), recurrence 3'
    """
    used = "unknown energy" if joules is None else f"{joules:.1f} J"
    if joules is not None and unknown:
        used += f" and more ({unknown} trial{'' if unknown == 1 else 's'} of unknown energy)"
    parts = [used] if seconds is None else [used, f"{seconds:.1f} s"]
    if recurrences:
        first, last = min(recurrences), max(recurrences)
        parts.append(f"recurrence {first}" if first == last else f"recurrences {first}-{last}")
    return f"zeus: {', '.join(parts)}"


def with_energy(comment: str, energy: str) -> str:
    """A comment of the user with the energy after it. The energy of an earlier start of the job is replaced.

    >>> with_energy("for the paper; zeus: 5.0 J", "zeus: 9.0 J"), with_energy("", "zeus: 9.0 J")
    ('for the paper; zeus: 9.0 J', 'zeus: 9.0 J')
    """
    own = re.split(r"(?:^|; )zeus: ", comment)[0]
    return f"{own}; {energy}" if own else energy


def _codes(text: str) -> tuple[int, int]:
    code, _, signal = text.partition(":")
    return int(code or 0), int(signal or 0)


def _order(task: BatchTask) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", task.id))
