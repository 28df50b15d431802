"""A loan: the GPUs that one client has, the limits that it sets on them, and how they are restored.

Whoever holds a GPU's lock owns everything about that GPU. So a `Loan` is used by one thread and needs no other lock.
The note of a GPU is updated before and after each step. It thus lists exactly the limits that Zeus may have put in
force, even if a process dies in between.

At the end, the limit found is restored, with one exception. If the limit in force is neither that nor one that Zeus
set, somebody else (such as an administrator) changed it during the lease. Then it stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from zeus.device.gpu import Gpu, check_limit, refuse_if_read_only
from zeus.device.keeper.audit import audit
from zeus.device.keeper.notes import Note, Notes, near, same
from zeus.device.keeper.policy import Allowed
from zeus.errors import DeviceError, InputError, ReadOnly
from zeus.files import FileLock

log = logging.getLogger("zeus.device.keeper")


class Restoration(StrEnum):
    """How the lending of one GPU ended."""

    RESTORED = "restored"  # the limit found was restored
    UNCHANGED = "unchanged"  # it was still in force
    LEFT = "left"  # somebody else had changed it, so it stays
    VOID = "void"  # the note was from another boot
    FAILED = "failed"  # could not be restored; the note stays for the next try


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """How a GPU was restored, the limit found, and the one in force now if known."""

    uuid: str
    ending: Restoration
    found_watts: float | None = None
    limit_watts: float | None = None
    message: str = ""


def restore(gpu: Gpu, note: Note) -> RestoreResult:
    """Try once to restore the limit. Raises whatever the card raises."""
    now, found = gpu.limit(), note.found_watts
    if note.is_foreign(now):
        ending = Restoration.LEFT
        message = f"left at {now:g} W, which somebody else set during the lease. It was at {found:g} W before."
    elif same(now, found):
        ending, message = Restoration.UNCHANGED, f"still at its limit of {found:g} W."
    else:
        gpu.set_limit(found)
        now = gpu.limit()
        if not near(now, found):
            raise DeviceError(f"GPU {note.uuid}: set {found:g} W, but {now:g} W is in force.")
        ending, message = Restoration.RESTORED, f"restored its limit of {found:g} W."
    if note.switched_persistence and note.found_persistence is False:
        # After the limit: with persistence off, the driver may unload at once and lose the limit.
        try:
            gpu.set_persistence(False)
        except DeviceError as e:
            log.warning("GPU %s: persistence mode stays on: %s", note.uuid, e)
    return RestoreResult(note.uuid, ending, found, now, f"GPU {note.uuid}: {message}")


@dataclass(slots=True)
class LentGpu:
    """One GPU on loan."""

    gpu: Gpu
    lock: FileLock
    note: Note
    ceiling_watts: float  # the lowest limit that anybody else had set; Zeus never goes above it
    in_force_watts: float  # as the card last reported it


class Loan:
    """Some GPUs lent together.

    Args:
        notes: Where the limits are written down.
        restore: Restores the limits found on these GPUs and releases their locks.
        lent: The GPUs.
        allowed: What the policy lets the borrower set.
        who: For whom, as the audit has it.
    """

    def __init__(
        self,
        notes: Notes,
        restore: Callable[[Sequence[LentGpu]], list[RestoreResult]],
        lent: Sequence[LentGpu],
        allowed: Allowed,
        who: str,
    ) -> None:
        self._notes, self._restore = notes, restore
        self._lent = {one.note.uuid: one for one in lent}
        self._allowed = allowed
        self._who = who

    @property
    def found(self) -> dict[str, float]:
        """The limits that will be restored, in watts by UUID."""
        return {uuid: one.note.found_watts for uuid, one in self._lent.items()}

    def set(self, watts: Mapping[str, float]) -> dict[str, float]:
        """Set these limits, all or none, and return those now in force."""
        before = {uuid: one.in_force_watts for uuid, one in self._lent.items()}
        try:
            limits = self._set_all(watts)
        except Exception as e:
            verdict = "refused" if isinstance(e, InputError | ReadOnly) else "failed"
            named = {uuid if uuid in self._lent else "-": value for uuid, value in watts.items()}  # a client names any
            for uuid, value in named.items():
                audit("set", verdict, uuid, before.get(uuid), value, self._who, str(e))
            raise
        for uuid, value in limits.items():
            audit("set", "allowed", uuid, before[uuid], value, self._who)
        return limits

    def _set_all(self, watts: Mapping[str, float]) -> dict[str, float]:
        refuse_if_read_only("setting a power limit")
        if not watts:
            raise InputError("no GPU is named. Name at least one to set a limit on.")
        for uuid in watts:
            if uuid not in self._lent:
                raise InputError(f"GPU {uuid} is not part of this lease, which has {', '.join(self._lent) or 'none'}.")
        before = {uuid: self._in_force(self._lent[uuid]) for uuid in watts}
        for uuid, value in watts.items():
            _check(self._lent[uuid], value)
            self._permit(self._lent[uuid], value)
        touched: list[LentGpu] = []
        try:
            for uuid, value in watts.items():
                touched.append(self._lent[uuid])
                self._set(self._lent[uuid], value)
        except BaseException:
            for one in touched:
                self._undo(one, before[one.note.uuid])
            raise
        return {uuid: self._lent[uuid].in_force_watts for uuid in watts}

    def _permit(self, one: LentGpu, watts: float) -> None:
        """Raise InputError if the policy does not allow this limit. To return to the limit found is always allowed."""
        refusal = self._allowed.refusal(one.gpu.spec, watts)
        if refusal and not same(watts, one.note.found_watts):
            raise InputError(refusal)

    def restore(self) -> list[RestoreResult]:
        """Restore the limits found. May be called twice."""
        lent, self._lent = list(self._lent.values()), {}
        return self._restore(lent)

    def _in_force(self, one: LentGpu) -> float:
        """The limit in force. If somebody else set it meanwhile, it becomes the limit to restore and our ceiling."""
        now = one.gpu.limit()
        if one.note.is_foreign(now):
            self._adopt(one, now)
        one.in_force_watts = now
        return now

    def _adopt(self, one: LentGpu, watts: float, setting: float | None = None) -> None:
        """Make somebody else's limit our ceiling and the one to restore. `setting` is the limit we set next, if any."""
        log.warning(
            "GPU %s: somebody else set %g W during the lease. Zeus will restore that at the end, not %g W.",
            one.note.uuid, watts, one.note.found_watts,
        )  # fmt: skip
        one.ceiling_watts = min(one.ceiling_watts, watts)
        self._write(one, replace(one.note, found_watts=watts, ours_watts=(), setting_watts=setting))

    def _set(self, one: LentGpu, watts: float) -> None:
        """Set a limit. Before and after, the note lists exactly the limits that Zeus may have put in force."""
        switch = one.note.found_persistence is False and not one.note.switched_persistence
        note = replace(one.note, ours_watts=(one.in_force_watts,), setting_watts=watts)
        self._write(one, replace(note, switched_persistence=True) if switch else note)
        if switch:
            try:
                one.gpu.set_persistence(True)  # otherwise the limit is lost when the driver has no client
            except DeviceError as e:
                log.info("GPU %s: persistence mode stays off: %s", one.note.uuid, e)
        now = one.gpu.limit()  # keep this close to the set: a limit that somebody sets in between is lost
        if not same(now, one.in_force_watts):
            self._adopt(one, now, setting=watts)
        self._apply(one, watts)
        self._write(one, replace(one.note, ours_watts=(one.in_force_watts,), setting_watts=None))

    def _apply(self, one: LentGpu, watts: float) -> None:
        """Set a limit on the card, if its ceiling allows.

        If the card then shows another limit, either the card rounds coarsely or somebody else set one in between.
        Setting it a second time tells which, because a card rounds the same way twice. Until then, the note holds the
        other limit.
        """
        _check(one, watts)
        one.gpu.set_limit(watts)
        one.in_force_watts = now = one.gpu.limit()
        if near(now, watts):
            return
        note, ceiling = one.note, one.ceiling_watts
        self._adopt(one, now, setting=watts)
        one.gpu.set_limit(watts)
        one.in_force_watts = one.gpu.limit()
        if same(one.in_force_watts, now):
            one.note, one.ceiling_watts = note, ceiling
        elif watts > one.ceiling_watts:
            one.gpu.set_limit(now)
            one.in_force_watts = one.gpu.limit()
            _check(one, watts)

    def _undo(self, one: LentGpu, watts: float) -> None:
        """Go back to the limit before a failed set, but not above one that somebody else has set since."""
        try:
            self._in_force(one)
            self._set(one, min(watts, one.ceiling_watts))
        except Exception as e:
            log.error("GPU %s: could not go back to %g W: %s", one.note.uuid, watts, e)

    def _write(self, one: LentGpu, note: Note) -> None:
        self._notes.write(note)
        one.note = note


def _check(one: LentGpu, watts: float) -> None:
    check_limit(one.gpu.spec, watts)
    if watts > one.ceiling_watts:
        raise InputError(
            f"GPU {one.note.uuid}: {watts:g} W is above the {one.ceiling_watts:g} W found. Zeus never raises a limit. "
            "Raise it yourself before the training starts."
        )
