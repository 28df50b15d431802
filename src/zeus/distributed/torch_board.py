"""Where ranks leave values for each other: the store of torch.distributed, with bounded waits and signs of life.

    post ──▶ store ◀── read, settle          every rank, all the time: beat ──▶ store ◀── watch

A rank that is missed is waited for as long as it beats, because it may evaluate or write a checkpoint alone; but not
longer than `BUSY_SECONDS`. A rank that does not beat for `settings.rank_patience()` is lost: it was killed or stopped,
or the network is cut. The store itself may not answer either, so it is asked on a thread that can be left behind.

Ranks also watch each other while nobody waits here, because the training may wait for a lost rank by itself. The first
rank watches all others. They watch the first, whose beats say whom it has lost. So a beat costs the store little,
however many ranks there are.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import logging
import math
import os
import pickle
import socket
import time
import weakref
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

from zeus import settings
from zeus.deadline import answer_within
from zeus.device.clock import REAL
from zeus.device.gpu import Ticker
from zeus.distributed.signs_of_life import SignsOfLife
from zeus.errors import DeviceError, DeviceSilent

T = TypeVar("T")

log = logging.getLogger(__name__)

START_SECONDS = 60.0  # how long ranks wait for each other when the first of them begins to use Zeus
BUSY_SECONDS = 600.0  # longest wait for a rank that is alive; a collective of NCCL waits as long
BEAT_SECONDS = 2.0
FAREWELL, FAREWELL_SECONDS = b"ended", 1.0  # in place of a beat, and how long it may take
SLICE_SECONDS = 2.0  # of a wait, between two looks at who is alive
LOOK_SHARE, SHORTEST_LOOK, LONGEST_LOOK = 0.1, 0.0005, 0.05  # between two looks: of the wait so far, and in seconds


class TorchBoard:
    """Implements `zeus.distributed.crew.Board`."""

    def __init__(
        self, rank: int, size: int, store: Any, patience: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.rank, self.size = rank, size
        self._patience, self._now = patience, now
        self._whole = store
        # A group made after this one may use the same store, so each group writes under another number.
        # So may the ranks that an elastic launcher starts again; if they were lost early, they have not all arrived.
        life = f"{size} in start {settings.elastic_start()}"
        arrivals: int = self._ask(lambda: store.add(f"zeus arrivals of {life}", 1))
        self._prefix = f"zeus {life} {(arrivals - 1) // size}"
        self._store: Any = self._connection()
        self._signs = SignsOfLife(now, 2 * BEAT_SECONDS)
        self._lost: set[int] = set()  # ranks that did not beat at the last look
        self._missing = 0, ""  # how often this rank has lost others, and why the last time
        self._tickers: list[Ticker] = []
        self._together: bool | None = None
        self._ask(lambda: self._store.set(f"here {rank}", "1"))

    def _connection(self) -> Any:
        """A connection of its own: a wait locks one, and neither beats nor torch's own threads must wait."""
        whole = self._whole
        return PrefixStore(self._prefix, whole.clone() if hasattr(whole, "clone") else whole)

    def beat(self) -> None:
        """Show that this rank is alive, until the process group or the process ends. At the end, say so."""
        store, key, count, process = self._connection(), f"beat {self.rank}", itertools.count(1), os.getpid()

        def once() -> None:
            if not dist.is_initialized():
                farewell()
                return
            try:
                store.set(key, self.beat_text(next(count)))
            except RuntimeError:
                ticker.stop(wait=0)

        def farewell() -> None:
            self.stop()
            atexit.unregister(farewell)
            if os.getpid() != process or not _answers(self._whole):  # a forked child ends, or the store is gone
                return
            with contextlib.suppress(DeviceError, RuntimeError):
                answer_within(FAREWELL_SECONDS, "torch.distributed", "leaving", lambda: store.set(key, FAREWELL))

        ticker = REAL.every(BEAT_SECONDS, once)
        self._tickers.append(ticker)
        atexit.register(farewell)

    def beat_text(self, count: int) -> str:
        """A beat: its number, how often this rank has lost others, and why the last time."""
        times, why = self._missing
        return f"{count}|{times}|{why}"

    def watch(self, tell: Callable[[str], None]) -> None:
        """Call this function with the reason, on a thread of its own, when a rank is lost or this one is cut off."""
        look = _Watch(self, self._connection(), tell)
        self._tickers.append(REAL.every(BEAT_SECONDS, lambda: look() if dist.is_initialized() else None))

    def stop(self) -> None:
        """Show no more signs of life, and look for none."""
        for ticker in self._tickers:
            ticker.stop(wait=0)

    def post(self, key: str, value: object) -> None:
        text = _written(value)
        self._ask(lambda: self._store.set(f"posted {key}", text))

    def read(self, key: str, by: int = 0) -> Any:
        return self.read_all({by: key})[by]

    def read_all(self, keys: Mapping[int, str], longest: float = BUSY_SECONDS) -> dict[int, Any]:
        """The values that these ranks left under these keys.

        Raises:
            DeviceError: One of them is lost, does not come for `longest` seconds, or cannot be reached.
        """
        names = {rank: f"posted {key}" for rank, key in keys.items()}
        self._wait_for(names, longest)
        texts = self._ask(lambda: _several(self._store, list(names.values())))
        return {rank: _read(text) for rank, text in zip(names, texts, strict=True)}

    def settle(self, key: str, value: object) -> Any:
        """Leave a value under this key unless there is one already. Returns the one that is there."""
        text = _written(value)
        return _read(self._ask(lambda: self._store.compare_set(f"posted {key}", "", text)))

    def forget(self, *keys: str) -> None:
        """Remove values that nobody will read any more."""

        def remove() -> None:
            with contextlib.suppress(RuntimeError):  # some stores cannot: they only grow
                for key in keys:
                    self._store.delete_key(f"posted {key}")

        self._ask(remove)

    def everyone(self, patience: timedelta = timedelta(seconds=START_SECONDS)) -> bool:
        if self._together is None:
            self._together = self._all_are_here(patience.total_seconds())
        return self._together

    def _all_are_here(self, seconds: float) -> bool:
        """Check that all ranks use Zeus. The first that knows, or has waited long enough, decides for all."""
        try:
            found = self._come([f"here {rank}" for rank in range(self.size)], seconds)
            together = bool(self.settle("together", found))
        except DeviceError as failed:
            log.warning("rank %d goes on alone: %s", self.rank, failed)
            return False
        if not together:
            log.warning("Only some of the %d ranks use Zeus, so rank %d goes on alone.", self.size, self.rank)
        return together

    # ------------------------------------------------------------------ waiting

    def _wait_for(self, keys: Mapping[int, str], longest: float) -> None:
        """Wait until each of these ranks has left its key."""
        begun = self._now()
        while not self._are_there(keys):
            missing = [rank for rank, key in keys.items() if not self._has(key)]
            if gone := [rank for rank in missing if self._silence(rank) == math.inf]:
                raise DeviceError(f"{_names(gone)} ended")
            silent = [rank for rank in missing if self._silence(rank) >= self._patience]
            self._lost = (self._lost - {*missing}) | {*silent}
            if silent:
                raise DeviceError(self._silent(silent))
            if missing and self._now() - begun >= longest:
                raise DeviceError(f"{_names(missing)} done something else for {longest:g} s")

    def _silent(self, ranks: list[int]) -> str:
        return f"{_names(ranks)} shown no sign of life for {self._patience:g} s"

    def _are_there(self, keys: Mapping[int, str]) -> bool:
        """Wait a little for these keys. A rank that was lost is not waited for before it beats again."""
        names = list(keys.values())
        if not self._lost.isdisjoint(keys):
            return all(map(self._has, names))
        return self._come(names, SLICE_SECONDS)

    def _has(self, key: str) -> bool:
        return self._ask(lambda: bool(self._store.check([key])))

    def _silence(self, rank: int) -> float:
        """Seconds since this rank was seen to beat, from the first look at it on. Infinite if it has ended."""
        beat = self._beat_of(rank)
        return math.inf if beat == FAREWELL else self._signs.silence(rank, beat)

    def _beat_of(self, rank: int) -> bytes:
        """Its last sign of life; empty if there was none yet."""
        key = f"beat {rank}"
        return self._ask(lambda: self._store.get(key) if self._store.check([key]) else b"")

    def _come(self, keys: list[str], seconds: float) -> bool:
        """Wait until all keys are there. False if they are not after so long.

        The store's own wait would print a warning each time that it takes so long.
        """

        def wait() -> bool:
            begun = time.monotonic()
            while not self._store.check(keys):
                waited = time.monotonic() - begun
                if waited >= seconds:
                    return False
                time.sleep(min(max(LOOK_SHARE * waited, SHORTEST_LOOK), LONGEST_LOOK))
            return True

        return self._ask(wait, seconds)

    def _ask(self, question: Callable[[], T], seconds: float = 0.0) -> T:
        """The store's answer to a question that takes so many seconds by itself."""
        try:
            return answer_within(
                seconds + self._patience, "torch.distributed", "asking the other ranks", question, grace=BEAT_SECONDS
            )
        except DeviceSilent:
            raise DeviceError(f"this rank has not reached the others for {self._patience:g} s") from None
        except RuntimeError as failed:
            first = (str(failed).splitlines() or [""])[0]
            raise DeviceError(f"this rank can no longer reach the others ({first})") from failed


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


