"""Who opens a trial, and where. A header of the request tells the service; one that does not know it ignores it.

Zeus-Origin: user=alice&host=node7&folder=%2Fhome%2Falice%2Fasr
"""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import parse_qs, urlencode

from msgspec import structs

from zeus.errors import InputError
from zeus.job import Origin
from zeus.store.actor import user

HEADER = "Zeus-Origin"


def here() -> Origin:
    """The user, the machine and the folder of this process."""
    try:
        folder = str(Path.cwd())
    except OSError:  # it was removed
        folder = ""
    return _sound(user(), socket.gethostname(), folder) or Origin()


def header(origin: Origin) -> dict[str, str]:
    """The header that says it.

    >>> header(Origin("alice", "node7", "/home/alice/a b"))
    {'Zeus-Origin': 'user=alice&host=node7&folder=%2Fhome%2Falice%2Fa+b'}
    """
    return {HEADER: urlencode(structs.asdict(origin), errors="replace")}


def from_header(text: str | None) -> Origin | None:
    """What the header says; None if there is none, or if it cannot be read.

    >>> from_header("user=alice&host=node7&more=1"), from_header("nonsense"), from_header(None)
    (Origin(user='alice', host='node7', folder=''), None, None)
    """
    try:
        told = parse_qs(text or "", max_num_fields=10)
    except ValueError:
        return None
    values = [told.get(name, [""])[0] for name in Origin.__struct_fields__]
    return _sound(*values) if any(values) else None


def _sound(*values: str) -> Origin | None:
    """The origin, or None if a value cannot be stored and shown."""
    shown = ["".join(one if one.isprintable() else "?" for one in value) for value in values]
    try:
        return Origin(shown[0][:200], shown[1][:253], shown[2][:4096])
    except InputError:
        return None
