"""How much one client may ask of the service: a body's size, and requests a second."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zeus.service.answers import answer

DROPPED_BYTES, DROPPED_SECONDS = 100_000_000, 10.0  # of a body that is refused
CLIENTS = 10_000  # remembered; the longest silent one is forgotten first


class BodyLimit:
    """Refuses a body that is too large, announced or not, before it is kept in memory."""

    def __init__(self, app: ASGIApp, most: int, more: dict[str, int]) -> None:
        self.app = app
        self._most = most
        self._more = more  # by path, for the few routes that take more

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most, seen = self._more.get(scope["path"], self._most), 0
        refusal = answer(scope["path"], 413, f"the body is larger than {most} bytes.", {"Connection": "close"})
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or len(announced) > 18 or int(announced) > most:
            await _drop(receive)
            await refusal(scope, receive, send)
            return
        begun = refused = heard = False

        async def counted() -> Message:
            nonlocal seen, refused, heard
            message = await receive()
            heard = not message.get("more_body", False)
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > most:
                    refused = True
                    return {"type": "http.disconnect"}
            return message

        async def watched(message: Message) -> None:
            nonlocal begun
            if not refused:
                begun = True
                await send(message)

        try:
            await self.app(scope, counted, watched)
        except Exception:
            if not refused:
                raise
        if refused and not begun:
            if not heard:  # after its end nothing more comes
                await _drop(receive)
            await refusal(scope, receive, send)


async def _drop(receive: Receive) -> None:
    """Hear a body out, to a point: who is still sending when the connection is closed never reads why."""
    left = DROPPED_BYTES
    with anyio.move_on_after(DROPPED_SECONDS):
        while left > 0:
            message = await receive()
            if message["type"] != "http.request" or not message.get("more_body", False):
                return
            left -= len(message.get("body", b""))


class Rate:
    """So many requests a second for each client, and as many at once again: a bucket that refills."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_second
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # what is left, and when that was

    def allows(self, client: str) -> bool:
        """Whether this client may make one more now."""
        if self._rate <= 0:
            return True
        now, most = self._clock(), 2 * self._rate
        left, at = self._buckets.pop(client, (most, now))
        left = min(most, left + (now - at) * self._rate)
        self._buckets[client] = (max(0.0, left - 1), now)
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        return left >= 1
