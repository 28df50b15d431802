"""Calls to a driver, with a time limit, because a driver may never answer.

Nothing can interrupt a call that hangs inside a driver: neither Ctrl-C nor SIGTERM. So each call is made on a daemon
thread that nobody waits for at exit. The thread is reused for the next call:

    caller ──question──▶ idle thread ──▶ driver
       ◀──── the answer, or DeviceSilent after the time limit; the thread then stays until the driver returns

While a call hangs, later questions about the same card are refused at once, so only one thread per card is lost.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from zeus.errors import DeviceSilent

STOPPED_SECONDS = 0.2  # for an answer that came while this process was suspended

T = TypeVar("T")


class _Call:
    __slots__ = ("answer", "begun", "done", "error", "is_over", "question", "what", "who")

    def __init__(self, who: str, what: str, question: Callable[[], Any]) -> None:
        self.who, self.what, self.question = who, what, question
        self.begun = time.monotonic()
        self.answer: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self.done = threading.Lock()
        self.done.acquire()


class _Threads:
    """The threads that call drivers. There are as many as the most calls made at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held over a call
        self._idle: list[queue.SimpleQueue[_Call]] = []
        self._stuck: list[_Call] = []

    def stuck(self, who: str) -> _Call | None:
        """A call about this card that was given up on and has not returned yet."""
        return next((call for call in self._stuck if call.who == who), None) if self._stuck else None

    def begin(self, call: _Call) -> bool:
        """Start the call. False if no thread can be started."""
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = queue.SimpleQueue()
            try:
                threading.Thread(target=self._serve, args=(inbox,), name="zeus-driver", daemon=True).start()
            except RuntimeError:
                return False
        inbox.put(call)
        return True

    def _serve(self, inbox: queue.SimpleQueue[_Call]) -> None:
        while True:
            call = inbox.get()
            try:
                call.answer = call.question()
            except BaseException as error:
                call.error = error
            with self._lock:
                call.is_over = True
                self._idle.append(inbox)
                if call in self._stuck:
                    self._stuck.remove(call)
            call.done.release()
            del call  # or its answer would stay alive until the next call

    def give_up(self, call: _Call) -> bool:
        """Stop waiting for the call. False if its answer has just come."""
        with self._lock:
            if not call.is_over:
                self._stuck.append(call)
            return not call.is_over


_threads = _Threads()


def _after_fork() -> None:
    global _threads
    _threads = _Threads()  # a fork has none of its parent's threads


os.register_at_fork(after_in_child=_after_fork)


def answer_within(
    seconds: float, who: str, what: str, question: Callable[[], T], *, grace: float = STOPPED_SECONDS
) -> T:
    """Ask the driver about one card, and return its answer or raise its error.

    Args:
        seconds: How long to wait.
        who: The card. While a question about it hangs, no other is asked.
        what: The question in words, for messages.
        question: The call to make. It runs on another thread and may go on after this function has returned.
        grace: How much longer to wait, in case that this process was suspended all the while.

    Raises:
        DeviceSilent: The driver did not answer in time, or has not yet answered an earlier question.
    """
    threads = _threads
    if (stuck := threads.stuck(who)) is not None:
        waited = time.monotonic() - stuck.begun
        raise DeviceSilent(
            f"{stuck.what}: the driver has not answered for {waited:.0f} s. Zeus asks it nothing else until it does."
        )
    call = _Call(who, what, question)
    if not threads.begin(call):
        return question()
    in_time = call.done.acquire(timeout=seconds) or call.done.acquire(timeout=grace)
    if not in_time and threads.give_up(call):
        raise DeviceSilent(
            f"{what}: the driver has not answered for {seconds:g} s. `dmesg` may say why. Zeus goes on "
            "without this card until it answers."
        )
    error, call.error = call.error, None
    if error is not None:
        try:
            raise error
        finally:
            del error  # breaks the reference cycle through its traceback
    answer: T = call.answer
    return answer
