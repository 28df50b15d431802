"""The service as one ASGI application over a store. It keeps nothing of its own: any number may run on one database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio.to_thread
from fastapi import Depends, FastAPI, Request, Response
from starlette.responses import JSONResponse

from zeus import __version__
from zeus.optimizer.batch_size.local import Folds
from zeus.service import answers, auth, words
from zeus.service.around import Around
from zeus.service.dashboard import page
from zeus.service.limits import BodyLimit, Rate
from zeus.service.metrics import Metrics
from zeus.service.old import old
from zeus.service.overview import Overview
from zeus.service.v1 import api
from zeus.store import Store
from zeus.store.tokens import Scope

THREADS = 16  # that wait for the database, each with a connection; what is more waits in front of them


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
    store_url: str | None = None  # where the store lies, as logs of trials lie beside it; None: ZEUS_STORE


def create(store: Store, settings: Settings | None = None) -> FastAPI:
    """The application."""
    settings = settings or Settings()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield

    app = FastAPI(
        title="Zeus",
        version=__version__,
        description="Recurring training jobs that get cheaper: ask for a batch size, report, see what was saved.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=life,
    )
    app.state.store, app.state.tokens, app.state.folds = store, store.tokens, Folds()
    app.state.overview = Overview(store, app.state.folds)
    app.state.metrics = Metrics(store, app.state.overview)
    app.state.open, app.state.settings = settings.open, settings
    answers.install(app)
    app.include_router(api, tags=["v1"], responses=words.problems())
    app.include_router(old, tags=["known clients"], responses=words.problems(words.Message))
    app.include_router(page.routes)
    _health(app)
    _login(app, settings)
    app.add_middleware(BodyLimit, most=settings.body_bytes, more={"/api/v1/import": settings.import_bytes})
    app.add_middleware(
        Around,  # the last one added is the outermost
        metrics=app.state.metrics,
        rate=Rate(settings.per_second),
        hosts=settings.hosts,
        secure=settings.secure,
        log_json=settings.log_json,
    )
    return app


def _health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, bool]:
        """The process answers."""
        return {"ok": True}

    @app.get("/readyz", tags=["health"], responses=words.problems(only=(503,)))
    def readyz(request: Request) -> dict[str, bool]:
        """The store answers too; otherwise 503."""
        request.app.state.store.pulse()
        return {"ok": True}

    @app.get(
        "/metrics",
        tags=["health"],
        dependencies=[Depends(auth.need(Scope.READ))],
        responses={200: {"content": {"text/plain": {}}}, **words.problems(only=(401, 503))},
    )
    def metrics(request: Request) -> Response:
        """For Prometheus."""
        return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4")


def _login(app: FastAPI, settings: Settings) -> None:
    @app.post("/login", tags=["page"], responses=words.problems(only=(400, 401, 413, 422, 503)))
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
