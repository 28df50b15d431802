"""The outermost layer of the service: it admits or refuses a request, adds headers and writes a log line."""

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

HEADERS = {  # unless the route sets its own, as the page's do
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
class ServiceMiddleware:
    """The outermost layer. Plain ASGI: Starlette's own base class would cost more than most routes."""

    app: ASGIApp
    metrics: ServiceMetrics
    rate: Rate
    hosts: frozenset[str]
    log_json: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
            log.exception("%s %s failed", method_of(scope), route_of(scope))
            if status:  # the answer has begun, so it can only be cut short
                raise
            failed = answer(scope["path"], 500, "the service failed to answer this request. Its log has the reason.")
            await failed(scope, receive, noted)
        finally:
            seconds = time.perf_counter() - began
            self.metrics.answered(method_of(scope), route_of(scope), status, seconds)
            self._note(scope, status, seconds)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        why_not = check_origin(Request(scope), self.hosts)
        if why_not is not None:
            return answer(scope["path"], 403, why_not)
        if not self.rate.allows(client_of(scope)):
            return answer(scope["path"], 429, "too many requests. Slow down.", {"Retry-After": RETRY_SECONDS})
        return None

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Log one line. It has the route's pattern and no headers, so it holds no secrets and no user input."""
        method, route, client, ms = method_of(scope), route_of(scope), client_of(scope), round(seconds * 1000, 2)
        if self.log_json:
            at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            line = {"at": at, "method": method, "route": route, "status": status, "ms": ms, "client": client}
            requests.info("%s", json.dumps(line))
        else:
            requests.info("%s %s %s %s %.1f ms", client, method, route, status, ms)


def method_of(scope: Scope) -> str:
    """The method, or "other" if the client invented it: that is user input, and would be a new label of the metrics."""
    return scope["method"] if scope["method"] in METHODS else "other"


def route_of(scope: Scope) -> str:
    """The pattern of the route that matched, not the path, which holds user input."""
    return str(getattr(scope.get("route"), "path", "none"))


def keep_slashes(scope: Scope) -> None:
    """Keep the path of a job as it was sent: a job's name may hold a slash, sent as `%2F`.

    >>> scope = {"path": "/api/v1/jobs/a/b c/ask", "raw_path": b"/api/v1/jobs/a%2Fb%20c/ask"}
    >>> keep_slashes(scope)
    >>> scope["path"]
    '/api/v1/jobs/a%2Fb%20c/ask'
    """
    if scope["path"].startswith(JOBS) and scope.get("raw_path"):
        scope["path"] = scope["raw_path"].decode("latin-1")


def client_of(scope: Scope) -> str:
    """The client's address. Behind a named proxy, the address that the proxy reports."""
    return scope["client"][0] if scope.get("client") else ""