class _Watch:
    """Looks for lost ranks, once with each call."""

    def __init__(self, ranks: TorchBoard, store: Any, tell: Callable[[str], None]) -> None:
        self._board, self._store, self._tell = ranks, store, tell
        self._watched = range(1, ranks.size) if ranks.rank == 0 else range(1)
        self._lost: set[int] = set()
        self._heard = 0  # of the losses that the first rank's beats tell
        self._cut_off = ""
        self._first_ended = False

    def __call__(self) -> None:
        board = self._board
        try:
            beats = board._ask(self._beats)
        except DeviceError as cut_off:
            if not self._cut_off:
                self._cut_off = str(cut_off)
                self._tell(self._cut_off)
            return
        self._cut_off = ""
        silent = {rank for rank, beat in beats.items() if board._signs.silence(rank, beat) >= board._patience}
        if new := sorted(silent - self._lost):
            why = f"{_names(new)} ended" if all(beats[rank] == FAREWELL for rank in new) else board._silent(new)
            board._missing = board._missing[0] + 1, why
            self._tell(why)
        self._lost = silent
        if board.rank != 0:
            self._listen(beats[0])

    def _beats(self) -> dict[int, bytes]:
        """The last beat of each rank that is watched; empty for one that has not begun to beat."""
        if self._first_ended:  # the store may have ended with it, and asking it would only print warnings
            return {0: FAREWELL}
        keys = [f"beat {rank}" for rank in self._watched]
        if self._store.check(keys):
            found = dict(zip(self._watched, _several(self._store, keys), strict=True))
        else:
            have = {rank for rank, key in zip(self._watched, keys, strict=True) if self._store.check([key])}
            found = {rank: self._store.get(f"beat {rank}") if rank in have else b"" for rank in self._watched}
        self._first_ended = found.get(0) == FAREWELL
        return found

    def _listen(self, beat: bytes) -> None:
        """Learn from the first rank which others are lost."""
        _, _, told = beat.partition(b"|")
        times, _, why = told.partition(b"|")
        if times and int(times) > self._heard:
            self._heard = int(times)
            self._tell(why.decode())


def _several(store: Any, keys: list[str]) -> list[bytes]:
    return list(store.multi_get(keys)) if store.has_extended_api() else [store.get(key) for key in keys]


def _written(value: object) -> str:
    return pickle.dumps(value).hex()


def _read(text: bytes) -> Any:
    return pickle.loads(bytes.fromhex(text.decode()))


def _names(ranks: list[int]) -> str:
    """Names ranks as the subject of "has" or "have".

    >>> _names([3]), _names([1, 3])
    ('rank 3 has', 'ranks 1 and 3 have')
    """
    *others, last = map(str, ranks)
    return f"ranks {', '.join(others)} and {last} have" if others else f"rank {last} has"


_board: tuple[weakref.ref[Any], TorchBoard] | None = None  # the process group and its board


def board() -> TorchBoard | None:
    """The board of all ranks; None if torch.distributed is not set up for several. Does not wait for them."""
    global _board
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    world = dist.group.WORLD
    if _board is None or _board[0]() is not world:
        if _board is not None:
            _board[1].stop()
        found = TorchBoard(dist.get_rank(), dist.get_world_size(), _get_default_store(), settings.rank_patience())
        found.beat()
        _board = weakref.ref(world), found
    return _board[1]
