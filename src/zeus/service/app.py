"""The service: one ASGI application over a store. It has no state of its own, so several can share one database."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import anyio.to_thread
from fastapi import Depends, FastAPI, Request, Response
from msgspec import Meta
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import JSONResponse

from zeus import __version__
from zeus.client.digest_writer import DigestThread
from zeus.client.local import LocalJobs
from zeus.client.policy_states import PolicyStateCache
from zeus.client.report import Digests
from zeus.job import Checked
from zeus.service import auth, error_answers, schemas
from zeus.service.dashboard import page
from zeus.service.metrics import ServiceMetrics
from zeus.service.middleware import ServiceMiddleware, client_of
from zeus.service.overview import Overview
from zeus.service.person import Rejected
from zeus.service.proxy_sign_in import ProxySignIn
from zeus.service.request_limits import BodyLimit, Rate
from zeus.service.routes import admin, jobs, profiles, trials, upstream
from zeus.store import Store
from zeus.store.tokens import Scope

log = logging.getLogger(__name__)

LOGIN_BYTES = 10_000  # nobody has shown a token yet, so the body must be small
LOGINS_PER_SECOND, LOGINS_AT_ONCE = 0.2, 10
COMPRESSED_FROM = 2_000  # bytes
THREADS = 16  # each waits for the database with a connection of its own; further requests queue


class Login(Checked, frozen=True):
    """The token to log in with."""

    token: Annotated[str, Meta(max_length=400)]


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `zeus serve`."""

    open: bool = True  # without a token anybody may do anything: for loopback, or with --insecure
    hosts: frozenset[str] = frozenset()  # names the service answers to; empty: any name
    body_bytes: int = 1_000_000
    import_bytes: int = 100_000_000
    body_seconds: float = 30.0  # to receive a body, plus one second for each 50 kB
    per_second: float = 500.0  # requests of one client; 0: no limit
    log_json: bool = False
    store_url: str | None = None  # address of the store, which says where trial logs are; None: ZEUS_STORE
    proxy_user_header: str = ""  # in which a proxy names who signed in; empty: in none
    trusted_proxies: tuple[str, ...] = ()  # from whose addresses that header counts
    proxy_scope: str = "read"  # what people may do whom the proxy names

    @property
    def proxy_sign_in(self) -> ProxySignIn:
        """How people sign in through a proxy."""
        return ProxySignIn(self.proxy_user_header, tuple(self.trusted_proxies), Scope(self.proxy_scope))


def create(store: Store, settings: Settings | None = None) -> FastAPI:
    """Make the application."""
    settings = settings or Settings()

    states = PolicyStateCache()
    digests = DigestThread(Digests(store, states).refresh)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        digests.start()
        yield
        digests.close()

    app = FastAPI(
        title="Zeus",
        version=__version__,
        description="Recurring training jobs that get cheaper: ask for a batch size, report, see what was saved.",
        docs_url=None,  # its page would load scripts from another site
        redoc_url=None,
        lifespan=life,
    )
    app.state.store, app.state.tokens = store, store.tokens
    app.state.jobs = LocalJobs(store, states=states, digests=digests, origin=lambda: None)
    app.state.overview = Overview(store)  # with states of its own: a list of many jobs must not evict those that ask
    app.state.metrics = ServiceMetrics(store, app.state.overview)
    app.state.open, app.state.settings = settings.open, settings
    app.state.proxy_sign_in = settings.proxy_sign_in
    error_answers.install(app)
    for resource in (jobs, trials, profiles, admin):
        app.include_router(resource.routes, tags=["v1"], responses=schemas.problems())
    app.include_router(upstream.routes, tags=["known clients"], responses=schemas.problems(schemas.Message))
    app.include_router(page.routes)
    _health(app)
    _login(app)
    schemas.describe_bodies(app)
    more = {"/api/v1/import": settings.import_bytes, "/login": LOGIN_BYTES}
    app.add_middleware(GZipMiddleware, minimum_size=COMPRESSED_FROM, compresslevel=4)
    app.add_middleware(BodyLimit, most=settings.body_bytes, more=more, seconds=settings.body_seconds)
    app.add_middleware(
        ServiceMiddleware,  # the last one added is the outermost
        metrics=app.state.metrics,
        rate=Rate(settings.per_second),
        hosts=settings.hosts,
        log_json=settings.log_json,
    )
    return app


def _health(app: FastAPI) -> None:
    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, bool]:
        """Whether the process answers."""
        return {"ok": True}

    @app.get("/readyz", tags=["health"], response_model=dict[str, bool], responses=schemas.problems(only=(503,)))
    def readyz(request: Request) -> Response:
        """Whether the store can be used, too. If not: 503, and the message says why."""
        trouble = request.app.state.store.care.trouble()
        if trouble is None:
            return JSONResponse({"ok": True})
        log.warning("not ready: %s", trouble)
        return error_answers.answer("/readyz", 503, f"{trouble}.", {"Retry-After": error_answers.RETRY_SECONDS})

    @app.get(
        "/metrics",
        tags=["health"],
        dependencies=[Depends(auth.Need(Scope.READ).person)],
        responses={200: {"content": {"text/plain": {}}}, **schemas.problems(only=(401, 503))},
    )
    def metrics(request: Request) -> Response:
        """Metrics for Prometheus."""
        return Response(request.app.state.metrics.text(), media_type="text/plain; version=0.0.4")


def _login(app: FastAPI) -> None:
    tries = Rate(LOGINS_PER_SECOND, LOGINS_AT_ONCE)

    @app.post(
        "/login",
        tags=["page"],
        responses=schemas.problems(only=(400, 401, 408, 413, 422, 429, 503)),
        openapi_extra=schemas.takes(Login),
    )
    def login(request: Request, body: Annotated[Login, schemas.body(Login)]) -> JSONResponse:
        """Log in with a token. Sets a session cookie, which is not the token and which scripts cannot read."""
        if not tries.allows(client_of(request.scope)):
            return error_answers.answer(
                "/login", 429, "too many logins. Wait a few seconds and try again.", {"Retry-After": "5"}
            )
        tokens = request.app.state.tokens
        person = auth.check(tokens, body.token)
        if isinstance(person, Rejected):
            return error_answers.answer("/login", 401, f"{person.why}.")
        response = JSONResponse({"name": person.name, "scope": person.scope.value})
        session, age = auth.begin_session(tokens, body.token), auth.SESSION_SECONDS
        response.set_cookie(auth.COOKIE, session, max_age=age, **_kept_safe(request))
        return response

    @app.post("/logout", tags=["page"], responses=schemas.problems(only=(503,)))
    def logout(request: Request) -> JSONResponse:
        """End the session."""
        if (session := request.cookies.get(auth.COOKIE)) is not None:
            auth.end_session(request.app.state.tokens, session)
        response = JSONResponse({"ok": True})
        response.delete_cookie(auth.COOKIE, **_kept_safe(request))
        return response


def _kept_safe(request: Request) -> dict[str, Any]:
    """Options of a cookie: hidden from scripts and other sites, and sent over TLS alone where TLS is in use."""
    return {"httponly": True, "samesite": "strict", "secure": request.url.scheme == "https"}
