"""How much one client may ask of the service: a body's size and time, and requests a second."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zeus.service.error_answers import answer

DROPPED_BYTES, DROPPED_SECONDS = 100_000_000, 10.0  # of a body that nobody wants
BRIEF_SECONDS = 0.5  # for which an answer waits for the rest of such a body, so that its connection can be kept
BYTES_PER_SECOND = 50_000  # that a body has to come at, on top of its first seconds
CLIENTS = 10_000  # remembered; the longest silent one is forgotten first


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """Refuses a body that is too large, announced or not, or too slow, before it is kept in memory.

    An answer that comes before the end of the body, as to somebody without a token, is sent at once. Then the body is
    heard out, to a point: who is still sending when the connection is closed never reads why.
    """

    app: ASGIApp
    most: int
    more: dict[str, int]  # by path, for the few routes that take more or less
    seconds: float = 30.0  # for a body to begin and, if it is small, to end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        body = _Body(receive, self.more.get(scope["path"], self.most), self.seconds, _is_announced(headers))
        outlet = _Outlet(body, send)
        announced = headers.get(b"content-length", b"0")
        if not announced.isdigit() or len(announced) > 18 or int(announced) > body.most:
            body.refusal = 413
        else:
            try:
                await self.app(scope, body.receive, outlet.send)
            except Exception:
                if not body.refusal:
                    raise
        if body.refusal and not outlet.begun:
            said = f"the body is larger than {body.most} bytes." if body.refusal == 413 else "the body came too slowly."
            status, body.refusal = body.refusal, 0
            await answer(scope["path"], status, said)(scope, receive, outlet.send)


@dataclass(slots=True)
class _Body:
    """A body as it comes in: counted and timed."""

    source: Receive
    most: int
    seconds: float
    announced: bool
    ended: bool = False
    seen: int = 0
    refusal: int = 0  # the status that says why nothing more is taken
    began: float = field(default_factory=time.monotonic)

    async def receive(self) -> Message:
        """The next piece; where it is refused, as if the client had hung up."""
        if self.ended:  # whoever still listens waits for the client to hang up
            return await self.source()
        message: Message = {"type": "http.disconnect"}
        with anyio.move_on_after(self.began + self.seconds + self.seen / BYTES_PER_SECOND - time.monotonic()) as wait:
            message = await self._next()
        if wait.cancelled_caught:
            self.refusal = 408
        elif self.seen > self.most:
            self.refusal = 413
        return {"type": "http.disconnect"} if self.refusal else message

    @property
    def comes(self) -> bool:
        """Whether there is more to hear."""
        return self.announced and not self.ended

    async def drop(self, seconds: float) -> None:
        """Hear the rest of it."""
        until = self.seen + DROPPED_BYTES
        with anyio.move_on_after(seconds):
            while self.comes and self.seen < until:
                await self._next()

    async def _next(self) -> Message:
        message = await self.source()
        self.ended = message["type"] != "http.request" or not message.get("more_body", False)
        self.seen += len(message.get("body", b""))
        return message


@dataclass(slots=True)
class _Outlet:
    """The answer on its way out."""

    body: _Body
    target: Send
    begun: bool = False

    async def send(self, message: Message) -> None:
        """A piece of it. Nothing leaves of an answer to a body that was refused."""
        if self.body.refusal:
            return
        if not self.begun:
            self.begun = True
            await self.body.drop(BRIEF_SECONDS)
            if self.body.comes:
                MutableHeaders(scope=message)["Connection"] = "close"
        elif self.body.comes and not message.get("more_body", False):
            await self.target({**message, "more_body": True})
            await self.body.drop(DROPPED_SECONDS)
            message = {"type": "http.response.body"}
        await self.target(message)


def _is_announced(headers: dict[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0") != b"0"


class Rate:
    """So many requests a second for each client, and at once as many as a burst holds: a bucket that refills."""

    def __init__(
        self, per_second: float, burst: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = per_second
        self._burst = 2 * per_second if burst is None else burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when that was

    def allows(self, client: str) -> bool:
        """Whether this client may make one more now."""
        if self._rate <= 0:
            return True
        now = self._clock()
        left, at = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        self._buckets[client] = (max(0.0, left - 1), now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return left >= 1
