"""The values of `zeus.job` and `zeus.profile` as versioned JSON, for the store, the service and files.

Each object has a `kind` and a `version`. An unknown version is an error: a wrong guess would enter every later
decision. Unknown is null; there is no NaN.

Version 2 added a trial's id, η, target and GPUs, and an outcome's stretches and epochs. Version 1 is still read, and
written for clients that only know it. Four fields came later and are left out where they say nothing, so that Zeus 0.2
reads the rest: a job's `include` where only GPUs are counted (0.2 refuses other jobs, whose costs it would not count in
full), an outcome's `hourly` where there is none, its `micro_batch_size` where nothing was accumulated, its `samples`
where they were not counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from zeus.cost import GPU_ONLY
from zeus.errors import InputError
from zeus.job import (
    Ask,
    Decision,
    Ending,
    EpochPoint,
    Gpus,
    JobSpec,
    Kind,
    Outcome,
    Pardoned,
    Phase,
    Profiled,
    Stretch,
    Target,
    Trial,
)
from zeus.job.hourly import HourlyUse, HourUse
from zeus.profile import PowerProfile, ProfileKey

VERSION = 2
VERSIONS = (1, 2)  # versions that can be read

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]
Word: TypeAlias = JobSpec | Trial | Outcome | Profiled | Pardoned | ProfileKey | PowerProfile

_KINDS: dict[type[Any], str] = {
    JobSpec: "job",
    Trial: "trial",
    Outcome: "outcome",
    Profiled: "profiled",
    Pardoned: "pardoned",
    ProfileKey: "profile_key",
    PowerProfile: "profile",
}


def to_text(word: Word) -> str:
    """The value as one line of JSON.

    >>> to_text(Pardoned(sequence=7, batch_size=32))
    '{"kind":"pardoned","version":2,"sequence":7,"batch_size":32}'
    """
    body = word.to_json() if isinstance(word, PowerProfile) else _inner(word)
    return dumps({"kind": _KINDS[type(word)], "version": VERSION, **body})


def to_json(word: Word, version: int = VERSION) -> Json:
    """The value as a dict of JSON types, in this version of the format.

    >>> to_json(Pardoned(sequence=7, batch_size=32))
    {'kind': 'pardoned', 'version': 2, 'sequence': 7, 'batch_size': 32}
    """
    body = word.to_json() if isinstance(word, PowerProfile) else plain(word)
    return {"kind": _KINDS[type(word)], "version": version, **(body if version > 1 else _as_version_1(word, body))}


def _as_version_1(word: Word, body: Json) -> Json:
    """The body without what Zeus 0.1 does not know."""
    match word:
        case JobSpec():
            beta = _NO_BETA_1 if word.beta_knob is None else word.beta_knob
            return {name: value for name, value in {**body, "beta_knob": beta}.items() if name not in _JOB_2}
        case Outcome():
            return {name: value for name, value in body.items() if name not in _OUTCOME_2}
        case Trial():
            ask = {name: value for name, value in body["ask"].items() if name not in _ASK_2}
            phase = Phase.DEFAULT if word.decision.phase is Phase.BASELINE else word.decision.phase
            outcome = None if word.outcome is None else _as_version_1(word.outcome, body["outcome"])
            return {
                **body,
                "ask": {**ask, "gpu_model": word.ask.gpu_model, "max_watts": word.ask.max_watts},
                "decision": {**body["decision"], "phase": phase.value},
                "outcome": outcome,
            }
        case _:
            return body


def from_json(data: object, wanted: type[T], *, eta: float | None = None) -> T:
    """Read a value of the wanted type.

    Args:
        data: The parsed JSON.
        wanted: The type to read.
        eta: The η of a trial of version 1, which does not store its own.

    Raises:
        InputError: The data are of another kind, of an unknown version, or invalid.
    """
    kind = _KINDS[wanted]
    if not isinstance(data, Mapping) or data.get("kind") != kind:
        found = data.get("kind") if isinstance(data, Mapping) else data
        raise InputError(f"expected a JSON object of kind {kind!r}, found {found!r}.")
    version = data.get("version")
    if version not in VERSIONS or isinstance(version, bool):
        raise InputError(
            f"{kind} of version {version!r}: this Zeus reads versions 1 to {VERSION}. "
            "Another version of Zeus wrote it. Install the newer of the two."
        )
    body = {name: value for name, value in data.items() if name not in ("kind", "version")}
    if wanted is Trial and version == 1:
        body = _from_version_1(body, eta)
    read: Callable[[Any], T] | None = _READERS.get(wanted)
    return _read(wanted, body) if read is None else read(body)


def dumps(data: Json) -> str:
    """One line of JSON. Values of `zeus.job` inside `data` are encoded too."""
    try:
        return _ENCODER.encode(data)
    except ValueError as wrong:
        raise InputError(f"{data}: {wrong}. Use null for an unknown number.") from wrong


def loads(text: str) -> Json:
    """Parse a JSON object. InputError if the text is anything else."""
    try:
        data = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as wrong:
        raise InputError(f"{text[:80]!r} is not JSON: {wrong}.") from wrong
    if not isinstance(data, dict):
        raise InputError(f"{text[:80]!r}: expected a JSON object.")
    return data


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


# The fields of each type, and whether they are required. Computed once, as every trial read or written needs them.
_WORDS = (Ask, Decision, Gpus, HourlyUse, JobSpec, Outcome, Pardoned, Profiled, ProfileKey, Target, Trial)
_FIELDS: dict[type[Any], dict[str, bool]] = {
    word: {one.name: one.default is MISSING for one in fields(word)} for word in _WORDS
}


def _types(hint: Any) -> frozenset[type[Any]]:
    """The exact types a field may hold. An int is accepted for a float; a bool is not a number."""
    kinds = {get_origin(one) or one for one in (get_args(hint) if isinstance(hint, UnionType) else (hint,))}
    return frozenset(kinds | {int} if float in kinds else kinds)


_TYPES: dict[type[Any], dict[str, frozenset[type[Any]]]] = {
    word: {name: _types(hint) for name, hint in get_type_hints(word).items()} for word in _WORDS
}
_ASK_2 = ("gpus", "eta", "id", "target")
_JOB_2 = ("baseline_every", "command_id", "include")
_NO_BETA_1 = 1e9  # Zeus 0.1 needs a number; no run reaches this one
_OUTCOME_2 = ("stretches", "curve", "found_watts", "set_limits", "hourly", "micro_batch_size", "samples")
_ROWS: dict[type[Any], list[str]] = {row: [one.name for one in fields(row)] for row in (Stretch, EpochPoint, HourUse)}


def _inner(word: Any) -> Any:
    """Its fields, whose values the encoder passes to this function in turn.

    Stretches and epochs become lists, because there may be many of them.
    """
    if type(word) in _ROWS:
        return [getattr(word, name) for name in _ROWS[type(word)]]
    names = _FIELDS.get(type(word))
    if names is None:
        raise TypeError(f"{word!r} cannot be written as JSON")
    body = {name: getattr(word, name) for name in names}
    if body.get("include") == GPU_ONLY:
        del body["include"]
    for name in ("hourly", "micro_batch_size", "samples"):
        if body.get(name, ()) is None:
            del body[name]
    return body


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_inner)


def plain(value: Any) -> Any:
    """The value as dicts, lists, strings and numbers."""
    if type(value) in _FIELDS:
        return {name: plain(inner) for name, inner in _inner(value).items()}
    if isinstance(value, StrEnum):
        return value.value
    if type(value) in _ROWS:
        return [plain(one) for one in _inner(value)]
    return [plain(one) for one in value] if isinstance(value, tuple) else value


def _read(cls: type[T], body: object) -> T:
    """A flat dataclass from exactly its fields. Fields with a default may be missing."""
    if not isinstance(body, Mapping):
        raise InputError(f"{cls.__name__} {body!r}: expected a JSON object.")
    names = _FIELDS[cls]
    if unknown := sorted(set(body) - set(names)):
        raise InputError(f"{cls.__name__} has no {', '.join(map(repr, unknown))}; it has {', '.join(names)}.")
    missing = [name for name, needed in names.items() if needed and name not in body]
    if missing:
        raise InputError(f"{cls.__name__} {dict(body)!r} lacks {', '.join(missing)}.")
    types = _TYPES[cls]
    for name, value in body.items():
        if type(value) not in types[name]:
            raise InputError(f"{cls.__name__}: {name}={value!r}: give {_named(types[name])}.")
    return cls(**body)


def _named(types: Iterable[type[Any]]) -> str:
    return " or ".join(sorted("null" if one is NoneType else one.__name__ for one in types))


def _with(body: object, **readers: Callable[[Any], Any]) -> Json:
    """The body with some of its fields parsed by these readers."""
    if not isinstance(body, Mapping):
        raise InputError(f"{body!r}: expected a JSON object.")
    try:
        return {**body, **{name: read(body[name]) for name, read in readers.items() if name in body}}
    except InputError:
        raise
    except (TypeError, ValueError) as wrong:
        raise InputError(f"{dict(body)!r}: {wrong}.") from wrong


def _outcome(body: object) -> Outcome:
    return _read(Outcome, _with(body, ending=Ending, stretches=stretches_from_json, curve=_curve, hourly=_hourly))


def stretches_from_json(rows: list[Any]) -> tuple[Stretch, ...]:
    return tuple(Stretch(Kind(kind), *rest) for kind, *rest in rows)


def _curve(rows: list[Any]) -> tuple[EpochPoint, ...]:
    return tuple(EpochPoint(*row) for row in rows)


def _hourly(body: object) -> HourlyUse | None:
    def rows(given: list[Any]) -> tuple[HourUse, ...]:
        return tuple(HourUse(*row) for row in given)

    return None if body is None else _read(HourlyUse, _with(body, rows=rows))


def _gpus(body: object) -> Gpus:
    return _read(Gpus, _with(body, include=tuple))


def _target(body: object) -> Target | None:
    return None if body is None else _read(Target, body)


def _ask(body: object) -> Ask:
    return _read(Ask, _with(body, gpus=_gpus, target=_target))


def _from_version_1(body: Json, eta: float | None) -> Json:
    """The body of a trial of version 1, which has only a label for its GPUs and no η, as version 2."""
    ask = body.get("ask")
    if not isinstance(ask, Mapping) or "max_watts" not in ask:
        return body
    if eta is None:
        raise InputError("a trial of version 1 has no eta of its own. Give the eta of its job.")
    rest = {name: value for name, value in ask.items() if name not in ("gpu_model", "max_watts")}
    gpus = Gpus.of_label(str(ask.get("gpu_model", "")), ask["max_watts"])
    return {**body, "ask": {**rest, "gpus": plain(gpus), "eta": eta}}


def _decision(body: object) -> Decision:
    return _read(Decision, _with(body, phase=Phase))


def _trial(body: object) -> Trial:
    def outcome(body: object) -> Outcome | None:
        return None if body is None else _outcome(body)

    return _read(Trial, _with(body, ask=_ask, decision=_decision, outcome=outcome))


_READERS: dict[type[Any], Callable[[Any], Any]] = {
    JobSpec: lambda body: _read(JobSpec, _with(body, batch_sizes=tuple, power_limits=tuple, include=tuple)),
    Trial: _trial,
    Outcome: _outcome,
    PowerProfile: PowerProfile.from_json,
}
