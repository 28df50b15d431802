"""What Slurm says about jobs, as values: the records of `scontrol` and `sacct`, states and exit codes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zeus.errors import DONE, FAILED, TERMINATED
from zeus.launch.placement.placement import Task

FINAL = frozenset(
    {
        *("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL", "REVOKED"),
        *("NODE_FAIL", "PREEMPTED"),
    }
)
MAY_RETURN = frozenset({"NODE_FAIL", "PREEMPTED"})  # shown for a moment before the job is requeued
ENDED_BY_TERM = frozenset({"CANCELLED", "PREEMPTED", "TIMEOUT"})
BY_SIGNAL = 128
SACCT_FIELDS = ("JobID", "State", "ExitCode", "NodeList", "Restarts")
PAIR = re.compile(r"(?:^|\s)([A-Za-z][\w/:]*)=(.*?)(?=\s[A-Za-z][\w/:]*=|$)")


def exit_code_of_run(state: str, exit_code: int, signal: int) -> int | None:
    """The exit code of the `zeus run` on the node, as a shell says it. None: the job has not ended.

    >>> exit_code_of_run("FAILED", 3, 0), exit_code_of_run("OUT_OF_MEMORY", 0, 9), exit_code_of_run("RUNNING", 0, 0)
    (3, 137, None)
    """
    if state not in FINAL:
        return None
    if state == "COMPLETED":
        return DONE
    if exit_code or signal:
        return exit_code or BY_SIGNAL + signal
    return TERMINATED if state in ENDED_BY_TERM else FAILED


def read_scontrol(text: str) -> list[Task]:
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
        state = pairs.get("JobState", "")
        tasks.append(
            Task(
                id=job if not task else f"{job}_{task}" if task.isdecimal() else f"{job}_[{task}]",
                state=state,
                reason=pairs.get("Reason", "") if state == "PENDING" else "",
                exit_code=exit_code_of_run(state, *_codes(pairs.get("ExitCode", ""))),
                may_return=state in MAY_RETURN,
                nodes=pairs.get("NodeList", ""),
                restarts=int(pairs.get("Restarts", "0") or 0),
                log=pairs.get("StdOut") or None,
                comment=pairs.get("Comment", ""),
            )
        )
    return sorted(tasks, key=_order)


def read_sacct(text: str) -> list[Task]:
    """The records of `sacct --parsable2 --noheader --allocations` with SACCT_FIELDS.

    >>> read_sacct("7_1|CANCELLED by 0|0:15|n1|2")[0].state
    'CANCELLED'
    """
    tasks = []
    for line in text.splitlines():
        job, state, code, nodes, restarts = line.split("|")
        state = state.split(" ")[0]
        tasks.append(
            Task(
                id=job,
                state=state,
                exit_code=exit_code_of_run(state, *_codes(code)),
                may_return=state in MAY_RETURN,
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


def _order(task: Task) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", task.id))
