"""The keeper: lends power limits and restores them. Nothing else in Zeus calls a setter of a `Gpu`.

    free ──lend──▶ lent ──set──▶ lowered ──restore──▶ free
                     └──────────restore──────────────▶ free

Whoever holds a GPU's lock owns everything about that GPU. So a `Loan` is used by one thread and needs no other lock.
The keeper updates the GPU's note before and after each step. The note thus lists exactly the limits that Zeus may have
put in force, even if a process dies in between. The next keeper that gets the lock restores the limit found.

The limit found is restored, with one exception. If the limit in force is neither that nor one that Zeus set, somebody
else (such as an administrator) changed it during the lease. Then it stays.

Each limit that is set, restored or refused is one line of the audit:

    set allowed gpu=GPU-1 old_watts=250 new_watts=150 user=alice uid=1000 pid=4711 job="asr"
    set refused gpu=GPU-1 old_watts=250 new_watts=100 user=alice uid=1000 pid=4711 job="asr" reason="..."
    restore allowed gpu=GPU-1 old_watts=150 new_watts=250 user=alice uid=1000 pid=4711 job="asr"
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from zeus.device.gpu import Capability, Gpu, check_limit, refuse_if_read_only
from zeus.device.keeper.notes import Note, Notes, UnreadableNote, near, same
from zeus.device.keeper.policy import Allowed, user_name
from zeus.errors import DeviceError, DeviceLost, InputError, LeaseRefused, NoDevice, ReadOnly, Unsupported, ZeusError
from zeus.files import FileLock

log = logging.getLogger("zeus.device.keeper")
audit_log = logging.getLogger("zeus.device.keeper.audit")

RETRIES_SECONDS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)  # less than a second in total: a limit must be restored within one
PATIENCE_SECONDS = 2.0  # how long to wait for a GPU whose last holder has just died and is being cleaned up
_POLL_SECONDS = 0.02
_JOB_LENGTH = 200  # letters in the audit; a client sends as many as it likes
_REASON_LENGTH = 500


class Restoration(StrEnum):
    """How the lending of one GPU ended."""

    RESTORED = "restored"  # the limit found was restored
    UNCHANGED = "unchanged"  # it was still in force
    LEFT = "left"  # somebody else had changed it, so it stays
    VOID = "void"  # the note was from another boot
    FAILED = "failed"  # could not be restored; the note stays for the next try


_LEVELS = {Restoration.LEFT: logging.WARNING, Restoration.FAILED: logging.ERROR}  # the others: INFO
_VERDICTS = {Restoration.RESTORED: "allowed", Restoration.FAILED: "failed"}  # for the audit; the others changed nothing


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


def borrower(uid: int | None = None, pid: int | None = None, job: str = "") -> str:
    r"""For whom the keeper acts, as the audit has it. Unknown is `-`.

    The kernel says who user and process are. The client names the job, which is quoted so that it cannot imitate other
    fields or another line.

    >>> print(borrower(0, 4711, 'asr" user=alice\nset allowed'))
    user=root uid=0 pid=4711 job="asr\" user=alice\nset allowed"
    >>> print(borrower())
    user=- uid=- pid=- job=-
    """
    user, number, process = ("-" if x is None else str(x) for x in (None if uid is None else user_name(uid), uid, pid))
    return f"user={user} uid={number} pid={process} job={json.dumps(job[:_JOB_LENGTH]) if job else '-'}"


def audit(
    event: str, verdict: str, uuid: str, old: float | None, new: float | None, who: str, reason: str = ""
) -> None:
    """Log one line of the audit.

    Args:
        event: "lease", "set" or "restore".
        verdict: "allowed", "refused" by a rule of the keeper, or "failed" in the driver.
        uuid: The GPU.
        old: The limit before, in watts. None: not known.
        new: The limit after, or the one asked for.
        who: For whom (`borrower`).
        reason: Why not.
    """
    before, after = ("-" if watts is None else f"{watts:g}" for watts in (old, new))
    why = f" reason={json.dumps(reason[:_REASON_LENGTH])}" if reason else ""
    audit_log.info("%s %s gpu=%s old_watts=%s new_watts=%s %s%s", event, verdict, uuid, before, after, who, why)


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
        lent: list[_Lent] = []
        try:
            for uuid, gpu in zip(wanted, cards, strict=True):
                if Capability.LIMITS not in gpu.spec.capabilities:
                    raise Unsupported(f"GPU {uuid} ({gpu.spec.name}) has no power limit that can be set.")
                lock = self._lock(uuid, to or f"process {os.getpid()}", deadline)
                lent.append(self._begin(gpu, lock, who))
        except BaseException:
            self.restore(lent)
            raise
        return Loan(self, lent, allowed or Allowed(), who)

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
                self._cards = dict(_named(self._find()))
            if uuid not in self._cards:
                present = ", ".join(sorted(self._cards)) or "none"
                raise NoDevice(f"there is no GPU {uuid} on this machine. Its GPUs are: {present}.")
            return self._cards[uuid]

    def restore(self, lent: Sequence[_Lent]) -> list[RestoreResult]:
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

    def _begin(self, gpu: Gpu, lock: FileLock, who: str) -> _Lent:
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
        return _Lent(gpu, lock, note, ceiling_watts=now, in_force_watts=now)

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


class Loan:
    """Some GPUs lent together."""

    def __init__(self, keeper: Keeper, lent: Sequence[_Lent], allowed: Allowed, who: str) -> None:
        self._keeper = keeper
        self._lent = {one.note.uuid: one for one in lent}
        self._allowed = allowed
        self._who = who  # for whom, as the audit has it

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

    def restore(self) -> list[RestoreResult]:
        """Restore the limits found. May be called twice."""
        lent, self._lent = list(self._lent.values()), {}
        return self._keeper.restore(lent)

    def _in_force(self, one: _Lent) -> float:
        """The limit in force. If somebody else set it meanwhile, it becomes the limit to restore and our ceiling."""
        now = one.gpu.limit()
        if one.note.is_foreign(now):
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
