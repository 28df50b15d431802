"""Restores a power limit.

The limit found is restored, with one exception. If the limit in force is neither that nor one that Zeus set, somebody
else (such as an administrator) changed it during the lease. Then it stays.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

from zeus.device.gpu import Gpu
from zeus.device.keeper.notes import Note
from zeus.errors import DeviceError

log = logging.getLogger("zeus.device.keeper")

TOLERANCE_WATTS = 1.0  # drivers round a limit that is set by up to this; the limit that they report is exact


class Restoration(StrEnum):
    """How the lending of one GPU ended."""

    RESTORED = "restored"  # the limit found was restored
    UNCHANGED = "unchanged"  # it was still in force
    LEFT = "left"  # somebody else had changed it, so it stays
    VOID = "void"  # the note was from another boot
    FAILED = "failed"  # could not be restored; the note stays for the next try


@dataclass(frozen=True, slots=True)
class Returned:
    """One GPU that was given back: how, the limit found, and the one in force now if known."""

    uuid: str
    ending: Restoration
    found_watts: float | None = None
    limit_watts: float | None = None
    message: str = ""


def same(a: float, b: float) -> bool:
    """Whether two limits that the driver reported are equal. It counts in milliwatts."""
    return round(a * 1e3) == round(b * 1e3)


def near(reported: float, given: float) -> bool:
    """Whether the reported limit may be the driver's rounding of the one that was set."""
    return abs(round(reported * 1e3) - round(given * 1e3)) <= TOLERANCE_WATTS * 1e3


def is_foreign(watts: float, note: Note) -> bool:
    """Whether somebody else set this limit, which is now in force.

    >>> note = Note("GPU-1", "boot", found_watts=250, ours_watts=(150,), setting_watts=125)
    >>> is_foreign(250, note), is_foreign(150, note), is_foreign(124.9, note)
    (False, False, False)
    >>> is_foreign(249.5, note), is_foreign(150.001, note), is_foreign(200, note)
    (True, True, True)
    """
    if note.setting_watts is not None and near(watts, note.setting_watts):
        return False
    return not any(same(watts, expected) for expected in (note.found_watts, *note.ours_watts))


def put_back(gpu: Gpu, note: Note) -> Returned:
    """Try once to restore the limit. Raises whatever the card raises."""
    now = gpu.limit()
    if is_foreign(now, note):
        ending = Restoration.LEFT
    elif same(now, note.found_watts):
        ending = Restoration.UNCHANGED
    else:
        gpu.set_limit(note.found_watts)
        now = gpu.limit()
        if not near(now, note.found_watts):
            raise DeviceError(f"GPU {note.uuid}: set {note.found_watts:g} W, but {now:g} W is in force.")
        ending = Restoration.RESTORED
    if note.switched_persistence and note.found_persistence is False:
        # After the limit: with persistence off, the driver may unload at once and lose the limit.
        try:
            gpu.set_persistence(False)
        except DeviceError as e:
            log.warning("GPU %s: persistence mode stays on: %s", note.uuid, e)
    return Returned(note.uuid, ending, note.found_watts, now, describe(note, ending, now))


def describe(note: Note, ending: Restoration, now: float) -> str:
    match ending:
        case Restoration.RESTORED:
            return f"GPU {note.uuid}: restored its limit of {note.found_watts:g} W."
        case Restoration.LEFT:
            return (
                f"GPU {note.uuid}: left at {now:g} W, which somebody else set during the lease. "
                f"It was at {note.found_watts:g} W before."
            )
        case _:
            return f"GPU {note.uuid}: still at its limit of {note.found_watts:g} W."
