"""The values of `zeus.job` and `zeus.profile` as versioned JSON, for the store, the service and files.

Each object has a `kind` and a `version`. An unknown version is an error: a wrong guess would enter every later
decision. Unknown is null; there is no NaN. Fields and bounds are those of the types (`zeus.job.value`). A field with a
default may be missing; any other field is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from zeus.errors import InputError
from zeus.job import JobSpec, Outcome, Pardoned, Profiled, Trial
from zeus.profile import PowerProfile, ProfileKey

VERSION = 2  # the first that was published

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]
Written: TypeAlias = JobSpec | Trial | Outcome | Profiled | Pardoned | ProfileKey | PowerProfile

KINDS: dict[type[Any], str] = {
    JobSpec: "job",
    Trial: "trial",
    Outcome: "outcome",
    Profiled: "profiled",
    Pardoned: "pardoned",
    ProfileKey: "profile_key",
    PowerProfile: "profile",
}
LONGEST = 80  # characters of a value that a message quotes
TYPES = {
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a text",
    "`bool`": "true or false",
    "`null`": "null",
    "`array`": "a list",
    "`object`": "a JSON object",
}

_encode = msgspec.json.Encoder().encode


def to_text(value: Written) -> str:
    """The value as one line of JSON.

    >>> to_text(Pardoned(sequence=7, batch_size=32))
    '{"kind":"pardoned","version":2,"sequence":7,"batch_size":32}'
    """
    body = value.to_json() if isinstance(value, PowerProfile) else value
    return f'{{"kind":"{KINDS[type(value)]}","version":{VERSION},{_encode(body).decode()[1:]}'


def to_json(value: Written) -> Json:
    """The value as a dict of JSON types.

    >>> to_json(Pardoned(sequence=7, batch_size=32))
    {'kind': 'pardoned', 'version': 2, 'sequence': 7, 'batch_size': 32}
    """
    body = value.to_json() if isinstance(value, PowerProfile) else plain(value)
    return {"kind": KINDS[type(value)], "version": VERSION, **body}


def from_json(data: object, wanted: type[T]) -> T:
    """Read a value of the wanted type.

    Raises:
        InputError: The data are of another kind, of an unknown version, or invalid.
    """
    kind = KINDS[wanted]
    if not isinstance(data, Mapping) or data.get("kind") != kind:
        found = data.get("kind") if isinstance(data, Mapping) else data
        raise InputError(f"expected a JSON object of kind {kind!r}, found {found!r}.")
    body = {name: value for name, value in data.items() if name not in ("kind", "version")}
    need_version(kind, data.get("version"))
    if wanted is PowerProfile:
        return PowerProfile.from_json(body)  # type: ignore[return-value]
    return read(body, wanted)


def need_version(kind: str, version: object) -> None:
    """Raise InputError unless this Zeus can read this version of the format."""
    if version != VERSION or isinstance(version, bool):
        raise InputError(
            f"{kind} of version {version!r}: this Zeus reads version {VERSION}. "
            "Another version of Zeus wrote it. Install the newer of the two."
        )


def read(data: object, wanted: type[T]) -> T:
    """A value from JSON types without kind and version. InputError names what is wrong, and with which value."""
    try:
        return msgspec.convert(data, wanted)
    except msgspec.ValidationError as wrong:
        raise InputError(explained(wrong, data)) from wrong


def explained(wrong: msgspec.ValidationError, data: object) -> str:
    """What is wrong with some JSON, with the place and the value.

    >>> try:
    ...     msgspec.convert({"sequence": 0, "batch_size": 8}, Pardoned)
    ... except msgspec.ValidationError as wrong:
    ...     explained(wrong, {"sequence": 0, "batch_size": 8})
    'sequence=0: expected a whole number >= 1.'
    """
    message, _, place = str(wrong).removesuffix("`").partition(" - at `$")
    value: Any = data
    try:
        for key in re.findall(r"[^.\[\]]+", place):
            value = value[int(key)] if isinstance(value, list | tuple) else value[key]
    except (LookupError, TypeError, ValueError):
        value = "..."
    if isinstance(wrong.__cause__, InputError):  # a check of the type itself, which names the field
        place, message = place.rpartition(".")[0], str(wrong.__cause__)
    else:
        shown = repr(value) if len(repr(value)) <= LONGEST else f"{repr(value)[:LONGEST]}..."
        place = f"{place}={shown}" if place else ""
        message = f"{message[:1].lower()}{message[1:]}."
        for name, words in TYPES.items():
            message = message.replace(name, words)
    return f"{place.lstrip('.')}: {message}" if place else message


def dumps(data: Json) -> str:
    """JSON types as one line of JSON."""
    try:
        return json.dumps(data, allow_nan=False, separators=(",", ":"))
    except ValueError as wrong:
        raise InputError(f"{data}: {wrong}. Use null for an unknown number.") from wrong


def loads(text: str) -> Json:
    """Parse a JSON object. InputError if the text is anything else."""
    data = parse(text)
    if not isinstance(data, dict):
        raise InputError(f"{text[:LONGEST]!r}: expected a JSON object.")
    return data


def parse(text: str | bytes) -> Any:
    """The value of a JSON text. InputError if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as wrong:
        shown = text.decode(errors="replace") if isinstance(text, bytes) else text
        unknown = " Use null for an unknown number." if re.search("NaN|Infinity", shown) else ""
        raise InputError(f"{shown[:LONGEST]!r} is not JSON: {wrong}.{unknown}") from wrong


def plain(value: Any) -> Any:
    """The value as dicts, lists, strings and numbers."""
    return msgspec.json.decode(_encode(value))
