"""What happens to each request, whatever its route: whether it is served at all, its headers, its line in the log."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from zeus.service.auth import check_origin
from zeus.service.error_answers import RETRY_SECONDS, answer
from zeus.service.metrics import ServiceMetrics
from zeus.service.request_limits import Rate

log = logging.getLogger(__name__)
requests = logging.getLogger("zeus.service.requests")

HEADERS = {  # unless the route says otherwise, as those of the page do
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
SECURE = {"Strict-Transport-Security": "max-age=31536000"}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
JOBS = "/api/v1/jobs/"


@dataclass(frozen=True, slots=True)
class Around:
    """The outermost layer. Plain ASGI, as a request object and a task for each would cost more than most routes."""

    app: ASGIApp
    metrics: ServiceMetrics
    rate: Rate
    hosts: frozenset[str]
    log_json: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, **(SECURE if scope["scheme"] == "https" else {})}.items():
                    headers.setdefault(name, value)
            await send(message)

        keep_slashes(scope)
        serve = self._refusal(scope) or self.app
        try:
            await serve(scope, receive, noted)
        except Exception:
            log.exception("%s %s failed", scope["method"], route_of(scope))
            if status:  # the answer is on its way: all that is left is to cut it short
                raise
            failed = answer(scope["path"], 500, "this failed on the side of the service; its log says why.")
            await failed(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - began
            method = scope["method"] if scope["method"] in METHODS else "other"  # anybody can make up new ones
            self.metrics.answered(method, route_of(scope), status, seconds)
            self._note(scope, status, seconds)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        why_not = check_origin(Request(scope), self.hosts)
        if why_not is not None:
            return answer(scope["path"], 403, why_not)
        if not self.rate.allows(client_of(scope)):
            return answer(scope["path"], 429, "too many requests; slow down.", {"Retry-After": RETRY_SECONDS})
        return None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """One line. The route's pattern and no header: what users typed, and secrets, stay out of the log."""
        method, route, client, ms = scope["method"], route_of(scope), client_of(scope), round(seconds * 1000, 2)
        if self.log_json:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            line = {"at": at, "method": method, "route": route, "status": status, "ms": ms, "client": client}
            requests.info("%s", json.dumps(line))
        else:
            requests.info("%s %s %s %s %.1f ms", client, method, route, status, ms)


def route_of(scope: Scope) -> str:
    """The pattern of the route, never the path, which holds what users typed."""
    return str(getattr(scope.get("route"), "path", "none"))


def keep_slashes(scope: Scope) -> None:
    """A job's name may hold a slash: leave its path as it was sent, so that `%2F` does not part it.

    >>> scope = {"path": "/api/v1/jobs/a/b c/ask", "raw_path": b"/api/v1/jobs/a%2Fb%20c/ask"}
    >>> keep_slashes(scope)
    >>> scope["path"]
    '/api/v1/jobs/a%2Fb%20c/ask'
    """
    if scope["path"].startswith(JOBS) and scope.get("raw_path"):
        scope["path"] = scope["raw_path"].decode("latin-1")


def client_of(scope: Scope) -> str:
    """Whose address this is; behind a named proxy, as that one says."""
    return scope["client"][0] if scope.get("client") else ""
