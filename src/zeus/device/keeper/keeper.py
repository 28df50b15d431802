"""The keeper: lends power limits and restores them. Nothing else in Zeus calls a setter of a `Gpu`.

    free ──lend──▶ lent ──set──▶ lowered ──restore──▶ free
                     └──────────restore──────────────▶ free

The next keeper that gets the lock of a GPU restores the limit that its note says was found.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from zeus.device.gpu import Capability, Gpu, refuse_if_read_only
from zeus.device.keeper.audit import audit, borrower
from zeus.device.keeper.loan import LentGpu, Loan, Restoration, RestoreResult, restore
from zeus.device.keeper.notes import Note, Notes, UnreadableNote, same
from zeus.device.keeper.policy import Allowed
from zeus.errors import DeviceError, DeviceLost, InputError, LeaseRefused, NoDevice, Unsupported, ZeusError
from zeus.files import FileLock

log = logging.getLogger("zeus.device.keeper")

RETRIES_SECONDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)  # less than a second in total: a limit must be restored within one
PATIENCE_SECONDS = 2.0  # how long to wait for a GPU whose last holder has just died and is being cleaned up
_POLL_SECONDS = 0.02


_LEVELS = {Restoration.LEFT: logging.WARNING, Restoration.FAILED: logging.ERROR}  # the others: INFO
_VERDICTS = {Restoration.RESTORED: "allowed", Restoration.FAILED: "failed"}  # for the audit; the others changed nothing


class Keeper:
    """Lends the GPUs of one machine."""

    def __init__(
        self,
        cards: Callable[[], Sequence[Gpu]],
        notes: Notes,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.notes = notes
        self._find = cards
        self._pause = pause
        self._cards: dict[str, Gpu] = {}
        self._finding = threading.Lock()
        self._reported: set[str] = set()
        self._owed: dict[str, Note] = {}  # of loans whose limit could not be restored

    def lend(
        self,
        uuids: Iterable[str],
        to: str = "",
        patience: float = PATIENCE_SECONDS,
        *,
        allowed: Allowed | None = None,
        who: str | None = None,
    ) -> Loan:
        """Lend all of these GPUs, or raise and lend none.

        Args:
            uuids: The GPUs.
            to: Who wants them, in words for others who want them too.
            patience: How long to wait for a GPU, in seconds.
            allowed: What the policy lets the borrower set. Default: what the card accepts.
            who: For whom, as the audit has it (`borrower`).
        """
        wanted = sorted(set(uuids))  # sorted, so that two clients who want the same GPUs cannot each get a part
        if not wanted:
            raise InputError("a lease needs at least one GPU.")
        refuse_if_read_only("lending a power limit")
        who = who or borrower(os.geteuid(), os.getpid())
        cards = [self.card(uuid) for uuid in wanted]  # before the deadline starts: opening the driver is slow
        deadline = time.monotonic() + patience
        lent: list[LentGpu] = []
        try:
            for uuid, gpu in zip(wanted, cards, strict=True):
                if Capability.LIMITS not in gpu.spec.capabilities:
                    raise Unsupported(f"GPU {uuid} ({gpu.spec.name}) has no power limit that can be set.")
                lock = self._lock(uuid, to or f"process {os.getpid()}", deadline)
                lent.append(self._begin(gpu, lock, who))
        except BaseException:
            self.restore(lent)
            raise
        return Loan(self.notes, self.restore, lent, allowed or Allowed(), who)

    def recover(self, uuids: Sequence[str] | None = None) -> list[RestoreResult]:
        """Restore what a dead keeper left behind, by default on all GPUs. Those on lease are not touched."""
        recovered = (self._recover_one(uuid) for uuid in (self.notes.uuids() if uuids is None else uuids))
        return [result for result in recovered if result is not None]

    def owed(self) -> list[str]:
        """The GPUs that this keeper lent and could not restore, and that nobody has restored since.

        Those of a dead keeper are not among them. Otherwise, while a card is lost, each new keeper would wait for it.
        """
        return [uuid for uuid, note in self._owed.items() if self._is_still(note)]

    def _is_still(self, note: Note) -> bool:
        try:
            return self.notes.read(note.uuid) == note
        except UnreadableNote:  # perhaps only now
            return True

    def card(self, uuid: str) -> Gpu:
        """The card with this UUID. Looks for cards again if it is unknown: cards appear and drivers load late."""
        with self._finding:
            if uuid not in self._cards:
                self._cards = {gpu.spec.uuid: gpu for gpu in self._find()}
            if uuid not in self._cards:
                present = ", ".join(sorted(self._cards)) or "none"
                raise NoDevice(f"there is no GPU {uuid} on this machine. Its GPUs are: {present}.")
            return self._cards[uuid]

    def restore(self, lent: Sequence[LentGpu]) -> list[RestoreResult]:
        """Restore these GPUs and release their locks."""
        try:
            results = self._restore_each([(one.gpu, one.note) for one in lent])
            self._owed |= {
                one.note.uuid: one.note
                for result, one in zip(results, lent, strict=True)
                if result.ending is Restoration.FAILED
            }
            return results
        finally:
            for one in lent:
                one.lock.release()

    def _restore_each(self, cards: Sequence[tuple[Gpu, Note]]) -> list[RestoreResult]:
        """Restore each card, then retry those that failed, so that no card waits for a broken one. Results in order."""
        results: dict[str, RestoreResult] = {}
        pending = list(cards)
        for delay in RETRIES_SECONDS:
            if not pending:
                break
            self._pause(delay)
            for gpu, note in tuple(pending):
                again = False
                try:
                    results[note.uuid] = restore(gpu, note)
                    self.notes.drop(note.uuid)
                except Exception as e:  # one broken card must not stop the others
                    text = (
                        f"GPU {note.uuid}: the limit of {note.found_watts:g} W could not be restored. "
                        f"Run `zeus restore` to try again. {e}"
                    )
                    results[note.uuid] = RestoreResult(note.uuid, Restoration.FAILED, note.found_watts, message=text)
                    again = not isinstance(e, DeviceLost | PermissionError)  # waiting does not help with those
                    if isinstance(e, DeviceLost):
                        self._forget_cards()
                if not again:
                    pending.remove((gpu, note))
        return [self._report(results[note.uuid], note) for _, note in cards]

    def _report(self, result: RestoreResult, note: Note | None = None) -> RestoreResult:
        """Log the result; a failure only once, however often it is tried again."""
        has_failed = result.ending is Restoration.FAILED
        if has_failed and result.uuid in self._reported:
            return result
        (self._reported.add if has_failed else self._reported.discard)(result.uuid)
        log.log(_LEVELS.get(result.ending, logging.INFO), result.message)
        if note is not None and result.ending in _VERDICTS:
            ours, now = next(iter(note.ours_watts), None), result.limit_watts or note.found_watts
            reason = result.message if has_failed else ""
            audit("restore", _VERDICTS[result.ending], note.uuid, ours, now, note.borrower or borrower(), reason)
        return result

    def _forget_cards(self) -> None:
        """Look for the cards again next time: one that comes back has another handle."""
        with self._finding:
            self._cards = {}

    def _lock(self, uuid: str, holder: str, deadline: float) -> FileLock:
        while (lock := self.notes.lock(uuid, holder)) is None:
            if time.monotonic() >= deadline:
                if (other := self.notes.holder(uuid)) == holder:
                    raise LeaseRefused(
                        f"GPU {uuid} is on lease to another training of {holder}, this one. End it first, or delete it."
                    )
                raise LeaseRefused(
                    f"GPU {uuid} is on lease to {other}, and only one process can have it. "
                    "Wait until that lease ends, or use another GPU."
                )
            self._pause(_POLL_SECONDS)
        return lock

    def _begin(self, gpu: Gpu, lock: FileLock, who: str) -> LentGpu:
        """Write down the limit of a GPU whose lock we hold, and try the right to set it. Releases the lock if not."""
        uuid = gpu.spec.uuid
        try:
            left = self._settle(uuid)  # first, or a limit that a dead keeper lowered would count as the one found
            if left is not None and left.ending is Restoration.FAILED:
                raise DeviceError(left.message)
            note = Note(uuid, self.notes.boot, gpu.limit(), _persistence(gpu), borrower=who)
            self.notes.write(note)
            try:
                while not same(now := gpu.limit(), note.found_watts):  # somebody else set it meanwhile
                    note = replace(note, found_watts=now)
                    self.notes.write(note)
                gpu.set_limit(now)  # changes nothing, but shows now and not in mid-training whether setting is allowed
            except BaseException:
                self.notes.drop(uuid)
                raise
        except BaseException:
            lock.release()
            raise
        return LentGpu(gpu, lock, note, ceiling_watts=now, in_force_watts=now)

    def _recover_one(self, uuid: str) -> RestoreResult | None:
        try:
            lock = self.notes.lock(uuid, f"process {os.getpid()}, which restores its limit")
            if lock is None:
                return None
            with lock:
                return self._settle(uuid)
        except Exception as e:  # one broken card must not stop the others
            message = f"GPU {uuid}: could not be restored: {e}"
            return self._report(RestoreResult(uuid, Restoration.FAILED, message=message))

    def _settle(self, uuid: str) -> RestoreResult | None:
        """Restore what a dead keeper left on a GPU whose lock we hold. None if it left nothing."""
        try:
            note = self.notes.read(uuid)
        except UnreadableNote as e:
            return self._report(RestoreResult(uuid, Restoration.FAILED, message=str(e)))
        if note is None:
            return None
        if self.notes.is_void(note):
            self.notes.drop(uuid)
            message = f"GPU {uuid}: dropped a note from another boot."
            return self._report(RestoreResult(uuid, Restoration.VOID, note.found_watts, message=message))
        return self._restore_each([(self.card(uuid), note)])[0]


def _persistence(gpu: Gpu) -> bool | None:
    try:
        return gpu.persistence()
    except ZeusError:
        return None
