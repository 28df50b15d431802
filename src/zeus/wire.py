"""The words of `zeus.job` and `zeus.profile` as JSON, versioned: store, service and files all speak this.

Each dict says its `kind` and `version`. A reader that does not know the version says so and reads nothing: a guess
would be folded into decisions for ever. Unknown is null; there is no NaN.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

from zeus.errors import InputError
from zeus.job import Ask, Decision, Ending, JobSpec, Outcome, Pardoned, Phase, Profiled, Trial
from zeus.profile import PowerProfile, ProfileKey

VERSION = 1

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
    """`to_json` as one line of JSON.

    >>> to_text(Pardoned(sequence=7, batch_size=32))
    '{"kind":"pardoned","version":1,"sequence":7,"batch_size":32}'
    """
    body = word.to_json() if isinstance(word, PowerProfile) else _inner(word)
    return dumps({"kind": _KINDS[type(word)], "version": VERSION, **body})


def to_json(word: Word) -> Json:
    """A dict that JSON can hold.

    >>> to_json(Pardoned(sequence=7, batch_size=32))
    {'kind': 'pardoned', 'version': 1, 'sequence': 7, 'batch_size': 32}
    """
    body = word.to_json() if isinstance(word, PowerProfile) else _plain(word)
    return {"kind": _KINDS[type(word)], "version": VERSION, **body}


def from_json(data: object, wanted: type[T]) -> T:
    """The word that a dict holds, which must be of the wanted kind.

    Raises:
        InputError: It is of another kind, or of a version that this Zeus does not know, or not sound.
    """
    kind = _KINDS[wanted]
    if not isinstance(data, Mapping) or data.get("kind") != kind:
        found = data.get("kind") if isinstance(data, Mapping) else data
        raise InputError(f"expected a JSON object of kind {kind!r}, found {found!r}.")
    if data.get("version") != VERSION or isinstance(data["version"], bool):
        raise InputError(
            f"{kind} of version {data.get('version')!r}: this Zeus reads version {VERSION}. "
            "It was written by another one; use that, or install the newer of the two."
        )
    body = {name: value for name, value in data.items() if name not in ("kind", "version")}
    read: Callable[[Any], T] | None = _READERS.get(wanted)
    return _read(wanted, body) if read is None else read(body)


def dumps(data: Json) -> str:
    """One line of JSON, in which words may stand for their dicts."""
    try:
        return _ENCODER.encode(data)
    except ValueError as wrong:
        raise InputError(f"{data}: {wrong}. A number that is not known is null.") from wrong


def loads(text: str) -> Json:
    """The object on one line of JSON."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        raise InputError(f"{text[:80]!r} is not JSON: {wrong}.") from wrong
    if not isinstance(data, dict):
        raise InputError(f"{text[:80]!r}: expected a JSON object.")
    return data


# The fields of each word, and whether they must be there: looked up for every trial that is read or written.
_FIELDS: dict[type[Any], dict[str, bool]] = {
    word: {one.name: one.default is MISSING for one in fields(word)}
    for word in (Ask, Decision, JobSpec, Outcome, Pardoned, Profiled, ProfileKey, Trial)
}


def _inner(word: Any) -> Json:
    """Its fields as they are; the encoder asks for those of its own."""
    names = _FIELDS.get(type(word))
    if names is None:
        raise TypeError(f"{word!r} is no word of Zeus and cannot be written as JSON")
    return {name: getattr(word, name) for name in names}


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_inner)


def _plain(value: Any) -> Any:
    if type(value) in _FIELDS:
        return {name: _plain(inner) for name, inner in _inner(value).items()}
    if isinstance(value, StrEnum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


def _read(cls: type[T], body: object) -> T:
    """A flat dataclass from exactly its fields; those with a default may be missing."""
    if not isinstance(body, Mapping):
        raise InputError(f"{cls.__name__} {body!r}: expected a JSON object.")
    known = _FIELDS[cls]
    if strange := sorted(set(body) - set(known)):
        raise InputError(f"{cls.__name__} has no {', '.join(map(repr, strange))}; it has {', '.join(known)}.")
    missing = [name for name, needed in known.items() if needed and name not in body]
    if missing:
        raise InputError(f"{cls.__name__} {dict(body)!r} lacks {', '.join(missing)}.")
    try:
        return cls(**body)
    except (TypeError, AttributeError) as wrong:
        raise InputError(f"{cls.__name__} {dict(body)!r}: {wrong}.") from wrong


def _with(body: object, **readers: Callable[[Any], Any]) -> Json:
    """The body with some of its fields read further."""
    if not isinstance(body, Mapping):
        raise InputError(f"{body!r}: expected a JSON object.")
    try:
        return {**body, **{name: read(body[name]) for name, read in readers.items() if name in body}}
    except InputError:
        raise
    except (TypeError, ValueError) as wrong:
        raise InputError(f"{dict(body)!r}: {wrong}.") from wrong


def _outcome(body: object) -> Outcome:
    return _read(Outcome, _with(body, ending=Ending))


def _decision(body: object) -> Decision:
    decision = _read(Decision, _with(body, phase=Phase))
    if not isinstance(decision.batch_size, int) or decision.batch_size < 1:
        raise InputError(f"batch_size={decision.batch_size!r}: give a whole number of at least 1.")
    return decision


def _trial(body: object) -> Trial:
    def outcome(body: object) -> Outcome | None:
        return None if body is None else _outcome(body)

    return _read(Trial, _with(body, ask=lambda body: _read(Ask, body), decision=_decision, outcome=outcome))


_READERS: dict[type[Any], Callable[[Any], Any]] = {
    JobSpec: lambda body: _read(JobSpec, _with(body, batch_sizes=tuple, power_limits=tuple)),
    Trial: _trial,
    Outcome: _outcome,
    PowerProfile: PowerProfile.from_json,
}
