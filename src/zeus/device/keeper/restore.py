"""How a limit is put back: the rule, and the acting on it.

The limit found comes back, unless what is in force now is neither that nor ours: then somebody else, say an
administrator, changed it while it was lent, and theirs is left alone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

from zeus.device.gpu import Gpu
from zeus.device.keeper.notes import Note
from zeus.errors import DeviceError

log = logging.getLogger("zeus.device.keeper")

TOLERANCE_WATTS = 1.0  # by how much drivers round what they are given; what they tell is exact


class Restoration(StrEnum):
    """How the lending of one GPU ended."""

    RESTORED = "restored"  # the limit found was put back
    UNCHANGED = "unchanged"  # it was in force already
    LEFT = "left"  # somebody else had changed it; theirs stays
    VOID = "void"  # the note was from another boot
    FAILED = "failed"  # could not be put back; the note stays for the next try


@dataclass(frozen=True, slots=True)
class Returned:
    """One GPU given back: how, the limit found, and the one in force now where known."""

    uuid: str
    ending: Restoration
    found_watts: float | None = None
    limit_watts: float | None = None
    message: str = ""


def same(a: float, b: float) -> bool:
    """Whether two limits that the driver told are one: it counts in milliwatts."""
    return round(a * 1e3) == round(b * 1e3)


def near(told: float, given: float) -> bool:
    """Whether the limit that the driver tells may be its rounding of the one it was given."""
    return abs(round(told * 1e3) - round(given * 1e3)) <= TOLERANCE_WATTS * 1e3


def is_foreign(watts: float, note: Note) -> bool:
    """Whether this limit, now in force, is somebody else's doing.

    >>> note = Note("GPU-1", "boot", found_watts=250, ours_watts=(150,), setting_watts=125)
    >>> is_foreign(250, note), is_foreign(150, note), is_foreign(124.9, note)
    (False, False, False)
    >>> is_foreign(249.5, note), is_foreign(150.001, note), is_foreign(200, note)
    (True, True, True)
    """
    if note.setting_watts is not None and near(watts, note.setting_watts):
        return False
    return not any(same(watts, known) for known in (note.found_watts, *note.ours_watts))


def put_back(gpu: Gpu, note: Note) -> Returned:
    """Do as the rule says, once; raises what the card raises."""
    now = gpu.limit()
    if is_foreign(now, note):
        ending = Restoration.LEFT
    elif same(now, note.found_watts):
        ending = Restoration.UNCHANGED
    else:
        gpu.set_limit(note.found_watts)
        now = gpu.limit()
        if not near(now, note.found_watts):
            raise DeviceError(f"GPU {note.uuid}: set back to {note.found_watts:g} W, yet {now:g} W are in force.")
        ending = Restoration.RESTORED
    if note.switched_persistence and note.found_persistence is False:
        # After the limit: with persistence off the driver may unload at once, and limits with it.
        try:
            gpu.set_persistence(False)
        except DeviceError as e:
            log.warning("GPU %s: persistence mode stays on: %s", note.uuid, e)
    return Returned(note.uuid, ending, note.found_watts, now, describe(note, ending, now))


def describe(note: Note, ending: Restoration, now: float) -> str:
    """One line for the log."""
    match ending:
        case Restoration.RESTORED:
            return f"GPU {note.uuid}: back to the {note.found_watts:g} W found."
        case Restoration.LEFT:
            return (
                f"GPU {note.uuid}: {now:g} W are in force, neither the {note.found_watts:g} W found nor ours; "
                "somebody else set them, so they stay."
            )
        case _:
            return f"GPU {note.uuid}: at the {note.found_watts:g} W found."
