"""Export and import: all facts of some jobs as lines of JSON. Jobs come first, then their events, then profiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from zeus.errors import InputError
from zeus.job import JobSpec, Origin, Outcome, Pardoned, Profiled, Trial, TrialRecord, replace
from zeus.job.checks import need, need_job_id
from zeus.job.wire import Json, dumps, from_json, loads, plain, to_json
from zeus.job.wire import read as read_value
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.api import Job


@dataclass(slots=True)
class History:
    """Everything about one job except its profiles."""

    revisions: list[Job] = field(default_factory=list)
    trials: list[TrialRecord] = field(default_factory=list)
    notes: list[Profiled | Pardoned] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        """The last sequence number used."""
        return max(
            [*(record.trial.sequence for record in self.trials), *(note.sequence for note in self.notes)], default=0
        )

    @property
    def recurrences(self) -> int:
        """The number of the last recurrence."""
        return max((record.trial.ask.recurrence for record in self.trials), default=0)


@dataclass(slots=True)
class Dump:
    """What an export contains."""

    jobs: dict[str, History] = field(default_factory=dict)
    profiles: dict[ProfileKey, PowerProfile] = field(default_factory=dict)


def write(dump: Dump) -> list[str]:
    """The lines of an export. The same facts always give the same lines."""
    lines: list[Json] = []
    for job_id, history in sorted(dump.jobs.items()):
        for job in history.revisions:
            whose = {"owner": job.owner} if job.owner else {}
            lines.append({"line": "job", **job_to_json(job), **whose})
        for record in history.trials:
            lines.append({"line": "trial", "job": job_id, **record_to_json(record)})
        for note in history.notes:
            lines.append({"line": "event", "job": job_id, "event": to_json(note)})
    for key in sorted(dump.profiles, key=lambda key: (key.job, key.batch_size, key.gpu_model, key.gpu_count)):
        lines.append({"line": "profile", "key": to_json(key), "profile": to_json(dump.profiles[key])})
    return [dumps(line) for line in lines]


def read(lines: Iterable[str]) -> Dump:
    """Parse the lines of an export. An InputError names the line."""
    histories: defaultdict[str, History] = defaultdict(History)
    dump = Dump()
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            _take(loads(text), histories, dump)
        except KeyError as missing:
            raise InputError(f"line {number}: {missing} is missing.") from missing
        except InputError as wrong:
            raise InputError(f"line {number}: {wrong}") from wrong
    dump.jobs = dict(histories)
    for job_id, history in dump.jobs.items():
        _sound(job_id, history)
    return dump


def _take(data: Json, histories: defaultdict[str, History], dump: Dump) -> None:
    match data.get("line"):
        case "job":
            job = job_from_json(data, uuid4().hex)
            need_job_id(job.id)
            before = histories[job.id].revisions
            before.append(replace(job, generation=before[0].generation) if before else job)
        case "trial":
            histories[_text(data, "job")].trials.append(record_from_json(data))
        case "event":
            histories[_text(data, "job")].notes.append(note_from_json(data["event"]))
        case "profile":
            dump.profiles[from_json(data["key"], ProfileKey)] = from_json(data["profile"], PowerProfile)
        case other:
            raise InputError(f"{other!r} is not a line of an export: expected job, trial, event or profile.")


def _text(data: Json, name: str) -> str:
    need(isinstance(data[name], str), name, data[name], "a text")
    return str(data[name])


def _time(data: Json, name: str) -> str:
    """A time as `utc` writes it. Other formats would not sort."""
    text = _text(data, name)
    try:
        sound = datetime.fromisoformat(text).astimezone(UTC).isoformat(timespec="microseconds") == text
    except (ValueError, OverflowError):
        sound = False
    need(sound, name, text, "a time like 2023-11-14T22:13:20.250000+00:00")
    return text


def _sound(job_id: str, history: History) -> None:
    """Raise InputError if numbers are repeated or missing, which no store would write."""
    marks = [n.sequence for n in history.notes]
    for record in history.trials:
        marks += [m for m in (record.trial.asked, record.trial.lost, record.trial.ended) if m is not None]
    rows: list[tuple[str, list[Any]]] = [
        ("revisions", [job.revision for job in history.revisions]),
        ("sequence numbers", sorted(marks)),
    ]
    numbers = [record.trial.number for record in history.trials]
    if numbers != sorted(set(numbers)):
        raise InputError(f"job {job_id!r}: its trials are out of order or repeated. Export the whole job again.")
    for name, row in rows:
        if row != list(range(1, len(row) + 1)) or (name == "revisions" and not row):
            raise InputError(f"job {job_id!r}: its {name} are not 1, 2, 3, ... in order. Export the whole job again.")


def job_to_json(job: Job) -> Json:
    """One revision of a job, without its generation, because an imported job begins a new generation."""
    names = ("policy_version", "revision", "at")
    later = {"excused": job.excused, "first": job.first}  # missing in older exports
    paused = {"paused_by": job.paused_by} if job.paused_by else {}
    return {**{name: getattr(job, name) for name in names}, **later, **paused, "spec": to_json(job.spec)}


def job_from_json(data: Json, generation: str) -> Job:
    if lacking := [name for name in ("policy_version", "revision", "at", "spec") if name not in data]:
        raise InputError(f"not a whole job of an export: it lacks {', '.join(lacking)}.")
    _time(data, "at")
    known = {name: data[name] for name in Job.__struct_fields__ if data.get(name) is not None}
    return read_value({**known, "spec": from_json(data["spec"], JobSpec), "generation": generation}, Job)


def note_from_json(data: object) -> Profiled | Pardoned:
    """Read an event that does not belong to a trial."""
    if isinstance(data, dict) and data.get("kind") == "pardoned":
        return from_json(data, Pardoned)
    return from_json(data, Profiled)


def record_to_json(record: TrialRecord) -> Json:
    origin = {} if record.origin is None else {"origin": plain(record.origin)}  # older Zeus ignores it
    return {
        "asked_at": record.asked_at,
        "changed_at": record.changed_at,
        "leased_until": record.leased_until,
        "so_far": None if record.so_far is None else to_json(record.so_far),
        "trial": to_json(record.trial),
        **origin,
    }


def record_from_json(data: Json) -> TrialRecord:
    """Read a stored trial."""
    return TrialRecord(
        trial=from_json(data["trial"], Trial),
        asked_at=_time(data, "asked_at"),
        changed_at=_time(data, "changed_at"),
        leased_until=None if data["leased_until"] is None else _time(data, "leased_until"),
        so_far=None if data["so_far"] is None else from_json(data["so_far"], Outcome),
        origin=None if data.get("origin") is None else read_value(data["origin"], Origin),
    )
