"""Limits on one client: the size and duration of a body, and requests per second."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zeus.service.error_answers import answer

DROPPED_BYTES, DROPPED_SECONDS = 100_000_000, 10.0  # read and thrown away, of a body that was refused
BRIEF_SECONDS = 0.5  # an answer waits this long for the rest of such a body, to keep its connection
BYTES_PER_SECOND = 50_000  # the least speed of a body, after its first seconds
CLIENTS = 10_000  # remembered; the one silent for longest is forgotten first


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """Refuses a body that is too large or too slow before it is held in memory, whatever its Content-Length says.

    An answer that is ready before the body has ended is sent at once, for example to a client without a token. The rest
    of the body is then read and thrown away, up to a limit: a client whose connection closes while it is still sending
    never reads the answer.
    """

    app: ASGIApp
    most: int
    more: dict[str, int]  # bytes by path, for the few routes with a limit of their own
    seconds: float = 30.0  # to receive a small body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
            said = (
                f"the body is larger than {body.most} bytes." if body.refusal == 413 else "the body arrived too slowly."
            )
            status, body.refusal = body.refusal, 0
            await answer(scope["path"], status, said)(scope, receive, outlet.send)


@dataclass(slots=True)
class _Body:
    """A body while it is received: counted and timed."""

    source: Receive
    most: int
    seconds: float
    announced: bool
    ended: bool = False
    seen: int = 0
    refusal: int = 0  # the status to refuse it with; 0: not refused
    began: float = field(default_factory=time.monotonic)

    async def receive(self) -> Message:
        """The next piece. A refused body looks as if the client had disconnected."""
        if self.ended:  # all that can follow is that the client disconnects
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
        """Whether more of the body is to come."""
        return self.announced and not self.ended

    async def drop(self, seconds: float) -> None:
        """Read the rest and throw it away."""
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
    """The answer, held back while the body is still coming."""

    body: _Body
    target: Send
    begun: bool = False

    async def send(self, message: Message) -> None:
        """Send a piece. Nothing is sent of the application's answer to a refused body."""
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
    """A limit on the requests per second of each client, with bursts: a token bucket."""

    def __init__(
        self, per_second: float, burst: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = per_second
        self._burst = 2 * per_second if burst is None else burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and when that was counted

    def allows(self, client: str) -> bool:
        """Whether this client may make one more request now."""
        if self._rate <= 0:
            return True
        now = self._clock()
        left, at = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._rate)
        self._buckets[client] = (max(0.0, left - 1), now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return left >= 1
