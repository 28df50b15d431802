"""The service as one ASGI application over a store. It keeps nothing of its own: any number may run on one database."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Depends, FastAPI, Request, Response
from starlette.responses import JSONResponse

from zeus import __version__
from zeus.optimizer.batch_size.local import Folds
from zeus.service import answers, auth, words
from zeus.service.dashboard import page
from zeus.service.limits import BodyLimit, Rate
from zeus.service.metrics import Metrics
from zeus.service.old import old
from zeus.service.overview import Overview
from zeus.service.paths import WholeParts
from zeus.service.v1 import api
from zeus.store import Store
from zeus.store.tokens import Scope

log = logging.getLogger("zeus.service.requests")

Next = Callable[[Request], Awaitable[Response]]

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What `zeus serve` was told."""

    open: bool = True  # without a token anybody may do anything; only for loopback, or at the owner's own risk
    hosts: frozenset[str] = frozenset()  # names it answers to; none: any
    body_bytes: int = 1_000_000
    import_bytes: int = 100_000_000
    per_second: float = 500.0  # requests of one client; 0: any number
    secure: bool = False  # TLS ends here: the cookie is for TLS alone
    log_json: bool = False


def create(store: Store, settings: Settings | None = None) -> FastAPI:
    """The application."""
    settings = settings or Settings()
    app = FastAPI(
        title="Zeus",
        version=__version__,
        description="Recurring training jobs that get cheaper: ask for a batch size, report, see what was saved.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.store, app.state.tokens, app.state.folds = store, store.tokens, Folds()
    app.state.overview = Overview(store, app.state.folds)
    app.state.metrics = Metrics(store, app.state.overview)
    app.state.open, app.state.settings = settings.open, settings
    answers.install(app)
    app.include_router(api, tags=["v1"])
    app.include_router(old, tags=["known clients"])
    app.include_router(page.routes)
    _health(app)
    _login(app, settings)
    _around(app, settings)
    app.add_middleware(WholeParts)
    app.add_middleware(BodyLimit, most=settings.body_bytes, more={"/api/v1/import": settings.import_bytes})
    return app


def _health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, bool]:
        """The process answers."""
        return {"ok": True}

    @app.get("/readyz", tags=["health"])
    def readyz(request: Request) -> dict[str, bool]:
        """The store answers too; otherwise 503."""
        request.app.state.store.pulse()
        return {"ok": True}

    @app.get("/metrics", tags=["health"], dependencies=[Depends(auth.need(Scope.READ))])
    def metrics(request: Request) -> Response:
        """For Prometheus."""
        return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4")


def _login(app: FastAPI, settings: Settings) -> None:
    @app.post("/login", tags=["page"])
    def login(request: Request, body: words.Login) -> JSONResponse:
        """A token once, then a cookie that scripts cannot read."""
        person = auth.check(request.app.state.tokens, body.token)
        if person is None:
            return answers.answer("/login", 401, "this token is wrong or was revoked.")
        response = JSONResponse({"name": person.name, "scope": person.scope.value})
        response.set_cookie(
            auth.COOKIE, body.token, max_age=30 * 86_400, httponly=True, samesite="strict", secure=settings.secure
        )
        return response

    @app.post("/logout", tags=["page"])
    def logout() -> JSONResponse:
        """Forget the cookie."""
        response = JSONResponse({"ok": True})
        response.delete_cookie(auth.COOKIE, httponly=True, samesite="strict", secure=settings.secure)
        return response


def _around(app: FastAPI, settings: Settings) -> None:
    """What happens to each request, whatever its route."""
    rate = Rate(settings.per_second)

    @app.middleware("http")
    async def around(request: Request, call_next: Next) -> Response:
        begun = time.perf_counter()
        client = request.client.host if request.client is not None else ""
        why_not = auth.check_origin(request, settings.hosts)
        if why_not is not None:
            response: Response = answers.answer(request.url.path, 403, why_not)
        elif not rate.allows(client):
            slower = {"Retry-After": answers.RETRY_SECONDS}
            response = answers.answer(request.url.path, 429, "too many requests; slow down.", slower)
        else:
            response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        seconds = time.perf_counter() - begun
        route = getattr(request.scope.get("route"), "path", "none")
        request.app.state.metrics.answered(request.method, route, response.status_code, seconds)
        _note(settings, request, route, response.status_code, seconds, client)
        return response


def _note(settings: Settings, request: Request, route: str, status: int, seconds: float, client: str) -> None:
    """One line a request. The route's pattern and no header: what users typed, and secrets, stay out of the log."""
    if settings.log_json:
        line = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": request.method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "client": client,
        }
        log.info("%s", json.dumps(line))
    else:
        log.info("%s %s %s %s %.1f ms", client, request.method, route, status, seconds * 1000)
