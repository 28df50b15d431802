"""Calls to a driver, with a time limit, because a driver may never answer.

Nothing can interrupt a call that hangs inside a driver: neither Ctrl-C nor SIGTERM. So each call is made on a daemon
thread that nobody waits for at exit. The thread is reused for the next call:

    caller ──question──▶ idle thread ──▶ driver
       ◀──── the answer, or DeviceSilent after the time limit; the thread then stays until the driver returns

While a call hangs, later questions about the same card are refused at once, so only one thread per card is lost. A
server that answers drop by drop is asked in the same way.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zeus.errors import DeviceSilent
from zeus.fork import renew_after_fork

STOPPED_SECONDS = 0.2  # for an answer that came while this process was suspended

T = TypeVar("T")


class Call(Generic[T]):
    """A call that was begun on another thread. Only `within` waits for it."""

    __slots__ = ("answer", "begun", "done", "error", "is_over", "question", "what", "who")

    def __init__(self, who: str, what: str, question: Callable[[], T]) -> None:
        self.who, self.what, self.question = who, what, question
        self.begun = time.monotonic()
        self.answer: Any = None
        self.error: BaseException | None = None
        self.is_over = False
        self.done = threading.Lock()
        self.done.acquire()

    def make(self) -> None:
        """Make the call, on this thread."""
        try:
            self.answer = self.question()
        except BaseException as error:
            self.error = error

    def within(self, seconds: float, *, grace: float = STOPPED_SECONDS) -> T:
        """The answer or the error, which can be asked for once. Raises like `answer_within`."""
        in_time = self.done.acquire(timeout=seconds) or self.done.acquire(timeout=grace)
        if not in_time and _threads.give_up(self):
            raise DeviceSilent(
                f"{self.what}: the driver has not answered for {seconds:g} s. `dmesg` may say why. Zeus goes on "
                "without this card until it answers."
            )
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # breaks the reference cycle through its traceback
        answer: T = self.answer
        return answer


class _Threads:
    """The threads that call drivers. There are as many as the most calls made at once."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        self._lock = threading.Lock()  # never held over a call
        self._idle: list[queue.SimpleQueue[Call[Any]]] = []
        self._stuck: list[Call[Any]] = []

    def stuck(self, who: str) -> Call[Any] | None:
        """A call about this card that was given up on and has not returned yet."""
        return next((call for call in self._stuck if call.who == who), None) if self._stuck else None

    def begin(self, call: Call[Any]) -> bool:
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

    def _serve(self, inbox: queue.SimpleQueue[Call[Any]]) -> None:
        while True:
            call = inbox.get()
            call.make()
            with self._lock:
                call.is_over = True
                self._idle.append(inbox)
                if call in self._stuck:
                    self._stuck.remove(call)
            call.done.release()
            del call  # or its answer would stay alive until the next call

    def give_up(self, call: Call[Any]) -> bool:
        """Stop waiting for the call. False if its answer has just come."""
        with self._lock:
            if not call.is_over:
                self._stuck.append(call)
            return not call.is_over


_threads = _Threads()
renew_after_fork(_threads)


def ask(who: str, what: str, question: Callable[[], T]) -> Call[T]:
    """Begin to ask the driver about one card, and do not wait.

    Args:
        who: The card. While a question about it hangs, no other is asked.
        what: The question in words, for messages.
        question: The call to make. It runs on another thread and may go on after nobody waits for it any more.

    Raises:
        DeviceSilent: The driver has not yet answered an earlier question.
    """
    if (stuck := _threads.stuck(who)) is not None:
        waited = time.monotonic() - stuck.begun
        raise DeviceSilent(
            f"{stuck.what}: the driver has not answered for {waited:.0f} s. Zeus asks it nothing else until it does."
        )
    call = Call(who, what, question)
    if not _threads.begin(call):  # no thread can be started
        call.make()
        call.is_over = True
        call.done.release()
    return call


def answer_within(
    seconds: float, who: str, what: str, question: Callable[[], T], *, grace: float = STOPPED_SECONDS
) -> T:
    """Ask the driver about one card, and return its answer or raise its error. The arguments are those of `ask`.

    Args:
        seconds: How long to wait.
        who: The card.
        what: The question in words.
        question: The call to make.
        grace: How much longer to wait, in case that this process was suspended all the while.

    Raises:
        DeviceSilent: The driver did not answer in time, or has not yet answered an earlier question.
    """
    return ask(who, what, question).within(seconds, grace=grace)
