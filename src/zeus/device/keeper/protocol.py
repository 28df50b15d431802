"""The protocol between a client and a keeper: JSON lines over a unix stream socket.

    client                                          keeper
    {"op": "hello", "zeus": 1}                      {"ok": true, "zeus": 1, "pid": 4711, "kind": "system"}
    {"op": "lease", "gpus": [...], "job": "asr"}    {"ok": true, "found": {"GPU-a": 250.0, "GPU-b": 250.0}}
    {"op": "set", "watts": {"GPU-a": 150.0}}        {"ok": true, "limits": {"GPU-a": 150.0}, "found": {...}}
    {"op": "release"}                               {"ok": true, "returned": [{"ending": "restored", ...}]}
    {"op": "status", "gpus": ["GPU-a"]}             {"ok": true, "lent": [], "ranges": {"GPU-a": [100.0, 250.0]}, ...}
    anything else                                   {"ok": false, "error": "InputError", "message": "..."}

Each request gets one line as its answer. An error carries the name of its class in `zeus.errors`, and the client
raises that class. The lease lasts as long as the connection.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from zeus import errors
from zeus.errors import InputError, ZeusError

VERSION = 1
MAX_LINE = 65536  # bytes; a lease on a thousand GPUs fits


class LineBuffer:
    """Splits a stream of bytes into lines of at most MAX_LINE bytes.

    >>> lines = LineBuffer()
    >>> list(lines.feed(b'{"op"')), list(lines.feed(b': "hello"}\\n{'))
    ([], [b'{"op": "hello"}'])
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that end in this data. Raises `InputError` if one is too long; then the stream is unusable."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in (*whole, self._rest):
            if len(line) > MAX_LINE:
                raise InputError(f"a message is longer than {MAX_LINE} bytes.")
        yield from whole


@dataclass(frozen=True, slots=True)
class Hello:
    """Opens the connection."""


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """Asks for these GPUs, all or none. `job` is what the client calls its job, for the audit."""

    gpus: tuple[str, ...]
    job: str = ""


@dataclass(frozen=True, slots=True)
class Set:
    """Sets limits on leased GPUs, all or none."""

    watts: dict[str, float]


@dataclass(frozen=True, slots=True)
class Release:
    """Ends the lease."""


@dataclass(frozen=True, slots=True)
class Status:
    """Asks which GPUs are lent, and which limits this client may set on some GPUs."""

    gpus: tuple[str, ...] = ()


Request = Hello | LeaseRequest | Set | Release | Status


def parse(line: bytes) -> Request:
    """Read a request. Raises `InputError` if anything is wrong with it.

    >>> parse(b'{"op": "lease", "gpus": ["GPU-a"]}')
    LeaseRequest(gpus=('GPU-a',), job='')
    """
    match _load(line):
        case {"op": "hello", "zeus": int(version)}:
            if version != VERSION:
                raise InputError(
                    f"the keeper's protocol has version {VERSION}, the client's {version}. Use the same Zeus for both."
                )
            return Hello()
        case {"op": "lease", "gpus": list(gpus), **more} if all(isinstance(g, str) for g in gpus):
            job = more.get("job", "")
            return LeaseRequest(tuple(gpus), job if isinstance(job, str) else "")
        case {"op": "set", "watts": dict(watts)} if all(_is_number(w) for w in watts.values()):
            return Set({uuid: float(w) for uuid, w in watts.items()})
        case {"op": "release"}:
            return Release()
        case {"op": "status", **more}:
            asked = more.get("gpus")
            return Status(tuple(g for g in asked if isinstance(g, str)) if isinstance(asked, list) else ())
        case _:
            raise InputError(f"the keeper does not know this request: {line[:200]!r}")


def answer(**fields: Any) -> bytes:
    """A successful answer, as a line."""
    return encode({"ok": True, **fields})


def failure(error: BaseException) -> bytes:
    ours = isinstance(error, ZeusError)
    name = type(error).__name__ if ours else "DeviceError"
    return encode({"ok": False, "error": name, "message": str(error) if ours else f"the keeper failed: {error!r}"})


def unpack(line: bytes) -> dict[str, Any]:
    """The fields of a successful answer. Raises the keeper's error for a failed one."""
    match _load(line):
        case {"ok": True, **fields}:
            return {str(name): value for name, value in fields.items()}
        case {"ok": False, "error": str(name), "message": str(message)}:
            kind = getattr(errors, name, None)
            raise (kind if isinstance(kind, type) and issubclass(kind, ZeusError) else ZeusError)(message)
        case _:
            raise InputError(f"this is not a keeper's answer: {line[:200]!r}")


def encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, allow_nan=False).encode() + b"\n"


def _load(line: bytes) -> object:
    try:
        return json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise InputError(f"this is not JSON: {line[:200]!r}") from e


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
