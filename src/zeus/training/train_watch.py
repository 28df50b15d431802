"""Notices that an exception ended the training of a Hugging Face Trainer, which does not tell its callbacks."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ClassVar

from zeus.device.clock import REAL


class TrainWatch:
    """Calls `left` about a second after `Trainer.train`, in which it was made, was left without a call of `stop`.

    It looks for that call among those that its thread is making. It does not hold the call's frame, because that would
    keep the model in memory.
    """

    _all: ClassVar[weakref.WeakSet[TrainWatch]] = weakref.WeakSet()

    def __init__(self, left: Callable[[], None]) -> None:
        self._lock = threading.RLock()  # `left` calls `stop`
        self._left = left
        self._thread = threading.get_ident()
        self._call = next(_calls_of_train(sys._getframe()), None)  # None: nothing to watch, or not any more
        self._ticker = REAL.every(1.0, self.look)
        TrainWatch._all.add(self)

    @classmethod
    def look_at_all(cls) -> None:
        """Restore what trainings have left behind that were left since the last look."""
        for one in list(cls._all):
            one.look()

    def look(self) -> None:
        with self._lock:
            if self._call is not None and self._call not in _calls_of_train(sys._current_frames().get(self._thread)):
                self._left()
                self.stop()

    def stop(self) -> None:
        with self._lock:
            self._call = None
            self._ticker.stop(wait=0)


def _calls_of_train(frame: FrameType | None) -> Iterator[int]:
    """The calls of `Trainer.train` that led to this frame, the last one first: the addresses of their frames."""
    from transformers import Trainer  # loaded before any training begins

    while frame is not None:
        if frame.f_code is Trainer.train.__code__:
            yield id(frame)
        frame = frame.f_back
