"""The keeper: lends power limits and restores them. Nothing else in Zeus calls a setter of a `Gpu`.

    free ──lend──▶ lent ──set──▶ lowered ──give_back──▶ free
                     └──────────give_back──────────────▶ free

Whoever holds a GPU's lock owns everything about that GPU. So a `Loan` is used by one thread and needs no other lock.
The keeper updates the GPU's note before and after each step. The note thus lists exactly the limits that Zeus may have
put in force, even if a process dies in between. The next keeper that gets the lock restores the limit found.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from zeus.device.gpu import Capability, Gpu, check_limit, refuse_if_read_only
from zeus.device.keeper import audit
from zeus.device.keeper.audit import Audit, AuditEntry, Borrower
from zeus.device.keeper.notes import Note, Notes, UnreadableNote
from zeus.device.keeper.policy import Allowed
from zeus.device.keeper.restore import Restoration, Returned, is_foreign, log, near, put_back, same
from zeus.errors import DeviceError, DeviceLost, InputError, LeaseRefused, NoDevice, ReadOnly, Unsupported, ZeusError
from zeus.files import FileLock

RETRIES_SECONDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)  # less than a second in total: a limit must be restored within one
PATIENCE_SECONDS = 2.0  # how long to wait for a GPU whose last holder has just died and is being cleaned up
_POLL_SECONDS = 0.02


@dataclass(slots=True)
class _Lent:
    """One GPU on loan."""

    gpu: Gpu
    lock: FileLock
    note: Note
    ceiling_watts: float  # the lowest limit that anybody else had set; Zeus never goes above it
    in_force_watts: float  # as the card last reported it


class Keeper:
    """Lends the GPUs of one machine."""

    def __init__(
        self,
        cards: Callable[[], Sequence[Gpu]],
        notes: Notes,
        pause: Callable[[float], None] = time.sleep,
        write_audit: Audit = audit.write,
    ) -> None:
        self.notes = notes
        self.audit = write_audit
        self._find = cards
        self._pause = pause
        self._cards: dict[str, Gpu] = {}
        self._finding = threading.Lock()
        self._reported: set[str] = set()
        self._owed: dict[str, Note] = {}  # notes of limits that are being restored, or could not be

    def lend(
        self,
        uuids: Iterable[str],
        to: str = "",
        patience: float = PATIENCE_SECONDS,
        *,
        allowed: Allowed | None = None,
        borrower: Borrower | None = None,
    ) -> Loan:
        """Lend all of these GPUs, or raise and lend none.

        Args:
            uuids: The GPUs.
            to: Who wants them, in words for others who want them too.
            patience: How long to wait for a GPU, in seconds.
            allowed: What the policy lets the borrower set. Default: what the card accepts.
            borrower: For whom, for the audit.
        """
        wanted = sorted(set(uuids))  # sorted, so that two clients who want the same GPUs cannot each get a part
        if not wanted:
            raise InputError("a lease needs at least one GPU.")
        refuse_if_read_only("lending a power limit")
        loan = Loan(self, allowed or Allowed(), str(borrower or Borrower(os.geteuid(), os.getpid())))
        cards = [self.card(uuid) for uuid in wanted]  # before the deadline starts: opening the driver is slow
        deadline = time.monotonic() + patience
        try:
            for uuid, gpu in zip(wanted, cards, strict=True):
                if Capability.LIMITS not in gpu.spec.capabilities:
                    raise Unsupported(f"GPU {uuid} ({gpu.spec.name}) has no power limit that can be set.")
                lock = self._lock(uuid, to or f"process {os.getpid()}", deadline)
                try:
                    loan.add(self._begin(gpu, lock, loan.borrower))
                except BaseException:
                    lock.release()
                    raise
        except BaseException:
            loan.give_back()
            raise
        return loan

    def recover(self, uuids: Sequence[str] | None = None) -> list[Returned]:
        """Restore what a dead keeper left behind, by default on all GPUs. Those on lease are not touched."""
        returned = []
        for uuid in self.notes.uuids() if uuids is None else uuids:
            try:
                outcome = self._recover_one(uuid)
            except Exception as e:  # one broken card must not stop the others
                outcome = Returned(uuid, Restoration.FAILED, message=f"GPU {uuid}: could not be restored: {e}")
            if outcome is not None:
                returned.append(outcome)
                self._report(outcome)
        return returned

    def owed(self) -> list[str]:
        """The GPUs whose limit this keeper could not restore, and that nobody else has restored or lent since."""
        for uuid, note in list(self._owed.items()):
            try:
                is_ours = self.notes.read(uuid) == note
            except UnreadableNote:
                is_ours = False
            if not is_ours:
                del self._owed[uuid]
        return sorted(self._owed)

    def lent(self) -> list[str]:
        """The GPUs on lease now, from this keeper or another one that shares its notes."""
        lent = []
        for uuid in self.notes.uuids():
            if (lock := self.notes.lock(uuid)) is None:
                lent.append(uuid)
            else:
                lock.release()
        return lent

    def left_behind(self) -> list[str]:
        """The GPUs whose limit a dead keeper left changed, or may have."""
        left = []
        for uuid in self.notes.uuids():
            if (lock := self.notes.lock(uuid)) is None:
                continue
            with lock:
                try:
                    note = self.notes.read(uuid)
                except UnreadableNote:
                    left.append(uuid)
                    continue
            if note is not None and not self.notes.is_void(note):
                left.append(uuid)
        return left

    def card(self, uuid: str) -> Gpu:
        """The card with this UUID. Looks for cards again if it is unknown: cards appear and drivers load late."""
        with self._finding:
            if uuid not in self._cards:
                self._cards = dict(_named(self._find()))
            if uuid not in self._cards:
                present = ", ".join(sorted(self._cards)) or "none"
                raise NoDevice(f"there is no GPU {uuid} on this machine. Its GPUs are: {present}.")
            return self._cards[uuid]

    def return_all(self, lent: Sequence[_Lent]) -> list[Returned]:
        """Restore these GPUs and release their locks."""
        try:
            returned = self._put_back([(one.gpu, one.note) for one in lent])
            for outcome in returned:
                self._report(outcome)
            return returned
        finally:
            for one in lent:
                one.lock.release()

    def _put_back(self, cards: Sequence[tuple[Gpu, Note]]) -> list[Returned]:
        """Restore each card, then retry those that failed, so that no card waits for a broken one."""
        returned: dict[str, Returned] = {}
        pending = list(cards)
        self._owed |= {note.uuid: note for _, note in cards}
        for delay in RETRIES_SECONDS:
            if not pending:
                break
            self._pause(delay)
            for gpu, note in tuple(pending):
                again = False
                try:
                    returned[note.uuid] = put_back(gpu, note)
                    self.notes.drop(note.uuid)
                    del self._owed[note.uuid]
                except Exception as e:  # one broken card must not stop the others
                    text = (
                        f"GPU {note.uuid}: the limit of {note.found_watts:g} W could not be restored. "
                        f"Run `zeus restore` to try again. {e}"
                    )
                    returned[note.uuid] = Returned(note.uuid, Restoration.FAILED, note.found_watts, message=text)
                    again = not isinstance(e, DeviceLost | PermissionError)  # waiting does not help with those
                    if isinstance(e, DeviceLost):
                        self._forget_cards()
                if not again:
                    pending.remove((gpu, note))
        for _, note in cards:
            self._audit(note, returned[note.uuid])
        return list(returned.values())

    def _audit(self, note: Note, returned: Returned) -> None:
        who, ours = note.borrower or str(Borrower()), next(iter(note.ours_watts), None)
        if returned.ending is Restoration.RESTORED:
            self.audit(AuditEntry("restore", "allowed", note.uuid, ours, returned.limit_watts, who))
        elif returned.ending is Restoration.FAILED and note.uuid not in self._reported:  # once, however often it fails
            self.audit(AuditEntry("restore", "failed", note.uuid, ours, note.found_watts, who, returned.message))

    def _forget_cards(self) -> None:
        """Look for the cards again next time: one that comes back has another handle."""
        with self._finding:
            self._cards = {}

    def _lock(self, uuid: str, holder: str, deadline: float) -> FileLock:
        while (lock := self.notes.lock(uuid, holder)) is None:
            if time.monotonic() >= deadline:
                raise LeaseRefused(
                    f"GPU {uuid} is on lease to {self.notes.holder(uuid)}, and only one process can have it. "
                    "Wait until that lease ends, or use another GPU."
                )
            self._pause(_POLL_SECONDS)
        return lock

    def _begin(self, gpu: Gpu, lock: FileLock, borrower: str) -> _Lent:
        uuid = gpu.spec.uuid
        left = self._settle(uuid)  # first, or a limit that a dead keeper lowered would count as the one found
        if left is not None and left.ending is Restoration.FAILED:
            raise DeviceError(left.message)
        note = Note(uuid, self.notes.boot, gpu.limit(), _persistence(gpu), borrower=borrower)
        self.notes.write(note)
        try:
            while not same(now := gpu.limit(), note.found_watts):  # somebody else set it meanwhile
                note = replace(note, found_watts=now)
                self.notes.write(note)
            gpu.set_limit(now)  # changes nothing, but shows now and not in mid-training whether setting is allowed
        except BaseException:
            self.notes.drop(uuid)
            raise
        return _Lent(gpu, lock, note, ceiling_watts=now, in_force_watts=now)

    def _recover_one(self, uuid: str) -> Returned | None:
        lock = self.notes.lock(uuid, f"process {os.getpid()}, which restores its limit")
        if lock is None:
            return None
        with lock:
            return self._settle(uuid)

    def _settle(self, uuid: str) -> Returned | None:
        """Restore what a dead keeper left on a GPU whose lock we hold. None if it left nothing."""
        try:
            note = self.notes.read(uuid)
        except UnreadableNote as e:
            return Returned(uuid, Restoration.FAILED, message=str(e))
        if note is None:
            return None
        if self.notes.is_void(note):
            self.notes.drop(uuid)
            return Returned(
                uuid, Restoration.VOID, note.found_watts, message=f"GPU {uuid}: dropped a note from another boot."
            )
        self._owed[uuid] = note  # also if the card cannot be found now
        return self._put_back([(self.card(uuid), note)])[0]

    def _report(self, outcome: Returned) -> None:
        """Log the outcome; a failure only once, however often it is tried again."""
        if outcome.ending is not Restoration.FAILED:
            self._reported.discard(outcome.uuid)
            (log.warning if outcome.ending is Restoration.LEFT else log.info)(outcome.message)
        elif outcome.uuid not in self._reported:
            self._reported.add(outcome.uuid)
            log.error(outcome.message)


class Loan:
    """Some GPUs lent together."""

    def __init__(self, keeper: Keeper, allowed: Allowed, borrower: str) -> None:
        self._keeper = keeper
        self._allowed = allowed
        self.borrower = borrower  # in words for the audit
        self._lent: dict[str, _Lent] = {}

    @property
    def found(self) -> dict[str, float]:
        """The limits that will be restored, in watts by UUID."""
        return {uuid: one.note.found_watts for uuid, one in self._lent.items()}

    def add(self, one: _Lent) -> None:
        """Add a GPU. Only `Keeper.lend` calls this."""
        self._lent[one.note.uuid] = one

    def set(self, watts: Mapping[str, float]) -> dict[str, float]:
        """Set these limits, all or none, and return those now in force."""
        before = {uuid: one.in_force_watts for uuid, one in self._lent.items()}
        try:
            limits = self._set_all(watts)
        except Exception as e:
            for uuid, value in watts.items():
                verdict = "refused" if isinstance(e, InputError | ReadOnly) else "failed"
                self._audit(verdict, uuid, before.get(uuid), value, str(e))
            raise
        for uuid, value in limits.items():
            self._audit("allowed", uuid, before[uuid], value)
        return limits

    def _audit(self, verdict: str, uuid: str, old: float | None, new: float, reason: str = "") -> None:
        self._keeper.audit(AuditEntry("set", verdict, uuid, old, new, self.borrower, reason))

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
        touched: list[_Lent] = []
        try:
            for uuid, value in watts.items():
                touched.append(self._lent[uuid])
                self._set(self._lent[uuid], value)
        except BaseException:
            for one in touched:
                self._undo(one, before[one.note.uuid])
            raise
        return {uuid: self._lent[uuid].in_force_watts for uuid in watts}

    def _permit(self, one: _Lent, watts: float) -> None:
        """Raise InputError if the policy does not allow this limit. To return to the limit found is always allowed."""
        refusal = self._allowed.refusal(one.gpu.spec, watts)
        if refusal and not same(watts, one.note.found_watts):
            raise InputError(refusal)

    def give_back(self) -> list[Returned]:
        """Restore the limits found. May be called twice."""
        lent, self._lent = list(self._lent.values()), {}
        return self._keeper.return_all(lent)

    def _in_force(self, one: _Lent) -> float:
        """The limit in force. If somebody else set it meanwhile, it becomes the limit to restore and our ceiling."""
        now = one.gpu.limit()
        if is_foreign(now, one.note):
            self._adopt(one, now)
        one.in_force_watts = now
        return now

    def _adopt(self, one: _Lent, watts: float, setting: float | None = None) -> None:
        """Make somebody else's limit our ceiling and the one to restore. `setting` is the limit we set next, if any."""
        log.warning(
            "GPU %s: somebody else set %g W during the lease. Zeus will restore that at the end, not %g W.",
            one.note.uuid, watts, one.note.found_watts,
        )  # fmt: skip
        one.ceiling_watts = min(one.ceiling_watts, watts)
        self._write(one, replace(one.note, found_watts=watts, ours_watts=(), setting_watts=setting))

    def _set(self, one: _Lent, watts: float) -> None:
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

    def _apply(self, one: _Lent, watts: float) -> None:
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

    def _undo(self, one: _Lent, watts: float) -> None:
        """Go back to the limit before a failed set, but not above one that somebody else has set since."""
        try:
            self._in_force(one)
            self._set(one, min(watts, one.ceiling_watts))
        except Exception as e:
            log.error("GPU %s: could not go back to %g W: %s", one.note.uuid, watts, e)

    def _write(self, one: _Lent, note: Note) -> None:
        self._keeper.notes.write(note)
        one.note = note


def _check(one: _Lent, watts: float) -> None:
    check_limit(one.gpu.spec, watts)
    if watts > one.ceiling_watts:
        raise InputError(
            f"GPU {one.note.uuid}: {watts:g} W is above the {one.ceiling_watts:g} W found. Zeus never raises a limit. "
            "Raise it yourself before the training starts."
        )


def _named(gpus: Iterable[Gpu]) -> Iterator[tuple[str, Gpu]]:
    """Each card with its UUID. Skips cards that cannot report theirs."""
    for gpu in gpus:
        try:
            yield gpu.spec.uuid, gpu
        except DeviceError as e:
            log.warning("GPU %d is skipped: %s", gpu.index, e)


def _persistence(gpu: Gpu) -> bool | None:
    try:
        return gpu.persistence()
    except ZeusError:
        return None
