"""The keeper itself: lends power limits and takes them back. Nothing else in Zeus calls a setter of a `Gpu`.

    free ──lend──▶ lent ──set──▶ lowered ──give_back──▶ free
                     └──────────give_back──────────────▶ free

Everything about one lent GPU belongs to whoever holds its lock, so a `Loan` is used by one thread and needs no other
lock. Each step is written down before it is taken and after: whatever dies at whatever moment, the note names every
limit that may be in force by our doing and no other, and the next keeper that gets the lock puts the one found back.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from zeus.device.gpu import Capability, Gpu, refuse_if_read_only
from zeus.device.keeper.notes import Lock, NewerNote, Note, Notes
from zeus.device.keeper.restore import Restoration, Returned, is_foreign, log, near, put_back, same
from zeus.errors import DeviceError, DeviceLost, InputError, LeaseRefused, NoDevice, Unsupported, ZeusError

RETRIES_SECONDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)  # together below the second in which a limit has to be back
PATIENCE_SECONDS = 2.0  # how long to wait for a GPU whose last holder has just died and is being cleaned up after
_POLL_SECONDS = 0.02


@dataclass(slots=True)
class _Lent:
    """One GPU on loan."""

    gpu: Gpu
    lock: Lock
    note: Note
    ceiling_watts: float  # the lowest limit that anybody but us had in force: we never go above it
    in_force_watts: float  # as the card last told us


class Keeper:
    """Lends the GPUs of one machine."""

    def __init__(
        self, cards: Callable[[], Sequence[Gpu]], notes: Notes, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self.notes = notes
        self._find = cards
        self._pause = pause
        self._cards: dict[str, Gpu] = {}
        self._finding = threading.Lock()
        self._reported: set[str] = set()

    def lend(self, uuids: Iterable[str], to: str = "", patience: float = PATIENCE_SECONDS) -> Loan:
        """Lend all of these GPUs, or none of them and say why."""
        wanted = sorted(set(uuids))  # in one order for everybody, so that of two who want the same one gets all
        if not wanted:
            raise InputError("a lease needs at least one GPU.")
        refuse_if_read_only("lending a power limit")
        loan = Loan(self)
        cards = [self.card(uuid) for uuid in wanted]  # first: opening the driver may take longer than we wait for locks
        deadline = time.monotonic() + patience
        try:
            for uuid, gpu in zip(wanted, cards, strict=True):
                if Capability.LIMITS not in gpu.spec.capabilities:
                    raise Unsupported(f"GPU {uuid} ({gpu.spec.name}) has no power limit that can be set.")
                lock = self._lock(uuid, to or f"process {os.getpid()}", deadline)
                try:
                    loan.add(self._begin(gpu, lock))
                except BaseException:
                    lock.release()
                    raise
        except BaseException:
            loan.give_back()
            raise
        return loan

    def recover(self) -> list[Returned]:
        """Put back whatever a keeper that died has left behind; GPUs on lease by a live one are not touched."""
        returned = []
        for uuid in self.notes.uuids():
            try:
                outcome = self._recover_one(uuid)
            except Exception as e:  # whatever one card does, the others have to be put back
                outcome = Returned(uuid, Restoration.FAILED, message=f"GPU {uuid}: could not be put back: {e}")
            if outcome is not None:
                returned.append(outcome)
                self._report(outcome)
        return returned

    def lent(self) -> list[str]:
        """The GPUs on lease now, by this keeper or another that shares its notes."""
        lent = []
        for uuid in self.notes.uuids():
            if (lock := self.notes.lock(uuid)) is None:
                lent.append(uuid)
            else:
                lock.release()
        return lent

    def card(self, uuid: str) -> Gpu:
        """The card of this name; looks again where it is not known, since cards come and drivers load late."""
        with self._finding:
            if uuid not in self._cards:
                self._cards = dict(_named(self._find()))
            if uuid not in self._cards:
                known = ", ".join(sorted(self._cards)) or "none"
                raise NoDevice(f"there is no GPU {uuid} on this machine; its GPUs: {known}.")
            return self._cards[uuid]

    def return_all(self, lent: Sequence[_Lent]) -> list[Returned]:
        """Put these GPUs back and let go of them."""
        try:
            returned = self._put_back([(one.gpu, one.note) for one in lent])
            for outcome in returned:
                self._report(outcome)
            return returned
        finally:
            for one in lent:
                one.lock.release()

    def _put_back(self, cards: Sequence[tuple[Gpu, Note]]) -> list[Returned]:
        """Try each at once, then again those that failed, so that no card waits for a broken one."""
        returned: dict[str, Returned] = {}
        pending = list(cards)
        for delay in RETRIES_SECONDS:
            if not pending:
                break
            self._pause(delay)
            for gpu, note in tuple(pending):
                again = False
                try:
                    returned[note.uuid] = put_back(gpu, note)
                    self.notes.drop(note.uuid)
                except Exception as e:  # whatever one card does, the others have to be put back
                    text = f"GPU {note.uuid}: {note.found_watts:g} W are not back, `zeus restore` tries again: {e}"
                    returned[note.uuid] = Returned(note.uuid, Restoration.FAILED, note.found_watts, message=text)
                    again = not isinstance(e, DeviceLost | PermissionError)  # those stay so for longer than we wait
                    if isinstance(e, DeviceLost):
                        self._forget_cards()
                if not again:
                    pending.remove((gpu, note))
        return list(returned.values())

    def _forget_cards(self) -> None:
        """Look for the cards anew next time: one that comes back has another handle."""
        with self._finding:
            self._cards = {}

    def _lock(self, uuid: str, holder: str, deadline: float) -> Lock:
        while (lock := self.notes.lock(uuid, holder)) is None:
            if time.monotonic() >= deadline:
                raise LeaseRefused(
                    f"GPU {uuid} is on lease to {self.notes.holder(uuid)}. A GPU is lent to one at a time: "
                    "wait until that ends, or use another GPU."
                )
            self._pause(_POLL_SECONDS)
        return lock

    def _begin(self, gpu: Gpu, lock: Lock) -> _Lent:
        uuid = gpu.spec.uuid
        left = self._settle(uuid)  # else the lowered limit of a dead keeper would pass for the one found
        if left is not None and left.ending is Restoration.FAILED:
            raise DeviceError(left.message)
        note = Note(uuid, self.notes.boot, gpu.limit(), _persistence(gpu))
        self.notes.write(note)
        try:
            while not same(now := gpu.limit(), note.found_watts):  # somebody set it while we wrote
                note = replace(note, found_watts=now)
                self.notes.write(note)
            gpu.set_limit(now)  # changes nothing, and tells now rather than in mid-training whether we may
        except BaseException:
            self.notes.drop(uuid)
            raise
        return _Lent(gpu, lock, note, ceiling_watts=now, in_force_watts=now)

    def _recover_one(self, uuid: str) -> Returned | None:
        lock = self.notes.lock(uuid, f"process {os.getpid()}, which puts its limit back")
        if lock is None:
            return None
        with lock:
            return self._settle(uuid)

    def _settle(self, uuid: str) -> Returned | None:
        """Deal with what a dead keeper left about a GPU whose lock we hold; None where it left nothing."""
        try:
            note = self.notes.read(uuid)
        except NewerNote as e:
            return Returned(uuid, Restoration.FAILED, message=str(e))
        except ValueError as e:
            self.notes.drop(uuid)
            return Returned(uuid, Restoration.VOID, message=f"GPU {uuid}: its note cannot be read and is dropped: {e}")
        if note is None:
            return None
        if self.notes.is_void(note):
            self.notes.drop(uuid)
            return Returned(
                uuid, Restoration.VOID, note.found_watts, message=f"GPU {uuid}: its note is from another boot."
            )
        return self._put_back([(self.card(uuid), note)])[0]

    def _report(self, outcome: Returned) -> None:
        """Say each failure once, however often it is tried again."""
        if outcome.ending is not Restoration.FAILED:
            self._reported.discard(outcome.uuid)
            log.log(30 if outcome.ending is Restoration.LEFT else 20, outcome.message)
        elif outcome.uuid not in self._reported:
            self._reported.add(outcome.uuid)
            log.error(outcome.message)


class Loan:
    """Some GPUs lent together."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._lent: dict[str, _Lent] = {}

    @property
    def found(self) -> dict[str, float]:
        """The limit that will be put back, per GPU, in watts."""
        return {uuid: one.note.found_watts for uuid, one in self._lent.items()}

    def add(self, one: _Lent) -> None:
        """One more GPU; the keeper calls this while lending."""
        self._lent[one.note.uuid] = one

    def set(self, watts: Mapping[str, float]) -> dict[str, float]:
        """Set these limits, all or none, and return those now in force."""
        refuse_if_read_only("setting a power limit")
        if not watts:
            raise InputError("name at least one GPU to set a limit on.")
        for uuid in watts:
            if uuid not in self._lent:
                raise InputError(f"GPU {uuid} is not part of this lease, which has {', '.join(self._lent) or 'none'}.")
        before = {uuid: self._in_force(self._lent[uuid]) for uuid in watts}
        for uuid, value in watts.items():
            _check(self._lent[uuid], value)
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

    def give_back(self) -> list[Returned]:
        """Put back what was found; doing so twice is fine."""
        lent, self._lent = list(self._lent.values()), {}
        return self._keeper.return_all(lent)

    def _in_force(self, one: _Lent) -> float:
        """The limit in force. If somebody else set it meanwhile, it becomes the one to put back, and our ceiling."""
        now = one.gpu.limit()
        if is_foreign(now, one.note):
            self._adopt(one, now)
        one.in_force_watts = now
        return now

    def _adopt(self, one: _Lent, watts: float, setting: float | None = None) -> None:
        """Make somebody else's limit, now in force, the one to put back and our ceiling; `setting` is ours to come."""
        log.warning(
            "GPU %s: somebody else set %g W during the lease; it is put back at the end in place of %g W.",
            one.note.uuid, watts, one.note.found_watts,
        )  # fmt: skip
        one.ceiling_watts = min(one.ceiling_watts, watts)
        self._write(one, replace(one.note, found_watts=watts, ours_watts=(), setting_watts=setting))

    def _set(self, one: _Lent, watts: float) -> None:
        """Set a limit. Before and after, the note lists all that can be in force by our doing, and nothing else."""
        switch = one.note.found_persistence is False and not one.note.switched_persistence
        note = replace(one.note, ours_watts=(one.in_force_watts,), setting_watts=watts)
        self._write(one, replace(note, switched_persistence=True) if switch else note)
        if switch:
            try:
                one.gpu.set_persistence(True)  # without it the limit vanishes whenever the driver has no client
            except DeviceError as e:
                log.info("GPU %s: persistence mode stays off: %s", one.note.uuid, e)
        now = one.gpu.limit()  # nothing slow may stand between this look and the set: a cap set in there is lost
        if not same(now, one.in_force_watts):
            self._adopt(one, now, setting=watts)
        self._apply(one, watts)
        self._write(one, replace(one.note, ours_watts=(one.in_force_watts,), setting_watts=None))

    def _apply(self, one: _Lent, watts: float) -> None:
        """Have the card take a limit that its ceiling allows.

        If the card then shows another one, it rounds coarsely, or somebody set theirs in between. A card rounds alike
        a second time, so that tells the two apart. Until it has, theirs is in the note.
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
        """Go back to what was in force before a set that failed; not above a limit that somebody has set since."""
        try:
            self._in_force(one)
            self._set(one, min(watts, one.ceiling_watts))
        except Exception as e:
            log.error("GPU %s: could not go back to %g W: %s", one.note.uuid, watts, e)

    def _write(self, one: _Lent, note: Note) -> None:
        self._keeper.notes.write(note)
        one.note = note


def _check(one: _Lent, watts: float) -> None:
    spec, uuid = one.gpu.spec, one.note.uuid
    if not math.isfinite(watts) or not spec.min_watts <= watts <= spec.max_watts:
        raise InputError(
            f"GPU {uuid}: {watts:g} W is outside what the card takes, {spec.min_watts:g} to {spec.max_watts:g} W."
        )
    if watts > one.ceiling_watts:
        raise InputError(
            f"GPU {uuid}: {watts:g} W is above the {one.ceiling_watts:g} W found. Zeus only ever lowers a limit: raise "
            "it yourself before the training starts if it should be higher."
        )


def _named(gpus: Iterable[Gpu]) -> Iterator[tuple[str, Gpu]]:
    """Each card with its UUID, but for those that cannot even tell that."""
    for gpu in gpus:
        try:
            yield gpu.spec.uuid, gpu
        except DeviceError as e:
            log.warning("GPU %d is left out: %s", gpu.index, e)


def _persistence(gpu: Gpu) -> bool | None:
    try:
        return gpu.persistence()
    except ZeusError:
        return None
