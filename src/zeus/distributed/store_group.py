"""A rank group over the store of torch.distributed: DDP, FSDP, torchrun and accelerate, with any backend.

    each rank leaves its row ──▶ the first rank reads all, leaves the verdict ──▶ each rank reads the verdict
    each rank beats every 2 s ──▶ the first rank watches all beats ──▶ its own beats say whom it has lost

A key in the store is written once: by its rank or, if that rank is lost, by whoever misses it, who leaves `Lost` there.
So all ranks that read a verdict read the same: they give up together, in the same call, and the next call may work
again. A rank that does not even reach the store leaves the group for good.

A rank that is missed is waited for as long as it beats, because it may evaluate or write a checkpoint alone; but not
longer than `BUSY_SECONDS`. A rank that does not beat for `settings.rank_patience()` is lost: it was killed or stopped,
or the network is cut. Then nobody is waited for any more, because the others may hang in a collective of the training
until this rank fails in it, too. The training itself may hang on a lost rank, so a thread beats and watches all the
time. It has this rank restore its limits at once. If the lost rank comes back, the next call returns all values, and
before that every rank gives up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeAlias, TypeVar

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from zeus import settings
from zeus.deadline import answer_within
from zeus.device.clock import REAL
from zeus.device.gpu import Ticker
from zeus.device.virtual.machine import rank_time, sync_rank_clock
from zeus.distributed.group import RankGroup, print_notice
from zeus.distributed.heartbeats import Heartbeats, Lost, loss_among
from zeus.errors import DeviceError, DeviceSilent

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Weak: TypeAlias = Callable[[], Callable[P, R] | None]  # a weak reference to a function
Row: TypeAlias = tuple[Any, float, str | None]  # of each rank: its value, its virtual time, the loss that it noticed

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # how long ranks wait for each other when the first of them begins to use Zeus
BUSY_SECONDS = 600.0  # longest wait for a rank that is alive; a collective of NCCL waits as long
BEAT_SECONDS = 2.0
FAREWELL, FAREWELL_SECONDS = b"ended", 1.0  # in place of a beat, and how long it may take
SLICE_SECONDS = 2.0  # of a wait, between two looks at who is alive
LOOK_SHARE, SHORTEST_LOOK, LONGEST_LOOK = 0.1, 0.0001, 0.05  # between two looks: of the wait so far, and in seconds


class _CutOff(DeviceError):
    """This rank does not reach the store."""


class StoreGroup(RankGroup):
    """All ranks of a job that torch.distributed connects."""

    def __init__(
        self, rank: int, size: int, store: Any, patience: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.rank, self.size = rank, size
        self.waited = 0.0
        self._patience, self._now = patience, now
        self._process = os.getpid()
        # A connection of its own, because a wait of torch's own threads locks theirs.
        connection = store.clone() if hasattr(store, "clone") else store
        self._start: Any = PrefixStore(f"zeus start {settings.elastic_start()}", connection)
        self._store: Any = self._start
        # A group made after this one may use the same store. All ranks have left this one before they make the next.
        self._store = PrefixStore(f"after {self._ask(lambda: self._start.add('left', 0))}", self._start)

        self._everyone: bool | None = None
        self._turn = 0  # how often this rank has called `gather`
        self._left: list[str] = []  # keys of this rank that others may still read
        self._garbage: list[str] = []  # and those that nobody reads any more
        self._cut_off: str | None = None  # why this rank has left for good

        self._ticker: Ticker | None = None
        self._heartbeats = Heartbeats(now, 2 * BEAT_SECONDS)
        self._count = 0  # of this rank's own beats
        self._watched = range(1, size) if rank == 0 else range(1)
        self._beats: dict[int, bytes] = {}  # of the ranks that are watched, at the last look
        self._lost: dict[int, str] = {}  # those that were lost then, and what they had done
        self._alarm: str | None = None  # a loss that was noticed between two calls, until all ranks know of it
        self._has_said = False
        self._restoring = threading.Lock()
        self._listeners: list[tuple[Weak[[], str | None], Weak[[str], None]]] = []

        self._ask(self._beat)
        self._settle(f"here {rank}", None)

    # ------------------------------------------------------------------ for callers

    def everyone(self, seconds: float = START_SECONDS) -> bool:
        if self._everyone is None:
            try:  # the first that knows, or has waited long enough, decides for all
                found = self._fetch([f"here {rank}" for rank in range(self.size)], seconds) is not None
                self._everyone = self._settle("everyone", found)
                why = f"only some of the {self.size} ranks use Zeus"
            except _CutOff as failed:
                self._everyone, why = False, str(failed)
            if not self._everyone:
                log.warning("rank %d goes on alone: %s", self.rank, why)
        return self._everyone

    def gather(self, value: T) -> list[T]:
        """The value of every rank. Also brings the clocks of virtual GPUs together."""
        if self._cut_off is not None:
            raise DeviceError(self._cut_off)
        here, began, alarm = rank_time(), time.monotonic(), self._alarm
        try:
            rows = self._exchange((value, here or 0.0, alarm))
        except DeviceError as failed:
            self._cut_off = str(failed) if isinstance(failed, _CutOff) else None
            self.waited += time.monotonic() - began
            self._lose(str(failed))
            raise
        finally:
            if self._alarm is alarm:  # otherwise there was another meanwhile, which all ranks learn next time
                self._alarm = None
        if why := next((theirs for _, _, theirs in rows if theirs is not None), None):
            self._lose(why)
        there = max(moment for _, moment, _ in rows)
        sync_rank_clock(there)
        self.waited += time.monotonic() - began if here is None else there - here
        return [theirs for theirs, _, _ in rows]

    def broadcast(self, value: T) -> T:
        return super().broadcast(value if self.writes else None)  # type: ignore[return-value]

    def post(self, key: str, value: object) -> None:
        self._settle(f"posted {key}", value)

    def read(self, key: str, by: int = 0) -> Any:
        found = self._collect({by: f"posted {key}"})
        if isinstance(found, Lost):
            raise DeviceError(str(found))
        return found[0]

    def on_loss(self, restore: Callable[[], str | None], give_up: Callable[[str], None]) -> None:
        self._listeners.append((_weak(restore), _weak(give_up)))

    def leave(self) -> None:
        """Say that this rank has ended, and let go of the store. Torch needs that before it can connect ranks again."""
        if self._ticker is not None:
            self._ticker.stop(wait=FAREWELL_SECONDS)
        if self._store is None or os.getpid() != self._process:  # it has left before, or a forked child ends
            return
        if _answers(self._start):
            with contextlib.suppress(DeviceError, RuntimeError):
                answer_within(FAREWELL_SECONDS, "torch.distributed", "leaving", self._say_farewell)
        self._store = self._start = None

    # ------------------------------------------------------------------ meeting

    def _exchange(self, mine: Row) -> list[Row]:
        """The rows of all ranks. DeviceError on all ranks if one is lost, or if this rank is cut off."""
        self._turn += 1
        key = f"turn {self._turn}"
        keys = [f"{key} of {rank}" for rank in range(self.size)]
        verdict: list[Row] | Lost
        if self.writes:
            others = self._collect(dict(enumerate(keys[1:], 1)))
            verdict = self._settle(key, others if isinstance(others, Lost) else [mine, *others])
        else:
            self._settle(keys[self.rank], mine)
            # The first rank knows better who is missing, so it decides before the others lose their patience.
            found = self._collect({0: key}, 1.1 * BUSY_SECONDS, by_first=True)
            verdict = found if isinstance(found, Lost) else found[0]
        self._left.append(key if self.writes else keys[self.rank])
        if isinstance(verdict, Lost):
            raise DeviceError(str(verdict))
        self._garbage += self._left[:-1]  # all ranks have come here, so none of them still reads what is older
        del self._left[:-1]
        return verdict

    def _collect(
        self, keys: Mapping[int, str], longest: float = BUSY_SECONDS, *, by_first: bool = False
    ) -> list[Any] | Lost:
        """What each of these ranks has left under its key, or who is lost or has been busy for `longest` seconds.

        Args:
            keys: The keys, by rank.
            longest: How long to wait for ranks that beat.
            by_first: Whether a loss that the first rank tells counts, too, although it beats itself.
        """
        begun = self._now()
        seconds = SLICE_SECONDS if self._lost.keys().isdisjoint(keys) else 0.0
        while (found := self._fetch(list(keys.values()), seconds)) is None:
            seconds = SLICE_SECONDS
            missed = self._missed(keys, by_first) if self._everyone else {}  # before, some do not beat yet
            if not missed and self._now() - begun >= longest:
                missed = {rank: Lost({rank: f"done something else for {longest:g} s"}) for rank in keys}
            there = [self._settle(keys[rank], loss) for rank, loss in missed.items()]  # its value, if it has come
            if (loss := loss_among(there)) is not None:
                return loss
        values = [pickle.loads(text) for text in found]
        return loss_among(values) or values

    def _missed(self, ranks: Iterable[int], by_first: bool) -> dict[int, Lost]:
        """For which of these ranks waiting is in vain, and why. Arguments are those of `_collect`."""
        lost = self._look(now=True)
        missed = {rank: Lost({rank: lost[rank]}) for rank in ranks if rank in lost}
        others = {rank: why for rank, why in self._losses_of_first().items() if rank != self.rank}
        return {0: Lost(others)} if by_first and others and not missed else missed

    # ------------------------------------------------------------------ the store

    def _settle(self, key: str, value: object) -> Any:
        """Leave a value under this key unless there is one already. Returns the one that is there."""
        text = pickle.dumps(value)
        there = self._ask(lambda: self._store.compare_set(key, "", text))
        return value if there == text else pickle.loads(there)

    def _fetch(self, keys: list[str], seconds: float) -> list[bytes] | None:
        """What is under these keys, once something is under all of them. None if it is not after so long.

        The store's own wait would print a warning each time that it takes so long. That of a file looks rarely.
        """

        def look() -> list[bytes] | None:
            begun = time.monotonic()
            while not self._store.check(keys):
                waited = time.monotonic() - begun
                if waited >= seconds:
                    return None
                time.sleep(min(max(LOOK_SHARE * waited, SHORTEST_LOOK), LONGEST_LOOK))
            return list(self._store.multi_get(keys))

        return self._ask(look, seconds)

    def _ask(self, question: Callable[[], T], seconds: float = 0.0) -> T:
        """The store's answer to a question that takes so many seconds by itself. It may never answer."""
        if self._store is None:
            raise _CutOff("torch.distributed no longer connects this rank with the others")
        try:
            return answer_within(
                seconds + self._patience, "torch.distributed", "asking the other ranks", question, grace=BEAT_SECONDS
            )
        except DeviceSilent:
            raise _CutOff(f"this rank has not reached the others for {self._patience:g} s") from None
        except RuntimeError as failed:
            first = (str(failed).splitlines() or [""])[0]
            raise _CutOff(f"this rank can no longer reach the others ({first})") from failed

    # ------------------------------------------------------------------ heartbeats

    def watch(self, world: Any) -> None:
        """Beat and watch, until this process group or the process ends."""
        leave = weakref.finalize(world, self.leave)
        self._ticker = REAL.every(BEAT_SECONDS, lambda: self.tick() if dist.is_initialized() else leave())

    def tick(self) -> None:
        """Show that this rank is alive, and restore what it has set if another rank is lost or this one is cut off."""
        try:
            self._ask(self._beat)
            why = self._noticed_loss() if self._everyone else ""
        except _CutOff as failed:
            why = str(failed)
        if why:
            self.alarm(why)

    def alarm(self, why: str) -> None:
        """A rank is lost. What this rank has set is restored at once, on this thread."""
        if did := self._restore():
            self._alarm = why
            self._say(why, did, "Zeus does not end the training.")

    def _noticed_loss(self) -> str:
        """The loss that this rank sees, or else the one that the first rank tells; empty if there is none."""
        return str(Lost(self._look() or self._losses_of_first()))

    def _losses_of_first(self) -> dict[int, str]:
        """The ranks that the first rank misses, by its last beat. The first rank itself is told nothing."""
        if self.rank == 0 or self._has_first_ended:
            return {}
        lost: dict[int, str] = pickle.loads(self._beats[0])[1]
        return lost

    def _beat(self) -> None:
        """Show that this rank is alive, and remove what nobody will read any more."""
        if self._has_first_ended:  # the store may have ended with it, and asking it would only print warnings
            return
        self._count += 1
        self._store.set(f"beat {self.rank}", pickle.dumps((self._count, self._lost)))
        with contextlib.suppress(RuntimeError):  # some stores cannot: they only grow
            while self._garbage:
                self._store.delete_key(self._garbage.pop())

    def _look(self, now: bool = False) -> dict[int, str]:
        """Which of the ranks that this one watches are lost, and what they have done.

        A rank that has ended is lost `now` to a rank that waits for it, and after some time to one that goes on.
        """
        if not self._has_first_ended:
            found = self._ask(lambda: list(self._store.multi_get([f"beat {rank}" for rank in self._watched])))
            self._beats = dict(zip(self._watched, found, strict=True))
        lost = {}
        for rank, beat in self._beats.items():
            silence = self._heartbeats.silence(rank, beat)
            if silence >= self._patience or (now and beat == FAREWELL):
                silent = f"not answered for {self._patience:g} s"
                lost[rank] = "ended" if beat == FAREWELL else silent
        self._lost = lost
        return lost

    @property
    def _has_first_ended(self) -> bool:
        return self._beats.get(0) == FAREWELL

    def _say_farewell(self) -> None:
        self._store.set(f"beat {self.rank}", FAREWELL)
        self._start.add("left", 1)

    # ------------------------------------------------------------------ what a loss has done here

    def _lose(self, why: str) -> None:
        """Have everyone here restore and give up, and say once what happened and what was done."""
        did = self._restore()
        for _, give_up in self._listeners:
            if (react := give_up()) is not None:
                react(why)
        if not self._has_said or did:
            self._say(why, did or ["does not know what the others do"], "Training goes on.")

    def _restore(self) -> list[str]:
        """What was done. Nothing is done twice."""
        with self._restoring:
            return [done for weak, _ in self._listeners if (restore := weak()) is not None and (done := restore())]

    def _say(self, why: str, did: list[str], then: str) -> None:
        self._has_said = True
        print_notice(f"rank {self.rank}: {why}. This rank {' and '.join(did)}. {then}", every_rank=True)


def _weak(call: Callable[P, R]) -> Weak[P, R]:
    """A reference that does not keep a method's object alive."""
    return weakref.WeakMethod(call) if hasattr(call, "__self__") else lambda: call


def _answers(store: Any) -> bool:
    """Whether the store is there. It may have ended with the first rank, and torch prints a stack trace about that."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if not hasattr(store, "port"):  # a file
        return True
    try:
        socket.create_connection((store.host, store.port), timeout=FAREWELL_SECONDS).close()
    except OSError:
        return False
    return True


_current: tuple[weakref.ref[Any], StoreGroup] | None = None  # the process group and its ranks


def current() -> StoreGroup:
    """The ranks of the process group that torch.distributed has now. Does not wait for them."""
    global _current
    world = dist.group.WORLD
    if _current is None or _current[0]() is not world:
        if _current is not None:
            _current[1].leave()
        ranks = StoreGroup(dist.get_rank(), dist.get_world_size(), _get_default_store(), settings.rank_patience())
        ranks.watch(world)
        _current = weakref.ref(world), ranks
    return _current[1]
