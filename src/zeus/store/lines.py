"""All facts of some jobs as lines of JSON, for export and import: jobs, then what happened to them, then profiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from zeus.errors import InputError
from zeus.job import JobSpec, Kept, Outcome, Pardoned, Profiled, Trial
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.api import Job
from zeus.wire import Json, dumps, from_json, loads, to_json


@dataclass(slots=True)
class History:
    """Everything about one job but its profiles."""

    revisions: list[Job] = field(default_factory=list)
    trials: list[Kept] = field(default_factory=list)
    notes: list[Profiled | Pardoned] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        """The last one used."""
        return max([*(kept.trial.sequence for kept in self.trials), *(note.sequence for note in self.notes)], default=0)

    @property
    def recurrences(self) -> int:
        """The last one begun."""
        return max((kept.trial.ask.recurrence for kept in self.trials), default=0)


@dataclass(slots=True)
class Dump:
    """What is exported."""

    jobs: dict[str, History] = field(default_factory=dict)
    profiles: dict[ProfileKey, PowerProfile] = field(default_factory=dict)


def write(dump: Dump) -> list[str]:
    """The lines, in one order for the same facts."""
    lines: list[Json] = []
    for job_id, history in sorted(dump.jobs.items()):
        for job in history.revisions:
            lines.append({"line": "job", **job_to_json(job)})
        for kept in history.trials:
            lines.append({"line": "trial", "job": job_id, **kept_to_json(kept)})
        for note in history.notes:
            lines.append({"line": "event", "job": job_id, "event": to_json(note)})
    for key in sorted(dump.profiles, key=lambda key: (key.job, key.batch_size, key.gpu_model, key.gpu_count)):
        lines.append({"line": "profile", "key": to_json(key), "profile": to_json(dump.profiles[key])})
    return [dumps(line) for line in lines]


def read(lines: Iterable[str]) -> Dump:
    """What the lines say; an error names the line."""
    histories: defaultdict[str, History] = defaultdict(History)
    dump = Dump()
    lives: dict[str, str] = {}
    etas: dict[str, Any] = {}  # the latest line of each job, for trials of version 1
    for place, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            _take(loads(text), histories, dump, lives, etas)
        except KeyError as missing:
            raise InputError(f"line {place}: {missing} is missing.") from missing
        except InputError as wrong:
            raise InputError(f"line {place}: {wrong}") from wrong
    dump.jobs = dict(histories)
    for job_id, history in dump.jobs.items():
        _sound(job_id, history)
    return dump


def _take(
    data: Json, histories: defaultdict[str, History], dump: Dump, lives: dict[str, str], etas: dict[str, Any]
) -> None:
    match data.get("line"):
        case "job":
            job = job_from_json(data, "")
            etas[job.id] = data
            histories[job.id].revisions.append(replace(job, generation=lives.setdefault(job.id, uuid4().hex)))
        case "trial":
            histories[data["job"]].trials.append(kept_from_json(data, eta_of(etas.get(data["job"]), data["trial"])))
        case "event":
            histories[data["job"]].notes.append(note_from_json(data["event"]))
        case "profile":
            dump.profiles[from_json(data["key"], ProfileKey)] = from_json(data["profile"], PowerProfile)
        case other:
            raise InputError(f"{other!r} is not a line of an export: expected job, trial, event or profile.")


def _sound(job_id: str, history: History) -> None:
    """Refuse what a store could not have written: numbers that are used twice or left out."""
    marks = [n.sequence for n in history.notes]
    for kept in history.trials:
        marks += [m for m in (kept.trial.asked, kept.trial.lost, kept.trial.ended) if m is not None]
    rows: list[tuple[str, list[Any]]] = [
        ("revisions", [job.revision for job in history.revisions]),
        ("sequence numbers", sorted(marks)),
    ]
    numbers = [kept.trial.number for kept in history.trials]
    if numbers != sorted(set(numbers)):
        raise InputError(f"job {job_id!r}: its trials are not in order, each once. Export the whole job again.")
    for name, row in rows:
        if row != list(range(1, len(row) + 1)) or (name == "revisions" and not row):
            raise InputError(f"job {job_id!r}: its {name} are not 1, 2, 3, ... in order. Export the whole job again.")


def job_to_json(job: Job) -> Json:
    """One revision of a job. Its generation stays behind: an imported job begins another life."""
    names = ("policy_version", "revision", "since", "at")
    later = {"excused": job.excused, "first": job.first}  # which were not always kept
    return {**{name: getattr(job, name) for name in names}, **later, "spec": to_json(job.spec)}


def job_from_json(data: Json, generation: str) -> Job:
    """One revision of a job."""
    names = ("policy_version", "revision", "since", "at", "spec")
    if lacking := [name for name in names if name not in data]:
        raise InputError(f"a job lacks {', '.join(lacking)}.")
    spec = from_json(data["spec"], JobSpec)
    try:
        later: Json = {
            "excused": tuple(int(number) for number in data.get("excused") or ()),
            "first": int(data.get("first", 1)),
        }
    except (TypeError, ValueError) as wrong:
        raise InputError(
            f"a job with excused={data.get('excused')!r}, first={data.get('first')!r}: {wrong}."
        ) from wrong
    return Job(**{name: data[name] for name in names[:-1]}, **later, spec=spec, generation=generation)


def eta_of(job: Json | None, trial: object) -> float | None:
    """The η that a trial of version 1 was decided under, which was kept with its job's latest revision."""
    asked = trial.get("asked") if isinstance(trial, dict) else None
    if job is None or not isinstance(asked, int):
        return None
    try:
        found = [eta for until, eta in job.get("etas") or () if asked <= until]
        return float(found[0] if found else job["spec"]["eta_knob"])
    except (TypeError, ValueError, KeyError) as wrong:
        raise InputError(f"a job with etas={job.get('etas')!r}: {wrong}.") from wrong


def note_from_json(data: object) -> Profiled | Pardoned:
    """An event that is not a trial's."""
    if isinstance(data, dict) and data.get("kind") == "pardoned":
        return from_json(data, Pardoned)
    return from_json(data, Profiled)


def kept_to_json(kept: Kept) -> Json:
    """A trial and its times."""
    return {
        "asked_at": kept.asked_at,
        "changed_at": kept.changed_at,
        "leased_until": kept.leased_until,
        "so_far": None if kept.so_far is None else to_json(kept.so_far),
        "trial": to_json(kept.trial),
    }


def kept_from_json(data: Json, eta: float | None = None) -> Kept:
    """A trial and its times; `eta` serves where a trial of version 1 does not say its own."""
    return Kept(
        trial=from_json(data["trial"], Trial, eta=eta),
        asked_at=data["asked_at"],
        changed_at=data["changed_at"],
        leased_until=data["leased_until"],
        so_far=None if data["so_far"] is None else from_json(data["so_far"], Outcome),
    )
